"""Blocking work off the loop: a few threads of one's own, so that nobody else's slow work stands in front. Called by the stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

import aiofiles.os

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """`count` threads at most, made when they are needed."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix=name)

    async def hop(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`work(*args)` in one of the threads. A waiter that is cancelled leaves it running to its end."""
        return await aiofiles.os.wrap(partial(work, *args, **kwargs))(executor=self._pool)

    async def close(self) -> None:
        """Wait, beside the loop, until the last work is done, also such as nobody waits for any more."""
        await asyncio.to_thread(self._pool.shutdown)
