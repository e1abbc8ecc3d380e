"""Keeps one channel running: first contact, reading, and again after a failure, with a growing pause and no end. Hanging is a failure, too:
a channel knows by when it must have moved (`channels.base.Timed`); one that has not is ended and begun anew.

One of the three borders where any exception is caught. Called by `gateway.app`, which owns the task that `run` is.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Literal

import structlog

from channels.base import Accept, Channel, ChannelError, CommandInfo, Denied, Retry, Timed
from gateway.tasks import Restarts

log = structlog.get_logger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
STEADY = 60.0
"""Seconds of work after which a failure counts as the first one again."""
START_LIMIT = 600.0
"""Seconds after which a first contact hangs: every request that it is made of has a limit of its own, far below."""
LOOK = 5.0
"""Seconds between two looks whether the channel should have moved."""
GIVE_UP = 30.0
"""Seconds within which what hangs has to end when it is told to. What does not can only be mended by a restart of the daemon."""


class Hangs(Exception):
    """It has outlasted its own limits."""


class Supervisor:
    """One channel's life. `state` and `problem` are for the health report."""

    def __init__(
        self,
        channel: Channel,
        accept: Accept,
        menu: Sequence[CommandInfo],
        *,
        secret: str = "",
        restarts: Restarts | None = None,
        spread: Callable[[], float] = random.random,
    ) -> None:
        """`secret`: by which name the operator knows the channel's token."""
        self.channel = channel
        self._secret, self._restarts = secret, restarts or Restarts()
        self._hangs = ""
        self.state: Literal["starting", "up", "down", "stopped", "ended"] = "starting"
        self.problem = ""
        self.contacted = asyncio.Event()
        """Set at the first contact, or when it is known that there will be none."""
        self._accept, self._menu, self._spread = accept, menu, spread
        self._over = False
        self._starting = math.inf
        """Since when a first contact is under way, by the loop's clock."""

    async def run(self) -> None:
        """Until cancelled, or the channel's input ends, or the network refuses us for good. Raises Denied if that is the first thing that
        it says: a wrong token is the operator's mistake, and the daemon does not start with it."""
        try:
            await self._run()
        finally:
            self._over = True

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        loop = asyncio.get_running_loop()
        while True:
            began = self._starting = loop.time()
            try:
                await self._watched(self.channel.start(self._menu), self._left_to_start)
                self._starting = math.inf
                self._turn("up")
                self.contacted.set()
                await self._watched(self.channel.run(self._accept), self._left)
            except Denied as error:
                first = not self.contacted.is_set()
                named = f" (it is {self._secret})" if self._secret and "token" in str(error) else ""
                self._turn("stopped", f"{error}{named}")
                self.contacted.set()
                if first:
                    raise
                return
            except Hangs:
                log.error("channel hangs, started again", channel=self.channel.name)
                self._restarts.note(self.channel.name, "it hung")
                self._turn("down", "it hung")
            except ChannelError as error:
                self._turn("down", str(error))
                if isinstance(error, Retry):
                    pause = max(pause, error.after)
            except (Exception, asyncio.CancelledError) as error:
                # A cancellation that nobody aimed at this task came out of a library: a fault like any other, not the end of the channel.
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                log.exception("channel failed", channel=self.channel.name)
                self._restarts.note(self.channel.name, type(error).__name__)
                self._turn("down", type(error).__name__)
            else:
                self._turn("ended")
                return
            self._starting = math.inf
            if loop.time() - began > STEADY:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause * (0.75 + self._spread() / 2))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _watched(self, work: Coroutine[None, None, None], left: Callable[[], float]) -> None:
        """Do it while `left` says that it has time. Raises Hangs, and whatever the work does."""
        task = asyncio.create_task(work, name=f"{self.channel.name} at work")
        try:
            while not task.done() and left() > 0:
                await asyncio.wait({task}, timeout=min(LOOK, max(0.1, left())))
            if task.done():
                return task.result()
        finally:
            task.cancel()
            while not task.done():
                await asyncio.wait({task}, timeout=GIVE_UP)
                self._hangs = "" if task.done() else f"{self.channel.name} hangs and cannot be ended"
            if not task.cancelled():
                task.exception()  # whoever waits is told; nobody may be left to
        raise Hangs

    def _left_to_start(self) -> float:
        return self._starting + START_LIMIT - asyncio.get_running_loop().time()

    def _left(self) -> float:
        """Seconds that the channel's step under way still has."""
        return -1.0 if isinstance(self.channel, Timed) and self.channel.overdue() > 0 else LOOK

    def stuck(self) -> str:
        """What only a restart of the daemon can mend, "" while all moves. A network that is down is no such thing."""
        if self._over and self.state not in {"stopped", "ended"}:
            return f"{self.channel.name} is not run any more"
        return self._hangs

    def _turn(self, state: Literal["up", "down", "stopped", "ended"], problem: str = "") -> None:
        """One log line for each change of state, not for each try."""
        if (state, problem) != (self.state, self.problem):
            say = log.info if state in {"up", "ended"} else log.error if state == "stopped" else log.warning
            say(f"channel {state}", channel=self.channel.name, **({"problem": problem} if problem else {}))
        self.state, self.problem = state, problem
