"""The inbox's journal: which segment is written to, which inputs are open, which were seen, and the end of old segments.

It knows inputs by their hash; what an input is and what its states are is `gateway.inbox`'s, the only caller. The files themselves are
`gateway.segments`'.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from channels.failpoints import reach
from gateway.metrics import Damage
from gateway.records import ACCEPTED, DAY, Accepted, Aside, Facts, Finished, Record, Refused, Sealed, encode_record, mark
from gateway.segments import delete, drop_torn, gather, load, rewrite, set_aside, unfinished, write_sidecar
from gateway.threads import Threads
from gateway.writer import Result, Writer

log = structlog.get_logger(__name__)

ROTATE = 8 * 1024 * 1024


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

    def __init__(
        self, folder: Path, writer: Writer, *, clock: Callable[[], float], horizon: float, rotate_bytes: int, damage: Damage | None = None
    ) -> None:
        self._folder, self._writer, self._clock = folder, writer, clock
        self._horizon, self._rotate_bytes, self._damage = horizon, rotate_bytes, damage or Damage()
        self._segments: list[_Segment] = []
        self._open: dict[int, _Segment] = {}
        """Unfinished inputs -> the segment that accepted them."""
        self._tidying = asyncio.Lock()
        """Guards the files of sealed segments: whoever writes sidecars, blanks or deletes holds it. Nothing else is taken under it."""
        self._chores: set[asyncio.Task[None]] = set()
        self._threads = Threads(1, "journal")
        self.n = 0
        """The highest number given to an input so far."""
        self.aside: list[Aside] = []
        """At the start: what was ever set aside, as far back as there are segments."""

    async def open(self) -> list[Record]:
        """Repair, read, delete what is old; gives all records about unfinished inputs, in order. Raises OSError."""
        loaded = await self._threads.hop(load, self._folder, durable=self._writer.durable, damage=self._damage)
        where, records = await self._threads.hop(unfinished, loaded)
        self.aside = await self._threads.hop(set_aside, loaded)
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

    def __len__(self) -> int:
        """Segments that there are."""
        return len(self._segments)

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

    def append(self, records: Sequence[Record], settled: Callable[[BaseException | None], None], *, behind: bool = False) -> None:
        """Write records as one, in the order of the calls, and call `settled` once, after this call has returned: with None when they are
        written; else none of them is in the file (OSError), or nobody knows, since the loop is being torn down (CancelledError).
        `behind`: not before what was given to the writer until now."""
        data = b"".join(map(encode_record, records))
        segment = self._writable(len(data))
        segment.size += len(data)
        segment.flying += 1
        self._writer.submit(segment.path, data, partial(self._written, segment, records, len(data), settled), journal=True, behind=behind)

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
            reach("rotate")
            self._tidy_soon()
        return segment

    def _written(
        self, segment: _Segment, records: Sequence[Record], size: int, settled: Callable[[BaseException | None], None], result: Result
    ) -> None:
        segment.flying -= 1
        error = None if isinstance(result, int) else result
        if error is not None:
            segment.size -= size
        else:
            for record in records:
                segment.facts.add(record)
                if isinstance(record, Accepted) or (isinstance(record, Refused) and record.reply is not None):
                    self._open[mark(record.id)] = segment
                elif isinstance(record, Finished):
                    self._open.pop(mark(record.id), None)
        settled(error)
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
                    await self._writer.empty_log()
                    await self._threads.hop(delete, oldest.path)
                except OSError as error:
                    log.warning("old segment not deleted", file=str(oldest.path), why=str(error))
                    break
                self._segments.remove(oldest)

    async def _seal(self, segment: _Segment) -> None:
        sealed = segment.facts.seal(segment.size)
        await self._threads.hop(write_sidecar, segment.path, sealed, durable=self._writer.durable)
        segment.sealed, segment.facts = sealed, Facts()

    async def rewrite(self, change: Callable[[bytes, Record | None], bytes]) -> None:
        """Put every line that is written so far through `change`, oldest first, and drop torn fragments. Raises OSError; what was changed
        until then stays changed."""
        if self._segments and self._segments[-1].size:
            self._next(int(self._clock() // DAY))
        await self._writer.flush()
        await self._writer.empty_log()
        async with self._tidying:
            for segment in self._segments[:-1]:
                if segment.sealed is None:
                    await self._seal(segment)
                with suppress(FileNotFoundError):
                    if await self._threads.hop(rewrite, segment.path, change, durable=self._writer.durable):
                        facts = await self._threads.hop(gather, segment.path)
                        segment.size = (await self._threads.hop(os.stat, segment.path)).st_size
                        segment.sealed = facts.seal(segment.size)
                        await self._threads.hop(write_sidecar, segment.path, segment.sealed, durable=self._writer.durable)
            await self._threads.hop(drop_torn, self._folder, durable=self._writer.durable)
