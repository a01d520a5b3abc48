"""The real contracts on a real chain, and what three parties sign between reserve and settle."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from counter_contract import KEYS

from settlement import trees
from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Contracts, Role
from settlement.chain.deploy import deploy
from settlement.chain.lanes import Position, SignedVoucher
from settlement.chain.parameters import DEVNET, Parameters
from settlement.chain.rpc import Rpc
from settlement.chain.send_journal import SqliteSendJournal
from settlement.chain.sender import Sender
from settlement.hashing import ZERO32, keccak256
from settlement.records import Lane, RoundRecord, Sums, Voucher
from settlement.signing import address_of_key

TOKEN = 10**18
# More of the published mnemonic's accounts than a test has parties.
CLIENT, DRAFTER, VERIFIER = KEYS
OWNER = bytes.fromhex("2a871d0798f97d79848a013d4936a73bf4cc922c825d33c1cf7073dff6d409c6")
BENEFICIARY = b"\xbe" * 20


def make_sender(rpc: Rpc, key: bytes, path: Path, contracts: Contracts | None = None) -> Sender:
    errors = None if contracts is None else contracts.errors
    return Sender(rpc, key, SqliteSendJournal(path), errors=errors, poll_seconds=0.01)


def deploy_devnet(anvil: Anvil, folder: Path, parameters: Parameters = DEVNET) -> Contracts:
    rpc = Rpc.connect(anvil.url)
    owner = make_sender(rpc, OWNER, folder / "owner.sqlite")
    contracts = deploy(owner, rpc, folder / "addresses.json", parameters)
    for index, key in enumerate(KEYS):
        holder = address_of_key(key)
        owner.send(f"mint:{index}", contracts.token.mint(holder, 10**7 * TOKEN))
    return contracts


@dataclass
class Parties:
    """A client, a drafter and a verifier with stakes and a reserve."""

    contracts: Contracts
    client: Sender
    drafter: Sender
    verifier: Sender

    @property
    def lane(self) -> Lane:
        return self.lane_of(ZERO32)

    def lane_of(self, claim_id: bytes) -> Lane:
        return Lane(
            self.client.address,
            self.drafter.address,
            self.verifier.address,
            self.contracts.token.address,
            claim_id,
        )


def open_lane(
    contracts: Contracts, folder: Path, *, stake: int = 10**6 * TOKEN, reserve: int = 10**5 * TOKEN
) -> Parties:
    parties = Parties(
        contracts,
        *(
            make_sender(contracts.rpc, key, folder / f"{name}.sqlite", contracts)
            for name, key in (("client", CLIENT), ("drafter", DRAFTER), ("verifier", VERIFIER))
        ),
    )
    token, vault, escrow = contracts.token, contracts.vault, contracts.escrow
    for sender, role in ((parties.drafter, Role.DRAFTER), (parties.verifier, Role.VERIFIER)):
        sender.send("approve", token.approve(vault.address, stake))
        sender.send("stake", vault.stake(sender.address, BENEFICIARY, role, stake))
    parties.client.send("approve", token.approve(escrow.address, reserve))
    parties.client.send("reserve", escrow.reserve(parties.lane, reserve))
    return parties


def round_record(seed: str, output: int, accepted: int) -> RoundRecord:
    """A round that emitted `output` tokens, `accepted` of them drafted, none refused."""
    sums = Sums(output, accepted, (accepted,) + (0,) * 15, (accepted,) + (0,) * 15)
    mark = keccak256(seed.encode())
    return RoundRecord(mark, 0, mark, mark, mark, mark, output, accepted, sums.buckets)


@dataclass
class Book:
    """What the three keep of a lane: leaves since the base, and what is owed."""

    lane: Lane
    epoch: int = 0
    base_root: bytes = ZERO32
    base_sums: Sums = field(default_factory=Sums)
    leaves: list[RoundRecord] = field(default_factory=list)
    due_drafter: int = 0
    due_verifier: int = 0
    drafter_key: bytes = DRAFTER

    def serve(self, seed: str, output: int = 32, accepted: int = 24) -> None:
        self.leaves.append(round_record(seed, output, accepted))
        self.due_drafter += accepted * TOKEN // 100
        self.due_verifier += output * TOKEN // 50

    def sign(self, contracts: Contracts, *, with_drafter: bool = True) -> SignedVoucher:
        tree = trees.SumTree(self.leaves).top()
        sums = self.base_sums + tree.sums
        voucher = Voucher(
            lane=self.lane.id,
            epoch=self.epoch,
            output=sums.output,
            accepted=sums.accepted,
            due_drafter=self.due_drafter,
            due_verifier=self.due_verifier,
            base_root=self.base_root,
            root=trees.settled_root(tree.hash, sums, len(self.leaves), self.base_root),
            leaf_count=len(self.leaves),
            buckets=sums.buckets,
        )
        domain = contracts.domain
        signed = SignedVoucher(
            self.lane,
            voucher,
            tree.hash,
            client=domain.sign(voucher, CLIENT),
            verifier=domain.sign(voucher, VERIFIER),
        )
        return (
            replace(signed, drafter=domain.sign(voucher, self.drafter_key))
            if with_drafter
            else signed
        )

    def rebase(self, signed: SignedVoucher) -> None:
        """Go on from a settled voucher."""
        self.base_root = signed.voucher.root
        self.base_sums = signed.voucher.sums
        self.leaves = []


def fresh_position(contracts: Contracts, epoch: int = 0) -> Position:
    return Position(epoch, contracts.escrow.parameters().fee_bps)
