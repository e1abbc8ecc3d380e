"""A text with spans as Discord's Markdown, such that Discord shows exactly that text. Pure. Called by `channels.discord.render`, which
sees to it that the spans are such as can be written.

Discord documents little of its Markdown; the rules here are those of its clients as others worked them out (the regular expressions of
simple-markdown with Discord's own): a backslash keeps a character that is no letter, digit or blank; an address takes all up to a blank
or "<"; headings, lists and quotes are where a line begins; nothing is escaped in code and addresses. What needs no backslash gets none,
so that names_like_this and 2. lists stay readable where the text is seen raw (notifications, copies).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from channels.base import Span

MARKERS = {"bold": "**", "italic": "*", "strike": "~~"}
_ADDRESS = re.compile(r"(?:https?|steam)://[^\s<]+[^<.,:;\"'\]\s]")
_SCHEME = re.compile(r"((?:https?|steam):)//[^\s<]*")
_BEFORE_ANGLE = re.compile(r"(?:https?|steam)://[^\s<]+(?=<)")
_ENDS_ADDRESS = re.compile(r"[\s<]")
_ALWAYS = re.compile(r"[\\*`]")
_UNDERSCORE = re.compile(r"_")
_IN_WORD = re.compile(r"[A-Za-z0-9]_[A-Za-z0-9]")
_DOUBLED = re.compile(r"~(?=~)|(?<=~)~|\|(?=\|)|(?<=\|)\|")
_ANGLE = re.compile(r"<(?=[^\s<>]*[@#:/+][^\n<>]*>)")
_EMOJI = re.compile(r":(?=(?:[\w+-]*[A-Za-z+_-][\w+-]*|100|1234):)", re.ASCII)
_TO_ADDRESS = re.compile(r"(?<=\])\(")
# Where lines begin, blanks before them or not.
_LINE = re.compile(r"^ *(#(?=#{0,2}\s)|-(?=\#? )|>(?=[ >]))", re.MULTILINE)
_NUMBER = re.compile(r"^( *)([0-9]+)(\.)(?= )", re.MULTILINE)
_PLAIN_NUMBER = re.compile(r"[1-9][0-9]{0,8}\. (?=[^\s#>\[0-9-])")
_LANGUAGE = re.compile(r"[A-Za-z0-9_+.-]+")
_LANGUAGES = {"c#": "cs", "f#": "fs"}


def verbatim(text: str, codes: Iterable[Span]) -> tuple[list[Span], list[tuple[int, int]]]:
    """What is shown as it is sent: those of the (sorted) codes that can be, and where the bare addresses outside of them begin and end.
    Code in a line that begins in an address becomes a part of it, and is none."""
    kept: list[Span] = []
    found: list[tuple[int, int]] = []
    match = _ADDRESS.search(text)
    for code in codes:
        if code.kind == "code" and not fence(text[code.start : code.end]):
            continue
        while match and match.start() < code.start:
            found.append(_address(match))
            match = _ADDRESS.search(text, match.end())
        if code.kind == "code" and found and reaches(text, found[-1][0], code.start):
            continue
        kept.append(code)
        if match and match.start() < code.end:
            match = _ADDRESS.search(text, code.end)
    while match:
        found.append(_address(match))
        match = _ADDRESS.search(text, match.end())
    return kept, found


def _address(match: re.Match[str]) -> tuple[int, int]:
    """Without the bracket that closes around it."""
    closers = len(match[0]) - len(match[0].rstrip(")"))
    return match.start(), match.end() - (closers > match[0].count("("))


def reaches(text: str, start: int, at: int) -> bool:
    """Whether what stands at `at` without a blank before it would become a part of an address that begins at `start`."""
    return _ENDS_ADDRESS.search(text, start, at) is None


@lru_cache(maxsize=256)
def write(text: str, spans: tuple[Span, ...]) -> str:
    """What to send. `spans` nest or are apart; see `render` for what else holds of them."""
    inserts: dict[int, list[str]] = {}
    fixed = _Verbatim(text, spans)

    def insert(at: int, words: str) -> None:
        inserts.setdefault(at, []).append(words)

    quotes = [span for span in spans if span.kind == "quote"]
    codes = [(span.start, span.end) for span in spans if span.kind == "code"]
    closing: list[tuple[int, str]] = []
    opening: list[tuple[int, str]] = []
    for span in spans:
        for start, end, before, after in _marks(text, span, quotes, codes):
            opening.append((start, before))
            closing.append((end, after))
    # At one place: first what ends there, the inner before the outer; then the quote's mark; then what begins, and what escapes.
    for at, words in reversed(closing):
        insert(at, words)
    for at in _quoted_lines(text, quotes):
        insert(at, "> ")
    for at, words in opening:
        insert(at, words)
    for at in _escapes(text, spans, fixed):
        insert(at, "\\")
    for start, end in fixed.bracketed:
        insert(start, "<")
        inserts.setdefault(end, []).insert(0, ">")
    for at in _fences_in_code(text, spans):
        insert(at, "\u200b")

    for start, middle, end in fixed.schemes:
        # "http://" and a mark: with it, it would become an address.
        if any(start < at <= end for at in inserts):
            insert(middle, "\u200b")

    parts: list[str] = []
    done = 0
    for at in sorted(inserts):
        parts += (text[done:at], *inserts[at])
        done = at
    return "".join((*parts, text[done:]))


# --------------------------------------------------------------------------------------------------------------------------- markers


def _marks(text: str, span: Span, quotes: Sequence[Span], codes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, str, str]]:
    start, end = span.start, span.end
    if span.kind == "pre":
        newline = "\n> " if _inside(start, quotes) else "\n"
        before = newline if start and text[start - 1] != "\n" else ""
        after = newline if end < len(text) and text[end] != "\n" else ""
        yield start, end, f"{before}```{_language(span.value)}{newline}", f"{newline}```{after}"
    elif span.kind == "code":
        ticks = fence(text[start:end])
        if ticks:
            yield start, end, ticks, ticks
    elif span.kind == "link":
        yield start, end, "[", f"]({span.value})"
    elif span.kind in MARKERS:
        start, end = visible(text, start, end, codes)
        if start < end:
            yield start, end, MARKERS[span.kind], MARKERS[span.kind]


def fence(code: str) -> str:
    """The backticks around code in a line; "" where no number of them will do (three begin a block)."""
    runs = {len(run) for run in re.findall("`+", code)}
    if code[:1] == "`" or code[-1:] == "`":
        return ""
    return "" if {1, 2} <= runs else "``" if 1 in runs else "`"


def visible(text: str, start: int, end: int, codes: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """A stretch of text without the blanks at its ends; code is no blank, whatever is in it."""
    solid = {border for code in codes for border in code}
    while start < end and is_blank(text[start]) and start not in solid:
        start += 1
    while end > start and is_blank(text[end - 1]) and end not in solid:
        end -= 1
    return start, end


def is_blank(char: str) -> bool:
    """What a browser's regular expressions take for white space."""
    return char.isspace() or char == "\ufeff"


def _language(said: str) -> str:
    language = _LANGUAGES.get(said.lower(), said)
    return language if _LANGUAGE.fullmatch(language) else ""


def _inside(at: int, spans: Sequence[Span]) -> bool:
    return any(span.start <= at < span.end for span in spans)


def _quoted_lines(text: str, quotes: Sequence[Span]) -> Iterator[int]:
    for quote in quotes:
        yield quote.start
        for found in re.finditer("\n", text[quote.start : quote.end]):
            yield quote.start + found.end()


def _fences_in_code(text: str, spans: Sequence[Span]) -> Iterator[int]:
    """Three backticks end a block, whatever stands around them: a character without width parts them."""
    for span in spans:
        if span.kind == "pre":
            for found in re.finditer("``(?=`)", text[span.start : span.end]):
                yield span.start + found.end()


# --------------------------------------------------------------------------------------------------------------------------- escapes


def _escapes(text: str, spans: Sequence[Span], fixed: _Verbatim) -> list[int]:
    """Before which characters a backslash must stand."""
    at = [found.start() for pattern in (_ALWAYS, _DOUBLED, _ANGLE, _EMOJI, _TO_ADDRESS) for found in pattern.finditer(text)]
    at += (found.start(1) for found in _LINE.finditer(text))
    at += _numbers(text, spans)
    borders = {border for span in spans for border in (span.start, span.end)} | {start for start, _ in fixed.bracketed}
    for found in _UNDERSCORE.finditer(text):
        # One inside a word can begin something, but nothing can end at one.
        start, end = found.span()
        if fixed.underscored or start in borders or end in borders or not start or not _IN_WORD.match(text, start - 1):
            at.append(start)
    if fixed.linked or any(span.kind == "link" for span in spans):
        at += (found.start() for found in re.finditer(r"\[", text))
    if any(span.kind == "strike" for span in spans):
        at += (found.start() for found in re.finditer("~", text))
    return sorted({one for one in at if one not in fixed})


class _Verbatim:
    """The parts of a text in which a backslash would be seen: code, addresses, the words of links."""

    def __init__(self, text: str, spans: Sequence[Span]) -> None:
        codes, web = verbatim(text, (span for span in spans if span.kind in ("code", "pre")))
        parts = {code.start: code.end for code in codes} | dict(web)
        self.bracketed: list[tuple[int, int]] = []
        """Addresses that must stand in <>: what follows needs a backslash, which would become a part of them."""
        near = _BEFORE_ANGLE.search(text)
        while near:
            start, end = near.span()
            stop = end if (closer := text.find(">", start, end)) < 0 else closer
            if _ANGLE.match(text, end) and not any(code.start < end and start < code.end for code in codes):
                self.bracketed.append((start, stop))
                parts[start] = stop
            near = _BEFORE_ANGLE.search(text, stop)
        self.schemes = [
            (found.start(), found.end(1), found.end())
            for found in _SCHEME.finditer(text)
            if found.start() not in parts and not any(code.start < found.end() and found.start() < code.end for code in codes)
        ]
        """What begins like an address and is none: its start, the end of "http:", and where the next blank is."""
        self.linked = any("](" in text[start:end] for start, end in parts.items())
        self.underscored = any("_" in text[start:end] for start, end in parts.items())
        # Nor are escapes read in the words of a link.
        parts |= {span.start: span.end for span in spans if span.kind == "link"}
        self._parts = sorted(parts.items())
        self._starts = [start for start, _ in self._parts]

    def __contains__(self, at: int) -> bool:
        i = bisect_right(self._starts, at) - 1
        return i >= 0 and at < self._parts[i][1]


def _numbers(text: str, spans: Sequence[Span]) -> Iterator[int]:
    """The dots behind numbers that begin lines, where the list that Discord makes of them would show another number or other blanks."""
    last = 0
    before = 0
    for found in _NUMBER.finditer(text):
        if _ends_list(text, before, found.start()):
            last = 0
        before = found.end()
        end = text.find("\n", found.end())
        plain = not found[1] and _PLAIN_NUMBER.match(text, found.start()) is not None and (not last or int(found[2]) == last + 1)
        if plain and end >= 0:
            plain = text[end + 1 : end + 2] != " " and not any(s.kind != "quote" and s.start <= end < s.end for s in spans)
        if plain and not any(s.kind != "quote" and s.start <= found.end() and found.start() <= s.end for s in spans):
            last = int(found[2])
        else:
            yield found.start(3)


def _ends_list(text: str, start: int, end: int) -> bool:
    """Whether a line that is neither blank nor indented stands between a number and the one at `end`."""
    lines = text[start:end].split("\n")[1:-1] if end else []
    return any(line and not line.startswith(" ") for line in lines)
