"""The web channel: one chat a browser, on a page that the daemon's own HTTP server serves. Whoever holds the token is the daemon's owner.

A network that is our own: `send` and `edit` put the message into the chat's ring and are done; a browser takes it from there when it can
(`channels.web.feed`). What a page shows of the past comes from the sessions, through the Desk. Made by `gateway.app`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from html import escape
from string import Template

from aiohttp import web

from channels.base import Accept, Address, Attachment, Button, Channel, CommandInfo, Context, Desk, Limits, Lost, Pacing, Piece, Refused
from channels.guard import Guard
from channels.web.api import Api
from channels.web.auth import Door, Handler, asset
from channels.web.feed import Feeds, reorders
from channels.web.html import visible
from channels.web.rendering import Rendering
from channels.web.settings import Settings
from channels.web.stream import Streams

_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": "text/html"}


class WebChannel:
    """See `channels.base.Channel`."""

    name = "web"
    limits = Limits(units=10_000_000, spans=1_000_000)
    pacing = Pacing()
    backlog = 0.0
    streams = True

    def __init__(
        self, settings: Settings, guard: Guard, desk: Desk, *, clock: Callable[[], float] = time.time, pace: float = 0.1, beat: float = 15.0
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._alive = 0.0
        self._menu: tuple[CommandInfo, ...] = ()
        self._feeds = Feeds()
        rendering = Rendering()
        self._door = Door(guard, settings.title, self._seen)
        self._api = Api(
            self._feeds,
            rendering,
            self._door,
            desk,
            max_chars=settings.max_chars,
            history_lines=settings.history_lines,
            menu=lambda: self._menu,
            clock=clock,
        )
        self._streams = Streams(self._feeds, rendering, self._door, lambda: self._menu, clock=clock, pace=pace, beat=beat)

    def _seen(self) -> None:
        self._alive = time.monotonic()

    # -- the channel's life

    async def start(self, menu: Sequence[CommandInfo]) -> None:
        """Nothing to reach: the network is us."""
        self._menu = tuple(menu)

    async def run(self, accept: Accept) -> None:
        """Take what pages say until cancelled; before and after it they are told to come again."""
        self._api.accept = accept
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._api.accept = None

    async def close(self) -> None:
        """End the live feeds, so that the HTTP server need not wait for them."""
        self._api.accept = None
        self._streams.close()

    def last_sign_of_life(self) -> float:
        """When a page that is signed in last asked for something."""
        return self._alive

    def open_pages(self) -> int:
        """How many browsers listen now."""
        return len(self._streams)

    def routes(self) -> Sequence[web.RouteDef]:
        """The page, its parts and its API. Everything passes the door."""
        door = self._door
        return [
            web.get("/", door.page(_serve("page.html", title=escape(self._settings.title), limit=str(self._settings.max_chars)))),
            web.post("/login", door.open(door.login)),
            web.get("/web/page.css", door.open(_serve("page.css"))),
            web.get("/web/page.js", door.open(_serve("page.js"))),
            web.get("/web/login.js", door.open(_serve("login.js"))),
            web.get("/web/icon.svg", door.open(_serve("icon.svg"))),
            web.post("/api/say", door.api(self._api.say)),
            web.get("/api/sessions", door.api(self._api.sessions)),
            web.get("/api/history", door.api(self._api.history)),
            web.get("/api/menu", door.api(self._api.menu)),
            web.get("/api/feed", door.api(self._streams.handle), allow_head=False),
        ]

    # -- what goes out

    def render(self, markdown: str) -> list[Piece]:
        """One piece: the text itself. It becomes HTML when a browser takes it."""
        return [Piece(markdown, start=0, end=len(markdown))] if visible(markdown) else []

    async def send(self, address: Address, piece: Piece, *, reply_to: str = "", buttons: Sequence[Button] = (), nonce: str = "") -> str:
        """A new message in the chat's ring; the id tells which chat's ring, place and input it belongs to."""
        where = await self._api.where(address) if reorders(reply_to) else None
        feed = self._feeds.of(address.chat)
        return feed.placed(piece.text, self._clock(), reply_to=reply_to, buttons=buttons, nonce=nonce, where=where)

    async def recall(self, address: Address, piece: Piece, *, since: float, asked: str, reply_to: str = "") -> str:
        return ""  # a page shows what is on record

    async def edit(self, address: Address, message_id: str, piece: Piece, *, buttons: Sequence[Button] = ()) -> None:
        """Replace a message. One that was placed before a restart is shown again under its old id."""
        if not self._feeds.of(address.chat).edited(message_id, piece.text, self._clock(), buttons=buttons):
            raise Lost("no such message")

    async def delete(self, address: Address, message_id: str) -> None:
        """Take a message out of the pages that show it."""
        self._feeds.of(address.chat).deleted(message_id)

    async def typing(self, address: Address) -> None:
        """Shown for six seconds."""
        self._feeds.of(address.chat).typing(self._clock())

    async def is_admin(self, address: Address, user_id: str) -> bool:
        """Every chat here is the owner's."""
        return True

    async def fetch(self, attachment: Attachment, most: int) -> bytes:
        raise Refused("nothing is uploaded here")


def _serve(name: str, **words: str) -> Handler:
    text = Template(asset(name)).substitute(words) if words else asset(name)
    kind = _TYPES[name.rpartition(".")[2]]

    async def served(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type=kind)

    return served


def make(settings: Settings, context: Context) -> Channel:
    """The channel over `context.token` (the page's) and `context.hosts`. Raises ValueError where a host is none."""
    return WebChannel(settings, Guard(context.token, context.hosts), context.desk)
