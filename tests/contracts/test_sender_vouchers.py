"""Real vouchers through the sender: each settles once, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from counter_contract import KEYS
from deployment import CLIENT, TOKEN, VERIFIER, Book, deploy_devnet, fresh_position, make_sender
from deployment import open_lane as open_lane_and_stakes
from sender_child import run_child

from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Contracts
from settlement.chain.events import LaneSettled
from settlement.chain.fees import GWEI, FeePolicy
from settlement.chain.indexer import Indexer, IndexStore
from settlement.chain.lanes import groups_of
from settlement.chain.send_journal import Call, SqliteSendJournal
from settlement.chain.sender import Sender
from settlement.hashing import ZERO32, keccak256
from settlement.records import Lane
from settlement.signing import address_of_key

LANES = 50
ME = address_of_key(VERIFIER)


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    with Anvil() as chain:
        yield chain


@pytest.fixture(scope="module")
def contracts(anvil: Anvil, tmp_path_factory: pytest.TempPathFactory) -> Contracts:
    return deploy_devnet(anvil, tmp_path_factory.mktemp("deployment"))


class Work:
    """Lanes of one client and one verifier with as many drafters, each with a signed voucher."""

    def __init__(self, contracts: Contracts, folder: Path) -> None:
        self.contracts = contracts
        open_lane_and_stakes(contracts, folder)
        client = make_sender(contracts.rpc, CLIENT, folder / "reserves.sqlite", contracts)
        token, escrow = contracts.token, contracts.escrow
        client.send("approve", token.approve(escrow.address, LANES * 100 * TOKEN))
        position = fresh_position(contracts)
        self.calls: dict[str, Call] = {}
        self.due = 0
        for index in range(LANES):
            key = keccak256(b"drafter", bytes([index]))
            lane = Lane(client.address, address_of_key(key), ME, token.address, ZERO32)
            client.submit(f"reserve {index}", escrow.reserve(lane, 100 * TOKEN))
            book = Book(lane, drafter_key=key)
            book.serve(f"lane {index}", output=32 + index)
            signed = book.sign(contracts)
            intent = f"settle:{lane.id.hex()}:{signed.voucher.root.hex()}"
            self.calls[intent] = escrow.settle(token.address, groups_of([(signed, position)]))
            self.due += book.due_verifier
        for index in range(LANES):
            client.wait(f"reserve {index}")

    def some(self, count: int) -> dict[str, Call]:
        return dict(list(self.calls.items())[:count])

    def settled(self, folder: Path) -> list[bytes]:
        """Lanes in LaneSettled events of the chain as it is now."""
        lanes: list[bytes] = []
        with IndexStore(folder / "check.sqlite") as store:
            Indexer(self.contracts.rpc, [self.contracts.escrow], store).catch_up(
                lambda batch: lanes.extend(
                    event.event.lane
                    for event in batch.events
                    if isinstance(event.event, LaneSettled)
                )
            )
        return lanes


@pytest.fixture(scope="module")
def prepared(contracts: Contracts, tmp_path_factory: pytest.TempPathFactory) -> Work:
    return Work(contracts, tmp_path_factory.mktemp("work"))


@pytest.fixture
def work(anvil: Anvil, prepared: Work) -> Iterator[Work]:
    with anvil.rolled_back():
        yield prepared
    anvil.automine(True)
    anvil.rpc("anvil_setNextBlockBaseFeePerGas", hex(GWEI // 2))


@pytest.fixture
def sender(work: Work, tmp_path: Path) -> Iterator[Sender]:
    with SqliteSendJournal(tmp_path / "sends.sqlite") as journal:
        yield Sender(
            work.contracts.rpc,
            VERIFIER,
            journal,
            errors=work.contracts.errors,
            finality=200,
            poll_seconds=0.02,
        )


def settle_all(sender: Sender, calls: dict[str, Call]) -> None:
    with ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(lambda intent: sender.send(intent, calls[intent]), calls))


def test_fifty_vouchers_at_once(work: Work, sender: Sender, tmp_path: Path) -> None:
    before = work.contracts.rpc.transaction_count(ME)
    settle_all(sender, work.calls)
    lanes = work.settled(tmp_path)
    assert len(lanes) == len(set(lanes)) == LANES
    assert work.contracts.rpc.transaction_count(ME) - before == LANES
    assert work.contracts.escrow.payable_to(ME, work.contracts.token.address) == work.due


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 7, 20])
def test_vouchers_that_a_reorganisation_drops_settle_again(
    depth: int, anvil: Anvil, work: Work, sender: Sender, tmp_path: Path
) -> None:
    calls = work.some(20)
    settle_all(sender, calls)
    anvil.reorg(depth)
    assert len(work.settled(tmp_path)) < 20
    settle_all(sender, calls)
    (tmp_path / "check.sqlite").unlink()
    lanes = work.settled(tmp_path)
    assert len(lanes) == len(set(lanes)) == 20


@pytest.mark.slow
def test_vouchers_priced_out_of_the_block_settle_once(
    anvil: Anvil, work: Work, tmp_path: Path
) -> None:
    calls = work.some(5)
    policy = FeePolicy(cap=100 * GWEI, replace_after=0.2)
    with SqliteSendJournal(tmp_path / "sends.sqlite") as journal:
        sender = Sender(work.contracts.rpc, VERIFIER, journal, fees=policy, poll_seconds=0.02)
        anvil.automine(False)
        for intent, call in calls.items():
            sender.submit(intent, call)
        bids = [journal.find(intent).newest.fees.max_fee for intent in calls]
        anvil.rpc("anvil_setNextBlockBaseFeePerGas", hex(3 * max(bids)))
        anvil.mine()
        assert work.settled(tmp_path) == []
        anvil.automine(True)
        for intent in calls:
            sender.wait(intent, timeout=30)
        attempts = [journal.find(intent).attempts for intent in calls]
    assert all(len(tries) > 1 for tries in attempts)
    (tmp_path / "check.sqlite").unlink()
    lanes = work.settled(tmp_path)
    assert len(lanes) == len(set(lanes)) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", ["simulated", "signed", "journalled", "sent", "confirmed", "finished"]
)
def test_vouchers_settle_once_over_a_kill(
    step: str, anvil: Anvil, work: Work, tmp_path: Path
) -> None:
    calls = work.some(3)
    before = work.contracts.rpc.transaction_count(ME)
    for nth in (1, 2):  # killed twice, at the same step of different vouchers
        killed = run_child(anvil.url, KEYS[2], tmp_path, calls, step, nth)
        assert killed.returncode == -9, killed.stderr
    survived = run_child(anvil.url, KEYS[2], tmp_path, calls, "never", 1)
    assert survived.stdout == "done\n", survived.stderr
    lanes = work.settled(tmp_path)
    assert len(lanes) == len(set(lanes)) == 3
    assert work.contracts.rpc.transaction_count(ME) - before == 3
