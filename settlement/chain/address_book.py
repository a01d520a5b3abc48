"""Where the contracts of one deployment are: one JSON file per chain."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from settlement.chain.errors import ChainError, ConfigError, ContractMissing, WrongChain
from settlement.chain.rpc import Rpc, unhex
from settlement.durable import write_atomic
from settlement.hashing import keccak256

_VERSION: Final = 1


class BookOfAnotherChain(ChainError):
    """The chain has the book's id, but began with another block: a devnet was started anew."""

    hint = "Deploy again with `--fresh`, or name this chain's address book"


@dataclass(frozen=True)
class Entry:
    """One contract. `initcode_hash` covers bytecode and constructor arguments: zero for a contract
    that was there before us. `block` is where its events begin."""

    address: bytes
    code_hash: bytes
    initcode_hash: bytes
    block: int

    def to_json(self) -> dict[str, Any]:
        return {
            "address": "0x" + self.address.hex(),
            "codeHash": "0x" + self.code_hash.hex(),
            "initcodeHash": "0x" + self.initcode_hash.hex(),
            "block": self.block,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Entry:
        """ValueError, KeyError or TypeError for what is no entry."""
        return cls(
            _sized(data, "address", 20),
            _sized(data, "codeHash", 32),
            _sized(data, "initcodeHash", 32),
            int(data["block"]),
        )


def _sized(data: Mapping[str, Any], name: str, size: int) -> bytes:
    raw = unhex(data[name])
    if len(raw) != size:
        raise ValueError(f"{name} has {len(raw)} bytes, not {size}")
    return raw


@dataclass(frozen=True)
class AddressBook:
    """A deployment as far as it has got. `deployment` (16 hex digits) tells one from the next on
    the same chain, so that a key's journal does not take them for the same."""

    chain_id: int
    genesis: bytes
    profile: str
    deployment: str = field(default_factory=lambda: secrets.token_hex(8))
    contracts: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> AddressBook:
        """ConfigError when the file is missing or damaged."""
        try:
            data = json.loads(path.read_text())
            if data["version"] != _VERSION:
                raise ConfigError(f"{path} has version {data['version']}, not {_VERSION}")
            return cls(
                int(data["chainId"]),
                _sized(data, "genesis", 32),
                str(data["profile"]),
                str(data["deployment"]),
                {name: Entry.from_json(entry) for name, entry in data["contracts"].items()},
            )
        except FileNotFoundError as error:
            raise ConfigError(
                f"there is no address book at {path}",
                "Deploy with scripts/deploy.py, or name another (`verdraft devnet --serve` says "
                "where its own is) with --address-book or a node's chain.address_book",
            ) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path} is no address book: {error!r}") from error

    def write(self, path: Path) -> None:
        """Over what was there, whole or not at all."""
        data = {
            "version": _VERSION,
            "chainId": self.chain_id,
            "genesis": "0x" + self.genesis.hex(),
            "profile": self.profile,
            "deployment": self.deployment,
            "contracts": {name: entry.to_json() for name, entry in self.contracts.items()},
        }
        write_atomic(path, json.dumps(data, indent=2) + "\n")

    def with_entry(self, name: str, entry: Entry) -> AddressBook:
        return replace(self, contracts={**self.contracts, name: entry})

    @property
    def addresses(self) -> dict[str, bytes]:
        return {name: entry.address for name, entry in self.contracts.items()}

    @property
    def first_block(self) -> int:
        """Before this block there is no event of the deployment."""
        return min((entry.block for entry in self.contracts.values()), default=0)

    def check_chain(self, rpc: Rpc) -> None:
        """WrongChain or BookOfAnotherChain unless `rpc` serves the chain the book was written
        for."""
        if rpc.chain_id != self.chain_id:
            raise WrongChain(rpc.url, self.chain_id, rpc.chain_id)
        genesis = rpc.header(0)
        if genesis is not None and genesis.hash != self.genesis:
            raise BookOfAnotherChain(
                f"chain {self.chain_id} at {rpc.url} began with block 0x{genesis.hash.hex()[:8]}…, "
                f"the address book's with 0x{self.genesis.hex()[:8]}…"
            )

    def check_code(self, rpc: Rpc, name: str) -> None:
        """ContractMissing unless the recorded code lies at the contract's address."""
        entry = self.contracts.get(name)
        if entry is None:
            raise ContractMissing(name, bytes(20), "not in the address book")
        code = rpc.code(entry.address)
        if not code:
            raise ContractMissing(name, entry.address, "no code there")
        if keccak256(code) != entry.code_hash:
            raise ContractMissing(name, entry.address, "other code than was deployed")
