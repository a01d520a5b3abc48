"""Calls, results, logs and custom errors between Python values and bytes, by a contract's ABI.

Addresses are 20-byte `bytes` and hashes 32-byte `bytes` on the Python side, both ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError, EncodingError

from settlement.chain.errors import ChainError, Reverted
from settlement.hashing import keccak256

_ERROR_STRING: Final = keccak256(b"Error(string)")[:4]
_PANIC: Final = keccak256(b"Panic(uint256)")[:4]
_PANIC_REASONS: Final = {
    0x01: "assertion failed",
    0x11: "arithmetic overflow or underflow",
    0x12: "division by zero",
    0x21: "invalid enum value",
    0x22: "corrupt storage array",
    0x31: "pop on an empty array",
    0x32: "index out of bounds",
    0x41: "too much memory",
    0x51: "call of an uninitialised function",
}


class AbiMismatch(ChainError):
    """A name, an argument or an answer does not fit the contract's ABI."""

    hint = "The contract and this program are of different versions: deploy again or update"


def _type_of(parameter: Mapping[str, Any]) -> str:
    kind: str = parameter["type"]
    if not kind.startswith("tuple"):
        return kind
    inner = ",".join(_type_of(component) for component in parameter["components"])
    return f"({inner}){kind[len('tuple') :]}"


def _types(parameters: Sequence[Mapping[str, Any]]) -> list[str]:
    return [_type_of(parameter) for parameter in parameters]


def _to_bytes(parameter: Mapping[str, Any], value: Any) -> Any:
    """eth_abi gives addresses as text; everything here holds them as bytes."""
    kind: str = parameter["type"]
    if kind.endswith("]"):
        element = {**parameter, "type": kind[: kind.rindex("[")]}
        return tuple(_to_bytes(element, item) for item in value)
    if kind == "tuple":
        return tuple(
            _to_bytes(component, item)
            for component, item in zip(parameter["components"], value, strict=True)
        )
    return bytes.fromhex(value[2:]) if kind == "address" else value


def _decode(parameters: Sequence[Mapping[str, Any]], data: bytes) -> tuple[Any, ...]:
    values = decode(_types(parameters), data)
    return tuple(_to_bytes(p, value) for p, value in zip(parameters, values, strict=True))


@dataclass(frozen=True)
class DecodedLog:
    """One event by name, its arguments under their Solidity names."""

    event: str
    arguments: dict[str, Any]


class Interface:
    """The callable surface of one contract."""

    def __init__(self, name: str, abi: Sequence[Mapping[str, Any]]) -> None:
        self.name = name
        self._functions: dict[str, list[Mapping[str, Any]]] = {}
        self._events: dict[bytes, Mapping[str, Any]] = {}
        self.errors: dict[bytes, Mapping[str, Any]] = {}
        self._constructor: Sequence[Mapping[str, Any]] = ()
        for entry in abi:
            if entry["type"] == "constructor":
                self._constructor = entry["inputs"]
                continue
            if entry["type"] not in ("function", "event", "error"):
                continue
            selector = keccak256(f"{entry['name']}({','.join(_types(entry['inputs']))})".encode())
            if entry["type"] == "function":
                self._functions.setdefault(entry["name"], []).append(entry)
            elif entry["type"] == "event":
                self._events[selector] = entry
            else:
                self.errors[selector[:4]] = entry

    @property
    def functions(self) -> frozenset[str]:
        return frozenset(self._functions)

    @property
    def events(self) -> dict[str, list[tuple[str, str]]]:
        """Event name → its (argument, type) pairs in order."""
        return {
            entry["name"]: [(p["name"], _type_of(p)) for p in entry["inputs"]]
            for entry in self._events.values()
        }

    def topic(self, event: str) -> bytes:
        """The 32-byte first topic of `event`; AbiMismatch if there is none."""
        for topic, entry in self._events.items():
            if entry["name"] == event:
                return topic
        raise AbiMismatch(f"{self.name} has no event {event}")

    def _function(self, name: str, count: int | None) -> Mapping[str, Any]:
        found = [
            entry
            for entry in self._functions.get(name, [])
            if count is None or len(entry["inputs"]) == count
        ]
        if len(found) != 1:
            takes = "" if count is None else f" with {count} arguments"
            raise AbiMismatch(f"{self.name} has {len(found)} functions {name}{takes}, not one")
        return found[0]

    def encode(self, function: str, *arguments: Any) -> bytes:
        """Call data. AbiMismatch when the function or an argument does not fit."""
        entry = self._function(function, len(arguments))
        types = _types(entry["inputs"])
        try:
            body = encode(types, arguments)
        except (EncodingError, TypeError, ValueError) as error:
            raise AbiMismatch(f"{self.name}.{function}{tuple(types)}: {error}") from error
        return keccak256(f"{function}({','.join(types)})".encode())[:4] + body

    def encode_constructor(self, *arguments: Any) -> bytes:
        """What follows the bytecode in creation code."""
        types = _types(self._constructor)
        try:
            return encode(types, arguments)
        except (EncodingError, TypeError, ValueError) as error:
            raise AbiMismatch(f"{self.name} constructor{tuple(types)}: {error}") from error

    def decode(self, function: str, data: bytes, argument_count: int | None = None) -> Any:
        """The result of a call: None, one value, or a tuple; structs are tuples."""
        outputs = self._function(function, argument_count)["outputs"]
        try:
            values = _decode(outputs, data)
        except (DecodingError, ValueError) as error:
            raise AbiMismatch(
                f"{self.name}.{function} answered {len(data)} bytes that do not decode: {error}"
            ) from error
        if len(values) == 1:
            return values[0]
        return values or None

    def require_call(self, function: str, data: bytes) -> None:
        """AbiMismatch when the data calls another function."""
        types = ",".join(_types(self._function(function, None)["inputs"]))
        if data[:4] != keccak256(f"{function}({types})".encode())[:4]:
            raise AbiMismatch(f"0x{data[:4].hex()} does not call {self.name}.{function}")

    def decode_call(self, function: str, data: bytes) -> tuple[Any, ...]:
        """The arguments in a call's data; AbiMismatch when it calls another function."""
        self.require_call(function, data)
        entry = self._function(function, None)
        try:
            return _decode(entry["inputs"], data[4:])
        except (DecodingError, ValueError) as error:
            raise AbiMismatch(f"{self.name}.{function}: data does not decode: {error}") from error

    def decode_log(self, topics: Sequence[bytes], data: bytes) -> DecodedLog | None:
        """The event of a log, or None when it is none of this contract's."""
        entry = self._events.get(topics[0]) if topics else None
        if entry is None:
            return None
        indexed = [p for p in entry["inputs"] if p["indexed"]]
        plain = [p for p in entry["inputs"] if not p["indexed"]]
        if len(indexed) != len(topics) - 1:
            return None
        try:
            values = dict(zip((p["name"] for p in plain), _decode(plain, data), strict=True))
            for parameter, topic in zip(indexed, topics[1:], strict=True):
                kind = _type_of(parameter)
                # Dynamic values are indexed by their hash; the hash is all there is to give.
                dynamic = kind in ("string", "bytes") or kind.endswith((")", "]"))
                values[parameter["name"]] = topic if dynamic else _decode([parameter], topic)[0]
        except (DecodingError, ValueError) as error:
            raise AbiMismatch(f"{self.name}.{entry['name']} log does not decode") from error
        return DecodedLog(entry["name"], {p["name"]: values[p["name"]] for p in entry["inputs"]})


class ErrorBook:
    """Custom errors of many contracts: an inner contract's error surfaces in an outer call."""

    def __init__(self, interfaces: Iterable[Interface] = ()) -> None:
        self._errors: dict[bytes, Mapping[str, Any]] = {}
        for interface in interfaces:
            self._errors.update(interface.errors)

    def name_of(self, selector: bytes) -> str:
        """The error of a 4-byte selector; "" if none is known."""
        entry = self._errors.get(selector)
        return "" if entry is None else str(entry["name"])

    def reverted(self, where: str, data: bytes) -> Reverted:
        """The named error of revert `data`; `where` is the call (`LaneEscrow.settle`)."""
        selector, body = data[:4], data[4:]
        try:
            if selector == _ERROR_STRING:
                return Reverted(where, "Error", {"reason": decode(["string"], body)[0]}, data)
            if selector == _PANIC:
                code = decode(["uint256"], body)[0]
                reason = _PANIC_REASONS.get(code, f"code {code:#x}")
                return Reverted(where, "Panic", {"reason": reason}, data)
            entry = self._errors.get(selector)
            if entry is not None:
                values = _decode(entry["inputs"], body)
                names = [p["name"] or str(i) for i, p in enumerate(entry["inputs"])]
                return Reverted(where, entry["name"], dict(zip(names, values, strict=True)), data)
        except (DecodingError, ValueError):
            pass  # a known selector over a foreign body is as good as an unknown one
        return Reverted(where, "", {}, data)
