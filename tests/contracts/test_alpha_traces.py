"""Whole histories of acceptance through AlphaLedger itself: counters, checkpoints, scores and flags
are those of `settlement.alpha.Ledger`, the oracle."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pyrevm
import pytest
from evm import Deployed, Reverted

from settlement.alpha import (
    BUCKETS,
    CHECKPOINT_PROPOSALS,
    Counts,
    Ledger,
    evaluate,
    find_flag,
)
from settlement.chain.compile import compile_contracts
from settlement.hashing import ZERO32, ZERO_ADDRESS
from settlement.records import Claim, Manifest, Sums, Tier

OWNER = b"\x01" * 20
ESCROW = b"\x02" * 20
DRAFTER = b"\x03" * 20
VERIFIERS = (b"\x04" * 20, b"\x05" * 20, b"\x06" * 20)
BOND = 10**18
STATUS_SUSPENDED = 2


@dataclass(frozen=True)
class Chain:
    """The ledger with what it stands on."""

    ledger: Deployed
    target: bytes


@pytest.fixture(scope="module")
def chain() -> Chain:
    artifacts = compile_contracts()
    evm = pyrevm.EVM(spec_id="PRAGUE")
    token = Deployed(evm, artifacts.require("DevToken"), OWNER, OWNER)
    registry = Deployed(evm, artifacts.require("ModelRegistry"), OWNER, OWNER)
    day = 24 * 3600
    vault = Deployed(
        evm,
        artifacts.require("StakeVault"),
        OWNER,
        OWNER,
        OWNER,
        token.address,
        registry.address,
        3600,
        (7 * day, day, day, 2 * day, 4 * day, 2 * day, 18 * day),
    )
    ledger = Deployed(
        evm,
        artifacts.require("AlphaLedger"),
        OWNER,
        OWNER,
        vault.address,
        registry.address,
        (CHECKPOINT_PROPOSALS, 1000, 5000, 5000, 1000, BOND),
        others=(artifacts.require("StakeVault"), artifacts.require("ModelRegistry")),
    )
    ledger.call("wire", ESCROW)
    manifest = Manifest("tiny", Tier.EXACT, b"\x07" * 32, b"\x08" * 32, 512, (0,), 1024)
    fields = (
        manifest.architecture,
        int(manifest.tier),
        manifest.weights_root,
        manifest.tokenizer_hash,
        manifest.vocab_size,
        list(manifest.eos_ids),
        manifest.context_length,
    )
    assert registry.call("register", fields) == (manifest.model_id,)
    return Chain(ledger, manifest.model_id)


@dataclass
class Trace:
    """One claim's life: what was settled, kept by the oracle for the claim and each verifier."""

    claim: Claim
    whole: Ledger = field(default_factory=Ledger)
    own: dict[bytes, Ledger] = field(default_factory=dict)

    def add(self, verifier: bytes, counts: Counts) -> None:
        self.whole = self.whole.add(counts)
        self.own[verifier] = self.own.get(verifier, Ledger()).add(counts)

    def order_of(self, verifier: bytes) -> int:
        """1, 2, … as verifiers settled first; dictionaries keep that order."""
        return list(self.own).index(verifier) + 1

    def series(self) -> list[tuple[bytes, Ledger, int]]:
        """(address on chain, oracle, order) of the claim and of each verifier."""
        own = [(v, ledger, self.order_of(v)) for v, ledger in self.own.items()]
        return [(ZERO_ADDRESS, self.whole, 0), *own]


def outcome(rng: Random, claim: Claim, shift: float) -> Counts:
    """What one settlement adds: some buckets, each accepted at about its rate plus `shift`."""
    proposed, accepted = [0] * BUCKETS, [0] * BUCKETS
    for bucket in rng.sample(range(BUCKETS), rng.randint(1, 6)):
        n = rng.randint(0, rng.choice((20, 300, 2_000)))
        truth = min(0.995, max(0.0, claim.rates[bucket] / 100 + shift))
        proposed[bucket] = n
        accepted[bucket] = sum(rng.random() < truth for _ in range(n))
    return Counts(tuple(proposed), tuple(accepted))


def play(chain: Chain, seed: int) -> tuple[bool, int]:
    """Replays one trace. (flagged, tests compared)."""
    rng = Random(seed)
    claim = Claim(
        DRAFTER,
        chain.target,
        ZERO32,
        1,
        1 << 16,
        tuple(rng.randint(6, 99) for _ in range(BUCKETS)),
        seed,
    )
    (claim_id,) = chain.ledger.call("register", claim.to_abi(), sender=DRAFTER)
    assert claim_id == claim.struct_hash
    trace = Trace(claim)
    shift = rng.choice((0.0, 0.02, -0.05, -0.1, -0.2))
    compared = 0
    for _ in range(rng.randint(3, 14)):
        counts = outcome(rng, claim, shift)
        verifier = rng.choice(VERIFIERS)
        sums = Sums(sum(counts.proposed), sum(counts.accepted), counts.proposed, counts.accepted)
        words = [sums.output | sums.accepted << 64, *sums.buckets]
        chain.ledger.call("record", claim_id, DRAFTER, verifier, words, sender=ESCROW)
        trace.add(verifier, counts)
        for address, ledger, order in trace.series():
            end = ledger.newest_number
            state = chain.ledger.call("seriesOf", claim_id, address)
            assert state == (1, end, 0, order, 0)
            for _ in range(3 if end else 0):
                bucket = rng.randrange(BUCKETS)
                first = rng.randrange(end)
                last = rng.randint(first + 1, end)
                expected = evaluate(ledger, claim.rates, bucket, first, last, verifier_order=order)
                found = chain.ledger.call("scoreOf", claim_id, address, bucket, first, last)
                assert found == (expected.score, expected.threshold)
                compared += 1
        if flag_agrees(chain, trace, claim_id, rng):
            return True, compared
    return False, compared


def flag_agrees(chain: Chain, trace: Trace, claim_id: bytes, rng: Random) -> bool:
    """Whether the oracle flags the newest state; the contract must do what it does."""
    for address, ledger, order in trace.series():
        end = ledger.newest_number
        if end == 0:
            continue
        found = find_flag(ledger, trace.claim.rates, verifier_order=order)
        if found is not None:
            bucket, start, _ = found
            chain.ledger.call("flag", claim_id, address, bucket, start, end)
            assert chain.ledger.call("claimOf", claim_id)[0][3] == STATUS_SUSPENDED
            return True
        bucket, start = rng.randrange(BUCKETS), rng.randrange(end)
        with pytest.raises(Reverted) as refused:
            chain.ledger.call("flag", claim_id, address, bucket, start, end)
        expected = evaluate(ledger, trace.claim.rates, bucket, start, end, verifier_order=order)
        assert refused.value.name == "TestPasses"
        assert refused.value.arguments == (expected.score, expected.threshold)
    return False


@pytest.mark.parametrize("traces", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_scores_and_flags_of_whole_traces_agree(chain: Chain, traces: int) -> None:
    results = [play(chain, 1_000_000 * traces + seed) for seed in range(traces)]
    flagged = sum(flag for flag, _ in results)
    # Both happen, else one half of the comparison would be empty.
    assert 0 < flagged < traces
    assert sum(compared for _, compared in results) > 20 * traces
