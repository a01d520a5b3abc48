// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "forge-std/Test.sol";

import {System} from "./System.sol";

/// @notice Over any sequence of calls to all contracts together: every unit is somewhere, the honest
/// lose nothing, and when all deadlines have passed everybody can leave with all that is theirs.
/// forge-config: default.invariant.runs = 256
/// forge-config: default.invariant.depth = 128
/// forge-config: default.invariant.fail-on-revert = true
/// forge-config: million.invariant.runs = 8192
/// forge-config: million.invariant.depth = 128
/// forge-config: million.invariant.fail-on-revert = true
contract SystemInvariants is Test {
    System internal system;
    bytes4[] internal moves;

    function setUp() public {
        system = new System();
        system.open();
        moves = [
            System.reserve.selector,
            System.settle.selector,
            System.thaw.selector,
            System.stake.selector,
            System.unstake.selector,
            System.leave.selector,
            system.capture.selector,
            system.draw.selector,
            system.openSample.selector,
            system.expireDraw.selector,
            system.demandLeaf.selector,
            system.answerLeaf.selector,
            system.expireLeaf.selector,
            system.demandText.selector,
            system.answerText.selector,
            system.contestText.selector,
            system.endText.selector,
            System.accuse.selector,
            System.fileNothing.selector,
            System.forfeit.selector,
            System.flag.selector,
            System.answerCase.selector,
            System.endCase.selector,
            System.pull.selector,
            System.wait_.selector,
            System.setTerms.selector,
            System.pause.selector
        ];
        targetContract(address(system));
        targetSelector(FuzzSelector(address(system), moves));
    }

    function invariant_system() public view {
        system.check();
    }

    /// @dev At the end of each run everyone leaves.
    function afterInvariant() public {
        system.leaveAltogether();
    }

    /// @dev Every handler does what it is there to do, often enough. Prints how often.
    function test_EveryMoveIsMade() public {
        uint256 state = 1;
        for (uint256 i; i < 2_000; ++i) {
            state = uint256(keccak256(abi.encode(state)));
            bytes4 move = moves[state % moves.length];
            bytes memory arguments = abi.encode(state >> 8, (state >> 16) % 2, (state >> 24) % 2);
            // solhint-disable-next-line avoid-low-level-calls
            (bool ok,) = address(system).call(bytes.concat(move, _fit(move, arguments)));
            assertTrue(ok, "a handler reverted");
            system.check();
        }
        system.leaveAltogether();
        for (uint256 i; i < moves.length; ++i) {
            uint256 tried = system.tried(moves[i]);
            uint256 well = system.done(moves[i]);
            emit log_named_string(
                vm.toString(moves[i]), string.concat(vm.toString(well), " of ", vm.toString(tried))
            );
            // A case is mostly answered by the move that opens it.
            if (moves[i] != System.answerCase.selector) {
                assertGt(well, 0, "a move that never succeeds");
            }
        }
    }

    /// @dev Narrow first arguments must have clean upper bits.
    function _fit(bytes4 move, bytes memory arguments) private pure returns (bytes memory) {
        if (move == System.wait_.selector || move == System.pause.selector) {
            (uint256 first,,) = abi.decode(arguments, (uint256, uint256, uint256));
            return abi.encode(uint32(first));
        }
        return arguments;
    }
}
