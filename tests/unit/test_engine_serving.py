"""Many sessions on one verifier: prompts in pieces, shared beginnings, bounded memory, refusals."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing
from engine_models import TableModel, prompts, seed, tiny_draft, tiny_drafter, tiny_target

from node.inference.architecture import ModelError
from node.inference.paged import BLOCK
from node.inference.params import SamplingParams
from node.inference.plain import decode_plain
from node.inference.proposal import Draft, VerifyRequest
from node.inference.stops import StopRules
from node.inference.verifier import Verifier, VerifierError, VerifierFull
from node.inference.worker import InferenceWorker

COUPLED = SamplingParams.from_floats("coupled", 0.8, top_k=50, repetition=1.2)


class Passes:
    """Notes what each pass of a model was asked to run."""

    def __init__(self, model):
        self.model, self.rows = model, []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def forward(self, spans):
        self.rows.append([len(span.tokens) for span in spans])
        return self.model.forward(spans)


def long_prompt(length: int, number: int = 0) -> list[int]:
    rng = random.Random(number)
    return [rng.randrange(2, 3000) for _ in range(length)]


def finish(verifier, session, prompt, number, k=3):
    """Decode a session to its end with the tiny draft."""
    drafting = tiny_drafter().open(prompt, COUPLED, seed=seed(number))
    out = []
    while not session.ended:
        draft = drafting.propose(min(k, session.remaining))
        outcome = verifier.verify(session, VerifyRequest(draft))
        drafting.commit(outcome.emitted)
        out += outcome.emitted
    verifier.close(session)
    return out


async def test_a_long_prompt_holds_others_up_for_a_piece_at_most():
    model = Passes(tiny_target())
    verifier, worker = Verifier(model), InferenceWorker(prefill_rows=32)
    short, long = prompts(1)[0], long_prompt(400)
    stops = StopRules(12)
    session = await worker.open(verifier, b"s", short, COUPLED, stops, seed=seed(1))
    out, opened = [], []

    async def decode():
        while not session.ended:
            outcome = await worker.verify(verifier, session, VerifyRequest(Draft(session.position)))
            out.extend(outcome.emitted)

    async def open_long():
        opened.append(await worker.open(verifier, b"l", long, COUPLED, stops, seed=seed(2)))

    model.rows.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(decode)
        nursery.start_soon(open_long)
    assert out == decode_plain(tiny_target(), short, COUPLED, stops, seed=seed(1)).tokens
    shared = [rows for rows in model.rows if 1 in rows and len(rows) > 1]
    assert len(shared) >= 8  # windows went along with pieces of the prompt …
    assert max(sum(rows) for rows in shared) <= 1 + 32
    verifier.close(session)
    last = opened[0]
    assert last.prefilling == 0
    want = decode_plain(tiny_target(), long, COUPLED, stops, seed=seed(2)).tokens
    assert finish(verifier, last, long, 2) == want
    assert verifier.reserved_tokens == 0


async def test_a_prompt_alone_runs_in_large_pieces():
    model = Passes(tiny_target())
    verifier, worker = Verifier(model), InferenceWorker(prefill_rows=32)
    text = long_prompt(900)
    await worker.open(verifier, b"l", text, COUPLED, StopRules(5), seed=seed(2))
    assert model.rows == [[512], [387]]


async def test_an_opening_that_is_cancelled_leaves_nothing():
    verifier = Verifier(Passes(tiny_target()))
    worker = InferenceWorker(prefill_rows=16)

    async def cancelled():
        with trio.CancelScope() as scope:
            inner = verifier.model.forward

            def forward(spans):
                trio.from_thread.run_sync(scope.cancel)
                return inner(spans)

            verifier.model.forward = forward
            await worker.open(verifier, b"l", long_prompt(900), COUPLED, StopRules(5), seed=seed(2))
        assert scope.cancelled_caught

    await cancelled()
    assert (verifier.sessions, verifier.reserved_tokens, worker.waiting) == (0, 0, 0)


def test_sessions_of_one_client_share_what_they_begin_with():
    model = Passes(tiny_target())
    verifier, stops = Verifier(model), StopRules(8)
    prompt = long_prompt(200)
    first = verifier.open(b"1", prompt, COUPLED, stops, seed=seed(1), salt=b"alice")
    model.rows.clear()
    second = verifier.open(b"2", prompt, COUPLED, stops, seed=seed(2), salt=b"alice")
    assert model.rows == [[199 - 199 // BLOCK * BLOCK]]
    third = verifier.open(b"3", prompt, COUPLED, stops, seed=seed(2), salt=b"bob")
    assert model.rows[1:] == [[199]]  # how fast it opens tells Bob nothing of Alice
    texts = {}
    for number, session in ((1, first), (2, second), (3, third)):
        texts[number] = finish(verifier, session, prompt, min(number, 2))
    for number in (1, 2):
        want = decode_plain(tiny_target(), prompt, COUPLED, stops, seed=seed(number)).tokens
        assert texts[number] == want
    assert texts[3] == texts[2]
    # The conversation goes on: prompt and answer come back, with more behind them.
    longer = [*prompt, *texts[1], *long_prompt(20, 5)]
    model.rows.clear()
    verifier.open(b"4", longer, COUPLED, stops, seed=seed(1), salt=b"alice")
    assert model.rows == [[len(longer) - 1 - 207 // BLOCK * BLOCK]]


def test_a_public_beginning_is_run_once_for_all_clients():
    model = Passes(tiny_target())
    verifier, stops = Verifier(model), StopRules(8)
    template = long_prompt(3 * BLOCK + 2, 9)
    verifier.share(template)
    assert model.rows == [[len(template)]]
    assert (verifier.sessions, verifier.reserved_tokens) == (0, 0)
    prompts = [[*template, *long_prompt(40, number)] for number in (1, 2)]
    model.rows.clear()
    for number, (prompt, salt) in enumerate(zip(prompts, (b"alice", b"bob"), strict=True)):
        session = verifier.open(bytes([number]), prompt, COUPLED, stops, seed=seed(1), salt=salt)
        assert model.rows[0] == [len(prompt) - 1 - 3 * BLOCK]
        want = decode_plain(tiny_target(), prompt, COUPLED, stops, seed=seed(1)).tokens
        assert finish(verifier, session, prompt, 1) == want
        model.rows.clear()
    # What follows it is still each client's own.
    verifier.open(b"3", prompts[0], COUPLED, stops, seed=seed(1), salt=b"bob")
    assert model.rows == [[len(prompts[0]) - 1 - 3 * BLOCK]]


def test_a_beginning_longer_than_the_room_is_cut_and_an_impossible_one_refused():
    model = Passes(tiny_target())
    Verifier(model, max_tokens=4 * BLOCK).share(long_prompt(100))
    assert model.rows == [[4 * BLOCK]]
    with pytest.raises(ModelError, match="vocabulary"):
        Verifier(model).share([1 << 20])
    Verifier(model).share([])
    Verifier(TableModel(8, 1)).share([1, 2])  # its caches are its own
    assert len(model.rows) == 1


def test_memory_stays_bounded_over_500_sessions():
    """Open, decode a little, close or be refused; what is set aside never passes the bound."""
    model = tiny_draft()  # any small model will do as a target here
    bound = 4096
    verifier = Verifier(model, max_sessions=12, max_tokens=bound)
    rng = random.Random(1)
    live, most, refused = [], 0, 0
    per_token = verifier.pool.block_bytes // BLOCK
    opened = 0
    while opened < 500:
        try:
            prompt = long_prompt(rng.randrange(2, 40), rng.randrange(30))
            stops = StopRules(rng.randrange(20, 600))
            number = opened.to_bytes(4, "big")
            live.append(verifier.open(number, prompt, COUPLED, stops, seed=seed(opened)))
            opened += 1
        except VerifierFull:
            refused += 1
            verifier.close(live.pop(rng.randrange(len(live))))
        most = max(most, verifier.pool.bytes)
        assert verifier.sessions <= 12
    assert refused > 50
    assert most <= bound * per_token
    for session in live:
        verifier.verify(session, VerifyRequest(Draft(0)))
        verifier.close(session)
    assert (verifier.sessions, verifier.reserved_tokens) == (0, 0)


@pytest.mark.parametrize("paged", [True, False])
def test_admission_refuses_with_what_is_left(paged):
    model = tiny_target() if paged else TableModel(8, 1)
    verifier = Verifier(model, max_sessions=2, max_tokens=64)
    first = verifier.open(b"1", [1, 2], COUPLED, StopRules(30), seed=seed(1))
    with pytest.raises(VerifierFull, match=r"needed, 32 of 64 are left beside 1 open"):
        verifier.open(b"2", [1, 2], COUPLED, StopRules(31), seed=seed(1))
    verifier.open(b"2", [1, 2], COUPLED, StopRules(30), seed=seed(1))
    with pytest.raises(VerifierFull, match="2 sessions are open, the most"):
        verifier.open(b"3", [1, 2], COUPLED, StopRules(1), seed=seed(1))
    with pytest.raises(VerifierError, match="open already"):
        verifier.open(b"2", [1, 2], COUPLED, StopRules(1), seed=seed(1))
    verifier.close(first)
    verifier.close(first)
    verifier.open(b"3", [1, 2], COUPLED, StopRules(30), seed=seed(1))
    assert verifier.reserved_tokens == 64
