"""`node check`: everything that would stop a node, found before it starts, each with advice."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from node import logs
from node.config import ConfigError, NodeConfig
from node.daemon import AlreadyRunning, exclusive, listen_privately, load_key
from node.inference.architecture import ModelError
from node.inference.catalog import CatalogError
from node.journal import Journal, JournalError
from node.keys import KeyFault, OperatorKey
from node.network import exchange, identity
from node.network.errors import NetworkError
from node.network.libp2p_transport import ListenError, check_listen, open_libp2p_transport
from node.network.messages import BOUNDS, Kind, Ping, Reached, ReachRequest
from settlement.chain.contracts import Contracts, Role, StakeTimes
from settlement.chain.deploy import connect
from settlement.chain.errors import ChainError

CLOCK_TOLERANCE: Final = 30.0  # seconds between this clock and the chain's
ROLES: Final = {"drafter": Role.DRAFTER, "verifier": Role.VERIFIER, "auditor": Role.AUDITOR}
LOW_BALANCE: Final = 10**16  # wei: some settlements' worth of gas


@dataclass(frozen=True)
class Finding:
    """One thing that was checked. `advice` says what to do when it is not ok."""

    what: str
    ok: bool
    found: str
    advice: str = ""


def examine(config: NodeConfig, *, progress: Callable[[str], None]) -> list[Finding]:
    """Checks a configuration from keys to models. Never raises for what an operator can mend."""
    # What the transport logs meanwhile would stand among the findings.
    logs.configure("error", role=config.role, address=b"")
    findings: list[Finding] = []
    progress("keys")
    key, found = _key(config)
    findings.append(found)
    progress("data folder and journal")
    findings.append(_data(config))
    progress("chain and contracts")
    contracts, found = _chain(config)
    findings.append(found)
    progress("ports")
    findings += _ports(config, key, contracts)
    if contracts is not None:
        progress("clock, stake and money")
        findings += _on_chain(config, contracts, key)
    progress("models")
    findings += _models(config)
    return findings


def _key(config: NodeConfig) -> tuple[OperatorKey | None, Finding]:
    try:
        key = load_key(config)
    except KeyFault as fault:
        return None, Finding(
            "key", False, str(fault), "make one with `verdraft keys new`, or name the right file"
        )
    return key, Finding("key", True, f"operator 0x{key.address.hex()}")


def _data(config: NodeConfig) -> Finding:
    try:
        with exclusive(config.data_dir):
            path = config.data_dir / "journal.sqlite"
            if not path.exists():
                return Finding("journal", True, f"new, at {path}")
            journal = Journal(path, durability=config.journal.durability)
            sessions = len(journal.sessions())
            journal.close()
    except AlreadyRunning as error:
        return Finding("journal", False, str(error), "stop the other daemon first")
    except ConfigError as error:
        return Finding("journal", False, str(error), "give this user the folder, or name another")
    except (JournalError, OSError) as error:
        return Finding("journal", False, str(error), "restore a backup; never start without it")
    return Finding("journal", True, f"{sessions} sessions, durability {config.journal.durability}")


def _ports(
    config: NodeConfig, key: OperatorKey | None, contracts: Contracts | None
) -> list[Finding]:
    findings = []
    listen = ", ".join(config.network.listen)
    try:
        trio.run(check_listen, config.network.listen)
    except ListenError as error:
        return [Finding("ports", False, str(error), "free the port or choose another")]
    findings.append(Finding("ports", True, f"{listen} can be bound"))
    findings.append(_private_port(config))
    findings.append(_announced(config))
    if key is None or contracts is None or not config.network.bootstrap:
        return findings
    reached = trio.run(_reach, config, key, contracts.domain.separator)
    advice = (
        "is that node up, and does a firewall or NAT stand between? A node behind NAT must "
        "forward its port and name the outside address in network.announce"
    )
    findings += [
        Finding("reachable", error == "", f"{address}: {error or 'reached'}", advice)
        for address, error in reached
    ]
    return findings


def _private_port(config: NodeConfig) -> Finding:
    try:
        with listen_privately(config) as private:
            host, port = private.getsockname()[:2]
    except ConfigError as error:
        return Finding("private port", False, str(error), "choose another api.port")
    return Finding("private port", True, f"{host}:{port} can be bound")


def _announced(config: NodeConfig) -> Finding:
    """Whether others will be told an address: a wildcard is none."""
    wildcard = all(("/0.0.0.0/" in text or "/::/" in text) for text in config.network.listen)
    good = bool(config.network.announce) or not wildcard
    named = ", ".join(config.network.announce) or ", ".join(config.network.listen)
    return Finding(
        "announce",
        good,
        named if good else "only wildcard addresses, so nobody learns where this node is",
        "name the address that others dial in network.announce: /ip4/ADDRESS/tcp/PORT/p2p/PEERID "
        "(`verdraft keys show` prints the peer id)",
    )


async def _reach(config: NodeConfig, key: OperatorKey, deployment: bytes) -> list[tuple[str, str]]:
    """Dials every bootstrap address with this node's own key, and lets it dial back."""
    results = []
    async with open_libp2p_transport(
        key.secret,
        config.network.listen,
        BOUNDS,
        announce=config.network.announce,
        deployment=deployment,
    ) as transport:
        for text in config.network.bootstrap:
            try:
                peer = identity.address_of_endpoint(text)
                transport.learn(peer, (text,))
                await exchange.ask(transport, peer, Kind.PING, Ping(1), deadline=10.0)
                results.append((text, ""))
                mine = transport.endpoints()
                answer = await exchange.ask(
                    transport, peer, Kind.REACH, ReachRequest(mine), deadline=20.0
                )
                assert isinstance(answer, Reached)
                results += [
                    (f"{endpoint} from outside", failure)
                    for endpoint, failure in zip(mine, answer.failures, strict=False)
                ]
            except (ValueError, NetworkError) as error:
                results.append((text, str(error)))
    return results


def _chain(config: NodeConfig) -> tuple[Contracts | None, Finding]:
    try:
        contracts, book = connect(config.chain.rpc_url, config.chain.address_book)
    except ChainError as error:
        return None, Finding(
            "chain", False, str(error), "check chain.rpc_url and chain.address_book"
        )
    head = contracts.rpc.head().number
    return contracts, Finding(
        "chain",
        True,
        f"chain {contracts.chain_id} at block {head}, {len(book.contracts)} contracts in place",
    )


def _on_chain(config: NodeConfig, contracts: Contracts, key: OperatorKey | None) -> list[Finding]:
    """What the deployment says of this clock, journal and key."""
    try:
        findings = [_clock(contracts.rpc.head().timestamp, time.time())]
        if config.role != "bootstrap":
            findings.append(_retention(config.journal.retention_hours, contracts.vault.times()))
        if key is not None:
            findings += _money(config, contracts, key)
    except ChainError as error:
        return [Finding("chain", False, str(error), "it answered a moment ago: check again")]
    return findings


def _clock(newest: int, now: float) -> Finding:
    ahead = now - newest
    # A chain that is idle stands still: only a clock behind the chain's is surely wrong.
    good = ahead > -CLOCK_TOLERANCE
    return Finding(
        "clock",
        good,
        f"{ahead:+.0f} s against the newest block",
        "set this machine's clock (NTP): orders and deadlines are in unix seconds",
    )


def _retention(hours: float, times: StakeTimes) -> Finding:
    """Whether the journal keeps rounds as long as anyone may ask for them: the span for which the
    vault locks stake behind a batch (StakeVault.lockWindow)."""
    answerable = times.evidence + times.first_deadline + times.second_deadline
    owed = (answerable + times.panel + times.appeal) / 3600
    return Finding(
        "retention",
        hours >= owed,
        f"closed sessions are kept for {hours:g} h; evidence of them is owed for {owed:g} h",
        "raise journal.retention_hours: who has dropped what is drawn pays as for silence",
    )


def _money(config: NodeConfig, contracts: Contracts, key: OperatorKey) -> list[Finding]:
    findings = []
    wei = contracts.rpc.balance(key.address)
    findings.append(
        Finding(
            "gas money",
            wei >= LOW_BALANCE or config.role in ("bootstrap", "client"),
            f"{wei / 1e18:.4f} of the chain's coin",
            f"send some to 0x{key.address.hex()}: settling and opening samples cost gas",
        )
    )
    unit = 10 ** contracts.token.decimals()
    role = ROLES.get(config.role)
    if role is not None:
        stake = contracts.vault.stake_of(key.address, role)
        findings.append(
            Finding(
                "stake",
                stake.active > 0,
                f"{stake.active / unit:g} tokens serve as {config.role}",
                f"stake with `verdraft stake --role {config.role} --amount …`: payment is limited "
                "to what the stake answers for",
            )
        )
    if config.role == "auditor" and config.panel.seat:
        findings.append(_seat(contracts, key, unit))
    if config.role != "bootstrap":
        findings.append(_bonds(config, contracts, key, unit))
    return findings


def _seat(contracts: Contracts, key: OperatorKey, unit: int) -> Finding:
    """Whether the pool of jurors takes this auditor."""
    held = contracts.vault.stake_of(key.address, Role.AUDITOR).active
    needed = contracts.pool.min_stake()
    return Finding(
        "seat",
        held >= needed,
        f"{held / unit:g} tokens of stake; a seat among jurors takes {needed / unit:g}",
        "stake more with `verdraft stake --role auditor --amount …`, or set panel.seat = false",
    )


def _bonds(config: NodeConfig, contracts: Contracts, key: OperatorKey, unit: int) -> Finding:
    """Whether the key itself holds what its watcher has to put down: stake does not count."""
    held, needed = contracts.token.balance_of(key.address), contracts.court.bond()
    return Finding(
        "bonds",
        held >= needed or config.role == "client",
        f"{held / unit:g} tokens at the key; a proof takes {needed / unit:g} for a while",
        f"send stake tokens to 0x{key.address.hex()}: without a bond this node can neither prove a "
        "fault nor answer a case",
    )


def _models(config: NodeConfig) -> list[Finding]:
    if config.role == "bootstrap":
        return []
    from node.inference.tokens import Tokenizer, require_same_tokens
    from node.serving import NGRAM, folder_of, target_of

    findings = []
    try:
        tokenizer, manifest = target_of(config)
        findings.append(
            Finding("target", True, f"{config.model.target}, id 0x{manifest.model_id.hex()[:16]}…")
        )
        if config.role == "drafter" and config.model.draft != NGRAM:
            folder = folder_of(config, config.model.draft)
            require_same_tokens(Tokenizer.load(folder), tokenizer, manifest.vocab_size)
            findings.append(Finding("draft", True, f"{config.model.draft}, same tokens"))
    except (CatalogError, ModelError) as error:
        findings.append(
            Finding("models", False, str(error), "name another model, or prepare this one")
        )
    return findings
