"""Figures with their references, goals and verdicts, as rows of one table. Called by every benchmark and by `benchmarks.__main__`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Row:
    group: str
    figure: str
    ours: str
    reference: str = ""
    ratio: float | None = None
    most: float | None = None
    """The ratio shall be at most this."""
    least: float | None = None
    """The ratio shall be at least this."""

    @property
    def goal(self) -> str:
        if self.most is not None:
            return f"≤ {self.most:g}"
        return f"≥ {self.least:g}" if self.least is not None else ""

    @property
    def verdict(self) -> str:
        if self.ratio is None or not self.goal:
            return ""
        held = self.ratio <= self.most if self.most is not None else self.ratio >= (self.least or 0.0)
        return "reached" if held else "missed"


HEAD = ("", "Figure", "Parlour", "Reference", "Ratio", "Goal", "Verdict")


def markdown(rows: Sequence[Row]) -> str:
    """The table."""
    cells = [HEAD, *((row.group, row.figure, row.ours, row.reference, _number(row.ratio), row.goal, row.verdict) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEAD))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def _number(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of runs made side by side: the machine's moods strike both halves of a pair."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))
