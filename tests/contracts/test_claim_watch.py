"""A promise of rates that is not kept is flagged by the nodes whom it costs something."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deployment import (
    CLIENT,
    DRAFTER,
    TOKEN,
    VERIFIER,
    Book,
    Parties,
    deploy_devnet,
    make_sender,
    open_lane,
)
from watched_node import Followed, Watched

from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Contracts
from settlement.chain.events import CaseMoved, Counted, LaneSettled
from settlement.chain.lanes import Position, groups_of
from settlement.chain.standing import ClaimCaseStage
from settlement.claim_watch import WHOLE, claims_of, shortfall
from settlement.hashing import ZERO32, keccak256
from settlement.records import Claim, Manifest, Mode, RoundRecord, Sums, Tier
from settlement.signing import address_of_key

pytestmark = pytest.mark.slow
TARGET = Manifest("target", Tier.FLOAT32, b"\x01" * 32, b"\x02" * 32, 512, (2,), 1024)
PROMISED = 80
POOR = 9  # the bucket that falls short
D, V = address_of_key(DRAFTER), address_of_key(VERIFIER)


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    with Anvil() as chain:
        yield chain


@pytest.fixture(scope="module")
def opened(anvil: Anvil, tmp_path_factory: pytest.TempPathFactory) -> Contracts:
    folder = tmp_path_factory.mktemp("claims")
    return open_lane(deploy_devnet(anvil, folder), folder).contracts


class Counting:
    """One lane under a claim, and settlements over it with counts as asked for."""

    def __init__(self, contracts: Contracts, folder: Path) -> None:
        self.contracts = contracts
        self.chain = Followed(contracts, folder / "index.sqlite")
        senders = [
            make_sender(contracts.rpc, key, folder / key.hex(), contracts)
            for key in (CLIENT, DRAFTER, VERIFIER)
        ]
        self.parties = Parties(contracts, *senders)
        claim = Claim(D, TARGET.model_id, ZERO32, int(Mode.COUPLED), 1 << 16, (PROMISED,) * 16, 0)
        registry, ledger = contracts.registry, contracts.ledger
        self.parties.drafter.send("model", registry.register(TARGET))
        self.parties.drafter.send("claim", ledger.register(claim))
        self.claim_id = claim.struct_hash
        lane = self.parties.lane_of(self.claim_id)
        escrow, client = contracts.escrow, self.parties.client
        client.send("again", contracts.token.approve(escrow.address, 10**5 * TOKEN))
        client.send("under", escrow.reserve(lane, 10**5 * TOKEN))
        self.book, self.settled = Book(lane), 0
        self.position = Position(0, escrow.parameters().fee_bps)

    def settle(self, proposed: dict[int, int], accepted: dict[int, int]) -> None:
        wide = tuple(tuple(n.get(b, 0) for b in range(16)) for n in (proposed, accepted))
        total = sum(wide[1])
        sums = Sums(total, total, wide[0], wide[1])
        mark = keccak256(b"round", self.settled.to_bytes(4, "big"))
        self.book.leaves.append(
            RoundRecord(mark, 0, mark, mark, mark, mark, total, total, sums.buckets)
        )
        self.book.due_drafter += total
        self.book.due_verifier += total
        signed = self.book.sign(self.contracts)
        call = self.contracts.escrow.settle(
            self.contracts.token.address, groups_of([(signed, self.position)])
        )
        self.parties.verifier.send(f"settle:{self.settled}", call)
        done = [e.event for e in self.chain.read() if isinstance(e.event, LaneSettled)][-1]
        self.position = self.position.after(done, signed.voucher)
        self.book.rebase(signed)
        self.settled += 1

    def bout(self, rate: float, poor: float, each: int = 30) -> None:
        """Counts at these rates: exactly, so that nothing hangs on luck."""
        proposed = dict.fromkeys((0, 3, POOR), each)
        self.settle(proposed, {b: round(each * (poor if b == POOR else rate)) for b in proposed})


@pytest.fixture
def counting(anvil: Anvil, opened: Contracts, tmp_path: Path) -> Iterator[Counting]:
    with anvil.rolled_back():
        yield Counting(opened, tmp_path)


def agrees_with_chain(counting: Counting, events: Any) -> None:
    """Every series here is the chain's: checkpoints, floor, order, counts, scores."""
    ledger = counting.contracts.ledger
    claim = claims_of(events)[counting.claim_id]
    assert set(claim.series) == {WHOLE, V}
    for verifier, series in claim.series.items():
        seen = ledger.view("seriesOf", counting.claim_id, verifier)
        assert list(seen)[1:] == [series.newest, series.floor, series.order, series.era]
        for start in series.starts():
            proposed, accepted = ledger.view(
                "countsBetween", counting.claim_id, verifier, start, series.newest
            )
            after, before = series.at[series.newest], series.at[start]
            assert tuple(proposed) == tuple(
                a - b for a, b in zip(after.proposed, before.proposed, strict=True)
            )
            assert tuple(accepted) == tuple(
                a - b for a, b in zip(after.accepted, before.accepted, strict=True)
            )


def test_a_failed_promise_is_flagged_once_answered_and_the_rest_is_tested_anew(
    counting: Counting, tmp_path: Path
) -> None:
    contracts = counting.contracts
    verifier = Watched(contracts, VERIFIER, tmp_path / "v")
    drafter = Watched(contracts, DRAFTER, tmp_path / "d")
    try:
        for _ in range(6):
            counting.bout(0.8, 0.8)
        verifier.look()
        agrees_with_chain(counting, verifier.chain.read())
        assert not verifier.standing().cases
        while not verifier.standing().cases:
            counting.bout(0.8, 0.1)
            events = verifier.chain.read()
            agrees_with_chain(counting, events)
            claim = claims_of(events)[counting.claim_id]
            found = [f for v in claim.series if (f := shortfall(counting.claim_id, claim, v))]
            for test in found:
                score = contracts.ledger.score_of(
                    counting.claim_id, test.verifier, test.bucket, test.start, test.end
                )
                assert score == (test.evaluation.score, test.evaluation.threshold)
                assert test.bucket == POOR
            drafter.look()  # does not flag itself
            assert not verifier.standing().cases
            verifier.look()
            assert bool(verifier.standing().cases) == bool(found)
        verifier.look()
        (case,) = verifier.standing().cases.values()
        assert (case.flagger, case.drafter) == (V, D)
        drafter.look()
        assert verifier.standing().cases[case.id].stage == ClaimCaseStage.ANSWERED
        until = verifier.standing().cases[case.id].refutable_until
        contracts.rpc.request("evm_setNextBlockTimestamp", hex(until + 1))
        contracts.rpc.request("evm_mine")
        drafter.look()
        assert verifier.standing().cases[case.id].stage == ClaimCaseStage.STOOD
        # What was seen has replaced the promise: the same drafts break nothing now.
        rates = claims_of(verifier.chain.read())[counting.claim_id].rates
        assert rates[POOR] < PROMISED
        assert rates[0] == PROMISED
        for _ in range(3):
            counting.bout(0.8, rates[POOR] / 100)
            verifier.look()
        agrees_with_chain(counting, verifier.chain.read())
        assert len(verifier.standing().cases) == 1
    finally:
        verifier.close()
        drafter.close()


def test_a_reorganisation_takes_the_counts_back(counting: Counting, tmp_path: Path) -> None:
    for _ in range(4):
        counting.bout(0.8, 0.0)
    watched = Watched(counting.contracts, VERIFIER, tmp_path / "v")
    try:
        events = watched.chain.read()
        claim = claims_of(events)[counting.claim_id]
        assert shortfall(counting.claim_id, claim, V) is not None
        counts = [e for e in events if isinstance(e.event, Counted)]
        undone = [e for e in events if e.block_number < counts[1].block_number]
        claim = claims_of(undone)[counting.claim_id]
        assert shortfall(counting.claim_id, claim, V) is None
        # Under an open case, or with the promise void, nothing is tested.
        claim = claims_of(events)[counting.claim_id]
        for other in (replace(claim, case=7), replace(claim, void=True), replace(claim, era=1)):
            assert shortfall(counting.claim_id, other, V) is None
    finally:
        watched.close()


def test_a_dismissed_case_starts_both_series_after_it(counting: Counting, tmp_path: Path) -> None:
    watched = Watched(counting.contracts, VERIFIER, tmp_path / "v")
    try:
        for _ in range(3):  # more than either series needs, which the whole claim's does sooner
            counting.bout(0.8, 0.0)
        watched.look()
        (case,) = watched.standing().cases.values()
        events = list(watched.chain.read())
        moved = replace(
            events[-1],
            event=CaseMoved(case.id, counting.claim_id, int(ClaimCaseStage.DISMISSED)),
        )
        claim = claims_of([*events, moved])[counting.claim_id]
        assert claim.case is None
        assert bytes(case.opened[1]) == V
        for verifier in (WHOLE, V):
            assert claim.series[verifier].floor == claim.series[verifier].newest > 0
            assert shortfall(counting.claim_id, claim, verifier) is None
        gone = replace(
            moved, event=CaseMoved(case.id, counting.claim_id, int(ClaimCaseStage.UNANSWERED))
        )
        assert claims_of([*events, gone])[counting.claim_id].void
    finally:
        watched.close()
