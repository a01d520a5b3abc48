"""The command line without a chain: parsing, keys, and what is said when things are missing."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import node.keys
from node.cli import build_parser, main
from node.commands import CommandError
from node.commands._console import (
    address_argument,
    hash_argument,
    parse_amount,
    show_amount,
    show_time,
)
from node.commands.claim import parse_rates

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def light_scrypt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = node.keys.create_keyfile_json
    monkeypatch.setattr(
        node.keys,
        "create_keyfile_json",
        lambda *args, iterations, **rest: real(*args, iterations=4096, **rest),
    )
    monkeypatch.setenv("VERDRAFT_HOME", str(tmp_path))


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("secret\n")
    path.chmod(0o600)
    return path


def test_every_promised_command_is_there() -> None:
    shown = build_parser().format_help()
    for command in ("keys", "stake", "unstake", "deposit", "withdraw", "claim", "status"):
        assert f"    {command} " in shown


def test_help_imports_neither_torch_nor_libp2p_nor_web3() -> None:
    code = (
        "import sys; from node.cli import build_parser; build_parser();"
        "print([m for m in ('torch', 'libp2p', 'web3', 'transformers') if m in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert said.strip() == "[]"


def test_keys_new_then_show(
    tmp_path: Path, password: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--password-file", str(password), "--json"]
    assert main(["keys", "new", *options]) == 0
    made = json.loads(capsys.readouterr().out)
    assert main(["keys", "show", *options]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == made
    assert made["keystore"] == str(tmp_path / "operator.json")
    assert len(made["address"]) == 42
    assert made["peerId"].startswith("16Uiu2HA")
    secret = node.keys.read_keystore(tmp_path / "operator.json", b"secret").secret
    assert secret.hex() not in json.dumps(made)


def test_a_password_by_descriptor(password: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "--password-file", str(password)]) == 0
    handle = os.open(password, os.O_RDONLY)
    try:
        assert main(["keys", "show", "--password-fd", str(handle)]) == 0
    finally:
        os.close(handle)
    assert "peer id" in capsys.readouterr().out


def test_a_second_key_does_not_replace_the_first(
    password: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["keys", "new", "--password-file", str(password)]
    assert main(arguments) == 0
    assert main(arguments) == 1
    assert "not overwritten" in capsys.readouterr().err


def test_a_wrong_password_is_one_line_and_one_json_object(
    tmp_path: Path, password: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["keys", "new", "--password-file", str(password)])
    capsys.readouterr()
    password.write_text("guess\n")
    assert main(["keys", "show", "--password-file", str(password), "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["error"] == "WrongPassword"
    assert said.err.count("\n") == 1
    assert "does not open" in said.err


def test_a_loose_password_file_is_refused(
    password: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    password.chmod(0o644)
    assert main(["keys", "new", "--password-file", str(password)]) == 1
    assert "chmod 600" in capsys.readouterr().err


def test_no_chain_there_says_how_to_get_one(capsys: pytest.CaptureFixture[str]) -> None:
    address = "0x" + "11" * 20
    arguments = ["status", "--address", address, "--rpc-url", "http://127.0.0.1:1", "--json"]
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["error"] == "NodeUnreachable"
    assert "devnet --serve" in said.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["stake"],
        ["stake", "--role", "king", "--amount", "1"],
        ["unstake", "--role", "drafter", "--amount", "1", "--all"],
        ["deposit", "--drafter", "0x12", "--verifier", "0x" + "11" * 20, "--amount", "1"],
        ["keys", "new", "--password-file", "a", "--password-fd", "3"],
        ["status", "--confirmations", "0"],
        ["unstake", "--role", "drafter", "--all", "--max-fee-gwei", "nan"],
        ["unstake", "--role", "drafter", "--all", "--timeout", "-1"],
        ["simulate", "--samples", "1.5"],
        ["simulate", "--slash", "inf"],
        ["simulate", "--margin", "much"],
    ],
)
def test_wrong_usage_is_status_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2


def test_peers_show_prices_and_claims_and_name_what_is_no_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def offer(role: str, price: str, claim: int) -> dict[str, str]:
        return {"role": role, "price": price, "claim": f"0x{claim:064x}"}

    table = [
        {
            "operator": "0xbb",
            "round_trip_ms": None,
            "offers": [offer("verifier", "4", 0), offer("auditor", "0", 0)],
        },
        {"operator": "0xaa", "round_trip_ms": 1.25, "offers": [offer("drafter", "1", 7)]},
    ]
    answers = iter([httpx.Response(200, json=table), httpx.Response(200, text="<html>")])

    def get(url: str, timeout: float) -> httpx.Response:
        answer = next(answers)
        answer.request = httpx.Request("GET", url)
        return answer

    monkeypatch.setattr(httpx, "get", get)
    assert main(["peers", "--api", "http://127.0.0.1:9/"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "0xaa  drafter       1.2 ms  1 units/token",
        f"    under claim 0x{7:064x}",
        "0xbb  verifier           -  4 units/token",
        "0xbb  auditor            -",
    ]
    assert main(["peers", "--api", "http://127.0.0.1:9"]) == 1
    assert "is no node" in capsys.readouterr().err
    monkeypatch.delenv("VERDRAFT_API", raising=False)
    assert main(["peers"]) == 1
    assert "VERDRAFT_API" in capsys.readouterr().err


@pytest.mark.parametrize(
    "api",
    ["http://127.0.0.1:PORT", "http://127.0.0.1:99999", "ftp://127.0.0.1", "http://", "a b:c"],
)
def test_what_is_no_address_of_a_node_is_said_so(
    api: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ask", "hi", "--api", api]) == 1
    assert f"{api} is no address of a node; it is one like http://" in capsys.readouterr().err


def test_an_address_needs_no_scheme(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", "hi", "--api", "127.0.0.1:9"]) == 1
    assert "the client at http://127.0.0.1:9 does not answer" in capsys.readouterr().err


def test_an_unexpected_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser()
        parser.set_defaults(run=lambda _args: 1 // 0)
        return parser

    monkeypatch.setattr("node.cli.build_parser", broken)
    with pytest.raises(ZeroDivisionError):
        main([])


@pytest.mark.parametrize(
    ("text", "units"), [("1", 10**18), ("0.5", 5 * 10**17), ("0.000000000000000001", 1)]
)
def test_amounts_are_exact(text: str, units: int) -> None:
    assert parse_amount(text, 18) == units
    assert show_amount(units, 18, "VDT") == f"{text} VDT"


@pytest.mark.parametrize(
    "text", ["0", "-1", "nan", "inf", "1e-19", "0.0000000000000000001", "one", "", "1e11"]
)
def test_an_amount_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CommandError):
        parse_amount(text, 18)


def test_addresses_and_ids_have_one_form() -> None:
    assert address_argument("0x" + "Ab" * 20) == b"\xab" * 20
    assert hash_argument("0x" + "00" * 32) == bytes(32)
    for text in ("ab" * 20, "0x" + "ab" * 19, "0x" + "zz" * 20, "0x" + "ab " * 20, ""):
        with pytest.raises(argparse.ArgumentTypeError):
            address_argument(text)


def test_rates_are_one_or_sixteen() -> None:
    assert parse_rates("80") == (80,) * 16
    assert parse_rates(",".join(str(60 + i) for i in range(16))) == tuple(range(60, 76))
    for text in ("80,70", "5", "100", "0.8", ""):
        with pytest.raises(CommandError):
            parse_rates(text)


def test_times_say_how_far_off_they_are() -> None:
    assert show_time(1_800_000_060, 1_800_000_000) == "2027-01-15 08:01:00 UTC (in 1 min)"
    assert show_time(1_800_090_061, 1_800_000_000).endswith("(in 1 d 1 h)")
    assert show_time(1_800_000_000, 1_800_000_000).endswith("(passed)")


def _shown_commands() -> list[tuple[str, list[str]]]:
    """(file, words) of every `verdraft …` in a code block of the documents."""
    found = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text(encoding="utf-8")
        for block in re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            for line in re.findall(r"^(?:\.venv/bin/)?verdraft +([^#\n]+)", block, re.MULTILINE):
                found.append((path.name, shlex.split(line, posix=False)))
    return found


def test_what_the_documents_type_is_there() -> None:
    shown = _shown_commands()
    assert len(shown) > 20
    for file, words in shown:
        parser, rest = build_parser(), list(words)
        while rest and not rest[0].startswith("-"):
            branches = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
            if not branches:
                break
            name = rest.pop(0)
            assert name in branches[0].choices, f"{file}: verdraft {' '.join(words)}"
            parser = branches[0].choices[name]
        options = {word.split("=")[0] for word in rest if word.startswith("--")}
        known = {option for action in parser._actions for option in action.option_strings}
        assert options <= known, f"{file}: verdraft {' '.join(words)}: {options - known}"


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 5_000, "no JSON", '"\\ud800', b"\xff\xfe".decode("latin-1")]
)
def test_a_hostile_receipt_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """A deep one ended the process: a library raises the recursion limit beyond what C holds."""
    file = tmp_path / "receipt.json"
    file.write_text(text)
    assert main(["receipt", "verify", str(file)]) == 1
    assert "is not JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--temperature", "-3"],
        ["--mode", "greedy", "--temperature", "1"],
        ["--top-p", "7"],
        ["--top-k", "-1"],
        ["--prompt", " "],
        ["--json", "/no/such/folder/x.json"],
        ["--draft", "no-such-model"],
    ],
)
def test_a_devnet_that_cannot_be_is_refused_before_anything_starts(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from node.devnet import run

    monkeypatch.setattr(run, "run", lambda options: pytest.fail("it was started"))
    assert main(["devnet", *words]) == 1
    assert capsys.readouterr().err.startswith("verdraft: ")


def test_an_interrupt_while_it_loads_is_one_line() -> None:
    code = (
        "import sys, node.cli\n"
        "def stop(*a): raise KeyboardInterrupt\n"
        "node.cli.build_parser = stop\n"
        "from node.__main__ import main\n"
        "sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "verdraft: interrupted\n")
