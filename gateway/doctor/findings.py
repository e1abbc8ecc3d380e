"""What an examination finds: values, and how one is made in a line."""

from __future__ import annotations

from typing import Literal

import msgspec


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at. No secrets and nobody's words in here."""

    area: str
    level: Literal["ok", "note", "wrong"]
    text: str
    remedy: str = ""
    """What to do about it; "" where there is nothing to do, or the text says it."""


def ok(area: str, text: str) -> Finding:
    return Finding(area, "ok", text)


def note(area: str, text: str, remedy: str = "") -> Finding:
    """Worth to know, and no fault."""
    return Finding(area, "note", text, remedy)


def wrong(area: str, text: str, remedy: str = "") -> Finding:
    return Finding(area, "wrong", text, remedy)
