"""`verdraft model id|register|serve`: what a model is called on chain, and who serves it there."""

from __future__ import annotations

import argparse
from typing import Any

from node.commands import CommandError
from node.commands._console import Console, add_json, hex_of
from node.commands._wallet import add_options, add_role, open_wallet, role_named
from settlement.records import Manifest


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    family = subparsers.add_parser(
        "model",
        help="a model's id, and its registration",
        description="A model's id is the hash of its manifest: architecture, arithmetic, weights, "
        "tokenizer. Stakes, claims and orders name models by it.",
    )
    actions = family.add_subparsers(title="actions", metavar="ACTION", required=True)
    show = actions.add_parser("id", help="show a model's id and manifest; needs no chain")
    _add_model(show)
    add_json(show)
    show.set_defaults(run=_show)
    register = actions.add_parser(
        "register", help="register a model's manifest, so that it can be staked and claimed for"
    )
    _add_model(register)
    add_options(register)
    register.set_defaults(run=_register)
    serve = actions.add_parser(
        "serve",
        help="say which models a stake serves",
        description="Adds a registered model to those that this account's stake serves in a role, "
        "or takes it out. Auditors are drawn by the models that they serve.",
    )
    _add_model(serve)
    add_role(serve)
    serve.add_argument("--stop", action="store_true", help="take the model out")
    add_options(serve)
    serve.set_defaults(run=_serve)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="catalogue name, Hugging Face id or folder")
    parser.add_argument("--revision", metavar="REV", help="of a Hugging Face id")
    parser.add_argument(
        "--dtype",
        choices=("exact", "float32", "bfloat16"),
        default="float32",
        help="arithmetic, which is part of the id (default: %(default)s)",
    )


def _manifest(args: argparse.Namespace, console: Console) -> Manifest:
    from node.inference import catalog
    from node.inference.architecture import ModelError
    from node.inference.manifest import manifest_of

    try:
        source = catalog.resolve(args.model, revision=args.revision, progress=console.progress)
        return manifest_of(source.path, args.dtype, progress=console.progress)
    except (catalog.CatalogError, ModelError) as error:
        raise CommandError(str(error)) from error


def _facts(manifest: Manifest) -> dict[str, Any]:
    return {
        "model_id": hex_of(manifest.model_id),
        "architecture": manifest.architecture,
        "tier": manifest.tier.name.lower(),
        "weights_root": hex_of(manifest.weights_root),
        "tokenizer_hash": hex_of(manifest.tokenizer_hash),
        "vocab_size": manifest.vocab_size,
        "eos_ids": list(manifest.eos_ids),
        "context_length": manifest.context_length,
    }


def _show(args: argparse.Namespace) -> None:
    console = Console(args.json)
    facts = _facts(_manifest(args, console))
    console.result(facts, [f"{name:<15} {value}" for name, value in facts.items()])


def _register(args: argparse.Namespace) -> None:
    manifest = _manifest(args, Console(args.json))
    with open_wallet(args) as wallet:
        registry = wallet.contracts.registry
        facts = _facts(manifest)
        if registry.is_registered(manifest.model_id):
            wallet.console.result({**facts, "registered": "before"}, ["registered already"])
            return
        mined = wallet.send("register", registry.register(manifest))
        wallet.console.result(
            {**facts, "registered": "now", "transaction": hex_of(mined.hash)},
            [f"registered {facts['model_id']}"],
        )


def _serve(args: argparse.Namespace) -> None:
    manifest = _manifest(args, Console(args.json))
    with open_wallet(args) as wallet:
        vault, role, model = wallet.contracts.vault, role_named(args.role), manifest.model_id
        account, wanted = wallet.require_account(), not args.stop
        facts = {"model_id": hex_of(model), "role": args.role, "served": wanted}
        if vault.serves(account, role, model) == wanted:
            state = "served" if wanted else "not served"
            wallet.console.result({**facts, "changed": False}, [f"{state} already"])
            return
        if wanted and not wallet.contracts.registry.is_registered(model):
            raise CommandError(
                f"{hex_of(model)} is not registered: `verdraft model register` does it"
            )
        mined = wallet.send("serve", vault.set_model(account, role, model, wanted))
        verb = "serves" if wanted else "no longer serves"
        wallet.console.result(
            {**facts, "changed": True, "transaction": hex_of(mined.hash)},
            [f"{hex_of(account)} {verb} {hex_of(model)} as {args.role}"],
        )
