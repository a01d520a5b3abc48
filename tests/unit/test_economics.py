"""The game of strategies: money is conserved, honest play is never punished, and each textbook
payment model fails in its own way."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.cli import main
from node.commands.simulate import terms_of
from node.economics import bias, expected, measured, plots, roles
from node.economics.ledger import first_flag
from node.economics.market import Acceptance, Conduct, Market, MarketError, sample
from node.economics.play import Books, Table, honest_sessions, play, sample_pairing, set_table
from node.economics.report import OURS, TEXTBOOK, Matrix, Options, Study, study, to_json
from node.economics.strategies import (
    COUPLED,
    DRAFTERS,
    HONEST,
    MODES,
    REJECTION,
    VERIFIERS,
    Drafter,
    Trace,
    Verifier,
)
from node.economics.tables import lines
from node.economics.terms import (
    Stakes,
    Terms,
    TermsError,
    inequality,
    jury_errs,
    lane_chance,
    textbook,
)
from settlement.alpha import BUCKETS
from settlement.chain.parameters import PRODUCTION
from settlement.draws import DrawTerms
from settlement.payments import MAX_UNSIGNED_TOKENS, Dues, PaymentModel

PAIR = measured.pairs()[COUPLED]
SMALL = {"batches": 30, "pool": 32}


@pytest.fixture(scope="module")
def found() -> Study:
    return study(Options(measured.pairs(), terms_of(PRODUCTION), **SMALL))


@pytest.fixture(scope="module")
def unwatched() -> Study:
    """Nobody is ever drawn."""
    terms = replace(terms_of(PRODUCTION), flat_rate=0.0)
    return study(Options(measured.pairs(), terms, seeds=1, **SMALL))


def _table(mode: str = COUPLED, terms: Terms | None = None, batches: int = 30) -> Table:
    market = Market(measured.pairs()[mode])
    honest = honest_sessions(market, 64, np.random.default_rng(0))
    return set_table(market, terms or Terms(), mode, honest, batches=batches)


def _reply(matrix: Matrix, role: str) -> str:
    return matrix.best_reply(role)[0]


# ---------------------------------------------------------------- sessions


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.71, 0.95, 1.0])
@pytest.mark.parametrize("window", [1, 4, 7])
def test_rounds_are_as_long_as_the_formula_says(rate: float, window: int) -> None:
    flat = Acceptance.of_counts("flat", [10] * BUCKETS, [5] * BUCKETS, 0.1, 100)
    market = Market(flat, length=2_000, window=window)
    conduct = Conduct(np.full(BUCKETS, rate), np.zeros(BUCKETS))
    sessions = sample(market, conduct, 40, np.random.default_rng(3))
    # Leviathan et al. (2023): (1 − α^(K+1)) / (1 − α) tokens a round.
    said = window + 1 if rate == 1 else (1 - rate ** (window + 1)) / (1 - rate)
    assert sessions.output.sum() / sessions.passes.sum() == pytest.approx(said, rel=0.03)
    reached = sessions.proposed_by.sum()
    assert sessions.accepted.sum() / reached == pytest.approx(rate, abs=0.01)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**32), st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_session_is_counted_once(length: int, window: int, seed: int, all_pass: bool) -> None:
    market = Market(PAIR, length=length, window=window)
    conduct = Conduct(PAIR.rates, np.full(BUCKETS, 0.2), 0.5, 0.1, all_pass)
    s = sample(market, conduct, 5, np.random.default_rng(seed))
    assert (s.output == length).all()
    assert (s.accepted <= s.output).all()
    assert (s.accepted_by <= s.proposed_by).all()
    assert (s.accepted_by.sum(axis=1) == s.accepted).all()
    # Every output token is accepted or the target's own, of which a pass gives at most one.
    own = s.output - s.accepted
    assert (own <= s.passes).all()
    assert (own >= s.passes - 1).all()
    assert (s.altered >= np.maximum(s.steered, s.false)).all()
    assert (s.altered <= np.minimum(s.steered + s.false, s.output)).all()


def test_counts_that_no_pair_has_are_refused() -> None:
    for proposed, accepted in (([1] * 15, [0] * 15), ([1] * 16, [2] * 16), ([0] * 16, [0] * 16)):
        with pytest.raises(MarketError):
            Acceptance.of_counts("x", proposed, accepted, 0.1, 10)
    with pytest.raises(MarketError):
        Acceptance.of_json({"proposed": [1] * 16}, 0.1, 10)
    with pytest.raises(TermsError):
        Terms(corrupt=1.5)


# ---------------------------------------------------------------- money


def test_books_only_move_money() -> None:
    books = Books({"a": 5, "b": 0})
    books.move("a", "b", 7)
    assert books.of == {"a": -2, "b": 7}
    assert books.closed
    with pytest.raises(ValueError):
        books.move("a", "b", -1)


strategies_d = st.builds(
    Drafter,
    st.just("some"),
    st.just(""),
    rates=st.floats(0, 1).map(lambda x: lambda pair: x * pair.rates),
    cost=st.floats(0, 3),
    registered=st.booleans(),
    delivers=st.floats(0, 1),
    paid=st.floats(0, 1),
    traces=st.lists(st.sampled_from(Trace), unique=True).map(tuple),
)
strategies_v = st.builds(
    Verifier,
    st.just("some"),
    st.just(""),
    false_reject=st.floats(0, 1),
    accept_all=st.booleans(),
    cost=st.floats(0, 3),
    prefill=st.booleans(),
    shows=st.floats(0, 1),
    faulty=st.floats(0, 1),
    paid=st.floats(0, 1),
    traces=st.lists(st.sampled_from(Trace), unique=True).map(tuple),
)


@given(
    strategies_d,
    strategies_v,
    st.sampled_from(MODES),
    st.sampled_from(PaymentModel),
    st.floats(0, 1),
    st.integers(0, 2**32),
)
@settings(max_examples=40, deadline=None)
def test_no_strategy_makes_or_loses_a_unit(
    drafter: Drafter,
    verifier: Verifier,
    mode: str,
    model: PaymentModel,
    rate: float,
    seed: int,
) -> None:
    terms = Terms(flat_rate=rate) if model is OURS else textbook(model)
    table = _table(mode, terms, batches=5)
    rng = np.random.default_rng(seed)
    played = play(
        table, drafter, verifier, sample_pairing(table.market, drafter, verifier, 8, rng), rng
    )
    assert played.balanced
    assert all(math.isfinite(value) for value in (played.drafter, played.verifier, played.client))
    if model is not OURS:
        assert played.slashed_drafter == played.slashed_verifier == 0


def test_honest_operators_are_never_slashed(found: Study, unwatched: Study) -> None:
    assert found.balanced
    assert unwatched.balanced
    assert found.honest_slashed == unwatched.honest_slashed == 0
    # It is not for want of draws and cases.
    pairings = [played for mode in MODES for played in found.ours(mode).cells.values()]
    assert sum(played.drawn for played in pairings) > 100
    assert sum(played.slashed_verifier > 0 for played in pairings) > 50
    assert found.ours(COUPLED).cells[HONEST, "retaliating"].cases > 0


# ---------------------------------------------------------------- how the textbook fails


def test_pay_per_pass_makes_verifiers_reject(found: Study) -> None:
    matrix = found.matrices[PaymentModel.PER_FORWARD_PASS, COUPLED]
    honest, lie = matrix.cells[HONEST, HONEST], matrix.cells[HONEST, "retaliating"]
    assert lie.verifier > honest.verifier
    assert lie.passes > 1.15 * honest.passes
    assert lie.alpha < honest.alpha - 0.08
    ours = found.ours(COUPLED).cells
    # Under ours it loses even where nobody looks.
    assert ours[HONEST, "retaliating"].earned_verifier < ours[HONEST, HONEST].earned_verifier


def test_pay_per_proposal_makes_drafters_guess(found: Study) -> None:
    matrix = found.matrices[PaymentModel.PER_PROPOSED, COUPLED]
    assert _reply(matrix, "drafter") == "random"
    assert matrix.cells["random", HONEST].alpha < 0.01
    ours = found.ours(COUPLED).cells
    assert ours["random", HONEST].earned_drafter < ours[HONEST, HONEST].earned_drafter


def test_pay_per_acceptance_makes_verifiers_accept_everything(found: Study) -> None:
    matrix = found.matrices[PaymentModel.PER_ACCEPTED, COUPLED]
    assert _reply(matrix, "verifier") == "accept all"
    lie = matrix.cells[HONEST, "accept all"]
    assert lie.alpha == 1
    assert lie.intact < 0.9
    assert all(verifier.startswith("accept all") for _, verifier in matrix.equilibria())


@pytest.mark.parametrize("model", TEXTBOOK)
def test_no_textbook_model_has_an_honest_equilibrium(found: Study, model: PaymentModel) -> None:
    matrix = found.matrices[model, COUPLED]
    assert (HONEST, HONEST) not in matrix.equilibria()
    assert HONEST not in {_reply(matrix, role) for role in ("drafter", "verifier")}


# ---------------------------------------------------------------- ours


def test_honest_play_is_the_best_reply_of_every_role(found: Study) -> None:
    assert found.honest_is_best()
    for mode in MODES:
        assert (HONEST, HONEST) in found.ours(mode).equilibria()
    assert {row.role for row in found.rows} == {"client", "auditor", "pair"}


def test_without_audits_lies_are_the_best_reply(unwatched: Study) -> None:
    assert _reply(unwatched.ours(COUPLED), "verifier") == "accept all"
    assert _reply(unwatched.ours(REJECTION), "drafter") == "lying q"
    # The ledger needs no draw: what an α claim holds back stays held back.
    assert _reply(unwatched.ours(COUPLED), "drafter") == HONEST
    assert not unwatched.honest_is_best()


def test_the_break_even_rate_parts_lies_that_pay_from_those_that_do_not(found: Study) -> None:
    matrix = found.ours(COUPLED)
    table = matrix.table
    chance, by = expected.flat_rate_limit(table, matrix.lies)
    lie = next(one for one in matrix.lies if by.endswith(one.name))
    for factor, pays in ((0.9, True), (1.1, False)):
        terms = replace(table.terms, flat_rate=factor * chance)
        net = lie.net(terms, table.stakes)
        assert (net > 0) == pays
    assert 0.001 < chance < table.terms.draw.base_rate / 2**32


def test_the_break_even_stake_parts_them_too(found: Study) -> None:
    matrix = found.ours(REJECTION)
    table = matrix.table
    lie = next(one for one in matrix.lies if one.name == "lying q")
    least = expected.break_even_stake(table, lie)
    assert least is not None
    for factor, pays in ((0.95, True), (1.05, False)):
        stake = factor * least * lie.revenue
        stakes = expected.staking(table.stakes, "drafter", stake)
        assert (lie.net(table.terms, stakes) > 0) == pays


@pytest.mark.parametrize("name", ["accept all", "3 bits", "silent at audit", "cheap + prefill"])
def test_sampled_and_closed_form_agree(name: str) -> None:
    table = _table(terms=Terms(flat_rate=0.5), batches=600)
    lying = next(one for one in VERIFIERS if one.name == name)
    pools, played = {}, {}
    for verifier in (VERIFIERS[0], lying):
        pool = sample_pairing(table.market, DRAFTERS[0], verifier, 64, np.random.default_rng(5))
        pools[verifier.name] = pool
        played[verifier.name] = play(table, DRAFTERS[0], verifier, pool, np.random.default_rng(6))
    honest = played[HONEST]
    lie = expected.deviation(table, lying, pools[name], played[name], honest)
    sampled = expected.per_batch(table, played[name].verifier - honest.verifier)
    assert sampled == pytest.approx(lie.net(table.terms, table.stakes), rel=0.12)


def test_nobody_gains_by_putting_all_into_one_batch(found: Study) -> None:
    """Draws go by the thinner of both covers, and V's stake is locked for D's pay too: whoever
    lies loses at least the more, the more of its stake one batch uses up."""
    for mode in MODES:
        matrix = found.ours(mode)
        for lie in matrix.lies:
            ratio = expected.largest_batch(matrix.table, lie)
            # A drafter of another model in coupled mode is found by its claim, which takes more
            # than one batch; it harms nobody.
            if ratio is not None:
                assert ratio >= 1, (lie.name, mode, ratio)
    assert not any("in one batch that takes all" in line for line in lines(found))


# ---------------------------------------------------------------- chances


def test_juries_err_as_often_as_the_binomial_says() -> None:
    assert jury_errs(5, 1 / 3) == pytest.approx(0.2099, abs=1e-4)
    assert jury_errs(15, 1 / 3) == pytest.approx(0.0882, abs=1e-4)
    assert jury_errs(5, 0) == 0
    assert jury_errs(5, 1) == 1


def test_the_inequality_holds_from_a_cover_of_four() -> None:
    for cover in inequality(Terms(), (4.0, 5.0, 5.34, 8.0, 100.0, 107.0, 10_000.0)):
        assert cover.ratio >= 2 * (1 - 1e-6)
    # Below, the stake is not enough even if every lane is drawn.
    (short,) = inequality(Terms(), (3.0,))
    assert short.chance == 1
    assert short.ratio < 2


def test_draws_follow_the_cover() -> None:
    terms = Terms(draw=DrawTerms(2**32 // 20, 5_000, 4))
    rich = Stakes(10**9, 10**9)
    assert lane_chance(terms, replace(rich, verifier=100), Dues(0, 100)) == 1
    assert lane_chance(terms, rich, Dues(1, 1)) == pytest.approx(0.05)
    assert lane_chance(replace(terms, flat_rate=0.3), rich, Dues(10**9, 1)) == pytest.approx(0.3)
    # The thinner stake decides: V's against all of it, D's against its own part.
    needed = 8 / 3 / 0.5
    assert lane_chance(terms, replace(rich, verifier=32), Dues(1, 1)) == pytest.approx(needed / 16)
    assert lane_chance(terms, replace(rich, drafter=32), Dues(2, 1)) == pytest.approx(needed / 16)
    assert lane_chance(terms, replace(rich, drafter=0), Dues(0, 1)) == pytest.approx(0.05)
    assert lane_chance(terms, replace(rich, drafter=0), Dues(1, 1)) == 1


# ---------------------------------------------------------------- the α test


@pytest.mark.parametrize(("share", "seed"), [(0.5, 0), (0.5, 1), (1.0, 2), (0.0, 3)])
def test_the_fast_ledger_flags_when_the_real_one_does(share: float, seed: int) -> None:
    claim = PAIR.claim(3)
    fast = bias.run(PAIR, 256, share, bias.AMBIGUOUS, claim, [seed], horizon=4_096)
    slow = bias.confirm(PAIR, 256, share, bias.AMBIGUOUS, claim, seed, 4_096 // 128)
    assert fast.proposals == (slow,)
    assert (slow is None) == (share == 0)


def test_a_bias_passes_on_average_and_shows_in_its_buckets(found: Study) -> None:
    one = next(one for one in found.biases if one.share == 0.2)
    assert len(one.proposals) == 20
    assert one.average >= one.claimed
    assert one.median_by_average is None
    assert one.median is not None
    assert one.median < 20_000
    assert set(one.caught_in) <= {None, *bias.AMBIGUOUS}


def test_a_kept_promise_is_not_flagged() -> None:
    rng = np.random.default_rng(4)
    claim = tuple(int(100 * rate) for rate in PAIR.rates)
    proposed = rng.multinomial(128, bias.spread(PAIR, 256), size=800)
    accepted = rng.binomial(proposed, np.array(claim) / 100)
    assert first_flag(proposed, accepted, claim) is None


# ---------------------------------------------------------------- clients, auditors


def test_a_client_gets_no_more_unpaid_than_the_bound() -> None:
    table = _table()
    free, _ = roles.unpaid_tokens(table, 0.7, 10**30)
    assert MAX_UNSIGNED_TOKENS < free <= MAX_UNSIGNED_TOKENS + table.market.window + 1


def test_audits_cost_what_is_drawn() -> None:
    table = _table()
    honest = honest_sessions(table.market, 64, np.random.default_rng(1))
    cost = roles.audit_cost(table, honest)
    assert 0 < cost.share < 0.01
    twice = replace(table, terms=replace(table.terms, flat_rate=2 * cost.chance))
    assert roles.audit_cost(twice, honest).share == pytest.approx(2 * cost.share, rel=1e-3)


def test_hard_prompts_cost_an_honest_drafter_its_promise_and_no_stake() -> None:
    table = _table(batches=60)
    sunk = Drafter("sunk", "", rates=lambda pair: 0.6 * pair.rates)
    rng = np.random.default_rng(2)
    pool = sample_pairing(table.market, sunk, VERIFIERS[0], 64, rng)
    played = play(table, sunk, VERIFIERS[0], pool, rng)
    assert played.cases > 0
    assert played.slashed_drafter == 0


@pytest.mark.slow
def test_a_million_honest_rounds_bring_no_case_and_no_slash() -> None:
    rounds = drawn = 0
    for seed in range(6):
        for mode in MODES:
            table = _table(mode, batches=60)
            rng = np.random.default_rng([7, seed])
            pool = sample_pairing(table.market, DRAFTERS[0], VERIFIERS[0], 960, rng)
            rounds += int(pool.passes.sum())
            played = play(table, DRAFTERS[0], VERIFIERS[0], pool, rng)
            assert played.cases == played.slashed_drafter == played.slashed_verifier == 0
            assert played.balanced
            drawn += played.drawn
    assert rounds >= 1_000_000
    assert drawn > 10


# ---------------------------------------------------------------- the command


def test_the_study_is_json_and_text(found: Study) -> None:
    data = json.loads(json.dumps(to_json(found)))
    assert data["honestIsBest"]
    assert {model["model"] for model in data["models"]} == {model.value for model in PaymentModel}
    text = "\n".join(lines(found, REJECTION))
    for word in ("break-even", "lying q", "one average rate", "Honest play is"):
        assert word in text


def test_the_same_seed_gives_the_same_figures() -> None:
    table = _table(batches=10)
    results = [
        play(
            table,
            DRAFTERS[0],
            VERIFIERS[1],
            sample_pairing(table.market, DRAFTERS[0], VERIFIERS[1], 8, np.random.default_rng(9)),
            np.random.default_rng(9),
        )
        for _ in range(2)
    ]
    assert results[0] == results[1]


def test_bad_input_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rates = tmp_path / "rates.json"
    rates.write_text("{}")
    assert main(["simulate", "--rates", str(rates)]) == 1
    assert "bucket_rates" in capsys.readouterr().err
    assert main(["simulate", "--profile", "moon"]) == 1
    assert "production" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["simulate", "--flat-rate", "2"])


def test_a_picture_needs_matplotlib(
    found: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(plots.PlotsMissing, match="pip install"):
        plots.draw(found, tmp_path / "x.png")
