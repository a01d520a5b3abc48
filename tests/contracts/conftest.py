"""Solidity libraries inside this process: compiled by the pinned solc, run by pyrevm.

A harness contract exposes a library's internal functions; `Harness.batch` sends thousands of cases
in a few messages, so that Python and Solidity can be compared on random inputs in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyrevm
import pytest
from eth_abi import decode, encode

from settlement.chain.compile import Artifact, compile_sources
from settlement.chain.paths import CONTRACTS, ROOT
from settlement.hashing import keccak256

HARNESSES = CONTRACTS / "test" / "harness"
CALLER = "0x" + "11" * 20
BATCH = 400  # calls in one message


def _type_of(item: dict[str, Any]) -> str:
    """The canonical ABI type, tuples spelt out."""
    kind: str = item["type"]
    if not kind.startswith("tuple"):
        return kind
    return "(" + ",".join(_type_of(part) for part in item["components"]) + ")" + kind[5:]


def compile_harness(name: str) -> Artifact:
    """The harness contract of that name, under the settings that foundry.toml names."""
    path = HARNESSES / f"{name}.sol"
    unit = path.relative_to(ROOT).as_posix()
    return compile_sources({unit: path.read_text()}).require(name)


@dataclass(frozen=True)
class Answer:
    """What one call gave: its ABI-encoded result, or the bytes of its revert."""

    ok: bool
    data: bytes

    @property
    def word(self) -> bytes:
        if not self.ok or len(self.data) != 32:
            raise AssertionError(f"not one word: ok={self.ok} 0x{self.data.hex()}")
        return self.data

    @property
    def number(self) -> int:
        return int.from_bytes(self.word, "big")

    @property
    def signed(self) -> int:
        return int.from_bytes(self.word, "big", signed=True)


class Harness:
    """One deployed harness contract."""

    def __init__(self, name: str) -> None:
        artifact = compile_harness(name)
        abi = artifact.abi
        self.evm = pyrevm.EVM(spec_id="PRAGUE")
        self.evm.set_balance(CALLER, 10**20)
        self.address = self.evm.deploy(CALLER, bytes.fromhex(artifact.bytecode))
        self._functions = {item["name"]: item for item in abi if item["type"] == "function"}
        self._errors = {self._selector(item)[:4]: item for item in abi if item["type"] == "error"}

    @staticmethod
    def _selector(item: dict[str, Any]) -> bytes:
        types = ",".join(_type_of(part) for part in item["inputs"])
        return keccak256(f"{item['name']}({types})".encode())[:4]

    def calldata(self, function: str, *arguments: Any) -> bytes:
        """Selector and ABI encoding of `arguments`."""
        item = self._functions[function]
        return self._selector(item) + encode([_type_of(part) for part in item["inputs"]], arguments)

    def selector(self, function: str) -> bytes:
        return self._selector(self._functions[function])

    def decode(self, function: str, data: bytes) -> tuple[Any, ...]:
        types = [_type_of(part) for part in self._functions[function]["outputs"]]
        return tuple(decode(types, data))

    def error(self, answer: Answer) -> tuple[str, tuple[Any, ...]]:
        """Name and arguments of the custom error that a call reverted with."""
        if answer.ok:
            raise AssertionError(f"no revert but 0x{answer.data.hex()}")
        item = self._errors.get(answer.data[:4])
        if item is None:
            raise AssertionError(f"no known error: 0x{answer.data.hex()}")
        types = [_type_of(part) for part in item["inputs"]]
        return item["name"], tuple(decode(types, answer.data[4:]))

    def call(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        """One call, decoded; AssertionError where it reverts."""
        (answer,) = self.batch([self.calldata(function, *arguments)])
        if not answer.ok:
            raise AssertionError(f"{function} reverted: 0x{answer.data.hex()}")
        return self.decode(function, answer.data)

    def failure(self, function: str, *arguments: Any) -> tuple[str, tuple[Any, ...]]:
        """The custom error of one call that must revert."""
        (answer,) = self.batch([self.calldata(function, *arguments)])
        return self.error(answer)

    def batch(self, calls: Iterable[bytes]) -> list[Answer]:
        """Each call by itself, in order, whether or not others revert."""
        queue = list(calls)
        answers: list[Answer] = []
        for start in range(0, len(queue), BATCH):
            data = self._selector(self._functions["batch"]) + encode(
                ["bytes[]"], [queue[start : start + BATCH]]
            )
            raw = self.evm.message_call(CALLER, self.address, calldata=data)
            (parts,) = decode(["bytes[]"], raw)
            answers.extend(Answer(part[0] == 1, part[1:]) for part in parts)
        if len(answers) != len(queue):
            raise AssertionError(f"{len(answers)} answers to {len(queue)} calls")
        return answers


@pytest.fixture(scope="session")
def harness() -> Callable[[str], Harness]:
    """`harness("TreesHarness")`: that contract, compiled and deployed once per session."""
    deployed: dict[str, Harness] = {}

    def get(name: str) -> Harness:
        if name not in deployed:
            deployed[name] = Harness(name)
        return deployed[name]

    return get
