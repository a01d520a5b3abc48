"""The accept rules: what is emitted is the target's word, whatever the drafter sends."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from settlement.acceptance import (
    NO_SCORE,
    AcceptanceError,
    Draft,
    RoundDecision,
    ScoreRow,
    Terms,
    decide_round,
    greedy_argmax,
    is_key,
    one_minus_overlap,
    relaxed_accepts,
)
from settlement.coins import Purpose, coin, draw_coin
from settlement.masses import (
    accept_rejection,
    masses_from_probabilities,
    residual_token,
    sample_masses,
)
from settlement.noise import noise_row
from settlement.records import MASS_TOTAL, NO_CUTOFF, NO_TOKEN, Mode

SEED, CHAIN, OTHER_CHAIN = b"\x07" * 32, b"\x08" * 32, b"\x09" * 32
V = 12


def distribution(values: list[float]) -> np.ndarray:
    return masses_from_probabilities(np.array(values, dtype=np.float64))


# ---------------------------------------------------------------- rejection


def test_rounds_in_rejection_mode_have_the_targets_joint_law() -> None:
    """Whole rounds, D drawing by its committed coins: a chi-square on the first two tokens."""
    rng = Random(3)
    size, sessions = 4, 3000
    targets = {c: distribution([rng.random() + 0.05 for _ in range(size)]) for c in range(-1, size)}
    drafts = {c: distribution([rng.random() + 0.05 for _ in range(size)]) for c in range(-1, size)}
    counts: Counter[tuple[int, int]] = Counter()
    terms = Terms(Mode.REJECTION)
    scores = np.zeros(size, dtype=np.int64)
    for session in range(sessions):
        seed = session.to_bytes(32, "big")
        tokens: list[int] = []
        while len(tokens) < 2:
            base = len(tokens)
            context = base.to_bytes(32, "big")
            last, proposed = (tokens[-1] if tokens else -1), []
            for offset in range(2):
                q = drafts[last]
                drawn = draw_coin(OTHER_CHAIN, seed, context, base + offset)
                # D's interval: the masses are searched with w′ itself.
                last = int(np.searchsorted(np.cumsum(q), np.uint64(drawn), side="right"))
                proposed.append(Draft(last, q))
            path = [tokens[-1] if tokens else -1, *(draft.token for draft in proposed)]
            rows = [ScoreRow(scores, mass=targets[c]) for c in path]
            tokens += decide_round(terms, base, proposed, rows, seed, CHAIN).tokens
        counts[tokens[0], tokens[1]] += 1
    pairs = list(product(range(size), repeat=2))
    expected = np.array(
        [float(targets[-1][a]) * float(targets[a][b]) / float(MASS_TOTAL) ** 2 for a, b in pairs]
    )
    observed = [counts[pair] for pair in pairs]
    assert stats.chisquare(observed, expected / expected.sum() * sessions).pvalue > 1e-4


# ---------------------------------------------------------------- strict modes


def table_row(context: tuple[int, ...], mode: Mode) -> ScoreRow:
    """A target that is a table: scores from the last two tokens."""
    rng = np.random.default_rng([len(context) > 1, *(token + 1 for token in context[-2:])])
    scores = rng.integers(-4, 5, V) << 23  # a coarse grid: ties occur
    cutoff = int(np.sort(scores)[V // 2]) if mode == Mode.COUPLED else NO_CUTOFF
    return ScoreRow(scores.astype(np.int64), cutoff, top_prob=len(context))


def plain(mode: Mode, length: int, stop: frozenset[int] = frozenset()) -> tuple[int, ...]:
    """Decoding without drafts, from the definition."""
    tokens: tuple[int, ...] = (0,)
    while len(tokens) <= length:
        row = table_row(tokens, mode)
        scores = row.scores
        if mode == Mode.COUPLED:
            scores = scores + noise_row(SEED, len(tokens) - 1, V)
            scores = np.where(row.scores >= row.cutoff, scores, -(2**63))
        tokens += (int(np.flatnonzero(scores == scores.max())[0]),)
        if tokens[-1] in stop:
            break
    return tokens[1:]


def decode(terms: Terms, drafter, completes=None) -> tuple[tuple[int, ...], list[RoundDecision]]:
    """Rounds until the stop. `drafter(context)` proposes a window of tokens."""
    tokens: tuple[int, ...] = (0,)
    decisions = []
    while True:
        base, window = len(tokens) - 1, drafter(tokens)
        rows = [table_row(tokens + tuple(window[:i]), terms.mode) for i in range(len(window) + 1)]
        done = decide_round(
            terms, base, [Draft(x) for x in window], rows, SEED, completes_stop_string=completes
        )
        decisions.append(done)
        tokens += done.tokens
        if done.stopped:
            return tokens[1:], decisions


@pytest.mark.parametrize("mode", [Mode.GREEDY, Mode.COUPLED])
@given(st.randoms(use_true_random=False), st.integers(0, 5))
def test_the_text_is_the_targets_alone_whatever_is_drafted(
    mode: Mode, rng: Random, window: int
) -> None:
    expected = plain(mode, 20)

    def drafter(tokens: tuple[int, ...]) -> list[int]:
        honest = expected[len(tokens) - 1 : len(tokens) - 1 + window]
        return [x if rng.random() < 0.7 else rng.choice((rng.randrange(V), 99)) for x in honest]

    text, decisions = decode(Terms(mode, max_tokens=20), drafter)
    assert text == expected
    for decision in decisions:
        *accepted, last = decision.outcomes
        assert all(outcome.accepted for outcome in accepted)
        assert decision.accepted == len(accepted) + last.accepted
        assert all(o.accepted == (o.token == o.draft_token) for o in decision.outcomes)


@pytest.mark.parametrize("mode", [Mode.GREEDY, Mode.COUPLED])
@pytest.mark.parametrize("window", range(6))
@pytest.mark.parametrize("place", range(7))
def test_a_stop_ends_the_output_wherever_in_the_window_it_falls(
    mode: Mode, window: int, place: int
) -> None:
    full = plain(mode, 20)
    for kind in ("id", "string", "length"):
        stop = frozenset({full[place]}) if kind == "id" else frozenset()
        end = full.index(full[place]) if kind == "id" else place
        completes = None
        if kind == "string":
            so_far: list[int] = []

            def completes(tokens: tuple[int, ...], so_far=so_far, end=end) -> bool:
                so_far.append(tokens[-1])
                return len(so_far) == end + 1

        terms = Terms(mode, stop_ids=stop, max_tokens=end + 1 if kind == "length" else 20)
        text, decisions = decode(
            terms, lambda tokens: list(full[len(tokens) - 1 :][:window]), completes
        )
        assert text == full[: end + 1], kind
        assert [d.stopped for d in decisions] == [False] * (len(decisions) - 1) + [True]


def test_a_stop_by_rejection_or_bonus_ends_the_round_too() -> None:
    rows = [ScoreRow(np.array([0, 5, 0], dtype=np.int64))] * 2
    stop = Terms(Mode.GREEDY, stop_ids=frozenset({1}))
    assert decide_round(stop, 0, [Draft(2)], rows, SEED).stopped
    assert decide_round(stop, 0, [], rows[:1], SEED).stopped


class Unread(ScoreRow):
    def choose(self, mode: Mode, seed: bytes, position: int) -> tuple[int, int]:
        raise AssertionError("a row past the first rejection was asked")


def test_rows_past_the_first_rejection_are_not_read() -> None:
    scores = np.array([0, 5, 0], dtype=np.int64)
    rows = [ScoreRow(scores), ScoreRow(scores), Unread(scores)]
    done = decide_round(Terms(Mode.GREEDY), 4, [Draft(1), Draft(0)], rows, SEED)
    assert done.tokens == (1, 1)
    assert done.accepted == 1
    assert [o.position for o in done.outcomes] == [4, 5]
    assert [o.draft_token for o in done.outcomes] == [1, 0]


def test_a_full_accept_emits_the_targets_own_token() -> None:
    rows = [ScoreRow(np.eye(3, dtype=np.int64)[i]) for i in (1, 2, 0)]
    done = decide_round(Terms(Mode.GREEDY), 0, [Draft(1), Draft(2)], rows, SEED)
    assert done.tokens == (1, 2, 0)
    last = done.outcomes[-1]
    assert (last.draft_token, last.accepted, done.accepted) == (NO_TOKEN, False, 2)


def test_greedy_ties_go_to_the_lowest_id() -> None:
    assert greedy_argmax(np.array([1, 7, 7], dtype=np.int64)) == 1


def test_the_coins_of_a_round_are_the_specified_ones() -> None:
    p, q = distribution([0.1, 0.5, 0.4]), distribution([0.8, 0.1, 0.1])
    scores = np.zeros(3, dtype=np.int64)
    for position in range(40):
        rows = [ScoreRow(scores, mass=p)] * 2
        done = decide_round(Terms(Mode.REJECTION), position, [Draft(0, q)], rows, SEED, CHAIN)
        u = coin(CHAIN, SEED, position, Purpose.ACCEPT)
        first = done.outcomes[0]
        assert first.p == int(p[0])
        if accept_rejection(u, int(q[0]), int(p[0])):
            bonus = sample_masses(p, coin(CHAIN, SEED, position + 1, Purpose.BONUS))
            assert done.tokens == (0, bonus)
        else:
            rest = residual_token(p, q, coin(CHAIN, SEED, position, Purpose.RESIDUAL))
            assert done.tokens == (rest,)
            assert rest != 0


# ---------------------------------------------------------------- relaxed


def relaxed(tau: int, **thresholds: int) -> Terms:
    limits = {
        "key_target_surprisal": 2**32 - 1,
        "key_draft_surprisal": 2**32 - 1,
        "key_overlap": 65536,
    }
    return Terms(Mode.GREEDY, tau, **(limits | thresholds))


ROW = ScoreRow(np.array([100, 90, 60, 10], dtype=np.int64), surprisals=np.array([5, 50, 500, 5000]))


def decide_one(terms: Terms, draft: Draft, row: ScoreRow = ROW):
    return decide_round(terms, 0, [draft], [row, row], SEED).outcomes[0]


def test_a_draft_within_tau_is_kept() -> None:
    near = Draft(1, surprisal=7, top=(0, 1, 2))
    assert decide_one(relaxed(9), near).accepted is False
    done = decide_one(relaxed(10), near)
    assert (done.accepted, done.token, done.key) == (True, 1, False)
    assert (done.score_draft, done.score_top, done.surprisal) == (90, 100, 50)
    assert decide_one(relaxed(40), Draft(2, top=(0, 1, 2))).token == 2
    assert decide_one(relaxed(39), Draft(2, top=(0, 1, 2))).token == 0


@pytest.mark.parametrize(
    ("thresholds", "key"),
    [
        ({"key_target_surprisal": 50}, False),
        ({"key_target_surprisal": 49}, True),
        ({"key_draft_surprisal": 7}, False),
        ({"key_draft_surprisal": 6}, True),
        ({"key_overlap": 21845}, False),  # one of three is missing
        ({"key_overlap": 21844}, True),
    ],
)
def test_key_positions_are_strict(thresholds: dict[str, int], key: bool) -> None:
    draft = Draft(1, surprisal=7, top=(1, 0, 3))
    done = decide_one(relaxed(1000, **thresholds), draft)
    assert (done.key, done.accepted, done.token) == (key, not key, 0 if key else 1)
    own = decide_one(relaxed(1000, **thresholds), Draft(0, surprisal=7, top=(1, 0, 3)))
    assert own.accepted


def test_relaxed_coupled_scores_carry_the_noise() -> None:
    terms = Terms(Mode.COUPLED, 1 << 20, 2**32 - 1, 2**32 - 1, 65536)
    noise = noise_row(SEED, 0, 4)
    done = decide_one(terms, Draft(2, top=(0,)))
    perturbed = ROW.scores + noise
    assert done.score_draft == perturbed[2]
    assert done.score_top == perturbed.max()
    assert done.accepted == bool(perturbed[2] >= perturbed.max() - (1 << 20))


def test_no_tau_reaches_a_token_that_is_filtered_out_or_unknown() -> None:
    filtered = ScoreRow(ROW.scores, cutoff=90, surprisals=ROW.surprisals)
    for mode in (Mode.GREEDY, Mode.COUPLED):
        terms = Terms(mode, 2**32 - 1, 2**32 - 1, 2**32 - 1, 65536)
        for token in (2, 3, 4, 77):
            done = decide_one(terms, Draft(token, top=(0, 1)), filtered)
            assert (done.accepted, done.score_draft) == (False, NO_SCORE)


def test_overlap_and_key_figures() -> None:
    assert one_minus_overlap((1, 2), (2, 3, 1)) == 32768
    assert one_minus_overlap((1, 2, 3), (3, 2, 1)) == 0
    assert one_minus_overlap((9,), (1,)) == 65536
    assert ROW.top() == (0, 1, 2, 3)
    assert ScoreRow(np.array([3, 5, 5] + [0] * 9, dtype=np.int64)).top()[:3] == (1, 2, 0)
    terms = relaxed(1, key_target_surprisal=1, key_draft_surprisal=2, key_overlap=3)
    figures = [is_key(terms, *given) for given in ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4))]
    assert figures == [False, True, True, True]
    assert [relaxed_accepts(5, False, 95, 100), relaxed_accepts(5, False, 94, 100)] == [True, False]
    assert not relaxed_accepts(0, False, 100, 100)
    assert not relaxed_accepts(5, True, 100, 100)


# ---------------------------------------------------------------- what cannot be decided


def decide_by_coin(draft: Draft) -> RoundDecision:
    row = ScoreRow(np.zeros(1, dtype=np.int64), mass=distribution([1.0]))
    return decide_round(Terms(Mode.REJECTION), 0, [draft], [row, row], SEED, CHAIN)


@pytest.mark.parametrize(
    "call",
    [
        lambda: decide_round(Terms(Mode.GREEDY), 0, [Draft(1)], [ROW], SEED),
        lambda: decide_round(Terms(Mode.GREEDY), 0, [], [ROW, ROW], SEED),
        lambda: decide_round(Terms(Mode.GREEDY, max_tokens=5), 5, [], [ROW], SEED),
        lambda: decide_round(Terms(Mode.GREEDY), -1, [], [ROW], SEED),
        lambda: decide_round(Terms(Mode.GREEDY), 0, [], [ROW], SEED, CHAIN),
        lambda: decide_round(Terms(Mode.REJECTION), 0, [], [ROW], SEED),
        lambda: decide_round(Terms(Mode.REJECTION), 0, [], [ROW], SEED, CHAIN),
        lambda: decide_by_coin(Draft(0)),
        lambda: decide_by_coin(Draft(1, distribution([1.0]))),
        lambda: decide_by_coin(Draft(0, distribution([1.0, 1.0]))),
        lambda: decide_one(relaxed(1), Draft(1)),
        lambda: decide_one(relaxed(1), Draft(1, top=(1,)), ScoreRow(ROW.scores)),
    ],
)
def test_rounds_that_lack_a_figure_are_refused(call) -> None:
    with pytest.raises(AcceptanceError):
        call()
