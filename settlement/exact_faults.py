"""F9 by arithmetic: V's token against the hidden state that V itself committed to. Pure.

Mirrors ExactFaults.sol, check for check; a test runs both on the same sessions. What arithmetic
does not decide (the float tiers, rejection mode, penalties, reduced heads, a false cut-off, a false
hidden state) is the panel's, and says so here as it does on chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from settlement import exact, trees
from settlement.draws import RoundEvidence, blank
from settlement.exact import NO_ROW, Opening, Sizes, Target
from settlement.fault_proofs import (
    MODEL_FAULT,
    Fault,
    Kind,
    by_verifier,
    is_by,
    session_of,
)
from settlement.hashing import ZERO32
from settlement.noise import coupled_argmax, noise_for
from settlement.records import (
    NO_CUTOFF,
    NO_TOKEN,
    NOISE_VERSION,
    Q16,
    Domain,
    DraftCommit,
    Manifest,
    Mode,
    Order,
    Tier,
    VerdictLeaf,
    salted_fingerprint,
)


class ExactCode(IntEnum):
    """Codes of ExactFaults.sol, beside those of `LeafFault` and `Code`; all V's."""

    TOKEN_BEATEN = 24  # another token scores higher
    TOKEN_CUT = 25  # the token is below V's own cut-off
    TOKEN_UNKNOWN = 26  # the token is not in the vocabulary
    SCORE_FIGURES = 27  # relaxed: a score in the leaf is not the token's
    HIDDEN_WIDTH = 28  # the hidden state has another width than the head
    ELEMENT = 29  # an element of a trace is not its row times its input
    TRACE_SHAPE = 30  # a vector of a trace has another length than the model's


class ForPanel(ValueError):
    """Arithmetic alone does not decide this: the panel answers with one exact hash."""


class CutoffForPanel(ForPanel):
    """A better token is below V's cut-off: whether that is false takes the whole row of scores."""

    def __init__(self, token: int, score: int, cutoff: int) -> None:
        super().__init__(f"token {token} scores {score}, below the committed cut-off {cutoff}")
        self.token, self.score, self.cutoff = token, score, cutoff


class OtherEvidence(ValueError):
    """What is shown does not belong to the leaf it accuses: nobody's fault but the prover's."""


@dataclass(frozen=True)
class Disclosed:
    """What V opens of a leaf to auditors and parties: the fingerprint's salt (32 bytes) and the
    hidden state (int16 each, big-endian)."""

    salt: bytes
    hidden: bytes

    @property
    def commitment(self) -> bytes:
        """The leaf's fingerprint field."""
        return salted_fingerprint(self.salt, exact.fingerprint(self.hidden))


def require_arithmetic(order: Order, manifest: Manifest) -> None:
    """ForPanel unless scores follow from hidden state, weights and seed alone."""
    if manifest.tier != Tier.EXACT:
        raise ForPanel("float tier")
    if order.mode == Mode.REJECTION:
        raise ForPanel("rejection mode")
    penalties = (order.repetition_penalty, order.presence_penalty, order.frequency_penalty)
    if penalties != (Q16, 0, 0):
        raise ForPanel("penalties")
    if order.noise_version != NOISE_VERSION:
        raise ForPanel("noise version")
    if order.mode == Mode.COUPLED and order.temperature == 0:
        raise ForPanel("temperature")


def cutoff_of(order: Order, leaf: VerdictLeaf) -> int:
    """The committed cut-off where the order filters; none else, whatever the leaf says."""
    filtered = order.mode == Mode.COUPLED and (order.top_k != 0 or order.top_p < Q16)
    return leaf.cutoff if filtered else NO_CUTOFF


def token_code(
    order: Order,
    seed: bytes,
    position: int,
    leaf: VerdictLeaf,
    disclosed: Disclosed,
    own: Opening | None,
    better: int,
    other: Opening | None,
) -> ExactCode | None:
    """What is wrong with a leaf's token, of those things that tokens `leaf.token` and `better`
    show (ExactFaults._byScores); None where it holds against this one.

    Args:
        position: base + index of the leaf in its verdict.
        own: row `leaf.token` of the head; None for a token outside the vocabulary.
        other: row `better` of the head; None where that is leaf.token.

    Raises:
        OtherEvidence: the hidden state is not the leaf's, or a row is another one.
        CutoffForPanel: `better` is below the committed cut-off.
    """
    if disclosed.commitment != leaf.fingerprint:
        raise OtherEvidence("that hidden state and salt are not the leaf's")
    if own is None:
        return ExactCode.TOKEN_UNKNOWN
    _require_row(own, leaf.token)
    if len(disclosed.hidden) != 2 * len(own.row.weights):
        return ExactCode.HIDDEN_WIDTH
    cutoff = cutoff_of(order, leaf)
    temperature = order.temperature if order.mode == Mode.COUPLED else Q16

    def plain(opening: Opening) -> int:
        return exact.score(exact.logit(disclosed.hidden, opening.row), temperature)

    def noise(token: int) -> int:
        return 0 if order.mode == Mode.GREEDY else int(noise_for(seed, position, [token])[0])

    own_score = plain(own)
    if own_score < cutoff:
        return ExactCode.TOKEN_CUT
    own_score += noise(leaf.token)
    relaxed = order.relax_tau != 0 and leaf.draft_token != NO_TOKEN
    if better == leaf.token:
        holds = not relaxed or _figures_hold(leaf, own_score, better, own_score)
        return None if holds else ExactCode.SCORE_FIGURES
    if other is None:
        raise OtherEvidence(f"the row of token {better} is missing")
    _require_row(other, better)
    other_score = plain(other)
    if other_score < cutoff:
        if relaxed and better == leaf.draft_token and leaf.score_draft != NO_CUTOFF:
            return ExactCode.SCORE_FIGURES
        raise CutoffForPanel(better, other_score, cutoff)
    other_score += noise(better)
    if relaxed and leaf.accepted and not leaf.key:
        if other_score > own_score + order.relax_tau:
            return ExactCode.TOKEN_BEATEN
    elif (other_score, -better) > (own_score, -leaf.token):
        return ExactCode.TOKEN_BEATEN
    if relaxed and not _figures_hold(leaf, own_score, better, other_score):
        return ExactCode.SCORE_FIGURES
    return None


def _require_row(opening: Opening, token: int) -> None:
    if (opening.row.tensor, opening.row.row) != (exact.HEAD, token):
        raise OtherEvidence(f"that is row {opening.row.row}, not the head's of token {token}")


def _figures_hold(leaf: VerdictLeaf, own: int, better: int, other: int) -> bool:
    if leaf.token == leaf.draft_token and leaf.score_draft != own:
        return False
    if better == leaf.draft_token and leaf.score_draft != other:
        return False
    if not leaf.accepted and leaf.score_top != own:
        return False
    return other <= leaf.score_top


def find_token_fault(
    domain: Domain, evidence: RoundEvidence, index: int, disclosed: Disclosed, target: Target
) -> Fault | None:
    """The proof that the token at `index` of a verdict is not what its hidden state gives; None
    where it is.

    Of all tokens, the best kept one proves a beaten token, and in relaxed mode D's own a false
    figure; so two looks are enough, and the whole row is only computed here, not on chain. That
    V's cut-off itself is right is not looked at: compare it with the order's filters over
    `target.logits`, and take a false one to the panel.

    Raises:
        ForPanel: arithmetic does not decide it.
        OtherEvidence: hidden state, salt or model are not those of the leaf and the order.
    """
    order, leaf = evidence.order, evidence.verdict_leaves[index]
    manifest = target.manifest
    if manifest.model_id != order.target_model:
        raise OtherEvidence(f"the order's target is not 0x{manifest.model_id.hex()}")
    require_arithmetic(order, manifest)
    if disclosed.commitment != leaf.fingerprint:
        raise OtherEvidence("that hidden state and salt are not the leaf's")
    any_row = target.opening(exact.HEAD, 0)
    if Sizes.of(any_row.header).head_ids != ZERO32:
        raise ForPanel("reduced head")
    known = leaf.token < manifest.vocab_size
    own = target.opening(exact.HEAD, leaf.token) if known else None
    candidates = [leaf.token]
    if known and len(disclosed.hidden) == 2 * len(any_row.row.weights):
        candidates.insert(0, _best(evidence, index, disclosed, target))
        if order.relax_tau and leaf.draft_token < manifest.vocab_size:
            candidates.append(leaf.draft_token)
    for better in candidates:
        other = None if better == leaf.token else target.opening(exact.HEAD, better)
        try:
            code = token_code(
                order,
                evidence.start.seed,
                evidence.verdict.base + index,
                leaf,
                disclosed,
                own,
                better,
                other,
            )
        except CutoffForPanel:
            continue  # D's token, which V counts out; a false cut-off is not found here
        if code is not None:
            rows = own or any_row
            return token_fault(
                domain, evidence, index, disclosed, manifest, rows, own, better, other, code
            )
    return None


def _best(evidence: RoundEvidence, index: int, disclosed: Disclosed, target: Target) -> int:
    """The token that should have come: argmax over what the committed cut-off keeps."""
    order, leaf = evidence.order, evidence.verdict_leaves[index]
    temperature = order.temperature if order.mode == Mode.COUPLED else Q16
    scores = exact.scores(target.logits(disclosed.hidden), temperature)
    if order.mode == Mode.GREEDY:
        return int(scores.argmax())
    cutoff = cutoff_of(order, leaf)
    kept = None if cutoff == NO_CUTOFF else scores >= cutoff
    if kept is not None and not np.any(kept):
        return leaf.token  # nothing is kept, the token neither: that alone proves it
    position = evidence.verdict.base + index
    return coupled_argmax(scores, evidence.start.seed, position, kept)[0]


def token_fault(
    domain: Domain,
    evidence: RoundEvidence,
    index: int,
    disclosed: Disclosed,
    manifest: Manifest,
    weights: Opening,
    own: Opening | None,
    better: int,
    other: Opening | None,
    code: ExactCode,
) -> Fault:
    """The fault with its evidence, ExactEvidence.TokenCase in the ABI's order. `weights` is any
    row's opening: header, count and tree come from it. OtherEvidence where V has not signed."""
    order, verdict, commit = evidence.order, evidence.verdict, evidence.commit
    if not is_by(domain, verdict, evidence.verdict_signature, order.verifier):
        raise OtherEvidence("the verdict is not signed by the order's verifier")
    leaf = evidence.verdict_leaves[index]
    tree = trees.MerkleTree(each.leaf_hash for each in evidence.verdict_leaves)
    # D's loss is claimed where D had drafted what should have come.
    harmed = code == ExactCode.TOKEN_BEATEN and not leaf.accepted and leaf.draft_token == better
    proof = (
        manifest.to_abi(),
        *session_of(evidence),
        commit.to_abi() if harmed and commit is not None else blank(DraftCommit),
        verdict.to_abi(),
        evidence.verdict_signature,
        index,
        leaf.to_abi(),
        list(tree.siblings(index)),
        disclosed.salt,
        disclosed.hidden,
        weights.weights_words(),
        NO_ROW if own is None else own.row_words(),
        better,
        NO_ROW if other is None else other.row_words(),
    )
    return by_verifier(evidence, MODEL_FAULT, code, Kind.EXACT_TOKEN, proof)
