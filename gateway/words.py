"""Amounts as people read them. Pure. Called by whoever tells somebody something."""

from __future__ import annotations


def counted(count: int, word: str, words: str = "") -> str:
    """ "1 turn", "2 turns"; `words` where the plural is no mere s."""
    return f"{count} {word if count == 1 else words or f'{word}s'}"


def span(seconds: float) -> str:
    """ "3 d 4 h", "5 min", "12 s"."""
    minutes = int(seconds // 60)
    days, hours = divmod(minutes // 60, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min" if minutes else f"{max(0, seconds):.0f} s"


def size(count: float) -> str:
    """ "12 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
