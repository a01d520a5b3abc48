"""V's part in audits of `SampleAudits`: to open its fingerprint of a drawn token that was named.
Pure but for the calls that it makes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from settlement.chain.contracts import Contracts
from settlement.chain.indexer import ChainEvent
from settlement.chain.panel_events import AuditMoved, FingerprintOpened, TokenNamed
from settlement.chain.standing import Standing
from settlement.draws import BatchEvidence, lane_seed, target_of
from settlement.duties import Action, Duty, Lack, Now, Plan
from settlement.trees import round_leaf

_RANDOMNESS: Final = 8  # place in IDrawBeacon.Batch


class Prints(Protocol):
    """What V holds of its own rounds."""

    def batch(self, root: bytes) -> BatchEvidence | None: ...

    def print(self, start_hash: bytes, round_: int, within: int) -> tuple[bytes, bytes] | None:
        """Salt and fingerprint of one output token; None where it is not held."""
        ...


def named_tokens(events: Iterable[ChainEvent]) -> dict[int, TokenNamed]:
    """Audits that wait for V's fingerprint, from events alone."""
    named: dict[int, TokenNamed] = {}
    for found in events:
        event = found.event
        if isinstance(event, TokenNamed):
            named[event.audit_id] = event
        elif isinstance(event, FingerprintOpened | AuditMoved):
            named.pop(event.audit_id, None)
    return named


def show_named(
    plan: Plan,
    contracts: Contracts,
    mine: frozenset[bytes],
    held: Prints,
    events: Iterable[ChainEvent],
    standing: Standing,
    now: Now,
) -> None:
    """Adds what is due of the keys `mine`: each named token's salt and fingerprint, or that they
    are not here."""
    for named in named_tokens(events).values():
        if named.verifier not in mine or now.time > named.second_until:
            continue
        with plan.apart(Action.UNSEAL, f"audit {named.audit_id}", named.second_until):
            _show(plan, contracts, held, named, standing)


def _show(
    plan: Plan, contracts: Contracts, held: Prints, named: TokenNamed, standing: Standing
) -> None:
    about = f"audit {named.audit_id}"
    found = _drawn_print(held, named, standing)
    if found is None:
        reason = "the salt of that token's fingerprint is not in this journal"
        plan.lacks.append(Lack(Action.UNSEAL, about, named.second_until, reason))
        return
    call = contracts.audits.open_print(named.audit_id, *found)
    intent = f"audit-print:{named.audit_id}"
    plan.duties.append(Duty(Action.UNSEAL, about, intent, call, named.second_until))


def _drawn_print(held: Prints, named: TokenNamed, standing: Standing) -> tuple[bytes, bytes] | None:
    view = standing.batches.get(named.batch_id)
    if view is None or named.index >= len(view.entries):
        return None
    evidence = held.batch(view.entries[named.index].root)
    if evidence is None:
        return None
    tree, _settled = evidence.settled()
    seed = lane_seed(bytes(view.batch[_RANDOMNESS]), named.index)
    target = target_of(seed, named.sample, tree.top().sums.output)
    place = tree.descend(target)
    record = evidence.rounds[place].record
    within = tree.proof(place).offset_of(round_leaf(record), target)
    return held.print(record.start_hash, record.round, within)
