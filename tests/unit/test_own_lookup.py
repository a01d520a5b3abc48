"""Rounds without drafts that share a pass: the same text and records, whatever was guessed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from engine_models import TINY, TableModel, prompts, seed, tiny_target
from hypothesis import given, settings
from hypothesis import strategies as st

from node.inference.loading import load_model
from node.inference.own_lookup import MOST, Ahead, OwnLookup
from node.inference.params import SamplingParams
from node.inference.plain import decode_plain
from node.inference.proposal import Draft, VerifyRequest
from node.inference.stops import StopRules
from node.inference.verifier import Verifier, VerifierError

COUPLED = SamplingParams.from_floats("coupled", temperature=0.7)
GREEDY = SamplingParams.from_floats("greedy")
# A row more costs next to nothing, so it guesses whenever it can.
CHEAP = {1: 1.0, 2: 1.01, 3: 1.02, 5: 1.03, 9: 1.05}


class Eager(OwnLookup):
    """Guesses as far as it may, always."""

    def length(self, size: int, most: int) -> int:
        return max(min(most, MOST), 0)


def text_of(verifier: Verifier, prompt: Sequence[int], params, stops, number, drafts=()):
    """Tokens, and each round's outcome; `drafts(position, tokens)` gives a window now and then."""
    session = verifier.open(seed(number), prompt, params, stops, seed=seed(number))
    rounds = []
    while not session.ended:
        window = drafts(session) if drafts else ()
        request = VerifyRequest(Draft(session.position, tuple(window)))
        rounds.append(verifier.verify(session, request))
    tokens = [t for done in rounds for t in done.emitted]
    verifier.close(session)
    return tokens, rounds


@pytest.mark.parametrize("params", [GREEDY, COUPLED], ids=["greedy", "coupled"])
def test_the_text_is_the_targets_and_every_round_has_one_token(params) -> None:
    model = load_model(TINY / "target", "exact")
    plain, guessing = Verifier(model), Verifier(model, lookup=Eager(CHEAP))
    shared = 0
    for number, prompt in enumerate(prompts(12)):
        stops = StopRules(48, frozenset({0}))
        want, alone = text_of(plain, prompt, params, stops, number)
        got, rounds = text_of(guessing, prompt, params, stops, number)
        assert got == want
        assert all(len(done.emitted) == 1 for done in rounds)
        # Bit for bit the same records: nobody can tell that rounds shared a pass.
        for one, other in zip(alone, rounds, strict=True):
            assert (one.base, one.decision, one.fingerprints, one.stop) == (
                other.base,
                other.decision,
                other.fingerprints,
                other.stop,
            )
        shared += sum(done.rows == 0 for done in rounds)
    assert shared > 20
    assert guessing.lookup is not None
    assert guessing.lookup.right >= shared


def test_drafts_may_come_at_any_time() -> None:
    """A window is verified on the text as it is, whatever was run ahead of it."""
    model, rng = load_model(TINY / "target", "exact"), random.Random(4)
    for number, prompt in enumerate(prompts(10)):
        stops = StopRules(40, frozenset({0}))
        want = decode_plain(model, prompt, COUPLED, stops, seed=seed(number)).tokens

        def drafts(session, want=want):
            if rng.random() < 0.6:
                return ()
            window = list(want[session.position : session.position + rng.randrange(1, 4)])
            if window and rng.random() < 0.5:
                window[-1] = (window[-1] + 1) % 3000 + 2
            return window[: session.remaining]

        guessing = Verifier(model, lookup=Eager(CHEAP))
        got, _ = text_of(guessing, prompt, COUPLED, stops, number, drafts)
        assert got == want


def test_after_a_wrong_guess_the_logits_are_those_of_a_fresh_prefill() -> None:
    model = tiny_target()
    verifier = Verifier(model, lookup=Eager(CHEAP))
    prompt = prompts(3)[1]
    session = verifier.open(b"s" * 32, prompt, COUPLED, StopRules(40), seed=seed(5))
    while session.position < 30:
        verifier.verify(session, VerifyRequest(Draft(session.position)))
        assert session.ahead is not None
        held = session.cache.length
        # The text without its last token, or, where rows are ahead, all of it and the guesses.
        ready = session.ahead.ready is not None
        assert held == len(session.tokens) - 1 + ready * (1 + len(session.ahead.rows))
        if ready:
            want = decode_plain(
                model, session.tokens, GREEDY, StopRules(1), seed=seed(5), margins=False
            ).tokens[0]
            assert int(session.ahead.ready.logits[0].argmax()) == want
    verifier.rollback(session, 10)
    assert session.cache.length == len(session.tokens) - 1
    rest = [
        verifier.verify(session, VerifyRequest(Draft(session.position))).emitted[0]
        for _ in range(20)
    ]
    again = decode_plain(model, prompt, COUPLED, StopRules(40), seed=seed(5)).tokens
    assert rest == again[10:30]


def test_sessions_that_share_a_pass_run_nothing_ahead() -> None:
    """There a row is not free; what was ready before is still used."""
    model = load_model(TINY / "target", "exact")
    verifier = Verifier(model, lookup=Eager(CHEAP))
    stops = StopRules(24, frozenset({0}))
    sessions = [
        verifier.open(seed(i), prompt, GREEDY, stops, seed=seed(i))
        for i, prompt in enumerate(prompts(3))
    ]
    for _ in range(6):  # the first runs ahead by itself
        verifier.verify(sessions[0], VerifyRequest(Draft(sessions[0].position)))
    seen: dict[int, list[int]] = {i: [] for i in range(3)}
    while any(not s.ended for s in sessions):
        work = [(s, VerifyRequest(Draft(s.position))) for s in sessions if not s.ended]
        for (session, _), done in zip(work, verifier.verify_batch(work), strict=True):
            seen[sessions.index(session)].append(done.rows)
            assert not isinstance(done, Exception)
            if len(work) > 1:
                assert done.rows <= 1
    for i, prompt in enumerate(prompts(3)):
        want = decode_plain(model, prompt, GREEDY, stops, seed=seed(i)).tokens
        text = sessions[i].tokens[sessions[i].prompt_length :]
        assert text == want


def test_a_pass_that_fails_loses_nothing_that_was_ready() -> None:
    model = TableModel(8, 1)
    verifier = Verifier(model, lookup=Eager(CHEAP))
    loop = [1, 2, 3] * 4
    one = verifier.open(seed(1), loop, GREEDY, StopRules(30), seed=seed(1))
    while not one.has_row:
        verifier.verify(one, VerifyRequest(Draft(one.position)))
        assert one.position <= 25, "this table repeats nothing"
    two = verifier.open(seed(2), [4, 5], GREEDY, StopRules(9), seed=seed(2))
    before, forward = one.position, model.forward

    def broken(spans):
        raise MemoryError("no room")

    model.forward = broken
    with pytest.raises(MemoryError):
        verifier.verify_batch(
            [(one, VerifyRequest(Draft(one.position))), (two, VerifyRequest(Draft(0)))]
        )
    model.forward = forward
    assert one.position == before
    twice = [(one, VerifyRequest(Draft(one.position)))] * 2
    first, second = verifier.verify_batch(twice)
    assert first.emitted
    assert isinstance(second, VerifierError)


def test_modes_whose_drafts_have_rules_of_their_own_are_left_alone() -> None:
    verifier = Verifier(tiny_target(), lookup=Eager(CHEAP))
    rejection = SamplingParams.from_floats("rejection", temperature=0.7)
    for number, params in enumerate((COUPLED, rejection, replace(GREEDY, relax_tau=1 << 20))):
        opened = verifier.open(seed(number), [5, 6], params, StopRules(4), seed=seed(1))
        assert (opened.ahead is not None) is (number == 0)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(0, 12))
@settings(max_examples=60, deadline=None)
def test_a_guess_stays_within_what_may_be_said(tokens: list[int], most: int) -> None:
    guess = Ahead(Eager(CHEAP)).guess(tokens, most)
    assert len(guess) <= min(most, MOST)
    assert set(guess) <= set(tokens)


def test_guesses_follow_what_they_cost_and_how_often_they_come_true() -> None:
    dear, cheap = OwnLookup({1: 1.0, 2: 1.7, 3: 2.4, 5: 3.8, 9: 6.6}), OwnLookup(CHEAP)
    assert dear.length(1, 8) == 0
    assert cheap.length(4, 8) == MOST
    assert cheap.length(4, 3) == 3
    assert cheap.length(4, 0) == 0
    assert OwnLookup().length(4, 8) == 0  # nothing was timed
    for _ in range(300):
        cheap.count_first(2, False)
        dear.count_first(2, True)
        dear.count_on(True)
    assert cheap.length(2, 8) == 0
    assert dear.length(2, 8) > 2


def test_what_came_true_is_counted_by_what_matched() -> None:
    lookup = Eager(CHEAP)
    ahead = Ahead(lookup)
    text = [1, 2, 3, 9, 1, 2, 3]
    guess = ahead.guess(text, 2)
    assert guess == (9, 1)
    rows = type("R", (), {"hidden": torch.zeros(3, 2), "logits": torch.arange(9.0).view(3, 3)})()
    ahead.ran(guess, rows)
    before = lookup._first[3].value
    assert ahead.commit(len(text), [9])
    assert lookup._first[3].value > before
    assert ahead.ready is not None
    assert np.array_equal(ahead.ready.logits[0], [3.0, 4.0, 5.0])
    on = lookup._on.value
    assert not ahead.commit(len(text) + 1, [7])
    assert lookup._on.value < on
    assert ahead.ready is None
    assert not ahead.rows
