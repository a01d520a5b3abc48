"""`verdraft receipt verify`: check a receipt without network, and the text itself by decoding."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from node.commands import CommandError
from node.commands._console import Console, add_json


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "receipt",
        help="check a receipt",
        description="A client node writes one JSON file per request: what was ordered, said, "
        "counted and signed for. It contains the prompt.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    verify = commands.add_parser(
        "verify",
        help="re-check signatures, roots, contexts, accept rule, sums and pay",
        description="Checks a receipt without network, chain or model. With --rerun the target "
        "model decodes the prompt again under the receipt's own seed and the text is compared.",
    )
    verify.add_argument("file", type=Path, help="the receipt")
    verify.add_argument("--rerun", action="store_true", help="decode the text again")
    verify.add_argument(
        "--target",
        help="model to decode with: name, folder or hub id (default: the embedded one that has "
        "the order's model id)",
    )
    add_json(verify)
    verify.set_defaults(run=_verify)


def _verify(args: argparse.Namespace) -> int:
    from node import shallow_json

    console = Console(args.json)
    try:
        data = shallow_json.loads(args.file.read_bytes())
    except OSError as error:
        raise CommandError(f"cannot read {args.file}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"{args.file} is not JSON: {error}") from error
    from node.roles.receipt import ReceiptError, verify  # loads much: a bad file is told before

    try:
        checked = verify(data)
    except ReceiptError as error:
        raise CommandError(f"{args.file} does not hold: {error}") from error
    found: dict[str, Any] = {
        "ok": True,
        "tokens": len(checked.tokens),
        "rounds": checked.rounds,
        "proposed": checked.proposed,
        "accepted": checked.accepted,
        "paid": checked.paid,
        "lossless": checked.lossless,
        "checks": checked.checks,
        "transactions": data["transactions"],
    }
    lines = [f"  {count:>5} {what}" for what, count in checked.checks.items()]
    lines.append(
        f"holds: {len(checked.tokens)} tokens in {checked.rounds} rounds, "
        f"{checked.accepted}/{checked.proposed} drafts accepted, "
        + ("paid by vouchers that all three signed" if checked.paid else "NOT signed by all")
    )
    for entry in data["transactions"]:
        lines.append(
            f"settled, it says, by {entry['transaction']} in block {entry['block']} (ask the chain)"
        )
    if not checked.lossless:
        lines.append(
            "relaxed acceptance was ordered: the text need not be the target's own, nor is its law"
        )
    if args.rerun:
        found["rerun"] = _rerun(args, checked, data.get("text"), lines, console)
        found["ok"] = found["rerun"]["lossless"] is not False and found["rerun"]["text"]
    else:
        lines.append("its `text` was not compared with its tokens: that takes --rerun")
    console.result(found, lines)
    return 0 if found["ok"] else 1


def _rerun(
    args: argparse.Namespace, checked: Any, text: Any, lines: list[str], console: Console
) -> dict[str, Any]:
    """Decodes the text again with the model that the order names, and compares what people read
    with the tokens."""
    from node.devnet.plain import PlainTarget

    wanted = checked.orders[0].target_model
    name, dtype, named = _model_of(args.target, wanted, console)
    console.progress(f"loading {name}")
    target = PlainTarget(name, dtype)
    console.progress(f"decoding {len(checked.tokens)} tokens")
    run = target.run(checked)
    same_text = text == target.text(checked)
    if not named:
        lines.append(
            f"re-run: {name} is NOT the model that the order names (id 0x{wanted.hex()}): what "
            "follows says nothing against the receipt"
        )
    if not same_text:
        lines.append("re-run: its `text` is NOT what its tokens say")
    if run.lossless is None:
        lines.append("re-run: rejection mode promises the target's law, not one text")
    elif run.lossless:
        ties = f" up to {run.near_ties} near-tie" if run.near_ties else ""
        lines.append(f"re-run: the target alone says the same text{ties}")
    else:
        lines.append(f"re-run: the target alone says ANOTHER text: {run.difference}")
    return {
        "lossless": run.lossless,
        "near_ties": run.near_ties,
        "seconds": run.seconds,
        "text": same_text,
        "model": named,
    }


def _model_of(name: str | None, model_id: bytes, console: Console) -> tuple[str, str, bool]:
    """The model with that id, and the arithmetic that the id names: the given one, or one of the
    embedded. A given model that is another is run in float32 all the same, as asked; the last
    value is then false."""
    from node.inference import catalog
    from node.inference.manifest import manifest_of

    for candidate in (name,) if name else ("tiny-target", catalog.DEFAULT_TARGET):
        try:
            folder = catalog.resolve(candidate, progress=console.progress).path
        except catalog.CatalogError as error:
            if name:
                raise
            console.progress(str(error))
            continue
        for dtype in ("float32", "exact", "bfloat16"):
            if manifest_of(folder, dtype, progress=console.progress).model_id == model_id:
                return candidate, dtype, True
    if name:
        return name, "float32", False
    raise CommandError(
        f"no embedded model has id 0x{model_id.hex()}; name its folder or hub id with --target"
    )
