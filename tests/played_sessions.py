"""Sessions as three honest parties would have signed them, made of random figures: no model, but
every rule that a contract can judge is kept. Altered and signed again they make the guilty."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from settlement import alpha, coins, masses, trees
from settlement.draws import BatchEvidence, RoundEvidence
from settlement.hashing import ZERO32, keccak256
from settlement.records import (
    MASS_TOTAL,
    NO_CUTOFF,
    NO_TOKEN,
    Domain,
    DraftCommit,
    DraftLeaf,
    Mode,
    Order,
    RoundRecord,
    SessionStart,
    Verdict,
    VerdictLeaf,
    extend_context,
    kept_hash,
)
from settlement.signing import address_of_key

STOP = 2
CLIENT, DRAFTER, VERIFIER = (keccak256(name) for name in (b"client", b"drafter", b"verifier"))
_CHAIN = 40


@dataclass(frozen=True)
class Play:
    """One session's rounds under a domain. `settled` rounds may be any prefix or slice."""

    domain: Domain
    rounds: tuple[RoundEvidence, ...]
    keys: tuple[bytes, bytes] = (DRAFTER, VERIFIER)

    @property
    def drafter(self) -> bytes:
        return self.rounds[0].order.drafter

    @property
    def verifier(self) -> bytes:
        return self.rounds[0].order.verifier

    def batch(self, base: trees.Settled | None = None) -> BatchEvidence:
        return BatchEvidence(self.rounds, base, {})


def play(
    domain: Domain,
    rng: Random,
    mode: Mode,
    *,
    relaxed: bool = False,
    token: bytes = b"\x77" * 20,
    keys: tuple[bytes, bytes, bytes] = (CLIENT, DRAFTER, VERIFIER),
    **terms: Any,
) -> Play:
    """Three to five rounds, or fewer where max tokens or a stop ends them. `keys` of client,
    drafter and verifier; `terms` are fields of the order."""
    v_end, d_end = rng.randbytes(32), rng.randbytes(32)
    rejection = mode == Mode.REJECTION
    order = Order(
        request_id=rng.randbytes(32),
        parent_session=ZERO32,
        start_position=0,
        context_hash=ZERO32,
        client=address_of_key(keys[0]),
        drafter=address_of_key(keys[1]),
        verifier=address_of_key(keys[2]),
        token=token,
        target_model=rng.randbytes(32),
        draft_model=rng.randbytes(32),
        mode=int(mode),
        temperature=0 if mode == Mode.GREEDY else 1 << 16,
        top_k=0,
        top_p=1 << 16,
        repetition_penalty=1 << 16,
        presence_penalty=0,
        frequency_penalty=0,
        stop_ids=(STOP,),
        stop_string_hashes=(),
        template_hash=rng.randbytes(32),
        relax_tau=1000 if relaxed else 0,
        key_target_surprisal=1000,
        key_draft_surprisal=1000,
        key_overlap=1000,
        max_window=6,
        noise_version=1,
        price_accepted=2,
        price_output=3,
        max_tokens=rng.choice((9, 40)),
        prompt_hash=rng.randbytes(32),
        claim_id=ZERO32,
        seed_policy=0,
        nonce_commit_client=rng.randbytes(32),
        nonce_commit_verifier=rng.randbytes(32),
        anchor_verifier=coins.anchor_of(v_end, _CHAIN - 1) if rejection else ZERO32,
        anchor_drafter=coins.anchor_of(d_end, _CHAIN - 1) if rejection else ZERO32,
        disclosure=0,
        deadline=2**40,
        nonce=1,
    )
    order = replace(order, **terms)
    start = SessionStart(order.session_id, rng.randbytes(32), rng.randrange(1, 6))
    table = _Table(domain, rng, order, start, v_end, d_end, keys[1:])
    for _ in range(rng.randrange(3, 6)):
        if not table.play_round():
            break
    return Play(domain, tuple(table.rounds), keys[1:])


class _Table:
    """Where the session stands, and how the next round comes about."""

    def __init__(
        self,
        domain: Domain,
        rng: Random,
        order: Order,
        start: SessionStart,
        v_end: bytes,
        d_end: bytes,
        keys: tuple[bytes, bytes],
    ) -> None:
        self.keys = keys
        self.domain, self.rng, self.order, self.start = domain, rng, order, start
        self.v_end, self.d_end = v_end, d_end
        self.rounds: list[RoundEvidence] = []
        self.position, self.context = 0, order.start_context
        self.previous, self.announced = ZERO32, start.first_k

    def play_round(self) -> bool:
        """False once the output has ended."""
        rng, order, index = self.rng, self.order, len(self.rounds)
        rejection = order.mode == Mode.REJECTION
        room = order.max_tokens - self.position
        window = min(self.announced, order.max_window, room)
        if not rejection and rng.random() < 0.2:
            window = 0
        v = coins.anchor_of(self.v_end, _CHAIN - 2 - index) if rejection else ZERO32
        d = coins.anchor_of(self.d_end, _CHAIN - 2 - index) if rejection else ZERO32
        drafts, kept = self._drafts(window, d)
        leaves = self._leaves(drafts, v, room)
        commit = None
        if window:
            commit = DraftCommit(
                self.start.struct_hash,
                index,
                0,
                self.position,
                self.context,
                self.previous,
                trees.merkle_root([leaf.leaf_hash for leaf in drafts]),
                window,
                d,
            )
        context = extend_context(self.context, [leaf.token for leaf in leaves])
        verdict = Verdict(
            self.start.struct_hash,
            index,
            0,
            commit.struct_hash if commit else ZERO32,
            self.position,
            self.context,
            sum(leaf.accepted for leaf in leaves),
            len(leaves),
            context,
            trees.merkle_root([leaf.leaf_hash for leaf in leaves]),
            v,
            rng.randrange(0, 7),
        )
        self.rounds.append(
            sealed(
                self.domain,
                RoundEvidence(
                    order,
                    self.start,
                    commit,
                    b"",
                    drafts,
                    kept,
                    verdict,
                    b"",
                    leaves,
                    record_of(verdict, commit, leaves),
                ),
                self.keys,
            )
        )
        self.position += len(leaves)
        self.context, self.previous = context, verdict.struct_hash
        self.announced = verdict.next_k
        return self.position < order.max_tokens and leaves[-1].token != STOP

    def _drafts(self, window: int, d: bytes) -> tuple[tuple[DraftLeaf, ...], tuple]:
        rng, drafts, lists = self.rng, [], []
        for index in range(window):
            position = self.position + index
            token = STOP if rng.random() < 0.03 else rng.randrange(10, 60)
            q = below = 0
            digest = ZERO32
            if self.order.mode == Mode.REJECTION:
                kept = _kept(rng)
                w = coins.draw_coin(d, self.start.seed, self.context, position)
                token, q, below = _drawn(kept, w)
                digest = kept_hash(kept)
                lists.append(kept)
            relaxed = self.order.relax_tau > 0
            drafts.append(
                DraftLeaf(
                    position,
                    token,
                    q,
                    below,
                    digest,
                    rng.randrange(0, 1500) if relaxed else 0,
                    rng.randbytes(32) if relaxed else ZERO32,
                )
            )
        return tuple(drafts), tuple(lists)

    def _leaves(
        self, drafts: tuple[DraftLeaf, ...], v: bytes, room: int
    ) -> tuple[VerdictLeaf, ...]:
        leaves: list[VerdictLeaf] = []
        for index in range(min(len(drafts) + 1, room)):
            draft = drafts[index] if index < len(drafts) else None
            leaf = self._decide(self.position + index, draft, v)
            leaves.append(leaf)
            if not leaf.accepted or leaf.token == STOP:
                break
        return tuple(leaves)

    def _decide(self, position: int, draft: DraftLeaf | None, v: bytes) -> VerdictLeaf:
        rng, order = self.rng, self.order
        own = STOP if draft is None and rng.random() < 0.05 else rng.randrange(100, 140)
        accepted = draft is not None and rng.random() < 0.7
        p = surprisal = scored = top = 0
        key = False
        if draft is not None and order.mode == Mode.REJECTION:
            p = rng.choice((draft.q, draft.q // 2, draft.q // 3))
            u = coins.coin(v, self.start.seed, position, coins.Purpose.ACCEPT)
            accepted = masses.accept_rejection(u, draft.q, p)
        if draft is not None and order.relax_tau:
            surprisal = rng.randrange(0, 1500)
            key = (
                surprisal > order.key_target_surprisal
                or draft.surprisal > order.key_draft_surprisal
                or rng.random() < 0.3
            )
            top = rng.randrange(0, 5000)
            scored = top - rng.choice((0, 500, 1000, 1001, 3000))
            tied = scored == top
            accepted = tied or (not key and scored >= top - order.relax_tau)
        return VerdictLeaf(
            position=position,
            draft_token=NO_TOKEN if draft is None else draft.token,
            token=draft.token if draft is not None and accepted else own,
            accepted=accepted,
            p=p,
            top_prob=rng.randrange(0, 1 << 16),
            cutoff=NO_CUTOFF,
            score_draft=scored,
            score_top=top,
            surprisal=surprisal,
            key=key,
            fingerprint=rng.randbytes(32),
        )


def record_of(
    verdict: Verdict, commit: DraftCommit | None, leaves: tuple[VerdictLeaf, ...]
) -> RoundRecord:
    sums = alpha.round_sums(leaves)
    return RoundRecord(
        verdict.start_hash,
        verdict.round,
        commit.draft_root if commit else ZERO32,
        verdict.verdict_root,
        commit.struct_hash if commit else ZERO32,
        verdict.struct_hash,
        sums.output,
        sums.accepted,
        sums.buckets,
    )


def sealed(
    domain: Domain, evidence: RoundEvidence, keys: tuple[bytes, bytes] = (DRAFTER, VERIFIER)
) -> RoundEvidence:
    """Signed by drafter and verifier as it stands."""
    commit = evidence.commit
    return replace(
        evidence,
        commit_signature=domain.sign(commit, keys[0]) if commit else b"",
        verdict_signature=domain.sign(evidence.verdict, keys[1]),
    )


def _kept(rng: Random) -> tuple[tuple[int, int], ...]:
    ids = sorted(rng.sample(range(10, 60), rng.randrange(1, 6)))
    cuts = sorted(rng.sample(range(1, 2**32), len(ids) - 1))
    edges = [0, *(cut << 32 for cut in cuts), MASS_TOTAL]
    return tuple(
        (token, high - low) for token, low, high in zip(ids, edges[:-1], edges[1:], strict=True)
    )


def _drawn(kept: tuple[tuple[int, int], ...], w: int) -> tuple[int, int, int]:
    below = 0
    for token, mass in kept:
        if w < below + mass:
            return token, mass, below
        below += mass
    raise AssertionError("a coin lies below the whole")
