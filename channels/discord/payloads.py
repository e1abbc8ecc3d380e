"""What of Discord's JSON is looked at, as frozen values: messages and interactions, as the gateway and the history bring them.

discord.py's own objects are not used for these: they want the server and its members in memory, and one that they cannot read ends the
connection. Called by `parse` and by whatever hands raw JSON on.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

EPOCH_MS = 1_420_070_400_000
"""Discord's: ids count milliseconds from here."""
FAULTS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""What reading JSON of an unexpected shape can raise; msgspec's errors are ValueErrors."""

T = TypeVar("T")
Id: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}\Z")]
"""A snowflake. They become parts of keys, addresses and paths, so that nothing else passes for one."""


class User(msgspec.Struct, frozen=True):
    id: Id
    username: str = ""
    global_name: str | None = None
    bot: bool = False
    system: bool = False


class Member(msgspec.Struct, frozen=True):
    user: User | None = None
    nick: str | None = None
    permissions: str = ""
    """In interactions: what the member may do in the channel, as a decimal number."""
    roles: tuple[str, ...] = ()


class Mention(User, frozen=True):
    member: Member | None = None


class File(msgspec.Struct, frozen=True):
    id: Id
    filename: str = ""
    content_type: str | None = None
    size: int | None = None
    url: str = ""


class Reference(msgspec.Struct, frozen=True):
    type: int = 0
    """0: an answer; 1: forwarded."""
    message_id: Id | None = None


class Asked(msgspec.Struct, frozen=True):
    """The interaction that a message answers."""

    id: str = ""


class Words(msgspec.Struct, frozen=True):
    """The part of a message that was forwarded."""

    content: str = ""
    attachments: tuple[File, ...] = ()
    sticker_items: tuple[Any, ...] = ()


class Snapshot(msgspec.Struct, frozen=True):
    message: Words = Words()


class Message(msgspec.Struct, frozen=True):
    id: Id
    channel_id: Id
    author: User
    content: str = ""
    type: int = 0
    guild_id: Id | None = None
    member: Member | None = None
    mentions: tuple[Mention, ...] = ()
    attachments: tuple[File, ...] = ()
    embeds: tuple[Any, ...] = ()
    sticker_items: tuple[Any, ...] = ()
    components: tuple[Any, ...] = ()
    poll: Any = None
    flags: int = 0
    webhook_id: Id | None = None
    edited_timestamp: str | None = None
    message_reference: Reference | None = None
    referenced_message: Message | None = None
    interaction_metadata: Asked | None = None
    message_snapshots: tuple[Snapshot, ...] = ()


class Channel(msgspec.Struct, frozen=True):
    """A channel or thread, as the API and interactions have it."""

    id: Id
    type: int = 0
    guild_id: Id | None = None
    parent_id: Id | None = None
    name: str | None = None
    last_message_id: Id | None = None


class Option(msgspec.Struct, frozen=True):
    name: str
    value: str | int | float | bool | None = None
    focused: bool = False


class Data(msgspec.Struct, frozen=True):
    """What was done: a command's name and options, or a button's id."""

    name: str = ""
    options: tuple[Option, ...] = ()
    custom_id: str = ""


COMMAND, COMPONENT, COMPLETE = 2, 3, 4


class Interaction(msgspec.Struct, frozen=True):
    id: Id
    token: Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,1000}\Z")]
    """A part of addresses."""
    type: int
    channel_id: Id | None = None
    guild_id: Id | None = None
    channel: Channel | None = None
    user: User | None = None
    member: Member | None = None
    data: Data = Data()


class Role(msgspec.Struct, frozen=True):
    id: Id
    permissions: str = "0"


class Guild(msgspec.Struct, frozen=True):
    id: Id
    owner_id: str = ""
    roles: tuple[Role, ...] = ()


def convert(raw: object, kind: type[T]) -> T:
    """Raises what FAULTS names."""
    return msgspec.convert(raw, kind)


def made_at(snowflake: str) -> float:
    """Seconds since the epoch at which an id was made; 0.0 for what is none."""
    return ((int(snowflake) >> 22) + EPOCH_MS) / 1000 if snowflake.isdecimal() else 0.0


def snowflake_at(seconds: float) -> int:
    """The smallest id of that moment."""
    return max(0, int(seconds * 1000) - EPOCH_MS) << 22
