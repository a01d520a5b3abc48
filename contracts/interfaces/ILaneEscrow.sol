// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Records} from "../libraries/Records.sol";

/// @title ILaneEscrow
/// @notice Clients' reserves by lane, and their payment to drafters and verifiers against cumulative
/// vouchers.
///
/// @dev Assumed of a token: listed by the owner; ERC-20; a transfer moves exactly the amount asked for
/// (no fee on transfer); no balance changes without a transfer (no rebasing); no call-back that
/// matters (every entry point is guarded all the same); less than 2**96 units exist. A deposit that
/// arrives short is refused by balance difference; a payout that leaves with more, too.
///
/// Rounding: payees' shares down, the client's audit fee up (at most one unit a settlement), locks up.
interface ILaneEscrow {
    /// @notice Where an epoch of a lane stands. The chain keeps 160 bits of its hash; whoever settles
    /// hands in the rest, from the last settlement's calldata or events, and learns at once by
    /// PositionStale if another settlement came between.
    struct Position {
        bytes32 headRoot; // last settled root; zero at the epoch's start
        bytes32 headBase; // the root that the head's tree goes on from
        uint256 paid; // to D | to V << 128, cumulative over the epoch: the two watermarks
        uint256 terms; // epoch | feeBps << 32 | leaves under the head << 48
        uint256[9] counted; // D's α watermark: cumulative sums of the last root that D signed
    }

    /// @notice Where a voucher's tree begins.
    enum Link {
        EXTENDS, // baseRoot is the head
        REPLACES, // baseRoot is the head's own base: the head again, or the same tree with more leaves
        BEHIND // baseRoot is given: the head has moved past what D signed; pays and counts, moves no head
    }

    /// @notice One client's voucher under the group it stands in. Lane id, epoch, base and root of
    /// the signed Voucher follow from the rest, so nothing is sent twice.
    struct LaneVoucher {
        address client;
        Position position;
        uint256 due; // to D | to V << 128, cumulative over the epoch
        uint256[9] sums; // output | accepted << 64, then the voucher's eight bucket words
        bytes32 top; // of the voucher's sum tree
        uint32 leafCount;
        Link link;
        bytes32 baseRoot; // read with Link.BEHIND only
        bytes32 drafterR; // EIP-2098 (r, vs); zero, zero: D has not signed, or sends this itself
        bytes32 drafterVS;
        bytes32 verifierR; // zero, zero: V sends this itself
        bytes32 verifierVS;
        bytes clientSignature; // 65 bytes, or what the client's ERC-1271 contract accepts; empty: C sends this
    }

    /// @notice Lanes of one drafter, verifier and claim: locked, paid and counted together.
    struct Group {
        address drafter;
        address verifier;
        bytes32 claimId;
        LaneVoucher[] lanes;
    }

    /// @notice What a settlement is charged and locks by. Never applied to a batch settled before;
    /// an epoch keeps the fee it was opened with.
    struct Parameters {
        uint16 feeBps; // audit fee on top of what is paid
        uint16 lockFactor; // stake locked per unit paid
        uint32 thawPeriod; // seconds
    }

    /// @notice What anyone may know of a lane from storage alone.
    struct LaneState {
        uint96 reserve; // collectable: thawing included
        uint96 thawing;
        uint64 thawedAt; // unix seconds; zero when nothing thaws
        uint64 soloFrom; // unix seconds from which V settles without D; zero: never
        uint32 epoch;
        uint160 position; // 160 bits of the current epoch's position hash
    }

    /// @notice Where every deposited unit of a token is. `deposited = reserves + fees + payable_ +
    /// withdrawn`, and the escrow's balance is `deposited − withdrawn`.
    struct EscrowAccounting {
        uint256 deposited;
        uint256 reserves;
        uint256 fees; // held for audits
        uint256 payable_; // earned, not yet pulled
        uint256 withdrawn;
    }

    event LaneOpened(bytes32 indexed lane, Records.Lane parties, uint16 feeBps);
    event Reserved(bytes32 indexed lane, address indexed from, uint256 amount);
    event EpochOpened(bytes32 indexed lane, uint32 epoch, uint16 feeBps, address by);
    event SoloNoticed(bytes32 indexed lane, uint64 soloFrom);
    event SoloEnded(bytes32 indexed lane);
    event ThawStarted(bytes32 indexed lane, uint256 thawing, uint64 thawedAt);
    event ThawCancelled(bytes32 indexed lane, uint256 thawing);
    event ThawCollected(bytes32 indexed lane, uint256 amount, address to);
    /// @notice One lane settled. Its position from here on follows from this and the call's data; the
    /// entries of a batch are (lane, root, figures) of these events of one transaction, in order,
    /// where figures has `Batches.DRAWABLE`.
    /// @param figures As `Batches.figures`.
    /// @param paid Both watermarks of the epoch after this payment.
    event LaneSettled(bytes32 indexed lane, bytes32 root, uint256 figures, uint256 paid);
    event LaneSkipped(bytes32 indexed lane, bytes4 reason);
    event BatchSettled(
        uint64 indexed batchId, address indexed token, bytes32 entriesHash, uint256 entries
    );
    event Credited(address indexed account, address indexed token, uint256 amount);
    event PaidOut(address indexed account, address indexed token, uint256 amount, address to);
    event FeeSpent(address indexed spender, address indexed token, uint256 amount, address to);
    event FeeSpenderSet(address indexed spender, bool allowed);
    /// @param stakePriceQ32 Zero when the token takes no more reserves.
    event TokenListed(address indexed token, uint128 stakePriceQ32);
    event ParametersChanged(Parameters parameters);

    // ------------------------------------------------------------------ read

    /// @notice The EIP-712 separator of every record of the protocol; right after a chain fork too.
    function domainSeparator() external view returns (bytes32);

    function parameters() external view returns (Parameters memory);

    function laneState(bytes32 lane) external view returns (LaneState memory);

    /// @notice 160 bits of the position hash of an epoch that is not the current one; zero if none.
    function pastPosition(bytes32 lane, uint32 epoch) external view returns (uint160);

    /// @notice What `account` can pull of `token`.
    function payableTo(address account, address token) external view returns (uint256);

    /// @notice `amount` of `token` in units of the stake token, rounded down; zero if not listed.
    function inStakeUnits(address token, uint256 amount) external view returns (uint256);

    function accounting(address token) external view returns (EscrowAccounting memory);

    // ------------------------------------------------------------------ clients

    /// @notice Adds to a lane's reserve, opening the lane if it is new. Anyone may pay; what is left
    /// over is the client's alone.
    function reserve(Records.Lane calldata lane, uint256 amount) external;

    /// @notice Starts to take `amount` out of the reserve. Only the client. The amount stays
    /// collectable by vouchers until it is collected.
    function thaw(Records.Lane calldata lane, uint256 amount) external;

    /// @notice Puts everything that thaws back. Only the client.
    function cancelThaw(Records.Lane calldata lane) external;

    /// @notice What has thawed goes to the client, as far as vouchers have left it. Only the client.
    function collectThawed(Records.Lane calldata lane, address to) external returns (uint256 amount);

    // ------------------------------------------------------------------ payees

    /// @notice Pays what vouchers are due beyond what was paid, in one token, up to 64 lanes. A lane
    /// that cannot be settled is skipped with LaneSkipped; only if all are does the call revert.
    /// @return batchId Zero when no root is new, so that nothing is drawn.
    function settle(address token, Group[] calldata groups) external returns (uint64 batchId);

    /// @notice V gives notice that, a thaw period from now, it settles this lane without D's signature.
    /// Until then D settles all it has signed; after it D should extend no credit on the lane, for C
    /// and V together can then empty the reserve. Only V.
    function noticeSolo(Records.Lane calldata lane) external returns (uint64 soloFrom);

    /// @notice Takes the notice back. Only V.
    function endSolo(Records.Lane calldata lane) external;

    /// @notice Leaves the lane's vouchers behind and starts counting anew. C, D or V. Vouchers of
    /// older epochs stay collectable.
    function openEpoch(Records.Lane calldata lane) external returns (uint32 epoch);

    /// @notice Sends all that `account` earned to its beneficiary. Anyone may call.
    function withdraw(address account, address token) external returns (uint256 amount);

    // ------------------------------------------------------------------ audits

    /// @notice Credits up to `amount` of the held fees to `to`. Only an authorised spender (DrawBeacon,
    /// AuditPanel). Never reverts for want of fees.
    /// @return spent What was there.
    function spendFees(address token, address to, uint256 amount) external returns (uint256 spent);
}
