// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AlphaLedger} from "../AlphaLedger.sol";
import {IAlphaLedger} from "../interfaces/IAlphaLedger.sol";
import {Role} from "../interfaces/IStakeVault.sol";
import {Records} from "../libraries/Records.sol";
import {Deployed} from "./Deployed.sol";

/// @notice The real ledger and the real vault; the escrow's calls are made in its name.
abstract contract LedgerWork is Deployed {
    AlphaLedger internal alpha;
    address internal caseJudge = makeAddr("panel");
    address internal flagger = makeAddr("flagger");
    bytes32 internal target;
    bytes32 internal draft;

    uint256 internal constant W = 512;
    uint128 internal constant BOND = 1_000 ether;

    function setUp() public virtual override {
        super.setUp();
        alpha = new AlphaLedger(owner, vault, registry, _ledgerParameters());
        target = registry.register(_manifest("target"));
        draft = registry.register(_manifest("draft"));
        vm.startPrank(owner);
        alpha.wire(address(escrow));
        alpha.setJudge(caseJudge, true);
        vault.setSlasher(address(alpha), true);
        vm.stopPrank();
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, STAKE);
        _fund(drafter.addr, address(alpha), 10 * BOND);
    }

    function _ledgerParameters() internal pure returns (IAlphaLedger.Parameters memory) {
        return IAlphaLedger.Parameters({
            spacing: uint32(W),
            lateBps: 1_000,
            silentBps: 5_000,
            refutedBps: 5_000,
            rewardBps: 1_000,
            bond: BOND
        });
    }

    function _manifest(string memory name) internal pure returns (Records.Manifest memory) {
        return Records.Manifest({
            architecture: name,
            tier: 0,
            weightsRoot: keccak256(bytes(name)),
            tokenizerHash: keccak256("tokenizer"),
            vocabSize: 512,
            eosIds: new uint32[](0),
            contextLength: 1024
        });
    }

    function _claim(uint8 rate) internal view returns (Records.Claim memory claim) {
        claim.drafter = drafter.addr;
        claim.targetModel = target;
        claim.draftModel = draft;
        claim.mode = 1;
        claim.maxTemperature = 1 << 16;
        for (uint256 i; i < 16; ++i) {
            claim.rates[i] = rate;
        }
    }

    function _register(uint8 rate) internal returns (bytes32) {
        vm.prank(drafter.addr);
        return alpha.register(_claim(rate));
    }

    function _delta(uint256 bucket, uint256 proposed, uint256 accepted)
        internal
        pure
        returns (uint256[9] memory delta)
    {
        uint256 shift = 64 * (bucket % 4);
        delta[0] = proposed | (accepted << 64);
        delta[1 + bucket / 4] = proposed << shift;
        delta[5 + bucket / 4] = accepted << shift;
    }

    function _record(bytes32 id, address v, uint256 bucket, uint256 proposed, uint256 accepted)
        internal
    {
        vm.prank(address(escrow));
        alpha.record(id, drafter.addr, v, _delta(bucket, proposed, accepted));
    }

    function _newest(bytes32 id, address v) internal view returns (uint256 newest) {
        (, newest,,,) = alpha.seriesOf(id, v);
    }

    /// @dev A claim of 80 % that was met for 2,000 proposals and missed by a quarter for 2,000 more.
    function _flagged() internal returns (bytes32 id, uint64 caseId) {
        id = _register(80);
        _record(id, verifier.addr, 3, 2_000, 1_600);
        _record(id, verifier.addr, 3, 2_000, 1_200);
        vm.prank(flagger);
        caseId = alpha.flag(id, address(0), 3, 1, 2);
    }

    function _answered() internal returns (bytes32 id, uint64 caseId) {
        (id, caseId) = _flagged();
        vm.prank(drafter.addr);
        alpha.assertDraftModel(caseId);
    }

    function _stage(uint64 caseId) internal view returns (IAlphaLedger.Stage) {
        return alpha.caseOf(caseId).stage;
    }

    function _status(bytes32 id) internal view returns (IAlphaLedger.Status) {
        return alpha.claimOf(id).status;
    }

    function _drafterStake() internal view returns (uint256) {
        return vault.slashable(drafter.addr, Role.DRAFTER);
    }
}
