"""The sharing rule, settlement and the bound at which work stops."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settlement.payments import (
    BPS,
    Dues,
    LaneBalance,
    PaymentError,
    PaymentModel,
    Stop,
    Tally,
    audit_fee,
    cost,
    dues,
    dues_under,
    exposure_bound,
    must_stop,
    payable_within,
    settle,
)

amounts = st.one_of(st.integers(0, 30), st.integers(0, 2**100))
fees = st.sampled_from((0, 1, 200, 999, 10_000))
owed = st.builds(Dues, amounts, amounts)


@given(st.integers(0, 1000), st.integers(0, 1000), amounts, amounts)
def test_d_is_paid_by_acceptance_and_v_by_output(
    accepted: int, more: int, price_accepted: int, price_output: int
) -> None:
    share = dues(accepted + more, accepted, price_accepted, price_output)
    assert share == Dues(accepted * price_accepted, (accepted + more) * price_output)


def test_impossible_counts_and_amounts_are_refused() -> None:
    for output, accepted in ((1, 2), (1, -1), (-1, -1)):
        with pytest.raises(PaymentError):
            dues(output, accepted, 1, 1)
    for bad in (-1, 2**128):
        with pytest.raises(PaymentError):
            Dues(bad, 0)
        with pytest.raises(PaymentError):
            Dues(0, bad)
    with pytest.raises(PaymentError):
        Dues(1, 1) - Dues(2, 0)
    with pytest.raises(PaymentError):
        settle(Dues(1, 1), Dues(), -1, 1, 1)
    with pytest.raises(PaymentError):
        settle(Dues(1, 1), Dues(), 1, -1, 1)
    with pytest.raises(PaymentError):
        settle(Dues(1, 1), Dues(), 1, 1, -1)


# ---------------------------------------------------------------- settlement


@given(amounts, fees)
def test_what_fits_a_reserve_fits_with_its_fee_and_one_more_unit_does_not(
    reserve: int, fee_bps: int
) -> None:
    most = payable_within(reserve, fee_bps)
    assert most + audit_fee(most, fee_bps) <= reserve
    assert most + 1 + audit_fee(most + 1, fee_bps) > reserve
    assert audit_fee(most, fee_bps) == -(-most * fee_bps // BPS)


@given(owed, owed, amounts, amounts, amounts, st.booleans(), fees)
def test_settlement_never_pays_more_than_signed_reserved_or_staked(
    due: Dues,
    mark: Dues,
    reserve: int,
    limit_d: int,
    limit_v: int,
    signed: bool,
    fee_bps: int,
) -> None:
    done = settle(due, mark, reserve, limit_d, limit_v, signed, fee_bps)
    assert done.paid.total + done.fee <= reserve
    assert done.paid.drafter <= min(max(due.drafter - mark.drafter, 0), limit_d)
    assert done.paid.verifier <= min(max(due.verifier - mark.verifier, 0), limit_v)
    if not signed:
        assert done.paid.drafter == 0
    # Nothing is consumed beyond what is paid, each on its own watermark.
    assert done.watermark == mark + done.paid
    assert done.fee == audit_fee(done.paid.total, fee_bps)


@given(owed, amounts, amounts, amounts, amounts, fees)
def test_neither_payee_waits_for_the_others_stake(
    due: Dues, reserve: int, limit_d: int, limit_v: int, other: int, fee_bps: int
) -> None:
    done = settle(due, Dues(), reserve, limit_d, limit_v, fee_bps=fee_bps)
    for changed in (other, 0):
        with_v = settle(due, Dues(), reserve, limit_d, changed, fee_bps=fee_bps)
        assert with_v.paid.drafter == done.paid.drafter
        with_d = settle(due, Dues(), reserve, changed, limit_v, fee_bps=fee_bps)
        # V's own stake answers for what D is paid, so V gets no less where D gets less.
        if with_d.paid.drafter <= done.paid.drafter:
            assert with_d.paid.verifier >= done.paid.verifier


@given(owed, owed, amounts, amounts, amounts, st.booleans(), fees)
def test_vs_stake_answers_for_both(
    due: Dues,
    mark: Dues,
    reserve: int,
    limit_d: int,
    limit_v: int,
    signed: bool,
    fee_bps: int,
) -> None:
    done = settle(due, mark, reserve, limit_d, limit_v, signed, fee_bps)
    assert done.paid.verifier == 0 or done.paid.total <= limit_v
    # As far as it goes: nothing of V's waits that its stake would back.
    free = settle(due, mark, reserve, limit_d, 2**200, signed, fee_bps)
    if done.paid.verifier < free.paid.verifier:
        assert done.paid.total >= limit_v


@given(owed, fees)
def test_with_reserve_and_stake_all_is_paid_once(due: Dues, fee_bps: int) -> None:
    reserve = cost(due, fee_bps)
    done = settle(due, Dues(), reserve, due.drafter, due.total, fee_bps=fee_bps)
    assert done.paid == due
    assert done.paid.total + done.fee == reserve
    again = settle(due, done.watermark, 2**120, 2**120, 2**120, fee_bps=fee_bps)
    assert (again.paid, again.fee) == (Dues(), 0)


@given(owed, amounts, fees)
def test_a_short_reserve_is_shared_pro_rata_rounding_down(
    due: Dues, reserve: int, fee_bps: int
) -> None:
    done = settle(due, Dues(), reserve, 2**128, 2**128, fee_bps=fee_bps)
    available = payable_within(reserve, fee_bps)
    if due.total <= available:
        assert done.paid == due
        return
    for paid, asked in ((done.paid.drafter, due.drafter), (done.paid.verifier, due.verifier)):
        assert paid * due.total <= asked * available < (paid + 1) * due.total
    assert available - done.paid.total <= 1  # at most a unit is lost to rounding


@given(owed, amounts, fees, st.lists(st.tuples(amounts, amounts, st.booleans()), max_size=5))
def test_nobody_gains_by_coming_first_or_often_or_without_the_other(
    due: Dues, reserve: int, fee_bps: int, calls: list[tuple[int, int, bool]]
) -> None:
    """Whatever settlements come before, each payee ends with its share of the first reserve."""
    at_once = settle(due, Dues(), reserve, 2**128, 2**128, fee_bps=fee_bps).paid
    mark, left = Dues(), reserve
    for limit_d, limit_v, signed in calls:
        done = settle(due, mark, left, limit_d, limit_v, signed, fee_bps)
        mark, left = done.watermark, left - done.paid.total - done.fee
        assert mark.drafter <= at_once.drafter
        assert mark.verifier <= at_once.verifier
    last = settle(due, mark, left, 2**128, 2**128, fee_bps=fee_bps)
    # Fees are rounded up once a settlement, and each part down.
    lost = 2 * (len(calls) + 1)
    assert 0 <= at_once.drafter - last.watermark.drafter <= lost
    assert 0 <= at_once.verifier - last.watermark.verifier <= lost


def test_a_hand_worked_settlement() -> None:
    # 102 holds 100 and its fee; 20 were paid. 120 in all stand against 70 + 170: halves of each.
    done = settle(Dues(70, 170), Dues(10, 10), 102, 1000, 1000)
    assert (done.paid, done.fee, done.watermark) == (Dues(25, 75), 2, Dues(35, 85))
    # V's stake carries 45, D's 25 among them; D's part stays 25 whatever V has.
    done = settle(Dues(70, 170), Dues(10, 10), 102, 1000, 45)
    assert (done.paid, done.fee) == (Dues(25, 20), 1)
    done = settle(Dues(70, 170), Dues(10, 10), 102, 1000, 20)
    assert (done.paid, done.fee) == (Dues(25, 0), 1)
    # Without D's signature D's part stays in the reserve.
    done = settle(Dues(70, 170), Dues(10, 10), 102, 1000, 1000, drafter_signed=False)
    assert (done.paid, done.fee, done.watermark) == (Dues(0, 75), 2, Dues(10, 85))
    # An older voucher pays nothing and takes nothing back.
    done = settle(Dues(5, 5), Dues(10, 10), 102, 1000, 1000)
    assert (done.paid, done.fee, done.watermark) == (Dues(), 0, Dues(10, 10))
    # V had more than its part of so little: D is granted no more than there is.
    done = settle(Dues(100, 100), Dues(0, 90), 51, 1000, 1000)
    assert (done.paid, done.fee) == (Dues(50, 0), 1)


# ---------------------------------------------------------------- exposure


def balance(reserve: int, thawing: int = 0, signed: Dues | None = None) -> LaneBalance:
    return LaneBalance(reserve, thawing, Dues() if signed is None else signed)


def test_work_stops_past_64_unsigned_tokens() -> None:
    rich = balance(2**100)
    assert must_stop(1, 1, 8, 64, Dues(), rich) is None
    assert must_stop(1, 1, 8, 65, Dues(), rich) is Stop.UNSIGNED


@given(st.integers(0, 32), st.integers(0, 64), owed, owed, amounts, amounts, amounts, fees)
def test_work_stops_exactly_where_the_reserve_no_longer_covers_it(
    window: int,
    unsigned_tokens: int,
    unsigned: Dues,
    signed: Dues,
    thawing: int,
    price_accepted: int,
    price_output: int,
    fee_bps: int,
) -> None:
    next_round = Dues(window * price_accepted, (window + 1) * price_output)
    needed = cost(signed + unsigned + next_round, fee_bps)

    def stop(reserve: int) -> Stop | None:
        return must_stop(
            price_accepted,
            price_output,
            window,
            unsigned_tokens,
            unsigned,
            balance(reserve, thawing, signed),
            fee_bps=fee_bps,
        )

    assert stop(thawing + needed) is None
    if needed:
        assert stop(thawing + needed - 1) is Stop.RESERVE


@given(st.integers(0, 64), st.integers(0, 32), amounts, amounts, fees)
def test_a_reserve_of_the_bound_keeps_every_payee_safe(
    unsigned: int, window: int, price_accepted: int, price_output: int, fee_bps: int
) -> None:
    """Whatever was accepted so far, a lane that holds the bound pays it and one round more."""
    bound = exposure_bound(price_accepted, price_output, unsigned, window, fee_bps)
    worst = dues(unsigned, unsigned, price_accepted, price_output)
    stop = must_stop(
        price_accepted, price_output, window, unsigned, worst, balance(bound), fee_bps=fee_bps
    )
    assert stop is None


# ---------------------------------------------------------------- the textbook rules


def test_the_textbook_rules_each_reward_a_lie() -> None:
    """The lie in each rule, and that the rule in use does not pay for it."""
    honest = Tally(passes=10, proposed=40, accepted=30, output=40)
    rejecting = replace(honest, passes=20, proposed=60, accepted=20)  # V rejects valid drafts
    garbage = replace(honest, passes=40, proposed=160, accepted=0)  # D proposes anything
    accepting = replace(honest, passes=8, proposed=40, accepted=40, output=48)  # V accepts all

    def gain(model: PaymentModel, lie: Tally, role: str) -> int:
        """What the liar earns more for each token of output, in thousandths."""

        def per_token(tally: Tally) -> int:
            return 1000 * getattr(dues_under(model, tally, 1, 1), role) // tally.output

        return per_token(lie) - per_token(honest)

    used = PaymentModel.ACCEPTED_AND_OUTPUT
    assert gain(PaymentModel.PER_FORWARD_PASS, rejecting, "verifier") > 0
    assert gain(used, rejecting, "verifier") == 0
    assert gain(PaymentModel.PER_PROPOSED, garbage, "drafter") > 0
    assert gain(used, garbage, "drafter") < 0
    assert gain(PaymentModel.PER_ACCEPTED, accepting, "verifier") > 0
    assert gain(used, accepting, "verifier") == 0
    assert dues_under(used, honest, 3, 5) == dues(40, 30, 3, 5)
