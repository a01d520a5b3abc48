// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Demands} from "./Demands.sol";
import {IDrawBeacon} from "./interfaces/IDrawBeacon.sol";
import {IEvidenceDemands} from "./interfaces/IEvidenceDemands.sol";
import {ILaneEscrow} from "./interfaces/ILaneEscrow.sol";
import {IOpeningRule} from "./interfaces/IOpeningRule.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";
import {Openings} from "./libraries/Openings.sol";
import {Records} from "./libraries/Records.sol";

/// @title EvidenceDemands
/// @notice Makes what lies under a settled root available on demand: V opens the position or pays.
/// @dev A demand is for one output token, as a draw's sample is, and is answered by the same opening,
/// judged by the same rule. A fault that V shows itself gives back `rewardBps` of the slash to
/// whoever demanded it, and no more.
contract EvidenceDemands is IEvidenceDemands, Demands {
    IOpeningRule public immutable rule;

    constructor(
        address owner,
        IStakeVault vault_,
        ILaneEscrow escrow_,
        IDrawBeacon beacon_,
        IOpeningRule rule_,
        Terms memory terms_
    ) Demands(owner, vault_, escrow_, beacon_, terms_) {
        if (address(rule_) == address(0)) revert ZeroAddress("rule");
        rule = rule_;
    }

    /// @inheritdoc IEvidenceDemands
    function demandLeaf(
        IDrawBeacon.Batch calldata batch,
        bytes calldata entries,
        uint32 index,
        Records.Lane calldata lane,
        bytes32 seed
    ) external nonReentrant returns (bytes32 id) {
        bytes32 root = _settledRoot(batch, entries, index, Records.laneId(lane));
        (uint64 nonce, Terms memory t) = _next();
        Demand memory demand = Demand(nonce, msg.sender, root, lane, seed, t);
        id = keccak256(abi.encode(demand));
        DemandState memory state = _start(id, t);
        emit Demanded(id, lane.verifier, demand, state.firstUntil, state.secondUntil);
    }

    /// @inheritdoc IEvidenceDemands
    function answer(Demand calldata demand, Openings.Opening calldata opening)
        external
        nonReentrant
    {
        bytes32 id = keccak256(abi.encode(demand));
        DemandState storage state = _answerable(id);
        Openings.Finding memory found = rule.judge(
            opening,
            demand.root,
            Records.laneId(demand.lane),
            escrow.domainSeparator(),
            demand.seed,
            0
        );
        bool faulty = found.verifier != 0;
        _move(id, state, faulty ? Stage.FAULTY : Stage.SHOWN);
        // INVARIANT: who answers in time, and truly, is paid for it.
        _release(demand.terms.bond, faulty ? demand.by : demand.lane.verifier);
        if (faulty) {
            _punish(id, demand, opening, demand.lane.verifier, Role.VERIFIER, found.verifier);
        }
        if (found.drafter != 0) {
            _punish(id, demand, opening, demand.lane.drafter, Role.DRAFTER, found.drafter);
        }
    }

    /// @inheritdoc IEvidenceDemands
    function expire(Demand calldata demand) external nonReentrant {
        bytes32 id = keccak256(abi.encode(demand));
        _expire(id, demand.lane.verifier, demand.by, demand.terms);
    }

    /// @dev Under the name that a proof before FaultCourt, or a drawn opening, has.
    function _punish(
        bytes32 id,
        Demand calldata demand,
        Openings.Opening calldata opening,
        address guilty,
        Role role,
        uint8 code
    ) private {
        (bytes32 startHash, uint32 round) = code == Openings.SUMS
            ? (demand.root, 0)
            : (opening.record.startHash, opening.record.round);
        emit AnswerFaulty(id, guilty, code, startHash, round);
        vault.slash(
            guilty,
            role,
            demand.terms.faultBps,
            new IStakeVault.Victim[](0),
            demand.by,
            demand.terms.rewardBps,
            keccak256(
                abi.encode("verdraft/fault/1", Openings.faultOf(code), guilty, startHash, round)
            )
        );
    }
}
