// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {FaultCourt} from "../FaultCourt.sol";
import {RoundRule} from "../RoundRule.sol";
import {TreeRule} from "../TreeRule.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IDrawBeacon} from "../interfaces/IDrawBeacon.sol";
import {IFaultCourt} from "../interfaces/IFaultCourt.sol";
import {IRoundRule} from "../interfaces/IRoundRule.sol";
import {Role} from "../interfaces/IStakeVault.sol";
import {ITreeRule} from "../interfaces/ITreeRule.sol";
import {Evidence} from "../libraries/Evidence.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {RoundWork} from "./RoundWork.sol";

/// @notice The court over real stakes, and evidence cut out of played sessions.
abstract contract CourtWork is RoundWork {
    FaultCourt internal court;
    RoundRule internal roundRule;
    TreeRule internal treeRule;
    address internal challenger = makeAddr("challenger");
    address internal copier = makeAddr("copier");
    bytes32 internal constant SALT = keccak256("salt");
    uint96 internal constant BOND = 10 ether;

    function setUp() public virtual override {
        super.setUp();
        vm.roll(1_000);
        roundRule = new RoundRule();
        treeRule = new TreeRule();
        court = new FaultCourt(
            owner, vault, escrow, IDrawBeacon(address(beacon)), roundRule, treeRule, _courtTerms()
        );
        vm.prank(owner);
        vault.setSlasher(address(court), true);
        _stake(drafter.addr, beneficiaryD, Role.DRAFTER, STAKE);
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, STAKE);
        _fund(challenger, address(court), 1_000 ether);
        _fund(copier, address(court), 1_000 ether);
    }

    function _courtTerms() internal pure returns (ICourt.Terms memory) {
        return ICourt.Terms({
            bond: BOND, delay: 3, window: 100, faultBps: 5_000, rewardBps: 2_500, victimBps: 2_500
        });
    }

    // ------------------------------------------------------------------ filing

    function _fileAs(address who, bytes memory question) internal returns (bytes32 commitment) {
        commitment = court.commitmentOf(keccak256(question), who, SALT);
        vm.prank(who);
        court.file(commitment);
    }

    /// @dev Files and waits.
    function _ready(bytes memory question) internal {
        _fileAs(challenger, question);
        vm.roll(vm.getBlockNumber() + 3);
    }

    function _separator() internal view returns (bytes32) {
        return escrow.domainSeparator();
    }

    function _prove(Evidence.DraftPair memory e) internal {
        _ready(abi.encodeCall(IRoundRule.draftTwice, (e, _separator())));
        vm.prank(challenger);
        court.proveDraftTwice(e, SALT);
    }

    function _prove(Evidence.VerdictPair memory e) internal {
        _ready(abi.encodeCall(IRoundRule.verdictTwice, (e, _separator())));
        vm.prank(challenger);
        court.proveVerdictTwice(e, SALT);
    }

    function _proveOther(Evidence.LeafPair memory e) internal {
        _ready(abi.encodeCall(IRoundRule.otherDraft, (e, _separator())));
        vm.prank(challenger);
        court.proveOtherDraft(e, SALT);
    }

    function _proveAccept(Evidence.LeafPair memory e) internal {
        _ready(abi.encodeCall(IRoundRule.acceptRule, (e, _separator())));
        vm.prank(challenger);
        court.proveAcceptRule(e, SALT);
    }

    function _prove(Evidence.DraftPlace memory e) internal {
        _ready(abi.encodeCall(IRoundRule.draftLeaf, (e, _separator())));
        vm.prank(challenger);
        court.proveDraftLeaf(e, SALT);
    }

    function _prove(Evidence.DraftRound memory e) internal {
        _ready(abi.encodeCall(IRoundRule.draftRound, (e, _separator())));
        vm.prank(challenger);
        court.proveDraftRound(e, SALT);
    }

    function _proveCoins(Evidence.Round memory e) internal {
        _ready(abi.encodeCall(IRoundRule.verdictRound, (e, _separator())));
        vm.prank(challenger);
        court.proveVerdictRound(e, SALT);
    }

    function _proveFit(Evidence.Round memory e) internal {
        _ready(abi.encodeCall(IRoundRule.roundFit, (e, _separator())));
        vm.prank(challenger);
        court.proveRoundFit(e, SALT);
    }

    function _prove(Evidence.LeafPlace memory e) internal {
        _ready(abi.encodeCall(IRoundRule.leafPlace, (e, _separator())));
        vm.prank(challenger);
        court.proveLeafPlace(e, SALT);
    }

    function _prove(Evidence.AllLeaves memory e) internal {
        _ready(abi.encodeCall(IRoundRule.allLeaves, (e, _separator())));
        vm.prank(challenger);
        court.proveAllLeaves(e, SALT);
    }

    function _prove(Evidence.RecordCase memory e, IFaultCourt.Source memory source) internal {
        _ready(abi.encodeCall(ITreeRule.recordCase, (e)));
        vm.prank(challenger);
        court.proveRecord(e, source, SALT);
    }

    function _prove(Evidence.TreeStep memory e, IFaultCourt.Source memory source) internal {
        _ready(abi.encodeCall(ITreeRule.treeStep, (e)));
        vm.prank(challenger);
        court.proveSums(e, source, SALT);
    }

    function _prove(Evidence.Twice memory e, IFaultCourt.Source memory source) internal {
        _ready(abi.encodeCall(ITreeRule.roundTwice, (e)));
        vm.prank(challenger);
        court.proveRoundTwice(e, source, SALT);
    }

    // ------------------------------------------------------------------ evidence

    /// @dev D's window of round `index`, and one on the same place with other tokens.
    function _draftPair(Session memory s, uint256 index)
        internal
        view
        returns (Evidence.DraftPair memory e)
    {
        e.one = s.rounds[index].commit;
        e.oneSignature = s.rounds[index].commitSignature;
        e.other = abi.decode(abi.encode(e.one), (Records.DraftCommit));
        e.other.draftRoot = keccak256("other drafts");
        e.other.version += 1;
        e.otherSignature = _sign(s.drafterKey, Records.hash(e.other));
    }

    function _verdictPair(Session memory s, uint256 index)
        internal
        view
        returns (Evidence.VerdictPair memory e)
    {
        (e.order, e.start) = (s.order, s.start);
        e.one = s.rounds[index].verdict;
        e.oneSignature = s.rounds[index].verdictSignature;
        e.other = abi.decode(abi.encode(e.one), (Records.Verdict));
        e.other.version += 1;
        e.otherSignature = _sign(s.verifierKey, Records.hash(e.other));
    }

    function _leafPair(Session memory s, uint256 index, uint256 within)
        internal
        pure
        returns (Evidence.LeafPair memory e)
    {
        Openings.Opening memory o = _openingAt(s, index, within);
        (e.order, e.start, e.commit) = (o.order, o.start, o.commit);
        (e.verdict, e.verdictSignature) = (o.verdict, o.verdictSignature);
        e.index = uint32(within);
        (e.verdictLeaf, e.verdictPath) = (o.verdictLeaf, o.verdictPath);
        (e.draftLeaf, e.draftPath) = (o.draftLeaf, o.draftPath);
    }

    function _draftPlace(Session memory s, uint256 index, uint256 within)
        internal
        pure
        returns (Evidence.DraftPlace memory e)
    {
        Round memory r = s.rounds[index];
        (e.order, e.start) = (s.order, s.start);
        (e.commit, e.commitSignature) = (r.commit, r.commitSignature);
        e.index = uint32(within);
        e.leaf = r.drafts[within];
        e.path = _path(_draftLeaves(r), within);
        if (s.order.mode == Records.MODE_REJECTION) e.kept = _kept(e.leaf.token);
    }

    function _draftRound(Session memory s, uint256 index)
        internal
        pure
        returns (Evidence.DraftRound memory e)
    {
        Round memory r = s.rounds[index];
        (e.order, e.start) = (s.order, s.start);
        (e.commit, e.commitSignature) = (r.commit, r.commitSignature);
        if (index != 0) {
            e.previous = s.rounds[index - 1].verdict;
            e.previousSignature = s.rounds[index - 1].verdictSignature;
        }
    }

    function _roundOf(Session memory s, uint256 index)
        internal
        pure
        returns (Evidence.Round memory e)
    {
        Round memory r = s.rounds[index];
        (e.order, e.start) = (s.order, s.start);
        if (r.drafted) e.commit = r.commit;
        (e.verdict, e.verdictSignature) = (r.verdict, r.verdictSignature);
        if (index != 0) {
            e.previous = s.rounds[index - 1].verdict;
            e.previousSignature = s.rounds[index - 1].verdictSignature;
        }
    }

    function _leafPlace(Session memory s, uint256 index, uint256 within)
        internal
        pure
        returns (Evidence.LeafPlace memory e)
    {
        Round memory r = s.rounds[index];
        (e.order, e.start) = (s.order, s.start);
        (e.verdict, e.verdictSignature) = (r.verdict, r.verdictSignature);
        e.index = uint32(within);
        e.leaf = r.leaves[within];
        e.path = _path(_verdictLeaves(r), within);
        if (index + 1 < s.rounds.length) {
            e.later = s.rounds[index + 1].verdict;
            e.laterSignature = s.rounds[index + 1].verdictSignature;
        }
    }

    function _allLeaves(Session memory s, uint256 index)
        internal
        pure
        returns (Evidence.AllLeaves memory e)
    {
        Round memory r = s.rounds[index];
        (e.order, e.start) = (s.order, s.start);
        (e.verdict, e.verdictSignature) = (r.verdict, r.verdictSignature);
        e.leaves = r.leaves;
    }

    function _recordCase(Session memory s, uint256 index)
        internal
        pure
        returns (Evidence.RecordCase memory e)
    {
        Openings.Opening memory o = _openingAt(s, index, 0);
        e.lane = Records.laneOf(s.order);
        (e.settled, e.record, e.leafIndex, e.steps) = (o.settled, o.record, o.leafIndex, o.steps);
        (e.order, e.start, e.commit, e.verdict) = (o.order, o.start, o.commit, o.verdict);
        e.leaves = s.rounds[index].leaves;
    }

    /// @dev Leaf `index` of the session's tree, its own sums beside it.
    function _treeStep(Session memory s, uint256 index)
        internal
        pure
        returns (Evidence.TreeStep memory e)
    {
        Openings.Opening memory o = _openingAt(s, index, 0);
        e.lane = Records.laneOf(s.order);
        (e.settled, e.base, e.record) = (o.settled, o.base, o.record);
        (e.index, e.steps) = (o.leafIndex, o.steps);
        e.claimed = Records.sums(e.record);
    }

    /// @dev V's signature on a voucher that names the root.
    function _signedSource(Session memory s, Openings.Root memory root)
        internal
        view
        returns (IFaultCourt.Source memory source)
    {
        source.voucher.lane = Records.laneId(Records.laneOf(s.order));
        source.voucher.root = _rootHash(root);
        source.voucher.leafCount = root.leafCount;
        source.signature = _sign(s.verifierKey, Records.hash(source.voucher));
    }

    // ------------------------------------------------------------------ the books

    function _stakeV() internal view returns (uint256) {
        return vault.slashable(verifier.addr, Role.VERIFIER);
    }

    function _stakeD() internal view returns (uint256) {
        return vault.slashable(drafter.addr, Role.DRAFTER);
    }

    function _vestedTo(address who) internal view returns (uint256) {
        return vault.vestingOf(who, vault.sliceOf(block.timestamp + _times().unbonding) + 1);
    }

    /// @dev The court holds what its books say, and the vault with it.
    function _assertBonds() internal view {
        ICourt.Bonds memory b = court.bonds();
        assertEq(token.balanceOf(address(court)), b.open + b.payable_ + b.burning, "bonds");
        _assertConserved();
    }
}
