"""What can go wrong between this process and a chain, each with the way out."""

from __future__ import annotations

from collections.abc import Mapping


class ChainError(Exception):
    """Base of every error of `settlement.chain`. `hint` says what to do about it."""

    hint: str = ""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint or type(self).hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}. {self.hint}" if self.hint else message


class ToolMissing(ChainError):
    """A native tool (anvil, a compiler) is not installed."""


class ToolFailed(ChainError):
    """A native tool ran and failed; its own words are in the message."""


class ConfigError(ChainError):
    """A configuration file has a value that cannot be used."""


class NodeUnreachable(ChainError):
    """The RPC endpoint does not answer."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"no chain answers at {url} ({reason})",
            "Start one (`verdraft devnet --serve` says where it listens), or name another with "
            "--rpc-url or a node's chain.rpc_url",
        )
        self.url = url


class WrongChain(ChainError):
    """The endpoint serves another chain than the one expected."""

    def __init__(self, url: str, expected: int, actual: int) -> None:
        super().__init__(
            f"{url} serves chain {actual}, expected chain {expected}",
            "Name an endpoint of the right chain with --rpc-url or a node's chain.rpc_url, or "
            "another address book",
        )
        self.expected, self.actual = expected, actual


class ContractMissing(ChainError):
    """There is no code, or other code than recorded, at an address."""

    def __init__(self, name: str, address: bytes, reason: str) -> None:
        super().__init__(
            f"{name} at 0x{address.hex()}: {reason}",
            "Deploy with scripts/deploy.py, or name this chain's address book with --address-book "
            "or a node's chain.address_book",
        )
        self.name, self.address = name, address


class RpcFailed(ChainError):
    """The node refused a request; its own words are in the message."""

    def __init__(self, method: str, code: int | None, message: str, data: str = "") -> None:
        super().__init__(f"{method}: {message}" + (f" (code {code})" if code is not None else ""))
        self.method, self.code, self.message, self.data = method, code, message, data


class Reverted(ChainError):
    """A contract refused a call. `name` and `arguments` come from the contract's own custom
    error; `name` is "Error" or "Panic" for Solidity's own, "" where the selector is unknown."""

    def __init__(
        self, where: str, name: str, arguments: Mapping[str, object], data: bytes = b""
    ) -> None:
        shown = ", ".join(f"{key}={_show(value)}" for key, value in arguments.items())
        what = f"{name}({shown})" if name else f"unknown error 0x{data[:4].hex()}"
        super().__init__(f"{where} reverted: {what if data or name else 'no reason given'}")
        self.where, self.name, self.arguments, self.data = where, name, dict(arguments), data


def _show(value: object) -> str:
    return "0x" + value.hex() if isinstance(value, bytes) else repr(value)
