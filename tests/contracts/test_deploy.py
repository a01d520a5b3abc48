"""Deploying: twice is once, a crash is made good, and what is wrong is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from counter_contract import KEYS
from deployment import make_sender

from settlement.chain.address_book import AddressBook, BookOfAnotherChain
from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Contracts
from settlement.chain.deploy import DeploymentDiffers, NotOwner, connect, deploy
from settlement.chain.errors import ConfigError, ContractMissing, NodeUnreachable, WrongChain
from settlement.chain.parameters import DEVNET, PRODUCTION
from settlement.chain.rpc import Rpc
from settlement.chain.sender import Sender
from settlement.chain.timelock import TIMELOCK
from settlement.hashing import keccak256
from settlement.signing import address_of_key

DEPLOYER = address_of_key(KEYS[0])
STRANGER = address_of_key(KEYS[1])


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    with Anvil() as chain:
        yield chain


@pytest.fixture(scope="module")
def deployed(anvil: Anvil, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The address book of one devnet deployment, for tests that only look at it."""
    folder = tmp_path_factory.mktemp("deployment")
    rpc = Rpc.connect(anvil.url)
    deploy(make_sender(rpc, KEYS[0], folder / "sends.sqlite"), rpc, folder / "book.json", DEVNET)
    return folder / "book.json"


@pytest.fixture
def rpc(anvil: Anvil) -> Iterator[Rpc]:
    with anvil.rolled_back():
        yield Rpc.connect(anvil.url)


@pytest.fixture
def sender(rpc: Rpc, tmp_path: Path) -> Sender:
    return make_sender(rpc, KEYS[0], tmp_path / "sends.sqlite")


def test_a_second_deployment_does_nothing(deployed: Path, rpc: Rpc, tmp_path: Path) -> None:
    written, sent = deployed.read_text(), rpc.transaction_count(DEPLOYER)
    same = make_sender(rpc, KEYS[0], deployed.with_name("sends.sqlite"))
    # And by another journal, as from another machine: the chain itself is asked.
    elsewhere = make_sender(rpc, KEYS[0], tmp_path / "elsewhere.sqlite")
    for sender in (same, elsewhere):
        contracts = deploy(sender, rpc, deployed, DEVNET)
        assert rpc.transaction_count(DEPLOYER) == sent
        assert deployed.read_text() == written
    assert contracts.escrow.address == AddressBook.read(deployed).addresses["LaneEscrow"]


def test_what_is_deployed_is_wired(anvil: Anvil, deployed: Path) -> None:
    contracts, _book = connect(anvil.url, deployed)
    escrow, vault = contracts.escrow, contracts.vault
    assert vault.escrow() == escrow.address
    assert escrow.ledger() == contracts.ledger.address
    assert contracts.ledger.escrow() == contracts.beacon.escrow() == escrow.address
    assert escrow.is_fee_spender(contracts.beacon.address)
    assert vault.is_slasher(contracts.ledger.address)
    assert vault.is_slasher(contracts.beacon.address)
    assert vault.is_slasher(contracts.court.address)
    assert vault.is_slasher(contracts.demands.address)
    assert vault.is_slasher(contracts.session_demands.address)
    for judge in (contracts.juries, contracts.panel, contracts.audits):
        assert vault.is_slasher(judge.address)
    for court in (contracts.panel, contracts.audits):
        assert contracts.juries.is_court(court.address)
        assert escrow.is_fee_spender(court.address)
    assert vault.clock() == contracts.panel_terms.address
    assert contracts.panel_terms.is_referrer(contracts.audits.address)
    assert contracts.ledger.is_judge(contracts.claim_judge.address)
    assert contracts.session_demands.is_reader(contracts.juror_demands.address)
    token = contracts.token.address
    assert contracts.panel_terms.fee_of(token) == DEVNET.panel.fee
    assert contracts.audit_terms.fee_of(token) == DEVNET.audits.fee
    assert contracts.panel_terms.bond() == DEVNET.panel.bond
    assert contracts.pool.min_stake() == DEVNET.panel.min_stake
    assert contracts.court.bond() == DEVNET.court.bond
    assert contracts.demands.bond() == DEVNET.demands.bond
    assert escrow.is_open(contracts.token.address)
    assert vault.times() == DEVNET.times
    assert escrow.parameters() == DEVNET.escrow
    assert vault.stake_token() == contracts.token.address


@pytest.mark.slow
def test_a_deployment_that_died_between_any_two_transactions_is_completed(
    rpc: Rpc, sender: Sender, tmp_path: Path
) -> None:
    class Died(Exception):
        pass

    before = rpc.transaction_count(DEPLOYER)
    deploy(sender, rpc, tmp_path / "whole.json", DEVNET)
    needed = rpc.transaction_count(DEPLOYER) - before
    book = tmp_path / "addresses.json"
    path = tmp_path / "again.sqlite"
    left = 0

    def at_step(step: str) -> None:
        nonlocal left
        if step == "sent":
            left -= 1
            if left == 0:
                raise Died

    deaths = 0
    while True:
        # Each run gets one transaction further than the one before, and dies after sending it.
        dying = make_sender(rpc, KEYS[0], path)
        dying._at_step, left = at_step, 1
        try:
            contracts = deploy(dying, rpc, book, DEVNET)
        except Died:
            deaths += 1
            continue
        break
    assert deaths == needed
    assert rpc.transaction_count(DEPLOYER) - before == 2 * needed  # nothing was sent twice
    assert contracts.vault.escrow() == contracts.escrow.address


@pytest.mark.slow
def test_production_ends_with_the_timelock_as_owner(
    rpc: Rpc, sender: Sender, tmp_path: Path
) -> None:
    devnet = deploy(sender, rpc, tmp_path / "token.json", DEVNET)
    book = tmp_path / "addresses.json"
    governor = b"\x60" * 20
    options = {"token": devnet.token.address, "guardian": STRANGER, "governor": governor}
    contracts = deploy(sender, rpc, book, PRODUCTION, **options)
    timelock = AddressBook.read(book).addresses[TIMELOCK]
    assert {contract.owner() for contract in contracts.all()} == {timelock}
    assert contracts.token.address == devnet.token.address
    assert contracts.vault.times() == PRODUCTION.times
    proposer = keccak256(b"PROPOSER_ROLE")
    lock = _timelock(contracts, timelock)
    assert lock.view("getMinDelay") == PRODUCTION.timelock_delay
    assert lock.view("hasRole", proposer, governor)
    assert not lock.view("hasRole", proposer, DEPLOYER)
    sent = rpc.transaction_count(DEPLOYER)
    deploy(sender, rpc, book, PRODUCTION, **options)
    assert rpc.transaction_count(DEPLOYER) == sent
    with pytest.raises(DeploymentDiffers, match="stakes in"):
        deploy(sender, rpc, book, PRODUCTION, **{**options, "token": STRANGER})


def _timelock(contracts: Contracts, address: bytes) -> object:
    from settlement.chain.abi import Interface
    from settlement.chain.contracts import Contract
    from settlement.chain.timelock import timelock_artifact

    interface = Interface(TIMELOCK, timelock_artifact().abi)
    return Contract(contracts.rpc, address, interface, contracts.errors)


@pytest.mark.slow
def test_other_parameters_are_another_deployment(rpc: Rpc, sender: Sender, tmp_path: Path) -> None:
    book = tmp_path / "addresses.json"
    first = deploy(sender, rpc, book, DEVNET)
    longer = replace(DEVNET, slice_length=61)
    with pytest.raises(DeploymentDiffers, match="StakeVault was deployed from other"):
        deploy(sender, rpc, book, longer)
    with pytest.raises(DeploymentDiffers, match="profile devnet"):
        deploy(sender, rpc, book, PRODUCTION)
    second = deploy(sender, rpc, book, longer, fresh=True)
    assert second.vault.address != first.vault.address
    third = deploy(sender, rpc, book, longer, fresh=True)  # the same code, once more
    assert third.vault.address != second.vault.address


@pytest.mark.slow
def test_a_step_left_to_anothers_key_is_told(rpc: Rpc, sender: Sender, tmp_path: Path) -> None:
    book = tmp_path / "addresses.json"
    contracts = deploy(sender, rpc, book, DEVNET)
    owner = contracts.escrow
    sender.send("delist", owner.transact("delistToken", contracts.token.address))
    other = make_sender(rpc, KEYS[1], tmp_path / "other.sqlite")
    with pytest.raises(DeploymentDiffers):
        deploy(other, rpc, book, DEVNET)  # the owner is in the constructors
    sender.send("give", owner.transfer_ownership(STRANGER))
    other.send("take", owner.accept_ownership())
    with pytest.raises(NotOwner, match="list the stake token"):
        deploy(sender, rpc, book, DEVNET)


# ---------------------------------------------------------------- connecting


def test_connecting_checks_what_is_there(anvil: Anvil, deployed: Path) -> None:
    contracts, read = connect(anvil.url, deployed)
    assert contracts.domain.separator == contracts.escrow.domain_separator()
    assert 0 < read.first_block <= contracts.rpc.head().number


def test_another_chain_is_told_apart(deployed: Path) -> None:
    with (
        Anvil(overrides={"chain-id": 5}) as other,
        pytest.raises(WrongChain, match="serves chain 5, expected chain 31337"),
    ):
        connect(other.url, deployed)
    with (
        Anvil(overrides={"timestamp": 1}) as restarted,
        pytest.raises(BookOfAnotherChain, match="--fresh"),
    ):
        connect(restarted.url, deployed)


def test_no_chain_no_book_no_code(anvil: Anvil, deployed: Path, rpc: Rpc, tmp_path: Path) -> None:
    with pytest.raises(NodeUnreachable, match="devnet --serve"):
        connect("http://127.0.0.1:1", deployed)
    with pytest.raises(ConfigError, match=r"scripts/deploy\.py"):
        connect(anvil.url, tmp_path / "none.json")
    escrow = AddressBook.read(deployed).addresses["LaneEscrow"]
    anvil.rpc("anvil_setCode", "0x" + escrow.hex(), "0x6000")
    with pytest.raises(ContractMissing, match="other code than was deployed"):
        connect(anvil.url, deployed)
    anvil.rpc("anvil_setCode", "0x" + escrow.hex(), "0x")
    with pytest.raises(ContractMissing, match="no code there"):
        connect(anvil.url, deployed)
