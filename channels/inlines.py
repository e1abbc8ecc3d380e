"""Writes the words inside a block: text, emphasis, code, links and images, each with its place in the source.

Blocks and their lines are `channels.blocks`, which builds on the writer; tokens come from the parser of `channels.dialect`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from markdown_it.token import Token

from channels.base import Span

_KINDS = {"strong": "bold", "em": "italic", "s": "strike"}
_MOST_MISSES = 64


class Mark(msgspec.Struct, frozen=True, gc=False):
    """The visible text at `shown` stands at `source`. Both only ever grow along a text."""

    shown: int
    source: int


class Writer:
    """`at` is the length of what is written, `cursor` how far the source is used up, `limit` where the block ends in it."""

    def __init__(self, source: str, cursor: int, limit: int) -> None:
        self.source, self.cursor, self.limit = source, cursor, limit
        self.parts: list[str] = []
        self.at = 0
        self.marks = [Mark(0, cursor)]
        self.indents = [""]
        """What lines begin with, one for each list and quote around."""
        self._spans: list[tuple[int, Span]] = []
        self._open: dict[str, list[tuple[int, int, str]]] = {}
        self._opened = 0
        self._misses = 0
        self._link_words = 0
        self._hollow = False

    def spans(self) -> tuple[Span, ...]:
        """Those that are closed, sorted by start, the outer first."""
        return tuple(span for _, span in sorted(self._spans, key=lambda s: (s[1].start, -s[1].end, s[0])))

    def put(self, text: str) -> None:
        self.parts.append(text)
        self.at += len(text)

    def mark(self, source: int) -> None:
        last = self.marks[-1]
        if self.at > last.shown and source >= last.source:
            self.marks.append(Mark(self.at, source))

    def find(self, words: str) -> None:
        """Note where the next visible words stand. They are verbatim in the source behind the cursor, so that the nearest find is never
        behind the true one; what is not (a cell's escaped pipe) is passed over, and a block full of it is left to its lines."""
        if self._misses < _MOST_MISSES:
            found = self.source.find(words, self.cursor, self.limit)
            if found >= 0:
                self.mark(found)
                self.cursor = found + len(words)
            else:
                self._misses += 1

    def open(self, kind: str, value: str = "") -> None:
        self._opened += 1
        self._open.setdefault(kind, []).append((self._opened, self.at, value))

    def is_open(self, kind: str) -> bool:
        return bool(self._open.get(kind))

    def close(self, kind: str) -> None:
        """Close the innermost span of a kind; only the outermost of a kind counts."""
        order, start, value = self._open[kind].pop()
        if not self._open[kind] and self.at > start:
            self._spans.append((order, Span(kind, start, self.at, value)))  # type: ignore[arg-type]  # kinds are ours alone

    def text(self, words: str) -> None:
        """Words that may hold line breaks."""
        first, *rest = words.split("\n")
        self.find(first)
        self.put(first)
        for line in rest:
            self.put("\n" + self.indents[-1])
            self.find(line)
            self.put(line)

    def inline(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            match token.type:
                case "text":
                    self.text(token.content)
                case "text_special":
                    self.find(token.markup)
                    self.put(token.content)
                case "softbreak" | "hardbreak":
                    self.put("\n" + self.indents[-1] + token.content)
                case "code_inline":
                    self.find(token.markup)
                    self.open("code")
                    self.text(token.content)
                    self.close("code")
                    self.find(token.markup)
                case "strong_open" | "em_open" | "s_open":
                    self.find(token.markup)
                    self.open(_KINDS[token.type.removesuffix("_open")])
                case "strong_close" | "em_close" | "s_close":
                    self.find(token.markup)
                    self.close(_KINDS[token.type.removesuffix("_close")])
                case "link_open":
                    self.find("<" if token.info == "auto" else "[")
                    if address := str(token.attrs["href"]):
                        self.open("link", address)
                        self._link_words = len(self.parts)
                    else:
                        self.put("[")
                        self._hollow = True
                case "link_close":
                    self.link_end(token)
                case "image":
                    self.image(token)
                case _:
                    pass

    def link_end(self, token: Token) -> None:
        if self._hollow and token.info != "auto":
            self._hollow = False
            self.text("]()")
            return
        address = self._open["link"][-1][2]
        if not "".join(self.parts[self._link_words :]).strip():
            self.put(address)
        self.close("link")
        if token.info != "auto":
            self.find("](")
            if self.source.startswith(address, self.cursor):
                self.cursor += len(address)

    def image(self, token: Token) -> None:
        address = str(token.attrs["src"])
        words = plain(token.children or []).strip()
        self.find("![")
        if not address:
            self.put(f"![{words}]()")
            return
        self.open("link", address)
        self.put(words or address)
        self.close("link")


def plain(tokens: Sequence[Token]) -> str:
    """Inline text without spans, on one line; an address that its words do not show stands behind them."""
    parts: list[str] = []
    link, start = "", 0
    for token in tokens:
        match token.type:
            case "softbreak" | "hardbreak":
                parts.append(" ")
            case "link_open":
                link, start = str(token.attrs["href"]), len(parts)
            case "link_close":
                words = "".join(parts[start:]).strip()
                if not link:
                    parts[start:] = [f"[{words}]()"]
                elif words not in (link, link.removeprefix("mailto:")):
                    parts.append(f" ({link})" if words else link)
            case "image":
                words, address = plain(token.children or []).strip(), str(token.attrs["src"])
                parts.append((words or address) if address else f"![{words}]()")
            case _:
                parts.append(token.content)
    return "".join(parts)
