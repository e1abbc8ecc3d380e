"""Amounts in texts for people."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.words import counted

ROOT = Path(__file__).parents[2]
ALWAYS_MANY = {"request.name", "MOST_SHOWN", "health.unsent", "waiting", "round(seconds / 60)", "round(seconds / 3600)"}
"""What is never one where it stands before a plural, or no amount at all."""


@pytest.mark.parametrize(
    ("count", "word", "words", "said"),
    [
        (0, "turn", "", "0 turns"),
        (1, "turn", "", "1 turn"),
        (2, "turn", "", "2 turns"),
        (1, "reply", "replies", "1 reply"),
        (3, "reply", "replies", "3 replies"),
    ],
)
def test_counted(count: int, word: str, words: str, said: str) -> None:
    """One of a thing is not called by its plural."""
    assert counted(count, word, words) == said


def test_nobody_is_told_of_one_things() -> None:
    """No text of ours has an amount before a fixed plural, unless it is always many."""
    things = "answers|conversations|files|hours|inputs|lines|messages|minutes|pieces|seconds|sessions|things|turns"
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for folder in ("gateway", "channels")
        for path in (ROOT / folder).rglob("*.py")
        for match in re.finditer(rf"f\"[^\"\n]*?{{([^{{}}\n]+)}} (?:{things})\b", path.read_text("utf-8"))
        if match[1] not in ALWAYS_MANY
    ]
    assert found == []
