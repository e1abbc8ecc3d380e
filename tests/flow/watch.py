"""Kill a process at the n-th change that it makes in a folder: the moments between two writes, which no network call marks.

Over the kernel's inotify, from a thread, so that the signal is sent within microseconds of the write. Linux only, like the daemon's unit.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import signal
import struct
import time
from pathlib import Path

_MODIFY, _MOVED_TO, _CREATE, _IS_FOLDER = 0x2, 0x80, 0x100, 0x40000000
_EVENT = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Every file at and under `folder`, those included that are made later. Close it after use."""

    def __init__(self, folder: Path) -> None:
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._folders: dict[int, Path] = {}
        for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            self._add(place)

    def _add(self, folder: Path) -> None:
        number = _libc.inotify_add_watch(self._fd, os.fsencode(folder), _MODIFY | _MOVED_TO | _CREATE)
        if number >= 0:
            self._folders[number] = folder

    async def kill(self, pid: int, change: int, seconds: float) -> bool:
        """Kill `pid` at the change with this number, from 0; False where there were fewer within that time."""
        return await asyncio.to_thread(self._kill, pid, change, time.monotonic() + seconds)

    def _kill(self, pid: int, change: int, deadline: float) -> bool:
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self._fd], [], [], left)[0]:
                break
            data = os.read(self._fd, 65536)
            at = 0
            while at < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
                at += _EVENT.size + length
                if mask & _IS_FOLDER:
                    self._add(self._folders[number] / os.fsdecode(name))
                elif change:
                    change -= 1
                else:
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    def close(self) -> None:
        os.close(self._fd)
