"""On which line of a TOML file a key stands, since tomllib does not say; and which keys stand twice, since tomllib stops at the first.

Reads statements, not values: what a value means, and whether the file is TOML at all, is tomllib's business. Takes any text, never raises.
Called by `gateway.config`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_PART = re.compile(r"""[ \t]*([A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')[ \t]*""")
_VALUE = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#[^\n]*|[][{}\n]|[^][{}\n"'\#]+|.''',
    re.DOTALL,
)
_DEEPEST = 50
"""Parts of a key that are looked at; nobody means more."""
_BLANK = re.compile(r"(?:[ \t\r\n]|\#[^\n]*)*")


class Statement(NamedTuple):
    """A table header or a key with its value, on the lines `first` to `last` (from 1)."""

    path: tuple[str, ...]
    first: int
    last: int
    header: bool
    repeats: bool
    """`[[name]]`: may stand more than once."""


class Duplicate(NamedTuple):
    """A statement that says anew what was said on line `before`; a header with all that stands under it."""

    path: tuple[str, ...]
    before: int
    first: int
    last: int
    header: bool


def _unquote(part: str) -> str:
    if part[0] not in "\"'":
        return part
    try:
        return str(tomllib.loads(f"k = {part}")["k"])
    except tomllib.TOMLDecodeError:
        return part[1:-1]


def _path(text: str, at: int) -> tuple[tuple[str, ...], int]:
    """The dotted key at `at`, and where it ends; () if there is none."""
    parts: list[str] = []
    while found := _PART.match(text, at):
        if len(parts) < _DEEPEST:
            parts.append(_unquote(found[1]))
        at = found.end()
        if not text.startswith(".", at):
            break
        at += 1
    return tuple(parts), at


def _value_end(text: str, at: int) -> int:
    """Where the value behind an equals sign ends: the first line end outside of strings and brackets."""
    depth = 0
    while at < len(text) and (found := _VALUE.match(text, at)):
        token = found[0]
        if token == "\n" and depth <= 0:
            return at
        if token in ("[", "{"):
            depth += 1
        elif token in ("]", "}"):
            depth -= 1
        at = found.end()
    return at


def statements(text: str) -> Iterator[Statement]:
    """All statements, in order. What is none (a syntax error) is passed over to the end of its line."""
    at, table, line, counted = 0, (), 1, 0
    prefix: tuple[str, ...] = table
    while True:
        blank = _BLANK.match(text, at)
        at = blank.end() if blank else at
        if at >= len(text):
            return
        line, counted = line + text.count("\n", counted, at), at
        if header := text[at] == "[":
            repeats = text.startswith("[[", at)
            path, end = _path(text, at + (2 if repeats else 1))
            if good := text.startswith("]", end):
                prefix = path
        else:
            repeats = False
            key, end = _path(text, at)
            path = (*prefix, *key)
            if good := bool(key) and text.startswith("=", end):
                end = _value_end(text, end + 1)
        at = text.find("\n", end)
        at = len(text) if at < 0 else at
        if good and path:
            yield Statement(path, line, line + text.count("\n", counted, end), header, repeats)


class Lines:
    """Where everything stands in one file."""

    def __init__(self, text: str) -> None:
        self._first: dict[tuple[str, ...], int] = {}
        self.all = list(statements(text))
        self._text = text
        for one in self.all:
            for depth in range(1, len(one.path) + 1):  # "a.b.c" is also where "a.b" comes up first
                self._first.setdefault(one.path[:depth], one.first)
        for one in self.all:
            if one.header:  # a table's own header is where people look for it
                self._first[one.path] = one.first

    def line(self, path: Sequence[str]) -> int:
        """The line of a key or table; of what it stands in, where it has none of its own; 0 if nothing is known."""
        for depth in range(len(path), 0, -1):
            if found := self._first.get(tuple(path[:depth])):
                return found
        return 0

    def at(self, line: int) -> tuple[str, ...]:
        """The path of the statement that covers a line; () if there is none."""
        return next((one.path for one in self.all if one.first <= line <= one.last), ())

    def duplicates(self) -> list[Duplicate]:
        """Keys and headers that stand twice."""
        found: list[Duplicate] = []
        seen: dict[tuple[bool, tuple[str, ...]], int] = {}
        inside = False  # of a table that stands here for the second time: its header says it all
        for n, one in enumerate(self.all):
            if one.repeats:  # the keys below it belong to a new element
                inside, seen = False, {known: at for known, at in seen.items() if known[1][: len(one.path)] != one.path}
                continue
            before = seen.setdefault((one.header, one.path), one.first)
            again = before != one.first
            if one.header:
                inside = again
                if again:
                    following = next((other.first for other in self.all[n + 1 :] if other.header), None)
                    last = following - 1 if following else self._text.count("\n") + 1
                    found.append(Duplicate(one.path, before, one.first, last, True))
            elif again and not inside:
                found.append(Duplicate(one.path, before, one.first, one.last, False))
        return found


def without(text: str, cuts: Sequence[Duplicate]) -> str:
    """The text with these statements blanked, line numbers kept."""
    lines = text.split("\n")
    for cut in cuts:
        for n in range(cut.first - 1, min(cut.last, len(lines))):
            lines[n] = ""
    return "\n".join(lines)
