// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExpiringPause} from "./ExpiringPause.sol";
import {IJudgeClock} from "./interfaces/IJudgeClock.sol";
import {IStakeVault} from "./interfaces/IStakeVault.sol";

/// @title StakeTimes
/// @notice How long stake is held, and that this is longer than all those take who may judge it.
abstract contract StakeTimes is IStakeVault, ExpiringPause {
    /// @notice No span of `Times` is longer, so no sum of them overflows anything.
    uint32 public constant MAX_SPAN = 365 days;

    /// @notice Seconds in a slice.
    uint64 public immutable sliceLength;
    /// @notice Says how long a panel and its appeal really take; zero until there is a panel.
    IJudgeClock public clock;

    Times internal _times;

    error ZeroAddress(string what);
    error UnbondingTooShort(uint256 unbonding, uint256 needed);
    error JudgeTakesLonger(string what, uint256 span, uint256 given);
    error SpanTooLong(uint256 span, uint256 limit);
    error SpanZero();

    constructor(uint64 sliceLength_, Times memory times_) {
        if (sliceLength_ == 0) revert SpanZero();
        if (sliceLength_ > MAX_SPAN) revert SpanTooLong(sliceLength_, MAX_SPAN);
        sliceLength = sliceLength_;
        _setTimes(times_);
    }

    /// @notice Names whose spans `panel` and `appeal` must have room for, from now on.
    function setClock(IJudgeClock clock_) external onlyOwner {
        if (address(clock_) == address(0)) revert ZeroAddress("clock");
        clock = clock_;
        _requireTimeFor(clock_, _times);
        emit ClockSet(address(clock_));
    }

    /// @notice Changes the spans for batches and exits that begin from now on.
    function setTimes(Times calldata times_) external onlyOwner {
        _setTimes(times_);
    }

    function _setTimes(Times memory t) private {
        uint256 judged = _judged(t);
        uint256 needed = judged + t.margin;
        // INVARIANT: no stake leaves before everything it served for can have been judged.
        if (t.unbonding < needed) revert UnbondingTooShort(t.unbonding, needed);
        // INVARIANT: no exit is pushed beyond reach, and no sum of spans overflows.
        if (t.unbonding > MAX_SPAN) revert SpanTooLong(t.unbonding, MAX_SPAN);
        if (t.evidence == 0 || t.firstDeadline == 0 || t.secondDeadline == 0 || t.margin == 0) {
            revert SpanZero();
        }
        if (address(clock) != address(0)) _requireTimeFor(clock, t);
        _times = t;
        emit TimesChanged(t);
    }

    function _requireTimeFor(IJudgeClock clock_, Times memory t) private view {
        (uint256 panel, uint256 appeal) = clock_.spans();
        // INVARIANT: stake is held as long as those who judge it take.
        if (t.panel < panel) revert JudgeTakesLonger("panel", panel, t.panel);
        if (t.appeal < appeal) revert JudgeTakesLonger("appeal", appeal, t.appeal);
    }

    // ------------------------------------------------------------------ read

    /// @inheritdoc IStakeVault
    function times() external view returns (Times memory) {
        return _times;
    }

    /// @inheritdoc IStakeVault
    function lockWindow() public view returns (uint64) {
        return uint64(_judged(_times));
    }

    /// @inheritdoc IStakeVault
    /// @dev Slice 0 is no slice: lists end there.
    function sliceOf(uint256 timestamp) public view returns (uint64) {
        return uint64(timestamp / sliceLength) + 1;
    }

    function _judged(Times memory t) private pure returns (uint256) {
        return uint256(t.evidence) + t.firstDeadline + t.secondDeadline + t.panel + t.appeal;
    }
}
