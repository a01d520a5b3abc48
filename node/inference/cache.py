"""The keys and values of one session: contiguous, grown by doubling, rolled back by length.

`truncate` moves a number and copies nothing: rows past `length` are dead and are overwritten by the
next append. For one session by itself: drafting, plain decoding, replays. A verifier's sessions
share a `paged` pool instead, or a `CountedPool` where the model brings no pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

_FIRST_CAPACITY = 128

# Keys and values of neighbouring tokens, views [kv_heads, tokens, head_dim] each.
Run = tuple[torch.Tensor, torch.Tensor]


class ContextOverflow(ValueError):
    """A session would exceed the model's context length."""


class PoolFull(RuntimeError):
    """A session needs more memory than is left; try again when another has ended."""


class Cache(Protocol):
    """What the engine needs of a session's keys and values."""

    length: int

    @property
    def bytes(self) -> int: ...

    def truncate(self, length: int) -> None: ...


class CachePool(Protocol):
    """The bounded memory in which a verifier keeps its sessions' caches.

    Attributes:
        tokens: room in all.
        public: a beginning of texts that sessions of all salts may share.
    """

    public: tuple[int, ...]

    @property
    def tokens(self) -> int: ...

    @property
    def used(self) -> int:
        """Tokens of room that open sessions hold."""
        ...

    @property
    def bytes(self) -> int:
        """Memory set aside."""
        ...

    def open(self, tokens: Sequence[int], capacity: int, salt: bytes = b"") -> Cache:
        """A cache with room for `capacity` tokens, of which the first `length` are there already
        (a beginning of `tokens` that another session of the same salt has published, or any where
        it is public). Raises PoolFull, and then nothing has changed."""
        ...

    def publish(self, cache: Cache, tokens: Sequence[int], salt: bytes = b"") -> None:
        """Let later sessions of the same salt share what `cache` holds of `tokens`."""
        ...

    def release(self, cache: Cache) -> None:
        """Give the room back; twice is harmless."""
        ...


class CountedPool:
    """A pool for models whose caches manage their own memory: counts tokens, shares nothing.

    Args:
        new_cache: makes an empty cache.
        tokens: room in all.
    """

    def __init__(self, new_cache: Callable[[], Cache], tokens: int) -> None:
        self.tokens = tokens
        self.public: tuple[int, ...] = ()
        self._new_cache = new_cache
        self._held: dict[int, tuple[Cache, int]] = {}

    @property
    def used(self) -> int:
        return sum(capacity for _, capacity in self._held.values())

    @property
    def bytes(self) -> int:
        return sum(cache.bytes for cache, _ in self._held.values())

    def open(self, tokens: Sequence[int], capacity: int, salt: bytes = b"") -> Cache:
        capacity = max(capacity, len(tokens))
        if self.used + capacity > self.tokens:
            left = self.tokens - self.used
            raise PoolFull(
                f"{capacity} tokens of room are needed, {left} of {self.tokens} are left"
            )
        cache = self._new_cache()
        self._held[id(cache)] = (cache, capacity)
        return cache

    def publish(self, cache: Cache, tokens: Sequence[int], salt: bytes = b"") -> None:
        pass

    def release(self, cache: Cache) -> None:
        self._held.pop(id(cache), None)


class KVCache:
    """Keys and values of every layer for the tokens of one session.

    Args:
        limit: the model's context length in tokens; a longer sequence is refused.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_dim: int,
        limit: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.length = 0
        self.limit = limit
        # [layer, key or value, head, token, channel]
        self._store = torch.empty(
            (layers, 2, kv_heads, min(_FIRST_CAPACITY, limit), head_dim), dtype=dtype, device=device
        )

    @property
    def bytes(self) -> int:
        return self._store.numel() * self._store.element_size()

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` more.

        Raises:
            ContextOverflow: that would pass the context length; nothing has changed.
        """
        need = self.length + tokens
        if need > self.limit:
            raise ContextOverflow(
                f"{need} tokens exceed the context length of {self.limit}: shorten the prompt "
                f"or lower max_tokens"
            )
        layers, two, heads, capacity, dim = self._store.shape
        if need <= capacity:
            return
        while capacity < need:
            capacity *= 2
        grown = self._store.new_empty((layers, two, heads, min(capacity, self.limit), dim))
        grown[..., : self.length, :] = self._store[..., : self.length, :]
        self._store = grown

    def append(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> list[Run]:
        """Write one layer's rows behind `length` and return that layer's keys and values so far.

        Args:
            keys, values: [n, kv_heads, head_dim], within what `reserve` made room for.

        Returns:
            Runs in order, length + n tokens together. `length` itself moves by `advance`, after the
            last layer.
        """
        end = self.length + len(keys)
        store = self._store[layer]
        store[0, :, self.length : end] = keys.transpose(0, 1)
        store[1, :, self.length : end] = values.transpose(0, 1)
        return [(store[0, :, :end], store[1, :, :end])]

    def places(self, tokens: int) -> list[tuple[torch.Tensor, int, int]]:
        """Where the tokens so far and the next `tokens` lie, in order, for who writes and reads by
        address: (store [layers, 2, kv_heads, rows, head_dim], first row, one past the last)."""
        return [(self._store, 0, self.length + tokens)]

    def advance(self, tokens: int) -> None:
        self.length += tokens

    def truncate(self, length: int) -> None:
        """Forget everything from token `length` on; 0 forgets all."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot truncate a cache of {self.length} tokens to {length}")
        self.length = length
