// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILaneEscrow} from "../../interfaces/ILaneEscrow.sol";
import {IStakeVault, Role} from "../../interfaces/IStakeVault.sol";
import {Records} from "../../libraries/Records.sol";
import {LaneWork} from "../LaneWork.sol";

/// @notice Three of each party, doing whatever the fuzzer says: reserves, vouchers honest and not,
/// partial payments, notices, epochs, thaws, exits, slashes, draws, time. Keeps what nobody may
/// get wrong: what was signed, what each stake put in and took out, who was ever slashed.
contract Market is LaneWork {
    uint256 internal constant PARTIES = 3;

    Party[] internal clients;
    Party[] internal drafters;
    Party[] internal verifiers;
    Work[] internal works; // one a lane, its current epoch
    Work[] internal past; // epochs left behind

    mapping(address => bool) public slashed;
    mapping(address => uint256) public staked; // put in, both roles together
    mapping(address => uint256) public left; // taken out
    mapping(bytes32 laneEpoch => uint256) public signedDrafter;
    mapping(bytes32 laneEpoch => uint256) public signedVerifier;
    mapping(bytes32 laneEpoch => uint256) public paidDrafter;
    mapping(bytes32 laneEpoch => uint256) public paidVerifier;
    bytes32[] public laneEpochs;
    uint64[] internal vestedSlices;
    uint256 public faults;
    uint256 public settlements;
    uint256 public slashes;
    uint256 public exits;

    function open() external {
        setUp();
        for (uint256 i; i < PARTIES; ++i) {
            clients.push(_party(string.concat("c", vm.toString(i))));
            drafters.push(_party(string.concat("d", vm.toString(i))));
            verifiers.push(_party(string.concat("v", vm.toString(i))));
            _put(drafters[i].addr, Role.DRAFTER, 20_000 ether);
            _put(verifiers[i].addr, Role.VERIFIER, 20_000 ether);
        }
        for (uint256 i; i < 2 * PARTIES; ++i) {
            Party memory d = drafters[i % PARTIES];
            bytes32 claim = keccak256(abi.encode(d.addr));
            ledger.publish(claim, d.addr);
            Party memory c = clients[i % PARTIES];
            Party memory v = verifiers[(i + i / PARTIES) % PARTIES];
            works.push(
                _work(
                    Records.Lane(c.addr, d.addr, v.addr, address(token), claim), c.key, d.key, v.key
                )
            );
            _reserve(works[i], 5000 ether);
            laneEpochs.push(_key(works[i]));
        }
    }

    // ---------------------------------------------------------------- what may happen

    function reserve(uint256 seed, uint256 amount) external {
        _reserve(works[seed % works.length], bound(amount, 1, 3000 ether));
    }

    function serveAndSettle(uint256 seed, uint16 output, uint16 accepted, uint8 how) external {
        uint256 i = seed % works.length;
        Work memory work = works[i];
        output = uint16(bound(output, 1, 200));
        _serve(work, output, uint16(bound(accepted, 0, output)));
        work.bySolo = how % 4 == 0;
        if (how % 5 == 0 && work.position.headRoot != 0) {
            work.link = ILaneEscrow.Link.REPLACES;
            work.leaves = uint32(work.position.terms >> 48) + 1;
        }
        signedDrafter[_key(work)] = work.dueDrafter;
        signedVerifier[_key(work)] = work.dueVerifier;
        _try(work);
        works[i] = work;
    }

    /// @dev The last voucher again, by its current or a left-behind epoch.
    function settleAgain(uint256 seed, bool old, bool solo) external {
        Work[] storage list = old && past.length != 0 ? past : works;
        uint256 i = seed % list.length;
        Work memory work = list[i];
        if (work.leaves == 0) return;
        work.bySolo = solo;
        _try(work);
        list[i] = work;
    }

    /// @dev A voucher with more due than anyone signed: by anyone, never paid.
    function forge(uint256 seed, uint128 extra) external {
        Work memory work = works[seed % works.length];
        if (work.leaves == 0) return;
        ILaneEscrow.LaneVoucher memory voucher = _voucher(work);
        uint256 more = uint256(bound(extra, 1, 1e24)) << (seed & 128);
        voucher.due += more;
        ILaneEscrow.Group[] memory groups = _group(work, voucher);
        try escrow.settle(address(token), groups) {
            ++faults;
        } catch {}
    }

    function openEpoch(uint256 seed, uint8 who) external {
        uint256 i = seed % works.length;
        Work memory work = works[i];
        vm.prank(
            who % 3 == 0 ? work.lane.client : who % 3 == 1 ? work.lane.drafter : work.lane.verifier
        );
        uint32 epoch = escrow.openEpoch(work.lane);
        past.push(work);
        _freshEpoch(work, epoch);
        work.leaves = 0;
        works[i] = work;
        laneEpochs.push(_key(work));
    }

    function solo(uint256 seed, bool end) external {
        Records.Lane memory lane = works[seed % works.length].lane;
        vm.prank(lane.verifier);
        if (end) escrow.endSolo(lane);
        else escrow.noticeSolo(lane);
    }

    function thaw(uint256 seed, uint256 amount) external {
        Records.Lane memory lane = works[seed % works.length].lane;
        ILaneEscrow.LaneState memory state = escrow.laneState(Records.laneId(lane));
        if (state.reserve <= state.thawing) return;
        vm.prank(lane.client);
        escrow.thaw(lane, bound(amount, 1, state.reserve - state.thawing));
    }

    function collectThawed(uint256 seed) external {
        Records.Lane memory lane = works[seed % works.length].lane;
        vm.prank(lane.client);
        try escrow.collectThawed(lane, lane.client) {} catch {}
    }

    function withdrawEarned(uint256 seed) external {
        (address who,) = _staker(seed);
        try escrow.withdraw(who, address(token)) {} catch {}
    }

    function stake(uint256 seed, uint256 amount) external {
        (address who, Role role) = _staker(seed);
        _put(who, role, bound(amount, 1, 5000 ether));
    }

    function unstake(uint256 seed, uint256 amount) external {
        (address who, Role role) = _staker(seed);
        uint256 active = vault.activeStake(who, role);
        if (active == 0) return;
        vm.prank(who);
        try vault.unstake(who, role, bound(amount, 1, active)) {} catch {}
    }

    function leave(uint256 seed) external {
        (address who, Role role) = _staker(seed);
        vm.prank(who);
        try vault.withdraw(who, role) returns (uint256 amount) {
            left[who] += amount;
            ++exits;
        } catch {}
    }

    function punish(uint256 seed, uint16 bps, uint96 loss, uint16 share) external {
        // Party 0 of each role is never at fault.
        (address who, Role role) = _staker(seed);
        if (who == drafters[0].addr || who == verifiers[0].addr) return;
        uint256 before = vault.slashable(who, role);
        bytes32 fault = keccak256(abi.encode(seed, bps));
        IStakeVault.Slashed memory s =
            judge.slash(who, role, bps, _victims(seed, loss), verifiers[0].addr, share, fault);
        if (vault.slashable(who, role) + s.total != before) ++faults;
        if (s.total != 0) {
            slashed[who] = true;
            vestedSlices.push(vault.sliceOf(block.timestamp + 18 days) + 1);
            left[who] += s.total;
            ++slashes;
        }
    }

    function _victims(uint256 seed, uint96 loss)
        private
        view
        returns (IStakeVault.Victim[] memory victims)
    {
        victims = new IStakeVault.Victim[](2);
        victims[0] = IStakeVault.Victim(clients[seed % PARTIES].addr, loss);
        victims[1] = IStakeVault.Victim(drafters[seed % PARTIES].addr, loss / 3);
    }

    function draw() external {
        beacon.drawAll();
    }

    function burn() external {
        try vault.burn() {} catch {}
    }

    function pass(uint32 seconds_) external {
        vm.warp(block.timestamp + bound(seconds_, 1, 10 days));
    }

    function spendFees(uint96 amount) external {
        vm.prank(owner);
        escrow.setFeeSpender(address(this), true);
        escrow.spendFees(address(token), stranger, amount);
    }

    // ---------------------------------------------------------------- what must hold

    function checkConservation() external view {
        _assertConserved();
        uint256 reserves;
        for (uint256 i; i < works.length; ++i) {
            reserves += escrow.laneState(Records.laneId(works[i].lane)).reserve;
        }
        assertEq(escrow.accounting(address(token)).reserves, reserves, "reserves add up");
        uint256 stakes;
        for (uint256 i; i < PARTIES; ++i) {
            stakes += vault.slashable(drafters[i].addr, Role.DRAFTER)
            + vault.slashable(verifiers[i].addr, Role.VERIFIER);
        }
        IStakeVault.VaultAccounting memory v = vault.accounting();
        assertEq(v.active + v.unbonding, stakes, "stakes add up");
    }

    function checkPayouts() external view {
        for (uint256 i; i < laneEpochs.length; ++i) {
            bytes32 key = laneEpochs[i];
            assertLe(paidDrafter[key], signedDrafter[key], "D: no more than signed");
            assertLe(paidVerifier[key], signedVerifier[key], "V: no more than signed");
        }
        assertEq(faults, 0, "nothing impossible happened");
    }

    function checkStakes() external view {
        for (uint256 i; i < PARTIES; ++i) {
            _checkStake(drafters[i].addr, Role.DRAFTER);
            _checkStake(verifiers[i].addr, Role.VERIFIER);
        }
    }

    function _checkStake(address who, Role role) private view {
        assertEq(vault.slashable(who, role), staked[who] - left[who], "only exits and slashes");
        if (who == drafters[0].addr || who == verifiers[0].addr) {
            assertFalse(slashed[who], "an honest stake never falls");
        }
    }

    /// @dev From wherever the market stands, everyone gets out: all batches drawn, one unbonding
    /// period and one slice later nothing is left of any stake, reserve, credit or share.
    function leaveAltogether() external {
        beacon.drawAll();
        for (uint256 i; i < works.length; ++i) {
            Records.Lane memory lane = works[i].lane;
            ILaneEscrow.LaneState memory state = escrow.laneState(Records.laneId(lane));
            if (state.reserve > state.thawing) {
                vm.prank(lane.client);
                escrow.thaw(lane, state.reserve - state.thawing);
            }
        }
        vm.warp(block.timestamp + 18 days);
        for (uint256 i; i < 2 * PARTIES; ++i) {
            (address who, Role role) = _staker(i);
            vm.startPrank(who);
            // A full queue of old exits has matured by now and makes room.
            try vault.withdraw(who, role) {} catch {}
            uint256 active = vault.activeStake(who, role);
            if (active != 0) vault.unstake(who, role, active);
            vm.stopPrank();
        }
        vm.warp(block.timestamp + 18 days + 2 * SLICE);
        for (uint256 i; i < 2 * PARTIES; ++i) {
            (address who, Role role) = _staker(i);
            vault.releaseLocks(who, role, type(uint256).max);
            vm.prank(who);
            try vault.withdraw(who, role) {} catch {}
            assertEq(vault.slashable(who, role), 0, "all stake is out");
            try escrow.withdraw(who, address(token)) {} catch {}
            _claim(who);
            _claim(clients[i % PARTIES].addr);
        }
        for (uint256 i; i < works.length; ++i) {
            Records.Lane memory lane = works[i].lane;
            vm.prank(lane.client);
            try escrow.collectThawed(lane, lane.client) {} catch {}
            assertEq(escrow.laneState(Records.laneId(lane)).reserve, 0, "all reserves are out");
        }
        try escrow.withdraw(stranger, address(token)) {} catch {}
        try vault.burn() {} catch {}
        assertEq(token.balanceOf(address(vault)), 0, "the vault is empty");
        assertEq(
            token.balanceOf(address(escrow)),
            escrow.accounting(address(token)).fees,
            "the escrow holds fees only"
        );
    }

    function _claim(address who) private {
        uint64[] memory one = new uint64[](1);
        uint256 count = vestedSlices.length;
        for (uint256 i; i < count; ++i) {
            one[0] = vestedSlices[i];
            if (vault.vestingOf(who, one[0]) != 0) vault.claimVested(who, one);
        }
    }

    // ---------------------------------------------------------------- inside

    function _staker(uint256 seed) internal view returns (address, Role) {
        uint256 i = (seed / 2) % PARTIES;
        return seed % 2 == 0 ? (drafters[i].addr, Role.DRAFTER) : (verifiers[i].addr, Role.VERIFIER);
    }

    function _put(address who, Role role, uint256 amount) internal {
        _stake(who, who, role, amount);
        staked[who] += amount;
    }

    function _key(Work memory work) internal pure returns (bytes32) {
        return keccak256(abi.encode(work.lane, uint32(work.position.terms)));
    }

    function _try(Work memory work) internal {
        ILaneEscrow.Group[] memory groups = _group(work, _voucher(work));
        uint256 before = escrow.payableTo(work.lane.drafter, address(token));
        uint256 beforeV = escrow.payableTo(work.lane.verifier, address(token));
        vm.recordLogs();
        try escrow.settle(address(token), groups) {
            ++settlements;
        } catch {
            return;
        }
        _follow(work, vm.getRecordedLogs());
        bytes32 key = _key(work);
        paidDrafter[key] += escrow.payableTo(work.lane.drafter, address(token)) - before;
        paidVerifier[key] += escrow.payableTo(work.lane.verifier, address(token)) - beforeV;
        (uint256 d, uint256 v) = _paid(work);
        if (d != paidDrafter[key] || v != paidVerifier[key]) ++faults;
    }
}
