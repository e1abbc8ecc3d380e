"""The daemon's HTTP server: /healthz, /readyz, /metrics, and the routes that channels bring. One listening address, no access log.

/healthz says that the event loop lives, to anybody. /readyz says how each part is, and /metrics how much of everything there was, to who
holds the token (Bearer, or the page's cookie).
What the other routes check is their channel's business; `channels.guard` is there for them. Started and closed by `gateway.app`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import structlog
from aiohttp import web

from channels.guard import Guard, is_loopback
from channels.quiet import server_log
from gateway.errors import StartError
from gateway.httpd.report import Health

log = structlog.get_logger(__name__)

SHUTDOWN = 0.4
"""Seconds that requests under way get when the server closes, and once more when they are cancelled: an open feed ends then."""
BODY_MOST = 1024 * 1024
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Server": "parlour"}


class Listen(NamedTuple):
    """Where to listen: a host and port, or a Unix socket's path."""

    host: str
    port: int
    path: str = ""


def parse_listen(text: str) -> Listen:
    """ "127.0.0.1:8787", "[::1]:8787" or "unix:/run/parlour/web.sock". Raises ValueError."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not os.path.isabs(path):
            raise ValueError("expected a whole path behind unix:")
        return Listen("", 0, path)
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not bare or (":" in host and bare == host) or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError('expected an address and a port like "127.0.0.1:8787" or "[::1]:8787"')
    return Listen(bare, int(port))


class HttpServer:
    """One server. `hosts`: [http].hosts; `token`: the web token; `metrics`: makes a body and its type from the header Accept; `look`:
    is awaited before each `health`, so that it is of now."""

    def __init__(
        self,
        listen: str,
        routes: Sequence[web.RouteDef],
        health: Callable[[], Health],
        *,
        hosts: Iterable[str],
        token: str,
        metrics: Callable[[str], tuple[bytes, str]] | None = None,
        look: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._listen = listen
        self._routes = routes
        self._health = health
        self._metrics = metrics
        self._look = look
        self._token = token
        self._hosts = tuple(hosts)
        self._guard = Guard(token)
        self._place: Listen | None = None
        self._runner: web.AppRunner | None = None
        self.address = ""
        """Where it listens, as a link without a token: "http://127.0.0.1:8787"; "" before `start` and for a Unix socket."""

    async def start(self) -> None:
        """Listen. Raises StartError with one line: no such address, port taken, an open door."""
        try:
            place = parse_listen(self._listen)
        except ValueError as error:
            raise StartError(f"[http] listen = {self._listen!r}: {error}") from None
        try:
            self._guard = Guard(self._token, [self._listen, *self._hosts])
        except ValueError as error:
            raise StartError(f"[http] hosts: {error}") from None
        if not self._token and not place.path and not is_loopback(place.host):
            raise StartError(f"[http] listen = {self._listen!r}: other machines reach this address, and there is no token")
        app = web.Application(client_max_size=BODY_MOST)
        own = [web.get("/healthz", self._healthz), web.get("/readyz", self._readyz), web.get("/metrics", self._measured)]
        app.add_routes([*own, *self._routes])
        runner = web.AppRunner(
            app, access_log=None, logger=server_log("gateway.httpd.aiohttp"), keepalive_timeout=75.0, shutdown_timeout=SHUTDOWN
        )
        await runner.setup()
        try:
            site = await self._site(runner, place)
            await site.start()
        except OSError as error:
            await runner.cleanup()
            text = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
            raise StartError(f"cannot listen on {self._listen}: {text}") from None
        except BaseException:
            await runner.cleanup()
            raise
        self._runner, self._place = runner, place
        if place.path:
            await asyncio.to_thread(os.chmod, place.path, 0o660)
        else:
            host, port = runner.addresses[0][:2]
            self.address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        log.info("http server listens", at=self.address or self._listen)

    async def close(self) -> None:
        """Stop listening, give requests under way a moment. Safe to call twice and without `start`."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
            if self._place is not None and self._place.path:
                with suppress(FileNotFoundError):
                    await asyncio.to_thread(os.unlink, self._place.path)

    async def _site(self, runner: web.AppRunner, place: Listen) -> web.BaseSite:
        if not place.path:
            return web.TCPSite(runner, place.host, place.port)
        await asyncio.to_thread(_free, place.path)
        return web.UnixSite(runner, place.path)

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n", headers=_HEADERS)

    async def _readyz(self, request: web.Request) -> web.Response:
        if refusal := self._refusal(request):
            return refusal
        if self._look is not None:
            await self._look()
        health = self._health()
        body = msgspec.json.encode(health)
        return web.Response(status=200 if health.ready else 503, body=body, content_type="application/json", headers=_HEADERS)

    async def _measured(self, request: web.Request) -> web.Response:
        if refusal := self._refusal(request):
            return refusal
        if self._metrics is None:
            return web.Response(status=404, text="Nothing is measured here.\n", headers=_HEADERS)
        body, kind = self._metrics(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={**_HEADERS, "Content-Type": kind})

    def _refusal(self, request: web.Request) -> web.Response | None:
        """What is said to who may not see it."""
        if not self._guard.host_ok(request.headers.get("Host", "")):
            return web.Response(status=403, text="This host name is not one of [http].hosts.\n", headers=_HEADERS)
        if not self._guard.cookie_ok(request.cookies.get(self._guard.cookie_name, "")):
            verdict = self._guard.bearer(request.headers.get("Authorization", ""))
            if verdict == "later":
                return web.Response(status=429, text="Too many wrong tokens.\n", headers={**_HEADERS, "Retry-After": "60"})
            if verdict != "ok":
                return web.Response(status=401, text="This needs the web token.\n", headers={**_HEADERS, "WWW-Authenticate": "Bearer"})
        return None


def _free(path: str) -> None:
    """Take away what a killed daemon left at a Unix socket's path. A socket that somebody answers on stays. Raises OSError."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "not a socket", path)
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(path)
            except (ConnectionRefusedError, FileNotFoundError):
                os.unlink(path)
                return
        raise OSError(errno.EADDRINUSE, "in use", path)
