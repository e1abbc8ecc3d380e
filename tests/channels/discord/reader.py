"""What a person sees of a message, by the rules of Discord's clients: a small reader of its Markdown, for tests. No tests of its own.

The rules are those that others found by trying the clients (headings, lists, quotes, subtext, emphasis, code, links, mentions, emoji);
which of them may meet in one place is simpler here. It is no translation of the renderer: it is written from the reading side.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_BOLD = re.compile(r"\*\*((?:\\.|[^\\])+?)\*\*(?!\*)", re.S)
_UNDERLINE = re.compile(r"__((?:\\.|[^\\])+?)__(?!_)", re.S)
_ITALIC = re.compile(r"\*(?!\s)((?:\\.|\*\*|[^*\\])+?)(?<!\s) {0,2}\*(?!\*)", re.S)
_ITALIC_2 = re.compile(r"_((?:\\.|__|[^_\\])+?)_(?![a-zA-Z0-9_])", re.S)
_STRIKE = re.compile(r"~~(.+?)~~(?!_)", re.S)
_SPOILER = re.compile(r"\|\|(.+?)\|\|", re.S)
_CODE = re.compile(r"(`+)(.+?)(?<!`)\1(?!`)", re.S)
_BLOCK = re.compile(r"```(?:([a-zA-Z_\-+.0-9]*)\n)?(.*?[^\n].*?)```", re.S)
_NODES = (
    ("time", re.compile(r"<t:-?[0-9]+(?::[tTdDfFR])?>")),
    ("emoji", re.compile(r"<a?:\w+:[0-9]+>", re.ASCII)),
    ("emoji", re.compile(r":(?!\d+:)[\w+-]+:|:100:|:1234:", re.ASCII)),
    ("mention", re.compile(r"<@[!&]?[0-9]+>|<#[0-9]+>|</[^:>]+:[0-9]+>|<id:\w+>")),
)
_ADDRESS = re.compile(r"(?:https?|steam)://[^\s<]+[^<.,:;\"'\]\s]")
_ANGLE = re.compile(r"<([^: >]+:/[^ >]+)>")
_LINK = re.compile(r"\[((?:\[[^\]]*\]|[^\[\]])*[^\[]*)\]\(\s*<?((?:\([^)]*\)|[^\s\\]|\\[^\n])*?)>?(?:\s+['\"](.*?)['\"])?\s*\)", re.S)
_HEADING = re.compile(r"(#{1,3})\s+(?!#)([^\n]*)\n?")
_SUBTEXT = re.compile(r"-# +(?!-#)([^\n]+)\n?")
_QUOTES = re.compile(r"(?:> [^\n]*(?:\n|\Z))+")
_QUOTE_REST = re.compile(r">>> (.*)", re.S)
_ITEM = re.compile(r"([*-]|[0-9]+\.)( +)(.[^\n]*(?:\n [^\n]*)*)(\n?)", re.S)
_EMOJI_CHARACTER = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\u20e3\ufe0f]")
_IN_LINKS = {"bold", "italic", "strike", "code", "underline", "item", "bullet", "quote", "heading", "subtext"}
_UNSEEN_IN_LINKS = re.compile("[\u00a0\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


@dataclass(slots=True)
class Seen:
    """The visible text, and what is formatted in it: (kind, words, and for a link its address, for a block its language)."""

    text: str = ""
    marks: list[tuple[str, str, str]] = field(default_factory=list)

    def kinds(self) -> set[str]:
        return {kind for kind, _, _ in self.marks}

    def words(self, kind: str) -> list[str]:
        return [words for one, words, _ in self.marks if one == kind]


def read(content: str) -> Seen:
    seen = Seen()
    seen.text = _Reader(content.strip(), seen).read()
    return seen


@dataclass(slots=True)
class _Reader:
    text: str
    seen: Seen
    lead: str = ""
    """What stands before it in its line: "" nothing, " " blanks, "$" something."""
    quoted: bool = False
    listed: int = 0

    def read(self) -> str:
        out: list[str] = []
        at = 0
        while at < len(self.text):
            if self.text[at] == "\\" and at + 1 < len(self.text):
                after = self.text[at + 1]
                out.append(after if not re.match(r"[A-Za-z0-9\s]", after) else "\\" + after)
                at += 2
                continue
            found = self.node(at)
            if found is None:
                out.append(self.text[at])
                at += 1
            else:
                words, at = found
                out.append(words)
        return re.sub(r" +(?=\n)", "", "".join(out))

    def before(self, at: int) -> str:
        line = self.text[self.text.rfind("\n", 0, at) + 1 : at]
        if "\n" not in self.text[:at]:
            line = self.lead + line
        return "" if not line else " " if not line.strip(" ") else "$"

    def inner(self, words: str, at: int, *, quoted: bool = False, listed: int = 0) -> str:
        return _Reader(words, self.seen, self.before(at), self.quoted or quoted, self.listed + listed).read()

    def mark(self, kind: str, words: str, value: str = "") -> str:
        self.seen.marks.append((kind, words, value))
        return words

    def node(self, at: int) -> tuple[str, int] | None:
        text = self.text
        if found := _BLOCK.match(text, at):
            return self.mark("block", found[2].strip("\n"), found[1] or ""), found.end()
        if emphasis := self.emphasis(at):
            return emphasis
        if found := _CODE.match(text, at):
            code = found[2]
            code = code.removeprefix(" ") if code.strip(" ").startswith("`") else code
            return self.mark("code", code.removesuffix(" ") if code.strip(" ").endswith("`") else code), found.end()
        for kind, pattern in _NODES:
            if found := pattern.match(text, at):
                return self.mark(kind, f"<{kind}>"), found.end()
        if found := _ADDRESS.match(text, at):
            address = found[0]
            if len(address) - len(address.rstrip(")")) > address.count("("):
                address = address[:-1]
            return self.mark("address", address, address), at + len(address)
        if found := _ANGLE.match(text, at):
            return self.mark("address", found[1], found[1]), found.end()
        if (found := _LINK.match(text, at)) and (words := self.link(found[1], found[2])) is not None:
            return words, found.end()
        return self.block(at)

    def emphasis(self, at: int) -> tuple[str, int] | None:
        for kind, pattern in (
            ("italic", _ITALIC),
            ("italic", _ITALIC_2),
            ("bold", _BOLD),
            ("underline", _UNDERLINE),
            ("strike", _STRIKE),
            ("spoiler", _SPOILER),
        ):
            if not (found := pattern.match(self.text, at)):
                continue
            name = kind
            if kind == "italic":
                for longer, other in (("bold", _BOLD), ("underline", _UNDERLINE)):
                    rival = other.match(self.text, at)
                    if rival and len(rival[0]) > len(found[0]):
                        name, found = longer, rival
            return self.mark(name, self.inner(found[1], at)), found.end()
        return None

    def link(self, words: str, address: str) -> str | None:
        """No escapes are read in the words of a link, and neither addresses nor emoji may be in them."""
        if not re.match(r"https?://[^/]", address) or not words.strip():
            return None
        plain = _UNSEEN_IN_LINKS.sub("", words)
        trial = Seen()
        _Reader(plain, trial).read()
        if trial.kinds() - _IN_LINKS or _EMOJI_CHARACTER.search(plain):
            return None
        trial = Seen()
        shown = _InLink(plain, trial).read()
        self.seen.marks += trial.marks
        return self.mark("link", shown, address)

    def block(self, at: int) -> tuple[str, int] | None:
        before = self.before(at)
        if before == "$":
            return None
        if not before and (found := _SUBTEXT.match(self.text, at)):
            return self.mark("subtext", self.inner(found[1], at)), found.end()
        if not before and not self.listed and (found := _HEADING.match(self.text, at)):
            return self.mark("heading", self.inner(found[2], at)), found.end()
        if not self.quoted and (found := _QUOTE_REST.match(self.text, at)):
            return self.mark("quote", self.inner(found[1], at, quoted=True)), found.end()
        if not self.quoted and (found := _QUOTES.match(self.text, at)):
            lines = found[0].removesuffix("\n").split("\n")
            inner = _Reader("\n".join(line.removeprefix("> ") for line in lines), self.seen, "", True, self.listed).read()
            return self.mark("quote", inner) + ("\n" if found[0].endswith("\n") else ""), found.end()
        return self.list(at)

    def list(self, at: int) -> tuple[str, int] | None:
        out: list[str] = []
        number: int | None = None
        while found := _ITEM.match(self.text, at):
            bullet = found[1]
            if number is None:
                number = 0 if bullet in "*-" else min(max(int(bullet[:-1]), 1), 10**9)
            label = "•" if number == 0 else f"{number}."
            number = number + 1 if number else 0
            width = len(found[1] + found[2])
            words = re.sub(rf"^ {{1,{width}}}", "", found[3], flags=re.M)
            shown = _Reader(words, self.seen, "", self.quoted, self.listed + 1).read()
            indent = " " * (len(label) + 1)
            out.append(f"{label} " + shown.replace("\n", "\n" + indent) + found[4])
            self.mark("item" if number else "bullet", shown)
            at = found.end()
        return ("".join(out), at) if out else None


class _InLink(_Reader):
    """A backslash is one here."""

    def read(self) -> str:
        out: list[str] = []
        at = 0
        while at < len(self.text):
            found = self.emphasis(at)
            if found is None and (code := _CODE.match(self.text, at)):
                found = (self.mark("code", code[2]), code.end())
            words, at = found or (self.text[at], at + 1)
            out.append(words)
        return "".join(out)
