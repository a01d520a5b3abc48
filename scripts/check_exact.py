"""Does the exact tier give the same bits in every way of computing them?

    python scripts/check_exact.py                                # a few hundred positions, CI
    python scripts/check_exact.py --positions 50000 --json out.json
    python scripts/check_exact.py --model smollm2-135m-instruct --positions 50000 --few 2000 \
        --resume cases.jsonl

`--positions` are those of prefill and of the native kernel in windows, the fastest two ways;
`--few` those of every other. With `--resume` finished cases are kept in a file, for this engine's
sources alone, and are not run again.

One digest per position, over the final hidden state and every logit, is made once by plain
prefill and compared with that of every other way: token by token, in windows of 1 to 16, in chunks,
after rollbacks, in batches, with 1 and 2 threads, on every backend that is exact here, in processes
held to AVX2 and to AVX-512 (ONEDNN_MAX_CPU_ISA and ATEN_CPU_CAPABILITY), in the native kernel where
there is a C compiler, on a CUDA device where there is one, and by the oracle in tests/ on a sample.
Exit status 1 when a digest differs.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # two threads on a busy machine

import numpy as np
import torch

from node.inference import catalog
from node.inference.architecture import ModelError
from node.inference.exact import native, products, quantise
from node.inference.exact.model import ExactModel
from node.inference.model import Rows, Span

LENGTH = 256  # most tokens of one text; shorter ones where there are few positions
ISAS = {
    "AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "AVX-512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "ATEN_CPU_CAPABILITY": "avx512"},
    "AVX-512 VNNI": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI", "ATEN_CPU_CAPABILITY": "avx512"},
}
CAPABILITIES = ("default", "avx2", "avx512")  # of torch on x86, each with those before it
# What computes in this tier, or holds what it computed: cases of other sources are not these.
SOURCES = ("exact/*.py", "exact/kernel.c", "model.py", "cache.py", "paged.py")
Texts = list[list[int]]
Digests = list[bytes]


@dataclass(frozen=True)
class Case:
    """One way of computing, against prefill. `backend`: of the matrix products."""

    name: str
    model: str
    positions: int
    differing: int
    backend: str
    seconds: float


def texts(vocab: int, positions: int, seed: int = 1) -> Texts:
    """Random ids: harder than prose, for no position looks like another."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, vocab, positions).tolist()
    length = min(max(positions // 8, 8), LENGTH)
    return [ids[i : i + length] for i in range(0, positions, length)]


def digest(rows: Rows) -> Digests:
    """16 bytes per row, over h and all of Z."""
    hidden = rows.hidden.cpu().numpy().astype("<i2")
    scores = (rows.logits.cpu() * 2.0**24).long().numpy().astype("<i8")
    return [
        hashlib.blake2b(h.tobytes() + z.tobytes(), digest_size=16).digest()
        for h, z in zip(hidden, scores, strict=True)
    ]


class Finished:
    """Cases done and the digests expected of them, in a file of JSON lines where one is named."""

    def __init__(self, path: Path | None, settings: dict[str, Any]) -> None:
        self.cases: list[Case] = []
        self.expected: dict[str, Digests] = {}
        self._path = path
        if path is None:
            return
        head = json.dumps({**settings, "engine": engine_digest()})
        if not path.exists() or not path.read_text().strip():
            path.write_text(head + "\n")
            return
        first, *lines = path.read_text().splitlines()
        if first != head:
            raise SystemExit(f"{path} is of another run or engine ({first}); name a new file")
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                continue  # a line at which a run before was killed
            if "expected" in row:
                raw = bytes.fromhex(row["expected"])
                whole = [raw[i : i + 16] for i in range(0, len(raw), 16)]
                self.expected[row["model"]] = whole
            else:
                self.cases.append(Case(**row))
        with path.open("a") as out:
            out.write("\n")  # ends such a line

    def find(self, model: str, name: str) -> Case | None:
        return next((c for c in self.cases if (c.model, c.name) == (model, name)), None)

    def add(self, case: Case) -> None:
        self.cases.append(case)
        self._write(asdict(case))

    def expect(self, model: str, digests: Digests) -> None:
        self.expected[model] = digests
        self._write({"model": model, "expected": b"".join(digests).hex()})

    def _write(self, row: dict[str, Any]) -> None:
        if self._path is not None:
            with self._path.open("a") as out:
                out.write(json.dumps(row) + "\n")


def engine_digest() -> str:
    """Of the sources that say how the exact tier computes."""
    folder = Path(quantise.__file__).parents[1]
    files = sorted(path for pattern in SOURCES for path in folder.glob(pattern))
    parts = [hashlib.sha256(path.read_bytes()).digest() for path in files]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


# ---------------------------------------------------------------- ways of computing


def prefill(model: ExactModel, given: Texts) -> Digests:
    out: Digests = []
    for text in given:
        out += digest(model.forward([Span(model.new_cache(), text, len(text))])[0])
    return out


def pieces(model: ExactModel, given: Texts, sizes: Callable[[int], Iterator[int]]) -> Digests:
    out: Digests = []
    for number, text in enumerate(given):
        cache, size = model.new_cache(), sizes(number)
        while cache.length < len(text):
            part = text[cache.length : cache.length + next(size)]
            out += digest(model.forward([Span(cache, part, len(part))])[0])
    return out


def rollbacks(model: ExactModel, given: Texts) -> Digests:
    """Every window is first tried with wrong tokens behind its first, and taken back."""
    out: Digests = []
    for number, text in enumerate(given):
        cache, size = model.new_cache(), windows(number)
        while (at := cache.length) < len(text):
            part = text[at : at + next(size)]
            wrong = part[:1] + [(t + 1) % model.vocab_size for t in part[1:]] + part[:3]
            wrong = wrong[: model.context_length - at]
            model.forward([Span(cache, wrong, len(wrong))])
            cache.truncate(at + 1)
            cache.truncate(at)
            out += digest(model.forward([Span(cache, part, len(part))])[0])
    return out


def batched(model: ExactModel, given: Texts, size: int) -> Digests:
    """`size` sessions a pass, from one pool of cache blocks, windows of different lengths."""
    pool = model.new_pool(2 * size * LENGTH)
    done: list[Digests] = [[] for _ in given]
    for first in range(0, len(given), size):
        group = list(range(first, min(first + size, len(given))))
        caches = {i: pool.open([], len(given[i])) for i in group}
        steps = {i: windows(i) for i in group}
        while group := [i for i in group if caches[i].length < len(given[i])]:
            spans = []
            for i in group:
                at = caches[i].length
                part = given[i][at : at + next(steps[i])]
                spans.append(Span(caches[i], part, len(part)))
            for i, rows in zip(group, model.forward(spans), strict=True):
                done[i] += digest(rows)
        for cache in caches.values():
            pool.release(cache)
    return [d for part in done for d in part]


def windows(number: int) -> Iterator[int]:
    """1 … 16, over and over, each text from another place."""
    while True:
        yield number % 16 + 1
        number += 1


def always(size: int) -> Callable[[int], Iterator[int]]:
    def sizes(_: int) -> Iterator[int]:
        while True:
            yield size

    return sizes


# ---------------------------------------------------------------- cases


class Check:
    """All ways for one model."""

    def __init__(
        self,
        name: str,
        positions: int,
        few: int,
        say: Callable[[str], None],
        finished: Finished | None = None,
    ) -> None:
        self.name, self.say = name, say
        self.finished = finished or Finished(None, {})
        self.folder = catalog.resolve(name, progress=say).path
        self.whole = quantise.load_integers(self.folder)
        self.model = ExactModel(self.whole)
        vocab, context = self.model.vocab_size, self.model.context_length
        if context < LENGTH:
            raise SystemExit(f"{name}: a context of {context} is shorter than {LENGTH} tokens")
        self.texts = texts(vocab, positions)
        self.few = self.texts[: max(1, -(-few // len(self.texts[0])))]
        self.cases: list[Case] = []
        self.left_out: list[str] = []  # cases that this processor cannot run
        started = time.perf_counter()
        if name not in self.finished.expected:
            self.finished.expect(name, prefill(self.model, self.texts))
        self.expected = self.finished.expected[name]
        say(f"{name}: {len(self.expected)} positions, {time.perf_counter() - started:.1f} s")

    def run(self, name: str, way: Callable[[Texts], Digests], given: Texts, backend: str) -> None:
        if not self.known(name):
            started = time.perf_counter()
            self.add(name, way(given), backend, time.perf_counter() - started)

    def known(self, name: str) -> bool:
        """Whether a run before finished this case, which is then taken over."""
        case = self.finished.find(self.name, name)
        if case is not None:
            self.cases.append(case)
            self.say(
                f"  {name:<28} {case.positions:>6} positions, {case.differing} differ   (kept)"
            )
        return case is not None

    def add(self, name: str, got: Digests, backend: str, seconds: float) -> None:
        differing = sum(a != b for a, b in zip(got, self.expected, strict=False))
        if not got or len(got) > len(self.expected):
            differing = max(len(got), 1)
        case = Case(name, self.name, len(got), differing, backend, round(seconds, 2))
        self.cases.append(case)
        self.finished.add(case)
        self.say(f"  {name:<28} {len(got):>6} positions, {differing} differ   [{backend}]")

    def all(self, oracle: int) -> list[Case]:
        model, backend = self.model, self.model.backend
        self.run("prefill again", lambda t: prefill(model, t), self.texts, backend)
        self.kernel()
        self.run("windows 1 to 16", lambda t: pieces(model, t, windows), self.few, backend)
        for size in (7, 64):
            way = f"prefill in chunks of {size}"
            self.run(way, lambda t, n=size: pieces(model, t, always(n)), self.few, backend)
        self.run("after rollbacks", lambda t: rollbacks(model, t), self.few, backend)
        for size in (4, 8):
            self.run(f"batch {size}", lambda t, n=size: batched(model, t, n), self.few, backend)
        threads = torch.get_num_threads()
        torch.set_num_threads(2)
        two = ExactModel(self.whole)
        self.run("2 threads, prefill", lambda t: prefill(two, t), self.few, two.backend)
        self.run("2 threads, windows", lambda t: pieces(two, t, windows), self.few, two.backend)
        torch.set_num_threads(threads)
        self.backends()
        self.instruction_sets()
        self.run("one token at a time", lambda t: pieces(model, t, always(1)), self.few, backend)
        if torch.cuda.is_available():
            other = ExactModel(self.whole, "cuda")
            self.run("cuda, prefill", lambda t: prefill(other, t), self.texts, other.backend)
            self.run("cuda, windows", lambda t: pieces(other, t, windows), self.few, other.backend)
        self.oracle(oracle)
        return self.cases

    def backends(self) -> None:
        for backend in products.BACKENDS:
            if backend == self.model.backend:
                continue
            if not products.works(backend, "cpu", torch.get_num_threads()):
                self.say(f"  backend {backend} is not exact on this machine and is refused")
                continue
            other = ExactModel(self.whole, backend=backend)
            self.run(f"backend {backend}", lambda t, m=other: prefill(m, t), self.few, backend)

    def kernel(self) -> None:
        """The native kernel, where there is a C compiler."""
        try:
            other = native.NativeModel(self.whole, native.load())
        except ModelError as error:
            self.say(f"  no native kernel: {error}")
            return
        backend = other.backend
        self.run(
            "kernel, windows 1 to 16", lambda t: pieces(other, t, windows), self.texts, backend
        )
        self.run("kernel, prefill", lambda t: prefill(other, t), self.few, backend)
        self.run("kernel, after rollbacks", lambda t: rollbacks(other, t), self.few, backend)
        self.run("kernel, batch 8", lambda t: batched(other, t, 8), self.few, backend)
        self.run(
            "kernel, one token at a time", lambda t: pieces(other, t, always(1)), self.few, backend
        )

    def instruction_sets(self) -> None:
        """In processes of their own, for both libraries read the limits when they load. torch
        takes a limit above what the processor has at its word, and dies."""
        widest = torch.backends.cpu.get_cpu_capability().lower()
        within = CAPABILITIES[: CAPABILITIES.index(widest) + 1] if widest in CAPABILITIES else ()
        for name, limits in ISAS.items():
            if self.known(f"held to {name}"):
                continue
            if limits["ATEN_CPU_CAPABILITY"] not in within:
                self.say(f"  held to {name}: not run, this processor has no such instructions")
                self.left_out.append(f"{self.name}: held to {name}")
                continue
            started = time.perf_counter()
            request = {"folder": str(self.folder), "texts": self.few}
            done = subprocess.run(
                [sys.executable, "-m", "scripts.check_exact", "--worker"],
                input=json.dumps(request),
                env={**os.environ, **limits},
                cwd=Path(__file__).parent.parent,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise SystemExit(f"{name}: the process failed: {done.stderr[-2000:]}")
            answer = json.loads(done.stdout)
            got = [bytes.fromhex(d) for d in answer["digests"]]
            self.add(f"held to {name}", got, answer["backend"], time.perf_counter() - started)

    def oracle(self, positions: int) -> None:
        """The second implementation, on the first positions of the first text."""
        tests = Path(__file__).parent.parent / "tests"
        if positions < 1 or self.known("oracle") or not (tests / "exact_oracle.py").exists():
            return
        sys.path.insert(0, str(tests))
        from exact_oracle import Oracle
        from safetensors.torch import load_file

        started = time.perf_counter()
        stored = load_file(self.folder / "model.safetensors")
        tensors = {k: v.float().numpy() for k, v in stored.items()}
        oracle = Oracle(json.loads((self.folder / "config.json").read_text()), tensors)
        got: Digests = []
        for token in self.texts[0][:positions]:
            h, z = oracle.step(token)
            raw = np.array(h, "<i2").tobytes() + np.array(z, "<i8").tobytes()
            got.append(hashlib.blake2b(raw, digest_size=16).digest())
        self.add("oracle", got, "NumPy", time.perf_counter() - started)


def worker() -> int:
    """Prefill of the texts on standard input, digests on standard output."""
    request = json.load(sys.stdin)
    torch.set_num_threads(1)
    model = ExactModel(quantise.load_integers(Path(request["folder"])))
    found = [d.hex() for d in prefill(model, request["texts"])]
    json.dump({"digests": found, "backend": model.backend}, sys.stdout)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--positions", type=int, default=512, help="default: %(default)s")
    parser.add_argument(
        "--few", type=int, help="positions of all cases but plain prefill (default: as many)"
    )
    parser.add_argument("--oracle", type=int, default=2, help="positions; default: %(default)s")
    parser.add_argument(
        "--model", action="append", help="may be repeated; default: the tiny target and draft"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep finished cases here")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        return worker()
    torch.set_num_threads(1)
    cases: list[Case] = []
    left_out: list[str] = []
    few = options.few or options.positions
    settings = {"positions": options.positions, "few": few, "oracle": options.oracle}
    finished = Finished(options.resume, settings)
    for name in options.model or ["tiny-target", "tiny-draft"]:
        say = functools.partial(print, flush=True)
        check = Check(name, options.positions, few, say, finished)
        cases += check.all(options.oracle)
        left_out += check.left_out
    differing = sum(case.differing for case in cases)
    print(f"{sum(case.positions for case in cases)} positions compared, {differing} differ")
    if options.json:
        found = {
            "positions": options.positions,
            "cases": [asdict(case) for case in cases],
            "differing": differing,
            "left_out": left_out,
        }
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
