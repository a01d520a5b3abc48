"""What every call of the contracts costs, measured by forge; kept in contracts/gas.json.

    python scripts/gas_report.py                 # measure and print
    python scripts/gas_report.py --check         # compare with contracts/gas.json (CI does)
    python scripts/gas_report.py --json contracts/gas.json   # accept the new figures
    python scripts/gas_report.py --markdown FILE # the tables of docs/results.md

Each figure is a transaction of its own: 21,000, calldata (with EIP-7623's floor) and cold storage
included; stake locks, α counts and the batch's registration with it. contracts/test/Gas.t.sol and
Gas.faults.t.sol say how each is set up.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
COMMITTED: Final = ROOT / "contracts" / "gas.json"
TEST_FILE: Final = "contracts/test/Gas*.t.sol"
TOLERANCE: Final = 0.01  # of a figure; a change beyond it is accepted by committing the new one
GAS_AIM: Final = 0.1  # per accepted token at 64 lanes × 2**18

_LINE: Final = re.compile(
    r"^gas (?:curve (?P<lanes>\d+) (?P<accepted>\d+)|(?P<name>\w+)): (?P<gas>\d+)$"
)


class GasReportFailed(RuntimeError):
    """forge did not run, a test failed, or it logged no figures."""


@dataclass(frozen=True)
class Report:
    """`calls`: gas by name. `curve`: gas of one settlement by (lanes, accepted tokens a lane)."""

    calls: dict[str, int]
    curve: dict[tuple[int, int], int]

    @classmethod
    def of_lines(cls, lines: Iterable[str]) -> Report:
        """From the lines that the tests log."""
        calls: dict[str, int] = {}
        curve: dict[tuple[int, int], int] = {}
        for line in lines:
            match = _LINE.match(line.strip())
            if match is None:
                continue
            if match["name"]:
                calls[match["name"]] = int(match["gas"])
            else:
                curve[int(match["lanes"]), int(match["accepted"])] = int(match["gas"])
        if not calls or not curve:
            raise GasReportFailed(f"{TEST_FILE} logged no figures: is its name or format changed?")
        return cls(calls, curve)

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> Report:
        curve = {
            (int(lanes), int(accepted)): gas
            for lanes, row in data["curve"].items()
            for accepted, gas in row.items()
        }
        return cls(dict(data["calls"]), curve)

    def to_json(self) -> dict[str, Any]:
        rows: dict[str, dict[str, int]] = {}
        for (lanes, accepted), gas in sorted(self.curve.items()):
            rows.setdefault(str(lanes), {})[str(accepted)] = gas
        return {"calls": dict(sorted(self.calls.items())), "curve": rows}

    def flat(self) -> dict[str, int]:
        """Every figure under one name."""
        curve = {f"curve {lanes} {n}": gas for (lanes, n), gas in self.curve.items()}
        return {**self.calls, **curve}

    def per_token(self, lanes: int, accepted: int) -> float:
        """Gas per accepted token of a settlement of `lanes` lanes."""
        return self.curve[lanes, accepted] / (lanes * accepted)


def measure() -> Report:
    """Run the gas tests. GasReportFailed with forge's words where they fail."""
    command = [str(ROOT / "node_modules" / ".bin" / "forge"), "test", "--match-path", TEST_FILE]
    done = subprocess.run(
        [*command, "--json", "-vv"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    # The compiler's warnings come before the JSON.
    start = done.stdout.find("{")
    if start < 0:
        raise GasReportFailed(f"forge says: {(done.stdout + done.stderr)[-2000:]}")
    suites: dict[str, Any] = json.loads(done.stdout[start:])
    lines: list[str] = []
    for suite in suites.values():
        for name, result in suite["test_results"].items():
            if result["status"] != "Success":
                raise GasReportFailed(f"{name}: {result.get('reason')}")
            lines.extend(result["decoded_logs"])
    return Report.of_lines(lines)


def differences(found: Report, committed: Report, tolerance: float = TOLERANCE) -> list[str]:
    """One line for each figure that is new, gone or further off than `tolerance`."""
    new, old = found.flat(), committed.flat()
    lines = []
    for name in sorted(new.keys() | old.keys()):
        if name not in new or name not in old:
            lines.append(f"{name}: {'not measured any more' if name in old else 'not committed'}")
        elif abs(new[name] - old[name]) > tolerance * old[name]:
            change = 100 * (new[name] / old[name] - 1)
            lines.append(f"{name}: {old[name]:,} → {new[name]:,} ({change:+.1f} %)")
    return lines


def markdown(report: Report) -> str:
    """The two tables of docs/results.md."""
    lanes = sorted({lanes for lanes, _ in report.curve})
    sizes = sorted({accepted for _, accepted in report.curve})
    out = ["| lanes | " + " | ".join(f"{n:,} accepted a lane" for n in sizes) + " |"]
    out.append("|---" * (len(sizes) + 1) + "|")
    for count in lanes:
        cells = (f"{report.per_token(count, n):.3f}" for n in sizes)
        out.append(f"| {count} | " + " | ".join(cells) + " |")
    out += ["", "| call | gas |", "|---|---|"]
    out += [f"| `{name}` | {gas:,} |" for name, gas in sorted(report.calls.items())]
    return "\n".join(out) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail where gas.json says otherwise")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    given = parser.parse_args(argv)
    try:
        report = measure()
    except GasReportFailed as error:
        print(f"gas_report: {error}", file=sys.stderr)
        return 2
    if given.json:
        given.json.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    if given.markdown:
        given.markdown.write_text(markdown(report))
    if not given.json and not given.markdown:
        print(markdown(report), end="")
    best = report.per_token(64, 1 << 18)
    print(f"64 lanes × 2**18: {best:.4f} gas per accepted token (aim {GAS_AIM})", file=sys.stderr)
    if given.check:
        changes = differences(report, Report.of_json(json.loads(COMMITTED.read_text())))
        for line in changes:
            print(line, file=sys.stderr)
        if changes:
            print(
                "accept with: python scripts/gas_report.py --json contracts/gas.json",
                file=sys.stderr,
            )
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
