"""SIGKILL at each place of a deletion that the daemon does by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from channels.failpoints import names
from tests.flow.daemon import REPO

DAY = 86400.0
PLACES = [name for name in names() if name.startswith(("session delete", "folder delete", "media delete"))]


def child(folder: Path, place: str = "") -> int:
    """Let it delete; its exit code."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPO), "PARLOUR_FAILPOINT": place}
    return subprocess.run(
        [sys.executable, "-m", "tests.crash.retention_child", str(folder)], cwd=folder, env=env, check=False, timeout=50
    ).returncode


def make(folder: Path, chat: str, files: dict[str, float]) -> None:
    """A chat of these sessions and media ("media/x"), with their ages in days; it is in `main`."""
    place = folder / "sessions" / "telegram" / chat
    (place / "media").mkdir(parents=True, mode=0o700)
    for name, days in ({"_chat": min(files.values())} | files).items():
        path = place / (name if "/" in name else f"{name}.jsonl")
        header = {"type": "session", "v": 1, "key": f"telegram:{chat}", "name": name, "created": "2026-01-01T00:00:00Z"}
        line = {"at": "2026-01-01T00:00:00Z", "current": "main"} if name == "_chat" else header
        path.write_text(json.dumps(line) + "\n")
        path.chmod(0o600)
        os.utime(path, (time.time() - days * DAY,) * 2)


def left(folder: Path) -> list[str]:
    root = folder / "sessions" / "telegram"
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("place", PLACES)
def test_a_kill_in_a_deletion_is_made_good_by_the_next_one(tmp_path: Path, place: str) -> None:
    """What had to go is gone after the next run, nothing half deleted is left, and what had to stay is as it was."""
    make(tmp_path, "1", {"main": 90, "west": 80, "media/a": 70, "media/b": 60})
    make(tmp_path, "2", {"main": 1, "old": 90, "media/c": 50, "media/d": 2})
    stays = ["2/_chat.jsonl", "2/main.jsonl", "2/media/d"]
    content = [(tmp_path / "sessions" / "telegram" / name).read_bytes() for name in stays]
    assert child(tmp_path, f"{place}:1") == -9
    assert child(tmp_path) == 0
    assert left(tmp_path) == stays
    assert [(tmp_path / "sessions" / "telegram" / name).read_bytes() for name in stays] == content
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith((".gone-", ".new-"))]
