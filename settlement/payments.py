"""Who is paid for what: the sharing rule, vouchers, settlement, and when to stop serving.

The rule is one line: D gets price_accepted for each accepted token, V price_output for each output
token, and nobody is paid for a forward pass or for a proposal. Node, simulator and contract tests
all use it. The three textbook rules are here for the simulator to show how each fails.

Rounding: payees' shares down, the client's audit fee up (at most one unit a settlement).
Amounts are integers in the token's smallest unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

AUDIT_FEE_BPS: Final = 200
BPS: Final = 10_000
LOCK_FACTOR: Final = 5
VOUCHER_EVERY_TOKENS: Final = 32
MAX_UNSIGNED_TOKENS: Final = 64
_MAX_DUE: Final = (1 << 128) - 1


class PaymentError(ValueError):
    """An amount, count or voucher that the payment rules do not allow."""


@dataclass(frozen=True)
class Dues:
    """What is owed to D and to V."""

    drafter: int = 0
    verifier: int = 0

    def __post_init__(self) -> None:
        for name, value in (("drafter", self.drafter), ("verifier", self.verifier)):
            if not 0 <= value <= _MAX_DUE:
                raise PaymentError(f"{name}'s due is a uint128, not {value}")

    @property
    def total(self) -> int:
        return self.drafter + self.verifier

    def __add__(self, other: Dues) -> Dues:
        return Dues(self.drafter + other.drafter, self.verifier + other.verifier)

    def __sub__(self, other: Dues) -> Dues:
        """PaymentError where it would be negative: dues are cumulative and never fall."""
        return Dues(self.drafter - other.drafter, self.verifier - other.verifier)


# ---------------------------------------------------------------- the sharing rule


def dues(output: int, accepted: int, price_accepted: int, price_output: int) -> Dues:
    """The sharing rule: D accepted · price_accepted, V output · price_output (token units per
    token). The target's own token of a round is output but not accepted, so D is not paid for it.
    PaymentError unless 0 ≤ accepted ≤ output."""
    if not 0 <= accepted <= output:
        raise PaymentError(f"{accepted} accepted of {output} output tokens")
    return Dues(accepted * price_accepted, output * price_output)


# ---------------------------------------------------------------- settlement


def audit_fee(paid: int, fee_bps: int = AUDIT_FEE_BPS) -> int:
    """⌈paid · fee_bps / 10000⌉, charged to the client on top."""
    return -(-paid * fee_bps // BPS)


def payable_within(reserve: int, fee_bps: int = AUDIT_FEE_BPS) -> int:
    """The most that can be paid out of `reserve` with its fee on top:
    ⌊reserve · 10000 / (10000 + fee_bps)⌋, so that paid + audit_fee(paid) ≤ reserve."""
    return reserve * BPS // (BPS + fee_bps)


@dataclass(frozen=True)
class Payment:
    """One lane's settlement: what each payee got, what the client was charged on top, and the
    epoch's watermarks afterwards."""

    paid: Dues
    fee: int
    watermark: Dues


def settle(
    due: Dues,
    watermark: Dues,
    reserve: int,
    payable_drafter: int,
    payable_verifier: int,
    drafter_signed: bool = True,
    fee_bps: int = AUDIT_FEE_BPS,
) -> Payment:
    """What a voucher pays now. In integers, with ⌊⌋ at each division:

    1. owed = due − watermark for each payee, zero where that is negative (an older voucher).
    2. budget = ⌊reserve · 10000 / (10000 + feeBps)⌋. While owed_D + owed_V ≤ budget each is granted
       what it is owed. Else all that the epoch ever had to give, given = budget + watermark_D +
       watermark_V, is divided by the two dues, part = ⌊given · due / (due_D + due_V)⌋, and each is
       granted min(owed, max(part − watermark, 0), budget). Paying one of them does not change
       that division, so nobody gains by coming first, by coming often, or by leaving out the
       other's signature.
    3. D is paid min(grant, its own limit), nothing if it has not signed. V is paid min(grant, its
       own limit less what D is paid now): its stake answers for both, because a verdict that
       accepts what it should not brings D's pay too. Only a payee's own watermark moves, by what
       it is paid. What is not paid is not consumed: it stays owed.
    4. fee = ⌈(paid_D + paid_V) · feeBps / 10000⌉, charged to the reserve on top.

    Args:
        due: the voucher's cumulative dues.
        watermark: paid so far in the voucher's epoch.
        reserve: what the lane holds, thawing included.
        payable_drafter, payable_verifier: the most each payee's free stake lets it be paid, in
            token units: free stake ÷ lock factor, rounded down.
    """
    for name, amount in (
        ("reserve", reserve),
        ("payable_drafter", payable_drafter),
        ("payable_verifier", payable_verifier),
    ):
        if amount < 0:
            raise PaymentError(f"{name} is {amount}, below zero")
    budget = payable_within(reserve, fee_bps)
    grants = _grants(due, watermark, budget)
    to_drafter = min(grants.drafter, payable_drafter) if drafter_signed else 0
    paid = Dues(to_drafter, min(grants.verifier, max(payable_verifier - to_drafter, 0)))
    return Payment(paid, audit_fee(paid.total, fee_bps), watermark + paid)


def _grants(due: Dues, watermark: Dues, budget: int) -> Dues:
    """Steps 1 and 2 of `settle`."""
    owed = Dues(max(due.drafter - watermark.drafter, 0), max(due.verifier - watermark.verifier, 0))
    if owed.total <= budget:
        return owed
    given = budget + watermark.total

    def lacking(due_one: int, watermark_one: int) -> int:
        return max(given * due_one // due.total - watermark_one, 0)

    return Dues(
        min(owed.drafter, lacking(due.drafter, watermark.drafter), budget),
        min(owed.verifier, lacking(due.verifier, watermark.verifier), budget),
    )


# ---------------------------------------------------------------- exposure


class Stop(StrEnum):
    """Why D or V must not start another round."""

    UNSIGNED = "unsigned"  # too much work without the client's voucher
    RESERVE = "reserve"  # the lane no longer covers it


@dataclass(frozen=True)
class LaneBalance:
    """What the chain and the signed vouchers say about a lane."""

    reserve: int  # thawing included
    thawing: int
    signed_unsettled: Dues  # in signed vouchers beyond the watermarks


def cost(owed: Dues, fee_bps: int = AUDIT_FEE_BPS) -> int:
    """What the client must hold for `owed`: it and its fee."""
    return owed.total + audit_fee(owed.total, fee_bps)


def exposure_bound(
    price_accepted: int,
    price_output: int,
    unsigned_tokens: int,
    window: int,
    fee_bps: int = AUDIT_FEE_BPS,
) -> int:
    """The most that `unsigned_tokens` output tokens and one more round of `window` drafts can
    cost, fee included: every draft accepted, and the target's own token on top."""
    tokens = unsigned_tokens + window
    return cost(dues(tokens + 1, tokens, price_accepted, price_output), fee_bps)


def must_stop(
    price_accepted: int,
    price_output: int,
    window: int,
    unsigned_tokens: int,
    unsigned: Dues,
    balance: LaneBalance,
    max_unsigned_tokens: int = MAX_UNSIGNED_TOKENS,
    fee_bps: int = AUDIT_FEE_BPS,
) -> Stop | None:
    """Whether to refuse another round of at most `window` drafts, and why; None to serve on.

    UNSIGNED when the output tokens without a signed voucher exceed `max_unsigned_tokens`: a round
    begun at or below it adds at most window + 1, so unsigned work never exceeds 64 tokens + one
    window's. RESERVE when reserve − thawing does not cover, fee included, what is signed and
    unsettled, what is unsigned and what the next round can add.
    """
    if unsigned_tokens > max_unsigned_tokens:
        return Stop.UNSIGNED
    next_round = dues(window + 1, window, price_accepted, price_output)
    exposed = balance.signed_unsettled + unsigned + next_round
    if balance.reserve - balance.thawing < cost(exposed, fee_bps):
        return Stop.RESERVE
    return None


# ---------------------------------------------------------------- the textbook rules


class PaymentModel(StrEnum):
    """What is paid for. Only ACCEPTED_AND_OUTPUT is used; the simulator shows how others fail."""

    ACCEPTED_AND_OUTPUT = "accepted-and-output"
    PER_FORWARD_PASS = "per-forward-pass"  # V gains by rejecting: more passes for the same text
    PER_PROPOSED = "per-proposed"  # D gains by cheap garbage
    PER_ACCEPTED = "per-accepted"  # V earns nothing by a correction: it accepts everything


@dataclass(frozen=True)
class Tally:
    """What happened over some rounds."""

    passes: int = 0  # of the target
    proposed: int = 0  # draft tokens, each one pass of the draft model
    accepted: int = 0
    output: int = 0


def dues_under(model: PaymentModel, tally: Tally, price_drafter: int, price_verifier: int) -> Dues:
    """Dues under a payment model. Units paid to (D, V): accepted and output: (accepted, output);
    per forward pass: (proposed, passes); per proposed: (proposed, proposed); per accepted:
    (accepted, accepted)."""
    units_drafter, units_verifier = {
        PaymentModel.ACCEPTED_AND_OUTPUT: (tally.accepted, tally.output),
        PaymentModel.PER_FORWARD_PASS: (tally.proposed, tally.passes),
        PaymentModel.PER_PROPOSED: (tally.proposed, tally.proposed),
        PaymentModel.PER_ACCEPTED: (tally.accepted, tally.accepted),
    }[model]
    return Dues(units_drafter * price_drafter, units_verifier * price_verifier)
