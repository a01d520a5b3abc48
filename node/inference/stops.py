"""Where an output ends: end-of-sequence ids, stop strings, the token limit.

A stop ends the output *at* a token, wherever in a window that token falls: the token is part of the
output, nothing after it is. A stop string ends at the token whose bytes complete it, also when it
began tokens or rounds before; whoever shows text cuts it before the string.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class StopReason(StrEnum):
    EOS = "eos"
    STRING = "stop_string"
    LENGTH = "max_tokens"


class StopError(ValueError):
    """A stop rule cannot be used; the message says which and why."""


@dataclass(frozen=True)
class StopHit:
    """The output ends after `count` tokens of the sequence that was scanned."""

    count: int
    reason: StopReason
    string: str = ""


@dataclass(frozen=True)
class StopRules:
    """When a session's output ends.

    Attributes:
        max_tokens: of the whole request, absolute over hand-overs; at least 1.
        ids: token ids that end the output (the model's end-of-sequence ids among them).
        strings: non-empty texts that end the output; matched on UTF-8 bytes.
    """

    max_tokens: int
    ids: frozenset[int] = frozenset()
    strings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise StopError(f"max_tokens = {self.max_tokens}: must be at least 1")
        for text in self.strings:
            if not text or len(text.encode()) > 256:
                raise StopError(f"stop string {text!r}: must have 1 to 256 bytes")


class StopScanner:
    """Applies `StopRules` along one output. `scan` looks ahead, `commit` moves on."""

    def __init__(
        self,
        rules: StopRules,
        token_bytes: Callable[[int], bytes] | None = None,
        output_ids: Sequence[int] = (),
    ) -> None:
        """Start after `output_ids`.

        Args:
            token_bytes: the text of one token; needed only for stop strings.

        Raises:
            StopError: stop strings without a tokenizer, or the output has ended already.
        """
        if rules.strings and token_bytes is None:
            raise StopError(f"stop strings {rules.strings} need the model's tokenizer")
        self.rules = rules
        self._needles = tuple((text.encode(), text) for text in rules.strings)
        self._keep = max((len(n) for n, _ in self._needles), default=1) - 1
        self._token_bytes = token_bytes
        self._tail = b""
        self.position = 0
        if (hit := self.scan(output_ids)) is not None and output_ids:
            raise StopError(f"the output given has ended already: {hit}")
        self.commit(output_ids)

    @property
    def remaining(self) -> int:
        """Output tokens left before max_tokens."""
        return self.rules.max_tokens - self.position

    def scan(self, tokens: Sequence[int]) -> StopHit | None:
        """The first stop in `tokens`, taken as the output's continuation; pure."""
        tail = self._tail
        for count, token in enumerate(tokens, start=1):
            if token in self.rules.ids:
                return StopHit(count, StopReason.EOS)
            if self._needles:
                tail += self._text(token)
                for needle, text in self._needles:
                    if needle in tail:
                        return StopHit(count, StopReason.STRING, text)
                tail = tail[-self._keep :] if self._keep else b""
            if self.position + count >= self.rules.max_tokens:
                return StopHit(count, StopReason.LENGTH)
        return None

    def completes_string(self, tokens: tuple[int, ...]) -> bool:
        """Whether the last of `tokens`, taken as the continuation, completes a stop string."""
        tail = self._tail + b"".join(map(self._text, tokens))
        fresh = len(self._text(tokens[-1])) if tokens else 0
        return any(
            tail.find(n, max(len(tail) - fresh - len(n) + 1, 0)) >= 0 for n, _ in self._needles
        )

    def commit(self, tokens: Sequence[int]) -> None:
        """Append `tokens` to the output."""
        self.position += len(tokens)
        if self._keep:
            self._tail = (self._tail + b"".join(map(self._text, tokens)))[-self._keep :]

    def _text(self, token: int) -> bytes:
        assert self._token_bytes is not None  # checked at the start
        return self._token_bytes(token)
