"""What an auditor makes of a delivery: only the drawn session, whole and under the drawn root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio
from arena import DOMAIN, Arena, Letters
from audit_scene import Scene, greedy, staged

from node.network.messages import (
    DrawnAnswer,
    DrawnRequest,
    Kind,
    PromptDelivery,
    RecordsRequest,
    RecordsResponse,
)
from node.roles.auditing import DrawnLane
from node.roles.delivery import Broken, Delivered, Drawn, Undelivered, check_drawn, check_session
from node.roles.frames import FrameError, Round
from node.roles.lines import ask
from node.roles.records import path_of, preimage_of
from node.roles.rerun import Case, check_stops
from node.roles.session import StaleFrame, round_record
from settlement import trees
from settlement.draws import target_of
from settlement.records import SessionStart, extend_context
from settlement.round_faults import round_faults
from settlement.schema import RecordError

REFUSALS = (Undelivered, trees.TreeError, RecordError, FrameError, StaleFrame)


def delivered(seed: int) -> tuple[DrawnLane, DrawnAnswer, list[RecordsResponse], Scene]:
    """An honest verifier's answers to a drawn auditor, and the scene for its keys."""
    arena = Arena(seed=seed)

    async def act(scene: Scene) -> Any:
        transport, verifier = scene.nodes["auditor-1"].transport, scene.seats["verifier"].address
        drawn = scene.draws.held[0]
        answer = await ask(transport, verifier, Kind.DRAWN, DrawnRequest(1, 0, 0), DrawnAnswer)
        pages: list[RecordsResponse] = []
        while not pages or pages[-1].more:
            wanted = RecordsRequest(
                scene.session_id, sum(len(p.rounds) for p in pages), 4, not pages, drawn.root
            )
            pages.append(await ask(transport, verifier, Kind.RECORDS, wanted, RecordsResponse))
        return drawn, answer, pages, scene

    return staged(seed, arena, greedy(arena), act)


@pytest.fixture(scope="module")
def honest() -> tuple[DrawnLane, DrawnAnswer, list[RecordsResponse], Scene]:
    return delivered(5)


def take(found: Drawn, pages: list[RecordsResponse]) -> Delivered:
    return trio.run(check_session, DOMAIN, found, pages, b"\x01" * 20)


def test_an_honest_delivery_is_taken(honest: Any) -> None:
    drawn, answer, pages, scene = honest
    found = check_drawn(drawn, 0, answer)
    session = take(found, pages)
    assert len(pages) > 1
    assert session.rounds == tuple(scene.outcome.sessions[0].rounds)
    assert session.outside == 0
    assert session.delivery.prompt == (1, 2, 3)


def test_a_drawn_round_is_the_one_the_seed_names(honest: Any) -> None:
    drawn, answer, pages, _scene = honest
    _, other, _, _ = delivered(6)
    rounds = [Round.from_wire(raw) for page in pages for raw in page.rounds]
    tree = trees.SumTree(round_record(done) for done in rounds)
    at = answer.path.index
    beside = (at + 1) % len(rounds)
    # The same session under another seed.
    reseeded = replace(SessionStart.from_wire(answer.start), seed=b"\x07" * 32).to_wire()
    forged: list[tuple[DrawnLane, DrawnAnswer]] = [
        (replace(drawn, root=b"\x07" * 32), answer),
        (drawn, replace(answer, root=other.root)),
        (drawn, replace(answer, record=other.record)),
        (drawn, replace(answer, order=other.order)),
        (drawn, replace(answer, start=other.start)),
        (drawn, replace(answer, start=reseeded)),
        (drawn, replace(answer, order=answer.order + b"\0")),
        (drawn, replace(answer, base=answer.root)),
        # A true round of the same tree, only not the one that was drawn.
        (
            drawn,
            replace(
                answer,
                record=round_record(rounds[beside]).to_wire(),
                path=path_of(tree.proof(beside)),
            ),
        ),
        (replace(drawn, lane=replace(drawn.lane, client=b"\x01" * 20)), answer),
    ]
    for lane, wrong in forged:
        with pytest.raises(REFUSALS):
            check_drawn(lane, 0, wrong)
    output = tree.top().sums.output
    sample = next(
        n
        for n in range(1, 200)
        if tree.descend(target_of(drawn.seed, n, output)) != answer.path.index
    )
    with pytest.raises(REFUSALS):
        check_drawn(replace(drawn, samples=200), sample, answer)


def change(index: int, **fields: Any) -> Callable[[list[RecordsResponse]], list[RecordsResponse]]:
    def changed(pages: list[RecordsResponse]) -> list[RecordsResponse]:
        out = list(pages)
        out[index] = replace(out[index], **fields)
        return out

    return changed


def test_a_session_is_whole_or_it_is_not_taken(honest: Any) -> None:
    drawn, answer, pages, _ = honest
    found = check_drawn(drawn, 0, answer)
    first, second = pages[0], pages[1]
    assert first.prompt is not None
    other_prompt = PromptDelivery(first.prompt.salt, (1, 2, 4))
    none = tuple(None for _ in first.rounds)
    forgeries = [
        change(0, prompt=None),
        change(0, prompt=other_prompt),
        change(0, prompt=replace(first.prompt, stops=("x",))),
        change(0, prompt=replace(first.prompt, output=(1,))),
        change(0, signatures=first.signatures[:5]),
        change(0, signatures=(*first.signatures[:5], first.signatures[0])),
        change(0, order=b""),
        change(0, rounds=first.rounds[1:], proofs=first.proofs[1:]),
        change(0, rounds=first.rounds[::-1], proofs=first.proofs[::-1]),
        change(0, proofs=first.proofs[:-1]),
        change(0, proofs=first.proofs[::-1]),
        change(0, rounds=second.rounds),
        lambda pages: [replace(page, proofs=tuple(None for _ in page.rounds)) for page in pages],
    ]
    for forge in forgeries:
        with pytest.raises(REFUSALS) as refused:
            take(found, forge(pages))
        assert not isinstance(refused.value, Broken)
    # A round that hangs elsewhere is context, and is said to be.
    apart = next(page for page in range(len(pages)) if answer.path.index // 4 != page)
    loose = change(apart, proofs=tuple(None for _ in pages[apart].rounds))(pages)
    assert take(found, loose).outside == len(none)


def test_a_settled_round_that_breaks_a_rule_is_a_fault_of_its_own(honest: Any) -> None:
    """V signs a round whose token is not its accepted draft, and gets it settled."""
    drawn, answer, pages, scene = honest
    found = check_drawn(drawn, 0, answer)
    rounds = [Round.from_wire(raw) for page in pages for raw in page.rounds]
    number = next(n for n, done in enumerate(rounds) if done.verdict.verdict.k)
    frame = rounds[number].verdict
    leaves = (replace(frame.leaves[0], token=(frame.leaves[0].token + 1) % 12), *frame.leaves[1:])
    verdict = replace(
        frame.verdict,
        verdict_root=trees.merkle_root([leaf.leaf_hash for leaf in leaves]),
        next_context_hash=extend_context(
            frame.verdict.context_hash, tuple(leaf.token for leaf in leaves)
        ),
    )
    signature = DOMAIN.sign(verdict, scene.seats["verifier"].key)
    bad = replace(
        rounds[number], verdict=replace(frame, verdict=verdict, signature=signature, leaves=leaves)
    )
    told = [*rounds[:number], bad]
    tree = trees.SumTree(round_record(done) for done in told)
    settled = tree.settled()
    page = replace(
        pages[0],
        rounds=tuple(done.to_wire() for done in told),
        proofs=tuple(path_of(tree.proof(n)) for n in range(len(told))),
        more=False,
    )
    lying = replace(found, root=settled, record=round_record(bad))
    assert preimage_of(settled) != answer.root
    with pytest.raises(Broken, match="accept rule") as broken:
        take(lying, [page])
    # Which is all that a proof needs.
    here, before = broken.value.accusation.evidence()
    (fault,) = round_faults(DOMAIN, here, before)
    assert (fault.number, fault.guilty) == (4, scene.seats["verifier"].address)


def test_stops_are_where_the_order_puts_them(honest: Any) -> None:
    drawn, answer, pages, _ = honest
    session = take(check_drawn(drawn, 0, answer), pages)
    terms, text = session.terms, Letters().token_bytes
    case = Case(terms.order, terms.seed, session.delivery, session.rounds)
    assert check_stops(case, text) == []
    # A stop string that lies inside the output: V went on after it.
    inside = b"".join(map(text, case.output[4:6])).decode()
    stops = replace(case, delivery=replace(case.delivery, stops=(inside,)))
    (found,) = check_stops(stops, text)
    assert found.what == "goes on after a stop"
    # A round without its last token, at a place where nothing stops.
    last = next(n for n, done in enumerate(case.rounds) if done.verdict.verdict.k)
    done = case.rounds[last]
    kept = done.verdict.leaves[: done.verdict.verdict.k]
    short = replace(done.verdict.verdict, emitted=len(kept))
    cut = replace(done, verdict=replace(done.verdict, verdict=short, leaves=kept))
    (found,) = check_stops(replace(case, rounds=(*case.rounds[:last], cut)), text)
    assert found.what == "stops without a stop"
