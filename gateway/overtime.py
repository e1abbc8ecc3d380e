"""The end, whatever hangs: threads are not waited for, and the budget is the budget.

Python waits at its end for every thread that a name's resolution or a file is handled in, and such a thread may hang for as long as a
resolver or a disk likes. Nothing of ours depends on what it still does: what was acknowledged is with the kernel already. Called by
`gateway.app`.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)

OVERTIME = 8.0
"""Seconds after the budget at which the process ends by force. `TimeoutStopSec` in the unit is longer than both."""
THREADS = 1.0
"""Seconds that threads have when everything else has ended."""


def end_by_force(budget: float) -> None:
    """From here on the process lives for `budget` and OVERTIME seconds at most. What hangs then goes to stderr as stacks; exit code 1."""

    def end() -> None:
        log.error("the end took too long, ended by force")
        faulthandler.dump_traceback()
        os._exit(1)

    _later(budget + OVERTIME, end)


def end_without_threads(code: int) -> None:
    """All is closed: end with `code` soon, whatever threads still hang in."""

    def end() -> None:
        names = sorted(thread.name for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread())
        log.warning("ended without waiting for threads", threads=names)
        os._exit(code)

    _later(THREADS, end)


def _later(seconds: float, end: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.name = "overtime"
    timer.start()
