"""The role layer's engines over `node.inference`: everything through one worker per device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import trio

from node.inference.drafter import Drafter, DraftSession
from node.inference.params import SamplingParams
from node.inference.proposal import Draft, DraftCoin, VerifyOutcome, VerifyRequest
from node.inference.worker import InferenceWorker
from node.roles.convert import stop_rules
from settlement.hashing import ZERO32
from settlement.records import Order

if TYPE_CHECKING:
    from node.inference.verifier import TargetSession, Verifier

#: Tokens of a prompt that may run in the pass of the first round.
FIRST_PASS: Final = 512


class WorkerTarget:
    """A `TargetEngine`: a `Verifier` behind a worker."""

    def __init__(self, worker: InferenceWorker, verifier: Verifier) -> None:
        self._worker = worker
        self._verifier = verifier

    async def open(
        self,
        session_id: bytes,
        order: Order,
        seed: bytes,
        prompt: Sequence[int],
        stops: Sequence[str],
        output: Sequence[int],
    ) -> TargetSession:
        return await self._worker.open(
            self._verifier,
            session_id,
            prompt,
            SamplingParams.from_order(order),
            stop_rules(order, stops),
            seed=seed,
            output_ids=output,
            # One client's sessions may share what they begin with; how fast an answer comes must
            # tell nobody what others ask.
            salt=order.client,
            last=FIRST_PASS,
        )

    async def verify(
        self, handle: TargetSession, draft: Draft, chain_value: bytes
    ) -> VerifyOutcome:
        return await self._worker.verify(self._verifier, handle, VerifyRequest(draft, chain_value))

    def foresee(self, handle: TargetSession, draft: Draft) -> None:
        self._worker.foresee(self._verifier, handle, VerifyRequest(draft, ZERO32))

    async def close(self, handle: TargetSession) -> None:
        self._worker.forget(handle)
        await self._worker.finish(self._verifier.close, handle)


class WorkerDrafter:
    """A `DraftEngine`: a `Drafter` behind a worker. A session is told of committed tokens when it
    drafts next: rounds for which none is asked cost it nothing.

    Args:
        ahead: whether to read the prompt and to draft on while the verifier works. It saves time
            where a core has nothing else to do, and costs the others theirs where none is free.
    """

    def __init__(self, worker: InferenceWorker, drafter: Drafter, *, ahead: bool = True) -> None:
        self._worker = worker
        self._drafter = drafter
        self._ahead = ahead
        self._owed: dict[DraftSession, list[int]] = {}

    async def open(
        self, order: Order, seed: bytes, prompt: Sequence[int], output: Sequence[int]
    ) -> DraftSession:
        handle = await self._worker.call(
            self._drafter.open,
            prompt,
            SamplingParams.from_order(order),
            seed=seed,
            output_ids=output,
            stop_ids=frozenset(order.stop_ids),
        )
        if self._ahead:
            # The prompt runs while the verifier runs it too: else the first window waits for it.
            try:
                await self._worker.draft_ahead(handle, 1)
            except BaseException:
                with trio.CancelScope(shield=True):
                    await self._worker.finish(handle.close)
                raise
        return handle

    async def propose(self, handle: DraftSession, k: int, coin: DraftCoin | None) -> Draft:
        owed = self._owed.get(handle, ())
        if handle.quick:
            await trio.lowlevel.checkpoint()
            if owed:
                handle.commit(self._owed.pop(handle))
            return handle.propose(k, coin)
        then = handle.position + len(owed)
        try:
            return await self._worker.propose(handle, k, coin, owed)
        finally:  # refused or cancelled before it began, it is owed still
            if owed and handle.position == then:
                del self._owed[handle]

    async def draft_ahead(self, handle: DraftSession, count: int) -> None:
        if self._ahead and handle not in self._owed:
            await self._worker.draft_ahead(handle, count)

    async def commit(self, handle: DraftSession, emitted: Sequence[int]) -> None:
        self._owed.setdefault(handle, []).extend(emitted)
        await trio.lowlevel.checkpoint()

    async def close(self, handle: DraftSession) -> None:
        self._owed.pop(handle, None)
        await self._worker.finish(handle.close)
