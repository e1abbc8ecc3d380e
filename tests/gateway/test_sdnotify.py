"""Words to systemd arrive; where nobody listens nothing happens."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gateway import sdnotify


@pytest.mark.parametrize("abstract", [False, True])
def test_notify(tmp_path: Path, abstract: bool) -> None:
    """States arrive as one datagram, on sockets in the file system and on abstract ones."""
    name = f"@parlour-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0") if abstract else name)
        manager.settimeout(5)
        assert sdnotify.notify(sdnotify.READY, sdnotify.status("two\nlines"), env={"NOTIFY_SOCKET": name})
        assert manager.recv(1000) == b"READY=1\nSTATUS=two lines"


@pytest.mark.parametrize("name", ["", "relative", "/nowhere/at/all", "@nobody-listens-here", "/" + "x" * 300])
def test_nobody_listens(name: str) -> None:
    """Without a manager, or with one that is gone, the daemon goes on."""
    assert not sdnotify.notify(sdnotify.ALIVE, env={"NOTIFY_SOCKET": name})


def test_full_socket_does_not_block(tmp_path: Path) -> None:
    """A manager that does not read holds nobody up."""
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        answers = {sdnotify.notify("X" * 1000, env={"NOTIFY_SOCKET": name}) for _ in range(1000)}
    assert answers == {True, False}


@pytest.mark.parametrize(
    ("env", "seconds"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "x"}, 0.0),
        ({"WATCHDOG_USEC": "-5"}, 0.0),
    ],
)
def test_watchdog_interval(env: dict[str, str], seconds: float) -> None:
    """The watchdog is fed at half of its time, and only by the process that it is meant for."""
    assert sdnotify.watchdog_interval(env) == seconds
