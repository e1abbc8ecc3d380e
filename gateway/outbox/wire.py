"""One Address's way out: calls that are repeated as their errors allow, and records that are repeated until they are on disk.

Knows when something may be sent and what each kind of failure means for a repeat; does not know what is sent. Called by one lane's task
only, so that there is never more than one call at a time for one Address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from channels.base import Address, Channel, Denied, Gone, NotSent, Retry, Unknown
from gateway.outage import passing
from gateway.outbox.delivery import PLACEHOLDER, Ledger, Slots, nonce
from gateway.outbox.pace import ChatPace, Pace, backoff, come

T = TypeVar("T")
log = structlog.get_logger(__name__)

MARGIN = 0.05
"""Seconds added to a wait that the network asked for: its clock and ours do not tick alike."""
_REMEMBERED = 2000


class Stopped(Exception):
    """Somebody took back what was to be sent, and nothing of it is under way."""


class Records:
    """Ledger calls under way. They outlive the lane that made them: a record that began is seen through before the outbox is closed."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Future[None]] = set()

    async def make(self, call: Callable[[], Awaitable[None]]) -> None:
        """One record. Cancelling the caller does not cut it. Raises what the ledger raises."""
        future: asyncio.Future[None] = asyncio.ensure_future(call())
        self._under_way.add(future)
        future.add_done_callback(self._ended)
        await asyncio.shield(future)

    def _ended(self, future: asyncio.Future[None]) -> None:
        self._under_way.discard(future)
        if not future.cancelled():
            future.exception()  # whoever waits is told; nobody may be left to

    async def settle(self, timeout: float | None = None) -> int:
        """Wait for those that began, at most `timeout` seconds; how many have not ended."""
        while self._under_way:
            done, left = await asyncio.wait(self._under_way, timeout=timeout)
            for one in done:
                if not one.cancelled() and (error := one.exception()) is not None:
                    log.warning("not recorded", error=type(error).__name__)
            if left:
                return len(left)
        return 0


class Wire:
    """The sending half of a channel, for one Address, with the pace of its chat."""

    def __init__(
        self,
        address: Address,
        channel: Channel,
        ledger: Ledger,
        pace: Pace,
        chat: ChatPace,
        records: Records,
        spread: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self.address, self.channel, self.ledger, self.pace, self.chat, self.spread = address, channel, ledger, pace, chat, spread
        self._records, self._changed = records, changed
        self._loop = asyncio.get_running_loop()
        self.calling = False
        """A call is on its way: what becomes of it is not known yet."""

    def held(self) -> float:
        """Nothing may go to this chat before."""
        return max(self.chat.hold, self.pace.hold)

    def hold(self, error: Retry, tries: int) -> None:
        """The network asked to wait. A network that asks again and again is given ever longer pauses."""
        until = self._loop.time() + max(backoff(tries, self.spread()), error.after) + MARGIN
        log.info("asked to wait", channel=self.address.channel, chat=self.address.chat, after=error.after, everywhere=error.everywhere)
        if error.everywhere:
            self.pace.hold = max(self.pace.hold, until)
        else:
            self.chat.hold = max(self.chat.hold, until)
        self._changed()

    def deny(self, error: Denied) -> None:
        """The network does not accept us: the channel is being stopped, everything stays on record for a start with a good token."""
        if not self.pace.denied:
            self.pace.denied = True
            log.error("not accepted by the network, deliveries wait", channel=self.address.channel, error=str(error))
            self._changed()

    def shut(self, error: Gone) -> None:
        """There is nobody to speak to here. Said once, until something gets through again."""
        if self.address not in self.pace.shut:
            self.pace.shut[self.address] = None
            if len(self.pace.shut) > _REMEMBERED:
                del self.pace.shut[next(iter(self.pace.shut))]
            log.warning(
                "may not speak here, what was to be said is dropped",
                channel=self.address.channel,
                chat=self.address.chat,
                thread=self.address.thread,
                problem=str(error),
            )

    def open(self) -> None:
        """Something got through."""
        self.pace.shut.pop(self.address, None)

    async def pause(self, tries: int, stop: asyncio.Event | None = None) -> None:
        """The growing wait after a failure. Raises Stopped."""
        await self._wait(self._loop.time() + backoff(tries, self.spread()), stop)

    async def _wait(self, until: float, stop: asyncio.Event | None) -> None:
        if stop is None:
            await asyncio.sleep(until - self._loop.time())
            return
        try:
            async with asyncio.timeout_at(until):
                await stop.wait()
        except TimeoutError:
            return
        raise Stopped

    async def call(self, action: Callable[[], Awaitable[T]], *, unknown: float, stop: asyncio.Event | None = None) -> T:
        """Do it when its turn comes, and repeat it where a repeat is safe: after NotSent and Retry without end, after Unknown `unknown`
        times (0 for what must not be doubled, infinity for what may). Raises Unknown then, and Refused with all its kinds; and Stopped
        where `stop` is set before the next try."""
        tries = 0
        while True:
            await self._permit(stop)
            self.calling = True
            try:
                return await action()
            except Retry as error:
                tries += 1
                self.pace.repeats += 1
                self.hold(error, tries)
                continue
            except NotSent as error:
                failed: NotSent | Unknown = error
            except Unknown as error:
                if unknown <= 0:
                    raise
                unknown -= 1
                failed = error
            except Denied as error:
                self.deny(error)
                continue
            finally:
                self.calling = False
            tries += 1
            self.pace.repeats += 1
            if tries in {1, 10}:
                log.warning("send failed, repeated", channel=self.address.channel, chat=self.address.chat, kind=type(failed).__name__)
            await self.pause(tries, stop)

    async def _permit(self, stop: asyncio.Event | None) -> None:
        taken = False
        while True:
            if self.pace.denied:
                await (stop or asyncio.Event()).wait()  # until the outbox is closed
            if stop is not None and stop.is_set():
                raise Stopped
            now = self._loop.time()
            until = self.held()
            if come(until, now) and not taken:
                taken = True
                until = max(self.chat.bucket.take(now), self.pace.bucket.take(now))
            if come(until, now):
                return
            self._changed()  # whoever waits for the end may not want to wait for this
            await self._wait(until, stop)

    async def record(self, call: Callable[[], Awaitable[None]]) -> None:
        """Repeat the record, never the send, until it is on disk."""
        tries = 0
        while True:
            try:
                await self._records.make(call)
                return
            except OSError as error:
                tries += 1
                if tries in {1, 10}:
                    tell = log.info if passing(error) else log.error
                    tell("cannot record a delivery, repeated", channel=self.address.channel, chat=self.address.chat, error=str(error))
            try:
                await self.pause(tries)
            except asyncio.CancelledError:
                await self.record_last(call)
                raise

    async def record_once(self, call: Callable[[], Awaitable[None]]) -> None:
        """Raises OSError where it could not be recorded."""
        await self._records.make(call)

    async def record_last(self, call: Callable[[], Awaitable[None]]) -> None:
        """The last chance of a task that is being cancelled."""
        try:
            await self._records.make(call)
        except OSError as error:
            log.error("not recorded", channel=self.address.channel, chat=self.address.chat, error=str(error))

    def place(self, input_id: str, number: int, reply_to: str, slots: Slots) -> Awaitable[str]:
        """One try to send the empty message for a piece."""
        name = nonce(input_id, number, f"placed {slots.lost.get(number, 0)}")
        return self.channel.send(self.address, PLACEHOLDER, reply_to=reply_to, nonce=name)
