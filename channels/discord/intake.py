"""What was heard, on its way to the gateway: in order, each channel's for itself, and kept until the gateway has it.

Discord never repeats what it has told. So what is here is handed over again and again until it is accepted, and the mark up to which
nothing can be missing (`Marks`) does not pass what still waits here. A thing may need a moment before it can be handed over (an
interaction must be answered first, a thread's parent be asked for); what came later in the same channel waits behind it, other channels do
not. Called by `channel`, which owns the task that `run` is.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from channels.base import Accept, Inbound

log = structlog.get_logger(__name__)

MOST = 10_000
"""So many things may wait; what comes then is dropped here, and fetched from the history when there is room again."""
BATCH = 500
LONGEST_PAUSE = 30.0


@dataclass(slots=True, eq=False)
class Item:
    """One thing that was heard. `at`: when it was written, in seconds since the epoch. `number`: its id; 0 for an edit, whose message is
    an older one."""

    channel: str
    at: float
    inbound: Inbound | None = None
    ready: bool = False
    number: int = 0


class Intake:
    """`taken(inbound)` is called for each input that the gateway has; `pause` is handed in for tests."""

    def __init__(
        self,
        accept: Accept,
        taken: Callable[[str, Inbound], None] = lambda channel, inbound: None,
        *,
        most: int = MOST,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._accept, self._taken, self._most, self._pause = accept, taken, most, pause
        self._items: deque[Item] = deque()
        self._held: Counter[str] = Counter()
        self._wake = asyncio.Event()
        self.problem = ""
        """What is wrong with storing, in words; "" while all is well."""
        self.lost: float | None = None
        """When the first thing was written for which there was no room."""

    def __len__(self) -> int:
        return len(self._items)

    def add(self, channel: str, at: float, inbound: Inbound | None = None, number: int = 0) -> Item | None:
        """The next thing of a channel. Without an `inbound` it is not ready: `settle` says what it is. None: there is no room."""
        if len(self._items) >= self._most:
            if self.lost is None:
                log.error("too much waits to be accepted, messages are left to the history", channel="discord", waiting=len(self._items))
                self.lost = at
            return None
        item = Item(channel, at, inbound, ready=inbound is not None, number=number)
        self._items.append(item)
        self._wake.set()
        return item

    def settle(self, item: Item, inbound: Inbound | None) -> None:
        """What it is; None: nothing, after all."""
        item.inbound, item.ready = inbound, True
        self._wake.set()

    def hold(self, channel: str) -> None:
        """Hand over nothing of this channel until `release` was called as often: what is older is being fetched."""
        self._held[channel] += 1

    def release(self, channel: str) -> None:
        if self._held[channel] > 1:
            self._held[channel] -= 1
        else:
            self._held.pop(channel, None)
        self._wake.set()

    def waits(self, channel: str) -> bool:
        """Whether something of a channel that is held waits."""
        return channel in self._held and any(item.channel == channel for item in self._items)

    def first(self, channel: str) -> int:
        """The least id of what waits of a channel; 0 if nothing does."""
        return min((item.number for item in self._items if item.number and item.channel == channel), default=0)

    def insert(self, channel: str, at: float, inbound: Inbound, number: int) -> None:
        """Something that was fetched, in its place among what was told; nothing where it was told, too. It is one of a bounded page, so
        that there is always room."""
        place = len(self._items)
        for index, item in enumerate(self._items):
            if item.channel == channel and item.number == number:
                return
            if item.channel == channel and item.number > number:
                place = min(place, index)
        self._items.insert(place, Item(channel, at, inbound, ready=True, number=number))
        self._wake.set()

    def oldest(self) -> float | None:
        """When the oldest of what waits, or was left out, was written."""
        times = [item.at for item in self._items]
        return min(times if self.lost is None else [*times, self.lost], default=None)

    async def run(self) -> None:
        """Until cancelled."""
        failures = 0
        while True:
            self._wake.clear()
            batch = self._next()
            if not batch:
                await self._wake.wait()
                continue
            if await self.hand_over([(item.channel, item.inbound) for item in batch if item.inbound is not None], failures):
                failures = 0
                gone = set(map(id, batch))
                self._items = deque(item for item in self._items if id(item) not in gone)
            else:
                failures += 1

    async def hand_over(self, inputs: list[tuple[str, Inbound]], failures: int = 0) -> bool:
        """Have the gateway accept these; False, after a pause, where it could not write them."""
        if inputs:
            try:
                await self._accept([inbound for _, inbound in inputs])
            except OSError as error:
                self.problem = f"messages cannot be stored: {error.strerror or type(error).__name__}"
                if not failures:
                    log.error("messages cannot be stored, kept here", channel="discord", problem=error.strerror or type(error).__name__)
                await self._pause(min(LONGEST_PAUSE, 2.0 ** min(failures, 10)))
                return False
            self.problem = ""
            if failures:
                log.info("messages are stored again", channel="discord")
            for channel, inbound in inputs:
                self._taken(channel, inbound)
        return True

    def _next(self) -> list[Item]:
        """What can be handed over now, in order: of each channel up to the first thing that is not ready."""
        batch: list[Item] = []
        blocked = set(self._held)
        for item in self._items:
            if item.channel in blocked:
                continue
            if not item.ready:
                blocked.add(item.channel)
                continue
            batch.append(item)
            if len(batch) >= BATCH:
                break
        return batch
