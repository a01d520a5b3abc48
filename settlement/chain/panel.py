"""The contracts of auditors: who they are, what they answer, and what comes of it.

Charges and canaries are passed on as the events carried them (tuples in the ABI's order); places
are `settlement.panels.place_words`, encoded here as the panel forwards them. Money in the smallest
unit, times in unix seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

from settlement.chain.contract import Contract, Owned
from settlement.chain.send_journal import Call
from settlement.panels import Answer, Result

Words = tuple[Any, ...]
WRONG_TARGET: Final = 9
WRONG_CANARY: Final = 10
WRONG_DRAFT: Final = 12


class JuryStage(IntEnum):
    """IJuries.Stage."""

    NONE = 0
    SUMMONED = 1
    SEATED = 2
    OPENED = 3
    CANCELLED = 4


class CaseStage(IntEnum):
    """IAuditPanel.Stage."""

    NONE = 0
    PANEL = 1
    DECIDED = 2
    APPEAL = 3
    CLOSED = 4


class AuditStage(IntEnum):
    """ISampleAudits.Stage."""

    NONE = 0
    SEALED = 1
    NAMED = 2
    OPENED = 3
    PLANTED = 4
    PASSED = 5
    REFERRED = 6
    WRONG = 7
    DONE = 8


class TicketKind(IntEnum):
    """ISampleAudits.Kind."""

    DRAWN = 0
    CANARY = 1


@dataclass(frozen=True)
class Jury:
    """IJuries.Jury. `anchor` and `target` are block numbers."""

    court: bytes
    anchor: int
    target: int
    stage: JuryStage
    waits: bool
    size: int
    model: bytes
    seat_until: int
    commit_until: int
    reveal_until: int
    reveal_span: int
    seated: int
    committed: int
    revealed: int
    silent_bps: int
    reward_bps: int
    before: int

    @classmethod
    def of(cls, words: Words) -> Jury:
        fields = list(words)
        fields[3] = JuryStage(fields[3])
        return cls(*fields)


@dataclass(frozen=True)
class CaseState:
    """IAuditPanel.CaseState. `panel` and `appeal` are juries; zero for none. `settled`: fees pay
    its jurors, for it has cost somebody a stake."""

    stage: CaseStage
    result: Result
    panel: int
    appeal: int
    open_until: int
    appeal_until: int
    printed: bool
    settled: bool
    print: bytes
    appellant: bytes
    appeal_bond: int
    share: int

    @property
    def jury(self) -> int:
        """The one that sits, or sat last."""
        return self.appeal or self.panel


class AuditorPool(Owned):
    """Seats of auditors by model, weighted by stake."""

    def min_stake(self) -> int:
        return int(self.view("minStake"))

    def eligible(self, account: bytes, model: bytes) -> int:
        """What the account's seat would weigh if it were brought up to date now."""
        return int(self.view("eligible", account, model))

    def seat_of(self, payout: bytes, model: bytes) -> tuple[bool, int, int]:
        """Whether a beneficiary's auditor has a seat, which, and what it weighs."""
        seated, seat, weight = self.view("seatOf", payout, model)
        return bool(seated), int(seat), int(weight)

    def total_at(self, model: bytes, block: int) -> int:
        return int(self.view("totalAt", model, block))

    def sync(self, account: bytes, model: bytes, displace: int = 0) -> Call:
        return self.transact("sync", account, model, displace)


class Juries(Owned):
    """Drawn auditors' sealed answers."""

    def jury_of(self, jury: int) -> Jury:
        return Jury.of(tuple(self.view("juryOf", jury)))

    def members_of(self, jury: int) -> tuple[bytes, ...]:
        """Accounts, in the order of the draw."""
        return tuple(bytes(member) for member in self.view("membersOf", jury))

    def answer_of(self, jury: int, member: bytes) -> Answer:
        return Answer(*self.view("answerOf", jury, member))

    def answers_of(self, jury: int) -> tuple[Answer, ...]:
        return tuple(Answer(*words) for words in self.view("answersOf", jury))

    def is_closed(self, jury: int) -> bool:
        return bool(self.view("isClosed", jury))

    def is_over(self, jury: int) -> bool:
        return bool(self.view("isOver", jury))

    def is_court(self, court: bytes) -> bool:
        return bool(self.view("isCourt", court))

    def seat(self, jury: int) -> Call:
        return self.transact("seat", jury)

    def commit(self, jury: int, commitment: bytes) -> Call:
        """`commitment`: `settlement.panels.commitment`."""
        return self.transact("commit", jury, commitment)

    def reveal(
        self, jury: int, member: bytes, withheld: bool, margin: int, print_: bytes, salt: bytes
    ) -> Call:
        return self.transact("reveal", jury, member, withheld, margin, print_, salt)

    def dismiss(self, jury: int, member: bytes) -> Call:
        return self.transact("dismiss", jury, member)

    def set_court(self, court: bytes, allowed: bool) -> Call:
        return self.transact("setCourt", court, allowed)


class PanelTerms(Owned):
    """What panels are run by."""

    def bond(self) -> int:
        """The least that accusing takes now."""
        return self.terms()[0]

    def terms(self) -> tuple[int, int, int, int]:
        """Of cases on batches settled now: bond; of the guilty's stake what a fault costs, and of
        that the accuser's and the victims' shares, in basis points."""
        bond, fault, reward, victims, *_ = self.view("terms")
        return int(bond), int(fault), int(reward), int(victims)

    def seats(self) -> int:
        """Jurors of a panel and of its appeal together, of batches settled now."""
        _bond, _fault, _reward, _victims, panel, appeal, *_ = self.view("terms")
        return int(panel) + int(appeal)

    def fee_of(self, token: bytes) -> int:
        return int(self.view("feeOf", token))

    def is_referrer(self, referrer: bytes) -> bool:
        return bool(self.view("isReferrer", referrer))

    def set_fee(self, token: bytes, fee: int) -> Call:
        return self.transact("setFee", token, fee)

    def set_referrer(self, referrer: bytes, allowed: bool) -> Call:
        return self.transact("setReferrer", referrer, allowed)


class AuditTerms(Owned):
    """What audits of drawn tokens are run by."""

    def terms(self) -> Words:
        """IAuditTerms.Terms of tickets entered now, in the ABI's order."""
        return tuple(self.view("terms"))

    def bond(self) -> int:
        return int(self.terms()[0])

    def fee_of(self, token: bytes) -> int:
        return int(self.view("feeOf", token))

    def set_fee(self, token: bytes, fee: int) -> Call:
        return self.transact("setFee", token, fee)


class _Bonded(Contract):
    def bond_of(self, account: bytes) -> int:
        """What the account can pull."""
        return int(self.view("bondOf", account))

    def pull_bond(self, account: bytes) -> Call:
        return self.transact("pullBond", account)


class AuditPanel(_Bonded):
    """Cases that a run of the model decides: F9, F12, wrong canaries."""

    def case_of(self, case: int) -> CaseState:
        fields = list(self.view("caseOf", case))
        fields[0], fields[1] = CaseStage(fields[0]), Result(fields[1])
        return CaseState(*fields)

    def charge_hash(self, case: int) -> bytes:
        return bytes(self.view("chargeHash", case))

    def place_of(self, fault: int, subject: Words) -> bytes:
        """The name of what a case is about."""
        return bytes(self.view("placeOf", fault, subject))

    def open_case(self, place: bytes) -> int:
        return int(self.view("openCase", place))

    def bond_for(self, place: bytes, fault: int, accused: bytes, settled_at: int) -> int:
        """What accusing that place takes now. It grows with the accused's stake, what was laid down
        within the last slice of time apart."""
        return int(self.view("bondFor", place, fault, accused, settled_at))

    def accuse(self, fault: int, place: bytes) -> Call:
        """`place`: `PlaceRule.verdict_question` for F9, `draft_question` for F12."""
        return self.transact("accuse", fault, place)

    def open_print(self, charge: Words, salt: bytes, print_: bytes) -> Call:
        return self.transact("openPrint", charge, salt, print_)

    def decide(self, charge: Words) -> Call:
        return self.transact("decide", charge)

    def appeal(self, charge: Words) -> Call:
        return self.transact("appeal", charge)

    def conclude(self, charge: Words) -> Call:
        return self.transact("conclude", charge)

    def cleared(self, place: bytes) -> int:
        """How often juries have found that place right."""
        return int(self.view("cleared", place))

    def is_paid(self, jury: int, juror: bytes) -> bool:
        return bool(self.view("isPaid", jury, juror))

    def pay_juror(self, charge: Words, of_appeal: bool, juror: bytes) -> Call:
        return self.transact("payJuror", charge, of_appeal, juror)


class PlaceRule(Contract):
    """What may be asked about a settled token. `place` and `source` are tuples in the ABI's order
    (IPlaceRule.Place, IPlaceRule.Source)."""

    def verdict_subject(self, place: Words, source: Words) -> Words:
        """IPlaceRule.Subject; Reverted where the token may not be asked about."""
        return tuple(self.view("verdictPlace", place, source))

    def verdict_question(self, place: Words, source: Words) -> bytes:
        """The encoded arguments that AuditPanel and SampleAudits take."""
        return self.interface.encode("verdictPlace", place, source)[4:]

    def draft_subject(self, place: Words, source: Words, ledger_case: int = 0) -> Words:
        return tuple(self.view("draftPlace", place, source, ledger_case))

    def draft_question(self, place: Words, source: Words, ledger_case: int = 0) -> bytes:
        return self.interface.encode("draftPlace", place, source, ledger_case)[4:]


class ClaimJudge(Contract):
    """Panel convictions in AlphaLedger's cases."""

    def refute(self, charge: Words, ledger_case: int) -> Call:
        return self.transact("refute", charge, ledger_case)

    def exclude(self, charge: Words, record: Words, ledger_case: int) -> Call:
        return self.transact("exclude", charge, record, ledger_case)


class JurorDemands(Contract):
    """The session that a juror has to judge, on demand; answered and contested as any demand of
    `SessionDemands`."""

    def demand(
        self,
        charge: Words,
        session: Words,
        batch: Words,
        entries: bytes,
        index: int,
        key: tuple[int, int],
    ) -> Call:
        """`session` is ISessionDemands.SessionCase; `key` a point made for this demand alone."""
        return self.transact("demand", charge, session, batch, entries, index, *key)

    def refund(self, demand: bytes) -> Call:
        return self.transact("refund", demand)


class SampleAudits(_Bonded):
    """Sealed tickets: drawn tokens and canaries."""

    def stage_of(self, audit: int) -> AuditStage:
        return AuditStage(self.audit_of(audit)[1])

    def audit_of(self, audit: int) -> Words:
        """ISampleAudits.Audit: by, stage, openUntil, jury, ticket, model, verifier, firstUntil,
        secondUntil, late, sealedPrint, panelCase, token, share, fee, measure."""
        return tuple(self.view("auditOf", audit))

    def is_paid(self, audit: int, auditor: bytes) -> bool:
        return bool(self.view("isPaid", audit, auditor))

    def audit_of_token(self, content: bytes) -> int:
        """The audit that a drawn token has had; zero for none."""
        return int(self.view("auditOfToken", content))

    def enter(self, ticket: bytes, model: bytes, text: bytes = b"") -> Call:
        """`ticket`: `settlement.panels.ticket`. `text`, the hash of what will be delivered, follows
        the arguments: see `text_of`."""
        call = self.transact("enter", ticket, model)
        return replace(call, data=call.data + text)

    def text_of(self, transaction: bytes) -> bytes | None:
        """The hash of what is delivered for the ticket that a transaction entered: 32 bytes behind
        the call's arguments, which the contract does not read. None where there is none.

        A canary's own word on it is sealed until all have answered, so its planter could deliver
        one text and open another. Who answers holds the delivery to this hash, and who judges a
        canary holds the canary to it.
        """
        sent = self.rpc.transaction(transaction)
        if sent is None or sent.to != self.address:
            return None
        plain = self.interface.encode("enter", bytes(32), bytes(32))
        if sent.data[:4] != plain[:4] or len(sent.data) != len(plain) + 32:
            return None
        return sent.data[-32:]

    def name(self, audit: int, salt: bytes, sample: int, place: bytes) -> Call:
        return self.transact("name", audit, salt, sample, place)

    def plant(self, audit: int, salt: bytes, canary: Words) -> Call:
        return self.transact("plant", audit, salt, canary)

    def lapse(self, audit: int) -> Call:
        return self.transact("lapse", audit)

    def open_print(self, audit: int, salt: bytes, print_: bytes) -> Call:
        return self.transact("openPrint", audit, salt, print_)

    def expire(self, audit: int) -> Call:
        return self.transact("expire", audit)

    def finish(self, audit: int) -> Call:
        return self.transact("finish", audit)

    def refer(self, audit: int, canary: Words) -> Call:
        return self.transact("refer", audit, canary)

    def conclude(self, audit: int) -> Call:
        return self.transact("conclude", audit)

    def punish(self, audit: int, auditor: bytes) -> Call:
        return self.transact("punish", audit, auditor)

    def pay(self, audit: int, auditor: bytes) -> Call:
        return self.transact("pay", audit, auditor)
