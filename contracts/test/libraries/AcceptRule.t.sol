// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AcceptRule} from "../../libraries/AcceptRule.sol";
import {Coins} from "../../libraries/Coins.sol";
import {Masses} from "../../libraries/Masses.sol";
import {Records} from "../../libraries/Records.sol";
import {AcceptRuleHarness} from "../harness/AcceptRuleHarness.sol";
import {VectorReader} from "./VectorReader.sol";

contract AcceptRuleTest is VectorReader {
    AcceptRuleHarness internal rule;

    uint32 internal constant TAU = 1 << 23; // half a nat
    uint32 internal constant THRESHOLD = 40;

    /// @dev A pair of leaves and what stands around it.
    struct Case {
        AcceptRuleHarness.Terms terms;
        bytes32 seed;
        uint256 position;
        bool drafted;
        Records.DraftLeaf draft;
        Records.VerdictLeaf verdict;
        bytes32 chainValue;
    }

    function setUp() public {
        rule = new AcceptRuleHarness();
        _loadTypes();
    }

    // ------------------------------------------------------------------ golden vectors

    struct Pair {
        uint256 order;
        bytes32 seed;
        uint256 position;
        Records.VerdictLeaf verdict;
        bytes32 chainValue;
        uint8 fault;
    }

    function test_Vectors_LeafPairs() public view {
        string memory json = _load("accept");
        AcceptRuleHarness.Terms[] memory terms = _terms(json);
        Pair[] memory pairs = abi.decode(
            vm.parseJsonTypeArray(
                json,
                ".leafPairs",
                string.concat(
                    "Pair(uint256 order,bytes32 seed,uint256 position,VerdictLeaf verdict,bytes32 chainValue,uint8 fault)",
                    _typeString("VerdictLeaf")
                )
            ),
            (Pair[])
        );
        uint256 faults;
        for (uint256 i; i < pairs.length; ++i) {
            Pair memory pair = pairs[i];
            Case memory c;
            c.terms = terms[pair.order];
            (c.seed, c.position) = (pair.seed, pair.position);
            (c.verdict, c.chainValue) = (pair.verdict, pair.chainValue);
            string memory draft = string.concat(_at(".leafPairs", i), ".draft");
            c.drafted = vm.keyExistsJson(json, string.concat(draft, ".token"));
            if (c.drafted) c.draft = _draft(json, draft);
            assertEq(_judge(c), pair.fault, draft);
            if (pair.fault != 0) ++faults;
        }
        assertGt(faults, 40);
        assertGt(pairs.length - faults, 20);
    }

    struct Drafted {
        uint256 order;
        bytes32 seed;
        bytes32 contextHash;
        uint256 position;
        Records.DraftLeaf draft;
        bytes32 chainValue;
        uint8 fault;
    }

    function test_Vectors_DraftLeaves() public view {
        string memory json = _load("accept");
        AcceptRuleHarness.Terms[] memory terms = _terms(json);
        Drafted[] memory list = abi.decode(
            vm.parseJsonTypeArray(
                json,
                ".draftLeaves",
                string.concat(
                    "Drafted(uint256 order,bytes32 seed,bytes32 contextHash,uint256 position,DraftLeaf draft,bytes32 chainValue,uint8 fault)",
                    _typeString("DraftLeaf")
                )
            ),
            (Drafted[])
        );
        assertGt(list.length, 20);
        for (uint256 i; i < list.length; ++i) {
            Drafted memory d = list[i];
            uint8 code = rule.checkDraftLeaf(
                terms[d.order], d.seed, d.contextHash, d.position, d.draft, d.chainValue
            );
            assertEq(code, d.fault);
        }
    }

    function test_Vectors_DraftLists() public view {
        string memory json = _load("accept");
        uint256 count = _count(json, ".draftLists");
        for (uint256 i; i < count; ++i) {
            string memory item = _at(".draftLists", i);
            uint8 code = rule.checkDraftList(
                _draft(json, string.concat(item, ".draft")),
                _packedKept(json, string.concat(item, ".kept"))
            );
            assertEq(code, _uint(json, string.concat(item, ".fault")), item);
        }
    }

    function _draft(string memory json, string memory path)
        internal
        view
        returns (Records.DraftLeaf memory)
    {
        return abi.decode(_record(json, path, "DraftLeaf"), (Records.DraftLeaf));
    }

    /// @dev What the rule reads of each order in the file.
    function _terms(string memory json)
        internal
        view
        returns (AcceptRuleHarness.Terms[] memory terms)
    {
        Records.Order[] memory orders = abi.decode(
            vm.parseJsonTypeArray(json, ".orders", _typeString("Order")), (Records.Order[])
        );
        terms = new AcceptRuleHarness.Terms[](orders.length);
        for (uint256 i; i < orders.length; ++i) {
            terms[i] = AcceptRuleHarness.Terms({
                startPosition: orders[i].startPosition,
                maxTokens: orders[i].maxTokens,
                mode: orders[i].mode,
                relaxTau: orders[i].relaxTau,
                keyTargetSurprisal: orders[i].keyTargetSurprisal,
                keyDraftSurprisal: orders[i].keyDraftSurprisal,
                anchorVerifier: orders[i].anchorVerifier,
                anchorDrafter: orders[i].anchorDrafter
            });
        }
    }

    // ------------------------------------------------------------------ strict modes

    function testFuzz_AnHonestVerifierIsNeverAccused(uint256 dice, uint8 mode) public view {
        assertEq(_judge(_honest(dice, mode % 3)), AcceptRule.NO_FAULT);
    }

    function testFuzz_ATurnedAcceptBitIsFound(uint256 dice, uint8 mode) public view {
        Case memory c = _honest(dice, mode % 3);
        c.verdict.accepted = !c.verdict.accepted;
        assertNotEq(_judge(c), AcceptRule.NO_FAULT);
    }

    function testFuzz_AFalseRejectOfTheOwnTokenIsFound(uint256 dice, uint8 mode) public view {
        Case memory c = _honest(dice, mode % 3);
        if (!c.verdict.accepted || c.draft.q == 0) return;
        c.verdict.accepted = false;
        uint8 code = c.terms.mode == Records.MODE_REJECTION
            ? AcceptRule.COIN_SAYS_OTHERWISE
            : AcceptRule.REJECTED_OWN_TOKEN;
        assertEq(_judge(c), code);
    }

    function testFuzz_AnotherTokenThanTheAcceptedOneIsFound(uint256 dice, uint32 other)
        public
        view
    {
        Case memory c = _honest(dice, Records.MODE_COUPLED);
        c.verdict.accepted = true;
        c.verdict.token = other;
        assertEq(
            _judge(c), other == c.draft.token ? AcceptRule.NO_FAULT : AcceptRule.ACCEPTED_OTHER
        );
    }

    function testFuzz_AnotherDraftTokenIsFound(uint256 dice, uint8 mode, uint32 other) public view {
        Case memory c = _honest(dice, mode % 3);
        vm.assume(other != c.draft.token);
        c.verdict.draftToken = other;
        assertEq(_judge(c), AcceptRule.OTHER_DRAFT);
    }

    function testFuzz_APositionOutsideTheSessionIsFound(uint256 dice, uint256 position)
        public
        view
    {
        Case memory c = _honest(dice, Records.MODE_GREEDY);
        c.terms.startPosition = 10;
        c.position = position;
        c.verdict.position = uint32(position);
        uint8 code = _judge(c);
        if (position < 10 || position >= c.terms.maxTokens) {
            assertEq(code, AcceptRule.OUTSIDE_SESSION);
        } else {
            assertEq(code, AcceptRule.NO_FAULT);
        }
    }

    function testFuzz_AnotherPositionIsFound(uint256 dice, uint32 other) public view {
        Case memory c = _honest(dice, Records.MODE_GREEDY);
        vm.assume(other != c.position);
        c.verdict.position = other;
        assertEq(_judge(c), AcceptRule.WRONG_POSITION);
    }

    function testFuzz_NothingDraftedIsNothingAccepted(uint256 dice, uint8 mode) public view {
        Case memory c = _honest(dice, mode % 3);
        c.drafted = false;
        assertEq(_judge(c), AcceptRule.OTHER_DRAFT);
        c.verdict.draftToken = Records.NO_TOKEN;
        c.verdict.accepted = false;
        assertEq(_judge(c), AcceptRule.NO_FAULT);
        c.verdict.accepted = true;
        assertEq(_judge(c), AcceptRule.ACCEPTED_NOTHING);
    }

    // ------------------------------------------------------------------ relaxed acceptance

    function testFuzz_TheRelaxedRule(
        int64 top,
        uint64 gap,
        bool accepted,
        bool key,
        uint32 targetSurprisal,
        uint32 draftSurprisal
    ) public view {
        Case memory c = _honest(uint256(keccak256(abi.encode(top, gap))), Records.MODE_COUPLED);
        c.terms.relaxTau = TAU;
        c.terms.keyTargetSurprisal = THRESHOLD;
        c.terms.keyDraftSurprisal = THRESHOLD;
        gap %= 2 * TAU;
        top = int64(bound(top, type(int64).min + int64(gap), type(int64).max));
        c.verdict.scoreTop = top;
        c.verdict.scoreDraft = top - int64(gap);
        c.verdict.key = key;
        c.verdict.surprisal = targetSurprisal % (2 * THRESHOLD);
        c.draft.surprisal = draftSurprisal % (2 * THRESHOLD);
        c.verdict.accepted = accepted;
        // A refused draft is not the target's own token: where they tie, a lower id won.
        c.draft.token = c.verdict.draftToken = 9;
        c.verdict.token = accepted ? 9 : 8;

        bool strict = c.verdict.surprisal > THRESHOLD || c.draft.surprisal > THRESHOLD;
        uint8 expected = AcceptRule.NO_FAULT;
        if (strict && !key) expected = AcceptRule.KEY_BIT;
        else if (accepted && gap != 0 && (key || gap > TAU)) expected = AcceptRule.RELAXED_ACCEPT;
        else if (!accepted && !key && gap <= TAU) expected = AcceptRule.RELAXED_REJECT;
        assertEq(_judge(c), expected);

        // With a higher id in its place, a tie is the draft's even at a key position.
        if (!accepted && key && gap == 0) {
            c.verdict.token = 10;
            assertEq(_judge(c), AcceptRule.RELAXED_REJECT);
        }
        if (!(strict && !key) && top != type(int64).max) {
            c.verdict.scoreDraft = top + 1;
            assertEq(_judge(c), AcceptRule.SCORES_CROSSED);
        }
    }

    // ------------------------------------------------------------------ the drafter's leaf

    function testFuzz_TheTokenTheDrawFallsOnIsRight(
        bytes32 seed,
        bytes32 context,
        bytes32 chainValue,
        uint32 position,
        uint64 below,
        uint64 q
    ) public view {
        AcceptRuleHarness.Terms memory terms;
        terms.mode = Records.MODE_REJECTION;
        uint64 w = Coins.draw(chainValue, seed, context, position);
        Records.DraftLeaf memory draft;
        draft.position = position;
        draft.token = 5;
        draft.qBelow = uint64(bound(below, 0, w));
        draft.q = uint64(bound(q, w - draft.qBelow + 1, type(uint64).max - draft.qBelow));
        assertEq(
            rule.checkDraftLeaf(terms, seed, context, position, draft, chainValue),
            AcceptRule.NO_FAULT
        );
        // An end past the whole is no interval, whatever the draw.
        if (draft.qBelow != 0) {
            uint64 right = draft.q;
            draft.q = type(uint64).max - draft.qBelow + 1;
            assertEq(
                rule.checkDraftLeaf(terms, seed, context, position, draft, chainValue),
                AcceptRule.DRAW
            );
            draft.q = right;
        }
        // Too short to reach it, or beginning after it.
        draft.q = w - draft.qBelow;
        assertEq(
            rule.checkDraftLeaf(terms, seed, context, position, draft, chainValue), AcceptRule.DRAW
        );
        draft.qBelow = w + 1;
        draft.q = type(uint64).max - draft.qBelow;
        assertEq(
            rule.checkDraftLeaf(terms, seed, context, position, draft, chainValue), AcceptRule.DRAW
        );
        // Only rejection mode draws.
        terms.mode = Records.MODE_COUPLED;
        assertEq(
            rule.checkDraftLeaf(terms, seed, context, position, draft, chainValue),
            AcceptRule.NO_FAULT
        );
    }

    function test_TheLeafGivesWhatItsListGives() public {
        bytes memory packed = abi.encodePacked(
            uint32(3), uint64(7), uint32(5), uint64(11), uint32(8), type(uint64).max - 18
        );
        Records.DraftLeaf memory draft;
        draft.keptHash = Records.keptHash(packed);
        (draft.token, draft.q, draft.qBelow) = (5, 11, 7);
        assertEq(rule.checkDraftList(draft, packed), AcceptRule.NO_FAULT);
        draft.q = 12;
        assertEq(rule.checkDraftList(draft, packed), AcceptRule.LIST_NOT_LEAF);
        (draft.q, draft.qBelow) = (11, 8);
        assertEq(rule.checkDraftList(draft, packed), AcceptRule.LIST_NOT_LEAF);
        packed[11] = 0x08; // 3's mass: 8, one too many in all
        draft.keptHash = Records.keptHash(packed);
        assertEq(rule.checkDraftList(draft, packed), AcceptRule.LIST_MALFORMED);
        bytes32 named = keccak256("another list");
        draft.keptHash = named;
        vm.expectRevert(
            abi.encodeWithSelector(AcceptRule.NotThisLeaf.selector, Records.keptHash(packed), named)
        );
        rule.checkDraftList(draft, packed);
    }

    // ------------------------------------------------------------------ the honest side

    /// @dev What a verifier that follows the protocol writes, for dice of any kind.
    function _honest(uint256 dice, uint8 mode) internal pure returns (Case memory c) {
        c.terms.maxTokens = 1000;
        c.terms.mode = mode;
        c.seed = keccak256(abi.encode(dice, "seed"));
        c.chainValue = keccak256(abi.encode(dice, "chain"));
        c.position = 10 + dice % 900;
        c.drafted = true;
        c.draft.position = uint32(c.position);
        c.draft.token = uint32((dice >> 16) % 50);
        c.verdict.position = uint32(c.position);
        c.verdict.draftToken = c.draft.token;
        if (mode == Records.MODE_REJECTION) {
            c.draft.q = uint64(dice >> 64) >> ((dice >> 32) % 64);
            c.verdict.p = uint64(dice >> 128) >> ((dice >> 40) % 64);
            uint64 u = Coins.coin(c.chainValue, c.seed, uint64(c.position), 0);
            c.verdict.accepted = Masses.accepts(u, c.draft.q, c.verdict.p);
            c.verdict.token = c.verdict.accepted ? c.draft.token : 100;
        } else {
            c.verdict.token = uint32((dice >> 200) % 2 == 0 ? c.draft.token : 100);
            c.verdict.accepted = c.verdict.token == c.draft.token;
        }
    }

    function _judge(Case memory c) internal view returns (uint8) {
        return rule.checkLeafPair(
            c.terms, c.seed, c.position, c.drafted, c.draft, c.verdict, c.chainValue
        );
    }
}
