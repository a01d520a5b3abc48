"""What passes between a drafter, a verifier and the roles that carry it: values, no machinery."""

from __future__ import annotations

from dataclasses import dataclass, field

from node.inference.stops import StopHit
from settlement.acceptance import RoundDecision
from settlement.records import MAX_TOP, NO_TOKEN, check_kept
from settlement.schema import RecordError


class ProposalError(ValueError):
    """A draft is malformed: lengths differ, an id is outside the vocabulary, masses do not add up.

    A draft comes from another operator, so the verifying side refuses it before any forward pass.
    """


# A drafter's distribution for one position in rejection mode: ((token id, mass), ...), ids strictly
# ascending, at most 64, masses positive and summing to exactly 2**64 - 1 (`records.check_kept`).
KeptList = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Draft:
    """A window of proposed tokens for the positions base, base + 1, ...

    Attributes:
        base: position of the first token (output tokens before it, absolute over hand-overs).
        tokens: target vocabulary ids.
        kept: rejection mode: the list each token was drawn from; else empty.
        surprisals: relaxed mode: the draft model's surprisal of each token, Q16 nats; else empty.
        tops: relaxed mode: the draft model's (at most) eight best ids per position; else empty.
        seconds: time the drafter took for the tokens it made in this call (not carried over), but
            for reading.
        made: how many tokens that time paid for.
        reading: time it took to read before it could draft: the prompt, or what was emitted while
            nothing was drafted.
    """

    base: int
    tokens: tuple[int, ...] = ()
    kept: tuple[KeptList, ...] = ()
    surprisals: tuple[int, ...] = ()
    tops: tuple[tuple[int, ...], ...] = ()
    seconds: float = field(default=0.0, compare=False)
    made: int = field(default=0, compare=False)
    reading: float = field(default=0.0, compare=False)

    def __len__(self) -> int:
        return len(self.tokens)

    def check(self, vocab_size: int, *, rejection: bool, relaxed: bool) -> None:
        """ProposalError unless every list has the length and range that the mode asks for."""
        k = len(self.tokens)
        if bad := [t for t in self.tokens if not 0 <= t < vocab_size]:
            raise ProposalError(f"draft token {bad[0]} is outside the vocabulary of {vocab_size}")
        if len(self.kept) != (k if rejection else 0):
            raise ProposalError(
                f"{len(self.kept)} kept lists for {k} drafts, rejection={rejection}"
            )
        if not len(self.surprisals) == len(self.tops) == (k if relaxed else 0):
            raise ProposalError(f"{len(self.tops)} top lists for {k} drafts, relaxed={relaxed}")
        for kept in self.kept:
            try:
                check_kept(kept)
            except RecordError as error:
                raise ProposalError(str(error)) from None
            if kept[-1][0] >= vocab_size:
                raise ProposalError(
                    f"kept id {kept[-1][0]} is outside a vocabulary of {vocab_size}"
                )
        for top in self.tops:
            if len(top) > MAX_TOP or any(not 0 <= t < vocab_size for t in top):
                raise ProposalError(f"top list {top} has over {MAX_TOP} ids or one out of range")


@dataclass(frozen=True)
class DraftCoin:
    """What D draws a round's tokens with in rejection mode.

    Attributes:
        chain_value: d_r, 32 bytes.
        context_hash: c at the round's base, 32 bytes.
    """

    chain_value: bytes
    context_hash: bytes


@dataclass(frozen=True)
class Logprob:
    """How probable an emitted token was to the target, in nats, before temperature, penalties and
    filters.

    Attributes:
        top: the most probable (token, log-probability) pairs at its position, best first; as many
            as were asked for.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class VerifyRequest:
    """One round's work for a verifier.

    Attributes:
        draft: the proposal for the session's current position; no tokens is a round of K = 0.
        chain_value: v_r, 32 bytes; rejection mode, else ignored.
        fingerprints: compute the hidden state's fingerprint at every emitted position.
        logprobs: report each emitted token's log-probability and so many of the best; None: not.
    """

    draft: Draft
    chain_value: bytes = b""
    fingerprints: bool = True
    logprobs: int | None = None


@dataclass(frozen=True)
class VerifyOutcome:
    """What one round emitted, never past a stop.

    Attributes:
        base: position of the first token.
        decision: one `acceptance.Outcome` per emitted token: a verdict leaf's figures.
        fingerprints: one per emitted token, 32 bytes, unsalted; none when the request asked not to.
        stop: why the output ended with the last token, or None.
        logprobs: one per emitted token, where the request asked.
        seconds: forward pass and rule, without waiting.
        rows: rows of the forward pass: drafts + 1, and what was run ahead of rounds to come; 0
            where an earlier pass had run this one's.
        prompt_rows: of all prompts that ran in the same pass, this session's own and others'.
    """

    base: int
    decision: RoundDecision
    fingerprints: tuple[bytes, ...] = ()
    stop: StopHit | None = None
    logprobs: tuple[Logprob, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    rows: int = field(default=0, compare=False)
    prompt_rows: int = field(default=0, compare=False)

    @property
    def emitted(self) -> tuple[int, ...]:
        """The output tokens of the round, at least one."""
        return self.decision.tokens

    @property
    def accepted(self) -> int:
        """Drafts accepted and emitted."""
        return self.decision.accepted

    @property
    def rejected(self) -> bool:
        """A draft was reached and not accepted; False after a full accept and after a stop."""
        last = self.decision.outcomes[-1]
        return last.draft_token != NO_TOKEN and not last.accepted
