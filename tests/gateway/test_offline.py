"""The operator's work on a folder that no daemon has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.disk import lock_folder
from gateway.errors import ParlourError, StartError, Told
from gateway.message import Header, Message, encode_line
from gateway.offline import work


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "sessions" / "telegram" / "42"
    folder.mkdir(parents=True)
    message = Message(seq=1, role="user", content="hello")
    (folder / "main.jsonl").write_bytes(encode_line(Header(v=1, key="telegram:42", name="main")) + encode_line(message) + b'{"torn')
    (tmp_path / "data" / "lock").touch()
    return tmp_path / "data"


async def test_values_as_the_socket_gives_them(data: Path) -> None:
    """Parts and results are plain values, a torn tail is set aside first, and the folder is free again afterwards."""
    parts: list[object] = []
    assert await work(data, "sessions.list", {}, parts.append) is None
    assert isinstance(parts[0], dict)
    assert [(row["key"], row["lines"]) for row in parts[0]["rows"]] == [("telegram:42", 1)]
    forked = await work(data, "sessions.fork", {"key": "telegram:42", "name": "main", "new": "west"})
    assert isinstance(forked, dict)
    assert (data / "sessions" / "telegram" / "42" / "main.torn").exists()
    await work(data, "sessions.delete", {"key": "telegram:42"})
    assert list((data / "sessions" / "telegram").iterdir()) == []
    lock_folder(data).close()


async def test_a_folder_that_is_taken(data: Path) -> None:
    """The daemon's line, and nothing is touched; after a failure the folder is free."""
    lock = lock_folder(data)
    with pytest.raises(StartError, match="another daemon works in this folder"):
        await work(data, "sessions.delete", {"key": "telegram:42"})
    lock.close()
    assert (data / "sessions" / "telegram" / "42" / "main.jsonl").exists()
    with pytest.raises(Told):
        await work(data, "sessions.show", {"key": "telegram:43"})
    with pytest.raises(ParlourError, match="needs the running daemon"):
        await work(data, "status", {})
    lock_folder(data).close()


async def test_a_folder_of_somebody_elses(tmp_path: Path) -> None:
    """Nothing is begun where no daemon ever worked."""
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(ParlourError, match="no data of Parlour's"):
        await work(tmp_path, "sessions.list", {})
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
async def test_root_leaves_nothing_that_the_daemon_cannot_read(data: Path) -> None:
    """What root makes in a folder of another user's is that user's afterwards; a link leads nowhere."""
    for path in (data, *data.rglob("*")):
        os.chown(path, 4242, 4243)
    elsewhere = data.parent / "elsewhere"
    elsewhere.touch()
    (data / "sessions" / "link").symlink_to(elsewhere)
    await work(data, "sessions.fork", {"key": "telegram:42", "name": "main", "new": "west"})
    made = data / "sessions" / "telegram" / "42" / "west.jsonl"
    assert made.exists()
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in (data, *data.rglob("*"))} == {(4242, 4243)}
    assert elsewhere.stat().st_uid == 0
