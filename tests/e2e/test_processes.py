"""Real processes on real ports: killed, starved, flooded and lied to, in mid-session.

One devnet is kept up for the whole file; each test leaves everybody running again. Every wait has
a bound that only keeps a broken build from hanging: nothing here measures time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from live import PROMPT, Live, eventually, live, resident

from node.devnet.sessions import GenerationFailed
from node.keys import OperatorKey
from node.network.errors import NetworkError, PeerClosed
from node.network.framing import MAX_PAYLOAD
from node.network.libp2p_transport import Libp2pTransport, open_libp2p_transport
from node.network.messages import BOUNDS, Kind
from node.network.transport import SizeBounds
from settlement.chain.anvil import Anvil

pytestmark = pytest.mark.slow
TOKENS = 48
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("live")) as found:
        yield found


@pytest.fixture
def net(running: Live) -> Iterator[Live]:
    yield running
    running.revive()


class At:
    """Does something once, when a round of that number has been committed."""

    def __init__(self, number: int, act: Any) -> None:
        self.number, self.act, self.done = number, act, False

    def __call__(self, event: dict[str, Any]) -> None:
        if event["type"] == "round" and event["round"] >= self.number and not self.done:
            self.done = True
            self.act()


# ---------------------------------------------------------------- every mode


@pytest.mark.parametrize("mode", ["greedy", "coupled", "rejection"])
def test_a_request_is_served_in_every_mode(net: Live, mode: str) -> None:
    done = net.ask(mode=mode, top_k=0 if mode == "greedy" else 50)
    checked = net.checked(done)
    assert done["output_tokens"] == len(done["token_ids"]) > 0
    assert done["proposed"] >= done["accepted"]
    assert done["signed_by_all"]
    assert checked.paid
    assert checked.lossless
    if mode != "rejection":
        assert done["token_ids"] == net.plain(checked)
    net.await_paid()


def test_the_command_line_asks_lists_and_verifies(net: Live, tmp_path: Path) -> None:
    api = net.fleet.client().api

    def command(*words: str, status: int = 0) -> Any:
        ran = subprocess.run(
            [sys.executable, "-m", "node", *words, "--json"],
            capture_output=True,
            env={**os.environ, "VERDRAFT_API": api},
            check=False,
        )
        assert ran.returncode == status, ran.stderr.decode()
        return json.loads(ran.stdout)

    done = command("ask", PROMPT, "--max-tokens", "12", "--seed", "5")
    assert len(done["token_ids"]) == 12
    peers = command("peers")["peers"]
    assert len(peers) == len(net.world.operators) - 1
    found = command("receipt", "verify", done["receipt_path"], "--rerun")
    assert found["ok"]
    assert found["paid"]
    # What people read is the tokens' text, or it does not hold.
    whole = json.loads(Path(done["receipt_path"]).read_text())
    other = tmp_path / "other.json"
    other.write_text(json.dumps(whole | {"text": "Lies" + whole["text"]}))
    found = command("receipt", "verify", str(other), "--rerun", status=1)
    assert (found["ok"], found["rerun"]["lossless"], found["rerun"]["text"]) == (False, True, False)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"prompt": ""}, "prompt: empty"),
        ({"prompt": "word " * 3000}, "at most 1024"),
        ({"max_tokens": 10**6}, "max_tokens"),
        ({"verifier": "0x" + "12" * 20}, "no offer for this target of verifier 0x1212"),
    ],
)
def test_a_bad_request_is_told_and_changes_nothing(net: Live, wanted: dict, text: str) -> None:
    before = net.vouchers()
    with pytest.raises(GenerationFailed, match=text):
        net.ask(**wanted)
    assert net.vouchers() == before


# ---------------------------------------------------------------- kill -9


def test_the_drafter_is_killed_and_the_text_is_the_same(net: Live) -> None:
    first = net.ask(seed=7, max_tokens=TOKENS)
    assert net.ask(seed=7, max_tokens=TOKENS)["token_ids"] == first["token_ids"]
    assert net.ask(seed=8, max_tokens=TOKENS)["token_ids"] != first["token_ids"]
    killed = []

    def kill() -> None:
        name = net.name_of(net.current_order().drafter)
        killed.append(name)
        net.running(name).kill()

    done = net.ask(At(3, kill), seed=7, max_tokens=TOKENS)
    assert len(killed) == 1
    assert done["token_ids"] == first["token_ids"]
    assert len(done["sessions"]) >= 2
    assert net.name_of(done["drafter"]) != killed[0]
    checked = net.checked(done)
    assert len(set(checked.seeds)) == 1
    assert done["token_ids"] == net.plain(checked)
    net.revive()
    # What the killed one had drafted is signed for after its return, and settles.
    net.await_paid()


@pytest.mark.parametrize("mode", ["coupled", "rejection"])
def test_the_verifier_is_killed_and_restarted(net: Live, mode: str) -> None:
    killed = []

    def kill() -> None:
        name = net.name_of(net.current_order().verifier)
        killed.append(name)
        net.running(name).kill()
        net.fleet.launch(net.operator(name))

    while not killed:  # a sampled text may end before its fourth round
        done = net.ask(At(3, kill), mode=mode, max_tokens=TOKENS)
    net.fleet.await_ready(net.operator(killed[0]))
    checked = net.checked(done)
    assert done["output_tokens"] == len(done["token_ids"])
    if mode == "coupled":
        assert done["token_ids"] == net.plain(checked)
    net.revive()
    net.await_paid()
    # What the client paid is what the verifier's own journal says, voucher by voucher.
    lanes = {
        lane.id for lane in net.world.lanes if lane.verifier == net.operator(killed[0]).address
    }
    mine = {v.root: v for v, _ in net.vouchers(killed[0])}
    theirs = {v.root: v for v, full in net.vouchers() if full and v.lane in lanes}
    assert theirs
    assert all(mine[root] == voucher for root, voucher in theirs.items())


def test_the_client_is_killed_and_pays_what_it_received(net: Live) -> None:
    before = len(net.vouchers())
    with pytest.raises(GenerationFailed):
        net.ask(At(4, net.fleet.client().kill), seed=7, max_tokens=TOKENS)
    net.revive()
    eventually("the client has signed for it", lambda: len(net.vouchers()) > before)
    net.await_paid()
    assert net.ask()["output_tokens"] > 0


def test_the_bootstrap_is_killed(net: Live) -> None:
    net.running("bootstrap").kill()
    assert net.ask()["output_tokens"] > 0
    # Nobody needs it to hear of a node's return, even with nobody else named in its configuration.
    net.running("drafter-1").kill()
    done = net.ask(max_tokens=TOKENS)
    assert net.name_of(done["drafter"]) == "drafter-2"
    net.fleet.restart(net.operator("bootstrap"))
    net.revive()
    everybody = {"0x" + o.address.hex() for o in net.world.operators}
    me = "0x" + net.operator("bootstrap").address.hex()
    eventually("it knows everybody again", lambda: net.peers("bootstrap") == everybody - {me})


def test_five_restarts_leave_one_entry(net: Live) -> None:
    operator = net.operator("drafter-2")
    me = "0x" + operator.address.hex()
    for _ in range(5):
        net.running("drafter-2").kill()
        net.fleet.restart(operator)
        seen = [p["operator"] for p in net.fleet.client().get("/v1/peers")]
        assert seen.count(me) <= 1
    eventually("it is known again", lambda: me in net.peers("client-1"))
    for name in ("client-1", "verifier-1", "bootstrap"):
        seen = [p["operator"] for p in net.running(name).get("/v1/peers")]
        assert len(seen) == len(set(seen))
    done = net.ask(drafter=me, max_tokens=12)
    assert done["drafter"] == me


# ---------------------------------------------------------------- the chain goes away


def test_the_chain_stops_answering_for_a_while(net: Live) -> None:
    anvil = net.world.anvil.pid

    def freeze() -> None:
        os.kill(anvil, signal.SIGSTOP)

    try:
        # More tokens than may go unsigned: the session waits for the chain and then goes on.
        done = None
        with suppress(GenerationFailed):  # refused for want of the chain: it must lose nothing
            done = net.ask(At(2, freeze), max_tokens=TOKENS)
        for running in net.fleet.running.values():
            assert running.process.poll() is None
    finally:
        os.kill(anvil, signal.SIGCONT)
    if done is not None:
        assert done["token_ids"] == net.plain(net.checked(done))
    for running in net.fleet.running.values():
        eventually(
            "the node is ready again",
            lambda running=running: httpx.get(running.api + "/healthz").status_code == 200,
        )
    assert net.ask()["output_tokens"] > 0
    net.await_paid()


def test_the_chain_is_killed_and_started_from_its_state(net: Live, tmp_path: Path) -> None:
    world = net.world
    done = net.ask(max_tokens=TOKENS)
    eventually("it is settled", lambda: net.paid() == net.owed())
    state, port = world.anvil.save_state(tmp_path), int(world.anvil.url.rsplit(":", 1)[1])
    os.kill(world.anvil.pid, signal.SIGKILL)
    world.anvil.stop()
    # Signed while nobody can settle it, if the payees let it come to that.
    with suppress(GenerationFailed):
        net.ask(max_tokens=12)
    world.anvil = Anvil(overrides={"port": port, "load-state": str(state)}).start()
    for running in net.fleet.running.values():
        assert running.process.poll() is None
        eventually(
            "the node is ready again",
            lambda running=running: httpx.get(running.api + "/healthz").status_code == 200,
        )
    assert net.ask()["output_tokens"] > 0
    net.await_paid()
    assert net.checked(done).paid


# ---------------------------------------------------------------- hostile strangers


def ports(net: Live) -> list[tuple[str, int]]:
    """Every port anybody listens on."""
    found = []
    for name, running in net.fleet.running.items():
        found.append((f"{name} p2p", int(running.facts["endpoints"][0].split("/")[4])))
        found.append((f"{name} api", int(running.api.rsplit(":", 1)[1])))
    return found


GREETINGS = (
    b"",
    b"\x13/multistream/1.0.0\n",
    b"\x13/multistream/1.0.0\n" + b"\xff" * 8 + b"\x7f",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
    b"POST /v1/generate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 100_000,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00",
)


def flood(port: int, greeting: bytes, rng: random.Random, megabytes: int = 4) -> int:
    """Sends a greeting and then noise until the other side has had enough; returns the bytes it
    took."""
    taken = 0
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.settimeout(1.0)
        try:
            line.sendall(greeting)
            for _ in range(megabytes * 16):
                taken += line.send(rng.randbytes(MEGABYTE // 16))
        except OSError:
            pass
    return taken


def test_garbage_on_every_port_costs_nothing(net: Live) -> None:
    rng = random.Random(11)
    running = net.fleet.running
    before = {name: resident(node) for name, node in running.items()}
    for _, port in ports(net):
        for greeting in GREETINGS:
            flood(port, greeting, rng)
    for name, node in running.items():
        assert node.process.poll() is None, name
        grown = resident(node) - before[name]
        assert grown < 48 * MEGABYTE, f"{name} grew by {grown >> 20} MiB"
        assert httpx.get(node.api + "/healthz", timeout=30).status_code == 200
        assert "Traceback" not in node.operator.log_file.read_text(), name
    assert net.ask()["output_tokens"] > 0


def test_silent_connections_to_every_port_keep_nobody_out(net: Live) -> None:
    with ExitStack() as held:
        for name, port in ports(net):
            for _ in range(40):
                line = socket.socket()
                held.callback(line.close)
                line.settimeout(10)
                line.connect(("127.0.0.1", port))
            assert name
        assert net.ask()["output_tokens"] > 0
        # A node that was away gets in between them.
        net.running("verifier-1").kill()
        net.revive()
        me = "0x" + net.operator("verifier-1").address.hex()
        assert net.ask(verifier=me, max_tokens=12)["verifier"] == me


async def open_many(me: Libp2pTransport, address: bytes, count: int) -> None:
    """Opens that many channels and says nothing on any of them."""
    for _ in range(count):
        await me.open(address, Kind.SESSION, deadline=10)


def test_an_authenticated_peer_that_breaks_the_bounds(net: Live) -> None:
    """It has a key of its own and speaks the protocol: too large a frame, then noise, then
    silence on as many channels as it gets."""
    domain = net.world.contracts.domain
    victim = net.running("verifier-1")
    address = net.operator("verifier-1").address
    loose = {kind: SizeBounds(MAX_PAYLOAD, MAX_PAYLOAD) for kind in BOUNDS}

    def counter(name: str) -> int:
        text = httpx.get(victim.api + "/metrics", timeout=30).text
        for line in text.splitlines():
            if line.startswith(f"verdraft_network_{name}_total "):
                return int(line.split()[1])
        return 0

    async def attack() -> None:
        key = OperatorKey.generate().secret
        async with open_libp2p_transport(key, [], loose, deployment=domain.separator) as me:
            me.learn(address, victim.facts["endpoints"])
            for kind in (Kind.PING, Kind.QUOTE):
                with pytest.raises(PeerClosed, match="exceeds its bound"):
                    await me.request(address, kind, bytes(MAX_PAYLOAD), deadline=30)
            with pytest.raises(PeerClosed, match="expected OrderOffer"):
                await me.request(address, Kind.ORDER, random.Random(3).randbytes(500), deadline=30)
            with pytest.raises(NetworkError):
                await open_many(me, address, 2000)

    before = resident(victim)
    trio.run(attack)
    assert counter("oversize") >= 2
    assert counter("malformed") >= 1
    assert victim.process.poll() is None
    assert resident(victim) - before < 48 * MEGABYTE
    me = "0x" + address.hex()
    assert net.ask(verifier=me, max_tokens=12)["verifier"] == me


def test_a_large_body_is_refused(net: Live) -> None:
    api = net.fleet.client().api
    body = b'{"prompt": "' + b"a" * (2 * MEGABYTE) + b'"}'
    assert httpx.post(f"{api}/v1/generate", content=body, timeout=30).status_code == 413
    assert httpx.post(f"{api}/v1/generate", content=b"{", timeout=30).status_code == 400
    assert httpx.post(f"{api}/v1/generate", content=b"[]", timeout=30).status_code == 400
    verifier = net.running("verifier-1").api
    assert httpx.post(f"{verifier}/v1/generate", content=b"{}", timeout=30).status_code == 404


def test_a_second_daemon_on_the_same_folder_is_refused(net: Live, tmp_path: Path) -> None:
    config = net.operator("verifier-1").config_file
    ran = subprocess.run(
        [sys.executable, "-m", "node", "node", "run", "--config", str(config)],
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 1
    assert b"is in use by process" in ran.stderr
    assert b"Traceback" not in ran.stderr
