"""When to settle: by value, before the money leaves, and never below its own cost."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settlement.chain.contracts import LaneState
from settlement.chain.lanes import MAX_LANES, Position, SignedVoucher
from settlement.chain.paths import CONTRACTS
from settlement.hashing import ZERO32, keccak256
from settlement.records import Lane, Sums, Voucher
from settlement.settler import (
    LANE_GAS,
    TRANSACTION_GAS,
    OpenLane,
    Reason,
    SettlePolicy,
    plan,
    reason_to_settle,
)

DRAFTER, VERIFIER, TOKEN = b"\x0d" * 20, b"\x0e" * 20, b"\x70" * 20
POLICY = SettlePolicy(
    value_factor=10,
    thaw_margin=100,
    deadline_margin=50,
    idle_seconds=1000,
    transaction_gas=60,
    lane_gas=40,
)
GAS_PRICE = 3  # alone: 100 gas · 3 = 300 units
NOW = 10_000.0


def open_lane(
    due: int,
    *,
    index: int = 0,
    paid: int = 0,
    reserve: int = 10**9,
    thawing: int = 0,
    thawed_at: int = 0,
    signed_at: float = NOW,
    deadline: float | None = None,
    share: bytes = VERIFIER,
    by_drafter: bool = True,
    token: bytes = TOKEN,
    asked: bool = False,
) -> OpenLane:
    client = keccak256(index.to_bytes(4, "big"))[:20]
    lane = Lane(client, DRAFTER, VERIFIER, token, ZERO32)
    voucher = Voucher(
        lane=lane.id,
        epoch=0,
        output=1,
        accepted=0,
        due_drafter=due // 3,
        due_verifier=due,
        base_root=ZERO32,
        root=keccak256(client),
        leaf_count=1,
        buckets=Sums(1, 0).buckets,
    )
    signed = SignedVoucher(lane, voucher, ZERO32, drafter=b"\x01" * 65 if by_drafter else b"")
    position = Position(0, 200, paid_verifier=paid)
    state = LaneState(reserve, thawing, thawed_at, 0, 0, position.digest)
    return OpenLane(signed, position, state, signed_at, share, deadline, asked)


def reason(lane: OpenLane) -> Reason | None:
    return reason_to_settle(lane, POLICY, GAS_PRICE, NOW)


def test_value_decides_and_only_what_is_beyond_the_watermark_counts() -> None:
    assert reason(open_lane(2999)) is None
    assert reason(open_lane(3000)) is Reason.VALUE
    assert reason(open_lane(3000, paid=1)) is None
    # A voucher is worth no more than what is there to pay it.
    assert reason(open_lane(10**6, reserve=2999)) is None


def test_each_party_counts_its_own_share() -> None:
    assert open_lane(3000, share=DRAFTER).owed == 1000
    assert open_lane(3000, share=DRAFTER, by_drafter=False).owed == 0
    assert open_lane(3000, share=VERIFIER, by_drafter=False).owed == 3000
    assert open_lane(3000, share=b"\x99" * 20).owed == 0


def test_a_client_that_withdraws_is_not_waited_for() -> None:
    # What stays does not cover it: at once.
    assert reason(open_lane(400, reserve=500, thawing=200, thawed_at=99_999)) is Reason.THAW
    # What stays covers it: in time before the end.
    assert reason(open_lane(400, reserve=900, thawing=200, thawed_at=10_101)) is None
    assert reason(open_lane(400, reserve=900, thawing=200, thawed_at=10_100)) is Reason.THAW


def test_deadlines_and_idleness() -> None:
    assert reason(open_lane(400, deadline=NOW + 51)) is None
    assert reason(open_lane(400, deadline=NOW + 50)) is Reason.DEADLINE
    assert reason(open_lane(400, signed_at=NOW - 999)) is None
    assert reason(open_lane(400, signed_at=NOW - 1000)) is Reason.IDLE


def test_an_operator_who_asks_does_not_wait() -> None:
    assert reason(open_lane(400)) is None
    assert reason(open_lane(400, asked=True)) is Reason.ASKED


@pytest.mark.parametrize(
    "urgent",
    [
        {"asked": True},
        {"signed_at": 0.0},
        {"deadline": 0.0},
        {"thawing": 10**9, "thawed_at": 1},
    ],
)
def test_no_reason_makes_up_for_a_ticket_below_its_cost(urgent: dict[str, float]) -> None:
    assert reason(open_lane(300, **urgent)) is None  # type: ignore[arg-type]
    assert reason(open_lane(301, **urgent)) is not None  # type: ignore[arg-type]


def test_gas_is_weighed_in_the_lanes_token() -> None:
    dear = replace(POLICY, token_per_wei=Fraction(7, 2))
    assert reason_to_settle(open_lane(10_499), dear, GAS_PRICE, NOW) is None
    assert reason_to_settle(open_lane(10_500), dear, GAS_PRICE, NOW) is Reason.VALUE


def test_others_go_along_when_worth_their_own_part() -> None:
    lanes = [open_lane(3000, index=0), open_lane(121, index=1), open_lane(120, index=2)]
    (settlement,) = plan(lanes, POLICY, GAS_PRICE, NOW)
    assert settlement.lanes == ((lanes[0], Reason.VALUE), (lanes[1], Reason.ALONG))
    assert plan(lanes[1:], POLICY, GAS_PRICE, NOW) == []


def test_what_is_about_to_leave_goes_first() -> None:
    lanes = [open_lane(10**6, index=i) for i in range(MAX_LANES)]
    lanes.append(open_lane(400, index=99, deadline=NOW))
    first, second = plan(lanes, POLICY, GAS_PRICE, NOW)
    assert first.lanes[0] == (lanes[-1], Reason.DEADLINE)
    assert (len(first.lanes), len(second.lanes)) == (MAX_LANES, 1)


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 1)), max_size=150),
)
def test_plans_are_bounded_of_one_token_and_lose_nobody(lanes: list[tuple[int, int]]) -> None:
    opened = [
        open_lane(due, index=index, token=bytes([kind]) * 20)
        for index, (due, kind) in enumerate(lanes)
    ]
    settlements = plan(opened, POLICY, GAS_PRICE, NOW)
    planned = [lane for settlement in settlements for lane, _reason in settlement.lanes]
    assert len({lane.signed.lane.id for lane in planned}) == len(planned)
    for settlement in settlements:
        assert 0 < len(settlement.lanes) <= MAX_LANES
        assert {lane.signed.lane.token for lane, _ in settlement.lanes} == {settlement.token}
        # Every transaction has a lane that pays for it.
        assert any(why is not Reason.ALONG for _, why in settlement.lanes)
    must = {lane.signed.lane.id for lane in opened if reason(lane) is not None}
    assert must <= {lane.signed.lane.id for lane in planned}


def test_the_gas_that_is_reckoned_with_is_the_gas_that_is_measured() -> None:
    calls = json.loads((CONTRACTS / "gas.json").read_text())["calls"]
    for lanes, measured in ((1, calls["settle_steady"]), (64, calls["settle_64_lanes_per_lane"])):
        assert (TRANSACTION_GAS + lanes * LANE_GAS) / lanes == pytest.approx(measured, rel=0.15)


def test_an_intent_names_roots_and_where_they_start_from() -> None:
    def intent(*lanes: OpenLane) -> str:
        (settlement,) = plan(lanes, POLICY, GAS_PRICE, NOW)
        return settlement.intent

    one, two = open_lane(5000, index=1), open_lane(6000, index=2)
    assert intent(one, two) == intent(two, one)
    assert one.signed.lane.id.hex() in intent(one)
    assert one.signed.voucher.root.hex() in intent(one)
    moved = replace(one, position=replace(one.position, paid_verifier=1))
    other = replace(
        one, signed=replace(one.signed, voucher=replace(one.signed.voucher, root=b"\x05" * 32))
    )
    assert len({intent(one), intent(two), intent(one, two), intent(moved), intent(other)}) == 5
