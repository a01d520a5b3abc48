"""What is refused says so clearly, and costs nobody anything.

Orders go to a drafter and a verifier in memory, by hand where no honest client would send them;
configurations go to the command line, against a real chain.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trio
from arena import Arena, ignore
from test_roles import check_pay, close_draft, plain, target

from node import cli
from node.config import LimitConfig, NodeConfig, dump
from node.devnet.options import DevnetOptions, Operator
from node.devnet.processes import Fleet
from node.devnet.world import World, build
from node.generation import RequestError, read_wish
from node.inference import catalog
from node.inference.tokens import Tokenizer
from node.journal import Journal
from node.network import exchange
from node.network.errors import Refused
from node.network.memory import run_deterministically
from node.network.messages import Kind, OrderAccept, OrderOffer, PromptDelivery
from node.roles.client import ClientRole
from node.roles.plan import NoParties, Plan
from node.roles.refusals import NO_SIGNATURE, No
from node.roles.verifier import VerifierRole
from settlement.chain.anvil import Anvil
from settlement.coins import nonce_commitment
from settlement.records import Order, prompt_hash

# ---------------------------------------------------------------- orders


@dataclass
class Table:
    """One client, drafter and verifier, with what an order between them needs."""

    arena: Arena
    client: ClientRole
    verifier: VerifierRole
    parties: dict[str, bytes]

    def order(self, plan: Plan, **changes: Any) -> Order:
        """A good order, but for `changes`."""
        arena, client = self.arena, self.client.node.address
        promised = self.verifier.nonce(client, plan.template.request_id)
        good: dict[str, Any] = {
            "client": client,
            "drafter": self.parties["drafter"],
            "verifier": self.parties["verifier"],
            "draft_model": arena.offer(0, 0).draft_model_id,
            "price_accepted": arena.prices.accepted,
            "price_output": arena.prices.output,
            "nonce_commit_client": nonce_commitment(b"\x01" * 32),
            "nonce_commit_verifier": nonce_commitment(promised),
            "nonce": 7,
        }
        return replace(plan.template, **(good | changes))

    async def offer(
        self, order: Order, plan: Plan, *, to: str = "verifier", signed: Order | None = None
    ) -> OrderAccept:
        """Sends the order with the client's signature over it (or over `signed`)."""
        node = self.client.node
        signature = node.domain.sign(signed or order, node.key)
        delivery = PromptDelivery(plan.salt, plan.prompt, plan.stops, ())
        offer = OrderOffer(order.to_wire(), (signature, NO_SIGNATURE, NO_SIGNATURE), delivery)
        answer = await exchange.ask(
            node.transport, self.parties[to], Kind.ORDER, offer, deadline=5.0
        )
        assert isinstance(answer, OrderAccept)
        return answer


def at_table(seed: int, story: Callable[[Table], Any], arena: Arena | None = None) -> None:
    """Runs `story` with everybody there; afterwards an honest request must still be served, and
    nobody may hold a session beyond that one's."""
    arena = arena or Arena(seed=seed)

    async def main() -> None:
        seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
        arena.list_drafter(seats["drafter"])
        arena.list_verifier(seats["verifier"])
        async with trio.open_nursery() as nursery:
            verifier = await nursery.start(arena.verifier, seats["verifier"], target(), 3)
            drafter = await nursery.start(arena.drafter, seats["drafter"], close_draft())
            async with arena.client(seats["client"]) as client:
                parties = {name: seat.address for name, seat in seats.items()}
                await story(Table(arena, client, verifier, parties))
                plan = arena.plan(max_tokens=8, stop_ids=())
                outcome = await client.generate(plan, ignore)
                assert outcome.tokens == plain(plan, outcome)
                check_pay(arena, outcome)
                only = [outcome.sessions[0].terms.start_hash]
                for role in (client, verifier, drafter):
                    rows = role.node.journal.sessions()
                    assert [row.start_hash for row in rows] == only
            nursery.cancel_scope.cancel()

    run_deterministically(seed, main)


def past(arena: Arena) -> int:
    return int(arena.clock) - 1


BAD_ORDERS: dict[str, tuple[Callable[[Arena], dict[str, Any]], No, str]] = {
    "expired": (lambda a: {"deadline": past(a)}, No.ORDER, "the deadline is .* this clock says"),
    "far off": (lambda a: {"deadline": past(a) + 10**6}, No.ORDER, "at most 3600 s ahead"),
    "another prompt": (
        lambda a: {"prompt_hash": prompt_hash(bytes(32), (9,))},
        No.ORDER,
        "promptHash is not the hash of this prompt",
    ),
    "another stop": (
        lambda a: {"stop_string_hashes": (b"\x05" * 32,)},
        No.ORDER,
        "stopStringHashes",
    ),
    "too long an output": (lambda a: {"max_tokens": 5000}, No.ORDER, "maxTokens is 5000, at most"),
    "too cheap": (
        lambda a: {"price_output": 0, "price_accepted": 0},
        No.ORDER,
        "the price is 0, asked",
    ),
    "another target": (lambda a: {"target_model": b"\x77" * 32}, No.ORDER, "target 0x7777"),
    "another client": (lambda a: {"client": b"\x09" * 20}, No.ORDER, "not between us"),
    "another party": (
        lambda a: {"drafter": b"\x09" * 20, "verifier": b"\x08" * 20},
        No.ORDER,
        "not between us",
    ),
    "an output from nowhere": (
        lambda a: {
            "start_position": 4,
            "parent_session": b"\x01" * 32,
            "context_hash": b"\x02" * 32,
        },
        No.ORDER,
        "exactly the output committed before",
    ),
}  # fmt: skip


def test_a_drafter_that_a_friend_overpays_does_not_lock_the_verifiers_stake() -> None:
    async def story(table: Table) -> None:
        plan, prices = table.arena.plan(), table.arena.prices
        most = int(table.arena.limits.accepted_price * prices.output)
        dear = table.order(plan, price_accepted=most + 1)
        with pytest.raises(Refused, match="locked for the drafter's pay") as refused:
            await table.offer(dear, plan)
        assert refused.value.code == No.ORDER
        # As much as that it takes: the drafter's signature is what lacks then.
        await table.offer(table.order(plan, price_accepted=most), plan)

    at_table(23, story)


@pytest.mark.parametrize("to", ["drafter", "verifier"])
@pytest.mark.parametrize("name", BAD_ORDERS)
def test_a_bad_order_is_refused_by_either_payee(name: str, to: str) -> None:
    changes, code, text = BAD_ORDERS[name]

    async def story(table: Table) -> None:
        plan = table.arena.plan()
        with pytest.raises(Refused, match=text) as refused:
            await table.offer(table.order(plan, **changes(table.arena)), plan, to=to)
        assert refused.value.code == code

    at_table(21, story)


@pytest.mark.parametrize("to", ["drafter", "verifier"])
def test_an_order_altered_after_it_was_signed_is_refused(to: str) -> None:
    async def story(table: Table) -> None:
        plan = table.arena.plan()
        order = table.order(plan)
        altered = replace(order, max_tokens=order.max_tokens + 1)
        with pytest.raises(Refused, match="Order is not signed by this party") as refused:
            await table.offer(altered, plan, to=to, signed=order)
        assert refused.value.code == No.ORDER
        node = table.client.node
        delivery = PromptDelivery(plan.salt, plan.prompt, (), ())
        unsigned = OrderOffer(order.to_wire(), (NO_SIGNATURE,) * 3, delivery)
        with pytest.raises(Refused, match="the client's signature is missing"):
            await exchange.ask(
                node.transport, table.parties[to], Kind.ORDER, unsigned, deadline=5.0
            )

    at_table(22, story)


@pytest.mark.parametrize("to", ["drafter", "verifier"])
def test_a_nonce_serves_one_order(to: str) -> None:
    async def story(table: Table) -> None:
        plan, other = table.arena.plan(), table.arena.plan(max_tokens=9)
        order = table.order(plan)
        accepted = await table.offer(order, plan, to=to)
        with pytest.raises(Refused, match="order nonce 7 was used before") as refused:
            await table.offer(table.order(other), other, to=to)
        assert refused.value.code == No.CONFLICT
        # The same order again is no other one: the same bytes come back.
        assert await table.offer(order, plan, to=to) == accepted
        # The honest client of this seat counts its own nonces from 1.

    at_table(23, story)


def test_no_prompt_and_too_long_a_prompt_are_refused() -> None:
    limits = LimitConfig(max_prompt_tokens=5, round_seconds=3.0, resume_seconds=6.0)

    async def story(table: Table) -> None:
        for prompt, text in (((), "the prompt is empty"), ((1,) * 6, "6 tokens, at most 5")):
            plan = table.arena.plan(prompt=prompt)
            with pytest.raises(NoParties, match=text):
                await table.client.generate(plan, ignore)
            table.client._avoid.clear()

    at_table(24, story, Arena(seed=24, limits=limits))


def test_a_lane_without_reserve_is_refused_before_work_starts() -> None:
    async def story(table: Table) -> None:
        table.arena.chain.reserve = 1
        with pytest.raises(NoParties, match=r"1 token units free.*verdraft deposit"):
            await table.client.generate(table.arena.plan(), ignore)
        table.client._avoid.clear()
        table.arena.chain.reserve = 10**30

    at_table(25, story)


# ---------------------------------------------------------------- requests


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"prompt": ""}, "empty"),
        ({"prompt": "  \n"}, "empty"),
        ({"prompt": 7}, "empty"),
        ({}, "either prompt or messages"),
        ({"prompt": "a", "messages": []}, "either prompt or messages"),
        ({"messages": []}, "messages"),
        ({"prompt": "word " * 2000}, "tokens, at most 1024"),
        ({"prompt": "a", "mode": "fast"}, "one of greedy, coupled, rejection"),
        ({"prompt": "a", "mode": ["greedy"]}, "one of greedy, coupled, rejection"),
        ({"prompt": "a\ud800"}, "is no text"),
        ({"messages": [{"role": "user", "content": "\udfff"}]}, "is no text"),
        ({"prompt": "a", "stop": ["\ud800"]}, "is no text"),
        ({"prompt": "a", "max_tokens": 10**30}, "whole number"),
        ({"prompt": "a", "seed": 2**63}, "whole number"),
        ({"prompt": "a", "mode": "greedy", "temperature": 1}, "greedy mode has none"),
        ({"prompt": "a", "mode": "rejection", "seed": 1}, "joint seed"),
        ({"prompt": "a", "temperature": float("nan")}, "from 0 to 16"),
        ({"prompt": "a", "repetition_penalty": 0}, "from 0.0625 to 16"),
        ({"prompt": "a", "presence_penalty": 17}, "from -16 to 16"),
        ({"prompt": "a", "frequency_penalty": "1"}, "a number from -16"),
        ({"prompt": "a", "mode": "rejection", "relax": 0.1}, "greedy or coupled"),
        ({"prompt": "a", "relax": -0.1}, "from 0 to 16"),
        ({"prompt": "a", "max_tokens": 0}, "from 1 to"),
        ({"prompt": "a", "max_tokens": True}, "whole number"),
        ({"prompt": "a", "stop": [""]}, "16 strings"),
        ({"prompt": "a", "drafter": "0x12"}, "20 bytes"),
        ({"prompt": "a", "tempreature": 1}, "unknown field 'tempreature'"),
    ],
)
def test_a_request_that_makes_no_sense_names_the_field(request_: dict, text: str) -> None:
    tokenizer = Tokenizer.load(catalog.resolve("tiny-target").path)
    config = some_config(Path("/nowhere"), "http://127.0.0.1:1")
    with pytest.raises(RequestError, match=text):
        read_wish(request_, tokenizer, config)


# ---------------------------------------------------------------- command line


def some_config(folder: Path, url: str) -> NodeConfig:
    from node.config import ChainConfig, IdentityConfig

    return NodeConfig(
        role="drafter",
        data_dir=folder / "data",
        identity=IdentityConfig(folder / "operator.json", folder / "password"),
        chain=ChainConfig(rpc_url=url, address_book=folder / "addresses.json"),
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A chain with everything deployed, staked and reserved; no node runs."""
    found = build(DevnetOptions(tiny=True), tmp_path_factory.mktemp("world"), lambda line: None)
    yield found
    found.anvil.stop()


@pytest.fixture
def operator(world: World) -> Operator:
    return next(o for o in world.operators if o.name == "drafter-1")


@pytest.fixture
def configured(world: World, operator: Operator, tmp_path: Path) -> Callable[..., Path]:
    """Writes a drafter's configuration, with changes of tables given as keyword arguments."""
    good = replace(
        Fleet(world, DevnetOptions(tiny=True))._config(operator), data_dir=tmp_path / "data"
    )

    def write(**changes: dict[str, Any]) -> Path:
        tables = {name: replace(getattr(good, name), **c) for name, c in changes.items()}
        path = tmp_path / "node.toml"
        path.write_text(dump(replace(good, **tables)))
        return path

    return write


def refused(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `node run` says as it refuses. Nothing may have been written to the journal."""
    assert cli.main(["node", "run", "--config", str(path)]) == 1
    said = capsys.readouterr()
    lines = [line for line in said.err.splitlines() if line.startswith("verdraft: ")]
    assert len(lines) == 1, said.err
    assert "Traceback" not in said.err
    journal = path.parent / "data" / "journal.sqlite"
    if journal.exists():
        held = Journal(journal, durability="normal")
        assert held.sessions() == []
        held.close()
    return lines[0]


def advice(path: Path, what: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What `node check` finds wrong under `what`, and what it advises."""
    assert cli.main(["node", "check", "--config", str(path), "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    (found,) = [f for f in findings if f["what"] == what]
    assert not found["ok"]
    assert found["advice"]
    return found["found"], found["advice"]


@pytest.mark.slow
def test_a_wrong_password(
    configured: Callable[..., Path],
    operator: Operator,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("not this one\n")
    wrong.chmod(0o600)
    before = operator.keystore.read_bytes()
    path = configured(identity={"password_file": wrong})
    assert "the password does not open" in refused(path, capsys)
    found, _ = advice(path, "key", capsys)
    assert "the password does not open" in found
    wrong.chmod(0o644)
    assert f"chmod 600 {wrong}" in refused(path, capsys)
    assert operator.keystore.read_bytes() == before


@pytest.mark.slow
def test_a_wrong_chain_and_a_chain_without_the_contracts(
    configured: Callable[..., Path], world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    with Anvil(overrides={"chain-id": 1337}) as other:
        said = refused(configured(chain={"rpc_url": other.url}), capsys)
        assert "serves chain 1337, expected chain 31337. Name an endpoint" in said
    with Anvil() as empty:
        path = configured(chain={"rpc_url": empty.url})
        said = refused(path, capsys)
        assert "began with block" in said
        assert "Deploy again with `--fresh`" in said
        found, _ = advice(path, "chain", capsys)
        assert "began with block" in found
        gone = empty.url
    said = refused(configured(chain={"rpc_url": gone}), capsys)
    assert f"no chain answers at {gone}" in said


@pytest.mark.slow
def test_a_missing_contract(
    configured: Callable[..., Path],
    world: World,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    book = json.loads(world.book.read_text())
    book["contracts"]["LaneEscrow"]["address"] = "0x" + "ab" * 20
    path = tmp_path / "addresses.json"
    path.write_text(json.dumps(book))
    said = refused(configured(chain={"address_book": path}), capsys)
    assert "LaneEscrow at 0xabab" in said
    assert "no code there. Deploy with scripts/deploy.py" in said
    # Other code at the place is as bad as none.
    book["contracts"]["LaneEscrow"]["address"] = book["contracts"]["StakeVault"]["address"]
    path.write_text(json.dumps(book))
    said = refused(configured(chain={"address_book": path}), capsys)
    assert "other code than was deployed" in said


@pytest.mark.slow
def test_unfit_tokenisers(
    configured: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = tmp_path / "draft"
    shutil.copytree(catalog.resolve("tiny-draft").path, draft)
    tokenizer = json.loads((draft / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    one, two = list(vocabulary)[300:302]
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    (draft / "tokenizer.json").write_text(json.dumps(tokenizer))
    path = configured(model={"draft": str(draft)})
    text = "draft and target tokenizers do not fit: id 300"
    assert text in refused(path, capsys)
    found, _ = advice(path, "models", capsys)
    assert text in found


@pytest.mark.slow
def test_a_model_that_is_not_there(
    configured: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(configured(model={"draft": "no-such-model"}), capsys)
    assert "no-such-model" in said


@pytest.mark.slow
def test_a_port_that_is_taken_and_a_folder_in_use(
    configured: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import socket

    from node.daemon import exclusive

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        path = configured(network={"listen": (f"/ip4/127.0.0.1/tcp/{port}",)})
        assert "is another daemon running there?" in refused(path, capsys)
    with exclusive(tmp_path / "data"):
        assert "is in use by process" in refused(configured(), capsys)


@pytest.mark.slow
def test_a_key_that_cannot_put_down_a_bond(
    configured: Callable[..., Path],
    world: World,
    operator: Operator,
    capsys: pytest.CaptureFixture[str],
) -> None:
    token, anvil = world.contracts.token, world.anvil
    with anvil.rolled_back():
        spent = token.transfer(b"\x0d" * 20, token.balance_of(operator.address))
        world.sender(operator).send("spent", spent)
        found, said = advice(configured(), "bonds", capsys)
    assert found.startswith("0 tokens at the key; a proof takes 100")
    assert f"send stake tokens to 0x{operator.address.hex()}" in said
