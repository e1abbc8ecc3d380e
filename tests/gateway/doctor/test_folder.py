"""What is found in a data folder, and that finding it changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.doctor.findings import Finding
from gateway.doctor.folder import examine
from gateway.message import Header, Message, encode_line


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder as a daemon leaves it."""
    folder = tmp_path / "data"
    (folder / "sessions" / "telegram" / "42").mkdir(parents=True)
    (folder / "journal").mkdir()
    (folder / "lock").write_text("1\n")
    (folder / "journal" / "000001.jsonl").write_bytes(b'{"type":"finished","id":"a","at":1.0}\n')
    session(folder, "main")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return folder


def session(folder: Path, name: str) -> Path:
    path = folder / "sessions" / "telegram" / "42" / f"{name}.jsonl"
    path.write_bytes(
        encode_line(Header(v=1, key="telegram:42", name=name)) + encode_line(Message(seq=1, role="user", content="secret words"))
    )
    path.chmod(0o600)
    return path


def found(folder: Path, *, deep: bool = False) -> list[Finding]:
    before = (
        {path: (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"") for path in folder.rglob("*")}
        if folder.is_dir()
        else {}
    )
    told = list(examine(folder, deep=deep, tell=lambda text: None))
    assert all((path.lstat().st_mode, path.read_bytes() if path.is_file() else b"") == was for path, was in before.items())
    assert "secret words" not in repr(told)
    return told


def wrong(folder: Path, *, deep: bool = False) -> list[tuple[str, str]]:
    return [(one.area, one.text) for one in found(folder, deep=deep) if one.level == "wrong"]


def test_all_is_well(data: Path) -> None:
    """One line, and no fault."""
    assert [(one.area, one.level) for one in found(data)] == [("data", "ok")]
    assert [(one.area, one.level) for one in found(data, deep=True)] == [("data", "ok")]


def test_not_there_yet(tmp_path: Path) -> None:
    """No fault: the first start makes it. A file in its place is one."""
    assert [(one.level, one.remedy) for one in found(tmp_path / "data")] == [("note", "the first start makes it")]
    (told,) = examine(tmp_path / "data", deep=False, tell=lambda text: None, here=True)
    assert "under the unit /var/lib/parlour" in told.remedy
    (tmp_path / "data").write_text("x")
    assert wrong(tmp_path / "data") == [("data", f"{tmp_path}/data is no folder")]


def test_open_to_others(data: Path) -> None:
    """The folder, and what is in it, each with what to do."""
    data.chmod(0o755)
    (data / "sessions" / "telegram" / "42" / "main.jsonl").chmod(0o644)
    told = found(data)
    assert [one.remedy for one in told if one.level == "wrong"] == [
        f"chmod 700 {data}",
        f"chmod -R go= {data}",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_somebody_elses(data: Path) -> None:
    """Files that the daemon's user could not read."""
    for n in range(5):
        os.chown(session(data, f"s{n}"), 4242, 4242)
    ((area, text),) = wrong(data)
    assert area == "data"
    assert text.startswith(f"not of the same owner as {data}: ")
    assert text.endswith("/s2.jsonl and 2 more")


def test_damage(data: Path) -> None:
    """Torn pieces are counted, no fault; headers and journal lines that cannot be read are, and lines of sessions that are read whole."""
    folder = data / "sessions" / "telegram" / "42"
    for path, content in (
        (folder / "main.torn", b'{"a\n{"b\n'),
        (data / "journal" / "000001.torn", b"x\n"),
        (folder / "bad.jsonl", b"no header\n"),
        (folder / "newer.jsonl", b'{"type":"session","v":9,"key":"telegram:42"}\n'),
        (data / "journal" / "000002.jsonl", b'no json\n{"type":"finished","id":"b"}\n{"cut'),
        (data / "journal" / "000001.ids.bad", b"x"),
        (folder / ".new-0123", b"half"),
        (data / "power" / "000001.bad", b"a frame\n"),
    ):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o600)
    with session(data, "west").open("ab") as file:
        file.write(b"no json\n\n{}\n")
    told = found(data)
    assert [one.text for one in told if one.level == "note"] == [
        f"put aside: {data}/journal/000001.ids.bad",
        "2 .torn files with 3 pieces of lines that crashes cut off",
    ]
    assert [(one.area, one.level) for one in told if one.level == "wrong"] == [
        ("sessions", "wrong"),
        ("journal", "wrong"),
        ("power log", "wrong"),
    ]
    assert f"{folder}/bad.jsonl:1: no session header" in told[0].text
    assert "format 9 is newer" in told[0].text
    assert told[1].text == f"1 damaged line in {data}/journal/000002.jsonl"
    assert wrong(data, deep=True)[1][1].startswith("3 damaged lines in ")


def test_links(data: Path, tmp_path: Path) -> None:
    """Links are not followed by the daemon, and not by us."""
    (tmp_path / "elsewhere").write_bytes(b"no header\n")
    (data / "sessions" / "telegram" / "42" / "west.jsonl").symlink_to(tmp_path / "elsewhere")
    ((_, text),) = wrong(data)
    assert text.startswith("links are not followed: ")
    assert text.endswith("west.jsonl")


def test_a_pipe_in_the_place_of_a_file(data: Path) -> None:
    """Nobody waits for ever."""
    os.mkfifo(data / "sessions" / "telegram" / "42" / "west.jsonl", 0o600)
    assert wrong(data) == []
