"""Hints: what a drafter says unasked is grounds to ask only where the text goes that way."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from node.inference.hints import ENOUGH, MOST, Hints, still_good
from node.inference.lookup import HINT_SIZE, LookupDrafter, followed
from node.inference.params import SamplingParams
from node.inference.window import Round, WindowControl, WindowMemory

tokens = st.lists(st.integers(0, 3), max_size=20)


def alone(hints: Hints, *emitted: int) -> None:
    for token in emitted:
        hints.observe([token], 0, 0, 0)


def test_a_hint_counts_once_enough_of_it_came_true_and_more_is_to_come() -> None:
    hints = Hints()
    hints.hear(0, [5, 6, 7, 8])
    assert (hints.level, hints.promising) == (0, False)
    alone(hints, 5)
    assert (hints.level, hints.promising) == (0, True)
    alone(hints, 6)
    assert hints.level == 1
    alone(hints, 7)
    assert hints.level == 1
    alone(hints, 8)  # used up
    assert (hints.level, hints.promising) == (0, False)


def test_a_text_that_goes_another_way_ends_it() -> None:
    hints = Hints()
    hints.hear(0, [5, 6, 7, 8, 9])
    alone(hints, 5, 1)
    assert not hints.promising
    alone(hints, 7)
    assert not hints.promising


def test_a_hint_that_comes_late_is_held_against_what_was_said_meanwhile() -> None:
    hints = Hints(position=100)
    alone(hints, 1, 2, 3)
    hints.hear(100, [1, 2, 3, 4])
    assert hints.level == 1
    hints.hear(101, [2, 9, 9, 9])
    assert not hints.promising
    hints.hear(400, [1, 2, 3])  # of a text that is not there yet
    hints.hear(2, [1, 2, 3])  # of one long gone
    assert not hints.promising


def test_all_of_a_window_that_came_true_is_grounds_for_another() -> None:
    hints = Hints()
    hints.hear(0, [1, 2, 3, 4, 5])
    alone(hints, 1, 2)
    hints.observe([3, 4, 9], 2, 2, level=1)
    assert hints.level == 2
    hints.observe([1, 2], 2, 1, level=2)
    assert (hints.level, hints.promising) == (0, False)
    hints.observe([1, 2], 1, 1, level=0)  # one that was asked for without hints proves nothing
    assert hints.level == 0


@given(tokens, st.integers(0, 6), st.lists(st.integers(0, 3), max_size=40))
def test_the_level_is_what_the_text_and_the_last_hint_say(
    hint: list[int], at: int, text: list[int]
) -> None:
    """Whenever it is heard, and whatever else is heard before."""
    for heard in range(len(text) + 1):
        hints = Hints()
        alone(hints, *text[:heard])
        hints.hear(heard, [0] * 5)
        hints.hear(at, hint)
        alone(hints, *text[heard:])
        since = len(text) - at
        kept = hint[:MOST]
        right = 0 < since < len(kept) and text[at:] == kept[:since]
        assert hints.promising is right
        assert hints.level == (right and since >= ENOUGH)


def test_a_drafter_hints_again_when_the_last_one_is_wrong_or_runs_out() -> None:
    hint = tuple(range(16))
    assert still_good(0, hint, 3, [0, 1, 2])
    assert not still_good(0, hint, 3, [0, 1, 9])
    assert still_good(0, hint, 12, list(range(12)))
    assert not still_good(0, hint, 13, list(range(13)))
    assert not still_good(0, (), 0, [])


def test_a_lookup_hints_where_two_tokens_stood_before_and_repeats_a_repetition() -> None:
    greedy = SamplingParams.from_floats("greedy")
    session = LookupDrafter().open([9, 1, 2, 3, 1, 2], greedy, seed=bytes(32))
    assert HINT_SIZE == 2
    assert session.hint() == (3, 1, 2) * 5 + (3,)
    before = session.propose(2).tokens
    assert session.hint()[:2] == before == (3, 1)
    session.commit([7])
    assert session.hint() == ()
    session.commit([9])  # once is not enough
    assert session.hint() == ()
    assert followed([1, 2], 0, 5) == (1, 2, 1, 2, 1)
    coined = SamplingParams.from_floats("rejection", temperature=0.7)
    assert LookupDrafter().open([1, 2, 1, 2], coined, seed=bytes(32)).hint() == ()


def came_true() -> Hints:
    hints = Hints()
    hints.hear(0, [1, 2, 3, 4])
    alone(hints, 1, 2)
    assert hints.level == 1
    return hints


def control(memory: WindowMemory) -> WindowControl:
    return memory.control("d", 8, prior=(0.4, 4.0), exchange=4.5)


def test_what_hints_are_worth_is_learnt() -> None:
    """A window of the hinted kind costs half a pass more; hints of one drafter lie."""
    costs = {1: 8.6, 2: 9.6, 4: 10.9, 8: 17.8}
    for honest in (True, False):
        memory, rng = WindowMemory(costs), random.Random(1)
        asked = []
        for _ in range(40):
            window = control(memory)
            window.observe(Round(0, 0, False, verify_seconds=8.6, network_seconds=0.0))
            k = window.choose(40, came_true())
            asked.append(k)
            if not k:
                continue
            accepted = 0
            while accepted < k and rng.random() < (0.9 if honest else 0.1):
                accepted += 1
            window.observe(Round(k, accepted, accepted < k, 0.0, k, 10.0, 4.5, asked=k, hinted=1))
        assert asked[0] >= 2
        assert (min(asked[20:]) >= 3) is honest
        assert (max(asked[20:]) == 0) is not honest


def test_hints_that_came_true_say_nothing_of_windows_without() -> None:
    memory = WindowMemory({1: 8.6, 2: 9.6, 4: 10.9, 8: 17.8})
    window = control(memory)
    before = window.alpha
    for _ in range(20):
        window.observe(Round(4, 4, False, 0.0, 4, 10.9, 4.5, asked=4, hinted=1))
    assert window.alpha == before
    assert window.choose(100, came_true()) > window.choose(100, Hints())


def test_a_lookup_that_hints_is_not_asked_otherwise() -> None:
    """One that never does is asked now and then, or it would earn nothing."""
    for hints, most in ((came_true(), 0), (Hints(), 12)):
        if hints.heard:
            alone(hints, 9)  # the text went another way
        memory = WindowMemory({1: 8.6, 2: 9.6, 4: 10.9, 8: 17.8})
        asked = 0
        for _ in range(5):
            window = memory.control("d", 8, prior=(0.4, 4.0), exchange=4.5, lookup=True)
            for left in range(100, 0, -1):
                k = window.choose(left, hints)
                asked += k > 0
                wait = 4.5 if k else 0.0
                window.observe(Round(0, 0, False, 0.0, 0, 8.6, wait, asked=k))
        assert (asked == 0) is hints.heard
        assert asked <= most
