// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Court} from "../Court.sol";
import {FaultCourt} from "../FaultCourt.sol";
import {ModelRegistry} from "../ModelRegistry.sol";
import {StakeSlashing} from "../StakeSlashing.sol";
import {StakeVault} from "../StakeVault.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IDrawBeacon} from "../interfaces/IDrawBeacon.sol";
import {IFaultCourt} from "../interfaces/IFaultCourt.sol";
import {ILaneEscrow} from "../interfaces/ILaneEscrow.sol";
import {IRoundRule} from "../interfaces/IRoundRule.sol";
import {IStakeVault, Role} from "../interfaces/IStakeVault.sol";
import {ITreeRule} from "../interfaces/ITreeRule.sol";
import {Batches} from "../libraries/Batches.sol";
import {Evidence} from "../libraries/Evidence.sol";
import {Records} from "../libraries/Records.sol";
import {CourtWork} from "./CourtWork.sol";
import {FeeOnTransferToken, HookToken} from "./doubles/Tokens.sol";

contract FaultCourtOwnerTest is CourtWork {
    function test_OnlyTheOwnerSetsTerms() public {
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", stranger));
        court.setTerms(_courtTerms());
    }

    function _refused(ICourt.Terms memory t, string memory what, uint256 value) private {
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(Court.BadTerm.selector, what, value));
        court.setTerms(t);
    }

    function test_TermsHaveBounds() public {
        ICourt.Terms memory t = _courtTerms();
        t.bond = 0;
        _refused(t, "bond", 0);
        t = _courtTerms();
        t.delay = 0;
        _refused(t, "delay", 0);
        t.delay = (1 << 24) + 1;
        _refused(t, "delay", t.delay);
        t = _courtTerms();
        t.window = 15;
        _refused(t, "window", 15);
        t.window = (1 << 24) + 1;
        _refused(t, "window", t.window);
        t = _courtTerms();
        t.faultBps = 0;
        _refused(t, "faultBps", 0);
        t.faultBps = 10_001;
        _refused(t, "faultBps", 10_001);
        t = _courtTerms();
        t.rewardBps = 2_501;
        _refused(t, "rewardBps + victimBps", 5_001);
    }

    function test_CounterpartsExist() public {
        ICourt.Terms memory t = _courtTerms();
        IDrawBeacon draws = IDrawBeacon(address(beacon));
        vm.expectRevert(abi.encodeWithSelector(Court.ZeroAddress.selector, "escrow"));
        new FaultCourt(owner, vault, ILaneEscrow(address(0)), draws, roundRule, treeRule, t);
        vm.expectRevert(abi.encodeWithSelector(Court.ZeroAddress.selector, "vault"));
        new FaultCourt(owner, IStakeVault(address(0)), escrow, draws, roundRule, treeRule, t);
        vm.expectRevert(abi.encodeWithSelector(Court.ZeroAddress.selector, "beacon"));
        new FaultCourt(owner, vault, escrow, IDrawBeacon(address(0)), roundRule, treeRule, t);
        vm.expectRevert(abi.encodeWithSelector(Court.ZeroAddress.selector, "roundRule"));
        new FaultCourt(owner, vault, escrow, draws, IRoundRule(address(0)), treeRule, t);
        vm.expectRevert(abi.encodeWithSelector(Court.ZeroAddress.selector, "treeRule"));
        new FaultCourt(owner, vault, escrow, draws, roundRule, ITreeRule(address(0)), t);
    }
}

contract FaultCourtFilingTest is CourtWork {
    function _question(Evidence.DraftPair memory e) private view returns (bytes memory) {
        return abi.encodeCall(IRoundRule.draftTwice, (e, _separator()));
    }

    function test_FilingTakesABondAndKeepsItsTerms() public {
        Evidence.DraftPair memory e = _draftPair(_honest(1), 1);
        bytes32 commitment = court.commitmentOf(keccak256(_question(e)), challenger, SALT);
        vm.expectEmit(address(court));
        emit ICourt.Filed(challenger, commitment, BOND, 1_003, 1_103);
        _fileAs(challenger, _question(e));
        assertEq(court.bonds().open, BOND);
        assertEq(token.balanceOf(address(court)), BOND);
        vm.prank(challenger);
        vm.expectRevert(abi.encodeWithSelector(Court.AlreadyFiled.selector, commitment));
        court.file(commitment);

        // Harsher terms, and another reward, are for filings to come.
        ICourt.Terms memory t = _courtTerms();
        (t.bond, t.delay, t.faultBps, t.rewardBps) = (77 ether, 1, 10_000, 0);
        vm.prank(owner);
        court.setTerms(t);
        vm.roll(1_002);
        vm.prank(challenger);
        vm.expectRevert(abi.encodeWithSelector(Court.TooEarly.selector, 1_003));
        court.proveDraftTwice(e, SALT);
        vm.roll(1_003);
        vm.prank(challenger);
        court.proveDraftTwice(e, SALT);
        assertEq(_stakeD(), STAKE / 2);
        assertEq(_vestedTo(challenger), STAKE / 8);
        assertEq(court.bondOf(challenger), BOND, "the bond comes back");
        assertEq(court.filingOf(challenger, commitment).bond, 0);
        _assertBonds();
    }

    function test_ABondIsPulledOnce() public {
        Evidence.DraftPair memory e = _draftPair(_honest(1), 1);
        _prove(e);
        uint256 before = token.balanceOf(challenger);
        vm.prank(stranger);
        assertEq(court.pullBond(challenger), BOND);
        assertEq(token.balanceOf(challenger), before + BOND);
        vm.expectRevert(abi.encodeWithSelector(Court.NothingToPull.selector, challenger));
        court.pullBond(challenger);
        _assertBonds();
    }

    /// @dev An operator's bond goes where its stake goes.
    function test_AnOperatorsBondGoesToItsBeneficiary() public {
        Evidence.DraftPair memory e = _draftPair(_honest(1), 1);
        _fund(verifier.addr, address(court), BOND);
        _fileAs(verifier.addr, _question(e));
        vm.roll(1_003);
        vm.prank(verifier.addr);
        court.proveDraftTwice(e, SALT);
        court.pullBond(verifier.addr);
        assertEq(token.balanceOf(beneficiaryV), BOND);
    }

    function test_WithoutFilingNothingIsProven() public {
        Evidence.DraftPair memory e = _draftPair(_honest(1), 1);
        bytes memory question = _question(e);
        vm.prank(challenger);
        vm.expectPartialRevert(Court.NotFiled.selector);
        court.proveDraftTwice(e, SALT);
        _ready(question);
        // Another salt, another kind of proof, another order of the same two drafts.
        vm.startPrank(challenger);
        vm.expectPartialRevert(Court.NotFiled.selector);
        court.proveDraftTwice(e, keccak256("another salt"));
        (e.one, e.oneSignature, e.other, e.otherSignature) =
        (e.other, e.otherSignature, e.one, e.oneSignature);
        vm.expectPartialRevert(Court.NotFiled.selector);
        court.proveDraftTwice(e, SALT);
        vm.stopPrank();
        assertEq(_stakeD(), STAKE);
    }

    function test_AFilingLapses() public {
        Evidence.DraftPair memory e = _draftPair(_honest(1), 1);
        bytes32 commitment = _fileAs(challenger, _question(e));
        vm.roll(1_103);
        vm.expectRevert(abi.encodeWithSelector(Court.StillOpen.selector, 1_103));
        court.forfeit(challenger, commitment);
        vm.roll(1_104);
        vm.prank(challenger);
        vm.expectRevert(abi.encodeWithSelector(Court.TooLate.selector, 1_103));
        court.proveDraftTwice(e, SALT);
        court.forfeit(challenger, commitment);
        assertEq(court.bonds().burning, BOND);
        vm.expectPartialRevert(Court.NotFiled.selector);
        court.forfeit(challenger, commitment);
        uint256 dead = token.balanceOf(court.DEAD());
        assertEq(court.burn(), BOND);
        assertEq(token.balanceOf(court.DEAD()), dead + BOND);
        vm.expectRevert(Court.NothingToBurn.selector);
        court.burn();
        _assertBonds();
        // Filed anew, it counts: time has used up the filing, not the fault.
        vm.roll(1_200);
        _prove(e);
        assertEq(_stakeD(), STAKE / 2);
    }

    function test_ARefusedProofChangesNothing() public {
        Session memory s = _honest(1);
        Evidence.LeafPair memory honest = _leafPair(s, 1, 1);
        bytes memory question = abi.encodeCall(IRoundRule.otherDraft, (honest, _separator()));
        _ready(question);
        vm.prank(challenger);
        vm.expectRevert(Evidence.NoFault.selector);
        court.proveOtherDraft(honest, SALT);
        assertEq(court.bonds().open, BOND);
        assertEq(court.bondOf(challenger), 0);
        assertEq(_stakeV(), STAKE);
        // A false accusation costs its bond.
        vm.roll(2_000);
        court.forfeit(challenger, court.commitmentOf(keccak256(question), challenger, SALT));
        assertEq(court.bonds().burning, BOND);
        _assertBonds();
    }
}

/// @dev Named after what auditors found in systems of this kind.
contract FaultCourtAuditTest is CourtWork {
    /// @dev 8. Copied fraud proofs: seen in the open, a proof is of no use to anyone else.
    function test_Audit08_CopiedProofPaysItsAuthorOnly() public {
        Session memory s = _honest(1);
        Evidence.VerdictPair memory e = _verdictPair(s, 1);
        bytes memory question = abi.encodeCall(IRoundRule.verdictTwice, (e, _separator()));
        _ready(question);
        bytes32 commitment = court.commitmentOf(keccak256(question), challenger, SALT);
        // The copier has seen commitment, evidence and salt before they are mined.
        vm.startPrank(copier);
        vm.expectPartialRevert(Court.NotFiled.selector);
        court.proveVerdictTwice(e, SALT);
        court.file(commitment);
        court.file(court.commitmentOf(keccak256(question), copier, SALT));
        vm.expectPartialRevert(Court.NotFiled.selector);
        court.proveVerdictTwice(e, keccak256("any other"));
        vm.expectPartialRevert(Court.TooEarly.selector);
        court.proveVerdictTwice(e, SALT);
        vm.stopPrank();
        vm.prank(challenger);
        court.proveVerdictTwice(e, SALT);
        uint256 reward = _vestedTo(challenger);
        assertEq(reward, STAKE / 8);
        vm.roll(vm.getBlockNumber() + 3);
        vm.prank(copier);
        court.proveVerdictTwice(e, SALT);
        assertEq(_vestedTo(copier), 0);
        assertEq(_stakeV(), STAKE / 2, "nor is it punished twice");
        _assertBonds();
    }

    /// @dev A copied commitment, filed first, bars nobody: filings are kept by caller.
    function test_Audit24_AProofIsBoundToWhoFiledIt() public {
        Evidence.VerdictPair memory e = _verdictPair(_honest(1), 1);
        bytes memory question = abi.encodeCall(IRoundRule.verdictTwice, (e, _separator()));
        bytes32 commitment = court.commitmentOf(keccak256(question), challenger, SALT);
        vm.prank(copier);
        court.file(commitment);
        _prove(e);
        assertEq(_vestedTo(challenger), STAKE / 8);
    }

    /// @dev 6. Slashing oneself: with challenger and victims all one's own, half of each slash is gone.
    function test_Audit06_SelfSlashNeverProfits() public {
        Session memory s = _session(1);
        // V's own session with a client and a drafter of its own, at prices nobody could pay.
        (s.order.priceOutput, s.order.priceAccepted) = (type(uint128).max, type(uint128).max);
        for (uint256 i; i < 6; ++i) {
            _play(s, 4, 1, 3);
            s.rounds[i].leaves[1].draftToken = 999;
        }
        _seal(s);
        for (uint256 i; i < 6; ++i) {
            uint256 before = _stakeV();
            _proveOther(_leafPair(s, i, 1));
            uint256 taken = before - _stakeV();
            assertEq(taken, before / 2);
        }
        uint256 back = _vestedTo(challenger) + _vestedTo(client.addr) + _vestedTo(drafter.addr);
        uint256 lost = STAKE - _stakeV() - back;
        // As many as it likes, and then the slash it was afraid of, on what is left.
        assertGe(lost + _stakeV() / 2, STAKE / 2);
        // And no quicker way out: shares vest for the unbonding period, and then some.
        uint64[] memory slices = new uint64[](1);
        slices[0] = vault.sliceOf(block.timestamp + _times().unbonding) + 1;
        vm.warp(block.timestamp + _times().unbonding);
        vm.expectPartialRevert(StakeSlashing.NotVested.selector);
        vault.claimVested(challenger, slices);
        _assertBonds();
    }

    /// forge-config: default.fuzz.runs = 64
    function testFuzz_Audit06_HalfOfEverySlashIsGone(
        uint128 priceOutput,
        uint128 priceAccepted,
        uint16 rewardBps,
        uint16 faultBps,
        uint128 stakePrice
    ) public {
        ICourt.Terms memory t = _courtTerms();
        t.rewardBps = uint16(bound(rewardBps, 0, 5_000));
        t.victimBps = 5_000 - t.rewardBps;
        t.faultBps = uint16(bound(faultBps, 1, 10_000));
        vm.startPrank(owner);
        court.setTerms(t);
        // INVARIANT of the escrow: a price is below 2**96 in Q32.
        escrow.listToken(address(token), uint128(bound(stakePrice, 1, 1 << 96)));
        vm.stopPrank();
        Session memory s = _honest(1);
        (s.order.priceOutput, s.order.priceAccepted) = (priceOutput, priceAccepted);
        s.rounds[1].leaves[1].draftToken = 999;
        _seal(s);
        _proveOther(_leafPair(s, 1, 1));
        uint256 taken = STAKE - _stakeV();
        assertEq(taken, STAKE * t.faultBps / 10_000);
        uint256 back = _vestedTo(challenger) + _vestedTo(client.addr) + _vestedTo(drafter.addr);
        assertLe(back, taken / 2);
        _assertBonds();
    }

    /// @dev No price makes V's own fault unprovable.
    function test_Audit04_NoPriceMakesAProofRevert() public {
        vm.prank(owner);
        escrow.listToken(address(token), 1 << 96);
        Session memory s = _honest(1);
        (s.order.priceOutput, s.order.priceAccepted) = (type(uint128).max, type(uint128).max);
        _seal(s);
        // A tree of round 1 alone, that counts all that a lane of sums holds.
        Round[] memory one = new Round[](1);
        one[0] = s.rounds[1];
        s.rounds = one;
        one[0].record.output = type(uint64).max >> 1;
        one[0].record.accepted = type(uint64).max >> 1;
        Evidence.RecordCase memory e = _recordCase(s, 0);
        _prove(e, _signedSource(s, e.settled));
        assertEq(_stakeV(), STAKE / 2);
        _assertBonds();
    }

    /// @dev 7. The guilty files first, to have it rejected or to be his own accuser.
    function test_Audit07_GuiltyFilesFirst() public {
        Session memory s = _honest(1);
        Evidence.VerdictPair memory real = _verdictPair(s, 1);
        // He shows half of it, and is refused: the fault is not used up.
        Evidence.VerdictPair memory half = _verdictPair(s, 1);
        (half.other, half.otherSignature) = (half.one, half.oneSignature);
        _fund(verifier.addr, address(court), 100 ether);
        bytes memory question = abi.encodeCall(IRoundRule.verdictTwice, (half, _separator()));
        _fileAs(verifier.addr, question);
        vm.roll(vm.getBlockNumber() + 3);
        vm.prank(verifier.addr);
        vm.expectRevert(Evidence.NoFault.selector);
        court.proveVerdictTwice(half, SALT);
        _prove(real);
        assertEq(_stakeV(), STAKE / 2);
        // As his own accuser he pays three quarters of it.
        Evidence.VerdictPair memory second = _verdictPair(s, 2);
        question = abi.encodeCall(IRoundRule.verdictTwice, (second, _separator()));
        _fileAs(verifier.addr, question);
        vm.roll(vm.getBlockNumber() + 3);
        vm.prank(verifier.addr);
        court.proveVerdictTwice(second, SALT);
        assertEq(_stakeV(), STAKE / 4);
        assertEq(_vestedTo(verifier.addr), STAKE / 16);
        _assertBonds();
    }

    /// @dev One fault once, under any evidence; another id, another round, another guilty beside it.
    function test_Audit07_OneFaultOnceAndNoneBarsAnother() public {
        Session memory s = _honest(1);
        Records.VerdictLeaf memory leaf = s.rounds[0].leaves[2];
        (leaf.token, leaf.draftToken, leaf.position) = (55, 55, 900);
        s.rounds[0].leaves[1].draftToken = 77;
        _seal(s);
        _proveOther(_leafPair(s, 0, 2));
        assertEq(_stakeV(), STAKE / 2);
        _proveOther(_leafPair(s, 0, 1)); // another leaf, the same fault of the same round
        assertEq(_stakeV(), STAKE / 2);
        assertEq(court.bondOf(challenger), 2 * BOND, "a valid proof costs nothing");
        _proveAccept(_leafPair(s, 0, 2));
        assertEq(_stakeV(), STAKE / 4);
        _prove(_leafPlace(s, 0, 2));
        assertEq(_stakeV(), STAKE / 8);
        _prove(_verdictPair(s, 0));
        assertEq(_stakeV(), STAKE / 16);
        _prove(_verdictPair(s, 1));
        assertEq(_stakeV(), STAKE / 32);
        _assertBonds();
    }

    /// @dev An opening that showed the fault has punished it under the same name.
    function test_Audit07_OpeningAndProofShareAName() public {
        Session memory s = _honest(1);
        s.rounds[1].leaves[1].draftToken = 999;
        _seal(s);
        bytes32 name = keccak256(
            abi.encode(
                "verdraft/fault/1", uint8(3), verifier.addr, Records.hash(s.start), uint32(1)
            )
        );
        _slash(verifier.addr, Role.VERIFIER, 5_000, name);
        _proveOther(_leafPair(s, 1, 1));
        assertEq(_stakeV(), STAKE / 2);
        assertEq(_vestedTo(challenger), 0);
    }

    /// @dev Nothing to take: the fault stays open, so nobody has it done with while he is poor.
    function test_Audit05_PoorStakeKeepsTheFaultOpen() public {
        Session memory s = _honest(1);
        _slash(verifier.addr, Role.VERIFIER, 10_000, keccak256("all"));
        assertEq(_stakeV(), 0);
        _prove(_verdictPair(s, 1));
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, 100 ether);
        Evidence.VerdictPair memory e = _verdictPair(s, 1);
        e.other.version += 1;
        e.otherSignature = _sign(verifier.key, Records.hash(e.other));
        _prove(e);
        assertEq(_stakeV(), 50 ether);
    }

    /// @dev 5 and 14. A dust stake loses what there is, rounded up.
    function test_Audit14_DustStakeIsSlashed() public {
        _slash(verifier.addr, Role.VERIFIER, 10_000, keccak256("all"));
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, 1);
        _prove(_verdictPair(_honest(1), 1));
        assertEq(_stakeV(), 0);
        _assertBonds();
    }

    /// @dev 1 and 2. Stake on its way out, and matured stake not yet withdrawn, are reached.
    function test_Audit02_LeavingAndMaturedStakeIsReached() public {
        Evidence.VerdictPair memory e = _verdictPair(_honest(1), 1);
        vm.startPrank(verifier.addr);
        vault.unstake(verifier.addr, Role.VERIFIER, STAKE / 2);
        vm.warp(block.timestamp + _times().unbonding + 1);
        vault.unstake(verifier.addr, Role.VERIFIER, STAKE / 2);
        vm.stopPrank();
        _prove(e);
        assertEq(_stakeV(), STAKE / 2);
        _assertBonds();
    }

    /// @dev A key that was rotated out answers for what it has signed.
    function test_Audit_RetiredKeyAnswers() public {
        Evidence.VerdictPair memory e = _verdictPair(_honest(1), 1);
        address next = makeAddr("the next key");
        vm.prank(verifier.addr);
        vault.proposeKey(verifier.addr, next);
        vm.prank(next);
        vault.acceptKey(verifier.addr);
        _prove(e);
        assertEq(_stakeV(), STAKE / 2);
    }

    /// @dev 12. The same signatures under another chain id or escrow prove nothing.
    function test_Audit12_AnotherChainIsAnotherDomain() public {
        Evidence.VerdictPair memory e = _verdictPair(_honest(1), 1);
        vm.chainId(5);
        _ready(abi.encodeCall(IRoundRule.verdictTwice, (e, _separator())));
        vm.prank(challenger);
        vm.expectPartialRevert(Evidence.NotSignedBy.selector);
        court.proveVerdictTwice(e, SALT);
    }

    /// @dev 13. A node is no leaf, a leaf no node: what is hashed twice opens nothing.
    function test_Audit13_DoubleHashLeaves() public {
        Session memory s = _honest(1);
        Evidence.LeafPair memory e = _leafPair(s, 0, 0);
        bytes32 sep = _separator();
        // The first inner node of the verdict tree, shown at index 0 of a tree half as wide.
        e.verdictPath = new bytes32[](1);
        e.verdictPath[0] = keccak256("sibling");
        vm.expectRevert();
        roundRule.otherDraft(e, sep);
        // A proof of another depth, of an index outside, of no tree.
        e = _leafPair(s, 0, 0);
        e.verdictPath = new bytes32[](64);
        vm.expectRevert();
        roundRule.otherDraft(e, sep);
        e = _leafPair(s, 0, 4);
        e.index = 5;
        vm.expectPartialRevert(Evidence.NoSuchPlace.selector);
        roundRule.otherDraft(e, sep);
        Evidence.DraftPlace memory d = _draftPlace(s, 0, 3);
        d.index = 4;
        vm.expectPartialRevert(Evidence.NoSuchPlace.selector);
        roundRule.draftLeaf(d, sep);
        // A draft's leaf is no verdict's: its type is hashed with it.
        s.rounds[0].verdict.verdictRoot = s.rounds[0].commit.draftRoot;
        s.rounds[0].verdict.emitted = 4;
        s.rounds[0].verdictSignature = _sign(verifier.key, Records.hash(s.rounds[0].verdict));
        e = _leafPair(s, 0, 0);
        e.verdictPath = _path(_draftLeaves(s.rounds[0]), 0);
        vm.expectRevert();
        roundRule.otherDraft(e, sep);
    }

    /// @dev 19. Accusing is never free, however small the stake token's unit.
    function test_Audit19_NoDustBonds() public {
        ICourt.Terms memory t = _courtTerms();
        t.bond = 0;
        vm.prank(owner);
        vm.expectPartialRevert(Court.BadTerm.selector);
        court.setTerms(t);
        vm.prank(stranger);
        vm.expectRevert(); // no token, no filing
        court.file(keccak256("nothing"));
        assertEq(court.bonds().open, 0);
    }

    /// @dev 15. Terms of another time do not reach a filing; 27. nor is a window too short to be
    /// mined in.
    function test_Audit27_AWindowOutlastsAFullBlock() public {
        ICourt.Terms memory t = _courtTerms();
        t.window = court.MIN_WINDOW() - 1;
        vm.prank(owner);
        vm.expectPartialRevert(Court.BadTerm.selector);
        court.setTerms(t);
    }
}

/// @dev 20. Tokens that call back or keep a part of what is sent.
contract FaultCourtTokenTest is CourtWork {
    function _courtOver(address bondToken) private returns (FaultCourt over) {
        StakeVault other =
            new StakeVault(owner, guardian, bondToken, new ModelRegistry(owner), SLICE, _times());
        over = new FaultCourt(
            owner, other, escrow, IDrawBeacon(address(beacon)), roundRule, treeRule, _courtTerms()
        );
    }

    function test_Audit20_Reentrancy() public {
        HookToken hook = new HookToken();
        FaultCourt over = _courtOver(address(hook));
        hook.mint(challenger, 100 ether);
        vm.startPrank(challenger);
        hook.approve(address(over), type(uint256).max);
        hook.arm(address(over), abi.encodeCall(Court.file, (keccak256("inner"))));
        over.file(keccak256("outer"));
        assertFalse(hook.succeeded(), "file within file");
        vm.stopPrank();
        vm.roll(2_000);
        over.forfeit(challenger, keccak256("outer"));
        hook.arm(address(over), abi.encodeCall(Court.burn, ()));
        over.burn();
        assertFalse(hook.succeeded(), "burn within burn");
        assertEq(hook.balanceOf(address(over)), 0);
    }

    function test_Audit20_FeeOnTransfer() public {
        FeeOnTransferToken fee = new FeeOnTransferToken();
        FaultCourt over = _courtOver(address(fee));
        fee.mint(challenger, 100 ether);
        vm.startPrank(challenger);
        fee.approve(address(over), type(uint256).max);
        vm.expectRevert(abi.encodeWithSelector(Court.ShortBond.selector, BOND, BOND * 99 / 100));
        over.file(keccak256("short"));
    }
}

/// @dev That a root is V's: its voucher, or the batch in which it was settled.
contract FaultCourtSourceTest is CourtWork {
    function _case() private view returns (Session memory s, Evidence.RecordCase memory e) {
        s = _honest(1);
        s.rounds[1].record.accepted += 1;
        e = _recordCase(s, 1);
    }

    function _refused(Evidence.RecordCase memory e, IFaultCourt.Source memory source, bytes4 reason)
        private
    {
        vm.prank(challenger);
        vm.expectPartialRevert(reason);
        court.proveRecord(e, source, SALT);
    }

    function test_ByVoucher() public {
        (Session memory s, Evidence.RecordCase memory e) = _case();
        _ready(abi.encodeCall(ITreeRule.recordCase, (e)));
        IFaultCourt.Source memory source = _signedSource(s, e.settled);
        source.voucher.root = keccak256("another root");
        source.signature = _sign(verifier.key, Records.hash(source.voucher));
        _refused(e, source, FaultCourt.NotThisRoot.selector);
        source = _signedSource(s, e.settled);
        source.voucher.lane = keccak256("another lane");
        source.signature = _sign(verifier.key, Records.hash(source.voucher));
        _refused(e, source, FaultCourt.NotThisLane.selector);
        source = _signedSource(s, e.settled);
        source.signature = _sign(client.key, Records.hash(source.voucher));
        _refused(e, source, FaultCourt.NotByVerifier.selector);
        source.signature = new bytes(65);
        _refused(e, source, FaultCourt.NotByVerifier.selector);
        source.signature = new bytes(64);
        _refused(e, source, FaultCourt.NotByVerifier.selector);
        assertEq(_stakeV(), STAKE);
        source = _signedSource(s, e.settled);
        vm.prank(challenger);
        court.proveRecord(e, source, SALT);
        assertEq(_stakeV(), STAKE / 2);
    }

    function _settledIn(Session memory s, Evidence.RecordCase memory e)
        private
        returns (IFaultCourt.Source memory source)
    {
        source.entries = abi.encode(
            keccak256("other lane"),
            keccak256("other root"),
            uint256(0),
            Records.laneId(Records.laneOf(s.order)),
            _rootHash(e.settled),
            uint256(0)
        );
        source.index = 1;
        source.batch.id = 9;
        source.batch.entries = 2;
        source.batch.entriesHash = keccak256(source.entries);
        vm.mockCall(
            address(beacon),
            abi.encodeCall(IDrawBeacon.batchHash, (9)),
            abi.encode(keccak256(abi.encode(source.batch)))
        );
    }

    function test_BySettlement() public {
        (Session memory s, Evidence.RecordCase memory e) = _case();
        _ready(abi.encodeCall(ITreeRule.recordCase, (e)));
        IFaultCourt.Source memory source = _settledIn(s, e);
        assertEq(source.entries.length, 2 * Batches.ENTRY_BYTES);
        source.batch.settledAt = 1;
        _refused(e, source, FaultCourt.NotThisBatch.selector);
        source = _settledIn(s, e);
        source.entries[0] ^= 0x01;
        _refused(e, source, FaultCourt.NotTheseEntries.selector);
        source = _settledIn(s, e);
        source.index = 2;
        _refused(e, source, FaultCourt.NoSuchEntry.selector);
        source.index = 0;
        _refused(e, source, FaultCourt.NotThisRoot.selector);
        source = _settledIn(s, e);
        vm.prank(challenger);
        court.proveRecord(e, source, SALT);
        assertEq(_stakeV(), STAKE / 2);
        _assertBonds();
    }

    /// @dev The randomness comes between filing and proof, and the batch has another hash: the filing
    /// holds all the same.
    function test_ABatchMayMoveBetweenFilingAndProof() public {
        (Session memory s, Evidence.RecordCase memory e) = _case();
        IFaultCourt.Source memory source = _settledIn(s, e);
        _ready(abi.encodeCall(ITreeRule.recordCase, (e)));
        source.batch.randomness = keccak256("captured");
        vm.mockCall(
            address(beacon),
            abi.encodeCall(IDrawBeacon.batchHash, (9)),
            abi.encode(keccak256(abi.encode(source.batch)))
        );
        vm.prank(challenger);
        court.proveRecord(e, source, SALT);
        assertEq(_stakeV(), STAKE / 2);
    }

    /// @dev A lane of the same verifier's name, made up by someone else, has no voucher of V's.
    function test_NobodyAnswersForALaneHeNeverSigned() public {
        (Session memory s, Evidence.RecordCase memory e) = _case();
        e.lane.claimId = keccak256("another claim");
        _ready(abi.encodeCall(ITreeRule.recordCase, (e)));
        _refused(e, _signedSource(s, e.settled), FaultCourt.NotThisLane.selector);
    }
}
