// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title BucketHistory
/// @notice A running count of sixteen buckets, and what it was at earlier times: checkpoint k is
/// read in O(1), a count is added in O(1), and the storage of one history is bounded.
/// @dev A checkpoint is four words: proposed in buckets 0–7, proposed in 8–15, accepted in 0–7,
/// accepted in 8–15. A word holds eight lanes of 30 bits, bucket b at bits 30·(b mod 8), and in its
/// top 16 bits a quarter of the total of all proposals, lowest quarter first.
///
/// Lanes count modulo 2**30 and the total does not: where two checkpoints' totals lie less than
/// 2**30 apart, every lane's difference does too and is exact. So a count of any size fits, and only
/// an interval of more than a thousand million proposals cannot be read at once.
///
/// Checkpoint 0 is the empty beginning and needs no storage. Checkpoints 1 … `closed` are fixed. If
/// `open`, checkpoint closed + 1 exists too and still grows: the newest state. The last
/// `KEPT` are held in a ring; older ones are overwritten, which makes a history's cost settle at
/// rewriting slots that are already in use.
library BucketHistory {
    /// @notice There is no such checkpoint, or it has been overwritten.
    error CheckpointUnknown(uint256 checkpoint, uint256 oldest, uint256 newest);

    /// @notice From and to are the same checkpoint or stand the wrong way round.
    error IntervalEmpty(uint256 from, uint256 to);

    /// @notice More proposals lie between the two than one interval can hold; take a shorter one.
    error IntervalTooLong(uint256 proposals, uint256 limit);

    /// @notice Checkpoints held, besides the beginning.
    uint256 internal constant KEPT = 512;

    uint256 internal constant LANE_BITS = 30;
    uint256 internal constant LANE_MASK = (1 << 30) - 1;
    uint256 internal constant TOTAL_SHIFT = 240;

    /// @dev The low 30 bits of each of four uint64 lanes.
    uint256 private constant LOW_BITS =
        0x000000003fffffff000000003fffffff000000003fffffff000000003fffffff;

    /// @dev The top bit of each of eight 30-bit lanes.
    uint256 private constant LANE_TOPS = (1 << 29) | (1 << 59) | (1 << 89) | (1 << 119) | (1 << 149)
        | (1 << 179) | (1 << 209) | (1 << 239);
    uint256 private constant ALL_LANES = (1 << 240) - 1;

    struct Series {
        uint32 closed; // index of the last fixed checkpoint
        uint32 floor; // tests start no earlier
        uint32 order; // when its party first appeared: 1, 2, …; zero for the whole claim
        uint32 era; // of the claim's rates that its newest counts stand under
        bool open; // checkpoint closed + 1 exists
        bool full; // the total has reached its end: nothing more is counted
        uint64 closedTotal; // proposals at checkpoint `closed`
        uint256[4][KEPT] ring; // checkpoint k at (k − 1) mod KEPT
    }

    // ------------------------------------------------------------------ writing

    /// @notice Count `delta`: nine words, of which the first is passed over, then proposed and accepted
    /// by bucket, four uint64 lanes a word.
    /// @param spacing Proposals after which the newest state becomes a fixed checkpoint.
    /// @return newest Index of the checkpoint that now holds the counts.
    /// @return full Nothing was counted, because the total would pass 2**64.
    function add(Series storage series, uint256[9] memory delta, uint256 spacing)
        internal
        returns (uint256 newest, bool full)
    {
        unchecked {
            uint256 closed = series.closed;
            uint256 index = series.open ? closed + 1 : closed;
            uint256 more = proposals(delta);
            // Nothing new is no new state.
            if (more == 0) return (index, false);
            uint256[4] memory words;
            if (index != 0) words = series.ring[(index - 1) % KEPT];

            uint256 total = totalOf(words) + more;
            newest = closed + 1;
            // INVARIANT: the total never wraps, for intervals are exact only by it. Sixteen lanes
            // below 2**64 cannot wrap the sum itself.
            if (series.full || total > type(uint64).max || newest > type(uint32).max) {
                series.full = true;
                return (index, true);
            }

            uint256[4] storage to = series.ring[closed % KEPT];
            for (uint256 i; i < 4; ++i) {
                uint256 lanes = addLanes(words[i], packLanes(delta[2 * i + 1], delta[2 * i + 2]));
                to[i] = lanes | (total >> 16 * i & 0xffff) << TOTAL_SHIFT;
            }
            if (total - series.closedTotal >= spacing) {
                // Both casts are guarded above.
                series.closed = uint32(newest);
                series.closedTotal = uint64(total);
                series.open = false;
            } else {
                series.open = true;
            }
        }
    }

    /// @notice Fix the newest state as a checkpoint now, and let tests start there at the earliest.
    function restart(Series storage series) internal {
        if (series.open) {
            uint32 closed = series.closed + 1;
            series.closedTotal = uint64(totalOf(series.ring[(closed - 1) % KEPT]));
            series.closed = closed;
            series.open = false;
        }
        series.floor = series.closed;
    }

    // ------------------------------------------------------------------ reading

    /// @notice Index of the newest state.
    function newestOf(Series storage series) internal view returns (uint256) {
        return series.open ? uint256(series.closed) + 1 : series.closed;
    }

    /// @notice Index of the earliest checkpoint still held, besides 0.
    function oldestOf(Series storage series) internal view returns (uint256) {
        uint256 newest = newestOf(series);
        return newest > KEPT ? newest - KEPT + 1 : 1;
    }

    /// @notice The four words of a checkpoint.
    function checkpointAt(Series storage series, uint256 checkpoint)
        internal
        view
        returns (uint256[4] memory words)
    {
        if (checkpoint == 0) return words;
        uint256 newest = newestOf(series);
        uint256 oldest = oldestOf(series);
        // INVARIANT: an overwritten slot is never read under its old index.
        if (checkpoint > newest || checkpoint < oldest) {
            revert CheckpointUnknown(checkpoint, oldest, newest);
        }
        return series.ring[(checkpoint - 1) % KEPT];
    }

    /// @notice What was counted after checkpoint `from`, up to and with `to`.
    /// @return counts Four words like a checkpoint's, without the total.
    function between(Series storage series, uint256 from, uint256 to)
        internal
        view
        returns (uint256[4] memory counts)
    {
        if (from >= to) revert IntervalEmpty(from, to);
        uint256[4] memory start = checkpointAt(series, from);
        uint256[4] memory end = checkpointAt(series, to);
        // Totals never fall, so later minus earlier cannot underflow.
        uint256 length = totalOf(end) - totalOf(start);
        // INVARIANT: lanes count modulo 2**30; only over a shorter interval is a difference exact.
        if (length > LANE_MASK) revert IntervalTooLong(length, LANE_MASK);
        for (uint256 i; i < 4; ++i) {
            counts[i] = subLanes(end[i], start[i]);
        }
    }

    /// @notice Proposed and accepted in one bucket of `between`'s counts.
    function inBucket(uint256[4] memory counts, uint256 bucket)
        internal
        pure
        returns (uint256 proposed, uint256 accepted)
    {
        unchecked {
            uint256 shift = LANE_BITS * (bucket % 8);
            proposed = counts[bucket / 8] >> shift & LANE_MASK;
            accepted = counts[2 + bucket / 8] >> shift & LANE_MASK;
        }
    }

    // ------------------------------------------------------------------ lanes

    /// @notice Proposals in all sixteen buckets of nine sum words.
    function proposals(uint256[9] memory sums) internal pure returns (uint256 sum) {
        unchecked {
            for (uint256 i = 1; i < 5; ++i) {
                uint256 word = sums[i];
                sum += (word & type(uint64).max) + (word >> 64 & type(uint64).max)
                    + (word >> 128 & type(uint64).max) + (word >> 192);
            }
        }
    }

    /// @notice All proposals up to a checkpoint.
    function totalOf(uint256[4] memory words) internal pure returns (uint256) {
        return words[0] >> TOTAL_SHIFT | (words[1] >> TOTAL_SHIFT) << 16 | (words[2] >> TOTAL_SHIFT)
            << 32 | (words[3] >> TOTAL_SHIFT) << 48;
    }

    /// @notice Two words of four uint64 lanes as eight lanes modulo 2**30.
    function packLanes(uint256 low, uint256 high) internal pure returns (uint256) {
        return squeeze(low) | squeeze(high) << 4 * LANE_BITS;
    }

    /// @dev Moves the lanes at bits 0, 64, 128, 192 to bits 0, 30, 60, 90.
    function squeeze(uint256 word) internal pure returns (uint256) {
        word &= LOW_BITS;
        return (word & LANE_MASK) | (word >> 34 & LANE_MASK << 30) | (word >> 68 & LANE_MASK << 60)
            | (word >> 102 & LANE_MASK << 90);
    }

    /// @notice Eight lanes added, each modulo 2**30; the top 16 bits come out zero.
    /// @dev Adds without each lane's top bit, then puts the top bits in: no carry crosses a lane.
    function addLanes(uint256 a, uint256 b) internal pure returns (uint256) {
        unchecked {
            a &= ALL_LANES;
            return ((a & ~LANE_TOPS) + (b & ~LANE_TOPS)) ^ ((a ^ b) & LANE_TOPS);
        }
    }

    /// @notice Eight lanes subtracted, each modulo 2**30; the top 16 bits come out zero.
    /// @dev Each lane borrows from its own top bit, which is put right afterwards.
    function subLanes(uint256 a, uint256 b) internal pure returns (uint256) {
        unchecked {
            a &= ALL_LANES;
            b &= ALL_LANES;
            return ((a | LANE_TOPS) - (b & ~LANE_TOPS)) ^ ((a ^ ~b) & LANE_TOPS);
        }
    }
}
