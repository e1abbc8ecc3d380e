"""A few words to systemd (`sd_notify(3)`), and nothing at all where nobody listens. Called by `gateway.app`."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


def status(text: str) -> str:
    """One line for `systemctl status`."""
    return f"STATUS={' '.join(text.split())}"


def reloading() -> tuple[str, str]:
    """A reload begins now; READY ends it."""
    return "RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


def notify(*states: str, env: Mapping[str, str] = os.environ) -> bool:
    """Tell the service manager. Never raises and never waits; False where it was not told."""
    name = env.get("NOTIFY_SOCKET", "")
    if name[:1] not in ("/", "@"):  # "@" is an abstract socket
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(states).encode(), "\0" + name[1:] if name[0] == "@" else name)
    except OSError:
        return False
    return True


def watchdog_interval(env: Mapping[str, str] = os.environ) -> float:
    """How often ALIVE should be said, in seconds: half of what systemd allows; 0.0 where it does not ask for it."""
    try:
        pid, microseconds = int(env.get("WATCHDOG_PID", os.getpid())), int(env.get("WATCHDOG_USEC", 0))
    except ValueError:
        return 0.0
    return microseconds / 2e6 if pid == os.getpid() and microseconds > 0 else 0.0
