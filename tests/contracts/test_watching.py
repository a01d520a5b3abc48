"""The watcher on a chain: proves, answers, demands and expires; killed anywhere, does each once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from altered_sessions import misname_draft, shift_draw
from deployment import (
    CLIENT,
    DRAFTER,
    OWNER,
    TOKEN,
    VERIFIER,
    Parties,
    deploy_devnet,
    make_sender,
    open_lane,
)
from played_sessions import Play, play
from watched_node import (
    PROMPT,
    Watched,
    frames_of,
    keep_session,
    keep_voucher,
    terms_of,
    voucher_over,
)

from node.cli import main
from node.defence import DefendingDesk
from node.roles.accusations import accuse, accuse_twice
from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Contracts, Role
from settlement.chain.events import FaultProven, Filed
from settlement.chain.fees import GWEI, FeePolicy
from settlement.chain.lanes import Position, groups_of
from settlement.chain.standing import DemandStage
from settlement.draws import RoundEvidence, root_words, sum_words
from settlement.records import Manifest, Mode, Tier, prompt_hash
from settlement.sealing import Text, point_of, unseal
from settlement.signing import address_of_key

pytestmark = pytest.mark.slow
STAKE = 10**6 * TOKEN
KEYS = (CLIENT, DRAFTER, VERIFIER)
D, V = address_of_key(DRAFTER), address_of_key(VERIFIER)


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    with Anvil() as chain:
        yield chain


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("watching")


@pytest.fixture(scope="module")
def opened(anvil: Anvil, folder: Path) -> Contracts:
    return open_lane(deploy_devnet(anvil, folder), folder, stake=STAKE).contracts


@pytest.fixture
def chain(anvil: Anvil, opened: Contracts) -> Iterator[Contracts]:
    with anvil.rolled_back():
        yield opened


@pytest.fixture
def parties(chain: Contracts, tmp_path: Path) -> Parties:
    """The lane's three, with journals that know nothing of what another test has undone."""
    senders = (make_sender(chain.rpc, key, tmp_path / f"{key.hex()}", chain) for key in KEYS)
    return Parties(chain, *senders)


TARGET = Manifest("target", Tier.FLOAT32, b"\x01" * 32, b"\x02" * 32, 512, (2,), 1024)


def session_case(session: Play) -> tuple[Any, ...]:
    """ISessionDemands.SessionCase of the session's last round."""
    tree, settled = session.batch().settled()
    at = len(session.rounds) - 1
    evidence = session.rounds[at]
    steps = [(node.hash, sum_words(node.sums)) for node in tree.siblings(at)]
    manifest = (
        TARGET.architecture,
        int(TARGET.tier),
        TARGET.weights_root,
        TARGET.tokenizer_hash,
        TARGET.vocab_size,
        list(TARGET.eos_ids),
        TARGET.context_length,
    )
    records = (evidence.order.to_abi(), evidence.start.to_abi(), evidence.verdict.to_abi())
    return (root_words(settled), evidence.record.to_abi(), at, steps, *records, manifest)


def played(chain: Contracts, mode: Mode = Mode.COUPLED, seed: int = 4) -> Play:
    digest = prompt_hash(PROMPT.salt, PROMPT.prompt)
    token = chain.token.address
    return play(
        chain.domain,
        Random(seed),
        mode,
        token=token,
        keys=KEYS,
        prompt_hash=digest,
        target_model=TARGET.model_id,
    )


def accuse_of(node: Watched, altered: Play, honest: Play) -> None:
    """As a role does with the first frame that it refuses."""
    for lying, right in zip(altered.rounds, honest.rounds, strict=True):
        if lying != right:
            frames, terms = frames_of(lying), terms_of(honest.domain, right)
            assert accuse(node.node, terms, frames.draft, frames.verdict)
            return


def slashed(chain: Contracts, party: bytes, role: Role) -> int:
    return STAKE - chain.vault.slashable(party, role)


def settle(
    chain: Contracts, parties: Parties, rounds: tuple[RoundEvidence, ...], **how: Any
) -> Any:
    """The rounds settled on the parties' lane, from its epoch's start."""
    signed = voucher_over(chain.domain, rounds, KEYS, **how)
    position = Position(signed.voucher.epoch, chain.escrow.parameters().fee_bps)
    groups = groups_of([(signed, position)])
    intent = f"settle:{signed.voucher.root.hex()}"
    parties.verifier.send(intent, chain.escrow.settle(chain.token.address, groups))
    return signed


# ---------------------------------------------------------------- proofs


def test_a_refused_frame_costs_its_signer_half_of_the_stake(
    anvil: Anvil, chain: Contracts, tmp_path: Path
) -> None:
    honest = played(chain)
    told = misname_draft(chain.domain, honest, Random(1))
    assert told is not None
    node = Watched(chain, CLIENT, tmp_path)
    before = chain.token.balance_of(node.address)
    accuse_of(node, told[0], honest)
    for _ in range(4):
        node.look()
        anvil.mine()
    assert node.steps() == ["proven"]
    assert slashed(chain, V, Role.VERIFIER) == STAKE // 2
    assert chain.token.balance_of(node.address) == before  # the bond is back
    assert chain.token.allowance(node.address, chain.court.address) == 0
    assert [node.counted(f"watch_{what}") for what in ("file", "prove", "pull")] == [1, 1, 1]
    assert node.look() == 0


def test_windows_and_verdicts_signed_twice_are_proven_by_who_received_both(
    anvil: Anvil, chain: Contracts, tmp_path: Path
) -> None:
    honest = played(chain)
    at = next(i for i, e in enumerate(honest.rounds) if e.commit is not None)
    round_ = honest.rounds[at]
    terms = terms_of(chain.domain, round_)
    verifier = Watched(chain, VERIFIER, tmp_path / "v")
    drafter = Watched(chain, DRAFTER, tmp_path / "d")
    for node, role in ((verifier, "verifier"), (drafter, "drafter")):
        keep_session(node.journal, honest, role)
    assert round_.commit is not None
    commit = replace(round_.commit, draft_root=b"\x09" * 32)
    window = replace(
        frames_of(round_).draft,  # type: ignore[type-var]
        commit=commit,
        signature=chain.domain.sign(commit, DRAFTER),
    )
    accuse_twice(verifier.node, terms, window, b"")
    # The same bytes again are no second signature.
    accuse_twice(verifier.node, terms, frames_of(round_).draft, b"")
    verdict = replace(round_.verdict, version=1)
    second = replace(
        frames_of(round_).verdict, verdict=verdict, signature=chain.domain.sign(verdict, VERIFIER)
    )
    accuse_twice(drafter.node, terms, None, second.to_wire())
    accuse_twice(drafter.node, terms, None, frames_of(round_).verdict.to_wire())
    for node in (verifier, drafter):
        for _ in range(3):
            node.look()
            anvil.mine()
    assert {(j.number, j.guilty) for j in drafter.standing().judged} == {(1, D), (2, V)}
    assert slashed(chain, D, Role.DRAFTER) == STAKE // 2
    # The second verdict has another version than its draft, which is F5 besides.
    assert slashed(chain, V, Role.VERIFIER) >= STAKE // 2


def test_who_has_not_signed_is_not_accused(chain: Contracts, tmp_path: Path) -> None:
    honest = played(chain, Mode.REJECTION)
    told = shift_draw(chain.domain, honest, Random(1))
    assert told is not None
    node = Watched(chain, VERIFIER, tmp_path)
    at = next(i for i, e in enumerate(told[0].rounds) if e != honest.rounds[i])
    window = frames_of(told[0].rounds[at]).draft
    assert window is not None
    terms = terms_of(chain.domain, honest.rounds[at])
    forged = replace(window, signature=chain.domain.sign(window.commit, CLIENT))
    assert not accuse(node.node, terms, forged, None)
    assert accuse(node.node, terms, window, None)
    assert not accuse(node.node, terms, window, None)  # kept once
    node.look()
    assert node.counted("faults_found") == 1


class Killed(BaseException):
    """The process is gone."""


class Kills:
    """Raises at the n-th step of sender or journal."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, *_step: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


def prove_killed_at(chain: Contracts, anvil: Anvil, folder: Path, at: int) -> bool:
    """A whole proof, killed at that step and begun anew; False when it took fewer steps."""
    honest = played(chain)
    told = misname_draft(chain.domain, honest, Random(1))
    assert told is not None
    kills = Kills(at)
    node = Watched(chain, CLIENT, folder, kills)
    before = chain.token.balance_of(node.address)
    accuse_of(node, told[0], honest)
    node.journal._hook = kills
    killed = False
    try:
        for _ in range(4):
            node.look()
            anvil.mine()
    except (Killed, BaseExceptionGroup):
        killed = True
    node.close()
    node = Watched(chain, CLIENT, folder)
    for _ in range(5):
        node.look()
        anvil.mine()
    events = [found.event for found in node.chain.read()]
    assert sum(isinstance(event, Filed) for event in events) == 1
    assert sum(isinstance(event, FaultProven) for event in events) == 1
    assert node.steps() == ["proven"]
    assert slashed(chain, V, Role.VERIFIER) == STAKE // 2
    assert chain.token.balance_of(node.address) == before
    node.close()
    return killed


def test_killed_between_any_two_steps_it_files_and_proves_once(
    anvil: Anvil, opened: Contracts, tmp_path: Path
) -> None:
    at = 1
    while True:
        with anvil.rolled_back():
            if not prove_killed_at(opened, anvil, tmp_path / str(at), at):
                break
        at += 1
    assert at > 20  # four transactions of five steps each, and the journal's commits


def test_killed_after_filing_it_proves_what_it_filed(
    anvil: Anvil, chain: Contracts, tmp_path: Path
) -> None:
    assert prove_killed_at(chain, anvil, tmp_path, 12)


def test_what_a_reorganisation_undoes_is_done_again(
    anvil: Anvil, chain: Contracts, tmp_path: Path
) -> None:
    honest = played(chain)
    told = misname_draft(chain.domain, honest, Random(1))
    assert told is not None
    node = Watched(chain, CLIENT, tmp_path)
    accuse_of(node, told[0], honest)
    node.look()
    assert len(node.standing().filings) == 1
    anvil.reorg(1)
    assert not node.standing().filings
    node.look()  # sent again, the same bytes
    assert len(node.standing().filings) == 1
    anvil.mine()
    node.look()
    assert slashed(chain, V, Role.VERIFIER) == STAKE // 2
    anvil.reorg(1)
    assert slashed(chain, V, Role.VERIFIER) == 0
    for _ in range(3):
        node.look()
        anvil.mine()
    assert slashed(chain, V, Role.VERIFIER) == STAKE // 2
    assert node.steps() == ["proven"]
    assert len([j for j in node.standing().judged if j.where == "proof"]) == 1


def test_a_filing_that_lapsed_is_filed_anew(anvil: Anvil, chain: Contracts, tmp_path: Path) -> None:
    honest = played(chain)
    told = misname_draft(chain.domain, honest, Random(1))
    assert told is not None
    owner = make_sender(chain.rpc, OWNER, tmp_path / "owner.sqlite", chain)
    bond, delay, _window, *shares = chain.court.terms()
    owner.send("terms", chain.court.transact("setTerms", (bond, delay, 16, *shares)))
    node = Watched(chain, CLIENT, tmp_path)
    accuse_of(node, told[0], honest)
    node.look()
    (filing,) = node.standing().filings.values()
    anvil.mine(filing.open_until - filing.open_from + 10)
    for _ in range(3):
        node.look()
        anvil.mine()
    assert len(node.standing().filings) == 2
    assert node.steps() == ["proven"]


def test_another_was_faster_and_the_bond_comes_back(
    anvil: Anvil, chain: Contracts, tmp_path: Path
) -> None:
    honest = played(chain)
    told = misname_draft(chain.domain, honest, Random(1))
    assert told is not None
    nodes = [Watched(chain, key, tmp_path / key.hex()[:6]) for key in (CLIENT, DRAFTER)]
    before = [chain.token.balance_of(node.address) for node in nodes]
    for node in nodes:
        accuse_of(node, told[0], honest)
        node.look()
    anvil.mine()
    for _ in range(2):
        for node in nodes:
            node.look()
    assert [node.steps() for node in nodes] == [["proven"], ["proven"]]
    assert slashed(chain, V, Role.VERIFIER) == STAKE // 2  # punished once
    assert chain.token.balance_of(nodes[0].address) == before[0]
    late = Watched(chain, VERIFIER, tmp_path / "late")
    accuse_of(late, told[0], honest)
    late.look()
    assert late.counted("own_faults") == 1  # nobody files against itself
    assert late.steps() == []


def test_a_key_without_tokens_says_what_it_cannot_do(chain: Contracts, tmp_path: Path) -> None:
    honest = played(chain)
    told = misname_draft(chain.domain, honest, Random(1))
    assert told is not None
    node = Watched(chain, b"\x44" * 32, tmp_path)
    accuse_of(node, told[0], honest)
    node.look()
    (lack,) = node.desk.view()["lacking"]
    assert lack["action"] == "file"
    assert "holds 0 token units and the bond is" in lack["reason"]
    assert node.steps() == ["file"]


def test_no_bond_is_put_down_for_a_slash_of_nothing_or_less_than_its_gas(
    anvil: Anvil, chain: Contracts, tmp_path: Path
) -> None:
    # A verifier that nobody has staked for.
    stranger = (CLIENT, DRAFTER, b"\x21" * 32)
    honest = play(chain.domain, Random(4), Mode.COUPLED, keys=stranger)
    told = misname_draft(chain.domain, honest, Random(1))
    assert told is not None
    node = Watched(chain, CLIENT, tmp_path / "a")
    accuse_of(node, told[0], honest)
    node.look()
    assert node.steps() == ["empty"]
    assert not node.standing().filings
    honest = played(chain)
    told = misname_draft(chain.domain, honest, Random(1))
    assert told is not None
    dear = Watched(chain, CLIENT, tmp_path / "b")
    dear.desk._config = replace(dear.desk._config, token_per_wei=1e30)
    accuse_of(dear, told[0], honest)
    dear.look()
    assert dear.steps() == ["file"]
    assert not dear.standing().filings


# ---------------------------------------------------------------- demands


def test_v_answers_a_demand_on_it_and_keeps_the_bond(
    anvil: Anvil, chain: Contracts, parties: Parties, tmp_path: Path
) -> None:
    honest = played(chain, Mode.REJECTION)
    signed = settle(chain, parties, honest.rounds)
    verifier = Watched(chain, VERIFIER, tmp_path / "v")
    keep_session(verifier.journal, honest, "verifier")
    keep_voucher(verifier.journal, honest, signed)
    client = Watched(chain, CLIENT, tmp_path / "c")  # its journal holds nothing of this
    for _ in range(4):
        client.look()
        anvil.mine()
    (demand,) = client.standing().demands.values()
    assert (demand.by, demand.verifier, demand.root) == (client.address, V, signed.voucher.root)
    verifier.look()
    (demand,) = verifier.standing().demands.values()
    assert demand.stage == DemandStage.SHOWN
    assert chain.demands.bond_of(V) == demand.bond
    verifier.look()
    assert chain.demands.bond_of(V) == 0
    for node in (client, verifier):
        assert node.look() == 0
    assert slashed(chain, V, Role.VERIFIER) == 0


def test_a_gas_spike_does_not_keep_a_verifier_from_answering(
    anvil: Anvil, chain: Contracts, parties: Parties, tmp_path: Path
) -> None:
    """Above the usual cap nothing is sent while there is time. As the deadline comes near the cap
    of what defends stake grows, and whatever waits in front under an earlier nonce goes with it."""
    honest = played(chain, Mode.REJECTION)
    signed = settle(chain, parties, honest.rounds)
    verifier = Watched(chain, VERIFIER, tmp_path / "v", max_fee_gwei=100.0, defence_seconds=40.0)
    keep_session(verifier.journal, honest, "verifier")
    keep_voucher(verifier.journal, honest, signed)
    client = Watched(chain, CLIENT, tmp_path / "c")
    for _ in range(4):
        client.look()
        anvil.mine()
    verifier.sender.fees = FeePolicy(cap=100 * GWEI, replace_after=0.0)
    plain = verifier.desk
    desk = DefendingDesk(
        chain,
        verifier.sender,
        verifier.chain,  # type: ignore[arg-type]
        verifier.node,
        plain._config,
        draws=True,
    )
    desk._policy, desk._panel_policy = plain._policy, plain._panel_policy

    def dear() -> None:
        anvil.rpc("anvil_setNextBlockBaseFeePerGas", hex(150 * GWEI))
        anvil.mine()

    (demand,) = verifier.standing().demands.values()
    dear()
    assert demand.until - anvil.timestamp > 40
    verifier.desk = desk
    assert verifier.look() == 0
    (demand,) = verifier.standing().demands.values()
    assert demand.stage == DemandStage.OPEN
    anvil.warp(demand.until - anvil.timestamp - 8)
    dear()
    verifier.desk = plain
    assert verifier.look() == 0  # as it was before: at one cap for all until the slash
    verifier.desk = desk
    dear()
    verifier.look()
    (demand,) = verifier.standing().demands.values()
    assert demand.stage == DemandStage.SHOWN
    assert verifier.sender.fees.cap == 100 * GWEI
    assert slashed(chain, V, Role.VERIFIER) == 0


def test_silence_costs_no_less_than_the_lie(
    anvil: Anvil, chain: Contracts, parties: Parties, tmp_path: Path
) -> None:
    honest = played(chain)
    settle(chain, parties, honest.rounds)
    client = Watched(chain, CLIENT, tmp_path / "c")
    verifier = Watched(chain, VERIFIER, tmp_path / "v")  # has lost its journal
    for _ in range(4):
        client.look()
        anvil.mine()
    assert len(client.standing().demands) == 1
    verifier.look()
    assert verifier.counted("watch_lacking") >= 1
    lacking = verifier.desk.view()["lacking"]
    assert {entry["action"] for entry in lacking} >= {"answer"}
    assert client.counted("watch_expire") == 0
    for _ in range(2):
        anvil.warp(61)
        client.look()
    # Of what was there, 5 % and then 50 %; the draw of the same lane was not opened either.
    assert slashed(chain, V, Role.VERIFIER) >= STAKE - STAKE * 95 // 100 * 50 // 100
    stages = {demand.stage for demand in client.standing().demands.values()}
    assert stages == {DemandStage.SILENT}
    client.look()
    assert chain.demands.bond_of(client.address) == 0  # pulled


def test_demands_end_where_their_budget_does(
    anvil: Anvil, chain: Contracts, parties: Parties, tmp_path: Path
) -> None:
    settle(chain, parties, played(chain).rounds)
    parties.client.send("epoch", chain.escrow.open_epoch(parties.lane))
    settle(chain, parties, played(chain, seed=7).rounds, epoch=1)
    none = Watched(chain, CLIENT, tmp_path / "a", demand_tokens=9.0)
    for _ in range(3):
        none.look()
        anvil.mine()
    assert not none.standing().demands
    assert none.counted("watch_lacking") == 1
    one = Watched(chain, DRAFTER, tmp_path / "b", demand_tokens=15.0)
    for _ in range(3):
        one.look()
        anvil.mine()
    assert len(one.standing().demands) == 1
    stranger = Watched(chain, b"\x44" * 32, tmp_path / "s")  # of no lane
    stranger.look()
    assert stranger.desk.view()["lacking"] == []
    assert not any(due["action"] == "demand" for due in stranger.desk.view()["due"])
    assert not Watched(chain, DRAFTER, tmp_path / "c", demand_tokens=0.0).look()


def test_v_delivers_a_session_to_who_may_read_it(
    anvil: Anvil, chain: Contracts, parties: Parties, tmp_path: Path
) -> None:
    honest = played(chain)
    signed = settle(chain, parties, honest.rounds)
    verifier = Watched(chain, VERIFIER, tmp_path / "v")
    keep_session(verifier.journal, honest, "verifier")
    keep_voucher(verifier.journal, honest, signed)
    secret = b"\x31" * 32
    (at,) = verifier.standing().settlements()
    batch, index, _entry, _lane = at
    chain_case = session_case(honest)
    parties.client.send(
        "approve-sessions",
        chain.token.approve(chain.session_demands.address, chain.session_demands.bond()),
    )
    call = chain.session_demands.demand_session(
        chain_case, batch.batch, batch.packed(), index, point_of(secret)
    )
    parties.client.send("demand", call)
    verifier.look()
    (demand,) = (d for d in verifier.standing().demands.values() if d.of_session)
    assert demand.stage == DemandStage.ANSWERED
    assert demand.answer is not None
    x, y, sealed, until = demand.answer
    plain = unseal(sealed, demand.id, (x, y), secret)
    _start, _round, prompt, context, tokens, _key = demand.session
    text = Text.from_bytes(plain, tokens, prompt, context)
    assert text.prompt == PROMPT.prompt
    verifier.look()
    assert verifier.counted("watch_close") == 0  # the reader has its time to look
    anvil.warp(until - chain.rpc.head().timestamp + 1)
    verifier.look()
    assert verifier.counted("watch_close") == 1
    verifier.look()
    assert verifier.counted("watch_pull") == 1


# ---------------------------------------------------------------- shown


def test_the_command_shows_every_dispute_with_its_deadline(
    anvil: Anvil,
    chain: Contracts,
    parties: Parties,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = ["--rpc-url", anvil.url, "--address-book", str(folder / "addresses.json")]

    def shown(*words: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["disputes", *where, *words, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    nobody = ["--keystore", str(tmp_path / "none.json")]
    assert shown(*nobody)["disputes"] == []
    assert main(["disputes", *where, *nobody, "--mine"]) == 1
    assert "name an --address or a --keystore" in capsys.readouterr().err
    honest = played(chain)
    settle(chain, parties, honest.rounds)
    node = Watched(chain, CLIENT, tmp_path / "c")
    told = misname_draft(chain.domain, honest, Random(1))
    assert told is not None
    for _ in range(4):
        node.look()
        anvil.mine()
    accuse_of(node, told[0], honest)
    node.look()
    me, accused = "0x" + node.address.hex(), "0x" + V.hex()
    found = shown("--address", accused)["disputes"]
    by_kind = {entry["kind"]: entry for entry in found}
    assert set(by_kind) == {"draw", "demand", "filing"}
    for kind, words in (("draw", "this node opens sample 0"), ("demand", "this node answers")):
        assert by_kind[kind]["accused"] == accused
        assert by_kind[kind]["part"] == "accused"
        assert by_kind[kind]["next"].startswith(words)
        assert by_kind[kind]["until"] > chain.rpc.head().timestamp
    assert by_kind["demand"]["by"] == by_kind["filing"]["by"] == me
    assert int(by_kind["filing"]["bond"]) == chain.court.bond()
    assert [d["kind"] for d in shown("--address", me, "--mine")["disputes"]] == ["demand", "filing"]
    anvil.mine(2)
    node.look()
    found = shown("--address", me)["disputes"]
    assert {entry["kind"] for entry in found} == {"draw", "demand", "fault"}  # the filing is used
    (fault,) = (entry for entry in found if entry["kind"] == "fault")
    assert (fault["accused"], fault["by"], fault["next"]) == (accused, me, "nothing: punished")
    anvil.warp(61)
    assert main(["disputes", *where, "--address", me]) == 0
    text = capsys.readouterr().out
    assert "this node takes 5 % of the verifier's stake, unless the verifier answers first" in text
    assert "(passed)" in text
    assert "anybody may call expire" in text
