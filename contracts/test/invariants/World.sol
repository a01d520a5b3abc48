// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Vm} from "forge-std/Vm.sol";

import {AlphaLedger} from "../../AlphaLedger.sol";
import {DevToken} from "../../DevToken.sol";
import {DrawBeacon} from "../../DrawBeacon.sol";
import {EvidenceDemands} from "../../EvidenceDemands.sol";
import {FaultCourt} from "../../FaultCourt.sol";
import {LaneEscrow} from "../../LaneEscrow.sol";
import {ModelRegistry} from "../../ModelRegistry.sol";
import {OpeningRule} from "../../OpeningRule.sol";
import {RoundRule} from "../../RoundRule.sol";
import {SessionDemands} from "../../SessionDemands.sol";
import {StakeVault} from "../../StakeVault.sol";
import {TreeRule} from "../../TreeRule.sol";
import {IAlphaLedger} from "../../interfaces/IAlphaLedger.sol";
import {IDemands} from "../../interfaces/IDemands.sol";
import {IDrawBeacon} from "../../interfaces/IDrawBeacon.sol";
import {ILaneEscrow} from "../../interfaces/ILaneEscrow.sol";
import {Role} from "../../interfaces/IStakeVault.sol";
import {Batches} from "../../libraries/Batches.sol";
import {Openings} from "../../libraries/Openings.sol";
import {Records} from "../../libraries/Records.sol";
import {CourtWork} from "../CourtWork.sol";
import {Deployed} from "../Deployed.sol";
import {LaneWork} from "../LaneWork.sol";

/// @notice Every contract for real, wired to each other, and four lanes: two drafters and two verifiers
/// of whom the first are honest and the second are not.
/// @dev A lane's session is played and signed once. Its rounds are settled one by one, each time as a
/// larger tree on the same base, and then again in the next epoch.
abstract contract World is LaneWork, CourtWork {
    uint256 internal constant LANES = 4;
    uint256 internal constant ROUNDS = 4;
    uint32 internal constant SPACING = 4;
    bytes32 internal constant PROMPT_SALT = keccak256("prompt salt");

    AlphaLedger internal alpha;
    DrawBeacon internal draws;
    EvidenceDemands internal leaves;
    SessionDemands internal texts;
    Records.Manifest internal target;

    Party[2] internal drafters;
    Party[2] internal verifiers;
    bytes32[2] internal claims;
    Work[] internal works; // by lane
    bytes[] internal sessions; // by lane: abi.encode(Session)
    uint256[] internal settledRounds; // by lane, in its current epoch

    /// @dev One settled root and what became of it.
    struct Case {
        bytes batch; // IDrawBeacon.Batch as it stands
        bytes entries;
        uint256 lane;
        uint256 rounds;
        bytes drawn; // IDrawBeacon.Draw
        uint256 shown; // samples opened
    }

    Case[] internal cases;

    function setUp() public virtual override(Deployed, CourtWork) {
        vm.warp(1_800_000_000);
        vm.roll(1_000);
        _deploy();
        _wire();
        client = _party("client");
        for (uint256 i; i < 2; ++i) {
            drafters[i] = _party(i == 0 ? "an honest drafter" : "a lying drafter");
            verifiers[i] = _party(i == 0 ? "an honest verifier" : "a lying verifier");
            _stake(drafters[i].addr, drafters[i].addr, Role.DRAFTER, 100_000 ether);
            _stake(verifiers[i].addr, verifiers[i].addr, Role.VERIFIER, 100_000 ether);
            // The honest one promises what nobody can miss, the other what nobody can keep.
            claims[i] = _claimOf(drafters[i].addr, i == 0 ? 6 : 99);
        }
        for (uint256 lane; lane < LANES; ++lane) {
            _openLane(lane);
        }
    }

    function _deploy() private {
        token = new DevToken(owner);
        registry = new ModelRegistry(owner);
        vault = new StakeVault(owner, guardian, address(token), registry, SLICE, _times());
        escrow = new LaneEscrow(owner, guardian, vault, _parameters());
        alpha = new AlphaLedger(owner, vault, registry, _ledgerParameters());
        OpeningRule rule = new OpeningRule();
        draws = new DrawBeacon(owner, vault, rule, _drawTerms());
        roundRule = new RoundRule();
        treeRule = new TreeRule();
        court = new FaultCourt(owner, vault, escrow, draws, roundRule, treeRule, _courtTerms());
        leaves = new EvidenceDemands(owner, vault, escrow, draws, rule, _demandTerms());
        texts = new SessionDemands(owner, vault, escrow, draws, _demandTerms());
        (target.architecture, target.vocabSize, target.contextLength) = ("target", 512, 1_024);
        target.eosIds = new uint32[](0);
        (target.weightsRoot, target.tokenizerHash) = (keccak256("w"), keccak256("t"));
        registry.register(target);
    }

    function _wire() private {
        vm.startPrank(owner);
        vault.wire(address(escrow), draws);
        escrow.wire(alpha, draws);
        alpha.wire(address(escrow));
        draws.wire(escrow);
        address[5] memory judges =
            [address(alpha), address(draws), address(court), address(leaves), address(texts)];
        for (uint256 i; i < judges.length; ++i) {
            vault.setSlasher(judges[i], true);
        }
        escrow.setFeeSpender(address(draws), true);
        escrow.listToken(address(token), 1 << 32);
        draws.setReward(address(token), 1 ether);
        vm.stopPrank();
    }

    function _ledgerParameters() internal pure returns (IAlphaLedger.Parameters memory) {
        return IAlphaLedger.Parameters({
            spacing: SPACING,
            lateBps: 1_000,
            silentBps: 5_000,
            refutedBps: 5_000,
            rewardBps: 1_000,
            bond: 100 ether
        });
    }

    function _drawTerms() internal pure returns (IDrawBeacon.Terms memory t) {
        (t.baseRate, t.samples, t.delay) = (type(uint32).max, 2, 2); // all lanes are drawn
        (t.lateBps, t.silentBps, t.faultBps, t.rewardBps) = (500, 5_000, 5_000, 400);
    }

    function _demandTerms() internal pure returns (IDemands.Terms memory t) {
        (t.bond, t.lateBps, t.silentBps, t.faultBps, t.rewardBps) =
        (10 ether, 500, 5_000, 5_000, 400);
    }

    function _claimOf(address who, uint8 rate) private returns (bytes32) {
        Records.Claim memory claim;
        claim.drafter = who;
        claim.targetModel = Records.modelId(target);
        claim.mode = 1;
        for (uint256 i; i < 16; ++i) {
            claim.rates[i] = rate;
        }
        vm.prank(who);
        return alpha.register(claim);
    }

    // ------------------------------------------------------------------ lanes and sessions

    function _liesD(uint256 lane) internal pure returns (bool) {
        return lane / 2 == 1;
    }

    function _liesV(uint256 lane) internal pure returns (bool) {
        return lane % 2 == 1;
    }

    function _openLane(uint256 lane) private {
        drafter = drafters[lane / 2];
        verifier = verifiers[lane % 2];
        Session memory s = _session(1);
        s.order.promptHash = Records.promptHash(PROMPT_SALT, _prompt());
        s.order.targetModel = Records.modelId(target);
        s.order.claimId = claims[lane / 2];
        s.context = s.order.promptHash;
        _play(s, 4, 4, 3);
        _play(s, 3, 1, 0);
        _play(s, 0, 0, 5);
        _play(s, 5, 0, 4);
        if (_liesD(lane)) s.rounds[0].drafts[1].position = 900;
        if (_liesV(lane)) s.rounds[0].leaves[2].position = 900;
        _seal(s);
        sessions.push(abi.encode(s));
        settledRounds.push(0);
        works.push(_work(Records.laneOf(s.order), client.key, drafter.key, verifier.key));
        _reserve(works[lane], 20_000 ether);
    }

    function _prompt() internal pure returns (bytes memory) {
        return abi.encodePacked(uint32(5), uint32(6), uint32(7));
    }

    /// @dev The first `count` rounds of a lane's session.
    function _sessionOf(uint256 lane, uint256 count) internal view returns (Session memory s) {
        s = abi.decode(sessions[lane], (Session));
        Round[] memory rounds = new Round[](count);
        for (uint256 i; i < count; ++i) {
            rounds[i] = s.rounds[i];
        }
        s.rounds = rounds;
    }

    /// @dev Salt, prompt and output up to the end of the rounds.
    function _textOf(Session memory s) internal pure returns (bytes memory text) {
        text = abi.encodePacked(PROMPT_SALT, _prompt());
        for (uint256 i; i < s.rounds.length; ++i) {
            for (uint256 j; j < s.rounds[i].leaves.length; ++j) {
                text = abi.encodePacked(text, s.rounds[i].leaves[j].token);
            }
        }
    }

    // ------------------------------------------------------------------ settling

    /// @dev One more round of the lane, or all that are left, in a new epoch where the session is
    /// through.
    function _settleRound(uint256 lane, bool all) internal returns (bool) {
        Work memory work = works[lane];
        if (settledRounds[lane] == ROUNDS) {
            vm.prank(client.addr);
            _freshEpoch(work, escrow.openEpoch(work.lane));
            (works[lane], settledRounds[lane]) = (work, 0);
        }
        uint256 count = all ? ROUNDS : settledRounds[lane] + 1;
        Openings.Root memory root = _settled(_sessionOf(lane, count));
        (work.top, work.sums, work.leaves) = (root.top, root.sums, root.leafCount);
        work.dueDrafter = uint128((root.sums[0] >> 64) * 50 ether);
        work.dueVerifier = uint128(uint64(root.sums[0]) * 70 ether);
        work.link = settledRounds[lane] == 0 ? ILaneEscrow.Link.EXTENDS : ILaneEscrow.Link.REPLACES;
        vm.recordLogs();
        try escrow.settle(address(token), _group(work, _voucher(work))) {}
        catch {
            return false;
        }
        Vm.Log[] memory logs = vm.getRecordedLogs();
        _follow(work, logs);
        (works[lane], settledRounds[lane]) = (work, count);
        _register(lane, count, logs);
        return true;
    }

    function _register(uint256 lane, uint256 count, Vm.Log[] memory logs) private {
        Case storage made = cases.push();
        (made.lane, made.rounds) = (lane, count);
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] == IDrawBeacon.BatchRegistered.selector) {
                made.batch = logs[i].data;
            }
            if (logs[i].topics[0] == ILaneEscrow.LaneSettled.selector) {
                (bytes32 root, uint256 figures,) =
                    abi.decode(logs[i].data, (bytes32, uint256, uint256));
                made.entries = abi.encode(logs[i].topics[1], root, figures);
            }
        }
    }

    function _batchOf(uint256 which) internal view returns (IDrawBeacon.Batch memory) {
        return abi.decode(cases[which].batch, (IDrawBeacon.Batch));
    }

    function _drawnOf(uint256 which) internal view returns (IDrawBeacon.Draw memory) {
        return abi.decode(cases[which].drawn, (IDrawBeacon.Draw));
    }

    /// @dev The draw that `DrawBeacon.draw` makes of a captured batch of one lane.
    function _drawFrom(IDrawBeacon.Batch memory batch, uint256 which)
        internal
        view
        returns (IDrawBeacon.Draw memory drawn)
    {
        (bytes32 lane, bytes32 root, uint256 word) =
            abi.decode(cases[which].entries, (bytes32, bytes32, uint256));
        drawn.batchId = batch.id;
        drawn.seed = keccak256(abi.encodePacked("verdraft/sample/1", batch.randomness, uint32(0)));
        drawn.entry = Batches.Entry({
            lane: lane,
            root: root,
            valueDrafter: uint96(word),
            valueVerifier: uint96(word >> 96),
            epoch: uint32(word >> 192),
            coverage: uint24(word >> 224),
            flags: uint8(word >> 248)
        });
        drawn.lane = works[cases[which].lane].lane;
        drawn.terms = batch.terms;
    }

    /// @dev What V opens of a case for a seed and sample.
    function _openingFor(uint256 which, bytes32 seed, uint8 sample)
        internal
        view
        returns (Openings.Opening memory)
    {
        Session memory s = _sessionOf(cases[which].lane, cases[which].rounds);
        return _opening(s, Openings.targetOf(seed, sample, _output(s)));
    }
}
