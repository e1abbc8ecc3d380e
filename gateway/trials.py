"""After a start: those under which the daemon has died too often are worked on one by one, with nothing beside them.

What makes one a suspect, and what convicts it, is `gateway.deaths`, with the reasons. Here is what it costs the others, which must not be
much: a daemon that answers nobody because of one bad message is what all this is there to prevent.

- First a pause of `QUIET` seconds in which nothing is begun at all. Then the trials, at most `EACH` seconds for one; what only has to be
  shown comes first: that takes as long as rendering it, and as the network needs. A suspect that takes longer is put on record as not
  alone any more, and from there on everybody else goes on beside it.
- No trial begins later than `HOLD` seconds after the start. From then on the others go on, and the suspects that are left follow one by
  one beside them: a death then counts against one of them, and not against all. So nobody who is no suspect ever waits for more than
  `HOLD` + `EACH` seconds, and only in a life of the daemon that follows two in a row that ended in a death.
- If nothing can be written, nobody is tried: a trial that is not on record proves nothing.

Called by `gateway.runner`, which owns the task that `run` is, and says when an input is `over`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import structlog

from gateway.gate import Gate
from gateway.inbox import Inbox, Pending

log = structlog.get_logger(__name__)

QUIET, EACH, HOLD = 5.0, 10.0, 20.0


class Times(NamedTuple):
    """Seconds; others than these are for tests."""

    quiet: float = QUIET
    each: float = EACH
    hold: float = HOLD


NORMAL = Times()


class Trials:
    """See the module."""

    def __init__(self, gate: Gate, inbox: Inbox, times: Times) -> None:
        self._gate, self._inbox, self._times = gate, inbox, times
        self._suspects: list[Pending] = []
        self._over: dict[str, asyncio.Future[None]] = {}
        self._until = 0.0

    def hold(self, suspects: Sequence[Pending]) -> None:
        """From here on nobody is worked on until `run` lets them."""
        # Those that died alone before come first, then those that were there more often: the likely ones, before the time is over.
        self._suspects = sorted(suspects, key=lambda one: (-one.deaths.own, -one.deaths.crashes, one.n))
        self._over = {_id(one): asyncio.get_running_loop().create_future() for one in suspects}
        self._gate.shut(self._over)
        self._inbox.held()

    def over(self, input_id: str) -> None:
        """Its turn has ended."""
        if (over := self._over.get(input_id)) is not None and not over.done():
            over.set_result(None)
            self._gate.dismiss()

    async def run(self) -> None:
        """Try them, then let everybody go on."""
        self._until = asyncio.get_running_loop().time() + self._times.hold
        names = [_id(one) for one in self._suspects]
        log.warning("the daemon died twice or more while these were worked on: they are tried alone", inputs=names[:20], count=len(names))
        try:
            await asyncio.sleep(self._times.quiet)
            for one in sorted(self._suspects, key=lambda one: not one.deaths.answered):
                await self._try(one)
            self._open()
        finally:
            for one in self._suspects:
                self._gate.admit(one.input.key, _id(one))
            self._gate.open()
        log.info("trials over", count=len(names))

    async def _try(self, suspect: Pending) -> None:
        input_id = _id(suspect)
        alone = self._gate.is_shut and asyncio.get_running_loop().time() < self._until
        if alone:
            try:
                await asyncio.shield(self._inbox.alone(input_id))
            except OSError:
                alone = False
        if not alone:
            self._open()
        self._gate.admit(suspect.input.key, input_id)
        await asyncio.wait({self._over[input_id]}, timeout=self._times.each)
        if alone:
            try:
                await asyncio.shield(self._inbox.alone(input_id, over=True))
            except OSError:
                log.warning("the end of a trial is not on record", input=input_id)
        if not self._over[input_id].done():
            self._open()

    def _open(self) -> None:
        """All others go on, and that is on record before they do."""
        if self._gate.is_shut:
            self._inbox.held(over=True)
        self._gate.open()


def _id(pending: Pending) -> str:
    return pending.input.inbound.id
