"""The live feed: server-sent events from a chat's ring to a browser. The protocol is told in `channels.web.feed`.

Events: `hello` (with `gap`: forget what you have, the whole ring follows), `item`, `typing`, `history`, and `beat` when nothing else was to
say, so that the page notices a dead connection. `id:` is EPOCH-ID; a browser sends the last one when it connects again.

A reader pulls at its own pace, and no more often than each `pace` seconds; one that takes nothing for `patience` seconds is cut. Nobody
but its own request waits for it. Called by `channels.web.channel`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable

import msgspec
from aiohttp import web

from channels.base import Button, CommandInfo
from channels.web.auth import Door, error
from channels.web.feed import Change, Feed, Feeds, History, Item, Typing
from channels.web.rendering import Rendering

MAX_READERS = 64
TYPING_SECONDS = 6.0
_SEEN = re.compile(r"([0-9a-f]{12})-([0-9]{1,15})")


class _Hello(msgspec.Struct, frozen=True):
    gap: bool
    menu: tuple[CommandInfo, ...]


class _Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    key: str
    n: int
    of: int
    at: int
    role: str
    input: str = ""
    text: str = ""
    html: str = ""
    note: bool = False
    buttons: tuple[Button, ...] = ()
    deleted: bool = False


class _Before(msgspec.Struct, frozen=True):
    before: int
    notes: int


class Streams:
    """All open feeds."""

    def __init__(
        self,
        feeds: Feeds,
        rendering: Rendering,
        door: Door,
        menu: Callable[[], tuple[CommandInfo, ...]],
        *,
        pace: float = 0.1,
        beat: float = 15.0,
        patience: float = 20.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._feeds, self._rendering, self._door, self._menu = feeds, rendering, door, menu
        self._pace, self._beat, self._patience, self._clock = pace, beat, patience, clock
        self._open: dict[asyncio.Task[object], web.Request] = {}
        self._ended: set[asyncio.Task[object]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """End every feed and take no more; the browsers come back by themselves."""
        self._closed = True
        for task in list(self._open):
            self._end(task)

    def _end(self, task: asyncio.Task[object]) -> None:
        if task not in self._ended:
            self._ended.add(task)
            task.cancel()

    def _full(self) -> bool:
        """Whether there is no room; connections that are gone, and would notice it with their next beat only, make room now."""
        for task, request in list(self._open.items()):
            if request.transport is None or request.transport.is_closing():
                self._end(task)
        return len(self._open) - len(self._ended) >= MAX_READERS

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """GET /api/feed[?after=EPOCH-ID]; until the browser goes."""
        if self._closed or self._full():
            return error(503, "Too many open pages, or the daemon is stopping.")
        feed = self._feeds.of(self._door.chat(request))
        given = _SEEN.fullmatch(request.headers.get("Last-Event-ID", "") or request.query.get("after", ""))
        epoch, seen = (given[1], int(given[2])) if given else ("", 0)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"})
        self._door.finish(request, response)
        task = asyncio.current_task()
        assert task is not None  # a handler runs in a task
        self._open[task] = request
        feed.readers += 1
        try:
            await response.prepare(request)
            await self._pump(response, feed, epoch, seen)
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()
        except asyncio.CancelledError:
            # Cut by close(): the answer ends as it should. A cancellation from outside goes on.
            if task not in self._ended:
                raise
            task.uncancel()
            if response.prepared:
                with contextlib.suppress(ConnectionError):
                    await response.write_eof()
        finally:
            feed.readers -= 1
            self._open.pop(task, None)
            self._ended.discard(task)
        return response

    async def _pump(self, response: web.StreamResponse, feed: Feed, epoch: str, seen: int) -> None:
        loop = asyncio.get_running_loop()
        gap, fresh = feed.gap(epoch, seen), True
        while True:
            if fresh or gap:
                seen = 0 if gap else seen
                await self._write(response, _frame("hello", _Hello(gap, self._menu())))
            fresh = False
            begun = loop.time()
            for change in feed.since(seen):
                frame = await self._framed(feed, change)
                if frame:
                    await self._write(response, frame)
                seen = change.id
            # A long answer is rendered less often than a short one, so that it never takes more than a part of the time.
            await asyncio.sleep(max(self._pace, min(2.0, 4 * (loop.time() - begun))))
            try:
                async with asyncio.timeout(self._beat):
                    await feed.changed(seen)
            except TimeoutError:
                await self._write(response, b"event: beat\ndata:\n\n")
            gap = feed.gap(feed.epoch, seen)

    async def _framed(self, feed: Feed, change: Change) -> bytes:
        mark = f"{feed.epoch}-{change.id}"
        match change:
            case Typing():
                return _frame("typing", None, mark) if self._clock() - change.at < TYPING_SECONDS else b""
            case History():
                return _frame("history", _Before(change.before, change.notes), mark)
            case Item():
                ours = change.role == "bot"
                shown = _Shown(
                    key=change.key,
                    n=change.n,
                    of=change.of,
                    at=int(change.at * 1000),
                    role=change.role,
                    input=change.input,
                    text="" if ours else change.text,
                    html=await self._rendering.html(change.text) if ours else "",
                    note=change.note,
                    buttons=change.buttons,
                    deleted=change.deleted,
                )
                return _frame("item", shown, mark)

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        async with asyncio.timeout(self._patience):
            await response.write(data)


def _frame(event: str, data: msgspec.Struct | None, mark: str = "") -> bytes:
    # JSON as msgspec writes it has no newline in it, so that one `data:` line holds it.
    head = f"id: {mark}\n" if mark else ""
    return f"{head}event: {event}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
