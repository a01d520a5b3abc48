// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {SafeTransferLib} from "solady/utils/SafeTransferLib.sol";

import {IAuditPanel} from "./interfaces/IAuditPanel.sol";
import {IDemands} from "./interfaces/IDemands.sol";
import {IDrawBeacon} from "./interfaces/IDrawBeacon.sol";
import {IJuries} from "./interfaces/IJuries.sol";
import {IJurorDemands} from "./interfaces/IJurorDemands.sol";
import {ISessionDemands} from "./interfaces/ISessionDemands.sol";
import {IStakeVault} from "./interfaces/IStakeVault.sol";
import {Records} from "./libraries/Records.sol";

/// @title JurorDemands
/// @notice The reader that SessionDemands knows the panel by. It holds the bonds of its demands while
/// SessionDemands does not, and nothing else.
/// @dev A demand is its own contract's, so the share of a slash for silence goes to this contract and
/// stays there: a juror is not to live on V's silence.
contract JurorDemands is IJurorDemands, ReentrancyGuardTransient {
    IStakeVault public immutable vault;
    IAuditPanel public immutable panel;
    IJuries public immutable juries;
    ISessionDemands public immutable demands;
    address public immutable bondToken;

    mapping(bytes32 id => address) public jurorOf;
    mapping(bytes32 id => uint256) public bondOf;

    error ZeroAddress(string what);
    error NotThisCharge(bytes32 shown, bytes32 kept);
    error NotRunning(uint64 caseId);
    error NotJuror(uint64 juryId, address caller);
    error NotThisSession(bytes32 shown, bytes32 judged);
    error EndsBefore(uint32 shown, uint32 judged);
    error NothingToRefund(bytes32 id);

    constructor(IStakeVault vault_, IAuditPanel panel_, IJuries juries_, ISessionDemands demands_) {
        if (address(vault_) == address(0)) revert ZeroAddress("vault");
        if (address(panel_) == address(0)) revert ZeroAddress("panel");
        if (address(juries_) == address(0)) revert ZeroAddress("juries");
        if (address(demands_) == address(0)) revert ZeroAddress("demands");
        (vault, panel, juries, demands) = (vault_, panel_, juries_, demands_);
        bondToken = vault_.stakeToken();
    }

    /// @inheritdoc IJurorDemands
    function demand(
        IAuditPanel.Charge calldata charge,
        ISessionDemands.SessionCase calldata session,
        IDrawBeacon.Batch calldata batch,
        bytes calldata entries,
        uint32 index,
        uint256 keyX,
        uint256 keyY
    ) external nonReentrant returns (bytes32 id) {
        _requireJuror(charge);
        // INVARIANT: a juror reads what it has to judge, and no other session.
        bytes32 start = Records.hash(session.start);
        if (start != charge.subject.startHash) {
            revert NotThisSession(start, charge.subject.startHash);
        }
        if (session.record.round < charge.subject.round) {
            revert EndsBefore(session.record.round, charge.subject.round);
        }
        uint256 bond = IDemands(address(demands)).terms().bond;
        SafeTransferLib.safeTransferFrom(bondToken, msg.sender, address(this), bond);
        SafeTransferLib.safeApprove(bondToken, address(demands), bond);
        id = demands.demandSession(session, batch, entries, index, keyX, keyY);
        (jurorOf[id], bondOf[id]) = (msg.sender, bond);
        emit JurorDemanded(charge.caseId, msg.sender, id);
    }

    function _requireJuror(IAuditPanel.Charge calldata charge) private view {
        bytes32 shown = keccak256(abi.encode(charge));
        bytes32 kept = panel.chargeHash(charge.caseId);
        if (shown != kept) revert NotThisCharge(shown, kept);
        IAuditPanel.CaseState memory state = panel.caseOf(charge.caseId);
        bool appealed = state.stage == IAuditPanel.Stage.APPEAL;
        if (!appealed && state.stage != IAuditPanel.Stage.PANEL) {
            revert NotRunning(charge.caseId);
        }
        uint64 jury = appealed ? state.appeal : state.panel;
        address account = vault.accountOf(msg.sender);
        if (!juries.isMember(jury, account) || vault.operatorOf(account) != msg.sender) {
            revert NotJuror(jury, msg.sender);
        }
    }

    /// @inheritdoc IJurorDemands
    function refund(bytes32 id) external nonReentrant {
        uint256 bond = bondOf[id];
        IDemands.Stage stage = IDemands(address(demands)).demandState(id).stage;
        // INVARIANT: the bond is the juror's where V has not earned it, and once.
        if (bond == 0 || (stage != IDemands.Stage.SILENT && stage != IDemands.Stage.FAULTY)) {
            revert NothingToRefund(id);
        }
        delete bondOf[id];
        if (IDemands(address(demands)).bondOf(address(this)) != 0) {
            IDemands(address(demands)).pullBond(address(this));
        }
        emit JurorRefunded(id, jurorOf[id], bond);
        SafeTransferLib.safeTransfer(bondToken, vault.payoutTo(jurorOf[id]), bond);
    }
}
