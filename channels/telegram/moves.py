"""Groups that became supergroups: their old id to the new one, kept over a restart in a small private file. Called by the channel alone.

Losing the file costs nothing but a refused send for each group, which tells the new id again.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import aiofiles.os
import msgspec
import structlog

log = structlog.get_logger(__name__)

_decoder = msgspec.json.Decoder(dict[str, str])


class Moves:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "moved.json"
        self._now: dict[str, str] = {}
        self._loaded = False
        self._writing = asyncio.Lock()
        """One write at a time: they share a temporary file."""

    def now(self, chat: str) -> str:
        """The id under which the chat is spoken to today."""
        for _ in range(len(self._now) + 1):
            if chat not in self._now:
                break
            chat = self._now[chat]
        return chat

    async def load(self) -> None:
        """Reads the file once. A bad one is put aside, never overwritten."""
        if not self._loaded:
            self._loaded = True
            self._now = await aiofiles.os.wrap(_read)(self._path) | self._now

    async def learn(self, old: str, new: str) -> None:
        """Keeps that `old` is `new` now. Never raises: the memory has it even if the disk does not."""
        if old == new or self.now(old) == new or self.now(new) == old:
            return
        self._now[old] = new
        log.info("group has a new id", channel="telegram", old=old, new=new)
        try:
            async with self._writing:
                await aiofiles.os.wrap(_write)(self._path, msgspec.json.encode(self._now))
        except OSError as error:
            log.warning("cannot keep a group's new id", channel="telegram", problem=error.strerror or type(error).__name__)


def _read(path: Path) -> dict[str, str]:
    try:
        return _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        log.warning("cannot read the groups' new ids", channel="telegram", path=str(path), problem=type(error).__name__)
        with suppress(OSError):  # then it is overwritten with what we learn; the file is a help, not a record
            path.replace(path.with_suffix(".bad"))
        return {}


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)
    temporary.replace(path)
