"""Cleaning of text that comes in from a network. Pure; called by every channel's parser and by whatever else stands at the door."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

AROUND = " \t\n,:;"
"""What may stand between somebody's name and the words that are meant for them."""
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: str) -> str:
    """Text as it may be stored: lone surrogates (a pair split in two is joined) become U+FFFD, NUL goes. The door's one filter."""
    if text.isascii():
        return text.replace("\0", "")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "")


def name(text: str, limit: int = 128) -> str:
    """A person's name for one line of ours: without control characters, line breaks and marks that turn the writing direction, which
    would let a name pass for other words of the line. Joiners stay, since scripts and emoji need them."""
    if text.isprintable():  # none of these is; most names are done here
        return " ".join(text.split())[:limit].rstrip()
    kept = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else "" if c in _BIDI else c for c in clean(text))
    return " ".join(kept.split())[:limit].rstrip()


def bounded(text: str, limit: int) -> str:
    """The text's beginning, with a mark where something was left out; at most `limit` code points."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def without(text: str, cuts: Iterable[tuple[int, int]]) -> str:
    """The text without these slices (a mention of us), and without the blanks and commas that only stood around them."""
    result = text
    for start, end in sorted(set(cuts), reverse=True):
        before, after = result[:start], result[end:]
        if not before.strip():
            result = after.lstrip(AROUND)
        elif not after.strip():
            result = before.rstrip()
        elif before[-1].isspace() and after[0].isspace():
            result = before.rstrip(" \t") + after if after[0] == "\n" else before + after.lstrip(" \t")
        else:
            result = before + after
    return result
