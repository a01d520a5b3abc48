"""`verdraft local`: decode on this machine, drafter and verifier in one process; no network."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from node.commands import CommandError
from node.commands._console import Console, add_json

if TYPE_CHECKING:
    from node.inference.drafter import Drafter
    from node.inference.model import LanguageModel
    from node.inference.proposal import Draft, VerifyOutcome
    from node.inference.tokens import Tokenizer
    from node.inference.window import FixedWindow, WindowControl


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "local",
        help="decode on this machine alone, to see what a draft brings",
        description="The same engine as in a node, without keys, chain or network. --explain says "
        "for every round why its window was chosen.",
    )
    parser.add_argument("prompt", help='the prompt; "-" reads it from standard input')
    parser.add_argument("--target", help="catalogue name, Hugging Face id or folder")
    parser.add_argument(
        "--draft", help='a model with the target\'s tokens, "ngram", "exit-N" or "none"'
    )
    parser.add_argument("--dtype", choices=("exact", "float32", "bfloat16"), default="float32")
    parser.add_argument("--mode", choices=("coupled", "greedy", "rejection"), default="coupled")
    parser.add_argument("--temperature", type=float, help="default: 0.7, and 0 in greedy mode")
    parser.add_argument("--top-k", type=int, default=0, help="keep the k best; 0 is off")
    parser.add_argument("--top-p", type=float, default=1.0, help="nucleus; 1 is off")
    parser.add_argument("--repetition-penalty", type=float, default=1.0, help="1 is off")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--max-tokens", type=int, default=128, help="default: %(default)s")
    parser.add_argument("--window", type=int, help="drafts in every round, instead of choosing")
    parser.add_argument("--max-window", type=int, default=16, help="default: %(default)s")
    parser.add_argument("--raw", action="store_true", help="no chat template around the prompt")
    parser.add_argument("--explain", action="store_true", help="show why each window was chosen")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from node.inference import catalog
    from node.inference.calibrate import pass_seconds
    from node.inference.generate import round_of, rounds
    from node.inference.loading import load_model
    from node.inference.params import SamplingParams
    from node.inference.stops import StopRules
    from node.inference.tokens import TextStream, Tokenizer
    from node.inference.verifier import Verifier
    from node.inference.window import FixedWindow, WindowControl

    console = Console(args.json)
    target_name = args.target or catalog.DEFAULT_TARGET
    folder = catalog.resolve(target_name, progress=console.progress).path
    model, tokenizer = load_model(folder, args.dtype), Tokenizer.load(folder)
    prompt = _prompt(args, tokenizer)
    temperature = args.temperature
    if temperature is None:
        temperature = 0.0 if args.mode == "greedy" else 0.7
    window = FixedWindow(0)
    if args.window is not None:
        window = FixedWindow(args.window)
    elif args.draft != "none":
        costs = pass_seconds(model, (1, 2, 3, 4, 5, 6, 8, 12, 17), repeats=2)
        window = WindowControl(args.max_window, costs=costs)
    stream, told = TextStream(tokenizer.token_bytes), []
    text, seconds, tokens, accepted, tried = "", 0.0, [], 0, 0
    try:
        params = SamplingParams.from_floats(
            args.mode, temperature, args.top_k, args.top_p, args.repetition_penalty
        )
        drafter = _drafter(args, model, tokenizer, console)
        if drafter is None:
            drafter = _nothing()
        stops = StopRules(args.max_tokens, model.eos_ids)
        seed = args.seed.to_bytes(32, "big", signed=True)
        before = _chosen(window, args.max_tokens)
        for draft, outcome in rounds(
            Verifier(model, tokenizer), drafter, prompt, params, stops, window, seed=seed
        ):
            piece = stream.push(outcome.emitted)
            text += piece
            tokens += outcome.emitted
            done = round_of(draft, outcome)
            seconds += done.draft_seconds + outcome.seconds
            accepted += outcome.accepted
            tried += outcome.accepted + outcome.rejected
            told.append(_round(before, draft, outcome))
            before = _chosen(window, args.max_tokens - len(tokens))
            if not args.json:
                print(_line(told[-1], piece) if args.explain else piece, end="", flush=True)
    except ValueError as error:
        raise CommandError(str(error)) from error
    text += stream.finish()
    data: dict[str, Any] = {
        "text": text,
        "token_ids": tokens,
        "rounds": len(told),
        "accepted": accepted,
        "acceptance_rate": accepted / tried if tried else None,
        "seconds": seconds,
        "tokens_per_s": len(tokens) / seconds if seconds else None,
    }
    if args.explain:
        data["windows"] = told
    rate = f", {accepted} of {tried} drafts reached were accepted" if tried else ""
    speed = f"{len(tokens) / seconds:.1f} tokens/s" if seconds else ""
    console.result(data, ["", f"  {len(tokens)} tokens in {len(told)} rounds{rate}; {speed}"])


def _prompt(args: argparse.Namespace, tokenizer: Tokenizer) -> list[int]:
    text = sys.stdin.read() if args.prompt == "-" else args.prompt
    if args.raw or tokenizer.chat_template is None:
        return tokenizer.encode(text)
    return tokenizer.chat([{"role": "user", "content": text}])


def _drafter(
    args: argparse.Namespace, target: LanguageModel, tokenizer: Tokenizer, console: Console
) -> Drafter | None:
    from node.inference import catalog
    from node.inference.llama import LlamaModel
    from node.inference.loading import load_model
    from node.inference.lookup import LookupDrafter
    from node.inference.mixed_drafter import MixedDrafter
    from node.inference.model_drafter import ModelDrafter
    from node.inference.tokens import Tokenizer, require_same_tokens

    name = args.draft or (catalog.DEFAULT_DRAFT if args.target is None else "ngram")
    if name == "none":
        return None
    if name == "ngram":
        return LookupDrafter()
    if name.startswith("exit-") and name[5:].isdigit():
        from node.inference.early_exit import early_exit

        if not isinstance(target, LlamaModel):
            raise CommandError(f"--draft {name}: the target runs through transformers")
        return ModelDrafter(early_exit(target, int(name[5:])), name=name)
    folder = catalog.resolve(name, progress=console.progress).path
    model = load_model(folder, args.dtype)
    require_same_tokens(Tokenizer.load(folder), tokenizer, model.vocab_size)
    return MixedDrafter(model, target.vocab_size)


def _nothing() -> Drafter:
    from node.inference.scripted import fixed

    return fixed(())


def _chosen(window: WindowControl | FixedWindow, remaining: int) -> dict[str, Any]:
    """Why the next window will be what it will be; asking changes nothing."""
    window.choose(remaining)
    return window.explain()


def _round(before: dict[str, Any], draft: Draft, outcome: VerifyOutcome) -> dict[str, Any]:
    """A round, with what the window control knew before it."""
    return {
        "position": outcome.base,
        "k": len(draft),
        "accepted": outcome.accepted,
        "emitted": len(outcome.emitted),
        "draft_seconds": draft.seconds,
        "verify_seconds": outcome.seconds,
        "control": before,
    }


def _line(told: dict[str, Any], piece: str) -> str:
    """One round for a person."""
    control = told["control"]
    line = f"{told['position']:5} K={told['k']:<2} accepted {told['accepted']:<2}"
    if "alpha" in control:
        cost = control["verify_seconds"]
        rates = control["tokens_per_second"]
        best = max(rates, key=rates.__getitem__)
        line += (
            f" α̂ {control['alpha']:.2f} ({control['trials']:.0f})"
            f" pass {1e3 * cost['a']:.0f} + {1e3 * cost['b']:.1f} n ms, alone"
            f" {1e3 * cost['one_row']:.0f}, draft"
            f" {1e3 * (control['draft_seconds_per_token'] or 0):.1f};"
            f" best K={best} at {rates[best]:.1f}/s, K=0 {rates[0]:.1f}/s: {control['reason']}"
        )
    return f"{line} {piece!r}\n"
