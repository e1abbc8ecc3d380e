"""What the fake of Telegram keeps: calls, messages, chats, planned faults. Values only; used by `tests.fakes.telegram`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.telegram_rules import Json


@dataclass(slots=True)
class Call:
    """One request, as it came. `status` is 0 while it is not answered and -1 if its connection was dropped or the client went away."""

    method: str
    params: Json
    at: float
    """`time.monotonic` of its arrival."""
    chat: int | None
    peer: int = 0
    """The client's port: two calls with the same one came over one connection."""
    status: int = 0
    description: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 200


@dataclass(slots=True)
class Shown:
    """A message of the bot's, as it stands now."""

    id: int
    chat: int
    thread: int | None
    text: str
    entities: list[Json]
    markup: Json | None
    reply_to: int | None
    date: int
    edits: int = 0
    file: Json | None = None

    @property
    def buttons(self) -> list[tuple[str, str]]:
        """(label, data) of each button, row by row."""
        rows = self.markup["inline_keyboard"] if self.markup else []
        return [(button["text"], button["callback_data"]) for row in rows for button in row]


@dataclass(slots=True)
class Chat:
    """One chat's state. Tests may set `is_forum`, `refusal` (status, description) and `moved_to` directly."""

    id: int
    type: str
    title: str = ""
    is_forum: bool = False
    topics: set[int] = field(default_factory=set)
    last_id: int = 0
    shown: dict[int, Shown] = field(default_factory=dict)
    theirs: dict[int, Json] = field(default_factory=dict)
    admins: list[Json] = field(default_factory=list)
    refusal: tuple[int, str] | None = None
    moved_to: int | None = None
    flood_until: float = 0.0
    flood_told: bool = False
    typing: int = 0

    def json(self) -> Json:
        if self.type == "private":
            return {"id": self.id, "type": "private", "first_name": f"P{self.id}"}
        body: Json = {"id": self.id, "type": self.type, "title": self.title or f"Group {self.id}"}
        return body | {"is_forum": True} if self.is_forum else body


@dataclass(slots=True)
class Fault:
    """A planned misbehaviour; handed to the test. `hits` counts how often it struck; `remove()` ends it."""

    method: str
    chat: int | None
    times: int | None
    when: Callable[[Json], bool] | None
    act: str
    status: int = 0
    body: Any = None
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
        if self.times == 0 or self.method not in (call.method, "*") or (self.chat is not None and self.chat != call.chat):
            return False
        if self.when is not None and not self.when(call.params):
            return False
        self.hits += 1
        if self.times is not None:
            self.times -= 1
        return True
