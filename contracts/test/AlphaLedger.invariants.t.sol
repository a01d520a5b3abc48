// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "forge-std/Test.sol";

import {AlphaLedger} from "../AlphaLedger.sol";
import {IAlphaLedger} from "../interfaces/IAlphaLedger.sol";
import {LedgerWork} from "./LedgerWork.sol";

/// @notice Settles, flags, answers, waits and judges at random.
contract LedgerHandler is Test {
    AlphaLedger internal immutable _alpha;
    address internal immutable _escrow;
    address internal immutable _judge;
    address internal immutable _drafter;
    bytes32 internal immutable _id;

    address[3] public verifiers = [address(0x11), address(0x22), address(0x33)];
    uint256[16] public proposed;
    uint256[16] public accepted;
    uint256 public cases;
    uint256 public closed;

    constructor(AlphaLedger alpha, address escrow, address judge, address drafter, bytes32 id) {
        (_alpha, _escrow, _judge, _drafter, _id) = (alpha, escrow, judge, drafter, id);
    }

    function settle(uint256 who, uint256 bucket, uint256 n, uint256 share) external {
        bucket %= 16;
        n = bound(n, 0, 5_000);
        uint256 k = n * bound(share, 40, 100) / 100;
        uint256[9] memory delta;
        delta[1 + bucket / 4] = n << 64 * (bucket % 4);
        delta[5 + bucket / 4] = k << 64 * (bucket % 4);
        vm.prank(_escrow);
        _alpha.record(_id, _drafter, verifiers[who % 3], delta);
        proposed[bucket] += n;
        accepted[bucket] += k;
    }

    function flag(uint256 who, uint256 bucket, uint256 from) external {
        address v = who % 4 == 3 ? address(0) : verifiers[who % 4];
        (, uint256 newest, uint256 floor,,) = _alpha.seriesOf(_id, v);
        if (newest <= floor) return;
        from = bound(from, floor, newest - 1);
        bucket %= 16;
        try _alpha.flag(_id, v, bucket, from, newest) {
            ++cases;
        } catch {}
    }

    function answer() external {
        uint64 open = _alpha.claimOf(_id).openCase;
        vm.prank(_drafter);
        try _alpha.assertDraftModel(open) {} catch {}
    }

    function wait_(uint256 span) external {
        vm.warp(block.timestamp + bound(span, 1 hours, 3 days));
    }

    function move(uint256 which) external {
        uint64 open = _alpha.claimOf(_id).openCase;
        if (open == 0) return;
        IAlphaLedger.Stage stage = _alpha.caseOf(open).stage;
        if (stage == IAlphaLedger.Stage.ANSWERED) {
            if (which % 3 == 0) {
                vm.prank(_judge);
                _alpha.uphold(open);
                ++closed;
            } else {
                try _alpha.conclude(open) {
                    ++closed;
                } catch {}
            }
        } else if (which % 7 == 0) {
            try _alpha.expire(open) {} catch {}
        }
    }

    function pull() external {
        try _alpha.pullBond(_drafter) {} catch {}
    }
}

contract AlphaLedgerInvariants is LedgerWork {
    LedgerHandler internal handler;
    bytes32 internal id;

    function setUp() public override {
        super.setUp();
        id = _register(80);
        _fund(drafter.addr, address(alpha), 1_000 * BOND);
        handler = new LedgerHandler(alpha, address(escrow), caseJudge, drafter.addr, id);
        targetContract(address(handler));
    }

    /// forge-config: default.invariant.runs = 12
    /// forge-config: default.invariant.depth = 48
    function invariant_EveryBondIsCovered() public view {
        uint256 owed = alpha.bondPayable(drafter.addr) + alpha.bondPayable(alpha.DEAD());
        uint64 open = alpha.claimOf(id).openCase;
        if (open != 0 && alpha.caseOf(open).stage == IAlphaLedger.Stage.ANSWERED) owed += BOND;
        assertEq(alpha.bondsHeld(), owed);
        assertEq(token.balanceOf(address(alpha)), alpha.bondsHeld());
    }

    /// forge-config: default.invariant.runs = 12
    /// forge-config: default.invariant.depth = 48
    function invariant_TheWholeIsItsVerifiers() public view {
        uint256[16] memory proposed;
        uint256[16] memory accepted;
        for (uint256 i; i < 3; ++i) {
            _add(handler.verifiers(i), proposed, accepted);
        }
        uint256[16] memory wholeProposed;
        uint256[16] memory wholeAccepted;
        _add(address(0), wholeProposed, wholeAccepted);
        for (uint256 b; b < 16; ++b) {
            assertEq(proposed[b], wholeProposed[b]);
            assertEq(accepted[b], wholeAccepted[b]);
            assertEq(proposed[b], handler.proposed(b));
            assertEq(accepted[b], handler.accepted(b));
        }
    }

    function _add(address v, uint256[16] memory proposed, uint256[16] memory accepted)
        private
        view
    {
        uint256 newest = _newest(id, v);
        if (newest == 0) return;
        (uint256[16] memory p, uint256[16] memory a) = alpha.countsBetween(id, v, 0, newest);
        for (uint256 b; b < 16; ++b) {
            proposed[b] += p[b];
            accepted[b] += a[b];
        }
    }
}
