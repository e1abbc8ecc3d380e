"""Frames of the power log: what they look like, and putting what they say back into the files that they are about. Blocks.

    {"file":"sessions/telegram/12345/main.jsonl","at":8123,"bytes":310,"sum":"9f86d081884c7d65"}
    ...310 bytes of lines, as they stand in that file from byte 8123 on...

A frame is decided by where it stands, not by what it means: the bytes that are in their place already are left alone, so that doing it
twice changes nothing. Of two frames about one place the later one holds: the earlier append had failed. A frame of 0 bytes says just that.

`recover` is called at every start, by the holder of the folder's lock, before anything else is read, whatever `durability` is set to.
`again` is `gateway.power`'s, after a sync that failed.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec
import structlog

from gateway.disk import REPLACED, open_or_create, open_private, sync_file, sync_folder, write_all
from gateway.errors import StartError
from gateway.lines import UNREADABLE, forwards, is_record, read_exactly, set_aside
from gateway.metrics import Damage

log = structlog.get_logger(__name__)

FOLDER = "power"
SEGMENT = re.compile(r"[0-9]{6,}\.jsonl")
_START = b'{"file":'


class _Head(msgspec.Struct, frozen=True):
    file: str
    at: int
    bytes: int
    sum: str


_head = msgspec.json.Decoder(_Head)
_encode = msgspec.json.Encoder().encode


class Frame(NamedTuple):
    """`data` stands in `file` (below the data folder, with `/`) from byte `at` on."""

    file: str
    at: int
    data: bytes

    def encode(self) -> bytes:
        return b"".join((_encode(_Head(self.file, self.at, len(self.data), _sum(self.file, self.at, self.data))), b"\n", self.data))


def _sum(file: str, at: int, data: bytes) -> str:
    digest = blake2b(f"{file}\0{at}\0".encode(), digest_size=8)
    digest.update(data)
    return digest.hexdigest()


class Read(NamedTuple):
    """The frames of one segment that are whole, and the pieces between and behind them that are none."""

    frames: list[Frame]
    pieces: list[bytes]


def read_frames(data: bytes) -> Read:
    """Pure. What a power cut left of the last batch is a piece at the end; behind one in the middle the next frame is looked for."""
    frames: list[Frame] = []
    pieces: list[bytes] = []
    position = 0
    while position < len(data):
        frame, end = _frame(data, position)
        if frame is not None:
            frames.append(frame)
        else:
            found = data.find(b"\n" + _START, position)
            end = found + 1 if found >= 0 else len(data)
            pieces.append(data[position:end])
        position = end
    return Read(frames, pieces)


def _frame(data: bytes, position: int) -> tuple[Frame | None, int]:
    newline = data.find(b"\n", position)
    if newline < 0 or not data.startswith(_START, position):
        return None, position
    try:
        head = _head.decode(data[position:newline])
    except UNREADABLE:
        return None, position
    end = newline + 1 + head.bytes
    body = data[newline + 1 : end]
    place = PurePosixPath(head.file)
    whole = len(body) == head.bytes >= 0 <= head.at and head.sum == _sum(head.file, head.at, body)
    if not whole or place.is_absolute() or ".." in place.parts:
        return None, position
    return Frame(head.file, head.at, body), end


def runs(frames: Iterable[Frame]) -> dict[str, list[tuple[int, bytes]]]:
    """What the frames come to: for each file stretches without a gap, each with its place, in ascending order. Pure."""
    found: dict[str, list[tuple[int, list[bytes], int]]] = {}
    for frame in frames:
        stretches = found.setdefault(frame.file, [])
        while stretches and stretches[-1][0] >= frame.at and stretches[-1][2]:
            stretches.pop()  # an append that failed, and all that was thought to stand behind it
        if stretches and stretches[-1][2] > frame.at:
            start, parts, _ = stretches[-1]
            stretches[-1] = (start, [b"".join(parts)[: frame.at - start]], frame.at)
        if frame.data and stretches and stretches[-1][2] == frame.at:
            start, parts, _ = stretches[-1]
            parts.append(frame.data)
            stretches[-1] = (start, parts, frame.at + len(frame.data))
        elif frame.data:
            stretches.append((frame.at, [frame.data], frame.at + len(frame.data)))
    return {file: [(start, b"".join(parts)) for start, parts, _ in stretches] for file, stretches in found.items() if stretches}


# ------------------------------------------------------------------------------------------------------------------------- segments


def segments(folder: Path) -> list[Path]:
    """The segments of the log, oldest first."""
    with suppress(FileNotFoundError):
        return [folder / name for name in sorted(os.listdir(folder), key=lambda name: (len(name), name)) if SEGMENT.fullmatch(name)]
    return []


def read_segment(path: Path) -> Read:
    fd = open_private(path, os.O_RDONLY)
    try:
        return read_frames(read_exactly(fd, os.fstat(fd).st_size, 0))
    finally:
        os.close(fd)


def recover(root: Path, damage: Damage | None = None) -> None:
    """Bring what the power log holds into the files below `root`, sync them, and do away with the log. Raises StartError."""
    folder = root / FOLDER
    try:
        left = segments(folder)
        if left:
            _recover(root, folder, left, damage or Damage())
    except OSError as error:
        raise StartError(f"{error.filename or folder}: what a power cut left cannot be put back: {error.strerror}") from error


def _recover(root: Path, folder: Path, left: list[Path], damage: Damage) -> None:
    frames: list[Frame] = []
    for path in left:
        read = read_segment(path)
        frames += read.frames
        for piece in read.pieces:
            _keep(folder / f"{path.stem}.torn", piece)
            damage.torn()
            log.warning("torn piece of the power log set aside", file=str(path), bytes=len(piece))
    restored = 0
    for file, stretches in runs(frames).items():
        for start, data in stretches:
            try:
                restored += _put_back(root / file, start, data, damage)
                _sync(root, root / file)
            except FileNotFoundError:
                continue  # deleted since: before a file goes, it is taken out of the log
            except OSError as error:
                if error.errno not in REPLACED:
                    raise
                _keep(folder / f"{left[-1].stem}.bad", Frame(file, start, data).encode())
                damage.bad(data.count(b"\n"))
                log.error("lines of the power log fit nowhere, kept", file=file, offset=start, bytes=len(data), why=error.strerror)
    for path in left:
        os.unlink(path)
    sync_folder(folder)
    if restored:
        log.info("put back from the power log", files=restored)


def _put_back(path: Path, start: int, data: bytes, damage: Damage) -> bool:
    """Whether anything had to be written. What stands there instead, and a tail behind it that is no lines, goes to `NAME.torn` first.
    Raises FileNotFoundError, OSError (EINVAL where the file ends before that place)."""
    fd = open_private(path, os.O_RDWR) if start else open_or_create(path, os.O_RDWR, durable=True)
    try:
        size = os.fstat(fd).st_size
        if size < start:
            raise OSError(errno.EINVAL, f"the file ends at {size}", str(path))
        there = read_exactly(fd, min(len(data), size - start), start)
        if there != data:
            same = next((n for n, (one, other) in enumerate(zip(there, data, strict=False)) if one != other), len(there))
            _cut(fd, start + same, size, path, damage)
            _write_at(fd, data[same:], start + same)
            return True
        for line in forwards(fd, size, start + len(data)):
            if not is_record(line.data):  # never acknowledged, and come to the medium in part
                _cut(fd, line.offset, size, path, damage)
                break
        return False
    finally:
        os.close(fd)


def _cut(fd: int, good: int, size: int, path: Path, damage: Damage) -> None:
    """The file ends at `good`; what stood behind it is set aside, unless it is only what an unwritten page reads as."""
    if size > good:
        if read_exactly(fd, size - good, good).strip(b"\0"):
            set_aside(fd, good, size, path.with_suffix(".torn"))
            damage.torn()
            log.warning("torn tail set aside", file=str(path), offset=good, bytes=size - good)
        os.ftruncate(fd, good)


def _write_at(fd: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, position)
        view, position = view[count:], position + count


def _keep(path: Path, piece: bytes) -> None:
    fd = open_or_create(path, os.O_WRONLY | os.O_APPEND)
    try:
        write_all(fd, piece if piece.endswith(b"\n") else piece + b"\n")
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync(root: Path, path: Path) -> None:
    """The file and the folders that lead to it."""
    sync_file(path)
    sync_folders(root, path)


def sync_folders(root: Path, path: Path) -> None:
    """The folders from `root` to the file at `path`: its name is on the medium then."""
    for place in (path.parent, *path.parent.parents):
        sync_folder(place)
        if place == root:
            return


def again(root: Path, paths: Iterable[Path]) -> None:
    """Write what these segments hold into the files once more, so that it is synced once more: after a sync that failed the kernel may
    take pages for written that are not. The writer may append to the files meanwhile. Raises OSError."""
    for file, stretches in runs(frame for path in paths for frame in read_segment(path).frames).items():
        try:
            fd = open_private(root / file, os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            for start, data in stretches:
                _write_at(fd, data, start)
            os.fdatasync(fd)
        finally:
            os.close(fd)


def drop_pieces(folder: Path) -> Iterator[Path]:
    """Delete what was set aside from the log; gives what went."""
    for path in (*folder.glob("*.torn"), *folder.glob("*.bad")):
        path.unlink(missing_ok=True)
        yield path
