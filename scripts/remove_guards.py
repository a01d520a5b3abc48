"""Take each `// INVARIANT:` guard out of the contracts, one at a time, and see a test fail for it.

    python scripts/remove_guards.py                    # all that are not known to be caught
    python scripts/remove_guards.py --only StakeVault  # guards whose file or words hold this
    python scripts/remove_guards.py --list             # what would be taken out, and how
    python scripts/remove_guards.py --json FILE        # outcomes, for a machine

A guard is the statement below such a comment: an `if` whose condition is then never true, a call or
an assignment that is left out, or what `BY_HAND` says; in assembly it is left alone and counted.
The contracts are compiled once, with a switch beside every guard, in a copy of the tree; forge then
runs once a guard with that one switched off by the environment. The tests of the guard's own file
run first and the rest only where those are content. Results are kept in the copy's folder: a run
that was broken off goes on, and a guard that was caught is looked at again only when its file or
the test that caught it has changed.

Exit status: 0 when every guard is caught, 1 when one is not, 2 when nothing could be run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from settlement.chain.anvil import native_binary

ROOT: Final = Path(__file__).resolve().parents[1]
WORK: Final = ROOT / ".cache" / "guards"
SWITCH: Final = "VERDRAFT_REMOVED_GUARD"
# Figures move with the switches; the long searches are not what a guard is caught by.
NOT_RUN: Final = "contracts/test/{Gas*,symbolic/*}"
QUICK: Final = {"FOUNDRY_FUZZ_RUNS": "64", "FOUNDRY_INVARIANT_RUNS": "4"}

# Whose tests are asked first; `*` in a name as the shell has it.
FIRST: Final = {
    "AcceptRule": "libraries/AcceptRule*,OpeningRule*",
    "AuditTerms": "SampleAudits*",
    "BucketHistory": "AlphaLedger*",
    "ClaimJudge": "AuditPanel*",
    "Coins": "libraries/Coins*",
    "Court": "FaultCourt*",
    "Demands": "EvidenceDemands*,SessionDemands*",
    "Evidence": "FaultCourt*",
    "ExactFaults": "ExactDispute*",
    "ExpiringPause": "StakeVault*,LaneEscrow*",
    "Fingerprints": "AuditPanel*",
    "LanePositions": "LanePositions*",
    "LaneReserves": "LaneEscrow*",
    "Masses": "libraries/Coins*,libraries/AcceptRule*",
    "Openings": "OpeningRule*",
    "PanelTerms": "PanelTerms*,AuditPanel*",
    "PaymentRule": "PaymentRule*,LaneEscrow*",
    "PlaceRule": "AuditPanel*,SampleAudits*",
    "Records": "libraries/Records*",
    "RoundFaults": "FaultCourt*",
    "SequentialTest": "libraries/SequentialTest*",
    "StakeLocks": "StakeVault*,LaneEscrow*",
    "StakeSlashing": "StakeVault*",
    "StakeTimes": "StakeVault*",
    "TreeFaults": "FaultCourt*",
    "Trees": "libraries/Trees*,OpeningRule*",
}

# Guards that are no `if`, call or assignment of their own: within the statement, what stands in for
# what. KEPT is the switch.
BY_HAND: Final[dict[tuple[str, str], tuple[str, str]]] = {
    ("AcceptRule", "the interval lies inside"): (
        "uint256(draft.qBelow) + draft.q <= Records.MASS_TOTAL",
        "!KEPT || uint256(draft.qBelow) + draft.q <= Records.MASS_TOTAL",
    ),
    ("AuditPanel", "silence before a panel"): (
        "result == JuryVerdict.Result.WITHHELD",
        "KEPT && result == JuryVerdict.Result.WITHHELD",
    ),
    ("AuditPanel", "no case that cost nobody"): (
        "state.settled",
        "!KEPT || state.settled",
    ),
    ("AuditPanel", "jurors of a conviction"): (
        "guilty && !state.settled",
        "KEPT && guilty && !state.settled",
    ),
    ("Court", "a filing keeps the terms"): ("t.bond, from", "KEPT ? t.bond : 1, from"),
    ("Court", "a proof counts for whom"): ("msg.sender", "KEPT ? msg.sender : address(0)"),
    ("Court", "one fault, one punishment"): ("ruling.round", "KEPT ? ruling.round : block.number"),
    ("DrawBeacon", "the randomness is of a block"): ("+ t.delay", "+ (KEPT ? t.delay : 0)"),
    ("DrawBeacon", "drawn lanes are those"): (
        "_entryAt(batch, entries, index)",
        "KEPT ? _entryAt(batch, entries, index) : _entryAt(batch, entries, 0)",
    ),
    ("EvidenceDemands", "who answers in time"): ("faulty ?", "!KEPT || faulty ?"),
    ("LaneReserves", "whatever is added thaws"): (
        "_parameters.thawPeriod",
        "(KEPT ? _parameters.thawPeriod : 0)",
    ),
    ("LaneEscrow", "a draw is as likely"): (
        "_coverage(run, service.drafter.reachable, valueDrafter)",
        "KEPT ? _coverage(run, service.drafter.reachable, valueDrafter) : type(uint24).max",
    ),
    ("LaneEscrow", "nobody is paid without a draw"): (
        "step.toDrafter + step.toVerifier != 0",
        "KEPT && step.toDrafter + step.toVerifier != 0",
    ),
    ("LaneEscrow", "each watermark moves by"): (
        "voucher.position.paid + step.toDrafter + (step.toVerifier << 128)",
        "KEPT ? voucher.position.paid + step.toDrafter + (step.toVerifier << 128) : voucher.due",
    ),
    ("LaneEscrow", "checked: a reserve pays"): (
        "step.reserve - (amount + step.fee)",
        "KEPT ? step.reserve - (amount + step.fee) : step.reserve - amount",
    ),
    ("Masses", "exactly one whole"): ("total == type", "!KEPT || total == type"),
    ("PaymentRule", "a watermark never falls"): (
        "dueDrafter > paidDrafter ?",
        "!KEPT || dueDrafter > paidDrafter ?",
    ),
    ("PaymentRule", "what is granted and the fee"): ("BPS + feeBps", "BPS + (KEPT ? feeBps : 0)"),
    ("SequentialTest", "strictly past it"): (
        "uint256(score) > limit",
        "(KEPT ? uint256(score) > limit : uint256(score) >= limit)",
    ),
    ("StakeLocks", "what has been asked out"): ("s.active", "s.active + (KEPT ? 0 : s.unbonding)"),
    # It stands twice: what is done with has nothing left to take either.
    ("StakeSlashing", "one fault is punished once"): (
        "if (account",
        "if (!KEPT && _borne[fault] == DONE) _borne[fault] = 0;\n        if (account",
    ),
    ("StakeSlashing", "nobody has a fault done with"): (
        "whole < leastStake() ?",
        "KEPT && whole < leastStake() ?",
    ),
    ("StakeVault", "no stake raises the bond"): ("before + amount", "KEPT ? before + amount : 0"),
    ("StakeSlashing", "what is leaving or could"): ("s.unbonding", "(KEPT ? s.unbonding : 0)"),
    ("StakeSlashing", "a quarter is gone"): (
        "slashed.total - FixedPointMathLib.divUp(slashed.total, 4)",
        "slashed.total - (KEPT ? FixedPointMathLib.divUp(slashed.total, 4) : 0)",
    ),
}
SWITCHES: Final = """// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice One switch a guard, read from the environment of the test run.
library Removed {
    function kept(uint256 guard) internal pure returns (bool) {
        // The guards of pure functions need it to look pure.
        function(uint256) view returns (bool) looks = _looks;
        function(uint256) pure returns (bool) seems;
        assembly ("memory-safe") {
            seems := looks
        }
        return seems(guard);
    }

    function _looks(uint256 guard) private view returns (bool) {
        (bool ok, bytes memory answer) = 0x7109709ECfa91a80626fF3989D68f67F5b1DD12D.staticcall(
            abi.encodeWithSignature("envOr(string,uint256)", "%s", type(uint256).max)
        );
        return !ok || abi.decode(answer, (uint256)) != guard;
    }
}
"""


class CannotRun(RuntimeError):
    """A guard is written in a way nobody has taught this script, or forge does not run."""


@dataclass(frozen=True)
class Guard:
    """One guard: where it stands, what it says, and the text that `removal` puts in its place."""

    file: str  # from the root
    line: int
    words: str
    start: int  # of what is replaced, in the file
    end: int
    text: str
    removal: str  # KEPT where the switch goes

    @property
    def key(self) -> str:
        """The same as long as the guard is: line numbers may move."""
        return hashlib.sha256(f"{self.file}\0{self.words}\0{self.text}".encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line} {self.words}"


@dataclass(frozen=True)
class Outcome:
    """What became of a guard: `caught` by `test`, or not; `seen` fixes what that rests on."""

    caught: bool
    test: str
    seconds: float
    seen: str


# ---------------------------------------------------------------------- finding guards

_COMMENT: Final = re.compile(r"^[ \t]*//[/ ]*(?:@dev )?INVARIANT:[ ]*(.*)$", re.MULTILINE)
_DECLARES: Final = re.compile(
    r"(?:[\w.]+(?:\[\d*\])*(?: memory| storage| calldata)? \w+|\(.*?\)) ="
)
_LEAST: Final = re.compile(r"FixedPointMathLib\.min\(([^,()]+(?:\([^()]*\))?), ")
_UP: Final = re.compile(r"FixedPointMathLib\.divUp\(([^,]+), (\w+)\)")


def closing(text: str, at: int) -> int:
    """The place of the bracket that closes the one at `at`."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if depth == 0:
            return place
    raise CannotRun(f"unclosed bracket: {text[at : at + 60]!r}")


def statement_end(text: str, at: int) -> int:
    """Just past the semicolon, or the comma of a named field, that ends what begins at `at`."""
    place = at
    while text[place] not in ";,}":
        place = closing(text, place) + 1 if text[place] in "([{" else place + 1
    return place + 1


def skip_comments(text: str, at: int) -> int:
    while match := re.match(r"\s*(?://[^\n]*\n)?", text[at:]):
        if not match.end():
            return at
        at += match.end()
    return at


def removal_of(file: str, words: str, text: str, at: int) -> tuple[int, int, str]:
    """(start, end, text with KEPT) of the guard whose code begins at `at`."""
    by_hand = next(
        (
            how
            for (name, start), how in BY_HAND.items()
            if name == Path(file).stem and words.startswith(start)
        ),
        None,
    )
    if by_hand:
        end = statement_end(text, at)
        old = text[at:end]
        if by_hand[0] not in old:
            raise CannotRun(f"{file}: {by_hand[0]!r} does not stand in {old!r}: mend BY_HAND")
        return at, end, old.replace(by_hand[0], by_hand[1])
    own = text[at : statement_end(text, at)]
    if "FixedPointMathLib.min(" not in own:
        # What is declared for the guard's sake stays.
        while _DECLARES.match(text, at):
            at = skip_comments(text, statement_end(text, at))
    if text.startswith("if (", at):
        end = closing(text, at + 3)
        return at, end + 1, f"if (KEPT && ({text[at + 4 : end]}))"
    if text.startswith("function ", at):
        at = text.index("{", at) + 1
        return at, at, "\n        if (!KEPT) return;"
    end = statement_end(text, at)
    old = text[at:end]
    for pattern, instead in ((_LEAST, r"\1"), (_UP, r"\1 / \2")):
        if match := pattern.search(old):
            stop = closing(old, old.index("(", match.start())) + 1
            whole = old[match.start() : stop]
            return at, end, old.replace(whole, f"(KEPT ? {whole} : {match.expand(instead)})")
    if re.match(r"[\w.]+(\[[^=]*\])? = |[\w.]+\(", old):
        return at, end, f"if (KEPT) {{ {old} }}"
    raise CannotRun(f"{file}: no rule removes {old!r}: add it to BY_HAND")


def in_assembly(text: str, at: int) -> bool:
    """Whether the place lies in an assembly block, where no switch can be put."""
    opened = text.rfind("assembly", 0, at)
    return opened >= 0 and closing(text, text.index("{", opened)) > at


def guards_in(file: str, text: str) -> list[Guard]:
    """The guards of one contract, in order, those in assembly left out."""
    found = []
    for match in _COMMENT.finditer(text):
        if in_assembly(text, match.start()):
            continue
        words = match[1]
        for line in text[match.end() + 1 :].splitlines():
            stripped = line.strip()
            if not stripped.startswith("//") or "INVARIANT:" in stripped:
                break
            words += " " + stripped.lstrip("/ ")
        at = skip_comments(text, match.end())
        start, end, removal = removal_of(file, words, text, at)
        line_number = text.count("\n", 0, match.start()) + 1
        found.append(Guard(file, line_number, words, start, end, text[start:end], removal))
    return found


def contracts_of(root: Path) -> list[Path]:
    folder = root / "contracts"
    return sorted([*folder.glob("*.sol"), *(folder / "libraries").glob("*.sol")])


def left_alone(root: Path) -> list[str]:
    """The guards in assembly, by file."""
    texts = {path.name: path.read_text() for path in contracts_of(root)}
    return [
        name
        for name, text in texts.items()
        for match in _COMMENT.finditer(text)
        if in_assembly(text, match.start())
    ]


def all_guards(root: Path) -> list[Guard]:
    """Every guard of the contracts under `root`. CannotRun where one is not understood."""
    return [
        guard
        for path in contracts_of(root)
        for guard in guards_in(str(path.relative_to(root)), path.read_text())
    ]


def switched(text: str, guards: Sequence[tuple[int, Guard]], depth: int) -> str:
    """The contract with a switch beside each of its guards."""
    for number, guard in sorted(guards, key=lambda pair: -pair[1].start):
        put = guard.removal.replace("KEPT", f"Removed.kept({number})")
        text = text[: guard.start] + put + text[guard.end :]
    head = re.search(r"^pragma [^\n]*\n", text, re.MULTILINE)
    if head is None:
        raise CannotRun("a contract without a pragma")
    path = "./" if depth == 0 else "../" * depth
    take = f'import {{Removed}} from "{path}Removed.sol";\n'
    return text[: head.end()] + take + text[head.end() :]


# ---------------------------------------------------------------------- running


def prepare(root: Path, tree: Path, guards: Sequence[Guard]) -> None:
    """The copy of the tree, with switches; what differs is written, and built."""
    wanted: dict[Path, bytes] = {}
    for path in (root / "contracts").rglob("*"):
        if path.is_file():
            wanted[path.relative_to(root)] = path.read_bytes()
    for path in (root / "tests" / "vectors").glob("*"):
        wanted[path.relative_to(root)] = path.read_bytes()
    for name in ("foundry.toml", "package.json"):
        wanted[Path(name)] = (root / name).read_bytes()
    wanted[Path("contracts/Removed.sol")] = (SWITCHES % SWITCH).encode()
    numbered = list(enumerate(guards))
    for file in {guard.file for guard in guards}:
        own = [(number, guard) for number, guard in numbered if guard.file == file]
        depth = len(Path(file).parts) - 2
        wanted[Path(file)] = switched((root / file).read_text(), own, depth).encode()
    for relative, content in wanted.items():
        at = tree / relative
        if not at.is_file() or at.read_bytes() != content:
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(content)
    for path in list((tree / "contracts").rglob("*")):
        if path.is_file() and path.relative_to(tree) not in wanted:
            path.unlink()
    for name in ("node_modules", "tools"):
        if not (tree / name).exists():
            (tree / name).symlink_to((root / name).resolve())


def forge(tree: Path, number: int | None, tests: str, quick: bool) -> tuple[bool, str]:
    """Whether all the tests pass with that guard off, and the first that fails."""
    environment = {**os.environ, **(QUICK if quick else {})}
    environment.pop(SWITCH, None)
    if number is not None:
        environment[SWITCH] = str(number)
    command = [str(native_binary("forge")), "test", "--fail-fast"]
    done = subprocess.run(
        [*command, "--match-path", tests, "--no-match-path", NOT_RUN],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    if done.returncode == 0:
        return True, ""
    failed = re.search(r"^\[FAIL[^\n]*\] (\w+)\(", said, re.MULTILINE)
    if failed:
        return False, failed[1]
    if "No tests match" in said or "No tests found" in said:
        return True, ""
    raise CannotRun(f"forge says: {said[-3000:]}")


def digest(paths: Iterable[Path]) -> str:
    whole = hashlib.sha256()
    for path in sorted(paths):
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


class Results:
    """Outcomes by guard, written as they come."""

    def __init__(self, root: Path, path: Path) -> None:
        self._root, self._path = root, path
        kept = json.loads(path.read_text()) if path.exists() else {}
        self._outcomes = {key: Outcome(**value) for key, value in kept.items()}

    def seen(self, guard: Guard, test: str) -> str:
        """What an outcome rests on: guard's file and catching test's, or else all there is."""
        tests = self._root / "contracts" / "test"
        own = [self._root / guard.file]
        if test:
            holders = [p for p in tests.rglob("*.sol") if f"function {test}(" in p.read_text()]
            return digest(own + holders)
        return digest((self._root / "contracts").rglob("*.sol"))

    def of(self, guard: Guard) -> Outcome | None:
        """The kept outcome, if it still holds."""
        kept = self._outcomes.get(guard.key)
        return kept if kept and kept.seen == self.seen(guard, kept.test) else None

    def add(self, guard: Guard, caught: bool, test: str, seconds: float) -> Outcome:
        outcome = Outcome(caught, test, round(seconds, 1), self.seen(guard, test))
        self._outcomes[guard.key] = outcome
        written = {key: asdict(value) for key, value in self._outcomes.items()}
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(written, indent=1))
        fresh.replace(self._path)
        return outcome


def first_tests(guard: Guard) -> str:
    name = Path(guard.file).stem
    patterns = FIRST.get(name, f"{name}*")
    return f"contracts/test/{{{patterns}}}" if "," in patterns else f"contracts/test/{patterns}"


def look(tree: Path, number: int, guard: Guard) -> tuple[bool, str]:
    """Whether a test fails without the guard, and which."""
    for tests, quick in ((first_tests(guard), True), ("contracts/test/**", False)):
        passed, failed = forge(tree, number, tests, quick)
        if not passed:
            return True, failed
    return False, ""


def run(root: Path, work: Path, only: str) -> dict[str, tuple[Guard, Outcome]]:
    """All outcomes, those kept included. CannotRun where the untouched tests do not pass."""
    guards = all_guards(root)
    work.mkdir(parents=True, exist_ok=True)
    tree = work / "tree"
    results = Results(root, work / "outcomes.json")
    chosen = [(n, g) for n, g in enumerate(guards) if only.lower() in f"{g.file} {g.words}".lower()]
    due = [(n, g) for n, g in chosen if results.of(g) is None]
    if due:
        prepare(root, tree, guards)
        print(
            f"{len(guards)} guards; building, and running all tests with none removed", flush=True
        )
        passed, failed = forge(tree, None, "contracts/test/**", True)
        if not passed:
            raise CannotRun(f"{failed} fails with every guard in place")
    began = time.monotonic()
    for done, (number, guard) in enumerate(due, start=1):
        start = time.monotonic()
        caught, test = look(tree, number, guard)
        outcome = results.add(guard, caught, test, time.monotonic() - start)
        left = (time.monotonic() - began) / done * (len(due) - done) / 60
        verdict = f"caught by {test}" if caught else "NOT CAUGHT"
        print(
            f"[{done}/{len(due)}] {guard}: {verdict} ({outcome.seconds} s; {left:.0f} min left)",
            flush=True,
        )
    return {g.key: (g, kept) for _, g in chosen if (kept := results.of(g)) is not None}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="WORDS", help="of a guard's file or comment")
    parser.add_argument("--list", action="store_true", help="show the guards and how each goes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes")
    parser.add_argument("--work", type=Path, default=WORK, help="folder of copy and results")
    parser.add_argument("--fresh", action="store_true", help="forget what is known")
    given = parser.parse_args(argv)
    try:
        if given.list:
            for guard in all_guards(ROOT):
                print(
                    f"{guard}\n    {' '.join(guard.text.split())}\n"
                    f"  → {' '.join(guard.removal.split())}"
                )
            return 0
        if given.fresh:
            shutil.rmtree(given.work, ignore_errors=True)
        outcomes = run(ROOT, given.work, given.only)
    except CannotRun as error:
        print(f"remove_guards: {error}", file=sys.stderr)
        return 2
    missed = [guard for guard, outcome in outcomes.values() if not outcome.caught]
    print(
        f"{len(outcomes)} guards removed: {len(outcomes) - len(missed)} caught, {len(missed)} not; "
        f"{len(left_alone(ROOT))} in assembly left alone"
    )
    for guard in missed:
        print(f"  {guard.file}:{guard.line} {guard.words}")
    if given.json:
        rows = [{"guard": str(g), **asdict(o)} for g, o in outcomes.values()]
        given.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
