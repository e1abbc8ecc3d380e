"""A channel whose calls are counted, by what became of them. `gateway.app` puts it between the channels and the outbox, which needs not
know; whatever else a channel has is its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar, cast

import structlog

from channels.base import Address, Button, Channel, Denied, Gone, Lost, NotSent, Piece, Refused, Rejected, Retry, Unknown
from channels.failpoints import reach
from gateway.metrics import Metrics
from gateway.tasks import Restarts

T = TypeVar("T")
log = structlog.get_logger(__name__)

_RESULTS: tuple[tuple[type[Exception], str], ...] = (
    (Retry, "retry"),
    (NotSent, "not_sent"),
    (Unknown, "unknown"),
    (Gone, "gone"),
    (Lost, "lost"),
    (Rejected, "rejected"),
    (Refused, "refused"),
    (Denied, "denied"),
    (Exception, "fault"),
)


LIMIT = 900.0
"""Seconds. Far above what a channel's own limits come to, attachments and a group that moves from id to id included."""


def counted(channel: Channel, metrics: Metrics, restarts: Restarts | None = None) -> Channel:
    """The channel, counting."""
    for call in ("send", "edit"):
        metrics.calls.add(channel.name, call, "ok", by=0)
    metrics.flood.add(channel.name, by=0)
    return cast("Channel", _Counted(channel, metrics, restarts or Restarts()))


class _Counted:
    def __init__(self, channel: Channel, metrics: Metrics, restarts: Restarts) -> None:
        self._channel, self._metrics, self._restarts = channel, metrics, restarts

    def __getattr__(self, name: str) -> object:
        return getattr(self._channel, name)

    async def send(self, address: Address, piece: Piece, *, reply_to: str = "", buttons: Sequence[Button] = (), nonce: str = "") -> str:
        return await self._count("send", self._channel.send(address, piece, reply_to=reply_to, buttons=buttons, nonce=nonce))

    async def edit(self, address: Address, message_id: str, piece: Piece, *, buttons: Sequence[Button] = ()) -> None:
        await self._count("edit", self._channel.edit(address, message_id, piece, buttons=buttons))

    async def delete(self, address: Address, message_id: str) -> None:
        await self._count("delete", self._channel.delete(address, message_id))

    async def typing(self, address: Address) -> None:
        await self._count("typing", self._channel.typing(address))

    async def _count(self, call: str, answer: Awaitable[T]) -> T:
        name = self._channel.name
        if call != "typing":
            reach(f"{call} before", name)
        try:
            result = await self._limited(answer)
        except Exception as error:
            self._metrics.calls.add(name, call, next(word for kind, word in _RESULTS if isinstance(error, kind)))
            if isinstance(error, Retry):
                self._metrics.flood.add(name, by=error.after)
            raise
        if call != "typing":
            reach(f"{call} after", name)
        self._metrics.calls.add(name, call, "ok")
        return result

    async def _limited(self, answer: Awaitable[T]) -> T:
        """Every channel has limits of its own for what it does on the network; a call that outlasts them all must not hold its lane for
        ever. What became of it nobody knows."""
        alarm = asyncio.timeout(LIMIT)
        try:
            async with alarm:
                return await answer
        except TimeoutError:
            if not alarm.expired():
                raise
            self._restarts.note("call", f"{self._channel.name} did not return")
            log.error("call did not return", channel=self._channel.name, seconds=LIMIT)
            raise Unknown("the call did not return") from None
