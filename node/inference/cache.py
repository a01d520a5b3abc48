"""The keys and values of one session: contiguous, grown by doubling, rolled back by length.

`truncate` moves a number and copies nothing: rows past `length` are dead and are overwritten by the
next append. A paged cache can take this class's place as long as `append` hands out views of
everything up to the new length.
"""

from __future__ import annotations

import torch

_FIRST_CAPACITY = 128


class ContextOverflow(ValueError):
    """A session would exceed the model's context length."""


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

    def append(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one layer's rows behind `length` and return that layer's keys and values so far.

        Args:
            keys, values: [n, kv_heads, head_dim], within what `reserve` made room for.

        Returns:
            Views [kv_heads, length + n, head_dim]. `length` itself moves by `advance`, after the
            last layer.
        """
        end = self.length + len(keys)
        store = self._store[layer]
        store[0, :, self.length : end] = keys.transpose(0, 1)
        store[1, :, self.length : end] = values.transpose(0, 1)
        return store[0, :, :end], store[1, :, :end]

    def advance(self, tokens: int) -> None:
        self.length += tokens

    def truncate(self, length: int) -> None:
        """Forget everything from token `length` on; 0 forgets all."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot truncate a cache of {self.length} tokens to {length}")
        self.length = length
