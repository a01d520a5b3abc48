"""A contract that counts how often each thing was done: what shows a second send."""

from __future__ import annotations

from settlement.chain.abi import ErrorBook, Interface
from settlement.chain.compile import Artifact, compile_sources
from settlement.chain.rpc import Rpc
from settlement.chain.send_journal import Call
from settlement.hashing import keccak256

SOURCE = """
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;
contract Counter {
    error TooMuch(uint256 asked, uint256 limit, address by);
    event Hit(bytes32 indexed id, address by, uint256 total);
    mapping(bytes32 => uint256) public hits;
    uint256 public total;
    uint256 public limit = 1000;
    function hit(bytes32 id) external { ++hits[id]; emit Hit(id, msg.sender, ++total); }
    function setLimit(uint256 value) external { limit = value; }
    function spend(uint256 asked) external {
        if (asked > limit) revert TooMuch(asked, limit, msg.sender);
        ++total;
    }
    function insist(bool yes) external pure { require(yes, "said no"); }
    function panic(uint256 by) external pure returns (uint256) { return 1 / by; }
}
"""

# The first accounts of anvil.toml's published mnemonic.
KEYS = [
    bytes.fromhex(text)
    for text in (
        "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
        "59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
        "5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
    )
]


def counter_artifact() -> Artifact:
    return compile_sources({"tests/Counter.sol": SOURCE}).require("Counter")


class Counter:
    """The deployed counter, by raw calls."""

    def __init__(self, rpc: Rpc, address: bytes) -> None:
        self.rpc, self.address = rpc, address
        self.interface = Interface("Counter", counter_artifact().abi)
        self.errors = ErrorBook([self.interface])

    @staticmethod
    def creation() -> Call:
        return Call(None, bytes.fromhex(counter_artifact().bytecode), where="Counter")

    def hit(self, name: str) -> Call:
        data = self.interface.encode("hit", keccak256(name.encode()))
        return Call(self.address, data, where="Counter.hit")

    def spend(self, asked: int) -> Call:
        return Call(self.address, self.interface.encode("spend", asked), where="Counter.spend")

    def set_limit(self, value: int) -> Call:
        return Call(
            self.address, self.interface.encode("setLimit", value), where="Counter.setLimit"
        )

    def hits(self, name: str) -> int:
        data = self.interface.encode("hits", keccak256(name.encode()))
        return self.interface.decode("hits", self.rpc.call(self.address, data))

    @property
    def total(self) -> int:
        data = self.rpc.call(self.address, self.interface.encode("total"))
        return self.interface.decode("total", data)
