"""Running prompts through the client's API, and reading what came back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx

from node.devnet.options import DevnetOptions

Say = Callable[[str], None]
PATIENCE: Final = 300.0


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
    """The client's events for one request, as they come."""
    timeout = httpx.Timeout(10.0, read=PATIENCE)
    try:
        with httpx.stream("POST", f"{api}/v1/generate", json=wanted, timeout=timeout) as answer:
            if answer.status_code != 200:
                answer.read()
                raise GenerationFailed(f"the client answered {answer.status_code}: {answer.text}")
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line[6:])
    except httpx.HTTPError as error:
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


def round_line(event: dict[str, Any]) -> str:
    """One round for a person: window, accepted, time, text."""
    shown = event["text"].replace("\n", "⏎")
    return (
        f"  round {event['round']:>3}  window {event['window']:>2}  accepted "
        f"{event['accepted']:>2}  {event['ms']:>8.1f} ms  {shown!s}"
    )
