"""The verifier: one target pass over a window, decided by the integer rules of `acceptance`.

Several sessions share one model and one bounded memory. `verify_batch` runs their windows in one
pass; each request fails or succeeds on its own. A session's cache always lacks exactly the last
committed token, which is fed with the next window: so a full accept, a reject at any place and
K = 0 are the same case. (A session that has run ahead of rounds without drafts, by its own guesses,
holds those tokens too until they are wrong or a draft comes: `own_lookup`.) A prompt is run in
pieces, in the same passes as others' windows, so that a long one holds up nobody for longer than a
piece; what another session of the same client has run already is shared (`paged`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from node.inference import choice, logit_rows, sampling
from node.inference.architecture import ModelError
from node.inference.cache import Cache, CachePool, ContextOverflow, CountedPool, PoolFull
from node.inference.fingerprint import Fingerprints, fingerprints_for
from node.inference.model import PREFILL_CHUNK, LanguageModel, Rows, Span, check_tokens
from node.inference.own_lookup import Ahead, OwnLookup
from node.inference.params import History, SamplingParams
from node.inference.proposal import Draft, Logprob, ProposalError, VerifyOutcome, VerifyRequest
from node.inference.rows import target_rows
from node.inference.stops import StopRules, StopScanner
from node.inference.tokens import Tokenizer
from settlement import acceptance
from settlement.masses import dense
from settlement.records import Mode


class VerifierError(ValueError):
    """A session or request that this verifier cannot serve; the message says why."""


class VerifierFull(VerifierError):
    """Admission refused: the sessions open now use all that this verifier may. Try later."""


class StaleDraft(VerifierError):
    """A draft for another position than the session's current one."""


@dataclass
class TargetSession:
    """One session's state on the target side. Made by `Verifier.open`; read-only to others.

    Attributes:
        session_id: as the caller named it.
        tokens: prompt and output so far.
        prompt_length: of these, the prompt's.
        ended: a stop was emitted; nothing more can be verified.
    """

    session_id: bytes
    tokens: list[int]
    prompt_length: int
    params: SamplingParams
    seed: bytes
    stops: StopRules
    terms: acceptance.Terms
    cache: Cache
    history: History
    scanner: StopScanner
    projection: Fingerprints
    salt: bytes
    ahead: Ahead | None = field(default=None, compare=False)
    ended: bool = False
    closed: bool = field(default=False, compare=False)

    @property
    def position(self) -> int:
        """Output tokens so far, absolute over hand-overs: the base of the next round."""
        return len(self.tokens) - self.prompt_length

    @property
    def prefilling(self) -> int:
        """Tokens to run before the first window: of a prompt, or of an output handed over."""
        return 0 if self.closed else max(len(self.tokens) - 1 - self.cache.length, 0)

    @property
    def has_row(self) -> bool:
        """Whether the row after the text was run ahead: a round without drafts is no pass."""
        return self.ahead is not None and self.ahead.ready is not None

    @property
    def remaining(self) -> int:
        """Output tokens until max_tokens: the largest window a draft may have."""
        return self.stops.max_tokens - self.position


class Verifier:
    """Runs a target model for many sessions. Not thread-safe (see `worker`).

    Args:
        model: over the whole vocabulary.
        tokenizer: needed only for stop strings.
        max_sessions: open at once.
        max_tokens: prompt and output, over all open sessions: bounds the caches' memory.
        lookup: guesses for rounds without drafts in the strict modes; None runs a row at a time.
        clock: seconds, for the timings in outcomes.
    """

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer | None = None,
        *,
        max_sessions: int = 64,
        max_tokens: int = 1 << 17,
        lookup: OwnLookup | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if model.head_ids is not None:
            raise ModelError("a model with a reduced head can draft but not verify")
        self.model = model
        self.tokenizer = tokenizer
        self.max_sessions = max_sessions
        self.pool: CachePool
        if hasattr(model, "new_pool"):
            self.pool = model.new_pool(max_tokens)
        else:
            self.pool = CountedPool(model.new_cache, max_tokens)
        self.lookup = lookup
        self._clock = clock
        choice.library(), logit_rows.library()  # compiled now, not in the first round
        self._open: dict[bytes, TargetSession] = {}

    @property
    def sessions(self) -> int:
        return len(self._open)

    @property
    def reserved_tokens(self) -> int:
        """Tokens of room that the open sessions hold, of `pool.tokens`."""
        return self.pool.used

    def share(self, opening: Sequence[int]) -> None:
        """Run what many texts begin with and nobody needs to hide, such as a chat template's first
        lines: sessions of all clients find it done. Once, before the first session; nothing happens
        where the model's caches cannot be shared.

        Raises:
            ModelError: an id outside the vocabulary.
        """
        room = min(self.model.context_length, self.pool.tokens)
        opening = tuple(opening[:room])
        if not opening or isinstance(self.pool, CountedPool):
            return
        check_tokens(opening, self.model.vocab_size)
        self.pool.public = opening
        cache = self.pool.open(opening, len(opening))
        try:
            for start in range(0, len(opening), PREFILL_CHUNK):
                self.model.forward([Span(cache, opening[start : start + PREFILL_CHUNK])])
            self.pool.publish(cache, opening)
        finally:
            self.pool.release(cache)

    def open(
        self,
        session_id: bytes,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        stops: StopRules,
        *,
        seed: bytes,
        output_ids: Sequence[int] = (),
        salt: bytes = b"",
    ) -> TargetSession:
        """`admit` a session and run its prompt; errors as there."""
        session = self.admit(
            session_id, prompt_ids, params, stops, seed=seed, output_ids=output_ids, salt=salt
        )
        try:
            while session.prefilling:
                self.verify_batch([], [session])
        except BaseException:
            self.close(session)
            raise
        return session

    def admit(
        self,
        session_id: bytes,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        stops: StopRules,
        *,
        seed: bytes,
        output_ids: Sequence[int] = (),
        salt: bytes = b"",
    ) -> TargetSession:
        """Set a session's memory aside. Its prompt is then run by `verify_batch`.

        Args:
            session_id: not open already.
            prompt_ids: at least one id.
            stops: its ids should include the model's end-of-sequence ids.
            seed: S, 32 bytes.
            output_ids: output committed before a hand-over; positions go on from there.
            salt: beginnings of texts are shared only among sessions of one salt, but for what
                `share` was given. Whether a prompt is answered early tells who shares it that
                somebody has asked it before, so sessions of different clients should have
                different ones.

        Raises:
            VerifierFull: no room now.
            VerifierError: the session is open already, or the seed has not 32 bytes.
            ContextOverflow: prompt and max_tokens exceed the model's context.
            ModelError: an empty prompt, or an id outside the vocabulary.
            StopError: the output given has ended already, or stop strings without a tokenizer.
        """
        check_tokens(prompt_ids, self.model.vocab_size)
        if output_ids:
            check_tokens(output_ids, self.model.vocab_size)
        need = len(prompt_ids) + stops.max_tokens
        if need > self.model.context_length:
            raise ContextOverflow(
                f"{len(prompt_ids)} prompt tokens and max_tokens {stops.max_tokens} exceed the "
                f"context of {self.model.context_length}: shorten one of them"
            )
        if session_id in self._open:
            raise VerifierError(f"session 0x{session_id.hex()} is open already")
        if len(seed) != 32:
            raise VerifierError(f"a seed has 32 bytes, not {len(seed)}")
        if self.sessions >= self.max_sessions:
            raise VerifierFull(f"{self.sessions} sessions are open, the most that are served here")
        history = History(prompt_ids, output_ids)
        scanner = self._scanner(stops, output_ids)
        text = [*prompt_ids, *output_ids]
        try:
            cache = self.pool.open(text, need, salt)
        except PoolFull as error:
            raise VerifierFull(f"{error} beside {self.sessions} open sessions") from None
        session = TargetSession(
            session_id,
            text,
            len(prompt_ids),
            params,
            seed,
            stops,
            terms_of(params, stops),
            cache,
            history,
            scanner,
            fingerprints_for(self.model.tier, seed, self.model.hidden_size),
            salt,
        )
        strict = params.mode != Mode.REJECTION and not params.relax_tau
        if self.lookup is not None and strict:
            session.ahead = Ahead(self.lookup)
        self._open[session_id] = session
        return session

    def verify(self, session: TargetSession, request: VerifyRequest) -> VerifyOutcome:
        """One round of one session; errors as `verify_batch` reports them."""
        outcome = self.verify_batch([(session, request)])[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def verify_batch(
        self,
        work: Sequence[tuple[TargetSession, VerifyRequest]],
        prefill: Sequence[TargetSession] = (),
        prefill_rows: int = PREFILL_CHUNK,
    ) -> list[VerifyOutcome | ValueError]:
        """One target pass over the windows of several sessions, no session twice.

        Args:
            prefill: sessions of which a piece of the prompt runs in the same pass, none of them in
                `work`; who is first gets the rows.
            prefill_rows: of all pieces together.

        Returns:
            In order, what each emitted, or why its request was refused: StaleDraft, ProposalError
            (malformed draft, or past max_tokens), VerifierError (session ended or closed, missing
            chain value). A refused session has not changed and can be asked again.
        """
        results: dict[int, VerifyOutcome | ValueError] = {}
        spans: dict[int, Span] = {}
        ready: dict[int, Rows] = {}
        guess: tuple[int, ...] = ()
        for index, (session, request) in enumerate(work):
            try:
                if any(session is work[i][0] for i in (*spans, *ready)):
                    raise VerifierError("a session takes part in a batch once")
                self._check(session, request)
            except ValueError as error:
                results[index] = error
                continue
            if session.ahead is not None and session.ahead.ready is not None:
                if not request.draft.tokens:
                    ready[index] = session.ahead.ready
                    continue
                session.ahead.forget()
                session.cache.truncate(len(session.tokens) - 1)
            missing = session.tokens[session.cache.length :]
            if len(work) == 1 and not prefill and len(missing) == 1:
                guess = self._guess(session, request)
            window = [*missing, *request.draft.tokens, *guess]
            spans[index] = Span(session.cache, window, len(request.draft) + 1 + len(guess))
        pieces = self._pieces(prefill, prefill_rows)
        if spans or pieces:
            start = self._clock()
            rows = self.model.forward([*spans.values(), *(span for _, span in pieces)])
            shared = self._clock() - start
            ran = [session for session, _ in pieces if not session.prefilling]
            ran += [work[i][0] for i, span in spans.items() if len(span.tokens) > span.rows]
            for session in ran:
                self.pool.publish(session.cache, session.tokens, session.salt)
            windows = sum(span.rows for span in spans.values())
            prompts = sum(len(s.tokens) for s in (*spans.values(), *(p for _, p in pieces)))
            for (index, span), row in zip(spans.items(), rows[: len(spans)], strict=True):
                session, request = work[index]
                if session.ahead is not None:
                    session.ahead.ran(guess, row)
                    if len(work) == 1 and prompts == windows:
                        session.ahead.lookup.cost.observe(span.rows, shared)
                outcome = self._decide(session, request, row, span.rows, shared)
                results[index] = replace(outcome, prompt_rows=prompts - windows)
        for index, row in ready.items():
            results[index] = self._decide(*work[index], row, 0, 0.0)
        return [results[index] for index in range(len(work))]

    def _guess(self, session: TargetSession, request: VerifyRequest) -> tuple[int, ...]:
        """What to run ahead of a session's text in a pass that is its alone."""
        if session.ahead is None or request.draft.tokens or request.logprobs is not None:
            return ()
        return session.ahead.guess(session.tokens, session.remaining - 1)

    def _pieces(
        self, sessions: Sequence[TargetSession], rows: int
    ) -> list[tuple[TargetSession, Span]]:
        pieces = []
        for session in sessions:
            start = 0 if session.closed else session.cache.length
            count = min(session.prefilling, rows)
            if count:
                piece = session.tokens[start : start + count]
                pieces.append((session, Span(session.cache, piece)))
                rows -= count
        return pieces

    def rollback(self, session: TargetSession, position: int) -> None:
        """Forget the output from `position` on, as if it had never been verified.

        Raises:
            VerifierError: the session is closed, or has no such position.
        """
        self._require_open(session)
        if not 0 <= position <= session.position:
            raise VerifierError(f"position {position} is not in 0..{session.position}")
        del session.tokens[session.prompt_length + position :]
        if session.ahead is not None:
            session.ahead = Ahead(session.ahead.lookup)  # its index holds what is forgotten now
        session.cache.truncate(min(session.cache.length, len(session.tokens) - 1))
        prompt = session.tokens[: session.prompt_length]
        output = session.tokens[session.prompt_length :]
        session.history = History(prompt, output)
        session.scanner = self._scanner(session.stops, output)
        session.ended = False

    def close(self, session: TargetSession) -> None:
        """Free the session's memory; closing twice is harmless."""
        if session.closed:
            return
        if self._open.get(session.session_id) is session:
            del self._open[session.session_id]
        session.closed = True
        # A client that goes on with the conversation sends this text back as its prompt.
        self.pool.publish(session.cache, session.tokens, session.salt)
        self.pool.release(session.cache)
        session.cache = None  # type: ignore[assignment]  # frees the store though a handle lives on

    def _scanner(self, stops: StopRules, output_ids: Sequence[int]) -> StopScanner:
        token_bytes = None if self.tokenizer is None else self.tokenizer.token_bytes
        return StopScanner(stops, token_bytes, output_ids)

    def _require_open(self, session: TargetSession) -> None:
        if session.closed or self._open.get(session.session_id) is not session:
            raise VerifierError(f"session 0x{session.session_id.hex()} is not open here")

    def _check(self, session: TargetSession, request: VerifyRequest) -> None:
        self._require_open(session)
        draft, params = request.draft, session.params
        if session.ended:
            raise VerifierError(f"session 0x{session.session_id.hex()} has ended")
        if draft.base != session.position:
            raise StaleDraft(f"draft for position {draft.base}, session at {session.position}")
        if len(draft) > session.remaining:
            raise ProposalError(f"{len(draft)} drafts, {session.remaining} tokens to max_tokens")
        draft.check(
            self.model.vocab_size,
            rejection=params.mode == Mode.REJECTION,
            relaxed=params.relax_tau > 0,
        )
        if params.mode == Mode.REJECTION and len(request.chain_value) != 32:
            raise VerifierError("rejection mode needs the round's chain value, 32 bytes")

    def _decide(
        self,
        session: TargetSession,
        request: VerifyRequest,
        rows: Rows,
        count: int,
        shared_seconds: float,
    ) -> VerifyOutcome:
        start = self._clock()
        draft, base = request.draft, session.position
        rows = Rows(rows.hidden[: len(draft) + 1], rows.logits[: len(draft) + 1])
        decision = acceptance.decide_round(
            session.terms,
            base,
            rule_drafts(draft, self.model.vocab_size),
            target_rows(rows.logits, session.params, session.history, draft.tokens),
            session.seed,
            request.chain_value if session.params.mode == Mode.REJECTION else None,
            session.scanner.completes_string if session.stops.strings else None,
        )
        emitted = decision.tokens
        stop = session.scanner.scan(emitted)
        fingerprints: tuple[bytes, ...] = ()
        if request.fingerprints:
            hidden = rows.hidden[: len(emitted)].cpu().numpy()
            fingerprints = tuple(session.projection.fingerprints(hidden))
        logprobs: tuple[Logprob, ...] = ()
        if request.logprobs is not None:
            logprobs = sampling.logprobs(rows.logits, emitted, request.logprobs)
        at = len(session.tokens)
        session.tokens.extend(emitted)
        if session.ahead is None or not session.ahead.commit(at, emitted) or stop is not None:
            session.cache.truncate(len(session.tokens) - 1)
        session.history.commit(emitted)
        session.scanner.commit(emitted)
        session.ended = stop is not None
        seconds = shared_seconds + self._clock() - start
        return VerifyOutcome(base, decision, fingerprints, stop, logprobs, seconds, count)


def terms_of(params: SamplingParams, stops: StopRules) -> acceptance.Terms:
    """What the integer rules need of a session's parameters."""
    return acceptance.Terms(
        params.mode,
        params.relax_tau,
        params.key_target_surprisal,
        params.key_draft_surprisal,
        params.key_overlap,
        stops.ids,
        stops.max_tokens,
    )


def rule_drafts(draft: Draft, vocab_size: int) -> list[acceptance.Draft]:
    """A window in the form that the integer rules take."""
    return [
        acceptance.Draft(
            token,
            dense(draft.kept[i], vocab_size) if draft.kept else None,
            draft.surprisals[i] if draft.surprisals else 0,
            draft.tops[i] if draft.tops else (),
        )
        for i, token in enumerate(draft.tokens)
    ]
