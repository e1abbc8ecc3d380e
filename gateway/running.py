"""The turn that a key is in, what it is asked with, and what a lane is told of it. Values and small tools; nothing here waits by itself.

Called by `gateway.runner` and what it is made of (`gateway.work`, `gateway.asking`), and by `gateway.router`, which stops turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from channels.base import Button
from gateway.backends.base import Backend
from gateway.inbox import Pending
from gateway.message import Media
from gateway.outbox import Delivery, Sending, Stream
from gateway.turn import Outcome


@dataclass(slots=True)
class Running:
    """The turn that a key is in, for whoever wants to end it."""

    pending: Pending
    begun: float | None = None
    """Since when it is being worked on, by the loop's clock; before, it waits to be let in."""
    started: asyncio.Future[None] | None = None
    """The record that it has begun, once that is on its way. Nothing is asked or said before."""
    hurry: Callable[[], None] | None = None
    """While it waits for its turn: a stopped one need not."""
    asking: asyncio.Task[Outcome] | None = None
    fetching: asyncio.Task[tuple[Media, ...]] | None = None
    """What is attached to it is on its way."""
    done: asyncio.Event = field(default_factory=asyncio.Event)
    sending: Sending | None = None
    """Its answer, which is whole, is on its way."""
    stream: Stream | None = None
    """Its answer, while it grows."""
    outcome: Outcome | None = None
    """What the model said, until it is stored: it is not asked again where that takes a second try."""
    _stopped: bool = False

    def stop(self) -> None:
        """End it: what was seen is kept."""
        self._stopped = True
        if self.hurry is not None:
            self.hurry()
        if self.sending is not None:
            self.sending.stop()
        for work in (self.asking, self.fetching):
            if work is not None:
                work.cancel()

    def stopped(self) -> bool:
        """Somebody ended it."""
        return self._stopped

    async def over(self) -> None:
        """Wait until it has ended and what is kept of it is on record."""
        await self.done.wait()
        if self.sending is not None and self.sending.stopped():
            await self.sending.over()

    def took(self) -> bool:
        """Whether there was anything left to end; known when it is over."""
        return self.sending is None or self.sending.took()


@dataclass(frozen=True, slots=True)
class Model:
    """What a turn is asked with, from the config."""

    backend: Backend
    system: str
    history_messages: int
    history_tokens: int
    max_chars: int
    patience: float = 1800.0
    """Seconds without a word after which a turn hangs: its backend has limits of its own, far below."""


def unless_cancelled() -> None:
    """A CancelledError that nobody aimed at this task came out of something broken: a fault like any other, not the end of a queue."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def delivery(
    pending: Pending,
    text: str,
    *,
    buttons: tuple[Button, ...] = (),
    answer: tuple[str, int] | None = None,
    sent_to: int | None = None,
    since: float | None = None,
) -> Delivery:
    """What a lane needs to know to bring `text` to where the input came from. `since`: of an answer that an earlier life committed."""
    inbound = pending.input.inbound
    return Delivery(
        input_id=inbound.id,
        key=pending.input.key,
        address=inbound.address,
        direct=inbound.direct,
        text=text,
        answer=answer,
        reply_to=inbound.ticket or inbound.reply_to,
        buttons=buttons,
        placed=dict(pending.placed),
        sent_to=pending.sent_to if sent_to is None else sent_to,
        since=(pending.said_at if pending.recovered else 0.0) if since is None else since,
    )
