"""What a data folder tells without being taken: who holds it, and which inputs nobody has answered yet. Changes nothing, takes no lock.

Called by `parlour status` and `gateway.doctor`. Blocks.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from gateway.config import is_data
from gateway.records import Accepted, Refused
from gateway.segments import load, unfinished

LOCKS = Path("/proc/locks")


class Left(NamedTuple):
    there: bool
    """It is a data folder of ours."""
    holder: str = ""
    """Who holds its lock, in words; "" for nobody."""
    unfinished: int = 0
    oldest: float = 0.0
    """When the oldest of them was accepted, seconds since the epoch."""


def look(folder: Path) -> Left:
    """Raises OSError where it cannot be read."""
    if not is_data(folder):
        return Left(False)
    waiting: list[float] = []
    if (folder / "journal").is_dir():
        _, records = unfinished(load(folder / "journal", look=True))
        waiting = [record.at for record in records if isinstance(record, Accepted | Refused)]
    return Left(True, holder(folder), len(waiting), min(waiting, default=0.0))


def holder(folder: Path, locks: Path = LOCKS) -> str:
    """Who holds the folder's lock, as the kernel lists it: trying to take the lock would keep a daemon from starting just then."""
    try:
        place = folder / "lock"
        info = place.stat()
        listed = locks.read_text()
    except OSError:
        return ""
    number = _process(place)
    for line in listed.splitlines():
        words = line.split()  # 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF
        if len(words) < 6 or words[1] != "FLOCK":
            continue
        device, _, inode = words[5].rpartition(":")
        same = device == f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}" or words[4] == number
        if inode == str(info.st_ino) and same:  # layered file systems list another device than they tell
            return f"process {words[4]}" if words[4] not in {"0", "-1"} else "another process"
    return ""


def _process(place: Path) -> str:
    try:
        return place.read_text(errors="replace").strip()[:20]
    except OSError:
        return ""
