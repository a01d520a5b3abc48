// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Vm} from "forge-std/Vm.sol";

import {IDrawBeacon} from "../../interfaces/IDrawBeacon.sol";
import {IEvidenceDemands} from "../../interfaces/IEvidenceDemands.sol";
import {ISessionDemands} from "../../interfaces/ISessionDemands.sol";
import {Openings} from "../../libraries/Openings.sol";
import {Records} from "../../libraries/Records.sol";
import {Sealing} from "../../libraries/Sealing.sol";
import {World} from "./World.sol";

/// @notice Draws and demands, answered or not: the moves whose price is F7.
/// @dev `tried` and `done` count the moves, so that a handler that only fails is seen.
abstract contract Answers is World {
    mapping(bytes4 move => uint256) public tried;
    mapping(bytes4 move => uint256) public done;
    uint256 public impossible; // an honest verifier was made to pay

    uint64[] internal slices; // in which shares of slashes vest
    bytes[] internal leafDemands; // IEvidenceDemands.Demand
    uint256[] internal leafCases;
    bytes[] internal textDemands; // ISessionDemands.SessionDemand
    uint256[] internal textCases;
    mapping(bytes32 id => bytes) internal sealedTexts;
    uint256[] internal pendingDraws;
    uint256 internal drawsAnswered; // of pendingDraws, by the honest
    uint256 internal leavesAnswered; // of leafDemands
    uint256 internal textsAnswered; // of textDemands

    modifier move() {
        ++tried[msg.sig];
        uint64 slice = vault.sliceOf(block.timestamp + _times().unbonding) + 1;
        if (slices.length == 0 || slices[slices.length - 1] != slice) slices.push(slice);
        _;
    }

    /// @dev One of the last few: what is older has run out.
    function _recent(uint256 which, uint256 count) internal pure returns (uint256) {
        return count - 1 - which % (count < 6 ? count : 6);
    }

    function _well() internal {
        ++done[msg.sig];
    }

    // ------------------------------------------------------------------ draws

    function capture(uint256 which) external move {
        if (cases.length != 0 && _captureOne(_recent(which, cases.length))) _well();
    }

    function _captureOne(uint256 which) internal returns (bool captured) {
        IDrawBeacon.Batch memory batch = _batchOf(which);
        if (batch.randomness != 0) return false;
        if (block.number <= batch.targetBlock) vm.roll(batch.targetBlock + 1);
        IDrawBeacon.Batch[] memory list = new IDrawBeacon.Batch[](1);
        list[0] = batch;
        bytes32 hash = blockhash(batch.targetBlock);
        if (draws.capture(list) == 1) {
            batch.randomness = keccak256(
                abi.encodePacked("verdraft/sample/1", hash, block.chainid, address(draws), batch.id)
            );
            captured = true;
        } else {
            batch.targetBlock = uint64(block.number) + batch.terms.delay;
        }
        cases[which].batch = abi.encode(batch);
    }

    function draw(uint256 which) external move {
        if (cases.length == 0) return;
        which = _recent(which, cases.length);
        if (_batchOf(which).randomness == 0) _captureOne(which);
        IDrawBeacon.Batch memory batch = _batchOf(which);
        IDrawBeacon.Draw memory drawn = _drawFrom(batch, which);
        try draws.draw(batch, cases[which].entries, 0, drawn.lane) {
            cases[which].drawn = abi.encode(drawn);
            pendingDraws.push(which);
            _well();
        } catch {}
    }

    /// @dev The one that lies opens when it pleases, its lie included.
    function openSample(uint256 which) external move {
        if (pendingDraws.length == 0) return;
        if (_openOne(pendingDraws[_recent(which, pendingDraws.length)])) _well();
    }

    function _openOne(uint256 which) internal returns (bool) {
        IDrawBeacon.Draw memory drawn = _drawnOf(which);
        uint8 sample = uint8(cases[which].shown);
        if (sample >= drawn.terms.samples) return false;
        try draws.open(drawn, sample, _openingFor(which, drawn.seed, sample)) {
            ++cases[which].shown;
            return true;
        } catch {
            return false;
        }
    }

    function expireDraw(uint256 which) external move {
        if (pendingDraws.length != 0) _expireDraw(_recent(which, pendingDraws.length));
    }

    function _expireDraw(uint256 which) internal {
        which = pendingDraws[which];
        try draws.expire(_drawnOf(which)) {
            if (!_liesV(cases[which].lane)) ++impossible;
            _well();
        } catch {}
    }

    // ------------------------------------------------------------------ demands

    function demandLeaf(uint256 which, bytes32 seed) external move {
        if (cases.length == 0) return;
        which = _recent(which, cases.length);
        IDrawBeacon.Batch memory batch = _batchOf(which);
        Records.Lane memory lane = works[cases[which].lane].lane;
        vm.recordLogs();
        vm.prank(client.addr);
        try leaves.demandLeaf(batch, cases[which].entries, 0, lane, seed) {
            bytes memory data = _dataOf(IEvidenceDemands.Demanded.selector);
            (IEvidenceDemands.Demand memory demand,,) =
                abi.decode(data, (IEvidenceDemands.Demand, uint40, uint40));
            leafDemands.push(abi.encode(demand));
            leafCases.push(which);
            _well();
        } catch {}
    }

    function answerLeaf(uint256 which) external move {
        if (leafDemands.length == 0) return;
        if (_answerLeaf(_recent(which, leafDemands.length))) _well();
    }

    function _answerLeaf(uint256 which) internal returns (bool) {
        IEvidenceDemands.Demand memory demand =
            abi.decode(leafDemands[which], (IEvidenceDemands.Demand));
        try leaves.answer(demand, _openingFor(leafCases[which], demand.seed, 0)) {
            return true;
        } catch {
            return false;
        }
    }

    function expireLeaf(uint256 which) external move {
        if (leafDemands.length != 0) _expireLeaf(_recent(which, leafDemands.length));
    }

    function _expireLeaf(uint256 which) internal {
        try leaves.expire(abi.decode(leafDemands[which], (IEvidenceDemands.Demand))) {
            if (!_liesV(cases[leafCases[which]].lane)) ++impossible;
            _well();
        } catch {}
    }

    function demandText(uint256 which) external move {
        if (cases.length == 0) return;
        which = _recent(which, cases.length);
        Session memory s = _sessionOf(cases[which].lane, cases[which].rounds);
        Openings.Opening memory o = _openingAt(s, s.rounds.length - 1, 0);
        ISessionDemands.SessionCase memory c = ISessionDemands.SessionCase({
            settled: o.settled,
            record: o.record,
            leafIndex: o.leafIndex,
            steps: o.steps,
            order: o.order,
            start: o.start,
            verdict: o.verdict,
            target: target
        });
        vm.recordLogs();
        vm.prank(client.addr);
        // The key whose secret is one: what it seals is not what is looked at here.
        try texts.demandSession(
            c, _batchOf(which), cases[which].entries, 0, Sealing.G_X, Sealing.G_Y
        ) {
            bytes memory data = _dataOf(ISessionDemands.SessionDemanded.selector);
            (ISessionDemands.SessionDemand memory demand,,) =
                abi.decode(data, (ISessionDemands.SessionDemand, uint40, uint40));
            textDemands.push(abi.encode(demand));
            textCases.push(which);
            _well();
        } catch {}
    }

    /// @dev The one that lies sends rubbish of the right length, or the text.
    function answerText(uint256 which, bool rubbish) external move {
        if (textDemands.length == 0) return;
        which = _recent(which, textDemands.length);
        if (_answerText(which, rubbish && _liesV(cases[textCases[which]].lane))) _well();
    }

    function _answerText(uint256 which, bool rubbish) internal returns (bool) {
        ISessionDemands.SessionDemand memory demand =
            abi.decode(textDemands[which], (ISessionDemands.SessionDemand));
        uint256 at = textCases[which];
        bytes memory text = _textOf(_sessionOf(cases[at].lane, cases[at].rounds));
        if (rubbish) text[0] = ~text[0];
        bytes32 id = keccak256(textDemands[which]);
        text = this.sealing(id, text);
        vm.prank(demand.verifier);
        try texts.answer(demand, Sealing.G_X, Sealing.G_Y, text) {
            sealedTexts[id] = text;
            return true;
        } catch {
            return false;
        }
    }

    /// @dev With both secrets one, the shared point is the generator.
    function sealing(bytes32 id, bytes calldata text) external pure returns (bytes memory) {
        return Sealing.stream(Sealing.addressOf(Sealing.G_X, Sealing.G_Y), id, text);
    }

    function contestText(uint256 which) external move {
        if (textDemands.length == 0) return;
        which = _recent(which, textDemands.length);
        bytes32 id = keccak256(textDemands[which]);
        ISessionDemands.SessionDemand memory demand =
            abi.decode(textDemands[which], (ISessionDemands.SessionDemand));
        try texts.contest(demand, Sealing.G_X, Sealing.G_Y, sealedTexts[id], 1) {
            if (!_liesV(cases[textCases[which]].lane)) ++impossible;
            _well();
        } catch {}
    }

    function endText(uint256 which) external move {
        if (textDemands.length != 0) _endText(_recent(which, textDemands.length));
    }

    function _endText(uint256 which) internal {
        ISessionDemands.SessionDemand memory demand =
            abi.decode(textDemands[which], (ISessionDemands.SessionDemand));
        try texts.close(demand) {
            _well();
        } catch {}
        try texts.expire(demand) {
            if (!_liesV(cases[textCases[which]].lane)) ++impossible;
            _well();
        } catch {}
    }

    /// @dev What an honest daemon does before time passes.
    function _answerAll() internal {
        for (; drawsAnswered < pendingDraws.length; ++drawsAnswered) {
            uint256 which = pendingDraws[drawsAnswered];
            if (_liesV(cases[which].lane)) continue;
            while (_openOne(which)) {}
        }
        for (; leavesAnswered < leafDemands.length; ++leavesAnswered) {
            if (!_liesV(cases[leafCases[leavesAnswered]].lane)) _answerLeaf(leavesAnswered);
        }
        for (; textsAnswered < textDemands.length; ++textsAnswered) {
            if (!_liesV(cases[textCases[textsAnswered]].lane)) _answerText(textsAnswered, false);
        }
    }

    function _dataOf(bytes32 topic) private returns (bytes memory) {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] == topic) return logs[i].data;
        }
        revert("no such event");
    }
}
