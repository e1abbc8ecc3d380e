"""What the page's script asks for: to say something, the list of sessions, a conversation. Called by `channels.web.channel`.

Bodies are JSON both ways; a refusal is `{"error": "One plain sentence."}`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import msgspec
from aiohttp import web

from channels.base import Accept, Address, CommandInfo, Desk, Inbound, Sender, SessionInfo
from channels.text import clean
from channels.web.auth import Door, error, read_body
from channels.web.feed import Feeds, ref
from channels.web.rendering import Rendering

OWNER = Sender(id="owner", trusted=True)
"""Whoever holds the token."""

_ID = re.compile(r"[0-9A-Za-z-]{8,64}")
_NAME = re.compile(r"[a-z0-9-]{0,40}")


class _Say(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    text: str
    button: bool = False


class _Sessions(msgspec.Struct, frozen=True):
    sessions: list[SessionInfo]


class _Menu(msgspec.Struct, frozen=True):
    menu: tuple[CommandInfo, ...]


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    seq: int
    role: str
    text: str = ""
    html: str = ""
    input: str = ""
    at: str = ""
    cut: str = ""


class _History(msgspec.Struct, frozen=True):
    lines: list[_Line]
    more: bool


def address(chat: str) -> Address:
    """The Address of a browser's chat."""
    return Address("web", chat)


class Api:
    """The handlers; `accept` is there while the channel runs."""

    def __init__(
        self,
        feeds: Feeds,
        rendering: Rendering,
        door: Door,
        desk: Desk,
        *,
        max_chars: int,
        history_lines: int,
        menu: Callable[[], tuple[CommandInfo, ...]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._feeds, self._rendering, self._door, self._desk = feeds, rendering, door, desk
        self._max_chars, self._history_lines, self._menu, self._clock = max_chars, history_lines, menu, clock
        self.accept: Accept | None = None

    async def say(self, request: web.Request) -> web.StreamResponse:
        """POST /api/say {id, text, button?}: 200 once the inbox holds it. The same id again is the same message."""
        if request.content_type != "application/json":
            return error(415, "JSON, please.")
        body = await read_body(request, self._max_chars * 12 + 1000)
        if body is None:
            return error(413, "The message is too long.")
        try:
            # Not msgspec's own reader: it takes the half of a surrogate pair, which a page may send, for a broken text.
            said = msgspec.convert(json.loads(body), _Say)
        except (ValueError, RecursionError):
            return error(400, "Not a message.")
        text = clean(said.text).replace("\r\n", "\n").replace("\r", "\n")
        if not _ID.fullmatch(said.id) or not text.strip():
            return error(400, "Not a message.")
        if len(text) > self._max_chars:
            return error(413, f"The message is too long: {len(text)} characters, {self._max_chars} are the most.")
        if self.accept is None:
            return error(503, "The daemon is not ready yet, or is stopping.")
        chat = self._door.chat(request)
        feed = self._feeds.of(chat)
        found = "" if feed.where else await self.where(address(chat))
        feed.where = feed.where or found
        n = feed.reserve()
        handle = ref(text, said.id)
        inbound = Inbound(
            id=f"web:{chat}:{said.id}",
            address=address(chat),
            sender=OWNER,
            text=text,
            kind="button" if said.button else "message",
            sent_at=self._clock(),
            reply_to=handle,
        )
        try:
            await self.accept([inbound])
        except OSError:
            return error(503, "The message could not be written down. Try again.")
        feed.said(handle, text, n, inbound.sent_at)
        return web.Response(body=b"{}", content_type="application/json")

    async def where(self, here: Address) -> str | None:
        """Which conversation a chat is in: another text for another one, also for one of the same name that was begun after /forget. "" if
        it is in none, None if it cannot be read."""
        try:
            found = await self._desk.sessions(here, OWNER)
        except OSError:
            return None
        return next((f"{session.name} {session.created}" for session in found if session.current), "")

    async def sessions(self, request: web.Request) -> web.StreamResponse:
        """GET /api/sessions."""
        try:
            found = await self._desk.sessions(address(self._door.chat(request)), OWNER)
        except OSError:
            return error(503, "The sessions could not be read.")
        return web.Response(body=msgspec.json.encode(_Sessions(found)), content_type="application/json")

    async def history(self, request: web.Request) -> web.StreamResponse:
        """GET /api/history?name=&after=: the newest lines of a session ("" the current one) behind seq `after`."""
        name, after = request.query.get("name", ""), request.query.get("after", "0")
        if not _NAME.fullmatch(name) or not re.fullmatch(r"[0-9]{1,15}", after):
            return error(400, "Not a session's name, or not a number.")
        chat = self._door.chat(request)
        here = address(chat)
        try:
            if name and name not in {session.name for session in await self._desk.sessions(here, OWNER)}:
                return error(404, "There is no such session.")
            shown = await self._desk.history(here, OWNER, name, int(after))
        except OSError:
            return error(503, "The conversation could not be read.")
        prefix = f"web:{chat}:"
        lines: list[_Line] = []
        for line in shown[-self._history_lines :]:
            own = line.input_id.removeprefix(prefix) if line.input_id.startswith(prefix) else ""
            if line.role == "user":
                lines.append(_Line(line.seq, "user", text=line.text, input=own, at=line.at))
            else:
                html = await self._rendering.html(line.text)
                lines.append(_Line(line.seq, "bot", html=html, input=own, at=line.at, cut=line.note))
        answer = _History(lines, more=len(shown) > len(lines))
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    async def menu(self, request: web.Request) -> web.StreamResponse:
        """GET /api/menu: the commands that the daemon knows; also how a page learns that it is signed in."""
        return web.Response(body=msgspec.json.encode(_Menu(self._menu())), content_type="application/json")
