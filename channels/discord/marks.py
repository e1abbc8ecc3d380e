"""Up to where nothing can be missing, kept over a restart in a small private file: the last sign of life of the connection less what still
waits, and the newest accepted message of each direct chat (servers name their channels, nobody names the direct chats).

Losing the file costs what was said between two lives of the daemon. Written off the loop, one write at a time. Called by `reading` and
`backfill`.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

import aiofiles.os
import msgspec
import structlog

from channels.failpoints import reach

log = structlog.get_logger(__name__)

MOST_CHATS = 2000
"""Direct chats that are remembered, the most recent ones."""
EVERY = 15.0
"""Seconds between two writes, where anything changed."""


class _File(msgspec.Struct):
    v: int
    bot: str
    alive: float
    direct: dict[str, str]


_decoder = msgspec.json.Decoder(_File)


class Marks:
    """`alive` is in seconds since the epoch; None before the first connection of all."""

    def __init__(self, folder: Path, *, every: float = EVERY) -> None:
        self._path, self._every = folder / "heard.json", every
        self.bot = ""
        self.alive: float | None = None
        self.direct: OrderedDict[str, int] = OrderedDict()
        """Channel id -> newest message id, the least recent first."""
        self._loaded = False
        self._failing = False
        self._changed = asyncio.Event()
        self._urgent = asyncio.Event()
        self._writing: asyncio.Future[None] | None = None

    async def load(self, bot: str) -> None:
        """Reads the file once. A bad one is put aside; one of another bot is of no use."""
        if self._loaded:
            return
        self._loaded, self.bot = True, bot
        found = await aiofiles.os.wrap(_read)(self._path)
        if found is not None and found.bot == bot:
            self.alive = found.alive
            self.direct = OrderedDict((chat, int(last)) for chat, last in found.direct.items() if last.isdecimal())

    def live(self, at: float) -> None:
        """Nothing that was said before `at` is missing. Never goes back."""
        if self.alive is None:
            self._urgent.set()  # until it is on disk, the next start passes for the first one, which fetches nothing
        if self.alive is None or at > self.alive:
            self.alive = at
            self._changed.set()

    def heard(self, chat: str, message: int) -> None:
        """A message of a direct chat is accepted."""
        if chat not in self.direct:
            self._urgent.set()  # a new chat: nobody else would tell us of it
        self.direct[chat] = max(message, self.direct.get(chat, 0))
        self.direct.move_to_end(chat)
        while len(self.direct) > MOST_CHATS:
            self.direct.popitem(last=False)
        self._changed.set()

    async def run(self) -> None:
        """Writes what changed, until cancelled."""
        while True:
            await self._changed.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._urgent.wait()
            await self.save()

    async def save(self) -> None:
        """Never raises: the memory has it even if the disk does not."""
        if self._writing is not None:
            await asyncio.wait({self._writing})  # of somebody who was cut: the thread goes on
        self._changed.clear()
        self._urgent.clear()
        if self.alive is None:
            return
        file = _File(1, self.bot, self.alive, {chat: str(last) for chat, last in self.direct.items()})
        self._writing = asyncio.ensure_future(aiofiles.os.wrap(_write)(self._path, msgspec.json.encode(file)))
        try:
            await asyncio.shield(self._writing)
        except OSError as error:
            self._changed.set()  # tried again, and told once
            if not self._failing:
                log.warning("cannot keep what was heard", channel="discord", problem=error.strerror or type(error).__name__)
            self._failing = True
        else:
            self._failing = False


def _read(path: Path) -> _File | None:
    try:
        return _decoder.decode(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError, ValueError) as error:
        log.warning("cannot read what was heard, messages may be missed", channel="discord", path=str(path), problem=type(error).__name__)
        with suppress(OSError):
            path.replace(path.with_suffix(".bad"))
        return None


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(handle, data)
        os.fsync(handle)  # or a power cut might leave the new name for nothing
    finally:
        os.close(handle)
    reach("marks before")
    temporary.replace(path)
    reach("marks after")
