"""Tasks with an owner: whoever starts one here awaits it in `close`, and none fails unseen. What is to run as long as the daemon does is
`kept`: started again, after a pause that grows, if it ends by an exception. Below every other part, since each has such tasks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine

import structlog

from gateway.metrics import Counter

log = structlog.get_logger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
STEADY = 120.0
"""Seconds of work after which a failure counts as the first one again, and the one before is over."""

Work = Callable[[], Coroutine[None, None, None]]


class Restarts:
    """What did not go on by itself any more and was started anew, by part: for the metrics, and for whoever asks how the daemon is."""

    def __init__(self, counter: Counter | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._counter, self._clock = counter, clock
        self._last: dict[str, tuple[str, float]] = {}

    def note(self, part: str, problem: str) -> None:
        """It happened now. `part`: one of a few words of ours."""
        self._last[part] = problem, self._clock()
        if self._counter is not None:
            self._counter.add(part)

    def recent(self) -> dict[str, str]:
        """Part -> why, of those that have not been steady since."""
        return {part: problem for part, (problem, at) in self._last.items() if self._clock() - at < STEADY}


async def kept(work: Work, name: str, part: str, restarts: Restarts) -> None:
    """Do `work` until it ends in order or this task is cancelled; whatever else ends it, it is begun again. It must be able to go on."""
    loop = asyncio.get_running_loop()
    pause = FIRST_PAUSE
    while True:
        began = loop.time()
        try:
            await work()
        except (Exception, asyncio.CancelledError) as error:
            # A cancellation that nobody aimed at this task came out of something broken: a fault like any other.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            log.exception("task failed, started again", task=name, pause=pause)
            restarts.note(part, type(error).__name__)
        else:
            return
        if loop.time() - began > STEADY:
            pause = FIRST_PAUSE
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


class Tasks:
    """A set of running tasks. One that raises is logged at once with its name; the others go on."""

    def __init__(self, restarts: Restarts | None = None) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._restarts = restarts or Restarts()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        """Run `work` until it ends or `close` cancels it."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def keep(self, work: Work, name: str, part: str = "") -> asyncio.Task[None]:
        """Run `work()` until it ends in order or `close` cancels it, and again where it fails. `part`: what it is one of."""
        return self.start(kept(work, name, part or name, self._restarts), name)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("task failed", task=task.get_name(), exc_info=error)

    async def settle(self, timeout: float) -> int:
        """Wait until all have ended or `timeout` seconds are over; how many still run."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout)
        return len(self._tasks)

    async def close(self, timeout: float | None = None) -> int:
        """Cancel what runs and await its end, at most `timeout` seconds; how many have not ended."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if not tasks:
            return 0
        _, left = await asyncio.wait(tasks, timeout=timeout)
        return len(left)
