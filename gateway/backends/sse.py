"""Server-sent events: bytes in, events out. Pure and incremental; no socket, no clock, no JSON.

The rules are those of the HTML standard (section 9.2.6): a line ends in LF, CRLF or CR; a line that begins with a colon is a comment; one
space behind a field's colon belongs to the colon; several `data` lines make one value; a blank line ends the event; `id` and `retry`
mean nothing to us. Two differences: an event is bounded, and `finish` hands out what a server left without its blank line. Data stays
bytes, so that a character that is split over segments needs no care. Called by `gateway.backends.openai`.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT = 4 << 20
"""Bytes of one event's data, or of one line. A whole answer with tool arguments fits many times."""

_BOM = b"\xef\xbb\xbf"


class TooBig(ValueError):
    """One event is larger than the bound; the stream cannot be read any further."""


class Event(NamedTuple):
    data: bytes
    """UTF-8 as it came; lines of several `data` fields are joined by a newline."""
    kind: str = ""
    """The `event` field, "" if there was none."""


class Parser:
    """`feed` bytes as they come, in segments of any size; `finish` at the end of the stream."""

    __slots__ = ("_after_cr", "_data", "_first", "_has_kind", "_kind", "_limit", "_size", "_tail", "_tail_size")

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._tail: list[bytes] = []  # the pieces of a line that has no end yet: joined once, so that tiny segments stay linear
        self._after_cr = False  # a LF that follows belongs to the line end that we saw
        self._first = True
        self._data: list[bytes] = []
        self._kind = ""
        self._has_kind = False
        self._size = 0  # of the event's data so far
        self._tail_size = 0

    def feed(self, segment: bytes) -> list[Event]:
        """Events that this segment completes. Raises TooBig."""
        if self._after_cr and segment:
            self._after_cr = False
            if segment[0] == 0x0A:
                segment = segment[1:]
        if not segment:
            return []
        if b"\n" not in segment and b"\r" not in segment:
            self._keep(segment)
            return []
        if self._tail:
            segment = b"".join([*self._tail, segment])
            self._tail, self._tail_size = [], 0
        lines = segment.splitlines()
        last = segment[-1]
        if last == 0x0D:
            self._after_cr = True
        elif last != 0x0A:
            self._keep(lines.pop())
        return [event for line in lines if (event := self._line(line)) is not None]

    def finish(self) -> list[Event]:
        """What stands there although its blank line never came."""
        lines = [b"".join(self._tail), b""] if self._tail else [b""]
        self._tail = []
        return [event for line in lines if (event := self._line(line)) is not None]

    def _keep(self, piece: bytes) -> None:
        self._tail.append(piece)
        self._tail_size += len(piece)
        self._check(self._tail_size)

    def _add(self, value: bytes) -> None:
        self._data.append(value)
        self._size += len(value) + 1
        self._check(self._size)

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise TooBig(f"an event of more than {self._limit} bytes")

    def _line(self, line: bytes) -> Event | None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if line[:6] == b"data: ":  # nearly every line
            self._add(line[6:])
            return None
        if not line:
            if not self._data and not self._has_kind:
                return None
            # By the standard an event without data is none; a bare `event: error` is worth telling all the same.
            event = Event(b"\n".join(self._data), self._kind) if len(self._data) != 1 else Event(self._data[0], self._kind)
            self._data, self._kind, self._has_kind, self._size = [], "", False, 0
            return event
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add(value)
        elif name == b"event":
            self._kind, self._has_kind = value.decode("utf-8", "replace"), True
        return None
