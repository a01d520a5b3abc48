"""One connection to one EVM chain: JSON-RPC with typed errors.

The transport is web3's. Methods may be called from any thread; each call blocks, so a trio program
makes it in a worker thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, cast

import requests
from web3 import HTTPProvider, IPCProvider
from web3.exceptions import Web3Exception
from web3.types import RPCEndpoint

from settlement.chain.errors import NodeUnreachable, RpcFailed, WrongChain

_TIMEOUT_SECONDS: Final = 30.0
BlockTag = int | str


@dataclass(frozen=True)
class Header:
    """What of a block identifies it and its place: `hash` and `parent` have 32 bytes."""

    number: int
    hash: bytes
    parent: bytes
    timestamp: int
    base_fee: int | None  # wei per gas; None before EIP-1559
    gas_limit: int


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
        fault = reply.get("error")
        if fault is not None:
            if isinstance(fault, str):
                raise RpcFailed(method, None, fault)
            raise RpcFailed(
                method, fault.get("code"), fault.get("message", ""), _revert_data(fault)
            )
        return reply.get("result")

    # ------------------------------------------------------------------ what the rest asks

    @property
    def chain_id(self) -> int:
        return int(self.request("eth_chainId"), 16)

    def header(self, block: BlockTag = "latest") -> Header | None:
        """The header of a block by number or tag, or None if the chain has none there."""
        raw = self.request("eth_getBlockByNumber", _tag(block), False)
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

    def head(self) -> Header:
        header = self.header("latest")
        if header is None:
            raise NodeUnreachable(self.url, "it has no latest block")
        return header

    def balance(self, address: bytes, block: BlockTag = "latest") -> int:
        return int(self.request("eth_getBalance", "0x" + address.hex(), _tag(block)), 16)

    def code(self, address: bytes) -> bytes:
        return unhex(self.request("eth_getCode", "0x" + address.hex(), "latest"))

    def transaction_count(self, address: bytes, block: BlockTag = "latest") -> int:
        return int(self.request("eth_getTransactionCount", "0x" + address.hex(), _tag(block)), 16)

    def call(
        self, to: bytes, data: bytes, sender: bytes | None = None, block: BlockTag = "latest"
    ) -> bytes:
        """eth_call. RpcFailed carries revert data in `.data`."""
        fields = {"to": "0x" + to.hex(), "data": "0x" + data.hex()}
        if sender is not None:
            fields["from"] = "0x" + sender.hex()
        return unhex(self.request("eth_call", fields, _tag(block)))

    def receipt(self, transaction: bytes) -> dict[str, Any] | None:
        return cast(
            "dict[str, Any] | None",
            self.request("eth_getTransactionReceipt", "0x" + transaction.hex()),
        )


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
