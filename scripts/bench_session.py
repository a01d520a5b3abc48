"""Sessions between three processes over libp2p, beside plain decoding of the same weights.

    python scripts/bench_session.py [--tiers exact float32] [--prompts 10] [--json session.json]

Client, drafter and verifier are what nodes run, each a process of its own on this machine; no
chain, no audits: every lane has a reserve. Each prompt is answered through the network and right
after by the target alone in this process, so that both meet the same machine. Both clocks include
the prompt's own pass: the network's runs from the session's start, when all three have signed it,
to the last round at the client, checked and journalled there; the plain one from the first pass to
the last token. As in a node, what all texts have in common at their beginning (a chat template's
first lines) is run once, and what a client's have; plain decoding runs it each time, so the ratio
is told from the first round on as well. The three processes share the processor. Texts must be the
same.

Per token besides: the verifier's stages, one after the other, and the processor time of each
process, whatever else ran.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from node.devnet.options import PROMPTS, TINY_PROMPTS
from node.devnet.plain import PlainTarget
from node.devnet.report import COURSE, after_first, table
from node.inference import catalog
from node.roles.receipt import verify
from scripts.bench.pairs import ratio
from scripts.bench.prompts import CLASSES, prompts

ROOT: Final = Path(__file__).resolve().parents[1]
ROLES: Final = ("drafter", "verifier", "client")


class PartyDied(RuntimeError):
    """A process ended before its time; its own words are on standard error."""


class PartyProcess:
    """A party in a process of its own."""

    def __init__(self, wish: dict[str, Any]) -> None:
        self.role = wish["role"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "scripts.bench.party", json.dumps(wish)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.facts = self._answer()

    def ask(self, do: str, **more: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PartyDied(f"the {self.role} ended with {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start(args: argparse.Namespace, dtype: str, folder: Path, stack: ExitStack) -> list[Any]:
    """Drafter, verifier and client, ready."""
    shipped = "tiny-draft" if args.model == "tiny" else catalog.DEFAULT_DRAFT
    wish: dict[str, Any] = {
        "target": target_of(args),
        "draft": args.draft or shipped,
        "dtype": dtype,
        "draft_dtype": args.draft_dtype,
        "draft_ahead": args.draft_ahead,
        "durability": args.durability,
        "limits": {} if args.window is None else fixed(args.window),
    }
    parties = []
    for role in ROLES:
        place = folder / dtype / role
        place.mkdir(parents=True)
        parties.append(PartyProcess({**wish, "role": role, "folder": str(place)}))
        stack.callback(parties[-1].close)
        wish[role] = parties[-1].facts
    parties[0].ask("learn", endpoints=wish["verifier"]["endpoints"])
    return parties


def fixed(window: int) -> dict[str, Any]:
    """Limits under which every window has so many drafts."""
    limits = {"min_window": window, "max_window": window}
    return {"verifier": limits, "client": limits, "drafter": {"max_window": max(window, 1)}}


def session(parties: Sequence[Any], request: dict[str, Any]) -> dict[str, Any]:
    """One request through the network, and what it cost each of the processes."""
    client = parties[-1]
    before = [party.ask("stats") for party in parties]
    done = client.ask("generate", request=request)
    if done["type"] != "done":
        raise PartyDied(f"the client could not serve: {done}")
    after = [party.ask("stats") for party in parties]
    each = 1e3 / done["output_tokens"]
    stages = {}
    for party, now, then in zip(parties, after, before, strict=True):
        stages[party.role] = {
            name: round((total - then["stages"].get(name, (0, 0))[0]) * each, 4)
            for name, (total, _) in now["stages"].items()
        }
    return {
        **{name: done[name] for name in ("output_tokens", "rounds", "proposed", "accepted")},
        **{name: done[name] for name in ("seconds", "first_seconds", "first_tokens")},
        "receipt": done["receipt_path"],
        "first_round": done["came"][0],
        "cpu_ms_per_token": {
            party.role: round((now["cpu"] - then["cpu"]) * each, 3)
            for party, now, then in zip(parties, after, before, strict=True)
        },
        "stages_ms_per_token": stages,
    }


def measure(args: argparse.Namespace, dtype: str, folder: Path) -> list[dict[str, Any]]:
    """All sessions of one tier, each with plain decoding right after it."""
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        parties = start(args, dtype, folder, stack)
        plain = PlainTarget(target_of(args), dtype)
        show(f"\n{dtype}: the target's products run on {plain.arithmetic}")
        for kind, number, text in asked(args):
            request = {"prompt": text, "mode": args.mode, "max_tokens": args.tokens}
            if args.mode != "rejection":
                request["seed"] = 1
            if args.temperature is not None:
                request["temperature"] = args.temperature
            row = {"tier": dtype, "kind": kind, "prompt": number, **session(parties, request)}
            alone = plain.run(verify(json.loads(Path(row.pop("receipt")).read_text())))
            row |= {
                "plain_seconds": alone.seconds,
                "plain_first": alone.first_seconds,
                "ratio": alone.seconds / row["seconds"],
                "ratio_after_first": after_first(
                    row["output_tokens"] - row["first_tokens"],
                    row["seconds"] - row["first_seconds"],
                    row["output_tokens"] - 1,
                    alone.seconds - alone.first_seconds,
                ),
                "lossless": alone.lossless,
            }
            rows.append(row)
            show(
                f"  {kind:>8} {number}: {row['output_tokens']} tokens, {row['rounds']} rounds, "
                f"{row['accepted']}/{row['proposed']} accepted; "
                f"{row['output_tokens'] / row['seconds']:.1f} tokens/s, plain "
                f"{row['output_tokens'] / row['plain_seconds']:.1f}: {row['ratio']:.2f}"
            )
    return rows


def asked(args: argparse.Namespace) -> list[tuple[str, int, str]]:
    """(kind, number, text) of the prompts, kinds in turn; the devnet's own come first."""
    own = TINY_PROMPTS if args.model == "tiny" else PROMPTS
    found = [("devnet", number, text) for number, text in enumerate(own)]
    by_kind = [prompts(kind, args.prompts) for kind in CLASSES]
    for number in range(max(map(len, by_kind))):
        found += [
            (kind[number].kind, number, kind[number].text) for kind in by_kind if number < len(kind)
        ]
    return found[: args.prompts]


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians over a tier's sessions, and the paired ratio with its interval."""

    def middle(values: Sequence[float], digits: int = 3) -> float:
        return round(median(values), digits)

    stages = {
        role: {
            name: middle([row["stages_ms_per_token"][role].get(name, 0.0) for row in rows])
            for name in sorted({n for row in rows for n in row["stages_ms_per_token"][role]})
        }
        for role in ROLES
    }
    return {
        "sessions": len(rows),
        "ratio": ratio([row["ratio"] for row in rows]).as_json(),
        "ratio_median": middle([row["ratio"] for row in rows]),
        "ratio_after_first": ratio(
            [row["ratio_after_first"] for row in rows if row["ratio_after_first"] > 0]
        ).as_json(),
        "tokens_per_s": middle([row["output_tokens"] / row["seconds"] for row in rows]),
        "plain_tokens_per_s": middle([r["output_tokens"] / r["plain_seconds"] for r in rows]),
        "ms_per_token": middle([1e3 * row["seconds"] / row["output_tokens"] for row in rows]),
        "plain_ms_per_token": middle(
            [1e3 * row["plain_seconds"] / row["output_tokens"] for row in rows]
        ),
        "first_round_ms": middle([1e3 * row["first_round"] for row in rows]),
        "first_token_ms": middle([1e3 * row["first_seconds"] for row in rows]),
        "plain_first_ms": middle([1e3 * row["plain_first"] for row in rows]),
        "tokens_per_round": middle([row["output_tokens"] / row["rounds"] for row in rows]),
        "acceptance": round(
            sum(r["accepted"] for r in rows) / max(sum(r["proposed"] for r in rows), 1), 3
        ),
        "cpu_ms_per_token": {
            role: middle([row["cpu_ms_per_token"][role] for row in rows]) for role in ROLES
        },
        "stages_ms_per_token": stages,
        "lossless": sum(row["lossless"] is not False for row in rows),
    }


def print_summary(tier: str, found: dict[str, Any]) -> None:
    """The medians for a person."""
    interval = found["ratio"]
    show(f"\n{tier}, medians of {found['sessions']} sessions; {found['lossless']} texts the same")
    show(
        f"  here {found['tokens_per_s']:.1f} tokens/s, plain {found['plain_tokens_per_s']:.1f}; "
        f"here ÷ plain, geometric mean: {interval['mean']:.3f} "
        f"[{interval['low']:.3f}, {interval['high']:.3f}], median {found['ratio_median']:.3f}"
    )
    later = found["ratio_after_first"]
    show(
        f"  from the first round on {later['mean']:.3f} [{later['low']:.3f}, {later['high']:.3f}]; "
        "before it a verifier does not run again what prompts have in common"
    )
    show(
        f"  {found['tokens_per_round']:.2f} tokens a round, {found['acceptance']:.2f} of the "
        f"drafts accepted; first token {found['first_round_ms']:.0f} ms after the request, "
        f"{found['first_token_ms']:.0f} after the session's start, plain "
        f"{found['plain_first_ms']:.0f}"
    )
    stages = found["stages_ms_per_token"]["verifier"]
    show("  the verifier's stages, ms per token (records may overlap the next pass)")
    whole = (found["plain_ms_per_token"], found["ms_per_token"])
    heads = ("plain", "here", *COURSE.values())
    table(show, heads, [(*whole, *(stages.get(stage, 0.0) for stage in COURSE))])
    show("  processor time, ms per token")
    table(show, ROLES, [tuple(found["cpu_ms_per_token"][role] for role in ROLES)])


def target_of(args: argparse.Namespace) -> str:
    return "tiny-target" if args.model == "tiny" else "smollm2-135m-instruct"


def show(line: str = "") -> None:
    print(line, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tiers", nargs="+", choices=("exact", "float32"), default=["exact"])
    parser.add_argument("--model", choices=("default", "tiny"), default="default")
    parser.add_argument("--draft", help="the drafter's model; ngram: prompt lookup alone")
    parser.add_argument("--draft-dtype", default="", help="its arithmetic; default: as the target")
    parser.add_argument("--prompts", type=int, default=10, help="the devnet's five come first")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--mode", choices=("coupled", "greedy", "rejection"), default="coupled")
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--window", type=int, help="every window of so many; default: chosen")
    parser.add_argument("--draft-ahead", action="store_true", help="draft on beside the pass")
    parser.add_argument("--durability", choices=("normal", "full"), default="normal")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    out: dict[str, Any] = {"settings": {k: str(v) for k, v in vars(args).items()}, "tiers": {}}
    out["rows"] = rows = []
    with tempfile.TemporaryDirectory(prefix="verdraft-bench-") as name:
        for tier in args.tiers:
            measured = measure(args, tier, Path(name))
            rows += measured
            out["tiers"][tier] = summary(measured)
            print_summary(tier, out["tiers"][tier])
            if args.json is not None:
                args.json.write_text(json.dumps(out, indent=1) + "\n")
    return 0 if all(row["lossless"] is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
