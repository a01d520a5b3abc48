"""Why a role says no: codes that travel in the transport's refusals and in notices."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

NO_SIGNATURE: Final = bytes(65)  # stands where a party has not signed yet


class No(IntEnum):
    """From 64 on, as the transport passes them through."""

    ORDER = 64  # a field of the order, the prompt, the price or a signature
    CONFLICT = 65  # contradicts what was signed or revealed before
    RESERVE = 66  # the client's reserve does not cover it, or no session more fits
    UNKNOWN = 67  # no such session, round or lane here
    BEHIND = 68  # this party does not know all those rounds yet: ask again
    UNPAID = 69  # unsigned work has reached the bound
    CHAIN = 70  # the chain does not answer
    NOT_YOURS = 71  # only for parties, drawn auditors and panels
    LEFT = 72  # the other party has left the session
    FAILED = 73  # the model or the machine failed
