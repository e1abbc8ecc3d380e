"""Who may steer a group's conversation: its admins, as the network says, and the daemon's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog

from channels.base import Channel, ChannelError, Inbound, NotSent, Retry, Unknown
from gateway.access import GROUP_ADMIN_COMMANDS, Access

log = structlog.get_logger(__name__)

MEMORY = 300.0
"""Seconds for which the network's answer is believed."""
MOST = 4096
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between the tries to ask a network that cannot be reached: at a start a command that was left is met before its channel is up."""


LONGEST = 10.0
"""The longest wait that a network may ask for: the group's queue stands still meanwhile."""


class GroupAdmins:
    """Asks the network whether a person administers a group, and remembers the answer for five minutes. What stays unknown is a no."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        access: Access,
        clock: Callable[[], float],
        *,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._channels, self._access, self._clock, self._pause = channels, access, clock, pause
        self._known: dict[tuple[str, str, str], tuple[bool, float]] = {}

    async def refuses(self, command: str, inbound: Inbound) -> bool:
        """Whether this person may not give this command in this place."""
        if inbound.direct or command not in GROUP_ADMIN_COMMANDS or self._access.is_admin(inbound.address.channel, inbound.sender):
            return False
        return not await self._is_admin(inbound)

    async def _is_admin(self, inbound: Inbound) -> bool:
        asked = (inbound.address.channel, inbound.address.chat, inbound.sender.id)
        now = self._clock()
        known = self._known.get(asked)
        if known and now - known[1] < MEMORY:
            return known[0]
        for pause in (*PAUSES, None):
            try:
                answer = await self._channels[asked[0]].is_admin(inbound.address, inbound.sender.id)
            except ChannelError as error:
                asked_for = error.after if isinstance(error, Retry) else 0.0
                if pause is not None and isinstance(error, NotSent | Unknown | Retry) and asked_for <= LONGEST:
                    await self._pause(max(pause, asked_for))
                    continue
                log.warning("the network does not say who the admins are", channel=asked[0], chat=asked[1], error=str(error))
                return False
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[asked] = (answer, self._clock())
            return answer
        raise AssertionError("the last try returns")
