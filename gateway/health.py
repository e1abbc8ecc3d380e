"""How the backend is, for `/status` and `/readyz`: by what turns met, and by asking it while nobody else does.

People are told what is wrong (`said`); the operator also where the backend is and what to do about it (`told`, and the log).

Called by `gateway.app`, which owns the task that `run` is.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import structlog

from gateway.backends import faults
from gateway.backends.base import Backend
from gateway.errors import BackendError
from gateway.turn import Outcome

log = structlog.get_logger(__name__)

AGAIN = 30.0
"""Seconds between two looks at a backend that is down."""


class Watch:
    """Knows whether the model answers. A model that is down does not keep the daemon from starting; it recovers by itself."""

    def __init__(self, backend: Backend, *, address: str = "", key: str = "") -> None:
        """`address`: where it is, without credentials; `key`: by which name the operator knows its key."""
        self._backend, self._address, self._key = backend, address, key
        self._problem: str | None = None
        self._lasting = False
        self._down = asyncio.Event()
        self._down.set()
        self._at_once = asyncio.Event()
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

    def told(self) -> str:
        """The same for the operator: while it is down, where it is, too."""
        return f"{self._backend.name} at {self._address}: {self._problem}" if self._problem and self._address else self.said()

    @property
    def problem(self) -> str:
        """What is wrong with it and where, for the operator; "" while nothing is known to be."""
        return self.told() if self._problem else ""

    @property
    def remedy(self) -> str:
        """What the operator can do about it, "" where we know nothing."""
        return faults.remedy(self._problem or "", self._key)

    def again(self, address: str, key: str) -> None:
        """Ask anew, and at once: what is asked is another one now."""
        self._address, self._key = address, key
        self._lasting = False
        self._down.set()
        self._at_once.set()

    def heard(self, outcome: Outcome) -> None:
        """A turn ended: what it met counts."""
        if outcome.failed and not outcome.reason and not outcome.overflow:
            self._turn(outcome.problem or outcome.failed)
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
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN):
                    await self._at_once.wait()
            self._at_once.clear()

    def _turn(self, problem: str) -> None:
        before, self._problem = self._problem, problem
        if problem != before:
            where = {"backend": self._backend.name, **({"address": self._address} if self._address else {})}
            if problem:
                log.warning("backend down", **where, problem=problem, **({"remedy": self.remedy} if self.remedy else {}))
            else:
                log.info("backend up", **where)
