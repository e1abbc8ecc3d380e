"""What /readyz says, as values. Filled by `gateway.app`, served by `gateway.httpd.server`."""

from __future__ import annotations

import msgspec


class ChannelHealth(msgspec.Struct, frozen=True):
    """One channel: "up", "starting", "down", "stopped" or "ended"; why, if it is not up; seconds since the network last answered."""

    state: str
    problem: str = ""
    last_sign_of_life: float | None = None


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """The daemon at this moment. No words of people and no secrets in here."""

    ready: bool
    channels: dict[str, ChannelHealth] = {}
    backend: str = ""
    disk: str = ""
    """What is wrong with the data folder, "" if nothing."""
    turns: int = 0
    """Turns that run now."""
    unsent: int = 0
    """Messages that wait for a network."""
    oldest_waiting: float | None = None
    """Seconds that the oldest unanswered input waits."""
