"""What a client wants, in the units of an order, and whom it may ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from node.network.messages import Offer
from settlement.hashing import ZERO32
from settlement.records import Mode, Order, SeedPolicy, prompt_hash, stop_string_hash

FIRST_WINDOW: Final = 2


class ClientError(RuntimeError):
    """A request that cannot be served: why, and what to do."""


class NoParties(ClientError):
    """No drafter or verifier for this request is known, reachable and willing."""


@dataclass(frozen=True)
class Plan:
    """What the client wants, already in the units of an order.

    Attributes:
        template: an Order with everything that does not depend on the parties; its party fields,
            prices and commitments are filled in per session.
        prompt: token ids. salt: 32 random bytes behind promptHash. stops: texts behind the hashes.
        client_seed: int64 under seed policy client, else None.
        drafter, verifier: insist on these operators; None: choose.
    """

    template: Order
    prompt: tuple[int, ...]
    salt: bytes
    stops: tuple[str, ...]
    client_seed: int | None = None
    drafter: bytes | None = None
    verifier: bytes | None = None
    first_k: int = FIRST_WINDOW


@dataclass(frozen=True)
class Party:
    """A drafter or verifier that can be asked, with its offer."""

    operator: bytes
    offer: Offer


class Directory(Protocol):
    """Who is there now (see `network.discovery`)."""

    def drafters(self, target_model: bytes) -> list[Party]: ...

    def verifiers(self, target_model: bytes) -> list[Party]: ...


def plan_for(
    *,
    request_id: bytes,
    salt: bytes,
    client: bytes,
    token: bytes,
    target_model: bytes,
    prompt: tuple[int, ...],
    stops: tuple[str, ...],
    stop_ids: tuple[int, ...],
    template_hash: bytes,
    mode: Mode,
    temperature: int,
    top_k: int,
    top_p: int,
    max_tokens: int,
    max_window: int,
    deadline: int,
    client_seed: int | None = None,
    relax_tau: int = 0,
    key_target_surprisal: int = 0,
    key_draft_surprisal: int = 0,
    key_overlap: int = 0,
    repetition_penalty: int = 1 << 16,
    presence_penalty: int = 0,
    frequency_penalty: int = 0,
    drafter: bytes | None = None,
    verifier: bytes | None = None,
    first_k: int = FIRST_WINDOW,
) -> Plan:
    """A plan from a request in order units. Party fields hold placeholders until `_agree`.

    Raises RecordError for a value that no order can carry.
    """
    placeholder = b"\xff" * 32 if mode == Mode.REJECTION else ZERO32
    template = Order(
        request_id=request_id,
        parent_session=ZERO32,
        start_position=0,
        context_hash=ZERO32,
        client=client,
        drafter=bytes(20),
        verifier=bytes(20),
        token=token,
        target_model=target_model,
        draft_model=ZERO32,
        mode=mode,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        stop_ids=tuple(sorted(set(stop_ids))),
        stop_string_hashes=tuple(stop_string_hash(text) for text in stops),
        template_hash=template_hash,
        relax_tau=relax_tau,
        key_target_surprisal=key_target_surprisal,
        key_draft_surprisal=key_draft_surprisal,
        key_overlap=key_overlap,
        max_window=max_window,
        noise_version=1,
        price_accepted=0,
        price_output=0,
        max_tokens=max_tokens,
        prompt_hash=prompt_hash(salt, prompt),
        claim_id=ZERO32,
        seed_policy=SeedPolicy.JOINT if client_seed is None else SeedPolicy.CLIENT,
        nonce_commit_client=ZERO32,
        nonce_commit_verifier=ZERO32,
        anchor_verifier=placeholder,
        anchor_drafter=placeholder,
        disclosure=0,
        deadline=deadline,
        nonce=0,
    )
    return Plan(template, prompt, salt, stops, client_seed, drafter, verifier, first_k)
