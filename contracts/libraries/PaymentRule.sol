// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title PaymentRule
/// @notice Who is paid what out of a reserve: the arithmetic of `settlement/payments.py`.
/// @dev Bounds: reserve and paid below 2**96, due below 2**128, bps at most 10,000: nothing overflows.
library PaymentRule {
    uint256 internal constant BPS = 10_000;

    /// @notice What the lane's reserve grants each payee now, before their own stake caps it.
    ///
    /// While the reserve covers both, each gets what it is due. When it does not, all the epoch ever
    /// had to give (what is left, fee apart, and what was paid) is divided by the two dues, rounded
    /// down, and each gets what it lacks to its part. Since that division does not change when one
    /// of them is paid, nobody gains by coming first, by coming often, or by leaving out the other's
    /// signature.
    function grantsDown(
        uint256 reserve,
        uint256 feeBps,
        uint256 dueDrafter,
        uint256 dueVerifier,
        uint256 paidDrafter,
        uint256 paidVerifier
    ) internal pure returns (uint256 toDrafter, uint256 toVerifier) {
        unchecked {
            // INVARIANT: a watermark never falls; a voucher older than it is owed nothing.
            toDrafter = dueDrafter > paidDrafter ? dueDrafter - paidDrafter : 0;
            toVerifier = dueVerifier > paidVerifier ? dueVerifier - paidVerifier : 0;
            // INVARIANT: what is granted and the fee on it fit the reserve.
            uint256 budget = reserve * BPS / (BPS + feeBps);
            if (toDrafter + toVerifier <= budget) return (toDrafter, toVerifier);

            uint256 given = budget + paidDrafter + paidVerifier;
            uint256 due = dueDrafter + dueVerifier;
            uint256 partDrafter = given * dueDrafter / due;
            uint256 partVerifier = given * dueVerifier / due;
            toDrafter = _least(toDrafter, _lack(partDrafter, paidDrafter), budget);
            toVerifier = _least(toVerifier, _lack(partVerifier, paidVerifier), budget);
        }
    }

    /// @notice The audit fee on `paid`, rounded up.
    function feeUp(uint256 paid, uint256 feeBps) internal pure returns (uint256) {
        unchecked {
            return (paid * feeBps + BPS - 1) / BPS;
        }
    }

    /// @notice Most that stake of `lockable` lets a payee be paid.
    /// @param lockRateQ32 Stake units locked for each unit paid, in Q32.
    function roomDown(uint256 lockable, uint256 lockRateQ32) internal pure returns (uint256) {
        return (lockable << 32) / lockRateQ32;
    }

    /// @notice Stake to lock for `paid`; at most `lockable` whenever paid ≤ roomDown(lockable).
    function lockUp(uint256 paid, uint256 lockRateQ32) internal pure returns (uint256) {
        return (paid * lockRateQ32 + type(uint32).max) >> 32;
    }

    function _lack(uint256 part, uint256 paid) private pure returns (uint256) {
        unchecked {
            return part > paid ? part - paid : 0;
        }
    }

    function _least(uint256 a, uint256 b, uint256 c) private pure returns (uint256) {
        uint256 low = a < b ? a : b;
        return low < c ? low : c;
    }
}
