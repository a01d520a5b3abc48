"""One connection to one EVM chain: JSON-RPC with typed errors.

The transport is web3's. Methods may be called from any thread; each call blocks, so a trio program
makes it in a worker thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import requests
from web3 import HTTPProvider, IPCProvider
from web3.exceptions import Web3Exception
from web3.types import RPCEndpoint

from settlement.chain.errors import NodeUnreachable, RpcFailed, WrongChain

_TIMEOUT_SECONDS: Final = 30.0
BlockTag = int | str
T = TypeVar("T")


@dataclass(frozen=True)
class Header:
    """What of a block identifies it and its place: `hash` and `parent` have 32 bytes."""

    number: int
    hash: bytes
    parent: bytes
    timestamp: int
    base_fee: int | None  # wei per gas; None before EIP-1559
    gas_limit: int


@dataclass(frozen=True)
class Transaction:
    """What a transaction does: whom it calls (None: it creates a contract), and with which data."""

    to: bytes | None
    data: bytes


@dataclass(frozen=True)
class Log:
    """One event as the chain has it, not decoded yet."""

    address: bytes
    topics: tuple[bytes, ...]
    data: bytes
    block_number: int
    block_hash: bytes
    transaction: bytes
    index: int


@dataclass(frozen=True)
class Receipt:
    """Where a transaction landed. `ok` is its status; prices in wei per gas; `contract` the created
    address."""

    block_number: int
    block_hash: bytes
    ok: bool
    gas_used: int
    gas_price: int
    contract: bytes | None
    logs: tuple[Log, ...]


def unhex(text: str) -> bytes:
    """Bytes of 0x… text."""
    return bytes.fromhex(text.removeprefix("0x"))


def _tag(block: BlockTag) -> str:
    return hex(block) if isinstance(block, int) else block


class Rpc:
    """A chain behind a URL (http, https) or an IPC path."""

    def __init__(self, url: str, timeout: float = _TIMEOUT_SECONDS) -> None:
        self.url = url
        if url.startswith(("http://", "https://")):
            # No silent retries: the sender and the indexer decide what may be repeated.
            self._provider: HTTPProvider | IPCProvider = HTTPProvider(
                url, request_kwargs={"timeout": timeout}, exception_retry_configuration=None
            )
        else:
            self._provider = IPCProvider(url, timeout=int(timeout))
        self._ids = itertools.count()

    @classmethod
    def connect(cls, url: str, expected_chain: int | None = None) -> Self:
        """Connect and ask for the chain id. NodeUnreachable or WrongChain."""
        rpc = cls(url)
        actual = rpc.chain_id
        if expected_chain is not None and actual != expected_chain:
            raise WrongChain(url, expected_chain, actual)
        return rpc

    def request(self, method: str, *params: Any) -> Any:
        """The result of one request. RpcFailed for the node's refusal, NodeUnreachable for its
        silence."""
        try:
            reply = self._provider.make_request(RPCEndpoint(method), list(params))
        except (requests.RequestException, OSError, Web3Exception, ValueError) as error:
            raise NodeUnreachable(self.url, _short(error)) from error
        if not isinstance(reply, dict):
            raise RpcFailed(method, None, f"the node answered {_cut(reply)}, no JSON-RPC object")
        fault = reply.get("error")
        if fault is not None:
            if not isinstance(fault, dict):
                raise RpcFailed(method, None, str(fault))
            raise RpcFailed(
                method, fault.get("code"), str(fault.get("message", "")), _revert_data(fault)
            )
        return reply.get("result")

    def _read(self, read: Callable[[Any], T], method: str, *params: Any) -> T:
        """What `read` makes of a request's result. RpcFailed where that is of another form: a node
        is no more to be trusted with types than with words."""
        result = self.request(method, *params)
        try:
            return read(result)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            said = f"the node answered {_cut(result)}, which cannot be read ({error!r})"
            raise RpcFailed(method, None, said) from error

    def quantity(self, method: str, *params: Any) -> int:
        """The number (0x… text) that a request answers with; RpcFailed where it is none."""
        return self._read(lambda text: int(text, 16), method, *params)

    # ------------------------------------------------------------------ what the rest asks

    @property
    def chain_id(self) -> int:
        return self.quantity("eth_chainId")

    def header(self, block: BlockTag = "latest") -> Header | None:
        """The header of a block by number or tag, or None if the chain has none there."""
        return self._read(_header, "eth_getBlockByNumber", _tag(block), False)

    def head(self) -> Header:
        header = self.header("latest")
        if header is None:
            raise NodeUnreachable(self.url, "it has no latest block")
        return header

    def gas_price(self) -> int:
        """What the node would bid now, wei per gas."""
        return self.quantity("eth_gasPrice")

    def balance(self, address: bytes, block: BlockTag = "latest") -> int:
        return self.quantity("eth_getBalance", "0x" + address.hex(), _tag(block))

    def code(self, address: bytes) -> bytes:
        return self._read(unhex, "eth_getCode", "0x" + address.hex(), "latest")

    def transaction_count(self, address: bytes, block: BlockTag = "latest") -> int:
        return self.quantity("eth_getTransactionCount", "0x" + address.hex(), _tag(block))

    def call(
        self, to: bytes, data: bytes, sender: bytes | None = None, block: BlockTag = "latest"
    ) -> bytes:
        """eth_call. RpcFailed carries revert data in `.data`."""
        fields = {"to": "0x" + to.hex(), "data": "0x" + data.hex()}
        if sender is not None:
            fields["from"] = "0x" + sender.hex()
        return self._read(unhex, "eth_call", fields, _tag(block))

    def transaction(self, hash_: bytes) -> Transaction | None:
        """A transaction in a block or in the pool; None where the node knows none."""
        return self._read(_transaction, "eth_getTransactionByHash", "0x" + hash_.hex())

    def receipt(self, hash_: bytes) -> Receipt | None:
        """The receipt of a mined transaction; None where there is none (yet)."""
        return self._read(_receipt, "eth_getTransactionReceipt", "0x" + hash_.hex())

    def logs(self, first: int, last: int, addresses: Iterable[bytes]) -> list[Log]:
        """The logs of contracts in the blocks `first` to `last`, both included."""
        wanted = {
            "fromBlock": hex(first),
            "toBlock": hex(last),
            "address": ["0x" + address.hex() for address in addresses],
        }
        return self._read(_logs, "eth_getLogs", wanted)


# ---------------------------------------------------------------- answers


def _header(raw: Any) -> Header | None:
    if raw is None:
        return None
    base_fee = raw.get("baseFeePerGas")
    return Header(
        int(raw["number"], 16),
        unhex(raw["hash"]),
        unhex(raw["parentHash"]),
        int(raw["timestamp"], 16),
        None if base_fee is None else int(base_fee, 16),
        int(raw["gasLimit"], 16),
    )


def _transaction(raw: Any) -> Transaction | None:
    if raw is None:
        return None
    to = raw.get("to")
    return Transaction(None if to is None else unhex(to), unhex(raw["input"]))


def _receipt(raw: Any) -> Receipt | None:
    if raw is None or raw["blockNumber"] is None:
        return None
    contract = raw.get("contractAddress")
    return Receipt(
        int(raw["blockNumber"], 16),
        unhex(raw["blockHash"]),
        int(raw["status"], 16) == 1,
        int(raw["gasUsed"], 16),
        int(raw.get("effectiveGasPrice") or "0x0", 16),
        None if contract is None else unhex(contract),
        tuple(_logs(raw["logs"])),
    )


def _logs(raw: Any) -> list[Log]:
    if not isinstance(raw, list):
        raise TypeError("not a list")
    return [_log(log) for log in raw]


def _log(raw: Any) -> Log:
    return Log(
        unhex(raw["address"]),
        tuple(unhex(topic) for topic in raw["topics"]),
        unhex(raw["data"]),
        int(raw["blockNumber"], 16),
        unhex(raw["blockHash"]),
        unhex(raw["transactionHash"]),
        int(raw["logIndex"], 16),
    )


def _cut(answer: Any) -> str:
    text = repr(answer)
    return text if len(text) <= 80 else text[:79] + "…"


def _short(error: Exception) -> str:
    text = str(error)
    if "Connection refused" in text:
        return "connection refused"
    return f"{type(error).__name__}: {text}"[:200]


def _revert_data(fault: Mapping[str, Any]) -> str:
    """0x… revert data of an error object: nodes put it in `data` or one level deeper."""
    data = fault.get("data")
    if isinstance(data, dict):
        data = data.get("data", data.get("result"))
    return data if isinstance(data, str) and data.startswith("0x") else ""
