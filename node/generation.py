"""What a client's HTTP call means: checked request in, streamed text out, receipt on disk."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from node.config import NodeConfig
from node.inference.params import KEY_THRESHOLDS, Q24
from node.inference.tokens import TextStream, Tokenizer, TokenizerError, final_text
from node.roles import receipt
from node.roles.client import ClientRole, Outcome
from node.roles.plan import ClientError, Plan, plan_for
from settlement.durable import write_atomic
from settlement.records import NO_TOKEN, Manifest, Mode
from settlement.schema import RecordError

MODES: Final = {"greedy": Mode.GREEDY, "coupled": Mode.COUPLED, "rejection": Mode.REJECTION}
_KNOWN: Final = {
    "prompt",
    "messages",
    "raw",
    "mode",
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "relax",
    "seed",
    "max_tokens",
    "stop",
    "drafter",
    "verifier",
}
Emit = Callable[[Mapping[str, Any]], Awaitable[None]]


class RequestError(ValueError):
    """A request that makes no sense: which field, why, and what would do."""


@dataclass(frozen=True)
class Wish:
    """A checked request, in people's units."""

    prompt_ids: tuple[int, ...]
    mode: Mode
    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    relax: float
    max_tokens: int
    stops: tuple[str, ...]
    seed: int | None
    drafter: bytes | None
    verifier: bytes | None


def read_wish(data: Mapping[str, Any], tokenizer: Tokenizer, config: NodeConfig) -> Wish:
    """Checks a request. Raises RequestError for anything out of type, range or place."""
    try:
        # JSON may write half of a surrogate pair, which no encoding of text holds.
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise RequestError(f"a string is no text: {error.reason}") from error
    unknown = sorted(set(data) - _KNOWN)
    if unknown:
        raise RequestError(f"unknown field {unknown[0]!r}; known: {', '.join(sorted(_KNOWN))}")
    mode = data.get("mode", "coupled")
    if not isinstance(mode, str) or mode not in MODES:
        raise RequestError(f"mode = {mode!r}: one of {', '.join(MODES)}")
    temperature = _number(data, "temperature", 0.0 if mode == "greedy" else 0.7, 0.0, 16.0)
    if mode == "greedy" and temperature:
        raise RequestError("temperature: greedy mode has none; leave it out or give 0")
    if mode != "greedy" and temperature < 1e-3:
        raise RequestError(f"temperature = {temperature}: at least 0.001; or use mode greedy")
    limit = config.limit.max_new_tokens
    relax = _number(data, "relax", 0.0, 0.0, 16.0)
    if relax and mode == "rejection":
        raise RequestError("relax: needs greedy or coupled mode; rejection mode has no scores")
    max_tokens = _integer(data, "max_tokens", min(128, limit), 1, limit)
    seed = None if data.get("seed") is None else _integer(data, "seed", 0, -(2**63), 2**63 - 1)
    if seed is not None and mode == "rejection":
        raise RequestError("seed: rejection mode needs a joint seed; leave it out")
    stops = data.get("stop") or []
    if isinstance(stops, str):
        stops = [stops]
    if (
        not isinstance(stops, list)
        or len(stops) > 16
        or not all(isinstance(s, str) and 0 < len(s.encode()) <= 128 for s in stops)
    ):
        raise RequestError("stop: at most 16 strings of 1 to 128 bytes")
    return Wish(
        prompt_ids=_prompt(data, tokenizer, config.limit.max_prompt_tokens),
        mode=MODES[mode],
        temperature=temperature,
        top_k=_integer(data, "top_k", 0, 0, NO_TOKEN),
        top_p=_number(data, "top_p", 1.0, 1e-4, 1.0),
        repetition_penalty=_number(data, "repetition_penalty", 1.0, 1 / 16, 16.0),
        presence_penalty=_number(data, "presence_penalty", 0.0, -16.0, 16.0),
        frequency_penalty=_number(data, "frequency_penalty", 0.0, -16.0, 16.0),
        relax=relax,
        max_tokens=max_tokens,
        stops=tuple(stops),
        seed=seed,
        drafter=_operator(data, "drafter"),
        verifier=_operator(data, "verifier"),
    )


def _prompt(data: Mapping[str, Any], tokenizer: Tokenizer, limit: int) -> tuple[int, ...]:
    """Token ids: a chat template around `prompt` or `messages`, or the bare text when `raw` or
    the model has no template."""
    messages, text = data.get("messages"), data.get("prompt")
    if (messages is None) == (text is None):
        raise RequestError("give either prompt or messages")
    try:
        if messages is not None:
            good = isinstance(messages, list) and all(
                isinstance(m, dict)
                and isinstance(m.get("role"), str)
                and isinstance(m.get("content"), str)
                for m in messages
            )
            if not good or not messages:
                raise RequestError('messages: a list of {"role": …, "content": …}')
            ids = tokenizer.chat(messages)
        elif not isinstance(text, str) or not text.strip():
            raise RequestError("prompt: empty; say something to continue from")
        elif data.get("raw") or tokenizer.chat_template is None:
            ids = tokenizer.encode(text)
        else:
            ids = tokenizer.chat([{"role": "user", "content": text}])
    except TokenizerError as error:
        raise RequestError(f"prompt: {error}") from error
    if not ids:
        raise RequestError("prompt: it has no tokens")
    if len(ids) > limit:
        raise RequestError(f"prompt: {len(ids)} tokens, at most {limit} (limit.max_prompt_tokens)")
    return tuple(ids)


def _number(data: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise RequestError(f"{name} = {value!r}: a number from {low:g} to {high:g}")
    return float(value)


def _integer(data: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestError(f"{name} = {value!r}: a whole number from {low} to {high}")
    return value


def _operator(data: Mapping[str, Any], name: str) -> bytes | None:
    value = data.get(name)
    if value is None:
        return None
    try:
        raw = bytes.fromhex(str(value).removeprefix("0x"))
    except ValueError as error:
        raise RequestError(f"{name} = {value!r}: an operator's 0x… address") from error
    if len(raw) != 20:
        raise RequestError(f"{name} = {value!r}: an operator's address has 20 bytes")
    return raw


class Generator:
    """A client node's `/v1/generate`: one request to its receipt."""

    def __init__(
        self,
        client: ClientRole,
        tokenizer: Tokenizer,
        manifest: Manifest,
        token: bytes,
        config: NodeConfig,
        receipts: Path,
        written: Callable[[Path], None] = lambda path: None,
    ) -> None:
        """`written` is told of each receipt's file."""
        self._client = client
        self._tokenizer = tokenizer
        self._manifest = manifest
        self._token = token
        self._config = config
        self._receipts = receipts
        self._written = written
        receipts.mkdir(parents=True, exist_ok=True)

    async def __call__(self, data: dict[str, Any], emit: Emit) -> None:
        """Streams `round`, `note`, then `done`; or one `error` event that says what to do."""
        try:
            wish = read_wish(data, self._tokenizer, self._config)
            plan = self._plan(wish)
        except (RequestError, RecordError) as error:
            await emit({"type": "error", "error": str(error), "kind": "request"})
            return
        stream = TextStream(self._tokenizer.token_bytes, wish.stops)

        async def with_text(event: Mapping[str, Any]) -> None:
            if event["type"] == "round":
                event = {**event, "text": stream.push(event["tokens"])}
            await emit(event)

        try:
            outcome = await self._client.generate(plan, with_text)
        except ClientError as error:
            await emit({"type": "error", "error": str(error), "kind": type(error).__name__})
            return
        tail = stream.finish()
        if tail:
            await emit({"type": "tail", "text": tail})
        await emit(await self._done(wish, outcome))

    def _plan(self, wish: Wish) -> Plan:
        node = self._client.node
        limits = self._config.limit
        return plan_for(
            request_id=node.entropy(32),
            salt=node.entropy(32),
            client=node.address,
            token=self._token,
            target_model=self._manifest.model_id,
            prompt=wish.prompt_ids,
            stops=wish.stops,
            stop_ids=self._manifest.eos_ids,
            template_hash=self._tokenizer.template_hash,
            mode=wish.mode,
            temperature=round(wish.temperature * 65536),
            top_k=wish.top_k,
            top_p=round(wish.top_p * 65536),
            repetition_penalty=round(wish.repetition_penalty * 65536),
            presence_penalty=round(wish.presence_penalty * 65536),
            frequency_penalty=round(wish.frequency_penalty * 65536),
            relax_tau=round(wish.relax * Q24),
            **(KEY_THRESHOLDS if wish.relax else {}),
            max_tokens=wish.max_tokens,
            max_window=limits.max_window,
            deadline=int(node.clock()) + limits.order_seconds // 2,
            client_seed=wish.seed,
            drafter=wish.drafter,
            verifier=wish.verifier,
            # The prompt's own pass gives a token: nobody should wait for drafts before it.
            first_k=limits.min_window,
        )

    async def _done(self, wish: Wish, outcome: Outcome) -> dict[str, Any]:
        """Writes the receipt and says how the request went."""
        text = final_text(self._tokenizer, outcome.tokens, wish.stops)
        last = outcome.sessions[-1]
        path = self._receipts / f"{last.terms.order.session_id.hex()[:16]}.json"
        made = receipt.build(outcome, self._client.node.journal, text)
        await trio.to_thread.run_sync(write_atomic, path, json.dumps(made))
        self._written(path)
        rounds = [done for served in outcome.sessions for done in served.rounds]
        payment = last.payment
        order = last.terms.order
        return {
            "type": "done",
            "session_id": "0x" + order.session_id.hex(),
            "sessions": ["0x" + s.terms.order.session_id.hex() for s in outcome.sessions],
            "text": text,
            "token_ids": list(outcome.tokens),
            "prompt_ids": list(wish.prompt_ids),
            "mode": wish.mode.name.lower(),
            "temperature": wish.temperature,
            "seed": "0x" + outcome.sessions[0].terms.seed.hex(),
            "tier": self._manifest.tier.name.lower(),
            "target_model": "0x" + order.target_model.hex(),
            "draft_model": "0x" + order.draft_model.hex(),
            "drafter": "0x" + order.drafter.hex(),
            "verifier": "0x" + order.verifier.hex(),
            "rounds": len(rounds),
            "proposed": sum(len(r.draft.leaves) for r in rounds if r.draft),
            "accepted": sum(r.verdict.verdict.k for r in rounds),
            "output_tokens": len(outcome.tokens),
            "seconds": outcome.seconds,
            "first_seconds": outcome.first_seconds,
            "first_tokens": rounds[0].verdict.verdict.emitted if rounds else 0,
            "signed_by_all": payment is not None and payment.complete,
            "receipt_path": str(path),
        }
