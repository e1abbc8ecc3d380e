"""What the machine gives the daemon, judged from values: each fault is found, and what is right is not called wrong."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from gateway.diskwatch import LOW, MOVED
from gateway.doctor import machine
from gateway.unit import Unit


def fs(*, free: int = 10**10, inodes: int = 10**6, files: int = 10**7, flag: int = 0) -> os.statvfs_result:
    return os.statvfs_result((4096, 4096, 10**8, free // 4096, free // 4096, files, inodes, inodes, flag, 255))


def unit(**said: list[str]) -> Unit:
    return Unit(Path("/etc/systemd/system/parlour.service"), said)


@pytest.mark.parametrize(("version", "level"), [((3, 10, 9), "wrong"), ((3, 11, 0), "ok"), ((3, 14, 1), "ok")])
def test_python(version: tuple[int, ...], level: str) -> None:
    """Older than 3.11 is too old."""
    assert machine.python(version).level == level


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (fs(), "ok"),
        (fs(free=LOW - 4096), "wrong"),
        (fs(free=LOW), "ok"),
        (fs(inodes=100), "wrong"),
        (fs(inodes=0, files=0), "ok"),
        (fs(flag=os.ST_RDONLY), "wrong"),
    ],
)
def test_disk(tmp_path: Path, found: os.statvfs_result, level: str) -> None:
    """Little room, few inodes and what takes no writes are told; a file system without inodes of its own has enough of them."""
    assert [one.level for one in machine.disk(tmp_path, lambda _: found)] == [level]


def test_the_daemons_word_counts(tmp_path: Path) -> None:
    """It tries to write, and we only look: what it finds is the one thing that is told of the disk, with the room beside it."""
    (found,) = machine.disk(tmp_path, lambda _: fs(free=0), said="cannot be written to: No space left on device")
    assert (found.area, found.level) == ("disk", "wrong")
    assert found.text == f"the daemon says: cannot be written to: No space left on device (0 B free for {tmp_path})"


def test_a_folder_that_was_moved_is_no_matter_of_room(tmp_path: Path) -> None:
    """What mends it is said, and not that room is to be made."""
    (found,) = machine.disk(tmp_path, lambda _: fs(), said=MOVED)
    assert (found.level, found.remedy) == ("wrong", "stop the daemon, put the folder back, start it")


def test_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    """The file system that it will be on is looked at."""
    asked: list[Path] = []

    def stat(path: Path) -> os.statvfs_result:
        asked.append(path)
        return fs()

    assert [one.level for one in machine.disk(tmp_path / "a" / "b", stat)] == ["ok"]
    assert asked == [tmp_path]


@pytest.mark.parametrize(
    ("ahead", "level", "word"),
    [
        ({}, "note", "nobody"),
        ({"telegram": 0.4}, "ok", "within 1 s"),
        ({"telegram": -59.0}, "ok", "within 59 s"),
        ({"telegram": 61.0}, "wrong", "1 min behind telegram"),
        ({"telegram": -7300.0}, "wrong", "2 h 1 min ahead of telegram"),
        ({"backend": 500.0, "telegram": 1.0}, "ok", "telegram"),
    ],
)
def test_clock(ahead: dict[str, float], level: str, word: str) -> None:
    """Off by more than a minute is told, with the direction; one of several that agrees is enough."""
    found = machine.clock(ahead)
    assert found.level == level
    assert word in found.text


def test_open_files() -> None:
    """Judged by how many turns may run at once, in the daemon if one runs."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert machine.open_files(1).level == "ok"
    assert machine.open_files(soft).level == "wrong"
    assert "in the daemon" in machine.open_files(1, os.getpid()).text
    assert "here" in machine.open_files(1, 2**22 + 1).text


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (None, "note"),
        (unit(), "ok"),
        (unit(TimeoutStopSec=["45"]), "ok"),
        (unit(TimeoutStopSec=["30"]), "wrong"),
        (unit(TimeoutStopSec=["infinity"]), "ok"),
        (unit(TimeoutSec=["10s"]), "wrong"),
    ],
)
def test_unit(found: Unit | None, level: str) -> None:
    """TimeoutStopSec has to leave room for the budget; without a word it is systemd's 90 s."""
    assert machine.unit(found, 25.0).level == level
