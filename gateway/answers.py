"""What operators are told of conversations: the values that `gateway.operations` gives and `gateway.cli` shows, as they pass the control
socket. Pure.
"""

from __future__ import annotations

import msgspec

from gateway.message import Message


class Row(msgspec.Struct, frozen=True):
    """One session in a list."""

    key: str
    name: str
    title: str = ""
    """As the person typed it, "" where that is the name."""
    current: bool = False
    lines: int = 0
    """The newest line's number."""
    size: int = 0
    created: str = ""
    used: float = 0.0
    """When it was last written to, seconds since the epoch."""
    parent: str = ""
    """The session that it was forked from."""


class Unlisted(msgspec.Struct, frozen=True):
    """Sessions of a key that are there and cannot be read."""

    key: str
    unreadable: int


class Listing(msgspec.Struct, frozen=True):
    """A part of a list."""

    rows: tuple[Row, ...] = ()
    unlisted: tuple[Unlisted, ...] = ()


class Shown(msgspec.Struct, frozen=True):
    """One message that counts."""

    seq: int
    role: str
    at: str = ""
    text: str = ""
    id: str = ""
    """user: who wrote it."""
    name: str = ""
    model: str = ""
    calls: tuple[str, ...] = ()
    """Names of the tools that the model asked for."""
    media: tuple[str, ...] = ()
    """Kinds of the files that came along."""
    interrupted: bool = False


class Conversation(msgspec.Struct, frozen=True):
    """A part of `show`: the first one says which session, each has some of its messages."""

    key: str = ""
    name: str = ""
    title: str = ""
    created: str = ""
    lines: int = 0
    turns: int = 0
    parent: str = ""
    messages: tuple[Shown, ...] = ()


class Stretch(msgspec.Struct, frozen=True):
    """A part of an export."""

    key: str
    name: str
    data: bytes
    """Whole lines as they are kept, the header first."""
    size: int
    """Bytes of all parts together, as far as is known now."""


class Deleted(msgspec.Struct, frozen=True):
    key: str
    names: tuple[str, ...]
    """The sessions that are gone."""
    everything: bool


class Forked(msgspec.Struct, frozen=True):
    key: str
    name: str
    parent: str
    lines: int


def shown(message: Message) -> Shown:
    """A message for people."""
    return Shown(
        seq=message.seq,
        role=message.role,
        at=message.at,
        text=message.shown if message.role == "assistant" else message.content or "",
        id=message.from_.id if message.from_ else "",
        name=message.from_.name if message.from_ else message.name,
        model=message.model,
        calls=tuple(call.name for call in message.tool_calls),
        media=tuple(media.kind for media in message.media),
        interrupted=message.interrupted,
    )
