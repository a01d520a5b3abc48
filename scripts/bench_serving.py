"""How many tokens a second one verifier gives to 1, 2, 4 and 8 sessions at once.

    python scripts/bench_serving.py --json serving.json

Every session is a task that asks the inference worker for its rounds, as the verifier role does;
requests that wait together share a pass. Prompts are run before the clock starts, all numbers of
sessions in turn, several times. The clock is the process's CPU time by default (see bench_decode).
Windows: `0` no drafts, and `ngram` up to four tokens of prompt lookup. Also how long the first
token of a short prompt takes while a long one is being run, in pieces and (as a comparison) whole.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import trio

from node.inference import catalog
from node.inference.loading import load_model
from node.inference.lookup import LookupDrafter
from node.inference.model import LanguageModel
from node.inference.params import SamplingParams
from node.inference.proposal import Draft, VerifyRequest
from node.inference.stops import StopRules
from node.inference.tokens import Tokenizer
from node.inference.verifier import Verifier
from node.inference.worker import InferenceWorker
from scripts.bench.pairs import Ratio, ratio
from scripts.bench.prompts import CLASSES, prompts

COUNTS: Final = (1, 2, 4, 8)
DRAFTS: Final = {"0": 0, "ngram": 4}
PARAMS: Final = SamplingParams.from_floats("coupled", 0.7)
Clock = Callable[[], float]


async def together(
    target: LanguageModel, texts: Sequence[Sequence[int]], tokens: int, k: int, clock: Clock
) -> tuple[float, float]:
    """Tokens a second of all sessions, and sessions per pass."""
    worker, verifier = InferenceWorker(), Verifier(target, max_tokens=1 << 14)
    stops = StopRules(tokens)
    sessions = [
        await worker.open(
            verifier, bytes([i]), text, PARAMS, stops, seed=bytes([i]) * 32, salt=bytes([i])
        )
        for i, text in enumerate(texts)
    ]
    worker.passes = worker.pass_sessions = 0

    async def serve(number: int) -> None:
        session = sessions[number]
        drafting = LookupDrafter().open(texts[number], PARAMS, seed=session.seed)
        while not session.ended:
            window = min(k, session.remaining - 1)
            draft = drafting.propose(window) if window > 0 else Draft(session.position)
            outcome = await worker.verify(verifier, session, VerifyRequest(draft))
            drafting.commit(outcome.emitted)

    start = clock()
    async with trio.open_nursery() as nursery:
        for number in range(len(texts)):
            nursery.start_soon(serve, number)
    seconds = clock() - start
    return len(texts) * tokens / seconds, worker.pass_sessions / worker.passes


async def first_token(
    target: LanguageModel, short: Sequence[int], long: Sequence[int], rows: int, clock: Clock
) -> float:
    """Longest wait for a token of a running session while a long prompt is opened."""
    worker = InferenceWorker(prefill_rows=rows)
    verifier, stops = Verifier(target, max_tokens=1 << 14), StopRules(200)
    session = await worker.open(verifier, b"s", short, PARAMS, stops, seed=bytes(32))
    waits: list[float] = []

    async def decode(scope: trio.CancelScope) -> None:
        with scope:
            while not session.ended:
                start = clock()
                await worker.verify(verifier, session, VerifyRequest(Draft(session.position)))
                waits.append(clock() - start)

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        nursery.start_soon(decode, scope)
        await worker.open(verifier, b"l", long, PARAMS, stops, seed=bytes(32))
        scope.cancel()
    return max(waits)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default=catalog.DEFAULT_TARGET)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--device", default="cpu", help="cpu or cuda; cuda wants --clock wall")
    parser.add_argument("--tokens", type=int, default=24, help="an output; default %(default)s")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    clock = time.process_time if args.clock == "cpu" else time.perf_counter
    folder = catalog.resolve(args.target).path
    target, tokenizer = load_model(folder, args.dtype, args.device), Tokenizer.load(folder)
    texts = [
        tokenizer.chat([{"role": "user", "content": prompt.text}])
        for kind in CLASSES[:4]
        for prompt in prompts(kind, 2)
    ]
    speeds: dict[tuple[str, int], list[float]] = {}
    shared: dict[tuple[str, int], float] = {}
    for repeat in range(args.repeats + 1):
        for name, k in DRAFTS.items():
            for count in COUNTS:
                found = trio.run(together, target, texts[:count], args.tokens, k, clock)
                if repeat:  # the first time is a warm-up
                    speeds.setdefault((name, count), []).append(found[0])
                    shared[name, count] = found[1]
    rows: list[dict[str, Any]] = []
    for (name, count), values in speeds.items():
        against = [v / one for v, one in zip(values, speeds[name, 1], strict=True)]
        gain: Ratio = ratio(against)
        rows.append(
            {
                "drafts": name,
                "sessions": count,
                "tokens_per_s": round(ratio(values).mean, 2),
                "sessions_per_pass": round(shared[name, count], 2),
                "against_one": gain.as_json(),
            }
        )
        print(
            f"drafts {name:6} {count} sessions {ratio(values).mean:7.2f} tokens/s, {gain} of one, "
            f"{shared[name, count]:.1f} sessions a pass"
        )
    long = [texts[0][0], *[(7 * i) % 4000 + 100 for i in range(600)]]
    waits = {
        rows_: trio.run(first_token, target, texts[0], long, rows_, clock) for rows_ in (64, 512)
    }
    print(f"longest wait for a token beside a prompt of 601: {waits} s by rows of a piece")
    if args.json is not None:
        found_all = {"target": args.target, "dtype": args.dtype, "rows": rows, "waits": waits}
        args.json.write_text(json.dumps(found_all, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
