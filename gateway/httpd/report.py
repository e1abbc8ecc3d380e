"""What /readyz and `parlour status` say, as values. Filled by `gateway.app`, served by `gateway.httpd.server` and the control socket."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class ChannelHealth(msgspec.Struct, frozen=True):
    """One channel: "up", "starting", "down", "stopped" or "ended"; why, if it is not up; seconds since the network last answered."""

    state: str
    problem: str = ""
    last_sign_of_life: float | None = None


class Health(msgspec.Struct, frozen=True):
    """The daemon at this moment. No words of people and no secrets in here."""

    ready: bool
    channels: dict[str, ChannelHealth] = {}
    backend: str = ""
    """How the model is; while it is down also where, without credentials."""
    backend_problem: str = ""
    """The same where something is wrong, "" where nothing is known to be; `backend_remedy`: what to do about it."""
    backend_remedy: str = ""
    disk: str = ""
    """What is wrong with the data folder, "" if nothing."""
    disk_free: int | None = None
    """Bytes; None while nobody has looked."""
    turns: int = 0
    """Turns that run now."""
    waiting: int = 0
    """Inputs that wait behind them."""
    lanes: int = 0
    """Chats to which something goes out, or that have to be waited for."""
    unsent: int = 0
    """Messages that wait for a network."""
    oldest_waiting: float | None = None
    """Seconds that the oldest unanswered input waits."""
    longest_turn: float | None = None
    """Seconds that the turn runs that began first."""
    restarted: dict[str, str] = {}
    """Parts of the daemon that hung or failed within the last two minutes and were started anew, and why."""
    stuck: str = ""
    """What does not move and cannot be started anew, "" if nothing: systemd's watchdog is not fed then."""


class SetAside(msgspec.Struct, frozen=True):
    """An input that is not worked on any more, because the daemon died each time: which, of what chat, when, after how many deaths."""

    input: str
    key: str
    at: float
    deaths: int


class Status(msgspec.Struct, frozen=True):
    """The daemon at this moment, for its operator."""

    version: str
    pid: int
    since: float
    """Seconds since the epoch; `up`: seconds."""
    up: float
    config: str
    data_dir: str
    page: str
    """Where the HTTP server listens, "" if it does not."""
    health: Health
    unfinished: int
    """Inputs that were accepted and are not answered yet, those that run included."""
    busy: int
    """Conversations that somebody works on or waits for."""
    cached: int
    """Sessions in memory; `stubs`: those of which little more than the name is; `cached_bytes`: what they take, an estimate."""
    stubs: int
    cached_bytes: int
    memory: int
    """Bytes of the process in RAM."""
    set_aside: tuple[SetAside, ...] = ()
    """As far back as the journal goes, the newest last."""
    needs_restart: tuple[str, ...] = ()
    """Keys that the last reload found changed and that only a restart takes over."""


def memory() -> int:
    """Bytes of this process in RAM; 0 where the kernel does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
