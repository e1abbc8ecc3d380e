"""Rich text into pieces that a network takes: one message each, within its limits. Pure. Called by the networks' `render` modules.

Where it cuts, in this order: between paragraphs, lines, sentences, words, characters as a reader sees them; never inside a surrogate
pair. Of these it takes the last one in the second half of what would fit, before it looks in the first half. Blanks at a cut go.
Code is cut between its lines, before one without indent if it can be (networks cut blanks off the start of a message, code or not); only
the line break at the cut goes, and each part is code of the same language. Where a cut falls depends on nothing behind what fits, so that
the pieces of a growing text stay as they are, but for the last one.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TypeAlias

from channels.base import Limits, Piece, Span
from channels.markup import Rich

Overhead: TypeAlias = Callable[[str, tuple[Span, ...]], int]
"""Units that a network's own markup adds to a text with these spans (fences, escapes). Of a longer text, text and markup together are
not shorter. Called some ten times for a piece."""

_BLANKS = " \t\n\r\v\f"
_WIDE = re.compile("[\U00010000-\U0010ffff]")
_SENTENCE = re.compile(r"[.!?…][\"'”’»)\]]*(?=\s)|[。！？][”’」』）]*")
_ISOLATE = re.compile("[\u2066-\u2069]")
_UNSEEN = ("Zs", "Zl", "Zp", "Cc", "Cf", "Cs")
_FILLERS = "\u034f\u115f\u1160\u2800\u3164\uffa0\ufffc" + "".join(map(chr, range(0xFE00, 0xFE10)))
"""Letters, marks and symbols that show nothing by themselves. What Unicode has no category for yet may be a new emoji: not blank."""


def blank(text: str) -> bool:
    """Whether a reader would see nothing."""
    return not text.strip() or all(unicodedata.category(c) in _UNSEEN or c in _FILLERS for c in text)


def units(text: str) -> int:
    """UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def split(rich: Rich, limits: Limits, overhead: Overhead | None = None) -> list[Piece]:
    """The pieces, in order, none of them blank; [] if nothing is visible. Their `start` and `end` partition the source. Linear in time.
    `limits.units` must be at least 2, the width of one character."""
    text = rich.text
    if overhead is None and not rich.spans and text.isascii() and len(text) <= limits.units and text == text.strip():
        return [] if blank(text) else [Piece(text, (), 0, rich.size)]  # as most are
    cutter = _Cutter(rich, limits, overhead)
    found: list[tuple[int, str, tuple[Span, ...]]] = []
    at = cutter.behind_blanks(0)
    while at < len(rich.text):
        begin, (text, spans, at) = at, cutter.take(at)
        if not blank(text):
            found.append((begin, text, spans))
    borders = _borders([rich.source(begin) for begin, _, _ in found[1:]], rich.size)
    return [
        Piece(_paired(text, spans), spans, start, end) for (_, text, spans), start, end in zip(found, borders, borders[1:], strict=False)
    ]


def _borders(inner: Sequence[int], size: int) -> list[int]:
    """0, the offsets between pieces, the end; each piece has a slice of the source that is not empty, wherever there is room for it."""
    borders = [0]
    for offset in inner:
        borders.append(max(offset, borders[-1] + 1))
    borders.append(size)
    for i in range(len(inner), 0, -1):
        borders[i] = max(0, min(borders[i], borders[i + 1] - 1))
    return borders


class _Cutter:
    """Takes pieces off the front of a text, each begin behind the one before it."""

    def __init__(self, rich: Rich, limits: Limits, overhead: Overhead | None) -> None:
        self.text, self.limits, self.overhead = rich.text, limits, overhead
        self.wide = _WIDE.search(rich.text) is not None
        self.codes = [(span.start, span.end) for span in rich.spans if span.kind == "pre"]
        self._code_starts = [start for start, _ in self.codes]
        self._waiting = list(reversed(rich.spans))
        self._open: list[Span] = []
        """Spans that begin before the end of what was looked at last."""

    def take(self, at: int) -> tuple[str, tuple[Span, ...], int]:
        """The next piece's text and spans, and where the one behind it begins."""
        end = self.reach(at, self.limits.units)
        if self.overhead is not None:
            end = self.with_markup(at, end)
        spans = self.spans(at, end)
        end = next((span.start for span in spans[self.limits.spans :] if span.start > at), end)
        cut = end if end == len(self.text) else self.cut(at, end)
        code = self.code(cut - 1)
        if code and cut < code[1]:
            stop, after = cut, cut + self.text.startswith("\n", cut)
        else:
            floor = max(at, self.code_before(cut))
            stop, after = floor + len(self.text[floor:cut].rstrip(_BLANKS)), self.behind_blanks(cut)
        return self.text[at:stop], _clipped(spans, at, stop)[: self.limits.spans], after

    def behind_blanks(self, at: int) -> int:
        """The first character from `at` on that is not a blank, or is code, or a blank with a mark on it."""
        stop = self.code_after(at)
        while at < stop and self.text[at] in _BLANKS and not _extends(self.text[at + 1 : at + 2]):
            at += 1
        return at

    def spans(self, at: int, end: int) -> list[Span]:
        """Those that touch the text from `at` to `end`, sorted as ever."""
        while self._waiting and self._waiting[-1].start < end:
            self._open.append(self._waiting.pop())
        self._open = [span for span in self._open if span.end > at]
        return [span for span in self._open if span.start < end]

    def reach(self, at: int, room: int) -> int:
        """How far `room` units go, at least one character."""
        end = min(len(self.text), at + room)
        while self.wide and (over := units(self.text[at:end]) - room) > 0 and end > at + 1:
            end -= (over + 1) // 2
        return max(end, at + 1)

    def with_markup(self, at: int, end: int) -> int:
        """How far, up to `end`, text and markup together fit; at least one character."""
        assert self.overhead is not None
        low, high = at + 1, end + 1  # the first fits, or nothing does; the last does not
        probe = end
        while low < high - 1:
            text = self.text[at:probe]
            over = units(text) + self.overhead(text, _clipped(self.spans(at, probe), at, probe)) - self.limits.units
            if over <= 0:
                low = probe
            else:
                high = probe
            # The first guess is that the markup is spread evenly; then halves.
            probe = max(low + 1, end - over) if over > 0 and probe == end else (low + high) // 2
        return low

    # ------------------------------------------------------------------------------------------------------------------- code

    def code(self, at: int) -> tuple[int, int] | None:
        """The code block that holds the character `at`."""
        i = bisect_right(self._code_starts, at) - 1
        return self.codes[i] if i >= 0 and at < self.codes[i][1] else None

    def code_before(self, at: int) -> int:
        """The end of the last code block that ends at or before `at`; 0 if there is none."""
        i = bisect_left(self._code_starts, at) - 1
        while i >= 0 and self.codes[i][1] > at:
            i -= 1
        return self.codes[i][1] if i >= 0 else 0

    def code_after(self, at: int) -> int:
        """Where the next code block at or behind `at` begins; the text's end if there is none."""
        i = bisect_left(self._code_starts, at)
        return self._code_starts[i] if i < len(self.codes) else len(self.text)

    # ------------------------------------------------------------------------------------------------------------------- cuts

    def cut(self, at: int, end: int) -> int:
        """Where to cut a text that goes on behind `end`, behind `at`."""
        half = at + (end - at) // 2
        code = self.code(end)
        if code and code[0] < end:
            if code[0] > half:
                return code[0]
            return self.line_of_code(max(at, code[0]), half, end) or (code[0] if code[0] > at else self.between_characters(at, end))
        floor = max(at, self.code_before(end))
        for low in (max(floor, half), floor):
            for mark in ("\n\n", "\n"):
                if (found := self.last(mark, low, end)) > at:
                    return found
            if (found := self.sentence(low, end)) > at:
                return found
            if (found := self.last(" ", low, end)) > at:
                return found
        return floor if floor > at else self.between_characters(at, end)

    def line_of_code(self, at: int, half: int, end: int) -> int:
        """The last line break up to `end` before a line without indent, behind `half`; else the last one of all; 0 if there is none."""
        last = found = self.text.rfind("\n", at + 1, end + 1)
        while found > half:
            if self.text[found + 1 : found + 2] not in (" ", "\t", "\n"):
                return found
            found = self.text.rfind("\n", at + 1, found)
        return max(0, last)

    def last(self, mark: str, low: int, end: int) -> int:
        """The last `mark` from `low` to `end` that no combining character follows; -1 if there is none."""
        found = self.text.rfind(mark, low, end + len(mark))
        while found >= 0 and _extends(self.text[found + len(mark) : found + len(mark) + 1]):
            found = self.text.rfind(mark, low, found)
        return found

    def sentence(self, low: int, end: int) -> int:
        found = -1
        for match in _SENTENCE.finditer(self.text, low, min(len(self.text), end + 1)):
            if match.end() <= end and not _extends(self.text[match.end() : match.end() + 1]):
                found = match.end()
        return found

    def between_characters(self, at: int, end: int) -> int:
        """The last border up to `end` of what a reader takes for one character; `end` where a single one fills all."""
        for cut in range(end, at, -1):
            if not self._joined(at, cut):
                return cut
        return end

    def _joined(self, at: int, cut: int) -> bool:
        before, after = self.text[cut - 1], self.text[cut]
        if _extends(after) or before == "\u200d" or _is_jamo(before, after):
            return True
        if not (_is_flag_half(before) and _is_flag_half(after)):
            return False
        start = cut
        while start > at and _is_flag_half(self.text[start - 1]):
            start -= 1
        return (cut - start) % 2 == 1


def _extends(char: str) -> bool:
    """Marks that combine, joiners, variation selectors, skin tones, tags, the key cap. "" does not."""
    if not char or char.isascii():
        return False
    return (
        unicodedata.category(char)[0] == "M"
        or char in "\u200c\u200d"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\U000e0020" <= char <= "\U000e007f"
    )


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _is_jamo(before: str, after: str) -> bool:
    """Two parts of one Korean syllable: leading consonants join each other, vowels and syllables; those join vowels and trailing ones."""
    if "\u1100" <= before <= "\u115f":
        return "\u1100" <= after <= "\u11a7" or "\uac00" <= after <= "\ud7a3"
    return "\u1160" <= after <= "\u11ff" and ("\u1160" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3")


def _clipped(spans: Sequence[Span], at: int, end: int) -> tuple[Span, ...]:
    """What of the spans lies from `at` to `end`, counted from `at`."""
    parts = ((max(span.start, at) - at, min(span.end, end) - at, span) for span in spans)
    return tuple(Span(span.kind, start, stop, span.value) for start, stop, span in parts if start < stop)


def _paired(text: str, spans: Sequence[Span]) -> str:
    """Direction isolates without their counterpart in this piece would turn all that follows: a character without width or direction takes
    their place, so that nothing moves. Those in code stay, as bytes of the code."""
    begun: list[int] = []
    alone: list[int] = []
    for match in _ISOLATE.finditer(text):
        if match[0] != "\u2069":
            begun.append(match.start())
        elif begun:
            begun.pop()
        else:
            alone.append(match.start())
    if not begun and not alone:
        return text
    codes = [(span.start, span.end) for span in spans if span.kind in ("pre", "code")]
    characters = list(text)
    for at in (*begun, *alone):
        if not any(start <= at < end for start, end in codes):
            characters[at] = "\u200b"
    return "".join(characters)
