"""What a transaction has called a contract with, directly or through others.

A settlement made through a contract of somebody's own is as valid as one that calls the escrow; who
has to follow the lane needs the call's data all the same. Only a trace has it then, which not every
node keeps for long: what cannot be traced is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from settlement.chain.errors import RpcFailed
from settlement.chain.rpc import Rpc, unhex

MOST: Final = 1 << 10  # calls looked at in one transaction
_TRACER: Final = {"tracer": "callTracer"}


def calls_to(rpc: Rpc, transaction: bytes, contract: bytes) -> list[bytes]:
    """The data of every call to `contract` in a transaction that was mined, in order; none where
    the node knows neither the transaction nor a trace of it.

    Raises NodeUnreachable.
    """
    sent = rpc.transaction(transaction)
    if sent is None:
        return []
    if sent.to == contract:
        return [sent.data]
    try:
        trace = rpc.request("debug_traceTransaction", "0x" + transaction.hex(), dict(_TRACER))
    except RpcFailed:
        return []
    found = []
    for number, call in enumerate(_calls(trace)):
        if number >= MOST:
            break
        if str(call.get("to", "")).lower() == "0x" + contract.hex() and not call.get("error"):
            found.append(unhex(str(call.get("input", ""))))
    return found


def _calls(frame: Any) -> Iterator[Mapping[str, Any]]:
    """A call and those that it made, in the order in which they began."""
    waiting = [frame]
    while waiting:
        call = waiting.pop()
        if not isinstance(call, Mapping):
            continue
        yield call
        inner = call.get("calls", ())
        waiting.extend(reversed(inner if isinstance(inner, list) else []))
