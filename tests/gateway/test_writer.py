"""The writer: batches, order, results for each file, full disks."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.writer import Fence, Overtaken, Result, Writer
from tests.gateway.disk_tools import counter, file_limit, fill, open_to_others, small_disk, umask, under_way


@pytest.fixture
async def writer() -> AsyncIterator[Writer]:
    writer = Writer()
    yield writer
    await writer.close()


class TestAppend:
    async def test_gives_the_size_behind_it(self, writer: Writer, tmp_path: Path) -> None:
        """Each append's future gives the file's size behind its own bytes."""
        path = tmp_path / "a" / "b" / "file"
        sizes = await asyncio.gather(writer.append(path, b"one\n"), writer.append(path, b"three\n"))
        assert list(sizes) == [4, 10]
        assert await writer.append(path, b"!\n") == 12
        assert path.read_bytes() == b"one\nthree\n!\n"

    async def test_done_means_written(self, writer: Writer, tmp_path: Path) -> None:
        """When the future is done, every other process reads the bytes."""
        await writer.append(tmp_path / "file", b"x" * 100_000)
        assert (tmp_path / "file").stat().st_size == 100_000

    async def test_order_is_that_of_the_calls(self, writer: Writer, tmp_path: Path) -> None:
        """Over many batches, a file's appends stand in the order of the calls."""
        futures: list[asyncio.Future[int]] = []
        for n in range(2000):
            futures.append(writer.append(tmp_path / str(n % 7), b"%d\n" % n))
            if n % 50 == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*futures)
        for each in range(7):
            assert (tmp_path / str(each)).read_bytes() == b"".join(b"%d\n" % n for n in range(each, 2000, 7))

    async def test_what_goes_behind_is_written_last(self, writer: Writer, tmp_path: Path) -> None:
        """Also where the journal has something else in the same batch, and whatever was called first."""
        order: list[str] = []

        def append(name: str, data: bytes, *, journal: bool = False, behind: bool = False) -> asyncio.Future[None]:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def settled(_: Result) -> None:
                order.append(data.decode())
                done.set_result(None)

            writer.submit(tmp_path / name, data, settled, journal=journal, behind=behind)
            return done

        await asyncio.gather(
            append("journal", b"end", journal=True, behind=True), append("file", b"line"), append("journal", b"start", journal=True)
        )
        assert (tmp_path / "journal").read_bytes() == b"startend"
        assert order == ["start", "line", "end"]

    async def test_journal_files_are_written_first(self, writer: Writer, tmp_path: Path) -> None:
        """In one batch, what is for the journal is on disk before anything else, whoever was called first."""
        later = writer.append(tmp_path / "file", b"session\n")
        await asyncio.gather(later, writer.append(tmp_path / "file", b"journal\n", journal=True))
        assert (tmp_path / "file").read_bytes() == b"journal\nsession\n"

    async def test_what_waits_together_is_one_write(self, writer: Writer, tmp_path: Path) -> None:
        """A thousand appends that wait together cost a handful of writes."""
        before = counter("syscw")
        await asyncio.gather(*(writer.append(tmp_path / str(n % 2), b"line\n") for n in range(1000)))
        assert counter("syscw") - before < 20

    async def test_no_handle_is_kept(self, writer: Writer, tmp_path: Path) -> None:
        """However many files were written, none stays open."""
        before = len(os.listdir("/proc/self/fd"))
        await asyncio.gather(*(writer.append(tmp_path / str(n), b"x") for n in range(300)))
        assert len(os.listdir("/proc/self/fd")) <= before + 1

    async def test_only_creates_where_it_may(self, writer: Writer, tmp_path: Path) -> None:
        """With `create=False` a missing file stays missing, its folder too."""
        with pytest.raises(FileNotFoundError):
            await writer.append(tmp_path / "folder" / "file", b"x", create=False)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o277])
    async def test_private_whatever_the_umask(self, writer: Writer, tmp_path: Path, mask: int) -> None:
        """Files are 0600 and folders 0700, and both are ours to use, under every umask."""
        with umask(mask):
            await writer.append(tmp_path / "a" / "b" / "file", b"x")
            await writer.append(tmp_path / "a" / "b" / "file", b"y")
        assert open_to_others(tmp_path / "a") == []
        assert (tmp_path / "a" / "b" / "file").stat().st_mode & 0o777 == 0o600

    async def test_a_link_is_not_followed(self, writer: Writer, tmp_path: Path) -> None:
        """A symbolic link in a file's place is an error, and where it leads nothing is written."""
        (tmp_path / "target").write_bytes(b"mine")
        (tmp_path / "file").symlink_to(tmp_path / "target")
        with pytest.raises(OSError, match="symbolic") as caught:
            await writer.append(tmp_path / "file", b"x")
        assert caught.value.errno == errno.ELOOP
        assert (tmp_path / "target").read_bytes() == b"mine"

    async def test_something_else_in_the_way(self, writer: Writer, tmp_path: Path) -> None:
        """A folder or a pipe in a file's place is an error for that file, at once, and for no other."""
        (tmp_path / "folder").mkdir()
        os.mkfifo(tmp_path / "pipe")
        results = await asyncio.gather(
            *(writer.append(tmp_path / name, b"x") for name in ("folder", "pipe", "file")), return_exceptions=True
        )
        assert [isinstance(result, OSError) for result in results] == [True, True, False]


class TestFullDisk:
    async def test_a_short_write_is_cut_back(self, writer: Writer, tmp_path: Path) -> None:
        """What fits only in part is not there at all; its waiters are told; what fits is written at once, and everything once there is
        room."""
        path = tmp_path / "file"
        await writer.append(path, b"a" * 1000)
        with file_limit(4096):
            with pytest.raises(OSError, match="too large"):
                await writer.append(path, b"b" * 10_000)
            assert path.read_bytes() == b"a" * 1000
            assert await writer.append(path, b"c" * 1000) == 2000
        assert await writer.append(path, b"b" * 10_000) == 12_000
        assert path.read_bytes() == b"a" * 1000 + b"c" * 1000 + b"b" * 10_000

    async def test_every_file_has_its_own_result(self, writer: Writer, tmp_path: Path) -> None:
        """In one batch, the file that does not fit fails with all that was for it; the others are written."""
        with file_limit(4096):
            results = await asyncio.gather(
                writer.append(tmp_path / "big", b"small\n"),
                writer.append(tmp_path / "one", b"one\n"),
                writer.append(tmp_path / "big", b"b" * 10_000),
                writer.append(tmp_path / "two", b"two\n", journal=True),
                return_exceptions=True,
            )
        assert [isinstance(result, OSError) for result in results] == [True, False, True, False]
        assert ((tmp_path / "big").read_bytes(), (tmp_path / "one").read_bytes(), (tmp_path / "two").read_bytes()) == (
            b"",
            b"one\n",
            b"two\n",
        )

    async def test_a_full_disk_and_room_again(self, writer: Writer, tmp_path: Path) -> None:
        """On a full disk every append fails and leaves the file as it was; with room the next one succeeds."""
        with small_disk(tmp_path / "disk", 256 * 1024) as disk:
            path = disk / "file"
            await writer.append(path, b"a" * 5000)
            ballast = fill(disk)
            for _ in range(3):
                with pytest.raises(OSError, match="No space") as caught:
                    await writer.append(path, b"b" * 9000)
                assert caught.value.errno == errno.ENOSPC
                assert path.read_bytes() == b"a" * 5000
            with pytest.raises(OSError, match="No space"):
                await writer.append(disk / "new", b"c" * 9000)
            ballast.unlink()
            assert await writer.append(path, b"b" * 9000) == 14_000
            assert await writer.append(disk / "new", b"c" * 9000) == 9000


class TestFence:
    async def test_follows_the_file(self, writer: Writer, tmp_path: Path) -> None:
        """A fence that knows the size lets appends through and knows the new one afterwards."""
        fence = Fence()
        fence.size = 0
        (tmp_path / "file").touch()
        await asyncio.gather(*(writer.append(tmp_path / "file", b"123\n", create=False, fence=fence) for _ in range(10)))
        assert (fence.size, fence.broken) == (40, False)

    async def test_somebody_else_wrote(self, writer: Writer, tmp_path: Path) -> None:
        """A file of another size than it was left with is not appended to, by anybody, until its owner has looked."""
        fence = Fence()
        fence.size = 0
        (tmp_path / "file").write_bytes(b"theirs")
        for _ in range(2):
            with pytest.raises(Overtaken):
                await writer.append(tmp_path / "file", b"ours\n", create=False, fence=fence)
        assert fence.broken
        fence.size, fence.broken = 6, False
        await writer.append(tmp_path / "file", b"ours\n", create=False, fence=fence)
        assert (tmp_path / "file").read_bytes() == b"theirsours\n"

    async def test_what_stands_behind_a_failure_fails(self, writer: Writer, tmp_path: Path) -> None:
        """Appends that were called before a failure was seen fail with it, in its batch and in the next."""
        fence = Fence()
        (tmp_path / "file").touch()
        with file_limit(4096):
            first = writer.append(tmp_path / "file", b"x" * 9000, create=False, fence=fence)
            second = writer.append(tmp_path / "file", b"in its batch\n", create=False, fence=fence)
            await under_way()
            third = writer.append(tmp_path / "file", b"in the next\n", create=False, fence=fence)
            results = await asyncio.gather(first, second, third, return_exceptions=True)
        assert [type(result) for result in results] == [OSError, OSError, Overtaken]
        assert (tmp_path / "file").read_bytes() == b""


class TestEnd:
    async def test_close_writes_what_waits(self, tmp_path: Path) -> None:
        """Everything that was appended before `close` is written; what comes after it is refused, and closing again is no harm."""
        writer = Writer()
        futures = [writer.append(tmp_path / "file", b"line\n") for _ in range(100)]
        await writer.close()
        assert all(future.done() for future in futures)
        assert (tmp_path / "file").read_bytes() == b"line\n" * 100
        with pytest.raises(OSError, match="closed"):
            await writer.append(tmp_path / "file", b"late\n")
        await writer.close()

    async def test_many_may_wait_for_many(self, writer: Writer, tmp_path: Path) -> None:
        """At a start thousands of chats do: what a `flush` costs does not grow with what is under way."""
        written = [writer.append(tmp_path / str(n % 20), b"x") for n in range(3000)]
        async with asyncio.timeout(5):
            await asyncio.gather(*(writer.flush() for _ in range(3000)))
        assert all(future.done() for future in written)

    async def test_flush_waits_for_what_was_called(self, writer: Writer, tmp_path: Path) -> None:
        """`flush` returns when all that was appended before it has its result, also a bad one."""
        (tmp_path / "folder").mkdir()
        good, bad = writer.append(tmp_path / "file", b"x"), writer.append(tmp_path / "folder", b"x")
        await writer.flush()
        assert good.result() == 1
        assert isinstance(bad.exception(), OSError)
        await writer.flush()

    async def test_a_waiter_that_gives_up(self, writer: Writer, tmp_path: Path) -> None:
        """A waiter that is cancelled takes nothing back and disturbs nobody."""
        future = writer.append(tmp_path / "file", b"one\n")
        future.cancel()
        assert await writer.append(tmp_path / "file", b"two\n") == 8
        assert (tmp_path / "file").read_bytes() == b"one\ntwo\n"
