"""What a folder tells without being taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from channels.base import Address, Inbound, Sender
from gateway.disk import lock_folder
from gateway.inbox import Entry, Inbox, Input
from gateway.leftovers import holder, look
from gateway.records import ReplyText
from gateway.writer import Writer


def entry(n: int, at: float, **more: object) -> Entry:
    inbound = Inbound(f"telegram:7:42:{n}", Address("telegram", "42"), Sender("42"), f"text {n}")
    return Entry(Input(inbound, "telegram:42", at), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("rotate", [10**6, 300])
async def test_unfinished_inputs(tmp_path: Path, rotate: int) -> None:
    """As many as a start would go on with, over one segment or many, sealed, torn or damaged; and looking changes nothing."""
    writer = Writer()
    inbox = Inbox(tmp_path / "journal", writer, clock=lambda: 2000.0, rotate_bytes=rotate)
    await inbox.open()
    for n in range(10):
        await inbox.put([entry(n, 1000.0 + n)])
    await inbox.put([entry(20, 1.0, refused="x"), entry(21, 1005.5, refused="x", reply=ReplyText("no"))])
    for n in (0, 1, 2, 5):
        await inbox.finished(f"telegram:7:42:{n}")
    inbox.amend("telegram:7:42:7", "else")
    await inbox.close()
    await writer.close()
    with max((tmp_path / "journal").glob("*.jsonl")).open("ab") as file:
        file.write(b'no json\n{"type":"finished","id":"telegram:7:42:3"')
    for sidecar in list((tmp_path / "journal").glob("*.ids"))[:1]:
        sidecar.write_bytes(b"damaged")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    left = look(tmp_path)
    assert (left.there, left.unfinished, left.oldest, left.holder) == (True, 7, 1003.0, "")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_no_folder_of_ours(tmp_path: Path) -> None:
    """Nothing is read or made where no daemon ever worked."""
    assert look(tmp_path / "data") == (False, "", 0, 0.0)
    assert look(tmp_path) == (False, "", 0, 0.0)
    assert list(tmp_path.iterdir()) == []


def test_holder(tmp_path: Path) -> None:
    """Who holds the lock is told by the kernel's list, without trying the lock; what the file says is not believed."""
    lock = lock_folder(tmp_path)
    assert holder(tmp_path) == f"process {os.getpid()}"
    lock.close()
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    assert holder(tmp_path) == ""


def test_a_kernel_that_lists_another_device(tmp_path: Path) -> None:
    """Layered file systems do: then inode and process have to fit; no list is no holder."""
    (tmp_path / "lock").write_text("77\n")
    inode = (tmp_path / "lock").stat().st_ino
    locks = tmp_path / "locks"
    for line, said in (
        (f"1: FLOCK  ADVISORY  WRITE 77 ff:ff:{inode} 0 EOF", "process 77"),
        (f"1: FLOCK  ADVISORY  WRITE 78 ff:ff:{inode} 0 EOF", ""),
        (f"1: POSIX  ADVISORY  WRITE 77 ff:ff:{inode} 0 EOF", ""),
        ("1: FLOCK", ""),
        ("", ""),
    ):
        locks.write_text(f"{line}\n")
        assert holder(tmp_path, locks) == said
    assert holder(tmp_path, tmp_path / "nowhere") == ""
