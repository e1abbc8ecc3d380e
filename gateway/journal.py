"""The inbox's journal on disk: segments, their rotation, their sidecars, and the end of old ones.

    journal/000042.jsonl    a segment: one record a line (`gateway.records`)
    journal/000042.ids      its sidecar, once nothing is written to it any more: enough to start without reading it
    journal/000042.torn     fragments that a crash left at its end

It knows which inputs are open and which were seen, by their hash; what an input is and what its states are is `gateway.inbox`'s, the only
caller. A sidecar is derived: one that is missing or damaged is made anew from its segment, which alone is the truth.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from gateway.disk import NEW, make_folder, new_file, open_private, tighten, write_all
from gateway.lines import UNREADABLE, forwards, read_exactly, repair_tail
from gateway.records import ACCEPTED, DAY, FINISHED, Accepted, Facts, Finished, Record, Refused, Sealed, decode_record, encode_record, mark
from gateway.threads import Threads
from gateway.writer import Writer

log = structlog.get_logger(__name__)

ROTATE = 8 * 1024 * 1024
_SEGMENT = re.compile(r"([0-9]{6,})\.jsonl")

# ------------------------------------------------------------------------------------------------------- one segment, off the loop


def scan(path: Path, *, tell: bool) -> Iterator[Record]:
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
    if bad and tell:
        log.warning("bad lines passed over", file=str(path), lines=bad, offset=first)


def gather(path: Path) -> Facts:
    facts = Facts()
    for record in scan(path, tell=True):
        facts.add(record)
    return facts


def sidecar(path: Path) -> Path:
    return path.with_suffix(".ids")


def read_sidecar(path: Path) -> Sealed | None:
    """The facts of the segment `path`, None where they have to be gathered. A damaged sidecar is put aside, not lost."""
    place = sidecar(path)
    try:
        fd = open_private(place, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        _put_aside(place, error)
        return None
    try:
        sealed = Sealed.decode(read_exactly(fd, os.fstat(fd).st_size, 0))
    except (OSError, *UNREADABLE) as error:
        _put_aside(place, error)
        return None
    finally:
        os.close(fd)
    return sealed if sealed.size == os.stat(path).st_size else None  # the segment was blanked, and then the daemon killed


def _put_aside(place: Path, error: Exception) -> None:
    log.warning("damaged sidecar put aside, made anew from its segment", file=str(place), why=str(error))
    with suppress(OSError):
        os.replace(place, place.with_suffix(".ids.bad"))


def write_sidecar(path: Path, sealed: Sealed) -> None:
    """A full disk is no harm: the next start gathers the facts from the segment."""
    try:
        with new_file(sidecar(path), replace=True) as fd:
            write_all(fd, sealed.encode())
    except OSError as error:
        log.warning("no sidecar written", file=str(path), why=str(error))


def rewrite(path: Path, change: Callable[[bytes, Record | None], bytes]) -> bool:
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
    with new_file(path, replace=True) as out:
        write_all(out, b"".join(new))
    return True


class _Loaded(NamedTuple):
    number: int
    path: Path
    facts: Facts
    sealed: Sealed


def load(folder: Path) -> list[_Loaded]:
    """All segments, oldest first, repaired. Reads the newest one, and those without a good sidecar, which get one."""
    make_folder(folder)
    tighten(folder, lambda path: path.unlink() if path.name.startswith(NEW) else None)
    numbers = sorted((int(match[1]), name) for name in os.listdir(folder) if (match := _SEGMENT.fullmatch(name)))
    kept = {Path(name).stem for _, name in numbers}
    for name in os.listdir(folder):
        if name.endswith(".ids") and name[:-4] not in kept:  # its segment was deleted, and then the daemon killed
            (folder / name).unlink(missing_ok=True)
    loaded: list[_Loaded] = []
    for number, name in numbers:
        path = folder / name
        newest = number == numbers[-1][0]
        sealed = None if newest else read_sidecar(path)
        facts = Facts()
        if sealed is None:
            size = repair_tail(path)
            facts = gather(path)
            if not facts.last:  # nothing readable in it: what was set aside from it still has its time
                facts.last = os.stat(path).st_mtime
            sealed = facts.seal(size)
            if not newest:
                write_sidecar(path, sealed)
        loaded.append(_Loaded(number, path, facts, sealed))
    return loaded


def unfinished(loaded: Sequence[_Loaded]) -> tuple[dict[int, int], list[Record]]:
    """Open inputs with the place in `loaded` of the segment that accepted them, and all records about them, in order. Reads only the
    segments that speak of one."""
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
            records += (record for record in found if record.id and where.get(mark(record.id), place + 1) <= place)
    return where, records


# ------------------------------------------------------------------------------------------------------------------------- journal


class _Segment:
    """One file of the journal. `facts` while records may still arrive, `sealed` afterwards."""

    __slots__ = ("day", "facts", "flying", "number", "path", "sealed", "size")

    def __init__(self, number: int, path: Path, day: int) -> None:
        self.number, self.path, self.day = number, path, day
        self.size = 0
        self.flying = 0
        self.facts = Facts()
        self.sealed: Sealed | None = None

    def accepted(self, seen: int) -> bool:
        return self.sealed.accepted(seen) if self.sealed else bool(self.facts.marks.get(seen, 0) & ACCEPTED)

    @property
    def last(self) -> float:
        return self.sealed.last if self.sealed else self.facts.last


class Journal:
    """The segments, oldest first; the last one is written to."""

    def __init__(self, folder: Path, writer: Writer, *, clock: Callable[[], float], horizon: float, rotate_bytes: int) -> None:
        self._folder, self._writer, self._clock = folder, writer, clock
        self._horizon, self._rotate_bytes = horizon, rotate_bytes
        self._segments: list[_Segment] = []
        self._open: dict[int, _Segment] = {}
        """Unfinished inputs -> the segment that accepted them."""
        self._tidying = asyncio.Lock()
        """Guards the files of sealed segments: whoever writes sidecars, blanks or deletes holds it. Nothing else is taken under it."""
        self._chores: set[asyncio.Task[None]] = set()
        self._threads = Threads(1, "journal")
        self.n = 0
        """The highest number given to an input so far."""

    async def open(self) -> list[Record]:
        """Repair, read, delete what is old; gives all records about unfinished inputs, in order. Raises OSError."""
        loaded = await self._threads.hop(load, self._folder)
        where, records = await self._threads.hop(unfinished, loaded)
        for each in loaded:
            segment = _Segment(each.number, each.path, int((each.sealed.last or self._clock()) // DAY))
            segment.size, segment.facts = each.sealed.size, each.facts
            self._segments.append(segment)
            if each is not loaded[-1]:
                segment.sealed = each.sealed
            self.n = max(self.n, each.sealed.n)
        self._open = {seen: self._segments[place] for seen, place in where.items()}
        await self._tidy()
        return records

    async def close(self) -> None:
        """Wait for what is under way."""
        await self._writer.flush()
        while self._chores:
            await asyncio.wait(self._chores)
        await self._threads.close()

    def seen(self, seen: int) -> bool:
        """Whether an input with this hash was accepted or refused on record, within the horizon at least."""
        return any(segment.accepted(seen) for segment in reversed(self._segments))

    def turns(self, day: int) -> dict[tuple[str, str], int]:
        """Channel and sender -> how many turns were accepted on that day (since the epoch, UTC)."""
        totals: dict[tuple[str, str], int] = {}
        for segment in self._segments:
            turns = segment.sealed.turns if segment.sealed else ((*person, count) for person, count in segment.facts.turns.items())
            for on, channel, sender, count in turns:
                if on == day:
                    totals[channel, sender] = totals.get((channel, sender), 0) + count
        return totals

    def append(self, records: Sequence[Record]) -> asyncio.Future[int]:
        """Write records as one, in the order of the calls. Raises OSError by the future, and then none of them is in the file."""
        data = b"".join(map(encode_record, records))
        segment = self._writable(len(data))
        segment.size += len(data)
        segment.flying += 1
        written = self._writer.append(segment.path, data, journal=True)
        written.add_done_callback(partial(self._written, segment, records, len(data)))
        return written

    def _writable(self, size: int) -> _Segment:
        day = int(self._clock() // DAY)
        if self._segments:
            newest = self._segments[-1]
            if newest.size == 0:
                newest.day = day
            if newest.day == day and (newest.size == 0 or newest.size + size <= self._rotate_bytes):
                return newest
        return self._next(day)

    def _next(self, day: int) -> _Segment:
        number = self._segments[-1].number + 1 if self._segments else 1
        segment = _Segment(number, self._folder / f"{number:06d}.jsonl", day)
        self._segments.append(segment)
        if number > 1:
            self._tidy_soon()
        return segment

    def _written(self, segment: _Segment, records: Sequence[Record], size: int, written: asyncio.Future[int]) -> None:
        segment.flying -= 1
        if written.cancelled() or written.exception() is not None:
            segment.size -= size
        else:
            for record in records:
                segment.facts.add(record)
                if isinstance(record, Accepted) or (isinstance(record, Refused) and record.reply is not None):
                    self._open[mark(record.id)] = segment
                elif isinstance(record, Finished):
                    self._open.pop(mark(record.id), None)
        if not segment.flying and segment is not self._segments[-1]:
            self._tidy_soon()

    def _tidy_soon(self) -> None:
        task = asyncio.get_running_loop().create_task(self._tidy())
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def _tidy(self) -> None:
        """Give sidecars to segments that are done with, and delete from the oldest on what nobody needs any more."""
        async with self._tidying:
            for segment in self._segments[:-1]:
                if segment.sealed is None and not segment.flying:
                    await self._seal(segment)
            now = self._clock()
            while len(self._segments) > 1:
                oldest = self._segments[0]
                last = oldest.last if oldest.last <= now else self._segments[1].last or now  # written while the clock was ahead
                if oldest.sealed is None or last >= now - self._horizon or oldest in self._open.values():
                    break
                try:
                    await self._threads.hop(_delete, oldest.path)
                except OSError as error:
                    log.warning("old segment not deleted", file=str(oldest.path), why=str(error))
                    break
                self._segments.remove(oldest)

    async def _seal(self, segment: _Segment) -> None:
        sealed = segment.facts.seal(segment.size)
        await self._threads.hop(write_sidecar, segment.path, sealed)
        segment.sealed, segment.facts = sealed, Facts()

    async def rewrite(self, change: Callable[[bytes, Record | None], bytes]) -> None:
        """Put every line that is written so far through `change`, oldest first, and drop torn fragments. Raises OSError; what was changed
        until then stays changed."""
        if self._segments and self._segments[-1].size:
            self._next(int(self._clock() // DAY))
        await self._writer.flush()
        async with self._tidying:
            for segment in self._segments[:-1]:
                if segment.sealed is None:
                    await self._seal(segment)
                with suppress(FileNotFoundError):
                    if await self._threads.hop(rewrite, segment.path, change):
                        facts = await self._threads.hop(gather, segment.path)
                        segment.size = (await self._threads.hop(os.stat, segment.path)).st_size
                        segment.sealed = facts.seal(segment.size)
                        await self._threads.hop(write_sidecar, segment.path, segment.sealed)
            await self._threads.hop(_drop_torn, self._folder)


def _delete(path: Path) -> None:
    """The segment first: a sidecar alone is seen as such and removed, a segment alone would come back to life."""
    for each in (path, sidecar(path), path.with_suffix(".ids.bad"), path.with_suffix(".torn")):
        with suppress(FileNotFoundError):
            os.unlink(each)


def _drop_torn(folder: Path) -> None:
    for path in folder.glob("*.torn"):
        path.unlink(missing_ok=True)
