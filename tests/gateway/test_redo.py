"""Frames of the power log, and putting back what they say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from gateway.errors import StartError
from gateway.metrics import Damage
from gateway.redo import Frame, again, read_frames, recover, runs
from tests.gateway.disk_tools import file_limit

LINES = [b'{"seq":1}\n', b'{"seq":2,"x":"\xc3\xa9"}\n', b'{"seq":3}\n', b'{"seq":4}\n']
HEAD = b'{"type":"session"}\n'


def frames(start: int = len(HEAD), file: str = "sessions/a/main.jsonl") -> list[Frame]:
    found: list[Frame] = []
    for line in LINES:
        found.append(Frame(file, start, line))
        start += len(line)
    return found


def put(folder: Path, content: bytes, name: str = "sessions/a/main.jsonl") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def log(folder: Path, *written: Frame, number: int = 1, behind: bytes = b"") -> Path:
    return put(folder, b"".join(frame.encode() for frame in written) + behind, f"power/{number:06d}.jsonl")


def torn(path: Path) -> bytes:
    return path.with_suffix(".torn").read_bytes() if path.with_suffix(".torn").exists() else b""


class TestFrames:
    def test_every_prefix(self) -> None:
        """Cut at any byte, a segment gives its whole frames, and the rest as one piece."""
        encoded = [frame.encode() for frame in frames()]
        whole = b"".join(encoded)
        ends = [sum(map(len, encoded[:n])) for n in range(len(encoded) + 1)]
        for cut in range(len(whole) + 1):
            count = sum(end <= cut for end in ends) - 1
            found = read_frames(whole[:cut])
            assert found.frames == frames()[:count]
            assert b"".join(found.pieces) == whole[ends[count] : cut]

    @given(st.integers(0, 300), st.integers(0, 255))
    def test_a_changed_byte(self, place: int, value: int) -> None:
        """Whatever byte is changed, no frame comes out that was not put in, and those behind the damage are found again."""
        whole = bytearray(b"".join(frame.encode() for frame in frames()))
        place %= len(whole)
        if whole[place] == value:
            return
        whole[place] = value
        found = read_frames(bytes(whole))
        assert set(found.frames) < set(frames())
        assert len(found.frames) >= len(LINES) - 2
        assert found.pieces

    @pytest.mark.parametrize("file", ["/etc/passwd", "../x", "a/../../x"])
    def test_nothing_outside(self, file: str) -> None:
        """A name that leads out of the folder is no frame's."""
        assert read_frames(Frame(file, 0, b"x\n").encode()).frames == []

    def test_nonsense(self) -> None:
        """NULs, text, deep nesting, huge numbers: pieces, never an exception."""
        for data in (
            b"\0" * 5000,
            b"hello\n",
            b'{"file":' * 9999,
            b'{"file":"a","at":0,"bytes":-5,"sum":""}\n',
            b'{"file":"a","at":1e400}\n',
        ):
            assert read_frames(data) == ([], [data])


class TestRuns:
    def test_what_follows_is_one(self) -> None:
        """Frames that follow each other are one stretch; files do not mix."""
        other = Frame("access.jsonl", 0, b"{}\n")
        first, *rest = frames()
        assert runs([first, other, *rest]) == {first.file: [(first.at, b"".join(LINES))], "access.jsonl": [(0, b"{}\n")]}

    def test_the_later_one_holds(self) -> None:
        """What failed and was written anew, or never, is not put back as it was first."""
        one, two, three, _ = frames()
        wrong = Frame(two.file, two.at, b"a failed one\n")
        behind = Frame(two.file, two.at + len(wrong.data), b"and what was to follow it\n")
        assert runs([one, wrong, behind, two, three]) == {one.file: [(one.at, one.data + two.data + three.data)]}
        assert runs([one, wrong, Frame(two.file, two.at, b"")]) == {one.file: [(one.at, one.data)]}
        assert runs([wrong, Frame(two.file, two.at, b"")]) == {}
        assert runs([one, two, Frame(one.file, one.at + 3, b"x\n")]) == {one.file: [(one.at, one.data[:3] + b"x\n")]}

    def test_a_gap(self) -> None:
        """Frames with a gap between them are stretches for themselves."""
        one, _, three, _ = frames()
        assert runs([one, three]) == {one.file: [(one.at, one.data), (three.at, three.data)]}


class TestRecover:
    def test_every_loss(self, tmp_path: Path) -> None:
        """However much of the end is gone, it comes back; twice is as once; the log is done away with."""
        whole = HEAD + b"".join(LINES)
        path = put(tmp_path, b"")
        for size in range(len(HEAD), len(whole) + 1):
            for rest in (b"", b"\0" * 7, b"\0" * 700):
                put(tmp_path, whole[:size] + rest)
                for _ in range(2):
                    log(tmp_path, *frames()[:2])
                    log(tmp_path, *frames()[2:], number=2)
                    recover(tmp_path)
                    assert path.read_bytes() == whole + rest * (size == len(whole))
                    assert list((tmp_path / "power").iterdir()) == []
        assert torn(path) == b""

    def test_a_torn_page(self, tmp_path: Path) -> None:
        """Bytes that read as NULs in the middle are put right, what was wrong besides is set aside, and one warning tells of it."""
        whole = HEAD + b"".join(LINES)
        path = put(tmp_path, whole[:30] + bytes(20) + whole[50:] + b'{"half')
        log(tmp_path, *frames())
        damage = Damage()
        with capture_logs() as logs:
            recover(tmp_path, damage)
        assert path.read_bytes() == whole
        assert torn(path) == bytes(20) + whole[50:] + b'{"half' + b"\n"
        assert [(entry["file"], entry["offset"]) for entry in logs if entry["log_level"] == "warning"] == [(str(path), 30)]
        assert damage.values["torn",] == 1

    def test_what_was_not_acknowledged(self, tmp_path: Path) -> None:
        """Whole lines behind the last acknowledged one stay; from the first that is none on they are set aside."""
        whole = HEAD + b"".join(LINES)
        path = put(tmp_path, whole + b'{"seq":5}\n' + bytes(9) + b'"}\n{"seq":7}\n')
        log(tmp_path, *frames())
        recover(tmp_path)
        assert path.read_bytes() == whole + b'{"seq":5}\n'
        assert torn(path) == bytes(9) + b'"}\n{"seq":7}\n\n'

    def test_a_file_that_began_in_it(self, tmp_path: Path) -> None:
        """A file of which not even the name is left is made, with its folders, for its owner alone."""
        log(tmp_path, *frames(0))
        recover(tmp_path)
        path = tmp_path / "sessions" / "a" / "main.jsonl"
        assert path.read_bytes() == b"".join(LINES)
        assert path.stat().st_mode & 0o077 == path.parent.stat().st_mode & 0o077 == 0

    def test_a_file_that_is_gone(self, tmp_path: Path) -> None:
        """A file that did not begin in the log is not made anew: it was deleted."""
        log(tmp_path, *frames(), Frame("access.jsonl", 0, b"{}\n"))
        recover(tmp_path)
        assert not (tmp_path / "sessions").exists()
        assert (tmp_path / "access.jsonl").read_bytes() == b"{}\n"

    def test_a_gap(self, tmp_path: Path) -> None:
        """Lines whose place lies behind the end of their file are kept and told of; that file is not touched, all others are put right."""
        path = put(tmp_path, HEAD[:5])
        log(tmp_path, *frames(), Frame("access.jsonl", 0, b"{}\n"))
        with capture_logs() as logs:
            recover(tmp_path)
        assert path.read_bytes() == HEAD[:5]
        assert read_frames((tmp_path / "power" / "000001.bad").read_bytes()).frames == [Frame(frames()[0].file, len(HEAD), b"".join(LINES))]
        assert [entry["log_level"] for entry in logs].count("error") == 1
        assert (tmp_path / "access.jsonl").exists()

    def test_the_piece_at_its_end(self, tmp_path: Path) -> None:
        """What a cut left of the last batch is set aside beside the log."""
        put(tmp_path, HEAD)
        piece = frames()[3].encode()[:-4]
        log(tmp_path, *frames()[:3], behind=piece)
        recover(tmp_path)
        assert (tmp_path / "sessions" / "a" / "main.jsonl").read_bytes() == HEAD + b"".join(LINES[:3])
        assert (tmp_path / "power" / "000001.torn").read_bytes() == piece + b"\n"

    def test_every_prefix_of_the_log(self, tmp_path: Path) -> None:
        """Cut at any byte, it gives back the frames that are whole, and keeps the piece that is not."""
        encoded = [frame.encode() for frame in frames()]
        whole = b"".join(encoded)
        ends = [sum(map(len, encoded[:n])) for n in range(len(encoded) + 1)]
        path = put(tmp_path, b"")
        for cut in range(len(whole) + 1):
            put(tmp_path, HEAD)
            put(tmp_path, whole[:cut], "power/000001.jsonl")
            recover(tmp_path)
            count = sum(end <= cut for end in ends) - 1
            assert path.read_bytes() == HEAD + b"".join(LINES[:count])
            piece = whole[ends[count] : cut]
            torn = tmp_path / "power" / "000001.torn"
            assert (torn.read_bytes() if torn.exists() else b"") == piece + b"\n" * bool(piece and not piece.endswith(b"\n"))
            torn.unlink(missing_ok=True)

    def test_nothing_to_do(self, tmp_path: Path) -> None:
        """A folder without a log is left as it is."""
        recover(tmp_path)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("what", ["folder", "link", "pipe", "file above it"])
    def test_something_in_its_place(self, tmp_path: Path, what: str) -> None:
        """Where something else is in a file's place its lines are kept, and all other files get theirs."""
        path = tmp_path / "sessions" / "a" / "main.jsonl"
        path.parent.mkdir(parents=True)
        if what == "folder":
            path.mkdir()
        elif what == "link":
            path.symlink_to(tmp_path / "elsewhere")
        elif what == "pipe":
            os.mkfifo(path)
        else:
            path.parent.rmdir()
            path.parent.write_bytes(b"")
        log(tmp_path, *frames(), Frame("access.jsonl", 0, b"{}\n"))
        recover(tmp_path)
        assert len(read_frames((tmp_path / "power" / "000001.bad").read_bytes()).frames) == 1
        assert (tmp_path / "access.jsonl").read_bytes() == b"{}\n"
        assert not (tmp_path / "elsewhere").exists()

    def test_a_full_disk(self, tmp_path: Path) -> None:
        """Where there is no room for what is to be put back the start ends with one line, and the log stays for the next."""
        path = put(tmp_path, HEAD)
        kept = log(tmp_path, *frames())
        with file_limit(40), pytest.raises(StartError, match="cannot be put back"):
            recover(tmp_path)
        assert kept.exists()
        recover(tmp_path)
        assert path.read_bytes() == HEAD + b"".join(LINES)

    def test_once_more(self, tmp_path: Path) -> None:
        """`again` writes what is there already, cuts nothing behind it, and makes nothing that is gone."""
        whole = HEAD + b"".join(LINES)
        path = put(tmp_path, whole + b"more\n")
        again(tmp_path, [log(tmp_path, *frames(), *frames(file="gone.jsonl"))])
        assert path.read_bytes() == whole + b"more\n"
        assert not (tmp_path / "gone.jsonl").exists()
