"""The private HTTP port of a node: health, metrics and, on a client, text.

Bound to loopback unless the operator says otherwise; it has no authentication and must not be
reachable from outside. `/v1/generate` streams server-sent events, one JSON object each: `round`
per committed round, `note` for hand-overs and waits, and at the end `done` or `error`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

MAX_BODY: Final = 1 << 20
Emit = Callable[[Mapping[str, Any]], Awaitable[None]]
Generate = Callable[[dict[str, Any], Emit], Awaitable[None]]


@dataclass(frozen=True)
class Views:
    """What the port shows; each is called per request.

    Attributes:
        health: (ready, details). Not ready answers 503, so that a supervisor sees a process that
            runs but cannot serve.
        metrics: Prometheus text.
        peers: the discovery table as JSON.
        generate: a client's generation call, or None on other roles. Raises ValueError for a
            request that makes no sense.
    """

    health: Callable[[], tuple[bool, dict[str, Any]]]
    metrics: Callable[[], str]
    peers: Callable[[], list[dict[str, Any]]]
    generate: Generate | None = None
    extra: Mapping[str, Callable[[], Any]] | None = None


def application(views: Views) -> Starlette:
    """The ASGI application over `views`."""

    async def healthz(_: Request) -> Response:
        ready, details = views.health()
        return JSONResponse({"ready": ready, **details}, 200 if ready else 503)

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(views.metrics(), media_type="text/plain; version=0.0.4")

    async def peers(_: Request) -> Response:
        return JSONResponse(views.peers())

    async def generate(request: Request) -> Response:
        if views.generate is None:
            return JSONResponse({"error": "only a client node generates"}, 404)
        if "origin" in request.headers:
            # Any page in the operator's browser could else spend from the client's reserves.
            return JSONResponse({"error": "web pages may not ask; use the command line"}, 403)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                return JSONResponse({"error": f"a request has at most {MAX_BODY} bytes"}, 413)
        try:
            wanted = json.loads(body)
        except (ValueError, RecursionError) as error:
            return JSONResponse({"error": f"not JSON: {error}"}, 400)
        if not isinstance(wanted, dict):
            return JSONResponse({"error": "send a JSON object"}, 400)
        return StreamingResponse(_events(views.generate, wanted), media_type="text/event-stream")

    routes = [
        Route("/healthz", healthz),
        Route("/metrics", metrics),
        Route("/v1/peers", peers),
        Route("/v1/generate", generate, methods=["POST"]),
    ]
    for path, view in (views.extra or {}).items():
        routes.append(Route(path, _json_view(view)))
    return Starlette(routes=routes)


def _json_view(view: Callable[[], Any]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(_: Request) -> Response:
        return JSONResponse(view())

    return endpoint


async def _events(generate: Generate, wanted: dict[str, Any]) -> AsyncIterator[str]:
    """Runs one generation and yields its events; a reader that goes away cancels it."""
    send, receive = trio.open_memory_channel[Mapping[str, Any]](64)

    async def run() -> None:
        async with send:
            await generate(wanted, send.send)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        async with receive:
            async for event in receive:
                yield f"data: {json.dumps(event)}\n\n"
        nursery.cancel_scope.cancel()


def listen(host: str, port: int) -> socket.socket:
    """A bound, listening socket; port 0 takes any. OSError says what is in the way."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    sock.listen(64)
    return sock


async def run(sock: socket.socket, views: Views) -> None:
    """Serves until cancelled. The socket stays the caller's to close."""
    config = Config()
    # The server closes the descriptor it is given: one of its own, or ours would be closed twice,
    # the second time under whoever has that number by then.
    config.bind = [f"fd://{sock.dup().detach()}"]
    config.accesslog = None
    config.errorlog = None
    config.graceful_timeout = 1.0
    await serve(application(views), config, mode="asgi")  # type: ignore[arg-type]
