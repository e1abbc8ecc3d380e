"""The look at the disk: what it finds, what it says, and that a disk which hangs hangs nobody."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.diskwatch import LOW, MOVED, Disk, DiskWatch, probe


def test_a_folder_that_can_be_written_to(tmp_path: Path) -> None:
    """Free bytes, no problem, and nothing is left behind."""
    found = probe(tmp_path)
    assert found.problem == ""
    assert found.free is not None
    assert found.free > 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_kill_left_is_no_harm(tmp_path: Path) -> None:
    """The probe of a daemon that was killed in the middle is taken over."""
    (tmp_path / ".probe").write_bytes(b"old")
    assert probe(tmp_path).problem == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["missing", "link", "folder"])
def test_a_folder_that_cannot(tmp_path: Path, kind: str) -> None:
    """Whatever is in the way is told in a few words; a link is not followed."""
    place = tmp_path / "data"
    if kind != "missing":
        place.mkdir()
    if kind == "link":
        (place / ".probe").symlink_to(tmp_path / "elsewhere")
    if kind == "folder":
        (place / ".probe").mkdir()
    assert probe(place).problem
    assert not (tmp_path / "elsewhere").exists()


async def test_each_change_is_one_line(tmp_path: Path) -> None:
    """Full, less than enough, fine again: three lines, however often it is looked."""
    answers = [Disk(0, "No space left on device")] * 3 + [Disk(LOW - 1)] * 3 + [Disk(LOW)] * 3
    watch = DiskWatch(tmp_path, probe=lambda _: answers.pop(0))
    said: list[str] = []
    with capture_logs() as logs:
        for _ in range(9):
            await watch.look()
            said.append(watch.said())
    assert list(dict.fromkeys(said)) == ["cannot be written to: No space left on device", "less than 64 MiB free", ""]
    assert [line["event"] for line in logs] == ["disk", "disk", "disk is fine again"]
    await watch.close()


async def test_a_disk_that_hangs_is_asked_once(tmp_path: Path) -> None:
    """It is told that it does not answer, nobody waits for it, and it is not asked again until it has answered."""
    go, asked = threading.Event(), 0

    def hang(folder: Path) -> Disk:
        nonlocal asked
        asked += 1
        go.wait(30)
        return Disk(LOW)

    watch = DiskWatch(tmp_path, probe=hang, patience=0.05)
    for _ in range(3):
        await watch.look()
        assert watch.said() == "cannot be written to: it has not answered for 0.05 s"
    assert asked == 1
    go.set()
    async with asyncio.timeout(5):
        while watch.said():
            await watch.look()
    assert asked <= 2
    await watch.close()


async def test_the_end_does_not_wait_for_a_disk_that_hangs(tmp_path: Path) -> None:
    """Closing gives up after a second."""
    go = threading.Event()

    def hang(folder: Path) -> Disk:
        go.wait(30)
        return Disk()

    watch = DiskWatch(tmp_path, probe=hang, patience=0.01)
    await watch.look()
    async with asyncio.timeout(5):
        await watch.close()
    go.set()


async def test_who_asks_is_told_of_now(tmp_path: Path) -> None:
    """Between two looks, too; those who ask at once share one look, beside the one that is made anyway."""
    answers = [Disk(LOW), Disk(0, "No space left on device")]
    looks: list[int] = []

    def look(folder: Path) -> Disk:
        looks.append(1)
        return answers[min(len(looks), 2) - 1]

    watch = DiskWatch(tmp_path, probe=look)
    await watch.look()
    assert watch.said() == ""
    await asyncio.gather(watch.fresh(), watch.look(), watch.fresh())
    assert watch.said() == "cannot be written to: No space left on device"
    assert len(looks) == 2
    await watch.close()
    await watch.fresh()
    assert len(looks) == 2


async def test_who_asks_does_not_wait_for_a_disk_that_hangs(tmp_path: Path) -> None:
    """What was known before is told, and the look goes on."""
    go = threading.Event()

    def hang(folder: Path) -> Disk:
        go.wait(30)
        return Disk(LOW)

    watch = DiskWatch(tmp_path, probe=hang, patience=0.05)
    await watch.fresh()
    assert (watch.disk, watch.said()) == (Disk(), "")
    go.set()
    async with asyncio.timeout(5):
        while watch.disk.free is None:
            await watch.fresh()
    await watch.close()


async def test_a_folder_that_is_moved_away_is_told(tmp_path: Path) -> None:
    """Another folder in its place takes what is written, and nobody would know: it is said, once, until the first one is back."""
    data, away = tmp_path / "data", tmp_path / "away"
    data.mkdir()
    watch = DiskWatch(data, probe=lambda _: Disk(LOW))
    with capture_logs() as logs:
        await watch.look()
        assert watch.said() == ""
        data.rename(away)
        data.mkdir()
        for _ in range(2):
            await watch.look()
            assert watch.said() == MOVED
        data.rmdir()
        away.rename(data)
        await watch.look()
        assert watch.said() == ""
    assert [(line["event"], line.get("problem")) for line in logs] == [("disk", MOVED), ("disk is fine again", None)]
    await watch.close()
