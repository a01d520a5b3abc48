"""Signed sessions that no target runs over: jurors and auditors say so instead of failing."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from node.network.messages import PromptDelivery
from node.roles.answering import FARTHEST, answer
from node.roles.plan import plan_for
from node.roles.rerun import Case, Tolerance, rerun
from node.roles.sayable import sayable
from settlement.hashing import ZERO32
from settlement.panels import Answer, exact_hash
from settlement.records import NO_TOKEN, Mode, Order

VOCAB, CONTEXT = 100, 12
SEED = b"\x05" * 32


def order(**changed: Any) -> Order:
    found = plan_for(
        request_id=SEED,
        salt=SEED,
        client=b"\x01" * 20,
        token=b"\x02" * 20,
        target_model=b"\x03" * 32,
        prompt=(1, 2, 3),
        stops=(),
        stop_ids=(),
        template_hash=ZERO32,
        mode=Mode.GREEDY,
        temperature=0,
        top_k=0,
        top_p=1 << 16,
        max_tokens=64,
        max_window=4,
        deadline=1,
        **changed,
    )
    return found.template


@dataclass
class Said:
    """A verdict frame of one round."""

    leaves: tuple[Any, ...]
    verdict: Any

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(leaf.token for leaf in self.leaves)


def rounds(*tokens: int) -> tuple[Any, ...]:
    out = []
    for position, token in enumerate(tokens):
        leaf = SimpleNamespace(token=token, position=position, draft_token=NO_TOKEN)
        verdict = SimpleNamespace(base=position, emitted=1, k=0, chain_value=ZERO32)
        out.append(SimpleNamespace(draft=None, verdict=Said((leaf,), verdict)))
    return tuple(out)


def case(
    *tokens: int, prompt: tuple[int, ...] = (1, 2, 3), stops: tuple[str, ...] = (), **changed: Any
) -> Case:
    return Case(order(**changed), SEED, PromptDelivery(SEED, prompt, stops, ()), rounds(*tokens))


def target(tier: str = "exact") -> Any:
    """A model that must not be run."""
    return SimpleNamespace(tier=tier, vocab_size=VOCAB, context_length=CONTEXT)


@pytest.mark.parametrize(
    ("made", "tokens"),
    [
        (case(4, 5, 6), 3),
        (case(4, VOCAB - 1, 6), 3),
        (case(4, VOCAB, 6), 2),
        (case(4, 5, VOCAB), 3),
        (case(VOCAB, 5), 1),
        (case(4, prompt=(1, VOCAB)), 0),
        (case(4, prompt=()), 0),
        (case(4, 5, 6, prompt=(1,) * CONTEXT), 1),
        (case(4, 5, 6, prompt=(1,) * (CONTEXT + 1)), 0),
        (case(4, repetition_penalty=1), 0),
        (case(4, stops=("",)), 0),
    ],
)
def test_the_target_has_a_word_behind_its_own_tokens_within_its_context(
    made: Case, tokens: int
) -> None:
    assert sayable(target(), made) == tokens


@pytest.mark.parametrize(
    ("tier", "said"), [("exact", Answer(print=exact_hash(ZERO32, ZERO32))), ("float32", FARTHEST)]
)
def test_a_juror_answers_where_no_target_runs(tier: str, said: Answer) -> None:
    assert answer(target(tier), case(VOCAB, 5, 6), 2, 0) == said
    assert answer(target(tier), case(4, prompt=(VOCAB,)), 0, 0) == said


def test_an_audit_of_a_prompt_that_is_none_finds_its_first_token_false() -> None:
    found = rerun(target(), case(4, 5, prompt=(VOCAB,)), Tolerance())
    assert [(item.position, item.what) for item in found.mismatches] == [(0, "no word")]
    assert found.fingerprints == (ZERO32, ZERO32)
