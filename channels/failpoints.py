"""Named places at which a test may kill this process: around each write, rename, request and confirmation.

Off unless a test that starts the process sets an environment variable; then a place costs one look at a name (some 30 ns). It lies with the
channels because both packages mark places, and imports go down only. Called wherever something becomes durable or leaves the house; what
sets the variables is `tests/crash`.

    PARLOUR_FAILPOINT=send before telegram:3     SIGKILL to itself when that place is reached for the third time; with ":0.1" behind it the
                                                 thread stands still there for so long first, while the others go on: what does not wait
                                                 for a write that it should wait for gives itself away
    PARLOUR_FAILPOINT_LOG=FILE                   each place is written there when it is reached for the first time
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

FILES = ("journal", "session", "pointer", "access")
NETWORKS = ("telegram", "discord")
ONE = ("",)

POINTS: Final[Mapping[str, tuple[str, ...]]] = {
    # Files: gateway.writer, gateway.disk, gateway.lines, gateway.journal, gateway.segments, gateway.store.files, gateway.store.upkeep
    "append before": FILES,
    "append after": FILES,
    "rename before": ("journal", "session", "sidecar"),
    "rename after": ("journal", "session", "sidecar"),
    "repair before": ("journal", "session", "pointer"),
    "repair between": ("journal", "session", "pointer"),
    "repair after": ("journal", "session", "pointer"),
    "rotate": ONE,
    "segment delete before": ONE,
    "segment delete between": ONE,
    "segment delete after": ONE,
    "session delete before": ONE,
    "session delete after": ONE,
    "folder delete before": ONE,
    "folder delete between": ONE,
    "folder delete after": ONE,
    "media delete before": ONE,
    "media delete after": ONE,
    # An input's way: gateway.router, gateway.runner, gateway.ledger
    "accept before": ONE,
    "accept after": ONE,
    "started before": ONE,
    "started after": ONE,
    "question before": ONE,
    "question after": ONE,
    "answer before": ONE,
    "answer after": ONE,
    "reply before": ONE,
    "reply after": ONE,
    "lane before": ONE,
    "lane after": ONE,
    "placed before": ONE,
    "placed after": ONE,
    "sent before": ONE,
    "sent after": ONE,
    "finished before": ONE,
    "finished after": ONE,
    # The networks: gateway.outbox.counted, channels.telegram.poll, channels.telegram.webhook, channels.discord
    "send before": NETWORKS,
    "send after": NETWORKS,
    "edit before": NETWORKS,
    "edit after": NETWORKS,
    "delete before": NETWORKS,
    "delete after": NETWORKS,
    "offset before": ONE,
    "offset after": ONE,
    "webhook before": ONE,
    "webhook after": ONE,
    "marks before": ONE,
    "marks after": ONE,
    "slash before": ONE,
    "slash after": ONE,
}
"""Every place, and for each of what it is one. Two words together are its name: "append before journal"."""


def names() -> Iterator[str]:
    """Of all places."""
    return (f"{point} {of}".strip() for point, kinds in POINTS.items() for of in kinds)


def reach(point: str, of: str | Path = "") -> None:
    """This place is reached. `of`: which one of its kind, or the file that it is about."""
    if _armed is not None:
        _armed.reach(point, of)


class Armed:
    """What a test asked for."""

    def __init__(self, wanted: str, seen: str) -> None:
        self._name, nth, pause = [*wanted.split(":"), "", ""][:3]
        self._left, self._pause = int(nth or 0), float(pause or 0)
        self._log = seen
        self._seen: set[str] = set()
        self._lock = threading.Lock()
        assert not self._name or self._name in set(names()), self._name

    def reach(self, point: str, of: str | Path) -> None:
        kind = kind_of(of) if isinstance(of, Path) else of
        if kind not in POINTS[point]:
            return
        name = f"{point} {kind}".strip()
        with self._lock:
            if self._log and name not in self._seen:
                self._seen.add(name)
                self._tell(name)
            if name != self._name:
                return
            self._left -= 1
            if self._left:
                return
            if self._log:
                self._tell(f"{name}!")
        time.sleep(self._pause)  # without the lock: the others go on
        os.kill(os.getpid(), signal.SIGKILL)

    def _tell(self, name: str) -> None:
        fd = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, f"{name}\n".encode())
        os.close(fd)


def kind_of(path: Path) -> str:
    """What a file of the data folder is."""
    if path.suffix == ".ids":
        return "sidecar"
    if path.parent.name == "journal":
        return "journal"
    return {"_chat.jsonl": "pointer", "access.jsonl": "access"}.get(path.name, "session" if path.suffix == ".jsonl" else "")


def arm(environment: Mapping[str, str]) -> Armed | None:
    """As the environment says; None where it says nothing."""
    wanted, seen = environment.get("PARLOUR_FAILPOINT", ""), environment.get("PARLOUR_FAILPOINT_LOG", "")
    return Armed(wanted, seen) if wanted or seen else None


_armed = arm(os.environ)
