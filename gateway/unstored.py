"""What a person hears when not even the journal can be written: the network keeps their message and brings it again, but who says so.

Stands before the router. Says one sentence a chat when an outage begins. It is not put on record, which could not be written either, so
that a restart in the middle of an outage may say it once more; and it passes the chat's lane, where the record of what was sent before may
be waiting for the same disk. Only for networks that bring a message again by themselves; the web page and the terminal tell at once that it
was not taken. Put together by `gateway.app`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import structlog

from channels.base import Accept, Address, Channel, ChannelError, Inbound, NotSent, Piece, Retry
from gateway.access import Access
from gateway.inbox import Inbox
from gateway.tasks import Tasks

log = structlog.get_logger(__name__)

NOT_YET = "I cannot store your message yet, since my disk is full or failing; I answer it as soon as I can, so do not send it again."
AGAIN = 600.0
"""Seconds in which a chat does not hear it twice, even where short messages were stored between long ones that do not fit."""
MOST = 1000
"""Chats that hear it; those above wait without a word."""


class Unstored:
    def __init__(
        self, accept: Accept, networks: Mapping[str, Channel], *, access: Access, inbox: Inbox, clock: Callable[[], float]
    ) -> None:
        """`accept`: the router's. `networks`: the channels that bring again what was not taken. `clock`: seconds, from any beginning."""
        self._accept, self._networks = accept, networks
        self._access, self._inbox, self._clock = access, inbox, clock
        self._told: dict[Address, float] = {}
        self._waiting: deque[Inbound] = deque()
        self._tasks = Tasks()

    async def accept(self, batch: Sequence[Inbound]) -> None:
        """`channels.base.Accept`: as the router does it."""
        try:
            await self._accept(batch)
        except OSError:
            for inbound in batch:
                self._note(inbound)
            if self._waiting and not self._tasks:
                self._tasks.start(self._tell(), name="unstored")
            raise
        if self._told:
            now = self._clock()
            for inbound in batch:
                if now - self._told.get(inbound.address, now) >= AGAIN:
                    del self._told[inbound.address]

    async def close(self) -> None:
        """Say no more."""
        await self._tasks.close()

    def _note(self, inbound: Inbound) -> None:
        address = inbound.address
        if address.channel not in self._networks or inbound.kind == "edit" or address in self._told or len(self._told) >= MOST:
            return
        if self._access.admits(inbound) and not self._inbox.seen(inbound.id):
            self._told[address] = self._clock()
            self._waiting.append(inbound)

    async def _tell(self) -> None:
        """One after the other, so that a crowd does not run into the network's limits."""
        while self._waiting:
            inbound = self._waiting.popleft()
            address = inbound.address
            try:
                await self._networks[address.channel].send(address, Piece(NOT_YET), reply_to=inbound.reply_to)
            except (NotSent, Retry):
                del self._told[address]  # when the network brings the message again, it is tried again
            except ChannelError as error:
                log.info("not told that nothing can be stored", channel=address.channel, kind=type(error).__name__)
