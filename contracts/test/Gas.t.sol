// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AlphaLedger} from "../AlphaLedger.sol";
import {DevToken} from "../DevToken.sol";
import {DrawBeacon} from "../DrawBeacon.sol";
import {LaneEscrow} from "../LaneEscrow.sol";
import {ModelRegistry} from "../ModelRegistry.sol";
import {OpeningRule} from "../OpeningRule.sol";
import {StakeVault} from "../StakeVault.sol";
import {IAlphaLedger} from "../interfaces/IAlphaLedger.sol";
import {IDrawBeacon} from "../interfaces/IDrawBeacon.sol";
import {ILaneEscrow} from "../interfaces/ILaneEscrow.sol";
import {Role} from "../interfaces/IStakeVault.sol";
import {Batches} from "../libraries/Batches.sol";
import {BucketHistory} from "../libraries/BucketHistory.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {Trees} from "../libraries/Trees.sol";
import {LaneWork} from "./LaneWork.sol";
import {RoundWork} from "./RoundWork.sol";

/// @notice What each call costs as a transaction of its own: 21,000, calldata and cold storage
/// included, over the real contracts, locks and buckets with them. `scripts/gas_report.py` reads the
/// logged figures; contracts/gas.json keeps them and CI compares.
/// @dev Every call is a transaction (`isolate`). Vouchers are handed in by V, with the signatures of
/// C and D. "Steady" is the third settlement of a lane: its slots are in use, and a checkpoint of the
/// α history is appended to fresh storage. "Full" is the same when the history has gone round its
/// ring and rewrites slots.
/// forge-config: default.isolate = true
abstract contract GasWork is LaneWork, RoundWork {
    AlphaLedger internal alpha;
    DrawBeacon internal draws;
    bytes32 internal claim;

    function setUp() public override {
        vm.warp(1_800_000_000);
        vm.roll(1_000);
        client = _party("client");
        drafter = _party("drafter");
        verifier = _party("verifier");
        token = new DevToken(owner);
        registry = new ModelRegistry(owner);
        vault = new StakeVault(owner, guardian, address(token), registry, SLICE, _times());
        escrow = new LaneEscrow(owner, guardian, vault, _parameters());
        alpha = new AlphaLedger(
            owner,
            vault,
            registry,
            IAlphaLedger.Parameters({
                spacing: 512,
                lateBps: 1_000,
                silentBps: 5_000,
                refutedBps: 5_000,
                rewardBps: 1_000,
                bond: 100 ether
            })
        );
        IDrawBeacon.Terms memory t;
        (t.lateBps, t.silentBps, t.faultBps, t.rewardBps) = (500, 5_000, 5_000, 400);
        (t.samples, t.delay) = (4, 4);
        t.baseRate = type(uint32).max; // all but certain, so that draws can be measured
        draws = new DrawBeacon(owner, vault, new OpeningRule(), t);
        vm.startPrank(owner);
        vault.wire(address(escrow), draws);
        vault.setSlasher(address(alpha), true);
        vault.setSlasher(address(draws), true);
        escrow.wire(alpha, draws);
        escrow.listToken(address(token), 1 << 32);
        escrow.setFeeSpender(address(draws), true);
        alpha.wire(address(escrow));
        draws.wire(escrow);
        draws.setReward(address(token), 1);
        vm.stopPrank();
        claim = _publish(0);
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, 1e9 ether);
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, 1e9 ether);
    }

    function _publish(uint64 nonce) internal returns (bytes32) {
        Records.Manifest memory m;
        m.architecture = "target";
        (m.vocabSize, m.contextLength, m.eosIds) = (512, 1024, new uint32[](0));
        (m.weightsRoot, m.tokenizerHash) = (keccak256("w"), keccak256("t"));
        Records.Claim memory c;
        c.drafter = drafter.addr;
        c.targetModel = registry.register(m);
        c.mode = 1;
        c.maxTemperature = 1 << 16;
        c.nonce = nonce;
        for (uint256 i; i < 16; ++i) {
            c.rates[i] = 80;
        }
        vm.prank(drafter.addr);
        return alpha.register(c);
    }

    function _lanes(uint256 count) internal returns (Work[] memory works) {
        works = new Work[](count);
        for (uint256 i; i < count; ++i) {
            Party memory c = _party(string.concat("client ", vm.toString(i)));
            Records.Lane memory lane = _lane();
            lane.client = c.addr;
            lane.claimId = claim;
            works[i] = _work(lane, c.key, drafter.key, verifier.key);
            _reserve(works[i], 10_000_000 ether);
        }
    }

    /// @dev `accepted` drafts and a quarter more output, spread over the buckets, at odd prices.
    function _more(Work memory work, uint64 accepted) internal pure {
        uint64 output = accepted + accepted / 4;
        _serveAt(work, output, accepted, 1_234_567_890_123, 9_876_543_210_987);
        work.sums[1] -= output;
        work.sums[5] -= accepted;
        for (uint256 i; i < 16; ++i) {
            uint256 shift = 64 * (i % 4);
            // Unround figures, as they come; what one bucket has more its neighbour has less.
            uint256 odd = 1 + 3 * (i / 2);
            work.sums[1 + i / 4] += (i % 2 == 0 ? output / 16 + odd : output / 16 - odd) << shift;
            work.sums[
                    5
                    + i
                    / 4
                ] += (i % 2 == 0 ? accepted / 16 + odd : accepted / 16 - odd) << shift;
        }
        work.leaves = uint32(output / 4 + 1);
    }

    function _settleAll(Work[] memory works, uint64 accepted) internal returns (uint256 gas) {
        ILaneEscrow.Group[] memory groups = _group(works[0], _voucher(works[0]));
        groups[0].lanes = new ILaneEscrow.LaneVoucher[](works.length);
        for (uint256 i; i < works.length; ++i) {
            _more(works[i], accepted);
            groups[0].lanes[i] = _voucher(works[i]);
            (groups[0].lanes[i].verifierR, groups[0].lanes[i].verifierVS) = (0, 0);
        }
        vm.prank(verifier.addr);
        escrow.settle(address(token), groups);
        gas = vm.lastCallGas().gasTotalUsed;
        // All was paid and signed, so positions follow without the events.
        for (uint256 i; i < works.length; ++i) {
            ILaneEscrow.Position memory position = works[i].position;
            bytes32 base = position.headRoot;
            position.headRoot = _root(works[i]);
            position.headBase = base;
            position.paid = uint256(works[i].dueDrafter) | (uint256(works[i].dueVerifier) << 128);
            position.terms = (position.terms & type(uint48).max) | (uint256(works[i].leaves) << 48);
            for (uint256 j; j < 9; ++j) {
                position.counted[j] = works[i].sums[j];
            }
        }
        vm.warp(block.timestamp + 10 minutes);
    }

    /// @dev The third settlement of these lanes.
    function _steady(Work[] memory works, uint64 accepted) internal returns (uint256) {
        _settleAll(works, accepted);
        _settleAll(works, accepted);
        return _settleAll(works, accepted);
    }

    /// @dev Both series go round their rings.
    function _fillHistory() internal {
        uint256[9] memory delta;
        for (uint256 i = 1; i < 9; ++i) {
            delta[i] = 600 | 600 << 64 | 600 << 128 | 600 << 192;
        }
        for (uint256 i; i < BucketHistory.KEPT; ++i) {
            vm.prank(address(escrow));
            alpha.record(claim, drafter.addr, verifier.addr, delta);
        }
    }

    function _log(string memory name, uint256 gas) internal {
        emit log_named_uint(string.concat("gas ", name), gas);
    }

    function _logLast(string memory name) internal {
        _log(name, vm.lastCallGas().gasTotalUsed);
    }
}

/// forge-config: default.isolate = true
contract GasSettleTest is GasWork {
    uint64 private constant MONTH = 1 << 18;

    function test_Settle1() public {
        Work[] memory works = _lanes(1);
        _log("settle_first", _settleAll(works, MONTH));
        _settleAll(works, MONTH);
        _log("settle_steady", _settleAll(works, MONTH));
        _fillHistory();
        _log("settle_steady_full", _settleAll(works, MONTH));
    }

    function test_Settle8() public {
        _log("settle_8_lanes_per_lane", _steady(_lanes(8), MONTH) / 8);
    }

    function test_Settle64() public {
        Work[] memory works = _lanes(64);
        _log("settle_64_lanes_per_lane", _steady(works, MONTH) / 64);
        _fillHistory();
        _log("settle_64_lanes_per_lane_full", _settleAll(works, MONTH) / 64);
    }

    function _curve(uint256 lanes) private {
        for (uint256 bits = 10; bits <= 18; bits += 4) {
            string memory key =
                string.concat("curve ", vm.toString(lanes), " ", vm.toString(uint256(1) << bits));
            uint256 state = vm.snapshotState();
            uint256 gas = _steady(_lanes(lanes), uint64(1 << bits));
            vm.revertToState(state);
            _log(key, gas);
        }
    }

    function test_Curve1() public {
        _curve(1);
    }

    function test_Curve8() public {
        _curve(8);
    }

    function test_Curve32() public {
        _curve(32);
    }

    function test_Curve64() public {
        _curve(64);
    }
}

/// forge-config: default.isolate = true
contract GasCallTest is GasWork {
    function test_Stake() public {
        address operator = makeAddr("new operator");
        _fund(operator, address(vault), 2_000 ether);
        vm.prank(operator);
        vault.stake(operator, beneficiaryV, Role.VERIFIER, 1_000 ether, new bytes32[](0));
        _logLast("stake");
        vm.prank(operator);
        vault.unstake(operator, Role.VERIFIER, 500 ether);
        _logLast("unstake");
        vm.warp(block.timestamp + 19 days);
        vm.prank(operator);
        vault.withdraw(operator, Role.VERIFIER);
        _logLast("withdraw_stake");
    }

    function test_Reserve() public {
        Work[] memory works = _lanes(1);
        _logLast("reserve_first");
        _reserve(works[0], 1 ether);
        _logLast("reserve_more");
        _settleAll(works, 1 << 18);
        escrow.withdraw(drafter.addr, address(token));
        _logLast("withdraw");
        vm.prank(works[0].lane.client);
        escrow.thaw(works[0].lane, 1 ether);
        _logLast("thaw");
        vm.warp(block.timestamp + 2 days);
        vm.prank(works[0].lane.client);
        escrow.collectThawed(works[0].lane, works[0].lane.client);
        _logLast("collect_thawed");
    }

    function test_Claim() public {
        _publish(1);
        _logLast("claim_register");
    }

    function test_Flag() public {
        uint256[9] memory delta;
        (delta[1], delta[5]) = (2_000, 1_600);
        vm.prank(address(escrow));
        alpha.record(claim, drafter.addr, verifier.addr, delta);
        _logLast("record_first");
        vm.prank(address(escrow));
        alpha.record(claim, drafter.addr, verifier.addr, delta);
        _logLast("record_steady");
        (delta[1], delta[5]) = (2_000, 1_000);
        vm.prank(address(escrow));
        alpha.record(claim, drafter.addr, verifier.addr, delta);
        uint64 caseId = alpha.flag(claim, verifier.addr, 0, 2, 3);
        _logLast("flag");
        _fund(drafter.addr, address(alpha), 100 ether);
        vm.prank(drafter.addr);
        alpha.assertDraftModel(caseId);
        _logLast("case_assert");
        vm.warp(block.timestamp + 7 days);
        alpha.conclude(caseId);
        _logLast("case_conclude");
    }

    function test_CaseExpire() public {
        uint256[9] memory delta;
        (delta[1], delta[5]) = (2_000, 1_000);
        vm.prank(address(escrow));
        alpha.record(claim, drafter.addr, verifier.addr, delta);
        uint64 caseId = alpha.flag(claim, address(0), 0, 0, 1);
        vm.warp(block.timestamp + 1 days + 1);
        alpha.expire(caseId);
        _logLast("case_expire");
    }

    // ------------------------------------------------------------------ draws

    uint256 private constant DEPTH = 14;

    /// @dev A lane of 2**14 rounds, of which one was played and the others say nothing but sums: those
    /// beside the path hold no output, so that every draw falls on the round that was played.
    function _deep(Session memory s)
        private
        pure
        returns (Openings.Opening memory o, bytes32 root)
    {
        o = _openingAt(s, 0, 0);
        o.leafIndex = 5_555;
        o.steps = new Trees.SumStep[](DEPTH);
        for (uint256 i; i < DEPTH; ++i) {
            o.steps[i].sibling = keccak256(abi.encode("sibling", i));
            for (uint256 j = 1; j < 9; ++j) {
                uint256 lane = 100_000 + i * j;
                o.steps[i].sums[j] = lane | lane << 64 | lane << 128 | lane << 192;
            }
        }
        o.settled.leafCount = uint32(1 << DEPTH);
        bytes32 top = Records.leaf(o.record);
        uint256[9] memory total = Records.sums(o.record);
        uint256 index = o.leafIndex;
        for (uint256 i; i < DEPTH; ++i) {
            Trees.SumStep memory step = o.steps[i];
            top = index & 1 == 1
                ? Trees.sumNode(step.sibling, step.sums, top, total)
                : Trees.sumNode(top, total, step.sibling, step.sums);
            total = Trees.add(total, step.sums);
            index >>= 1;
        }
        o.settled.top = top;
        o.settled.sums = Trees.add(total, o.base.sums);
        o.settled.baseRoot = _rootHash(o.base);
        root = _rootHash(o.settled);
    }

    /// @dev Within the round the draw may fall on any leaf.
    function _place(Session memory s, Openings.Opening memory o, uint256 within) private pure {
        Openings.Opening memory at = _openingAt(s, 0, within);
        o.verdictLeaf = at.verdictLeaf;
        o.verdictPath = at.verdictPath;
        o.draftLeaf = at.draftLeaf;
        o.draftPath = at.draftPath;
        o.kept = at.kept;
    }

    function _measureDraw(uint8 mode, string memory suffix, bool all) private {
        Session memory s = _session(mode);
        s.order.claimId = claim;
        _play(s, 4, 4, 4);
        s.base.leafCount = 70_000;
        s.base.top = keccak256("older rounds");
        for (uint256 i = 1; i < 9; ++i) {
            s.base.sums[i] = 1_000_000 | 1_000_000 << 64;
        }
        _seal(s);
        (Openings.Opening memory o, bytes32 root) = _deep(s);

        Batches.Entry[] memory entries = new Batches.Entry[](64);
        for (uint256 i; i < 64; ++i) {
            entries[i].lane = Records.laneId(Records.laneOf(s.order));
            entries[i].root = root;
            entries[i].valueDrafter = 323_634_529_532_391;
            entries[i].valueVerifier = 3_236_345_295_323_910;
            entries[i].coverage = 1_000;
        }
        IDrawBeacon.Batch memory batch;
        batch.entriesHash = Batches.hash(entries);
        batch.token = address(token);
        (batch.entries, batch.slice) = (64, 5);
        (batch.settledAt, batch.settledBlock) = (uint64(block.timestamp), uint64(block.number));
        batch.targetBlock = batch.settledBlock + 4;
        batch.terms = draws.terms();
        batch.terms.evidence = vault.times().evidence;
        batch.terms.firstDeadline = vault.times().firstDeadline;
        batch.terms.secondDeadline = vault.times().secondDeadline;
        vm.prank(address(escrow));
        batch.id = draws.registerBatch(batch.entriesHash, 64, address(token), 5);
        vm.roll(batch.targetBlock + 1);
        IDrawBeacon.Batch[] memory list = new IDrawBeacon.Batch[](1);
        list[0] = batch;
        draws.capture(list);
        if (all) _logLast("capture");
        batch.randomness = keccak256(
            abi.encodePacked(
                "verdraft/sample/1",
                blockhash(batch.targetBlock),
                block.chainid,
                address(draws),
                batch.id
            )
        );
        bytes memory packed;
        for (uint256 i; i < 64; ++i) {
            packed = bytes.concat(
                packed, abi.encode(entries[i].lane, entries[i].root, Batches.figures(entries[i]))
            );
        }
        IDrawBeacon.Draw memory drawn = IDrawBeacon.Draw({
            batchId: batch.id,
            index: 7,
            seed: keccak256(abi.encodePacked("verdraft/sample/1", batch.randomness, uint32(7))),
            entry: entries[7],
            lane: Records.laneOf(s.order),
            terms: batch.terms
        });
        draws.draw(batch, packed, 7, drawn.lane);
        if (all) _logLast("draw_64_lanes");
        _place(s, o, Openings.targetOf(drawn.seed, 0, 5));
        draws.open(drawn, 0, o);
        _logLast(string.concat("open_sample", suffix));
        if (!all) return;
        vm.warp(block.timestamp + 1 days + 1);
        draws.expire(drawn);
        _logLast("draw_expire");
    }

    function test_Draw() public {
        _measureDraw(Records.MODE_COUPLED, "", true);
    }

    function test_DrawRejection() public {
        _measureDraw(Records.MODE_REJECTION, "_rejection", false);
    }
}
