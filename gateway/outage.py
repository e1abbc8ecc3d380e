"""A disk that takes nothing: one line in the log when it begins, one with the count when it is over.

Whoever meets such an error says no more of it than at level info: it would be said for each message of each chat. Called by
`gateway.writer`, which meets them first; `passing` and `tell` by whoever waits for something to be written.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

log = structlog.get_logger(__name__)

CALM = 2.0
"""Seconds without a failure after which an outage is over: on an almost full disk short lines still fit between long ones that do not."""

_PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


def passing(error: BaseException) -> bool:
    """The disk as a whole takes nothing (full, quota, read-only, failing): it passes, or everybody is in the same trouble."""
    return isinstance(error, OSError) and error.errno in _PASSING


def tell(logger: Any, event: str, error: OSError, **facts: object) -> None:
    """Log what could not be written: a word where the disk is the matter, which is told of already, else an error with its traceback."""
    if passing(error):
        logger.info(event, error=error.strerror, **facts)
    else:
        logger.error(event, exc_info=error, **facts)


class Outage:
    """`clock`: seconds, from any beginning."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = self._last = 0.0
        self._failed = 0

    def failed(self, path: Path, error: OSError, appends: int) -> None:
        """Appends to one file failed."""
        self._last = self._clock()
        if not self._failed:
            self._began = self._last
            log.error("cannot write to the disk, trying on", file=str(path), error=error.strerror)
        self._failed += appends

    def worked(self) -> None:
        """Everything that was to be written was."""
        if self._failed and (now := self._clock()) - self._last >= CALM:
            log.warning("the disk can be written to again", failed=self._failed, seconds=round(now - self._began, 1))
            self._failed = 0
