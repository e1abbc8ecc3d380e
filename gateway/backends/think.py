"""Takes a model's thoughts out of its text: `<think>...</think>`, however the tags are cut into deltas. Pure.

A tag counts wherever it stands in prose and never in code: inside a fenced block, or in a code span that is closed on its line, it is what
the model wants to show. Undecided text is held back (a few characters), so that nothing hidden is visible for even one edit.
A thought that is never closed stays hidden to the end. A `</think>` without its beginning is dropped; what stood before it was shown, which
cannot be helped (servers that open the tag in their prompt template have a reasoning parser for that). Called by `gateway.backends.chunks`.
"""

from __future__ import annotations

import re

from gateway.backends.base import Reasoning, Text

_SPAN_HOLD = 200
"""Characters that an opened code span with a tag in it is waited for; a span that quotes a tag is short."""

_TAGS = ("<think>", "</think>", "<thinking>", "</thinking>")
_LONGEST = max(map(len, _TAGS))
_CLOSE = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_TOKEN = re.compile(r"\n|`+|~+|</?think(?:ing)?>|[^\n`~<]+|<", re.IGNORECASE)
_RUN = re.compile(r"`+")
_SPECIAL = re.compile(r"[\n`~<]")
_BEFORE_FENCE = re.compile(r"[\s>]*(?:(?:[-*+]|\d{1,9}[.)])\s+)*")
_LINE_KEPT = 64


def _held(text: str) -> int:
    """How many characters at the end may be the beginning of a tag."""
    at = text.rfind("<", max(0, len(text) - _LONGEST + 1))
    if at < 0:
        return 0
    tail = text[at:].lower()
    return len(tail) if any(tag.startswith(tail) for tag in _TAGS) else 0


class Thoughts:
    """`feed` text as it grows, `finish` at its end; both give what is now certain."""

    __slots__ = ("_buffer", "_closing", "_fence", "_hidden", "_info", "_line", "_shown", "_span")

    def __init__(self) -> None:
        self._buffer = ""  # not decided yet
        self._hidden = False  # inside a thought
        self._shown = False  # something visible came before
        self._line = ""  # the beginning of the visible line we are in
        self._fence = ""  # the marker of the fenced block we are in
        self._info = False  # still on the line that opened it
        self._closing = False  # its closing marker stands there, if nothing but space follows on the line
        self._span = 0  # backticks that opened a code span on this line

    def feed(self, text: str) -> list[Text | Reasoning]:
        if not self._buffer and not self._hidden and self._shown and not _SPECIAL.search(text):
            self._plain(text)
            return [Text(text)] if text else []
        self._buffer += text
        return self._run(final=False)

    def finish(self) -> list[Text | Reasoning]:
        return self._run(final=True)

    def _run(self, *, final: bool) -> list[Text | Reasoning]:
        out: list[Text | Reasoning] = []
        text, at = self._buffer, 0
        start = at  # of the visible run that is not handed out yet

        def flush(end: int) -> None:
            part = text[start:end]
            if not self._shown:
                part = part.lstrip()  # the line feeds between a thought and its answer
            if part:
                self._shown = True
                out.append(Text(part))

        while at < len(text):
            if self._hidden:
                if closed := _CLOSE.search(text, at):
                    thought, at = text[at : closed.start()], closed.end()
                    self._hidden = False
                else:
                    end = len(text) if final else len(text) - _held(text[at:])
                    thought, at = text[at:end], end
                if thought:
                    out.append(Reasoning(thought))
                start = at
                if self._hidden:
                    break
                continue
            end = _TOKEN.match(text, at).end()  # type: ignore[union-attr]  # the alternatives cover every character
            word = text[at:end]
            if not final and (
                (end == len(text) and word[0] in "`~" and len(word) < _LINE_KEPT) or (word == "<" and _held(text[at:]) == len(text) - at)
            ):
                break  # a run of backticks may go on, a tag may be coming
            if len(word) > 2 and word[0] == "<" and not self._fence:
                code = self._in_span(text, end, final=final) if self._span else 0
                if code < 0:
                    break
                if not code:
                    flush(at)
                    self._hidden, at, start = word[1] != "/", end, end
                    self._span = 0
                    continue
                end = code
                self._span = 0
                self._plain(text[at:end])
            elif word == "\n":
                self._newline()
            elif word[0] in "`~":
                self._run_of(word)
            else:
                self._plain(word)
            at = end
        if not self._hidden:
            flush(at)
        self._buffer = text[at:]
        return out

    def _in_span(self, text: str, at: int, *, final: bool) -> int:
        """Where the code span around a tag ends; 0 if it is none after all; -1 if only more text can tell."""
        line_end = text.find("\n", at, at + _SPAN_HOLD)
        stop = line_end if line_end >= 0 else len(text)
        for run in _RUN.finditer(text, at, stop):
            if run.start() - at > _SPAN_HOLD:
                return 0
            if run.end() == len(text) and not final:
                return -1
            if len(run.group()) == self._span:
                return run.end()
        return 0 if line_end >= 0 or final or len(text) - at > _SPAN_HOLD else -1

    def _plain(self, word: str) -> None:
        if len(self._line) < _LINE_KEPT:
            self._line += word[:_LINE_KEPT]
        if self._closing and not word.isspace():
            self._closing = False

    def _newline(self) -> None:
        if self._closing:
            self._fence = ""
        self._line, self._info, self._closing, self._span = "", False, False, 0

    def _run_of(self, run: str) -> None:
        """Backticks or tildes, as many as there are."""
        alone = len(run) >= 3 and _BEFORE_FENCE.fullmatch(self._line) is not None
        if self._fence:
            if self._info and run[0] == "`" == self._fence[0]:
                # A backtick fence has no backtick on its line: this was a code span.
                self._span = 0 if run == self._fence else len(self._fence)
                self._fence, self._info = "", False
            elif alone and run[0] == self._fence[0] and len(run) >= len(self._fence):
                self._closing = True
        elif alone:
            self._fence, self._info = run, True
        elif run[0] == "`":
            self._span = len(run) if not self._span else 0 if self._span == len(run) else self._span
        self._line = (self._line + run)[:_LINE_KEPT]
