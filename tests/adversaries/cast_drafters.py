"""Dishonest drafters: each a small change to the honest role or to the model behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import trio
from engine_models import TableModel

from node.inference.drafter import Step
from node.inference.lookup import LookupDrafter
from node.inference.model_drafter import ModelDrafter
from node.inference.proposal import Draft
from node.inference.scripted import ScriptedDrafter
from node.network.errors import Refused
from node.network.messages import DraftRound
from node.roles.drafter import DrafterRole
from node.roles.frames import DraftFrame
from node.roles.refusals import No
from settlement import trees
from settlement.hashing import keccak256
from settlement.records import DraftCommit, DraftLeaf

VOCAB = 12
WANTED = (3, 7)  # what the biased drafter would have the text say


def honest() -> ModelDrafter:
    """A draft table that agrees with the target most of the time."""
    return ModelDrafter(close_table())


def close_table() -> TableModel:
    model = TableModel(VOCAB, 1)
    model.table = model.table + TableModel(VOCAB, 2, spread=0.5).table
    return model


class _Biased(TableModel):
    """The honest draft's table, pushed towards the wanted tokens wherever it is not sure."""

    def __init__(self) -> None:
        super().__init__(VOCAB, 1)
        self.table = close_table().table

    def logits_after(self, text: Any) -> torch.Tensor:
        logits = super().logits_after(text)
        if torch.softmax(logits, 0).max() >= 0.6:
            return logits
        logits = logits.clone()
        logits[list(WANTED)] += 6.0
        return logits


def biased() -> ModelDrafter:
    return ModelDrafter(_Biased())


class _Sharpened(TableModel):
    """The honest draft's table with its scores doubled: surer than the model is."""

    def __init__(self) -> None:
        super().__init__(VOCAB, 1)
        self.table = 2 * close_table().table


def lying_q() -> ModelDrafter:
    """Commits to a distribution that is not its model's, and draws from it by its coin."""
    return ModelDrafter(_Sharpened())


def copycat_q() -> ModelDrafter:
    """Runs the target instead of the draft model, so that q = p and nothing is ever rejected."""
    return ModelDrafter(TableModel(VOCAB, 1))


def steered() -> TableModel:
    """The biased drafter's own model, as a target."""
    return _Biased()


def lazy() -> LookupDrafter:
    return LookupDrafter(VOCAB)


def guessing() -> ScriptedDrafter:
    def step(seen: Any, position: int) -> Step:
        return Step(keccak256(b"guess", bytes(seen), bytes([position % 256]))[0] % VOCAB)

    return ScriptedDrafter(step)


def swapped() -> ModelDrafter:
    """Another model under the registered one's name."""
    model = TableModel(VOCAB, 1)
    model.table = model.table + TableModel(VOCAB, 9, spread=1.5).table
    return ModelDrafter(model)


class Equivocating(DrafterRole):
    """Sends a second signed window for every place."""

    async def _send_window(self, live: Any, handle: Any, line: Any, values: Any) -> Any:
        frame = await super()._send_window(live, handle, line, values)
        if frame is not None:
            leaves = tuple(replace(leaf, token=(leaf.token + 1) % VOCAB) for leaf in frame.leaves)
            root = trees.merkle_root([leaf.leaf_hash for leaf in leaves])
            commit = replace(frame.commit, draft_root=root)
            signature = self.node.domain.sign(commit, self.node.key)
            second = replace(frame, commit=commit, signature=signature, leaves=leaves)
            await line.send(DraftRound(live.state.round, second.to_wire()))
        return frame


class _Altering(DrafterRole):
    """Signs other leaves than its model's."""

    def altered(self, leaves: tuple[DraftLeaf, ...], draft: Draft) -> tuple[Any, Draft]:
        raise NotImplementedError

    def _journalled(
        self, slot: str, commit: DraftCommit, leaves: tuple[DraftLeaf, ...], draft: Draft
    ) -> DraftFrame:
        leaves, draft = self.altered(leaves, draft)
        root = trees.merkle_root([leaf.leaf_hash for leaf in leaves])
        return super()._journalled(
            slot, replace(commit, k=len(leaves), draft_root=root), leaves, draft
        )


class OtherDraw(_Altering):
    """Rejection mode: an honest q, and a token that its coin does not draw."""

    def altered(self, leaves: tuple[DraftLeaf, ...], draft: Draft) -> tuple[Any, Draft]:
        kept = draft.kept[0]
        for token, mass in kept:
            if token != leaves[0].token:
                below = sum(m for t, m in kept if t < token)
                return (replace(leaves[0], token=token, q=mass, q_below=below), *leaves[1:]), draft
        return leaves, draft


class ShortWindow(_Altering):
    """Rejection mode: fewer drafts than were announced, for it knows its coins."""

    def altered(self, leaves: tuple[DraftLeaf, ...], draft: Draft) -> tuple[Any, Draft]:
        if len(leaves) < 2:
            return leaves, draft
        return leaves[:-1], replace(draft, kept=draft.kept[:-1])


class Stalling(DrafterRole):
    """Answers for two rounds, then no more."""

    async def _send_window(self, live: Any, handle: Any, line: Any, values: Any) -> Any:
        if live.state.round >= 2:
            await trio.sleep_forever()
        return await super()._send_window(live, handle, line, values)


class Flooding(DrafterRole):
    """Sends every frame twenty times."""

    async def _send_window(self, live: Any, handle: Any, line: Any, values: Any) -> Any:
        frame = await super()._send_window(live, handle, line, values)
        if frame is not None:
            for _ in range(20):
                await line.send(DraftRound(frame.commit.round, frame.to_wire()))
        return frame


class Selective(DrafterRole):
    """Drafts, and signs no voucher, so that nothing is counted under its claim."""

    async def on_voucher(self, peer: bytes, ask: Any) -> Any:
        raise Refused(No.BEHIND, "not today")
