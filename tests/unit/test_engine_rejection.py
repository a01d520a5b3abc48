"""Rejection mode: the output's law is the target's, worked out through the engine itself.

A decision is piecewise constant in its 64-bit coin. So the probability of each outcome is found
exactly by bisection on the coin, put in place of the hash, with the real verifier deciding.
"""

from __future__ import annotations

import numpy as np
import pytest
from engine_models import TableModel, seed

from node.inference.generate import generate
from node.inference.lookup import LookupDrafter
from node.inference.model_drafter import ModelDrafter, token_at
from node.inference.params import SamplingParams
from node.inference.proposal import Draft, DraftCoin, ProposalError, VerifyRequest
from node.inference.scripted import liar
from node.inference.stops import StopRules
from node.inference.verifier import Verifier, VerifierError
from node.inference.window import FixedWindow
from settlement import acceptance
from settlement.coins import Purpose, draw_coin
from settlement.masses import interval, point_mass
from settlement.records import MASS_TOTAL

PARAMS = SamplingParams.from_floats("rejection")
FULL = 1 << 64
V = 3


class CoinBoard:
    """Stands in for `coins.coin`: the test lays down each coin."""

    def __init__(self, monkeypatch):
        self.coins: dict[tuple[int, Purpose], int] = {}
        monkeypatch.setattr(acceptance, "coin", lambda v, s, n, purpose: self.coins[(n, purpose)])


def first_true(predicate):
    """Least coin in [0, 2**64) for which a monotone predicate holds; 2**64 if none."""
    low, high = 0, FULL
    while low < high:
        middle = (low + high) // 2
        if predicate(middle):
            high = middle
        else:
            low = middle + 1
    return low


def emitted_law(board, model, params, prompt, drafts, kepts, depth):
    """float64[V]: law of the token emitted at `depth`, given that drafts before it were accepted.

    Position `depth` has a draft if depth < len(drafts), else the bonus token is asked for.
    """
    verifier = Verifier(model)
    session = verifier.open(b"s", prompt, params, StopRules(100), seed=seed(1))
    request = VerifyRequest(Draft(0, tuple(drafts), tuple(kepts)), seed(2), fingerprints=False)

    def outcome(purpose, coin):
        board.coins = {(n, p): 0 for n in range(len(drafts) + 1) for p in Purpose}
        board.coins[(depth, purpose)] = coin
        if purpose == Purpose.RESIDUAL:
            board.coins[(depth, Purpose.ACCEPT)] = FULL - 1
        result = verifier.verify(session, request)
        verifier.rollback(session, 0)
        return result.decision.outcomes[depth]

    law = np.zeros(model.vocab_size)
    rejected = 1.0
    purpose = Purpose.BONUS
    if depth < len(drafts):
        threshold = first_true(lambda u: not outcome(Purpose.ACCEPT, u).accepted)
        law[drafts[depth]] += threshold / FULL
        rejected = 1.0 - threshold / FULL
        purpose = Purpose.RESIDUAL
        if threshold == FULL:
            return law
    edge = 0
    for token in range(model.vocab_size):
        end = first_true(lambda w, t=token: outcome(purpose, w).token > t)
        law[token] += rejected * (end - edge) / FULL
        edge = end
    return law


def draft_law(kept):
    """(token, probability) of what an honest drafter draws from its list."""
    return [(token, mass / MASS_TOTAL) for token, mass in kept]


@pytest.mark.parametrize("case", ["honest", "filtered", "small-list"])
def test_every_emitted_token_has_the_targets_law(case, monkeypatch):
    """For each prefix inside a window of K = 2, and after a full accept: the law is p."""
    board = CoinBoard(monkeypatch)
    params = PARAMS
    if case == "filtered":
        params = SamplingParams.from_floats("rejection", 0.5, top_k=2, top_p=0.95)
    target, draft = TableModel(V, 1, 1.0), TableModel(V, 2, 1.0)
    prompt = [1, 0]

    def kept_after(prefix):
        """The list the real drafter declares after `prefix`."""
        session = ModelDrafter(draft).open([*prompt, *prefix], params, seed=seed(1))
        kept = session.propose(1, DraftCoin(seed(3), seed(4))).kept[0]
        if case == "small-list":  # a drafter may keep fewer tokens than it has
            best = max(kept, key=lambda pair: pair[1])
            rest = next(pair for pair in kept if pair != best)
            kept = tuple(sorted(((best[0], MASS_TOTAL - rest[1]), rest)))
        return kept

    def target_law(prefix):
        if case != "filtered":
            return target.law_after([*prompt, *prefix])
        z = target.logits_after([*prompt, *prefix]).double().numpy() / 0.5
        p = np.where(z >= np.sort(z)[-2], np.exp(z - z.max()), 0)
        p /= p.sum()
        order = np.argsort(-p)
        keep = order[: int(np.searchsorted(np.cumsum(p[order]), 0.95)) + 1]
        out = np.zeros(V)
        out[keep] = p[keep]
        return out / out.sum()

    for prefix in [(), (0,), (V - 1,)]:
        law = np.zeros(V)
        if prefix and not target_law(())[prefix[0]]:
            continue  # the target never says this, so it is never accepted
        for x, probability in draft_law(kept_after(prefix)):
            drafts = [*prefix, x, 0]
            kepts = [point_mass(t) for t in prefix] + [kept_after(prefix), point_mass(0)]
            law += probability * emitted_law(
                board, target, params, prompt, drafts, kepts, len(prefix)
            )
        assert np.abs(law - target_law(prefix)).max() < 1e-12, prefix
    bonus = emitted_law(board, target, PARAMS, prompt, [0, 1], [point_mass(0), point_mass(1)], 2)
    assert np.abs(bonus - target.law_after([*prompt, 0, 1])).max() < 1e-12
    plain = emitted_law(board, target, PARAMS, prompt, [], [], 0)
    assert np.abs(plain - target.law_after(prompt)).max() < 1e-12


def drafted_lists(kind, draft, prompt, prefix):
    """What a drafter declares after a prefix: ((token drawn, chance), …) and the list, per draw."""
    text = [*prompt, *prefix]
    if kind == "honest":
        session = ModelDrafter(draft).open(text, PARAMS, seed=seed(1))
        kept = session.propose(1, DraftCoin(seed(3), seed(4))).kept[0]
        return [(x, chance, kept) for x, chance in draft_law(kept)]
    if kind == "greedy":  # its best token, declared as a point mass
        x = int(draft.logits_after(text).argmax())
    else:  # n-gram: what followed the last token before, declared as a point mass
        x = (
            LookupDrafter()
            .open(text, PARAMS, seed=seed(1))
            .propose(1, DraftCoin(b"", b""))
            .tokens[0]
        )
    return [(x, 1.0, point_mass(x))]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["honest", "greedy", "ngram"])
@pytest.mark.parametrize(("vocab", "k"), [(8, 1), (5, 2), (4, 3)])
def test_the_law_of_whole_rounds_is_the_targets(kind, vocab, k, monkeypatch):
    """Every prefix that a window of K can have, every draft after it, every coin: the output's law
    at each position, and so of every sequence of K + 1 tokens, is the target's to 1e-12."""
    board = CoinBoard(monkeypatch)
    target, draft = TableModel(vocab, 1, 1.0), TableModel(vocab, 2, 1.0)
    prompt = [1, 0, 1]
    joint = {(): 1.0}
    for depth in range(k + 1):
        longer = {}
        for prefix, chance in joint.items():
            law = np.zeros(vocab)
            before = [point_mass(t) for t in prefix]
            if depth == k:  # after a full accept: the bonus
                law = emitted_law(board, target, PARAMS, prompt, prefix, before, depth)
            else:
                for x, probability, kept in drafted_lists(kind, draft, prompt, prefix):
                    rest = k - depth - 1  # the window goes on behind the draft in question
                    drafts = [*prefix, x, *[0] * rest]
                    kepts = [*before, kept, *[point_mass(0)] * rest]
                    law += probability * emitted_law(
                        board, target, PARAMS, prompt, drafts, kepts, depth
                    )
            assert np.abs(law - target.law_after([*prompt, *prefix])).max() < 1e-12
            longer |= {(*prefix, t): chance * law[t] for t in range(vocab)}
        joint = longer
    assert len(joint) == vocab ** (k + 1)
    for sequence, chance in joint.items():
        want = np.prod(
            [target.law_after([*prompt, *sequence[:i]])[t] for i, t in enumerate(sequence)]
        )
        assert abs(chance - want) < 1e-12


def test_point_masses_and_greedy_drafts_keep_the_law(monkeypatch):
    """A drafter that always takes its best token is exact as long as it declares the point mass."""
    board = CoinBoard(monkeypatch)
    target = TableModel(4, 5)
    for x in range(4):
        law = emitted_law(board, target, PARAMS, [2, 3], [x], [point_mass(x)], 0)
        assert np.abs(law - target.law_after([2, 3])).max() < 1e-12


def test_a_lie_about_q_breaks_the_law_and_fails_the_check_of_the_draw(monkeypatch):
    board = CoinBoard(monkeypatch)
    target = TableModel(6, 5)
    drafting = liar(6, 4).open([2, 3], PARAMS, seed=seed(1))
    coin = DraftCoin(seed(3), seed(4))
    draft = drafting.propose(1, coin)
    law = emitted_law(board, target, PARAMS, [2, 3], draft.tokens, draft.kept, 0)
    assert law[4] > 1 - 1e-9  # accepted always
    assert 0.5 * np.abs(law - target.law_after([2, 3])).sum() > 0.3
    w = draw_coin(coin.chain_value, seed(1), coin.context_hash, 0)
    q, below = interval(draft.kept[0], 4)
    assert not below <= w < below + q


def test_an_honest_draw_is_where_the_coin_falls():
    drafting = ModelDrafter(TableModel(7, 9)).open([1], PARAMS, seed=seed(6))
    for number in range(40):
        coin = DraftCoin(seed(number), seed(4))
        draft = drafting.propose(3, coin)
        assert draft == drafting.propose(3, coin)
        for i, (token, kept) in enumerate(zip(draft.tokens, draft.kept, strict=True)):
            w = draw_coin(coin.chain_value, seed(6), coin.context_hash, i)
            q, below = interval(kept, token)
            assert below <= w < below + q
            assert token_at(kept, w) == token
            draft.check(7, rejection=True, relaxed=False)
    with pytest.raises(ProposalError, match="coin"):
        drafting.propose(1)


def sequences(target, drafter, window, count, offset=0):
    verifier = Verifier(target)
    out = np.zeros((target.vocab_size,) * 3, dtype=int)
    for number in range(offset, offset + count):
        got = generate(verifier, drafter, [1, 2], PARAMS, StopRules(3), window, seed=seed(number))
        out[tuple(got.tokens)] += 1
    return out


def joint_law(target):
    law = np.zeros((target.vocab_size,) * 3)
    for a, b, c in np.ndindex(law.shape):
        law[a, b, c] = (
            target.law_after([1, 2])[a]
            * target.law_after([1, 2, a])[b]
            * target.law_after([1, 2, a, b])[c]
        )
    return law


def chi_square_p(counts, law):
    """p-value over cells of expectation >= 5, the rest pooled."""
    from scipy.stats import chi2

    expected = law.ravel() * counts.sum()
    seen = counts.ravel()
    big = expected >= 5
    e = np.append(expected[big], expected[~big].sum())
    s = np.append(seen[big], seen[~big].sum())
    return chi2.sf(((s - e) ** 2 / np.maximum(e, 1e-12)).sum(), len(e) - 1)


# Family-wise error 1e-6 over at most ten tests, fixed sizes and seeds.
LEVEL = 1e-7


@pytest.mark.parametrize("kind", ["model", "ngram"])
def test_joint_sequences_follow_the_target(kind):
    target = TableModel(3, 1, 0.8)
    drafter = ModelDrafter(TableModel(3, 2, 0.8)) if kind == "model" else LookupDrafter()
    counts = sequences(target, drafter, FixedWindow(2), 250)
    assert chi_square_p(counts, joint_law(target)) > LEVEL
    assert chi_square_p(counts, joint_law(TableModel(3, 2, 0.8))) < LEVEL  # it can tell them apart


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2, 3])
def test_joint_sequences_follow_the_target_on_20000_runs(k):
    target = TableModel(5, 1, 0.8)
    counts = sequences(target, ModelDrafter(TableModel(5, 2, 0.8)), FixedWindow(k), 20000)
    assert chi_square_p(counts, joint_law(target)) > LEVEL


def test_missing_or_malformed_masses_are_refused_before_the_forward_pass():
    model = TableModel(6, 1)
    verifier = Verifier(model)
    session = verifier.open(b"s", [1, 2], PARAMS, StopRules(9), seed=seed(1))
    ran = model.rows_run
    half = MASS_TOTAL // 2
    bad = [
        Draft(0, (1,)),
        Draft(0, (1,), (((1, half),),)),
        Draft(0, (1,), (((2, half), (1, MASS_TOTAL - half)),)),
        Draft(0, (1,), (((1, half), (6, MASS_TOTAL - half)),)),
        Draft(0, (6,), (point_mass(1),)),
        Draft(0, (-1,), (point_mass(1),)),
    ]
    for draft in bad:
        with pytest.raises(ProposalError):
            verifier.verify(session, VerifyRequest(draft, seed(1)))
    with pytest.raises(VerifierError, match="chain value"):
        verifier.verify(session, VerifyRequest(Draft(0, (1,), (point_mass(1),))))
    assert model.rows_run == ran
    assert verifier.verify(session, VerifyRequest(Draft(0), seed(1))).emitted


def test_a_draft_that_q_gives_no_mass_is_never_accepted(monkeypatch):
    board = CoinBoard(monkeypatch)
    board.coins = {(0, p): 0 for p in Purpose} | {(1, p): 0 for p in Purpose}
    verifier = Verifier(TableModel(6, 1))
    session = verifier.open(b"s", [1, 2], PARAMS, StopRules(9), seed=seed(1))
    outcome = verifier.verify(session, VerifyRequest(Draft(0, (1,), (point_mass(2),)), seed(1)))
    assert outcome.rejected
    assert outcome.decision.outcomes[0].p > 0
