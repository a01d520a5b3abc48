"""A contract at an address, by its ABI, and one that has an owner."""

from __future__ import annotations

from typing import Any

from settlement.chain.abi import ErrorBook, Interface
from settlement.chain.errors import ContractMissing, RpcFailed
from settlement.chain.rpc import BlockTag, Rpc, unhex
from settlement.chain.send_journal import Call


class Contract:
    """A contract at an address, by its ABI."""

    def __init__(self, rpc: Rpc, address: bytes, interface: Interface, errors: ErrorBook) -> None:
        self.rpc, self.address, self.interface, self.errors = rpc, address, interface, errors

    def view(self, function: str, *arguments: Any, block: BlockTag = "latest") -> Any:
        """The decoded answer of a view; Reverted when it refuses."""
        data = self.interface.encode(function, *arguments)
        try:
            answer = self.rpc.call(self.address, data, block=block)
        except RpcFailed as error:
            if error.data or "revert" in error.message.lower():
                where = f"{self.interface.name}.{function}"
                raise self.errors.reverted(where, unhex(error.data)) from error
            raise
        if not answer and not self.rpc.code(self.address):
            raise ContractMissing(self.interface.name, self.address, "no code")
        return self.interface.decode(function, answer, len(arguments))

    def transact(self, function: str, *arguments: Any) -> Call:
        """The call, for a sender."""
        where = f"{self.interface.name}.{function}"
        return Call(self.address, self.interface.encode(function, *arguments), where=where)


class Owned(Contract):
    """What has an owner in two steps (Ownable2Step)."""

    def owner(self) -> bytes:
        return bytes(self.view("owner"))

    def pending_owner(self) -> bytes:
        return bytes(self.view("pendingOwner"))

    def transfer_ownership(self, owner: bytes) -> Call:
        return self.transact("transferOwnership", owner)

    def accept_ownership(self) -> Call:
        return self.transact("acceptOwnership")
