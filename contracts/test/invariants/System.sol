// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IAlphaLedger} from "../../interfaces/IAlphaLedger.sol";
import {IDemands} from "../../interfaces/IDemands.sol";
import {IDrawBeacon} from "../../interfaces/IDrawBeacon.sol";
import {IFaultCourt} from "../../interfaces/IFaultCourt.sol";
import {ILaneEscrow} from "../../interfaces/ILaneEscrow.sol";
import {IRoundRule} from "../../interfaces/IRoundRule.sol";
import {Role} from "../../interfaces/IStakeVault.sol";
import {Evidence} from "../../libraries/Evidence.sol";
import {Records} from "../../libraries/Records.sol";
import {Answers} from "./Answers.sol";

/// @notice What may happen in the whole system, and what must hold whatever happens.
/// @dev The honest do what an honest daemon does: whatever is drawn or demanded of them they answer
/// before time passes. The others answer, lie or keep silent as the fuzzer says, and everyone accuses
/// everyone.
contract System is Answers {
    mapping(address operator => uint256) internal put;
    mapping(address operator => uint256) internal taken;
    bytes32[] internal filings;
    bytes32 internal constant NO_EVIDENCE = keccak256("no evidence");

    function open() external {
        setUp();
        for (uint256 i; i < 2; ++i) {
            put[drafters[i].addr] = 100_000 ether;
            put[verifiers[i].addr] = 100_000 ether;
            _fund(drafters[i].addr, address(alpha), 1e6 ether);
        }
        _fund(challenger, address(court), 1e6 ether);
        _fund(client.addr, address(leaves), 1e6 ether);
        _fund(client.addr, address(texts), 1e6 ether);
    }

    // ------------------------------------------------------------------ money in and out

    function reserve(uint256 lane, uint96 amount) external move {
        if (block.timestamp < escrow.pausedUntil()) return;
        _reserve(works[lane % LANES], bound(amount, 1, 5_000 ether));
        _well();
    }

    function settle(uint256 lane, bool all) external move {
        if (_settleRound(lane % LANES, all)) _well();
    }

    function thaw(uint256 lane, uint96 amount, bool collect) external move {
        Records.Lane memory lane_ = works[lane % LANES].lane;
        ILaneEscrow.LaneState memory state = escrow.laneState(Records.laneId(lane_));
        vm.startPrank(client.addr);
        if (collect && state.thawing != 0 && block.timestamp >= state.thawedAt) {
            escrow.collectThawed(lane_, client.addr);
            _well();
        } else if (state.reserve > state.thawing) {
            escrow.thaw(lane_, bound(amount, 1, state.reserve - state.thawing));
            _well();
        }
        vm.stopPrank();
    }

    function stake(uint256 who, uint96 amount) external move {
        if (block.timestamp < vault.pausedUntil()) return;
        (address operator, Role role) = _operator(who);
        amount = uint96(bound(amount, 1, 5_000 ether));
        _stake(operator, operator, role, amount);
        put[operator] += amount;
        _well();
    }

    function unstake(uint256 who, uint96 amount) external move {
        (address operator, Role role) = _operator(who);
        uint256 active = vault.activeStake(operator, role);
        if (active == 0 || vault.exitsOf(operator, role).length == 16) return;
        vm.prank(operator);
        vault.unstake(operator, role, bound(amount, 1, active));
        _well();
    }

    function leave(uint256 who) public move {
        (address operator, Role role) = _operator(who);
        vm.prank(operator);
        try vault.withdraw(operator, role) returns (uint256 amount) {
            taken[operator] += amount;
            _well();
        } catch {}
        try escrow.withdraw(operator, address(token)) {} catch {}
    }

    // ------------------------------------------------------------------ court

    /// @dev Two windows or two verdicts by the one that lies; for the honest, a second one that
    /// somebody else has signed.
    function accuse(uint256 lane, bool drafts, uint256 round) external move {
        lane %= LANES;
        Session memory s = _sessionOf(lane, ROUNDS);
        bool lies = drafts ? _liesD(lane) : _liesV(lane);
        if (!lies) (s.drafterKey, s.verifierKey) = (client.key, client.key);
        if (drafts) {
            Evidence.DraftPair memory pair = _draftPair(s, 3 * (round % 2));
            _fileAndWait(abi.encodeCall(IRoundRule.draftTwice, (pair, _separator())));
            vm.prank(challenger);
            try court.proveDraftTwice(pair, SALT) {
                _proven(lies);
            } catch {}
        } else {
            Evidence.VerdictPair memory pair = _verdictPair(s, round % ROUNDS);
            _fileAndWait(abi.encodeCall(IRoundRule.verdictTwice, (pair, _separator())));
            vm.prank(challenger);
            try court.proveVerdictTwice(pair, SALT) {
                _proven(lies);
            } catch {}
        }
    }

    function _fileAndWait(bytes memory question) private {
        bytes32 commitment = court.commitmentOf(keccak256(question), challenger, SALT);
        vm.prank(challenger);
        try court.file(commitment) {
            filings.push(commitment);
        } catch {}
        vm.roll(block.number + 3);
    }

    function _proven(bool lies) private {
        if (!lies) ++impossible;
        _well();
    }

    function fileNothing(bytes32 salt) external move {
        bytes32 commitment = court.commitmentOf(NO_EVIDENCE, challenger, salt);
        vm.prank(challenger);
        try court.file(commitment) {
            filings.push(commitment);
            _well();
        } catch {}
    }

    function forfeit(uint256 which) public move {
        if (filings.length == 0) return;
        try court.forfeit(challenger, filings[which % filings.length]) {
            _well();
        } catch {}
    }

    // ------------------------------------------------------------------ α

    function flag(uint256 which, bool whole) external move {
        bytes32 claim = claims[which % 2];
        address series = whole ? address(0) : verifiers[(which / 2) % 2].addr;
        (, uint256 newest, uint256 floor,,) = alpha.seriesOf(claim, series);
        if (newest <= floor) return;
        for (uint256 bucket; bucket < 16; bucket += 3) {
            try alpha.flag(claim, series, bucket, floor, newest) {
                if (which % 2 == 0) ++impossible;
                _well();
                // Mostly it answers at once; else `answerCase` does, or nobody.
                if ((which / 4) % 4 != 1) this.answerCase();
                return;
            } catch {}
        }
    }

    function answerCase() public move {
        vm.prank(drafters[1].addr);
        try alpha.assertDraftModel(alpha.claimOf(claims[1]).openCase) {
            _well();
        } catch {}
    }

    function endCase() public move {
        uint64 which = alpha.claimOf(claims[1]).openCase;
        try alpha.expire(which) {
            _well();
        } catch {}
        try alpha.conclude(which) {
            _well();
        } catch {}
    }

    // ------------------------------------------------------------------ everything else

    function pull() public move {
        address[7] memory all = _everyone();
        for (uint256 i; i < all.length; ++i) {
            try court.pullBond(all[i]) {
                _well();
            } catch {}
            try leaves.pullBond(all[i]) {} catch {}
            try texts.pullBond(all[i]) {} catch {}
            try alpha.pullBond(all[i]) {} catch {}
        }
        try vault.burn() {
            _well();
        } catch {}
        try court.burn() {} catch {}
    }

    function wait_(uint32 span) external move {
        _answerAll();
        // Hours mostly, so that there is a time between the deadlines, and sometimes days.
        vm.warp(block.timestamp + bound(span, 1 hours, span % 4 == 0 ? 6 days : 16 hours));
        vm.roll(block.number + 20);
        _well();
    }

    /// @dev Anything within bounds, for what comes after.
    function setTerms(uint256 seed) external move {
        vm.startPrank(owner);
        IFaultCourt.Terms memory c = _courtTerms();
        (c.bond, c.faultBps) = (uint96(1 ether + seed % 20 ether), uint16(1 + seed % 10_000));
        court.setTerms(c);
        IDemands.Terms memory d = _demandTerms();
        (d.bond, d.lateBps) = (uint96(1 ether + seed % 30 ether), uint16(500 + seed % 9_500));
        leaves.setTerms(d);
        texts.setTerms(d);
        IAlphaLedger.Parameters memory a = _ledgerParameters();
        (a.bond, a.spacing) = (uint128(seed % 500 ether), uint32(1 + seed % 9));
        alpha.setParameters(a);
        ILaneEscrow.Parameters memory e = _parameters();
        (e.feeBps, e.lockFactor) = (uint16(seed % 1_001), uint16(1 + seed % 20));
        escrow.setParameters(e);
        vm.stopPrank();
        _well();
    }

    function pause(uint64 span) external move {
        if (block.timestamp < vault.nextPauseFrom()) return;
        vm.startPrank(guardian);
        vault.pause(uint64(bound(span, 1, 3 days)));
        if (block.timestamp >= escrow.nextPauseFrom()) escrow.pause(1 hours);
        vm.stopPrank();
        _well();
    }

    // ------------------------------------------------------------------ what must hold

    function check() external view {
        _assertConserved();
        IFaultCourt.Bonds memory c = court.bonds();
        assertEq(token.balanceOf(address(court)), c.open + c.payable_ + c.burning, "court");
        IDemands.Bonds memory d = leaves.bonds();
        assertEq(token.balanceOf(address(leaves)), d.open + d.payable_, "leaf demands");
        IDemands.Bonds memory t = texts.bonds();
        assertEq(token.balanceOf(address(texts)), t.open + t.payable_, "text demands");
        assertEq(token.balanceOf(address(alpha)), alpha.bondsHeld(), "ledger");
        assertEq(impossible, 0, "no honest party was made to pay");
        _assertWhole(drafters[0].addr, Role.DRAFTER);
        _assertWhole(verifiers[0].addr, Role.VERIFIER);
    }

    function _assertWhole(address operator, Role role) private view {
        assertEq(
            vault.slashable(operator, role), put[operator] - taken[operator], "honest stakes stay"
        );
    }

    /// @dev From wherever things stand: once every deadline has passed, nothing is left anywhere but
    /// the fees.
    function leaveAltogether() external {
        for (uint256 i; i < cases.length; ++i) {
            while (_batchOf(i).randomness == 0) {
                _captureOne(i);
            }
        }
        _answerAll();
        _thawAll();
        for (uint256 deadline; deadline < 4; ++deadline) {
            vm.warp(block.timestamp + 2 days);
            for (uint256 i; i < pendingDraws.length; ++i) {
                _expireDraw(i);
            }
            for (uint256 i; i < leafDemands.length; ++i) {
                _expireLeaf(i);
            }
            for (uint256 i; i < textDemands.length; ++i) {
                _endText(i);
            }
            this.endCase();
        }
        vm.warp(block.timestamp + 8 days);
        this.endCase();
        vm.roll(block.number + 200);
        for (uint256 i; i < filings.length; ++i) {
            this.forfeit(i);
        }
        _assertOver();
        // A full queue of old exits has matured by then and makes room.
        vm.warp(block.timestamp + 18 days);
        _unstakeAll();
        vm.warp(block.timestamp + 18 days + 2 * SLICE);
        this.pull();
        _assertEmpty();
    }

    /// @dev No slash has ever reverted: else what was called for its sake would still be open.
    function _assertOver() private view {
        for (uint256 i; i < pendingDraws.length; ++i) {
            IDrawBeacon.Draw memory drawn = _drawnOf(pendingDraws[i]);
            IDrawBeacon.Stage stage = draws.drawState(drawn.batchId, 0).stage;
            assertTrue(stage > IDrawBeacon.Stage.LATE, "every draw is over");
        }
        for (uint256 i; i < leafDemands.length; ++i) {
            IDemands.Stage stage = leaves.demandState(keccak256(leafDemands[i])).stage;
            assertTrue(stage > IDemands.Stage.ANSWERED, "every leaf demand is over");
        }
        for (uint256 i; i < textDemands.length; ++i) {
            IDemands.Stage stage = texts.demandState(keccak256(textDemands[i])).stage;
            assertTrue(stage > IDemands.Stage.ANSWERED, "every text demand is over");
        }
        assertEq(alpha.claimOf(claims[1]).openCase, 0, "every case is over");
    }

    function _thawAll() private {
        for (uint256 lane; lane < LANES; ++lane) {
            Records.Lane memory lane_ = works[lane].lane;
            ILaneEscrow.LaneState memory state = escrow.laneState(Records.laneId(lane_));
            if (state.reserve <= state.thawing) continue;
            vm.prank(client.addr);
            escrow.thaw(lane_, state.reserve - state.thawing);
        }
    }

    function _unstakeAll() private {
        for (uint256 i; i < 4; ++i) {
            (address operator, Role role) = _operator(i);
            // Old exits make room.
            this.leave(i);
            uint256 active = vault.activeStake(operator, role);
            vm.prank(operator);
            if (active != 0) vault.unstake(operator, role, active);
        }
    }

    function _assertEmpty() private {
        for (uint256 i; i < 4; ++i) {
            (address operator, Role role) = _operator(i);
            vault.releaseLocks(operator, role, type(uint256).max);
            this.leave(i);
            assertEq(vault.slashable(operator, role), 0, "all stake is out");
        }
        for (uint256 lane; lane < LANES; ++lane) {
            vm.prank(client.addr);
            try escrow.collectThawed(works[lane].lane, client.addr) {} catch {}
            bytes32 id = Records.laneId(works[lane].lane);
            assertEq(escrow.laneState(id).reserve, 0, "all reserves are out");
        }
        address[7] memory all = _everyone();
        uint64[] memory one = new uint64[](1);
        for (uint256 i; i < all.length; ++i) {
            for (uint256 j; j < slices.length; ++j) {
                one[0] = slices[j];
                if (vault.vestingOf(all[i], one[0]) != 0) vault.claimVested(all[i], one);
            }
            try escrow.withdraw(all[i], address(token)) {} catch {}
        }
        try vault.burn() {} catch {}
        assertEq(token.balanceOf(address(vault)), 0, "the vault is empty");
        assertEq(token.balanceOf(address(court)), 0, "the court is empty");
        assertEq(token.balanceOf(address(leaves)), 0, "no leaf demand holds a bond");
        assertEq(token.balanceOf(address(texts)), 0, "no text demand holds a bond");
        assertEq(token.balanceOf(address(alpha)), 0, "the ledger is empty");
        uint256 fees = escrow.accounting(address(token)).fees;
        assertEq(token.balanceOf(address(escrow)), fees, "the escrow holds fees only");
    }

    // ------------------------------------------------------------------ inside

    function _operator(uint256 who) private view returns (address, Role) {
        uint256 i = (who / 2) % 2;
        return who % 2 == 0 ? (drafters[i].addr, Role.DRAFTER) : (verifiers[i].addr, Role.VERIFIER);
    }

    /// @dev Who may have something to pull. This contract calls captures and deadlines.
    function _everyone() private view returns (address[7] memory) {
        return [
            client.addr,
            challenger,
            drafters[0].addr,
            drafters[1].addr,
            verifiers[0].addr,
            verifiers[1].addr,
            address(this)
        ];
    }
}
