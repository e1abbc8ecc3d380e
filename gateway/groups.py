"""Who may steer a group's conversation: its admins, as the network says, and the daemon's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from channels.base import Channel, ChannelError, Inbound
from gateway.access import GROUP_ADMIN_COMMANDS, Access

log = structlog.get_logger(__name__)

MEMORY = 300.0
"""Seconds for which the network's answer is believed."""
MOST = 4096


class GroupAdmins:
    """Asks the network whether a person administers a group, and remembers the answer for five minutes. What is unknown is a no."""

    def __init__(self, channels: Mapping[str, Channel], access: Access, clock: Callable[[], float]) -> None:
        self._channels, self._access, self._clock = channels, access, clock
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
        try:
            answer = await self._channels[asked[0]].is_admin(inbound.address, inbound.sender.id)
        except ChannelError as error:
            log.warning("the network does not say who the admins are", channel=asked[0], chat=asked[1], error=str(error))
            return False
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[asked] = (answer, now)
        return answer
