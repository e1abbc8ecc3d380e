"""Reading by webhook: a listener of the channel's own that takes Telegram's POSTs.

Who does not show the secret learns nothing and changes nothing. 200 is said only when the gateway has the update; 503 asks for it again.
One that nobody can read is counted and taken, or Telegram would bring it for ever and nothing behind it. TLS is a reverse proxy's work, and
any path will do, since such proxies rewrite it: the secret is the door. Called by `channels.telegram.channel`.
"""

from __future__ import annotations

import hmac
import time

import structlog
from aiohttp import web

from channels.base import NotSent
from channels.failpoints import reach
from channels.quiet import server_log
from channels.telegram.poll import Take
from channels.telegram.settings import listen_address

log = structlog.get_logger(__name__)

HEADER = "X-Telegram-Bot-Api-Secret-Token"
BODY_LIMIT = 2 * 2**20
"""Bytes; the largest updates are a few dozen KiB."""


class Webhook:
    def __init__(self, listen: str, secret: str, take: Take) -> None:
        if not secret:
            raise ValueError("a webhook without a secret takes anybody's word")
        self._host, self._port = listen_address(listen)
        self._secret, self._take = secret.encode(), take
        self._runner: web.AppRunner | None = None
        self._failing = False
        self.last = 0.0
        """When Telegram last brought something, by `time.monotonic`."""
        self.refused = 0
        """Requests without the secret."""

    @property
    def port(self) -> int:
        """Where it listens; only between `start` and `close`."""
        return int(self._runner.addresses[0][1]) if self._runner else 0

    async def start(self) -> None:
        """Raises NotSent where the address cannot be listened on."""
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, access_log=None, logger=server_log("channels.telegram.aiohttp"), shutdown_timeout=2.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except OSError as error:
            await runner.cleanup()
            raise NotSent(f"cannot listen on {self._host}:{self._port}: {error.strerror or type(error).__name__}") from None
        self._runner = runner

    async def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        shown = request.headers.getall(HEADER, [])
        if len(shown) != 1 or not hmac.compare_digest(shown[0].encode("utf-8", "surrogateescape"), self._secret):
            self.refused += 1
            return _status(401)
        if request.method != "POST":
            return _status(405)
        try:
            raw = await request.read()  # 413 by itself above BODY_LIMIT
        except (OSError, web.RequestPayloadError):
            return _status(400)  # who left in the middle of it
        reach("webhook before")
        try:
            await self._take([raw])
        except OSError as error:
            if not self._failing:
                log.warning("messages cannot be stored", channel="telegram", problem=error.strerror or type(error).__name__)
            self._failing = True
            return _status(503)
        if self._failing:
            log.info("messages can be stored again", channel="telegram")
        self._failing = False
        self.last = time.monotonic()
        reach("webhook after")
        return _status(200)


def _status(status: int) -> web.Response:
    return web.Response(status=status)
