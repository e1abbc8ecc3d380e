"""A channel whose calls are counted, by what became of them. `gateway.app` puts it between the channels and the outbox, which needs not
know; whatever else a channel has is its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeVar, cast

from channels.base import Address, Button, Channel, Denied, Gone, Lost, NotSent, Piece, Refused, Rejected, Retry, Unknown
from channels.failpoints import reach
from gateway.metrics import Metrics

T = TypeVar("T")

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


def counted(channel: Channel, metrics: Metrics) -> Channel:
    """The channel, counting."""
    for call in ("send", "edit"):
        metrics.calls.add(channel.name, call, "ok", by=0)
    metrics.flood.add(channel.name, by=0)
    return cast("Channel", _Counted(channel, metrics))


class _Counted:
    def __init__(self, channel: Channel, metrics: Metrics) -> None:
        self._channel, self._metrics = channel, metrics

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
            result = await answer
        except Exception as error:
            self._metrics.calls.add(name, call, next(word for kind, word in _RESULTS if isinstance(error, kind)))
            if isinstance(error, Retry):
                self._metrics.flood.add(name, by=error.after)
            raise
        if call != "typing":
            reach(f"{call} after", name)
        self._metrics.calls.add(name, call, "ok")
        return result
