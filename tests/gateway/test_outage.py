"""What the log says of a disk that takes nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from gateway.outage import CALM, Outage, passing, tell

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG])
def test_what_is_the_disk(code: int) -> None:
    """A full disk, a quota, a read-only one, a failing one: it is everybody's trouble, and one word is enough; no traceback."""
    error = OSError(code, os.strerror(code))
    assert passing(error)
    with capture_logs() as logs:
        tell(structlog.get_logger(), "not stored", error, key="k")
    assert logs == [{"event": "not stored", "error": os.strerror(code), "key": "k", "log_level": "info"}]


@pytest.mark.parametrize("error", [OSError(errno.EISDIR, "x"), OSError("x"), ValueError("x"), OSError(errno.EACCES, "x")])
def test_what_is_not(error: Exception) -> None:
    """A single broken file is told with everything that is known of it."""
    assert not passing(error)
    if isinstance(error, OSError):
        with capture_logs() as logs:
            tell(structlog.get_logger(), "not stored", error)
        assert [(entry["log_level"], entry["exc_info"]) for entry in logs] == [("error", error)]


def test_one_line_at_each_end() -> None:
    """However many appends fail, and whatever short lines fit in between: one line when it begins, one with the count when it is over."""
    now = [100.0]
    outage = Outage(lambda: now[0])
    with capture_logs() as logs:
        outage.worked()
        for _ in range(500):
            outage.failed(Path("a"), FULL, 3)
            now[0] += CALM / 10
            outage.worked()
        now[0] += CALM
        outage.worked()
        outage.worked()
        outage.failed(Path("b"), FULL, 1)
    assert [(entry["log_level"], entry.get("failed"), entry.get("file")) for entry in logs] == [
        ("error", None, "a"),
        ("warning", 1500, None),
        ("error", None, "b"),
    ]
