"""Every adversary of the gallery, played among honest nodes, and what came of it.

    python scripts/gallery.py [--only NAME] [--json FILE] [--court]

Each is a small change to an honest role or to its model (tests/adversaries); it meets honest
parties on the in-memory network, with real records, signatures, journals and checks. Without
`--court`, `found` and a fault's number mean that the honest parties hold what FaultCourt or a
panel takes. With it there is a chain with every contract: what FaultCourt judges is filed and
proven, what a second run finds goes before a panel of drawn jurors, and those who lie to the
contracts themselves (auditors, silent verifiers, replayed and invented vouchers) are played too.
After each row with a chain everybody leaves: stakes, pay, bonds, shares and reserves are taken out,
and every contract's books must add up to the unit. Exits 1 if anything is not caught, anyone honest
is accused or slashed, or anything that is somebody's is left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import structlog

ROOT = Path(__file__).resolve().parents[1]
for folder in ("", "tests/unit", "tests/e2e", "tests/adversaries"):
    sys.path.insert(0, str(ROOT / folder))


HEAD = ("adversary", "role", "mode", "caught", "outcome", "fault", "text intact")
WITH_COURT = ("slashed, tokens", "victims got, units", "all withdrew")


def main() -> int:
    from gallery import NAMES, SCENES, show

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME", help="one adversary; --list names them")
    parser.add_argument("--list", action="store_true", help="name the adversaries")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--court", action="store_true", help="before the contracts (anvil)")
    options = parser.parse_args()
    names = NAMES
    if options.court or options.list:
        from trials import ALL_NAMES as names
    if options.list:
        print("\n".join(names))
        return 0
    if options.only is not None and options.only not in names:
        parser.error(f"no adversary {options.only!r}; --list names them, some need --court")
    # Their refusals are what is looked for, not news.
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    began, rows, missed = time.monotonic(), [], []
    with contextlib.ExitStack() as court:
        if options.court:
            from panelroom import opened
            from trials import trials

            room = court.enter_context(opened(Path(court.enter_context(TemporaryDirectory()))))
            played = trials(room, options.only, options.seed)
        else:
            chosen = (pair for pair in SCENES if options.only in (None, pair[0].name))
            played = (show(scene, judge, options.seed)[0] for scene, judge in chosen)
        head = (*HEAD, *(WITH_COURT if options.court else ()))
        print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
        for row in played:
            rows.append(row.to_json())
            if not row.caught or row.honest_slashed or row.all_withdrew is False:
                missed.append(row.adversary)
            print(line(row, court=options.court), flush=True)
    accused = sum(row["honest_slashed"] for row in rows)
    print(
        f"\n{len(rows) - len(missed)} of {len(rows)} caught, {accused} honest parties accused or "
        f"slashed ({time.monotonic() - began:.0f} s)"
    )
    if options.court:
        gone = [row for row in rows if row["all_withdrew"] is not None]
        print(f"{sum(row['all_withdrew'] for row in gone)} of {len(gone)} left nothing behind")
    if options.json:
        report = {"seed": options.seed, "rows": rows}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if missed else 0


def line(row: Any, *, court: bool) -> str:
    """One row of the table."""
    cells = [
        row.adversary,
        row.role,
        row.mode,
        row.caught or "NOT CAUGHT",
        row.outcome or "—",
        row.fault or "—",
        "yes" if row.text_intact else "no",
    ]
    if court:
        left = {None: "—", True: "yes", False: "NO"}[row.all_withdrew]
        cells += [f"{row.slashed / 10**18:,.0f}", f"{row.victim_recovered:,}", left]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
