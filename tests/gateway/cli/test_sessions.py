"""`parlour sessions` on a folder without a daemon: what is asked before something goes for good, and where an export may go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.message import Header, Message, encode_line
from tests.gateway.test_cli import environment, parlour


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """The only one there is."""
    folder = tmp_path / "data" / "sessions" / "telegram" / "42"
    folder.mkdir(parents=True)
    (tmp_path / "data" / "lock").touch()
    path = folder / "main.jsonl"
    path.write_bytes(encode_line(Header(v=1, key="telegram:42", name="main")) + encode_line(Message(seq=1, role="user", content="hello")))
    return path


def on_a_terminal(folder: Path, answer: str, *args: str) -> tuple[int, str]:
    """With a terminal as stdin on which somebody types `answer`; exit code and stderr."""
    ours, theirs = os.openpty()
    os.write(ours, answer.encode())
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "sessions", *args],
        cwd=folder,
        env=environment(),
        stdin=theirs,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    os.close(ours)
    os.close(theirs)
    return done.returncode, done.stderr


@pytest.mark.parametrize("answer", ["n\n", "\n", "yess\n", "\x04"])
def test_not_without_a_yes(tmp_path: Path, session: Path, answer: str) -> None:
    """Anything but yes leaves everything as it is."""
    code, told = on_a_terminal(tmp_path, answer, "delete", "telegram:42")
    assert (code, session.exists()) == (1, True)
    assert told.startswith("Delete 1 conversation of telegram:42 and their words in the journal for good (1 line)? [y/N] ")
    assert "nothing was deleted" in told


def test_yes(tmp_path: Path, session: Path) -> None:
    """Then it is gone."""
    code, told = on_a_terminal(tmp_path, "y\n", "delete", "telegram:42", "main")
    assert (code, session.exists()) == (0, False)
    assert "Delete main of telegram:42 for good" in told


def test_where_an_export_may_go(tmp_path: Path, session: Path) -> None:
    """Never over a file, a link or into a folder that is not there; a failure leaves no half of a file."""
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to("elsewhere")
    for target, said in (
        ("mine", "is there already"),
        ("link", "is there already"),
        ("nowhere/x", "no such folder"),
        ("data", "is there already"),
    ):
        done = parlour("sessions", "export", "telegram:42", "-o", target, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert said in done.stderr
    assert parlour("sessions", "export", "telegram:42", "--force", "-o", "data", cwd=tmp_path).returncode == 1
    assert parlour("sessions", "export", "telegram:43", "-o", "half", cwd=tmp_path).returncode == 1
    done = parlour("sessions", "export", "telegram:42", "--force", "-o", "link", cwd=tmp_path)
    assert (done.returncode, (tmp_path / "link").is_symlink()) == (0, False)
    assert (tmp_path / "link").read_bytes() == session.read_bytes()
    assert parlour("sessions", "export", "telegram:42", "-o", "-", cwd=tmp_path).stdout.encode() == session.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "link", "mine"]
    assert (tmp_path / "mine").read_text() == "mine"
