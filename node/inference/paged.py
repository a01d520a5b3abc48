"""The keys and values of many sessions in one bounded memory, handed out in blocks of 8 tokens.

A session's *block table* lists the blocks that hold its tokens. Neighbouring blocks are one *run*
and are read as one view, so nothing is copied to attend over them; the allocator looks for long
runs. Rolling back moves a number. Blocks filled with the same tokens after the same tokens are
shared between sessions: they are found by a hash chain over their contents (as vLLM's prefix cache
does), counted, and copied only if somebody writes where another reads. Blocks that nobody uses any
more stay findable until their memory is needed. Sessions of different salts share what is public,
the beginning that a chat template gives every text, and nothing else.

A session takes all the blocks it may need when it is admitted. So a pass never runs out of memory
and no session is ever thrown out half way; memory that was never written is not backed by the
operating system on a CPU.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch

from node.inference.cache import ContextOverflow, PoolFull, Run

BLOCK = 8
# Blocks of one allocation of memory (4,096 tokens): made when first needed, kept.
_SLAB = 512


class PagedCache:
    """One session's block table (a `Cache`). Made by `BlockPool.open`, ended by `release`.

    Attributes:
        length: tokens whose keys and values are held.
        limit: the model's context length in tokens.
        table: block numbers; block i holds tokens 8 i to 8 i + 7.
        shared: tokens that were found at the opening and need not be computed.
    """

    def __init__(self, pool: BlockPool, table: list[int], length: int, limit: int) -> None:
        self._pool = pool
        self.table = table
        self.length = self.shared = length
        self.limit = limit
        self._planned: tuple[int, int] | None = None
        self._reads: list[tuple[torch.Tensor, int, int]] = []
        self._writes: list[tuple[torch.Tensor, int, int, int, int]] = []

    @property
    def bytes(self) -> int:
        """Of all blocks in the table, shared ones counted in full."""
        return len(self.table) * self._pool.block_bytes

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` more, in blocks that nobody else reads.

        Raises:
            ContextOverflow: that would pass the context length; nothing has changed.
            PoolFull: more than was asked for at the opening, and no blocks are left.
        """
        need = self.length + tokens
        if need > self.limit:
            raise ContextOverflow(
                f"{need} tokens exceed the context length of {self.limit}: shorten the prompt "
                f"or lower max_tokens"
            )
        short = -(-need // BLOCK) - len(self.table)
        if short > 0:
            self.table += self._pool.take(short)
        for index in range(self.length // BLOCK, -(-need // BLOCK)):
            self.table[index] = self._pool.writable(self.table[index], self.length - index * BLOCK)
        self._planned = None

    def append(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> list[Run]:
        """Write one layer's rows behind `length`; returns everything up to them (see `Cache`)."""
        if self._planned != (self.length, len(keys)):
            self._plan(len(keys))
        for slab, start, end, first, last in self._writes:
            store = slab[layer]
            store[0, :, start:end] = keys[first:last].transpose(0, 1)
            store[1, :, start:end] = values[first:last].transpose(0, 1)
        return [
            (slab[layer, 0, :, start:end], slab[layer, 1, :, start:end])
            for slab, start, end in self._reads
        ]

    def places(self, tokens: int) -> list[tuple[torch.Tensor, int, int]]:
        """Where the tokens so far and the next `tokens` lie (see `KVCache.places`)."""
        if self._planned != (self.length, tokens):
            self._plan(tokens)
        return self._reads

    def advance(self, tokens: int) -> None:
        self.length += tokens

    def truncate(self, length: int) -> None:
        """Forget everything from token `length` on; copies nothing."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot truncate a cache of {self.length} tokens to {length}")
        self.length = length

    def runs(self, end: int) -> list[tuple[int, int, int]]:
        """The first `end` tokens as (slab, first row, one past the last row)."""
        out: list[tuple[int, int, int]] = []
        left = end
        for block in self.table[: -(-end // BLOCK)]:
            slab, start = block // _SLAB, block % _SLAB * BLOCK
            rows = min(left, BLOCK)
            if out and out[-1][0] == slab and out[-1][2] == start:
                out[-1] = (slab, out[-1][1], start + rows)
            else:
                out.append((slab, start, start + rows))
            left -= rows
        return out

    def _plan(self, count: int) -> None:
        """Where a pass of `count` rows writes and reads: the same for every layer."""
        slabs, at = self._pool.slabs, 0
        self._reads, self._writes = [], []
        for slab, start, end in self.runs(self.length + count):
            self._reads.append((slabs[slab], start, end))
            skip = max(self.length - at, 0)
            if start + skip < end:
                first = at + skip - self.length
                last = at + end - start - self.length
                self._writes.append((slabs[slab], start + skip, end, first, last))
            at += end - start
        self._planned = (self.length, count)


class BlockPool:
    """Blocks for the sessions of one model. Not thread-safe (see `worker`).

    Args:
        layers, kv_heads, head_dim, dtype, device: of the model.
        limit: the model's context length.
        tokens: room for so many in all; at least one block.
        spare: largest share of the blocks that unused but findable ones may take.

    Attributes:
        public: a beginning that sessions of all salts share in whole blocks. Set it before there
            are any.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_dim: int,
        limit: int,
        dtype: torch.dtype,
        device: torch.device,
        tokens: int,
        *,
        spare: float = 0.25,
    ) -> None:
        self.limit = limit
        self.blocks = max(tokens // BLOCK, 1)
        self.public: tuple[int, ...] = ()
        self.slabs: dict[int, torch.Tensor] = {}
        self._shape = (layers, 2, kv_heads, head_dim)
        self._dtype, self._device = dtype, device
        self._spare = int(spare * self.blocks)
        # 0 where a block is free: `find` looks for runs at memory speed. A separator between slabs
        # would cost blocks, so slabs have a map each.
        self._maps = [
            bytearray(min(_SLAB, self.blocks - first)) for first in range(0, self.blocks, _SLAB)
        ]
        self._references: dict[int, int] = {}
        self._key_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}
        self._unused: OrderedDict[int, None] = OrderedDict()  # findable, oldest first
        self._free = self.blocks
        #: tokens that sessions found here instead of computing them, and tokens they asked about
        self.hits = self.queries = 0

    @property
    def block_bytes(self) -> int:
        layers, two, heads, dim = self._shape
        return layers * two * heads * dim * BLOCK * torch.empty(0, dtype=self._dtype).itemsize

    @property
    def bytes(self) -> int:
        """Memory set aside for the blocks so far; at most `blocks * block_bytes`."""
        return sum(slab.numel() * slab.element_size() for slab in self.slabs.values())

    @property
    def used(self) -> int:
        """Tokens of room that open sessions hold."""
        return (self.blocks - self._free - len(self._unused)) * BLOCK

    @property
    def tokens(self) -> int:
        """Tokens of room in all."""
        return self.blocks * BLOCK

    def open(self, tokens: Sequence[int], capacity: int, salt: bytes = b"") -> PagedCache:
        """A cache for a session that begins with `tokens` and may grow to `capacity`.

        What its `length` says is there already: the longest beginning of tokens[:-1] in whole
        blocks that a session of the same salt has published, or of any where it is public.

        Raises:
            PoolFull: not enough blocks; nothing has changed.
        """
        need = -(-max(capacity, len(tokens)) // BLOCK)
        found: list[int] = []
        for key in self._keys(tokens[:-1], salt):
            block = self._block_of.get(key)
            if block is None:
                break
            found.append(block)
        for block in found:
            self._hold(block)
        try:
            table = found + self.take(need - len(found))
        except PoolFull:
            self._drop(found)
            raise
        self.queries += len(tokens)
        self.hits += len(found) * BLOCK
        return PagedCache(self, table, len(found) * BLOCK, self.limit)

    def publish(self, cache: PagedCache, tokens: Sequence[int], salt: bytes = b"") -> None:
        """Let later sessions of the same salt find the whole blocks that hold `tokens`.

        Args:
            tokens: what the cache holds; those past its length are ignored.
        """
        keys = self._keys(tokens[: cache.length], salt)
        for block, key in zip(cache.table, keys, strict=False):
            if key not in self._block_of and block not in self._key_of:
                self._block_of[key], self._key_of[block] = block, key

    def release(self, cache: PagedCache) -> None:
        """Give the blocks back; the cache is unusable. Releasing twice is harmless."""
        self._drop(cache.table)
        cache.table = []
        cache.length = 0

    def take(self, count: int) -> list[int]:
        """Blocks with one reference each, in runs as long as can be had.

        Raises:
            PoolFull: fewer are left; nothing has changed.
        """
        if count > self._free + len(self._unused):
            raise PoolFull(
                f"{count * BLOCK} tokens of room are needed, "
                f"{(self._free + len(self._unused)) * BLOCK} of {self.tokens} are left"
            )
        while self._free < count:
            self._forget(next(iter(self._unused)))
        blocks: list[int] = []
        size = count
        while len(blocks) < count:
            size = min(size, count - len(blocks))
            number, start = self._find(size)
            if start < 0:
                size = max(size // 2, 1)
                continue
            self._maps[number][start : start + size] = b"\1" * size
            first = number * _SLAB + start
            blocks += range(first, first + size)
            if number not in self.slabs:
                self._make_slab(number)
        self._free -= count
        self._references.update(dict.fromkeys(blocks, 1))
        return blocks

    def writable(self, block: int, used: int) -> int:
        """`block`, if only its one holder reads it, else a copy of its first `used` rows."""
        if self._references[block] == 1:
            self._unpublish(block)
            return block
        fresh = self.take(1)[0]
        if used > 0:
            source, target = (
                self.slabs[b // _SLAB][:, :, :, b % _SLAB * BLOCK :][:, :, :, :used]
                for b in (block, fresh)
            )
            target.copy_(source)
        self._drop([block])
        return fresh

    def _find(self, size: int) -> tuple[int, int]:
        """The first run of free blocks: (slab, block within it), or (0, -1)."""
        want = bytes(size)
        for number, taken in enumerate(self._maps):
            if size <= len(taken) and (start := taken.find(want)) >= 0:
                return number, start
        return 0, -1

    def _make_slab(self, number: int) -> None:
        layers, two, heads, dim = self._shape
        self.slabs[number] = torch.empty(
            (layers, two, heads, len(self._maps[number]) * BLOCK, dim),
            dtype=self._dtype,
            device=self._device,
        )

    def _hold(self, block: int) -> None:
        self._references[block] = self._references.get(block, 0) + 1
        self._unused.pop(block, None)

    def _drop(self, blocks: Sequence[int]) -> None:
        # Last blocks first: a beginning is worth more to others than what followed it.
        for block in reversed(blocks):
            self._references[block] -= 1
            if self._references[block]:
                continue
            del self._references[block]
            self._unused[block] = None
            if block not in self._key_of or len(self._unused) > self._spare:
                self._forget(block if block not in self._key_of else next(iter(self._unused)))

    def _forget(self, block: int) -> None:
        """Make an unused block free."""
        del self._unused[block]
        self._unpublish(block)
        self._maps[block // _SLAB][block % _SLAB] = 0
        self._free += 1

    def _unpublish(self, block: int) -> None:
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._block_of[key]

    def _keys(self, tokens: Sequence[int], salt: bytes) -> list[bytes]:
        """One key per whole block, each over everything before it: equal only for equal beginnings,
        of one salt unless they are public."""
        out: list[bytes] = []
        words = np.asarray(tokens, dtype="<u4")
        public = np.asarray(self.public[: len(words)], dtype="<u4")
        differ = np.flatnonzero(words[: len(public)] != public)
        open_to_all = int(differ[0]) if len(differ) else len(public)
        key, salted = bytes(32), False
        for end in range(BLOCK, len(words) + 1, BLOCK):
            if end > open_to_all and not salted:
                # Named, or a salt could pass for a block of text.
                key, salted = hashlib.sha256(b"salt" + key + salt).digest(), True
            key = hashlib.sha256(key + words[end - BLOCK : end].tobytes()).digest()
            out.append(key)
        return out
