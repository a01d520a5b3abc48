"""What is due, from made-up events: by whom, by when, and under which name."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st

from settlement.accept_rule import LeafFault
from settlement.chain.contracts import Role
from settlement.chain.disputes import disputes
from settlement.chain.events import (
    AccountOpened,
    BatchRegistered,
    CaseAnswered,
    CaseMoved,
    CaseOpened,
    Demanded,
    DemandMoved,
    DrawMoved,
    FaultProven,
    Filed,
    KeyRotated,
    LaneDrawn,
    LaneOpened,
    LaneSettled,
    OtherEvent,
    SessionAnswered,
    SessionDemanded,
    StakeSlashed,
)
from settlement.chain.indexer import ChainEvent
from settlement.chain.paths import CONTRACTS
from settlement.chain.send_journal import Call
from settlement.chain.standing import ClaimCaseStage, Stage, fold
from settlement.challenges import Challenge, Step, standpoint
from settlement.draws import Entry
from settlement.duties import EXPIRE_GAS, PROOF_GAS, Action, Now, Plan, Policy, Price
from settlement.fault_proofs import Code, Fault, Kind, number_of
from settlement.hashing import ZERO32, keccak256
from settlement.records import Lane
from settlement.watcher import CAPTURED_AT_ONCE, Watch

C, D, V, OTHER = (bytes([n]) * 20 for n in (1, 2, 3, 9))
LANE = Lane(C, D, V, b"\x07" * 20, ZERO32)
BLOCK = b"\xbb" * 32
CASE_TERMS = (1_000, 5_000, 5_000, 5_000, 77, 600)
DRAW_TERMS = (120, 60, 60, 2**32 - 1, 500, 5_000, 5_000, 400, 2, 1)
DEMAND_TERMS = (10, 60, 60, 500, 5_000, 5_000, 400)


class Encoder:
    """A contract whose transactions are told apart by their arguments."""

    def __init__(self, address: bytes) -> None:
        self.address = address

    def __getattr__(self, name: str) -> Any:
        return lambda *args: Call(self.address, repr((name, args)).encode(), where=name)

    def bond(self) -> int:
        return 10


def contracts() -> Any:
    names = ("beacon", "court", "exact_dispute", "demands", "session_demands", "ledger")
    return SimpleNamespace(**{name: Encoder(bytes([n]) * 20) for n, name in enumerate(names)})


class Nothing:
    """A node without records."""

    def holds(self, root: bytes) -> bool:
        return False

    def batch(self, root: bytes) -> None:
        return None

    def text(self, start_hash: bytes, round_: int) -> None:
        return None

    def secret(self, name: str) -> bytes:
        return keccak256(name.encode())


def chain(*events: Any, contract: str = "") -> list[ChainEvent]:
    return [
        ChainEvent(event, contract or type(event).__name__, 5, BLOCK, b"\x01" * 32, index)
        for index, event in enumerate(events)
    ]


def plan(events: list[ChainEvent], key: bytes, now: int, **policy: Any) -> Plan:
    watch = Watch(contracts(), key, Nothing(), Policy(patience=0.0, **policy))
    return watch.plan(fold(events), Now(10, now))


def case(flagger: bytes = OTHER) -> CaseOpened:
    opened = (
        ZERO32,
        V,
        flagger,
        3,
        1,
        0,
        0,
        1,
        100,
        160,
        220,
        0,
        bytes(20),
        CASE_TERMS,
        5,
        (0,) * 4,
    )
    return CaseOpened(4, ZERO32, D, opened, 9)


def draw(first: int = 160, second: int = 220) -> LaneDrawn:
    drawn = (6, 0, ZERO32, (LANE.id, b"\x0a" * 32, 0), LANE.to_abi(), DRAW_TERMS)
    return LaneDrawn(6, 0, V, drawn, first, second)


# ---------------------------------------------------------------- cases


def test_a_drafter_asserts_while_it_may_and_concludes_when_it_can() -> None:
    opened = chain(case())
    (duty,) = plan(opened, D, 150).duties
    assert (duty.action, duty.until, duty.about) == (Action.ASSERT, 160, "case 4")
    assert duty.bond is not None
    assert duty.bond.amount == 77
    # Past the first deadline it still may, until the last.
    assert [d.action for d in plan(opened, D, 220).duties] == [Action.ASSERT]
    late = chain(case(), CaseMoved(4, ZERO32, ClaimCaseStage.LATE))
    assert [d.until for d in plan(late, D, 200).duties] == [220]
    assert plan(late, D, 221).duties == []
    answered = chain(case(), CaseAnswered(4, D, 800))
    assert plan(answered, D, 800).duties == []
    assert [d.action for d in plan(answered, D, 801).duties] == [Action.CONCLUDE]
    over = chain(case(), CaseAnswered(4, D, 800), CaseMoved(4, ZERO32, ClaimCaseStage.STOOD))
    assert [d.action for d in plan(over, D, 900).duties] == [Action.PULL]
    assert plan(opened, V, 150).duties == []


def test_whoever_flagged_takes_the_price_and_nobody_else() -> None:
    opened = chain(case(flagger=OTHER))
    assert plan(opened, OTHER, 160).duties == []
    (duty,) = plan(opened, OTHER, 161).duties
    assert duty.action == Action.EXPIRE
    assert duty.price == Price(D, Role.DRAFTER, 1_000, 5_000)
    assert duty.price.reward(1_000) == 50
    assert plan(opened, C, 161).duties == []


# ---------------------------------------------------------------- draws


def test_what_cannot_be_opened_is_said_with_its_deadline() -> None:
    (lack,) = plan(chain(draw()), V, 100).lacks
    assert (lack.action, lack.until, lack.about) == (Action.OPEN, 160, "draw 6/0")
    assert "no rounds" in lack.reason
    assert plan(chain(draw()), V, 221).lacks == []


def test_silence_is_expired_by_others_at_each_deadline() -> None:
    events = chain(draw())
    assert plan(events, C, 160).duties == []
    (first,) = plan(events, C, 161).duties
    assert first.price == Price(V, Role.VERIFIER, 500, 400)
    late = chain(draw(), DrawMoved(6, 0, Stage.LATE))
    assert plan(late, C, 220).duties == []
    (second,) = plan(late, C, 221).duties
    assert second.price == Price(V, Role.VERIFIER, 5_000, 400)
    assert second.intent != first.intent
    assert plan(events, V, 161).duties == []  # nobody pays itself
    shown = chain(draw(), DrawMoved(6, 0, Stage.SHOWN))
    assert plan(shown, C, 900).duties == []


def test_a_draw_that_a_reorganisation_moved_is_opened_under_another_name() -> None:
    one, other = chain(draw()), chain(draw())
    other = [ChainEvent(e.event, e.contract, 6, b"\xcc" * 32, *_rest(e)) for e in other]
    names = {plan(events, C, 161).duties[0].intent for events in (one, other)}
    assert len(names) == 2


def _rest(event: ChainEvent) -> tuple[bytes, int]:
    return event.transaction, event.log_index


@given(st.binary(min_size=20, max_size=20), st.floats(0, 1))
def test_those_with_nothing_at_stake_spread_over_their_patience(key: bytes, part: float) -> None:
    if key in (C, D, V):
        return
    watch = Watch(contracts(), key, Nothing(), Policy(patience=100.0))
    standing = fold(chain(draw()))
    acts = [
        now for now in (161, int(161 + 100 * part), 261) if watch.plan(standing, Now(1, now)).duties
    ]
    assert 261 in acts
    assert acts == sorted(acts)


# ---------------------------------------------------------------- batches

FIGURES = 9 << 248 | 256 << 224


def settlement(number: int, lane: Lane) -> tuple[list[Any], Entry]:
    """One settle call of a lane, as escrow and beacon tell of it."""
    entry = Entry(lane.id, number.to_bytes(32, "big"), FIGURES)
    digest = keccak256(entry.packed())
    batch = (number, digest, b"\x07" * 20, 1, 1, 100, 5, 6, ZERO32, DRAW_TERMS)
    settled = LaneSettled(entry.lane, entry.root, FIGURES, 0)
    return [LaneOpened(lane.id, lane, 0), settled, BatchRegistered(number, batch)], entry


def test_settlements_in_one_transaction_keep_their_own_lanes() -> None:
    """A contract may settle twice in one transaction; with the lanes of both, no draw, demand or
    proof of either would be taken (NotTheseEntries)."""
    lanes = [Lane(bytes([n]) * 20, D, V, b"\x07" * 20, ZERO32) for n in (11, 12)]
    made = [settlement(number, lane) for number, lane in enumerate(lanes, 1)]
    standing = fold(chain(*(event for events, _ in made for event in events)))
    for number, (_, entry) in enumerate(made, 1):
        view = standing.batches[number]
        assert view.entries == (entry,)
        assert keccak256(view.packed()) == view.batch[1]


def test_any_number_of_strangers_batches_is_captured_in_few_transactions() -> None:
    theirs = Lane(OTHER, OTHER, OTHER, b"\x07" * 20, ZERO32)
    count = 3 * CAPTURED_AT_ONCE + 1
    events = [e for number in range(1, count) for e in settlement(number, theirs)[0]]
    events += settlement(count, LANE)[0]
    duties = plan(chain(*events), V, 100).duties
    assert [duty.action for duty in duties] == [Action.CAPTURE] * 4
    assert duties[0].about == f"batch {count}"  # its own first
    assert len({duty.intent for duty in duties}) == 4


def test_what_cannot_be_read_costs_the_others_nothing() -> None:
    """One matter that this program fails on is told; the draw beside it is still looked at."""

    class Failing(Nothing):
        def batch(self, root: bytes) -> Any:
            if root == b"\x0a" * 32:
                raise TypeError("what no program expects")
            return None

    watch = Watch(contracts(), V, Failing(), Policy(patience=0.0))
    other = (7, 0, ZERO32, (LANE.id, b"\x0b" * 32, 0), LANE.to_abi(), DRAW_TERMS)
    events = chain(draw(), LaneDrawn(7, 0, V, other, 160, 220), case())
    found = watch.plan(fold(events), Now(10, 100))
    assert [(lack.about, lack.until) for lack in found.lacks] == [
        ("draw 6/0", 160),
        ("draw 7/0", 160),
    ]
    assert "TypeError: what no program expects" in found.lacks[0].reason
    assert "are held here" in found.lacks[1].reason


# ---------------------------------------------------------------- demands


def leaf_demand(by: bytes = C) -> list[ChainEvent]:
    demand = (1, by, b"\x0a" * 32, LANE.to_abi(), ZERO32, DEMAND_TERMS)
    return chain(Demanded(b"\xd1" * 32, V, demand, 160, 220), contract="EvidenceDemands")


def session_demand() -> list[ChainEvent]:
    demand = (1, C, V, b"\x0b" * 32, 2, ZERO32, ZERO32, 5, 1, 2, DEMAND_TERMS)
    return chain(SessionDemanded(b"\xd2" * 32, V, demand, 160, 220), contract="SessionDemands")


def test_a_demander_waits_takes_both_prices_and_pulls() -> None:
    events = leaf_demand()
    assert plan(events, C, 160).duties == []
    (first,) = plan(events, C, 161).duties
    assert first.price == Price(V, Role.VERIFIER, 500, 400)
    late = events + chain(DemandMoved(b"\xd1" * 32, 2), contract="EvidenceDemands")
    (second,) = plan(late, C, 221).duties
    assert second.price is None  # its bond comes back with this one: it is always worth it
    silent = events + chain(DemandMoved(b"\xd1" * 32, 6), contract="EvidenceDemands")
    (pull,) = plan(silent, C, 300).duties
    assert (pull.action, pull.intent) == (Action.PULL, "pull:EvidenceDemands:0")
    pulled = OtherEvent("EvidenceDemands", "BondPulled", {"account": C, "amount": 10})
    again = silent + chain(pulled, contract="EvidenceDemands")
    assert plan(again, C, 300).duties[0].intent == "pull:EvidenceDemands:1"


def test_a_verifier_without_the_text_is_told_until_the_end() -> None:
    (lack,) = plan(session_demand(), V, 100).lacks
    assert (lack.action, lack.until) == (Action.ANSWER, 160)
    assert plan(session_demand(), V, 221).lacks == []
    answered = session_demand() + chain(
        DemandMoved(b"\xd2" * 32, 3),
        SessionAnswered(b"\xd2" * 32, 1, 2, b"", 400),
        contract="SessionDemands",
    )
    assert plan(answered, V, 400).duties == []
    assert [d.action for d in plan(answered, V, 401).duties] == [Action.CLOSE]


def test_a_rotated_key_answers_for_what_the_old_one_signed() -> None:
    new = b"\x33" * 20
    rotated = chain(AccountOpened(V, OTHER), KeyRotated(V, V, new)) + session_demand()
    assert len(plan(rotated, new, 100).lacks) == 1
    assert plan(session_demand(), new, 100).lacks == []


# ---------------------------------------------------------------- challenges

FAULT = Fault(3, 3, V, False, b"\x0c" * 32, 4, Kind.OTHER_DRAFT, ())
CHALLENGE = Challenge(FAULT, b"question")


def at(events: list[ChainEvent], block: int, stake: int = 100) -> Step:
    secret = Nothing().secret
    return standpoint(CHALLENGE, fold(events), C, block, lambda: stake, secret).step


def filed(attempt: int, first: int, last: int) -> Filed:
    salt = Nothing().secret(f"filing:{CHALLENGE.name.hex()}:{attempt}")
    commitment = keccak256(keccak256(b"question"), bytes(12), C, salt)
    return Filed(C, commitment, 10, first, last)


def test_a_challenge_goes_from_filing_to_proof() -> None:
    assert at([], 5) == Step.FILE
    assert at([], 5, stake=0) == Step.EMPTY
    events = chain(filed(0, 8, 20))
    assert at(events, 7) == Step.WAIT
    assert at(events, 8) == at(events, 20) == Step.PROVE
    assert at(events, 21) == Step.FILE  # lapsed: anew
    assert at(chain(filed(0, 8, 20), filed(1, 30, 40)), 30) == Step.PROVE
    lapsed = chain(*(filed(n, 1, 2) for n in range(3)))
    assert at(lapsed, 50) == Step.LAPSED
    proven = FaultProven(3, V, C, 3, b"\x0c" * 32, 4, (50, 40, 0, 10))
    assert at(chain(filed(0, 8, 20), proven), 9) == Step.PROVEN


def test_where_another_was_faster_only_a_filing_of_ones_own_is_proven() -> None:
    by_other = FaultProven(3, V, OTHER, 3, b"\x0c" * 32, 4, (50, 40, 0, 10))
    slash = StakeSlashed(V, Role.VERIFIER, CHALLENGE.name, (50, 40, 0, 10), OTHER, OTHER)
    assert at(chain(by_other, slash), 9) == Step.PUNISHED
    assert at(chain(filed(0, 8, 20), by_other, slash), 9) == Step.PROVE  # the bond comes back


def test_names_and_numbers_are_the_contracts() -> None:
    # FaultCourt: keccak256(abi.encode("verdraft/fault/1", number, guilty, startHash, round)).
    kinds = ("string", "uint256", "address", "bytes32", "uint256")
    coded = encode(kinds, ("verdraft/fault/1", 3, "0x" + V.hex(), b"\x0c" * 32, 4))
    assert CHALLENGE.name == keccak256(coded)
    assert {number_of(code) for code in (*LeafFault, *Code)} == {1, 2, 3, 4, 5}
    assert number_of(Code.DRAFT_TWICE) == 1
    assert number_of(Code.VERDICT_TWICE) == 2
    assert number_of(LeafFault.OTHER_DRAFT) == 3
    assert number_of(Code.WINDOW_VERIFIER) == number_of(LeafFault.DRAW) == 4
    assert number_of(Code.ROUND_TWICE) == number_of(LeafFault.WRONG_POSITION) == 5


def test_calls_made_for_their_reward_are_weighed_against_their_gas() -> None:
    calls = json.loads((CONTRACTS / "gas.json").read_text())["calls"]
    proofs = [gas for name, gas in calls.items() if name.startswith("fault_F")]
    assert max(proofs) + calls["fault_file"] <= PROOF_GAS
    assert max(calls["draw_expire"], calls["case_expire"]) <= EXPIRE_GAS


# ---------------------------------------------------------------- shown


def test_every_row_says_who_does_what_next() -> None:
    events = chain(draw(), case(), filed(0, 8, 20)) + leaf_demand() + session_demand()
    rows = disputes(fold(events), V, 100, 9)
    assert [row.kind for row in rows] == ["draw", "demand", "session demand", "case", "filing"]
    by_kind = {row.kind: row for row in rows}
    assert by_kind["draw"].next == "this node opens sample 0, 1 or loses 5 % of its stake"
    assert by_kind["demand"].part == by_kind["session demand"].part == "accused"
    assert by_kind["case"].part == ""
    assert by_kind["case"].next == "the drafter asserts its draft model or loses 10 % of its stake"
    assert (by_kind["filing"].until_block, by_kind["filing"].state) == (20, "open")
    assert all(row.open and row.next for row in rows)
    assert [row.part for row in disputes(fold(events), C, 100, 9)] == ["", "by", "by", "", "by"]
    late = {row.kind: row.next for row in disputes(fold(events), None, 300, 30)}
    assert late["draw"] == "anybody may call expire: 5 % of the verifier's stake"
    assert late["demand"] == "the demander takes 5 % of the verifier's stake"
    assert late["filing"].startswith("anybody may forfeit")
