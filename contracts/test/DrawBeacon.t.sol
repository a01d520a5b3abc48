// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {DrawBeacon} from "../DrawBeacon.sol";
import {OpeningRule} from "../OpeningRule.sol";
import {IDrawBeacon} from "../interfaces/IDrawBeacon.sol";
import {ILaneEscrow} from "../interfaces/ILaneEscrow.sol";
import {IStakeVault, Role} from "../interfaces/IStakeVault.sol";
import {Batches} from "../libraries/Batches.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {RoundWork} from "./RoundWork.sol";

abstract contract BeaconWork is RoundWork {
    DrawBeacon internal draws;
    uint64 internal constant SLICE_ID = 77;
    uint24 internal constant THIN = 1; // cover so thin that the lane is always drawn

    function setUp() public virtual override {
        super.setUp();
        vm.roll(1_000);
        draws = new DrawBeacon(owner, vault, new OpeningRule(), _terms());
        vm.startPrank(owner);
        draws.wire(escrow);
        vault.setSlasher(address(draws), true);
        escrow.setFeeSpender(address(draws), true);
        vm.stopPrank();
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, STAKE);
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, STAKE);
    }

    function _terms() internal pure returns (IDrawBeacon.Terms memory t) {
        t.baseRate = 1 << 26; // one in 64
        t.lateBps = 500;
        t.silentBps = 5_000;
        t.faultBps = 5_000;
        t.rewardBps = 400;
        t.samples = 4;
        t.delay = 2;
    }

    function _entry(Session memory s, uint24 coverage)
        internal
        pure
        returns (Batches.Entry memory entry)
    {
        entry.lane = Records.laneId(Records.laneOf(s.order));
        entry.root = _rootHash(_settled(s));
        entry.valueDrafter = 2 ether;
        entry.valueVerifier = 3 ether;
        entry.coverage = coverage;
        entry.flags = Batches.COUNTED;
    }

    function _packed(Batches.Entry[] memory entries) internal pure returns (bytes memory packed) {
        for (uint256 i; i < entries.length; ++i) {
            packed = bytes.concat(
                packed, abi.encode(entries[i].lane, entries[i].root, Batches.figures(entries[i]))
            );
        }
    }

    function _one(Batches.Entry memory entry) internal pure returns (Batches.Entry[] memory list) {
        list = new Batches.Entry[](1);
        list[0] = entry;
    }

    /// @dev As the event carries it.
    function _registered(Batches.Entry[] memory entries)
        internal
        returns (IDrawBeacon.Batch memory batch)
    {
        batch.entriesHash = Batches.hash(entries);
        batch.token = address(token);
        batch.entries = uint32(entries.length);
        batch.slice = SLICE_ID;
        batch.settledAt = uint64(block.timestamp);
        batch.settledBlock = uint64(block.number);
        batch.targetBlock = uint64(block.number) + 2;
        batch.terms = draws.terms();
        IStakeVault.Times memory times = vault.times();
        batch.terms.evidence = times.evidence;
        batch.terms.firstDeadline = times.firstDeadline;
        batch.terms.secondDeadline = times.secondDeadline;
        vm.prank(address(escrow));
        batch.id = draws.registerBatch(batch.entriesHash, batch.entries, batch.token, batch.slice);
        assertEq(draws.batchHash(batch.id), keccak256(abi.encode(batch)));
    }

    function _capture(IDrawBeacon.Batch memory batch) internal returns (uint256) {
        IDrawBeacon.Batch[] memory list = new IDrawBeacon.Batch[](1);
        list[0] = batch;
        return draws.capture(list);
    }

    /// @dev The batch after `capture`, as an indexer follows it.
    function _after(IDrawBeacon.Batch memory batch) internal view {
        batch.randomness = keccak256(
            abi.encodePacked(
                "verdraft/sample/1",
                blockhash(batch.targetBlock),
                block.chainid,
                address(draws),
                batch.id
            )
        );
    }

    function _captured(Batches.Entry[] memory entries)
        internal
        returns (IDrawBeacon.Batch memory batch)
    {
        batch = _registered(entries);
        vm.roll(batch.targetBlock + 1);
        assertEq(_capture(batch), 1);
        _after(batch);
    }

    function _drawOf(IDrawBeacon.Batch memory batch, Batches.Entry memory entry, Session memory s)
        internal
        pure
        returns (IDrawBeacon.Draw memory drawn)
    {
        drawn.batchId = batch.id;
        drawn.seed = keccak256(abi.encodePacked("verdraft/sample/1", batch.randomness, uint32(0)));
        drawn.entry = entry;
        drawn.lane = Records.laneOf(s.order);
        drawn.terms = batch.terms;
    }

    /// @dev A lane that is certain to be drawn, drawn.
    function _drawn(Session memory s) internal returns (IDrawBeacon.Draw memory drawn) {
        Batches.Entry memory entry = _entry(s, THIN);
        IDrawBeacon.Batch memory batch = _captured(_one(entry));
        drawn = _drawOf(batch, entry, s);
        draws.draw(batch, _packed(_one(entry)), 0, drawn.lane);
    }

    function _sample(Session memory s, IDrawBeacon.Draw memory drawn, uint8 sample)
        internal
        pure
        returns (Openings.Opening memory)
    {
        return _opening(s, Openings.targetOf(drawn.seed, sample, _output(s)));
    }

    function _stage(IDrawBeacon.Draw memory drawn) internal view returns (IDrawBeacon.Stage) {
        return draws.drawState(drawn.batchId, drawn.index).stage;
    }

    function _stakeV() internal view returns (uint256) {
        return vault.slashable(verifier.addr, Role.VERIFIER);
    }
}

contract DrawBeaconOwnerTest is BeaconWork {
    function test_OnlyTheOwnerSets() public {
        bytes memory refusal =
            abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", stranger);
        vm.startPrank(stranger);
        vm.expectRevert(refusal);
        draws.wire(escrow);
        vm.expectRevert(refusal);
        draws.setTerms(_terms());
        vm.expectRevert(refusal);
        draws.setReward(address(token), 1);
        vm.stopPrank();
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(DrawBeacon.AlreadyWired.selector, address(escrow)));
        draws.wire(escrow);
    }

    function _refused(IDrawBeacon.Terms memory t, string memory what, uint256 value) private {
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(DrawBeacon.BadTerm.selector, what, value));
        draws.setTerms(t);
    }

    function test_TermsHaveBounds() public {
        IDrawBeacon.Terms memory t = _terms();
        t.delay = 0;
        _refused(t, "delay", 0);
        t = _terms();
        t.samples = 9;
        _refused(t, "samples", 9);
        t = _terms();
        t.faultBps = 0;
        _refused(t, "faultBps", 0);
        t = _terms();
        t.silentBps = 4_999;
        _refused(t, "silentBps", 4_999);
        t = _terms();
        // 52.5 % are lost by silence; with 4.8 % of that back it would be less than half.
        t.rewardBps = 480;
        _refused(t, "rewardBps", 480);
        t.rewardBps = 10_001;
        _refused(t, "rewardBps", 10_001);
    }
}

contract DrawBeaconCaptureTest is BeaconWork {
    Batches.Entry[] private none;

    function test_OnlyTheEscrowRegisters() public {
        vm.prank(stranger);
        vm.expectRevert(
            abi.encodeWithSelector(DrawBeacon.NotEscrow.selector, stranger, address(escrow))
        );
        draws.registerBatch(keccak256("entries"), 1, address(token), SLICE_ID);
    }

    function test_TooEarlyIsPassedOver() public {
        IDrawBeacon.Batch memory batch = _registered(none);
        vm.roll(batch.targetBlock);
        assertEq(_capture(batch), 0, "in its own block a hash is not there");
        assertEq(draws.pendingIn(SLICE_ID), 1);
        vm.roll(batch.targetBlock + 1);
        assertEq(_capture(batch), 1);
        assertEq(draws.pendingIn(SLICE_ID), 0);
    }

    function test_EachBatchHasRandomnessOfItsOwn() public {
        IDrawBeacon.Batch[] memory list = new IDrawBeacon.Batch[](2);
        list[0] = _registered(none);
        list[1] = _registered(none);
        assertEq(draws.pendingIn(SLICE_ID), 2);
        vm.roll(list[0].targetBlock + 1);
        assertEq(draws.capture(list), 2);
        assertEq(draws.pendingIn(SLICE_ID), 0);
        _after(list[0]);
        _after(list[1]);
        assertEq(draws.batchHash(list[0].id), keccak256(abi.encode(list[0])));
        assertEq(draws.batchHash(list[1].id), keccak256(abi.encode(list[1])));
        assertTrue(list[0].randomness != list[1].randomness);
    }

    function test_TheCapturerIsPaidOncePerBatch() public {
        vm.prank(owner);
        draws.setReward(address(token), 5);
        IDrawBeacon.Batch memory batch = _registered(none);
        vm.roll(batch.targetBlock + 1);
        vm.expectCall(
            address(escrow), abi.encodeCall(ILaneEscrow.spendFees, (address(token), stranger, 5)), 1
        );
        vm.prank(stranger);
        _capture(batch);
        vm.prank(stranger);
        assertEq(_capture(batch), 0);
    }

    /// @dev Locks wait for captures, so nothing about the reward may stop one.
    function test_ACaptureNeedsNoReward() public {
        vm.startPrank(owner);
        draws.setReward(address(token), 5);
        escrow.setFeeSpender(address(draws), false);
        vm.stopPrank();
        IDrawBeacon.Batch memory batch = _registered(none);
        vm.roll(batch.targetBlock + 1);
        assertEq(_capture(batch), 1);
        assertEq(draws.pendingIn(SLICE_ID), 0);
    }

    /// @dev Nobody takes a second look: not with the batch as it was, nor as it is, nor altered.
    function test_NobodyDrawsAgain() public {
        IDrawBeacon.Batch memory batch = _registered(none);
        IDrawBeacon.Batch memory fresh = abi.decode(abi.encode(batch), (IDrawBeacon.Batch));
        vm.roll(batch.targetBlock + 1);
        _capture(batch);
        _after(batch);
        bytes32 kept = draws.batchHash(batch.id);
        vm.roll(batch.targetBlock + 2);
        assertEq(_capture(fresh), 0);
        assertEq(_capture(batch), 0);
        vm.roll(batch.targetBlock + 1_000);
        assertEq(_capture(fresh), 0);
        assertEq(_capture(batch), 0);
        batch.randomness = 0;
        batch.targetBlock = uint64(block.number) - 1;
        assertEq(_capture(batch), 0);
        assertEq(draws.batchHash(batch.id), kept);
        assertEq(draws.pendingIn(SLICE_ID), 0);
    }

    function test_AnAlteredBatchIsPassedOver() public {
        IDrawBeacon.Batch memory batch = _registered(none);
        batch.targetBlock -= 1; // a block whose hash is known
        vm.roll(batch.targetBlock + 1);
        assertEq(_capture(batch), 0);
        assertEq(draws.pendingIn(SLICE_ID), 1);
    }

    /// @dev Blockhash reaches 256 blocks back; a missed block is replaced by a later one.
    function test_AMissedBlockIsReplaced() public {
        vm.prank(owner);
        draws.setReward(address(token), 5);
        IDrawBeacon.Batch memory batch = _registered(none);
        vm.roll(batch.targetBlock + 257);
        vm.expectCall(address(escrow), abi.encodeWithSelector(ILaneEscrow.spendFees.selector), 0);
        assertEq(_capture(batch), 0);
        assertEq(draws.pendingIn(SLICE_ID), 1, "still no lock is released");
        batch.targetBlock = uint64(block.number) + 2;
        assertEq(draws.batchHash(batch.id), keccak256(abi.encode(batch)));
        // Not by the block at hand: it would be chosen by whoever calls.
        assertEq(_capture(batch), 0);
        vm.roll(batch.targetBlock + 1);
        draws.pendingIn(SLICE_ID);
    }

    function test_AReplacedBlockIsCaptured() public {
        IDrawBeacon.Batch memory batch = _registered(none);
        vm.roll(batch.targetBlock + 257);
        _capture(batch);
        batch.targetBlock = uint64(block.number) + 2;
        vm.roll(batch.targetBlock + 1);
        assertEq(_capture(batch), 1);
        _after(batch);
        assertEq(draws.batchHash(batch.id), keccak256(abi.encode(batch)));
        assertEq(draws.pendingIn(SLICE_ID), 0);
    }

    function test_TheLastBlockWithAHashCounts() public {
        IDrawBeacon.Batch memory batch = _registered(none);
        vm.roll(batch.targetBlock + 256);
        assertEq(_capture(batch), 1);
    }

    /// @dev The vault asks by slice, and hears zero only when every batch of it has its randomness.
    function testFuzz_PendingCountsWhatIsNotCaptured(uint8 order) public {
        IDrawBeacon.Batch[] memory list = new IDrawBeacon.Batch[](3);
        for (uint256 i; i < 3; ++i) {
            list[i] = _registered(none);
        }
        vm.prank(address(escrow));
        draws.registerBatch(keccak256("other"), 1, address(token), SLICE_ID + 1);
        vm.roll(list[2].targetBlock + 1);
        for (uint256 i; i < 3; ++i) {
            assertEq(draws.pendingIn(SLICE_ID), 3 - i);
            _capture(list[(i + order) % 3]);
        }
        assertEq(draws.pendingIn(SLICE_ID), 0);
        assertEq(draws.pendingIn(SLICE_ID + 1), 1);
    }
}

contract DrawBeaconDrawTest is BeaconWork {
    function test_BatchEntriesIndexAndLane() public {
        Session memory s = _honest(1);
        Batches.Entry memory entry = _entry(s, THIN);
        bytes memory packed = _packed(_one(entry));
        Records.Lane memory lane = Records.laneOf(s.order);
        IDrawBeacon.Batch memory batch = _registered(_one(entry));
        vm.expectRevert(
            abi.encodeWithSelector(DrawBeacon.NotCaptured.selector, batch.id, batch.targetBlock)
        );
        draws.draw(batch, packed, 0, lane);
        vm.roll(batch.targetBlock + 1);
        _capture(batch);
        vm.expectPartialRevert(DrawBeacon.NotThisBatch.selector);
        draws.draw(batch, packed, 0, lane);
        _after(batch);

        bytes memory other = bytes.concat(packed);
        other[70] ^= 0x01;
        vm.expectRevert(
            abi.encodeWithSelector(
                DrawBeacon.NotTheseEntries.selector, keccak256(other), batch.entriesHash
            )
        );
        draws.draw(batch, other, 0, lane);
        vm.expectRevert(abi.encodeWithSelector(DrawBeacon.NoSuchEntry.selector, 1, 1));
        draws.draw(batch, packed, 1, lane);
        lane.client = stranger;
        vm.expectRevert(
            abi.encodeWithSelector(
                DrawBeacon.NotThisLane.selector, Records.laneId(lane), entry.lane
            )
        );
        draws.draw(batch, packed, 0, lane);
        lane.client = client.addr;
        batch.terms.firstDeadline += 1;
        vm.expectPartialRevert(DrawBeacon.NotThisBatch.selector);
        draws.draw(batch, packed, 0, lane);
    }

    function test_ALotThatWasNotDrawn() public {
        vm.startPrank(owner);
        IDrawBeacon.Terms memory t = _terms();
        t.baseRate = 0;
        draws.setTerms(t);
        vm.stopPrank();
        Session memory s = _honest(1);
        Batches.Entry[] memory entries = new Batches.Entry[](16);
        for (uint256 i; i < 16; ++i) {
            entries[i] = _entry(s, i % 2 == 0 ? Batches.MAX_COVERAGE : THIN);
        }
        IDrawBeacon.Batch memory batch = _captured(entries);
        bytes memory packed = _packed(entries);
        uint256 mask = draws.drawnIn(batch, packed);
        assertEq(mask & 0xaaaa, 0xaaaa, "what nothing covers is always drawn");
        Records.Lane memory lane = Records.laneOf(s.order);
        for (uint32 i; i < 16; ++i) {
            if (mask >> i & 1 == 0) vm.expectPartialRevert(DrawBeacon.NotDrawn.selector);
            draws.draw(batch, packed, i, lane);
        }
        assertTrue(mask != 0xffff, "some of the well covered were not drawn");
    }

    function test_TheClockStartsOnce() public {
        Session memory s = _honest(1);
        Batches.Entry memory entry = _entry(s, THIN);
        IDrawBeacon.Batch memory batch = _captured(_one(entry));
        Records.Lane memory lane = Records.laneOf(s.order);
        draws.draw(batch, _packed(_one(entry)), 0, lane);
        IDrawBeacon.DrawState memory state = draws.drawState(batch.id, 0);
        assertEq(state.verifier, verifier.addr);
        assertEq(state.firstUntil, block.timestamp + 1 days);
        assertEq(state.secondUntil, block.timestamp + 2 days);
        vm.warp(block.timestamp + 12 hours);
        vm.expectRevert(abi.encodeWithSelector(DrawBeacon.AlreadyDrawn.selector, batch.id, 0));
        draws.draw(batch, _packed(_one(entry)), 0, lane);
    }

    function test_AfterTheEvidenceTimeNothingIsDrawn() public {
        Session memory s = _honest(1);
        Batches.Entry memory entry = _entry(s, THIN);
        IDrawBeacon.Batch memory batch = _captured(_one(entry));
        Records.Lane memory lane = Records.laneOf(s.order);
        uint64 until = batch.settledAt + 7 days;
        vm.warp(until + 1);
        vm.expectRevert(abi.encodeWithSelector(DrawBeacon.TooLateToDraw.selector, until));
        draws.draw(batch, _packed(_one(entry)), 0, lane);
        vm.warp(until);
        draws.draw(batch, _packed(_one(entry)), 0, lane);
    }

    /// @dev Neither the beacon's terms nor the vault's times reach batches settled before.
    function test_TermsAreThoseOfSettlement() public {
        Session memory s = _honest(1);
        Batches.Entry memory entry = _entry(s, THIN);
        IDrawBeacon.Batch memory batch = _registered(_one(entry));
        IDrawBeacon.Terms memory t = _terms();
        (t.lateBps, t.silentBps, t.samples, t.delay) = (9_000, 10_000, 8, 200);
        IStakeVault.Times memory times = _times();
        (times.firstDeadline, times.secondDeadline) = (1 hours, 1 hours);
        vm.startPrank(owner);
        draws.setTerms(t);
        vault.setTimes(times);
        vm.stopPrank();
        vm.roll(batch.targetBlock + 1);
        _capture(batch);
        _after(batch);
        IDrawBeacon.Draw memory drawn = _drawOf(batch, entry, s);
        draws.draw(batch, _packed(_one(entry)), 0, drawn.lane);
        assertEq(draws.drawState(batch.id, 0).firstUntil, block.timestamp + 1 days);
        vm.warp(block.timestamp + 1 days + 1);
        draws.expire(drawn);
        assertEq(_stakeV(), STAKE * 95 / 100);
    }

    /// @dev V lies in all it is paid for in one window, over many lanes that each ask for `part` of
    /// the revenue; of several faults found each takes half of what is left. In expectation it loses
    /// twice what it took, as long as the whole is within 0.22 of its stake.
    function testFuzz_LyingLoses(uint256 revenue, uint16 lanes) public view {
        revenue = bound(revenue, 1 ether, STAKE * 22 / 100);
        lanes = uint16(bound(lanes, 1, 300));
        uint256 part = revenue / lanes;
        uint256 coverage = (STAKE << 8) / part;
        if (coverage > type(uint24).max) coverage = type(uint24).max;
        IDrawBeacon.Terms memory t = _terms();
        t.baseRate = 0;
        uint256 chance = draws.chanceOf(t, uint24(coverage));
        assertLe(chance, 1 << 64);
        // What is left in expectation: each lane keeps (1 − chance/2) of it. All in Q64.
        uint256 left = 1 << 64;
        for (uint256 i; i < lanes; ++i) {
            left -= left * chance >> 65;
        }
        uint256 lost = STAKE * ((1 << 64) - left) >> 64;
        assertGe(lost, 2 * part * lanes, "twice the revenue");
    }

    function test_TheBaseRateIsTheLeast() public view {
        IDrawBeacon.Terms memory t = _terms();
        assertEq(draws.chanceOf(t, Batches.MAX_COVERAGE), 1 << 58);
        assertEq(draws.chanceOf(t, 0), 1 << 64);
        assertEq(draws.chanceOf(t, 1), 1 << 64);
        // A stake of 16/3 the revenue, and half of it lost: certain.
        assertEq(draws.chanceOf(t, 1_365), 1 << 64);
        assertLt(draws.chanceOf(t, 1_366), 1 << 64);
    }
}

contract DrawBeaconOpenTest is BeaconWork {
    function test_AnHonestDrawIsOpened() public {
        for (uint8 mode; mode < 3; ++mode) {
            Session memory s = _honest(mode);
            IDrawBeacon.Draw memory drawn = _drawn(s);
            for (uint8 j; j < 4; ++j) {
                Openings.Opening memory o = _sample(s, drawn, j);
                vm.expectEmit(address(draws));
                emit IDrawBeacon.PositionOpened(
                    drawn.batchId,
                    0,
                    CLAIM,
                    j,
                    o.verdictLeaf.position,
                    0,
                    o.verdictLeaf.draftToken != Records.NO_TOKEN,
                    o.verdictLeaf.accepted
                );
                draws.open(drawn, j, o);
            }
            assertEq(uint8(_stage(drawn)), uint8(IDrawBeacon.Stage.SHOWN));
            vm.warp(block.timestamp + 3 days);
            vm.expectRevert(
                abi.encodeWithSelector(DrawBeacon.WrongStage.selector, IDrawBeacon.Stage.SHOWN)
            );
            draws.expire(drawn);
        }
        assertEq(_stakeV(), STAKE);
        assertEq(vault.slashable(drafter.addr, Role.DRAFTER), STAKE);
    }

    function test_OneOpeningAnswersForOneSample() public {
        Session memory s = _honest(1);
        IDrawBeacon.Draw memory drawn = _drawn(s);
        Openings.Opening memory o = _sample(s, drawn, 0);
        draws.open(drawn, 0, o);
        vm.expectRevert(abi.encodeWithSelector(DrawBeacon.AlreadyOpened.selector, 0));
        draws.open(drawn, 0, o);
        vm.expectRevert(abi.encodeWithSelector(DrawBeacon.NoSuchSample.selector, 4, 4));
        draws.open(drawn, 4, o);
        drawn.seed = keccak256("another seed");
        vm.expectPartialRevert(DrawBeacon.NotThisDraw.selector);
        draws.open(drawn, 1, o);
    }

    function test_TheLastDeadlineIsTheLast() public {
        Session memory s = _honest(1);
        IDrawBeacon.Draw memory drawn = _drawn(s);
        uint40 until = draws.drawState(drawn.batchId, 0).secondUntil;
        Openings.Opening memory o = _sample(s, drawn, 0);
        vm.warp(until);
        draws.open(drawn, 0, o);
        o = _sample(s, drawn, 1);
        vm.warp(until + 1);
        vm.expectRevert(abi.encodeWithSelector(DrawBeacon.TooLate.selector, until));
        draws.open(drawn, 1, o);
    }

    /// @dev A session in which V accepted everything, whatever the coin said.
    function _forged() private view returns (Session memory s) {
        s = _session(Records.MODE_REJECTION);
        _play(s, 4, 4, 4);
        for (uint256 i; i < 4; ++i) {
            s.rounds[0].leaves[i].p = 0;
        }
        s.rounds[0].leaves[4].accepted = true;
        _seal(s);
    }

    function test_AFaultOfVCostsHalf() public {
        Session memory s = _forged();
        IDrawBeacon.Draw memory drawn = _drawn(s);
        vm.prank(stranger);
        draws.open(drawn, 0, _sample(s, drawn, 0));
        assertEq(_stakeV(), STAKE / 2);
        assertEq(vault.slashable(drafter.addr, Role.DRAFTER), STAKE);
        assertEq(uint8(_stage(drawn)), uint8(IDrawBeacon.Stage.FAULTY));
        // Who copies an opening would be paid as well, so nobody is.
        assertEq(vault.accounting().vesting, 0);
        Openings.Opening memory o = _sample(s, drawn, 1);
        vm.expectRevert(
            abi.encodeWithSelector(DrawBeacon.WrongStage.selector, IDrawBeacon.Stage.FAULTY)
        );
        draws.open(drawn, 1, o);
    }

    function test_TheSameFaultIsPunishedOnce() public {
        Session memory s = _forged();
        IDrawBeacon.Draw memory first = _drawn(s);
        IDrawBeacon.Draw memory second = _drawn(s);
        assertTrue(first.batchId != second.batchId);
        draws.open(first, 0, _sample(s, first, 0));
        assertEq(_stakeV(), STAKE / 2);
        draws.open(second, 0, _sample(s, second, 0));
        assertEq(_stakeV(), STAKE / 2);
        assertEq(uint8(_stage(second)), uint8(IDrawBeacon.Stage.FAULTY));
    }

    function test_AFaultOfDLeavesVsDrawOpen() public {
        Session memory s = _honest(Records.MODE_REJECTION);
        for (uint256 i; i < 4; ++i) {
            s.rounds[i].commit.chainValue = keccak256("better coins");
        }
        _seal(s);
        IDrawBeacon.Draw memory drawn = _drawn(s);
        for (uint8 j; j < 4; ++j) {
            draws.open(drawn, j, _sample(s, drawn, j));
        }
        assertEq(uint8(_stage(drawn)), uint8(IDrawBeacon.Stage.SHOWN));
        assertEq(_stakeV(), STAKE);
        assertLe(vault.slashable(drafter.addr, Role.DRAFTER), STAKE / 2);
    }

    /// @dev What does not belong together costs nobody anything.
    function test_ABadOpeningChangesNothing() public {
        Session memory s = _honest(1);
        IDrawBeacon.Draw memory drawn = _drawn(s);
        Openings.Opening memory o = _sample(s, drawn, 0);
        o.verdictSignature[10] ^= 0x01;
        vm.prank(stranger);
        vm.expectPartialRevert(Openings.NotSignedBy.selector);
        draws.open(drawn, 0, o);
        assertEq(_stakeV(), STAKE);
        assertEq(draws.drawState(drawn.batchId, 0).opened, 0);
    }
}

contract DrawBeaconExpireTest is BeaconWork {
    function test_SilenceCostsATwentiethThenHalf() public {
        Session memory s = _honest(1);
        IDrawBeacon.Draw memory drawn = _drawn(s);
        IDrawBeacon.DrawState memory state = draws.drawState(drawn.batchId, 0);
        vm.warp(state.firstUntil);
        vm.expectRevert(abi.encodeWithSelector(DrawBeacon.TooEarly.selector, state.firstUntil));
        draws.expire(drawn);
        vm.warp(state.firstUntil + 1);
        vm.prank(stranger);
        draws.expire(drawn);
        assertEq(_stakeV(), STAKE * 95 / 100);
        assertEq(vault.accounting().vesting, STAKE * 5 / 100 * 4 / 100, "who called it");
        vm.expectRevert(abi.encodeWithSelector(DrawBeacon.TooEarly.selector, state.secondUntil));
        draws.expire(drawn);
        vm.warp(state.secondUntil + 1);
        draws.expire(drawn);
        assertEq(_stakeV(), STAKE * 475 / 1_000);
        assertEq(uint8(_stage(drawn)), uint8(IDrawBeacon.Stage.SILENT));
        vm.expectRevert(
            abi.encodeWithSelector(DrawBeacon.WrongStage.selector, IDrawBeacon.Stage.SILENT)
        );
        draws.expire(drawn);
    }

    /// @dev Three of four samples are as good as none.
    function test_WithholdingOneIsSilence() public {
        Session memory s = _honest(1);
        IDrawBeacon.Draw memory drawn = _drawn(s);
        for (uint8 j; j < 3; ++j) {
            draws.open(drawn, j, _sample(s, drawn, j));
        }
        vm.warp(draws.drawState(drawn.batchId, 0).secondUntil + 1);
        draws.expire(drawn);
        draws.expire(drawn);
        assertEq(_stakeV(), STAKE * 475 / 1_000);
    }

    function test_ALateOpeningSavesTheRest() public {
        Session memory s = _honest(1);
        IDrawBeacon.Draw memory drawn = _drawn(s);
        vm.warp(draws.drawState(drawn.batchId, 0).firstUntil + 1);
        draws.expire(drawn);
        for (uint8 j; j < 4; ++j) {
            draws.open(drawn, j, _sample(s, drawn, j));
        }
        vm.warp(block.timestamp + 30 days);
        vm.expectRevert(
            abi.encodeWithSelector(DrawBeacon.WrongStage.selector, IDrawBeacon.Stage.SHOWN)
        );
        draws.expire(drawn);
        assertEq(_stakeV(), STAKE * 95 / 100);
    }

    /// @dev Hiding a fault costs V no less than showing it.
    function test_SilenceIsNoCheaperThanTheFault() public {
        Session memory s = _honest(1);
        s.rounds[0].leaves[2].token = 55;
        _seal(s);
        IDrawBeacon.Draw memory drawn = _drawn(s);
        vm.warp(draws.drawState(drawn.batchId, 0).secondUntil + 1);
        draws.expire(drawn);
        draws.expire(drawn);
        uint256 back = vault.accounting().vesting; // if V's friend was the caller
        assertLe(_stakeV() + back, STAKE / 2);
    }
}
