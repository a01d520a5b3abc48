"""What a key has to do about draws, demands, cases and faults, and by when. Pure.

Records and confirmed events go in; duties come out, each with the transaction that carries it out,
its deadline, the bond it takes and what it pays. Nothing is remembered: what is still to do is what
the chain says is not done, so a restart or a reorganisation needs no memory but the journalled
challenges and secrets. Duties are idempotent intents of the key's one sender; those that depend on
a block that may be undone carry its hash in their name, so that done again they are sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol

from settlement.chain.contracts import AlphaLedger, Contracts, Demands, FaultCourt, Role
from settlement.chain.send_journal import Call
from settlement.chain.standing import (
    BatchView,
    CaseView,
    ClaimCaseStage,
    DemandStage,
    DemandView,
    DrawView,
    Standing,
)
from settlement.challenges import Challenge, Step, source_of, standpoint
from settlement.draws import BatchEvidence, CannotOpen, is_drawn, opening_of
from settlement.duties import PROOF_GAS, Action, Bond, Duty, Lack, Now, Plan, Policy, Price
from settlement.fault_proofs import MODEL_FAULT
from settlement.hashing import keccak256, uint
from settlement.records import Lane
from settlement.sealing import Text, point_of, seal

CAPTURED_AT_ONCE: Final = 50  # batches; some 50,000 gas each


class Records(Protocol):
    """What a node holds. `holds` is a quick `batch(root) is not None`; `secret` gives 32 random
    bytes by name, journalled at the first call."""

    def holds(self, root: bytes) -> bool: ...
    def batch(self, root: bytes) -> BatchEvidence | None: ...
    def text(self, start_hash: bytes, round_: int) -> Text | None: ...
    def secret(self, name: str) -> bytes: ...


class Watch:
    """One key's part. What other keys of its account have signed, before a rotation, it answers
    for."""

    def __init__(self, contracts: Contracts, key: bytes, records: Records, policy: Policy) -> None:
        self._contracts = contracts
        self._key = key
        self._mine = frozenset([key])
        self._records = records
        self._policy = policy

    def plan(self, standing: Standing, now: Now) -> Plan:
        """Everything but challenges, the most pressing kinds first: one's own defence, then what
        others must do, then what only pays."""
        plan = Plan()
        self._mine = standing.keys_of(self._key)
        for drawn in standing.draws.values():
            if drawn.verifier in self._mine and drawn.running and now.time <= drawn.second_until:
                with plan.apart(Action.OPEN, _draw_name(drawn), drawn.until):
                    self._open(plan, drawn)
        for demand in standing.demands.values():
            if demand.verifier in self._mine:
                with plan.apart(Action.ANSWER, _demand_name(demand), demand.until):
                    self._defend(plan, demand, now)
        for case in standing.cases.values():
            with plan.apart(Action.ASSERT, f"case {case.id}", case.until):
                self._case(plan, case, now)
        self._captures(plan, standing, now)
        for batch in standing.batches.values():
            with plan.apart(Action.DRAW, f"batch {batch.id}", batch.evidence_until):
                self._draw(plan, batch, standing, now)
        for drawn in standing.draws.values():
            if drawn.verifier not in self._mine and drawn.running and now.time > drawn.until:
                self._expire_draw(plan, drawn, now)
        for demand in standing.demands.values():
            if demand.by in self._mine and demand.running and now.time > demand.until:
                self._expire_demand(plan, demand)
        self._demands(plan, standing, now)
        plan.duties.extend(self._pulls(standing))
        return plan

    # ------------------------------------------------------------ draws

    def _turn(self, mark: bytes, since: float, now: int) -> bool:
        """Whether this key's moment has come to do what anybody may do since then."""
        draw = int.from_bytes(keccak256(self._key, mark)[:4], "big")
        return now - since >= self._policy.patience * draw / 2**32

    def _captures(self, plan: Plan, standing: Standing, now: Now) -> None:
        """Randomness that has come, many batches in one transaction, those of this key's own lanes
        first: anybody can have any number of batches registered."""
        own: list[BatchView] = []
        others: list[BatchView] = []
        for batch in standing.batches.values():
            if batch.captured or now.block <= batch.target:
                continue
            lanes = [standing.lanes.get(entry.lane) for entry in batch.entries]
            if any(lane and lane.verifier in self._mine for lane in lanes):
                own.append(batch)
            elif self._turn(uint(batch.id, 8), batch.settled_at, now.time):
                others.append(batch)
        for kind in (own, others):
            for at in range(0, len(kind), CAPTURED_AT_ONCE):
                part = kind[at : at + CAPTURED_AT_ONCE]
                call = self._contracts.beacon.capture([batch.batch for batch in part])
                ids = ",".join(f"{batch.id}:{batch.target}" for batch in part[:1])
                about = f"batch {part[0].id}" + (f" and {len(part) - 1} more" if part[1:] else "")
                intent = _intent(Action.CAPTURE, call, ids)
                plan.duties.append(Duty(Action.CAPTURE, about, intent, call))

    def _draw(self, plan: Plan, batch: BatchView, standing: Standing, now: Now) -> None:
        if not (self._policy.draws and batch.captured and now.time <= batch.evidence_until):
            return
        if not self._turn(uint(batch.id, 8), batch.settled_at, now.time):
            return
        for index, entry in enumerate(batch.entries):
            lane = standing.lanes.get(entry.lane)
            if lane is None or (batch.id, index) in standing.draws:
                continue
            if not is_drawn(batch.randomness, index, batch.draw_terms, entry.coverage):
                continue
            call = self._contracts.beacon.draw(batch.batch, batch.packed(), index, lane)
            intent = _intent(Action.DRAW, call, f"{batch.id}:{index}")
            about = f"draw {batch.id}/{index}"
            plan.duties.append(Duty(Action.DRAW, about, intent, call, batch.evidence_until))

    def _open(self, plan: Plan, drawn: DrawView) -> None:
        about = _draw_name(drawn)
        held = self._records.batch(drawn.root)
        if held is None:
            reason = f"no rounds under root 0x{drawn.root.hex()} are held here"
            plan.lacks.append(Lack(Action.OPEN, about, drawn.until, reason))
            return
        for sample in range(drawn.samples):
            if sample in drawn.opened:
                continue
            try:
                opening = opening_of(held, drawn.root, drawn.seed, sample)
            except CannotOpen as error:
                plan.lacks.append(Lack(Action.OPEN, about, drawn.until, str(error)))
                continue
            call = self._contracts.beacon.open(drawn.draw, sample, opening)
            name = f"{drawn.key[0]}:{drawn.key[1]}:{sample}"
            intent = _intent(Action.OPEN, call, name, drawn.since)
            plan.duties.append(Duty(Action.OPEN, about, intent, call, drawn.until))

    def _expire_draw(self, plan: Plan, drawn: DrawView, now: Now) -> None:
        if not self._turn(drawn.seed, drawn.until, now.time):
            return
        call = self._contracts.beacon.expire(drawn.draw)
        name = f"draw:{drawn.key[0]}:{drawn.key[1]}:{drawn.stage.name}"
        price = Price(drawn.verifier, Role.VERIFIER, *drawn.price_bps)
        about = _draw_name(drawn)
        intent = _intent(Action.EXPIRE, call, name, drawn.since)
        plan.duties.append(Duty(Action.EXPIRE, about, intent, call, price=price))

    # ------------------------------------------------------------ demands

    def _defend(self, plan: Plan, demand: DemandView, now: Now) -> None:
        about = _demand_name(demand)
        if demand.of_session and demand.stage == DemandStage.ANSWERED:
            if now.time > demand.until:
                call = self._contracts.session_demands.close(demand.demand)
                intent = _intent(Action.CLOSE, call, demand.id.hex(), demand.since)
                plan.duties.append(Duty(Action.CLOSE, about, intent, call))
            return
        if not demand.running or now.time > demand.second_until:
            return
        answer = self._text_of(demand) if demand.of_session else self._position_of(demand)
        if isinstance(answer, str):
            plan.lacks.append(Lack(Action.ANSWER, about, demand.until, answer))
            return
        # One answer a demand and block: its secret is fixed, so its bytes are.
        intent = _intent(Action.ANSWER, answer, demand.id.hex(), demand.since)
        plan.duties.append(Duty(Action.ANSWER, about, intent, answer, demand.until))

    def _position_of(self, demand: DemandView) -> Call | str:
        """The answer to a leaf demand, or why there is none."""
        held = self._records.batch(demand.root)
        if held is None:
            return f"no rounds under root 0x{demand.root.hex()} are held here"
        try:
            opening = opening_of(held, demand.root, demand.seed, 0)
        except CannotOpen as error:
            return str(error)
        return self._contracts.demands.answer(demand.demand, opening)

    def _text_of(self, demand: DemandView) -> Call | str:
        """The answer to a session demand, or why there is none."""
        start_hash, number, _prompt, _context, tokens, reader = demand.session
        text = self._records.text(start_hash, number)
        if text is None:
            return f"session 0x{start_hash.hex()} is not held here up to round {number}"
        if len(text.output) != tokens:
            return f"the session held here has {len(text.output)} tokens there, not {tokens}"
        secret = self._records.secret(f"answer:{demand.id.hex()}")
        sealed = seal(text, demand.id, reader, secret)
        return self._contracts.session_demands.answer(demand.demand, point_of(secret), sealed)

    def _expire_demand(self, plan: Plan, demand: DemandView) -> None:
        court = self._contracts.session_demands if demand.of_session else self._contracts.demands
        call = court.expire(demand.demand)
        name = f"demand:{demand.id.hex()}:{demand.stage.name}"
        price = Price(demand.verifier, Role.VERIFIER, *demand.price_bps)
        about = _demand_name(demand)
        intent = _intent(Action.EXPIRE, call, name, demand.since)
        # At the last deadline the demander's bond comes back with it.
        paying = price if demand.stage == DemandStage.OPEN else None
        plan.duties.append(Duty(Action.EXPIRE, about, intent, call, price=paying))

    def _demands(self, plan: Plan, standing: Standing, now: Now) -> None:
        """Positions of roots that were settled on this key's lanes behind its back."""
        left = self._policy.demand_budget
        asked: set[bytes] = set()
        for demand in standing.demands.values():
            if demand.by in self._mine and not demand.of_session:
                asked.add(demand.root)
        if not left:
            return
        window = max(
            (b.evidence_until - b.settled_at for b in standing.batches.values()), default=0
        )
        for demand in standing.demands.values():
            made = demand.first_until - int(demand.demand[-1][1])
            if demand.by in self._mine and made > now.time - window:
                left -= demand.bond
        bond = None
        for batch, index, entry, lane in standing.settlements():
            if not self._is_concerned(lane) or entry.root in asked:
                continue
            # Its randomness first: a batch moves on the chain when it comes.
            if not batch.captured or now.time > batch.evidence_until:
                continue
            if now.time - batch.settled_at < self._policy.demand_after:
                continue
            if self._records.holds(entry.root):
                continue
            bond = self._contracts.demands.bond() if bond is None else bond
            if bond > left:
                reason = f"a demand takes {bond} token units and {max(left, 0)} are left for them"
                about = f"root 0x{entry.root.hex()[:12]}"
                plan.lacks.append(Lack(Action.DEMAND, about, batch.evidence_until, reason))
                return
            left -= bond
            seed = self._records.secret(f"demand:{entry.root.hex()}")
            call = self._contracts.demands.demand_leaf(
                batch.batch, batch.packed(), index, lane, seed
            )
            asked.add(entry.root)
            intent = _intent(Action.DEMAND, call, entry.root.hex())
            about = f"root 0x{entry.root.hex()[:12]}"
            taken = Bond(self._contracts.demands.address, bond)
            plan.duties.append(
                Duty(Action.DEMAND, about, intent, call, batch.evidence_until, taken)
            )

    def _is_concerned(self, lane: Lane) -> bool:
        """Whether V owes this key its evidence: C's or D's lanes, and not V's own."""
        parties = {lane.client, lane.drafter}
        return bool(parties & self._mine) and lane.verifier not in self._mine

    # ------------------------------------------------------------ cases

    def _case(self, plan: Plan, case: CaseView, now: Now) -> None:
        ledger, about = self._contracts.ledger, f"case {case.id}"
        name = f"{case.id}:{case.stage.name}"
        if case.drafter in self._mine:
            if case.running and now.time <= case.second_until:
                call = ledger.assert_draft_model(case.id)
                intent = _intent(Action.ASSERT, call, name, case.since)
                bond = Bond(ledger.address, case.bond)
                plan.duties.append(Duty(Action.ASSERT, about, intent, call, case.until, bond))
            elif case.stage == ClaimCaseStage.ANSWERED and now.time > case.until:
                call = ledger.conclude(case.id)
                intent = _intent(Action.CONCLUDE, call, name, case.since)
                plan.duties.append(Duty(Action.CONCLUDE, about, intent, call))
        elif case.flagger in self._mine and case.running and now.time > case.until:
            call = ledger.expire(case.id)
            price = Price(case.drafter, Role.DRAFTER, *case.price_bps)
            intent = _intent(Action.EXPIRE, call, f"case:{name}", case.since)
            plan.duties.append(Duty(Action.EXPIRE, about, intent, call, price=price))

    # ------------------------------------------------------------ bonds

    def _pulls(self, standing: Standing) -> Iterator[Duty]:
        """Where something of this key's has ended, and a bond may lie ready."""
        contracts, key = self._contracts, self._key
        proven = [j.number for j in standing.judged if j.where == "proof" and j.by == key]
        ended = {
            "FaultCourt": any(number != MODEL_FAULT for number in proven),
            "ExactDispute": MODEL_FAULT in proven,
            "EvidenceDemands": False,
            "SessionDemands": False,
            "AlphaLedger": any(
                case.answered_by == key
                and case.stage in (ClaimCaseStage.STOOD, ClaimCaseStage.DISMISSED)
                for case in standing.cases.values()
            ),
        }
        over = (DemandStage.SHOWN, DemandStage.FAULTY, DemandStage.SILENT)
        for demand in standing.demands.values():
            if demand.stage in over and key in (demand.by, demand.verifier):
                ended[demand.contract] = True
        holders: dict[str, FaultCourt | Demands | AlphaLedger] = {
            "FaultCourt": contracts.court,
            "ExactDispute": contracts.exact_dispute,
            "EvidenceDemands": contracts.demands,
            "SessionDemands": contracts.session_demands,
            "AlphaLedger": contracts.ledger,
        }
        for name, has in ended.items():
            if has:
                call = holders[name].pull_bond(key)
                intent = f"{Action.PULL}:{name}:{standing.pulled.get((name, key), 0)}"
                yield Duty(Action.PULL, f"bonds in {name}", intent, call)


# ---------------------------------------------------------------- challenges


def challenge_duties(
    contracts: Contracts,
    key: bytes,
    challenges: Sequence[Challenge],
    standing: Standing,
    now: Now,
    records: Records,
    slashable: Callable[[Challenge], int],
    terms: tuple[int, ...],
) -> list[tuple[Challenge, Step, Duty | None]]:
    """The next step of each challenge, with its transaction where there is one to send.

    Args:
        slashable: the guilty role's whole stake now.
        terms: the courts' for filings now, in the ABI's order; they are deployed with the same.
    """
    out: list[tuple[Challenge, Step, Duty | None]] = []
    bond, _delay, _window, *shares, _victims = terms
    for challenge in challenges:
        fault = challenge.fault
        stake = partial(slashable, challenge)
        # One block further on: that is where a transaction sent now can be mined.
        at = standpoint(challenge, standing, key, now.block + 1, stake, records.secret)
        about = f"F{fault.number} of 0x{fault.guilty.hex()[:12]}, round {fault.round}"
        step, duty = at.step, None
        source = source_of(challenge, standing) if fault.kind.of_tree else None
        if source is None and fault.kind.of_tree and step in (Step.FILE, Step.PROVE):
            step = Step.UNSOURCED
        court = contracts.court_of(fault)
        if step == Step.FILE:
            call = court.file(at.commitment)
            duty = Duty(
                Action.FILE,
                about,
                f"{Action.FILE}:{at.commitment.hex()}",
                call,
                bond=Bond(court.address, bond),
                price=Price(fault.guilty, challenge.role, *shares),
                gas=PROOF_GAS,
            )
        elif step == Step.PROVE:
            assert at.filing is not None
            call = court.prove(fault, at.salt, source)
            intent = _intent(Action.PROVE, call, at.commitment.hex(), at.filing.since)
            duty = Duty(Action.PROVE, about, intent, call)
        out.append((challenge, step, duty))
    return out


def _draw_name(drawn: DrawView) -> str:
    return f"draw {drawn.key[0]}/{drawn.key[1]}"


def _demand_name(demand: DemandView) -> str:
    return f"demand 0x{demand.id.hex()[:12]}"


def _intent(action: Action, call: Call, name: str, since: bytes = b"") -> str:
    """Names all that the call depends on: the matter, its bytes, and the block it rests on."""
    mark = keccak256(call.data)[:6].hex()
    rest = f":{since[:6].hex()}" if since else ""
    return f"{action}:{name}:{mark}{rest}"
