"""The Markdown that we read: CommonMark by markdown-it-py with tables and strikethrough, bent where a chat answer needs it.

What differs, and why:
- No HTML: tags are shown as they are written (`List<int>` is code, not markup).
- No reference definitions and no underlined headings: both let a later line change an earlier block, so that a growing text would be
  drawn anew, and a definition would vanish. `[1]: https://...` is shown, a line of dashes is always a rule.
- Links only where they lead somewhere (`LINK`); `f[i](x)` is prose. Addresses are kept byte for byte, bare ones are passed over whole.
- `__init__` and other dunder names are names; `*` between two ASCII letters or digits never opens emphasis (2*3*4, 2**3**2).
- `**` may close after and open before punctuation where its other neighbour is a letter of a script beyond ASCII: **注意：**请.
- A table ends where its rows do: at a line that does not begin with "|" where its head does, or that has none at all. No cell is dropped.
- TeX (`$$ $$`, `\\[ \\]`, `\\( \\)`) is passed over whole.
- Nesting deeper than `DEEPEST` is text. markdown-it drops all that follows its own limit, so that must never be reached.

All rules look ahead a bounded way, so that parsing stays linear. Called by: `channels.markup`.
"""

from __future__ import annotations

import re
import unicodedata

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, blockquote, list_block, table
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_inline import StateInline, emphasis

DEEPEST = 16
"""Levels of nested blocks: a quote is one, a list two. markdown-it's own limit (`maxNesting`, 20) stays above it."""

MOST_COLUMNS = 32

LINK = re.compile(r"(?:https?|tg)://[^\s/]|mailto:\S", re.IGNORECASE)
"""How the address of a link must begin."""

_SCHEMES = ("http", "https", "ftp", "tg")
# Stops at what may close markup around an address, and at the punctuation of scripts that put no blank behind an address.
_ADDRESS = re.compile(r"://(?:(?!\*\*|~~)[^\s<>\[\]`|\"\u2010-\u203e\u3000-\u303f\uff00-\uff65])+")
_ADDRESS_TAIL = "?!.,:;*_~')"

_DUNDER = re.compile(r"(?<!\w)__[A-Za-z0-9](?:\w*[A-Za-z0-9])?__(?!\w)", re.ASCII)
_DELIMITER_ROW = re.compile(r"[-:|][-:| \t]*")
_SPOILER_LINE = re.compile(r"\|\|[^|]+\|\|")
_TEX_CLOSERS = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
_TEX = re.compile(r"[_^={}+]|\\[A-Za-z]")
_LONGEST_TEX = 2000


class _Parser(MarkdownIt):
    """markdown-it with addresses left as they are; the three names are the library's."""

    def normalizeLink(self, url: str) -> str:  # noqa: N802
        return url

    def normalizeLinkText(self, link: str) -> str:  # noqa: N802
        return link

    def validateLink(self, url: str) -> bool:  # noqa: N802
        return LINK.match(url) is not None


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


# --------------------------------------------------------------------------------------------------------------------- block rules


def _quote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    return state.level < DEEPEST and blockquote(state, start, end, silent)


def _list(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    return state.level < DEEPEST and list_block(state, start, end, silent)


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    if start + 2 > end or not _DELIMITER_ROW.fullmatch(_line(state, start + 1)):
        return False
    head = _line(state, start)
    if head.count("|") > MOST_COLUMNS + 1:
        return False
    last = start + 2
    if not silent:
        while last < end and _is_row(_line(state, last), piped=head.startswith("|")):
            last += 1
    known = len(state.tokens)
    if not table(state, start, last, silent):
        return False
    if not silent:
        _keep_excess(state, known)
    return True


def _keep_excess(state: StateBlock, first: int) -> None:
    """Cells beyond the head's columns, which the rule drops (often a pipe in code that is not escaped), go into their row's last cell."""
    columns = 0
    excess: list[str] = []
    for i in range(first, len(state.tokens)):
        token = state.tokens[i]
        if token.type == "th_open":
            columns += 1
        elif token.type == "tr_open" and columns and token.map:
            cells = escapedSplit(_line(state, token.map[0]).strip())
            excess = cells[not cells[0] :][columns:]
            if excess and not excess[-1]:
                excess.pop()
        elif token.type == "tr_close" and excess:
            last = state.tokens[i - 2]
            last.content = " | ".join((last.content, *(cell.strip() for cell in excess))).strip()


def _is_row(line: str, *, piped: bool) -> bool:
    if not piped:
        return "|" in line
    return line.startswith("|") and not _SPOILER_LINE.fullmatch(line.rstrip())


def _tex_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """`$$` or `\\[` alone on a line, up to the line that ends with its closer or to a blank line."""
    opener = _line(state, start).rstrip()
    if opener not in ("$$", "\\[") or state.is_code_block(start):
        return False
    if silent:
        return True
    closer, after = _TEX_CLOSERS[opener], start + 1
    while after < end and not state.isEmpty(after) and state.sCount[after] >= state.blkIndent:
        after += 1
        if _line(state, after - 1).rstrip().endswith(closer):
            break
    state.line = after
    token = state.push("tex", "", 0)
    token.content = state.getLines(start, after, state.blkIndent, False)
    token.map = [start, after]
    return True


# -------------------------------------------------------------------------------------------------------------------- inline rules


def _pass_over(state: StateInline, end: int, silent: bool) -> bool:
    if not silent:
        state.append_pending(state.src[state.pos : end])
    state.pos = end
    return True


def _bare_address(state: StateInline, silent: bool) -> bool:
    pos = state.pos
    if not state.src.startswith("://", pos) or not state.src[max(0, pos - 5) : pos].lower().endswith(_SCHEMES):
        return False
    found = _ADDRESS.match(state.src, pos, state.posMax)
    end = pos + len(found[0].rstrip(_ADDRESS_TAIL)) if found else pos
    return end > pos + 3 and _pass_over(state, end, silent)


def _dunder(state: StateInline, silent: bool) -> bool:
    found = _DUNDER.match(state.src, state.pos, state.posMax) if state.src[state.pos] == "_" else None
    return found is not None and _pass_over(state, found.end(), silent)


def _tex(state: StateInline, silent: bool) -> bool:
    pos = state.pos
    closer = _TEX_CLOSERS.get(state.src[pos : pos + 2])
    if closer is None:
        return False
    end = state.src.find(closer, pos + 2, min(state.posMax, pos + _LONGEST_TEX))
    return end >= 0 and _TEX.search(state.src, pos + 2, end) is not None and _pass_over(state, end + 2, silent)


def _newline(state: StateInline, silent: bool) -> bool:
    """A line break stays one, and the next line keeps its indent (`content`); whether it is soft or hard makes no difference in a chat."""
    if state.src[state.pos] != "\n":
        return False
    end = state.pos + 1
    while end < state.posMax and state.src[end] in " \t":
        end += 1
    if not silent:
        state.pending = state.pending.rstrip(" ")
        state.push("softbreak", "br", 0).content = state.src[state.pos + 1 : end]
    state.pos = end
    return True


def _emphasis(state: StateInline, silent: bool) -> bool:
    start, known = state.pos, len(state.delimiters)
    if not emphasis.tokenize(state, silent):
        return False
    if state.src[start] == "*" and start > 0 and state.pos < state.posMax:
        before, after = state.src[start - 1], state.src[state.pos]
        run = state.delimiters[known:]
        if _ascii_word(before) and _ascii_word(after):
            for mark in run:
                mark.open = False
        elif len(run) == 2:
            closes, opens = unicodedata.category(before), unicodedata.category(after)
            for mark in run:
                mark.close = mark.close or (_foreign_letter(after) and closes[0] == "P" and closes not in ("Ps", "Pi"))
                mark.open = mark.open or (_foreign_letter(before) and opens[0] == "P" and opens not in ("Pe", "Pf"))
    return True


def _ascii_word(char: str) -> bool:
    return char.isascii() and char.isalnum()


def _foreign_letter(char: str) -> bool:
    return not char.isascii() and char.isalnum()


# -------------------------------------------------------------------------------------------------------------------------- parser


def make() -> MarkdownIt:
    """A parser of the dialect. It keeps no state between texts. Inline text comes as verbatim slices of the source, never joined over an
    escape (`text_join` is off), so that a reader can find it there."""
    parser = _Parser("commonmark", {"html": False})
    parser.enable(["table", "strikethrough"])
    parser.disable(["reference", "lheading", "html_block", "html_inline", "text_join"])
    block, inline = parser.block.ruler, parser.inline.ruler
    block.at("blockquote", _quote, {"alt": ["paragraph", "blockquote", "list"]})
    block.at("list", _list, {"alt": ["paragraph", "blockquote"]})
    block.at("table", _table, {"alt": ["paragraph"]})
    block.before("fence", "tex", _tex_block, {"alt": ["paragraph"]})
    inline.at("newline", _newline)
    inline.at("emphasis", _emphasis)
    inline.before("newline", "bare_address", _bare_address)
    inline.before("escape", "tex", _tex)
    inline.before("emphasis", "dunder", _dunder)
    return parser
