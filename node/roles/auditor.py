"""The auditor: is drawn, fetches a session, runs it again, commits, sees the salts, reveals.

One task per drawn lane. What must not change after a restart is journalled before it is sent: the
salt, the digest and the signed commitment in one row, and the report at the end; a re-run repeats.

Commitments and reveals go as signed messages to V and to the other drawn auditors, and a report is
this node's word: nobody is slashed or paid by it. What a court can judge by itself goes to `prove`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

import trio

from node.network import exchange
from node.network.codec import decode
from node.network.errors import NetworkError, Refused
from node.network.messages import (
    MAX_SALTED_ROUNDS,
    AuditCommit,
    AuditReveal,
    Done,
    Kind,
    SaltsAnswer,
    SaltsRequest,
)
from node.roles.accusations import keep
from node.roles.auditing import (
    NO_SIGNATURE,
    DrawnLane,
    Draws,
    Verdict,
    commitment,
    fingerprint_digest,
    is_signed,
    opens,
    signed,
)
from node.roles.audits import SHOWN, Audit, Report, weigh
from node.roles.delivery import (
    Broken,
    Delivered,
    Drawn,
    Undelivered,
    fetch_drawn,
    fetch_session,
)
from node.roles.frames import FrameError
from node.roles.lines import ask
from node.roles.ports import Node
from node.roles.refusals import No
from node.roles.rerun import AuditEngine, Case, Findings, OtherModel, Tolerance
from node.roles.stored import Private
from settlement.records import SessionStart

PARTIES: Final = 3
PAUSE_MOST: Final = 60.0  # seconds between attempts to tell a peer that is away


@dataclass(frozen=True)
class Patience:
    """Seconds. `grace`: before others than V are asked for a session; `deliver`: until one that
    nobody gives counts as withheld; `open`: until V's salts do; `pause`: between attempts."""

    grace: float = 30.0
    deliver: float = 120.0
    open: float = 180.0
    pause: float = 1.0


@dataclass(frozen=True)
class _Committed:
    """The journalled row: what was committed, and how to open it."""

    salt: bytes
    digest: bytes
    message: AuditCommit

    def to_wire(self) -> bytes:
        return self.salt + self.digest + self.message.encode()

    @classmethod
    def from_wire(cls, raw: bytes) -> _Committed:
        return cls(raw[:32], raw[32:64], decode(raw[64:], AuditCommit))


class Prover(Protocol):
    """Takes what a second run found to a court, or to the panel. `salts` is V's opening of every
    round, None where it has not opened them all."""

    async def __call__(
        self,
        case: Case,
        start: SessionStart,
        findings: Findings,
        salts: Sequence[Private] | None,
        delivered: Delivered | None = None,
    ) -> None: ...


class Sealer(Protocol):
    """Makes tickets of what is audited (`sealing_tickets.Clerk`)."""

    def enter(self, drawn: DrawnLane, sample: int, found: Drawn, delivered: Delivered) -> None: ...

    async def plant(self, drawn: DrawnLane, delivered: Delivered, findings: Findings) -> None: ...


class AuditorRole:
    """Audits on `engine` whatever this node is drawn for. `look` is to be called when the chain has
    moved. `prove` is given every session that differs, before the report is kept: after a crash the
    audit, and with it the proof, is made again. `clerk` is given every drawn token as soon as it is
    here, for tickets wait for nothing, and every session that was run again."""

    def __init__(
        self,
        node: Node,
        draws: Draws,
        engine: AuditEngine,
        *,
        tolerance: Tolerance | None = None,
        patience: Patience | None = None,
        prove: Prover | None = None,
        clerk: Sealer | None = None,
    ) -> None:
        self.node = node
        self.prove, self.clerk = prove, clerk
        self.draws = draws
        self.engine = engine
        self.tolerance = tolerance or Tolerance()
        self.patience = patience or Patience()
        self.audits: dict[tuple[int, int], Audit] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serves and audits until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            exchange.serve(self.node.transport, Kind.COMMIT, self.on_commit)
            exchange.serve(self.node.transport, Kind.REVEAL, self.on_reveal)
            self.look()
            task_status.started()
            await trio.sleep_forever()

    def look(self) -> None:
        """Starts an audit for every drawn lane that has none yet and names this node: also for
        those that were drawn while it was not running, and tells again what an earlier run may not
        have told everybody."""
        assert self._nursery is not None
        for drawn in self.draws.lanes():
            if drawn.key in self.audits or not drawn.models_of(self.node.address):
                continue
            told = self.node.journal.fact(f"audit-done:{drawn.batch_id}:{drawn.index}")
            # After its end nobody has to have the records.
            over = self.node.clock() > drawn.until
            if told is not None:
                reports = [Report.from_json(data) for data in json.loads(told)]
                self.audits[drawn.key] = Audit(drawn, reports, done=True)
                for report in reports:
                    if report.session_id is not None and not over:
                        self._tell_again(drawn, bytes.fromhex(report.session_id[2:]))
            elif over:
                self.audits[drawn.key] = missed = Audit(drawn)
                self._add(missed, self._blank(drawn, "missed", "this node was not running in time"))
                self._done(missed)
            else:
                self.audits[drawn.key] = Audit(drawn)
                self._nursery.start_soon(self._audit, self.audits[drawn.key])

    def view(self) -> list[dict[str, Any]]:
        """Every audit as JSON."""
        return [audit.to_json() for audit in self.audits.values()]

    # ------------------------------------------------------------ one drawn lane

    async def _audit(self, audit: Audit) -> None:
        drawn = audit.drawn
        log = self.node.log.bind(batch=drawn.batch_id, index=drawn.index)
        try:
            sessions: dict[bytes, Delivered] = {}
            deadline = trio.current_time() + self.patience.deliver
            for sample in range(drawn.samples):
                await self._sample(audit, sample, sessions, deadline)
            for session_id, delivered in sessions.items():
                report = self._reported(drawn, session_id)
                if report is not None:
                    self._tell_again(drawn, session_id)
                else:
                    report = await self._session(drawn, delivered)
                    self._keep(drawn, session_id, report)
                self._add(audit, report)
        except OtherModel as error:
            self._add(audit, self._blank(drawn, "failed", str(error)))
        except Exception:
            # One audit's failure (out of memory, a fault of ours) must not end the others.
            log.exception("audit failed")
            self._add(audit, self._blank(drawn, "failed", "see this node's log"))
        self._done(audit)

    def _done(self, audit: Audit) -> None:
        drawn, audit.done = audit.drawn, True
        told = json.dumps([report.to_json() for report in audit.reports])
        self.node.journal.set_fact(f"audit-done:{drawn.batch_id}:{drawn.index}", told)

    async def _sample(
        self, audit: Audit, sample: int, sessions: dict[bytes, Delivered], deadline: float
    ) -> None:
        """Adds the session that the sample falls on, once, if its model is ours to audit."""
        drawn = audit.drawn
        mine = drawn.models_of(self.node.address)
        lane = drawn.lane
        # V has to deliver; the others are asked when it has had its time.
        patient = deadline - self.patience.deliver + self.patience.grace
        reasons: list[str] = []
        fault: Broken | None = None
        while True:
            late = trio.current_time() >= patient or fault is not None
            others = (lane.drafter, lane.client) if late else ()
            for source in (lane.verifier, *others):
                try:
                    found = await fetch_drawn(self.node, drawn, sample, source)
                    if found.order.target_model not in mine:
                        return
                    session_id = found.order.session_id
                    if session_id not in sessions:
                        sessions[session_id] = await fetch_session(self.node, found, source)
                    self._seal(drawn, sample, found, sessions[session_id])
                    return
                except Broken as error:
                    # V's own delivery that breaks a rule is a finding; another's is only no answer.
                    fault = error if source == lane.verifier else fault
                    keep(self.node, error.accusation)
                    reasons.append(str(error))
                except (Undelivered, NetworkError) as error:
                    reasons.append(str(error))
            if (fault is not None and late) or trio.current_time() >= deadline:
                break
            await trio.sleep(self.patience.pause)
        said = "; ".join(dict.fromkeys(reasons[-PARTIES:]))
        verdict = Verdict.SILENT if fault is None else Verdict.FAULT
        report = self._blank(drawn, verdict.name.lower(), said)
        if report not in audit.reports:
            self._add(audit, report)

    def _seal(self, drawn: DrawnLane, sample: int, found: Drawn, delivered: Delivered) -> None:
        if self.clerk is None:
            return
        try:
            self.clerk.enter(drawn, sample, found, delivered)
        except Exception:
            self.node.log.exception("no ticket made", batch=drawn.batch_id, sample=sample)

    async def _plant(self, drawn: DrawnLane, delivered: Delivered, findings: Findings) -> None:
        if self.clerk is None:
            return
        try:
            await self.clerk.plant(drawn, delivered, findings)
        except Exception:
            self.node.log.exception("no canary made", batch=drawn.batch_id)

    def _add(self, audit: Audit, report: Report) -> None:
        audit.reports.append(report)
        self.node.metrics.count(f"audits_{report.verdict}")
        self.node.log.info(
            "audited",
            batch=report.batch_id,
            session=(report.session_id or "")[:14],
            verdict=report.verdict,
            tokens=report.tokens,
            mismatches=report.mismatches,
            near_ties=report.near_ties,
            distance=report.fingerprint_distance,
            reason=report.reason,
            false_drafts=report.false_drafts,
        )

    # ------------------------------------------------------------ one session

    async def _session(self, drawn: DrawnLane, delivered: Delivered) -> Report:
        """Runs the session again, commits, sees the salts, reveals."""
        node, terms = self.node, delivered.terms
        session_id = terms.order.session_id
        case = Case(terms.order, terms.seed, delivered.delivery, delivered.rounds)
        findings = await self.engine.rerun(case, self.tolerance)
        node.metrics.time("rerun", findings.seconds)
        await self._plant(drawn, delivered, findings)
        committed = self._commit(drawn, session_id, findings)
        others = [a for a in drawn.auditors(terms.order.target_model) if a != node.address]
        revealed: list[AuditReveal] = []
        ready = trio.Event()
        assert self._nursery is not None
        for peer in (*others, drawn.lane.verifier):
            tell = partial(self._inform, drawn, peer, committed.message, ready, revealed)
            self._nursery.start_soon(tell)
        deadline = trio.current_time() + self.patience.open
        salts = await self._salts(drawn, delivered, committed.message, deadline)
        weighed = weigh(delivered.rounds, findings, salts, self.tolerance)
        guilty = weighed.verdict in (Verdict.MISMATCH, Verdict.FINGERPRINT)
        # Only salts that open every leaf: others would not do in a court either.
        opened = None if weighed.distance is None or isinstance(salts, str) else salts
        if (guilty or findings.drafts) and self.prove:
            await self.prove(case, terms.start, findings, opened, delivered)
        await self._all_committed(committed.message, others, deadline)
        reveal = AuditReveal(
            batch_id=drawn.batch_id,
            index=drawn.index,
            session_id=session_id,
            auditor=node.address,
            salt=committed.salt,
            digest=committed.digest,
            verdict=int(weighed.verdict),
            tokens=findings.tokens,
            mismatches=len(findings.mismatches),
            near_ties=findings.near_ties,
            distance=weighed.distance,
            signature=NO_SIGNATURE,
        )
        reveal = signed(node.domain, reveal, node.key)
        # Journalled before it is sent: a restart after this tells the same.
        stored = node.journal.secret_once(_reveal_name(reveal), reveal.encode)
        revealed.append(decode(stored, AuditReveal))
        ready.set()
        return Report(
            batch_id=drawn.batch_id,
            index=drawn.index,
            verifier="0x" + drawn.lane.verifier.hex(),
            session_id="0x" + session_id.hex(),
            verdict=weighed.verdict.name.lower(),
            reason=_reason(drawn, delivered, weighed.reason),
            tokens=findings.tokens,
            rounds=len(delivered.rounds),
            outside=delivered.outside,
            mismatches=len(findings.mismatches),
            near_ties=findings.near_ties,
            fingerprint_distance=weighed.distance,
            seconds=findings.seconds,
            source="0x" + delivered.source.hex(),
            differences=tuple(asdict(found) for found in findings.mismatches[:SHOWN]),
            false_drafts=None if findings.drafts is None else len(findings.drafts),
        )

    def _commit(self, drawn: DrawnLane, session_id: bytes, findings: Findings) -> _Committed:
        """The commitment of this session, made and journalled once: after a restart it is the one
        made before, whatever a second re-run says."""

        def make() -> bytes:
            salt = self.node.entropy(32)
            digest = fingerprint_digest(session_id, findings.fingerprints)
            message = signed(
                self.node.domain,
                AuditCommit(
                    drawn.batch_id,
                    drawn.index,
                    session_id,
                    self.node.address,
                    commitment(self.node.address, salt, digest),
                    NO_SIGNATURE,
                ),
                self.node.key,
            )
            return _Committed(salt, digest, message).to_wire()

        name = f"audit:{_name(drawn, session_id)}"
        return _Committed.from_wire(self.node.journal.secret_once(name, make))

    async def _salts(
        self, drawn: DrawnLane, delivered: Delivered, commit: AuditCommit, deadline: float
    ) -> list[Private] | str:
        """V's salts of every round, after V has this commitment; or why there are none."""
        verifier, transport = drawn.lane.verifier, self.node.transport
        session_id = delivered.terms.order.session_id
        reason = "V was not asked"
        while trio.current_time() < deadline:
            try:
                await ask(transport, verifier, Kind.COMMIT, commit, Done)
                return await self._salt_pages(drawn, delivered, session_id)
            except Refused as no:
                reason = str(no)
                if no.code == No.CONFLICT:
                    break
                await trio.sleep(no.retry_after or self.patience.pause)
            except (NetworkError, FrameError) as error:
                reason = str(error)
                await trio.sleep(self.patience.pause)
        return reason

    async def _salt_pages(
        self, drawn: DrawnLane, delivered: Delivered, session_id: bytes
    ) -> list[Private]:
        out: list[Private] = []
        while len(out) < len(delivered.rounds):
            wanted = SaltsRequest(
                drawn.batch_id, drawn.index, session_id, len(out), MAX_SALTED_ROUNDS
            )
            answer = await ask(
                self.node.transport, drawn.lane.verifier, Kind.SALTS, wanted, SaltsAnswer
            )
            if not answer.rounds:
                raise FrameError(f"V opened {len(out)} of {len(delivered.rounds)} rounds")
            out += [Private.from_wire(raw) for raw in answer.rounds]
        return out[: len(delivered.rounds)]

    # ------------------------------------------------------------ towards the others

    async def _all_committed(
        self, mine: AuditCommit, others: Sequence[bytes], deadline: float
    ) -> None:
        """Waits until every other drawn auditor's commitment is here, or the time is over: a digest
        told before then could be committed to by somebody who has computed nothing."""
        names = [_commit_name(replace(mine, auditor=other)) for other in others]
        while trio.current_time() < deadline:
            if all(self.node.journal.secret(name) is not None for name in names):
                return
            await trio.sleep(self.patience.pause)

    def _tell_again(self, drawn: DrawnLane, session_id: bytes) -> None:
        """What an earlier run of this node committed to and revealed, to all who have not taken
        it: it may have ended before they had, and they may have been away then."""
        journal = self.node.journal
        stored = journal.secret(f"audit:{_name(drawn, session_id)}")
        if stored is None:
            return
        commit = _Committed.from_wire(stored).message
        reveal = journal.secret(_reveal_name(commit))
        if reveal is None:
            return
        assert self._nursery is not None
        ready, revealed = trio.Event(), [decode(reveal, AuditReveal)]
        ready.set()
        peers = {a for model in drawn.models_of(self.node.address) for a in drawn.auditors(model)}
        for peer in (*sorted(peers - {self.node.address}), drawn.lane.verifier):
            self._nursery.start_soon(self._inform, drawn, peer, commit, ready, revealed)

    async def _inform(
        self,
        drawn: DrawnLane,
        peer: bytes,
        commit: AuditCommit,
        ready: trio.Event,
        revealed: list[AuditReveal],
    ) -> None:
        """Tells one peer the commitment, and the reveal when it is there; each until it is taken,
        over restarts."""
        name = f"audit-told:{_name(drawn, commit.session_id)}:{peer.hex()}"
        journal = self.node.journal
        if journal.fact(name) is None and await self._tell(drawn, peer, Kind.COMMIT, commit):
            journal.set_fact(name, "commitment")
        await ready.wait()
        if journal.fact(name) == "commitment" and await self._tell(
            drawn, peer, Kind.REVEAL, revealed[0]
        ):
            journal.set_fact(name, "reveal")

    async def _tell(
        self, drawn: DrawnLane, peer: bytes, kind: Kind, message: AuditCommit | AuditReveal
    ) -> bool:
        """Sends until it is taken (True), refused for good, or too late to matter: a peer may be
        away for hours. An audit does not depend on the others' answers."""
        pause = self.patience.pause
        while self.node.clock() <= drawn.until:
            try:
                await ask(self.node.transport, peer, kind, message, Done)
                return True
            except Refused as no:
                if no.code == No.CONFLICT or no.retry_after is None:
                    self.node.log.debug("not taken", peer=peer.hex(), reason=str(no))
                    return False
                await trio.sleep(no.retry_after)
            except NetworkError:
                await trio.sleep(pause)
                pause = min(2 * pause, PAUSE_MOST)
        return False

    async def on_commit(self, peer: bytes, commit: AuditCommit) -> Done:
        """Another drawn auditor's commitment, kept so that its reveal can be held against it."""
        self._check_author(peer, commit)
        journal, name = self.node.journal, _commit_name(commit)
        mine = _reveal_name(replace(commit, auditor=self.node.address))
        if journal.secret(name) is None and journal.secret(mine) is not None:
            raise Refused(No.CONFLICT, "reveals have begun: nobody can commit any more")
        if journal.secret_once(name, commit.encode) != commit.encode():
            raise Refused(No.CONFLICT, "this auditor has committed to something else before")
        return Done(commit.commitment)

    async def on_reveal(self, peer: bytes, reveal: AuditReveal) -> Done:
        """Another drawn auditor's finding; taken if it opens a commitment held here."""
        self._check_author(peer, reveal)
        stored = self.node.journal.secret(_commit_name(reveal))
        if stored is None or not opens(decode(stored, AuditCommit), reveal):
            raise Refused(No.ORDER, "this does not open a commitment made here")
        self.node.metrics.count("reveals_heard")
        return Done(reveal.digest)

    def _check_author(self, peer: bytes, message: AuditCommit | AuditReveal) -> None:
        wanted = (message.batch_id, message.index)
        drawn = next((lane for lane in self.draws.lanes() if lane.key == wanted), None)
        if drawn is None:
            # It may be a block ahead of this node.
            raise Refused(No.UNKNOWN, "no such draw is confirmed here yet", 1.0)
        if message.auditor != peer or not drawn.models_of(peer):
            raise Refused(No.NOT_YOURS, "only from auditors drawn for that lane")
        if not is_signed(self.node.domain, message):
            raise Refused(No.ORDER, "not signed by the auditor that it names")
        held = f"audit-heard:{message.batch_id}:{message.index}:{peer.hex()}"
        sessions = set((self.node.journal.fact(held) or "").split())
        if message.session_id.hex() not in sessions:
            # A draw falls on no more sessions than it has samples.
            if len(sessions) >= drawn.samples:
                raise Refused(No.NOT_YOURS, f"a draw has at most {drawn.samples} sessions")
            sessions.add(message.session_id.hex())
            self.node.journal.set_fact(held, " ".join(sorted(sessions)))

    # ------------------------------------------------------------ reports

    def _reported(self, drawn: DrawnLane, session_id: bytes) -> Report | None:
        text = self.node.journal.fact(f"audit-report:{_name(drawn, session_id)}")
        return None if text is None else Report.from_json(json.loads(text))

    def _keep(self, drawn: DrawnLane, session_id: bytes, report: Report) -> None:
        name = f"audit-report:{_name(drawn, session_id)}"
        self.node.journal.set_fact(name, json.dumps(report.to_json()))

    def _blank(self, drawn: DrawnLane, verdict: str, reason: str) -> Report:
        verifier = "0x" + drawn.lane.verifier.hex()
        return Report(drawn.batch_id, drawn.index, verifier, None, verdict, reason)


def _reason(drawn: DrawnLane, delivered: Delivered, reason: str) -> str:
    """The verdict's reason, and that V left the delivery to another where it did."""
    if delivered.source == drawn.lane.verifier:
        return reason
    by = f"not delivered by the verifier, but by 0x{delivered.source.hex()}"
    return f"{by}; {reason}" if reason else by


def _name(drawn: DrawnLane, session_id: bytes) -> str:
    return f"{drawn.batch_id}:{drawn.index}:{session_id.hex()}"


def _reveal_name(about: AuditCommit | AuditReveal) -> str:
    return _commit_name(about).replace("audit-commit", "audit-reveal")


def _commit_name(about: AuditCommit | AuditReveal) -> str:
    place = f"{about.batch_id}:{about.index}:{about.session_id.hex()}"
    return f"audit-commit:{place}:{about.auditor.hex()}"
