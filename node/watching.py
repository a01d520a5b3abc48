"""The watcher's shell in a daemon: looks whenever blocks came, and does what is due.

What is due, `settlement.watcher` says. Here the journal's records meet the confirmed chain: settled
roots of this node's lanes are checked, signed faults that roles have kept become challenges, and
each duty goes through the key's one sender. Nothing here is remembered that a restart would miss:
challenges and secrets are journalled before anything is sent, and the rest follows from events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import count
from math import inf
from time import monotonic
from typing import Any, Final

import trio

from node.chainwatch import ChainWatch
from node.config import ChainConfig, PanelConfig
from node.holdings import Holdings
from node.roles.accusations import Accusation
from node.roles.ports import Node
from settlement.chain.contracts import Contracts
from settlement.chain.errors import ChainError, Reverted
from settlement.chain.indexer import ChainEvent
from settlement.chain.sender import Sender
from settlement.chain.standing import Standing, fold
from settlement.challenges import Challenge, Step
from settlement.claim_watch import ClaimWatch
from settlement.duties import Action, Bond, Duty, Lack, Now, Plan, Policy
from settlement.fault_proofs import Fault
from settlement.faults import equivocations, find_faults
from settlement.panel_watch import PanelPolicy, PanelWatch
from settlement.round_faults import round_faults
from settlement.ticket_watch import TicketWatch
from settlement.watcher import Watch, challenge_duties

WAIT_SECONDS: Final = 30.0  # for one transaction, before the others are looked at again
LOOK_SECONDS: Final = 60.0  # for what is not this node's own defence, before all is planned anew
# What this node loses stake by leaving undone; the rest pays, or moves others' matters on.
DEFENCE: Final = frozenset(
    {
        Action.OPEN,
        Action.ANSWER,
        Action.ASSERT,
        Action.UNSEAL,
        Action.COMMIT,
        Action.REVEAL,
        Action.APPEAL,
        Action.NAME,  # a bond, and the pay of those who have answered
    }
)
BASES_CHECKED: Final = 4  # earlier batches of a lane that a new one is held against
FOUND: Final = "found"  # the journal's name for faults that await their first look


def keep_found(node: Node, contracts: Contracts, faults: Iterable[Fault]) -> None:
    """Journals faults with their evidence, for the node's watcher to prove at its next look. In the
    journal's thread; once each."""
    for fault in faults:
        challenge = Challenge.of(contracts, fault)
        node.journal.secret_once(f"{FOUND}:{challenge.name.hex()}", challenge.to_wire)


class WatchDesk:
    """Watches for one node until cancelled."""

    def __init__(
        self,
        contracts: Contracts,
        sender: Sender,
        chain: ChainWatch,
        node: Node,
        config: ChainConfig,
        *,
        draws: bool,
        panel: PanelConfig | None = None,
    ) -> None:
        """`panel`: what this node does on panels; None: the least that it must."""
        self._contracts, self._sender, self._chain = contracts, sender, chain
        self._node, self._config = node, config
        self._records = Holdings(node)
        self._draws = draws
        self._panel = panel or PanelConfig(seat=False, accuse_tokens=0.0, appeal_tokens=0.0)
        self._policy, self._panel_policy = Policy(draws=draws), PanelPolicy()
        self._claims, self._tickets = ClaimWatch(), TicketWatch()
        self._challenges: dict[str, Challenge] = {}  # by their journalled names
        self._checked: set[bytes] = set()  # settled roots that were looked through
        self._weighed: set[str] = set()  # accusations that were
        self._told: dict[str, str] = {}  # what was said last of a matter: said once
        self._plan = Plan()
        self._stopped_at = ""  # the duty that the last look had no time for
        self._steps: list[tuple[Challenge, Step, Duty | None]] = []

    async def run(self) -> None:
        """Looks after every block, and from time to time without one: deadlines pass by the
        clock."""
        decimals = await trio.to_thread.run_sync(self._contracts.token.decimals)
        self._policy = self.policy_of(decimals)
        self._panel_policy = self.panel_policy_of(decimals)
        while True:
            changed = self._chain.changed
            try:
                await trio.to_thread.run_sync(self.look, tuple(self._chain.events))
            except ChainError as error:
                self._node.log.warning("disputes not looked at", reason=str(error))
            except Exception:
                # What came from others, or a fault of ours: the node goes on, and says it.
                self._node.metrics.count("watch_failed")
                self._node.log.exception("disputes not looked at")
            with trio.move_on_after(4 * self._config.poll_seconds):
                await changed.wait()

    def policy_of(self, decimals: int) -> Policy:
        """What the configuration asks for, in a token of so many decimals."""
        return Policy(
            draws=self._draws,
            patience=self._config.draw_patience_seconds,
            demand_budget=round(self._config.demand_tokens * 10**decimals),
            demand_after=self._config.draw_patience_seconds,
        )

    def panel_policy_of(self, decimals: int) -> PanelPolicy:
        """The same, of panels."""
        return PanelPolicy(
            seats=self._panel.seat,
            # In whole units: 25,000 tokens times 10**18 as a float is a little less.
            bond=round(Fraction(self._panel.accuse_tokens) * 10**decimals),
            appeal=round(Fraction(self._panel.appeal_tokens) * 10**decimals),
            patience=self._config.draw_patience_seconds,
        )

    def view(self) -> dict[str, Any]:
        """What this node knows and is about to do, as JSON."""
        return {
            "challenges": [
                {
                    "fault": f"F{challenge.fault.number}",
                    "code": int(challenge.fault.code),
                    "guilty": "0x" + challenge.fault.guilty.hex(),
                    "role": challenge.role.name.lower(),
                    "start_hash": "0x" + challenge.fault.start_hash.hex(),
                    "round": challenge.fault.round,
                    "step": str(step),
                    "until": None if duty is None else duty.until,
                }
                for challenge, step, duty in self._steps
            ],
            "due": [
                {"action": str(duty.action), "about": duty.about, "until": duty.until}
                for duty in self._plan.duties
                if duty.action != Action.PULL
            ],
            "lacking": [
                {
                    "action": str(lack.action),
                    "about": lack.about,
                    "until": lack.until,
                    "reason": lack.reason,
                }
                for lack in self._plan.lacks
            ],
        }

    # ------------------------------------------------------------ one look, in a worker thread

    def look(self, events: Iterable[ChainEvent]) -> int:
        """One look at everything; returns how many transactions were sent and mined. One matter's
        trouble stops no other."""
        events = tuple(events)
        standing = fold(events)
        head = self._contracts.rpc.head()
        now = Now(head.number, head.timestamp)
        watch = Watch(self._contracts, self._node.address, self._records, self._policy)
        plan = watch.plan(standing, now)
        mine = standing.keys_of(self._node.address)
        judged = PanelWatch(
            self._contracts, self._node.address, mine, self._records, self._panel_policy
        ).plan(events, standing, now)
        plan.lacks += judged.lacks
        key = self._node.address
        sealed = self._tickets.plan(
            self._contracts, key, mine, self._records, events, standing, now, self._panel_policy
        )
        plan.lacks += sealed.lacks
        tested = self._claims.plan(self._contracts, key, events, standing, now, self._policy)
        duties = judged.duties + sealed.duties + plan.duties + tested.duties
        defence = [duty for duty in duties if duty.action in DEFENCE]
        defence.sort(key=lambda duty: inf if duty.until is None else duty.until)
        rest = [duty for duty in duties if duty.action not in DEFENCE]
        plan.duties = defence + rest
        self._plan = plan
        for lack in plan.lacks:
            self._tell_lack(lack)
        began = monotonic()
        done = sum(self._do(duty) for duty in defence)
        self._find(standing, now)
        done += self._prove(standing, now)
        return done + self._do_while(rest, began + LOOK_SECONDS)

    def _do_while(self, duties: Sequence[Duty], until: float) -> int:
        """Carries out what time allows, from where the last look stopped: anybody can make any
        number of duties that are nobody's own, and the defence has to come round again."""
        names = [duty.intent for duty in duties]
        at = names.index(self._stopped_at) if self._stopped_at in names else 0
        self._stopped_at, done = "", 0
        for duty in (*duties[at:], *duties[:at]):
            if monotonic() >= until:
                self._stopped_at = duty.intent
                break
            done += self._do(duty)
        return done

    def _tell_lack(self, lack: Lack) -> None:
        if self._once(f"lack:{lack.action}:{lack.about}", lack.reason):
            self._node.metrics.count("watch_lacking")
            self._node.log.error(
                "cannot do what is due",
                what=str(lack.action),
                about=lack.about,
                until=lack.until,
                reason=lack.reason,
            )

    def _once(self, matter: str, said: str) -> bool:
        """Whether this is news."""
        news = self._told.get(matter) != said
        self._told[matter] = said
        return news

    # ------------------------------------------------------------ doing

    def _do(self, duty: Duty) -> int:
        """Carries a duty out, if it is worth it and its bond is there. 1 when it was."""
        log = self._node.log.bind(about=duty.about)
        try:
            if duty.action == Action.PULL and not self._has_bond(duty):
                return 0
            if not self._pays(duty):
                return 0
            if duty.bond is not None and not self._allow(duty.bond, duty):
                return 0
            mined = self._sender.send(
                # The contracts take none of these calls twice.
                self._sender.attempt(duty.intent),
                duty.call,
                timeout=WAIT_SECONDS,
            )
        except (Reverted, ChainError) as error:
            if self._once(duty.intent, str(error)):
                self._node.metrics.count("watch_refused")
                what = "refused" if isinstance(error, Reverted) else "not sent"
                log.warning(f"{duty.action} {what}", reason=str(error), until=duty.until)
            return 0
        if not self._once(duty.intent, "done"):
            return 0
        self._node.metrics.count(f"watch_{duty.action}")
        log.info(str(duty.action), transaction=mined.hash.hex(), gas=mined.gas_used)
        return 1

    def _has_bond(self, duty: Duty) -> bool:
        contracts = self._contracts
        courts = (contracts.court, contracts.exact_dispute)
        demands = (contracts.demands, contracts.session_demands)
        holders = (*courts, *demands, contracts.ledger)
        return any(
            holder.bond_of(self._node.address) > 0
            for holder in holders
            if holder.address == duty.call.to
        )

    def _pays(self, duty: Duty) -> bool:
        """Whether what a call is made for is worth more than its gas."""
        if duty.price is None:
            return True
        price = duty.price
        reward = price.reward(self._contracts.vault.slashable(price.guilty, price.role))
        wei = duty.gas * self._contracts.rpc.gas_price()
        cost = wei * self._config.token_per_wei
        if reward > cost:
            return True
        if self._once(duty.intent, "does not pay"):
            self._node.log.info(
                "left undone, for it does not pay",
                what=str(duty.action),
                about=duty.about,
                reward=str(reward),
                gas=f"{cost:.0f}",
            )
        return False

    def _allow(self, bond: Bond, duty: Duty) -> bool:
        """Lets the contract take the bond, and no more."""
        token, key = self._contracts.token, self._node.address
        held = token.balance_of(key)
        if held < bond.amount:
            reason = f"the key holds {held} token units and the bond is {bond.amount}"
            lack = Lack(duty.action, duty.about, duty.until or 0, reason)
            self._plan.lacks.append(lack)
            self._tell_lack(lack)
            return False
        for number in count():
            if token.allowance(key, bond.spender) >= bond.amount:
                return True
            # An allowance that was used up needs another transaction, under another name.
            intent = f"allow:{bond.spender.hex()}:{number}"
            known = self._sender.find(intent)
            if known is None or known.result is None:
                call = token.approve(bond.spender, bond.amount) if known is None else known.call
                self._sender.send(intent, call, timeout=WAIT_SECONDS)
        return False

    @contextmanager
    def _apart(self, matter: str) -> Iterator[None]:
        """One matter among many, as `Plan.apart`: told, and not tried again before a restart."""
        try:
            yield
        except ChainError:
            raise
        except Exception:
            self._node.metrics.count("watch_failed")
            self._node.log.exception("this program fails on it", about=matter)

    # ------------------------------------------------------------ finding faults

    def _find(self, standing: Standing, now: Now) -> None:
        """Looks through what is new: kept accusations, and settled roots of this node's lanes."""
        self._weigh_accusations(standing)
        self._weigh_found(standing)
        mine = standing.keys_of(self._node.address)
        of_lane: dict[bytes, list[bytes]] = {}
        for batch, _index, entry, lane in standing.settlements():
            if not mine & {lane.client, lane.drafter, lane.verifier}:
                continue
            roots = of_lane.setdefault(lane.id, [])
            roots.append(entry.root)
            # Past the evidence lifetime records may be pruned, and stakes begin to go.
            if entry.root in self._checked or now.time > batch.evidence_until:
                continue
            found = self._records.batch(entry.root)
            if found is None:
                continue
            with self._apart(f"root 0x{entry.root.hex()[:12]}"):
                older = [self._records.batch(root) for root in roots[-1 - BASES_CHECKED : -1]]
                held = [batch for batch in (*older, found) if batch is not None and batch.rounds]
                self.accuse(find_faults(self._node.domain, lane, *held), mine)
                self._node.metrics.count("watch_settlements_checked")
            self._checked.add(entry.root)

    def _weigh_accusations(self, standing: Standing) -> None:
        room = self._records.room
        for name, accusation in self._records.hop(lambda: list(room.accusations())):
            if name in self._weighed:
                continue
            with self._apart(name):
                self._weigh(name, accusation, standing)
            self._weighed.add(name)

    def _weigh(self, name: str, accusation: Accusation, standing: Standing) -> None:
        domain, room = self._node.domain, self._records.room
        here, before = accusation.evidence()
        start_hash, number = here.verdict.start_hash, here.verdict.round
        held = self._records.hop(room.round, start_hash, number)
        if before is None and number:
            before = self._records.hop(room.round, start_hash, number - 1)
        faults = list(round_faults(domain, here, before))
        if held is not None:
            faults += equivocations(domain, here, held)
        faults += self._equivocations_with(accusation.start.struct_hash, name)
        self.accuse(faults, standing.keys_of(self._node.address))
        if not faults:
            self._node.metrics.count("watch_unprovable")
            self._node.log.info("no contract can judge what was kept", accusation=name)

    def _weigh_found(self, standing: Standing) -> None:
        """Faults that an audit has found, kept by `keep_found`."""
        for name, wire in self._records.hop(self._node.journal.secrets_under, FOUND):
            if name not in self._weighed:
                with self._apart(name):
                    fault = Challenge.from_wire(self._contracts, wire).fault
                    self.accuse([fault], standing.keys_of(self._node.address))
                self._weighed.add(name)

    def _equivocations_with(self, start_hash: bytes, name: str) -> list[Fault]:
        """Two accusations of one session may be each other's proof: neither window counted, say."""
        domain, room = self._node.domain, self._records.room
        found = dict(self._records.hop(lambda: list(room.accusations())))
        one, _ = found[name].evidence()
        out: list[Fault] = []
        for other_name, other in found.items():
            if other_name != name and other.start.struct_hash == start_hash:
                out += equivocations(domain, one, other.evidence()[0])
        return out

    def accuse(self, faults: Sequence[Fault], mine: frozenset[bytes]) -> None:
        """Makes challenges of faults that the contract sees as well, journalled once."""
        for fault in faults:
            about = f"F{fault.number}, code {int(fault.code)}, round {fault.round}"
            if fault.guilty in mine:
                self._node.metrics.count("own_faults")
                self._node.log.error("this node's own records break a rule", fault=about)
                continue
            challenge = Challenge.of(self._contracts, fault)
            name = f"challenge:{challenge.name.hex()}"
            if name in self._challenges:
                continue
            try:
                rule = self._contracts.rule_of(fault)
                rule.ruling(fault, self._contracts.domain.separator)
            except Reverted as error:
                # Would cost a bond: what Python finds and the contract does not is our own bug.
                self._node.metrics.count("watch_unprovable")
                self._node.log.error("the contract sees no fault", fault=about, reason=str(error))
                continue
            wire = self._records.hop(self._node.journal.secret_once, name, challenge.to_wire)
            self._challenges[name] = Challenge.from_wire(self._contracts, wire)
            self._node.metrics.count("faults_found")
            self._node.log.warning("fault found", fault=about, guilty="0x" + fault.guilty.hex())

    # ------------------------------------------------------------ proving

    def _prove(self, standing: Standing, now: Now) -> int:
        journal = self._node.journal
        for name, wire in self._records.hop(journal.secrets_under, "challenge"):
            if name not in self._challenges:
                self._challenges[name] = Challenge.from_wire(self._contracts, wire)
        if not self._challenges:
            return 0
        contracts = self._contracts
        terms = contracts.court.terms()
        self._steps = []
        for name, challenge in self._challenges.items():
            with self._apart(name):
                self._steps += challenge_duties(
                    contracts,
                    self._node.address,
                    [challenge],
                    standing,
                    now,
                    self._records,
                    lambda found: contracts.vault.slashable(found.fault.guilty, found.role),
                    terms,
                )
        done = 0
        for challenge, step, duty in self._steps:
            if duty is not None:
                done += self._do(duty)
            elif self._once(f"step:{challenge.name.hex()}", step):
                self._node.log.info("challenge", fault=f"F{challenge.fault.number}", step=str(step))
        return done
