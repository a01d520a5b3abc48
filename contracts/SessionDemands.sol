// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Demands} from "./Demands.sol";
import {IDrawBeacon} from "./interfaces/IDrawBeacon.sol";
import {ILaneEscrow} from "./interfaces/ILaneEscrow.sol";
import {ISessionDemands} from "./interfaces/ISessionDemands.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";
import {Records} from "./libraries/Records.sol";
import {Sealing} from "./libraries/Sealing.sol";
import {Trees} from "./libraries/Trees.sol";

/// @title SessionDemands
/// @notice Makes a session's text available to those who may read it, without showing it to others.
/// @dev What V owes fits one transaction: a text is no longer than its model's context, and models of
/// more than `MAX_CONTEXT` tokens are left to the panel. The fingerprints' salts are not part of the
/// text; a panel asks for those by name.
contract SessionDemands is ISessionDemands, Demands {
    /// @notice Tokens of the longest context whose sessions can be demanded: 64 KiB of call data.
    uint32 public constant MAX_CONTEXT = 16_384;
    uint8 private constant STAKED = 1;
    uint8 private constant PUBLIC = 2;

    struct Answer {
        bytes32 hash;
        uint40 contestUntil;
    }

    mapping(address reader => bool) public isReader;
    mapping(bytes32 id => Answer) public answerOf;

    error NotNamed(string what, bytes32 shown, bytes32 named);
    error NotAReader(address caller);
    error ContextTooLong(uint32 context, uint32 limit);
    error NotAPoint(uint256 x, uint256 y);
    error NotVerifier(address caller, address verifier);
    error WrongLength(uint256 length);
    error NotThisAnswer(bytes32 shown, bytes32 kept);
    error NotThisSecret(address shown, address key);
    error AnswerIsRight();
    error ContestOver(uint40 until);

    constructor(
        address owner,
        IStakeVault vault_,
        ILaneEscrow escrow_,
        IDrawBeacon beacon_,
        Terms memory terms_
    ) Demands(owner, vault_, escrow_, beacon_, terms_) {}

    /// @notice Lets a contract demand sessions whatever the order's disclosure, or no longer: every
    /// order consents to the auditors and panels that are drawn.
    function setReader(address reader, bool allowed) external onlyOwner {
        if (reader == address(0)) revert ZeroAddress("reader");
        isReader[reader] = allowed;
        emit ReaderSet(reader, allowed);
    }

    // ------------------------------------------------------------------ demand

    /// @inheritdoc ISessionDemands
    function demandSession(
        SessionCase calldata session,
        IDrawBeacon.Batch calldata batch,
        bytes calldata entries,
        uint32 index,
        uint256 keyX,
        uint256 keyY
    ) external nonReentrant returns (bytes32 id) {
        SessionDemand memory demand = _named(session, batch, entries, index);
        // INVARIANT: V is never asked to seal to what is no key.
        if (!Sealing.isPoint(keyX, keyY)) revert NotAPoint(keyX, keyY);
        (demand.keyX, demand.keyY, demand.by) = (keyX, keyY, msg.sender);
        (demand.nonce, demand.terms) = _next();
        id = keccak256(abi.encode(demand));
        DemandState memory state = _start(id, demand.terms);
        emit SessionDemanded(id, demand.verifier, demand, state.firstUntil, state.secondUntil);
    }

    /// @dev From the settled root down to the order.
    function _named(
        SessionCase calldata session,
        IDrawBeacon.Batch calldata batch,
        bytes calldata entries,
        uint32 index
    ) private view returns (SessionDemand memory demand) {
        Records.Order memory order = session.order;
        bytes32 root = _settledRoot(batch, entries, index, Records.laneId(Records.laneOf(order)));
        _same(
            "root",
            Trees.settledRoot(
                session.settled.top,
                session.settled.sums,
                session.settled.leafCount,
                session.settled.baseRoot
            ),
            root
        );
        Records.RoundRecord memory record = session.record;
        (bytes32 top,,) = Trees.climb(
            Records.leaf(record),
            Records.sums(record),
            session.leafIndex,
            session.settled.leafCount,
            session.steps
        );
        // INVARIANT: only what V has settled can be asked of it.
        _same("top", top, session.settled.top);
        _same("start", Records.hash(session.start), record.startHash);
        _same("order", Records.hash(order), session.start.sessionId);
        _same("verdict", Records.hash(session.verdict), record.verdictHash);
        _requireReader(order);
        _requireShort(session, order);
        demand.verifier = order.verifier;
        (demand.startHash, demand.round) = (record.startHash, record.round);
        demand.promptHash = order.promptHash;
        demand.contextHash = session.verdict.nextContextHash;
        demand.tokens = uint32(uint256(session.verdict.base) + session.verdict.emitted);
    }

    /// @dev INVARIANT: nobody reads what the order does not let him read.
    function _requireReader(Records.Order memory order) private view {
        address who = msg.sender;
        if (who == order.client || who == order.drafter || isReader[who]) return;
        if (order.disclosure >= PUBLIC) return;
        if (
            order.disclosure == STAKED && vault.serves(who, Role.AUDITOR, order.targetModel)
                && vault.activeStake(who, Role.AUDITOR) != 0
        ) return;
        revert NotAReader(who);
    }

    /// @dev INVARIANT: what is asked for can be answered in one transaction.
    function _requireShort(SessionCase calldata session, Records.Order memory order) private pure {
        Records.Manifest memory target = session.target;
        _same("target", Records.modelId(target), order.targetModel);
        if (target.contextLength > MAX_CONTEXT) {
            revert ContextTooLong(target.contextLength, MAX_CONTEXT);
        }
    }

    // ------------------------------------------------------------------ answer

    /// @inheritdoc ISessionDemands
    function answer(
        SessionDemand calldata demand,
        uint256 keyX,
        uint256 keyY,
        bytes calldata sealedText
    ) external nonReentrant {
        bytes32 id = keccak256(abi.encode(demand));
        DemandState storage state = _answerable(id);
        // INVARIANT: nobody answers wrongly in V's place.
        _requireVerifier(demand.verifier);
        if (!Sealing.isPoint(keyX, keyY)) revert NotAPoint(keyX, keyY);
        uint256 length = sealedText.length;
        if (length % 4 != 0 || length < 32 + 4 * uint256(demand.tokens)) {
            revert WrongLength(length);
        }
        uint40 contestUntil = uint40(block.timestamp) + demand.terms.firstDeadline;
        answerOf[id] = Answer(_answerHash(keyX, keyY, sealedText), contestUntil);
        _move(id, state, Stage.ANSWERED);
        emit SessionAnswered(id, keyX, keyY, sealedText, contestUntil);
    }

    /// @inheritdoc ISessionDemands
    function contest(
        SessionDemand calldata demand,
        uint256 keyX,
        uint256 keyY,
        bytes calldata sealedText,
        uint256 secret
    ) external nonReentrant {
        bytes32 id = keccak256(abi.encode(demand));
        DemandState storage state = _answered(id);
        _requireAnswer(id, _answerHash(keyX, keyY, sealedText));
        // INVARIANT: the answer is opened by the key it was sealed to, and by no other.
        _requireSecret(demand, secret);
        bytes memory plain = Sealing.stream(Sealing.times(secret, keyX, keyY), id, sealedText);
        if (Sealing.isText(plain, demand.tokens, demand.promptHash, demand.contextHash)) {
            revert AnswerIsRight();
        }
        _move(id, state, Stage.FAULTY);
        _release(demand.terms.bond, demand.by);
        // INVARIANT: rubbish costs what silence to the end does. Where the first price is paid, it is
        // not taken again.
        _charge(id, demand.verifier, demand.by, demand.terms, true);
        _charge(id, demand.verifier, demand.by, demand.terms, false);
    }

    /// @inheritdoc ISessionDemands
    function close(SessionDemand calldata demand) external nonReentrant {
        bytes32 id = keccak256(abi.encode(demand));
        DemandState storage state = _answered(id);
        uint40 until = answerOf[id].contestUntil;
        // INVARIANT: the demander has its time to look.
        if (block.timestamp <= until && msg.sender != demand.by) revert TooEarly(until);
        _move(id, state, Stage.SHOWN);
        _release(demand.terms.bond, demand.verifier);
    }

    /// @inheritdoc ISessionDemands
    function expire(SessionDemand calldata demand) external nonReentrant {
        bytes32 id = keccak256(abi.encode(demand));
        _expire(id, demand.verifier, demand.by, demand.terms);
    }

    // ------------------------------------------------------------------ inside

    function _answered(bytes32 id) private view returns (DemandState storage state) {
        state = _states[id];
        // INVARIANT: an answer is closed or contested once.
        if (state.stage != Stage.ANSWERED) revert WrongStage(state.stage);
    }

    /// @dev V's key, or the one its account has rotated to.
    function _requireVerifier(address verifier) private view {
        if (msg.sender == verifier) return;
        address account = vault.accountOf(verifier);
        if (account == address(0) || vault.operatorOf(account) != msg.sender) {
            revert NotVerifier(msg.sender, verifier);
        }
    }

    function _requireAnswer(bytes32 id, bytes32 shown) private view {
        Answer memory given = answerOf[id];
        if (block.timestamp > given.contestUntil) revert ContestOver(given.contestUntil);
        // INVARIANT: V answers for what V has sent.
        if (shown != given.hash) revert NotThisAnswer(shown, given.hash);
    }

    function _requireSecret(SessionDemand calldata demand, uint256 secret) private pure {
        address shown = Sealing.times(secret, Sealing.G_X, Sealing.G_Y);
        address key = Sealing.addressOf(demand.keyX, demand.keyY);
        if (shown != key) revert NotThisSecret(shown, key);
    }

    function _answerHash(uint256 keyX, uint256 keyY, bytes calldata sealedText)
        private
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode(keyX, keyY, keccak256(sealedText)));
    }

    function _same(string memory what, bytes32 shown, bytes32 named) private pure {
        if (shown != named) revert NotNamed(what, shown, named);
    }
}
