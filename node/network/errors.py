"""What can go wrong between two nodes, as types.

Every error says what was wrong and what to do, and carries the offending value. Roles need to
tell five situations apart, and each has one class: the peer cannot be reached (`PeerUnreachable`),
it did not answer in time (`DeadlineExceeded`), the line to it went away (`PeerClosed`), it said no
(`Refused`, of which `Busy` is the kind worth retrying), or bytes were not what the protocol allows
(`MalformedFrame`, `FrameTooLarge`). All of them are `NetworkError`.
"""

from __future__ import annotations


class NetworkError(Exception):
    """Base of everything this package raises about peers and their bytes."""


class PeerUnreachable(NetworkError):
    """No link to the peer could be made."""

    def __init__(self, peer: bytes, reason: str) -> None:
        self.peer = peer
        self.reason = reason
        super().__init__(
            f"cannot reach 0x{peer.hex()}: {reason}; check that it runs and that its addresses "
            "are current, or choose another peer"
        )


class DeadlineExceeded(NetworkError):
    """The peer did not answer within the caller's deadline; it may still have done the work."""

    def __init__(self, peer: bytes, what: str, seconds: float) -> None:
        self.peer = peer
        self.what = what
        self.seconds = seconds
        super().__init__(
            f"0x{peer.hex()} did not answer {what} within {seconds:.3f} s; ask again (requests are "
            "idempotent) or choose another peer"
        )


class PeerClosed(NetworkError):
    """The channel, or the link under it, ended. A reset and an orderly end look alike."""

    def __init__(self, peer: bytes, reason: str) -> None:
        self.peer = peer
        self.reason = reason
        super().__init__(f"0x{peer.hex()} closed: {reason or 'no reason given'}; open again")


class MalformedFrame(NetworkError):
    """Bytes that no honest peer of this version sends. The stream they came on is closed."""

    def __init__(self, reason: str, value: object = None) -> None:
        self.reason = reason
        self.value = value
        shown = "" if value is None else f" (got {value!r:.120})"
        super().__init__(f"malformed frame: {reason}{shown}")


class FrameTooLarge(MalformedFrame):
    """A message above the bound of its kind, refused before it is buffered or sent."""

    def __init__(self, size: int, limit: int, what: str = "frame") -> None:
        self.size = size
        self.limit = limit
        super().__init__(f"{what} of {size} bytes exceeds its bound of {limit} bytes", size)


class Refused(NetworkError):
    """The peer answered "no". `code` is a `framing.Status`; `retry_after` is in seconds or None.

    A request handler raises this to say no; the requester sees the same type with the same fields.
    """

    def __init__(
        self, code: int, reason: str, retry_after: float | None = None, peer: bytes = b""
    ) -> None:
        self.code = code
        self.reason = reason
        self.retry_after = retry_after
        self.peer = peer
        who = f"0x{peer.hex()} " if peer else ""
        again = "" if retry_after is None else f"; retry after {retry_after:.3f} s"
        super().__init__(f"{who}refused ({code}): {reason}{again}")


class Busy(Refused):
    """A limit is reached at the peer (or here): the same request may succeed later."""

    def __init__(self, reason: str, retry_after: float | None = None, peer: bytes = b"") -> None:
        super().__init__(BUSY, reason, retry_after, peer)


# Status codes below are part of the wire; `framing.Status` names all of them.
BUSY = 2
