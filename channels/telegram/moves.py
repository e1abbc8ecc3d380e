"""Groups that became supergroups: their old id to the new one, kept over a restart in a small private file. Called by the channel alone.

The house goes on knowing such a group by the id under which it met it, so that its conversations, its queue, its lane and its place in the
config stay what they are; only here and in the channel is it known under which id Telegram has it today.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import aiofiles.os
import msgspec
import structlog

from channels.base import Inbound

log = structlog.get_logger(__name__)

_decoder = msgspec.json.Decoder(dict[str, str])


class Moves:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "moved.json"
        self._now: dict[str, str] = {}
        self._was: dict[str, str] = {}
        self._unwritten = False
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

    def homed(self, inbound: Inbound) -> Inbound:
        """The input as one of the group that the house knows. Both ids stand for it at the gate: a config may name either."""
        chat = inbound.address.chat
        home = self._home(chat)
        if home == chat:
            return inbound
        address = msgspec.structs.replace(inbound.address, chat=home)
        reply_to = f"{chat}/{inbound.reply_to}" if inbound.reply_to else ""
        return msgspec.structs.replace(inbound, address=address, group=chat, reply_to=reply_to)

    def _home(self, chat: str) -> str:
        for _ in range(len(self._was) + 1):
            if chat not in self._was:
                break
            chat = self._was[chat]
        return chat

    async def load(self) -> None:
        """Reads the file once. A bad one is put aside, never overwritten."""
        if not self._loaded:
            self._loaded = True
            self._now = await aiofiles.os.wrap(_read)(self._path) | self._now
            self._was = {new: old for old, new in self._now.items()}

    async def learn(self, old: str, new: str) -> None:
        """Keep that `old` is `new` now. Raises OSError where that is not on disk yet; the memory has it, and the next call tries again."""
        if old != new and self.now(old) != new and self.now(new) != old:
            self._now[old], self._was[new] = new, old
            self._unwritten = True
            log.info("group has a new id", channel="telegram", old=old, new=new)
        async with self._writing:
            if self._unwritten:
                await aiofiles.os.wrap(_write)(self._path, msgspec.json.encode(self._now))
                self._unwritten = False

    async def follow(self, old: str, new: str) -> None:
        """`learn` for whoever has something to send: it goes out whether or not the disk takes the news."""
        try:
            await self.learn(old, new)
        except OSError as error:
            log.warning("cannot keep a group's new id", channel="telegram", problem=error.strerror or type(error).__name__)


def _read(path: Path) -> dict[str, str]:
    try:
        return _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        log.warning("cannot read the groups' new ids", channel="telegram", path=str(path), problem=type(error).__name__)
        with suppress(OSError):  # else it is overwritten with what we learn: Telegram refuses the next send, and tells the new id again
            path.replace(path.with_suffix(".bad"))
        return {}


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
