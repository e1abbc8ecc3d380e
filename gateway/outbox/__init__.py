"""What goes out: one lane for each Address that has work, paced by its channel, everything on record.

`Outbox` hands out lanes; `lane` is the order in which things go out, `final` how one text gets into a chat, `stream` an answer that
grows, `wire` what may be repeated when, `pace` how fast. Nothing else sends; no key lock is held. It knows no sessions and no journal: it
records through a `Ledger`. Called by `gateway.runner` and `gateway.router`; built and closed by `gateway.app`.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping

import structlog

from channels.base import Address, Channel
from gateway.outbox.delivery import ASIDE, MARK, PLACEHOLDER, Brake, Delivery, Ledger, Slots
from gateway.outbox.lane import Job, Lane
from gateway.outbox.pace import Pace
from gateway.outbox.stream import Stream
from gateway.outbox.wire import Records, Wire
from gateway.tasks import Restarts

__all__ = ["MARK", "PLACEHOLDER", "Delivery", "Ledger", "Outbox", "Sending", "Stream"]

log = structlog.get_logger(__name__)


class Sending:
    """An answer on its way."""

    def __init__(self, brake: Brake) -> None:
        self._brake = brake

    def stop(self) -> None:
        """Take back what is not sent of it."""
        self._brake.stop.set()

    def stopped(self) -> bool:
        return self._brake.stop.is_set()

    async def over(self) -> None:
        """Until what became of it is on record, or will not be in this life of the daemon."""
        await self._brake.over.wait()

    def took(self) -> bool:
        """Whether anything was left to be taken back; known when it is over."""
        return self._brake.took


class Outbox:
    """All lanes. Every call but `room`, `drain` and `close` is synchronous and fixes the order when it returns."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        ledger: Ledger,
        *,
        lane_limit: int = 100,
        restarts: Restarts | None = None,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._restarts = restarts or Restarts()
        self._channels, self._ledger, self._limit, self._spread = channels, ledger, lane_limit, spread
        self._lanes: dict[Address, Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._paces = {name: Pace(channel.pacing) for name, channel in channels.items()}
        self._records = Records()
        self._moved: asyncio.Future[None] | None = None
        self._draining = self._closed = False

    # ------------------------------------------------------------------------------------------------------------------ what goes in

    def stream(
        self,
        address: Address,
        input_id: str,
        *,
        direct: bool = True,
        reply_to: str = "",
        placed: Mapping[int, str] | None = None,
        aside: bool = False,
    ) -> Stream:
        """An answer begins to grow. It ends with `put(delivery, stream)` or `Stream.abandon`, one of which must be called; until then the
        chat sees the typing sign, and the text where the channel streams. `placed`: messages that an earlier life placed for this input.
        `aside`: it is no beginning of what will be said; its message goes when that is said."""
        earlier = self._stream_of(address, input_id)
        slots = earlier.slots if earlier is not None else Slots(placed=dict(placed or {}))
        now = asyncio.get_running_loop().time()
        stream = Stream(address, input_id, reply_to, slots, now, lambda: self._wake(address), first=ASIDE if aside else 0)
        if self._closed:
            stream.ended = True
        else:
            self._lane(address, direct=direct).follow(stream)
        return stream

    def put(self, delivery: Delivery, stream: Stream | None = None) -> asyncio.Future[None]:
        """Queue a text behind the others of its Address; never waits, and takes it even if the lane is full (see `room`): it is on record.

        The future is done when it is settled, whatever became of it. It is cancelled if that does not happen in this life of the daemon
        (closed, channel not configured); the delivery then stays on record. Raises ValueError for a stream of another Address.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if stream is not None and stream.address != delivery.address:
            raise ValueError("a stream's final goes where the stream is")
        if self._closed or delivery.address.channel not in self._channels:
            log.warning("kept on record, not sent now", channel=delivery.address.channel, input=delivery.input_id)
            if stream is not None:
                stream.abandon()
            done.cancel()
            return done
        lane = self._lane(delivery.address, direct=delivery.direct)
        if stream is None:
            stream = self._stream_of(delivery.address, delivery.input_id)
        slots = stream.slots if stream is not None else Slots(placed=dict(delivery.placed))
        lane.add(Job(delivery, slots, done, stream))
        return done

    def _stream_of(self, address: Address, input_id: str) -> Stream | None:
        """What is shown for this input: a turn that was cut may have a placeholder on its way that the journal does not know yet, and a
        command may show that it waits."""
        lane = self._lanes.get(address)
        return next((s for s in lane.streams if s.input_id == input_id), None) if lane is not None else None

    def sending(self, address: Address, key: str, input_id: str = "") -> Sending | None:
        """The oldest answer of this key (or the one to this input) that is not wholly sent there, for whoever wants to take the rest
        back."""
        lane = self._lanes.get(address)
        for job in lane.jobs if lane is not None else ():
            delivery = job.delivery
            if delivery.key == key and delivery.answer is not None and input_id in ("", delivery.input_id):
                return Sending(job.brake)
        return None

    def render(self, address: Address, text: str) -> None:
        """What will be done before `text` is sent to where it goes, done for its own sake, to see whether it can be."""
        self._channels[address.channel].render(text)

    def full(self, address: Address) -> bool:
        """Whether `room` would wait."""
        lane = self._lanes.get(address)
        return lane is not None and len(lane.jobs) >= self._limit

    async def room(self, address: Address) -> None:
        """Waits while the lane is full, so that nothing is produced that cannot be sent. Returns at once after `close`."""
        while self.full(address) and not self._closed:
            await self._change()

    def __len__(self) -> int:
        """Lanes that have work, or a wait to remember."""
        return len(self._lanes)

    def waiting(self) -> int:
        """Deliveries that are not settled."""
        return sum(pace.jobs for pace in self._paces.values())

    def unsent(self) -> dict[str, int]:
        """The same by channel."""
        return {name: pace.jobs for name, pace in self._paces.items()}

    def repeats(self) -> dict[str, int]:
        """By channel, how many calls were made again after a failure."""
        return {name: pace.repeats for name, pace in self._paces.items()}

    def repace(self, name: str) -> None:
        """The channel's `pacing` is another one now."""
        self._paces[name].become(self._channels[name].pacing, asyncio.get_running_loop().time())
        for lane in self._lanes.values():
            lane.wake()

    # ------------------------------------------------------------------------------------------------------------------------ the end

    async def drain(self, timeout: float) -> int:
        """No more intermediate edits and typing signs; wait until the deliveries are settled, at most `timeout` seconds (infinity: however
        long it takes). Not waited for are those of a channel that the network does not accept any more, and those that have to wait for
        longer than that by the network's word. Returns how many deliveries are left."""
        until = asyncio.get_running_loop().time() + timeout
        self._draining = True
        for lane in self._lanes.values():
            lane.still = True
            lane.wake()
        try:
            async with asyncio.timeout(None if timeout == math.inf else timeout):
                while any(pace.busy and not pace.denied for pace in self._paces.values()) or any(
                    lane.works(until) for lane in self._lanes.values()
                ):
                    await self._change()
        except TimeoutError:
            pass
        return self.waiting()

    async def close(self, timeout: float | None = None) -> int:
        """Cut what is left; it is on record, and the next start goes on with it. After this neither channels nor the ledger are called.
        Safe to call twice. At most `timeout` seconds; how many lanes and records hang then, on a disk that does not answer."""
        self._closed = True
        lanes, tasks = list(self._lanes.values()), set(self._tasks)
        for task in tasks:
            task.cancel()
        began = asyncio.get_running_loop().time()
        hanging = 0
        if tasks:
            hanging = len((await asyncio.wait(tasks, timeout=timeout))[1])
        hanging += await self._records.settle(None if timeout is None else max(0.0, timeout - (asyncio.get_running_loop().time() - began)))
        for lane in lanes:
            for job in lane.jobs:
                job.done.cancel()
                job.brake.over.set()
            for stream in lane.streams:
                stream.ended = True
        self._lanes.clear()
        self._changed()
        return hanging

    # ---------------------------------------------------------------------------------------------------------------------- the lanes

    def _lane(self, address: Address, *, direct: bool) -> Lane:
        lane = self._lanes.get(address)
        if lane is None:
            pace = self._paces[address.channel]
            name = f"{address.chat}/{address.thread}" if pace.pacing.apart and address.thread else address.chat
            chat = pace.join(name, direct=direct)
            wire = Wire(address, self._channels[address.channel], self._ledger, pace, chat, self._records, self._spread, self._changed)
            lane = self._lanes[address] = Lane(wire, settled=self._changed, ended=self._ended, restarts=self._restarts)
            lane.still = self._draining
            self._tasks.add(lane.task)
            lane.task.add_done_callback(self._over)
        return lane

    def _ended(self, lane: Lane) -> None:
        del self._lanes[lane.wire.address]
        lane.wire.pace.leave(lane.wire.chat)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("lane broke", task=task.get_name(), exc_info=error)

    def _wake(self, address: Address) -> None:
        if lane := self._lanes.get(address):
            lane.wake()

    def _changed(self) -> None:
        """Something settled: let those look again that wait for room or for the end."""
        if self._moved is not None:
            self._moved.set_result(None)
            self._moved = None

    async def _change(self) -> None:
        if self._moved is None:
            self._moved = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._moved)
