"""Honest parties under everything that may befall them: nobody is slashed, no case is lost.

    python scripts/honest_parties.py --records 20000 --sessions 24 --rounds 500      # a minute
    python scripts/honest_parties.py --records 1000000 --resume records.jsonl --json out.json
    python scripts/honest_parties.py --sessions 200 --rounds 10000 --resume served.jsonl

`--records`: rounds through the settlement functions. Sessions of random figures, as three honest
parties sign them, are put into trees and vouchers, paid, drawn, opened, looked through for faults,
and counted under claims of exactly the rates that they are made with, which are tested after every
settlement.

`--sessions`: requests to honest operators of the tiny pair by honest and hostile clients at once,
over links that lose, cut, repeat and reorder; `--rounds` the same with tables for models, until so
many rounds are signed. Afterwards every journal, the hostile clients' too, is searched for
anything that FaultCourt would take against an honest party, all signatures are compared by what
may be signed once only, every honest client's text is compared with the target's own, and its
vouchers with what it was served.

Everything follows from the numbers of chunks and runs, so that an interrupted run goes on where its
`--resume` file ends. Exit status 1 if anything was found.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import structlog

from node.economics.ledger import first_flag
from settlement.draws import BatchEvidence, DrawTerms, is_drawn, lane_seed, opening_of
from settlement.faults import find_faults
from settlement.hashing import keccak256
from settlement.payments import Dues, dues, settle
from settlement.records import BUCKETS, Domain, Mode, Sums

Row = dict[str, Any]

# ---------------------------------------------------------------- rounds through the functions

CHUNK: Final = 1_000  # rounds of a lane, about
SETTLED: Final = 250  # rounds of a settlement, about
# What `played_sessions` accepts with: 0.7 in the strict modes; in rejection mode p is q, a half or
# a third of it. In percent, downwards.
RATES: Final = {Mode.GREEDY: 70, Mode.COUPLED: 70, Mode.REJECTION: 61}
_DOMAIN: Final = Domain(31337, b"\x0e" * 20)
_TERMS: Final = DrawTerms(2**32 // 4, 5_000, 4)
_COVERED: Final = 1 << 62


def chunk_of_rounds(number: int, least: int = CHUNK) -> Row:
    """One lane's life, of at least so many rounds: sessions, settlements, payments, draws,
    openings, a search for faults."""
    from played_sessions import play

    rng = Random(f"honest/{number}")
    mode = (Mode.GREEDY, Mode.COUPLED, Mode.REJECTION)[number % 3]
    rounds: list[Any] = []
    while len(rounds) < least:
        terms = {"max_window": rng.choice((2, 2, 6)), "nonce": len(rounds)}
        rounds.extend(play(_DOMAIN, rng, mode, **terms).rounds)
    lane = rounds[0].order.lane
    base, batches, counts, total = None, [], [], Dues()
    paid, openings, problems = Dues(), 0, Counter[str]()
    for index, first in enumerate(range(0, len(rounds), SETTLED)):
        part = tuple(rounds[first : first + SETTLED])
        earlier = {e.key: e for e in rounds[max(0, first - 1) : first]}
        batch = BatchEvidence(part, base, earlier)
        tree, settled = batch.settled()
        for evidence in part:
            order, record = evidence.order, evidence.record
            total += dues(record.output, record.accepted, order.price_accepted, order.price_output)
        paid = settle(total, paid, 10**12, 10**12, 10**12).watermark
        seed = keccak256(b"honest", str(number).encode(), bytes([index]))
        if is_drawn(seed, index, _TERMS, _COVERED):
            for sample in range(_TERMS.samples):
                opening_of(batch, settled.root, lane_seed(seed, index), sample)
                openings += 1
        counts.append(_counted(tree.top().sums))
        batches.append(batch)
        base = settled
    problems["underpaid"] += paid != total
    faults = find_faults(_DOMAIN, lane, *batches)
    return {
        "kind": "records",
        "number": number,
        "mode": mode.name.lower(),
        "rounds": len(rounds),
        "settlements": len(batches),
        "openings": openings,
        "faults": [f"F{fault.number}" for fault in faults],
        "underpaid": problems["underpaid"],
        "counts": counts,
    }


def _counted(sums: Sums) -> list[list[int]]:
    return [list(sums.proposed_by_bucket), list(sums.accepted_by_bucket)]


def flagged(rows: Sequence[Row]) -> dict[str, Any]:
    """By mode: proposals under its claim, and what flagged it (settlement and bucket), or None."""
    out = {}
    for mode, rate in RATES.items():
        mine = [row for row in rows if row["mode"] == mode.name.lower()]
        steps = [step for row in sorted(mine, key=lambda r: r["number"]) for step in row["counts"]]
        if not steps:
            continue
        proposed, accepted = (np.array([s[i] for s in steps], dtype=np.int64) for i in (0, 1))
        flag = first_flag(proposed, accepted, (rate,) * BUCKETS)
        out[mode.name.lower()] = {
            "proposals": int(proposed.sum()),
            "rate": round(float(accepted.sum() / proposed.sum()), 4),
            "claimed": rate / 100,
            "flag": flag,
        }
    return out


# ---------------------------------------------------------------- the run


class Rows:
    """What is done, kept in a file of JSON lines when one is named."""

    def __init__(self, path: Path | None) -> None:
        self.rows: list[Row] = []
        self._path = path
        for line in path.read_text().splitlines() if path and path.exists() else ():
            try:
                self.rows.append(json.loads(line))
            except ValueError:
                break  # the line at which the run before was killed
        if path is not None:
            path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))

    def of(self, kind: str) -> list[Row]:
        return [row for row in self.rows if row["kind"] == kind]

    def add(self, row: Row) -> None:
        self.rows.append(row)
        if self._path is not None:
            with self._path.open("a") as out:
                out.write(json.dumps(row) + "\n")

    def fill(self, kind: str, what: str, wanted: int, until: float) -> Iterator[int]:
        """Numbers still to do until `what` sums up to `wanted`, or the time is over."""
        done = {row["number"] for row in self.of(kind)}
        number = 0
        while sum(row[what] for row in self.of(kind)) < wanted and time.monotonic() < until:
            if number not in done:
                yield number
            number += 1


def summary(rows: Rows) -> dict[str, Any]:
    records, served = rows.of("records"), rows.of("sessions") + rows.of("rounds")
    out: dict[str, Any] = {}
    if records:
        out["records"] = {
            "rounds": sum(row["rounds"] for row in records),
            "settlements": sum(row["settlements"] for row in records),
            "openings": sum(row["openings"] for row in records),
            "faults": [fault for row in records for fault in row["faults"]],
            "underpaid": sum(row["underpaid"] for row in records),
            "claims": flagged(records),
        }
    for kind in ("sessions", "rounds"):
        mine = [row for row in served if row["kind"] == kind]
        if mine:
            names = (
                "requests",
                "sessions",
                "rounds",
                "honest_asked",
                "honest_answered",
                "against_honest",
                "against_hostile",
                "wrong_texts",
                "twice",
            )
            out[kind] = {name: sum(row[name] for row in mine) for name in names}
            signed: Counter[str] = Counter()
            for row in mine:
                signed.update(row["signed"])
            out[kind]["signed"] = dict(signed)
    return out


def failed(found: dict[str, Any]) -> list[str]:
    """What an honest party would have suffered."""
    bad = []
    records = found.get("records", {})
    for name in ("faults", "underpaid"):
        if records.get(name):
            bad.append(f"records: {name} {records[name]}")
    bad += [f"claim flagged: {m}" for m, c in records.get("claims", {}).items() if c["flag"]]
    for kind in ("sessions", "rounds"):
        facts = found.get(kind, {})
        for name in ("against_honest", "wrong_texts", "twice"):
            if facts.get(name):
                bad.append(f"{kind}: {name} {facts[name]}")
        if facts and facts["honest_answered"] < facts["honest_asked"]:
            bad.append(f"{kind}: {facts['honest_answered']} of {facts['honest_asked']} answered")
    return bad


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=0, help="rounds through the functions")
    parser.add_argument("--sessions", type=int, default=0, help="served by the tiny pair")
    parser.add_argument("--rounds", type=int, default=0, help="signed, served by tables")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary there")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep rows here; go on from it")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so many")
    options = parser.parse_args(argv)
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    rows, until = Rows(options.resume), time.monotonic() + options.seconds
    tests = Path(__file__).resolve().parents[1] / "tests"
    for folder in ("", "unit", "e2e", "adversaries"):
        sys.path.insert(0, str(tests / folder))
    from crowd import run_of_sessions

    for kind, what in (("sessions", "sessions"), ("rounds", "rounds")):
        for number in rows.fill(kind, what, getattr(options, kind), until):
            rows.add(run_of_sessions(number, kind))
            print(f"{kind}: {sum(row[what] for row in rows.of(kind)):,}", file=sys.stderr)
    for number in rows.fill("records", "rounds", options.records, until):
        rows.add(chunk_of_rounds(number))
        if number % 10 == 9:
            done = sum(row["rounds"] for row in rows.of("records"))
            print(f"records: {done:,} rounds", file=sys.stderr)
    found = summary(rows)
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for problem in (bad := failed(found)):
        print(f"FAILED: {problem}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
