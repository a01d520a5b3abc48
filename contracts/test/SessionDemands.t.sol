// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Demands} from "../Demands.sol";
import {SessionDemands} from "../SessionDemands.sol";
import {IDemands} from "../interfaces/IDemands.sol";
import {IDrawBeacon} from "../interfaces/IDrawBeacon.sol";
import {ISessionDemands} from "../interfaces/ISessionDemands.sol";
import {Role} from "../interfaces/IStakeVault.sol";
import {Openings} from "../libraries/Openings.sol";
import {Records} from "../libraries/Records.sol";
import {Sealing} from "../libraries/Sealing.sol";
import {RoundWork} from "./RoundWork.sol";

contract StreamDoor {
    function stream(address key, bytes32 id, bytes calldata data)
        external
        pure
        returns (bytes memory)
    {
        return Sealing.stream(key, id, data);
    }
}

contract SessionDemandsTest is RoundWork {
    SessionDemands internal demands;
    StreamDoor internal door;
    uint96 internal constant BOND = 10 ether;
    uint256 internal constant SECRET = uint256(keccak256("the reader's key"));
    uint256 internal constant EPHEMERAL = uint256(keccak256("V's key for this answer"));
    bytes32 internal constant SALT = keccak256("prompt salt");
    address internal panel = makeAddr("panel");
    Records.Manifest internal target;
    uint64 private _made;

    function setUp() public override {
        super.setUp();
        door = new StreamDoor();
        IDemands.Terms memory t;
        (t.bond, t.lateBps, t.silentBps, t.faultBps, t.rewardBps) = (BOND, 500, 5_000, 5_000, 400);
        demands = new SessionDemands(owner, vault, escrow, IDrawBeacon(address(beacon)), t);
        vm.startPrank(owner);
        vault.setSlasher(address(demands), true);
        demands.setReader(panel, true);
        vm.stopPrank();
        _stake(verifier.addr, beneficiaryV, Role.VERIFIER, STAKE);
        _fund(client.addr, address(demands), 1_000 ether);
        (target.architecture, target.vocabSize, target.contextLength) = ("target", 512, 1_024);
        target.eosIds = new uint32[](0);
        (target.weightsRoot, target.tokenizerHash) = (keccak256("w"), keccak256("t"));
        registry.register(target);
    }

    function _prompt() private pure returns (bytes memory) {
        return abi.encodePacked(uint32(5), uint32(6), uint32(7));
    }

    /// @dev Two rounds over a known prompt.
    function _said(uint8 disclosure) private view returns (Session memory s) {
        s = _session(1);
        s.order.promptHash = Records.promptHash(SALT, _prompt());
        s.order.targetModel = Records.modelId(target);
        s.order.disclosure = disclosure;
        s.context = s.order.promptHash;
        _play(s, 4, 2, 3);
        _play(s, 3, 3, 3);
        _seal(s);
    }

    function _text(Session memory s) private pure returns (bytes memory text) {
        text = abi.encodePacked(SALT, _prompt());
        for (uint256 i; i < s.rounds.length; ++i) {
            for (uint256 j; j < s.rounds[i].leaves.length; ++j) {
                text = abi.encodePacked(text, s.rounds[i].leaves[j].token);
            }
        }
    }

    function _case(Session memory s) private view returns (ISessionDemands.SessionCase memory c) {
        // A copy: memory structs are references.
        Openings.Opening memory o = abi.decode(abi.encode(_openingAt(s, 1, 0)), (Openings.Opening));
        (c.settled, c.record, c.leafIndex, c.steps) = (o.settled, o.record, o.leafIndex, o.steps);
        (c.order, c.start, c.verdict, c.target) = (o.order, o.start, o.verdict, target);
    }

    function _batch(Session memory s)
        private
        returns (IDrawBeacon.Batch memory batch, bytes memory entries)
    {
        entries = abi.encode(
            Records.laneId(Records.laneOf(s.order)), _rootHash(_settled(s)), uint256(0)
        );
        (batch.id, batch.entries, batch.entriesHash) = (9, 1, keccak256(entries));
        batch.settledAt = uint64(block.timestamp);
        batch.terms.evidence = _times().evidence;
        vm.mockCall(
            address(beacon),
            abi.encodeCall(IDrawBeacon.batchHash, (9)),
            abi.encode(keccak256(abi.encode(batch)))
        );
    }

    function _key(uint256 secret) private returns (uint256 x, uint256 y) {
        return (vm.createWallet(secret).publicKeyX, vm.createWallet(secret).publicKeyY);
    }

    function _demandAs(address who, Session memory s)
        private
        returns (ISessionDemands.SessionDemand memory d, bytes32 id)
    {
        ISessionDemands.SessionCase memory c = _case(s);
        (IDrawBeacon.Batch memory batch, bytes memory entries) = _batch(s);
        (d.keyX, d.keyY) = _key(SECRET % Sealing.N);
        (d.nonce, d.by, d.verifier) = (++_made, who, verifier.addr);
        (d.startHash, d.round) = (Records.hash(s.start), 1);
        (d.promptHash, d.contextHash) = (s.order.promptHash, s.context);
        (d.tokens, d.terms) = (7, demands.terms());
        (d.terms.firstDeadline, d.terms.secondDeadline) = (1 days, 1 days);
        vm.prank(who);
        id = demands.demandSession(c, batch, entries, 0, d.keyX, d.keyY);
        assertEq(id, keccak256(abi.encode(d)), "as the event carries it");
    }

    function _seal(ISessionDemands.SessionDemand memory d, bytes32 id, bytes memory text)
        private
        returns (uint256 x, uint256 y, bytes memory sealedText)
    {
        (x, y) = _key(EPHEMERAL % Sealing.N);
        address shared = Sealing.times(EPHEMERAL % Sealing.N, d.keyX, d.keyY);
        // Both sides come to the same point.
        assertEq(shared, Sealing.times(SECRET % Sealing.N, x, y));
        sealedText = door.stream(shared, id, text);
    }

    function _stakeV() private view returns (uint256) {
        return vault.slashable(verifier.addr, Role.VERIFIER);
    }

    function _assertBonds() private view {
        IDemands.Bonds memory b = demands.bonds();
        assertEq(token.balanceOf(address(demands)), b.open + b.payable_, "bonds");
        _assertConserved();
    }

    // ------------------------------------------------------------------ who may read

    function _refused(address who, Session memory s) private {
        ISessionDemands.SessionCase memory c = _case(s);
        (IDrawBeacon.Batch memory batch, bytes memory entries) = _batch(s);
        (uint256 x, uint256 y) = _key(SECRET % Sealing.N);
        vm.prank(who);
        vm.expectRevert(abi.encodeWithSelector(SessionDemands.NotAReader.selector, who));
        demands.demandSession(c, batch, entries, 0, x, y);
    }

    function test_OnlyReadersMayDemand() public {
        _fund(stranger, address(demands), 100 ether);
        _fund(drafter.addr, address(demands), 100 ether);
        _fund(panel, address(demands), 100 ether);
        Session memory s = _said(0);
        _demandAs(client.addr, s);
        _demandAs(drafter.addr, s);
        _demandAs(panel, s);
        _refused(stranger, s);
        // A staked auditor of the model, where the order lets it.
        _refused(stranger, _said(1));
        bytes32[] memory models = new bytes32[](1);
        models[0] = Records.modelId(target);
        _fund(stranger, address(vault), 10 ether);
        vm.prank(stranger);
        vault.stake(stranger, stranger, Role.AUDITOR, 10 ether, models);
        _refused(stranger, s);
        _demandAs(stranger, _said(1));
        vm.prank(stranger);
        vault.unstake(stranger, Role.AUDITOR, 10 ether);
        _refused(stranger, _said(1));
        _demandAs(stranger, _said(2));
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", stranger));
        demands.setReader(stranger, true);
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(Demands.ZeroAddress.selector, "reader"));
        demands.setReader(address(0), true);
        _assertBonds();
    }

    function test_OnlyWhatWasSettledAndCanBeAnswered() public {
        Session memory s = _said(0);
        ISessionDemands.SessionCase memory c = _case(s);
        (IDrawBeacon.Batch memory batch, bytes memory entries) = _batch(s);
        (uint256 x, uint256 y) = _key(SECRET % Sealing.N);
        vm.startPrank(client.addr);
        c.settled.leafCount = 3;
        vm.expectPartialRevert(SessionDemands.NotNamed.selector);
        demands.demandSession(c, batch, entries, 0, x, y);
        c = _case(s);
        c.leafIndex = 0;
        vm.expectPartialRevert(SessionDemands.NotNamed.selector);
        demands.demandSession(c, batch, entries, 0, x, y);
        c = _case(s);
        c.verdict.nextContextHash = keccak256("another text");
        vm.expectPartialRevert(SessionDemands.NotNamed.selector);
        demands.demandSession(c, batch, entries, 0, x, y);
        c = _case(s);
        c.start.seed = keccak256("another seed");
        vm.expectPartialRevert(SessionDemands.NotNamed.selector);
        demands.demandSession(c, batch, entries, 0, x, y);
        c = _case(s);
        c.order.promptHash = keccak256("another prompt");
        vm.expectPartialRevert(SessionDemands.NotNamed.selector);
        demands.demandSession(c, batch, entries, 0, x, y);
        c = _case(s);
        c.target.contextLength = 2;
        vm.expectPartialRevert(SessionDemands.NotNamed.selector);
        demands.demandSession(c, batch, entries, 0, x, y);
        c = _case(s);
        vm.expectPartialRevert(SessionDemands.NotAPoint.selector);
        demands.demandSession(c, batch, entries, 0, x, y ^ 1);
        vm.expectPartialRevert(SessionDemands.NotAPoint.selector);
        demands.demandSession(c, batch, entries, 0, 0, 0);
        vm.warp(block.timestamp + _times().evidence + 1);
        vm.expectPartialRevert(Demands.EvidenceOver.selector);
        demands.demandSession(c, batch, entries, 0, x, y);
        vm.stopPrank();
    }

    function test_ALongContextIsLeftToThePanel() public {
        target.contextLength = demands.MAX_CONTEXT() + 1;
        Session memory s = _said(0);
        ISessionDemands.SessionCase memory c = _case(s);
        (IDrawBeacon.Batch memory batch, bytes memory entries) = _batch(s);
        (uint256 x, uint256 y) = _key(SECRET % Sealing.N);
        vm.prank(client.addr);
        vm.expectPartialRevert(SessionDemands.ContextTooLong.selector);
        demands.demandSession(c, batch, entries, 0, x, y);
    }

    // ------------------------------------------------------------------ answers

    function test_ATrueAnswerCannotBeContestedAndIsPaid() public {
        Session memory s = _said(0);
        (ISessionDemands.SessionDemand memory d, bytes32 id) = _demandAs(client.addr, s);
        (uint256 x, uint256 y, bytes memory sealedText) = _seal(d, id, _text(s));
        assertTrue(keccak256(sealedText) != keccak256(_text(s)), "sealed");
        vm.prank(verifier.addr);
        demands.answer(d, x, y, sealedText);
        vm.startPrank(client.addr);
        vm.expectRevert(SessionDemands.AnswerIsRight.selector);
        demands.contest(d, x, y, sealedText, SECRET % Sealing.N);
        vm.expectPartialRevert(SessionDemands.NotThisSecret.selector);
        demands.contest(d, x, y, sealedText, EPHEMERAL % Sealing.N);
        vm.expectPartialRevert(SessionDemands.NotThisAnswer.selector);
        demands.contest(d, x, y, _text(s), SECRET % Sealing.N);
        vm.stopPrank();
        vm.expectPartialRevert(Demands.TooEarly.selector);
        demands.close(d);
        vm.expectPartialRevert(Demands.WrongStage.selector);
        demands.expire(d);
        vm.warp(block.timestamp + 1 days + 1);
        vm.expectPartialRevert(SessionDemands.ContestOver.selector);
        demands.contest(d, x, y, sealedText, SECRET % Sealing.N);
        demands.close(d);
        vm.expectPartialRevert(Demands.WrongStage.selector);
        demands.close(d);
        assertEq(demands.bondOf(verifier.addr), BOND);
        assertEq(_stakeV(), STAKE);
        _assertBonds();
    }

    function test_TheDemanderMayCloseAtOnce() public {
        Session memory s = _said(0);
        (ISessionDemands.SessionDemand memory d, bytes32 id) = _demandAs(client.addr, s);
        (uint256 x, uint256 y, bytes memory sealedText) = _seal(d, id, _text(s));
        vm.prank(verifier.addr);
        demands.answer(d, x, y, sealedText);
        vm.prank(client.addr);
        demands.close(d);
        assertEq(demands.bondOf(verifier.addr), BOND);
    }

    function _contested(Session memory s, bytes memory text) private {
        (ISessionDemands.SessionDemand memory d, bytes32 id) = _demandAs(client.addr, s);
        (uint256 x, uint256 y, bytes memory sealedText) = _seal(d, id, text);
        vm.prank(verifier.addr);
        demands.answer(d, x, y, sealedText);
        uint256 before = _stakeV();
        uint256 bond = demands.bondOf(client.addr);
        vm.prank(client.addr);
        demands.contest(d, x, y, sealedText, SECRET % Sealing.N);
        uint256 left = before - (before * 500 + 9_999) / 10_000;
        assertEq(_stakeV(), left - (left + 1) / 2, "as silence to the end");
        assertEq(demands.bondOf(client.addr), bond + BOND);
        assertTrue(demands.demandState(id).stage == IDemands.Stage.FAULTY);
        vm.prank(client.addr);
        vm.expectPartialRevert(Demands.WrongStage.selector);
        demands.contest(d, x, y, sealedText, SECRET % Sealing.N);
        _assertBonds();
    }

    function test_RubbishCostsWhatSilenceDoes() public {
        Session memory s = _said(0);
        bytes memory text = _text(s);
        _contested(s, new bytes(text.length));
        // Another salt, prompt or output token; one token more of prompt.
        text[0] ^= 0x01;
        _contested(s, text);
        text = _text(s);
        text[35] ^= 0x01;
        _contested(s, text);
        text = _text(s);
        text[text.length - 1] ^= 0x01;
        _contested(s, text);
        _contested(s, abi.encodePacked(_text(s), uint32(1)));
    }

    /// @dev Every single byte is held against what was signed.
    /// forge-config: default.fuzz.runs = 64
    function testFuzz_EveryByteCounts(uint256 place, uint8 change) public {
        Session memory s = _said(0);
        bytes memory text = _text(s);
        text[place % text.length] ^= bytes1(uint8(bound(change, 1, 255)));
        _contested(s, text);
    }

    function test_AnAnswerHasALengthAndAnAuthor() public {
        Session memory s = _said(0);
        (ISessionDemands.SessionDemand memory d, bytes32 id) = _demandAs(client.addr, s);
        (uint256 x, uint256 y, bytes memory sealedText) = _seal(d, id, _text(s));
        vm.prank(stranger);
        vm.expectPartialRevert(SessionDemands.NotVerifier.selector);
        demands.answer(d, x, y, sealedText);
        vm.startPrank(verifier.addr);
        vm.expectRevert(abi.encodeWithSelector(SessionDemands.WrongLength.selector, 56));
        demands.answer(d, x, y, new bytes(56));
        vm.expectRevert(abi.encodeWithSelector(SessionDemands.WrongLength.selector, 73));
        demands.answer(d, x, y, new bytes(73));
        vm.expectPartialRevert(SessionDemands.NotAPoint.selector);
        demands.answer(d, x, x, sealedText);
        demands.answer(d, x, y, sealedText);
        vm.expectPartialRevert(Demands.WrongStage.selector);
        demands.answer(d, x, y, sealedText);
        vm.stopPrank();
    }

    /// @dev Two strangers without an account are not one another.
    function test_WhoHasNoAccountIsNotV() public {
        vm.mockCall(
            address(vault),
            abi.encodeWithSignature("accountOf(address)", verifier.addr),
            abi.encode(address(0))
        );
        Session memory s = _said(0);
        (ISessionDemands.SessionDemand memory d, bytes32 id) = _demandAs(client.addr, s);
        (uint256 x, uint256 y, bytes memory sealedText) = _seal(d, id, _text(s));
        vm.prank(stranger);
        vm.expectPartialRevert(SessionDemands.NotVerifier.selector);
        demands.answer(d, x, y, sealedText);
    }

    /// @dev After a rotation the account's new key answers for the old one.
    function test_TheRotatedKeyAnswers() public {
        Session memory s = _said(0);
        (ISessionDemands.SessionDemand memory d, bytes32 id) = _demandAs(client.addr, s);
        (uint256 x, uint256 y, bytes memory sealedText) = _seal(d, id, _text(s));
        address next = makeAddr("the next key");
        vm.prank(verifier.addr);
        vault.proposeKey(verifier.addr, next);
        vm.startPrank(next);
        vault.acceptKey(verifier.addr);
        demands.answer(d, x, y, sealedText);
        vm.stopPrank();
        assertTrue(demands.demandState(id).stage == IDemands.Stage.ANSWERED);
    }

    function test_SilenceCostsTwice() public {
        (ISessionDemands.SessionDemand memory d,) = _demandAs(client.addr, _said(0));
        vm.warp(block.timestamp + 1 days + 1);
        demands.expire(d);
        assertEq(_stakeV(), STAKE * 95 / 100);
        vm.warp(block.timestamp + 1 days);
        vm.prank(verifier.addr);
        vm.expectPartialRevert(Demands.TooLate.selector);
        demands.answer(d, 1, 1, "");
        demands.expire(d);
        assertEq(_stakeV(), STAKE * 475 / 1000);
        assertEq(demands.bondOf(client.addr), BOND);
        _assertBonds();
    }

    /// @dev Late first, and then rubbish: no more and no less than silence.
    function test_LateRubbishPaysTheFirstPriceOnce() public {
        Session memory s = _said(0);
        (ISessionDemands.SessionDemand memory d, bytes32 id) = _demandAs(client.addr, s);
        vm.warp(block.timestamp + 1 days + 1);
        demands.expire(d);
        (uint256 x, uint256 y, bytes memory sealedText) = _seal(d, id, new bytes(72));
        vm.prank(verifier.addr);
        demands.answer(d, x, y, sealedText);
        vm.prank(client.addr);
        demands.contest(d, x, y, sealedText, SECRET % Sealing.N);
        assertEq(_stakeV(), STAKE * 475 / 1000);
        _assertBonds();
    }
}
