"""One sender per key: every intent is mined once, whatever happens between its steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from counter_contract import KEYS, Counter
from eth_account import Account
from sender_child import run_child

from settlement.chain.anvil import Anvil
from settlement.chain.errors import NodeUnreachable, Reverted
from settlement.chain.fees import GWEI, FeeCapReached, FeePolicy
from settlement.chain.rpc import Rpc
from settlement.chain.send_journal import (
    Call,
    IntentConflict,
    JournalMismatch,
    SqliteSendJournal,
)
from settlement.chain.sender import InsufficientFunds, NotMined, Sender, SenderClosed
from settlement.signing import address_of_key


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    with Anvil() as chain:
        yield chain


@pytest.fixture(scope="module")
def counter(anvil: Anvil, tmp_path_factory: pytest.TempPathFactory) -> Counter:
    rpc = Rpc.connect(anvil.url)
    with SqliteSendJournal(tmp_path_factory.mktemp("deploy") / "sends.sqlite") as journal:
        mined = Sender(rpc, KEYS[0], journal, poll_seconds=0.01).send("new", Counter.creation())
    assert mined.contract is not None
    return Counter(rpc, mined.contract)


@pytest.fixture(autouse=True)
def isolated(anvil: Anvil, counter: Counter) -> Iterator[None]:
    with anvil.rolled_back():
        yield
    anvil.automine(True)
    # Anvil keeps the next block's base fee over a revert.
    anvil.rpc("anvil_setNextBlockBaseFeePerGas", hex(GWEI // 2))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteSendJournal]:
    with SqliteSendJournal(tmp_path / "sends.sqlite") as kept:
        yield kept


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def make_sender(counter: Counter, journal: SqliteSendJournal, **options: object) -> Sender:
    settings = {"finality": 2, "poll_seconds": 0.01, **options}
    return Sender(counter.rpc, KEYS[1], journal, errors=counter.errors, **settings)


ADDRESS = address_of_key(KEYS[1])


def test_fifty_concurrent_sends_are_mined_once_each(
    anvil: Anvil, counter: Counter, journal: SqliteSendJournal
) -> None:
    sender = make_sender(counter, journal)
    names = [f"lane-{i}" for i in range(50)]
    before = counter.rpc.transaction_count(ADDRESS)
    anvil.automine(False)  # so that the chain's own count says nothing about the next nonce
    # Every intent from two threads at once: the second finds the first.
    with ThreadPoolExecutor(50) as pool:
        list(pool.map(lambda name: sender.submit(name, counter.hit(name)), names * 2))
        anvil.mine()
        results = list(pool.map(sender.wait, names * 2))
    assert all(mined.ok for mined in results)
    assert [counter.hits(name) for name in names] == [1] * 50
    assert counter.rpc.transaction_count(ADDRESS) - before == 50


def test_killed_once_its_bytes_are_journalled_it_sends_those(
    anvil: Anvil, counter: Counter, tmp_path: Path
) -> None:
    # For every step, with real vouchers: test_sender_vouchers.
    calls = {name: counter.hit(name) for name in ("a", "b")}
    before = counter.rpc.transaction_count(ADDRESS)
    # The second time round the first intent is already under way.
    killed = run_child(anvil.url, KEYS[1], tmp_path, calls, "journalled", 2)
    assert killed.returncode == -9, killed.stderr
    with SqliteSendJournal(tmp_path / "sends.sqlite") as kept:
        (unsent,) = kept.find("b").attempts
    survived = run_child(anvil.url, KEYS[1], tmp_path, calls, "never", 1)
    assert survived.stdout == "done\n", survived.stderr
    with SqliteSendJournal(tmp_path / "sends.sqlite") as kept:
        assert kept.find("b").attempts == (unsent,)
        assert kept.find("b").result.hash == unsent.hash
    assert [counter.hits(name) for name in calls] == [1, 1]
    assert counter.rpc.transaction_count(ADDRESS) - before == 2


def test_what_a_reorganisation_drops_is_sent_again(
    anvil: Anvil, counter: Counter, journal: SqliteSendJournal
) -> None:
    sender = make_sender(counter, journal, finality=6)
    first = sender.send("a", counter.hit("a"))
    sender.send("b", counter.hit("b"))
    anvil.reorg(2)
    assert (counter.hits("a"), counter.hits("b")) == (0, 0)
    again = sender.wait("a")
    sender.wait("b")
    assert again.hash == first.hash  # the same bytes
    assert again.block_hash != first.block_hash
    assert (counter.hits("a"), counter.hits("b")) == (1, 1)
    anvil.mine(6)
    assert sender.tend() == 0


def test_wait_for_more_confirmations_outlives_a_reorganisation(
    anvil: Anvil, counter: Counter, journal: SqliteSendJournal
) -> None:
    sender = make_sender(counter, journal, finality=10)
    sender.send("a", counter.hit("a"))
    with pytest.raises(NotMined):
        sender.wait("a", confirmations=3, timeout=0.05)
    anvil.reorg(1)
    waiter = threading.Thread(target=sender.wait, args=("a",), kwargs={"confirmations": 3})
    waiter.start()
    while counter.hits("a") == 0:
        pass
    anvil.mine(2)
    waiter.join(10)
    assert not waiter.is_alive()
    assert counter.hits("a") == 1


def test_a_stuck_transaction_is_replaced_under_the_cap(
    anvil: Anvil, counter: Counter, journal: SqliteSendJournal
) -> None:
    clock = Clock()
    policy = FeePolicy(cap=50 * GWEI, priority=GWEI, replace_after=30)
    sender = make_sender(counter, journal, fees=policy, clock=clock)
    anvil.automine(False)
    sender.submit("a", counter.hit("a"))
    clock.now += 29
    sender.tend()
    assert len(journal.find("a").attempts) == 1  # not overdue yet
    clock.now += 2
    sender.tend()
    attempts = journal.find("a").attempts
    assert len(attempts) == 2
    assert attempts[1].fees.max_fee <= policy.cap
    anvil.mine()
    assert sender.wait("a").hash == attempts[1].hash
    assert counter.hits("a") == 1


def test_an_underpriced_answer_raises_the_bid_at_once_but_never_over_the_cap(
    anvil: Anvil, counter: Counter, journal: SqliteSendJournal
) -> None:
    policy = FeePolicy(cap=40 * GWEI, priority=GWEI)
    base_fee = 0

    def raise_base_fee(step: str) -> None:
        # Between journal and send the chain grows dear: the node refuses the bytes.
        if step == "journalled" and base_fee:
            anvil.rpc("anvil_setNextBlockBaseFeePerGas", hex(base_fee))
            anvil.mine()

    sender = make_sender(counter, journal, fees=policy, at_step=raise_base_fee)
    base_fee = 20 * GWEI
    sender.submit("a", counter.hit("a"))
    base_fee = 0
    assert sender.wait("a", timeout=20).ok
    attempts = journal.find("a").attempts
    assert len(attempts) >= 2
    assert max(attempt.fees.max_fee for attempt in attempts) <= policy.cap
    assert counter.hits("a") == 1

    anvil.rpc("anvil_setNextBlockBaseFeePerGas", hex(60 * GWEI))
    anvil.mine()
    with pytest.raises(FeeCapReached) as refused:
        sender.submit("b", counter.hit("b"))
    assert refused.value.needed > policy.cap
    assert journal.find("b") is None


def test_a_strangers_transaction_under_our_nonce_only_costs_time(
    anvil: Anvil, counter: Counter, journal: SqliteSendJournal
) -> None:
    sender = make_sender(counter, journal, finality=3, lag_seconds=0.2)
    anvil.automine(False)
    sender.submit("a", counter.hit("a"))
    ours = journal.find("a").newest
    # Another program with the same key outbids us.
    stranger = Account.sign_transaction(
        {
            "chainId": 31337,
            "nonce": ours.nonce,
            "to": counter.address,
            "data": counter.hit("foreign").data,
            "gas": 100_000,
            "maxFeePerGas": 100 * GWEI,
            "maxPriorityFeePerGas": 90 * GWEI,
        },
        KEYS[1],
    )
    counter.rpc.request("eth_sendRawTransaction", "0x" + stranger.raw_transaction.hex())
    anvil.mine()
    assert counter.hits("foreign") == 1
    sender.tend()
    assert journal.find("a").nonce == ours.nonce  # a reorganisation could still give it back
    anvil.mine(2)
    sender.tend()
    assert journal.find("a").nonce == ours.nonce  # our own receipt could still be on its way
    time.sleep(0.3)
    sender.tend()
    assert journal.find("a").nonce == ours.nonce + 1
    anvil.mine()
    sender.wait("a")
    assert counter.hits("a") == 1


def test_a_receipt_that_comes_after_the_nonce_counts_is_waited_for(
    counter: Counter, journal: SqliteSendJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As anvil may show it in the middle of a block: used, and no receipt yet."""
    sender = make_sender(counter, journal, finality=1)
    before, real, asked = counter.rpc.transaction_count(ADDRESS), Rpc.receipt, 0

    def late(self: Rpc, transaction: bytes) -> Any:
        nonlocal asked
        asked += 1
        return None if asked <= 5 else real(self, transaction)

    monkeypatch.setattr(Rpc, "receipt", late)
    mined = sender.send("a", counter.hit("a"))
    assert asked > 5
    assert mined.ok
    assert counter.hits("a") == 1
    assert counter.rpc.transaction_count(ADDRESS) == before + 1


def test_a_doubt_about_a_nonce_ends_when_a_reorganisation_frees_it(
    anvil: Anvil, counter: Counter, journal: SqliteSendJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = make_sender(counter, journal, finality=1, lag_seconds=0.2)
    anvil.automine(False)
    sender.submit("a", counter.hit("a"))
    nonce, used = journal.find("a").nonce, True
    monkeypatch.setattr(Rpc, "receipt", lambda self, transaction: None)
    monkeypatch.setattr(Rpc, "transaction_count", lambda *call: nonce + used)
    sender.tend()
    used = False
    sender.tend()
    time.sleep(0.3)
    used = True
    sender.tend()
    assert journal.find("a").nonce == nonce
    time.sleep(0.3)
    sender.tend()
    assert journal.find("a").nonce == nonce + 1  # this time it lasted
    anvil.automine(True)


def test_a_dead_node_stops_nothing_for_good(
    counter: Counter, journal: SqliteSendJournal, anvil: Anvil
) -> None:
    sender = make_sender(counter, journal)
    real = counter.rpc.request
    dead = True

    def flaky(method: str, *params: object) -> object:
        if dead and method == "eth_sendRawTransaction":
            raise NodeUnreachable(anvil.url, "connection refused")
        return real(method, *params)

    sender._rpc = Rpc(anvil.url)
    sender._rpc.request = flaky  # type: ignore[method-assign]
    sender.submit("a", counter.hit("a"))
    with pytest.raises(NotMined, match="connection refused"):
        sender.wait("a", timeout=0.05)
    dead = False
    sender.wait("a", timeout=10)
    assert counter.hits("a") == 1


def test_a_call_that_would_fail_is_named_and_not_sent(
    counter: Counter, journal: SqliteSendJournal
) -> None:
    sender = make_sender(counter, journal)
    with pytest.raises(Reverted, match=r"Counter.spend reverted: TooMuch\(asked=1001") as refused:
        sender.submit("a", counter.spend(1001))
    assert refused.value.name == "TooMuch"
    assert refused.value.arguments == {"asked": 1001, "limit": 1000, "by": ADDRESS}
    assert journal.find("a") is None


def test_a_call_that_fails_only_in_its_block_raises_the_contracts_error(
    anvil: Anvil, counter: Counter, journal: SqliteSendJournal, tmp_path: Path
) -> None:
    sender = make_sender(counter, journal)
    anvil.automine(False)
    sender.submit("a", counter.spend(900))
    with SqliteSendJournal(tmp_path / "other.sqlite") as other_journal:
        dear = FeePolicy(priority=20 * GWEI)  # goes first in the block
        other = Sender(counter.rpc, KEYS[2], other_journal, fees=dear, poll_seconds=0.01)
        other.submit("limit", counter.set_limit(5))
        anvil.mine()
        other.wait("limit")
    anvil.mine()
    with pytest.raises(Reverted) as failed:
        sender.wait("a")
    assert failed.value.where.startswith("Counter.spend")
    assert counter.total == 0


def test_an_intent_means_one_call(counter: Counter, journal: SqliteSendJournal) -> None:
    sender = make_sender(counter, journal)
    first = sender.submit("a", counter.hit("a"))
    assert sender.submit("a", counter.hit("a")) == first
    with pytest.raises(IntentConflict, match="intent a"):
        sender.submit("a", counter.hit("b"))


def test_an_empty_purse_is_told_before_anything_is_journalled(
    anvil: Anvil, counter: Counter, journal: SqliteSendJournal
) -> None:
    anvil.set_balance(ADDRESS, 1000)
    with pytest.raises(InsufficientFunds) as refused:
        make_sender(counter, journal).submit("a", counter.hit("a"))
    assert refused.value.balance == 1000
    assert journal.find("a") is None


def test_a_journal_serves_one_key_on_one_chain(
    counter: Counter, journal: SqliteSendJournal
) -> None:
    make_sender(counter, journal)
    with pytest.raises(JournalMismatch, match="key"):
        Sender(counter.rpc, KEYS[2], journal)
    with (
        Anvil(overrides={"timestamp": 1}) as other,
        pytest.raises(JournalMismatch, match="genesis"),
    ):
        Sender(Rpc.connect(other.url), KEYS[1], journal)


def test_two_senders_of_one_journal_do_not_share_a_nonce(
    counter: Counter, journal: SqliteSendJournal
) -> None:
    # A daemon and a command line tool use the key at the same time.
    with SqliteSendJournal(journal.path) as second:
        senders = [make_sender(counter, journal), make_sender(counter, second)]
        names = [f"n{i}" for i in range(10)]
        with ThreadPoolExecutor(10) as pool:
            list(
                pool.map(lambda i: senders[i % 2].send(names[i], counter.hit(names[i])), range(10))
            )
    assert [counter.hits(name) for name in names] == [1] * 10


def test_closing_ends_a_wait(anvil: Anvil, counter: Counter, journal: SqliteSendJournal) -> None:
    sender = make_sender(counter, journal)
    anvil.automine(False)
    sender.submit("a", counter.hit("a"))
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            sender.wait("a", timeout=60)
        except SenderClosed as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    sender.close()
    thread.join(5)
    assert len(failures) == 1


def test_legacy_chains_are_paid_by_gas_price(tmp_path: Path) -> None:
    with (
        Anvil(overrides={"hardfork": "berlin"}) as old,
        SqliteSendJournal(tmp_path / "sends.sqlite") as journal,
    ):
        sender = Sender(Rpc.connect(old.url), KEYS[1], journal, poll_seconds=0.01)
        call = Call(address_of_key(KEYS[2]), b"", 5)
        assert sender.send("gift", call).ok
        assert (
            old.rpc("eth_getTransactionByHash", "0x" + journal.find("gift").newest.hash.hex())[
                "type"
            ]
            == "0x0"
        )
