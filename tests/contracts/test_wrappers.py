"""The typed wrappers over the real contracts: stake, reserve, settle, withdraw, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deployment import BENEFICIARY, TOKEN, Book, Parties, deploy_devnet, fresh_position, open_lane

from settlement.chain.abi import AbiMismatch, ErrorBook, Interface
from settlement.chain.anvil import Anvil
from settlement.chain.compile import compile_contracts
from settlement.chain.contracts import ClaimStatus, Contracts, Role
from settlement.chain.errors import ContractMissing, Reverted
from settlement.chain.events import TYPED, LaneSettled
from settlement.chain.indexer import Batch, Indexer, IndexStore
from settlement.chain.lanes import Position, VoucherUnknown, groups_of, vouchers_in
from settlement.chain.positions import LaneHistory
from settlement.chain.send_journal import Call
from settlement.hashing import ZERO32, keccak256, uint
from settlement.records import Claim, Manifest, Mode, Tier
from settlement.signing import BadSignature


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    with Anvil() as chain:
        yield chain


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deployment")


@pytest.fixture(scope="module")
def contracts(anvil: Anvil, folder: Path) -> Contracts:
    return deploy_devnet(anvil, folder)


@pytest.fixture(scope="module")
def ready(contracts: Contracts, folder: Path) -> Parties:
    return open_lane(contracts, folder)


@pytest.fixture
def parties(anvil: Anvil, ready: Parties, folder: Path, tmp_path: Path) -> Iterator[Parties]:
    """The three with stake and reserve, and journals that forget with the chain."""
    from deployment import CLIENT, DRAFTER, VERIFIER, make_sender

    with anvil.rolled_back():
        rpc, contracts = ready.contracts.rpc, ready.contracts
        yield Parties(
            contracts,
            make_sender(rpc, CLIENT, tmp_path / "client.sqlite", contracts),
            make_sender(rpc, DRAFTER, tmp_path / "drafter.sqlite", contracts),
            make_sender(rpc, VERIFIER, tmp_path / "verifier.sqlite", contracts),
        )


def test_a_stake_is_as_the_vault_says(parties: Parties) -> None:
    vault, drafter = parties.contracts.vault, parties.drafter.address
    stake = vault.stake_of(drafter, Role.DRAFTER)
    assert (stake.active, stake.unbonding, stake.locked) == (10**6 * TOKEN, 0, 0)
    assert vault.stake_of(drafter, Role.VERIFIER).active == 0
    assert vault.payout_to(drafter) == BENEFICIARY
    parties.drafter.send("out", vault.unstake(drafter, Role.DRAFTER, 7 * TOKEN))
    (leaving,) = vault.exits_of(drafter, Role.DRAFTER)
    assert leaving.amount == 7 * TOKEN
    assert leaving.mature_at == parties.contracts.rpc.head().timestamp + vault.times().unbonding


def test_the_domain_is_the_escrows(parties: Parties) -> None:
    assert parties.contracts.domain.separator == parties.contracts.escrow.domain_separator()


def test_a_voucher_settles_and_pays_and_its_position_follows(parties: Parties) -> None:
    escrow, lane = parties.contracts.escrow, parties.lane
    book, position = Book(lane), fresh_position(parties.contracts)
    assert escrow.lane_state(lane.id).position == position.digest
    for index in range(3):
        book.serve(f"round {index}")
        signed = book.sign(parties.contracts)
        signed.check(parties.contracts.domain)
        mined = parties.verifier.send(
            f"settle {index}", escrow.settle(lane.token, groups_of([(signed, position)]))
        )
        position = position.after(_settled(parties, mined.hash), signed.voucher)
        assert escrow.lane_state(lane.id).position == position.digest
        if index == 1:
            book.rebase(signed)  # the third tree begins at the second's root
    assert (position.paid_drafter, position.paid_verifier) == (book.due_drafter, book.due_verifier)
    token, drafter = parties.contracts.token, parties.drafter
    assert escrow.payable_to(drafter.address, lane.token) == book.due_drafter
    drafter.send("payout", escrow.withdraw(drafter.address, lane.token))
    assert token.balance_of(BENEFICIARY) == book.due_drafter


def _settled(parties: Parties, transaction: bytes) -> LaneSettled:
    interface = parties.contracts.escrow.interface
    for log in parties.contracts.rpc.receipt(transaction).logs:
        decoded = interface.decode_log(log.topics, log.data)
        if decoded is not None and decoded.event == "LaneSettled":
            return LaneSettled(*decoded.arguments.values())
    raise AssertionError("no LaneSettled in the receipt")


def test_without_the_drafter_only_the_verifier_is_paid(anvil: Anvil, parties: Parties) -> None:
    escrow, lane = parties.contracts.escrow, parties.lane
    parties.verifier.send("notice", escrow.notice_solo(lane))
    anvil.warp(escrow.parameters().thaw_period + 1)
    book, position = Book(lane), fresh_position(parties.contracts)
    book.serve("solo")
    signed = book.sign(parties.contracts, with_drafter=False)
    mined = parties.verifier.send(
        "settle", escrow.settle(lane.token, groups_of([(signed, position)]))
    )
    position = position.after(_settled(parties, mined.hash), signed.voucher)
    assert escrow.lane_state(lane.id).position == position.digest
    assert (position.paid_drafter, position.paid_verifier) == (0, book.due_verifier)
    assert position.counted.output == 0


def test_vouchers_read_back_from_the_transaction(parties: Parties) -> None:
    lane = parties.lane
    book, position = Book(lane), fresh_position(parties.contracts)
    book.serve("a")
    first = book.sign(parties.contracts)
    call = parties.contracts.escrow.settle(lane.token, groups_of([(first, position)]))
    assert vouchers_in(parties.contracts.escrow.interface, call.data) == [(lane, first.voucher)]
    other = parties.contracts.escrow.withdraw(lane.client, lane.token)
    with pytest.raises(AbiMismatch):
        vouchers_in(parties.contracts.escrow.interface, other.data)


def test_a_lane_is_followed_beside_a_voucher_of_bytes_that_nothing_decodes(
    parties: Parties,
) -> None:
    """Whoever settles somebody's lane may put beside it a lane that is none, in words that are no
    values of their types. The escrow skips it without a look at them."""
    escrow, lane = parties.contracts.escrow, parties.lane
    book, position = Book(lane), fresh_position(parties.contracts)
    book.serve("a")
    first = book.sign(parties.contracts)
    (group,) = groups_of([(first, position)])
    (mine,) = group[3]
    theirs = (b"\x77" * 20, *mine[1:5], 0x0A0B0C0D, 2, *mine[7:12], b"\x55" * 65)
    mined = None
    for place, lanes in enumerate(([mine, theirs], [theirs, mine])):
        data = escrow.settle(lane.token, [(*group[:3], lanes)]).data
        leaves = data.index(uint(0x0A0B0C0D, 32))
        assert data[leaves + 32 : leaves + 64] == uint(2, 32)
        signature = leaves + 7 * 32  # leafCount, link, baseRoot, two signatures of two words
        for at, word in (
            (leaves, b"\xff" * 32),
            (leaves + 32, uint(7, 32)),
            (signature, b"\x7f" + b"\xff" * 31),
        ):
            data = data[:at] + word + data[at + 32 :]
        with pytest.raises(AbiMismatch):
            escrow.interface.decode_call("settle", data)
        assert vouchers_in(escrow.interface, data) == [(lane, first.voucher)]
        if place:
            call = Call(escrow.address, data, where="LaneEscrow.settle")
            mined = parties.verifier.send("beside", call)
    assert mined is not None
    assert _settled(parties, mined.hash).root == first.voucher.root


def test_positions_follow_events_over_a_reorganisation(
    anvil: Anvil, parties: Parties, tmp_path: Path, contracts: Contracts
) -> None:
    escrow, lane = parties.contracts.escrow, parties.lane
    book = Book(lane)
    book.serve("a")
    signed = book.sign(parties.contracts)
    history = LaneHistory()
    batches: list[Batch] = []

    def apply(batch: Batch) -> None:
        batches.append(batch)
        history.apply(batch)

    def position(epoch: int = 0) -> Position:
        return history.position(lane.id, epoch, [signed.voucher])

    with IndexStore(tmp_path / "index.sqlite") as store:
        indexer = Indexer(contracts.rpc, contracts.all(), store)
        indexer.catch_up(apply)
        fresh = position()
        assert fresh == fresh_position(contracts)
        parties.verifier.submit("settle", escrow.settle(lane.token, groups_of([(signed, fresh)])))
        parties.verifier.wait("settle")
        indexer.catch_up(apply)
        settled = position()
        assert settled.digest == escrow.lane_state(lane.id).position
        assert settled.head_root == signed.voucher.root

        anvil.reorg(1)
        indexer.catch_up(apply)
        assert batches[-1].rolled_back_to is not None
        assert position() == fresh
        parties.verifier.tend()  # the same bytes again
        parties.verifier.wait("settle")
        indexer.catch_up(apply)
        assert position() == settled

        # An unknown voucher is told, not guessed at.
        book.serve("b")
        second = book.sign(parties.contracts)
        parties.verifier.send("second", escrow.settle(lane.token, groups_of([(second, settled)])))
        indexer.catch_up(apply)
        with pytest.raises(VoucherUnknown):
            position()
        parties.verifier.send("epoch", escrow.open_epoch(lane))
        indexer.catch_up(apply)
        assert sorted(history.facts(lane.id).fees) == [0, 1]
        assert position(1).digest == escrow.lane_state(lane.id).position


def test_refusals_carry_the_contracts_own_names(parties: Parties) -> None:
    contracts, verifier = parties.contracts, parties.verifier
    with pytest.raises(Reverted, match="NotEnoughStake") as refused:
        verifier.submit(
            "x", contracts.vault.unstake(verifier.address, Role.VERIFIER, 10**9 * TOKEN)
        )
    assert refused.value.arguments == {"asked": 10**9 * TOKEN, "active": 10**6 * TOKEN}
    book, position = Book(parties.lane), fresh_position(contracts)
    book.serve("a")
    signed = book.sign(contracts)
    forged = replace(signed, client=bytes(64) + b"\x1b")
    with pytest.raises(BadSignature):
        forged.check(contracts.domain)
    with pytest.raises(Reverted, match="NothingSettled") as refused:
        verifier.submit(
            "y", contracts.escrow.settle(parties.lane.token, groups_of([(forged, position)]))
        )
    reason = refused.value.arguments["firstReason"]
    assert contracts.errors.name_of(reason) == "ClientSignatureBad"
    # An error of the token surfaces through the vault under its own name.
    with pytest.raises(Reverted, match="TransferFromFailed"):
        verifier.submit(
            "z", contracts.vault.stake(verifier.address, BENEFICIARY, Role.VERIFIER, TOKEN)
        )


def test_a_claim_and_its_model_are_registered_and_read(parties: Parties) -> None:
    contracts = parties.contracts
    manifest = Manifest("toy", Tier.EXACT, b"\x01" * 32, b"\x02" * 32, 100, (1, 2), 64)
    with pytest.raises(Reverted, match="ModelUnknown"):
        parties.drafter.submit("early", contracts.ledger.register(_claim(parties, manifest)))
    parties.drafter.send("model", contracts.registry.register(manifest))
    assert contracts.registry.is_registered(manifest.model_id)
    claim = _claim(parties, manifest)
    parties.drafter.send("claim", contracts.ledger.register(claim))
    state = contracts.ledger.claim_of(claim.struct_hash)
    assert state.drafter == parties.drafter.address
    assert state.status is ClaimStatus.ACTIVE
    assert state.rates == claim.rates
    assert state.target_model == manifest.model_id
    assert contracts.ledger.claim_drafter(keccak256(b"none")) == bytes(20)


def _claim(parties: Parties, manifest: Manifest) -> Claim:
    rates = tuple(range(60, 76))
    target = manifest.model_id
    return Claim(parties.drafter.address, target, ZERO32, Mode.COUPLED, 1 << 16, rates, 1)


def test_a_batch_is_of_one_token_and_each_lane_once(parties: Parties) -> None:
    book, position = Book(parties.lane), fresh_position(parties.contracts)
    book.serve("a")
    signed = book.sign(parties.contracts)
    with pytest.raises(ValueError, match="twice"):
        groups_of([(signed, position), (signed, position)])
    elsewhere = replace(signed, lane=replace(parties.lane, token=b"\x01" * 20))
    with pytest.raises(ValueError, match="one token"):
        groups_of([(signed, position), (elsewhere, position)])


def test_no_contract_there_is_told(parties: Parties) -> None:
    contracts = parties.contracts
    nowhere = type(contracts.vault)(
        contracts.rpc, b"\x42" * 20, contracts.vault.interface, contracts.errors
    )
    with pytest.raises(ContractMissing, match=r"StakeVault at 0x4242.*scripts/deploy\.py"):
        nowhere.times()


# Read by people, not by roles: they come as OtherEvent. A new event needs a class or a line here.
UNREAD = {
    "AuditorPaid",
    "BatchSettled",
    "BondPaid",
    "BondPulled",
    "BondReleased",
    "BondsBurned",
    "Burned",
    "CanaryOpened",
    "CanaryPassed",
    "CanaryReferred",
    "ClockSet",
    "CourtSet",
    "Credited",
    "FeeSet",
    "FeeSpenderSet",
    "FeeSpent",
    "GuardianSet",
    "JudgeSet",
    "KeyProposed",
    "LaneSkipped",
    "LeastStakeSet",
    "LockReleased",
    "MinStakeChanged",
    "OwnershipTransferStarted",
    "OwnershipTransferred",
    "PaidOut",
    "ParametersChanged",
    "Paused",
    "ReaderSet",
    "ReferrerSet",
    "Reserved",
    "RewardSet",
    "RoundsExcluded",
    "SeriesFull",
    "SlasherSet",
    "SoloEnded",
    "SoloNoticed",
    "StakeLocked",
    "TermsChanged",
    "ThawCancelled",
    "ThawCollected",
    "ThawStarted",
    "TimesChanged",
    "TokenListed",
    "ToleranceSet",
    "Unpaused",
    "VestedClaimed",
    "Wired",
}


@pytest.mark.parametrize("contract", sorted(TYPED))
def test_event_classes_are_the_abis(contract: str) -> None:
    events = Interface(contract, compile_contracts()[contract].abi).events
    classes = {kind.__name__: kind for kind in TYPED[contract]}
    assert set(events) - set(classes) <= UNREAD
    for name, kind in classes.items():
        fields = list(kind.__dataclass_fields__)
        solidity = [_snake(argument) for argument, _type in events[name]]
        # `from` is a word of Python's.
        assert fields == [{"from": "sender"}.get(name_, name_) for name_ in solidity]


def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name)


def test_errors_without_a_name_are_shown_by_selector() -> None:
    book = ErrorBook()
    assert "0xdeadbeef" in str(book.reverted("X.y", bytes.fromhex("deadbeef")))
    assert "no reason given" in str(book.reverted("X.y", b""))
    said = (
        keccak256(b"Error(string)")[:4]
        + bytes.fromhex(f"{32:064x}{5:064x}")
        + b"sorry".ljust(32, b"\0")
    )
    assert book.reverted("X.y", said).arguments == {"reason": "sorry"}
    panic = keccak256(b"Panic(uint256)")[:4] + (0x11).to_bytes(32, "big")
    assert "overflow" in str(book.reverted("X.y", panic))
    # A known selector over a body that does not decode is no better than an unknown one.
    assert book.reverted("X.y", said[:20]).name == ""
