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
from channels.inlines import Mark, Writer, plain

RULE = "———"
"""A thematic break. Between blocks only: at either end of a text it says nothing."""

_BREAK = re.compile(r"\r\n|\r|\n")
_LANGUAGE = re.compile(r"\s*([\w+#./-]{1,40})(?=[\s,{:;]|\Z)")

_parser = dialect.make()


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
    writer = _BlockWriter(lines, first, end)
    if tokens[0].type != "hr":
        writer.write(tokens)
    return Block(
        start=lines.offset(first),
        line=first,
        apart=lines.blank_before(first),
        rule=tokens[0].type == "hr",
        text=RULE if tokens[0].type == "hr" else "".join(writer.parts),
        spans=writer.spans(),
        marks=tuple(writer.marks),
    )


class _BlockWriter(Writer):
    """Writes one top-level block."""

    def __init__(self, lines: Lines, first: int, end: int) -> None:
        super().__init__(lines.source, lines.offset(first), lines.offset(end))
        self.lines = lines
        self._behind_marker = True
        self._quotes = 0
        self._quote_waits = False

    def begin(self, line: int, *, bare: bool = False) -> None:
        """Go to a new line for a block that begins at `line` of the source; the line of a marker just written is gone on with. `bare`: on a
        line of its own and without the blanks of the list around it, for code."""
        if not self._behind_marker:
            self.put("\n\n" if self.lines.blank_before(line) else "\n")
            self.put("" if bare else self.indents[-1])
        elif bare and self.at:
            self.put("\n")
        self._behind_marker = False
        if self._quote_waits:
            self._quote_waits = False
            self.open("quote")
        self.cursor = max(self.cursor, self.lines.offset(line))
        self.mark(self.cursor)

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
                    self.indents.pop()
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
        indent = "" if len(self.indents) > 1 else " " * (len(words) - len(words.lstrip(" ")))
        marker = indent + (token.info + token.markup if token.info else token.markup if empty or token.markup == "+" else "•")
        self.put(marker if empty else marker + " ")
        self.indents.append(self.indents[-1] + " " * (len(marker) + 1))
        self._behind_marker = True

    def quote(self, line: int, *, empty: bool) -> None:
        self._quotes += 1
        self.indents.append(self.indents[-1])
        if empty or self._quotes > 1:
            self.begin(line)
            self.put(">" if empty else "> ")
            self.indents[-1] += "> "
            self._behind_marker = True
        else:
            self._quote_waits = True

    def unquote(self) -> None:
        self._quotes -= 1
        self.indents.pop()
        self._behind_marker = False
        if not self._quotes and self.is_open("quote"):
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
                rows[-1].append(" ".join(plain(token.children or []).split()))
            i += 1
        self.begin(line, bare=True)
        self.open("pre")
        for number, (row, words) in enumerate(tables.layout(rows, aligns)):
            self.put("\n" if number else "")
            self.mark(self.lines.offset(lines[row]))
            self.put(words)
        self.close("pre")
        return i
