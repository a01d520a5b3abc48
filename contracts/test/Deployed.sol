// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "forge-std/Test.sol";

import {DevToken} from "../DevToken.sol";
import {LaneEscrow} from "../LaneEscrow.sol";
import {ModelRegistry} from "../ModelRegistry.sol";
import {StakeVault} from "../StakeVault.sol";
import {IAlphaLedger} from "../interfaces/IAlphaLedger.sol";
import {IDrawBeacon} from "../interfaces/IDrawBeacon.sol";
import {ILaneEscrow} from "../interfaces/ILaneEscrow.sol";
import {IStakeVault, Role} from "../interfaces/IStakeVault.sol";
import {Records} from "../libraries/Records.sol";
import {BeaconDouble, JudgeDouble, LedgerDouble} from "./doubles/Counterparts.sol";

/// @notice The two contracts that hold money, deployed and wired, with doubles for those they call.
abstract contract Deployed is Test {
    struct Party {
        address addr;
        uint256 key;
    }

    uint256 internal constant STAKE = 1_000_000 ether;
    uint64 internal constant SLICE = 1 hours;

    DevToken internal token;
    ModelRegistry internal registry;
    StakeVault internal vault;
    LaneEscrow internal escrow;
    LedgerDouble internal ledger;
    BeaconDouble internal beacon;
    JudgeDouble internal judge;

    address internal owner = makeAddr("owner");
    address internal guardian = makeAddr("guardian");
    address internal stranger = makeAddr("stranger");
    address internal beneficiaryD = makeAddr("beneficiary of the drafter");
    address internal beneficiaryV = makeAddr("beneficiary of the verifier");
    Party internal client;
    Party internal drafter;
    Party internal verifier;
    bytes32 internal constant CLAIM = keccak256("claim");

    function setUp() public virtual {
        vm.warp(1_800_000_000);
        client = _party("client");
        drafter = _party("drafter");
        verifier = _party("verifier");
        token = new DevToken(owner);
        registry = new ModelRegistry(owner);
        vault = new StakeVault(owner, guardian, address(token), registry, SLICE, _times());
        escrow = new LaneEscrow(owner, guardian, vault, _parameters());
        ledger = new LedgerDouble();
        beacon = new BeaconDouble();
        judge = new JudgeDouble(vault);
        vm.startPrank(owner);
        vault.wire(address(escrow), IDrawBeacon(address(beacon)));
        vault.setSlasher(address(judge), true);
        escrow.wire(IAlphaLedger(address(ledger)), IDrawBeacon(address(beacon)));
        escrow.listToken(address(token), 1 << 32);
        vm.stopPrank();
        ledger.publish(CLAIM, drafter.addr);
    }

    function _party(string memory name) internal returns (Party memory party) {
        (party.addr, party.key) = makeAddrAndKey(name);
    }

    function _times() internal pure returns (IStakeVault.Times memory) {
        return IStakeVault.Times({
            evidence: 7 days,
            firstDeadline: 1 days,
            secondDeadline: 1 days,
            panel: 2 days,
            appeal: 4 days,
            margin: 2 days,
            unbonding: 18 days
        });
    }

    function _parameters() internal pure returns (ILaneEscrow.Parameters memory) {
        return ILaneEscrow.Parameters({feeBps: 200, lockFactor: 5, thawPeriod: 1 days});
    }

    function _fund(address who, address spender, uint256 amount) internal {
        vm.prank(owner);
        token.mint(who, amount);
        vm.prank(who);
        token.approve(spender, type(uint256).max);
    }

    function _stake(address operator, address beneficiary, Role role, uint256 amount) internal {
        _fund(operator, address(vault), amount);
        vm.prank(operator);
        vault.stake(operator, beneficiary, role, amount, new bytes32[](0));
    }

    function _slash(address key, Role role, uint256 bps, bytes32 fault)
        internal
        returns (IStakeVault.Slashed memory)
    {
        return judge.slash(key, role, bps, new IStakeVault.Victim[](0), address(0), 0, fault);
    }

    function _lane() internal view returns (Records.Lane memory) {
        return Records.Lane({
            client: client.addr,
            drafter: drafter.addr,
            verifier: verifier.addr,
            token: address(token),
            claimId: CLAIM
        });
    }

    /// @dev Every deposited unit is somewhere, and the contracts hold what their books say.
    function _assertConserved() internal view {
        IStakeVault.VaultAccounting memory v = vault.accounting();
        assertEq(
            v.deposited,
            v.active + v.unbonding + v.vesting + v.withdrawn + v.burned,
            "vault: terms add up"
        );
        assertEq(
            token.balanceOf(address(vault)),
            v.deposited - v.withdrawn - v.burnedOut,
            "vault: holds them"
        );
        ILaneEscrow.EscrowAccounting memory e = escrow.accounting(address(token));
        assertEq(
            e.deposited, e.reserves + e.fees + e.payable_ + e.withdrawn, "escrow: terms add up"
        );
        assertEq(token.balanceOf(address(escrow)), e.deposited - e.withdrawn, "escrow: holds them");
    }
}
