"""Tasks with an owner: whoever starts one here awaits it in `close`, and none fails unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import structlog

log = structlog.get_logger(__name__)


class Tasks:
    """A set of running tasks. One that raises is logged at once with its name; the others go on."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        """Run `work` until it ends or `close` cancels it."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("task failed", task=task.get_name(), exc_info=error)

    async def settle(self, timeout: float) -> int:
        """Wait until all have ended or `timeout` seconds are over; how many still run."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout)
        return len(self._tasks)

    async def close(self) -> None:
        """Cancel what runs and await its end."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
