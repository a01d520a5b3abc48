"""Reading a client's answer as it comes: events, and failures that say what to do."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from node.devnet.sessions import GenerationFailed, events, generate

ROUND = {"type": "round", "text": "é\n", "tokens": [1]}
DONE = {"type": "done", "text": "all"}


@contextmanager
def client(status: int, chunks: list[bytes], ends: bool = True) -> Iterator[tuple[str, list[Any]]]:
    """A port that answers one request with these chunks; what it was asked."""
    asked: list[Any] = []

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers["content-length"])
            asked.append((self.path, json.loads(self.rfile.read(size))))
            self.send_response(status)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for chunk in chunks:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            if ends:
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = True

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", asked
    finally:
        thread.join(5)
        server.server_close()


def line(event: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()


def test_events_come_whole_however_they_are_cut() -> None:
    whole = line(ROUND) + line({"type": "note", "note": "on"}) + line(DONE)
    cut = [whole[:9], whole[9:10], whole[10:80], whole[80:]]
    rounds: list[Any] = []
    notes: list[str] = []
    with client(200, cut) as (api, asked):
        done = generate(api, {"prompt": "p"}, on_round=rounds.append, on_note=notes.append)
    assert (done, rounds, notes) == (DONE, [ROUND], ["on"])
    assert asked == [("/v1/generate", {"prompt": "p"})]


@pytest.mark.parametrize(
    ("status", "chunks", "ends", "says"),
    [
        (503, [b'{"error": "not ready"}'], True, r"503: .*not ready"),
        (200, [line({"type": "error", "error": "no drafter"})], True, "no drafter"),
        (200, [line(ROUND)], True, "without a result"),
        (200, [line(ROUND)], False, ""),  # cut off in the middle
        (200, [b"data: {\n\n"], True, "does not answer"),
    ],
)
def test_failures_say_what_the_client_said(
    status: int, chunks: list[bytes], ends: bool, says: str
) -> None:
    with client(status, chunks, ends) as (api, _), pytest.raises(GenerationFailed, match=says):
        generate(api, {})


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and not listening
        port = taken.getsockname()[1]
        with pytest.raises(GenerationFailed, match=f"127.0.0.1:{port} does not answer"):
            list(events(f"http://127.0.0.1:{port}", {}))
