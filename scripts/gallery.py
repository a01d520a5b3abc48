"""Every adversary of the gallery, played among honest nodes, and what came of it.

    python scripts/gallery.py [--only NAME] [--json FILE] [--court]

Each is a small change to an honest role or to its model (tests/adversaries); it meets honest
parties on the in-memory network, with real records, signatures, journals and checks. `found` and a
fault's number mean that the honest parties hold what FaultCourt or a panel takes. With `--court`
there is a chain with every contract, and what FaultCourt judges is filed, proven and slashed there;
what needs a panel is not. Exits 1 if anything is not caught or anyone honest is accused.
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

import structlog

ROOT = Path(__file__).resolve().parents[1]
for folder in ("", "tests/unit", "tests/e2e", "tests/adversaries"):
    sys.path.insert(0, str(ROOT / folder))


def main() -> int:
    from gallery import NAMES, SCENES, show

    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="adversaries: " + ", ".join(NAMES)
    )
    parser.add_argument("--only", metavar="NAME", help="one adversary")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--court", action="store_true", help="prove it to the contracts (anvil)")
    options = parser.parse_args()
    if options.only is not None and options.only not in NAMES:
        parser.error(f"no adversary {options.only!r}; there are: {', '.join(NAMES)}")
    # Their refusals are what is looked for, not news.
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    began, rows, missed = time.monotonic(), [], []
    court = contextlib.ExitStack()
    room = None
    if options.court:
        from courtroom import opened

        room = court.enter_context(opened(Path(court.enter_context(TemporaryDirectory()))))
    more = " slashed, tokens | victims got, units |" if room else ""
    print("| adversary | role | mode | caught | outcome | fault | text intact |" + more)
    print("|---|---|---|---|---|---|---|" + ("---|---|" if room else ""))
    for scene, judge in SCENES:
        if options.only not in (None, scene.name):
            continue
        row, played = show(scene, judge, options.seed)
        if room is not None and played.proofs:
            row = room.ruled(row, scene, played)
        rows.append(row.to_json())
        if not row.caught or row.honest_slashed:
            missed.append(row.adversary)
        print(
            f"| {row.adversary} | {row.role} | {row.mode} | {row.caught or 'NOT CAUGHT'} | "
            f"{row.outcome or '—'} | {row.fault or '—'} | {'yes' if row.text_intact else 'no'} |"
            + (f" {row.slashed / 10**18:,.0f} | {row.victim_recovered} |" if room else ""),
            flush=True,
        )
    accused = sum(row["honest_slashed"] for row in rows)
    print(
        f"\n{len(rows) - len(missed)} of {len(rows)} caught, {accused} honest parties accused "
        f"({time.monotonic() - began:.0f} s)"
    )
    court.close()
    if options.json:
        report = {"seed": options.seed, "rows": rows}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
