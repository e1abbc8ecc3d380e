"""Segments of the inbox's journal as files: the blocking work on them. No loop, no memory: `gateway.journal`, the only caller, has both.

    journal/000042.jsonl    a segment: one record a line (`gateway.records`)
    journal/000042.ids      its sidecar, once nothing is written to it any more: enough to start without reading it
    journal/000042.torn     fragments that a crash left at its end

A sidecar is derived: one that is missing or damaged is made anew from its segment, which alone is the truth.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import structlog

from channels.failpoints import reach
from gateway.disk import NEW, make_folder, new_file, open_private, sync_folder, tighten, write_all
from gateway.lines import UNREADABLE, forwards, read_exactly, repair_tail
from gateway.metrics import Damage
from gateway.records import ACCEPTED, FINISHED, SET_ASIDE, Aside, Ended, Facts, Held, Opened, Record, Sealed, decode_record, mark

log = structlog.get_logger(__name__)

_SEGMENT = re.compile(r"([0-9]{6,})\.jsonl")


def scan(path: Path, *, tell: bool, damage: Damage | None = None) -> Iterator[Record]:
    """The records of a segment. Lines that are none are passed over, and `tell`ed of at the end; a last one without newline is not there
    yet."""
    bad, first = 0, 0
    fd = open_private(path, os.O_RDONLY)
    try:
        for line in forwards(fd, os.fstat(fd).st_size):
            try:
                yield decode_record(line.data)
            except UNREADABLE:
                if line.data.strip():
                    bad, first = bad + 1, first if bad else line.offset
    finally:
        os.close(fd)
    if bad and tell and damage is not None:
        damage.bad(bad)
    if bad and tell:
        log.warning("bad lines passed over", file=str(path), lines=bad, offset=first)


def gather(path: Path, damage: Damage | None = None) -> Facts:
    facts = Facts()
    for record in scan(path, tell=True, damage=damage):
        facts.add(record)
    return facts


def sidecar(path: Path) -> Path:
    return path.with_suffix(".ids")


def read_sidecar(path: Path, *, look: bool = False) -> Sealed | None:
    """The facts of the segment `path`, None where they have to be gathered. A damaged sidecar is put aside, not lost; with `look` nothing
    is changed."""
    place = sidecar(path)
    try:
        fd = open_private(place, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        if not look:
            _put_aside(place, error)
        return None
    try:
        sealed = Sealed.decode(read_exactly(fd, os.fstat(fd).st_size, 0))
    except (OSError, *UNREADABLE) as error:
        if not look:
            _put_aside(place, error)
        return None
    finally:
        os.close(fd)
    return sealed if sealed.size == os.stat(path).st_size else None  # the segment was blanked, and then the daemon killed


def _put_aside(place: Path, error: Exception) -> None:
    log.warning("damaged sidecar put aside, made anew from its segment", file=str(place), why=str(error))
    with suppress(OSError):
        os.replace(place, place.with_suffix(".ids.bad"))


def write_sidecar(path: Path, sealed: Sealed, *, durable: bool = False) -> None:
    """A full disk is no harm: the next start gathers the facts from the segment."""
    try:
        with new_file(sidecar(path), replace=True, durable=durable) as fd:
            write_all(fd, sealed.encode())
    except OSError as error:
        log.warning("no sidecar written", file=str(path), why=str(error))


def rewrite(path: Path, change: Callable[[bytes, Record | None], bytes], *, durable: bool = False) -> bool:
    """Each line replaced by what `change` makes of it, in a copy that takes the segment's place; False where nothing changes."""
    old: list[bytes] = []
    new: list[bytes] = []
    fd = open_private(path, os.O_RDONLY)
    try:
        for line in forwards(fd, os.fstat(fd).st_size):
            try:
                record: Record | None = decode_record(line.data)
            except UNREADABLE:
                record = None
            old.append(line.data)
            new.append(change(line.data, record))
    finally:
        os.close(fd)
    if old == new:
        return False
    with new_file(path, replace=True, durable=durable) as out:
        write_all(out, b"".join(new))
    return True


class Loaded(NamedTuple):
    number: int
    path: Path
    facts: Facts
    sealed: Sealed


def load(folder: Path, *, look: bool = False, durable: bool = False, damage: Damage | None = None) -> list[Loaded]:
    """All segments, oldest first, repaired. Reads the newest one, and those without a good sidecar, which get one. With `look` nothing is
    repaired and nothing written: for whoever does not hold the folder's lock."""
    if not look:
        make_folder(folder, durable=durable)
        tighten(folder, lambda path: path.unlink() if path.name.startswith(NEW) else None)
    numbers = sorted((int(match[1]), name) for name in os.listdir(folder) if (match := _SEGMENT.fullmatch(name)))
    kept = {Path(name).stem for _, name in numbers}
    for name in os.listdir(folder) if not look else ():
        if name.endswith(".ids") and name[:-4] not in kept:  # its segment was deleted, and then the daemon killed
            (folder / name).unlink(missing_ok=True)
    loaded: list[Loaded] = []
    for number, name in numbers:
        path = folder / name
        newest = number == numbers[-1][0]
        sealed = None if newest else read_sidecar(path, look=look)
        facts = Facts()
        if sealed is None:
            size = os.stat(path).st_size if look else repair_tail(path, damage)
            facts = gather(path, damage)
            if not facts.last:  # nothing readable in it: what was set aside from it still has its time
                facts.last = os.stat(path).st_mtime
            sealed = facts.seal(size)
            if not newest and not look:
                write_sidecar(path, sealed, durable=durable)
        loaded.append(Loaded(number, path, facts, sealed))
    return loaded


def unfinished(loaded: Sequence[Loaded]) -> tuple[dict[int, int], list[Record]]:
    """Open inputs with the place in `loaded` of the segment that accepted them, and all records about them, in order, with the daemon's
    own beginnings and ends. Reads only the segments that speak of one."""
    where: dict[int, int] = {}
    for place, segment in enumerate(loaded):
        for seen, flags in segment.sealed.marks():
            if flags & ACCEPTED:
                where[seen] = place
            if flags & FINISHED:
                where.pop(seen, None)
    records: list[Record] = []
    for place, segment in enumerate(loaded):
        if any(where.get(seen, place + 1) <= place for seen in segment.sealed.hashes):
            found = scan(segment.path, tell=not segment.facts.marks)  # once a start: gathering its facts told already
            records += (record for record in found if _told(record) or (record.id and where.get(mark(record.id), place + 1) <= place))
    return where, records


def _told(record: Record) -> bool:
    return isinstance(record, Opened | Ended | Held)


def set_aside(loaded: Sequence[Loaded]) -> list[Aside]:
    """What was set aside, oldest first. Reads only the segments that tell of such."""
    telling = (segment for segment in loaded if any(flags & SET_ASIDE for flags in segment.sealed.flags))
    return [record for segment in telling for record in scan(segment.path, tell=False) if isinstance(record, Aside)]


def delete(path: Path) -> None:
    """The segment first: a sidecar alone is seen as such and removed, a segment alone would come back to life."""
    reach("segment delete before")
    for each in (path, sidecar(path), path.with_suffix(".ids.bad"), path.with_suffix(".torn")):
        with suppress(FileNotFoundError):
            os.unlink(each)
            reach("segment delete between")
    reach("segment delete after")


def drop_torn(folder: Path, *, durable: bool = False) -> None:
    for path in folder.glob("*.torn"):
        path.unlink(missing_ok=True)
    if durable:
        sync_folder(folder)
