"""Deploy the contracts and tie them together. What is done already is left alone.

Three things make a second run, or one after a crash, do only what is missing: the address book
(written after each contract), the key's journal (an intent is sent once) and the contracts
themselves, which are asked whether a step is done before it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final

from settlement.chain.abi import Interface
from settlement.chain.address_book import AddressBook, Entry
from settlement.chain.compile import Artifact, Artifacts, compile_contracts
from settlement.chain.contracts import Contracts, Owned
from settlement.chain.errors import ChainError, ContractMissing
from settlement.chain.parameters import Parameters
from settlement.chain.rpc import Rpc
from settlement.chain.send_journal import Call
from settlement.chain.sender import Sender
from settlement.chain.timelock import TIMELOCK, hand_over, timelock_artifact
from settlement.hashing import ZERO32, keccak256

# Stake units per unit of the stake token itself, in Q32.
_PAR: Final = 1 << 32
Progress = Callable[[str], None]


class DeploymentDiffers(ChainError):
    """The book's deployment was made from other code or parameters."""

    hint = (
        "Contracts are never changed in place: deploy a new set with `--fresh` (the old one stays "
        "where it is), or go back to the sources and parameters it was made from"
    )


class NotOwner(ChainError):
    """A step is left to do that only the owner may take, and that is another account."""

    hint = "Run with the owner's key, or send the call through the timelock"


@dataclass(frozen=True)
class Addresses:
    """Known so far, by contract name."""

    of: dict[str, bytes]

    def __getitem__(self, name: str) -> bytes:
        return self.of[name]


@dataclass(frozen=True)
class _Creation:
    """A contract to create: its constructor's arguments follow from those before it."""

    name: str
    artifact: Artifact
    arguments: Callable[[Addresses], tuple[Any, ...]]


def _creations(
    artifacts: Artifacts, parameters: Parameters, owner: bytes, guardian: bytes, with_token: bool
) -> Iterator[_Creation]:
    """In an order in which each finds its constructor's addresses."""
    if with_token:
        yield _Creation("Token", artifacts.require("DevToken"), lambda _: (owner,))

    def make(name: str, arguments: Callable[[Addresses], tuple[Any, ...]]) -> _Creation:
        return _Creation(name, artifacts.require(name), arguments)

    yield make("ModelRegistry", lambda _: (owner,))
    yield make(
        "StakeVault",
        lambda known: (
            owner,
            guardian,
            known["Token"],
            known["ModelRegistry"],
            parameters.slice_length,
            astuple(parameters.times),
        ),
    )
    yield make(
        "LaneEscrow",
        lambda known: (owner, guardian, known["StakeVault"], astuple(parameters.escrow)),
    )
    yield make(
        "AlphaLedger",
        lambda known: (
            owner,
            known["StakeVault"],
            known["ModelRegistry"],
            parameters.ledger.to_abi(),
        ),
    )
    yield make("OpeningRule", lambda _: ())
    yield make(
        "DrawBeacon",
        lambda known: (
            owner,
            known["StakeVault"],
            known["OpeningRule"],
            parameters.beacon.to_abi(),
        ),
    )
    yield make("RoundRule", lambda _: ())
    yield make("TreeRule", lambda _: ())
    yield make(
        "FaultCourt",
        lambda known: (
            owner,
            known["StakeVault"],
            known["LaneEscrow"],
            known["DrawBeacon"],
            known["RoundRule"],
            known["TreeRule"],
            astuple(parameters.court),
        ),
    )
    yield make("ExactRule", lambda _: ())
    yield make(
        "ExactDispute",
        lambda known: (
            owner,
            known["StakeVault"],
            known["LaneEscrow"],
            known["ExactRule"],
            astuple(parameters.court),
        ),
    )
    yield make(
        "EvidenceDemands",
        lambda known: (
            owner,
            known["StakeVault"],
            known["LaneEscrow"],
            known["DrawBeacon"],
            known["OpeningRule"],
            parameters.demands.to_abi(),
        ),
    )
    yield make(
        "SessionDemands",
        lambda known: (
            owner,
            known["StakeVault"],
            known["LaneEscrow"],
            known["DrawBeacon"],
            parameters.demands.to_abi(),
        ),
    )
    yield from _auditing(make, parameters, owner)
    if parameters.timelock_delay:
        # Opens without delay for the one batch that hands everything over; see `timelock`.
        yield _Creation(
            TIMELOCK, timelock_artifact(), lambda _: (0, [owner], [bytes(20)], bytes(20))
        )


def _auditing(
    make: Callable[[str, Callable[[Addresses], tuple[Any, ...]]], _Creation],
    parameters: Parameters,
    owner: bytes,
) -> Iterator[_Creation]:
    """Auditors, juries and what they judge."""
    panel, audits = parameters.panel, parameters.audits

    def of(*names: str) -> Callable[[Addresses], tuple[Any, ...]]:
        return lambda known: tuple(known[name] for name in names)

    yield make("AuditorPool", lambda known: (owner, known["StakeVault"], panel.min_stake))
    yield make(
        "Juries",
        lambda known: (owner, known["StakeVault"], known["AuditorPool"], panel.juries_abi()),
    )
    yield make(
        "PanelTerms",
        lambda known: (owner, known["StakeVault"], known["DrawBeacon"], panel.terms_abi()),
    )
    yield make("PlaceRule", of("LaneEscrow", "DrawBeacon", "AlphaLedger"))
    shared = ("StakeVault", "LaneEscrow")
    yield make("AuditPanel", of(*shared, "ModelRegistry", "PlaceRule", "Juries", "PanelTerms"))
    yield make("ClaimJudge", of("AuditPanel", "AlphaLedger"))
    yield make("JurorDemands", of("StakeVault", "AuditPanel", "Juries", "SessionDemands"))
    yield make("AuditTerms", lambda known: (owner, known["DrawBeacon"], audits.to_abi()))
    yield make(
        "SampleAudits",
        of(
            *shared,
            "DrawBeacon",
            "ModelRegistry",
            "PlaceRule",
            "Juries",
            "AuditPanel",
            "AuditTerms",
        ),
    )


@dataclass(frozen=True)
class _Step:
    """A transaction that ties contracts together, and how to see that it has happened."""

    name: str
    contract: Owned
    is_done: Callable[[], bool]
    call: Callable[[], Call]


def _wiring(contracts: Contracts) -> Iterator[_Step]:
    vault, escrow = contracts.vault, contracts.escrow
    ledger, beacon = contracts.ledger, contracts.beacon
    token = contracts.token.address
    yield _Step(
        "vault to escrow and beacon",
        vault,
        lambda: vault.escrow() == escrow.address,
        lambda: vault.wire(escrow.address, beacon.address),
    )
    yield _Step(
        "escrow to ledger and beacon",
        escrow,
        lambda: escrow.ledger() == ledger.address,
        lambda: escrow.wire(ledger.address, beacon.address),
    )
    for counterpart in (ledger, beacon):
        yield _Step(
            f"{counterpart.interface.name} to escrow",
            counterpart,
            lambda it=counterpart: it.escrow() == escrow.address,  # type: ignore[misc]
            lambda it=counterpart: it.wire(escrow.address),  # type: ignore[misc]
        )
    yield _Step(
        "list the stake token",
        escrow,
        lambda: escrow.is_open(token),
        lambda: escrow.list_token(token, _PAR),
    )
    yield _Step(
        "beacon may spend fees",
        escrow,
        lambda: escrow.is_fee_spender(beacon.address),
        lambda: escrow.set_fee_spender(beacon.address, True),
    )
    courts = (contracts.court, contracts.exact_dispute)
    for judge in (ledger, beacon, *courts, contracts.demands, contracts.session_demands):
        yield _Step(
            f"{judge.interface.name} may slash",
            vault,
            lambda it=judge: vault.is_slasher(it.address),  # type: ignore[misc]
            lambda it=judge: vault.set_slasher(it.address, True),  # type: ignore[misc]
        )


def _wiring_auditors(contracts: Contracts, parameters: Parameters) -> Iterator[_Step]:
    """Who may summon juries, slash and spend; what they are paid; whose word the ledger takes."""
    vault, escrow, ledger = contracts.vault, contracts.escrow, contracts.ledger
    juries, panel, audits = contracts.juries, contracts.panel, contracts.audits
    panel_terms, audit_terms = contracts.panel_terms, contracts.audit_terms
    token = contracts.token.address
    for judge in (juries, panel, audits):
        yield _Step(
            f"{judge.interface.name} may slash",
            vault,
            lambda it=judge: vault.is_slasher(it.address),  # type: ignore[misc]
            lambda it=judge: vault.set_slasher(it.address, True),  # type: ignore[misc]
        )
    for court in (panel, audits):
        yield _Step(
            f"{court.interface.name} may summon",
            juries,
            lambda it=court: juries.is_court(it.address),  # type: ignore[misc]
            lambda it=court: juries.set_court(it.address, True),  # type: ignore[misc]
        )
        yield _Step(
            f"{court.interface.name} may spend fees",
            escrow,
            lambda it=court: escrow.is_fee_spender(it.address),  # type: ignore[misc]
            lambda it=court: escrow.set_fee_spender(it.address, True),  # type: ignore[misc]
        )
    yield _Step(
        "audits may refer canaries",
        panel_terms,
        lambda: panel_terms.is_referrer(audits.address),
        lambda: panel_terms.set_referrer(audits.address, True),
    )
    least = parameters.least_stake
    yield _Step(
        "what stake settles a fault",
        vault,
        lambda: vault.least_stake() == least,
        lambda: vault.set_least_stake(least),
    )
    yield _Step(
        "vault to the panel's clock",
        vault,
        lambda: vault.clock() == panel_terms.address,
        lambda: vault.set_clock(panel_terms.address),
    )
    yield _Step(
        "ledger to the panel's word",
        ledger,
        lambda: ledger.is_judge(contracts.claim_judge.address),
        lambda: ledger.set_judge(contracts.claim_judge.address, True),
    )
    demands, readers = contracts.session_demands, contracts.juror_demands
    yield _Step(
        "jurors may demand sessions",
        demands,
        lambda: demands.is_reader(readers.address),
        lambda: demands.set_reader(readers.address, True),
    )
    juror, auditor = parameters.panel.fee, parameters.audits.fee
    yield _Step(
        "jurors' fee",
        panel_terms,
        lambda: panel_terms.fee_of(token) == juror,
        lambda: panel_terms.set_fee(token, juror),
    )
    yield _Step(
        "auditors' fee",
        audit_terms,
        lambda: audit_terms.fee_of(token) == auditor,
        lambda: audit_terms.set_fee(token, auditor),
    )


def deploy(
    sender: Sender,
    rpc: Rpc,
    book_path: Path,
    parameters: Parameters,
    *,
    token: bytes | None = None,
    guardian: bytes | None = None,
    governor: bytes | None = None,
    fresh: bool = False,
    progress: Progress = lambda _line: None,
    artifacts: Artifacts | None = None,
) -> Contracts:
    """Bring the deployment of `book_path` to completion and return its wrappers.

    `token`: an ERC-20 to stake and pay in; None deploys DevToken. `guardian` may pause; `governor`
    proposes to the timelock; both default to the sender. Raises DeploymentDiffers, WrongChain,
    BookOfAnotherChain, NotOwner and what the sender raises; a later run goes on from there.
    """
    progress("compiling")
    artifacts = artifacts or compile_contracts()
    book = _open_book(rpc, book_path, parameters, fresh)
    book.write(book_path)
    owner = sender.address
    if token is not None and "Token" not in book.contracts:
        book = book.with_entry("Token", _existing(rpc, token))
        book.write(book_path)
    if token is not None and book.contracts["Token"].address != token:
        raise DeploymentDiffers(f"{book_path} stakes in 0x{book.contracts['Token'].address.hex()}")
    for creation in _creations(artifacts, parameters, owner, guardian or owner, token is None):
        book = _create(sender, rpc, book, creation, progress)
        book.write(book_path)
    contracts = Contracts.at(rpc, book.addresses, artifacts)
    for step in (*_wiring(contracts), *_wiring_auditors(contracts, parameters)):
        if step.is_done():
            continue
        _require_owner(step.contract, owner, step.name)
        progress(step.name)
        sender.send(f"wire:{book.deployment}:{step.name}", step.call())
    if parameters.timelock_delay:
        hand_over(
            sender,
            contracts,
            book.addresses[TIMELOCK],
            governor or owner,
            parameters.timelock_delay,
            book.deployment,
            progress,
        )
    progress(f"deployed; addresses in {book_path}")
    return contracts


def connect(
    url: str, book_path: Path, artifacts: Artifacts | None = None
) -> tuple[Contracts, AddressBook]:
    """The deployed contracts of an address book, after seeing that they are there: chain id,
    genesis and each contract's code. Raises ConfigError, WrongChain, ContractMissing,
    NodeUnreachable."""
    book = AddressBook.read(book_path)
    rpc = Rpc.connect(url)
    book.check_chain(rpc)
    for name in book.contracts:
        book.check_code(rpc, name)
    return Contracts.at(rpc, book.addresses, artifacts or compile_contracts()), book


def _open_book(rpc: Rpc, path: Path, parameters: Parameters, fresh: bool) -> AddressBook:
    if path.exists() and not fresh:
        book = AddressBook.read(path)
        book.check_chain(rpc)
        if book.profile != parameters.name:
            raise DeploymentDiffers(f"{path} has profile {book.profile}, not {parameters.name}")
        return book
    genesis = rpc.header(0)
    return AddressBook(rpc.chain_id, ZERO32 if genesis is None else genesis.hash, parameters.name)


def _existing(rpc: Rpc, address: bytes) -> Entry:
    code = rpc.code(address)
    if not code:
        raise ContractMissing("Token", address, "no code there")
    return Entry(address, keccak256(code), ZERO32, rpc.head().number)


def _create(
    sender: Sender, rpc: Rpc, book: AddressBook, creation: _Creation, progress: Progress
) -> AddressBook:
    interface = Interface(creation.name, creation.artifact.abi)
    arguments = interface.encode_constructor(*creation.arguments(Addresses(book.addresses)))
    initcode = bytes.fromhex(creation.artifact.bytecode) + arguments
    initcode_hash = keccak256(initcode)
    known = book.contracts.get(creation.name)
    if known is not None:
        if known.initcode_hash != initcode_hash:
            raise DeploymentDiffers(f"{creation.name} was deployed from other code or parameters")
        book.check_code(rpc, creation.name)
        return book
    progress(f"creating {creation.name}")
    intent = f"create:{book.deployment}:{creation.name}:{initcode_hash.hex()}"
    mined = sender.send(intent, Call(None, initcode, where=f"{creation.name} constructor"))
    assert mined.contract is not None
    code = rpc.code(mined.contract)
    return book.with_entry(
        creation.name, Entry(mined.contract, keccak256(code), initcode_hash, mined.block_number)
    )


def _require_owner(contract: Owned, account: bytes, step: str) -> None:
    owner = contract.owner()
    if owner != account:
        raise NotOwner(
            f"{step}: {contract.interface.name} is owned by 0x{owner.hex()}, "
            f"not by 0x{account.hex()}"
        )
