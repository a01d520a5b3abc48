// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";
import {SafeTransferLib} from "solady/utils/SafeTransferLib.sol";

import {ICourt} from "./interfaces/ICourt.sol";
import {ILaneEscrow} from "./interfaces/ILaneEscrow.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";
import {Evidence} from "./libraries/Evidence.sol";

/// @title Court
/// @notice What every court has: filings, bonds, and what a ruling costs the guilty and brings the
/// others. Which proofs it takes is its own.
///
/// @dev Why slashing oneself never pays. Whatever an operator makes up with friends (a session of its
/// own, prices of its own, a challenger of its own), challenger and victims together get at most half
/// of a slash, because `rewardBps + victimBps ≤ 5,000`; the other half is burned. So n slashes that a
/// coalition brings upon itself cost it at least ½(1 − (1 − f)ⁿ) of the stake, f = `faultBps`, and
/// the slash of f that it may fear afterwards falls on what is left: with f = ½ the sum is never
/// below ½ of the stake, the price of simply being caught. Shares vest for the unbonding period, so
/// it is no quicker way out either. Reporting oneself just before another does gives back
/// `rewardBps` of the slash and no more; the default of a quarter leaves three quarters of what the
/// draws' cover reckons with, which asks a third more for that.
///
/// Why copying does not pay: a commitment holds its challenger's address and a salt, so it is of no
/// use to anyone else; evidence is first seen at the reveal, and a copy of it must be filed and wait
/// `delay` blocks.
///
/// What remains: who breaks a rule can keep a filing against himself alive, at a bond for every
/// window, and reveal it before a challenger's own reveal is mined. He is punished all the same and
/// pays for it as above; the challenger gets its bond back and no reward.
///
/// Delays are counted in blocks, because what they guard against is the order of transactions. On
/// chains whose `block.number` is not their own, no court is to be used.
abstract contract Court is ICourt, Ownable2Step, ReentrancyGuardTransient {
    uint256 public constant MAX_BPS = 10_000;
    /// @notice Of a slash, to challenger and victims together.
    uint256 public constant MAX_RETURN_BPS = 5_000;
    uint32 public constant MAX_BLOCKS = 1 << 24;
    /// @notice A filing can be proven for at least so long, so that a full block or two cannot cost an
    /// honest challenger its bond.
    uint32 public constant MIN_WINDOW = 16;
    /// @notice Where forfeited bonds go if their token cannot destroy them.
    address public constant DEAD = 0x000000000000000000000000000000000000dEaD;

    IStakeVault public immutable vault;
    ILaneEscrow public immutable escrow;
    address public immutable bondToken;

    Terms private _terms;
    Bonds private _bonds;
    mapping(address challenger => mapping(bytes32 commitment => Filing)) private _filings;
    mapping(address challenger => uint256) public bondOf;

    error ZeroAddress(string what);
    error BadTerm(string what, uint256 value);
    error AlreadyFiled(bytes32 commitment);
    error NotFiled(address challenger, bytes32 commitment);
    error TooEarly(uint40 from);
    error TooLate(uint40 until);
    error StillOpen(uint40 until);
    error NothingToPull(address challenger);
    error NothingToBurn();
    error ShortBond(uint256 asked, uint256 arrived);

    constructor(address owner, IStakeVault vault_, ILaneEscrow escrow_, Terms memory terms_)
        Ownable(owner)
    {
        if (address(vault_) == address(0)) revert ZeroAddress("vault");
        if (address(escrow_) == address(0)) revert ZeroAddress("escrow");
        (vault, escrow) = (vault_, escrow_);
        bondToken = vault_.stakeToken();
        _setTerms(terms_);
    }

    // ------------------------------------------------------------------ owner

    /// @notice For filings from now on.
    function setTerms(Terms calldata terms_) external onlyOwner {
        _setTerms(terms_);
    }

    function _setTerms(Terms memory t) private {
        // INVARIANT: filing is never free, so nobody fills the court with nothing.
        if (t.bond == 0) revert BadTerm("bond", t.bond);
        // INVARIANT: a proof seen in the open is never filed and proven within one block.
        if (t.delay == 0 || t.delay > MAX_BLOCKS) revert BadTerm("delay", t.delay);
        if (t.window < MIN_WINDOW || t.window > MAX_BLOCKS) revert BadTerm("window", t.window);
        if (t.faultBps == 0 || t.faultBps > MAX_BPS) revert BadTerm("faultBps", t.faultBps);
        // INVARIANT: at least half of every slash is lost to everyone, whoever stands behind the
        // challenger and the victims.
        if (uint256(t.rewardBps) + t.victimBps > MAX_RETURN_BPS) {
            revert BadTerm("rewardBps + victimBps", uint256(t.rewardBps) + t.victimBps);
        }
        _terms = t;
        emit TermsChanged(t);
    }

    // ------------------------------------------------------------------ filing

    /// @inheritdoc ICourt
    function file(bytes32 commitment) external nonReentrant {
        Terms memory t = _terms;
        // Under the caller's own name: who files another's commitment bars nothing.
        Filing storage filing = _filings[msg.sender][commitment];
        // INVARIANT: one filing, one bond.
        if (filing.bond != 0) revert AlreadyFiled(commitment);
        uint40 from = uint40(block.number) + t.delay;
        // INVARIANT: a filing keeps the terms it was made under.
        _filings[msg.sender][commitment] =
            Filing(t.bond, from, from + t.window, t.faultBps, t.rewardBps, t.victimBps);
        _bonds.open += t.bond;
        emit Filed(msg.sender, commitment, t.bond, from, from + t.window);

        uint256 before = SafeTransferLib.balanceOf(bondToken, address(this));
        SafeTransferLib.safeTransferFrom(bondToken, msg.sender, address(this), t.bond);
        uint256 arrived = SafeTransferLib.balanceOf(bondToken, address(this)) - before;
        // INVARIANT: the books never say more than what arrived.
        if (arrived != t.bond) revert ShortBond(t.bond, arrived);
    }

    /// @inheritdoc ICourt
    function forfeit(address challenger, bytes32 commitment) external {
        Filing memory filing = _filings[challenger][commitment];
        if (filing.bond == 0) revert NotFiled(challenger, commitment);
        // INVARIANT: nobody loses a bond while the proof may still come.
        if (block.number <= filing.until) revert StillOpen(filing.until);
        delete _filings[challenger][commitment];
        _bonds.open -= filing.bond;
        _bonds.burning += filing.bond;
        emit BondForfeited(challenger, commitment, filing.bond);
    }

    /// @inheritdoc ICourt
    function pullBond(address challenger) external nonReentrant returns (uint256 amount) {
        amount = bondOf[challenger];
        if (amount == 0) revert NothingToPull(challenger);
        delete bondOf[challenger];
        _bonds.payable_ -= uint128(amount);
        emit BondPulled(challenger, amount);
        SafeTransferLib.safeTransfer(bondToken, vault.payoutTo(challenger), amount);
    }

    /// @inheritdoc ICourt
    function burn() external nonReentrant returns (uint256 amount) {
        amount = _bonds.burning;
        if (amount == 0) revert NothingToBurn();
        _bonds.burning = 0;
        emit BondsBurned(amount);
        SafeTransferLib.safeTransfer(bondToken, DEAD, amount);
    }

    // ------------------------------------------------------------------ read

    /// @inheritdoc ICourt
    function commitmentOf(bytes32 evidenceHash, address challenger, bytes32 salt)
        public
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode(evidenceHash, challenger, salt));
    }

    /// @inheritdoc ICourt
    function filingOf(address challenger, bytes32 commitment)
        external
        view
        returns (Filing memory)
    {
        return _filings[challenger][commitment];
    }

    /// @inheritdoc ICourt
    function bonds() external view returns (Bonds memory) {
        return _bonds;
    }

    /// @inheritdoc ICourt
    function terms() external view returns (Terms memory) {
        return _terms;
    }

    // ------------------------------------------------------------------ inside

    /// @dev The filing behind the proof is used up, and its bond on its way back, unless the proof is
    /// refused: then all of this is undone.
    function _take(bytes32 evidenceHash, bytes32 salt) internal returns (Filing memory filing) {
        // INVARIANT: a proof counts for whom it was committed by, and for nobody who has copied it.
        bytes32 commitment = commitmentOf(evidenceHash, msg.sender, salt);
        filing = _filings[msg.sender][commitment];
        if (filing.bond == 0) revert NotFiled(msg.sender, commitment);
        // INVARIANT: nothing is proven before a copy of it could have been told from the original.
        if (block.number < filing.from) revert TooEarly(filing.from);
        if (block.number > filing.until) revert TooLate(filing.until);
        delete _filings[msg.sender][commitment];
        _bonds.open -= filing.bond;
        _bonds.payable_ += filing.bond;
        bondOf[msg.sender] += filing.bond;
    }

    /// @dev The rule's answer; its revert where it refuses.
    function _ask(address rule, bytes memory question)
        internal
        view
        returns (Evidence.Ruling memory)
    {
        (bool held, bytes memory answer) = rule.staticcall(question);
        if (!held) {
            assembly ("memory-safe") {
                revert(add(answer, 0x20), mload(answer))
            }
        }
        return abi.decode(answer, (Evidence.Ruling));
    }

    function _punish(Evidence.Ruling memory ruling, Filing memory filing) internal {
        Role role = ruling.drafter ? Role.DRAFTER : Role.VERIFIER;
        // INVARIANT: one fault, one punishment, under the name that an opening of the same round has;
        // another id has another name and is barred by none.
        bytes32 name = keccak256(
            abi.encode(
                "verdraft/fault/1", ruling.fault, ruling.guilty, ruling.startHash, ruling.round
            )
        );
        IStakeVault.Slashed memory slashed = vault.slash(
            ruling.guilty,
            role,
            filing.faultBps,
            _victims(ruling, role, filing),
            msg.sender,
            filing.rewardBps,
            name
        );
        emit FaultProven(
            ruling.fault,
            ruling.guilty,
            msg.sender,
            ruling.code,
            ruling.startHash,
            ruling.round,
            slashed
        );
    }

    /// @dev Losses in stake units, cut to what victims may get of this slash.
    function _victims(Evidence.Ruling memory ruling, Role role, Filing memory filing)
        private
        view
        returns (IStakeVault.Victim[] memory victims)
    {
        uint256 client = _inStakeUnits(ruling.token, ruling.clientLoss);
        uint256 harmed = _inStakeUnits(ruling.token, ruling.harmedLoss);
        uint256 sum = client + harmed;
        if (sum == 0) return victims;
        uint256 slash = vault.slashable(ruling.guilty, role) * filing.faultBps / MAX_BPS;
        uint256 most = slash * filing.victimBps / MAX_BPS;
        if (sum > most) {
            // INVARIANT: prices that a session's parties made up bring them no more than this.
            client = FixedPointMathLib.fullMulDiv(client, most, sum);
            harmed = FixedPointMathLib.fullMulDiv(harmed, most, sum);
        }
        victims = new IStakeVault.Victim[](2);
        victims[0] = IStakeVault.Victim(ruling.client, client);
        victims[1] = IStakeVault.Victim(ruling.harmed, harmed);
    }

    function _inStakeUnits(address token, uint256 amount) private view returns (uint256) {
        // More is more than there is; so no price comes near to making a proof overflow.
        amount = FixedPointMathLib.min(amount, type(uint128).max);
        return amount == 0 ? 0 : escrow.inStakeUnits(token, amount);
    }

    function _separator() internal view returns (bytes32) {
        return escrow.domainSeparator();
    }
}
