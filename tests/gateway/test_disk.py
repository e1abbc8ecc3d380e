"""Private files, files that appear whole, and the lock of the data folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.disk import lock_folder, make_folder, new_file, open_or_create, open_private, tighten, write_all
from gateway.errors import StartError
from tests.gateway.disk_tools import file_limit, open_to_others, umask

HOLDER = """
import sys, time
from pathlib import Path
from gateway.disk import lock_folder
lock = lock_folder(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


class TestPrivate:
    @pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
    def test_files_and_folders(self, tmp_path: Path, mask: int) -> None:
        """What is made is 0600 or 0700 under every umask, also the folders above it."""
        with umask(mask):
            make_folder(tmp_path / "a" / "b" / "c")
            os.close(open_or_create(tmp_path / "a" / "d" / "file", os.O_WRONLY))
            with new_file(tmp_path / "a" / "e" / "file") as fd:
                write_all(fd, b"x")
                assert open_to_others(tmp_path / "a") == []
        assert open_to_others(tmp_path / "a") == []
        assert (tmp_path / "a" / "e" / "file").read_bytes() == b"x"

    def test_a_folder_that_is_there_stays_as_it_is(self, tmp_path: Path) -> None:
        """Making a folder changes nothing of one that is there: it may be the operator's."""
        (tmp_path / "theirs").mkdir(mode=0o755)
        make_folder(tmp_path / "theirs" / "ours")
        assert (tmp_path / "theirs").stat().st_mode & 0o777 == 0o755

    def test_only_regular_files_are_opened(self, tmp_path: Path) -> None:
        """A link, a folder, a pipe, a device: each is an error, and none is a wait."""
        (tmp_path / "file").touch()
        (tmp_path / "link").symlink_to(tmp_path / "file")
        (tmp_path / "folder").mkdir()
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "link", tmp_path / "folder", tmp_path / "pipe", Path("/dev/zero")):
            with pytest.raises(OSError):  # noqa: PT011 which one differs
                open_private(path, os.O_RDONLY)

    def test_tighten(self, tmp_path: Path) -> None:
        """Files of ours that were open to others are closed, at every depth; what a link leads to is not touched; leftovers are shown."""
        outside = tmp_path / "outside"
        outside.write_bytes(b"x")
        outside.chmod(0o644)
        data = tmp_path / "data"
        (data / "a" / "b").mkdir(parents=True)
        for path in (data / "one", data / "a" / "two", data / "a" / "b" / "three", data / "a" / ".new-0123"):
            path.write_bytes(b"x")
            path.chmod(0o666)
        (data / "a" / "link").symlink_to(outside)
        found: list[Path] = []
        tighten(data, found.append)
        assert found == [data / "a" / ".new-0123"]
        found[0].unlink()
        (data / "a" / "link").unlink()
        assert open_to_others(data) == []
        assert outside.stat().st_mode & 0o777 == 0o644


class TestNewFile:
    def test_never_over_another(self, tmp_path: Path) -> None:
        """A taken name is refused at the end, and what is there stays; nothing is left over."""
        path = tmp_path / "file"
        path.write_bytes(b"first")
        with pytest.raises(FileExistsError), new_file(path) as fd:
            write_all(fd, b"second")
        assert path.read_bytes() == b"first"
        assert list(tmp_path.iterdir()) == [path]

    def test_not_before_it_is_whole(self, tmp_path: Path) -> None:
        """The name appears after the last byte."""
        with new_file(tmp_path / "file") as fd:
            write_all(fd, b"x" * 100_000)
            assert not (tmp_path / "file").exists()
        assert (tmp_path / "file").stat().st_size == 100_000

    def test_in_place_of_another(self, tmp_path: Path) -> None:
        """With `replace` the old content is there until the new one is."""
        path = tmp_path / "file"
        path.write_bytes(b"old")
        with new_file(path, replace=True) as fd:
            write_all(fd, b"new")
            assert path.read_bytes() == b"old"
        assert path.read_bytes() == b"new"
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize("replace", [False, True])
    def test_no_room(self, tmp_path: Path, replace: bool) -> None:
        """What does not fit on the disk is not there at all, and takes nothing with it."""
        path = tmp_path / "file"
        if replace:
            path.write_bytes(b"old")
        with file_limit(4096), pytest.raises(OSError, match="too large"), new_file(path, replace=replace) as fd:
            write_all(fd, b"x" * 10_000)
        assert [(each, each.read_bytes()) for each in tmp_path.iterdir()] == ([(path, b"old")] if replace else [])


class TestLock:
    def test_one_at_a_time(self, tmp_path: Path) -> None:
        """A second daemon is told who holds the folder, leaves nothing behind, and gets it when the first lets go."""
        first = lock_folder(tmp_path / "data")
        before = sorted((tmp_path / "data").iterdir())
        with pytest.raises(StartError, match=f"process {os.getpid()} "):
            lock_folder(tmp_path / "data")
        assert sorted((tmp_path / "data").iterdir()) == before
        first.close()
        first.close()
        lock_folder(tmp_path / "data").close()

    def test_another_process(self, tmp_path: Path) -> None:
        """The lock holds between processes, within moments, and goes with its holder, even by SIGKILL."""
        with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            began = time.monotonic()
            with pytest.raises(StartError, match=f"process {holder.pid} "):
                lock_folder(tmp_path)
            assert time.monotonic() - began < 1
            holder.send_signal(signal.SIGKILL)
            holder.wait()
        lock_folder(tmp_path).close()

    @pytest.mark.parametrize("content", [b"", b"garbage\n", b"\xff\0", b"1\n", b"own", b"9" * 100, "²".encode()])
    def test_what_the_file_says_stops_nobody(self, tmp_path: Path, content: bytes) -> None:
        """A file that a crash, an older version or a restored copy left, whatever is in it, is no lock; and a real lock whose file says
        nonsense is told of without it."""
        content = b"%d\n" % os.getpid() if content == b"own" else content
        (tmp_path / "lock").write_bytes(content)
        lock = lock_folder(tmp_path)
        assert (tmp_path / "lock").read_bytes() == b"%d\n" % os.getpid()
        (tmp_path / "lock").write_bytes(content)
        with pytest.raises(StartError, match="another daemon works in this folder"):
            lock_folder(tmp_path)
        lock.close()

    def test_closed_to_others(self, tmp_path: Path) -> None:
        """The folder and the lock are closed to others, also where they were open."""
        (tmp_path / "data").mkdir(mode=0o755)
        (tmp_path / "data" / "lock").touch(mode=0o644)
        with umask(0):
            lock_folder(tmp_path / "data").close()
            lock_folder(tmp_path / "new" / "data").close()
        assert open_to_others(tmp_path / "data") == []
        assert open_to_others(tmp_path / "new") == []

    def test_a_shared_place_is_not_closed(self, tmp_path: Path) -> None:
        """A folder that everybody uses (as /tmp) is not taken away from them."""
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o1777)
        lock_folder(shared).close()
        assert shared.stat().st_mode & 0o7777 == 0o1777

    def test_a_folder_that_is_none(self, tmp_path: Path) -> None:
        """Where there can be no folder, or the lock is a link to elsewhere, the start ends with one line that names it."""
        (tmp_path / "file").touch()
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "lock").symlink_to(tmp_path / "file")
        for place in (tmp_path / "file", tmp_path / "file" / "data", tmp_path / "data"):
            with pytest.raises(StartError) as caught:
                lock_folder(place)
            assert str(place) in str(caught.value)
            assert "\n" not in str(caught.value)
        assert (tmp_path / "file").read_bytes() == b""
