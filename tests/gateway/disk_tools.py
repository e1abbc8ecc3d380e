"""Real trouble for tests of what is on disk: a limit on file sizes, a small disk, counters of the kernel, who may read what."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from gateway.writer import Fence, Result, Writer


def nothing(_: bytes) -> bool:
    return False


def everything(_: bytes) -> bool:
    return True


class Disk(Writer):
    """A disk that has no room for what it `refuses`, and that is slow while it has a `gate`."""

    def __init__(self, refuses: Callable[[bytes], bool] = nothing) -> None:
        super().__init__()
        self.refuses = refuses
        self.gate: asyncio.Event | None = None
        self._slow: set[asyncio.Task[None]] = set()

    def submit(
        self,
        path: Path,
        data: bytes,
        settled: Callable[[Result], None],
        *,
        journal: bool = False,
        ahead: bool = False,
        behind: bool = False,
        create: bool = True,
        fence: Fence | None = None,
    ) -> None:
        told = partial(self._tell_later, self.gate, settled) if self.gate is not None else settled
        if self.refuses(data):  # in its turn, as by a real one
            no_room = OSError(errno.ENOSPC, "no room", str(path))
            super().submit(path, b"", lambda _: told(no_room), journal=journal, ahead=ahead, behind=behind)
            return
        super().submit(path, data, told, journal=journal, ahead=ahead, behind=behind, create=create, fence=fence)

    def _tell_later(self, gate: asyncio.Event, settled: Callable[[Result], None], result: Result) -> None:
        async def tell() -> None:
            await gate.wait()
            settled(result)

        task = asyncio.get_running_loop().create_task(tell())
        self._slow.add(task)
        task.add_done_callback(self._slow.discard)


async def under_way() -> None:
    """Until what was appended just now is on its way to the disk: what follows is in the next batch."""
    for _ in range(2):
        await asyncio.sleep(0)


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes: a write that would comes short, the next one is EFBIG. The kernel does it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """A disk of `size` bytes, mounted at `place`. Skips the test where nobody may mount."""
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("may not mount a tmpfs here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Use up every byte that is left; gives the file that does, for removal."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    return ballast


def counter(name: str) -> int:
    """A counter of this process from `/proc/self/io`: `rchar`, bytes read; `syscr`, `syscw`, calls to read and write."""
    for line in Path("/proc/self/io").read_text().splitlines():
        key, _, value = line.partition(": ")
        if key == name:
            return int(value)
    raise AssertionError(name)


def open_to_others(place: Path) -> list[str]:
    """Everything at and under `place` that somebody else has any right to."""
    found = [place, *place.rglob("*")]
    return [f"{path} {oct(mode)}" for path in found if (mode := stat.S_IMODE(os.lstat(path).st_mode)) & 0o077]


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
