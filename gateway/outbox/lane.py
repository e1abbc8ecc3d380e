"""The lane of one Address: a task that settles deliveries first come first served and, while none waits, moves growing answers along.

One task, one call at a time. Order of precedence: a delivery (answer or reply) before an intermediate edit, an intermediate edit before
the typing sign. So a stream holds a place in the chat but never the lane, no edit of it begins while a delivery is unsettled, and none can
come after its own final. Only the typing sign runs beside the task, so that a hung one can be cut at once when something is to be done.

One of the three borders where any exception is caught: whatever goes wrong with one delivery, the lane goes on. Called by `gateway.outbox`.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import structlog

from channels.base import ChannelError, Denied, Gone, Lost, NotSent, Refused, Retry, Unknown
from gateway.outage import passing
from gateway.outbox.delivery import PLACEHOLDER, Brake, Delivery, Slots, reference
from gateway.outbox.final import Final
from gateway.outbox.pace import backoff, come
from gateway.outbox.stream import Move, Stream
from gateway.outbox.wire import Wire
from gateway.tasks import Restarts, kept

log = structlog.get_logger(__name__)

TYPING_EVERY = 4.0
"""Seconds between two typing signs; networks show one for about five."""
TYPING_TIMEOUT = 5.0
TYPING_LIFE = 1800.0
"""Seconds after which a turn that never ends is not shown as typing any more."""
EDIT_GAP = 0.1
"""Least pause between two edits of one growing answer, on channels without a pace of their own."""
RENDER_SHARE = 20.0
"""After a render an edit waits this many times what it cost, so that a long answer takes at most a twentieth of the loop."""


@dataclass(slots=True, eq=False)
class Job:
    """A delivery in the lane."""

    delivery: Delivery
    slots: Slots
    done: asyncio.Future[None]
    stream: Stream | None = None
    brake: Brake = field(default_factory=Brake)


class Lane:
    """`ended(lane)` is called once, synchronously, when it has nothing left to do and to remember; after that it takes nothing more."""

    def __init__(self, wire: Wire, *, settled: Callable[[], None], ended: Callable[[Lane], None], restarts: Restarts) -> None:
        self.wire = wire
        self.jobs: deque[Job] = deque()
        self.streams: list[Stream] = []
        self.still = False
        """The shutdown began: deliveries only."""
        self._settled, self._ended = settled, ended
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._typing_failed = False
        name = f"lane {wire.address.channel} {wire.address.chat} {wire.address.thread}"
        self.task = asyncio.create_task(kept(self._run, name, "lane", restarts), name=name)

    # ------------------------------------------------------------------------------------------------------------- for the outbox

    def add(self, job: Job) -> None:
        """Queue a delivery behind the others; its stream ends here."""
        if job.stream is not None:
            job.stream.ended = True
        self.jobs.append(job)
        self.wire.pace.jobs += 1
        self._wake.set()

    def follow(self, stream: Stream) -> None:
        """Show this answer while it grows."""
        self.streams.append(stream)
        self._wake.set()

    def wake(self) -> None:
        """Something may be due earlier than it seemed."""
        self._wake.set()

    def works(self, until: float) -> bool:
        """Something goes out, or may before `until`."""
        return bool(self.jobs) and not self.wire.pace.denied and (self.wire.calling or self.wire.held() < until)

    # -------------------------------------------------------------------------------------------------------------------- the task

    async def _run(self) -> None:
        try:
            await self._go()
        finally:
            self.wire.pace.step_out(self)  # it may be a while until it is begun again

    async def _go(self) -> None:
        while True:
            if self.jobs:
                await self._settle(self.jobs[0])
                continue
            self.streams = [stream for stream in self.streams if not stream.ended or stream.slots.loose]
            now = self._loop.time()
            stream, edit_at = self._next_edit(now)
            typing_at = self._next_typing()
            if stream is not None and come(edit_at, now):
                await self._step(stream)
            elif come(typing_at, now):
                await self._type()
            elif not self.streams and come(rest := self._rest(now), now):
                self._ended(self)
                return
            else:
                await self._sleep(min(edit_at, typing_at, math.inf if self.streams else rest))

    def _rest(self, now: float) -> float:
        """When it may be forgotten: not while its chat has to wait or has used up its pace, unless another lane remembers that."""
        return now if self.wire.chat.users > 1 else self.wire.chat.rests(now)

    async def _sleep(self, until: float) -> None:
        self._wake.clear()
        alarm = self._loop.call_at(until, self._wake.set) if until < math.inf else None
        try:
            await self._wake.wait()
        finally:
            if alarm is not None:
                alarm.cancel()

    # ------------------------------------------------------------------------------------------------------------------ deliveries

    async def _settle(self, job: Job) -> None:
        delivery, ledger, finished = job.delivery, self.wire.ledger, False
        self.wire.pace.step_out(self)
        try:
            if job.stream is not None and job.stream.gone:
                raise Gone(job.stream.gone)  # the stream had its try
            final = Final(self.wire, delivery, job.slots, job.brake)
            reason = await final.run()
            finished = final.finished
            self.wire.open()
        except Gone as error:
            reason = "gone"
            self.wire.shut(error)
        except (Exception, asyncio.CancelledError):
            self._unless_cancelled()
            log.exception("delivery put aside", channel=delivery.address.channel, key=delivery.key, input=delivery.input_id)
            reason = "undeliverable"
        try:
            if not finished:
                await self.wire.record(partial(ledger.finished, delivery, reason))
        except (Exception, asyncio.CancelledError):
            self._unless_cancelled()
            log.exception("delivery not recorded", channel=delivery.address.channel, key=delivery.key, input=delivery.input_id)
        self.jobs.popleft()
        self.wire.pace.jobs -= 1
        job.brake.over.set()
        if not job.done.done():
            job.done.set_result(None)
        self._settled()

    def _unless_cancelled(self) -> None:
        """A CancelledError that nobody aimed at this task came out of a broken channel or ledger: a fault like any other."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError

    # ------------------------------------------------------------------------------------------------------------- growing answers

    def _next_edit(self, now: float) -> tuple[Stream | None, float]:
        """The stream that moves next, and when. Lines up on the channel once everything else permits it."""
        stream = min(self.streams, key=Stream.due, default=None)
        at = stream.due() if stream is not None else math.inf
        if stream is not None and at < math.inf and not stream.slots.loose:
            if self.still or not self.wire.channel.streams or self.wire.pace.denied:
                stream, at = None, math.inf
            else:
                at = max(at, self.wire.held(), self.wire.chat.bucket.ready(now))
                if come(at, now):
                    return stream, self.wire.pace.line_up(self, self.wake, now)
        self.wire.pace.step_out(self)
        return stream, at

    async def _step(self, stream: Stream) -> None:
        """At most one call for a growing answer."""
        pace = self.wire.pace
        pace.busy += 1
        try:
            if stream.slots.loose:
                await self._note(stream)
            else:
                self.wire.pace.step_out(self)
                began = self._loop.time()
                move = stream.move(self.wire.channel.render)
                now = self._loop.time()
                stream.next_at = now + max(EDIT_GAP, RENDER_SHARE * (now - began))
                if move is not None:
                    await self._move(stream, move, now)
        except Gone as error:
            stream.gone, stream.untyped = str(error) or "gone", True
        except (Exception, asyncio.CancelledError):
            self._unless_cancelled()
            log.exception("growing answer not shown", channel=stream.address.channel, input=stream.input_id)
            stream.mute = True
            self._later(stream)
        finally:
            pace.busy -= 1
            self._settled()
        # The next one in the lane, if there are several.
        if stream in self.streams:
            self.streams.remove(stream)
            self.streams.append(stream)

    async def _move(self, stream: Stream, move: Move, now: float) -> None:
        wire, slots, number = self.wire, stream.slots, move.number
        shown = slots.shown.get(number)
        wire.chat.bucket.take(now)
        wire.pace.bucket.take(now)
        try:
            if move.piece is None:
                slots.loose[number] = await wire.place(stream.input_id, number, reference(stream.reply_to, number), slots)
                slots.shown[number] = PLACEHOLDER
                stream.next_at = 0.0
                if self._loop.time() < stream.began + TYPING_EVERY:
                    stream.typing_at = max(stream.typing_at, self._loop.time() + TYPING_EVERY)
                await self._note(stream)
            else:
                slots.shown.pop(number, None)
                await wire.channel.edit(stream.address, slots.placed[number], move.piece)
                slots.shown[number] = move.piece
            stream.fails = 0
        except Retry as error:
            stream.fails += 1
            wire.hold(error, stream.fails)
            if shown is not None:
                slots.shown[number] = shown
        except (NotSent, Unknown) as error:
            self._later(stream)
            if move.piece is None and isinstance(error, Unknown):
                stream.unknown += 1
                stream.mute = stream.unknown > 1
        except Denied as error:
            wire.deny(error)
        except Gone:
            raise
        except Lost:
            slots.lose(number)
            stream.mute = slots.lost[number] > 1
        except Refused as error:
            log.info("intermediate edit refused", channel=stream.address.channel, input=stream.input_id, kind=type(error).__name__)
            if move.piece is None:
                stream.mute = True
            else:
                stream.tried(number, move.piece)

    async def _note(self, stream: Stream) -> None:
        """Put a placed message on record; without that no content goes into it."""
        number, message_id = next(iter(stream.slots.loose.items()))
        try:
            await self.wire.record_once(partial(self.wire.ledger.placed, stream.input_id, number, message_id))
        except OSError as error:
            tell = log.info if passing(error) else log.error
            tell("cannot record a placed message", channel=stream.address.channel, input=stream.input_id, error=str(error))
            self._later(stream)
        else:
            stream.slots.placed[number] = stream.slots.loose.pop(number)

    def _later(self, stream: Stream) -> None:
        stream.fails += 1
        stream.next_at = self._loop.time() + backoff(stream.fails, self.wire.spread())

    # ------------------------------------------------------------------------------------------------------------------ typing sign

    def _next_typing(self) -> float:
        if self.still or self.wire.pace.denied:
            return math.inf
        at = min(
            (s.typing_at for s in self.streams if not s.ended and not s.untyped and s.typing_at < s.began + TYPING_LIFE), default=math.inf
        )
        return max(at, self.wire.held())

    async def _type(self) -> None:
        """Show that we are at work. Passing errors are no harm; the call is cut as soon as anything else is to be done."""
        now = self._loop.time()
        at = self.wire.pace.sign(now)
        if not come(at, now):
            self._type_at(at)
            return
        sign = asyncio.create_task(self._sign(), name="typing")
        sign.add_done_callback(lambda _: self._wake.set())
        try:
            while not sign.done() and not self.jobs and self._next_typing() < math.inf:
                now = self._loop.time()
                _, edit_at = self._next_edit(now)
                if come(edit_at, now):
                    break
                await self._sleep(edit_at)
        finally:
            sign.cancel()
            await asyncio.wait({sign})
        self._type_at(self._loop.time() + TYPING_EVERY)

    def _type_at(self, at: float) -> None:
        for stream in self.streams:
            stream.typing_at = at

    async def _sign(self) -> None:
        try:
            async with asyncio.timeout(TYPING_TIMEOUT):
                await self.wire.channel.typing(self.wire.address)
        except Retry as error:
            self.wire.hold(error, 1)
        except Denied as error:
            self.wire.deny(error)
        except Gone:
            # No more signs and edits for these turns: their finals will find out whether somebody is there.
            for stream in self.streams:
                stream.untyped = stream.mute = True
        except (ChannelError, TimeoutError):
            pass
        except Exception:
            if not self._typing_failed:
                self._typing_failed = True
                log.exception("typing sign failed", channel=self.wire.address.channel)
