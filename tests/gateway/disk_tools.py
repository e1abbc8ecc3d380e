"""Real trouble for tests of what is on disk: a limit on file sizes, a small disk, counters of the kernel, who may read what."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


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
