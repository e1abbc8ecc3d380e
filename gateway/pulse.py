"""The daemon's pulse: how late the event loop is, the watchdog of systemd, and the status line of `systemctl status`.

The watchdog is fed while nothing is stuck. A loop that is blocked feeds nothing by itself, and is restarted by systemd; so is a daemon in
which a channel does not move any more. What a restart cannot mend (a network that is down, a token that is refused) is not such a thing.
`Farewell` does the same for the end: what it waits for. Called by `gateway.app`, which owns the tasks that the two `run`s are.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import structlog

from gateway import sdnotify
from gateway.metrics import Histogram

log = structlog.get_logger(__name__)

BEAT = 0.5
"""Seconds between two looks at how late the loop is."""
LINE = 2.0
"""Seconds between two status lines, at least."""
PATIENCE = 3.0
"""Seconds between two lines of the log about an end that takes its time."""


class Pulse:
    """`stuck` says what does not move any more, "" if all does; `line` how the daemon is, in a line for people. `feed_every`: seconds
    between two feedings, 0.0 where no watchdog waits."""

    def __init__(
        self,
        *,
        stuck: Callable[[], str],
        line: Callable[[], str],
        delay: Histogram,
        feed_every: float,
        notify: Callable[..., object] = sdnotify.notify,
    ) -> None:
        self._stuck, self._line, self._delay, self._feed_every, self._notify = stuck, line, delay, feed_every, notify
        self.problem = ""
        """What is stuck, as far as is known."""
        self._feed_at = self._line_at = -math.inf
        self._said = ""

    async def run(self) -> None:
        """Beat until cancelled."""
        loop = asyncio.get_running_loop()
        beat = min(BEAT, self._feed_every / 2) if self._feed_every else BEAT
        while True:
            self._look(loop.time())
            due = loop.time() + beat
            await asyncio.sleep(beat)
            self._delay.observe(max(0.0, loop.time() - due))

    def _look(self, now: float) -> None:
        problem = self._stuck()
        if problem != self.problem and not (problem and self.problem):  # how late something is changes with every look
            if problem:
                log.error("stuck", problem=problem, watchdog="not fed" if self._feed_every else "none")
            else:
                log.info("not stuck any more")
        self.problem = problem
        if self._feed_every and not problem and now >= self._feed_at:
            self._feed_at = now + self._feed_every
            self._notify(sdnotify.ALIVE)
        if now >= self._line_at:
            self._line_at = now + LINE
            if (line := problem or self._line()) != self._said:
                self._said = line
                self._notify(sdnotify.status(line))


class Farewell:
    """Says what the end waits for: to systemd when it changes, to the log when it takes a while, and again after each further while."""

    def __init__(self, *, left: Callable[[], float], notify: Callable[..., object] = sdnotify.notify) -> None:
        """`left`: how many seconds the end still has."""
        self._left, self._notify = left, notify
        self._what: Callable[[], str] = str
        self._said = ""

    def waits_for(self, what: Callable[[], str]) -> None:
        """A phase of the end begins. `what`: in words, "" where there is nothing to wait for."""
        self._what = what

    @property
    def line(self) -> str:
        """For `systemctl status`."""
        what = self._what()
        return f"finishing, waits for {what}" if what else "finishing"

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        tell_at = loop.time() + PATIENCE
        while True:
            await asyncio.sleep(BEAT)
            if (line := self.line) != self._said:
                self._said = line
                self._notify(sdnotify.status(line))
            if loop.time() >= tell_at and (what := self._what()):
                tell_at = loop.time() + PATIENCE
                log.info("the end waits", waits_for=what, seconds_left=round(max(0.0, self._left()), 1))
