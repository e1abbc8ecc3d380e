"""Value types of the config file that channels and the gateway share: durations, secrets. No reading of files here (`gateway.config`)."""

from __future__ import annotations


class Seconds(float):
    """A duration, written "90s", "10m", "24h", "7d" or "250ms" in the config file."""


class Bytes(int):
    """A size, written "64MiB", "10MB" or "4096" in the config file."""


class Secret(str):
    """A string that never shows itself: `repr` and `str` in logs and errors give "***"; `reveal()` gives the value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Secret('***')" if str.__len__(self) else "Secret('')"

    def __str__(self) -> str:
        return "***" if str.__len__(self) else ""

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def reveal(self) -> str:
        """The value itself, for the one place that needs it."""
        return str.__str__(self)
