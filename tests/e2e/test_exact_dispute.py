"""The exact tier from a served session to a slashed stake: real roles, the tiny pair in integers,
the deployed contracts. One challenger, no vote.

The chain is Anvil's; the network and the reserves are the arena's tables. What V commits to is
what its journal holds, and what a drawn auditor would be given.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import arena
import pytest
import torch
import trio
from arena import Arena, ignore
from deployment import KEYS, TOKEN, deploy_devnet, make_sender
from watched_node import Watched

from node.inference.catalog import SHIPPED
from node.inference.exact import model as exact_model
from node.inference.exact.target import ExactTarget
from node.inference.loading import load_model
from node.inference.model import Rows
from node.inference.model_drafter import ModelDrafter
from node.inference.params import SamplingParams
from node.inference.plain import replay
from node.network.memory import run_deterministically
from node.roles.accusations import evidence_of
from node.roles.exact_disputes import Disputes, disputes_of
from node.roles.proving import ExactProver
from node.roles.rerun import Case, Findings, Tolerance, rerun
from node.roles.session import Terms
from node.roles.stored import Private, stored_round, unpack_prompt
from node.watching import keep_found
from settlement import exact
from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Contracts, Role
from settlement.chain.errors import Reverted
from settlement.draws import RoundEvidence
from settlement.exact_faults import Disclosed, ExactCode, token_fault
from settlement.fault_proofs import Fault
from settlement.records import Mode, Tier
from settlement.signing import address_of_key

pytestmark = pytest.mark.slow

PAIR = SHIPPED / "tiny"
PROMPT = (40, 812, 77, 1500, 9)
STAKE = 10**5 * TOKEN
SALT = b"\x05" * 32


@functools.cache
def target() -> Any:
    return load_model(PAIR / "target", "exact", "cpu")


@functools.cache
def opened() -> ExactTarget:
    return ExactTarget.load(PAIR / "target")


class OneLie:
    """The target, but that after one length of text its two best tokens change places. Hidden
    states, and so fingerprints, are the target's own."""

    def __init__(self, length: int) -> None:
        self._model, self._length = target(), length

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, spans: Any) -> list[Rows]:
        ends = [span.cache.length + len(span.tokens) for span in spans]
        return [
            self._swapped(rows, end)
            for rows, end in zip(self._model.forward(spans), ends, strict=True)
        ]

    def _swapped(self, rows: Rows, end: int) -> Rows:
        at = self._length - 1 - (end - len(rows.logits))
        if not 0 <= at < len(rows.logits):
            return rows
        logits = rows.logits.clone()
        best, second = torch.topk(logits[at], 2).indices.tolist()
        logits[at, [best, second]] = logits[at, [second, best]]
        return replace(rows, logits=logits)


# ---------------------------------------------------------------- a chain with stakes


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    with Anvil() as chain:
        yield chain


@pytest.fixture(scope="module")
def contracts(anvil: Anvil, tmp_path_factory: pytest.TempPathFactory) -> Contracts:
    folder = tmp_path_factory.mktemp("exact")
    contracts = deploy_devnet(anvil, folder)
    rich = make_sender(contracts.rpc, KEYS[0], folder / "rich.sqlite", contracts)
    for name, role in (("drafter", Role.DRAFTER), ("verifier", Role.VERIFIER)):
        seat = Arena().seat(name)
        anvil.rpc("anvil_setBalance", "0x" + seat.address.hex(), hex(10**20))
        rich.send(f"stake:{name}", contracts.token.transfer(seat.address, STAKE))
        own = make_sender(contracts.rpc, seat.key, folder / f"{name}.sqlite", contracts)
        own.send("approve", contracts.token.approve(contracts.vault.address, STAKE))
        own.send("stake", contracts.vault.stake(seat.address, seat.address, role, STAKE))
    return contracts


@pytest.fixture
def chain(
    anvil: Anvil, contracts: Contracts, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Contracts]:
    """The arena's parties sign for this chain, its token and the real target."""
    monkeypatch.setattr(arena, "DOMAIN", contracts.domain)
    monkeypatch.setattr(arena, "TOKEN", contracts.token.address)
    monkeypatch.setattr(arena, "TARGET", opened().manifest.model_id)
    with anvil.rolled_back():
        yield contracts


# ---------------------------------------------------------------- a session, and its second run


@dataclass(frozen=True)
class Served:
    """A session as its verifier's journal holds it."""

    case: Case
    terms: Terms
    salts: tuple[Private, ...]

    def rerun(self) -> Findings:
        return rerun(target(), self.case, Tolerance.of(Tier.EXACT))

    def disputes(self, chain: Contracts) -> Disputes:
        findings = self.rerun()
        start = self.terms.start
        return disputes_of(chain.domain, self.case, start, findings, self.salts, opened())


def serve(model: Any, **plan: Any) -> Served:
    """One request by client, drafter and a verifier that runs `model`."""
    stage = Arena(seed=3)
    made = stage.plan(prompt=PROMPT, stop_ids=(), max_tokens=24, **plan)
    return run_deterministically(3, _play, stage, made, model)


async def _play(stage: Arena, plan: Any, model: Any) -> Served:
    seats = {name: stage.seat(name) for name in ("client", "drafter", "verifier")}
    stage.list_drafter(seats["drafter"])
    stage.list_verifier(seats["verifier"])
    async with trio.open_nursery() as nursery:
        verifier = await nursery.start(stage.verifier, seats["verifier"], model)
        draft = ModelDrafter(load_model(PAIR / "draft", "exact", "cpu"))
        await nursery.start(stage.drafter, seats["drafter"], draft)
        async with stage.client(seats["client"]) as client:
            await client.generate(plan, ignore)
        journal = verifier.node.journal
        (session,) = journal.sessions()
        terms = Terms.from_wire(session.terms, arena.DOMAIN)
        stored = journal.rounds(session.start_hash)
        rounds = tuple(stored_round(done.draft, done.verdict) for done in stored)
        salts = tuple(Private.from_wire(done.private) for done in stored)
        case = Case(terms.order, terms.seed, unpack_prompt(session.prompt), rounds)
        nursery.cancel_scope.cancel()
    return Served(case, terms, salts)


def leaves(served: Served) -> Iterator[tuple[RoundEvidence, int, Private]]:
    for done, private in zip(served.case.rounds, served.salts, strict=True):
        evidence = evidence_of(served.case.order, served.terms.start, done.draft, done.verdict)
        for index in range(len(evidence.verdict_leaves)):
            yield evidence, index, private


# ---------------------------------------------------------------- honest


@pytest.mark.parametrize(
    "plan",
    [
        {"mode": Mode.GREEDY, "temperature": 0},
        {"mode": Mode.COUPLED},
        {"mode": Mode.COUPLED, "temperature": 52_000, "top_k": 12},
    ],
)
def test_every_honest_record_is_refused(chain: Contracts, plan: dict[str, Any]) -> None:
    served = serve(target(), **plan)
    assert served.disputes(chain) == Disputes((), ())
    words = list(
        replay(
            target(),
            PROMPT,
            served.case.output,
            SamplingParams.from_order(served.case.order),
            served.case.seed,
        )
    )
    accepted = 0
    for word, (evidence, index, private) in zip(words, leaves(served), strict=True):
        leaf = evidence.verdict_leaves[index]
        accepted += leaf.accepted
        # The engine's head and the arithmetic of the contract are one.
        own = opened().opening(exact.HEAD, leaf.token)
        assert word.row.logits is not None
        assert int(word.row.logits[leaf.token] * 2**24) == exact.logit(word.hidden, own.row)
        # The token's nearest rival, held against it.
        rivals = word.row.scores.copy()
        rivals[leaf.token] = rivals.min()
        better = int(rivals.argmax())
        fault = token_fault(
            chain.domain,
            evidence,
            index,
            Disclosed(private.salts[index], word.hidden),
            opened().manifest,
            own,
            own,
            better,
            opened().opening(exact.HEAD, better),
            ExactCode.TOKEN_BEATEN,
        )
        with pytest.raises(Reverted, match=r"NoFault|CutoffForPanel"):
            chain.exact_rule.ruling(fault, chain.domain.separator)
    assert accepted > 0
    assert len(words) == 24


# ---------------------------------------------------------------- one changed token


def _challenge(anvil: Anvil, chain: Contracts, folder: Path, fault: Fault) -> None:
    key = KEYS[1]
    author = make_sender(chain.rpc, key, folder / "author.sqlite", chain)
    court = chain.court_of(fault)
    assert court is chain.exact_dispute
    author.send("approve", chain.token.approve(court.address, 10**4 * TOKEN))
    question = chain.rule_of(fault).question(fault, chain.domain.separator)
    assert chain.rule_of(fault).ruling(fault, chain.domain.separator)[0] == 9
    author.send("file", court.file(court.commitment(question, address_of_key(key), SALT)))
    copier = make_sender(chain.rpc, KEYS[2], folder / "copier.sqlite", chain)
    anvil.rpc("anvil_mine", hex(2))
    with pytest.raises(Reverted, match="NotFiled"):
        copier.send("copy", court.prove(fault, SALT))
    author.send("prove", court.prove(fault, SALT))


@pytest.mark.parametrize("mode", [Mode.GREEDY, Mode.COUPLED])
def test_one_changed_token_is_slashed_on_one_proof(
    anvil: Anvil, chain: Contracts, tmp_path: Path, mode: Mode
) -> None:
    # A low temperature, so that the two best tokens are the two that the noise leaves in front.
    temperature = 0 if mode == Mode.GREEDY else 6_000
    served = serve(OneLie(len(PROMPT) + 10), mode=mode, temperature=temperature)
    found = served.disputes(chain)
    assert found.panel == ()
    (fault,) = found.faults
    assert (fault.number, fault.code) == (9, ExactCode.TOKEN_BEATEN)
    verifier = Arena().seat("verifier").address
    assert fault.guilty == verifier
    _challenge(anvil, chain, tmp_path, fault)
    assert chain.vault.slashable(verifier, Role.VERIFIER) == STAKE // 2
    drafter = Arena().seat("drafter").address
    assert chain.vault.slashable(drafter, Role.DRAFTER) == STAKE


def test_an_auditors_watcher_proves_what_its_audit_found(
    anvil: Anvil, chain: Contracts, tmp_path: Path
) -> None:
    served = serve(OneLie(len(PROMPT) + 10), mode=Mode.GREEDY, temperature=0)
    verifier = Arena().seat("verifier").address
    findings = served.rerun()

    def audit(auditor: Watched) -> None:
        keep = functools.partial(keep_found, auditor.node, chain)
        prove = ExactProver(auditor.node, opened, keep)
        trio.run(prove, served.case, served.terms.start, findings, served.salts)

    auditor = Watched(chain, KEYS[1], tmp_path)
    audit(auditor)
    # Killed before its first look: what the audit found is in its journal.
    auditor.close()
    auditor = Watched(chain, KEYS[1], tmp_path)
    audit(auditor)  # and found again, for the report was not kept: it is filed once all the same
    for _ in range(8):  # filed, the blocks between, proven, the bond pulled
        auditor.look()
        anvil.mine()
    assert chain.vault.slashable(verifier, Role.VERIFIER) == STAKE // 2
    assert chain.vault.slashable(Arena().seat("drafter").address, Role.DRAFTER) == STAKE
    assert auditor.steps() == ["proven"]
    assert auditor.counted("faults_found") == 1
    auditor.close()


# ---------------------------------------------------------------- other models: to the panel


def _other_weights() -> Any:
    """A checkpoint that differs in one row of one matrix."""
    integers = exact_model.quantise.load_integers(PAIR / "target")
    layer = integers.layers[2]
    weights = layer.up.weights.copy()
    weights[7] = -weights[7]
    changed = replace(layer, up=replace(layer.up, weights=weights))
    layers = (*integers.layers[:2], changed, *integers.layers[3:])
    return exact_model.ExactModel(replace(integers, layers=layers), "cpu", None, PAIR / "target")


@contextmanager
def _eight_bits(patch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The engine with every activation cut to its upper eight bits."""
    product = exact_model.Requantised.__call__

    def cut(self: Any, a: torch.Tensor, *rest: Any) -> torch.Tensor:
        return product(self, ((a + 128) / 256).floor() * 256, *rest)

    with patch.context() as inside:
        inside.setattr(exact_model.Requantised, "__call__", cut)
        yield exact_model.ExactModel(exact_model.quantise.load_integers(PAIR / "target"))


@pytest.mark.parametrize("which", ["float", "eight bits", "checkpoint"])
def test_another_model_shows_in_the_hidden_state_and_goes_to_the_panel(
    chain: Contracts, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arithmetic over two rows does not show that a hidden state is false: no proof is made of it,
    and every position is named for the panel, which answers with one exact hash."""
    if which == "eight bits":
        with _eight_bits(monkeypatch) as model:
            served = serve(model, mode=Mode.GREEDY, temperature=0)
    else:
        model = load_model(PAIR / "target", "float32", "cpu") if which == "float" else None
        served = serve(model or _other_weights(), mode=Mode.GREEDY, temperature=0)
    found = served.disputes(chain)
    assert found.faults == ()
    assert len(found.panel) == len(served.case.output)
    assert {each.why for each in found.panel} == {"another hidden state"}
