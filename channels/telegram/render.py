"""Markdown to what Telegram takes: text and entities, never a parse mode. Pure. Called by `channels.telegram.channel`.

The rules are those of TDLib (td/telegram/MessageEntity.cpp, misc.cpp), on which the Bot API server runs:
- Offsets are in UTF-16 units. Entities nest or are apart. Code holds nothing and stands in nothing but a quote; a link holds no other link
  and no code; quotes do not nest. Bold and its kin may stand anywhere else, and are cut at the borders of links and code.
- An entity begins with a visible character, and blanks around a message go. So does the indent of code that begins a message; no
  character that would keep it survives being copied, so that nothing is put there.
- A tab becomes one blank: four are sent in its place.
- What is a link of text must lead to the web, to an address for mail, or into Telegram. One to a person (`tg://user`) would ping
  that person, so that it stays text.
- What looks like "@name" is a mention and pings that person, whatever entities are sent along: the server looks for them itself, but not in
  code and not in links. So it goes out as code: not a character of it is changed, and a touch copies it. Hashtags and "/commands" are found
  the same way; they ping nobody and stay as they are.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from telegram import MessageEntity

from channels import markup
from channels.base import Limits, Piece, Span
from channels.inlines import Mark
from channels.markup import Rich
from channels.split import split

LIMITS = Limits(units=4096, spans=100)

_TAB = 4
_WIDE = re.compile("[\U00010000-\U0010ffff]")
_MENTION = re.compile(r"(?<!\w)@[A-Za-z0-9_]{2,32}(?!\w)")
_ADDRESS = re.compile(r"https?://[^\s<>\"]+", re.IGNORECASE)
_LINK = re.compile(r"https?://[^\s/]|mailto:\S|tg://(?!user\b)\S", re.IGNORECASE)
_TYPES = {
    "bold": MessageEntity.BOLD,
    "italic": MessageEntity.ITALIC,
    "underline": MessageEntity.UNDERLINE,
    "strike": MessageEntity.STRIKETHROUGH,
    "spoiler": MessageEntity.SPOILER,
    "code": MessageEntity.CODE,
    "pre": MessageEntity.PRE,
    "link": MessageEntity.TEXT_LINK,
    "quote": MessageEntity.BLOCKQUOTE,
}
_OUTERMOST_FIRST = ("quote", "pre", "code", "link", "bold", "italic", "underline", "strike", "spoiler")


def render(markdown: str, parse: Callable[[str], Rich] = markup.parse) -> list[Piece]:
    """Pieces for Telegram. `parse`: that of a `markup.Parser`, for a text that grows."""
    rich = _without_tabs(parse(markdown))
    return split(Rich(rich.text, _allowed(rich), rich.marks, rich.size), LIMITS)


def entities(piece: Piece) -> list[MessageEntity]:
    """The piece's spans as entities of its text. One without spans is plain text, which pings nobody either."""
    spans = piece.spans or tuple(_mentions(piece.text, ()))[: LIMITS.spans]
    wide = [found.start() for found in _WIDE.finditer(piece.text)]

    def offset(at: int) -> int:
        return at + bisect_left(wide, at)

    return [
        MessageEntity(
            _TYPES[span.kind],
            offset(span.start),
            offset(span.end) - offset(span.start),
            url=span.value if span.kind == "link" else None,
            language=span.value or None if span.kind == "pre" else None,
        )
        for span in spans
    ]


def _mentions(text: str, whole: Sequence[Span]) -> Iterator[Span]:
    """Code for what would ping somebody, but where links and code stand already (`whole`, sorted) and in the web's addresses."""
    if "@" not in text:
        return
    addresses = [found.span() for found in _ADDRESS.finditer(text)]
    taken = sorted([*((span.start, span.end) for span in whole), *addresses])
    at = 0
    for found in _MENTION.finditer(text):
        while at < len(taken) and taken[at][1] <= found.start():
            at += 1
        if at == len(taken) or found.end() <= taken[at][0]:
            yield Span("code", *found.span())


def _without_tabs(rich: Rich) -> Rich:
    if "\t" not in rich.text:
        return rich
    tabs = [found.start() for found in re.finditer("\t", rich.text)]

    def moved(at: int) -> int:
        return at + bisect_left(tabs, at) * (_TAB - 1)

    spans = tuple(Span(span.kind, moved(span.start), moved(span.end), span.value) for span in rich.spans)
    marks = tuple(Mark(moved(mark.shown), mark.source) for mark in rich.marks)
    return Rich(rich.text.replace("\t", " " * _TAB), spans, marks, rich.size)


def _allowed(rich: Rich) -> tuple[Span, ...]:
    """The spans, bent to what Telegram takes, so that one span is one entity and the count of them is right before the text is cut."""
    whole: list[Span] = []
    soft: list[Span] = []
    ends: dict[str, int] = {}
    """Where the last span of a kind ends; "whole" stands for links and code together."""
    for span in rich.spans:
        kind = "whole" if span.kind in ("code", "pre", "link") else span.kind
        if span.start < max(ends.get(kind, 0), ends.get("whole", 0) if kind == "quote" else 0):
            continue
        if span.kind == "link" and not _LINK.match(span.value):
            continue
        ends[kind] = span.end
        if kind == "whole":
            whole.append(span)
        else:
            soft.append(span)
    whole = sorted([*whole, *_mentions(rich.text, whole)], key=lambda span: span.start)
    shown = [*whole, *(part for span in soft for part in ((span,) if span.kind == "quote" else _cut(span, whole)))]
    shown = [trimmed for span in shown if (trimmed := _trimmed(span, rich.text)) is not None]
    return tuple(sorted(shown, key=lambda s: (s.start, -s.end, _OUTERMOST_FIRST.index(s.kind))))


def _cut(span: Span, whole: Sequence[Span]) -> Iterator[Span]:
    """What is left of a span beside code, in parts that cross no link."""
    at = span.start
    for i in range(bisect_right(whole, at, key=lambda w: w.end), len(whole)):
        other = whole[i]
        if other.start >= span.end:
            break
        if at < other.start:
            yield Span(span.kind, at, other.start)
        at = min(span.end, other.end)
        if other.kind == "link" and max(span.start, other.start) < at:
            yield Span(span.kind, max(span.start, other.start), at)
    if at < span.end:
        yield Span(span.kind, at, span.end)


def _trimmed(span: Span, text: str) -> Span | None:
    """The span from its first visible character on; None if it has none. Code keeps its indent, and a quote may begin with code."""
    start = span.start
    while start < span.end and text[start] in " \n":
        start += 1
    if start == span.end:
        return None
    return span if start == span.start or span.kind in ("pre", "quote") else Span(span.kind, start, span.end, span.value)
