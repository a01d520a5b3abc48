"""`verdraft devnet` as a person runs it: from one command to a settled answer, and nothing left.

The command is a process of its own; what it printed, wrote and left behind is all that is looked
at.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from live import alive, descendants, eventually

from node.config import PriceConfig
from node.journal import Journal

pytestmark = pytest.mark.slow
PRICE = PriceConfig()
FEE_PERCENT = 2
HEX = {"address": 42, "hash": 66}


@dataclass
class Devnet:
    """A running `verdraft devnet`."""

    process: subprocess.Popen[str]
    folder: Path
    report: Path
    said: Path

    @property
    def output(self) -> str:
        return self.said.read_text()

    def wait_for(self, text: str) -> None:
        eventually(
            f"the devnet says {text!r}",
            lambda: text in self.output or self.process.poll() is not None,
            seconds=300.0,
        )
        assert text in self.output, self.output

    def end(self, seconds: float = 400.0) -> int:
        return self.process.wait(seconds)


@contextmanager
def devnet(folder: Path, *words: str) -> Iterator[Devnet]:
    """The command with `--tiny`, its files kept under `folder`."""
    report, kept = folder / "report.json", folder / "kept"
    command = [sys.executable, "-m", "node", "devnet", "--tiny", "--json", str(report)]
    command += ["--keep", str(kept), *words]
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(
            command,
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            # A suite that a script runs in the background has ^C ignored, and children inherit it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
    try:
        yield Devnet(process, kept, report, folder / "said")
    finally:
        for pid in (*descendants(process.pid), process.pid):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def gone(pids: set[int]) -> bool:
    return not any(alive(pid) for pid in pids)


def assert_ports_closed(folder: Path) -> None:
    """Nobody answers any more where the nodes listened."""
    found = list(folder.glob("*/ready.json"))
    assert len(found) == 9
    for path in found:
        facts = json.loads(path.read_text())
        ports = [int(facts["endpoints"][0].split("/")[4]), int(facts["api"].rsplit(":", 1)[1])]
        for port in ports:
            with socket.socket() as line:
                assert line.connect_ex(("127.0.0.1", port)) != 0


# ---------------------------------------------------------------- the report

TEXT, COUNT, NUMBER = (str,), (int,), (int, float)
SESSION = {
    "session_id": TEXT,
    "prompt": TEXT,
    "text": TEXT,
    "token_ids": (list,),
    "mode": TEXT,
    "temperature": NUMBER,
    "seed": TEXT,
    "tier": TEXT,
    "target_model": TEXT,
    "draft_model": TEXT,
    "rounds": COUNT,
    "proposed": COUNT,
    "accepted": COUNT,
    "output_tokens": COUNT,
    "seconds": NUMBER,
    "first_seconds": NUMBER,
    "first_tokens": COUNT,
    "plain_seconds": NUMBER,
    "plain_first_seconds": NUMBER,
    "stages": (dict,),
    "lossless_check": (bool,),
    "near_ties": COUNT,
    "drafter": TEXT,
    "verifier": TEXT,
    "receipt_path": TEXT,
}
SETTLEMENT = {
    "tx": TEXT,
    "lane": TEXT,
    "gas_used": COUNT,
    "output_delta": COUNT,
    "accepted_delta": COUNT,
    "due_drafter_delta": COUNT,
    "due_verifier_delta": COUNT,
    "root": TEXT,
    "leaf_count": COUNT,
}
BUCKET = {"bucket": COUNT, "proposed": COUNT, "accepted": COUNT}
ACCOUNT = {"address": TEXT, "role": TEXT, "stake": TEXT, "payable": TEXT, "withdrawn": TEXT}
TERMS = ("reserves", "stakes", "bonds", "fees_held", "payable", "withdrawn", "burned")
CONSERVATION = {"deposited": TEXT, **dict.fromkeys(TERMS, TEXT), "ok": (bool,)}
OVERHEAD = dict.fromkeys(
    ("hash_ms_p50", "sign_ms_p50", "journal_ms_p50", "wire_ms_p50", "share_of_round"), NUMBER
)
DRAWS = {"drawn": COUNT, "opened": COUNT}


def assert_shape(value: dict[str, Any], shape: dict[str, tuple[type, ...]]) -> None:
    """Every field is there with its type; a bool is no number."""
    for name, kinds in shape.items():
        assert name in value, name
        found = value[name]
        assert isinstance(found, kinds), f"{name} = {found!r}"
        assert isinstance(found, bool) == (kinds == (bool,)), f"{name} = {found!r}"


def assert_report(report: dict[str, Any], sessions: int, mode: str) -> None:
    """All that the report must say, and that its figures agree with each other."""
    assert len(report["sessions"]) == sessions
    for entry in report["sessions"]:
        shape = dict(SESSION)
        if mode == "rejection":
            assert entry["lossless_check"] is None  # only the distribution is promised
            del shape["lossless_check"]
        else:
            assert entry["lossless_check"] is True
        assert_shape(entry, shape)
        assert entry["mode"] == mode
        assert len(entry["token_ids"]) == entry["output_tokens"]
        assert 0 <= entry["accepted"] <= entry["proposed"]
        stages = entry["stages"]
        assert min(stages.values()) >= 0
        # The verifier begins with the prompt while its last signature is on its way to the client.
        assert 0 < stages["prompt"] + stages["verify"] < entry["seconds"] + 0.5
        for name in ("session_id", "seed", "target_model", "draft_model"):
            assert len(entry[name]) == HEX["hash"]
    for entry in report["settlements"]:
        assert_shape(entry, SETTLEMENT)
        assert len(entry["tx"]) == len(entry["root"]) == HEX["hash"]
        assert entry["gas_used"] > 0
        assert entry["leaf_count"] > 0
    assert [entry["bucket"] for entry in report["alpha"]] == list(range(16))
    for entry in report["alpha"]:
        assert_shape(entry, BUCKET)
        assert entry["accepted"] <= entry["proposed"]
    assert sum(e["accepted"] for e in report["alpha"]) == sum(
        e["accepted"] for e in report["sessions"]
    )
    for account in report["accounts"].values():
        assert_shape(account, ACCOUNT)
        assert len(account["address"]) == HEX["address"]
    assert_shape(report["conservation"], CONSERVATION)
    assert_shape(report["overhead"], OVERHEAD)
    assert_shape(report["draws"], DRAWS)
    assert len(report["contracts"]) >= 6
    assert all(len(address) == HEX["address"] for address in report["contracts"].values())
    assert report["faults"] == []
    assert_money(report)


def assert_money(report: dict[str, Any]) -> None:
    """Price times count to the unit; the audit fee on top, from the client."""
    books = report["conservation"]
    assert books["ok"] is True
    assert int(books["deposited"]) == sum(int(books[name]) for name in TERMS)
    for name, account in report["accounts"].items():
        mine = [
            s for s in report["sessions"] if account["address"] in (s["drafter"], s["verifier"])
        ]
        if account["role"] == "drafter":
            earned = PRICE.accepted * sum(s["accepted"] for s in mine)
        elif account["role"] == "verifier":
            earned = PRICE.output * sum(s["output_tokens"] for s in mine)
        else:
            continue
        assert int(account["withdrawn"]) + int(account["payable"]) == earned, name
    for entry in report["settlements"]:
        assert entry["due_drafter_delta"] == PRICE.accepted * entry["accepted_delta"]
        assert entry["due_verifier_delta"] == PRICE.output * entry["output_delta"]
    output = sum(s["output_tokens"] for s in report["sessions"])
    accepted = sum(s["accepted"] for s in report["sessions"])
    assert sum(e["output_delta"] for e in report["settlements"]) == output
    assert sum(e["accepted_delta"] for e in report["settlements"]) == accepted
    roots = [e["root"] for e in report["settlements"]]
    assert len(roots) == len(set(roots))
    paid = PRICE.output * output + PRICE.accepted * accepted
    # One token of every lane was audited on chain; two of the three auditors can be drawn for it.
    audits = report["tickets"]
    assert audits["named"] == audits["cleared"] == report["draws"]["drawn"]
    assert audits["payments"] == audits["answers"] == 2 * audits["named"]
    assert audits["withheld"] == 0
    auditors = [a for a in report["accounts"].values() if a["role"] == "auditor"]
    assert sum(int(account["earned"]) for account in auditors) == audits["fees"] > 0
    assert int(books["withdrawn"]) == paid + audits["fees"]
    assert int(books["fees_held"]) == paid * FEE_PERCENT // 100 - audits["fees"]


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("coupled", ("--sessions", "2")),
        ("coupled", ("--sessions", "1", "--tier", "float")),
        ("rejection", ("--sessions", "1", "--top-k", "40", "--latency", "5")),
    ],
)
def test_one_command_settles_and_leaves_nothing(
    tmp_path: Path, mode: str, words: tuple[str, ...]
) -> None:
    with devnet(tmp_path, "--mode", mode, "--max-tokens", "24", *words) as run:
        run.wait_for("all nodes are up")
        children = descendants(run.process.pid)
        assert len(children) >= 10  # nine nodes and the chain
        assert run.end() == 0, run.output
        assert gone(children)
        report = json.loads(run.report.read_text())
        assert_report(report, int(words[1]), mode)
        tier = "float32" if "float" in words else "exact"
        assert {done["tier"] for done in report["sessions"]} == {tier}
        # Auditors run the draft model again too where its distributions matter.
        # (Of two sessions on one lane the drawn positions may leave one out.)
        drafts = {audit["false_drafts"] for audit in report["audits"]}
        (done,) = report["sessions"][-1:]
        lookup = int(done["draft_model"], 16) == 0
        assert drafts == ({0} if mode == "rejection" and not lookup else {None})
        assert "not ended in order" not in run.output
        assert "Traceback" not in run.output
        assert_ports_closed(run.folder)
        for log in run.folder.glob("*/node.log"):
            assert "Traceback" not in log.read_text(), log


def test_interrupted_in_mid_session_everything_ends_in_order(tmp_path: Path) -> None:
    with devnet(tmp_path, "--sessions", "50", "--max-tokens", "64") as run:
        run.wait_for("round   4")
        children = descendants(run.process.pid)
        assert len(children) >= 10
        run.process.send_signal(signal.SIGINT)
        run.process.send_signal(signal.SIGINT)  # once more, as people do
        assert run.end() == 130, run.output
        assert gone(children)
        assert "not ended in order" not in run.output
        assert "Traceback" not in run.output
        assert_ports_closed(run.folder)
        # Nothing is lost: every journal opens, and what the client received its verifier has
        # committed under the same bytes.
        journals = {
            name: Journal(run.folder / name / "data" / "journal.sqlite")
            for name in ("client-1", "verifier-1", "verifier-2")
        }
        received = journals["client-1"].sessions()
        assert received
        for session in received:
            rounds = journals["client-1"].rounds(session.start_hash)
            (server,) = [
                j for n, j in journals.items() if n != "client-1" and j.session(session.start_hash)
            ]
            held = server.rounds(session.start_hash)[: len(rounds)]
            assert [row.verdict for row in held] == [row.verdict for row in rounds]
        for journal in journals.values():
            journal.close()


def test_killed_outright_it_leaves_no_process_behind(tmp_path: Path) -> None:
    with devnet(tmp_path, "--sessions", "0", "--serve") as run:
        run.wait_for("serving; in another terminal")
        children = descendants(run.process.pid)
        assert len(children) >= 10
        run.process.kill()
        run.process.wait()
        eventually("nobody is left", lambda: gone(children))


def test_serving_until_interrupted_settles_what_was_asked(tmp_path: Path) -> None:
    with devnet(tmp_path, "--sessions", "0", "--serve") as run:
        run.wait_for("serving; in another terminal")
        api = run.output.split("--api ")[1].split()[0]
        children = descendants(run.process.pid)
        ask = [sys.executable, "-m", "node", "ask", "And it came to pass, that", "--api", api]
        ask += ["--max-tokens", "16", "--json", "--mode", "greedy"]
        done = json.loads(subprocess.run(ask, capture_output=True, check=True).stdout)
        assert len(done["token_ids"]) <= 16
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 0, run.output
        assert gone(children)
        report = json.loads(run.report.read_text())
        assert report["conservation"]["ok"] is True
        paid = sum(e["due_verifier_delta"] for e in report["settlements"])
        assert paid == PRICE.output * len(done["token_ids"])
