"""Keeps one channel running: first contact, reading, and again after a failure, with a growing pause and no end.

One of the three borders where any exception is caught. Called by `gateway.app`, which owns the task that `run` is.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from typing import Literal

import structlog

from channels.base import Accept, Channel, ChannelError, CommandInfo, Denied, Retry, Timed

log = structlog.get_logger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
STEADY = 60.0
"""Seconds of work after which a failure counts as the first one again."""
START_LIMIT = 600.0
"""Seconds after which a first contact hangs: every request that it is made of has a limit of its own, far below."""


class Supervisor:
    """One channel's life. `state` and `problem` are for the health report."""

    def __init__(
        self,
        channel: Channel,
        accept: Accept,
        menu: Sequence[CommandInfo],
        *,
        secret: str = "",
        spread: Callable[[], float] = random.random,
    ) -> None:
        """`secret`: by which name the operator knows the channel's token."""
        self.channel = channel
        self._secret = secret
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
                await self.channel.start(self._menu)
                self._starting = math.inf
                self._turn("up")
                self.contacted.set()
                await self.channel.run(self._accept)
            except Denied as error:
                first = not self.contacted.is_set()
                named = f" (it is {self._secret})" if self._secret and "token" in str(error) else ""
                self._turn("stopped", f"{error}{named}")
                self.contacted.set()
                if first:
                    raise
                return
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
                self._turn("down", type(error).__name__)
            else:
                self._turn("ended")
                return
            self._starting = math.inf
            if loop.time() - began > STEADY:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause * (0.75 + self._spread() / 2))
            pause = min(pause * 2, LONGEST_PAUSE)

    def stuck(self) -> str:
        """What does not move any more past its own limits, "" while all moves. A network that is down is no such thing."""
        if self._over and self.state not in {"stopped", "ended"}:
            return f"{self.channel.name} is not run any more"
        waited = asyncio.get_running_loop().time() - self._starting
        if waited > START_LIMIT:
            return f"{self.channel.name} has not started for {waited:.0f} s"
        if self.state == "up" and isinstance(self.channel, Timed) and (late := self.channel.overdue()) > 0:
            return f"{self.channel.name} should have moved {late:.0f} s ago"
        return ""

    def _turn(self, state: Literal["up", "down", "stopped", "ended"], problem: str = "") -> None:
        """One log line for each change of state, not for each try."""
        if (state, problem) != (self.state, self.problem):
            say = log.info if state in {"up", "ended"} else log.error if state == "stopped" else log.warning
            say(f"channel {state}", channel=self.channel.name, **({"problem": problem} if problem else {}))
        self.state, self.problem = state, problem
