"""From the parser's tokens to blocks: what is visible of each top-level block, its spans, and where it stands in the source.

It does not join blocks, cut them or know a network. Called by: `channels.markup`.

What a reader sees: paragraphs, headings (bold) and lists as lines; numbers as they are written, bullets as "•" ("+" stays, it may stand
against "-"), deeper items behind more blanks; the outermost quote as a span, deeper ones behind "> "; code and tables in `pre`; images as
links. Markup that holds nothing (an empty fence, heading, quote, item or address) is shown as it is written, since it may be all that was
said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
from markdown_it.token import Token

from channels import dialect, tables
from channels.base import Span

RULE = "———"
"""A thematic break. Between blocks only: at either end of a text it says nothing."""

_BREAK = re.compile(r"\r\n|\r|\n")
_LANGUAGE = re.compile(r"\s*([\w+#./-]{1,40})(?=[\s,{:;]|\Z)")
_INLINE = {"strong": "bold", "em": "italic", "s": "strike", "link": "link"}
_MOST_MISSES = 64

_parser = dialect.make()


class Mark(msgspec.Struct, frozen=True, gc=False):
    """The visible text at `shown` stands at `source`. Both only ever grow along a text."""

    shown: int
    source: int


class Block(msgspec.Struct, frozen=True):
    """One top-level block. Offsets of spans and of `Mark.shown` are within `text`; `start` and `Mark.source` are within the source."""

    start: int
    line: int
    """Its first line, counted from where reading began."""
    apart: bool
    """A blank line stands before it."""
    rule: bool
    """A thematic break; `text` is what it looks like between others."""
    text: str
    spans: tuple[Span, ...]
    marks: tuple[Mark, ...]


class Lines:
    """Where the lines of a source begin, from `start` on. Lines end as CommonMark has it; `str.splitlines` knows other ends."""

    def __init__(self, source: str, start: int) -> None:
        self.source = source
        self._starts = [start, *(found.end() for found in _BREAK.finditer(source, start))]

    def offset(self, line: int) -> int:
        return self._starts[line] if line < len(self._starts) else len(self.source)

    def complete(self) -> int:
        """How many lines are over: no text that follows adds to them."""
        return len(self._starts) - 1

    def blank_before(self, line: int) -> bool:
        """Whether the line before is blank; a line of quote marks counts as blank. For line 0, the line before the place of reading."""
        end = self.offset(line)
        if line:
            return not self.source[self.offset(line - 1) : end].strip(" \t\r\n>")
        end -= 2 if self.source.endswith("\r\n", 0, end) else 1
        start = max(self.source.rfind("\n", 0, max(0, end)), self.source.rfind("\r", 0, max(0, end))) + 1
        return end >= 0 and not self.source[start:end].strip(" \t>")


def read(source: str, start: int) -> tuple[list[Block], Lines]:
    """The blocks of `source` from `start` on, which is where a top-level block begins (or 0). Never raises, linear in time."""
    lines = Lines(source, start)
    tokens = _parser.parse(source[start:])
    return [_block(group, lines) for group in _top_level(tokens)], lines


def _top_level(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    first = 0
    for i, token in enumerate(tokens):
        if token.level == 0 and token.nesting <= 0:
            yield tokens[first : i + 1]
            first = i + 1


def _block(tokens: Sequence[Token], lines: Lines) -> Block:
    first, end = tokens[0].map or (0, 0)
    writer = _Writer(lines, first, end)
    if tokens[0].type != "hr":
        writer.write(tokens)
    return Block(
        start=lines.offset(first),
        line=first,
        apart=lines.blank_before(first),
        rule=tokens[0].type == "hr",
        text=RULE if tokens[0].type == "hr" else "".join(writer.parts),
        spans=tuple(span for _, span in sorted(writer.spans, key=lambda s: (s[1].start, -s[1].end, s[0]))),
        marks=tuple(writer.marks),
    )


class _Writer:
    """Writes one top-level block. `at` is the length of what is written, `cursor` how far the source is used up."""

    def __init__(self, lines: Lines, first: int, end: int) -> None:
        self.lines, self.source = lines, lines.source
        self.cursor, self.limit = lines.offset(first), lines.offset(end)
        self.parts: list[str] = []
        self.at = 0
        self.spans: list[tuple[int, Span]] = []
        self.marks = [Mark(0, self.cursor)]
        self._open: dict[str, list[tuple[int, int, str]]] = {}
        self._opened = 0
        self._misses = 0
        self._prefix: list[str] = [""]
        self._behind_marker = True
        self._quotes = 0
        self._quote_waits = False
        self._link_words = 0
        self._hollow = False

    # ------------------------------------------------------------------------------------------------------------- small steps

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

    def close(self, kind: str) -> int:
        """Close the innermost span of a kind; only the outermost of a kind counts. Returns where it began."""
        order, start, value = self._open[kind].pop()
        if not self._open[kind] and self.at > start:
            self.spans.append((order, Span(kind, start, self.at, value)))  # type: ignore[arg-type]  # kinds are ours alone
        return start

    def begin(self, line: int, *, bare: bool = False) -> None:
        """Go to a new line for a block that begins at `line` of the source; the line of a marker just written is gone on with. `bare`: on a
        line of its own and without the blanks of the list around it, for code."""
        if not self._behind_marker:
            self.put("\n\n" if self.lines.blank_before(line) else "\n")
            self.put("" if bare else self._prefix[-1])
        elif bare and self.at:
            self.put("\n")
        self._behind_marker = False
        if self._quote_waits:
            self._quote_waits = False
            self.open("quote")
        self.cursor = max(self.cursor, self.lines.offset(line))
        self.mark(self.cursor)

    def text(self, words: str) -> None:
        """Words that may hold line breaks."""
        first, *rest = words.split("\n")
        self.find(first)
        self.put(first)
        for line in rest:
            self.put("\n" + self._prefix[-1])
            self.find(line)
            self.put(line)

    # ------------------------------------------------------------------------------------------------------------------ blocks

    def write(self, tokens: Sequence[Token]) -> None:
        i = 0
        while i < len(tokens):
            token = tokens[i]
            line = token.map[0] if token.map else 0
            match token.type:
                case "inline":
                    self.inline(token.children or [])
                case "paragraph_open":
                    self.begin(line)
                case "heading_open":
                    self.begin(line)
                    self.open("bold")
                    self.put("" if tokens[i + 1].content else token.markup)
                case "heading_close":
                    self.close("bold")
                case "list_item_open":
                    self.item(token, line, empty=tokens[i + 1].type == "list_item_close")
                case "list_item_close":
                    self._prefix.pop()
                    self._behind_marker = False
                case "blockquote_open":
                    self.quote(line, empty=tokens[i + 1].type == "blockquote_close")
                case "blockquote_close":
                    self.unquote()
                case "fence" | "code_block":
                    self.code(token, line)
                case "tex":
                    self.begin(line)
                    self.text(token.content)
                case "hr":
                    self.begin(line)
                    self.put(RULE)
                case "table_open":
                    i = self.table(tokens, i)
                case _:
                    pass
            i += 1

    def item(self, token: Token, line: int, *, empty: bool) -> None:
        """A marker. What is indented in the source but not enough to be nested (two blanks under "1.") keeps its indent all the same."""
        self.begin(line)
        words = self.source[self.lines.offset(line) : self.lines.offset(line + 1)]
        indent = "" if len(self._prefix) > 1 else " " * (len(words) - len(words.lstrip(" ")))
        marker = indent + (token.info + token.markup if token.info else token.markup if empty or token.markup == "+" else "•")
        self.put(marker if empty else marker + " ")
        self._prefix.append(self._prefix[-1] + " " * (len(marker) + 1))
        self._behind_marker = True

    def quote(self, line: int, *, empty: bool) -> None:
        self._quotes += 1
        self._prefix.append(self._prefix[-1])
        if empty or self._quotes > 1:
            self.begin(line)
            self.put(">" if empty else "> ")
            self._prefix[-1] += "> "
            self._behind_marker = True
        else:
            self._quote_waits = True

    def unquote(self) -> None:
        self._quotes -= 1
        self._prefix.pop()
        self._behind_marker = False
        if not self._quotes and self._open.get("quote"):
            self.close("quote")
        self._quote_waits = False

    def code(self, token: Token, line: int) -> None:
        first, after = (line + 1, (token.map or (0, line + 1))[1]) if token.type == "fence" else (line, line + 1)
        content = token.content.removesuffix("\n")
        if not content.strip():
            last = self.source[self.lines.offset(after - 1) : self.limit] if after - line > 1 else ""
            self.begin(line)
            self.put((token.markup + token.info).rstrip() + ("\n" + token.markup if token.markup in last else ""))
            return
        self.begin(line, bare=True)
        language = _LANGUAGE.match(token.info)
        if title := token.info[language.end() if language else 0 :].strip():
            self.put(title + "\n")
        self.open("pre", language[1] if language else "")
        for number, words in enumerate(content.split("\n"), first):
            self.put("\n" if number > first else "")
            start, end = self.lines.offset(number), self.lines.offset(number + 1)
            self.mark(max(start, self.source.rfind(words, start, end) if words else start))
            self.put(words)
        self.close("pre")

    def table(self, tokens: Sequence[Token], i: int) -> int:
        """Writes the table whose `table_open` is tokens[i]; returns where its `table_close` is."""
        rows: list[list[str]] = []
        lines: list[int] = []
        aligns: list[tables.Align] = []
        line = (tokens[i].map or (0,))[0]
        while tokens[i].type != "table_close":
            token = tokens[i]
            if token.type == "tr_open":
                rows.append([])
                lines.append((token.map or (line,))[0])
            elif token.type == "th_open":
                style = str(token.attrs.get("style", ""))
                aligns.append("right" if style.endswith("right") else "center" if style.endswith("center") else "left")
            elif token.type == "inline":
                rows[-1].append(" ".join(_plain(token.children or []).split()))
            i += 1
        self.begin(line, bare=True)
        self.open("pre")
        for number, (row, words) in enumerate(tables.layout(rows, aligns)):
            self.put("\n" if number else "")
            self.mark(self.lines.offset(lines[row]))
            self.put(words)
        self.close("pre")
        return i

    # ------------------------------------------------------------------------------------------------------------------ inline

    def inline(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            match token.type:
                case "text":
                    self.text(token.content)
                case "text_special":
                    self.find(token.markup)
                    self.put(token.content)
                case "softbreak" | "hardbreak":
                    self.put("\n" + self._prefix[-1] + token.content)
                case "code_inline":
                    self.find(token.markup)
                    self.open("code")
                    self.text(token.content)
                    self.close("code")
                    self.find(token.markup)
                case "strong_open" | "em_open" | "s_open":
                    self.find(token.markup)
                    self.open(_INLINE[token.type.removesuffix("_open")])
                case "strong_close" | "em_close" | "s_close":
                    self.find(token.markup)
                    self.close(_INLINE[token.type.removesuffix("_close")])
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
        words = _plain(token.children or []).strip()
        self.find("![")
        if not address:
            self.put(f"![{words}]()")
            return
        self.open("link", address)
        self.put(words or address)
        self.close("link")


def _plain(tokens: Sequence[Token]) -> str:
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
                words, address = _plain(token.children or []).strip(), str(token.attrs["src"])
                parts.append((words or address) if address else f"![{words}]()")
            case _:
                parts.append(token.content)
    return "".join(parts)
