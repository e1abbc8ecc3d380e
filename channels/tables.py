"""A table as lines of equal columns, for a monospaced block. Pure layout of plain cells. Called by: `channels.blocks`."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Literal, TypeAlias

Align: TypeAlias = Literal["left", "right", "center"]

WIDEST = 40
"""Columns are padded up to this width; a longer cell pushes its row to the right instead of widening all rows."""

MOST_GROWTH = 4
"""A table whose padding would make it longer than its cells by this factor is not padded: a few wide cells over many empty ones."""

_BETWEEN = " │ "


def width(text: str) -> int:
    """Cells of a terminal that the text takes: two for East Asian wide characters and most emoji, none for marks that combine."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) or c in "\u200b\u200d\ufe0f" else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def layout(rows: Sequence[Sequence[str]], aligns: Sequence[Align]) -> list[tuple[int, str]]:
    """Lines, each with the number of its row. The first row is the head, with a rule under it; a head without words is left out. Cells have
    no line breaks, rows as many cells as there are `aligns`."""
    widths = [min(WIDEST, max(width(row[i]) for row in rows)) for i in range(len(aligns))]
    if sum(widths) * len(rows) > 200 + MOST_GROWTH * sum(len(cell) for row in rows for cell in row):
        widths = [0] * len(aligns)
    lines = [(number, _row(row, widths, aligns)) for number, row in enumerate(rows)]
    if not any(rows[0]):
        return lines[1:]
    return [lines[0], (0, "─┼─".join("─" * max(1, w) for w in widths)), *lines[1:]]


def _row(cells: Sequence[str], widths: Sequence[int], aligns: Sequence[Align]) -> str:
    last = max((i for i, cell in enumerate(cells) if cell), default=-1)
    return _BETWEEN.join(_cell(cells[i], widths[i], aligns[i]) for i in range(last + 1)).rstrip()


def _cell(text: str, room: int, align: Align) -> str:
    free = max(0, room - width(text))
    left = free if align == "right" else free // 2 if align == "center" else 0
    return " " * left + text + " " * (free - left)
