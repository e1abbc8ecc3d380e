"""The key locks: one FIFO lock a Key, there only while somebody holds it or waits for it.

Called by `gateway.sessions`, which hands them out as `SessionManager.hold`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.message import SessionKey


class _KeyLock:
    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class KeyLocks:
    """What a key lock guards: which session of the key is current, and every commit to the key's sessions except `sent`.

    Order: it is the only long lock. Whoever holds one takes no second one and awaits no send to a network; a model's turn slot and the
    short locks of the session manager are taken under it, never the other way round.
    """

    def __init__(self, idle: Callable[[], None]) -> None:
        """`idle` is called whenever a key has become idle."""
        self._locks: dict[SessionKey, _KeyLock] = {}
        self._idle = idle

    @asynccontextmanager
    async def hold(self, key: SessionKey) -> AsyncIterator[None]:
        """Hold the key, in the order in which it was asked for."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = _KeyLock()
        lock.users += 1
        try:
            async with lock.lock:
                yield
        finally:
            lock.users -= 1
            if not lock.users:
                del self._locks[key]
                self._idle()

    def __contains__(self, key: SessionKey) -> bool:
        """Somebody holds the key or waits for it."""
        return key in self._locks

    def keys(self) -> set[SessionKey]:
        """Those that somebody holds or waits for."""
        return set(self._locks)

    def __len__(self) -> int:
        return len(self._locks)
