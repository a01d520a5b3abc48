"""The private HTTP port: what it answers, what it refuses, and whose socket it is."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
import structlog
import structlog.testing
import trio

from node import api


async def echo(wanted: dict[str, Any], emit: api.Emit) -> None:
    await emit({"type": "done", "said": wanted})


def views(ready: bool = True, generate: api.Generate | None = None) -> api.Views:
    return api.Views(lambda: (ready, {"role": "test"}), lambda: "up 1\n", list, generate)


@asynccontextmanager
async def served(shown: api.Views) -> AsyncIterator[httpx.AsyncClient]:
    socket = api.listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{socket.getsockname()[1]}"
    async with trio.open_nursery() as nursery, httpx.AsyncClient(base_url=url) as client:
        nursery.start_soon(api.run, socket, shown)
        yield client
        nursery.cancel_scope.cancel()
    socket.close()


async def test_the_socket_stays_its_owners() -> None:
    socket = api.listen("127.0.0.1", 0)
    number = socket.fileno()
    url = f"http://127.0.0.1:{socket.getsockname()[1]}/healthz"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(api.run, socket, views())
        async with httpx.AsyncClient() as client:
            assert (await client.get(url)).status_code == 200
        nursery.cancel_scope.cancel()
    gc.collect()
    os.fstat(number)  # raises if the server closed it
    socket.close()


async def test_a_node_that_cannot_serve_says_so() -> None:
    async with served(views(ready=False)) as client:
        answer = await client.get("/healthz")
        assert answer.status_code == 503
        assert answer.json() == {"ready": False, "role": "test"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b"[" * 200_000, 400),
        (
            b'"' + b'\\"' * 200_000,
            400,
        ),  # took minutes of the event loop where it was looked at twice
        (b'{"prompt": "' + b"[" * 100 + b'"}', 200),
        (b'"' + b"a" * api.MAX_BODY + b'"', 413),
        (b'{"prompt": 1}', 200),
    ],
)
async def test_only_a_small_json_object_is_a_request(body: bytes, status: int) -> None:
    async with served(views(generate=echo)) as client:
        answer = await client.post("/v1/generate", content=body)
        assert answer.status_code == status
        if status == 200:
            said = json.dumps({"type": "done", "said": json.loads(body)})
            assert answer.text == f"data: {said}\n\n"


async def test_only_a_client_generates() -> None:
    async with served(views()) as client:
        assert (await client.post("/v1/generate", content=b"{}")).status_code == 404


async def test_no_web_page_spends_the_clients_money() -> None:
    """A page in the operator's browser may post to a loopback port without asking."""
    async with served(views(generate=echo)) as client:
        page = {"Origin": "https://somewhere.example", "Content-Type": "text/plain"}
        answer = await client.post("/v1/generate", content=b'{"prompt": 1}', headers=page)
        assert answer.status_code == 403


async def test_settling_is_asked_of_payees_and_not_by_a_web_page() -> None:
    asked: list[int] = []
    async with served(replace(views(), settle=lambda: asked.append(1))) as client:
        assert (await client.get("/v1/settle")).status_code == 405
        page = {"Origin": "https://somewhere.example"}
        assert (await client.post("/v1/settle", headers=page)).status_code == 403
        assert not asked
        assert (await client.post("/v1/settle")).status_code == 202
        assert len(asked) == 1
    async with served(views()) as client:
        assert (await client.post("/v1/settle")).status_code == 404


async def test_a_failure_of_ours_is_told_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(wanted: dict[str, Any], emit: api.Emit) -> None:
        await emit({"type": "round"})
        raise RuntimeError("a bug")

    broken = api.Views(lambda: 1 // 0, lambda: "", list, fail)  # type: ignore[arg-type, return-value]
    with structlog.testing.capture_logs() as told:
        async with served(broken) as client:
            answer = await client.post("/v1/generate", content=b"{}")
            first, last = (json.loads(event[6:]) for event in answer.text.split("\n\n")[:2])
            assert first == {"type": "round"}
            assert (last["type"], last["kind"]) == ("error", "internal")
            assert (await client.get("/healthz")).status_code == 500
            assert (await client.get("/metrics")).status_code == 200
    assert [(line["event"], line["log_level"]) for line in told] == [("generation failed", "error")]
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("who", ["reader", "server"])
def test_whoever_breaks_off_a_stream_the_generation_ends_before_the_server(
    who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it still has to do, such as paying, is done when the port is closed."""
    done: list[str] = []

    async def generate(wanted: dict[str, Any], emit: api.Emit) -> None:
        try:
            while True:
                await emit({"type": "round", "text": "x" * 100_000})
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.3)
                done.append("paid")

    async def main() -> None:
        monkeypatch.setattr(api, "STALLED", 1.0)
        socket = api.listen("127.0.0.1", 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(api.run, socket, views(generate=generate))
            slow = await trio.open_tcp_stream("127.0.0.1", socket.getsockname()[1])
            await slow.send_all(
                b"POST /v1/generate HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
            )
            assert await slow.receive_some(10)
            await trio.sleep(0.3)  # until all buffers are full
            if who == "reader":
                await slow.aclose()
                with trio.fail_after(5):
                    while not done:
                        await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert done == ["paid"]
        socket.close()

    trio.run(main)
