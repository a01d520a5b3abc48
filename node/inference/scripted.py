"""Drafters with a script instead of a model: for tests, drills and attacks on a verifier."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from node.inference.drafter import DraftSession, Step
from node.inference.params import SamplingParams
from node.inference.proposal import DraftCoin
from settlement.records import MASS_TOTAL, Mode

# (tokens so far including the ahead, output position) -> the next draft, or None for no guess
Script = Callable[[Sequence[int], int], Step | None]


class ScriptedDrafter:
    """Drafts whatever a function says."""

    def __init__(self, script: Script, *, name: str = "scripted") -> None:
        self.name = name
        self._script = script

    def open(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        seed: bytes,
        output_ids: Sequence[int] = (),
        stop_ids: frozenset[int] = frozenset(),
    ) -> ScriptedSession:
        return ScriptedSession(
            self._script,
            prompt_ids,
            params,
            seed=seed,
            output_ids=output_ids,
            stop_ids=stop_ids,
        )


class ScriptedSession(DraftSession):
    def __init__(self, script: Script, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._script = script

    def _next(self, coin: DraftCoin | None) -> Step | None:
        seen = [*self.tokens, *(step.token for step in self._ahead)]
        step = self._script(seen, self.position + len(self._ahead))
        if step is None and self.params.mode == Mode.REJECTION:
            return Step.certain(seen[-1])
        return step


def fixed(output_ids: Sequence[int], name: str = "fixed") -> ScriptedDrafter:
    """Proposes the token at the same position of a given output, nothing past its end."""
    output = tuple(output_ids)

    def script(_: Sequence[int], position: int) -> Step | None:
        return Step.certain(output[position]) if position < len(output) else None

    return ScriptedDrafter(script, name=name)


def random_tokens(vocab_size: int, seed: int, name: str = "random") -> ScriptedDrafter:
    """Proposes uniformly random ids."""
    rng = random.Random(seed)
    return ScriptedDrafter(lambda *_: Step.certain(rng.randrange(vocab_size)), name=name)


def liar(vocab_size: int, favourite: int, name: str = "liar") -> ScriptedDrafter:
    """Always proposes one token and declares hardly any mass for it, so that the rejection rule
    would accept it nearly always: the attack that the check of the draw exists for."""
    other = (favourite + 1) % vocab_size
    tiny = 1 << 20
    kept = tuple(sorted(((favourite, tiny), (other, MASS_TOTAL - tiny))))
    return ScriptedDrafter(lambda *_: Step(favourite, kept, 0, (favourite,)), name=name)
