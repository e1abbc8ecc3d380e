"""Reading by long polling: ask, hand over the batch, and only then ask for what is behind it.

python-telegram-bot's own loop is not used: one update that it cannot read makes it ask for the same ones for ever. Here nothing but a
refused token ends the loop, and a problem is logged when it begins, changes and ends, not at each try. The offset is kept in memory alone:
what was not confirmed comes again after a restart, and the gateway knows what it has. Nothing here throws a queue away (no offset -1).
Called by `channels.telegram.channel`, whose `run` awaits it.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

import structlog
from telegram.error import Conflict, InvalidToken, TelegramError

from channels.base import Denied
from channels.failpoints import reach
from channels.telegram import updates
from channels.telegram.transport import Flood, Unanswered

log = structlog.get_logger(__name__)

LONGEST_PAUSE = 30.0
CONFLICT_PAUSE = 5.0
CONFLICT_OVER = 60.0
"""Seconds without a 409 after which the other program counts as gone. Two that poll with one token take turns in being told 409: each new
request of one ends the waiting one of the other, and between two of them either gets answers, some with messages. That is one trouble,
not many, and what keeps both from asking in quick turns is that the pauses grow all the while."""
_QUICK = 0.5
_SHORT_PAUSE = 1.0
LIMIT = 300.0
"""Seconds within which a request ends, whatever the network does, and the gateway has a batch on disk."""

Fetch = Callable[[int | None], Awaitable[bytes]]
"""`await fetch(offset)`: the raw answer of getUpdates. Raises TelegramError; must end by itself when the network hangs."""
Take = Callable[[Sequence[bytes]], Awaitable[None]]
"""Returns when the updates are safe. Raises OSError if they are not: they will come again."""


class Poller:
    """`pause` and `spread` (a number from 0 to 1) are handed in for tests."""

    def __init__(
        self,
        fetch: Fetch,
        take: Take,
        *,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
        spread: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch, self._take, self._pause, self._spread, self._clock = fetch, take, pause, spread, clock
        self.offset: int | None = None
        self.last = 0.0
        """When getUpdates last gave an answer, by `time.monotonic`."""
        self.problem = ""
        """What is wrong, in words; "" while all is well."""
        self._kind = ""
        self._conflict = -math.inf
        """When the last 409 came."""
        self._due = math.inf

    def overdue(self) -> float:
        """Seconds by which a step has outlasted its limit; 0.0 while none has, and while nothing is read."""
        return max(0.0, self._clock() - self._due)

    async def run(self) -> NoReturn:
        """Until cancelled. Raises Denied when the token is refused."""
        try:
            await self._run()
        finally:
            self._due = math.inf

    async def _run(self) -> NoReturn:
        failures = 0
        while True:
            self._within(LIMIT)
            least = 0.0
            try:
                began = self._clock()
                answer = await self._fetch(self.offset)
                self.last = self._clock()
                batch = _split(answer)
                self._within(LIMIT)
                await self._take(batch)
                reach("offset before")
                self._confirm(batch)
                reach("offset after")
                if self._kind != "conflict" or self._clock() - self._conflict > CONFLICT_OVER:
                    self._turn("", "")
                    failures = 0
                if not batch and self.last - began < _QUICK:
                    await self._pause(_SHORT_PAUSE)  # a server that does not wait as asked
                continue
            except InvalidToken:
                raise Denied("Telegram does not accept the bot token") from None
            except Conflict as error:
                least = CONFLICT_PAUSE
                self._conflict = self._clock()
                active = "webhook" in error.message.lower()
                self._turn("conflict", "a webhook is set on this bot" if active else "another program is reading this bot's messages")
            except Flood as error:
                least = error.after
                self._turn("flood", "asked to read more slowly")
            except TelegramError as error:
                self._turn("network", error.message)
            except OSError as error:
                # The gateway has not written the batch: it is asked for again, until it can.
                self._turn("storage", f"messages cannot be stored: {error.strerror or type(error).__name__}")
            failures += 1
            delay = self._delay(failures, least)
            self._within(delay + LIMIT)
            await self._pause(delay)

    def _within(self, seconds: float) -> None:
        self._due = self._clock() + seconds

    def _confirm(self, batch: Sequence[bytes]) -> None:
        """The next request says that we have these."""
        numbers = [number for raw in batch if (number := updates.number(raw)) is not None]
        if numbers:
            self.offset = max(numbers) + 1
        elif batch:
            raise Unanswered("updates without a number")

    def _delay(self, failures: int, least: float) -> float:
        """Grows to LONGEST_PAUSE, spread so that many daemons do not come back at the same moment; never below `least`."""
        grown = min(LONGEST_PAUSE, 2.0 ** min(failures - 1, 10)) * (0.5 + self._spread() / 2)
        return max(grown, least)

    def _turn(self, kind: str, problem: str) -> None:
        """A line when the kind of problem changes: an outage shows many faces and is one."""
        self.problem = problem
        if kind == self._kind:
            return
        self._kind = kind
        if problem:
            log.warning("polling has a problem", channel="telegram", problem=problem)
        else:
            log.info("polling works again", channel="telegram")


def _split(answer: bytes) -> list[bytes]:
    try:
        return updates.split(answer)
    except updates.FAULTS as error:
        raise Unanswered(f"an answer that cannot be read ({type(error).__name__})") from None
