"""What a role refuses it keeps: lies told to honest parties end in their journals as proofs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import trio
from arena import DOMAIN, Arena
from audit_scene import close_draft, greedy, ignore, target

from node.evidence import EvidenceRoom
from node.network.memory import run_deterministically
from node.network.messages import DraftRound
from node.roles import convert
from node.roles.accusations import MOST_A_SESSION, keep
from node.roles.drafter import DrafterRole
from node.roles.plan import ClientError
from node.roles.ports import Node
from settlement import trees
from settlement.fault_proofs import Fault
from settlement.faults import equivocations
from settlement.records import NO_TOKEN
from settlement.round_faults import round_faults


def kept_by(node: Node) -> list[Fault]:
    """Every fault that the node's watcher will find in what it has kept."""
    room = EvidenceRoom(node.journal, DOMAIN)
    found: list[Fault] = []
    for _name, accusation in room.accusations():
        here, before = accusation.evidence()
        found += round_faults(DOMAIN, here, before)
        held = room.round(here.verdict.start_hash, here.verdict.round)
        if held is not None:
            found += equivocations(DOMAIN, here, held)
    return found


async def serve(arena: Arena, plan: Any, look: Callable[[dict[str, Node]], Any]) -> Any:
    """The plan on one drafter and verifier; `look` at everybody's nodes when it has ended."""
    seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
    arena.list_drafter(seats["drafter"])
    arena.list_verifier(seats["verifier"])
    nodes: dict[str, Node] = {}
    async with trio.open_nursery() as nursery:
        role = await nursery.start(arena.verifier, seats["verifier"], target())
        nodes["verifier"] = role.node
        role = await nursery.start(arena.drafter, seats["drafter"], close_draft())
        nodes["drafter"] = role.node
        async with arena.client(seats["client"]) as client:
            nodes["client"] = client.node
            with suppress(ClientError):
                await client.generate(plan, ignore)
            await trio.sleep(2)
            result = look(nodes)
        nursery.cancel_scope.cancel()
    return result


def test_a_verdict_that_names_another_draft_is_kept_by_both_who_refuse_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = convert.verdict_leaves

    def lying(*args: Any) -> Any:
        first, *rest = honest(*args)
        if first.draft_token == NO_TOKEN:
            return (first, *rest)
        return (replace(first, draft_token=first.draft_token ^ 1), *rest)

    monkeypatch.setattr(convert, "verdict_leaves", lying)
    arena = Arena(seed=3)

    def look(nodes: dict[str, Node]) -> dict[str, list[Fault]]:
        return {name: kept_by(node) for name, node in nodes.items()}

    found = run_deterministically(3, serve, arena, greedy(arena), look)
    guilty = Arena().seat("verifier").address
    for name in ("client", "drafter"):
        assert {(f.number, f.guilty) for f in found[name]} == {(3, guilty)}, name
    assert found["verifier"] == []


def test_a_second_window_for_one_place_is_kept_by_the_verifier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    once = DrafterRole._send_window

    async def twice(self: DrafterRole, live: Any, handle: Any, line: Any, values: Any) -> Any:
        frame = await once(self, live, handle, line, values)
        if frame is not None:
            leaves = (replace(frame.leaves[0], token=frame.leaves[0].token ^ 1), *frame.leaves[1:])
            root = trees.merkle_root([leaf.leaf_hash for leaf in leaves])
            commit = replace(frame.commit, draft_root=root)
            signature = DOMAIN.sign(commit, self.node.key)
            second = replace(frame, commit=commit, signature=signature, leaves=leaves)
            await line.send(DraftRound(live.state.round, second.to_wire()))
        return frame

    monkeypatch.setattr(DrafterRole, "_send_window", twice)
    arena = Arena(seed=3)

    def look(nodes: dict[str, Node]) -> tuple[list[Fault], int]:
        verifier = nodes["verifier"]
        found = kept_by(verifier)
        # However many more there are, a session has its measure.
        _name, one = next(EvidenceRoom(verifier.journal, DOMAIN).accusations())
        assert one.draft is not None
        for number in range(12):
            commit = replace(one.draft.commit, draft_root=bytes([number]) * 32)
            signature = DOMAIN.sign(commit, nodes["drafter"].key)
            keep(
                verifier, replace(one, draft=replace(one.draft, commit=commit, signature=signature))
            )
        return found, len(verifier.journal.secrets_under("accusation"))

    found, held = run_deterministically(3, serve, arena, greedy(arena), look)
    guilty = Arena().seat("drafter").address
    assert (1, guilty) in {(fault.number, fault.guilty) for fault in found}
    assert {fault.guilty for fault in found} == {guilty}
    assert held == MOST_A_SESSION


def test_an_honest_session_leaves_nothing_to_prove() -> None:
    arena = Arena(seed=3)

    def look(nodes: dict[str, Node]) -> list[int]:
        return [len(node.journal.secrets_under("accusation")) for node in nodes.values()]

    assert run_deterministically(3, serve, arena, greedy(arena), look) == [0, 0, 0]
