"""The whole speculative loop on one screen: drafter and verifier in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from node.inference.drafter import Drafter
from node.inference.model import PREFILL_CHUNK
from node.inference.params import SamplingParams
from node.inference.proposal import Draft, DraftCoin, VerifyOutcome, VerifyRequest
from node.inference.stops import StopHit, StopRules
from node.inference.verifier import Verifier
from node.inference.window import FixedWindow, Round, WindowControl
from settlement.coins import chain, round_value
from settlement.hashing import ZERO32, keccak256
from settlement.records import Mode, extend_context, prompt_hash

# Tokens of a prompt that are left for the first window.
_LAST_PIECE: Final = PREFILL_CHUNK // 2


@dataclass
class Generation:
    """An output and how it came about."""

    tokens: list[int] = field(default_factory=list)
    stop: StopHit | None = None
    rounds: list[tuple[Draft, VerifyOutcome]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def proposed(self) -> int:
        return sum(len(draft) for draft, _ in self.rounds)

    @property
    def accepted(self) -> int:
        return sum(outcome.accepted for _, outcome in self.rounds)

    @property
    def alpha(self) -> float:
        """Conditional acceptance rate; 0 when nothing was drafted."""
        trials = self.accepted + sum(outcome.rejected for _, outcome in self.rounds)
        return self.accepted / trials if trials else 0.0


def rounds(
    verifier: Verifier,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    stops: StopRules,
    window: WindowControl | FixedWindow,
    *,
    seed: bytes = ZERO32,
    fingerprints: bool = False,
    salt: bytes = b"",
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[tuple[Draft, VerifyOutcome]]:
    """Yield each round until a stop; errors as `Verifier.open`."""
    target = verifier.admit(keccak256(seed), prompt_ids, params, stops, seed=seed, salt=salt)
    drafting = None
    try:
        # The end of the prompt runs with the first window, which saves a pass.
        while target.prefilling > _LAST_PIECE:
            verifier.verify_batch([], [target])
        drafting = drafter.open(prompt_ids, params, seed=seed, stop_ids=stops.ids)
        rejection = params.mode == Mode.REJECTION
        length = stops.max_tokens + 1 if rejection else 1
        v_chain, d_chain = (chain(keccak256(seed, who), length) for who in (b"v", b"d"))
        context = prompt_hash(ZERO32, tuple(prompt_ids))
        number = 0
        while not target.ended:
            k = window.choose(target.remaining)
            coin = DraftCoin(round_value(d_chain, number), context) if rejection else None
            draft = drafting.propose(k, coin) if k else Draft(target.position)
            prompt_too = target.prefilling > 0
            v_r = round_value(v_chain, number) if rejection else b""
            outcome = verifier.verify(target, VerifyRequest(draft, v_r, fingerprints))
            drafting.commit(outcome.emitted)
            context = extend_context(context, outcome.emitted)
            seen = round_of(draft, outcome, k)
            window.observe(replace(seen, verify_seconds=None) if prompt_too else seen)
            number += 1
            yield draft, outcome
    finally:
        verifier.close(target)
        if drafting is not None:
            drafting.close()


def generate(
    verifier: Verifier,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    stops: StopRules,
    window: WindowControl | FixedWindow | None = None,
    *,
    seed: bytes = ZERO32,
    fingerprints: bool = False,
    salt: bytes = b"",
    clock: Callable[[], float] = time.perf_counter,
) -> Generation:
    """Run `rounds` to the end."""
    result, start = Generation(), clock()
    window = window or WindowControl()
    made = rounds(
        verifier,
        drafter,
        prompt_ids,
        params,
        stops,
        window,
        seed=seed,
        fingerprints=fingerprints,
        salt=salt,
    )
    for draft, outcome in made:
        result.rounds.append((draft, outcome))
        result.tokens.extend(outcome.emitted)
        result.stop = outcome.stop
    result.seconds = clock() - start
    return result


def round_of(draft: Draft, outcome: VerifyOutcome, asked: int = 0) -> Round:
    """What the window control learns from a round without a network. `asked` drafts were wanted."""
    return Round(
        len(draft),
        outcome.accepted,
        outcome.rejected,
        draft.seconds,
        draft.made,
        outcome.seconds,
        0.0,
        asked=asked,
    )
