"""One node as one process: one `trio.run`, one journal, one transport, one role.

Everything that can be wrong is checked before the first port opens (`node check` runs the same
checks and explains them). The daemon ends in order on SIGINT and SIGTERM: it says goodbye to
discovery, closes lines, and leaves nothing that the journal does not know.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import trio

from node import api, logs
from node.acquaintances import Acquaintances
from node.chainwatch import ChainWatch
from node.config import ConfigError, NodeConfig
from node.defence import DefendingDesk
from node.generation import Generator
from node.heap import keep_what_is_loaded
from node.journal import Journal
from node.keys import OperatorKey, password_from_file, password_from_prompt, read_keystore
from node.network import identity
from node.network.gossip import Discovery
from node.network.libp2p_transport import open_libp2p_transport
from node.network.messages import BOUNDS, Offer, Role
from node.network.transport import Limits
from node.reach import serve_reach
from node.receiptkeeper import ReceiptKeeper
from node.retention import keep_short
from node.roles.auditing import DrawBoard
from node.roles.auditor import AuditorRole
from node.roles.client import ClientRole
from node.roles.juror import JurorRole, JuryBoard
from node.roles.plan import Party
from node.roles.ports import Node
from node.roles.records import RecordsService
from node.roles.tickets import TicketRole
from node.serving import Served, cores_of, serve_auditor, serve_drafter, serve_verifier
from node.settling import SettlingDesk, VoucherShelf
from node.watching import WatchDesk
from settlement.chain.contracts import Contracts
from settlement.chain.deploy import connect
from settlement.chain.fees import FeePolicy
from settlement.chain.send_journal import SqliteSendJournal, send_journal_path
from settlement.chain.sender import Sender

ROLE_OF: Final = {
    "bootstrap": Role.BOOTSTRAP,
    "client": Role.CLIENT,
    "drafter": Role.DRAFTER,
    "verifier": Role.VERIFIER,
    "auditor": Role.AUDITOR,
}


class AlreadyRunning(ConfigError):
    """Another daemon uses this data folder: two would sign from one journal."""


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Holds the data folder's lock file; a second daemon on it is refused, whatever its ports.
    AlreadyRunning, or ConfigError where the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        opened = (folder / "lock").open("a+")
    except OSError as error:
        raise ConfigError(f"data_dir {folder} cannot be written: {error.strerror}") from error
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise AlreadyRunning(
                f"{folder} is in use by process {holder}; stop it, or give this node another "
                "data_dir"
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def load_key(config: NodeConfig) -> OperatorKey:
    """The operator key, unlocked. Raises KeyFault with the way out."""
    identity_ = config.identity
    if identity_.password_file is not None:
        password = password_from_file(identity_.password_file)
    else:
        password = password_from_prompt()
    return read_keystore(identity_.keystore, password)


@dataclass
class Parts:
    """What a running daemon consists of, for its HTTP views."""

    config: NodeConfig
    node: Node
    discovery: Discovery
    chain: ChainWatch
    started: float
    served: Served | None = None
    generator: Generator | None = None
    auditor: AuditorRole | None = None
    watch: WatchDesk | None = None
    desk: SettlingDesk | None = None
    ready: bool = False


def main(config: NodeConfig, *, on_ready: Callable[[dict[str, Any]], None]) -> None:
    """Runs the node until a signal ends it. `on_ready` gets its address, endpoints and API url."""
    key = load_key(config)
    with exclusive(config.data_dir):
        logs.configure(config.log, role=config.role, address=key.address)
        contracts, book = connect(config.chain.rpc_url, config.chain.address_book)
        trio.run(_run, config, key, contracts, book.first_block, on_ready)


def bootstrap_of(config: NodeConfig) -> list[tuple[bytes, tuple[str]]]:
    """The operators to ask first, with their endpoints. ConfigError for what is no endpoint."""
    found = []
    for text in config.network.bootstrap:
        try:
            found.append((identity.address_of_endpoint(text), (text,)))
        except ValueError as error:
            raise ConfigError(
                f"network.bootstrap names {text!r}: {error}; write /ip4/ADDRESS/tcp/PORT/p2p/PEERID"
            ) from error
    return found


def listen_privately(config: NodeConfig) -> socket.socket:
    """The private port's socket. ConfigError where it cannot be had."""
    try:
        return api.listen(config.api.host, config.api.port)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on api.host = {config.api.host!r}, api.port = {config.api.port}: "
            f"{error.strerror or error}; free the port, or let 0 take any"
        ) from error


async def _run(
    config: NodeConfig,
    key: OperatorKey,
    contracts: Contracts,
    first_block: int,
    on_ready: Callable[[dict[str, Any]], None],
) -> None:
    log = logs.get("daemon")
    cores = cores_of(config)
    bootstrap = bootstrap_of(config)
    private = listen_privately(config)
    journal = Journal(config.data_dir / "journal.sqlite", durability=config.journal.durability)
    domain = contracts.domain
    try:
        async with open_libp2p_transport(
            key.secret,
            config.network.listen,
            BOUNDS,
            announce=config.network.announce,
            deployment=domain.separator,
            limits=Limits(
                max_links=config.network.max_links, links_per_host=config.network.links_per_host
            ),
            delay=config.network.added_latency_ms / 1e3,
        ) as transport:
            serve_reach(transport)
            chain = ChainWatch(contracts, config.chain, config.data_dir, first_block, log)
            await chain.catch_up()
            node = Node(
                address=key.address,
                key=key.secret,
                domain=domain,
                journal=journal,
                transport=transport,
                chain=chain,
                limits=config.limit,
                prices=config.price,
                clock=time.time,
                entropy=os.urandom,
                log=log,
                token=contracts.token.address,
            )
            known = Acquaintances(
                key.address,
                lambda: chain.events,
                lambda: parts.served.role.partners() if parts.served else (),
            )
            discovery = Discovery(
                transport,
                key.secret,
                bootstrap=bootstrap,
                deployment=domain.separator,
                now_ms=lambda: int(time.time() * 1000),
                rng=random.SystemRandom(),
                vouched=known.staked,
            )
            transport.standing = known.standing
            parts = Parts(config, node, discovery, chain, time.time())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_signal, nursery.cancel_scope, log)
                nursery.start_soon(chain.run)
                hours = config.journal.retention_hours
                nursery.start_soon(keep_short, journal, 3600 * hours, time.time)
                nursery.start_soon(discovery.run)
                offers = await _start_role(parts, contracts, nursery)
                keep_what_is_loaded()
                discovery.announce(offers)
                nursery.start_soon(api.run, private, views(parts))
                if cores is not None:
                    cores.leave()
                elif config.model.own_core:
                    log.warning(
                        "model.own_core changes nothing here: it needs Linux, two cores that this "
                        "process may use, and model.threads = 1"
                    )
                parts.ready = True
                host, port = private.getsockname()[:2]
                on_ready(
                    {
                        "role": config.role,
                        "operator": "0x" + key.address.hex(),
                        "endpoints": list(transport.endpoints()),
                        "api": f"http://{host}:{port}",
                    }
                )
                if not transport.endpoints():
                    log.warning(
                        "nobody can find this node: it listens on wildcard addresses only; "
                        "name one in network.announce"
                    )
                log.info("ready", endpoints=transport.endpoints(), api=f"{host}:{port}")
                try:
                    await trio.sleep_forever()
                finally:
                    parts.ready = False
                    with trio.move_on_after(2.0, shield=True):
                        await discovery.leave()
    finally:
        private.close()
        journal.close()
        log.info("stopped")


async def _start_role(
    parts: Parts, contracts: Contracts, nursery: trio.Nursery
) -> tuple[Offer, ...]:
    """Starts what this node serves; returns what it offers."""
    config, node = parts.config, parts.node
    token = contracts.token.address
    if config.role == "verifier":
        parts.served = await serve_verifier(node, config, contracts, nursery)
    elif config.role == "drafter":
        parts.served = await serve_drafter(node, config, contracts, nursery)
    elif config.role == "client":
        from node.serving import target_of

        tokenizer, manifest = await trio.to_thread.run_sync(target_of, config)
        # Every token's text, once: else the first answer would wait half a second for it.
        await trio.to_thread.run_sync(tokenizer.token_bytes, 0)
        client = ClientRole(node, Listing(parts.discovery), tokenizer.token_bytes)
        receipts = config.data_dir / "receipts"
        keeper = ReceiptKeeper(receipts, node.log)
        for event in parts.chain.events:
            keeper.on_event(event)
        parts.chain.listen(keeper.on_event)
        parts.generator = Generator(
            client, tokenizer, manifest, token, config, receipts, keeper.watch
        )
        nursery.start_soon(_recover, client)
    draws = DrawBoard(lambda: parts.chain.events)
    board = JuryBoard(lambda: parts.chain.events)
    if config.role in ("client", "drafter", "verifier"):
        service = RecordsService(node, draws, judges=board)
        service.serve(salts=config.role == "verifier")
    elif config.role == "auditor":
        roles = await serve_auditor(node, config, draws, board, contracts, nursery)
        parts.auditor = roles[0]
        nursery.start_soon(_audit_draws, roles, parts.chain)
    if config.role != "bootstrap":
        nursery.start_soon(_work_on_chain, parts, contracts)
    if parts.served is None:
        return (Offer(int(ROLE_OF[config.role]), bytes(32), 0, token, bytes(32)),)
    return parts.served.offers


async def _audit_draws(roles: tuple[AuditorRole, JurorRole, TicketRole], chain: ChainWatch) -> None:
    """Shows them every move of the confirmed chain."""
    while True:
        changed = chain.changed
        for role in roles:
            role.look()
        await changed.wait()


async def _work_on_chain(parts: Parts, contracts: Contracts) -> None:
    """Settles, captures, draws, opens, answers and proves, through the key's one sender."""
    config, node = parts.config, parts.node
    sender = await trio.to_thread.run_sync(sender_of, config, node, contracts)
    # On the same journal, which keeps them apart: its bids may go higher.
    defender = await trio.to_thread.run_sync(sender_of, config, node, contracts)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_close_at_end, sender)
        nursery.start_soon(_close_at_end, defender)
        draws = config.role != "verifier"
        # Only an auditor has the juror that answers for a seat.
        panel = replace(config.panel, seat=config.panel.seat and config.role == "auditor")
        parts.watch = DefendingDesk(
            contracts, defender, parts.chain, node, config.chain, draws=draws, panel=panel
        )
        nursery.start_soon(parts.watch.run)
        if config.role in ("verifier", "drafter"):
            desk = parts.desk = SettlingDesk(
                contracts,
                sender,
                parts.chain.lanes,
                VoucherShelf(node.journal, node.domain),
                node.journal,
                config.chain,
                config.role,
                node.clock,
                node.log,
            )
            nursery.start_soon(desk.run)


async def _close_at_end(sender: Sender) -> None:
    """Lets nobody wait for a block when the node stops: what was sent is journalled."""
    try:
        await trio.sleep_forever()
    finally:
        sender.close()


def sender_of(config: NodeConfig, node: Node, contracts: Contracts) -> Sender:
    """The key's sender; its journal lies beside the keystore, where commands find it too."""
    path = send_journal_path(config.identity.keystore, node.address, contracts.chain_id)
    return Sender(
        contracts.rpc,
        node.key,
        SqliteSendJournal(path),
        errors=contracts.errors,
        fees=FeePolicy(cap=round(config.chain.max_fee_gwei * 10**9)),
    )


async def _recover(client: ClientRole) -> None:
    """Pays for what an earlier run left unsigned, and keeps asking for missing signatures."""
    await client.recover(patience=5.0)
    while True:
        await trio.sleep(5.0)
        await client.purse.chase(patience=5.0)


class Listing:
    """The client's directory over discovery."""

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery

    def _parties(self, role: Role, target_model: bytes) -> list[Party]:
        return [
            Party(entry.operator, offer)
            for entry in self._discovery.peers(role, target_model)
            for offer in entry.offers(role, target_model)
        ]

    def drafters(self, target_model: bytes) -> list[Party]:
        return self._parties(Role.DRAFTER, target_model)

    def verifiers(self, target_model: bytes) -> list[Party]:
        return self._parties(Role.VERIFIER, target_model)


async def _until_signal(scope: trio.CancelScope, log: Any) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            log.info("stopping", signal=signal.Signals(number).name)
            scope.cancel()
            return


# ---------------------------------------------------------------- views


def views(parts: Parts) -> api.Views:
    """What the private port shows of this daemon."""

    def health() -> tuple[bool, dict[str, Any]]:
        chain = parts.chain.health()
        peers = len(parts.discovery.peers())
        ready = parts.ready and chain["ok"]
        return ready, {
            "role": parts.config.role,
            "operator": "0x" + parts.node.address.hex(),
            "peers": peers,
            "chain": chain,
            "uptime": round(time.time() - parts.started, 1),
            "journal": {"durability": parts.node.journal.durability},
        }

    def metrics() -> str:
        lines = parts.node.metrics.prometheus()
        network = parts.node.transport.counters()
        for name, value in sorted(network.items()):
            lines += f"verdraft_network_{name}_total {value}\n"
        return lines + f"verdraft_peers {len(parts.discovery.peers())}\n"

    def peers() -> list[dict[str, Any]]:
        return [_peer(parts.discovery, entry) for entry in parts.discovery.peers()]

    def timings() -> dict[str, Any]:
        return {
            stage: {
                "count": timing.count,
                "total": timing.total,
                "p50": timing.quantile(0.5),
                "p90": timing.quantile(0.9),
            }
            for stage, timing in parts.node.metrics.timings.items()
        }

    def settle() -> None:
        if parts.desk is not None:  # else its sender is still being opened: nothing is signed yet
            parts.desk.ask()

    return api.Views(
        health,
        metrics,
        peers,
        parts.generator,
        {
            "/v1/timings": timings,
            "/v1/chain": parts.chain.summary,
            "/v1/audits": parts.auditor.view if parts.auditor else list,
            **(parts.served.views if parts.served else {}),
            "/v1/disputes": lambda: parts.watch.view() if parts.watch else {},
        },
        settle if parts.config.role in ("verifier", "drafter") else None,
    )


def _peer(discovery: Discovery, entry: Any) -> dict[str, Any]:
    announcement = entry.announcement
    round_trip = discovery.round_trip(entry.operator)
    return {
        "operator": "0x" + entry.operator.hex(),
        "endpoints": list(announcement.endpoints),
        "expires": announcement.expires_ms / 1000,
        "round_trip_ms": None if round_trip is None else round(round_trip * 1e3, 2),
        "offers": [
            {
                "role": Role(offer.role).name.lower(),
                "target_model": "0x" + offer.model_id.hex(),
                "draft_model": "0x" + offer.draft_model_id.hex(),
                "price": str(offer.price),
                "claim": "0x" + offer.claim_id.hex(),
                "tokens_per_second": None if offer.speed is None else offer.speed / 1000,
            }
            for offer in announcement.offers
        ],
    }
