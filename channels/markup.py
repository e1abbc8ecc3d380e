"""Markdown to rich text: what a reader sees, its spans, and where each part of it stands in the source.

It knows no network and no limit; `channels.split` cuts what it makes, a network's `render` module bends it first. Called by those.

Any prefix of a text is a text: nothing raises, nothing visible is lost, and time is linear in the length, for hostile input too.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec

from channels.base import Span
from channels.blocks import Block, read
from channels.inlines import Mark

_MAY_BE_MARKUP = re.compile(r"[^\w ,.;:!?'\"()#%/+\u2013\u2014\u2018-\u201d\u2026-]|_")


class Rich(msgspec.Struct, frozen=True):
    """Text with spans over it, sorted by start and then from the outer to the inner; they nest or are apart. `Rich(text, size=len(text))`
    is a text that is shown as it is."""

    text: str
    spans: tuple[Span, ...] = ()
    marks: tuple[Mark, ...] = ()
    """Sorted; between two marks text and source go side by side, as far as the next mark lets them."""
    size: int = 0
    """Length of the source."""

    def source(self, shown: int) -> int:
        """Where the visible text from offset `shown` on stands in the source. Monotone; exact for blocks, lines and words, where markup
        that opens at `shown` counts as what follows."""
        i = bisect_right(self.marks, shown, key=_shown) - 1
        if i < 0:
            return min(shown, self.size)
        end = self.marks[i + 1].source if i + 1 < len(self.marks) else self.size
        return min(self.marks[i].source + shown - self.marks[i].shown, end)


def _shown(mark: Mark) -> int:
    return mark.shown


def parse(markdown: str) -> Rich:
    """The whole text at once."""
    if _plain(markdown):
        return _as_it_stands(markdown)
    return _join(read(markdown, 0)[0], len(markdown))


class Parser:
    """`parse` for texts that grow: of each of the last few texts it keeps the blocks that no further word can change, so that only what
    follows them is read again. The results are those of `parse`, whatever it is given in whatever order."""

    def __init__(self, texts: int = 16) -> None:
        self._texts = texts
        self._known: OrderedDict[str, tuple[Block, ...]] = OrderedDict()
        """By the settled beginning of a text, its blocks; oldest use first."""

    def parse(self, markdown: str) -> Rich:
        if _plain(markdown):
            return _as_it_stands(markdown)
        head = max((known for known in self._known if markdown.startswith(known)), key=len, default="")
        settled = self._known.pop(head, ())
        blocks, lines = read(markdown, len(head))
        # The first line of a block and the one behind it (a table's second) must be over before what precedes them is closed for good.
        count = max((i for i, block in enumerate(blocks) if block.line + 2 <= lines.complete()), default=0)
        if count:
            head, settled = markdown[: blocks[count].start], (*settled, *blocks[:count])
        if head:
            self._known[head] = settled
            if len(self._known) > self._texts:
                self._known.popitem(last=False)
        return _join((*settled, *blocks[count:]), len(markdown))


def _plain(text: str) -> bool:
    """A line in which nothing can be markup, as most answers in a chat are: read as it stands it costs a hundredth."""
    return text[:1].isalpha() and text[-1] != " " and not _MAY_BE_MARKUP.search(text)


def _as_it_stands(line: str) -> Rich:
    return Rich(line, (), (Mark(0, 0),), len(line))


def _join(blocks: Iterable[Block], size: int) -> Rich:
    kept = list(blocks)
    while kept and kept[-1].rule:
        kept.pop()
    parts: list[str] = []
    spans: list[Span] = []
    marks: list[Mark] = []
    at = 0
    for block in kept:
        if not parts and block.rule:
            continue
        gap = "" if not parts else "\n\n" if block.apart else "\n"
        at += len(gap)
        parts += (gap, block.text)
        spans += block.spans if at == 0 else _moved(block.spans, at)
        marks += (Mark(mark.shown + at, mark.source) for mark in block.marks)
        at += len(block.text)
    return Rich("".join(parts), tuple(spans), tuple(marks), size)


def _moved(spans: Sequence[Span], by: int) -> Iterable[Span]:
    return (Span(span.kind, span.start + by, span.end + by, span.value) for span in spans)
