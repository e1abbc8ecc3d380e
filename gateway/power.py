"""The power log: `durability = "power"`. What an append returns for is on the medium, for one sync a batch.

Appends go to their own files as ever, which are not synced, and a copy of the whole batch goes to one segment of this log, which is. A
power cut takes what it likes of the files; at the next start `gateway.redo` puts it back from here, by its place in each file. That needs
everything *before* that place to be on the medium: so the whole folder is synced at the start (`begin`), new files and their names when
they are made, repairs when they are done.

A segment that is full is done away with beside the appends: its files are synced, then it is deleted. Before a file goes or is replaced,
the log is emptied the same way (`empty`), so that nothing here can bring it back, and nobody's words stay behind.

`record` is called in the writer's thread, `retire` and `empty` in one of their own. Owned by `gateway.writer`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from gateway.disk import REPLACED, make_folder, open_or_create, sync_all, sync_file, sync_folder, write_all
from gateway.errors import StartError
from gateway.metrics import Damage
from gateway.redo import FOLDER, Frame, again, drop_pieces, recover, segments, sync_folders

log = structlog.get_logger(__name__)

ROTATE = 4 * 1024 * 1024
MOST = 8
"""Segments that may wait to be done away with. Then the appends wait too: what a start has to put back is bounded."""


def begin(root: Path, damage: Damage | None = None, *, durable: bool) -> None:
    """At every start, before anything in the data folder is read: put back what a power cut took; with `durable`, see to it that whatever
    is found is on the medium, who or whatever wrote it. Raises StartError."""
    recover(root, damage)
    if durable:
        try:
            sync_all(root)
        except OSError as error:
            raise StartError(f"{root}: cannot be synced: {error.strerror}") from error


class _Segment:
    __slots__ = ("files", "made", "path", "size")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.files: set[Path] = set()
        self.made: set[Path] = set()
        """Those of `files` that began in this segment: their names are to be synced as well."""


class PowerLog:
    """The log of the data folder `root`, after `begin`."""

    def __init__(self, root: Path, *, rotate_bytes: int = ROTATE) -> None:
        self._root, self._folder, self._rotate_bytes = root, root / FOLDER, rotate_bytes
        self._lock = threading.Lock()
        """Guards the segments. Held while one is written to; never while a file of somebody else is synced."""
        self._retiring = threading.Lock()
        """One retirement at a time. Taken before `_lock`."""
        self._number = 0
        self._current: _Segment | None = None
        self._done: list[_Segment] = []
        self._void: dict[str, int] = {}
        """Appends of which nobody knows whether the log has them, and that failed: the next batch says so."""
        self._failed = False
        """The last retirement could not sync a file."""

    @property
    def due(self) -> bool:
        """There is something to retire."""
        return bool(self._done)

    # ------------------------------------------------------------------------------------------------------------------- writing

    def record(self, written: Sequence[tuple[Path, int, bytes]]) -> None:
        """These bytes were appended, each to its file at its place. On the medium when it returns; where it raises OSError they must be
        taken back."""
        if len(self._done) >= MOST and not self._failed:
            with suppress(OSError):
                self.retire()
        frames = [Frame(self._below(path), at, data) for path, at, data in written]
        with self._lock:
            segment = self._current or self._begin()
            data = b"".join(frame.encode() for frame in (*(Frame(file, at, b"") for file, at in self._void.items()), *frames))
            try:
                self._write(segment, data)
            except OSError:
                for frame in reversed(frames):
                    self._void[frame.file] = frame.at
                raise
            self._void.clear()
            segment.size += len(data)
            for path, at, _ in written:
                segment.files.add(path)
                if not at:
                    segment.made.add(path)
            if segment.size >= self._rotate_bytes:
                self._close()

    def _below(self, path: Path) -> str:
        """As `relative_to`, which takes longer than the rest of a frame."""
        text, root = str(path), f"{self._root}{os.sep}"
        assert text.startswith(root), text
        return text[len(root) :]

    def _begin(self) -> _Segment:
        if not self._number:
            make_folder(self._folder, durable=True)
            self._number = max((int(path.stem) for path in segments(self._folder)), default=0)
        self._number += 1
        self._current = _Segment(self._folder / f"{self._number:06d}.jsonl")
        return self._current

    def _write(self, segment: _Segment, data: bytes) -> None:
        fd = open_or_create(segment.path, os.O_WRONLY | os.O_APPEND, durable=True)
        good = False
        try:
            try:
                write_all(fd, data)
            except OSError:
                os.ftruncate(fd, segment.size)
                good = True
                raise
            os.fdatasync(fd)
            if not segment.size:
                sync_folder(self._folder)
            good = True
        finally:
            os.close(fd)
            if not good:  # after a sync that failed nobody knows what of it is where: this segment is not written to again
                self._close()
                with suppress(OSError):
                    os.truncate(segment.path, segment.size)

    def _close(self) -> None:
        if self._current is not None:
            self._done.append(self._current)
            self._current = None

    # ------------------------------------------------------------------------------------------------------------------ retirement

    def retire(self, *, everything: bool = False) -> None:
        """Sync the files of the segments that are full, or of all that there are, and delete those. Raises OSError; what could not be
        synced is written once more the next time."""
        with self._retiring:
            with self._lock:
                if everything:
                    self._close()
                done = list(self._done)
            if not done:
                return
            try:
                if self._failed:
                    again(self._root, segments(self._folder))
                for path in set().union(*(segment.files for segment in done)):
                    self._sync(path, made=any(path in segment.made for segment in done))
                for segment in done:
                    with suppress(FileNotFoundError):  # its first write failed before there was a file
                        os.unlink(segment.path)
                sync_folder(self._folder)
            except OSError as error:
                if not self._failed:
                    log.error("cannot sync, the power log grows", file=str(error.filename or self._folder), error=error.strerror)
                self._failed = True
                raise
            if self._failed:
                log.info("synced again")
            self._failed = False
            with self._lock:
                self._done = [segment for segment in self._done if segment not in done]

    def _sync(self, path: Path, *, made: bool) -> None:
        try:
            sync_file(path)
            if made:
                sync_folders(self._root, path)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in REPLACED:
                error.filename = str(path)
                raise

    def empty(self) -> None:
        """Nothing that was appended before this call is in the log any more, nor in what was set aside from it. Raises OSError."""
        self.retire(everything=True)
        if self._folder.is_dir() and list(drop_pieces(self._folder)):
            sync_folder(self._folder)
