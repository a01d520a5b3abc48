"""Whole contracts inside this process: deployed, called and asked by name through pyrevm."""

from __future__ import annotations

import re
from typing import Any, Final

import pyrevm
from eth_abi import decode, encode

from settlement.chain.compile import Artifact
from settlement.hashing import keccak256

_OUTPUT: Final = re.compile(r"output: 0x([0-9a-f]*)")


def hex_address(value: bytes) -> str:
    return "0x" + value.hex()


def type_of(item: dict[str, Any]) -> str:
    """The canonical ABI type, tuples spelt out."""
    kind: str = item["type"]
    if not kind.startswith("tuple"):
        return kind
    return "(" + ",".join(type_of(part) for part in item["components"]) + ")" + kind[5:]


class Reverted(AssertionError):
    """A call reverted, with a custom error by name or with bare data."""

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        super().__init__(f"{name}{arguments}")
        self.name, self.arguments = name, arguments


class Deployed:
    """One contract at an address of an EVM. Calls are sent by `sender` and change state; the
    first 4 bytes of revert data name the error by this contract's ABI or by `others`'."""

    def __init__(
        self,
        evm: pyrevm.EVM,
        artifact: Artifact,
        sender: bytes,
        *arguments: Any,
        others: tuple[Artifact, ...] = (),
    ) -> None:
        self.evm, self.sender = evm, sender
        abi = artifact.abi
        constructor = next((item for item in abi if item["type"] == "constructor"), None)
        types = [type_of(part) for part in constructor["inputs"]] if constructor else []
        code = bytes.fromhex(artifact.bytecode) + encode(types, arguments)
        evm.set_balance(hex_address(sender), 10**24)
        self.address = bytes.fromhex(evm.deploy(hex_address(sender), code)[2:])
        self._functions = {item["name"]: item for item in abi if item["type"] == "function"}
        self._errors: dict[bytes, dict[str, Any]] = {}
        for source in (artifact, *others):
            for item in source.abi:
                if item["type"] == "error":
                    self._errors[self._selector(item)] = item
        self.gas_used = 0

    @staticmethod
    def _selector(item: dict[str, Any]) -> bytes:
        types = ",".join(type_of(part) for part in item["inputs"])
        return keccak256(f"{item['name']}({types})".encode())[:4]

    def calldata(self, function: str, *arguments: Any) -> bytes:
        item = self._functions[function]
        types = [type_of(part) for part in item["inputs"]]
        return self._selector(item) + encode(types, arguments)

    def call(self, function: str, *arguments: Any, sender: bytes | None = None) -> tuple[Any, ...]:
        """What the function returns; Reverted where it reverts. Each call is a transaction of its
        own as far as cold storage goes; `gas_used` is its execution, without calldata."""
        item = self._functions[function]
        caller = hex_address(sender or self.sender)
        self.evm.set_balance(caller, 10**24)
        try:
            raw = self.evm.message_call(
                caller, hex_address(self.address), calldata=self.calldata(function, *arguments)
            )
        except RuntimeError as error:
            raise self._reverted(error) from error
        self.gas_used = self.evm.result.gas_used
        return tuple(decode([type_of(part) for part in item["outputs"]], raw))

    def _reverted(self, error: RuntimeError) -> Reverted:
        # pyrevm gives the revert's data as text only.
        match = _OUTPUT.search(str(error))
        data = bytes.fromhex(match[1]) if match else b""
        item = self._errors.get(data[:4])
        if item is None:
            return Reverted(str(error), (data,))
        return Reverted(
            item["name"], tuple(decode([type_of(part) for part in item["inputs"]], data[4:]))
        )
