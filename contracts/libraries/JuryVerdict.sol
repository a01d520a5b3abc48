// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IJuries} from "../interfaces/IJuries.sol";
import {Fingerprints} from "./Fingerprints.sol";

/// @title JuryVerdict
/// @notice What a jury's answers come to. One seat, one voice: stake has had its weight in the draw.
/// @dev `settlement/panels.py` says the same; shared vectors hold both to it.
library JuryVerdict {
    enum Result {
        NONE,
        GUILTY, // what was said is not what the model says
        CLEARED,
        WITHHELD, // members were not given what they need
        VOID // too few answers to say anything
    }

    /// @notice What answers are held against.
    struct Measure {
        bool exact;
        bool printed; // fingerprints count; never without in the exact tier's F9
        uint64 margin; // float tier: the most that honest runs differ by
        uint64 distance;
        bytes32 print; // V's, opened
        bytes32 expected; // exact tier: the one hash of what was said
    }

    /// @notice The result of answers from a jury of `answers.length` seats.
    /// @dev Every quorum is of all seats, so silence never turns a minority into a verdict. Medians are
    /// the lower ones: of an even number of answers, doubt is the accused's.
    function resultOf(IJuries.Answer[] memory answers, Measure memory m)
        internal
        pure
        returns (Result)
    {
        uint256 seats = answers.length;
        IJuries.Answer[] memory judged = new IJuries.Answer[](seats);
        uint256 count;
        uint256 withheld;
        for (uint256 i; i < seats; ++i) {
            if (!answers[i].revealed) continue;
            if (answers[i].withheld) ++withheld;
            else judged[count++] = answers[i];
        }
        if (2 * withheld > seats) return Result.WITHHELD;
        // INVARIANT: no verdict without a majority of the seats behind it.
        if (2 * count <= seats) return Result.VOID;
        return m.exact ? _exact(judged, count, seats, m.expected) : _float(judged, count, m);
    }

    /// @notice Whether one answer finds the place right.
    function passes(IJuries.Answer memory answer, Measure memory m) internal pure returns (bool) {
        if (m.exact) return answer.print == m.expected;
        if (answer.margin > m.margin) return false;
        return !m.printed || Fingerprints.distance(answer.print, m.print) <= m.distance;
    }

    function _exact(IJuries.Answer[] memory judged, uint256 count, uint256 seats, bytes32 expected)
        private
        pure
        returns (Result)
    {
        for (uint256 i; i < count; ++i) {
            uint256 same;
            for (uint256 j; j < count; ++j) {
                if (judged[j].print == judged[i].print) ++same;
            }
            if (2 * same > seats) {
                return judged[i].print == expected ? Result.CLEARED : Result.GUILTY;
            }
        }
        return Result.VOID;
    }

    function _float(IJuries.Answer[] memory judged, uint256 count, Measure memory m)
        private
        pure
        returns (Result)
    {
        uint64[] memory values = new uint64[](count);
        for (uint256 i; i < count; ++i) {
            values[i] = judged[i].margin;
        }
        if (_median(values) > m.margin) return Result.GUILTY;
        if (!m.printed) return Result.CLEARED;
        for (uint256 i; i < count; ++i) {
            values[i] = Fingerprints.distance(judged[i].print, m.print);
        }
        return _median(values) > m.distance ? Result.GUILTY : Result.CLEARED;
    }

    /// @dev The lower median, by insertion: at most fifteen values.
    function _median(uint64[] memory values) private pure returns (uint64) {
        for (uint256 i = 1; i < values.length; ++i) {
            uint64 value = values[i];
            uint256 place = i;
            for (; place > 0 && values[place - 1] > value; --place) {
                values[place] = values[place - 1];
            }
            values[place] = value;
        }
        return values[(values.length - 1) / 2];
    }
}
