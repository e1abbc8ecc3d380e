"""How far a network's clock is ahead of ours, by what it said of the time last. Pure: asks nobody. Called by the networks' transports."""

from __future__ import annotations

from email.utils import parsedate_to_datetime


def ahead(date: str, at: float) -> float | None:
    """Seconds. `date`: the Date header of an answer; `at`: when that came, by our clock, since the epoch. None where it says no time."""
    try:
        return parsedate_to_datetime(date).timestamp() - at
    except (ValueError, OverflowError):
        return None
