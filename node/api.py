"""The private HTTP port of a node: health, metrics and, on a client, text.

Bound to loopback unless the operator says otherwise; it has no authentication and must not be
reachable from outside. `/v1/generate` streams server-sent events, one JSON object each: `round`
per committed round, `note` for hand-overs and waits, and at the end `done` or `error`.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from node import logs, shallow_json

MAX_BODY: Final = 1 << 20
_NO_PAGES: Final = "web pages may not ask; use the command line"
STALLED: Final = 20.0  # seconds without reading after which a connection is given up
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
        settle: has a payee's vouchers settled now; None on other roles.
    """

    health: Callable[[], tuple[bool, dict[str, Any]]]
    metrics: Callable[[], str]
    peers: Callable[[], list[dict[str, Any]]]
    generate: Generate | None = None
    extra: Mapping[str, Callable[[], Any]] | None = None
    settle: Callable[[], None] | None = None


def _is_from_a_page(request: Request) -> bool:
    """Whether a browser sent it for some page: any could else spend what this node has, for a
    loopback port asks nobody who they are."""
    return "origin" in request.headers


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
        if _is_from_a_page(request):
            return JSONResponse({"error": _NO_PAGES}, 403)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                return JSONResponse({"error": f"a request has at most {MAX_BODY} bytes"}, 413)
        try:
            wanted = shallow_json.loads(body)
        except ValueError as error:
            return JSONResponse({"error": f"not JSON: {error}"}, 400)
        if not isinstance(wanted, dict):
            return JSONResponse({"error": "send a JSON object"}, 400)
        return _Events(views.generate, wanted)

    async def settle(request: Request) -> Response:
        if views.settle is None:
            return JSONResponse({"error": "only a drafter or verifier settles"}, 404)
        if _is_from_a_page(request):
            return JSONResponse({"error": _NO_PAGES}, 403)
        views.settle()
        return JSONResponse({"asked": True}, 202)

    routes = [
        Route("/healthz", healthz),
        Route("/metrics", metrics),
        Route("/v1/peers", peers),
        Route("/v1/generate", generate, methods=["POST"]),
        Route("/v1/settle", settle, methods=["POST"]),
    ]
    for path, view in (views.extra or {}).items():
        routes.append(Route(path, _json_view(view)))
    return Starlette(routes=routes)


def _json_view(view: Callable[[], Any]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(_: Request) -> Response:
        return JSONResponse(view())

    return endpoint


class _Events(Response):
    """One generation as server-sent events; a reader that goes away cancels it.

    Not an async generator: one that is dropped in mid-stream leaves the tasks of its nursery to
    the collector, and a generation may have to pay for what it got before it ends.
    """

    media_type = "text/event-stream"

    def __init__(self, generate: Generate, wanted: dict[str, Any]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._generate, self._wanted = generate, wanted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **head})
        sink, events = trio.open_memory_channel[Mapping[str, Any]](64)

        async def run() -> None:
            async with sink:
                try:
                    await self._generate(self._wanted, sink.send)
                except Exception:
                    # The head is out: all that is left is to say it in the stream, and why here.
                    logs.get("api").exception("generation failed")
                    reason = "the node failed, and its log says how; ask again"
                    await sink.send({"type": "error", "error": reason, "kind": "internal"})

        async def until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            nursery.start_soon(until_gone)
            async for first in events:
                ready = [first]  # what came together goes out together
                while True:
                    try:
                        ready.append(events.receive_nowait())
                    except (trio.WouldBlock, trio.EndOfChannel):
                        break
                body = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in ready)
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            nursery.cancel_scope.cancel()


def listen(host: str, port: int) -> socket.socket:
    """A bound, listening socket; port 0 takes any. OSError says what is in the way."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # The server's writes cannot be cancelled: a reader that stalls would keep a node from
        # stopping. Connections inherit this.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * STALLED))
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
    config.errorlog = logging.getLogger("hypercorn.error")  # tracebacks of failed requests
    config.graceful_timeout = 1.0
    await serve(application(views), config, mode="asgi")  # type: ignore[arg-type]
