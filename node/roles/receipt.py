"""A receipt: one file from which anybody can check what was bought, said, counted and paid.

`build` writes it from a finished request; `verify` needs no network, chain or model: it checks
every signature, the seed, the context chain, each round's accept rule, that each round lies under
the root of a voucher that all three signed, and that the voucher pays at least what those rounds
are worth. What it cannot see is what the model would have said: `rerun` in `commands.receipt`
decodes the text again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from node.journal import Journal
from node.roles.client import Outcome
from node.roles.frames import FrameError, Round
from node.roles.session import (
    PARTIES,
    SessionFault,
    SessionState,
    StaleFrame,
    Terms,
    advance,
    check_draft,
    check_signature,
    check_verdict,
    round_record,
)
from node.roles.stored import stored_round, unpack_runs
from settlement import coins, payments, trees
from settlement.hashing import ZERO32
from settlement.records import (
    Domain,
    Order,
    SeedPolicy,
    SessionStart,
    Sums,
    Voucher,
    extend_context,
    prompt_hash,
    stop_string_hash,
)
from settlement.schema import RecordError

FORMAT: Final = "verdraft/receipt/1"


class ReceiptError(ValueError):
    """A receipt that does not hold: what fails, and where in the file."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where, self.reason = where, reason


@dataclass(frozen=True)
class Checked:
    """What a receipt proves.

    Attributes:
        tokens: the output.
        checks: what was checked, in words, each with its count.
        paid: whether every round lies under a voucher that all three parties signed.
        lossless: no session was relaxed.
    """

    domain: Domain
    orders: tuple[Order, ...]
    seeds: tuple[bytes, ...]
    prompt: tuple[int, ...]
    stops: tuple[str, ...]
    tokens: tuple[int, ...]
    rounds: int
    proposed: int
    accepted: int
    paid: bool
    lossless: bool
    checks: dict[str, int] = field(default_factory=dict)


# ---------------------------------------------------------------- building


def build(outcome: Outcome, journal: Journal, text: str) -> dict[str, Any]:
    """The receipt of a finished request, as a JSON object."""
    first = outcome.sessions[0]
    vouchers: list[dict[str, Any]] = []
    numbers: dict[bytes, int] = {}
    sessions = []
    for served in outcome.sessions:
        book = _Vouchers(journal, served.terms)
        rounds = []
        for done in served.rounds:
            entry: dict[str, Any] = {"frames": done.to_wire().hex()}
            found = book.proof(round_record(done))
            if found is not None:
                row_wire, described, proof = found
                if row_wire not in numbers:
                    numbers[row_wire] = len(vouchers)
                    vouchers.append(described)
                entry["voucher"] = numbers[row_wire]
                entry["proof"] = _proof_json(proof)
            rounds.append(entry)
        sessions.append(
            {
                "sessionId": "0x" + served.terms.order.session_id.hex(),
                "order": served.terms.order.to_json(),
                "orderSignatures": ["0x" + s.hex() for s in served.terms.order_signatures],
                "start": served.terms.start.to_json(),
                "startSignatures": ["0x" + s.hex() for s in served.terms.start_signatures],
                "rounds": rounds,
            }
        )
    return {
        "format": FORMAT,
        "domain": {
            "chainId": first.terms.domain.chain_id,
            "escrow": "0x" + first.terms.domain.escrow.hex(),
        },
        "prompt": {
            "salt": "0x" + first.delivery.salt.hex(),
            "tokenIds": list(first.delivery.prompt),
            "stops": list(first.delivery.stops),
        },
        "nonces": ["0x" + nonce.hex() for nonce in outcome.nonces],
        "sessions": sessions,
        "vouchers": vouchers,
        "transactions": [],
        "tokenIds": list(outcome.tokens),
        "text": text,
        "lossless": all(served.terms.order.lossless for served in outcome.sessions),
        "seconds": outcome.seconds,
    }


class _Vouchers:
    """The vouchers of one session's lane, with the trees under them: those that all three have
    signed first, then the others, each newest first."""

    def __init__(self, journal: Journal, terms: Terms) -> None:
        rows = reversed(journal.vouchers(terms.order.lane.id))
        self._rows = sorted(rows, key=lambda r: not (r.client and r.drafter and r.verifier))
        self._journal = journal
        self._trees: dict[bytes, tuple[trees.SumTree, dict[tuple[bytes, int], int]]] = {}

    def proof(self, record: Any) -> tuple[bytes, dict[str, Any], trees.SumProof] | None:
        """The best voucher over that round (its bytes and JSON) and the round's proof in it."""
        key = (record.start_hash, record.round)
        for row in self._rows:
            runs = unpack_runs(row.leaves)
            if not any(
                run.start_hash == key[0] and run.first <= key[1] < run.first + run.count
                for run in runs
            ):
                continue
            tree, places = self._tree(row.voucher, runs)
            described = {
                "voucher": Voucher.from_wire(row.voucher).to_json(),
                "signatures": [
                    "0x" + s.hex() if s else None for s in (row.client, row.drafter, row.verifier)
                ],
            }
            return row.voucher, described, tree.proof(places[key])
        return None

    def _tree(self, wire: bytes, runs: Sequence[Any]) -> Any:
        if wire not in self._trees:
            records = []
            for run in runs:
                for stored in self._journal.rounds(run.start_hash, run.first)[: run.count]:
                    records.append(round_record(stored_round(stored.draft, stored.verdict)))
            places = {(r.start_hash, r.round): index for index, r in enumerate(records)}
            self._trees[wire] = (trees.SumTree(records), places)
        return self._trees[wire]


def _proof_json(proof: trees.SumProof) -> dict[str, Any]:
    return {
        "index": proof.index,
        "count": proof.count,
        "siblings": [
            {"hash": "0x" + node.hash.hex(), "sums": "0x" + node.sums.packed.hex()}
            for node in proof.siblings
        ],
    }


# ---------------------------------------------------------------- verifying


def verify(data: Any) -> Checked:
    """Checks a receipt wholly. Raises ReceiptError at the first thing that does not hold."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise ReceiptError("format", f"not a {FORMAT} file")
    reader = _Reader(data)
    try:
        return reader.check()
    except ReceiptError:
        raise
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ReceiptError(reader.where, f"missing or malformed: {error!r}") from error
    except (RecordError, FrameError, StaleFrame, SessionFault, ValueError) as error:
        raise ReceiptError(reader.where, str(error)) from error


class _Reader:
    """Walks a receipt; `where` names the place being read, for the error."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.where = "domain"
        self.checks: dict[str, int] = {}

    def _count(self, what: str, by: int = 1) -> None:
        self.checks[what] = self.checks.get(what, 0) + by

    def check(self) -> Checked:
        domain = Domain(int(self.data["domain"]["chainId"]), _bytes(self.data["domain"]["escrow"]))
        self.where = "prompt"
        prompt = tuple(int(token) for token in self.data["prompt"]["tokenIds"])
        stops = tuple(str(text) for text in self.data["prompt"]["stops"])
        salt = _bytes(self.data["prompt"]["salt"])
        vouchers = [
            self._voucher(domain, index, entry) for index, entry in enumerate(self.data["vouchers"])
        ]
        owed: dict[int, list[int]] = {}
        tokens: tuple[int, ...] = ()
        before: tuple[Terms, SessionState] | None = None
        orders, seeds = [], []
        rounds = proposed = accepted = 0
        paid = True
        for index, session in enumerate(self.data["sessions"]):
            self.where = f"sessions[{index}]"
            terms = self._terms(domain, session, before)
            order = terms.order
            if prompt_hash(salt, prompt) != order.prompt_hash:
                raise ReceiptError(self.where, "promptHash is not the hash of this prompt")
            if tuple(map(stop_string_hash, stops)) != order.stop_string_hashes:
                raise ReceiptError(self.where, "stop strings are not the order's")
            if extend_context(order.prompt_hash, tokens) != order.start_context:
                raise ReceiptError(self.where, "the session does not go on from the output so far")
            state = SessionState.begin(terms)
            for number, entry in enumerate(session["rounds"]):
                self.where = f"sessions[{index}].rounds[{number}]"
                done = Round.from_wire(bytes.fromhex(entry["frames"]))
                if done.draft is not None:
                    check_draft(terms, state, done.draft)
                    self._count("draft commitments")
                    proposed += len(done.draft.leaves)
                check_verdict(terms, state, done.draft, done.verdict)
                self._count("verdicts")
                self._count("accept rules", len(done.verdict.leaves))
                state = advance(terms, state, done)
                accepted += done.verdict.verdict.k
                rounds += 1
                paid &= self._covered(terms, done, entry, vouchers, owed)
            tokens += state.tokens
            orders.append(order)
            seeds.append(terms.seed)
            before = (terms, state)
        if not orders:
            raise ReceiptError("sessions", "empty")
        self.where = "tokenIds"
        if list(tokens) != self.data["tokenIds"]:
            raise ReceiptError(self.where, "the output is not what the rounds emitted")
        self._pay(vouchers, owed)
        return Checked(
            domain,
            tuple(orders),
            tuple(seeds),
            prompt,
            stops,
            tokens,
            rounds,
            proposed,
            accepted,
            paid,
            all(order.lossless for order in orders),
            self.checks,
        )

    def _terms(
        self, domain: Domain, session: Mapping[str, Any], before: tuple[Terms, SessionState] | None
    ) -> Terms:
        """Order and start with all six signatures, the seed, and the succession."""
        order = Order.from_json(session["order"])
        start = SessionStart.from_json(session["start"])
        terms = Terms(
            domain,
            order,
            _three(session["orderSignatures"]),
            start,
            _three(session["startSignatures"]),
        )
        terms.check()
        self._count("order and start signatures", 6)
        nonces = [_bytes(nonce) for nonce in self.data["nonces"]]
        if order.seed_policy == SeedPolicy.CLIENT:
            prompt = [int(token) for token in self.data["prompt"]["tokenIds"]]
            number = int.from_bytes(nonces[0], "big", signed=True)
            seed = coins.client_seed(number, order.target_model, prompt)
        else:
            committed = (order.nonce_commit_client, order.nonce_commit_verifier)
            if tuple(map(coins.nonce_commitment, nonces)) != committed:
                raise ReceiptError(self.where, "a nonce is not the one committed to")
            seed = coins.joint_seed(order.request_id, *nonces)
        if seed != start.seed:
            raise ReceiptError(self.where, "the seed does not follow from the nonces")
        self._count("seeds")
        if before is None:
            if order.parent_session != ZERO32:
                raise ReceiptError(self.where, "the first session has a parent")
        elif (order.parent_session, order.request_id, order.start_position) != (
            before[0].order.session_id,
            before[0].order.request_id,
            before[1].position,
        ):
            raise ReceiptError(self.where, "not the successor of the session before")
        return terms

    def _voucher(
        self, domain: Domain, index: int, entry: Mapping[str, Any]
    ) -> tuple[Voucher, tuple[bytes | None, ...]]:
        self.where = f"vouchers[{index}]"
        voucher = Voucher.from_json(entry["voucher"])
        signatures = tuple(None if s is None else _bytes(s) for s in entry["signatures"])
        if len(signatures) != 3:
            raise ReceiptError(self.where, "three signatures, null where one is missing")
        return voucher, signatures

    def _covered(
        self,
        terms: Terms,
        done: Round,
        entry: Mapping[str, Any],
        vouchers: Sequence[tuple[Voucher, tuple[bytes | None, ...]]],
        owed: dict[int, list[int]],
    ) -> bool:
        """Checks that the round lies under its voucher, and the voucher's signatures once."""
        if "voucher" not in entry:
            return False
        index = int(entry["voucher"])
        voucher, signatures = vouchers[index]
        order = terms.order
        if voucher.lane != order.lane.id:
            raise ReceiptError(self.where, "the voucher is another lane's")
        if index not in owed:
            owed[index] = [0, 0, 0, 0]
            for role, party, signature in zip(PARTIES, terms.parties, signatures, strict=True):
                if signature is not None:
                    check_signature(terms.domain, role, party, voucher, signature)
                    self._count("voucher signatures")
        record = round_record(done)
        proof = _proof(entry["proof"])
        if proof.count != voucher.leaf_count:
            raise ReceiptError(self.where, "the proof is of another tree")
        top = proof.top_of(trees.round_leaf(record))
        root = trees.settled_root(top.hash, voucher.sums, voucher.leaf_count, voucher.base_root)
        if root != voucher.root:
            raise ReceiptError(self.where, "the round does not lie under the voucher's root")
        if voucher.base_root == ZERO32 and top.sums != voucher.sums:
            raise ReceiptError(self.where, "the tree's sums are not the voucher's")
        self._count("rounds under a voucher's root")
        dues = payments.dues(
            record.output, record.accepted, order.price_accepted, order.price_output
        )
        total = owed[index]
        total[0] += 1
        total[1] += dues.drafter
        total[2] += dues.verifier
        total[3] += record.output
        return all(signatures)

    def _pay(
        self,
        vouchers: Sequence[tuple[Voucher, tuple[bytes | None, ...]]],
        owed: Mapping[int, Sequence[int]],
    ) -> None:
        """A voucher pays at least its rounds in this receipt, and exactly them when it has no
        others."""
        for index, (rounds, drafter, verifier, output) in owed.items():
            self.where = f"vouchers[{index}]"
            voucher = vouchers[index][0]
            if (
                voucher.due_drafter < drafter
                or voucher.due_verifier < verifier
                or voucher.output < output
            ):
                raise ReceiptError(self.where, "pays less than these rounds are worth")
            alone = voucher.leaf_count == rounds and voucher.base_root == ZERO32
            if alone and (voucher.due_drafter, voucher.due_verifier) != (drafter, verifier):
                raise ReceiptError(self.where, "pays more than its rounds are worth")
            self._count("vouchers' dues")


def _bytes(text: Any) -> bytes:
    if not isinstance(text, str) or not text.startswith("0x"):
        raise ValueError(f"not a 0x… string: {text!r:.40}")
    return bytes.fromhex(text[2:])


def _three(texts: Sequence[Any]) -> tuple[bytes, bytes, bytes]:
    first, second, third = (_bytes(text) for text in texts)
    return first, second, third


def _proof(data: Mapping[str, Any]) -> trees.SumProof:
    siblings = tuple(
        trees.SumNode(_bytes(node["hash"]), _sums(_bytes(node["sums"])))
        for node in data["siblings"]
    )
    return trees.SumProof(int(data["index"]), int(data["count"]), siblings)


def _sums(packed: bytes) -> Sums:
    if len(packed) != 288:
        raise ValueError(f"sums have 288 bytes, not {len(packed)}")
    words = [int.from_bytes(packed[at : at + 32], "big") for at in range(0, 288, 32)]
    if words[0] >> 128:
        raise ValueError("the first word of sums holds two lanes")
    return Sums.from_words(words[0] & (2**64 - 1), words[0] >> 64, tuple(words[1:]))
