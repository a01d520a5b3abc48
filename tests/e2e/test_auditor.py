"""Auditors on the in-memory network: drawn, served, re-running, committing, revealing.

Everything is real but the chain and the models: sessions are served and paid as in `test_roles`,
the drawn root is the voucher that all three signed, and the auditor's own table is the target.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import trio
from arena import DOMAIN, TARGET, Arena
from audit_scene import AUDITORS, QUICK, VOCAB, Scene, TableDraws, audit_on, audited, greedy, staged
from engine_models import TableModel

from node.network import exchange
from node.network.errors import Busy, Refused
from node.network.messages import (
    AuditCommit,
    Done,
    DrawnAnswer,
    DrawnRequest,
    Kind,
    RecordsRequest,
    RecordsResponse,
    SaltsAnswer,
    SaltsRequest,
)
from node.roles.auditing import NO_SIGNATURE, commitment, signed
from node.roles.auditor import PAUSE_MOST
from node.roles.lines import ask
from node.roles.refusals import No
from settlement.records import Mode


class OneLie(TableModel):
    """The target, but that at one length of text its two best tokens change places: topProb and
    hidden state are the target's, the verdict keeps every rule, and one token is another."""

    def __init__(self, length: int) -> None:
        super().__init__(VOCAB, 1)
        self.length = length

    def logits_after(self, text: Any) -> torch.Tensor:
        logits = super().logits_after(text)
        if len(text) != self.length:
            return logits
        best, second = torch.topk(logits, 2).indices.tolist()
        logits = logits.clone()
        logits[[best, second]] = logits[[second, best]]
        return logits


class OtherHidden(TableModel):
    """The target's tokens from another model's hidden states."""

    def __init__(self) -> None:
        super().__init__(VOCAB, 1)

    def forward(self, spans: Any) -> Any:
        return [replace(rows, hidden=rows.hidden.flip(1)) for rows in super().forward(spans)]


# ---------------------------------------------------------------- honest


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": Mode.GREEDY, "temperature": 0},
        {"mode": Mode.COUPLED},
        {"mode": Mode.COUPLED, "top_k": 4, "top_p": 60_000},
        {"mode": Mode.COUPLED, "stops": ("hej", "jj"), "max_tokens": 60},
        {"mode": Mode.REJECTION},
        {"mode": Mode.REJECTION, "top_k": 4},
    ],
)
def test_an_honest_session_is_found_clean_by_every_drawn_auditor(changes: dict[str, Any]) -> None:
    arena = Arena(seed=4)
    plan = arena.plan(**{"max_tokens": 24, "stop_ids": (), **changes})
    reports = staged(4, arena, plan, audited)
    assert len(reports) == 3
    for report in reports:
        assert report["verdict"] == "clean", report
        assert (report["mismatches"], report["fingerprint_distance"]) == (0, 0)
        assert report["tokens"] > 0
        assert report["outside"] == 0
    assert len({report["session_id"] for report in reports}) == 1


def test_the_reveals_reach_v_and_the_other_auditors() -> None:
    arena = Arena(seed=4)

    async def act(scene: Scene) -> list[int]:
        await scene.audited()
        await trio.sleep(5)
        journal = scene.nodes["verifier"].journal
        heard = [
            journal.secret(f"audit-reveal:1:0:{scene.session_id.hex()}:{seat.address.hex()}")
            for seat in (scene.seats[name] for name in AUDITORS)
        ]
        assert all(heard)
        return [role.node.metrics.counters["reveals_heard"] for role in scene.auditors]

    assert staged(4, arena, greedy(arena), act) == [2, 2, 2]


# ---------------------------------------------------------------- lies


def test_one_changed_token_is_found_and_only_that() -> None:
    arena = Arena(seed=6)
    lie = OneLie(3 + 10)  # three prompt tokens: output position 10
    reports = staged(6, arena, greedy(arena), audited, model=lie)
    assert len(reports) == 3
    for report in reports:
        assert report["verdict"] == "mismatch"
        assert (report["mismatches"], report["tokens"]) == (1, 24)
        (found,) = report["differences"]
        assert (found["position"], found["what"]) == (10, "token")
        assert found["theirs"] != found["ours"]
        # The rest is the target's own, hidden states included.
        assert report["fingerprint_distance"] == 0


@pytest.mark.parametrize("mode", [Mode.COUPLED, Mode.REJECTION])
def test_another_model_is_found(mode: Mode) -> None:
    arena = Arena(seed=6)
    plan = arena.plan(mode=mode, max_tokens=24, stop_ids=())
    reports = staged(6, arena, plan, audited, model=TableModel(VOCAB, 9))
    assert [report["verdict"] for report in reports] == ["mismatch"] * 3
    assert all(report["mismatches"] > 12 for report in reports)


def test_the_right_tokens_from_another_hidden_state_are_told_by_fingerprint() -> None:
    arena = Arena(seed=6)
    reports = staged(6, arena, greedy(arena), audited, model=OtherHidden())
    assert [report["verdict"] for report in reports] == ["fingerprint"] * 3
    assert all(report["mismatches"] == 0 for report in reports)
    assert all(report["fingerprint_distance"] > 1000 for report in reports)


@pytest.mark.parametrize(
    ("lie", "records", "handed_on"),
    [
        (None, ("client", "drafter", "verifier"), 0),
        (OneLie(3 + 10), ("client", "drafter", "verifier"), 3),
        (OtherHidden(), ("client", "drafter", "verifier"), 3),
        # Without V's salts a court could open nothing; a panel makes V open them.
        (OneLie(3 + 10), ("client", "drafter"), 3),
    ],
)
def test_what_differs_is_handed_on_for_proof_before_it_is_reported(
    lie: TableModel | None, records: tuple[str, ...], handed_on: int
) -> None:
    arena = Arena(seed=6)
    told = []

    async def act(scene: Scene) -> None:
        for role in scene.auditors:

            async def prove(
                case: Any,
                start: Any,
                findings: Any,
                salts: Any,
                delivered: Any,
                journal: Any = role.node.journal,
            ) -> None:
                assert case.order.session_id == start.session_id == scene.session_id
                assert (salts is None) == ("verifier" not in records)
                assert salts is None or len(salts) == len(case.rounds)
                # Every round is shown to hang under the drawn root: what a panel is asked by.
                for record, proof in zip(delivered.records, delivered.proofs, strict=True):
                    delivered.root.verify_round(record, proof, delivered.base)
                assert len(findings.fingerprints) == 24
                # Not yet done: a crash from here on makes the audit, and the proof, again.
                told.append(journal.fact("audit-done:1:0"))

            role.prove = prove
        await scene.audited()

    staged(6, arena, greedy(arena), act, model=lie, records=records)
    assert told == [None] * handed_on


# ---------------------------------------------------------------- silence


def test_a_silent_verifier_is_named_and_the_drafter_stands_in() -> None:
    arena = Arena(seed=8)
    reports = staged(8, arena, greedy(arena), audited, records=("client", "drafter"))
    for report in reports:
        assert report["verdict"] == "unopened"
        assert "not delivered by the verifier" in report["reason"]
        assert report["source"] == "0x" + Arena().seat("drafter").address.hex()
        assert (report["tokens"], report["mismatches"]) == (24, 0)


def test_a_verifier_whose_chain_lags_a_little_is_waited_for() -> None:
    arena = Arena(seed=8)

    async def act(scene: Scene) -> list[dict[str, Any]]:
        service = scene.services["verifier"]
        service.draws = TableDraws()
        for role in scene.auditors:
            role.look()
        await trio.sleep(1.2)
        service.draws = scene.draws
        return await scene.audited()

    for report in staged(8, arena, greedy(arena), act):
        assert (report["verdict"], report["reason"]) == ("clean", "")
        assert report["source"] == report["verifier"]


def test_nobody_delivers_and_the_report_says_so() -> None:
    arena = Arena(seed=8)
    reports = staged(8, arena, greedy(arena), audited, records=())
    assert [report["verdict"] for report in reports] == ["silent"] * 3
    assert all(report["session_id"] is None for report in reports)


def test_salts_open_without_an_absent_auditor_and_then_it_may_not_commit() -> None:
    arena = Arena(seed=9)

    async def act(scene: Scene) -> None:
        reports = await scene.audited()
        assert [report["verdict"] for report in reports] == ["clean"] * 2
        late = scene.seats["auditor-3"]
        async with scene.arena.node(late) as node:
            fresh = AuditCommit(1, 0, scene.session_id, late.address, b"\x01" * 32, NO_SIGNATURE)
            with pytest.raises(Refused) as refused:
                await ask(
                    node.transport,
                    scene.seats["verifier"].address,
                    Kind.COMMIT,
                    signed(DOMAIN, fresh, late.key),
                    Done,
                )
            assert refused.value.code == No.CONFLICT

    staged(9, arena, greedy(arena), act, auditors=AUDITORS[:2])


# ---------------------------------------------------------------- who may read


def test_parties_and_drawn_auditors_may_read_and_nobody_else() -> None:
    arena = Arena(seed=5)

    async def act(scene: Scene) -> None:
        verifier = scene.seats["verifier"].address
        root = scene.draws.held[0].root
        ordinary = RecordsRequest(scene.session_id, 0, 8, True)
        audit = replace(ordinary, root=root)

        async def read(who: str, wanted: RecordsRequest) -> RecordsResponse:
            transport = scene.nodes[who].transport
            return await ask(transport, verifier, Kind.RECORDS, wanted, RecordsResponse)

        for party in ("client", "drafter"):
            page = await read(party, ordinary)
            assert page.prompt is not None
            assert page.prompt.prompt == (1, 2, 3)
            assert page.proofs == ()
        page = await read("auditor-1", audit)
        assert len(page.proofs) == len(page.rounds) > 0
        assert all(path is not None for path in page.proofs)
        refused: list[tuple[str, RecordsRequest]] = [
            ("stranger", ordinary),
            ("stranger", audit),
            ("auditor-1", ordinary),  # an auditor reads under the root it is drawn for, or not
            ("auditor-1", replace(audit, root=b"\x07" * 32)),
            ("auditor-1", replace(audit, session_id=b"\x07" * 32)),
            ("client", replace(ordinary, session_id=b"\x07" * 32)),
        ]
        for who, wanted in refused:
            with pytest.raises(Refused) as no:
                await read(who, wanted)
            assert no.value.code == No.NOT_YOURS
        # An auditor with stake that the draw passed over is a stranger.
        (drawn,) = scene.draws.held
        scene.draws.held[0] = replace(drawn, count=1)
        (chosen,) = scene.draws.held[0].auditors(TARGET)
        for name in AUDITORS:
            transport = scene.nodes[name].transport
            if scene.seats[name].address == chosen:
                await read(name, audit)
                await ask(transport, verifier, Kind.DRAWN, DrawnRequest(1, 0, 0), DrawnAnswer)
                continue
            for kind, wanted, answer in (
                (Kind.RECORDS, audit, RecordsResponse),
                (Kind.DRAWN, DrawnRequest(1, 0, 0), DrawnAnswer),
            ):
                with pytest.raises(Refused) as no:
                    await ask(transport, verifier, kind, wanted, answer)
                assert no.value.code == No.NOT_YOURS

    staged(5, arena, greedy(arena), act)


def test_salts_are_for_those_who_have_committed_and_pages_are_rationed() -> None:
    arena = Arena(seed=5)

    async def act(scene: Scene) -> None:
        verifier, seat = scene.seats["verifier"].address, scene.seats["auditor-1"]
        transport = scene.nodes["auditor-1"].transport
        wanted = SaltsRequest(1, 0, scene.session_id, 0, 64)

        async def salts() -> SaltsAnswer:
            return await ask(transport, verifier, Kind.SALTS, wanted, SaltsAnswer)

        with pytest.raises(Refused, match="commit before") as no:
            await salts()
        mine = AuditCommit(
            1,
            0,
            scene.session_id,
            seat.address,
            commitment(seat.address, b"\x02" * 32, b"\x03" * 32),
            NO_SIGNATURE,
        )
        with pytest.raises(Refused, match="signed"):
            await ask(transport, verifier, Kind.COMMIT, mine, Done)
        mine = signed(DOMAIN, mine, seat.key)
        await ask(transport, verifier, Kind.COMMIT, mine, Done)
        await ask(transport, verifier, Kind.COMMIT, mine, Done)  # the same again changes nothing
        other = signed(DOMAIN, replace(mine, commitment=b"\x04" * 32), seat.key)
        with pytest.raises(Refused, match="something else"):
            await ask(transport, verifier, Kind.COMMIT, other, Done)
        with pytest.raises(Refused, match="2 drawn auditors have not") as no:
            await salts()
        assert no.value.code == No.BEHIND
        await trio.sleep(16)  # longer than V waits
        assert (await salts()).rounds
        stranger = scene.nodes["stranger"].transport
        with pytest.raises(Refused) as no:
            await ask(stranger, verifier, Kind.SALTS, wanted, SaltsAnswer)
        assert no.value.code == No.NOT_YOURS

        async def greedily() -> None:
            for _ in range(200):
                await exchange.ask(transport, verifier, Kind.SALTS, wanted, deadline=5.0)

        with pytest.raises(Busy):
            await greedily()
        # Who waits as it is told gets what it asks for.
        began = trio.current_time()
        for _ in range(32):
            assert (await salts()).rounds
        assert 1.5 < trio.current_time() - began < 4

    staged(5, arena, greedy(arena), act)


def test_a_restarted_auditor_commits_to_the_same_and_reports_once(tmp_path: Any) -> None:
    """Killed after its commitment is out, it comes back with the same one."""
    arena = Arena(seed=11)

    async def act(scene: Scene) -> None:
        seat = replace(scene.seats["auditor-3"], journal=tmp_path / "auditor.sqlite")
        scene.seats["auditor-3"] = seat
        place = f"1:0:{scene.session_id.hex()}"
        heard = scene.nodes["verifier"].journal
        for role in scene.auditors:
            role.look()
        for life in range(3):
            async with trio.open_nursery() as nursery:
                role = await nursery.start(audit_on, scene, "auditor-3")
                # Killed when V has the commitment: V would refuse another one.
                while heard.secret(f"audit-commit:{place}:{seat.address.hex()}") is None:
                    await trio.sleep(0.01)
                if life == 2:
                    while not role.audits[1, 0].done:
                        await trio.sleep(0.1)
                    (report,) = role.audits[1, 0].reports
                    assert report.verdict == "clean"
                    raw = role.node.journal.secret(f"audit:{place}")
                    assert raw[64:] == heard.secret(f"audit-commit:{place}:{seat.address.hex()}")
                nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            role = await nursery.start(audit_on, scene, "auditor-3")
            assert role.audits[1, 0].done
            assert role.audits[1, 0].reports == [report]
            nursery.cancel_scope.cancel()

    staged(11, arena, greedy(arena), act, auditors=AUDITORS[:2])


def test_what_was_found_reaches_who_was_away_and_outlives_a_restart(tmp_path: Any) -> None:
    """One auditor comes back when the others' patience with V is long over, and V with it: both
    still hear what the others found. One that died between its report and its telling tells it
    when it is back."""
    arena = Arena(seed=12)

    async def act(scene: Scene) -> None:
        seat = replace(scene.seats["auditor-2"], journal=tmp_path / "auditor.sqlite")
        scene.seats["auditor-2"] = seat
        first = scene.auditors[0]
        verifier = scene.nodes["verifier"]
        place = f"1:0:{scene.session_id.hex()}"

        def heard(by: Any, seat: Any) -> bool:
            return by.journal.secret(f"audit-reveal:{place}:{seat.address.hex()}") is not None

        first.look()
        async with trio.open_nursery() as nursery:
            second = await nursery.start(audit_on, scene, "auditor-2")
            tell = second._tell

            async def dumb(drawn: Any, peer: bytes, kind: Any, message: Any) -> bool:
                if kind == Kind.REVEAL:
                    await trio.sleep_forever()
                return await tell(drawn, peer, kind, message)

            second._tell = dumb
            while not second.audits[1, 0].done:
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()  # killed: its report is kept, and nobody has heard it
        await trio.sleep(5)
        assert heard(verifier, scene.seats["auditor-1"])
        assert not heard(verifier, seat)
        assert first.node.metrics.counters["reveals_heard"] == 0
        await trio.sleep(2 * QUICK.open)
        async with trio.open_nursery() as nursery:
            second = await nursery.start(audit_on, scene, "auditor-2")
            await trio.sleep(2 * PAUSE_MOST)
            assert heard(verifier, seat)
            assert first.node.metrics.counters["reveals_heard"] == 1
            # The third was never there, and it commits too late for the others' reveals to wait.
            third = await nursery.start(audit_on, scene, "auditor-3")
            await trio.sleep(3 * PAUSE_MOST)
            assert third.audits[1, 0].done
            assert third.node.metrics.counters["reveals_heard"] == 2
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            second = await nursery.start(audit_on, scene, "auditor-2")
            second.node.transport.request = None  # all have taken it: nothing is asked of anybody
            await trio.sleep(5)
            nursery.cancel_scope.cancel()

    staged(12, arena, greedy(arena), act, auditors=AUDITORS[:1])


def test_a_draw_that_ended_while_the_node_was_down_is_reported_as_missed() -> None:
    arena = Arena(seed=13)

    async def act(scene: Scene) -> None:
        (drawn,) = scene.draws.held
        scene.draws.held[:] = [replace(drawn, until=int(arena.clock) - 1)]
        (role,) = scene.auditors
        role.look()
        role.look()
        ((report,),) = (audit["sessions"] for audit in role.view())
        assert (report["verdict"], report["session_id"]) == ("missed", None)
        assert role.node.metrics.counters["audits_missed"] == 1

    staged(13, arena, greedy(arena), act, auditors=AUDITORS[:1])
