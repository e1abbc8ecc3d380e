"""How the command line writes: for people within 80 columns, for programs as JSON. What people call themselves, and what they said, never
steers the terminal: what is no plain character is shown as U+FFFD. Pure but for printing; loads nothing heavy.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import datetime

from gateway.words import counted, size, span

__all__ = [
    "Progress",
    "as_json",
    "block",
    "cell",
    "columns",
    "counted",
    "cut",
    "fold",
    "minute",
    "pad",
    "paragraphs",
    "size",
    "span",
    "table",
    "width",
]

COLUMNS = 80
_JOINER = "\u200d"
"""Holds emoji together; harmless."""


def cell(value: object) -> str:
    """On one line."""
    text = "" if value is None else str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() or c == _JOINER else "\N{REPLACEMENT CHARACTER}" for c in text)


def block(text: str) -> str:
    """The same with its line breaks."""
    return "\n".join(cell(line.replace("\t", "    ")) for line in text.replace("\r\n", "\n").split("\n"))


def width(text: str) -> int:
    """Columns on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) or c == _JOINER else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, columns: int) -> str:
    """At most so wide; what goes is shown by "…"."""
    if width(text) <= columns:
        return text
    while text and width(text) > columns - 1:
        text = text[:-1]
    return f"{text}…" if columns > 0 else ""


def pad(text: str, columns: int) -> str:
    """At least so wide."""
    return text + " " * (columns - width(text))


def columns() -> int:
    """How wide a line may be: 80, or less where the terminal is narrower."""
    return max(20, min(COLUMNS, shutil.get_terminal_size((COLUMNS, 24)).columns))


def fold(text: str, first: str = "", rest: str = "") -> str:
    """One paragraph behind an indentation, wrapped where a terminal shows it; elsewhere a line stays a line."""
    if not sys.stdout.isatty():
        return f"{first}{text}".rstrip()
    return "\n".join(_fold(text, first, rest, columns()))


def _fold(text: str, first: str, rest: str, most: int) -> Iterator[str]:
    line, empty = first, True
    for word in text.split(" "):
        piece = word
        if not empty and width(line) + 1 + width(piece) > most:
            yield line.rstrip()
            line, empty = rest, True
        while width(line) + width(piece) + (not empty) > most and len(piece) > 1:  # a word that is longer than a line
            fits = _fitting(piece, most - width(line))
            yield line + piece[:fits]
            line, piece, empty = rest, piece[fits:], True
        line += piece if empty else f" {piece}"
        empty = False
    yield line.rstrip()


def _fitting(text: str, columns: int) -> int:
    """How many of the first characters are not wider than that; at least one, so that it goes on."""
    taken = 0
    for n, c in enumerate(text):
        taken += width(c)
        if taken > columns:
            return max(1, n)
    return len(text)


def paragraphs(text: str, indent: str) -> str:
    """A text of several lines, each wrapped by itself."""
    return "\n".join(fold(line, indent, indent) for line in block(text).split("\n"))


def table(rows: Sequence[dict[str, object]], nothing: str) -> str:
    """Flat rows under one heading."""
    if not rows:
        return nothing
    shown = [{name: cell(value) for name, value in row.items()} for row in rows]
    names = list(dict.fromkeys(name for row in shown for name in row))
    widths = {name: max(len(name), *(width(row.get(name, "")) for row in shown)) for name in names}
    lines = ({name: name.upper() for name in names}, *shown)
    return "\n".join("  ".join(pad(row.get(name, ""), widths[name]) for name in names).rstrip() for row in lines)


def as_json(value: object) -> str:
    """On one line, and plain ASCII on a terminal, which nothing in it can steer then."""
    return json.dumps(value, ensure_ascii=sys.stdout.isatty(), separators=(",", ":"))


def minute(moment: float | str) -> str:
    """A time as the clock on the wall shows it, from seconds since the epoch or the files' own form; "" for none."""
    try:
        when = datetime.fromisoformat(moment) if isinstance(moment, str) else datetime.fromtimestamp(moment)
        return when.astimezone().strftime("%Y-%m-%d %H:%M") if moment else ""
    except (ValueError, OverflowError, OSError):
        return cell(moment)


class Progress:
    """What long work says of itself, on a terminal's stderr only, after half a second and not more often than it can be read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._began = self._last = time.monotonic()
        self._shown = 0

    def say(self, more: str = "") -> None:
        """The work goes on."""
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self._began < 0.5 or now - self._last < 0.1:
            return
        self._last = now
        line = cut(cell(f"{self._text} {more}".rstrip()), columns() - 1)
        sys.stderr.write(f"\r{pad(line, self._shown)}")
        sys.stderr.flush()
        self._shown = width(line)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()

    def clear(self) -> None:
        """Make room for a line of the answer."""
        if self._shown:
            sys.stderr.write(f"\r{' ' * self._shown}\r")
            sys.stderr.flush()
            self._shown = 0
