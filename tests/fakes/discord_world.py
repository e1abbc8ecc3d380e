"""The people, guilds and channels of the fake of Discord, who may do what there, and how each reads in JSON; no HTTP, no gateway in here.

Extended by `tests.fakes.discord_messages.Messages`. `emit` is where events go; the gateway takes them from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from tests.fakes.discord_rules import ALL, PERMISSIONS, PRIVILEGED, Json, snowflake
from tests.fakes.discord_state import DM, TEXT, Channel, Guild, Interaction, Member, Person, Role

DEFAULT_USER = 700_000_000_000_000_042
"""Who speaks in guilds where a test does not say."""
BOT = 600_000_000_000_000_001
APPLICATION = 600_000_000_000_000_002


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")


class World:
    """One bot's view of the service."""

    def __init__(self, token: str, bot_name: str) -> None:
        self.token = token
        self.clock: Callable[[], float] = time.time
        """Epoch seconds, for ids and timestamps."""
        self.bot = Person(BOT, bot_name, bot=True)
        self.application_id = APPLICATION
        self.privileged: set[str] = set(PRIVILEGED)
        """The privileged intents that are switched on in the developer portal."""
        self.people: dict[int, Person] = {self.bot.id: self.bot}
        self.guilds: dict[int, Guild] = {}
        self.channels: dict[int, Channel] = {}
        self.interactions: list[Interaction] = []
        self.files: dict[str, bytes] = {}
        """attachment id -> content."""
        self._by_token: dict[str, Interaction] = {}
        self._by_id: dict[int, Interaction] = {}
        self._direct: dict[int, int] = {}
        self._last_id = 0

    @property
    def cdn_url(self) -> str:
        """Where attachments can be fetched."""
        raise NotImplementedError

    def emit(self, event: str, data: Json, channel: int | None = None) -> None:
        raise NotImplementedError

    def new_id(self) -> int:
        """Later ids are greater, whatever the clock does."""
        self._last_id = max(snowflake(self.clock()), self._last_id + 1)
        return self._last_id

    # ---------------------------------------------------------------------------------------------------------- what there is

    def user(self, user_id: int = DEFAULT_USER, *, name: str = "", bot: bool | None = None, closed: bool | None = None) -> Person:
        """The person, made if need be."""
        person = self.people.get(user_id)
        if person is None:
            person = self.people[user_id] = Person(user_id, name or f"P{user_id}")
        if name:
            person.name = name
        if bot is not None:
            person.bot = bot
        if closed is not None:
            person.closed = closed
        return person

    def dm(self, user: int = DEFAULT_USER) -> int:
        """The direct chat with a person, made if need be."""
        channel_id = self._direct.get(user)
        if channel_id is None:
            self.user(user)
            channel_id = self._direct[user] = self.new_id()
            self.channels[channel_id] = Channel(channel_id, DM, recipient=user)
        return channel_id

    def guild(self, name: str = "Home", *, owner: int = DEFAULT_USER) -> int:
        """A new guild that the bot is in."""
        guild = Guild(self.new_id(), name, owner)
        self.guilds[guild.id] = guild
        guild.members[self.bot.id] = Member(self.bot)
        guild.members[owner] = Member(self.user(owner))
        self.emit("GUILD_CREATE", self.guild_json(guild))
        return guild.id

    def channel(self, guild: int | None = None, name: str = "general") -> int:
        """A new text channel, in the first guild (made if there is none) where none is given."""
        if guild is None:
            guild = next(iter(self.guilds), 0) or self.guild()
        channel = Channel(self.new_id(), TEXT, name, guild)
        self.channels[channel.id] = channel
        self.emit("CHANNEL_CREATE", self.channel_json(channel), channel.id)
        return channel.id

    def role(self, guild: int, name: str, *permissions: str) -> int:
        """A new role with these permissions, by the names of `discord_rules.PERMISSIONS`."""
        role = Role(self.new_id(), name, sum(PERMISSIONS[item] for item in permissions))
        self.guilds[guild].roles[role.id] = role
        self.emit("GUILD_ROLE_CREATE", {"guild_id": str(guild), "role": role.json()})
        return role.id

    def join(self, guild: int, user: int, *, roles: tuple[int, ...] = (), nick: str | None = None) -> Member:
        """A person in a guild; made a member, or changed."""
        members = self.guilds[guild].members
        known = user in members
        member = members.setdefault(user, Member(self.user(user)))
        before = (set(member.roles), member.nick)
        member.roles |= set(roles)
        member.nick = nick or member.nick
        if not known or before != (member.roles, member.nick):
            data = self.member_json(self.guilds[guild], user) | {"guild_id": str(guild)}
            self.emit("GUILD_MEMBER_UPDATE" if known else "GUILD_MEMBER_ADD", data)
        return member

    def leave(self, guild: int, user: int) -> None:
        """A person leaves a guild."""
        person = self.guilds[guild].members.pop(user).person
        self.emit("GUILD_MEMBER_REMOVE", {"guild_id": str(guild), "user": person.json()})

    def attachment(self, filename: str, content: bytes, content_type: str = "application/octet-stream", **fields: Any) -> Json:
        """A file that can be fetched, as a message's `attachments` have it."""
        file_id = str(self.new_id())
        self.files[file_id] = content
        url = f"{self.cdn_url}/{file_id}/{quote(filename, safe='')}"
        body: Json = {"id": file_id, "filename": filename, "size": len(content), "content_type": content_type}
        return body | {"url": url, "proxy_url": url} | fields

    def forbid(self, channel: int, *permissions: str, who: int | None = None) -> None:
        """Take permissions from somebody (the bot) in a channel."""
        self._overwrite(channel, who, deny=permissions)

    def permit(self, channel: int, *permissions: str, who: int | None = None) -> None:
        """Give permissions to somebody (the bot) in a channel."""
        self._overwrite(channel, who, allow=permissions)

    def _overwrite(self, channel: int, who: int | None, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> None:
        place, who = self.channels[channel], who or self.bot.id
        old_allow, old_deny = place.overwrites.get(who, (0, 0))
        more, less = sum(PERMISSIONS[item] for item in allow), sum(PERMISSIONS[item] for item in deny)
        place.overwrites[who] = ((old_allow | more) & ~less, (old_deny | less) & ~more)
        self.emit("CHANNEL_UPDATE", self.channel_json(place), channel)

    def permissions(self, channel: Channel, user: int) -> int:
        """What somebody may do in a channel, as Discord adds it up."""
        if channel.guild is None:
            return ALL
        guild = self.guilds[channel.guild]
        member = guild.members.get(user)
        if member is None:
            return 0
        granted = guild.roles[guild.id].permissions
        for role in member.roles:
            granted |= guild.roles[role].permissions
        if guild.owner == user or granted & PERMISSIONS["administrator"]:
            return ALL
        place = channel if channel.parent is None else self.channels.get(channel.parent, channel)
        for group in ([guild.id], sorted(member.roles), [user]):
            allow = deny = 0
            for who in group:
                more, less = place.overwrites.get(who, (0, 0))
                allow, deny = allow | more, deny | less
            granted = granted & ~deny | allow
        return granted if granted & PERMISSIONS["view_channel"] else 0

    def may(self, channel: Channel, *permissions: str) -> bool:
        """Whether the bot may."""
        wanted = sum(PERMISSIONS[item] for item in permissions)
        return self.permissions(channel, self.bot.id) & wanted == wanted

    # -------------------------------------------------------------------------------------------------------------------- JSON

    def channel_json(self, channel: Channel) -> Json:
        last = str(channel.last_message) if channel.last_message else None
        body: Json = {"id": str(channel.id), "type": channel.type, "last_message_id": last, "flags": 0}
        if channel.type == DM:
            return body | {"recipients": [self.user(channel.recipient or 0).json()]}
        body |= {"guild_id": str(channel.guild), "name": channel.name, "rate_limit_per_user": 0}
        body["parent_id"] = str(channel.parent) if channel.parent else None
        if channel.is_thread:
            made = stamp(self.clock())
            return body | {
                "owner_id": str(channel.owner),
                "message_count": len(channel.messages),
                "member_count": 1,
                "total_message_sent": len(channel.messages),
                "thread_metadata": {
                    "archived": channel.archived,
                    "auto_archive_duration": 1440,
                    "archive_timestamp": made,
                    "create_timestamp": made,
                    "locked": channel.locked,
                },
            }
        overwrites = [
            {"id": str(who), "type": int(who not in self.guilds[channel.guild or 0].roles), "allow": str(allow), "deny": str(deny)}
            for who, (allow, deny) in channel.overwrites.items()
        ]
        return body | {"topic": None, "nsfw": False, "position": 0, "permission_overwrites": overwrites}

    def member_json(self, guild: Guild, user: int) -> Json:
        member = guild.members[user]
        return member.json() | {"user": member.person.json()}

    def guild_json(self, guild: Guild, *, event: bool = True) -> Json:
        body: Json = {
            "id": str(guild.id),
            "name": guild.name,
            "owner_id": str(guild.owner),
            "icon": None,
            "splash": None,
            "discovery_splash": None,
            "banner": None,
            "description": None,
            "features": [],
            "emojis": [],
            "stickers": [],
            "roles": [role.json() for role in guild.roles.values()],
            "afk_channel_id": None,
            "afk_timeout": 300,
            "verification_level": 0,
            "default_message_notifications": 0,
            "explicit_content_filter": 0,
            "mfa_level": 0,
            "nsfw_level": 0,
            "premium_tier": 0,
            "preferred_locale": "en-US",
            "system_channel_id": None,
            "system_channel_flags": 0,
            "rules_channel_id": None,
            "public_updates_channel_id": None,
            "vanity_url_code": None,
        }
        if not event:
            return body
        places = [place for place in self.channels.values() if place.guild == guild.id]
        return body | {
            "joined_at": "2024-01-01T00:00:00.000000+00:00",
            "large": False,
            "unavailable": False,
            "member_count": len(guild.members),
            "members": [self.member_json(guild, user) for user in guild.members],
            "channels": [self.channel_json(place) for place in places if not place.is_thread],
            "threads": [self.channel_json(place) for place in places if place.is_thread and not place.archived],
            "presences": [],
            "voice_states": [],
            "stage_instances": [],
            "guild_scheduled_events": [],
        }
