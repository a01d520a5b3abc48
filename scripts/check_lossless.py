"""Whether greedy and coupled text through drafter and verifier is what the target alone says.

    python scripts/check_lossless.py --model tiny --prompts 500 --json lossless.json
    python scripts/check_lossless.py --model default --prompts 50 --resume lossless.jsonl

Each prompt is decoded twice per mode under one seed: by the target alone, one token a pass, and by
the speculative loop with a drafter. The two texts must be equal, or first differ where the target's
two best scores lie within 1e-3 (a near-tie, which float32 may decide either way; counted apart).
Temperature, filters, window and seed follow from the prompt's number, so that every run of the same
number is the same case, and an interrupted run goes on where its `--resume` file ends.

Drafters: `model` is the pair's own draft model; `ngram` prompt lookup; `noisy` proposes the plain
text with every fourth token wrong, which makes rejections at every place of a window; `random`
proposes random ids. Exit status: 0 if every text was lossless, 1 if one was not.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from node.inference import catalog
from node.inference.drafter import Drafter, Step
from node.inference.generate import generate
from node.inference.loading import load_model
from node.inference.lookup import LookupDrafter
from node.inference.manifest import manifest_of
from node.inference.model_drafter import ModelDrafter
from node.inference.params import SamplingParams
from node.inference.plain import PlainOutput, compare, decode_plain
from node.inference.scripted import ScriptedDrafter, random_tokens
from node.inference.stops import StopRules
from node.inference.tokens import Tokenizer
from node.inference.verifier import Verifier
from node.inference.window import FixedWindow
from settlement.hashing import keccak256
from settlement.records import Q16, Mode

HELDOUT: Final = Path(__file__).parent / "draft" / "heldout.jsonl"
PAIRS: Final = {
    "tiny": ("tiny-target", "tiny-draft"),
    "default": (catalog.DEFAULT_TARGET, catalog.DEFAULT_DRAFT),
}
DRAFTERS: Final = ("model", "ngram", "noisy", "random")
MODES: Final = {"greedy": Mode.GREEDY, "coupled": Mode.COUPLED}
MAX_WINDOW: Final = 8
WRONG: Final = 4  # one noisy draft in so many is wrong


@dataclass(frozen=True)
class Case:
    """One prompt in one mode; everything follows from the number."""

    number: int
    mode: str
    text: str
    params: SamplingParams
    window: int
    seed: bytes


@dataclass(frozen=True)
class Row:
    """What came of a case. `position` and `margin` (Q24) say where the texts part, if they do."""

    number: int
    mode: str
    window: int
    tokens: int
    rounds: int
    proposed: int
    accepted: int
    lossless: bool
    near_ties: int
    position: int | None
    margin: int | None
    plain_seconds: float
    seconds: float


def texts() -> list[str]:
    """The prompts that no training saw, in their file's order."""
    return [json.loads(line)["prompt"] for line in HELDOUT.read_text().splitlines()]


def case(number: int, mode: str, known: Sequence[str]) -> Case:
    """Case `number`: the held-out prompts as they are, then pieces of them."""
    rng = random.Random(f"lossless/{number}")
    text = known[number % len(known)]
    if number >= len(known):
        words = text.split()
        first = rng.randrange(len(words))
        text = " ".join(words[first : first + rng.randint(1, 24)])
    temperature = rng.choice((0.3, 0.7, 1.0, 1.5))
    top_k, top_p = rng.choice((0, 0, 20)), rng.choice((1.0, 1.0, 0.9))
    window = rng.randint(1, MAX_WINDOW)
    params = SamplingParams(Mode.GREEDY, 0)
    if mode == "coupled":
        params = SamplingParams(
            Mode.COUPLED, round(temperature * Q16), top_k=top_k, top_p=round(top_p * Q16)
        )
    return Case(number, mode, text, params, window, keccak256(b"lossless", str(number).encode()))


class Pair:
    """A target and a way to draft for it."""

    def __init__(self, name: str, drafter: str, device: str) -> None:
        target, draft = PAIRS[name]
        folder = catalog.resolve(target).path
        self.model = load_model(folder, "float32", device)
        self.tokenizer = Tokenizer.load(folder)
        self.verifier = Verifier(self.model, self.tokenizer)
        self.stop_ids = frozenset(manifest_of(folder, "float32").eos_ids)
        self.drafter = drafter
        self._fixed: Drafter | None = None
        if drafter == "model":
            source = catalog.resolve(draft)
            self._fixed = ModelDrafter(
                load_model(source.path, "float32", device), self.model.vocab_size
            )
        elif drafter == "ngram":
            self._fixed = LookupDrafter()

    def prompt(self, text: str) -> list[int]:
        if self.tokenizer.chat_template is None:
            return list(self.tokenizer.encode(text))
        return list(self.tokenizer.chat([{"role": "user", "content": text}]))

    def drafter_for(self, work: Case, plain: PlainOutput) -> Drafter:
        if self._fixed is not None:
            return self._fixed
        vocab = self.model.vocab_size
        if self.drafter == "random":
            return random_tokens(vocab, work.number)
        rng, answer = random.Random(f"noisy/{work.number}"), plain.tokens

        def script(_: Sequence[int], position: int) -> Step | None:
            if position >= len(answer):
                return None
            wrong = rng.randrange(WRONG) == 0
            return Step.certain(rng.randrange(vocab) if wrong else answer[position])

        return ScriptedDrafter(script, name="noisy")

    def run(self, work: Case, max_tokens: int) -> Row:
        prompt = self.prompt(work.text)
        stops = StopRules(max_tokens, self.stop_ids)
        plain = decode_plain(self.model, prompt, work.params, stops, seed=work.seed)
        made = generate(
            self.verifier,
            self.drafter_for(work, plain),
            prompt,
            work.params,
            stops,
            FixedWindow(work.window),
            seed=work.seed,
        )
        found = compare(made.tokens, plain)
        return Row(
            work.number,
            work.mode,
            work.window,
            len(made.tokens),
            len(made.rounds),
            made.proposed,
            made.accepted,
            found.lossless,
            found.near_ties,
            found.position,
            found.margin,
            round(plain.seconds, 4),
            round(made.seconds, 4),
        )


class Progress:
    """Rows done so far, kept in a file of JSON lines when one is named; its first line says for
    which run, so that rows of another are never taken for this one's."""

    def __init__(self, path: Path | None, settings: dict[str, Any]) -> None:
        self.rows: list[Row] = []
        self._path = path
        if path is None:
            return
        if path.exists() and path.read_text().strip():
            head, *lines = path.read_text().splitlines()
            if json.loads(head) != settings:
                raise SystemExit(
                    f"{path} is of another run ({head}); name a new file, or the same settings"
                )
            for line in lines:
                try:
                    self.rows.append(Row(**json.loads(line)))
                except ValueError:
                    break  # the line at which the run before was killed
        whole = [json.dumps(settings), *(json.dumps(asdict(row)) for row in self.rows)]
        path.write_text("\n".join(whole) + "\n")

    def add(self, row: Row) -> None:
        self.rows.append(row)
        if self._path is not None:
            with self._path.open("a") as out:
                out.write(json.dumps(asdict(row)) + "\n")


def summary(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Per mode: prompts, lossless ones, near-ties, failures, acceptance, tokens."""
    out = {}
    for mode in MODES:
        found = [row for row in rows if row.mode == mode]
        if not found:
            continue
        proposed = sum(row.proposed for row in found)
        out[mode] = {
            "prompts": len(found),
            "equal": sum(row.position is None and row.lossless for row in found),
            "near_ties": sum(row.near_ties for row in found),
            "failed": [row.number for row in found if not row.lossless],
            "tokens": sum(row.tokens for row in found),
            "rounds": sum(row.rounds for row in found),
            "proposed": proposed,
            "accepted": sum(row.accepted for row in found),
        }
    return out


def missing(modes: Sequence[str], prompts: int, rows: Sequence[Row]) -> Iterator[Case]:
    done = {(row.number, row.mode) for row in rows}
    known = texts()
    for number in range(prompts):
        for mode in modes:
            if (number, mode) not in done:
                yield case(number, mode, known)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, help="default: 500 tiny, 50 default")
    parser.add_argument("--model", choices=tuple(PAIRS), default="tiny")
    parser.add_argument("--drafter", choices=DRAFTERS, help="default: model (tiny), noisy")
    parser.add_argument("--mode", choices=tuple(MODES), action="append", help="default: both")
    parser.add_argument("--max-tokens", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--device", default="cpu", help="default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write summary and rows here")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep rows here; go on from it")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    prompts = args.prompts or (500 if args.model == "tiny" else 50)
    drafter = args.drafter or ("model" if args.model == "tiny" else "noisy")
    settings = {"model": args.model, "drafter": drafter, "max_tokens": args.max_tokens}
    progress = Progress(args.resume, settings)
    pair = Pair(args.model, drafter, args.device)
    modes = args.mode or list(MODES)
    began = last = time.monotonic()
    for count, work in enumerate(missing(modes, prompts, progress.rows), start=1):
        row = pair.run(work, args.max_tokens)
        progress.add(row)
        if not row.lossless:
            print(f"prompt {row.number}, {row.mode}: differs at {row.position}", file=sys.stderr)
        if time.monotonic() - last > 10:
            last = time.monotonic()
            each = (last - began) / count
            print(f"prompt {work.number} of {prompts}, {each:.2f} s each", file=sys.stderr)
    found = summary([row for row in progress.rows if row.number < prompts and row.mode in modes])
    for mode, facts in found.items():
        print(
            f"{args.model}, {drafter} drafter, {mode}: {facts['equal']} of {facts['prompts']} "
            f"texts equal, {facts['near_ties']} part at a near-tie, {len(facts['failed'])} differ; "
            f"{facts['accepted']} of {facts['proposed']} drafts accepted"
        )
    if args.json is not None:
        rows = [asdict(row) for row in progress.rows]
        args.json.write_text(json.dumps({**settings, "modes": found, "rows": rows}, indent=1))
    return 1 if any(facts["failed"] for facts in found.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
