"""Hand the contracts over to OpenZeppelin's TimelockController.

The timelock starts with no delay and the deployer as its only proposer. One batch, scheduled and
executed through it, accepts every contract, gives the proposer's roles to the governor, takes them
from the deployer and sets the delay: after it nobody has a way around the delay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from settlement.chain.abi import Interface
from settlement.chain.compile import Artifact, CompilerSettings, compile_sources
from settlement.chain.contracts import Contract, Contracts
from settlement.chain.send_journal import Call
from settlement.chain.sender import Sender
from settlement.hashing import ZERO32, keccak256

TIMELOCK: Final = "TimelockController"
_UNIT: Final = "@openzeppelin/contracts/governance/TimelockController.sol"
_ROLES: Final = (keccak256(b"PROPOSER_ROLE"), keccak256(b"CANCELLER_ROLE"))


@cache
def timelock_artifact() -> Artifact:
    path = CompilerSettings.from_foundry().locate(_UNIT)
    return compile_sources({_UNIT: path.read_text()}).require(TIMELOCK)


class Timelock(Contract):
    """TimelockController, as far as the hand-over needs it."""

    def min_delay(self) -> int:
        """Seconds between schedule and execution."""
        return int(self.view("getMinDelay"))

    def is_scheduled(self, operation: bytes) -> bool:
        return bool(self.view("isOperation", operation))

    def batch(self, calls: list[Call], salt: bytes) -> tuple[bytes, Call, Call]:
        """The operation's id, and the calls that schedule it without delay and execute it."""
        head = (
            [call.to for call in calls],
            [0] * len(calls),
            [call.data for call in calls],
            ZERO32,
            salt,
        )
        operation = bytes(self.view("hashOperationBatch", *head))
        return (
            operation,
            self.transact("scheduleBatch", *head, 0),
            self.transact("executeBatch", *head),
        )


def hand_over(
    sender: Sender,
    contracts: Contracts,
    address: bytes,
    governor: bytes,
    delay: int,
    deployment: str,
    progress: Callable[[str], None],
) -> None:
    """Make the timelock at `address` the owner, `governor` its proposer and `delay` (seconds) its
    delay. Steps that are done are left out."""
    interface = Interface(TIMELOCK, timelock_artifact().abi)
    timelock = Timelock(contracts.rpc, address, interface, contracts.errors)
    if timelock.min_delay() == delay:
        return
    owned = list(contracts.all())
    for contract in owned:
        if contract.pending_owner() != address:
            name = contract.interface.name
            progress(f"offering {name} to the timelock")
            sender.send(f"own:{deployment}:{name}", contract.transfer_ownership(address))
    calls = [contract.accept_ownership() for contract in owned]
    if governor != sender.address:
        calls += [timelock.transact("grantRole", role, governor) for role in _ROLES]
        calls += [timelock.transact("revokeRole", role, sender.address) for role in _ROLES]
    calls.append(timelock.transact("updateDelay", delay))
    operation, schedule, execute = timelock.batch(calls, keccak256(deployment.encode()))
    progress(f"handing over to the timelock, delay {delay} s")
    if not timelock.is_scheduled(operation):
        sender.send(f"schedule:{deployment}", schedule)
    sender.send(f"execute:{deployment}", execute)
