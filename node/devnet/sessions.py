"""Running prompts through the client's API, and reading what came back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

from node.devnet.options import DevnetOptions

Say = Callable[[str], None]
CONNECTING: Final = 10.0  # seconds
PATIENCE: Final = 300.0  # for the next event


class GenerationFailed(RuntimeError):
    """The client could not serve a prompt; the message is its own."""


def request_of(options: DevnetOptions, number: int) -> dict[str, Any]:
    """The API request of the devnet's `number`-th session."""
    wanted: dict[str, Any] = {
        "prompt": options.prompt(number),
        "mode": options.mode,
        "max_tokens": options.max_tokens,
        "top_k": options.top_k,
        "top_p": options.top_p,
    }
    if options.temperature is not None:
        wanted["temperature"] = options.temperature
    if options.seed is not None:
        wanted["seed"] = options.seed
    return wanted


def events(api: str, wanted: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The client's events for one request, as they come. Raises GenerationFailed."""
    place = urlsplit(api)
    # Not httpx: it takes a millisecond of processor time for each event, of a core that the nodes
    # of a devnet share.
    kind = HTTPSConnection if place.scheme == "https" else HTTPConnection
    try:
        line = kind(place.hostname or "", place.port, timeout=CONNECTING)
        with closing(line):
            line.connect()
            line.sock.settimeout(PATIENCE)
            body, kind_of_body = json.dumps(wanted), {"content-type": "application/json"}
            line.request("POST", f"{place.path.rstrip('/')}/v1/generate", body, kind_of_body)
            answer = line.getresponse()
            if answer.status != 200:
                text = answer.read(2000).decode(errors="replace").strip()
                if answer.status == 404 or not text:
                    text = "no client's API is served there; is it the chain's port, or a payee's?"
                raise GenerationFailed(f"{api} answered {answer.status}: {text}")
            for row in answer:
                if row.startswith(b"data: "):
                    yield json.loads(row[6:])
    except (OSError, HTTPException, ValueError) as error:
        raise GenerationFailed(f"the client at {api} does not answer: {error}") from error


def generate(
    api: str,
    wanted: dict[str, Any],
    *,
    on_round: Callable[[dict[str, Any]], None] = lambda event: None,
    on_note: Callable[[str], None] = lambda note: None,
) -> dict[str, Any]:
    """Runs one request to its end and returns the `done` event. Raises GenerationFailed."""
    for event in events(api, wanted):
        if event["type"] in ("round", "tail"):
            on_round(event)
        elif event["type"] == "note":
            on_note(event["note"])
        elif event["type"] == "error":
            raise GenerationFailed(event["error"])
        elif event["type"] == "done":
            return event
    raise GenerationFailed("the client's stream ended without a result")


def one_line(text: str, most: int = 120) -> str:
    """A text for a line of its own, long ones cut."""
    shown = text.replace("\n", "⏎")
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def round_line(event: dict[str, Any]) -> str:
    """One round for a person: window, accepted, time, text."""
    shown = event["text"].replace("\n", "⏎")
    return (
        f"  round {event['round']:>3}  window {event['window']:>2}  accepted "
        f"{event['accepted']:>2}  {event['ms']:>8.1f} ms  {shown!s}"
    )
