"""How far honest float runs of one model lie apart, and whether a cheap model hides among them.

    python scripts/float_tolerance.py --model tiny --sessions 3800 --cheap 1250 --resume rows.jsonl
    python scripts/float_tolerance.py --model default --sessions 240 --cheap 40 --resume rows2.jsonl
    python scripts/float_tolerance.py --model tiny --dtype bfloat16 --sessions 500 --resume …

Honest sessions are decoded from a cache in batches of 1 to 8 sessions, or verified in windows of 1
to 8 tokens, and re-run by another, one of three in turn, each in a process of its own: chunks of 64
on the same kind of machine, one prefill on a machine held to AVX2, chunks of 16 in two threads.
Modes, temperatures and filters follow from the session's number. A cheap model's sessions go on
until our checks have found them (the first 100 until TOPLOC has too), or for 300 tokens; their
re-run is honest.

What is compared is what auditors compare (`node.roles.rerun.judge` under its tolerances, and
fingerprints) and TOPLOC's check on the same states (scripts/toploc.py). "Tokens alone" is what is
left against a verifier that makes fingerprints and topProb by one honest prefill of its cheap
tokens. Rates are per session, intervals Clopper–Pearson, 95 %, two-sided.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # two threads on a busy machine
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from node.inference import catalog
from node.inference.fingerprint import Projection, distance
from node.inference.loading import load_model
from node.inference.model import LanguageModel, Span
from node.inference.params import History, SamplingParams
from node.inference.rows import ModelRow, target_rows
from node.inference.tokens import Tokenizer
from node.roles.rerun import Placed, Tolerance, judge
from scripts import cheap_models, toploc
from scripts.check_lossless import PAIRS, texts
from settlement.coins import Purpose, coin
from settlement.hashing import keccak256
from settlement.masses import sample_masses
from settlement.records import NO_TOKEN, Q16, Mode, Tier, VerdictLeaf

MOST: Final = 300  # tokens of a cheap model's session
TOPLOC_TOO: Final = 100  # cheap sessions that go on until TOPLOC has found them
CHEAP_OFFSET: Final = 10**6  # their numbers, so that they are other sessions than the honest ones
BLOCK: Final = 32
BATCHES: Final = (1, 2, 4, 8)
AVX2: Final = {
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
# Another's way to run it again: environment, threads, rows a pass.
RERUNS: Final[dict[str, tuple[dict[str, str], int, int]]] = {
    "chunks of 64": ({}, 1, 64),
    "prefill, AVX2": (AVX2, 1, 512),
    "chunks of 16, 2 threads": ({"OMP_NUM_THREADS": "2"}, 2, 16),
}
CHAIN: Final = b"\x07" * 32  # V's value; one will do, positions make the coins differ
EQUAL: Final = Tolerance(0, 0, 0.0, 0, 0, 0)


@dataclass(frozen=True)
class Work:
    """One session; everything follows from its number."""

    number: int
    prompt: list[int]
    params: SamplingParams
    seed: bytes


def work(number: int, known: Sequence[str], tokenizer: Tokenizer) -> Work:
    rng = random.Random(f"tolerance/{number}")
    words = known[number % len(known)].split()
    if number >= len(known):
        first = rng.randrange(len(words))
        words = words[first : first + rng.randint(1, 24)]
    mode = rng.choices((Mode.GREEDY, Mode.COUPLED, Mode.REJECTION), (1, 3, 1))[0]
    temperature = rng.choice((0.3, 0.7, 1.0, 1.0, 1.5))
    top_k, top_p = rng.choice(((0, 1.0), (0, 1.0), (20, 1.0), (0, 0.9)))
    params = SamplingParams(Mode.GREEDY, 0)
    if mode != Mode.GREEDY:
        params = SamplingParams(
            mode, round(temperature * Q16), top_k=top_k, top_p=round(top_p * Q16)
        )
    prompt = list(tokenizer.encode(" ".join(words)))[:200]
    return Work(number, prompt, params, keccak256(b"tolerance", str(number).encode()))


@dataclass
class Served:
    """What V says of a session: (token, topProb, cut-off) and final state [d] a position."""

    words: list[tuple[int, int, int]] = field(default_factory=list)
    hidden: list[np.ndarray] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return [word[0] for word in self.words]


def said(item: Work, row: ModelRow, position: int) -> tuple[int, int, int]:
    """V's token and figures by its own row."""
    if item.params.mode == Mode.REJECTION:
        w = coin(CHAIN, item.seed, position, Purpose.BONUS)
        token = sample_masses(row.masses(), w)
    else:
        token = row.choose(item.params.mode, item.seed, position)[0]
    return token, row.top_prob, row.cutoff


class Decoding:
    """Sessions decoded token by token in one batch."""

    def __init__(self, model: LanguageModel, items: Sequence[Work]) -> None:
        self.model, self.items = model, items
        self.served = [Served() for _ in items]
        self._caches = [model.new_cache() for _ in items]
        self._missing = [list(item.prompt) for item in items]

    def go_on(self, tokens: int) -> None:
        for _ in range(tokens):
            pairs = zip(self._caches, self._missing, strict=True)
            passed = self.model.forward([Span(cache, missing) for cache, missing in pairs])
            for at, (item, rows) in enumerate(zip(self.items, passed, strict=True)):
                row = target_rows(rows.logits, item.params, History(item.prompt))[0]
                served = self.served[at]
                served.words.append(said(item, row, len(served.words)))
                served.hidden.append(rows.hidden.numpy()[0])
                self._missing[at] = [served.words[-1][0]]


class Forced:
    """A text that is given, read in pieces: rows and states of its positions."""

    def __init__(self, model: LanguageModel, item: Work) -> None:
        self.model, self.item = model, item
        self._cache, self._before, self.position = model.new_cache(), list(item.prompt), 0

    def read(self, tokens: Sequence[int]) -> Iterator[tuple[int, ModelRow, np.ndarray]]:
        """Position, row and state of each of `tokens`, one pass."""
        given = [*self._before, *tokens[:-1]]
        rows = self.model.forward([Span(self._cache, given, len(tokens))])[0]
        words = target_rows(rows.logits, self.item.params, History(self.item.prompt), tokens[:-1])
        for row, state in zip(words, rows.hidden.numpy(), strict=True):
            yield self.position, row, state
            self.position += 1
        self._before = [tokens[-1]]


def in_windows(model: LanguageModel, item: Work, text: Sequence[int]) -> Served:
    """V's words over that text, in windows of 1 to 8."""
    rng, forced, served = random.Random(item.number), Forced(model, item), Served()
    while forced.position < len(text):
        size = rng.randint(1, 8)
        for position, row, state in forced.read(text[forced.position : forced.position + size]):
            served.words.append(said(item, row, position))
            served.hidden.append(state)
    return served


# ---------------------------------------------------------------- the re-run


@dataclass
class Figures:
    """How far a re-run lies from what was served: the largest of each over the positions.

    Attributes:
        token: Q24 that V's token lies below the best; of unfiltered positions.
        mass: share of one that the coin lies outside V's token, rejection mode.
        top_prob, cutoff, print: in their units; a cut-off where the other has none counts as 2**62.
        flags: what auditors would report under the tolerances in force.
        first_token, first: position of the first token, and of the first of anything, reported.
        records: per figure, (position, value) wherever a new largest appears.
    """

    token: int = 0
    mass: float = 0.0
    top_prob: int = 0
    cutoff: int = 0
    print: int = 0
    flags: dict[str, int] = field(default_factory=dict)
    first_token: int | None = None
    first: int | None = None
    records: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def largest(self, name: str, position: int, value: float) -> None:
        if value > getattr(self, name):
            setattr(self, name, value)
            self.records.setdefault(name, []).append((position, value))

    def flag(self, what: str, position: int) -> None:
        self.flags[what] = self.flags.get(what, 0) + 1
        if what == "token" and self.first_token is None:
            self.first_token = position
        if self.first is None:
            self.first = position


def compare(
    figures: Figures, item: Work, at: int, word: tuple[int, int, int], row: ModelRow, apart: int
) -> None:
    """Adds one position: V's word beside the honest row, and the fingerprints' distance."""
    token, top_prob, cutoff = word
    leaf = VerdictLeaf(at, NO_TOKEN, token, False, 0, top_prob, cutoff, 0, 0, 0, False, bytes(32))
    # All that `judge` asks of an order.
    order: Any = SimpleNamespace(
        mode=item.params.mode, relax_tau=0, top_k=item.params.top_k, top_p=item.params.top_p
    )
    placed = Placed(leaf, None, (), (), CHAIN)
    figures.largest("print", at, apart)
    if apart > TOLERANCE.fingerprint:
        figures.flag("fingerprint", at)
    if said(item, row, at) == word:
        return
    for found in judge(order, item.seed, placed, row, EQUAL)[0]:
        if found.what == "token" and item.params.mode == Mode.REJECTION:
            figures.largest("mass", at, found.margin)
        elif found.what == "token" and not item.params.has_filters:
            figures.largest("token", at, int(found.margin))
        elif found.what == "topProb":
            figures.largest("top_prob", at, int(found.margin))
        elif found.what == "cutoff":
            figures.largest("cutoff", at, min(int(found.margin), 1 << 62))
    for found in judge(order, item.seed, placed, row, TOLERANCE)[0]:
        figures.flag(found.what, at)


TOLERANCE = Tolerance()  # of the tier that is measured; set before anything is compared


def judge_by(dtype: str) -> None:
    """Compares by what auditors of that tier allow from now on."""
    global TOLERANCE
    TOLERANCE = Tolerance.of(Tier[dtype.upper()])


def rerun(
    model: LanguageModel,
    item: Work,
    text: Sequence[int],
    served: tuple[list[tuple[int, int, int]], list[bytes], list[toploc.Proof]],
    chunk: int,
) -> tuple[Figures, list[toploc.Distance]]:
    words, prints, proofs = served
    figures, forced = Figures(), Forced(model, item)
    projection = Projection(item.seed, model.hidden_size)
    states: list[np.ndarray] = []
    while forced.position < len(text):
        for at, row, state in forced.read(text[forced.position : forced.position + chunk]):
            (ours,) = projection.fingerprints(state[None])
            compare(figures, item, at, words[at], row, distance(prints[at], ours))
            states.append(state)
    return figures, toploc.checks(proofs, np.stack(states))


def rerunner(pipe: Any, folder: str, dtype: str, threads: int, chunk: int) -> None:
    """A process of its own, since kernels are chosen when torch is loaded."""
    torch.set_num_threads(threads)
    judge_by(dtype)
    model = load_model(folder, dtype, "cpu")
    while (asked := pipe.recv()) is not None:
        pipe.send(rerun(model, *asked, chunk))


class Others:
    """The three that run honest sessions again."""

    def __init__(self, folder: Path, dtype: str, names: Sequence[str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: dict[str, Any] = {}
        self._processes = []
        for name in names:
            environment, threads, chunk = RERUNS[name]
            mine, theirs = context.Pipe()
            arguments = (theirs, str(folder), dtype, threads, chunk)
            process = context.Process(target=rerunner, args=arguments, daemon=True)
            before = dict(os.environ)
            os.environ.update(environment)
            process.start()
            os.environ.clear()
            os.environ.update(before)
            self._pipes[name] = mine
            self._processes.append(process)

    def rerun(self, asked: list[tuple[Any, ...]]) -> list[tuple[str, Figures, list[Any]]]:
        """Each case (Work, text, what was served) by one of them, in turn; in the cases' order."""
        ways = list(self._pipes.items())
        turns = [ways[case[0].number % len(ways)] for case in asked]
        for case, (_name, pipe) in zip(asked, turns, strict=True):
            pipe.send(case)
        return [(name, *pipe.recv()) for name, pipe in turns]

    def close(self) -> None:
        for pipe in self._pipes.values():
            pipe.send(None)
        for process in self._processes:
            process.join()


# ---------------------------------------------------------------- the two kinds of session


def honest_rows(
    model: LanguageModel, others: Others, items: list[Work], length: int
) -> Iterator[dict[str, Any]]:
    """A batch of honest sessions; every other batch is verified in windows instead."""
    decoding = Decoding(model, items)
    decoding.go_on(length)
    windows = items[0].number // max(BATCHES) % 2 == 1
    cases = []
    for item, decoded in zip(items, decoding.served, strict=True):
        text = decoded.tokens
        served = in_windows(model, item, text) if windows else decoded
        states = np.stack(served.hidden)
        prints = Projection(item.seed, model.hidden_size).fingerprints(states)
        cases.append((item, text, (served.words, prints, toploc.proofs(states))))
    for item, (name, figures, checks) in zip(items, others.rerun(cases), strict=True):
        run = {
            key: getattr(figures, key)
            for key in ("token", "mass", "top_prob", "cutoff", "print", "flags")
        }
        run["toploc"] = all(check.accepted() for check in checks)
        run["exponents"] = max(check.exponents for check in checks)
        how = "windows" if windows else f"batch of {len(items)}"
        mode = item.params.mode.name.lower()
        filters = item.params.has_filters
        yield {
            "kind": "honest",
            "number": item.number,
            "how": how,
            "mode": mode,
            "filters": filters,
            "tokens": length,
            "runs": {name: run},
        }


def cheap_rows(
    kind: str, honest: LanguageModel, cheap: LanguageModel, items: list[Work]
) -> Iterator[dict[str, Any]]:
    """A batch of a cheap model's sessions, until everything has found each of them."""
    decoding = Decoding(cheap, items)
    forced = [Forced(honest, item) for item in items]
    projections = [Projection(item.seed, honest.hidden_size) for item in items]
    figures = [Figures() for _ in items]
    refused: list[int | None] = [None for _ in items]
    done = 0
    while done < MOST:
        size = min(BLOCK, MOST - done)
        decoding.go_on(size)
        for at, item in enumerate(items):
            served = decoding.served[at]
            theirs = np.stack(served.hidden[done:])
            prints, states = projections[at].fingerprints(theirs), []
            words = served.words[done:]
            block = [word[0] for word in words]
            for word, print_, (place, row, state) in zip(
                words, prints, forced[at].read(block), strict=True
            ):
                (ours,) = projections[at].fingerprints(state[None])
                compare(figures[at], item, place, word, row, distance(print_, ours))
                states.append(state)
            proof = toploc.Proof.of(theirs)
            if refused[at] is None and not proof.check(np.stack(states)).accepted():
                refused[at] = done + size
        done += size
        both = items[-1].number % CHEAP_OFFSET < TOPLOC_TOO
        found = zip(figures, refused, strict=True)
        if all(f.first_token is not None and (at or not both) for f, at in found):
            break
    for item, seen, at in zip(items, figures, refused, strict=True):
        yield {
            "kind": kind,
            "number": item.number,
            "mode": item.params.mode.name.lower(),
            "filters": item.params.has_filters,
            "tokens": done,
            "first": seen.first,
            "first_token": seen.first_token,
            "toploc": at,
            "records": {name: seen.records.get(name, []) for name in ("print", "token")},
        }


def cheap_model(kind: str, folder: Path, honest: Any, scratch: Path, tokenizer: Tokenizer) -> Any:
    """The model behind an adversary's name; None where this target has no such."""
    if kind == "24 of 30 layers":
        return cheap_models.fewer_layers(honest)
    if kind.endswith(" bits"):
        out = cheap_models.requantised(folder, scratch / kind, int(kind.split()[0]))
        return load_model(out, honest.tier, "cpu")
    if kind == "another checkpoint":
        other = [tokenizer.encode(text) for text in texts()[:16]]
        return load_model(cheap_models.finetuned(folder, scratch / kind, other), honest.tier, "cpu")
    return load_model(folder, "bfloat16", "cpu") if honest.tier == "float32" else None


CHEAP: Final = (
    "24 of 30 layers",
    "3 bits",
    "another checkpoint",
    "4 bits",
    "8 bits",
    "bfloat16 for float32",
)
# The lies that the figures are for; the others are measured beside them.
MEANT: Final = CHEAP[:3]


class Rows:
    """What is done, kept in a file of JSON lines when one is named."""

    def __init__(self, path: Path | None, settings: dict[str, Any]) -> None:
        self.rows: list[dict[str, Any]] = []
        self._path = path
        if path is None:
            return
        if path.exists() and path.read_text().strip():
            head, *lines = path.read_text().splitlines()
            if json.loads(head) != settings:
                raise SystemExit(f"{path} is of another run ({head}); name a new file")
            for line in lines:
                try:
                    self.rows.append(json.loads(line))
                except ValueError:
                    break  # the line at which the run before was killed
        whole = [json.dumps(settings), *map(json.dumps, self.rows)]
        path.write_text("\n".join(whole) + "\n")

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        if self._path is not None:
            with self._path.open("a") as out:
                out.write(json.dumps(row) + "\n")

    def missing(self, kind: str, numbers: Sequence[int]) -> list[int]:
        done = {row["number"] for row in self.rows if row["kind"] == kind}
        return [number for number in numbers if number not in done]


def batches(numbers: Sequence[int], turn: bool) -> Iterator[list[int]]:
    """Numbers in groups of 8, or of 1, 2, 4 and 8 by turns."""
    at, step = 0, 0
    while at < len(numbers):
        size = BATCHES[step % len(BATCHES)] if turn else max(BATCHES)
        yield list(numbers[at : at + size])
        at, step = at + size, step + 1


def main(argv: Sequence[str] | None = None) -> int:
    from scripts.tolerance_report import report

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=tuple(PAIRS), default="tiny")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--sessions", type=int, default=64, help="honest ones (%(default)s)")
    parser.add_argument("--tokens", type=int, default=32, help="of an honest one (%(default)s)")
    parser.add_argument("--cheap", type=int, default=8, help="of each cheap model (%(default)s)")
    parser.add_argument("--only", choices=CHEAP, action="append", help="these cheap models")
    parser.add_argument("--rerun", choices=tuple(RERUNS), action="append", help="by these only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary there")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep rows here; go on from it")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so many")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    judge_by(options.dtype)
    length, until = options.tokens, time.monotonic() + options.seconds
    settings = {"model": options.model, "dtype": options.dtype, "tokens": length}
    rows = Rows(options.resume, settings)
    folder = catalog.resolve(PAIRS[options.model][0]).path
    model, tokenizer, known = (
        load_model(folder, options.dtype, "cpu"),
        Tokenizer.load(folder),
        texts(),
    )
    began = time.monotonic()

    def say(kind: str, number: int) -> None:
        print(f"{kind}: {number + 1} ({time.monotonic() - began:.0f} s)", file=sys.stderr)

    left = rows.missing("honest", range(options.sessions))
    if left:
        others = Others(folder, options.dtype, options.rerun or tuple(RERUNS))
        for numbers in batches(left, turn=True):
            items = [work(number, known, tokenizer) for number in numbers]
            for row in honest_rows(model, others, items, length):
                rows.add(row)
            say("honest", numbers[-1])
            if time.monotonic() > until:
                break
        others.close()
    with tempfile.TemporaryDirectory() as scratch:
        for kind in options.only or CHEAP:
            left = rows.missing(kind, range(options.cheap)) if time.monotonic() < until else []
            cheap = cheap_model(kind, folder, model, Path(scratch), tokenizer) if left else None
            if cheap is None:
                continue
            for numbers in batches(left, turn=False):
                items = [work(CHEAP_OFFSET + number, known, tokenizer) for number in numbers]
                for row, number in zip(cheap_rows(kind, model, cheap, items), numbers, strict=True):
                    rows.add({**row, "number": number})
                say(kind, numbers[-1])
                if time.monotonic() > until:
                    break
    summary = report(settings, rows.rows)
    print("\n".join(summary.lines()))
    if options.json:
        options.json.write_text(json.dumps(summary.to_json(), indent=1) + "\n", encoding="utf-8")
    return 1 if summary.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
