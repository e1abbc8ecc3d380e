"""Markdown to the messages that Discord takes: Discord's own Markdown, written anew from what is visible. Pure. Called by
`channels.discord.channel`.

The words of a piece are what is sent; it has no spans. How they are written is `writing`; here the spans are bent to what can be written:
- A link keeps its address behind its words ("words (https://...)") where Discord would not make a link of them: it takes no escapes, no
  emoji and nothing like an address in the words, and only the web as an address.
- Emphasis begins and ends with a visible character, holds no code or address with a character of its own marks in it, and does not begin
  where other emphasis has just ended ("**a***b*" is read otherwise).
- Quotes begin where a line does.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from channels import markup
from channels.base import Limits, Piece, Span
from channels.discord.writing import reaches, verbatim, visible, write
from channels.inlines import Mark
from channels.markup import Rich
from channels.split import split, units

LIMITS = Limits(units=2000, spans=100_000)
"""Discord counts no spans."""

_LONGEST_LINK = 512
_MASKED = re.compile(r"https?://[^\s()<>\\\[\]\"'`*~|]+")
_PUNCTUATION = frozenset(" .,;!?'\"()/&%+=-–—…“”‘’«»°§$€£")
_INNER_MARK = re.compile(r"[A-Za-z0-9]_[A-Za-z0-9]")
_TORN = re.compile(r"[^\[]*\]\(")
_LIKE_ADDRESS = re.compile(r"://|discord|www\.", re.IGNORECASE)
_STARS = ("bold", "italic")
_EMPHASIS = ("bold", "italic", "strike")
_MARKS = frozenset("*~\\")
_OUTERMOST_FIRST = ("quote", "pre", "bold", "italic", "strike", "link", "code")


def render(markdown: str, parse: Callable[[str], Rich] = markup.parse) -> list[Piece]:
    """Pieces for Discord. `parse`: that of a `markup.Parser`, for a text that grows."""
    rich = _with_addresses(parse(markdown))
    rich = Rich(rich.text, _allowed(rich), rich.marks, rich.size)
    room = LIMITS.units
    while room > LIMITS.units // 2:
        pieces = [Piece(write(p.text, p.spans), (), p.start, p.end) for p in split(rich, Limits(room, LIMITS.spans), _overhead)]
        over = max((units(piece.text) for piece in pieces), default=0) - LIMITS.units
        if over <= 0:
            return pieces
        room -= over
    return split(Rich(rich.text, (), rich.marks, rich.size), LIMITS)


def _overhead(text: str, spans: tuple[Span, ...]) -> int:
    return units(write(text, spans)) - units(text)


# ----------------------------------------------------------------------------------------------------------------------------- links


def _with_addresses(rich: Rich) -> Rich:
    """The text with those links' addresses in it that cannot be hidden behind words."""
    found = _spelled(rich, masked=True)
    links = [span for span in found.spans if span.kind == "link"]
    if links:
        codes, web = verbatim(found.text, _code(found.spans))
        # The words of a link reach up to the last "](" that no "[" stands before, and code and addresses take no escapes.
        torn = any(_TORN.match(found.text, start, end) for start, end in (*((code.start, code.end) for code in codes), *web))
        if torn or any(_begins_in_address(link, found.text, web) for link in links):
            return _spelled(rich, masked=False)
    return found


def _spelled(rich: Rich, *, masked: bool) -> Rich:
    spelled: list[tuple[int, str]] = []
    kept: list[Span] = []
    for span in rich.spans:
        if span.kind != "link":
            kept.append(span)
            continue
        words = rich.text[span.start : span.end]
        if words in (span.value, span.value.removeprefix("mailto:")):
            continue
        if masked and _MASKED.fullmatch(span.value) and len(span.value) <= _LONGEST_LINK and _can_be_link(words):
            kept.append(span)
        else:
            spelled.append((span.end, f" ({span.value})"))
    if not spelled:
        return Rich(rich.text, tuple(kept), rich.marks, rich.size)
    ends = [end for end, _ in spelled]
    grown = [0]
    for _, words in spelled:
        grown.append(grown[-1] + len(words))

    def moved(at: int, *, end: bool = False) -> int:
        """Where a place is now; what ends where a link does, ends before its address."""
        return at + grown[bisect_left(ends, at) if end else bisect_right(ends, at)]

    parts: list[str] = []
    done = 0
    for end, words in spelled:
        parts += (rich.text[done:end], words)
        done = end
    text = "".join((*parts, rich.text[done:]))
    spans = tuple(Span(span.kind, moved(span.start), moved(span.end, end=True), span.value) for span in kept)
    return Rich(text, spans, tuple(Mark(moved(mark.shown), mark.source) for mark in rich.marks), rich.size)


def _can_be_link(words: str) -> bool:
    """Whether Discord makes a link of these words: no escapes are read in them, and what looks like another address is not taken."""
    if not words.strip() or _LIKE_ADDRESS.search(words):
        return False
    bare = _INNER_MARK.sub("", words)
    return all(c in _PUNCTUATION or unicodedata.category(c)[0] in "LMN" for c in bare) and "\u20e3" not in words


# ----------------------------------------------------------------------------------------------------------------------------- spans


def _allowed(rich: Rich) -> tuple[Span, ...]:
    text = rich.text
    codes, web = verbatim(text, _code(rich.spans))
    quotes = [span for span in rich.spans if span.kind == "quote" and not text[text.rfind("\n", 0, span.start) + 1 : span.start].strip(" ")]
    links = [span for span in rich.spans if span.kind == "link"]
    whole = sorted([(span.start, span.end) for span in codes] + web)
    soft: list[Span] = []
    for span in _joined(rich.spans):
        if span.kind in _EMPHASIS:
            soft += _cut(span, text, whole)
    soft = [span for span in soft if not _begins_in_address(span, text, web)]
    shown = sorted([*codes, *quotes, *links, *soft], key=lambda s: (s.start, -s.end, _OUTERMOST_FIRST.index(s.kind)))
    return tuple(_apart(shown))


def _code(spans: Sequence[Span]) -> list[Span]:
    return [span for span in _joined(spans) if span.kind in ("code", "pre")]


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Code next to code, and emphasis next to the same with nothing else beginning or ending there, is one."""
    borders = Counter(border for span in spans if span.kind != "code" for border in (span.start, span.end))
    found: list[Span] = []
    last: dict[str, int] = {}
    for span in spans:
        before = last.get(span.kind)
        joins = span.kind == "code" or (span.kind in _EMPHASIS and borders[span.start] == 2)
        if before is not None and joins and found[before].end == span.start:
            found[before] = Span(span.kind, found[before].start, span.end, span.value)
        else:
            last[span.kind] = len(found)
            found.append(span)
    return found


def _cut(span: Span, text: str, whole: Sequence[tuple[int, int]]) -> Iterator[Span]:
    """The parts of emphasis beside code and addresses that have such marks in them, each from a visible character to one."""
    if span.kind == "strike" and "~" in text[span.start : span.end]:
        return
    at = span.start
    near = whole[bisect_right(whole, span.start, key=lambda part: part[1]) : bisect_left(whole, span.end, key=lambda part: part[0])]
    holes = [
        (start, end) for start, end in near if start < span.start < end or start < span.end < end or not _MARKS.isdisjoint(text[start:end])
    ]
    for start, end in (*holes, (span.end, span.end)):
        first, last = visible(text, at, min(start, span.end), near)
        if first < last:
            yield Span(span.kind, first, last)
        at = max(at, end)


def _begins_in_address(span: Span, text: str, web: Sequence[tuple[int, int]]) -> bool:
    i = bisect_left(web, span.start, key=lambda part: part[0]) - 1
    return i >= 0 and reaches(text, web[i][0], span.start)


def _apart(spans: Sequence[Span]) -> Iterator[Span]:
    """Without the stars that would begin where stars end."""
    ends: set[int] = set()
    for span in spans:
        if span.kind in _STARS:
            if span.start in ends:
                continue
            ends.add(span.end)
        yield span
