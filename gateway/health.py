"""How the backend is, for `/status` and `/readyz`: by what turns met, and by asking it while nobody else does.

Called by `gateway.app`, which owns the task that `run` is.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from gateway.backends.base import Backend
from gateway.errors import BackendError
from gateway.turn import Outcome

log = structlog.get_logger(__name__)

AGAIN = 30.0
"""Seconds between two looks at a backend that is down."""


class Watch:
    """Knows whether the model answers. A model that is down does not keep the daemon from starting; it recovers by itself."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._problem: str | None = None
        self._lasting = False
        self._down = asyncio.Event()
        self._down.set()
        self.began = time.monotonic()

    @property
    def name(self) -> str:
        """Of the backend."""
        return self._backend.name

    @property
    def ready(self) -> bool:
        """The backend answered, the last time that anybody asked."""
        return self._problem == ""

    def said(self) -> str:
        """One sentence for people."""
        if self._problem is None:
            return f"{self._backend.name}, not asked yet"
        return f"{self._backend.name}, {'fine' if self.ready else self._problem}"

    def again(self) -> None:
        """Ask anew: what is asked is another one now."""
        self._lasting = False
        self._down.set()

    def heard(self, outcome: Outcome) -> None:
        """A turn ended: what it met counts."""
        if outcome.failed and not outcome.reason and not outcome.overflow:
            self._turn(outcome.failed)
            self._lasting = outcome.lasting
            self._down.set()
        elif outcome.text and not outcome.interrupted:
            self._lasting = False
            self._turn("")
            self._down.clear()

    async def run(self) -> None:
        """Ask at start, and every half minute while it is down."""
        while True:
            await self._down.wait()
            try:
                await self._backend.check()
            except BackendError as error:
                self._turn(error.said)
            else:
                if not self._lasting:  # what a turn was refused for, a server that can be reached has not mended
                    self._turn("")
                self._down.clear()
            await asyncio.sleep(AGAIN)

    def _turn(self, problem: str) -> None:
        if problem != self._problem:
            if problem:
                log.warning("backend down", backend=self._backend.name, problem=problem)
            else:
                log.info("backend up", backend=self._backend.name)
        self._problem = problem
