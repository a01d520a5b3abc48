// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";

import {IAuditorPool} from "./interfaces/IAuditorPool.sol";
import {IJuries} from "./interfaces/IJuries.sol";
import {IStakeVault, Role} from "./interfaces/IStakeVault.sol";

/// @title Juries
/// @notice Draws auditors by stake for a court's question, holds their answers apart until all have
/// committed, and takes a share of the stake of those who are silent.
///
/// @dev Who sits is decided by the hash of a block after the summons, over weights as they stood at the
/// summons: what is staked, moved or asked out afterwards changes no draw. The block's proposer can
/// throw its block away for another draw, at its price; and a hash is gone after 256 blocks, when a
/// later one takes its place: anyone can seat the jury before, and both sides of a dispute want to.
///
/// Every deadline is counted from the summons, so nobody gains time by calling late.
contract Juries is IJuries, Ownable2Step {
    uint256 public constant MAX_SIZE = 15;
    uint256 public constant MAX_PARTIES = 8;
    /// @notice Seats that a draw passes over because the stake behind them is gone.
    uint256 public constant MAX_SKIPPED = 16;
    uint256 public constant MAX_BPS = 10_000;
    uint32 public constant MAX_SPAN = 30 days;

    IStakeVault public immutable vault;
    /// @inheritdoc IJuries
    IAuditorPool public immutable pool;

    Terms private _terms;
    uint64 public juryCount;
    mapping(address court => bool) public isCourt;
    mapping(uint64 juryId => Jury) private _juries;
    mapping(uint64 juryId => address[]) private _parties;
    mapping(uint64 juryId => address[]) private _members;
    /// @inheritdoc IJuries
    mapping(uint64 juryId => mapping(address member => bool)) public isMember;
    mapping(uint64 juryId => mapping(address member => Answer)) private _answers;

    error ZeroAddress(string what);
    error BadTerm(string what, uint256 value);
    error BadSummons(string what, uint256 value);
    error NotCourt(address caller);
    error WrongStage(uint64 juryId, Stage stage);
    error TooEarly(uint256 from);
    error TooLate(uint256 until);
    error NotMember(uint64 juryId, address caller);
    error AlreadyCommitted(uint64 juryId, address member);
    error ZeroCommitment();
    error NotThisAnswer(bytes32 shown, bytes32 committed);
    error StillOpen(uint64 juryId);
    error StillSitting(uint64 juryId);
    error NotSilent(uint64 juryId, address member);

    constructor(address owner, IStakeVault vault_, IAuditorPool pool_, Terms memory terms_)
        Ownable(owner)
    {
        if (address(vault_) == address(0)) revert ZeroAddress("vault");
        if (address(pool_) == address(0)) revert ZeroAddress("pool");
        (vault, pool) = (vault_, pool_);
        _setTerms(terms_);
    }

    // ------------------------------------------------------------------ owner

    /// @notice Lets a contract summon juries, or no longer.
    function setCourt(address court, bool allowed) external onlyOwner {
        if (court == address(0)) revert ZeroAddress("court");
        isCourt[court] = allowed;
        emit CourtSet(court, allowed);
    }

    /// @notice For juries summoned from now on.
    function setTerms(Terms calldata terms_) external onlyOwner {
        _setTerms(terms_);
    }

    function _setTerms(Terms memory t) private {
        // INVARIANT: silence always costs.
        if (t.silentBps == 0 || t.silentBps > MAX_BPS) revert BadTerm("silentBps", t.silentBps);
        // INVARIANT: who dismisses himself through a friend gets back less than half.
        if (t.rewardBps > MAX_BPS / 2) revert BadTerm("rewardBps", t.rewardBps);
        // INVARIANT: the randomness is of a block after the question.
        if (t.delay == 0) revert BadTerm("delay", t.delay);
        _terms = t;
        emit TermsChanged(t);
    }

    // ------------------------------------------------------------------ courts

    /// @inheritdoc IJuries
    function summon(
        bytes32 model,
        address[] calldata parties,
        uint8 size,
        Spans calldata spans,
        uint64 before,
        bool waits
    ) external returns (uint64 juryId) {
        if (!isCourt[msg.sender]) revert NotCourt(msg.sender);
        // INVARIANT: seating, judging and dismissing are bounded.
        if (size == 0 || size > MAX_SIZE) revert BadSummons("size", size);
        if (parties.length > MAX_PARTIES) revert BadSummons("parties", parties.length);
        if (spans.seat == 0 || spans.seat > MAX_SPAN) revert BadSummons("seat", spans.seat);
        if (spans.commit == 0 || spans.commit > MAX_SPAN) {
            revert BadSummons("commit", spans.commit);
        }
        if (spans.reveal == 0 || spans.reveal > MAX_SPAN) {
            revert BadSummons("reveal", spans.reveal);
        }
        Terms memory t = _terms;
        juryId = ++juryCount;
        Jury storage jury = _juries[juryId];
        (jury.court, jury.model, jury.size) = (msg.sender, model, size);
        (jury.waits, jury.before, jury.stage) = (waits, before, Stage.SUMMONED);
        jury.anchor = uint40(block.number);
        jury.target = uint40(block.number) + t.delay;
        jury.seatUntil = uint40(block.timestamp) + spans.seat;
        jury.commitUntil = jury.seatUntil + spans.commit;
        jury.revealUntil = jury.commitUntil + spans.reveal;
        jury.revealSpan = spans.reveal;
        (jury.silentBps, jury.rewardBps) = (t.silentBps, t.rewardBps);
        _parties[juryId] = parties;
        emit JurySummoned(juryId, msg.sender, model, jury);
    }

    /// @inheritdoc IJuries
    function open(uint64 juryId) external {
        Jury storage jury = _ofCourt(juryId);
        if (jury.stage != Stage.SEATED || !jury.waits) revert WrongStage(juryId, jury.stage);
        // INVARIANT: nothing is opened that a commitment to come could copy.
        if (!_closed(jury)) revert StillOpen(juryId);
        jury.stage = Stage.OPENED;
        jury.revealUntil = uint40(block.timestamp) + jury.revealSpan;
        emit JuryOpened(juryId, jury.revealUntil);
    }

    /// @inheritdoc IJuries
    function cancel(uint64 juryId) external {
        Jury storage jury = _ofCourt(juryId);
        if (jury.stage != Stage.SEATED) revert WrongStage(juryId, jury.stage);
        // INVARIANT: nobody is called silent who could still have committed.
        if (!_closed(jury)) revert StillOpen(juryId);
        jury.stage = Stage.CANCELLED;
        emit JuryCancelled(juryId);
    }

    function _ofCourt(uint64 juryId) private view returns (Jury storage jury) {
        jury = _juries[juryId];
        if (msg.sender != jury.court) revert NotCourt(msg.sender);
    }

    // ------------------------------------------------------------------ the draw

    /// @inheritdoc IJuries
    function seat(uint64 juryId) external {
        Jury storage jury = _juries[juryId];
        if (jury.stage != Stage.SUMMONED) revert WrongStage(juryId, jury.stage);
        if (block.timestamp > jury.seatUntil) revert TooLate(jury.seatUntil);
        // INVARIANT: nobody seats by a block that is not yet final in its own hash.
        if (block.number <= jury.target) revert TooEarly(uint256(jury.target) + 1);
        bytes32 hash = blockhash(jury.target);
        if (hash == 0) {
            jury.target = uint40(block.number) + _terms.delay;
            emit JuryReanchored(juryId, jury.target);
            return;
        }
        bytes32 seed = keccak256(
            abi.encodePacked("verdraft/auditors/1", hash, block.chainid, address(this), juryId)
        );
        jury.stage = Stage.SEATED;
        jury.seated = uint8(_draw(juryId, jury, seed));
        emit JurySeated(juryId, _members[juryId]);
    }

    /// @dev Each try takes a seat out of the draw, whether its holder sits or not, so that what is left
    /// is drawn by its share of the stake that is left.
    function _draw(uint64 juryId, Jury storage jury, bytes32 seed)
        private
        returns (uint256 seated)
    {
        address[] memory parties = _parties[juryId];
        address[] memory late = new address[](MAX_SIZE);
        uint256 lateCount;
        // One seat a beneficiary, and a party's key may be one beneficiary and have another.
        uint256 tries =
            uint256(jury.size) + 2 * parties.length + MAX_SKIPPED + _members[jury.before].length;
        uint256[] memory taken = new uint256[](tries);
        for (uint256 i; i < tries && seated < jury.size; ++i) {
            uint256 word = uint256(keccak256(abi.encodePacked(seed, uint8(i))));
            (address account, uint256 place, uint256 weight) =
                pool.drawAt(jury.model, jury.anchor, word, taken, i);
            if (account == address(0)) break;
            taken[i] = place;
            // INVARIANT: no party judges its own case.
            if (_isParty(account, parties)) continue;
            // INVARIANT: who answers can be made to pay for it.
            if (2 * vault.slashable(account, Role.AUDITOR) < weight) continue;
            if (isMember[jury.before][account]) {
                late[lateCount++] = account;
                continue;
            }
            _join(juryId, account);
            ++seated;
        }
        for (uint256 i; i < lateCount && seated < jury.size; ++i) {
            _join(juryId, late[i]);
            ++seated;
        }
    }

    function _join(uint64 juryId, address account) private {
        _members[juryId].push(account);
        isMember[juryId][account] = true;
    }

    function _isParty(address account, address[] memory parties) private view returns (bool) {
        address payout = vault.payoutTo(account);
        for (uint256 i; i < parties.length; ++i) {
            address party = parties[i];
            // Not where both are paid to one address: anybody can name another's as its beneficiary, and
            // would put out whom it likes.
            if (party == account || party == payout || vault.accountOf(party) == account) {
                return true;
            }
        }
        return false;
    }

    // ------------------------------------------------------------------ answers

    /// @inheritdoc IJuries
    function commit(uint64 juryId, bytes32 commitment) external {
        Jury storage jury = _juries[juryId];
        if (jury.stage != Stage.SEATED) revert WrongStage(juryId, jury.stage);
        if (block.timestamp > jury.commitUntil) revert TooLate(jury.commitUntil);
        address member = vault.accountOf(msg.sender);
        // INVARIANT: a member answers by its own key, and by no retired one.
        if (!isMember[juryId][member] || vault.operatorOf(member) != msg.sender) {
            revert NotMember(juryId, msg.sender);
        }
        if (commitment == 0) revert ZeroCommitment();
        Answer storage answer = _answers[juryId][member];
        // INVARIANT: nobody changes his mind after he has heard others.
        if (answer.commitment != 0) revert AlreadyCommitted(juryId, member);
        answer.commitment = commitment;
        ++jury.committed;
        emit AnswerCommitted(juryId, member, commitment);
    }

    /// @inheritdoc IJuries
    function reveal(
        uint64 juryId,
        address member,
        bool withheld,
        uint64 margin,
        bytes32 print,
        bytes32 salt
    ) external {
        Jury storage jury = _juries[juryId];
        bool revealing = jury.stage == Stage.OPENED
            || (jury.stage == Stage.SEATED && !jury.waits && _closed(jury));
        // INVARIANT: no answer is seen while another can still be given.
        if (!revealing) revert WrongStage(juryId, jury.stage);
        if (block.timestamp > jury.revealUntil) revert TooLate(jury.revealUntil);
        Answer storage answer = _answers[juryId][member];
        bytes32 shown = commitmentOf(juryId, member, withheld, margin, print, salt);
        // INVARIANT: what counts is what was committed to, by whom, for which question.
        if (shown != answer.commitment || answer.revealed) {
            revert NotThisAnswer(shown, answer.commitment);
        }
        (answer.withheld, answer.margin, answer.print) = (withheld, margin, print);
        answer.revealed = true;
        ++jury.revealed;
        emit AnswerRevealed(juryId, member, withheld, margin, print);
    }

    /// @inheritdoc IJuries
    function dismiss(uint64 juryId, address member) external {
        Jury storage jury = _juries[juryId];
        if (!isOver(juryId)) revert StillSitting(juryId);
        Answer storage answer = _answers[juryId][member];
        // INVARIANT: nobody pays who has answered, or was not asked to reveal.
        bool silent = answer.commitment == 0 || (jury.stage != Stage.CANCELLED && !answer.revealed);
        if (!isMember[juryId][member] || !silent) revert NotSilent(juryId, member);
        IStakeVault.Slashed memory slashed = vault.slash(
            member,
            Role.AUDITOR,
            jury.silentBps,
            new IStakeVault.Victim[](0),
            msg.sender,
            jury.rewardBps,
            keccak256(abi.encode("verdraft/F10/1", address(this), juryId, member))
        );
        emit MemberDismissed(juryId, member, slashed.total);
    }

    // ------------------------------------------------------------------ read

    /// @inheritdoc IJuries
    function commitmentOf(
        uint64 juryId,
        address member,
        bool withheld,
        uint64 margin,
        bytes32 print,
        bytes32 salt
    ) public view returns (bytes32) {
        return keccak256(
            abi.encode(
                "verdraft/audit/1",
                block.chainid,
                address(this),
                juryId,
                member,
                salt,
                withheld,
                margin,
                print
            )
        );
    }

    /// @inheritdoc IJuries
    function juryOf(uint64 juryId) external view returns (Jury memory) {
        return _juries[juryId];
    }

    /// @inheritdoc IJuries
    function membersOf(uint64 juryId) external view returns (address[] memory) {
        return _members[juryId];
    }

    /// @inheritdoc IJuries
    function answerOf(uint64 juryId, address member) external view returns (Answer memory) {
        return _answers[juryId][member];
    }

    /// @inheritdoc IJuries
    function answersOf(uint64 juryId) external view returns (Answer[] memory answers) {
        address[] memory members = _members[juryId];
        answers = new Answer[](members.length);
        for (uint256 i; i < members.length; ++i) {
            answers[i] = _answers[juryId][members[i]];
        }
    }

    /// @inheritdoc IJuries
    function seatsOf(uint64 juryId)
        external
        view
        returns (uint256 seated, uint256 committed, bool waits)
    {
        Jury storage jury = _juries[juryId];
        return (jury.seated, jury.committed, jury.waits);
    }

    /// @inheritdoc IJuries
    function hasAnswered(uint64 juryId, address member) external view returns (bool) {
        Answer storage answer = _answers[juryId][member];
        return _juries[juryId].stage == Stage.CANCELLED ? answer.commitment != 0 : answer.revealed;
    }

    /// @inheritdoc IJuries
    function answeredIn(uint64 juryId) external view returns (uint256) {
        Jury storage jury = _juries[juryId];
        return jury.stage == Stage.CANCELLED ? jury.committed : jury.revealed;
    }

    /// @inheritdoc IJuries
    function isClosed(uint64 juryId) external view returns (bool) {
        return _closed(_juries[juryId]);
    }

    /// @inheritdoc IJuries
    function isOver(uint64 juryId) public view returns (bool) {
        Jury storage jury = _juries[juryId];
        if (jury.stage == Stage.CANCELLED) return true;
        if (jury.stage == Stage.SUMMONED) return block.timestamp > jury.seatUntil;
        if (!_closed(jury)) return false;
        if (jury.committed == 0) return true;
        // The court opens or cancels.
        if (jury.waits && jury.stage != Stage.OPENED) return false;
        return jury.committed == jury.revealed || block.timestamp > jury.revealUntil;
    }

    /// @notice What silence costs in juries summoned now.
    function terms() external view returns (Terms memory) {
        return _terms;
    }

    function _closed(Jury storage jury) private view returns (bool) {
        if (jury.stage == Stage.NONE || jury.stage == Stage.SUMMONED) return false;
        return jury.committed == jury.seated || block.timestamp > jury.commitUntil;
    }
}
