// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Juries} from "../Juries.sol";
import {IJuries} from "../interfaces/IJuries.sol";
import {ISampleAudits} from "../interfaces/ISampleAudits.sol";
import {Fingerprints} from "../libraries/Fingerprints.sol";
import {JuryVerdict} from "../libraries/JuryVerdict.sol";
import {Records} from "../libraries/Records.sol";
import {PanelWork} from "./PanelWork.sol";
import {VectorReader} from "./libraries/VectorReader.sol";

contract JuryVerdictTest is PanelWork, VectorReader {
    function _measure(string memory json, string memory v)
        private
        pure
        returns (JuryVerdict.Measure memory m)
    {
        m.exact = vm.parseJsonBool(json, string.concat(v, ".exact"));
        m.printed = vm.parseJsonBool(json, string.concat(v, ".printed"));
        m.margin = uint64(_uint(json, string.concat(v, ".margin")));
        m.distance = uint64(_uint(json, string.concat(v, ".distance")));
        m.print = _word(json, string.concat(v, ".print"));
        m.expected = _word(json, string.concat(v, ".expected"));
    }

    function _answers(string memory json, string memory v)
        private
        pure
        returns (IJuries.Answer[] memory answers)
    {
        bytes32[] memory prints = vm.parseJsonBytes32Array(json, string.concat(v, ".prints"));
        uint256[] memory margins = vm.parseJsonUintArray(json, string.concat(v, ".margins"));
        bool[] memory withheld = vm.parseJsonBoolArray(json, string.concat(v, ".withheld"));
        bool[] memory revealed = vm.parseJsonBoolArray(json, string.concat(v, ".revealed"));
        answers = new IJuries.Answer[](prints.length);
        for (uint256 i; i < prints.length; ++i) {
            answers[i] = IJuries.Answer(0, prints[i], uint64(margins[i]), withheld[i], revealed[i]);
        }
    }

    function test_Vectors_Verdicts() public view {
        string memory json = _load("panels");
        uint256 count = _count(json, ".verdicts");
        assertGe(count, 60);
        for (uint256 i; i < count; ++i) {
            string memory v = _at(".verdicts", i);
            JuryVerdict.Result result = JuryVerdict.resultOf(_answers(json, v), _measure(json, v));
            assertEq(uint8(result), _uint(json, string.concat(v, ".result")), v);
        }
    }

    function test_Vectors_Distances() public view {
        string memory json = _load("panels");
        uint256 count = _count(json, ".distances");
        for (uint256 i; i < count; ++i) {
            string memory v = _at(".distances", i);
            assertEq(
                Fingerprints.distance(
                    _word(json, string.concat(v, ".one")), _word(json, string.concat(v, ".other"))
                ),
                _uint(json, string.concat(v, ".distance")),
                v
            );
        }
    }

    function test_Vectors_Seals() public {
        string memory json = _load("panels");
        uint256 count = _count(json, ".seals");
        for (uint256 i; i < count; ++i) {
            string memory v = _at(".seals", i);
            vm.chainId(_uint(json, string.concat(v, ".chainId")));
            address at_ = vm.parseJsonAddress(json, string.concat(v, ".juries"));
            vm.etch(at_, address(juries).code);
            assertEq(
                Juries(at_)
                    .commitmentOf(
                        uint64(_uint(json, string.concat(v, ".jury"))),
                        vm.parseJsonAddress(json, string.concat(v, ".member")),
                        vm.parseJsonBool(json, string.concat(v, ".withheld")),
                        uint64(_uint(json, string.concat(v, ".margin"))),
                        _word(json, string.concat(v, ".print")),
                        _word(json, string.concat(v, ".salt"))
                    ),
                _word(json, string.concat(v, ".commitment")),
                v
            );
        }
        _tickets(json);
    }

    function _tickets(string memory json) private pure {
        string memory v = _at(".tickets", 0);
        bytes32 content = keccak256(
            abi.encode(
                uint64(_uint(json, string.concat(v, ".batchId"))),
                uint32(_uint(json, string.concat(v, ".index"))),
                uint8(_uint(json, string.concat(v, ".sample")))
            )
        );
        _ticket(json, v, ISampleAudits.Kind.DRAWN, content);
        v = _at(".tickets", 1);
        ISampleAudits.Canary memory c;
        c.startHash = _word(json, string.concat(v, ".startHash"));
        c.round = uint32(_uint(json, string.concat(v, ".round")));
        c.within = uint32(_uint(json, string.concat(v, ".within")));
        c.figures = _word(json, string.concat(v, ".figures"));
        c.print = _word(json, string.concat(v, ".print"));
        c.text = _word(json, string.concat(v, ".text"));
        _ticket(json, v, ISampleAudits.Kind.CANARY, keccak256(abi.encode(c)));
    }

    function _ticket(string memory json, string memory v, ISampleAudits.Kind kind, bytes32 content)
        private
        pure
    {
        assertEq(content, _word(json, string.concat(v, ".content")), v);
        bytes32 salt = _word(json, string.concat(v, ".salt"));
        assertEq(
            keccak256(abi.encode("verdraft/ticket/1", kind, content, salt)),
            _word(json, string.concat(v, ".ticket")),
            v
        );
    }

    /// @dev Real stakes in the pool, drawn one after the other as a jury is.
    function test_Vectors_Draws() public {
        string memory json = _load("panels");
        bytes32 model = Records.modelId(target);
        uint256 count = _count(json, ".draws");
        uint256 clean = vm.snapshotState();
        for (uint256 i; i < count; ++i) {
            string memory v = _at(".draws", i);
            uint256[] memory weights = vm.parseJsonUintArray(json, string.concat(v, ".weights"));
            uint256[] memory order = vm.parseJsonUintArray(json, string.concat(v, ".order"));
            bytes32 seed = _word(json, string.concat(v, ".seed"));
            for (uint256 j; j < weights.length; ++j) {
                _auditor(string.concat("v", vm.toString(j)), weights[j]);
            }
            vm.roll(vm.getBlockNumber() + 1);
            uint256[] memory taken = new uint256[](order.length);
            for (uint256 j; j < order.length; ++j) {
                uint256 word = uint256(keccak256(abi.encodePacked(seed, uint8(j))));
                (, taken[j],) = pool.drawAt(model, vm.getBlockNumber() - 1, word, taken, j);
                assertEq(taken[j], order[j], v);
            }
            vm.revertToState(clean);
        }
    }

    // ------------------------------------------------------------------ properties

    function _of(uint256 seats) private pure returns (IJuries.Answer[] memory answers) {
        answers = new IJuries.Answer[](seats);
        for (uint256 i; i < seats; ++i) {
            answers[i].revealed = true;
        }
    }

    /// @dev Whatever a minority of the seats says or keeps silent, the others' word stands.
    function testFuzz_AMinorityMovesNothing(uint256 seed, uint8 size, bool guilty, bool byPrint)
        public
        pure
    {
        uint256 seats = bound(size, 1, 15);
        JuryVerdict.Measure memory m;
        (m.printed, m.margin, m.distance) = (true, 1_000, 50);
        IJuries.Answer[] memory answers = _of(seats);
        for (uint256 i; i < seats; ++i) {
            if (guilty && byPrint) answers[i].print = bytes32(uint256(51));
            if (guilty && !byPrint) answers[i].margin = 1_001;
            if (!guilty) (answers[i].print, answers[i].margin) = (bytes32(uint256(50)), 1_000);
        }
        for (uint256 i; i < (seats - 1) / 2; ++i) {
            uint256 word = uint256(keccak256(abi.encode(seed, i)));
            IJuries.Answer memory bad = answers[word % seats];
            bad.margin = uint64(word >> 64);
            bad.print = keccak256(abi.encode(word));
            bad.withheld = word >> 8 & 1 == 1;
            if (word >> 9 & 3 == 0) bad.revealed = false;
        }
        assertEq(
            uint8(JuryVerdict.resultOf(answers, m)),
            uint8(guilty ? JuryVerdict.Result.GUILTY : JuryVerdict.Result.CLEARED)
        );
    }

    /// @dev One more than half decides, at one unit over the tolerance and not at it.
    function testFuzz_TurnsAtTheTolerance(uint64 tolerance, uint8 size) public pure {
        uint256 seats = bound(size, 1, 15);
        tolerance = uint64(bound(tolerance, 0, type(uint64).max - 1));
        JuryVerdict.Measure memory m;
        m.margin = tolerance;
        IJuries.Answer[] memory answers = _of(seats);
        for (uint256 over; over <= seats; ++over) {
            for (uint256 i; i < seats; ++i) {
                answers[i].margin = i < over ? tolerance + 1 : tolerance;
            }
            JuryVerdict.Result expected =
                2 * over > seats ? JuryVerdict.Result.GUILTY : JuryVerdict.Result.CLEARED;
            assertEq(uint8(JuryVerdict.resultOf(answers, m)), uint8(expected));
        }
    }

    function testFuzz_OneHashOfMostSeats(uint8 size, bytes32 right, bytes32 wrong) public pure {
        vm.assume(right != wrong);
        uint256 seats = bound(size, 1, 15);
        JuryVerdict.Measure memory m;
        (m.exact, m.printed, m.expected) = (true, true, right);
        IJuries.Answer[] memory answers = _of(seats);
        for (uint256 bad; bad <= seats; ++bad) {
            for (uint256 i; i < seats; ++i) {
                answers[i].print = i < bad ? wrong : right;
            }
            JuryVerdict.Result expected = 2 * bad > seats
                ? JuryVerdict.Result.GUILTY
                : 2 * bad < seats ? JuryVerdict.Result.CLEARED : JuryVerdict.Result.VOID;
            assertEq(uint8(JuryVerdict.resultOf(answers, m)), uint8(expected));
        }
        // As many opinions as seats: no verdict, unless there is one seat only.
        for (uint256 i; i < seats; ++i) {
            answers[i].print = keccak256(abi.encode(wrong, i));
        }
        if (seats > 1) {
            assertEq(uint8(JuryVerdict.resultOf(answers, m)), uint8(JuryVerdict.Result.VOID));
        }
    }

    function test_WithheldByMostSeats() public pure {
        JuryVerdict.Measure memory m;
        IJuries.Answer[] memory answers = _of(5);
        for (uint256 i; i < 5; ++i) {
            answers[i].withheld = true;
            uint256 judged = 5 - 1 - i;
            JuryVerdict.Result expected = i + 1 > 2
                ? JuryVerdict.Result.WITHHELD
                : judged > 2 ? JuryVerdict.Result.CLEARED : JuryVerdict.Result.VOID;
            assertEq(uint8(JuryVerdict.resultOf(answers, m)), uint8(expected));
        }
        assertEq(
            uint8(JuryVerdict.resultOf(new IJuries.Answer[](0), m)), uint8(JuryVerdict.Result.VOID)
        );
    }
}
