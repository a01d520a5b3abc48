"""The court on a chain: found in Python, filed, proven, paid; a copy is worth nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from altered_sessions import inflate_record, misname_draft
from counter_contract import KEYS
from deployment import TOKEN, deploy_devnet, make_sender
from played_sessions import DRAFTER, VERIFIER, play

from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Contracts, Role
from settlement.chain.errors import Reverted
from settlement.chain.sender import Sender
from settlement.fault_proofs import Fault
from settlement.faults import find_faults
from settlement.hashing import ZERO32
from settlement.records import Mode, Voucher
from settlement.signing import address_of_key

STAKE = 10**5 * TOKEN
SALT = b"\x05" * 32
_NO_BATCH = (0, ZERO32, bytes(20), 0, 0, 0, 0, 0, ZERO32, (0,) * 10)


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    with Anvil() as chain:
        yield chain


@pytest.fixture(scope="module")
def contracts(anvil: Anvil, tmp_path_factory: pytest.TempPathFactory) -> Contracts:
    folder = tmp_path_factory.mktemp("court")
    contracts = deploy_devnet(anvil, folder)
    rich = make_sender(contracts.rpc, KEYS[0], folder / "rich.sqlite", contracts)
    for name, key, role in (
        ("drafter", DRAFTER, Role.DRAFTER),
        ("verifier", VERIFIER, Role.VERIFIER),
    ):
        operator = address_of_key(key)
        anvil.rpc("anvil_setBalance", "0x" + operator.hex(), hex(10**20))
        rich.send(f"stake:{name}", contracts.token.transfer(operator, STAKE))
        own = make_sender(contracts.rpc, key, folder / f"{name}.sqlite", contracts)
        own.send("approve", contracts.token.approve(contracts.vault.address, STAKE))
        own.send("stake", contracts.vault.stake(operator, operator, role, STAKE))
    return contracts


@pytest.fixture
def chain(anvil: Anvil, contracts: Contracts) -> Iterator[Contracts]:
    with anvil.rolled_back():
        yield contracts


def _challenger(contracts: Contracts, folder: Path, key: bytes) -> Sender:
    sender = make_sender(contracts.rpc, key, folder / f"{key.hex()[:8]}.sqlite", contracts)
    sender.send("approve", contracts.token.approve(contracts.court.address, 10**4 * TOKEN))
    return sender


def _file(contracts: Contracts, sender: Sender, fault: Fault) -> bytes:
    rule = contracts.rule_of(fault)
    question = rule.question(fault, contracts.domain.separator)
    commitment = contracts.court.commitment(question, sender.address, SALT)
    sender.send(f"file:{commitment.hex()}", contracts.court.file(commitment))
    return commitment


def test_a_round_fault_from_records_to_reward(
    anvil: Anvil, chain: Contracts, tmp_path: Path
) -> None:
    session = play(chain.domain, Random(4), Mode.COUPLED, token=chain.token.address)
    altered, _expected = misname_draft(chain.domain, session, Random(1))
    (fault,) = find_faults(chain.domain, session.rounds[0].order.lane, altered.batch())
    assert chain.rule_of(fault).ruling(fault, chain.domain.separator)[0] == 3
    author = _challenger(chain, tmp_path, KEYS[1])
    copier = _challenger(chain, tmp_path, KEYS[2])
    commitment = _file(chain, author, fault)
    filing = chain.court.filing_of(author.address, commitment)
    assert filing.bond == chain.court.bond()
    with pytest.raises(Reverted, match="NotFiled"):
        copier.send("copy", chain.court.prove(fault, SALT))
    anvil.rpc("anvil_mine", hex(2))
    author.send("prove", chain.court.prove(fault, SALT))
    assert chain.vault.slashable(address_of_key(VERIFIER), Role.VERIFIER) == STAKE // 2
    assert chain.vault.slashable(address_of_key(DRAFTER), Role.DRAFTER) == STAKE
    assert chain.court.bond_of(author.address) == filing.bond
    author.send("pull", chain.court.pull_bond(author.address))
    assert chain.court.bond_of(author.address) == 0


def test_a_tree_fault_needs_the_verifiers_voucher(
    anvil: Anvil, chain: Contracts, tmp_path: Path
) -> None:
    session = play(chain.domain, Random(4), Mode.COUPLED, token=chain.token.address)
    altered, _expected = inflate_record(chain.domain, session, Random(2))
    (fault,) = find_faults(chain.domain, session.rounds[0].order.lane, altered.batch())
    voucher = Voucher(fault.lane, 0, 1, 1, 0, 0, ZERO32, fault.root, 1, (0,) * 8)
    source = (voucher.to_abi(), chain.domain.sign(voucher, VERIFIER), _NO_BATCH, b"", 0)
    with pytest.raises(ValueError, match="source"):
        chain.court.prove(fault, SALT)
    author = _challenger(chain, tmp_path, KEYS[1])
    _file(chain, author, fault)
    anvil.rpc("anvil_mine", hex(2))
    forged = (voucher.to_abi(), chain.domain.sign(voucher, DRAFTER), _NO_BATCH, b"", 0)
    with pytest.raises(Reverted, match="NotByVerifier"):
        author.send("forged", chain.court.prove(fault, SALT, forged))
    author.send("prove", chain.court.prove(fault, SALT, source))
    assert chain.vault.slashable(address_of_key(VERIFIER), Role.VERIFIER) == STAKE // 2


def test_an_honest_round_is_told_before_it_costs_a_bond(chain: Contracts) -> None:
    session = play(chain.domain, Random(4), Mode.COUPLED, token=chain.token.address)
    altered, _expected = misname_draft(chain.domain, session, Random(1))
    (fault,) = find_faults(chain.domain, session.rounds[0].order.lane, altered.batch())
    # Signed for another chain: the domain is part of what is asked.
    elsewhere = replace(chain.domain, chain_id=5)
    with pytest.raises(Reverted, match="NotSignedBy"):
        chain.rule_of(fault).ruling(fault, elsewhere.separator)
