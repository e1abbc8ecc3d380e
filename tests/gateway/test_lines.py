"""Files of lines, from both ends, whole and torn."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.lines import BLOCK, backwards, forwards, repair_tail, whole_lines
from tests.gateway.disk_tools import counter, file_limit, open_to_others

LENGTHS = st.lists(st.sampled_from([0, 1, 7, 100, BLOCK - 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK]), max_size=12)


def lines_of(lengths: list[int]) -> list[bytes]:
    return [bytes([97 + n % 26]) * length + b"\n" for n, length in enumerate(lengths)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LENGTHS, st.integers(0, 50))
def test_both_ways_give_the_same_lines(tmp_path: Path, lengths: list[int], start: int) -> None:
    """Whatever the lines' lengths are to the blocks, reading forwards and backwards gives the same lines at the same offsets."""
    lines = lines_of(lengths)
    path = tmp_path / "file"
    path.write_bytes(b"x" * start + b"".join(lines))
    end = start + sum(map(len, lines))
    fd = os.open(path, os.O_RDONLY)
    try:
        there = list(forwards(fd, end, start))
        back = list(backwards(fd, end, start))
        assert [line.data for line in there] == lines
        assert there == back[::-1]
        assert whole_lines(fd, end, start) == end
    finally:
        os.close(fd)


def test_backwards_reads_no_more_than_it_is_asked_for(tmp_path: Path) -> None:
    """The last lines of a large file cost one block."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789\n" * 1_000_000)
    fd = os.open(path, os.O_RDONLY)
    before = counter("rchar")
    lines = backwards(fd, path.stat().st_size)
    assert [next(lines).data for _ in range(100)] == [b"0123456789\n"] * 100
    assert counter("rchar") - before < BLOCK + 4096
    os.close(fd)


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    """A file that is cut while it is read is an OSError, not an endless loop and not half a line."""
    path = tmp_path / "file"
    path.write_bytes(b"line\n" * 100)
    fd = os.open(path, os.O_RDONLY)
    os.truncate(path, 50)
    with pytest.raises(OSError, match="shorter"):
        list(backwards(fd, 500))
    with pytest.raises(OSError, match="shorter"):
        list(forwards(fd, 500))
    os.close(fd)


class TestRepair:
    @pytest.mark.parametrize("content", [b"", b"\n", b'{"a":1}\n', b'{"a":1}\n\n', b"nonsense\n"])
    def test_a_whole_file_is_left_alone(self, tmp_path: Path, content: bytes) -> None:
        """A file that ends with a newline, whatever is in it, is not touched."""
        path = tmp_path / "file.jsonl"
        path.write_bytes(content)
        assert repair_tail(path) == len(content)
        assert path.read_bytes() == content
        assert list(tmp_path.iterdir()) == [path]

    def test_a_record_without_its_newline(self, tmp_path: Path) -> None:
        """A last piece that is a whole record only gets its newline."""
        path = tmp_path / "file.jsonl"
        path.write_bytes(b'{"a":1}\n{"b":{"c":2}}')
        assert repair_tail(path) == 22
        assert path.read_bytes() == b'{"a":1}\n{"b":{"c":2}}\n'
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize(
        "torn", [b'{"role":"assis', b"\0\0\0\0", b"\0" * 200_000, b"42", b"[1", b"\xff\xfe", b'"words', b"[" * 100_000]
    )
    def test_a_torn_piece_is_set_aside(self, tmp_path: Path, torn: bytes) -> None:
        """Any other last piece goes to the torn file, privately, whole; doing it again finds nothing to do."""
        path = tmp_path / "file.jsonl"
        path.write_bytes(b'{"a":1}\n' + torn)
        for _ in range(2):
            assert repair_tail(path) == 8
            assert path.read_bytes() == b'{"a":1}\n'
            assert (tmp_path / "file.torn").read_bytes() == torn + b"\n"
        os.chmod(path, 0o600)
        assert [line for line in open_to_others(tmp_path) if "file" in line] == []

    def test_torn_twice(self, tmp_path: Path) -> None:
        """A second torn piece stands behind the first one."""
        path = tmp_path / "file.jsonl"
        for torn in (b"{one", b"{two"):
            with path.open("ab") as file:
                file.write(torn)
            repair_tail(path)
        assert (path.read_bytes(), (tmp_path / "file.torn").read_bytes()) == (b"", b"{one\n{two\n")

    def test_no_room_to_set_it_aside(self, tmp_path: Path) -> None:
        """Where the torn piece cannot be kept, the file is not cut: nothing is lost, and it works once there is room."""
        path = tmp_path / "file.jsonl"
        content = b'{"a":1}\n{"b":"' + b"x" * 9000
        path.write_bytes(content)
        with file_limit(4096), pytest.raises(OSError, match="too large"):
            repair_tail(path)
        assert path.read_bytes() == content
        assert (tmp_path / "file.torn").read_bytes() == b""
        assert repair_tail(path) == 8

    def test_a_missing_file(self, tmp_path: Path) -> None:
        """There is nothing to repair where there is nothing, and nothing is made."""
        with pytest.raises(FileNotFoundError):
            repair_tail(tmp_path / "file.jsonl")
        assert list(tmp_path.iterdir()) == []
