// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {StakeVault} from "../../StakeVault.sol";
import {Role} from "../../interfaces/IStakeVault.sol";
import {IStakeVault} from "../../interfaces/IStakeVault.sol";

/// @notice The escrow's view of a ledger: keeps what it was told.
contract LedgerDouble {
    mapping(bytes32 => address) public claimDrafter;
    mapping(bytes32 => mapping(address => uint256[9])) private _counts;
    uint256 public calls;

    function publish(bytes32 claimId, address drafter) external {
        claimDrafter[claimId] = drafter;
    }

    function record(bytes32 claimId, address drafter, address verifier, uint256[9] memory delta)
        external
    {
        require(claimDrafter[claimId] == drafter, "not the claim's drafter");
        ++calls;
        for (uint256 i; i < 9; ++i) {
            _counts[claimId][verifier][i] += delta[i];
        }
    }

    function counts(bytes32 claimId, address verifier) external view returns (uint256[9] memory) {
        return _counts[claimId][verifier];
    }
}

/// @notice The vault's and the escrow's view of a beacon: batches stay pending until told otherwise.
contract BeaconDouble {
    struct Registered {
        bytes32 entriesHash;
        uint32 entries;
        address token;
        uint64 slice;
    }

    Registered[] public batches;
    mapping(uint64 => uint256) public pendingIn;
    uint64 public drawn; // batches before this index have their randomness

    function registerBatch(bytes32 entriesHash, uint32 entries, address token, uint64 slice)
        external
        returns (uint64)
    {
        batches.push(Registered(entriesHash, entries, token, slice));
        ++pendingIn[slice];
        return uint64(batches.length);
    }

    function drawAll() external {
        for (; drawn < batches.length; ++drawn) {
            --pendingIn[batches[drawn].slice];
        }
    }

    function count() external view returns (uint256) {
        return batches.length;
    }
}

/// @notice A judge that finds whatever it is told to find.
contract JudgeDouble {
    StakeVault public immutable vault;

    constructor(StakeVault vault_) {
        vault = vault_;
    }

    function slash(
        address key,
        Role role,
        uint256 bps,
        IStakeVault.Victim[] calldata victims,
        address challenger,
        uint256 challengerBps,
        bytes32 fault
    ) external returns (IStakeVault.Slashed memory) {
        return vault.slash(key, role, bps, victims, challenger, challengerBps, fault);
    }
}
