"""How the disk under the data folder is: can it be written to, how much of it is free, is it still the same folder.
For `/readyz`, `/metrics` and `/status`.

What is asked may hang with the disk, so it is asked in a thread of its own and never twice at once. Called by `gateway.app`, which owns the
task that `run` is; whoever is asked how the disk is calls `fresh` first, so that everybody says the same, and says it of now.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import structlog

from gateway.disk import write_all
from gateway.threads import Threads

log = structlog.get_logger(__name__)

EVERY = 30.0
PATIENCE = 10.0
"""Seconds after which a disk that has not answered counts as one that does not."""
ASKED = 2.0
"""Seconds that somebody who asks now waits for the disk's answer; after that he is told what was known before."""
LOW = 64 * 1024 * 1024
"""Bytes below which free space is worth a warning."""
PROBE = ".probe"
MOVED = "the data folder was moved, replaced or unmounted under the running daemon"
"""Files are opened by their names, so that the daemon goes on in what stands there now, where nobody finds its lock."""


class Disk(NamedTuple):
    """`free`: bytes; None while nobody knows. `problem`: why nothing can be written there, "" if it can."""

    free: int | None = None
    problem: str = ""


def probe(folder: Path) -> Disk:
    """Write a block, take it away again, and look how much is free. Blocks as long as the disk does."""
    free: int | None = None
    try:
        room = os.statvfs(folder)
        free = room.f_bavail * room.f_frsize
        path = folder / PROBE
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        try:
            write_all(fd, bytes(4096))
        finally:
            os.close(fd)
            with suppress(FileNotFoundError):
                os.unlink(path)
    except OSError as error:
        return Disk(free, error.strerror or type(error).__name__)
    return Disk(free)


class DiskWatch:
    """`disk` is what was found last."""

    def __init__(
        self,
        folder: Path,
        *,
        probe: Callable[[Path], Disk] = probe,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
        patience: float = PATIENCE,
    ) -> None:
        self._folder, self._probe, self._pause, self._patience = folder, probe, pause, patience
        self._threads = Threads(1, "disk")
        self._asked: asyncio.Future[Disk] | None = None
        self._closed = False
        self._first: tuple[int, int] | None = None
        """Which folder it was at the first look: device and inode."""
        self.disk = Disk()
        self._told = ""

    async def run(self) -> None:
        """Look every half minute until cancelled."""
        while True:
            await self.look()
            await self._pause(EVERY)

    async def look(self) -> None:
        """Look now; wait for the answer as long as is reasonable."""
        if not await self._ask(self._patience):
            self._turn(Disk(self.disk.free, f"it has not answered for {self._patience:g} s"))

    async def fresh(self) -> None:
        """Look for somebody who asks now, and does not want to wait for long."""
        if not self._closed:
            await self._ask(min(ASKED, self._patience))

    async def _ask(self, patience: float) -> bool:
        """Whether the disk answered. Several who ask at once wait for one answer."""
        if self._asked is None:
            self._asked = asyncio.ensure_future(self._threads.hop(self._see))
        asked = self._asked
        await asyncio.wait({asked}, timeout=patience)
        if not asked.done():
            return False
        if self._asked is asked:
            self._asked = None
            if not asked.cancelled():
                self._turn(asked.result())
        return True

    def _see(self) -> Disk:
        """In the thread."""
        found = self._probe(self._folder)
        try:
            info = os.stat(self._folder)
        except OSError:  # nothing is there: the probe has said so, unless it came back since
            return found
        here = (info.st_dev, info.st_ino)
        self._first = self._first or here
        return found if here == self._first else Disk(found.free, MOVED)

    def _turn(self, disk: Disk) -> None:
        self.disk = disk
        if (said := self.said()) != self._told:
            if said:
                log.warning("disk", folder=str(self._folder), problem=said)
            else:
                log.info("disk is fine again", folder=str(self._folder))
            self._told = said

    def said(self) -> str:
        """What is wrong, in words; "" if nothing."""
        free, problem = self.disk
        if problem == MOVED:
            return MOVED
        if problem:
            return f"cannot be written to: {problem}"
        return "" if free is None or free >= LOW else "less than 64 MiB free"

    async def close(self) -> None:
        """Wait for a look under way, but not for a disk that hangs."""
        self._closed = True
        if self._asked is not None:
            await asyncio.wait({self._asked}, timeout=1.0)
            if self._asked.cancel():
                return
        await self._threads.close()
