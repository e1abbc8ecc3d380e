"""The data folder: whose it is, who may read it, and what in it is damaged. Changes nothing. Called by `gateway.doctor`. Blocks."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gateway.disk import NEW, open_private
from gateway.doctor.findings import Finding, note, ok, wrong
from gateway.errors import Corrupt
from gateway.lines import UNREADABLE, forwards
from gateway.message import decode_event
from gateway.records import decode_record
from gateway.store.files import GONE, read_owner
from gateway.words import counted

_SHOWN = 3
_BLOCK = 1 << 20


@dataclass(slots=True)
class Seen:
    """What a walk through the folder counted."""

    files: int = 0
    open: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    torn: int = 0
    torn_lines: int = 0
    aside: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)
    damaged: dict[str, int] = field(default_factory=dict)
    """File -> lines in it that are none; of the journal, and of sessions where they are read whole."""


def examine(folder: Path, *, deep: bool, tell: Callable[[str], None], here: bool = False) -> Iterator[Finding]:
    """`deep`: read sessions whole. `tell` is called with what is being done, now and then. `here`: nobody says where the folder is, so that
    it is below the one where we are."""
    try:
        info = folder.stat()
    except FileNotFoundError:
        made = "a start from here makes it; from elsewhere it is ./data there, under the unit /var/lib/parlour" if here else ""
        yield note("data", f"{folder} is not there yet", made or "the first start makes it")
        return
    except OSError as error:
        yield wrong("data", f"{folder} cannot be looked at: {error.strerror}", "run this as root, or as the user that the daemon runs as")
        return
    if not stat.S_ISDIR(info.st_mode):
        yield wrong("data", f"{folder} is no folder", "move it away, or set data_dir")
        return
    if not os.access(folder, os.R_OK | os.X_OK):
        yield wrong("data", f"{folder} is not for our eyes", "run this as root, or as the user that the daemon runs as")
        return
    if info.st_mode & 0o077 and not info.st_mode & stat.S_ISVTX:
        yield wrong("data", f"others may look into {folder}", f"chmod 700 {folder}")
    seen = Seen()
    _walk(folder, info.st_uid, seen, deep, tell)
    yield from _told(folder, seen, deep)


def _walk(folder: Path, owner: int, seen: Seen, deep: bool, tell: Callable[[str], None]) -> None:
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(place, name)
            try:
                info = path.lstat()
            except FileNotFoundError:
                continue
            if info.st_uid != owner:
                seen.foreign.append(str(path))
            if stat.S_ISLNK(info.st_mode):
                seen.links.append(str(path))
                continue
            if info.st_mode & 0o077 and not stat.S_ISSOCK(info.st_mode):
                seen.open.append(str(path))
            if stat.S_ISREG(info.st_mode):
                seen.files += 1
                if seen.files % 100 == 0:
                    tell(counted(seen.files, "file"))
                try:
                    _file(folder, path, seen, deep, tell)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    seen.unreadable.append(f"{path}: {error.strerror}")


def _file(folder: Path, path: Path, seen: Seen, deep: bool, tell: Callable[[str], None]) -> None:
    parts = path.relative_to(folder).parts
    if path.name.startswith((NEW, GONE)):
        return
    if path.suffix == ".torn":
        seen.torn += 1
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                seen.torn_lines += block.count(b"\n")
    elif parts[0] == "power" and path.suffix == ".bad":
        seen.unplaced.append(str(path))
    elif path.name.endswith(".ids.bad"):
        seen.aside.append(str(path))
    elif parts[0] == "journal" and path.suffix == ".jsonl":
        _lines(path, decode_record, seen)
    elif parts[0] == "sessions" and path.suffix == ".jsonl" and len(parts) == 4 and path.name != "_chat.jsonl":
        try:
            start = read_owner(path)[1]
        except Corrupt as error:
            seen.unreadable.append(str(error))
            return
        if deep:
            tell(path.name)
            _lines(path, decode_event, seen, start)


def _lines(path: Path, decode: Callable[[bytes], object], seen: Seen, start: int = 0) -> None:
    fd = open_private(path, os.O_RDONLY)
    try:
        for line in forwards(fd, os.fstat(fd).st_size, start):
            try:
                decode(line.data)
            except UNREADABLE:
                if line.data.strip():
                    seen.damaged[str(path)] = seen.damaged.get(str(path), 0) + 1
    finally:
        os.close(fd)


def _told(folder: Path, seen: Seen, deep: bool) -> Iterator[Finding]:
    if seen.foreign:
        yield wrong("data", f"not of the same owner as {folder}: {_some(seen.foreign)}", f"chown -R --reference={folder} {folder}")
    if seen.open:
        yield wrong("data", f"others may read {_some(seen.open)}", f"chmod -R go= {folder}")
    if seen.links:
        yield wrong("data", f"links are not followed: {_some(seen.links)}", "put the files themselves there")
    if seen.unreadable:
        yield wrong(
            "sessions",
            f"cannot be read: {_some(seen.unreadable)}",
            "they are left as they are; restore them from a backup, or move them away",
        )
    if seen.damaged:
        lines = sum(seen.damaged.values())
        yield wrong(
            "sessions" if all("/sessions/" in path for path in seen.damaged) else "journal",
            f"{counted(lines, 'damaged line')} in {_some(list(seen.damaged))}",
            "passed over; whoever edits files by hand keeps each line JSON",
        )
    if seen.unplaced:
        yield wrong(
            "power log",
            f"acknowledged lines that fit nowhere: {_some(seen.unplaced)}",
            "the file that each belongs to was cut or replaced by hand; put its lines back, or delete what is not wanted",
        )
    if seen.aside:
        yield note("journal", f"put aside: {_some(seen.aside)}", "made anew from its segment; may be deleted")
    if seen.torn:
        yield note(
            "sessions",
            f"{counted(seen.torn, '.torn file')} with {counted(seen.torn_lines, 'piece')} of lines that crashes cut off",
            "nothing that was acknowledged is in there; may be deleted",
        )
    if not (seen.foreign or seen.open or seen.links or seen.unreadable or seen.damaged):
        yield ok("data", f"{folder}, {counted(seen.files, 'file')}{', read whole' if deep else ''}")


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return f"{', '.join(sorted(paths)[:_SHOWN])}{more}"
