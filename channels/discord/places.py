"""Where a channel of Discord's is: its server, and for a thread the channel that it is in. Called by the intake and the channel.

A thread's messages say nothing of its parent, and a conversation's key must be the same whichever way a message comes, so that it is looked
up: in what the gateway told discord.py, in what interactions said, and at last by asking.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import discord

from channels.base import Address
from channels.discord.payloads import Channel

_THREADS = frozenset({10, 11, 12})
_DIRECT = frozenset({1, 3})
_MOST = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """`guild` is "" for a direct chat, `parent` for what is no thread."""

    channel: str
    guild: str = ""
    parent: str = ""

    @property
    def address(self) -> Address:
        return Address("discord", self.parent or self.channel, self.channel if self.parent else "")


def place_of(channel: Channel, guild: str = "") -> Place:
    """The place of a channel object. `guild`: where the object does not say it."""
    guild = "" if channel.type in _DIRECT else channel.guild_id or guild
    return Place(channel.id, guild, channel.parent_id or "" if channel.type in _THREADS else "")


class Places:
    """`fetch(channel id)` asks Discord; it raises ChannelError."""

    def __init__(self, fetch: Callable[[str], Awaitable[Channel]]) -> None:
        self._fetch = fetch
        self._known: OrderedDict[str, Place] = OrderedDict()
        self.client: discord.Client | None = None
        """The connection whose servers are known."""

    def learn(self, place: Place) -> None:
        self._known[place.channel] = place
        self._known.move_to_end(place.channel)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)

    def known(self, channel: str, guild: str = "") -> Place | None:
        """Without asking. A message without a server is in a direct chat."""
        if not guild:
            return Place(channel)
        found = self._cached(guild, channel)
        if found is None:
            return self._known.get(channel)
        parent = str(found.parent_id) if isinstance(found, discord.Thread) else ""
        return Place(channel, guild, parent)

    async def find(self, channel: str, guild: str = "") -> Place:
        """Raises ChannelError."""
        place = self.known(channel, guild)
        if place is None:
            place = place_of(await self._fetch(channel), guild)
            self.learn(place)
        return place

    def guild_of(self, channel: str) -> str:
        """The server of a channel, as far as it is known; ""."""
        if place := self._known.get(channel):
            return place.guild
        if self.client is not None and channel.isdecimal():
            for guild in self.client.guilds:
                if guild.get_channel_or_thread(int(channel)):
                    return str(guild.id)
        return ""

    def channel_name(self, guild: str, channel: str) -> str:
        found = self._cached(guild, channel)
        return found.name if found is not None else ""

    def role_name(self, guild: str, role: str) -> str:
        found = self._guild(guild)
        named = found.get_role(int(role)) if found and role.isdecimal() else None
        return named.name if named else ""

    def _guild(self, guild: str) -> discord.Guild | None:
        return self.client.get_guild(int(guild)) if self.client is not None and guild.isdecimal() else None

    def _cached(self, guild: str, channel: str) -> discord.abc.GuildChannel | discord.Thread | None:
        found = self._guild(guild)
        return found.get_channel_or_thread(int(channel)) if found and channel.isdecimal() else None
