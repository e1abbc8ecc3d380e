"""Files of lines: reading them from either end, and repairing a torn tail (rule 7).

A line is bytes up to and with `\\n`; nothing else ends one. What a line means is the caller's. Everything here blocks, and reads at most a
block more than it gives out. Called by `gateway.store`, `gateway.segments` and the access log, off the loop.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from channels.failpoints import reach
from gateway.disk import open_or_create, open_private, write_all
from gateway.metrics import Damage

log = structlog.get_logger(__name__)

BLOCK = 64 * 1024
"""What one read takes; the first one from behind is smaller, since the last line is often all that is wanted."""

_FIRST = 4 * 1024

UNREADABLE = (ValueError, RecursionError)
"""What decoding a damaged line raises: msgspec's errors and UnicodeDecodeError are ValueErrors; deep nesting is a RecursionError."""

_FRAGMENT = 16 * 1024 * 1024
"""A longer piece without newline is not parsed: it cannot be one of our lines."""

_any = msgspec.json.Decoder()


class Line(NamedTuple):
    offset: int
    data: bytes
    """With its newline."""


def read_exactly(fd: int, size: int, offset: int) -> bytes:
    """Raises OSError where the file ends before: somebody cut it while it was read."""
    data = os.pread(fd, size, offset)
    while len(data) < size:
        more = os.pread(fd, size - len(data), offset + len(data))
        if not more:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        data += more
    return data


def backwards(fd: int, end: int, start: int = 0) -> Iterator[Line]:
    """The lines of `[start, end)`, newest first. Both ends are line borders. Reads in blocks, and only as far as it is asked."""
    position = end
    pieces: list[bytes] = []
    """The line that is being put together, its last piece first. It is joined once, so that a long line costs no more than its length."""
    while position > start:
        size = min(BLOCK if position < end else _FIRST, position - start)
        position -= size
        block = read_exactly(fd, size, position)
        cut = size
        while (newline := block.rfind(b"\n", 0, cut)) >= 0:
            pieces.append(block[newline + 1 : cut])
            if any(pieces):
                yield Line(position + newline + 1, b"".join(reversed(pieces)))
            pieces = [b"\n"]
            cut = newline
        pieces.append(block[:cut])
    if any(pieces):
        yield Line(start, b"".join(reversed(pieces)))


def forwards(fd: int, end: int, start: int = 0) -> Iterator[Line]:
    """The lines of `[start, end)`, oldest first; a last one without newline is left out."""
    position, offset = start, start
    pieces: list[bytes] = []
    while position < end:
        block = read_exactly(fd, min(4 * BLOCK, end - position), position)
        position += len(block)
        cut = 0
        while (newline := block.find(b"\n", cut)) >= 0:
            pieces.append(block[cut : newline + 1])
            data = b"".join(pieces)
            yield Line(offset, data)
            offset += len(data)
            pieces = []
            cut = newline + 1
        pieces.append(block[cut:])


def whole_lines(fd: int, size: int, start: int = 0) -> int:
    """Where the last whole line of `[start, size)` ends; `start` if none does."""
    position = size
    while position > start:
        count = min(BLOCK if position < size else _FIRST, position - start)
        position -= count
        newline = read_exactly(fd, count, position).rfind(b"\n")
        if newline >= 0:
            return position + newline + 1
    return start


def is_record(data: bytes) -> bool:
    """Whether these bytes are one whole JSON object."""
    try:
        return isinstance(_any.decode(data), dict)
    except UNREADABLE:
        return False


def repair_tail(path: Path, damage: Damage | None = None) -> int:
    """Make the file end with a whole line, and give its size. By the holder of the folder's lock, before anything is appended to it.

    A last fragment that is a whole record only lacks its newline, and gets it. Any other goes to `NAME.torn`, then the file is cut before
    it. Killed in between, it is set aside twice, never lost. A repair is synced: what is appended behind it is logged by its place
    (`gateway.redo`). Raises FileNotFoundError, OSError.
    """
    fd = open_private(path, os.O_RDWR)
    try:
        size = os.fstat(fd).st_size
        good = whole_lines(fd, size)
        if good == size:
            return size
        if size - good <= _FRAGMENT and is_record(read_exactly(fd, size - good, good)):
            os.pwrite(fd, b"\n", size)
            os.fdatasync(fd)
            return size + 1
        reach("repair before", path)
        set_aside(fd, good, size, path.with_suffix(".torn"))
        reach("repair between", path)
        os.ftruncate(fd, good)
        os.fdatasync(fd)
        reach("repair after", path)
        if damage is not None:
            damage.torn()
        log.warning("torn tail set aside", file=str(path), offset=good, bytes=size - good)
        return good
    finally:
        os.close(fd)


def set_aside(fd: int, start: int, end: int, torn: Path) -> None:
    """Append the bytes `[start, end)` of `fd` to `torn`, and a newline. Raises OSError, with `torn` as it was."""
    out = open_or_create(torn, os.O_WRONLY | os.O_APPEND)
    before = os.fstat(out).st_size
    try:
        for position in range(start, end, BLOCK):
            write_all(out, read_exactly(fd, min(BLOCK, end - position), position))
        write_all(out, b"\n")
    except OSError:
        os.ftruncate(out, before)
        raise
    finally:
        os.close(out)
