// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {DevToken} from "../../DevToken.sol";
import {ModelRegistry} from "../../ModelRegistry.sol";
import {StakeVault} from "../../StakeVault.sol";
import {IDrawBeacon} from "../../interfaces/IDrawBeacon.sol";
import {IStakeVault, Role} from "../../interfaces/IStakeVault.sol";

/// @notice For halmos, as `SymbolicRules`: any stake, part of it leaving, and any slash.
contract SymbolicSlash {
    StakeVault internal vault;
    DevToken internal token;

    function setUp() public {
        token = new DevToken(address(this));
        IStakeVault.Times memory t = IStakeVault.Times({
            evidence: 7 days,
            firstDeadline: 1 days,
            secondDeadline: 1 days,
            panel: 2 days,
            appeal: 4 days,
            margin: 2 days,
            unbonding: 18 days
        });
        vault = new StakeVault(
            address(this), address(0), address(token), new ModelRegistry(address(this)), 1 hours, t
        );
        vault.wire(address(1), IDrawBeacon(address(2)));
        vault.setSlasher(address(this), true);
        token.mint(address(this), type(uint96).max);
        token.approve(address(vault), type(uint256).max);
    }

    /// @dev At the prices that are deployed: a share times a stake, both open, is a product and a
    /// division that the solver does not come back from. Any share is the fuzzer's
    /// (`testFuzz_slash_split`), and so are stakes past 32 bits.
    function check_HalfOfAStakeAndAQuarterOfThat(uint32 stake, uint32 leaving) public {
        _slashed(stake, leaving, 5_000, 2_500);
    }

    function check_ATwentiethAndALittleOfThat(uint32 stake, uint32 leaving) public {
        _slashed(stake, leaving, 500, 400);
    }

    function _slashed(uint256 stake, uint256 leaving, uint256 bps, uint256 challengerBps) private {
        if (stake == 0 || leaving > stake) return;
        vault.stake(address(this), address(this), Role.VERIFIER, stake, new bytes32[](0));
        if (leaving != 0) vault.unstake(address(this), Role.VERIFIER, leaving);
        IStakeVault.Slashed memory s = vault.slash(
            address(this),
            Role.VERIFIER,
            bps,
            new IStakeVault.Victim[](0),
            address(3),
            challengerBps,
            "fault"
        );
        assert(s.total <= stake);
        assert(s.total != 0);
        assert(vault.slashable(address(this), Role.VERIFIER) == stake - s.total);
        assert(s.toVictims == 0 && s.toChallenger + s.burned == s.total);
        assert(4 * s.burned >= s.total);
        assert(2 * s.toChallenger <= s.total);
    }
}
