"""What the fake of Discord keeps: calls, people, guilds, channels, messages, interactions, planned faults. Values only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.discord_rules import EVERYONE, Json

GATEWAY = "GET /gateway"
SEND = "POST /channels/{channel_id}/messages"
EDIT = "PATCH /channels/{channel_id}/messages/{message_id}"
DELETE = "DELETE /channels/{channel_id}/messages/{message_id}"
TYPING = "POST /channels/{channel_id}/typing"
HISTORY = "GET /channels/{channel_id}/messages"
FETCH = "GET /channels/{channel_id}/messages/{message_id}"
ME = "GET /users/@me"
OPEN_DM = "POST /users/@me/channels"
COMMANDS = "PUT /applications/{application_id}/commands"
CALLBACK = "POST /interactions/{interaction_id}/{token}/callback"
FOLLOWUP = "POST /webhooks/{application_id}/{token}"
GET_ORIGINAL = "GET /webhooks/{application_id}/{token}/messages/@original"
EDIT_ORIGINAL = "PATCH /webhooks/{application_id}/{token}/messages/@original"
DELETE_ORIGINAL = "DELETE /webhooks/{application_id}/{token}/messages/@original"

TEXT, DM, PUBLIC_THREAD, PRIVATE_THREAD = 0, 1, 11, 12


@dataclass(slots=True)
class Call:
    """One request, as it came. `status` is 0 while it is not answered and -1 if its connection was dropped or the client went away."""

    route: str
    """Method and template, as the constants of this module are."""
    path: dict[str, str]
    query: dict[str, str]
    body: Any
    """The JSON; of a multipart request its `payload_json`. With `files` beside it: field, filename, content_type, content."""
    at: float
    """`time.monotonic` of its arrival."""
    channel: int | None = None
    authorization: str = ""
    files: list[Json] = field(default_factory=list)
    peer: int = 0
    status: int = 0
    code: int = 0
    message: str = ""

    @property
    def ok(self) -> bool:
        return 200 <= self.status <= 299

    @property
    def content(self) -> str:
        """The text of a create, an edit or a callback; "" where it has none."""
        if not isinstance(self.body, dict):
            return ""
        return str(self.body.get("content") or (self.body.get("data") or {}).get("content") or "")


@dataclass(slots=True)
class Person:
    id: int
    name: str
    bot: bool = False
    closed: bool = False
    """Takes no direct messages."""

    def json(self) -> Json:
        body: Json = {
            "id": str(self.id),
            "username": self.name.lower(),
            "global_name": self.name,
            "discriminator": "0",
            "avatar": None,
            "public_flags": 0,
        }
        return body | {"bot": True} if self.bot else body


@dataclass(slots=True)
class Role:
    id: int
    name: str
    permissions: int
    position: int = 1

    def json(self) -> Json:
        return {
            "id": str(self.id),
            "name": self.name,
            "color": 0,
            "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
            "hoist": False,
            "position": self.position,
            "permissions": str(self.permissions),
            "managed": False,
            "mentionable": False,
            "flags": 0,
        }


@dataclass(slots=True)
class Member:
    person: Person
    roles: set[int] = field(default_factory=set)
    nick: str | None = None

    def json(self) -> Json:
        """Without its user."""
        return {
            "roles": [str(role) for role in sorted(self.roles)],
            "nick": self.nick,
            "avatar": None,
            "joined_at": "2024-01-01T00:00:00.000000+00:00",
            "premium_since": None,
            "deaf": False,
            "mute": False,
            "pending": False,
            "flags": 0,
        }


@dataclass(slots=True)
class Guild:
    id: int
    name: str
    owner: int
    roles: dict[int, Role] = field(default_factory=dict)
    """The one whose id is the guild's is everyone's."""
    members: dict[int, Member] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.roles.setdefault(self.id, Role(self.id, "@everyone", EVERYONE, 0))


@dataclass(slots=True)
class Message:
    """A message as it stands now."""

    id: int
    channel: int
    author: Person
    content: str
    timestamp: str
    type: int = 0
    edited: str | None = None
    components: list[Json] = field(default_factory=list)
    embeds: list[Json] = field(default_factory=list)
    attachments: list[Json] = field(default_factory=list)
    reply_to: int | None = None
    nonce: str | int | None = None
    flags: int = 0
    mentions: list[int] = field(default_factory=list)
    mention_roles: list[int] = field(default_factory=list)
    mention_everyone: bool = False
    pings: set[str] = field(default_factory=set)
    """Whom it notified: user ids, role ids with a "&", "everyone"."""
    allowed_mentions: Json | None = None
    """As the newest create or edit had it."""
    interaction: int | None = None
    """It is a response to this one."""
    edits: int = 0
    fields: Json = field(default_factory=dict)
    """What a test wants otherwise in its JSON."""

    @property
    def text(self) -> str:
        return self.content

    @property
    def buttons(self) -> list[tuple[str, str]]:
        """(label, custom id) of each button, row by row."""
        return [
            (str(button.get("label", "")), str(button.get("custom_id", "")))
            for row in self.components
            for button in row.get("components") or ()
            if button.get("type") == 2
        ]

    @property
    def ephemeral(self) -> bool:
        """Only the person who asked sees it."""
        return bool(self.flags & 64)

    @property
    def loading(self) -> bool:
        """ "... is thinking": a deferred response without an answer yet."""
        return bool(self.flags & 128)


@dataclass(slots=True)
class Channel:
    """A text channel, a thread or a direct chat. Tests may set `refusal` (a code), `archived` and `locked` directly."""

    id: int
    type: int
    name: str = ""
    guild: int | None = None
    parent: int | None = None
    owner: int = 0
    recipient: int | None = None
    overwrites: dict[int, tuple[int, int]] = field(default_factory=dict)
    """role or member -> (allow, deny)."""
    messages: dict[int, Message] = field(default_factory=dict)
    last_message: int | None = None
    archived: bool = False
    locked: bool = False
    typing: list[float] = field(default_factory=list)
    """`time.monotonic` of each typing call."""
    refusal: int | None = None
    flood_until: float = 0.0
    flood_told: bool = False

    @property
    def is_thread(self) -> bool:
        return self.type in (PUBLIC_THREAD, PRIVATE_THREAD)


@dataclass(slots=True)
class Interaction:
    """Something a person did: a slash command, a pressed button, an autocomplete that waits."""

    id: int
    token: str
    type: int
    channel: int
    user: int
    data: Json
    message: int | None = None
    """The one whose button was pressed."""
    created: float = field(default_factory=time.monotonic)
    acknowledged: float | None = None
    """`time.monotonic` of the callback that was taken."""
    callback: Json | None = None
    """Its body."""
    original: int | None = None
    """The message id of the first response."""
    followups: list[int] = field(default_factory=list)
    choices: list[Json] | None = None
    """What an autocomplete was answered."""

    @property
    def age(self) -> float:
        return time.monotonic() - self.created

    @property
    def delay(self) -> float | None:
        """Seconds from the event to the callback that was taken."""
        return None if self.acknowledged is None else self.acknowledged - self.created

    def age_by(self, seconds: float) -> None:
        """Make it older, as if that time had passed."""
        self.created -= seconds

    def expire(self) -> None:
        """Let its token die, as it does after 15 minutes."""
        self.age_by(15 * 60 + 1)


@dataclass(slots=True)
class Fault:
    """A planned misbehaviour; handed to the test. `hits` counts how often it struck; `remove()` ends it."""

    route: str
    channel: int | None
    times: int | None
    when: Callable[[Call], bool] | None
    act: str
    status: int = 0
    code: int = 0
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    after: bool = False
    hits: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """hold: a request has arrived (and had its effect, unless `before`)."""
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        """hold: let the held requests go on."""
        self.released.set()

    def remove(self) -> None:
        self.times = 0
        self.released.set()

    def strikes(self, call: Call) -> bool:
        if self.times == 0 or self.route not in (call.route, "*") or (self.channel is not None and self.channel != call.channel):
            return False
        if self.when is not None and not self.when(call):
            return False
        self.hits += 1
        if self.times is not None:
            self.times -= 1
        return True
