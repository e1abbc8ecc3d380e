"""The rate limits of the fake of Discord: which call is told to wait, and the headers from which a client knows beforehand."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from typing import NamedTuple

from aiohttp import web

from tests.fakes.discord_state import CALLBACK, DELETE, EDIT, SEND, Call, Channel
from tests.fakes.discord_wire import bucket_headers, limited

_WRITES = frozenset({SEND, EDIT, DELETE})


class Limit(NamedTuple):
    """So many writes in so many seconds."""

    writes: int = 5
    per: float = 5.0
    apart: bool = False
    """Creates, edits and deletes count apart, though under one bucket's name: so it was measured in 2026 (discord-api-docs #8073)."""


class Pace:
    """The limits, and what was counted against them."""

    def __init__(self) -> None:
        self.limit: Limit | None = None
        """Of creates, edits and deletes together, per channel; and of each interaction's webhook."""
        self.everywhere: Limit | None = None
        """Of all calls but those that answer interactions."""
        self.impatient: list[Call] = []
        """Calls that came within a flood wait that had been told."""
        self._times: dict[str, deque[float]] = {}

    def held_back(self, call: Call, place: Channel | None, *, hook: bool, headers: dict[str, str]) -> web.Response | None:
        """429 where a limit is hit; otherwise the bucket's `headers` are filled in. `hook`: the call answers an interaction."""
        now = time.monotonic()
        if place is not None and (left := place.flood_until - now) > 0:
            if place.flood_told:
                self.impatient.append(call)
            place.flood_told = True
            return limited(call, left)
        if self.everywhere is not None and not hook and (left := self._take("everywhere", self.everywhere, now)[1]) > 0:
            return limited(call, left, everywhere=True)
        if self.limit is None or call.route == CALLBACK or not (hook or call.route in _WRITES):
            return None
        key = f"hook {call.path.get('token')}" if hook else f"{call.route if self.limit.apart else 'writes'} {call.channel}"
        remaining, left = self._take(key, self.limit, now)
        bucket = hashlib.sha256(b"hook" if hook else b"writes").hexdigest()[:32]
        if left > 0:
            return limited(call, left, headers=bucket_headers(bucket, self.limit.writes, 0, left))
        headers |= bucket_headers(bucket, self.limit.writes, remaining, self._times[key][0] + self.limit.per - now)
        return None

    def _take(self, key: str, limit: Limit, now: float) -> tuple[int, float]:
        """Count one against a limit: how many are left, or the seconds until there is one."""
        times = self._times.setdefault(key, deque())
        while times and times[0] <= now - limit.per:
            times.popleft()
        if len(times) >= limit.writes:
            return 0, times[0] + limit.per - now
        times.append(now)
        return limit.writes - len(times), 0.0
