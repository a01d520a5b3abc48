"""A node's configuration: one TOML file, read once, checked wholly before anything starts.

Unknown keys are errors (a misspelt limit would otherwise be silently the default), and no value
may hold a password or key: those live in keystore and password files.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from settlement.payments import MAX_UNSIGNED_TOKENS, VOUCHER_EVERY_TOKENS

ROLES: Final = ("client", "drafter", "verifier", "auditor", "bootstrap")
T = TypeVar("T")


class ConfigError(ValueError):
    """A configuration file cannot be used: which key, why, and what would do."""


@dataclass(frozen=True)
class IdentityConfig:
    """Where the operator key lives. The password file must have mode 0600."""

    keystore: Path
    password_file: Path | None = None


@dataclass(frozen=True)
class ChainConfig:
    """The chain that settles. `confirmations`: blocks that lie on an event, its own counted, before
    it is acted on."""

    rpc_url: str
    address_book: Path
    confirmations: int = 1
    poll_seconds: float = 1.0
    max_fee_gwei: float = 100.0
    # Calls that defend this node's stake may bid more as their deadline comes near: so much of what
    # missing it costs, at `token_per_wei`, and never above so much per gas.
    defence_share: float = 0.5
    defence_max_fee_gwei: float = 2000.0
    defence_seconds: float = 43_200.0  # before the deadline, from when on
    settle_idle_seconds: float = 3600.0  # a lane that has lain still for so long is settled
    settle_gas_multiple: int = 20  # and one that is owed so many times what settling costs
    draw_patience_seconds: float = 120.0  # those without a stake in a batch spread calls over this
    token_per_wei: float = 1.0  # what a wei of gas is worth in the token's smallest units
    # Bonds of demands for what was settled behind this node's back, in tokens, while their evidence
    # is owed. Who answers keeps them; 0 raises none.
    demand_tokens: float = 20.0


@dataclass(frozen=True)
class NetworkConfig:
    """Where the node listens, and whom it asks first. Addresses are multiaddrs."""

    listen: tuple[str, ...] = ("/ip4/0.0.0.0/tcp/4600",)
    bootstrap: tuple[str, ...] = ()
    announce: tuple[str, ...] = ()
    added_latency_ms: float = 0.0  # devnet only: a slower network, to try windows on
    max_links: int = 256
    links_per_host: int = 32  # of one IPv4 address or IPv6 /64, loopback apart


@dataclass(frozen=True)
class ApiConfig:
    """The private HTTP port: /healthz, /metrics and, on a client, the generate call."""

    host: str = "127.0.0.1"
    port: int = 0


@dataclass(frozen=True)
class ModelConfig:
    """Models by catalogue name, Hugging Face id or folder. `draft = "ngram"` needs no model."""

    target: str = "smollm2-135m-instruct"
    draft: str = "ngram"
    revision: str | None = None
    dtype: str = "float32"
    draft_dtype: str = ""  # of the draft model; empty: as the target's
    draft_ahead: bool = True  # drafter: draft on while the verifier works
    lookup: bool = True  # verifier: guess by lookup in rounds without drafts
    device: str = "auto"
    threads: int = 1
    own_core: bool = False  # leave one core to inference
    cache_dir: Path | None = None
    claim: str = ""  # α claim id that the drafter serves under; empty: none


@dataclass(frozen=True)
class PriceConfig:
    """Token units asked for one accepted token (drafter) or one output token (verifier); of a
    client, the most that it pays."""

    accepted: int = 1_000_000_000_000
    output: int = 4_000_000_000_000


@dataclass(frozen=True)
class LimitConfig:
    """Bounds a node keeps towards others."""

    max_prompt_tokens: int = 1024
    max_new_tokens: int = 1024
    max_sessions: int = 8
    max_sessions_per_client: int = 4
    idle_seconds: float = 10.0  # waited for its parties so long, a session may lose its place
    max_window: int = 16
    min_window: int = 0
    voucher_every: int = VOUCHER_EVERY_TOKENS
    unsigned_tokens: int = MAX_UNSIGNED_TOKENS
    round_seconds: float = 60.0
    resume_seconds: float = 20.0
    order_seconds: int = 3600
    # A client's: how many times what a payee can earn by an order its free stake must cover, at the
    # contracts' lock factor. 0: any free stake will do.
    stake_cover: float = 1.0
    # A verifier's: how many times its own price of a token the drafter's may be. Its stake is
    # locked for the drafter's pay too: one paid by a friend could else have all of it locked.
    accepted_price: float = 8.0


@dataclass(frozen=True)
class PanelConfig:
    """What a node does before the panel beyond what it must. Amounts in stake tokens.

    Attributes:
        seat: an auditor takes a seat among the drawn for every model that it serves on chain. Who
            holds one answers the juries that it is drawn for, or loses stake.
        accuse_tokens: the largest bond that an auditor puts down to accuse; 0: it accuses nobody.
            As deployed, a bond is 100 tokens or a fortieth of the accused's stake if that is more.
        appeal_tokens: the largest that any node puts down to appeal a verdict against it, as the
            accused or as the accuser; the accused: or an eighth of its stake, if that is more. 0:
            it leaves that to its operator.
        tickets: samples of a drawn lane for which an auditor enters tickets (10 tokens each, which
            come back), where it falls to this one; 0: none. At most what the lane's own audit
            fees pay for is entered.
        canaries: share of the sessions that it audits of which it plants a canary (half of those
            10 tokens is its auditors'; a bond as for accusing where somebody passes it).
    """

    seat: bool = True
    accuse_tokens: float = 1_000.0
    appeal_tokens: float = 2_000.0
    tickets: int = 4
    canaries: float = 0.0


@dataclass(frozen=True)
class JournalConfig:
    """Durability of the journal (see `journal`) and how long closed sessions are kept."""

    durability: str = "full"
    retention_hours: float = 24.0 * 30


@dataclass(frozen=True)
class NodeConfig:
    """Everything one node needs."""

    role: str
    data_dir: Path
    identity: IdentityConfig
    chain: ChainConfig
    network: NetworkConfig = field(default_factory=NetworkConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    price: PriceConfig = field(default_factory=PriceConfig)
    limit: LimitConfig = field(default_factory=LimitConfig)
    panel: PanelConfig = field(default_factory=PanelConfig)
    journal: JournalConfig = field(default_factory=JournalConfig)
    log: str = "info"

    def __post_init__(self) -> None:
        def need(good: bool, key: str, value: object, advice: str) -> None:
            if not good:
                raise ConfigError(f"{key} = {value!r}: {advice}")

        need(self.role in ROLES, "role", self.role, f"one of {', '.join(ROLES)}")
        need(
            self.log in ("debug", "info", "warning", "error"),
            "log",
            self.log,
            "debug, info, warning or error",
        )
        need(
            self.chain.rpc_url.startswith(("http://", "https://")),
            "chain.rpc_url",
            self.chain.rpc_url,
            "an http:// or https:// address",
        )
        chain = self.chain
        need(chain.confirmations >= 1, "chain.confirmations", chain.confirmations, "1 or more")
        need(chain.poll_seconds > 0, "chain.poll_seconds", chain.poll_seconds, "above 0")
        need(chain.max_fee_gwei > 0, "chain.max_fee_gwei", chain.max_fee_gwei, "above 0")
        need(0 <= chain.defence_share <= 1, "chain.defence_share", chain.defence_share, "0 to 1")
        need(
            chain.defence_max_fee_gwei >= chain.max_fee_gwei,
            "chain.defence_max_fee_gwei",
            chain.defence_max_fee_gwei,
            f"no less than chain.max_fee_gwei, {chain.max_fee_gwei:g}",
        )
        need(
            chain.defence_seconds >= 0, "chain.defence_seconds", chain.defence_seconds, "0 or more"
        )
        need(chain.token_per_wei >= 0, "chain.token_per_wei", chain.token_per_wei, "0 or more")
        for name in ("settle_idle_seconds", "draw_patience_seconds"):
            seconds = getattr(chain, name)
            need(seconds >= 0, f"chain.{name}", seconds, "0 or more seconds")
        need(
            0 <= chain.demand_tokens < 1e12,
            "chain.demand_tokens",
            chain.demand_tokens,
            "0 or more tokens, below 10**12",
        )
        for name in ("accuse_tokens", "appeal_tokens"):
            tokens = getattr(self.panel, name)
            need(0 <= tokens < 1e12, f"panel.{name}", tokens, "0 or more tokens")
        need(0 <= self.panel.tickets <= 255, "panel.tickets", self.panel.tickets, "0 to 255")
        need(0 <= self.panel.canaries <= 1, "panel.canaries", self.panel.canaries, "0 to 1")
        multiple = chain.settle_gas_multiple
        need(multiple >= 1, "chain.settle_gas_multiple", multiple, "1 or more")
        need(bool(self.network.listen), "network.listen", self.network.listen, "name one address")
        latency = self.network.added_latency_ms
        need(latency >= 0, "network.added_latency_ms", latency, "0 or more")
        for name in ("max_links", "links_per_host"):
            links = getattr(self.network, name)
            need(links >= 1, f"network.{name}", links, "1 or more")
        need(self.model.threads >= 1, "model.threads", self.model.threads, "1 or more")
        need(
            self.model.dtype in ("exact", "float32", "bfloat16"),
            "model.dtype",
            self.model.dtype,
            "exact, float32 or bfloat16 (strict modes hold in exact and float32)",
        )
        need(
            self.model.draft_dtype in ("", "exact", "float32", "bfloat16"),
            "model.draft_dtype",
            self.model.draft_dtype,
            "exact, float32 or bfloat16; empty for the target's",
        )
        need(
            0 <= self.limit.min_window <= self.limit.max_window <= 64,
            "limit.max_window",
            self.limit.max_window,
            "0 ≤ min_window ≤ max_window ≤ 64",
        )
        need(
            self.journal.retention_hours >= 1.0,
            "journal.retention_hours",
            self.journal.retention_hours,
            "at least 1; no less than the chain's evidence lifetime, or drawn rounds are gone",
        )
        need(0 <= self.api.port < 65536, "api.port", self.api.port, "0 (any) to 65535")
        for name in ("accepted", "output"):
            price = getattr(self.price, name)
            need(0 <= price < 2**96, f"price.{name}", price, "0 to 2**96 − 1 token units")
        for item in fields(self.limit):
            value = getattr(self.limit, item.name)
            need(value >= 0, f"limit.{item.name}", value, "not negative")
        need(
            self.journal.durability in ("full", "normal"),
            "journal.durability",
            self.journal.durability,
            "full or normal",
        )


def load(path: Path) -> NodeConfig:
    """Reads a node's TOML file. Relative paths in it are relative to the file.

    Raises ConfigError: unreadable, not TOML, a key missing, unknown, of the wrong type or out of
    range.
    """
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    return _build(NodeConfig, data, "", path.parent.resolve())


def _build(cls: type[T], data: dict[str, Any], where: str, folder: Path) -> T:
    hints = get_type_hints(cls)
    known = {item.name for item in fields(cls)}  # type: ignore[arg-type]
    unknown = sorted(set(data) - known)
    if unknown:
        raise ConfigError(
            f"unknown key {where}{unknown[0]}; known here: {', '.join(sorted(known))}"
        )
    values = {
        name: _convert(hints[name], value, f"{where}{name}", folder) for name, value in data.items()
    }
    try:
        return cls(**values)
    except TypeError as error:
        missing = str(error).split(":")[-1].strip()
        raise ConfigError(f"missing in [{where.rstrip('.') or 'top level'}]: {missing}") from error


def _convert(hint: Any, value: Any, key: str, folder: Path) -> Any:
    if get_origin(hint) in (Union, UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    if is_dataclass(hint):
        if not isinstance(value, dict):
            raise ConfigError(f"{key} is a table: write [{key}]")
        return _build(hint, value, f"{key}.", folder)  # type: ignore[arg-type]
    if hint is Path:
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{key} = {value!r}: a path in quotes")
        return (folder / value).resolve()
    if get_origin(hint) is tuple:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{key} = {value!r}: a list of strings")
        return tuple(value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        # TOML has inf and nan; no comparison below refuses both.
        if not abs(value) < 1e18:
            raise ConfigError(f"{key} = {value!r}: a number within ±10**18")
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{key} = {value!r}: expected {hint.__name__}")
    return value


def dump(config: NodeConfig) -> str:
    """The TOML text of a configuration; `load` gives it back."""

    def text(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int | float):
            return repr(value)
        if isinstance(value, tuple):
            return "[" + ", ".join(text(item) for item in value) + "]"
        escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    lines: list[str] = []
    tables: list[tuple[str, Any]] = []
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            tables.append((item.name, value))
        else:
            lines.append(f"{item.name} = {text(value)}")
    for name, table in tables:
        lines.append(f"\n[{name}]")
        lines.extend(
            f"{item.name} = {text(getattr(table, item.name))}"
            for item in fields(table)
            if getattr(table, item.name) is not None
        )
    return "\n".join(lines) + "\n"
