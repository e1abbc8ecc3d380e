"""Places at which a test may kill the process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from channels import failpoints
from channels.failpoints import POINTS, names

ROOT = Path(__file__).parents[2]
CHILD = "from channels.failpoints import reach\nfor _ in range(3):\n    reach('rotate')\n    print('on', flush=True)\n"


def child(**env: str) -> tuple[int, int]:
    """Exit code of a process that comes to one place three times, and how often it got past it."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD], cwd=ROOT, env={"PATH": os.environ["PATH"], **env}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.count("on")


def test_the_list_is_what_the_source_has() -> None:
    """Each place of the list is marked in the source, and each mark is in the list."""
    called: set[str] = set()
    for path in (path for package in ("channels", "gateway") for path in (ROOT / package).rglob("*.py")):
        if path.name != "failpoints.py":
            called |= set(re.findall(r'\breach\(f?"([^"]+)"', path.read_text()))
    calls = {f"{call} {when}" for call in ("send", "edit", "delete") for when in ("before", "after")}
    assert {"{call} before", "{call} after"} <= called
    assert called - {"{call} before", "{call} after"} | calls == set(POINTS)


def test_names_are_unique() -> None:
    """A name means one place."""
    assert len(list(names())) == len(set(names()))


def test_off_unless_asked_for() -> None:
    """Without the variable nothing is counted and nothing dies."""
    assert failpoints.arm({}) is None
    assert child() == (0, 3)


def test_the_nth_time_kills(tmp_path: Path) -> None:
    """SIGKILL at that place and time, and the log says what was reached and where it ended."""
    log = tmp_path / "log"
    assert child(PARLOUR_FAILPOINT="rotate:2", PARLOUR_FAILPOINT_LOG=str(log)) == (-9, 1)
    assert log.read_text() == "rotate\nrotate!\n"
    assert child(PARLOUR_FAILPOINT="rotate:4") == (0, 3)
    assert child(PARLOUR_FAILPOINT="rotate:3:0.01") == (-9, 2)


def test_files_are_told_apart() -> None:
    """What a file is says its name and place."""
    kinds = {
        "journal/000001.jsonl": "journal",
        "journal/000001.ids": "sidecar",
        "sessions/telegram/1/_chat.jsonl": "pointer",
        "sessions/telegram/1/main.jsonl": "session",
        "access.jsonl": "access",
        "web-token": "",
    }
    assert {name: failpoints.kind_of(Path(name)) for name in kinds} == kinds
