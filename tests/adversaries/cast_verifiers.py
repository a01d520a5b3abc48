"""Dishonest verifiers: each a small change to the honest role or to the model behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from cast_drafters import VOCAB, close_table
from engine_models import TableModel

from node.inference.sampling import top_probabilities
from node.journal import StoredRound
from node.network.messages import RoundCommitted, VerdictRound
from node.roles import convert
from node.roles.frames import DraftFrame, Round, VerdictFrame
from node.roles.running import Running
from node.roles.session import advance
from node.roles.stored import Private
from node.roles.verifier import VerifierRole
from settlement import coins, trees
from settlement.records import NO_TOKEN, Verdict, VerdictLeaf

# ---------------------------------------------------------------- models


class _Sometimes(TableModel):
    """The target, but that after some lengths of text its two best tokens change places."""

    def __init__(self, every: int) -> None:
        super().__init__(VOCAB, 1)
        self.every = every

    def logits_after(self, text: Any) -> torch.Tensor:
        logits = super().logits_after(text)
        if len(text) % self.every:
            return logits
        best, second = torch.topk(logits, 2).indices.tolist()
        logits = logits.clone()
        logits[[best, second]] = logits[[second, best]]
        return logits


class _OtherHidden(TableModel):
    """The target's tokens from other hidden states."""

    def __init__(self) -> None:
        super().__init__(VOCAB, 1)

    def forward(self, spans: Any) -> Any:
        return [replace(rows, hidden=rows.hidden.flip(1)) for rows in super().forward(spans)]


def retaliating() -> TableModel:
    """Turns down every sixth good draft for its second best."""
    return _Sometimes(6)


def shading() -> TableModel:
    """Two tokens in a hundred."""
    return _Sometimes(20)


def accepts_all() -> TableModel:
    """Runs the draft's own table: whatever is proposed is what it says."""
    return close_table()


def smaller() -> TableModel:
    """A target with a little noise in it: fewer layers, or fewer bits."""
    model = TableModel(VOCAB, 1)
    model.table = model.table + TableModel(VOCAB, 5, spread=0.2).table
    return model


class CheapTokens:
    """Tokens of a cheap model, beside hidden states and topProb of an honest prefill over them:
    what an activation check sees is the target's."""

    def __init__(self, cheap: Any, honest: Any) -> None:
        self._cheap, self._honest = cheap, honest
        self.tops: list[int] = []  # of the last pass, a row each

    def __getattr__(self, name: str) -> Any:
        if name == "new_pool":  # both caches are its own
            raise AttributeError(name)
        return getattr(self._honest, name)

    def new_cache(self) -> Any:
        return _TwoCaches(self._cheap.new_cache(), self._honest.new_cache())

    def forward(self, spans: Any) -> Any:
        passes = []
        for model, which in ((self._cheap, "cheap"), (self._honest, "honest")):
            passes.append(
                model.forward([replace(span, cache=getattr(span.cache, which)) for span in spans])
            )
        cheap, honest = passes
        self.tops = [top for rows in honest for top in top_probabilities(rows.logits).tolist()]
        return [replace(ours, hidden=true.hidden) for ours, true in zip(cheap, honest, strict=True)]


class _TwoCaches:
    """One session's caches in both models, moved together."""

    bytes = 0

    def __init__(self, cheap: Any, honest: Any) -> None:
        self.cheap, self.honest = cheap, honest

    @property
    def length(self) -> int:
        return int(self.honest.length)

    def truncate(self, length: int) -> None:
        self.cheap.truncate(length)
        self.honest.truncate(length)


def other_states() -> TableModel:
    return _OtherHidden()


# ---------------------------------------------------------------- records


class _Altering(VerifierRole):
    """Signs and commits another round than its engine's."""

    def altered(
        self, running: Running, frame: DraftFrame | None, leaves: tuple[VerdictLeaf, ...]
    ) -> tuple[VerdictLeaf, ...]:
        return leaves

    def record(self, running: Running, verdict: Verdict) -> Verdict:
        return verdict

    def _commit(
        self, running: Running, frame: Any, outcome: Any, value: bytes, next_k: int
    ) -> Round:
        live, node = running.live, self.node
        terms, state = live.terms, live.state
        salts = [node.entropy(32) for _ in outcome.emitted]
        leaves = convert.verdict_leaves(outcome, salts)
        leaves = self.altered(running, frame, leaves)
        ended = outcome.stop is not None
        verdict = convert.verdict(terms, state, frame, leaves, value, next_k)
        verdict = self.record(running, verdict)
        signature = node.domain.sign(verdict, node.key)
        done = Round(frame, VerdictFrame(verdict, signature, leaves))
        node.journal.put_round(
            StoredRound(
                terms.start_hash,
                state.round,
                None if frame is None else frame.to_wire(),
                done.verdict.to_wire(),
                Private(tuple(salts), outcome.fingerprints).to_wire(),
            )
        )
        live.state = advance(terms, state, done, stop_string=ended)
        self.till.count_round(terms, done)
        return done


class OtherDraft(_Altering):
    """Names another draft than the committed one."""

    def altered(self, running: Running, frame: Any, leaves: Any) -> Any:
        first = leaves[0]
        if first.draft_token == NO_TOKEN or first.accepted:
            return leaves
        other = next(t for t in range(VOCAB) if t not in (first.draft_token, first.token))
        return (replace(first, draft_token=other), *leaves[1:])


class HonestPrefill(_Altering):
    """States the honest prefill's topProb beside a cheap model's tokens (`CheapTokens`)."""

    def __init__(self, node: Any, engine: Any, *rest: Any) -> None:
        super().__init__(node, engine, *rest)
        self._model = engine._verifier.model

    def altered(self, running: Running, frame: Any, leaves: Any) -> Any:
        rows = self._model.tops[: len(leaves)]
        return tuple(replace(leaf, top_prob=top) for leaf, top in zip(leaves, rows, strict=True))


class OtherBucket(_Altering):
    """States a topProb that puts every proposal into the bucket of sure positions."""

    def altered(self, running: Running, frame: Any, leaves: Any) -> Any:
        return tuple(replace(leaf, top_prob=65_000) for leaf in leaves)


class FalseP(_Altering):
    """Rejection mode: states a p for an accepted draft that its own coin refutes."""

    def altered(self, running: Running, frame: Any, leaves: Any) -> Any:
        return tuple(replace(leaf, p=0) if leaf.accepted else leaf for leaf in leaves)


class CoinReuse(_Altering):
    """Rejection mode: the last round's chain value again."""

    def record(self, running: Running, verdict: Verdict) -> Verdict:
        if verdict.round == 0:
            return verdict
        return replace(verdict, chain_value=coins.round_value(running.values, verdict.round - 1))


class InflatedCounts(_Altering):
    """Signs for one accepted draft more than there are."""

    def record(self, running: Running, verdict: Verdict) -> Verdict:
        return replace(verdict, k=verdict.k + 1)


class SecondVerdict(VerifierRole):
    """Sends the drafter another signed verdict on every round."""

    async def _publish(self, running: Any, channel: Any, *how: Any) -> None:
        await super()._publish(running, _Twice(self, channel), *how)


class _Twice:
    """A line that sends every verdict a second time, with another leaf."""

    def __init__(self, role: VerifierRole, channel: Any) -> None:
        self.role, self.channel, self.peer = role, channel, channel.peer

    async def send(self, message: Any) -> None:
        await self.channel.send(message)
        if isinstance(message, VerdictRound):
            await self.channel.send(VerdictRound(self._other(message.frame).to_wire()))
        elif isinstance(message, RoundCommitted):
            done = Round.from_wire(message.frames)
            second = Round(done.draft, self._other(done.verdict.to_wire()))
            await self.channel.send(replace(message, frames=second.to_wire()))

    def _other(self, raw: bytes) -> VerdictFrame:
        frame = VerdictFrame.from_wire(raw)
        leaves = (replace(frame.leaves[0], fingerprint=b"\x01" * 32), *frame.leaves[1:])
        root = trees.merkle_root([leaf.leaf_hash for leaf in leaves])
        verdict = replace(frame.verdict, verdict_root=root)
        signature = self.role.node.domain.sign(verdict, self.role.node.key)
        return VerdictFrame(verdict, signature, leaves)


class StopOverrun(VerifierRole):
    """Runs on past the order's stop ids."""

    def __init__(self, node: Any, engine: Any, *rest: Any) -> None:
        super().__init__(node, _Endless(engine), *rest)


class _Endless:
    """An engine that is told of no stop."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def open(self, session_id: bytes, order: Any, *rest: Any) -> Any:
        return await self._engine.open(session_id, replace(order, stop_ids=()), *rest)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)
