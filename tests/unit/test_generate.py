"""The loop in one process: how many passes it takes, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from engine_models import TableModel, seed, tiny_target

from node.inference import generate as loop
from node.inference.cache import CountedPool
from node.inference.drafter import Want, draft_together
from node.inference.generate import generate, rounds
from node.inference.model import Rows, Span
from node.inference.model_drafter import ModelDrafter
from node.inference.params import SamplingParams
from node.inference.plain import decode_plain
from node.inference.proposal import Draft
from node.inference.scripted import ScriptedDrafter, fixed
from node.inference.stops import StopRules
from node.inference.verifier import Verifier
from node.inference.window import FixedWindow, Round

COUPLED = SamplingParams.from_floats("coupled")


class Counted(TableModel):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.passes: list[int] = []

    def forward(self, spans: Sequence[Span]) -> list[Rows]:
        self.passes += [len(span.tokens) for span in spans]
        return super().forward(spans)


def test_the_prompt_runs_with_the_first_window() -> None:
    model, prompt = Counted(8, 1), [1, 2, 3, 4, 5]
    plain = decode_plain(model, prompt, COUPLED, StopRules(6), seed=seed(1))
    drafter = fixed(plain.tokens)
    for k, passes in ((0, [5, 1, 1, 1, 1, 1]), (2, [7, 3])):
        model.passes.clear()
        made = generate(
            Verifier(model), drafter, prompt, COUPLED, StopRules(6), FixedWindow(k), seed=seed(1)
        )
        assert made.tokens == plain.tokens
        assert model.passes == passes


def test_a_long_prompt_runs_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_LAST_PIECE", 4)
    monkeypatch.setattr("node.inference.verifier.Verifier._pieces", piece_of_three)
    model, prompt = Counted(8, 1), [i % 8 for i in range(12)]
    plain = decode_plain(model, prompt, COUPLED, StopRules(2), seed=seed(1))
    model.passes.clear()
    made = generate(
        Verifier(model), fixed([]), prompt, COUPLED, StopRules(2), FixedWindow(1), seed=seed(1)
    )
    assert made.tokens == plain.tokens
    assert model.passes == [3, 3, 3, 3, 1]


def piece_of_three(self: Verifier, sessions: Sequence[Any], rows: int) -> list[Any]:
    return [
        (s, Span(s.cache, s.tokens[s.cache.length :][: min(3, s.prefilling)])) for s in sessions
    ]


def test_what_a_prompts_pass_takes_says_nothing_about_windows() -> None:
    seen: list[Round] = []

    class Watching(FixedWindow):
        def observe(self, done: Round) -> None:
            seen.append(done)

    generate(Verifier(Counted(8, 1)), fixed([]), [1, 2, 3], COUPLED, StopRules(3), Watching(1))
    assert [done.verify_seconds is None for done in seen] == [True, False, False]


def test_a_prompt_that_ran_with_a_window_is_shared_at_once() -> None:
    target, prompt, stops = tiny_target(), list(range(5, 45)), StopRules(4)
    verifier, window = Verifier(target), FixedWindow(2)

    def opened(number: int) -> Iterator[Any]:
        who = {"seed": seed(number), "salt": b"client"}
        return rounds(verifier, fixed([7, 8]), prompt, COUPLED, stops, window, **who)

    first, second = opened(1), opened(2)
    next(first)
    _, outcome = next(second)
    assert verifier.pool.hits == 32  # type: ignore[attr-defined]
    plain = decode_plain(target, prompt, COUPLED, stops, seed=seed(2))
    assert list(outcome.emitted) == plain.tokens[: len(outcome.emitted)]


@pytest.mark.parametrize("where", ["prompt", "drafter"])
def test_nothing_stays_open_when_a_session_cannot_begin(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("no")

    verifier, drafter = Verifier(Counted(8, 1)), fixed([])
    monkeypatch.setattr(loop, "_LAST_PIECE", 0)
    if where == "prompt":
        monkeypatch.setattr(verifier, "verify_batch", fail)
    else:
        monkeypatch.setattr(ScriptedDrafter, "open", fail)
    with pytest.raises(ValueError, match="no"):
        generate(verifier, drafter, [1, 2], COUPLED, StopRules(3), FixedWindow(1))
    assert verifier.sessions == 0
    assert isinstance(verifier.pool, CountedPool)
    assert verifier.pool.used == 0


def test_reading_a_prompt_is_no_drafting() -> None:
    """Else the first window would make every draft look dear."""
    model = Counted(8, 1)
    drafter = ModelDrafter(model, clock=lambda: float(sum(model.passes)))  # a token, a second
    for together in (False, True):
        session = drafter.open([i % 8 for i in range(40)], COUPLED, seed=seed(1))
        for seconds in (1.0, 2.0):  # of two drafts, the first needs the prompt, later one token
            if together:
                found = draft_together([Want(session, 2)], lambda: float(sum(model.passes)))
                draft = found[0]
                assert isinstance(draft, Draft)
            else:
                draft = session.propose(2)
            assert draft.seconds == seconds
            session.commit([draft.tokens[0], (draft.tokens[1] + 1) % 8])
