"""What is promised: models by their manifests, and acceptance rates with their counts and cases.

Amounts are in the stake token's smallest unit. Methods as `contracts` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from settlement.chain.contract import Owned
from settlement.chain.send_journal import Call
from settlement.records import BUCKETS, Claim, Manifest


class ModelRegistry(Owned):
    """Manifests by content."""

    def is_registered(self, model: bytes) -> bool:
        return bool(self.view("isRegistered", model))

    def register(self, manifest: Manifest) -> Call:
        return self.transact("register", manifest.to_abi())

    def tolerance_at(self, model: bytes, timestamp: int) -> tuple[int, int]:
        """(margin in Q24, fingerprint distance) that stood then; Reverted where none did."""
        margin, distance, _flips, _since = self.view("toleranceAt", model, timestamp)
        return int(margin), int(distance)

    def set_tolerance(self, model: bytes, margin_q24: int, distance: int, flip_ppm: int) -> Call:
        return self.transact("setTolerance", model, margin_q24, distance, flip_ppm)


class ClaimStatus(IntEnum):
    """IAlphaLedger.Status."""

    NONE = 0
    ACTIVE = 1
    SUSPENDED = 2
    VOID = 3


@dataclass(frozen=True)
class ClaimState:
    """IAlphaLedger.ClaimState, rates unpacked to percent."""

    drafter: bytes
    mode: int
    max_temperature: int
    status: ClaimStatus
    era: int
    verifiers: int
    rates: tuple[int, ...]
    open_case: int
    target_model: bytes
    draft_model: bytes


class AlphaLedger(Owned):
    """Claims of acceptance rates, their counts and cases."""

    def claim_drafter(self, claim_id: bytes) -> bytes:
        return bytes(self.view("claimDrafter", claim_id))

    def claim_of(self, claim_id: bytes) -> ClaimState:
        fields = list(self.view("claimOf", claim_id))
        fields[3] = ClaimStatus(fields[3])
        fields[6] = tuple(fields[6] >> 8 * bucket & 0xFF for bucket in range(BUCKETS))
        return ClaimState(*fields)

    def score_of(
        self, claim_id: bytes, verifier: bytes, bucket: int, start: int, end: int
    ) -> tuple[int, int]:
        """Log-likelihood ratio and its threshold, both at 2**20, between two checkpoints."""
        score, threshold = self.view("scoreOf", claim_id, verifier, bucket, start, end)
        return int(score), int(threshold)

    def escrow(self) -> bytes:
        return bytes(self.view("escrow"))

    def is_judge(self, judge: bytes) -> bool:
        return bool(self.view("isJudge", judge))

    def set_judge(self, judge: bytes, allowed: bool) -> Call:
        return self.transact("setJudge", judge, allowed)

    def register(self, claim: Claim) -> Call:
        return self.transact("register", claim.to_abi())

    def flag(self, claim_id: bytes, verifier: bytes, bucket: int, start: int, end: int) -> Call:
        return self.transact("flag", claim_id, verifier, bucket, start, end)

    def assert_draft_model(self, case_id: int) -> Call:
        return self.transact("assertDraftModel", case_id)

    def expire(self, case_id: int) -> Call:
        return self.transact("expire", case_id)

    def conclude(self, case_id: int) -> Call:
        return self.transact("conclude", case_id)

    def bond_of(self, account: bytes) -> int:
        """What the account can pull."""
        return int(self.view("bondPayable", account))

    def pull_bond(self, account: bytes) -> Call:
        return self.transact("pullBond", account)

    def wire(self, escrow: bytes) -> Call:
        return self.transact("wire", escrow)
