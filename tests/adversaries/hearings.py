"""Adversaries who lie to the contracts: who withholds, replays, invents, or judges falsely.

Each hearing starts from an honest session, played on the stage and settled on the chain of a
`PanelRoom`, in which one party then does something else than its node would. What came of it is
read back from the chain: stakes, bonds, what can be pulled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from courtroom import KEYS, STAKE
from panelroom import AUDITORS, DRAFT, MOST_BOND, PARAMETERS, TARGET, Hall, PanelRoom, key_of
from stage import Played, Row, Scene

from node.roles import answering
from settlement import panels, trees
from settlement.chain.claims import ClaimStatus
from settlement.chain.contracts import Role
from settlement.chain.errors import ChainError, Reverted
from settlement.chain.events import CaseOpened, LaneSettled
from settlement.chain.lanes import Position, SignedVoucher, groups_of
from settlement.chain.panel import WRONG_TARGET, AuditStage, CaseStage, TicketKind
from settlement.chain.panel_events import CaseFiled, TicketEntered
from settlement.chain.standing import fold
from settlement.draws import BatchEvidence, lane_seed, target_of
from settlement.hashing import keccak256
from settlement.panels import Answer, Result
from settlement.payments import dues
from settlement.records import Claim, Lane, RoundRecord, Sums, Voucher
from settlement.signing import address_of_key

SALT = b"\x05" * 32
STRANGER = KEYS[1]
_HONEST = Scene("honest", "nobody")


class Ground:
    """An honest session on the chain: operators staked, reserve made, nothing settled yet."""

    def __init__(self, room: PanelRoom, name: str) -> None:
        self.room, self.chain, self.anvil = room, room.contracts, room.anvil
        self.played: Played = _HONEST.play(5)
        (self.run,) = self.played.reruns
        assert self.run.batch is not None
        self.batch = self.run.batch
        self.hall = Hall(room.contracts, room.anvil, room.folder / name.replace(" ", "-"))
        self.keys = {name: node.key for name, node in self.played.nodes.items()}
        for seat, role in (("drafter", Role.DRAFTER), ("verifier", Role.VERIFIER)):
            self.hall.fund(seat, self.keys[seat], role)
        self.lane = self.run.served.terms.order.lane
        self.hall.reserve(self.lane, self.keys["client"])
        self.since = self.chain.rpc.head().number

    @property
    def newest(self) -> SignedVoucher:
        payment = self.run.served.payment
        return self._signed(payment.voucher, payment, self.batch)

    @property
    def older(self) -> list[SignedVoucher]:
        """The lane's vouchers before."""
        return [
            self._signed(Voucher.from_wire(row.voucher), row, batch)
            for row, batch in self.run.earlier
        ]

    def _signed(self, voucher: Voucher, by: Any, batch: BatchEvidence) -> SignedVoucher:
        signatures = {seat: getattr(by, seat) for seat in ("client", "verifier", "drafter")}
        return SignedVoucher(self.lane, voucher, batch.settled()[1].top, **signatures)

    def settled(self) -> Ground:
        self.hall.settle(self.newest, self.keys["verifier"])
        return self

    def drawn(self) -> tuple[Any, ...]:
        """Captures the batch's randomness and draws its lane: the lane as the beacon has it."""
        root = self.newest.voucher.root
        self.hall.send(STRANGER, self.chain.beacon.capture([self.hall.source(root)[0]]))
        source = self.hall.source(root)
        self.hall.send(STRANGER, self.chain.beacon.draw(*source, self.lane))
        (draw,) = fold(self.hall.events()).draws.values()
        return draw.draw

    def sample(self, number: int) -> tuple[bytes, tuple[int, int]]:
        """Of a drawn lane: the sample's content, and the place (round, within) that it falls on."""
        batch, _entries, index = self.hall.source(self.newest.voucher.root)
        tree, _settled = self.batch.settled()
        target = target_of(lane_seed(bytes(batch[8]), index), number, tree.top().sums.output)
        at = tree.descend(target)
        record = self.batch.rounds[at].record
        within = tree.proof(at).offset_of(trees.round_leaf(record), target)
        return panels.drawn_content(batch[0], index, number), (record.round, within)

    def question(self, round_: int, within: int) -> bytes:
        """What the panel and the audits are asked about a token."""
        start = self.run.served.terms.start_hash
        words = panels.place_words(self.batch, start, round_, within)
        source = self.hall.source(self.newest.voucher.root)
        return self.chain.place_rule.verdict_question(words, source)

    def answer(self, round_: int, within: int) -> Answer:
        """An honest auditor's: its own fingerprint, and how far V's word lies from its own."""
        pair = self.played.pair
        token_bytes = pair.tokenizer().token_bytes
        return answering.answer(pair.target(), self.run.case, round_, within, token_bytes)

    def sealed(self, round_: int, within: int) -> tuple[bytes, bytes]:
        """V's salt and fingerprint of that token."""
        private = self.run.sealed[round_]
        return private.salts[within], private.fingerprints[within]

    # ------------------------------------------------------------ what came of it

    def stakes(self) -> dict[bytes, int]:
        """By account, what is slashable of operators and auditors."""
        roles = [(self.keys["drafter"], Role.DRAFTER), (self.keys["verifier"], Role.VERIFIER)]
        roles += [(key, Role.AUDITOR) for key in AUDITORS]
        vault = self.chain.vault
        return {address_of_key(k): vault.slashable(address_of_key(k), role) for k, role in roles}

    def payable(self, seat: str) -> int:
        return self.chain.escrow.payable_to(address_of_key(self.keys[seat]), self.lane.token)

    def row(
        self, name: str, role: str, caught: str, fault: str, guilty: Iterable[bytes], outcome: str
    ) -> Row:
        """`outcome` where nobody was slashed. Of vested shares, those of honest operators and the
        client count as theirs to recover."""
        liars = set(guilty)
        lost = {who: STAKE - held for who, held in self.stakes().items()}
        slashed = sum(lost.pop(who, 0) for who in liars)
        parties = {address_of_key(key) for key in self.keys.values()} - liars
        vested = self.room.vested(self.since)
        text = self.played.text_is_the_targets()
        left = self.room.leave(self.hall.folder, self.keys.values(), liars)
        return Row(
            adversary=name,
            role=role,
            mode="coupled",
            caught=caught,
            outcome="slashed" if slashed else outcome if caught else "",
            fault=fault if caught else "",
            sessions=1,
            slashed=slashed,
            victim_recovered=sum(amount for who, amount in vested.items() if who in parties),
            text_intact=text,
            honest_slashed=sum(taken > 0 for taken in lost.values()),
            all_withdrew=left.all_withdrew,
            withdrawn=left.honest,
        )


# ---------------------------------------------------------------- verifiers


def withheld_openings(room: PanelRoom) -> Row:
    """Settles, is drawn, and opens nothing."""
    ground = Ground(room, "withheld openings").settled()
    drawn = ground.drawn()
    verifier, taken = address_of_key(ground.keys["verifier"]), []
    for deadline in (PARAMETERS.times.first_deadline, PARAMETERS.times.second_deadline):
        before = ground.stakes()[verifier]
        room.anvil.warp(deadline + 1)
        ground.hall.send(STRANGER, ground.chain.beacon.expire(drawn))
        taken.append(round(100 * (before - ground.stakes()[verifier]) / STAKE))
    caught = f"no opening at either deadline: {taken[0]} %, then {taken[1]} % of its stake"
    return ground.row("withheld openings", "verifier", caught, "F7", [verifier], "")


def silent_at_audit(room: PanelRoom) -> Row:
    """Opens no fingerprint of a drawn token that auditors have run again."""
    ground = Ground(room, "silent at audit").settled()
    ground.drawn()
    audit, jury, answers = _entered(ground)
    ground.hall.commit(jury, answers)
    ground.hall.send(STRANGER, ground.chain.audits.name(audit, SALT, 0, _named(ground)))
    verifier = address_of_key(ground.keys["verifier"])
    for deadline in (PARAMETERS.times.first_deadline, PARAMETERS.times.second_deadline):
        room.anvil.warp(deadline + 1)
        ground.hall.send(STRANGER, ground.chain.audits.expire(audit))
    ended = ground.chain.audits.stage_of(audit) == AuditStage.DONE
    caught = "no fingerprint at either deadline" if ended else ""
    return ground.row("silent at audit", "verifier", caught, "F7", [verifier], "")


def voucher_replay(room: PanelRoom) -> Row:
    """Settles the newest voucher, then an older one, and the newest again."""
    ground = Ground(room, "voucher replay")
    hall, chain, verifier = ground.hall, ground.chain, ground.keys["verifier"]
    older = ground.older
    position = Position(0, chain.escrow.parameters().fee_bps)
    tries, errors, steps = [ground.newest, *older, ground.newest], [], []
    for signed in tries:
        held = ground.payable("verifier"), ground.payable("drafter")
        try:
            call = chain.escrow.settle(ground.lane.token, groups_of([(signed, position)]))
            hall.send(verifier, call)
        except Reverted as error:
            errors.append(error.name)
        steps.append((ground.payable("verifier") - held[0], ground.payable("drafter") - held[1]))
        if steps[0] != (0, 0) and len(steps) == 1:
            position = _after(ground, position)
    voucher = ground.newest.voucher
    once = steps[0] == (voucher.due_verifier, voucher.due_drafter)
    more = any(step != (0, 0) for step in steps[1:])
    how = " and ".join(dict.fromkeys(errors)) or "taken"
    caught = f"paid once; {len(older)} older and a repeated voucher pay nothing ({how})"
    found = caught if once and older and not more else ""
    return ground.row(
        "voucher replay", "verifier", found, "", [address_of_key(verifier)], "refused"
    )


def _after(ground: Ground, position: Position) -> Position:
    """Where the lane stands once the newest voucher has settled, so that a replay is refused for
    what it is."""
    settled = ground.hall.last(LaneSettled)
    return position.after(settled, ground.newest.voucher)


def invented_tokens(room: PanelRoom) -> Row:
    """D and V sign for a hundred tokens that were never served, and sign in the client's place."""
    ground = Ground(room, "invented tokens")
    real = ground.newest.voucher
    price = ground.run.served.terms.order.price_output
    sums = replace(real.sums, output=real.output + 100)
    root = trees.settled_root(ground.newest.top, sums, real.leaf_count, real.base_root)
    false = replace(
        real, output=sums.output, root=root, due_verifier=real.due_verifier + 100 * price
    )
    domain, keys = ground.chain.domain, ground.keys
    both = {seat: domain.sign(false, keys[seat]) for seat in ("verifier", "drafter")}
    attempts = {
        "without the client's signature": b"",
        "with V's in its place": both["verifier"],
        "with that of the true voucher": ground.newest.client,
    }
    refused = {}
    for how, client in attempts.items():
        signed = SignedVoucher(ground.lane, false, ground.newest.top, client=client, **both)
        try:
            ground.hall.settle(signed, keys["verifier"])
        except Reverted as error:
            refused[how] = error.name
    paid = ground.payable("verifier") + ground.payable("drafter")
    caught = "not settled " + ", ".join(f"{how} ({error})" for how, error in refused.items())
    found = caught if len(refused) == len(attempts) and paid == 0 else ""
    liars = [address_of_key(keys[seat]) for seat in ("drafter", "verifier")]
    return ground.row("inventing tokens", "drafter and verifier", found, "", liars, "refused")


# ---------------------------------------------------------------- clients

CLAIMED, SEEN = 90, 70  # percent, in the bucket that hard prompts fall into
_BUCKET, _HARD = 2, 1_000  # its number, and proposals in it


def hard_prompts(room: PanelRoom) -> Row:
    """Feeds an honest drafter what it drafts worst, until its claim is flagged, and flags it."""
    ground = Ground(room, "hard prompts")
    hall, chain, keys = ground.hall, ground.chain, ground.keys
    order = ground.run.case.order
    rates = (CLAIMED,) * 16
    drafter = address_of_key(keys["drafter"])
    claim = Claim(drafter, TARGET.model_id, DRAFT.model_id, order.mode, 1 << 16, rates, 1)
    hall.send(keys["drafter"], chain.ledger.register(claim))
    lane = replace(ground.lane, claim_id=claim.struct_hash)
    hall.reserve(lane, keys["client"])
    hall.settle(_hard_voucher(ground, lane), keys["verifier"])
    hall.send(keys["client"], chain.ledger.flag(claim.struct_hash, bytes(20), _BUCKET, 0, 1))
    case = hall.last(CaseOpened)
    terms = case.opened[13]  # IAlphaLedger.Case
    bond, judged_within = terms[4], terms[5]
    hall.send(KEYS[0], chain.token.transfer(drafter, bond))
    hall.send(keys["drafter"], chain.token.approve(chain.ledger.address, bond))
    hall.send(keys["drafter"], chain.ledger.assert_draft_model(case.case_id))
    room.anvil.warp(judged_within + 1)
    hall.send(STRANGER, chain.ledger.conclude(case.case_id))
    state = chain.ledger.claim_of(claim.struct_hash)
    stood = state.status == ClaimStatus.ACTIVE and state.rates[_BUCKET] == SEEN
    whole = chain.ledger.bond_of(drafter) == bond
    caught = f"flagged; D's word stood, nothing lost: {CLAIMED} % became {SEEN} % in that bucket"
    liar = [address_of_key(keys["client"])]
    found = caught if stood and whole else ""
    return ground.row("hard prompts", "client", found, "", liar, "unprofitable")


def _hard_voucher(ground: Ground, lane: Lane) -> SignedVoucher:
    """A batch in which SEEN of a hundred hard positions were accepted, signed by all three."""
    passed = _HARD * SEEN // 100
    proposed, accepted = ([0] * 16, [0] * 16)
    proposed[_BUCKET], accepted[_BUCKET] = _HARD, passed
    sums = Sums(_HARD, passed, tuple(proposed), tuple(accepted))
    mark = keccak256(b"hard")
    record = RoundRecord(mark, 0, mark, mark, mark, mark, sums.output, sums.accepted, sums.buckets)
    settled = trees.SumTree([record]).settled(None)
    order = ground.run.case.order
    due = dues(sums.output, sums.accepted, order.price_accepted, order.price_output)
    voucher = Voucher(
        lane=lane.id,
        epoch=0,
        output=sums.output,
        accepted=sums.accepted,
        due_drafter=due.drafter,
        due_verifier=due.verifier,
        base_root=settled.base_root,
        root=settled.root,
        leaf_count=settled.leaf_count,
        buckets=sums.buckets,
    )
    domain = ground.chain.domain
    by = {s: domain.sign(voucher, ground.keys[s]) for s in ("client", "verifier", "drafter")}
    return SignedVoucher(lane, voucher, settled.top, **by)


# ---------------------------------------------------------------- auditors


def _entered(ground: Ground) -> tuple[int, int, dict[bytes, Answer]]:
    """A ticket for sample 0, by a stranger: the audit, its jury, and honest answers by key."""
    content, place = ground.sample(0)
    ticket = panels.ticket(TicketKind.DRAWN, content, SALT)
    return _summoned(ground, ticket, ground.answer(*place))


def _summoned(
    ground: Ground, ticket: bytes, answer: Answer
) -> tuple[int, int, dict[bytes, Answer]]:
    hall, chain = ground.hall, ground.chain
    hall.send(STRANGER, chain.token.approve(chain.audits.address, chain.audit_terms.bond()))
    hall.send(STRANGER, chain.audits.enter(ticket, TARGET.model_id))
    entered = hall.last(TicketEntered)
    members = hall.seat(entered.jury_id)
    return entered.audit_id, entered.jury_id, {key_of(member): answer for member in members}


def _named(ground: Ground) -> bytes:
    _content, place = ground.sample(0)
    return ground.question(*place)


def _finished(ground: Ground, audit: int, jury: int, answers: dict[bytes, Answer]) -> None:
    """From all commitments to the end of an audit of sample 0."""
    _content, place = ground.sample(0)
    hall, audits = ground.hall, ground.chain.audits
    hall.send(STRANGER, audits.name(audit, SALT, 0, ground.question(*place)))
    hall.send(STRANGER, audits.open_print(audit, *ground.sealed(*place)))
    hall.reveal(jury, answers)


def made_up(room: PanelRoom) -> Row:
    """Calls every token right with a fingerprint that it made up, and runs nothing."""
    ground = Ground(room, "rubber stamp").settled()
    ground.drawn()
    audit, jury, answers = _entered(ground)
    liar, *rest = answers
    answers[liar] = Answer(print=keccak256(b"anything"))
    ground.hall.commit(jury, answers)
    _finished(ground, audit, jury, answers)
    ground.hall.send(STRANGER, ground.chain.audits.finish(audit))
    paid = {}
    for key in answers:
        who = address_of_key(key)
        before = ground.chain.escrow.payable_to(who, ground.lane.token)
        with suppress(ChainError):
            ground.hall.send(STRANGER, ground.chain.audits.pay(audit, who))
        paid[key] = ground.chain.escrow.payable_to(who, ground.lane.token) - before
    fair = all(paid[key] > 0 for key in rest) and paid[liar] == 0
    caught = f"paid 0, the others {paid[rest[0]]} units each" if fair else ""
    liars = [address_of_key(liar)]
    return ground.row("rubber stamp, no run", "auditor", caught, "", liars, "unprofitable")


def passes_canaries(room: PanelRoom) -> Row:
    """Makes its fingerprint by a run of the model, and looks at no token."""
    ground = Ground(room, "canary").settled()
    hall, chain = ground.hall, ground.chain
    first = ground.batch.rounds[0]
    leaf = first.verdict_leaves[0]
    false = replace(leaf, token=(leaf.token + 1) % 12, accepted=False)
    print_ = ground.run.findings.fingerprints[0]
    canary = (SALT, 0, 0, panels.verdict_figures(false), print_, keccak256(b"delivered text"))
    ticket = panels.ticket(TicketKind.CANARY, panels.canary_content(canary), SALT)
    # What an honest auditor finds: another token's score, far below the model's own.
    honest = Answer(print=print_, margin=1 << 26)
    audit, jury, answers = _summoned(ground, ticket, honest)
    liar = next(iter(answers))
    answers[liar] = Answer(print=print_)
    hall.commit(jury, answers)
    hall.send(STRANGER, chain.audits.plant(audit, SALT, canary))
    hall.reveal(jury, answers)
    hall.send(STRANGER, chain.audits.finish(audit))
    assert chain.audits.stage_of(audit) == AuditStage.PASSED
    hall.send(STRANGER, chain.token.approve(chain.panel.address, MOST_BOND))
    hall.send(STRANGER, chain.audits.refer(audit, canary))
    filed = hall.last(CaseFiled)
    result = _panel(ground, filed, honest)
    hall.send(STRANGER, chain.audits.conclude(audit))
    hall.send(STRANGER, chain.audits.punish(audit, address_of_key(liar)))
    caught = f"passed a canary; panel: {result.name.lower()}"
    return ground.row("rubber stamp", "auditor", caught, "F10", [address_of_key(liar)], "")


def _panel(ground: Ground, filed: CaseFiled, answer: Answer, *, printed: bool = True) -> Result:
    """A case from its summons to its end, every juror answering alike."""
    hall, chain = ground.hall, ground.chain
    jury = chain.panel.case_of(filed.case_id).jury
    answers = {key_of(member): answer for member in hall.seat(jury)}
    hall.commit(jury, answers)
    if not printed:
        place = filed.charge[4][9], filed.charge[4][10]
        hall.send(STRANGER, chain.panel.open_print(filed.charge, *ground.sealed(*place)))
    hall.reveal(jury, answers)
    hall.send(STRANGER, chain.panel.decide(filed.charge))
    ground.anvil.warp(PARAMETERS.panel.appeal_window + 1)
    hall.send(STRANGER, chain.panel.conclude(filed.charge))
    state = chain.panel.case_of(filed.case_id)
    assert state.stage == CaseStage.CLOSED
    return state.result


def false_accuser(room: PanelRoom) -> Row:
    """An auditor takes an honest verifier to the panel."""
    ground = Ground(room, "false accuser").settled()
    hall, chain, liar = ground.hall, ground.chain, AUDITORS[0]
    hall.send(KEYS[0], chain.token.transfer(address_of_key(liar), MOST_BOND))
    hall.send(liar, chain.token.approve(chain.panel.address, MOST_BOND))
    hall.send(liar, chain.panel.accuse(WRONG_TARGET, ground.question(0, 0)))
    filed = hall.last(CaseFiled)
    bond = filed.charge[8]  # IAuditPanel.Charge
    result = _panel(ground, filed, ground.answer(0, 0), printed=False)
    verifier = address_of_key(ground.keys["verifier"])
    back, to_v = (chain.panel.bond_of(who) for who in (address_of_key(liar), verifier))
    lost = result == Result.CLEARED and back == 0 and to_v == bond // 2
    caught = f"cleared: its bond of {bond // 10**18} is gone, {to_v // 10**18} of it to V"
    row = ground.row(
        "false accuser",
        "auditor",
        caught if lost else "",
        "",
        [address_of_key(liar)],
        "unprofitable",
    )
    return replace(row, victim_recovered=to_v)


def copycat(room: PanelRoom) -> Row:
    """Commits to another auditor's word, to say what that one will say."""
    ground = Ground(room, "copycat").settled()
    ground.drawn()
    audit, jury, answers = _entered(ground)
    liar, victim, *_rest = answers
    hall, juries = ground.hall, ground.chain.juries
    honest = {key: answer for key, answer in answers.items() if key != liar}
    hall.commit(jury, honest)
    copied = juries.answer_of(jury, address_of_key(victim)).commitment
    hall.send(liar, juries.commit(jury, copied))
    _finished(ground, audit, jury, honest)
    seen = juries.answer_of(jury, address_of_key(victim))
    words = (seen.withheld, seen.margin, seen.print, keccak256(victim))
    try:
        hall.send(liar, juries.reveal(jury, address_of_key(liar), *words))
        caught = ""
    except ChainError:
        caught = "the copied word opens for its author only; silent then"
    room.anvil.warp(PARAMETERS.audits.spans.reveal + 1)
    hall.send(STRANGER, juries.dismiss(jury, address_of_key(liar)))
    return ground.row("copycat", "auditor", caught, "F10", [address_of_key(liar)], "refused")


def silent_auditor(room: PanelRoom) -> Row:
    """Is drawn, and answers nothing."""
    ground = Ground(room, "silent auditor").settled()
    ground.drawn()
    audit, jury, answers = _entered(ground)
    liar, *rest = answers
    spans, given = PARAMETERS.audits.spans, {key: answers[key] for key in rest}
    ground.hall.commit(jury, given)
    room.anvil.warp(spans.seat + spans.commit + 1)
    _finished(ground, audit, jury, given)
    room.anvil.warp(spans.reveal + 1)
    ground.hall.send(STRANGER, ground.chain.juries.dismiss(jury, address_of_key(liar)))
    caught = "dismissed: no word by its deadline"
    return ground.row("silent", "auditor", caught, "F10", [address_of_key(liar)], "")


@dataclass(frozen=True)
class Hearing:
    """One adversary before the contracts alone."""

    name: str
    role: str
    play: Callable[[PanelRoom], Row]


HEARINGS: tuple[Hearing, ...] = (
    Hearing("withheld openings", "verifier", withheld_openings),
    Hearing("silent at audit", "verifier", silent_at_audit),
    Hearing("voucher replay", "verifier", voucher_replay),
    Hearing("hard prompts", "client", hard_prompts),
    Hearing("inventing tokens", "drafter and verifier", invented_tokens),
    Hearing("rubber stamp", "auditor", passes_canaries),
    Hearing("rubber stamp, no run", "auditor", made_up),
    Hearing("false accuser", "auditor", false_accuser),
    Hearing("copycat", "auditor", copycat),
    Hearing("silent", "auditor", silent_auditor),
)


def heard(room: PanelRoom, hearing: Hearing) -> Row:
    """Plays one hearing; the chain is afterwards as it was."""
    with room.anvil.rolled_back():
        return hearing.play(room)
