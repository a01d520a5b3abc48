"""One party of a session as a process of its own, told what to do in lines of JSON.

    python -m scripts.bench.party '{"role": "verifier", "folder": "…", …}'

It is what a node runs (`node.serving`, `node.generation`) over libp2p, without a chain: lanes have
a reserve from a table. `scripts/bench_session.py` starts and asks it.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import structlog
import trio

from node import logs
from node.config import (
    ChainConfig,
    IdentityConfig,
    JournalConfig,
    LimitConfig,
    ModelConfig,
    NetworkConfig,
    NodeConfig,
)
from node.generation import Generator
from node.heap import keep_what_is_loaded
from node.journal import Journal
from node.network.codec import decode
from node.network.identity import address_of_endpoint
from node.network.libp2p_transport import Libp2pTransport, open_libp2p_transport
from node.network.messages import BOUNDS, Offer
from node.roles.client import ClientRole
from node.roles.offchain import TableChain
from node.roles.plan import Party
from node.roles.ports import Node
from node.serving import serve_drafter, serve_verifier, target_of
from settlement.records import Domain
from settlement.signing import address_of_key

DOMAIN: Final = Domain(31337, b"\x0e" * 20)
TOKEN: Final = b"\x70" * 20
Wish = Mapping[str, Any]


class Pair:
    """The one drafter and the one verifier that there are."""

    def __init__(self, drafter: Party, verifier: Party) -> None:
        self._drafter, self._verifier = drafter, verifier

    def drafters(self, target_model: bytes) -> list[Party]:
        return [self._drafter]

    def verifiers(self, target_model: bytes) -> list[Party]:
        return [self._verifier]


def config_of(wish: Wish) -> NodeConfig:
    """What `verdraft node run` would be given."""
    folder, nowhere = Path(wish["folder"]), Path("none")
    limits = LimitConfig(round_seconds=20.0, **wish["limits"].get(wish["role"], {}))
    return NodeConfig(
        role=wish["role"],
        data_dir=folder,
        identity=IdentityConfig(nowhere),
        chain=ChainConfig("http://none", nowhere),
        network=NetworkConfig(listen=("/ip4/127.0.0.1/tcp/0",)),
        model=ModelConfig(
            target=wish["target"],
            draft=wish["draft"],
            dtype=wish["dtype"],
            draft_dtype=wish["draft_dtype"],
            draft_ahead=wish["draft_ahead"],
        ),
        limit=limits,
        journal=JournalConfig(wish["durability"]),
        log="warning",
    )


async def run(wish: Wish) -> None:
    """Serves until standard input ends."""
    config = config_of(wish)
    key = random.Random(f"bench/{config.role}").randbytes(32)
    logs.configure(config.log, role=config.role, address=address_of_key(key))
    journal = Journal(config.data_dir / "journal.sqlite", durability=config.journal.durability)
    async with open_libp2p_transport(
        key, config.network.listen, BOUNDS, deployment=DOMAIN.separator
    ) as transport:
        node = Node(
            address=address_of_key(key),
            key=key,
            domain=DOMAIN,
            journal=journal,
            transport=transport,
            chain=TableChain(),
            limits=config.limit,
            prices=config.price,
            clock=time.time,
            entropy=os.urandom,
            log=structlog.get_logger(),
            token=TOKEN,
        )
        async with trio.open_nursery() as nursery:
            await _serve(node, transport, config, wish, nursery)
            nursery.cancel_scope.cancel()
    journal.close()


async def _serve(
    node: Node,
    transport: Libp2pTransport,
    config: NodeConfig,
    wish: Wish,
    nursery: trio.Nursery,
) -> None:
    contracts: Any = SimpleNamespace(token=SimpleNamespace(address=TOKEN))
    offer, windows, generator = b"", list, None
    if config.role == "client":
        generator = await _generator(node, transport, config, wish)
    else:
        serve = serve_verifier if config.role == "verifier" else serve_drafter
        served = await serve(node, config, contracts, nursery)
        offer = served.offers[0].encode()
        windows = served.views.get("/v1/windows", list)
    keep_what_is_loaded()
    say({"endpoints": list(transport.endpoints()), "offer": offer.hex()})
    while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        asked = json.loads(line)
        if asked["do"] == "stats":
            timings = node.metrics.timings.items()
            say(
                {
                    "cpu": time.process_time(),
                    "stages": {name: [found.total, found.count] for name, found in timings},
                    "counters": dict(node.metrics.counters),
                    "windows": windows(),
                }
            )
        elif asked["do"] == "learn":
            transport.learn(address_of_endpoint(asked["endpoints"][0]), asked["endpoints"])
            say(None)
        else:
            assert generator is not None
            say(await _generate(generator, asked["request"]))


async def _generator(
    node: Node, transport: Libp2pTransport, config: NodeConfig, wish: Wish
) -> Generator:
    found = []
    for party in (wish["drafter"], wish["verifier"]):
        peer = address_of_endpoint(party["endpoints"][0])
        transport.learn(peer, party["endpoints"])
        found.append(Party(peer, decode(bytes.fromhex(party["offer"]), Offer)))
    tokenizer, manifest = target_of(config)
    tokenizer.token_bytes(0)  # as the daemon does
    role = ClientRole(node, Pair(*found), tokenizer.token_bytes)
    receipts = config.data_dir / "receipts"
    return Generator(role, tokenizer, manifest, TOKEN, config, receipts)


async def _generate(generator: Generator, request: dict[str, Any]) -> dict[str, Any]:
    """The `done` event, or the error's, with when each round came (seconds)."""
    came: list[float] = []
    began, last = time.perf_counter(), {}

    async def emit(event: Mapping[str, Any]) -> None:
        nonlocal last
        last = dict(event)
        if event["type"] == "round":
            came.append(round(time.perf_counter() - began, 6))

    await generator(request, emit)
    return {**last, "came": came}


def say(value: Any) -> None:
    """One line to whoever asked."""
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    trio.run(run, json.loads(sys.argv[1]))
