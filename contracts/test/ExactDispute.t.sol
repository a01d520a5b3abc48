// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Court} from "../Court.sol";
import {ExactDispute} from "../ExactDispute.sol";
import {ICourt} from "../interfaces/ICourt.sol";
import {IExactRule} from "../interfaces/IExactRule.sol";
import {Evidence} from "../libraries/Evidence.sol";
import {ExactEvidence} from "../libraries/ExactEvidence.sol";
import {ExactFaults} from "../libraries/ExactFaults.sol";
import {ExactModel} from "../libraries/ExactModel.sol";
import {Records} from "../libraries/Records.sol";
import {Trees} from "../libraries/Trees.sol";
import {ExactWork} from "./ExactWork.sol";

/// @notice V's token against the scores of its own hidden state.
contract ExactTokenTest is ExactWork {
    function _guilty(ExactEvidence.TokenCase memory e, uint8 code)
        private
        view
        returns (Evidence.Ruling memory r)
    {
        r = _judge(e);
        assertEq(r.fault, 9);
        assertEq(r.code, code, "code");
        assertFalse(r.drafter);
        assertEq(r.guilty, verifier.addr);
        assertEq(r.startHash, e.verdict.startHash);
        assertEq(r.round, e.verdict.round);
    }

    function _refused(ExactEvidence.TokenCase memory e, bytes memory reason) private {
        bytes32 separator = _separator();
        vm.expectRevert(reason);
        exactRule.token(e, separator);
    }

    function _refused(ExactEvidence.TokenCase memory e, bytes4 reason) private {
        bytes32 separator = _separator();
        vm.expectPartialRevert(reason);
        exactRule.token(e, separator);
    }

    function _forPanel(ExactEvidence.TokenCase memory e, string memory why) private {
        _refused(e, abi.encodeWithSelector(ExactEvidence.ForPanel.selector, why));
    }

    /// @dev V says the token of place `rank` by score instead of the best, and signs that.
    function _lie(uint8 mode, uint256 index, uint256 within, uint256 rank)
        private
        view
        returns (Session memory s, uint32 best)
    {
        s = _exact(mode);
        Records.VerdictLeaf memory leaf = s.rounds[index].leaves[within];
        best = leaf.token;
        leaf.token = _ranked(s, leaf.position, rank);
        _seal(s);
    }

    // ------------------------------------------------------------------ honest

    function test_HonestTokensHold() public {
        for (uint8 mode; mode < 2; ++mode) {
            Session memory s = _exact(mode);
            for (uint256 index; index < s.rounds.length; ++index) {
                for (uint256 within; within < s.rounds[index].leaves.length; ++within) {
                    for (uint32 id; id < VOCABULARY; id += 1 + uint32(within)) {
                        _refused(_tokenCase(s, index, within, id), Evidence.NoFault.selector);
                    }
                }
            }
        }
    }

    function test_HonestRelaxedTokensHold() public {
        Session memory s = _exact(1);
        s.order.relaxTau = 1 << 24;
        Records.VerdictLeaf memory leaf = s.rounds[0].leaves[0];
        uint32 second = _ranked(s, 0, 1);
        (leaf.token, leaf.draftToken, s.rounds[0].drafts[0].token) = (second, second, second);
        leaf.scoreDraft = int64(_score(s, 0, second));
        leaf.scoreTop = int64(_score(s, 0, _ranked(s, 0, 0)));
        s.order.relaxTau = uint32(uint64(leaf.scoreTop - leaf.scoreDraft));
        _seal(s);
        for (uint32 id; id < VOCABULARY; ++id) {
            _refused(_tokenCase(s, 0, 0, id), Evidence.NoFault.selector);
        }
    }

    // ------------------------------------------------------------------ guilty

    function test_AnotherTokenScoresHigher() public view {
        for (uint8 mode; mode < 2; ++mode) {
            for (uint256 rank = 1; rank < 4; ++rank) {
                (Session memory s, uint32 best) = _lie(mode, 0, 2, rank);
                _guilty(_tokenCase(s, 0, 2, best), ExactFaults.TOKEN_BEATEN);
                // Anything above the token will do.
                _guilty(_tokenCase(s, 0, 2, _ranked(s, 2, rank - 1)), ExactFaults.TOKEN_BEATEN);
            }
        }
    }

    function test_WhatScoresLowerProvesNothing() public {
        (Session memory s,) = _lie(1, 0, 2, 2);
        _refused(_tokenCase(s, 0, 2, _ranked(s, 2, 3)), Evidence.NoFault.selector);
        _refused(_tokenCase(s, 0, 2, s.rounds[0].leaves[2].token), Evidence.NoFault.selector);
    }

    /// @dev Noise is of the place that the leaf stands at, whatever position the leaf says.
    function test_ThePlaceDecidesTheNoise() public view {
        (Session memory s, uint32 best) = _lie(1, 1, 1, 1);
        s.rounds[1].leaves[1].position = 900;
        _seal(s);
        _guilty(_tokenCase(s, 1, 1, best), ExactFaults.TOKEN_BEATEN);
    }

    function test_AmongEqualsTheLowestId() public {
        // Two rows alike: 3 and 8 have one score in greedy mode.
        Session memory s = _exact(0);
        ExactEvidence.TokenCase memory e = _tokenCase(s, 0, 0, 3);
        bytes32[] memory leaves = new bytes32[](VOCABULARY);
        ExactModel.Row memory row = _headRow(5, WIDTH);
        for (uint32 id; id < VOCABULARY; ++id) {
            leaves[id] = model.leaf(ExactModel.HEAD, id, row);
        }
        e.weights.treeRoot = _root(leaves);
        e.manifest = _manifest(model.weightsRoot(e.weights), VOCABULARY);
        s.order.targetModel = keccak256(abi.encode(e.manifest));
        s.rounds[0].leaves[0].token = 8;
        _seal(s);
        ExactEvidence.TokenCase memory f = _tokenCase(s, 0, 0, 3);
        (f.weights, f.manifest, f.own, f.other) = (e.weights, e.manifest, row, row);
        (f.own.leafIndex, f.own.path) = (8, _path(leaves, 8));
        f.other = abi.decode(abi.encode(row), (ExactModel.Row));
        (f.other.leafIndex, f.other.path) = (3, _path(leaves, 3));
        _guilty(f, ExactFaults.TOKEN_BEATEN);
        // The other way round the token stands.
        f.better = 9;
        (f.other.leafIndex, f.other.path) = (9, _path(leaves, 9));
        _refused(f, Evidence.NoFault.selector);
    }

    function test_AFilteredToken() public {
        Session memory s = _exact(1);
        s.order.topK = 3;
        Records.VerdictLeaf memory leaf = s.rounds[0].leaves[1];
        int256 own = _plainScore(s, 1, leaf.token);
        // Just kept: it stands. One above: V's own cut-off leaves it out.
        leaf.cutoff = int64(own);
        _seal(s);
        _refused(_tokenCase(s, 0, 1, leaf.token), Evidence.NoFault.selector);
        leaf.cutoff = int64(own + 1);
        _seal(s);
        _guilty(_tokenCase(s, 0, 1, leaf.token), ExactFaults.TOKEN_CUT);
        _guilty(_tokenCase(s, 0, 1, 0), ExactFaults.TOKEN_CUT);
        // Without filters in the order there is no cut-off, whatever the leaf says.
        s.order.topK = 0;
        _seal(s);
        _refused(_tokenCase(s, 0, 1, leaf.token), Evidence.NoFault.selector);
        s.order.topP = 65_535;
        _seal(s);
        _guilty(_tokenCase(s, 0, 1, leaf.token), ExactFaults.TOKEN_CUT);
    }

    /// @dev A cut-off that leaves the better token out is for the panel, and the error says so.
    function test_ABetterTokenBelowTheCutoffIsForThePanel() public {
        (Session memory s, uint32 best) = _lie(1, 0, 0, 1);
        s.order.topK = 2;
        Records.VerdictLeaf memory leaf = s.rounds[0].leaves[0];
        int256 plain = _plainScore(s, 0, best);
        leaf.cutoff = int64(plain + 1);
        int256 own = _plainScore(s, 0, leaf.token);
        if (own <= plain) {
            // The noise alone made it best; then the token itself would be cut.
            leaf.cutoff = int64(own);
            plain = _plainScore(s, 0, _lowest(s, 0));
            best = _lowest(s, 0);
        }
        _seal(s);
        _refused(
            _tokenCase(s, 0, 0, best),
            abi.encodeWithSelector(ExactEvidence.CutoffForPanel.selector, best, plain, leaf.cutoff)
        );
    }

    function _lowest(Session memory s, uint32 position) private view returns (uint32 low) {
        for (uint32 id; id < VOCABULARY; ++id) {
            if (_plainScore(s, position, id) < _plainScore(s, position, low)) low = id;
        }
    }

    function test_ATokenOutsideTheVocabulary() public {
        Session memory s = _exact(1);
        s.rounds[0].leaves[4].token = VOCABULARY;
        _seal(s);
        _guilty(_tokenCase(s, 0, 4, 0), ExactFaults.TOKEN_UNKNOWN);
        // And nothing outside is better than what is inside.
        s = _exact(1);
        _refused(
            _tokenCase(s, 0, 4, VOCABULARY),
            abi.encodeWithSelector(Evidence.NoSuchPlace.selector, "token", VOCABULARY, VOCABULARY)
        );
    }

    function test_AHiddenStateOfAnotherWidth() public view {
        Session memory s = _exact(1);
        bytes memory short = _stream("short", 2 * WIDTH - 2);
        s.rounds[0].leaves[0].fingerprint =
            Records.saltedFingerprint(LEAF_SALT, model.fingerprint(short));
        _seal(s);
        ExactEvidence.TokenCase memory e = _tokenCase(s, 0, 0, 1);
        e.hidden = short;
        _guilty(e, ExactFaults.HIDDEN_WIDTH);
    }

    // ------------------------------------------------------------------ relaxed

    /// @dev V accepts D's draft, place `rank` by score, with τ one short of what that takes or enough.
    function _relaxed(uint256 rank, int64 spare)
        private
        view
        returns (Session memory s, uint32 best)
    {
        s = _exact(1);
        best = _ranked(s, 0, 0);
        uint32 chosen = _ranked(s, 0, rank);
        Records.VerdictLeaf memory leaf = s.rounds[0].leaves[0];
        (leaf.token, leaf.draftToken, s.rounds[0].drafts[0].token) = (chosen, chosen, chosen);
        leaf.scoreDraft = int64(_score(s, 0, chosen));
        leaf.scoreTop = int64(_score(s, 0, best));
        s.order.relaxTau = uint32(uint64(leaf.scoreTop - leaf.scoreDraft + spare));
        _seal(s);
    }

    function test_RelaxedBeyondTau() public {
        (Session memory s, uint32 best) = _relaxed(1, -1);
        // The leaf's own figures would show it (F4); with others they do not, and this does.
        s.rounds[0].leaves[0].scoreTop -= 1;
        _seal(s);
        _guilty(_tokenCase(s, 0, 0, best), ExactFaults.TOKEN_BEATEN);
        (s, best) = _relaxed(1, 0);
        _refused(_tokenCase(s, 0, 0, best), Evidence.NoFault.selector);
        // A key position is strict.
        s.rounds[0].leaves[0].key = true;
        _seal(s);
        _guilty(_tokenCase(s, 0, 0, best), ExactFaults.TOKEN_BEATEN);
    }

    function test_RelaxedOwnTokenIsStrict() public view {
        Session memory s = _exact(1);
        s.order.relaxTau = type(uint32).max;
        Records.VerdictLeaf memory leaf = s.rounds[1].leaves[1];
        uint32 best = leaf.token;
        leaf.token = _ranked(s, leaf.position, 2);
        _seal(s);
        _guilty(_tokenCase(s, 1, 1, best), ExactFaults.TOKEN_BEATEN);
    }

    function test_RelaxedFiguresThatAreNotTheScores() public {
        (Session memory s, uint32 best) = _relaxed(1, 5);
        Records.VerdictLeaf memory leaf = s.rounds[0].leaves[0];
        leaf.scoreDraft += 1;
        _seal(s);
        _guilty(_tokenCase(s, 0, 0, best), ExactFaults.SCORE_FIGURES);
        leaf.scoreDraft -= 1;
        leaf.scoreTop -= 1;
        _seal(s);
        _guilty(_tokenCase(s, 0, 0, best), ExactFaults.SCORE_FIGURES);
        leaf.scoreTop += 1;
        _seal(s);
        _refused(_tokenCase(s, 0, 0, best), Evidence.NoFault.selector);
        // V's own token after a reject: its score is the top, and D's is what it is.
        s = _exact(1);
        s.order.relaxTau = 1;
        leaf = s.rounds[1].leaves[1];
        leaf.scoreTop = int64(_score(s, leaf.position, leaf.token));
        leaf.scoreDraft = int64(_score(s, leaf.position, leaf.draftToken)) - 1;
        _seal(s);
        _guilty(_tokenCase(s, 1, 1, leaf.draftToken), ExactFaults.SCORE_FIGURES);
        leaf.scoreDraft += 1;
        _seal(s);
        _refused(_tokenCase(s, 1, 1, leaf.draftToken), Evidence.NoFault.selector);
        leaf.scoreTop += 1;
        _seal(s);
        _guilty(_tokenCase(s, 1, 1, 0), ExactFaults.SCORE_FIGURES);
    }

    /// @dev V rejects D's token as cut although, by V's own cut-off, it is kept: and the reverse.
    function test_RelaxedFiguresOfAFilteredDraft() public {
        Session memory s = _exact(1);
        (s.order.relaxTau, s.order.topK) = (1, 4);
        Records.VerdictLeaf memory leaf = s.rounds[1].leaves[1];
        uint32 low = _lowest(s, leaf.position);
        (leaf.draftToken, s.rounds[1].drafts[1].token) = (low, low);
        leaf.scoreTop = int64(_score(s, leaf.position, leaf.token));
        leaf.cutoff = int64(_plainScore(s, leaf.position, low)) + 1;
        leaf.scoreDraft = type(int64).min;
        _seal(s);
        _refused(_tokenCase(s, 1, 1, low), ExactEvidence.CutoffForPanel.selector);
        leaf.scoreDraft = 0;
        _seal(s);
        _guilty(_tokenCase(s, 1, 1, low), ExactFaults.SCORE_FIGURES);
        leaf.cutoff -= 1;
        leaf.scoreDraft = type(int64).min;
        _seal(s);
        _guilty(_tokenCase(s, 1, 1, low), ExactFaults.SCORE_FIGURES);
    }

    // ------------------------------------------------------------------ for the panel

    function test_WhatArithmeticDoesNotDecide() public {
        (Session memory s, uint32 best) = _lie(1, 0, 0, 1);
        s.order.repetitionPenalty = 70_000;
        _seal(s);
        _forPanel(_tokenCase(s, 0, 0, best), "penalties");
        s.order.repetitionPenalty = 1 << 16;
        s.order.presencePenalty = -1;
        _seal(s);
        _forPanel(_tokenCase(s, 0, 0, best), "penalties");
        s.order.presencePenalty = 0;
        s.order.frequencyPenalty = 1;
        _seal(s);
        _forPanel(_tokenCase(s, 0, 0, best), "penalties");
        s.order.frequencyPenalty = 0;
        s.order.mode = Records.MODE_REJECTION;
        _seal(s);
        _forPanel(_tokenCase(s, 0, 0, best), "rejection mode");
        s.order.mode = 1;
        s.order.noiseVersion = 2;
        _seal(s);
        _forPanel(_tokenCase(s, 0, 0, best), "noise version");
        s.order.noiseVersion = 1;
        s.order.temperature = 0;
        _seal(s);
        _forPanel(_tokenCase(s, 0, 0, best), "temperature");
    }

    function test_OtherTiersAndReducedHeads() public {
        (Session memory s, uint32 best) = _lie(0, 0, 0, 1);
        ExactEvidence.TokenCase memory e = _tokenCase(s, 0, 0, best);
        e.manifest.tier = 1;
        s.order.targetModel = keccak256(abi.encode(e.manifest));
        _seal(s);
        Records.Manifest memory m = e.manifest;
        e = _tokenCase(s, 0, 0, best);
        e.manifest = m;
        _forPanel(e, "float tier");

        e.weights.header[e.weights.header.length - 1] = 0x01;
        e.manifest = _manifest(model.weightsRoot(e.weights), VOCABULARY);
        s.order.targetModel = keccak256(abi.encode(e.manifest));
        _seal(s);
        ExactEvidence.TokenCase memory f = _tokenCase(s, 0, 0, best);
        (f.manifest, f.weights) = (e.manifest, e.weights);
        _forPanel(f, "reduced head");
    }

    // ------------------------------------------------------------------ what does not belong

    function test_EvidenceBelongsTogether() public {
        (Session memory s, uint32 best) = _lie(1, 0, 1, 1);
        ExactEvidence.TokenCase memory e = _tokenCase(s, 0, 1, best);
        _guilty(e, ExactFaults.TOKEN_BEATEN);
        e.hidden[3] = ~e.hidden[3];
        _refused(e, Evidence.NotNamed.selector);
        e = _tokenCase(s, 0, 1, best);
        e.salt = 0;
        _refused(e, Evidence.NotNamed.selector);
        e = _tokenCase(s, 0, 1, best);
        e.manifest.vocabSize -= 1;
        _refused(e, Evidence.NotNamed.selector);
        e = _tokenCase(s, 0, 1, best);
        e.weights.leafCount += 1;
        _refused(e, Evidence.NotNamed.selector);
        e = _tokenCase(s, 0, 1, best);
        e.weights.header[40] = 0xff;
        _refused(e, Evidence.NotNamed.selector);
        e = _tokenCase(s, 0, 1, best);
        e.start.seed = keccak256("another seed");
        _refused(e, Evidence.NotNamed.selector);
        e = _tokenCase(s, 0, 1, best);
        e.order.temperature += 1;
        _refused(e, Evidence.NotNamed.selector);
        e = _tokenCase(s, 0, 1, best);
        e.verdict.emitted += 1;
        _refused(e, Evidence.NotSignedBy.selector);
        e = _tokenCase(s, 0, 1, best);
        e.leaf.token ^= 1;
        _refused(e, Trees.NotInTree.selector);
        e = _tokenCase(s, 0, 1, best);
        e.index = 0;
        _refused(e, Trees.NotInTree.selector);
        e = _tokenCase(s, 0, 1, best);
        e.index = 9;
        _refused(e, Evidence.NoSuchPlace.selector);
    }

    /// @dev Another row's weights, multiplier, shift, bias or place; a row of another tensor.
    function test_RowsAreTheModels() public {
        (Session memory s, uint32 best) = _lie(0, 0, 1, 1);
        uint32 third = _ranked(s, 1, 2);
        for (uint256 i; i < 7; ++i) {
            ExactEvidence.TokenCase memory e = _tokenCase(s, 0, 1, best);
            ExactModel.Row memory row = i < 4 ? e.own : e.other;
            if (i == 0) row.weights = _headRow(third, WIDTH).weights;
            if (i == 1) row.multiplier += 1;
            if (i == 2) row.shift -= 1;
            if (i == 3) row.bias = -1;
            if (i == 4) e.other = _opened(third);
            if (i == 5) row.weights = bytes.concat(row.weights, hex"00");
            if (i == 6) row.leafIndex ^= 1;
            _refused(e, Trees.NotInTree.selector);
        }
        // A leaf of another length of path, and no path.
        ExactEvidence.TokenCase memory f = _tokenCase(s, 0, 1, best);
        f.own.path = new bytes32[](2);
        _refused(f, Trees.WrongProofLength.selector);
    }

    // ------------------------------------------------------------------ the court

    function test_OneChallengerIsEnough() public {
        (Session memory s, uint32 best) = _lie(1, 0, 2, 1);
        uint256 before = _stakeV();
        _prove(_tokenCase(s, 0, 2, best));
        assertEq(_stakeV(), before / 2);
        assertEq(_stakeD(), STAKE);
        assertEq(_vestedTo(challenger), before / 8, "a quarter of the slash");
        // Five output tokens, four of D's.
        assertEq(_vestedTo(client.addr), 5 * 3 ether + 4 * 2 ether);
        assertEq(dispute.bondOf(challenger), BOND);
        _assertConserved();
        // Once, whatever else is wrong with that round.
        vm.roll(vm.getBlockNumber() + 200);
        s.rounds[0].leaves[0].token = _ranked(s, 0, 3);
        _seal(s);
        _prove(_tokenCase(s, 0, 0, _ranked(s, 0, 0)));
        assertEq(_stakeV(), before / 2);
        // Another round is another fault.
        vm.roll(vm.getBlockNumber() + 200);
        s.rounds[1].leaves[0].token = _ranked(s, 5, 3);
        _seal(s);
        _prove(_tokenCase(s, 1, 0, _ranked(s, 5, 0)));
        assertEq(_stakeV(), before / 4);
    }

    /// @dev The token that V passed over was D's: D gets what its window would have brought.
    function test_ADrafterFalselyRejectedIsPaid() public {
        Session memory s = _exact(1);
        Records.VerdictLeaf memory leaf = s.rounds[1].leaves[1];
        (leaf.token, leaf.draftToken) = (leaf.draftToken, leaf.token);
        s.rounds[1].drafts[1].token = leaf.draftToken;
        _seal(s);
        ExactEvidence.TokenCase memory e = _tokenCase(s, 1, 1, leaf.draftToken);
        Evidence.Ruling memory r = _judge(e);
        assertEq(r.harmed, drafter.addr);
        assertEq(r.harmedLoss, 2 * 2 ether, "two of three drafts");
        // Without the commit nothing is claimed for D; with another one the proof is refused.
        delete e.commit;
        assertEq(_judge(e).harmedLoss, 0);
        e.commit.k = 7;
        _refused(e, Evidence.NotNamed.selector);
        _prove(_tokenCase(s, 1, 1, leaf.draftToken));
        assertEq(_vestedTo(drafter.addr), 4 ether);
    }

    function test_ACopyPaysItsAuthorOnly() public {
        (Session memory s, uint32 best) = _lie(1, 0, 2, 1);
        ExactEvidence.TokenCase memory e = _tokenCase(s, 0, 2, best);
        bytes memory question = abi.encodeCall(IExactRule.token, (e, _separator()));
        _fileExact(challenger, question);
        bytes32 commitment = dispute.commitmentOf(keccak256(question), challenger, SALT);
        vm.roll(vm.getBlockNumber() + 3);
        vm.prank(copier);
        vm.expectPartialRevert(Court.NotFiled.selector);
        dispute.proveToken(e, SALT);
        // Who files the same commitment has a filing that opens to nothing of his.
        vm.prank(copier);
        dispute.file(commitment);
        vm.roll(vm.getBlockNumber() + 3);
        vm.prank(copier);
        vm.expectPartialRevert(Court.NotFiled.selector);
        dispute.proveToken(e, SALT);
        vm.prank(challenger);
        dispute.proveToken(e, SALT);
        assertEq(_vestedTo(copier), 0);
        assertGt(_vestedTo(challenger), 0);
    }

    function test_WhatWasFiledIsWhatIsProven() public {
        (Session memory s, uint32 best) = _lie(1, 0, 2, 2);
        ExactEvidence.TokenCase memory e = _tokenCase(s, 0, 2, best);
        _fileExact(challenger, abi.encodeCall(IExactRule.token, (e, _separator())));
        ExactEvidence.TokenCase memory other = _tokenCase(s, 0, 2, _ranked(s, 2, 1));
        vm.startPrank(challenger);
        vm.expectPartialRevert(Court.TooEarly.selector);
        dispute.proveToken(e, SALT);
        vm.roll(vm.getBlockNumber() + 3);
        vm.expectPartialRevert(Court.NotFiled.selector);
        dispute.proveToken(other, SALT);
        vm.expectPartialRevert(Court.NotFiled.selector);
        dispute.proveToken(e, keccak256("another salt"));
        dispute.proveToken(e, SALT);
    }

    function test_ARefusedProofUsesNothingUp() public {
        Session memory s = _exact(1);
        ExactEvidence.TokenCase memory e = _tokenCase(s, 0, 2, 0);
        bytes memory question = abi.encodeCall(IExactRule.token, (e, _separator()));
        _fileExact(challenger, question);
        vm.roll(vm.getBlockNumber() + 3);
        vm.prank(challenger);
        vm.expectRevert(Evidence.NoFault.selector);
        dispute.proveToken(e, SALT);
        bytes32 commitment = dispute.commitmentOf(keccak256(question), challenger, SALT);
        assertEq(dispute.filingOf(challenger, commitment).bond, BOND);
        vm.roll(vm.getBlockNumber() + 200);
        dispute.forfeit(challenger, commitment);
        assertEq(dispute.bonds().burning, BOND);
    }

    function test_ARuleIsNeeded() public {
        ICourt.Terms memory t = _courtTerms();
        vm.expectRevert(abi.encodeWithSelector(Court.ZeroAddress.selector, "rule"));
        new ExactDispute(owner, vault, escrow, IExactRule(address(0)), t);
    }
}
