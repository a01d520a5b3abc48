"""What Python finds, the rule contracts find: same fault, code, guilty, round and root."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from altered_sessions import LIES
from evm import Deployed, Reverted
from played_sessions import DRAFTER, Play, play

from settlement import trees
from settlement.chain.compile import compile_contracts
from settlement.draws import BatchEvidence
from settlement.fault_proofs import Code, Fault, Kind
from settlement.faults import draft_twice, find_faults
from settlement.records import Domain, Mode, Sums
from settlement.tree_faults import false_sums

DOMAIN = Domain(31337, b"\x0e" * 20)
CALLER = b"\x11" * 20


class Rules:
    """Both rule contracts in one EVM."""

    def __init__(self) -> None:
        import pyrevm

        artifacts = compile_contracts()
        evm = pyrevm.EVM(spec_id="PRAGUE")
        others = (artifacts["RoundRule"], artifacts["TreeRule"])
        self.rounds = Deployed(evm, artifacts["RoundRule"], CALLER, others=others)
        self.trees = Deployed(evm, artifacts["TreeRule"], CALLER, others=others)

    def judge(self, fault: Fault) -> tuple:
        """Evidence.Ruling: fault, code, drafter, guilty, startHash, round, lane, root, …"""
        rule = self.trees if fault.kind.of_tree else self.rounds
        extra = () if fault.kind.of_tree else (DOMAIN.separator,)
        (ruling,) = rule.call(fault.kind.rule_function, fault.evidence, *extra)
        return ruling

    def agrees(self, fault: Fault) -> None:
        ruling = self.judge(fault)
        assert ruling[0] == fault.number, fault
        assert ruling[1] == int(fault.code), fault
        assert ruling[2] == fault.by_drafter
        assert bytes.fromhex(ruling[3][2:]) == fault.guilty
        assert ruling[4:6] == (fault.start_hash, fault.round)
        assert ruling[6:8] == (fault.lane, fault.root)


@pytest.fixture(scope="module")
def rules() -> Rules:
    return Rules()


def _play(seed: int) -> Play:
    mode = Mode(seed % 3)
    relaxed = mode != Mode.REJECTION and seed % 2 == 0
    return play(DOMAIN, Random(seed), mode, relaxed=relaxed)


@pytest.mark.parametrize("runs", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_every_lie_is_judged_alike(rules: Rules, runs: int) -> None:
    kinds: set[Kind] = set()
    for name, lie in LIES.items():
        for seed in range(runs):
            told = lie(DOMAIN, _play(seed), Random(seed))
            if told is None:
                continue
            altered, _expected = told
            lane = altered.rounds[0].order.lane
            for fault in find_faults(DOMAIN, lane, altered.batch()):
                rules.agrees(fault)
                kinds.add(fault.kind)
        assert kinds, name
    assert kinds >= {
        Kind.OTHER_DRAFT,
        Kind.ACCEPT_RULE,
        Kind.DRAFT_LEAF,
        Kind.VERDICT_ROUND,
        Kind.ROUND_FIT,
        Kind.RECORD,
        Kind.ROUND_TWICE,
    }


def test_equivocation_windows_and_sums_are_judged_alike(rules: Rules) -> None:
    session = next(s for s in map(_play, range(2, 60, 3)) if s.rounds[0].commit)
    first, lane = session.rounds[0], session.rounds[0].order.lane
    other = replace(first.commit, draft_root=b"\x09" * 32)
    signature = DOMAIN.sign(other, DRAFTER)
    (fault,) = draft_twice(DOMAIN, first.commit, first.commit_signature, other, signature)
    rules.agrees(fault)
    tree, settled = session.batch().settled()
    false = replace(settled, sums=settled.sums + Sums(output=5))
    (fault,) = find_faults(DOMAIN, lane, session.batch(), roots=[false])
    rules.agrees(fault)
    # A tree in which the node over the first two leaves claims more than they have.
    nodes = [trees.round_leaf(evidence.record) for evidence in session.rounds[:3]]
    pair = trees.sum_node(nodes[0], nodes[1])
    claimed = pair.sums + Sums(output=7)
    top = trees.sum_node(trees.SumNode(pair.hash, claimed), nodes[2])
    settled = trees.Settled(top.hash, top.sums, 3, b"\0" * 32)
    fault = false_sums(lane, settled, None, (1, 0), (nodes[0], nodes[1]), claimed, [nodes[2]])
    assert fault.code == Code.SUMS
    rules.agrees(fault)
    # And over a chain of bases.
    older = BatchEvidence(session.rounds[:1], None, {})
    newer = BatchEvidence(session.rounds[:2], older.settled()[1], {})
    (fault,) = (f for f in find_faults(DOMAIN, lane, older, newer) if f.code == Code.ROUND_TWICE)
    rules.agrees(fault)
    assert tree.top().sums.output


def test_an_honest_round_is_refused_by_every_rule(rules: Rules) -> None:
    """The evidence of a lie, with the honest records put back in its place."""
    refused: set[Kind] = set()
    for seed in range(12):
        session = _play(seed)
        for lie in LIES.values():
            told = lie(DOMAIN, session, Random(seed))
            if told is None:
                continue
            altered, _expected = told
            lane = altered.rounds[0].order.lane
            for fault in find_faults(DOMAIN, lane, altered.batch()):
                honest = _put_back(fault, session, altered)
                if honest is None:
                    continue
                with pytest.raises(Reverted) as error:
                    rules.judge(replace(fault, evidence=honest))
                assert error.value.name == "NoFault", (fault, error.value)
                refused.add(fault.kind)
    assert refused >= {Kind.OTHER_DRAFT, Kind.ACCEPT_RULE, Kind.VERDICT_ROUND, Kind.ROUND_FIT}


def _put_back(fault: Fault, session: Play, altered: Play) -> tuple | None:
    """The same evidence with honest verdict and leaf; None for kinds made of other parts."""
    if fault.kind.of_tree or fault.round >= len(session.rounds):
        return None
    swaps: dict = {}
    for one, other in zip(session.rounds, altered.rounds, strict=False):
        swaps[other.verdict.to_abi()] = one.verdict.to_abi()
        swaps[other.verdict_signature] = one.verdict_signature
        honest = trees.MerkleTree(leaf.leaf_hash for leaf in one.verdict_leaves)
        for at, leaf in enumerate(other.verdict_leaves):
            if at < len(one.verdict_leaves):
                swaps[leaf.to_abi()] = one.verdict_leaves[at].to_abi()
        lying = trees.MerkleTree(leaf.leaf_hash for leaf in other.verdict_leaves)
        for at in range(len(one.verdict_leaves)):
            swaps[tuple(lying.siblings(at))] = list(honest.siblings(at))
    if fault.kind not in (
        Kind.OTHER_DRAFT,
        Kind.ACCEPT_RULE,
        Kind.VERDICT_ROUND,
        Kind.ROUND_FIT,
        Kind.LEAF_PLACE,
    ):
        return None

    def swapped(part: object) -> object:
        key = tuple(part) if isinstance(part, list) and part else part
        try:
            return swaps.get(key, part)
        except TypeError:
            return part

    return tuple(swapped(part) for part in fault.evidence)
