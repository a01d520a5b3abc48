"""An output ends at its stop, wherever in a window that falls: nothing past it, nothing lost."""

from __future__ import annotations

import itertools

import pytest
import torch
from engine_models import TableModel, prompts, seed, tiny_target, tiny_tokenizer, tiny_verifier

from node.inference.generate import generate
from node.inference.model import Span
from node.inference.params import SamplingParams
from node.inference.plain import decode_plain
from node.inference.proposal import Draft, VerifyRequest
from node.inference.scripted import fixed
from node.inference.stops import StopError, StopReason, StopRules, StopScanner
from node.inference.verifier import Verifier, VerifierError
from node.inference.window import FixedWindow
from settlement.masses import point_mass
from settlement.records import Mode

COUPLED = SamplingParams.from_floats("coupled")


def plain_text(length=12, number=3):
    target, prompt = tiny_target(), prompts(1)[0]
    out = decode_plain(target, prompt, COUPLED, StopRules(length), seed=seed(number))
    return prompt, out.tokens


def drafts_of(plain, pattern, k):
    """`all`: what plain says; `none`: all wrong; `middle`: every third wrong."""
    wrong = {"all": lambda i: False, "none": lambda i: True, "middle": lambda i: i % 3 == 2}[
        pattern
    ]
    return [(t + 1) % 3072 if wrong(i) else t for i, t in enumerate(plain)]


@pytest.mark.parametrize("pattern", ["all", "none", "middle"])
@pytest.mark.parametrize("kind", ["eos", "string", "length"])
def test_stop_at_every_window_position(kind, pattern):
    prompt, plain = plain_text()
    text = tiny_tokenizer().token_bytes
    k = 4
    for end in range(6, 6 + k + 2):  # the stopping token's index falls on every row of a window
        token = plain[end]
        if kind == "eos":
            stops = StopRules(30, frozenset({token}))
        elif kind == "length":
            stops = StopRules(end + 1)
        else:
            # Spans the boundary between two tokens, so no single token contains it.
            joined = text(plain[end - 1])[-1:] + text(token)
            try:
                stops = StopRules(30, strings=(joined.decode(),))
            except UnicodeDecodeError:
                continue
        want = StopScanner(stops, text).scan(plain)
        drafter = fixed(drafts_of(plain, pattern, k))
        got = generate(
            tiny_verifier(),
            drafter,
            prompt,
            COUPLED,
            stops,
            FixedWindow(k),
            seed=seed(3),
            fingerprints=True,
        )
        assert got.tokens == plain[: want.count]
        assert got.stop is not None
        assert got.stop.reason == want.reason
        last = got.rounds[-1][1]
        assert got.stop.count == len(last.emitted) == len(last.fingerprints)
        assert sum(len(r.emitted) for _, r in got.rounds) == want.count
        assert all(r.stop is None for _, r in got.rounds[:-1])
        if pattern == "all":
            assert not last.rejected
            assert got.accepted + len(got.rounds) - 1 <= want.count


@pytest.mark.parametrize("mode", list(Mode))
def test_a_window_that_reaches_past_max_tokens_is_refused_and_one_that_ends_there_is_cut(mode):
    params = SamplingParams.from_floats(mode)
    model = TableModel(6, 1)
    verifier = Verifier(model)
    session = verifier.open(b"s", [1, 2], params, StopRules(3), seed=seed(1))

    def draft(k):
        kept = tuple(point_mass(0) for _ in range(k)) if mode == Mode.REJECTION else ()
        return VerifyRequest(Draft(0, (0,) * k, kept), chain_value=seed(5))

    with pytest.raises(ValueError, match="4 drafts"):
        verifier.verify(session, draft(4))
    outcome = verifier.verify(session, draft(3))
    assert 1 <= len(outcome.emitted) <= 3
    assert (outcome.stop is not None) == (len(outcome.emitted) == 3)


@pytest.mark.parametrize("mode", ["greedy", "coupled"])
def test_a_full_accept_that_reaches_max_tokens_emits_no_bonus(mode):
    params, model = SamplingParams.from_floats(mode), TableModel(6, 1)
    plain = decode_plain(model, [1, 2], params, StopRules(3), seed=seed(1)).tokens
    verifier = Verifier(model)
    session = verifier.open(b"s", [1, 2], params, StopRules(3), seed=seed(1))
    outcome = verifier.verify(session, VerifyRequest(Draft(0, tuple(plain))))
    assert outcome.emitted == tuple(plain)
    assert (outcome.accepted, outcome.rejected, session.remaining) == (3, False, 0)
    assert outcome.stop.reason == StopReason.LENGTH
    assert len(outcome.fingerprints) == 3


def test_nothing_can_be_verified_after_the_end():
    model = TableModel(6, 1)
    verifier = Verifier(model)
    session = verifier.open(b"s", [1], COUPLED, StopRules(1), seed=seed(1))
    assert verifier.verify(session, VerifyRequest(Draft(0))).stop.reason == StopReason.LENGTH
    with pytest.raises(VerifierError, match="ended"):
        verifier.verify(session, VerifyRequest(Draft(1)))


def test_scanner_finds_strings_over_any_split_of_bytes():
    data = "…a stop: fin. b".encode()
    for cuts in itertools.combinations(range(1, len(data)), 2):
        pieces = [data[a:b] for a, b in zip((0, *cuts), (*cuts, len(data)), strict=True)]
        rules = StopRules(99, strings=("fin.", "op: fin"))
        whole = StopScanner(rules, pieces.__getitem__).scan(range(3))
        end = data.index(b"op: fin") + len(b"op: fin")
        assert whole.count == next(i for i in (1, 2, 3) if len(b"".join(pieces[:i])) >= end)
        # The same when earlier pieces are committed round by round, and in the rule's own question.
        scanner, seen = StopScanner(rules, pieces.__getitem__), None
        for i in range(3):
            assert scanner.completes_string((i,)) == (scanner.scan([i]) is not None)
            if scanner.scan([i]) is not None:
                seen = i + 1
                break
            scanner.commit([i])
        assert seen == whole.count


def test_scanner_prefers_the_first_token_that_stops():
    scanner = StopScanner(StopRules(3, frozenset({9})))
    assert scanner.scan([9, 9]).count == 1
    assert scanner.scan([1, 9]).reason == StopReason.EOS
    assert scanner.scan([1, 2, 9]).reason == StopReason.EOS
    assert scanner.scan([1, 2, 3]).reason == StopReason.LENGTH
    assert scanner.scan([1, 2]) is None
    scanner.commit([1, 2])
    assert scanner.remaining == 1
    assert scanner.scan([1]).count == 1


def test_unusable_stop_rules_are_refused():
    with pytest.raises(StopError, match="max_tokens = 0"):
        StopRules(0)
    with pytest.raises(StopError, match="stop string"):
        StopRules(1, strings=("",))
    with pytest.raises(StopError, match="tokenizer"):
        StopScanner(StopRules(1, strings=("a",)))
    with pytest.raises(StopError, match="ended already"):
        StopScanner(StopRules(5, frozenset({7})), output_ids=[1, 7])


def test_log_probabilities_are_the_models_own_and_end_with_the_output():
    """Of every emitted token, accepted or not, whatever the window, temperature and filters."""
    target, prompt = tiny_target(), prompts(1)[0]
    params = SamplingParams.from_floats("coupled", 0.7, top_k=5, repetition=1.3)
    plain = decode_plain(target, prompt, params, StopRules(14), seed=seed(3)).tokens
    text = [*prompt, *plain]
    rows = target.forward([Span(target.new_cache(), text, len(text))])[0].logits
    want = torch.log_softmax(rows[len(prompt) - 1 : -1].double(), dim=1)
    stops = StopRules(30, frozenset({plain[-1]}))
    verifier = tiny_verifier()
    session = verifier.open(b"s", prompt, params, stops, seed=seed(3))
    drafts = drafts_of([*plain, 1, 1, 1, 1], "middle", 4)
    found = []
    while not session.ended:
        at = session.position
        request = VerifyRequest(Draft(at, tuple(drafts[at : at + 4])), logprobs=3)
        outcome = verifier.verify(session, request)
        assert [p.token for p in outcome.logprobs] == list(outcome.emitted)
        found += outcome.logprobs
    end = plain.index(plain[-1]) + 1
    assert len(found) == end
    for row, got in zip(want, found, strict=False):
        assert got.logprob == pytest.approx(float(row[got.token]), abs=1e-4)
        assert [t for t, _ in got.top] == row.topk(3).indices.tolist()
        assert [v for _, v in got.top] == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)
    other = verifier.open(b"o", prompt, params, stops, seed=seed(3))
    assert verifier.verify(other, VerifyRequest(Draft(0))).logprobs == ()
