"""The power log under the writer: what it holds, when it is emptied, and what becomes of an append that it cannot take."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.power import MOST, PowerLog, begin
from gateway.redo import Frame, read_segment, recover
from gateway.writer import Fence, Writer
from tests.gateway.disk_tools import file_limit, fill, small_disk


@pytest.fixture
async def writer(tmp_path: Path) -> AsyncIterator[Writer]:
    writer = Writer(PowerLog(tmp_path, rotate_bytes=2000))
    yield writer
    await writer.close()


def logged(folder: Path) -> list[Frame]:
    return [frame for path in sorted((folder / "power").glob("*.jsonl")) for frame in read_segment(path).frames]


def segments(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "power").glob("*.jsonl"))


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.002)


class TestRecord:
    async def test_a_batch_is_in_it(self, writer: Writer, tmp_path: Path) -> None:
        """When an append returns, its bytes are in the file and, with their place, in the log; what is for the journal first."""
        (tmp_path / "b").write_bytes(b"before\n")
        await asyncio.gather(writer.append(tmp_path / "b", b"1\n"), writer.append(tmp_path / "b", b"2\n"))
        await asyncio.gather(writer.append(tmp_path / "b", b"3\n"), writer.append(tmp_path / "c" / "j", b"{}\n", journal=True))
        assert logged(tmp_path) == [Frame("b", 7, b"1\n2\n"), Frame("c/j", 0, b"{}\n"), Frame("b", 11, b"3\n")]
        assert (tmp_path / "b").read_bytes() == b"before\n1\n2\n3\n"

    async def test_a_clean_end_leaves_nothing(self, tmp_path: Path) -> None:
        """After `close` there is nothing to put back, and closing again is no harm."""
        writer = Writer(PowerLog(tmp_path))
        await writer.append(tmp_path / "a", b"1\n")
        assert segments(tmp_path) == ["000001.jsonl"]
        await writer.close()
        await writer.close()
        assert segments(tmp_path) == []

    async def test_without_it_nothing_of_it_is_there(self, tmp_path: Path) -> None:
        """With `durability = "process"` there is no such folder, and whoever asks is told."""
        writer = Writer()
        await writer.append(tmp_path / "a", b"1\n")
        await writer.empty_log()
        await writer.close()
        assert not writer.durable
        assert [path.name for path in tmp_path.iterdir()] == ["a"]


class TestRetirement:
    async def test_in_operation(self, writer: Writer, tmp_path: Path) -> None:
        """Full segments are done away with while appends go on, so that the log stays small."""
        for n in range(400):
            await writer.append(tmp_path / str(n % 5), b"%d\n" % n * 10)
            assert len(segments(tmp_path)) <= MOST + 2
        await until(lambda: len(segments(tmp_path)) <= 2)
        assert int(segments(tmp_path)[-1].removesuffix(".jsonl")) > 10

    async def test_before_something_goes(self, writer: Writer, tmp_path: Path) -> None:
        """`empty_log` leaves neither a copy of what was appended nor what was set aside from the log, while others go on appending."""
        await writer.append(tmp_path / "a", b"secret\n")
        (tmp_path / "power" / "000001.torn").write_bytes(b"secret\n")
        (tmp_path / "power" / "000001.bad").write_bytes(b"secret\n")
        others = [writer.append(tmp_path / "b", b"%d\n" % n) for n in range(50)]
        await writer.empty_log()
        await asyncio.gather(*others)
        assert not any(b"secret" in path.read_bytes() for path in (tmp_path / "power").iterdir())

    async def test_files_that_went(self, writer: Writer, tmp_path: Path) -> None:
        """A file that was taken away, or that something else took the place of, keeps no segment."""
        for name in "abc":
            await writer.append(tmp_path / name, b"1\n")
            (tmp_path / name).unlink()
        (tmp_path / "b").mkdir()
        (tmp_path / "c").symlink_to(tmp_path / "b")
        await writer.empty_log()
        assert segments(tmp_path) == []

    async def test_what_is_left_is_numbered_on(self, tmp_path: Path) -> None:
        """A log that follows one that could not be done away with leaves that one's segments alone."""
        (tmp_path / "power").mkdir()
        (tmp_path / "power" / "000041.jsonl").write_bytes(b"")
        writer = Writer(PowerLog(tmp_path))
        await writer.append(tmp_path / "a", b"1\n")
        assert segments(tmp_path) == ["000041.jsonl", "000042.jsonl"]
        await writer.close()


class TestFailure:
    async def test_a_log_that_cannot_be_written(self, writer: Writer, tmp_path: Path) -> None:
        """What the log does not take is not in its file either; its waiters are told, and the next append is tried like any other."""
        fence = Fence()
        fence.size = 0
        (tmp_path / "a").touch()
        await writer.append(tmp_path / "a", b"1\n", create=False, fence=fence)
        (tmp_path / "power" / "000001.jsonl").rename(tmp_path / "kept")
        (tmp_path / "power" / "000001.jsonl").mkdir()
        with pytest.raises(OSError, match="directory"):
            await writer.append(tmp_path / "a", b"2\n", create=False, fence=fence)
        assert fence.broken
        assert (tmp_path / "a").read_bytes() == b"1\n"
        (tmp_path / "power" / "000001.jsonl").rmdir()
        (tmp_path / "kept").rename(tmp_path / "power" / "000001.jsonl")
        fence.broken = False
        assert await writer.append(tmp_path / "a", b"3\n", create=False, fence=fence) == 4
        recover(tmp_path)
        assert (tmp_path / "a").read_bytes() == b"1\n3\n"

    async def test_a_full_disk(self, tmp_path: Path) -> None:
        """With no room for the log nothing is acknowledged and nothing is left of it; with room all goes on; a start finds the same."""
        with small_disk(tmp_path / "disk", 256 * 1024) as disk:
            writer = Writer(PowerLog(disk))
            await writer.append(disk / "a", b"1\n")
            ballast = fill(disk)
            for _ in range(3):
                results = await asyncio.gather(*(writer.append(disk / name, b"x" * 5000) for name in "abc"), return_exceptions=True)
                assert [getattr(result, "errno", None) for result in results] == [errno.ENOSPC] * 3
            assert (disk / "a").read_bytes() == b"1\n"
            ballast.unlink()
            await asyncio.gather(*(writer.append(disk / name, b"2\n") for name in "abc"))
            recover(disk)
            assert [(disk / name).read_bytes() for name in "abc"] == [b"1\n2\n", b"2\n", b"2\n"]
            await writer.close()

    async def test_a_file_that_does_not_fit(self, writer: Writer, tmp_path: Path) -> None:
        """What is cut back in its file is not in the log; the rest of the batch is."""
        with file_limit(4096):
            results = await asyncio.gather(
                writer.append(tmp_path / "big", b"b" * 9000), writer.append(tmp_path / "small", b"1\n"), return_exceptions=True
            )
        assert [isinstance(result, OSError) for result in results] == [True, False]
        assert logged(tmp_path) == [Frame("small", 0, b"1\n")]


class TestBegin:
    @pytest.mark.parametrize("durable", [False, True])
    async def test_from_one_to_the_other(self, tmp_path: Path, durable: bool) -> None:
        """Whatever a start is set to, it puts back what the log of the one before holds, and nothing of that is left."""
        writer = Writer(PowerLog(tmp_path))
        await writer.append(tmp_path / "a", b"1\n")
        os.truncate(tmp_path / "a", 0)
        begin(tmp_path, durable=durable)
        assert (tmp_path / "a").read_bytes() == b"1\n"
        assert segments(tmp_path) == []
        await writer.close()

    def test_a_log_that_cannot_be_done_away_with(self, tmp_path: Path) -> None:
        """While files cannot be synced the log keeps everything, says so once, and is done away with when they can."""
        power = PowerLog(tmp_path, rotate_bytes=1)
        (tmp_path / "b").write_bytes(b"1\n2\n")
        power.record([(tmp_path / "b", 2, b"2\n")])
        with capture_logs() as logs:
            (tmp_path / "power").rename(tmp_path / "away")
            for _ in range(3):
                with pytest.raises(OSError, match="No such file"):
                    power.retire()
            (tmp_path / "away").rename(tmp_path / "power")
            power.retire()
        assert [entry["log_level"] for entry in logs] == ["error", "info"]
        assert segments(tmp_path) == []
