"""Stores in trouble, a clock, and managers with small settings, for the tests of sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

from gateway.message import Chat, SessionKey
from gateway.sessions import SessionManager
from gateway.store.base import Landed, SessionLog, Tail
from gateway.store.memory import MemoryStore, tell


class Clock:
    """Moves a second each time it is asked, if `step` is not 0."""

    def __init__(self, now: float = 1_800_000_000.0, step: float = 0.0) -> None:
        self.now, self.step = now, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def manager(
    store: SessionLog,
    *,
    cache_bytes: int = 10**9,
    history_messages: int = 20,
    history_tokens: int = 10**6,
    clock: Callable[[], float] | None = None,
    state_lines: int = 1000,
    state_bytes: int = 256 * 1024,
) -> SessionManager:
    return SessionManager(
        store,
        cache_bytes=cache_bytes,
        history_messages=history_messages,
        history_tokens=history_tokens,
        clock=clock or Clock(step=1.0),
        state_lines=state_lines,
        state_bytes=state_bytes,
    )


class Troubled(MemoryStore):
    """A memory store whose appends can be held back and made to fail, as a slow or full disk does.

    `fails` decides about each append, by its number from 0; `chat_fails`: what a pointer change fails with; `slow`: what was read is
    handed out some turns of the loop later.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fails: Callable[[int], OSError | None] = lambda _: None
        self.chat_fails: OSError | None = None
        self.slow = False
        self._count = count()
        self._held: list[tuple[SessionKey, str, Sequence[bytes], int, int, asyncio.Future[int]]] | None = None

    def hold(self) -> None:
        """From now on appends wait."""
        self._held = []

    def release(self) -> None:
        """Let all that wait go, in order, and all later ones through."""
        waiting, self._held = self._held or [], None
        for key, name, lines, expect, last, future in waiting:
            done = self._append(key, name, lines, expect, last)
            if (error := done.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(done.result())

    async def tail(self, key: SessionKey, name: str, n: int) -> Tail:
        tail = await super().tail(key, name, n)
        for _ in range(20 if self.slow else 0):
            await asyncio.sleep(0)
        return tail

    def append(
        self, key: SessionKey, name: str, lines: Sequence[bytes], expect: int, last: int, landed: Landed | None = None
    ) -> asyncio.Future[int]:
        if self._held is None:
            future = self._append(key, name, lines, expect, last)
        else:
            future = asyncio.get_running_loop().create_future()
            self._held.append((key, name, lines, expect, last, future))
        if landed is not None:
            tell(future, landed)
        return future

    def _append(self, key: SessionKey, name: str, lines: Sequence[bytes], expect: int, last: int) -> asyncio.Future[int]:
        if (error := self.fails(next(self._count))) is not None:
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            future.set_exception(error)
            return future
        return super().append(key, name, lines, expect, last)

    def set_chat(self, key: SessionKey, change: Chat) -> asyncio.Future[None]:
        if self.chat_fails is None:
            return super().set_chat(key, change)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(self.chat_fails)
        return future
