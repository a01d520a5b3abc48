"""What a drafter or verifier puts on the network: models loaded, engines made, offers written."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from node.config import ConfigError, NodeConfig
from node.inference import catalog
from node.inference.architecture import ModelError
from node.inference.cores import Cores, cores_here
from node.inference.manifest import manifest_of
from node.inference.tokens import Tokenizer, require_same_tokens
from node.network.messages import Offer, PromptDelivery, Role
from node.roles.ports import Node
from node.watching import keep_found
from settlement.chain.errors import Reverted
from settlement.hashing import ZERO32
from settlement.records import Manifest, Order, Tier

if TYPE_CHECKING:
    from node.inference.exact.target import ExactTarget
    from node.inference.verifier import Verifier
    from node.inference.window import WindowControl
    from node.inference.worker import InferenceWorker
    from node.roles.auditing import Draws
    from node.roles.auditor import AuditorRole
    from node.roles.drafter import DrafterRole
    from node.roles.juror import JurorRole, JuryBoard
    from node.roles.tickets import TicketRole
    from node.roles.verifier import VerifierRole
    from settlement.chain.contracts import Contracts

NGRAM = "ngram"
#: Seconds that a window costs beside its drafting and its way, about: it and the verdict before it
#: are signed, kept, packed and checked at both ends. Believed until a verifier has its own figures.
EXCHANGE = 0.003
T = TypeVar("T")


@dataclass
class Served:
    """A serving role, what it offers, and what its private port shows besides."""

    role: DrafterRole | VerifierRole
    offers: tuple[Offer, ...]
    views: dict[str, Callable[[], Any]] = field(default_factory=dict)


def folder_of(config: NodeConfig, name: str) -> Path:
    """The model's folder, prepared. Raises CatalogError with the way out."""
    model = config.model
    hub = not Path(name).exists() and "/" in name
    return catalog.resolve(
        name, revision=model.revision if hub else None, cache_dir=model.cache_dir
    ).path


def cores_of(config: NodeConfig) -> Cores | None:
    """Where this node's threads run; None: anywhere."""
    return cores_here(config.model.threads) if config.model.own_core else None


def target_of(config: NodeConfig) -> tuple[Tokenizer, Manifest]:
    """Tokenizer and manifest of the configured target, without loading its weights."""
    folder = folder_of(config, config.model.target)
    manifest = manifest_of(folder, config.model.dtype, cache_dir=config.model.cache_dir)
    return Tokenizer.load(folder), manifest


async def serve_verifier(
    node: Node, config: NodeConfig, contracts: Contracts, nursery: trio.Nursery
) -> Served:
    """Loads the target and starts the verifier role."""
    from node.inference import choice, logit_rows
    from node.inference.calibrate import pass_seconds
    from node.inference.loading import load_model
    from node.inference.own_lookup import OwnLookup
    from node.inference.params import SamplingParams
    from node.inference.verifier import Verifier
    from node.inference.window import WindowMemory
    from node.inference.worker import InferenceWorker
    from node.roles.engines import WorkerTarget
    from node.roles.verifier import VerifierRole

    worker = InferenceWorker(threads=config.model.threads, cores=cores_of(config))
    tokenizer, manifest = await trio.to_thread.run_sync(target_of, config)
    folder = await trio.to_thread.run_sync(folder_of, config, config.model.target)
    model = await worker.call(load_model, folder, config.model.dtype, config.model.device)
    # What else would be compiled in the first round.
    await worker.call(choice.library)
    await worker.call(logit_rows.library)
    # What a pass needs, not what it waits for: nodes that start together would measure each other.
    alone = str(getattr(model, "device", "cpu")) == "cpu" and config.model.threads == 1
    clock = time.thread_time if alone else time.perf_counter
    rows = (1, 2, 3, 4, 5, 6, 8, 12, 17)
    costs = await worker.call(pass_seconds, model, rows, repeats=2, clock=clock)
    limits = config.limit
    context = min(model.context_length, limits.max_prompt_tokens + limits.max_new_tokens)
    lookup = OwnLookup(costs) if config.model.lookup else None
    verifier = Verifier(
        model,
        tokenizer,
        max_sessions=2 * limits.max_sessions,
        max_tokens=2 * limits.max_sessions * context,
        lookup=lookup,
    )
    await worker.call(_share_opening, node, verifier, tokenizer)

    def check_prompt(order: Order, delivery: PromptDelivery) -> None:
        SamplingParams.from_order(order)
        length = len(delivery.prompt) + order.max_tokens
        if length > model.context_length:
            raise ValueError(
                f"prompt and output take {length} tokens, the context {model.context_length}"
            )
        bad = [t for t in (*delivery.prompt, *delivery.output) if t >= model.vocab_size]
        if bad:
            raise ValueError(f"token {bad[0]} is outside the vocabulary of {model.vocab_size}")

    windows = WindowMemory(costs)

    def window(order: Order) -> WindowControl:
        key = (order.drafter, order.draft_model, order.mode, order.temperature)
        most = min(order.max_window, limits.max_window)
        way = EXCHANGE + (node.transport.round_trip(order.drafter) or 0.0)
        # A drafter that nobody knows is between lookups (.1 to .3) and a good model (.6 to .8).
        return windows.control(
            key,
            most,
            overlap=True,
            lookup=config.model.lookup and order.draft_model == ZERO32,
            prior=(0.4, 4.0),
            exchange=way,
        )

    role = VerifierRole(
        node,
        WorkerTarget(worker, verifier),
        frozenset([manifest.model_id]),
        window,
        check_prompt,
    )
    pool = verifier.pool
    node.metrics.gauges |= {
        "num_requests_running": lambda: verifier.sessions,
        "num_requests_waiting": lambda: worker.waiting,
        "kv_cache_usage_perc": lambda: pool.used / pool.tokens,
        "kv_cache_bytes": lambda: pool.bytes,
        "prefix_cache_queries": lambda: getattr(pool, "queries", 0),
        "prefix_cache_hits": lambda: getattr(pool, "hits", 0),
        "target_passes": lambda: worker.passes,
        "target_pass_sessions": lambda: worker.pass_sessions,
        "own_guesses": lambda: lookup.guessed if lookup else 0,
        "own_guesses_right": lambda: lookup.right if lookup else 0,
    }
    await nursery.start(role.run)
    token = contracts.token.address
    offer = Offer(int(Role.VERIFIER), manifest.model_id, node.prices.output, token, ZERO32)

    def windows_now() -> list[dict[str, Any]]:
        return [
            {"session": "0x" + session_id.hex(), **running.window.explain()}
            for session_id, running in role.running.items()
            if not running.ended
        ]

    def trials_now() -> dict[str, int]:
        counters = node.metrics.counters
        return {"drafts": counters["trial_drafts"], "right": counters["trial_drafts_right"]}

    views = {"/v1/windows": windows_now, "/v1/trials": trials_now}
    return Served(role, (offer,), views)


def _share_opening(node: Node, verifier: Verifier, tokenizer: Tokenizer) -> None:
    """Runs what the chat template begins every text with. It saves clients time, no more."""
    try:
        verifier.share(tokenizer.opening)
    except ModelError as error:
        node.log.warning("the chat template's beginning is not run ahead", reason=str(error))


async def serve_drafter(
    node: Node, config: NodeConfig, contracts: Contracts, nursery: trio.Nursery
) -> Served:
    """Makes the drafter (a model or prompt lookup) and starts its role."""
    from node.inference.lookup import LookupDrafter
    from node.inference.worker import InferenceWorker
    from node.roles.drafter import DrafterRole
    from node.roles.engines import WorkerDrafter

    worker = InferenceWorker(threads=config.model.threads, cores=cores_of(config))
    tokenizer, manifest = await trio.to_thread.run_sync(target_of, config)
    if config.model.draft == NGRAM:
        draft_id = ZERO32
        drafter = LookupDrafter()
    else:
        from node.inference import choice
        from node.inference.loading import load_model
        from node.inference.mixed_drafter import MixedDrafter

        folder = await trio.to_thread.run_sync(folder_of, config, config.model.draft)
        dtype = config.model.draft_dtype or config.model.dtype
        model = await worker.call(load_model, folder, dtype, config.model.device)
        draft_tokens = await trio.to_thread.run_sync(Tokenizer.load, folder)
        require_same_tokens(draft_tokens, tokenizer, model.vocab_size)
        await worker.call(choice.library)
        drafter = MixedDrafter(model)
        of_draft = partial(manifest_of, folder, dtype, cache_dir=config.model.cache_dir)
        draft_id = (await trio.to_thread.run_sync(of_draft)).model_id
    role = DrafterRole(
        node,
        WorkerDrafter(worker, drafter, ahead=config.model.draft_ahead),
        frozenset([draft_id]),
        frozenset([manifest.model_id]),
        await claim_check(config, contracts),
    )
    node.metrics.gauges |= {
        "draft_turns": lambda: worker.draftings,
        "draft_turn_sessions": lambda: worker.drafting_sessions,
    }
    await nursery.start(role.run)
    offer = Offer(
        int(Role.DRAFTER),
        manifest.model_id,
        node.prices.accepted,
        contracts.token.address,
        claim_id(config),
        None,
        draft_id,
    )
    return Served(role, (offer,))


class _LateWorker:
    """An inference worker that is made at its first call: torch takes seconds and memory to load,
    and an auditor may never be drawn."""

    def __init__(self, threads: int, cores: Cores | None) -> None:
        self._threads, self._cores = threads, cores
        self._worker: InferenceWorker | None = None
        self._making = trio.Lock()

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        async with self._making:
            if self._worker is None:
                self._worker = await trio.to_thread.run_sync(self._make)
        return await self._worker.call(function, *args)

    def _make(self) -> InferenceWorker:
        from node.inference.worker import InferenceWorker

        return InferenceWorker(threads=self._threads, cores=self._cores)


async def serve_auditor(
    node: Node,
    config: NodeConfig,
    draws: Draws,
    board: JuryBoard,
    contracts: Contracts,
    nursery: trio.Nursery,
) -> tuple[AuditorRole, JurorRole, TicketRole]:
    """Starts the auditor, and beside it who answers for juries and for tickets. Their model is
    loaded when it is first drawn."""
    from node.inference.fingerprint import distance
    from node.roles.auditor import AuditorRole
    from node.roles.juror import JurorRole
    from node.roles.proving import ExactProver, FloatProver
    from node.roles.rerun import Loaded, LoadedDraft, Tolerance, WorkerRerun
    from node.roles.sealing_tickets import Clerk
    from node.roles.tickets import CanaryReader, TicketRole

    def load() -> Loaded:
        from node.inference.loading import load_model

        tokenizer, manifest = target_of(config)
        folder = folder_of(config, config.model.target)
        model = load_model(folder, config.model.dtype, config.model.device)
        return Loaded(manifest.model_id, model, tokenizer.token_bytes)

    def load_draft() -> LoadedDraft:
        from node.inference.loading import load_model
        from node.inference.model_drafter import ModelDrafter

        tokenizer, _manifest = target_of(config)
        folder = folder_of(config, config.model.draft)
        dtype = config.model.draft_dtype or config.model.dtype
        model = load_model(folder, dtype, config.model.device)
        require_same_tokens(Tokenizer.load(folder), tokenizer, model.vocab_size)
        manifest = manifest_of(folder, dtype, cache_dir=config.model.cache_dir)
        return LoadedDraft(manifest.model_id, ModelDrafter(model))

    def load_rows() -> ExactTarget:
        from node.inference.exact.target import ExactTarget

        return ExactTarget.load(folder_of(config, config.model.target))

    # The order's model must be ours, so its tier is the configured one.
    tier = Tier[config.model.dtype.upper()]
    exact, tolerance = tier == Tier.EXACT, Tolerance.of(tier)
    drafts = None if config.model.draft == NGRAM else load_draft
    engine = WorkerRerun(_LateWorker(config.model.threads, cores_of(config)), load, drafts)

    async def registered(model: bytes) -> tuple[int, int] | None:
        at = contracts.registry.tolerance_at
        try:
            return await trio.to_thread.run_sync(at, model, await chain_time())
        except Reverted:
            return None

    async def chain_time() -> int:
        return (await trio.to_thread.run_sync(contracts.rpc.head)).timestamp

    prove = (
        ExactProver(node, load_rows, partial(keep_found, node, contracts))
        if exact
        else FloatProver(node, engine, registered, distance)
    )
    clerk = Clerk(node, engine, tier, samples=config.panel.tickets, canaries=config.panel.canaries)

    texts: dict[bytes, bytes] = {}  # what a transaction says never changes

    async def text_of(transaction: bytes) -> bytes | None:
        if transaction not in texts:
            found = await trio.to_thread.run_sync(contracts.audits.text_of, transaction)
            if found is None:
                return None
            texts[transaction] = found
        return texts[transaction]

    role = AuditorRole(node, draws, engine, tolerance=tolerance, prove=prove, clerk=clerk)
    await nursery.start(role.run)
    canaries = CanaryReader(node, board, text_of)
    juror = JurorRole(node, board, engine, chain_time, canaries=canaries)
    await nursery.start(juror.run)
    tickets = TicketRole(node, board, engine, chain_time, text_of)
    await nursery.start(tickets.run)
    return role, juror, tickets


def claim_id(config: NodeConfig) -> bytes:
    """The α claim that the drafter serves under, as configured; zero for none."""
    text = config.model.claim
    if not text:
        return ZERO32
    try:
        raw = bytes.fromhex(text.removeprefix("0x"))
    except ValueError as error:
        raise ConfigError(f"model.claim = {text!r}: a claim id in hex") from error
    if len(raw) != 32:
        raise ConfigError(f"model.claim = {text!r}: a claim id has 32 bytes")
    return raw


async def claim_check(config: NodeConfig, contracts: Contracts) -> Callable[[Order], None]:
    """Refuses (ValueError) orders under a claim that is not the configured one, or was made for
    other models. Its mode and temperature are not looked at: a client has one lane, of one claim,
    with a drafter."""
    from node.roles.drafter import no_claim

    mine = claim_id(config)
    if mine == ZERO32:
        return no_claim
    claim = await trio.to_thread.run_sync(contracts.ledger.claim_of, mine)

    def check(order: Order) -> None:
        if order.claim_id != mine:
            no_claim(order)
            return
        if (order.target_model, order.draft_model) != (claim.target_model, claim.draft_model):
            raise ValueError(f"claim 0x{mine.hex()} is for another target or draft")

    return check
