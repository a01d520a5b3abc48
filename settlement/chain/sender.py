"""The one sender of a key's transactions: simulate → sign → journal → send → confirm.

Every transaction carries out an *intent*, named by the caller after what it means
(`settle:<lane>:<root>`). An intent is carried out once: asking again, from another thread or after
a crash, finds the first one. The journal holds the signed bytes before the network sees them and
nothing but those bytes (or a replacement under the same nonce) is ever sent for the intent, so
however often they are sent they are mined once.

What ends a send early and what the next `tend` makes of it:

    killed before the journal   nothing was sent; the caller's next submit starts afresh
    killed after it             the same bytes are sent (again)
    fell out in a reorg         the same bytes are sent again, until `finality` blocks lie on top
    priced out                  a replacement bids more, up to the policy's cap
    nonce taken by a stranger   once that is final, the intent gets another nonce

All methods block and may be called from any thread; a trio program calls them in a worker thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from eth_account import Account

from settlement.chain.abi import ErrorBook
from settlement.chain.errors import ChainError, NodeUnreachable, Reverted, RpcFailed
from settlement.chain.fees import FeePolicy
from settlement.chain.rpc import Header, Receipt, Rpc, unhex
from settlement.chain.send_journal import (
    Attempt,
    Call,
    Fees,
    IntentConflict,
    Mined,
    Pending,
    SendJournal,
)
from settlement.signing import address_of_key

# A call's cost may grow between simulation and block: other lanes settle, slots turn cold.
_GAS_MARGIN_PERCENT: Final = 30
_POLL_SECONDS: Final = 0.5
_LAG_SECONDS: Final = 3.0
_FIRST_POLL_SECONDS: Final = 0.005  # doubled from poll to poll: a devnet mines at once

_KNOWN: Final = ("already known", "already imported", "known transaction")
_NONCE_USED: Final = ("nonce too low", "nonce is too low", "invalid nonce")
_UNDERPRICED: Final = (
    "underpriced",
    "less than block base fee",
    "fee too low",
    "gas price too low",
    "gas price below",
)


class InsufficientFunds(ChainError):
    """The key's account cannot pay for the transaction's gas and value."""

    def __init__(self, address: bytes, balance: int, needed: int) -> None:
        super().__init__(
            f"0x{address.hex()} holds {balance} wei and the transaction may cost {needed}",
            "Send the account the chain's own coin",
        )
        self.address, self.balance, self.needed = address, balance, needed


class NotMined(ChainError):
    """A transaction was not confirmed in time. It stays journalled, and may still be mined."""

    hint = "Ask again for the same intent: it is not sent twice"


class SenderClosed(ChainError):
    """The sender was closed while a call waited. What it journalled is taken up at next start."""


def nothing(_step: str) -> None:
    """The default step hook."""


class Sender:
    """Sends transactions of one key to one chain. See the module's text.

    `finality` is how many blocks must lie on a transaction (its own counted) before it is
    forgotten; the node must answer for account states that deep. `lag_seconds` is how long a
    receipt may stay away after the nonce counts as used, before a stranger is thought to have used
    it. `at_step` is called with "simulated", "signed", "journalled", "sent", "confirmed" and
    "finished": tests die there.
    """

    def __init__(
        self,
        rpc: Rpc,
        private_key: bytes,
        journal: SendJournal,
        *,
        errors: ErrorBook | None = None,
        fees: FeePolicy | None = None,
        finality: int = 64,
        poll_seconds: float = _POLL_SECONDS,
        lag_seconds: float = _LAG_SECONDS,
        clock: Callable[[], float] = time.time,
        at_step: Callable[[str], None] = nothing,
    ) -> None:
        if finality < 1:
            raise ValueError(f"finality counts the transaction's own block: at least 1, {finality}")
        self.address = address_of_key(private_key)
        self._rpc, self._key, self._journal = rpc, private_key, journal
        self._errors = errors or ErrorBook()
        self.fees = fees or FeePolicy()
        self._finality = finality
        self._poll = poll_seconds
        self._lag = lag_seconds
        self._clock = clock
        self._at_step = at_step
        self._closed = threading.Event()
        self._tending = threading.Lock()
        # Where open intents were last seen in the chain of `_seen_head`; rebuilt, never trusted
        # after the head changed.
        self._seen: dict[str, Mined] = {}
        self._seen_head = b""
        self._seen_number = 0
        self._tended_at = 0.0
        self._refusal: dict[str, str] = {}
        # Nonces that are used and show no receipt of ours, since when (monotonic seconds).
        self._unexplained: dict[str, float] = {}
        self.chain_id = rpc.chain_id
        genesis = rpc.header(0)
        journal.bind(
            {
                "key": "0x" + self.address.hex(),
                "chain": str(self.chain_id),
                # A devnet started anew keeps its chain id and forgets its nonces.
                "genesis": "" if genesis is None else "0x" + genesis.hash.hex(),
            }
        )

    # ------------------------------------------------------------------ the caller's side

    def send(
        self, intent: str, call: Call, *, confirmations: int = 1, timeout: float = 180.0
    ) -> Mined:
        """Submit and wait. Raises what `submit` and `wait` raise."""
        self.submit(intent, call)
        return self.wait(intent, confirmations=confirmations, timeout=timeout)

    def submit(self, intent: str, call: Call) -> bytes:
        """Simulate, sign, journal and send; returns the transaction's hash (32 bytes).

        An intent that is journalled already is not sent again. Raises Reverted when the
        simulation fails, FeeCapReached, InsufficientFunds, NodeUnreachable before anything is
        journalled; afterwards only a crash stops it, and `tend` takes it up.
        """
        self._check_open()
        known = self._known(intent, call)
        if known is not None:
            return known.newest.hash
        gas = self._simulate(call)
        self._at_step("simulated")
        with self._journal.exclusive():
            known = self._known(intent, call)
            if known is not None:
                return known.newest.hash
            head = self._rpc.head()
            fees = self._opening_bid(head)
            gas = min(gas, head.gas_limit)
            self._check_balance(call, gas, fees)
            nonce = max(
                self._journal.next_nonce(),
                self._rpc.transaction_count(self.address, "pending"),
            )
            attempt = self._sign(call, gas, nonce, fees, legacy=head.base_fee is None)
            self._at_step("signed")
            self._journal.add(intent, call, gas, attempt)
            self._at_step("journalled")
            self._broadcast(intent, attempt)
            self._at_step("sent")
        return attempt.hash

    def wait(self, intent: str, *, confirmations: int = 1, timeout: float = 180.0) -> Mined:
        """Until `confirmations` blocks hold the transaction, its own counted.

        Raises Reverted when it was mined and failed (the reason is that of a repetition on the
        block before), NotMined after `timeout` seconds, SenderClosed.
        """
        deadline = time.monotonic() + timeout
        unreachable: NodeUnreachable | None = None
        pause = min(_FIRST_POLL_SECONDS, self._poll)
        while True:
            self._check_open()
            try:
                self._tend_after(time.monotonic())
                unreachable = None
            except NodeUnreachable as error:  # a node may restart while we wait
                unreachable = error
            pending = self._journal.find(intent)
            if pending is None:
                raise NotMined(f"no intent {intent} was submitted with this key", "Submit it first")
            mined = pending.result or self._seen_deep_enough(intent, confirmations)
            if mined is not None:
                if not mined.ok:
                    raise self._reason(pending, mined)
                return mined
            if time.monotonic() >= deadline:
                if unreachable is not None:
                    raise unreachable
                why = self._refusal.get(intent, "it waits in the pool")
                raise NotMined(f"{intent} is not confirmed after {timeout:g} s: {why}")
            self._closed.wait(pause)
            pause = min(2 * pause, self._poll)

    def tend(self) -> int:
        """One pass over what is not final: send what is not known to the node, replace what is
        stuck, note what is mined, forget what is final. Returns how many stay open.

        Call it at start, and from time to time in a daemon; `wait` does.
        """
        with self._tending:
            return self._tend()

    def _tend_after(self, asked: float) -> None:
        """A pass begun after `asked`: of many threads that wait, one looks after all."""
        with self._tending:
            if self._tended_at < asked:
                self._tend()

    def _tend(self) -> int:
        self._tended_at = time.monotonic()
        with self._journal.exclusive():
            waiting = self._journal.open()
            if not waiting:
                return 0
            head = self._rpc.head()
            if head.hash == self._seen_head:
                waiting = [pending for pending in waiting if pending.intent not in self._seen]
            else:
                self._seen.clear()
            count = self._rpc.transaction_count(self.address)
            for pending in waiting:
                try:
                    if pending.nonce < count:
                        self._follow(pending, head)
                    else:
                        # A doubt of before a reorganisation must not count against what comes.
                        self._unexplained.pop(pending.intent, None)
                        self._nurse(pending, head)
                except NodeUnreachable:
                    raise
                except ChainError as error:  # one transaction's trouble is not the others'
                    self._refusal[pending.intent] = str(error)
            self._seen_head, self._seen_number = head.hash, head.number
            return len(self._journal.open())

    def find(self, intent: str) -> Pending | None:
        """What the journal holds of an intent; None if it was never submitted."""
        return self._journal.find(intent)

    def attempt(self, intent: str) -> str:
        """The name under which to carry `intent` out: its own, or the next attempt's where earlier
        ones were mined, failed, and are final. For calls that the contract takes once however
        often they are sent."""
        number, name = 1, intent
        while True:
            known = self.find(name)
            if known is None or known.result is None or known.result.ok:
                return name
            number += 1
            name = f"{intent}:{number}"

    def close(self) -> None:
        """Make waiting calls raise SenderClosed. The journal is the caller's to close."""
        self._closed.set()

    # ------------------------------------------------------------------ steps

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise SenderClosed("this sender is closed")

    def _known(self, intent: str, call: Call) -> Pending | None:
        pending = self._journal.find(intent)
        if pending is not None and not pending.call.same_effect(call):
            raise IntentConflict(
                f"intent {intent} stands for {pending.call.where} of other arguments"
            )
        return pending

    def _simulate(self, call: Call) -> int:
        """Gas the call needs, with margin, in the state that pending transactions leave."""
        fields = {
            "from": "0x" + self.address.hex(),
            "data": "0x" + call.data.hex(),
            "value": hex(call.value),
        }
        if call.to is not None:
            fields["to"] = "0x" + call.to.hex()
        try:
            estimate = self._rpc.quantity("eth_estimateGas", fields, "pending")
        except RpcFailed as error:
            raise self._as_revert(call.where, error) or error from error
        return estimate * (100 + _GAS_MARGIN_PERCENT) // 100

    def _as_revert(self, where: str, error: RpcFailed) -> Reverted | None:
        if error.data or "revert" in error.message.lower():
            return self._errors.reverted(where, unhex(error.data))
        return None

    def _opening_bid(self, head: Header) -> Fees:
        if head.base_fee is None:
            return self.fees.first_legacy(self._rpc.gas_price())
        return self.fees.first(head.base_fee)

    def _check_balance(self, call: Call, gas: int, fees: Fees) -> None:
        needed = call.value + gas * fees.max_fee
        balance = self._rpc.balance(self.address, "pending")
        if balance < needed:
            raise InsufficientFunds(self.address, balance, needed)

    def _sign(self, call: Call, gas: int, nonce: int, fees: Fees, *, legacy: bool) -> Attempt:
        fields: dict[str, Any] = {
            "chainId": self.chain_id,
            "nonce": nonce,
            "gas": gas,
            "value": call.value,
            "data": call.data,
        }
        if call.to is not None:
            fields["to"] = call.to
        if legacy:
            fields["gasPrice"] = fees.max_fee
        else:
            fields["maxFeePerGas"] = fees.max_fee
            fields["maxPriorityFeePerGas"] = fees.priority
        signed = Account.sign_transaction(fields, self._key)
        raw = bytes(signed.raw_transaction)
        return Attempt(bytes(signed.hash), raw, nonce, fees, self._clock())

    def _broadcast(self, intent: str, attempt: Attempt) -> str:
        """Hand the bytes to the node. Returns "sent", "underpriced" or "refused"; what is
        refused is tried again by every `tend`, for the bytes may be out already."""
        try:
            self._rpc.request("eth_sendRawTransaction", "0x" + attempt.raw.hex())
        except NodeUnreachable as error:
            self._refusal[intent] = str(error)
            return "refused"
        except RpcFailed as error:
            said = error.message.lower()
            if any(text in said for text in (*_KNOWN, *_NONCE_USED)):
                # Used: by this transaction, or else the receipts will tell.
                return "sent"
            self._refusal[intent] = f"the node says: {error.message}"
            return "underpriced" if any(text in said for text in _UNDERPRICED) else "refused"
        self._refusal.pop(intent, None)
        return "sent"

    def _nurse(self, pending: Pending, head: Header) -> None:
        """Not mined: make sure that the node has it, and that it bids enough."""
        newest = pending.newest
        outcome = "sent"
        if self._rpc.transaction(newest.hash) is None:
            outcome = self._broadcast(pending.intent, newest)
            self._at_step("sent")
        overdue = self._clock() - newest.at >= self.fees.replace_after
        if outcome == "underpriced" or (outcome == "sent" and overdue):
            self._replace(pending, head)

    def _replace(self, pending: Pending, head: Header) -> None:
        legacy = head.base_fee is None
        fees = self.fees.bump(pending.newest.fees, head.base_fee or 0)
        if fees is None:
            self._refusal[pending.intent] = f"its bid is at the cap of {self.fees.cap} wei per gas"
            return
        if legacy:
            fees = Fees(fees.max_fee, fees.max_fee)
        attempt = self._sign(pending.call, pending.gas, pending.nonce, fees, legacy=legacy)
        self._at_step("signed")
        self._journal.add_attempt(pending.intent, attempt)
        self._at_step("journalled")
        self._broadcast(pending.intent, attempt)
        self._at_step("sent")

    def _follow(self, pending: Pending, head: Header) -> None:
        """The nonce is used: by one of our attempts, or by a stranger's transaction."""
        for attempt in reversed(pending.attempts):
            receipt = self._rpc.receipt(attempt.hash)
            if receipt is None:
                continue
            mined = _mined(attempt.hash, receipt)
            self._refusal.pop(pending.intent, None)
            self._unexplained.pop(pending.intent, None)
            self._at_step("confirmed")
            if _depth(mined, head.number) >= self._finality:
                self._journal.finish(pending.intent, mined)
                self._at_step("finished")
            self._seen[pending.intent] = mined
            return
        settled = head.number - self._finality + 1
        if settled >= 0 and self._rpc.transaction_count(self.address, settled) > pending.nonce:
            # A node may count a transaction of ours before it shows the receipt: anvil between two
            # steps of one block, a pool of nodes of which one lags. A stranger's stays unexplained.
            now = time.monotonic()
            if now - self._unexplained.setdefault(pending.intent, now) >= self._lag:
                # INVARIANT: a new nonce only when no attempt of the old one can ever be mined.
                self._take_new_nonce(pending, head)
                del self._unexplained[pending.intent]

    def _take_new_nonce(self, pending: Pending, head: Header) -> None:
        nonce = max(
            self._journal.next_nonce(), self._rpc.transaction_count(self.address, "pending")
        )
        fees = self._opening_bid(head)
        attempt = self._sign(pending.call, pending.gas, nonce, fees, legacy=head.base_fee is None)
        self._at_step("signed")
        self._journal.add_attempt(pending.intent, attempt)
        self._at_step("journalled")
        self._broadcast(pending.intent, attempt)
        self._at_step("sent")

    def _seen_deep_enough(self, intent: str, confirmations: int) -> Mined | None:
        mined = self._seen.get(intent)
        if mined is None or _depth(mined, self._seen_number) < confirmations:
            return None
        return mined

    def _reason(self, pending: Pending, mined: Mined) -> Reverted:
        """Why a mined transaction failed: its call, repeated on the state before its block."""
        call = pending.call
        if call.to is None:
            return Reverted(call.where, "", {})
        try:
            self._rpc.call(call.to, call.data, self.address, mined.block_number - 1)
        except RpcFailed as error:
            reverted = self._as_revert(call.where, error)
            if reverted is not None:
                return reverted
        return Reverted(f"{call.where} (transaction 0x{mined.hash.hex()})", "", {})


def _depth(mined: Mined, head: int) -> int:
    """Blocks that hold the transaction, its own counted."""
    return head - mined.block_number + 1


def _mined(transaction: bytes, receipt: Receipt) -> Mined:
    return Mined(
        transaction,
        receipt.block_number,
        receipt.block_hash,
        receipt.ok,
        receipt.gas_used,
        receipt.gas_price,
        receipt.contract,
    )
