// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Vm} from "forge-std/Vm.sol";

import {AuditPanel} from "../AuditPanel.sol";
import {AuditorPool} from "../AuditorPool.sol";
import {ClaimJudge} from "../ClaimJudge.sol";
import {Juries} from "../Juries.sol";
import {PanelTerms} from "../PanelTerms.sol";
import {PlaceRule} from "../PlaceRule.sol";
import {IAlphaLedger} from "../interfaces/IAlphaLedger.sol";
import {IAuditPanel} from "../interfaces/IAuditPanel.sol";
import {IBonded} from "../interfaces/IBonded.sol";
import {IDrawBeacon} from "../interfaces/IDrawBeacon.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {IPanelTerms} from "../interfaces/IPanelTerms.sol";
import {IPlaceRule} from "../interfaces/IPlaceRule.sol";
import {Role} from "../interfaces/IStakeVault.sol";
import {Fingerprints} from "../libraries/Fingerprints.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {RoundWork} from "./RoundWork.sol";

/// @notice The panel over real stakes, with auditors whose answers the test writes.
abstract contract PanelWork is RoundWork {
    AuditorPool internal pool;
    Juries internal juries;
    PanelTerms internal panelTerms;
    PlaceRule internal placeRule;
    AuditPanel internal panel;
    ClaimJudge internal claimJudge;

    /// @dev A tenth of what half of STAKE brings an accuser; the least bond as well.
    uint96 internal constant BOND = 12_500 ether;
    uint128 internal constant FEE = 3 ether;
    uint96 internal constant MIN_STAKE = 1_000 ether;
    uint96 internal constant AUDITOR_STAKE = 10_000 ether;
    uint64 internal constant MARGIN = 1 << 20;
    uint64 internal constant DISTANCE = 400;
    bytes32 internal constant PRINT_SALT = keccak256("V's salt");
    /// @dev Sixteen values of V's own.
    bytes32 internal constant PRINT = bytes32(uint256(0x0001) << 240 | uint256(0x7f00));
    bytes32 internal constant FAR = bytes32(uint256(0x0800) << 128);

    address internal accuser = makeAddr("accuser");
    address[] internal auditors;
    mapping(address account => uint64) internal marginOf;
    mapping(address account => bytes32) internal printOf;
    mapping(address account => bool) internal says; // it was given nothing
    mapping(address account => bool) internal silent;
    Records.Manifest internal target;
    Records.Manifest internal draft;

    function setUp() public virtual override {
        super.setUp();
        vm.roll(10_000);
        IDrawBeacon.Terms memory drawn;
        drawn.faultBps = 5_000;
        vm.mockCall(address(beacon), abi.encodeCall(IDrawBeacon.terms, ()), abi.encode(drawn));
        IDrawBeacon b = IDrawBeacon(address(beacon));
        pool = new AuditorPool(owner, vault, MIN_STAKE);
        juries = new Juries(owner, vault, pool, IJuries.Terms(500, 400, 4));
        panelTerms = new PanelTerms(owner, vault, b, _panelTerms());
        placeRule = new PlaceRule(escrow, b, IAlphaLedger(address(ledger)));
        panel = new AuditPanel(vault, escrow, registry, placeRule, juries, panelTerms);
        claimJudge = new ClaimJudge(panel, IAlphaLedger(address(ledger)));
        (target, draft) = (_manifest("target", 1), _manifest("draft", 1));
        vm.startPrank(owner);
        juries.setCourt(address(panel), true);
        vault.setSlasher(address(panel), true);
        vault.setSlasher(address(juries), true);
        vault.setClock(panelTerms);
        escrow.setFeeSpender(address(panel), true);
        panelTerms.setFee(address(token), FEE);
        registry.setTolerance(Records.modelId(target), MARGIN, DISTANCE, 0);
        registry.setTolerance(Records.modelId(draft), MARGIN, DISTANCE, 0);
        vm.stopPrank();
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, STAKE);
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, STAKE);
        _fund(accuser, address(panel), 1_000_000 ether);
    }

    function _manifest(string memory name, uint8 tier)
        internal
        returns (Records.Manifest memory m)
    {
        (m.architecture, m.tier, m.vocabSize, m.contextLength) = (name, tier, 512, 1_024);
        m.eosIds = new uint32[](0);
        (m.weightsRoot, m.tokenizerHash) = (keccak256(bytes(name)), keccak256("t"));
        registry.register(m);
    }

    function _panelTerms() internal pure returns (IPanelTerms.Terms memory t) {
        (t.bond, t.bondBps) = (BOND, 1_000);
        (t.faultBps, t.rewardBps, t.victimBps) = (5_000, 2_500, 2_500);
        (t.panelSize, t.appealSize, t.minSeated) = (5, 15, 3);
        (t.minPool, t.appealWindow) = (30_000 ether, 1 days);
        t.spans = IJuries.Spans(1 hours, 1 days, 6 hours, 12 hours);
    }

    // ------------------------------------------------------------------ auditors

    function _auditor(string memory name, uint256 stake) internal returns (address account) {
        account = makeAddr(name);
        bytes32[] memory models = new bytes32[](2);
        (models[0], models[1]) = (Records.modelId(target), Records.modelId(draft));
        _fund(account, address(vault), stake);
        vm.startPrank(account);
        vault.stake(account, makeAddr(string.concat(name, "'s")), Role.AUDITOR, stake, models);
        pool.sync(account, models[0], 0);
        pool.sync(account, models[1], 0);
        vm.stopPrank();
        printOf[account] = PRINT;
        auditors.push(account);
    }

    function _auditors(uint256 count) internal {
        for (uint256 i; i < count; ++i) {
            _auditor(string.concat("auditor ", vm.toString(i)), AUDITOR_STAKE);
        }
    }

    // ------------------------------------------------------------------ what is asked

    /// @dev Two rounds with prices, in a model of the registry, fingerprints sealed by one salt.
    function _said(uint8 mode) internal view returns (Session memory s) {
        s = _session(mode);
        s.order.targetModel = Records.modelId(target);
        s.order.draftModel = Records.modelId(draft);
        (s.order.priceOutput, s.order.priceAccepted) = (2 ether, 1 ether);
        _play(s, 4, 2, 3);
        _play(s, 3, 3, 3);
        for (uint256 i; i < 2; ++i) {
            for (uint256 j; j < s.rounds[i].leaves.length; ++j) {
                s.rounds[i].leaves[j].fingerprint = Fingerprints.seal(PRINT_SALT, PRINT);
            }
        }
        _seal(s);
    }

    function _place(Session memory s, uint256 index, uint256 within)
        internal
        pure
        returns (IPlaceRule.Place memory p)
    {
        Openings.Opening memory o =
            abi.decode(abi.encode(_openingAt(s, index, within)), (Openings.Opening));
        (p.settled, p.record, p.leafIndex, p.steps) = (o.settled, o.record, o.leafIndex, o.steps);
        (p.order, p.start, p.verdict) = (o.order, o.start, o.verdict);
        (p.within, p.leaf, p.path) = (uint32(within), o.verdictLeaf, o.verdictPath);
        (p.commit, p.commitSignature) = (o.commit, o.commitSignature);
        (p.draft, p.draftPath) = (o.draftLeaf, o.draftPath);
    }

    function _source(Session memory s) internal returns (IPlaceRule.Source memory source) {
        bytes32 lane = Records.laneId(Records.laneOf(s.order));
        source.entries = abi.encode(lane, _rootHash(_settled(s)), uint256(0));
        IDrawBeacon.Batch memory batch = source.batch;
        (batch.id, batch.entries, batch.entriesHash) = (9, 1, keccak256(source.entries));
        batch.settledAt = uint64(block.timestamp);
        batch.terms.evidence = _times().evidence;
        batch.terms.firstDeadline = _times().firstDeadline;
        batch.terms.secondDeadline = _times().secondDeadline;
        _keep(batch);
    }

    function _keep(IDrawBeacon.Batch memory batch) internal {
        vm.mockCall(
            address(beacon),
            abi.encodeCall(IDrawBeacon.batchHash, (batch.id)),
            abi.encode(keccak256(abi.encode(batch)))
        );
    }

    function _question(Session memory s, uint256 index, uint256 within)
        internal
        returns (bytes memory)
    {
        return abi.encode(_place(s, index, within), _source(s));
    }

    function _draftQuestion(Session memory s, uint256 within, uint64 ledgerCase)
        internal
        returns (bytes memory)
    {
        return abi.encode(_place(s, 0, within), _source(s), ledgerCase);
    }

    // ------------------------------------------------------------------ a case

    function _accuse(uint8 fault, bytes memory question)
        internal
        returns (IAuditPanel.Charge memory)
    {
        vm.recordLogs();
        vm.prank(accuser);
        panel.accuse(fault, question);
        return _chargeIn(vm.getRecordedLogs());
    }

    function _accuseV() internal returns (IAuditPanel.Charge memory) {
        return _accuse(9, _question(_said(1), 0, 1));
    }

    function _chargeIn(Vm.Log[] memory logs)
        internal
        view
        returns (IAuditPanel.Charge memory charge)
    {
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] == IAuditPanel.CaseFiled.selector) {
                charge = abi.decode(logs[i].data, (IAuditPanel.Charge));
            }
        }
        assertEq(panel.chargeHash(charge.caseId), keccak256(abi.encode(charge)), "as the event");
    }

    function _juryOf(IAuditPanel.Charge memory charge) internal view returns (uint64) {
        IAuditPanel.CaseState memory state = panel.caseOf(charge.caseId);
        return state.appeal == 0 ? state.panel : state.appeal;
    }

    function _seat(uint64 jury) internal {
        vm.roll(vm.getBlockNumber() + 6);
        juries.seat(jury);
    }

    function _salt(uint64 jury, address member) internal pure returns (bytes32) {
        return keccak256(abi.encode("salt", jury, member));
    }

    function _commit(uint64 jury) internal {
        address[] memory members = juries.membersOf(jury);
        for (uint256 i; i < members.length; ++i) {
            address m = members[i];
            if (silent[m]) continue;
            bytes32 commitment =
                juries.commitmentOf(jury, m, says[m], marginOf[m], printOf[m], _salt(jury, m));
            vm.prank(m);
            juries.commit(jury, commitment);
        }
        // Where somebody is silent, the others wait for him.
        if (!juries.isClosed(jury)) vm.warp(juries.juryOf(jury).commitUntil + 1);
    }

    function _reveal(uint64 jury) internal {
        address[] memory members = juries.membersOf(jury);
        for (uint256 i; i < members.length; ++i) {
            address m = members[i];
            if (silent[m]) continue;
            juries.reveal(jury, m, says[m], marginOf[m], printOf[m], _salt(jury, m));
        }
    }

    /// @dev From the summons to the last answer, V opening its fingerprint where it has to.
    function _sit(IAuditPanel.Charge memory charge) internal returns (uint64 jury) {
        jury = _juryOf(charge);
        _seat(jury);
        _commit(jury);
        if (juries.juryOf(jury).waits) panel.openPrint(charge, PRINT_SALT, PRINT);
        _reveal(jury);
    }

    function _toDecision(IAuditPanel.Charge memory charge) internal {
        _sit(charge);
        panel.decide(charge);
    }

    function _conclude(IAuditPanel.Charge memory charge) internal {
        _toDecision(charge);
        vm.warp(panel.caseOf(charge.caseId).appealUntil + 1);
        panel.conclude(charge);
    }

    function _appeal(IAuditPanel.Charge memory charge, address who) internal {
        _fund(who, address(panel), 2 * charge.bond);
        vm.prank(who);
        panel.appeal(charge);
    }

    function _allSay(uint64 margin) internal {
        for (uint256 i; i < auditors.length; ++i) {
            marginOf[auditors[i]] = margin;
        }
    }

    // ------------------------------------------------------------------ the books

    function _stakeV() internal view returns (uint256) {
        return vault.slashable(verifier.addr, Role.VERIFIER);
    }

    function _stakeD() internal view returns (uint256) {
        return vault.slashable(drafter.addr, Role.DRAFTER);
    }

    function _vestedTo(address who) internal view returns (uint256) {
        return vault.vestingOf(who, vault.sliceOf(block.timestamp + _times().unbonding) + 1);
    }

    function _assertBonds() internal view {
        IBonded.Bonds memory b = panel.bonds();
        assertEq(token.balanceOf(address(panel)), b.open + b.payable_ + b.burning, "bonds");
        _assertConserved();
    }
}
