// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";
import {SafeTransferLib} from "solady/utils/SafeTransferLib.sol";

import {IAlphaLedger} from "./interfaces/IAlphaLedger.sol";
import {IModelRegistry} from "./interfaces/IModelRegistry.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";
import {BucketHistory} from "./libraries/BucketHistory.sol";
import {Records} from "./libraries/Records.sol";
import {SequentialTest} from "./libraries/SequentialTest.sol";

/// @title AlphaLedger
/// @notice Drafters promise acceptance rates by bucket; what is settled is counted against the
/// promise; a test whose false alarms are bounded over all time may be called by anyone; a failed one
/// opens a case that the drafter must answer.
///
/// @dev Counts are kept twice: for the claim as a whole, and for each verifier under it, so that a
/// drafter's own clients cannot dilute what an honest verifier has seen, and one hostile verifier can
/// be told apart. Both are `BucketHistory` series: bounded storage, checkpoints read in O(1).
///
/// What the bound rests on: buckets are fixed before the outcome, and checkpoints before the rounds
/// that follow them. Whoever holds vouchers of several lanes can choose the order in which they are
/// settled; a drafter therefore settles its own lanes as they come and leaves nobody a choice.
///
/// A flag proves a shortfall, not a fault: hard prompts and false rejects cause one too. So nothing is
/// slashed for it. The drafter has to assert, with a bond, that its registered model made the drafts;
/// silence costs, and a judge may refute the assertion. Without a judge, an assertion stands.
contract AlphaLedger is IAlphaLedger, Ownable2Step, ReentrancyGuardTransient {
    using BucketHistory for BucketHistory.Series;

    uint256 public constant BUCKETS = 16;
    uint256 public constant MIN_RATE = 6;
    uint256 public constant MAX_RATE = 99;
    uint256 public constant MAX_BPS = 10_000;
    /// @notice An observed rate replaces a promised one only if so many proposals stand behind it; the
    /// failed bucket's does always.
    uint256 public constant MIN_OBSERVED = 512;
    address public constant DEAD = 0x000000000000000000000000000000000000dEaD;

    IStakeVault public immutable vault;
    IModelRegistry public immutable registry;
    address public immutable bondToken;

    address public escrow;
    uint64 public caseCount;
    /// @notice Bonds under cases and bonds ready to be pulled: what the balance must cover.
    uint256 public bondsHeld;

    Parameters private _parameters;
    mapping(address judge => bool) public isJudge;
    mapping(bytes32 claimId => ClaimState) private _claims;
    mapping(bytes32 claimId => mapping(address verifier => BucketHistory.Series)) private _series;
    mapping(uint64 caseId => Case) private _cases;
    mapping(address account => uint256) public bondPayable;

    error ZeroAddress(string what);
    error AlreadyWired(address escrow);
    error NotEscrow(address caller, address escrow);
    error NotJudge(address caller);
    error NotDrafter(address caller, address drafter);
    error ClaimTaken(bytes32 claimId);
    error ClaimUnknown(bytes32 claimId);
    error ClaimNotActive(bytes32 claimId, Status status);
    error ModelUnknown(bytes32 model);
    error ModeUnknown(uint8 mode);
    error RateOutsideRange(uint256 bucket, uint256 rate);
    error BucketOutsideRange(uint256 bucket);
    error BeforeFloor(uint256 from, uint256 floor);
    error NothingUnderTheseRates(bytes32 claimId, address verifier, uint16 era);
    error TestPasses(int256 score, uint256 threshold);
    error WrongStage(uint64 caseId, Stage stage);
    error TooEarly(uint64 until);
    error TooLate(uint64 until);
    error NotCounted(uint256 bucket, uint256 excluded, uint256 counted);
    error BondShort(uint256 asked, uint256 arrived);
    error NothingToPull(address account);
    error BadParameter(string what, uint256 value);

    constructor(
        address owner,
        IStakeVault vault_,
        IModelRegistry registry_,
        Parameters memory parameters_
    ) Ownable(owner) {
        if (address(vault_) == address(0)) revert ZeroAddress("vault");
        if (address(registry_) == address(0)) revert ZeroAddress("registry");
        vault = vault_;
        registry = registry_;
        bondToken = vault_.stakeToken();
        _setParameters(parameters_);
    }

    // ------------------------------------------------------------------ owner

    /// @notice Names the escrow, once and for ever.
    function wire(address escrow_) external onlyOwner {
        // INVARIANT: whose counts are believed never changes.
        if (escrow != address(0)) revert AlreadyWired(escrow);
        if (escrow_ == address(0)) revert ZeroAddress("escrow");
        escrow = escrow_;
    }

    /// @notice Lets a judge decide cases, or no longer.
    function setJudge(address judge, bool allowed) external onlyOwner {
        if (judge == address(0)) revert ZeroAddress("judge");
        isJudge[judge] = allowed;
        emit JudgeSet(judge, allowed);
    }

    /// @notice For cases opened from now on, and for checkpoints from now on.
    function setParameters(Parameters calldata parameters_) external onlyOwner {
        _setParameters(parameters_);
    }

    function _setParameters(Parameters memory p) private {
        if (p.spacing == 0) revert BadParameter("spacing", p.spacing);
        if (p.lateBps > MAX_BPS) revert BadParameter("lateBps", p.lateBps);
        // INVARIANT: silence to the end costs no less than the fault that it could hide.
        if (p.silentBps < p.refutedBps || p.silentBps > MAX_BPS) {
            revert BadParameter("silentBps", p.silentBps);
        }
        if (p.rewardBps > MAX_BPS / 2) revert BadParameter("rewardBps", p.rewardBps);
        _parameters = p;
        emit ParametersChanged(p);
    }

    // ------------------------------------------------------------------ claims

    /// @notice Publishes a claim of the caller. Its id is the EIP-712 hash of the claim, so it names
    /// these rates for ever; a drafter may hold any number, and a new one leaves the old one testable.
    function register(Records.Claim calldata claim) external returns (bytes32 claimId) {
        // INVARIANT: nobody promises rates in another's name.
        if (msg.sender != claim.drafter) revert NotDrafter(msg.sender, claim.drafter);
        if (claim.mode > Records.MODE_REJECTION) revert ModeUnknown(claim.mode);
        if (!registry.isRegistered(claim.targetModel)) revert ModelUnknown(claim.targetModel);
        if (claim.draftModel != 0 && !registry.isRegistered(claim.draftModel)) {
            revert ModelUnknown(claim.draftModel);
        }
        uint256 rates;
        for (uint256 i; i < BUCKETS; ++i) {
            uint256 rate = claim.rates[i];
            // INVARIANT: every bucket can be tested: a rate outside has no alternative below it.
            if (rate < MIN_RATE || rate > MAX_RATE) revert RateOutsideRange(i, rate);
            rates |= rate << 8 * i;
        }
        claimId = Records.hash(claim);
        ClaimState storage state = _claims[claimId];
        // INVARIANT: a claim is published once; its counts and its suspension cannot be reset.
        if (state.drafter != address(0)) revert ClaimTaken(claimId);
        state.drafter = claim.drafter;
        state.mode = claim.mode;
        state.maxTemperature = claim.maxTemperature;
        state.status = Status.ACTIVE;
        state.rates = uint128(rates);
        state.targetModel = claim.targetModel;
        state.draftModel = claim.draftModel;
        emit ClaimRegistered(claimId, claim.drafter, claim);
    }

    /// @inheritdoc IAlphaLedger
    // Of memory as in the interface: the escrow adds the words up before it calls.
    // solhint-disable-next-line gas-calldata-parameters
    function record(
        bytes32 claimId,
        address, /* drafter */
        address verifier,
        uint256[9] memory delta
    )
        external
    {
        // INVARIANT: only what was signed and settled is counted.
        if (msg.sender != escrow) revert NotEscrow(msg.sender, escrow);
        ClaimState storage claim = _claims[claimId];
        if (claim.drafter == address(0)) revert ClaimUnknown(claimId);
        uint16 era = claim.era;
        BucketHistory.Series storage own = _series[claimId][verifier];
        if (own.order == 0) {
            uint32 order = claim.verifiers + 1;
            claim.verifiers = order;
            own.order = order;
            own.era = era;
            emit VerifierJoined(claimId, verifier, order);
        }
        uint256 spacing = _parameters.spacing;
        uint256 checkpoint = _count(claimId, verifier, own, era, delta, spacing);
        uint256 whole =
            _count(claimId, address(0), _series[claimId][address(0)], era, delta, spacing);
        emit Counted(claimId, verifier, delta, uint32(checkpoint), uint32(whole));
    }

    function _count(
        bytes32 claimId,
        address verifier,
        BucketHistory.Series storage series,
        uint16 era,
        uint256[9] memory delta,
        uint256 spacing
    ) private returns (uint256 checkpoint) {
        // INVARIANT: counts under replaced rates are never tested against the new ones.
        if (series.era != era) {
            series.restart();
            series.era = era;
        }
        bool full;
        (checkpoint, full) = series.add(delta, spacing);
        if (full) emit SeriesFull(claimId, verifier);
    }

    // ------------------------------------------------------------------ the test

    /// @notice The test of one bucket over the interval after checkpoint `from`, up to `to`.
    /// @param verifier Whose series; zero: the whole claim's.
    /// @return score The log-likelihood ratio of the lower rate against the claimed one, at 2**20.
    /// @return threshold What a score must exceed for the claim to be flagged.
    function scoreOf(bytes32 claimId, address verifier, uint256 bucket, uint256 from, uint256 to)
        public
        view
        returns (int256 score, uint256 threshold)
    {
        (, score, threshold) = _test(claimId, verifier, bucket, from, to);
    }

    function _test(bytes32 claimId, address verifier, uint256 bucket, uint256 from, uint256 to)
        private
        view
        returns (uint256[4] memory counts, int256 score, uint256 threshold)
    {
        ClaimState storage claim = _claims[claimId];
        if (claim.drafter == address(0)) revert ClaimUnknown(claimId);
        if (bucket >= BUCKETS) revert BucketOutsideRange(bucket);
        BucketHistory.Series storage series = _series[claimId][verifier];
        if (series.era != claim.era) {
            revert NothingUnderTheseRates(claimId, verifier, claim.era);
        }
        // INVARIANT: what one case has settled opens no second one.
        if (from < series.floor) revert BeforeFloor(from, series.floor);
        counts = series.between(from, to);
        (uint256 proposed, uint256 accepted) = BucketHistory.inBucket(counts, bucket);
        score = SequentialTest.llr(_rateIn(claim.rates, bucket), uint64(proposed), uint64(accepted));
        threshold = SequentialTest.threshold(from + 1, SequentialTest.INVERSE_DELTA, series.order);
    }

    /// @notice Opens a case if the test fails. Anyone may call, with any interval of checkpoints, the
    /// newest state being one too.
    function flag(bytes32 claimId, address verifier, uint256 bucket, uint256 from, uint256 to)
        external
        returns (uint64 caseId)
    {
        (uint256[4] memory counts, int256 score, uint256 threshold) =
            _test(claimId, verifier, bucket, from, to);
        ClaimState storage claim = _claims[claimId];
        // INVARIANT: one open case a claim: a drafter answers one question at a time.
        if (claim.status != Status.ACTIVE) revert ClaimNotActive(claimId, claim.status);
        // INVARIANT: a drafter who keeps its promise is flagged with probability δ at most, ever.
        if (!SequentialTest.flags(score, threshold)) revert TestPasses(score, threshold);

        IStakeVault.Times memory times = vault.times();
        caseId = ++caseCount;
        claim.status = Status.SUSPENDED;
        claim.openCase = caseId;
        Case storage opened = _cases[caseId];
        opened.claimId = claimId;
        opened.verifier = verifier;
        opened.flagger = msg.sender;
        opened.bucket = uint8(bucket);
        opened.stage = Stage.OPEN;
        opened.era = claim.era;
        opened.from = uint32(from);
        opened.to = uint32(to);
        opened.openedAt = uint64(block.timestamp);
        opened.firstUntil = uint64(block.timestamp) + times.firstDeadline;
        opened.secondUntil = opened.firstUntil + times.secondDeadline;
        opened.threshold = uint128(threshold);
        opened.counts = counts;
        opened.terms = CaseTerms({
            lateBps: _parameters.lateBps,
            silentBps: _parameters.silentBps,
            refutedBps: _parameters.refutedBps,
            rewardBps: _parameters.rewardBps,
            bond: _parameters.bond,
            judgedWithin: times.panel + times.appeal
        });
        emit CaseOpened(caseId, claimId, claim.drafter, opened, score);
    }

    // ------------------------------------------------------------------ cases

    /// @notice The drafter asserts, with the case's bond, that its registered draft model made the
    /// drafts. Any key of the drafter's account may do so, so that a rotated key can be answered for.
    function assertDraftModel(uint64 caseId) external nonReentrant {
        Case storage opened = _cases[caseId];
        ClaimState storage claim = _claims[opened.claimId];
        if (opened.stage != Stage.OPEN && opened.stage != Stage.LATE) {
            revert WrongStage(caseId, opened.stage);
        }
        address account = vault.accountOf(msg.sender);
        // INVARIANT: nobody answers, well or badly, in the drafter's name.
        if (
            msg.sender != claim.drafter
                && (account == address(0) || account != vault.accountOf(claim.drafter))
        ) revert NotDrafter(msg.sender, claim.drafter);
        // INVARIANT: after the last deadline there is nothing left to answer.
        if (block.timestamp > opened.secondUntil) revert TooLate(opened.secondUntil);
        opened.stage = Stage.ANSWERED;
        opened.answeredBy = msg.sender;
        opened.refutableUntil = uint64(block.timestamp) + opened.terms.judgedWithin;
        uint256 bond = opened.terms.bond;
        bondsHeld += bond;
        _pull(bond);
        emit CaseAnswered(caseId, msg.sender, opened.refutableUntil);
    }

    /// @notice Takes the price of a missed deadline. Anyone may call; the second needs a second call.
    function expire(uint64 caseId) external {
        Case storage opened = _cases[caseId];
        if (opened.stage == Stage.OPEN) {
            if (block.timestamp <= opened.firstUntil) revert TooEarly(opened.firstUntil);
            opened.stage = Stage.LATE;
            emit CaseMoved(caseId, opened.claimId, Stage.LATE);
            _slash(caseId, opened, opened.terms.lateBps);
        } else if (opened.stage == Stage.LATE) {
            if (block.timestamp <= opened.secondUntil) revert TooEarly(opened.secondUntil);
            _close(caseId, opened, Stage.UNANSWERED, Status.VOID);
            _slash(caseId, opened, opened.terms.silentBps);
        } else {
            revert WrongStage(caseId, opened.stage);
        }
    }

    /// @notice Ends an answered case that nobody has refuted in time. Anyone may call.
    function conclude(uint64 caseId) external {
        Case storage opened = _requireAnswered(caseId);
        if (block.timestamp <= opened.refutableUntil) revert TooEarly(opened.refutableUntil);
        _stand(caseId, opened);
    }

    /// @inheritdoc IAlphaLedger
    function refute(uint64 caseId) external onlyJudge {
        Case storage opened = _requireAnswered(caseId);
        _close(caseId, opened, Stage.REFUTED, Status.VOID);
        _slash(caseId, opened, opened.terms.refutedBps);
        // Half to the flagger, half destroyed: flagging oneself always costs.
        uint256 bond = opened.terms.bond;
        _credit(opened.flagger, bond / 2);
        _credit(DEAD, bond - bond / 2);
    }

    /// @inheritdoc IAlphaLedger
    function uphold(uint64 caseId) external onlyJudge {
        _stand(caseId, _requireAnswered(caseId));
    }

    /// @inheritdoc IAlphaLedger
    function exclude(uint64 caseId, uint256[9] calldata sums) external onlyJudge {
        Case storage opened = _requireAnswered(caseId);
        uint256[4] memory counts = opened.counts;
        for (uint256 b; b < BUCKETS; ++b) {
            (uint256 proposed, uint256 accepted) = BucketHistory.inBucket(counts, b);
            uint256 shift = 64 * (b % 4);
            uint256 lessProposed = sums[1 + b / 4] >> shift & type(uint64).max;
            uint256 lessAccepted = sums[5 + b / 4] >> shift & type(uint64).max;
            // INVARIANT: no more is taken out than was counted, and what stays is still a count.
            if (
                lessProposed > proposed || lessAccepted > accepted
                    || proposed - lessProposed < accepted - lessAccepted
            ) revert NotCounted(b, lessProposed, proposed);
        }
        for (uint256 i; i < 4; ++i) {
            counts[i] = BucketHistory.subLanes(
                counts[i], BucketHistory.packLanes(sums[2 * i + 1], sums[2 * i + 2])
            );
        }
        opened.counts = counts;
        (uint256 left, uint256 kept) = BucketHistory.inBucket(counts, opened.bucket);
        ClaimState storage claim = _claims[opened.claimId];
        int256 score =
            SequentialTest.llr(_rateIn(claim.rates, opened.bucket), uint64(left), uint64(kept));
        emit RoundsExcluded(caseId, sums, score);
        if (SequentialTest.flags(score, opened.threshold)) return;

        // The rounds are still in the checkpoints, so tests start after them from here on.
        _series[opened.claimId][opened.verifier].restart();
        _series[opened.claimId][address(0)].restart();
        _close(caseId, opened, Stage.DISMISSED, Status.ACTIVE);
        _credit(opened.answeredBy, opened.terms.bond);
    }

    /// @dev The drafts were the model's: so the promise was wrong, and what was seen takes its place.
    function _stand(uint64 caseId, Case storage opened) private {
        bytes32 claimId = opened.claimId;
        ClaimState storage claim = _claims[claimId];
        uint128 rates = claim.rates;
        uint256[4] memory counts = opened.counts;
        for (uint256 b; b < BUCKETS; ++b) {
            (uint256 proposed, uint256 accepted) = BucketHistory.inBucket(counts, b);
            if (proposed == 0 || (b != opened.bucket && proposed < MIN_OBSERVED)) continue;
            uint256 seen = FixedPointMathLib.max(accepted * 100 / proposed, MIN_RATE);
            // INVARIANT: a case never raises a promise that nobody made.
            if (seen >= _rateIn(rates, b)) continue;
            rates = uint128((rates & ~(uint256(0xff) << 8 * b)) | (seen << 8 * b));
        }
        claim.rates = rates;
        uint16 era = claim.era + 1;
        claim.era = era;
        emit RatesReplaced(claimId, era, rates);
        _close(caseId, opened, Stage.STOOD, Status.ACTIVE);
        _credit(opened.answeredBy, opened.terms.bond);
    }

    function _close(uint64 caseId, Case storage opened, Stage stage, Status status) private {
        opened.stage = stage;
        ClaimState storage claim = _claims[opened.claimId];
        claim.status = status;
        claim.openCase = 0;
        emit CaseMoved(caseId, opened.claimId, stage);
    }

    function _slash(uint64 caseId, Case storage opened, uint256 bps) private {
        bytes32 fault = keccak256(abi.encode("verdraft/F8/1", address(this), caseId, opened.stage));
        vault.slash(
            _claims[opened.claimId].drafter,
            Role.DRAFTER,
            bps,
            new IStakeVault.Victim[](0),
            opened.flagger,
            opened.terms.rewardBps,
            fault
        );
    }

    // ------------------------------------------------------------------ bonds

    /// @notice Pays out what `account` has in released bonds, to where its money goes. Anyone may call.
    function pullBond(address account) external nonReentrant returns (uint256 amount) {
        amount = bondPayable[account];
        if (amount == 0) revert NothingToPull(account);
        delete bondPayable[account];
        bondsHeld -= amount;
        address to = vault.payoutTo(account);
        emit BondPaid(account, amount, to);
        SafeTransferLib.safeTransfer(bondToken, to, amount);
    }

    function _credit(address account, uint256 amount) private {
        if (amount == 0) return;
        bondPayable[account] += amount;
        emit BondReleased(account, amount);
    }

    function _pull(uint256 amount) private {
        if (amount == 0) return;
        uint256 before = SafeTransferLib.balanceOf(bondToken, address(this));
        SafeTransferLib.safeTransferFrom(bondToken, msg.sender, address(this), amount);
        uint256 arrived = SafeTransferLib.balanceOf(bondToken, address(this)) - before;
        // INVARIANT: the books never say more than what arrived.
        if (arrived != amount) revert BondShort(amount, arrived);
    }

    // ------------------------------------------------------------------ read

    /// @inheritdoc IAlphaLedger
    function claimDrafter(bytes32 claimId) external view returns (address) {
        return _claims[claimId].drafter;
    }

    /// @inheritdoc IAlphaLedger
    function claimOf(bytes32 claimId) external view returns (ClaimState memory) {
        return _claims[claimId];
    }

    /// @inheritdoc IAlphaLedger
    function caseOf(uint64 caseId) external view returns (Case memory) {
        return _cases[caseId];
    }

    /// @inheritdoc IAlphaLedger
    function parameters() external view returns (Parameters memory) {
        return _parameters;
    }

    /// @notice The rate that a bucket is tested against now, in percent.
    function rateOf(bytes32 claimId, uint256 bucket) external view returns (uint256) {
        if (bucket >= BUCKETS) revert BucketOutsideRange(bucket);
        return _rateIn(_claims[claimId].rates, bucket);
    }

    /// @notice Which checkpoints of a series exist and may be used.
    /// @return oldest Earliest one still held, besides 0.
    /// @return newest The newest state, fixed or not.
    /// @return floor Tests start no earlier.
    /// @return order Of the verifier's first settlement; zero for the whole claim.
    function seriesOf(bytes32 claimId, address verifier)
        external
        view
        returns (uint256 oldest, uint256 newest, uint256 floor, uint256 order, uint256 era)
    {
        BucketHistory.Series storage series = _series[claimId][verifier];
        return (series.oldestOf(), series.newestOf(), series.floor, series.order, series.era);
    }

    /// @notice What was counted between two checkpoints of a series.
    function countsBetween(bytes32 claimId, address verifier, uint256 from, uint256 to)
        external
        view
        returns (uint256[16] memory proposed, uint256[16] memory accepted)
    {
        uint256[4] memory counts = _series[claimId][verifier].between(from, to);
        for (uint256 b; b < BUCKETS; ++b) {
            (proposed[b], accepted[b]) = BucketHistory.inBucket(counts, b);
        }
    }

    // ------------------------------------------------------------------ inside

    modifier onlyJudge() {
        if (!isJudge[msg.sender]) revert NotJudge(msg.sender);
        _;
    }

    function _requireAnswered(uint64 caseId) private view returns (Case storage opened) {
        opened = _cases[caseId];
        if (opened.stage != Stage.ANSWERED) revert WrongStage(caseId, opened.stage);
    }

    function _rateIn(uint256 rates, uint256 bucket) private pure returns (uint256) {
        return rates >> 8 * bucket & 0xff;
    }
}
