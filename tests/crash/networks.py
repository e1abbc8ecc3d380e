"""The fakes of both networks under one face: what people do there, and what they see. Knows the fakes and nothing of Parlour."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import DELETE, EDIT, EDIT_ORIGINAL, HISTORY, SEND, Interaction
from tests.fakes.discord_world import BOT
from tests.fakes.telegram import FakeTelegram

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """Where a person talks: a chat, or a topic of one."""

    network: str
    chat: int
    thread: int = 0
    user: int = 0
    """Who, in a group."""

    @property
    def folder(self) -> str:
        """Of the key, below `sessions`."""
        return f"{self.network}/{self.chat}:{self.thread}" if self.thread else f"{self.network}/{self.chat}"

    @property
    def key(self) -> tuple[str, int, int]:
        """The same for all who talk there."""
        return self.network, self.chat, self.thread


class Held(Protocol):
    """A planned hold of a fake."""

    after: bool
    times: int | None
    reached: asyncio.Event

    def remove(self) -> None: ...


@dataclass(frozen=True)
class Request:
    """A call to a network, for stories."""

    at: float
    what: str
    text: str
    status: int


class Network(Protocol):
    """One network."""

    name: str
    methods: Mapping[str, str]
    """What a kill may strike: our word for it -> the fake's."""

    def say(self, place: Place, text: str) -> str:
        """A message or a command; in a group the bot is addressed. Gives the input's id, as it is on record."""

    def edit(self, place: Place, input_id: str, text: str) -> None:
        """Its author changes a message."""

    def press(self, place: Place, data: str) -> str | None:
        """Press the newest button that does this; None where there is none."""

    def messages(self, place: Place) -> list[tuple[str, str]]:
        """The bot's messages, as their ids and the texts that a person sees now, oldest first, but for those that took the place of
        "thinking"."""

    def shown_for(self, input_id: str) -> list[str] | None:
        """What took the place of "thinking" behind a slash command: [] while the bot thinks; None for anything else."""

    async def wait_for(self, predicate: Callable[[], T], timeout: float, place: Place | None = None) -> T: ...

    def hold(self, method: str, *, before: bool, chat: int | None = None, skip: int = 0, ending: str = "") -> Held:
        """Withhold the answer to a call (one of `methods`), or with `before` its effect too; the first `skip` of them pass. `ending`: only
        one whose text ends so."""

    def requests(self, place: Place) -> list[Request]:
        """All calls about a chat so far."""


def after(skip: int) -> Callable[[object], bool]:
    """For a planned fault: it strikes at the call behind the first `skip` ones."""
    left = [skip]

    def strikes(_: object) -> bool:
        left[0] -= 1
        return left[0] < 0

    return strikes


class OnTelegram:
    """Telegram."""

    name = "telegram"
    methods: Mapping[str, str] = {
        "any": "*",
        "send": "sendMessage",
        "edit": "editMessageText",
        "delete": "deleteMessage",
        "read": "getUpdates",
    }

    def __init__(self, tg: FakeTelegram) -> None:
        self.tg = tg
        self.bot = tg.bot_id

    def say(self, place: Place, text: str) -> str:
        if place.chat < 0:
            words = text if text.startswith("/") else f"@{self.tg.username} {text}"
            number = self.tg.say(place.chat, words, thread=place.thread or None, user=place.user)
        else:
            number = self.tg.say(place.chat, text)
        return f"telegram:{self.bot}:{place.chat}:{number}"

    def edit(self, place: Place, input_id: str, text: str) -> None:
        words = f"@{self.tg.username} {text}" if place.chat < 0 else text
        self.tg.edit(place.chat, int(input_id.rpartition(":")[2]), words)

    def press(self, place: Place, data: str) -> str | None:
        try:
            return f"telegram:{self.bot}:{place.chat}:cb{self.tg.press(place.chat, data)}"
        except AssertionError:
            return None

    def messages(self, place: Place) -> list[tuple[str, str]]:
        return [(str(shown.id), shown.text) for shown in self.tg.messages(place.chat, place.thread if place.chat < 0 else None)]

    def shown_for(self, input_id: str) -> list[str] | None:
        return None

    async def wait_for(self, predicate: Callable[[], T], timeout: float, place: Place | None = None) -> T:
        return await self.tg.wait_for(predicate, timeout, chat=place.chat if place else None)

    def hold(self, method: str, *, before: bool, chat: int | None = None, skip: int = 0, ending: str = "") -> Held:
        passes = after(skip)
        return self.tg.hold(
            self.methods[method],
            before=before,
            chat=chat,
            when=lambda params: str(params.get("text", "")).endswith(ending) and passes(params),
        )

    def requests(self, place: Place) -> list[Request]:
        return [
            Request(call.at, call.method, str(call.params.get("text", ""))[:60], call.status)
            for call in self.tg.calls
            if call.chat == place.chat
        ]


class OnDiscord:
    """Discord. Code marks, which Telegram has beside the text, are left out of what is seen."""

    name = "discord"
    methods: Mapping[str, str] = {
        "any": "*",
        "send": SEND,
        "edit": EDIT,
        "delete": DELETE,
        "read": HISTORY,
        "slash": EDIT_ORIGINAL,
    }

    def __init__(self, dc: FakeDiscord) -> None:
        self.dc = dc
        self._slashes: dict[str, Interaction] = {}

    def say(self, place: Place, text: str) -> str:
        words = f"<@{BOT}> {text}" if self.dc.channels[place.chat].guild is not None else text
        return f"discord:{BOT}:{place.chat}:{self.dc.say(place.chat, words, user=place.user or None)}"

    def edit(self, place: Place, input_id: str, text: str) -> None:
        words = f"<@{BOT}> {text}" if self.dc.channels[place.chat].guild is not None else text
        self.dc.edit(place.chat, int(input_id.rpartition(":")[2]), words)

    def press(self, place: Place, data: str) -> str | None:
        try:
            return f"discord:{BOT}:{place.chat}:i{self.dc.press(place.chat, data).id}"
        except AssertionError:
            return None

    def slash(self, place: Place, text: str) -> str:
        """The same command by the client's menu."""
        name, _, argument = text.removeprefix("/").partition(" ")
        item = self.dc.slash(place.chat, name, {"name": argument} if argument else None)
        input_id = f"discord:{BOT}:{place.chat}:i{item.id}"
        self._slashes[input_id] = item
        return input_id

    @property
    def told(self) -> bool:
        """The bot's commands are registered: people can find them."""
        return bool(self.dc.commands.get(None))

    def acknowledged(self, input_id: str) -> bool:
        """The person saw that the bot thinks."""
        return self._slashes[input_id].acknowledged is not None

    def messages(self, place: Place) -> list[tuple[str, str]]:
        own = {number for item in self._slashes.values() if item.channel == place.chat for number in (item.original, *item.followups)}
        return [
            (str(message.id), message.content.replace("`", ""))
            for message in self.dc.messages(place.chat)
            if message.id not in own and not message.loading and message.type in (0, 19, 20)
        ]

    def shown_for(self, input_id: str) -> list[str] | None:
        item = self._slashes.get(input_id)
        if item is None:
            return None
        messages = self.dc.channels[item.channel].messages
        found = [messages[number] for number in (item.original, *item.followups) if number is not None and number in messages]
        return [message.content.replace("`", "") for message in found if not message.loading]

    async def wait_for(self, predicate: Callable[[], T], timeout: float, place: Place | None = None) -> T:
        return await self.dc.wait_for(predicate, timeout, channel=place.chat if place else None)

    def hold(self, method: str, *, before: bool, chat: int | None = None, skip: int = 0, ending: str = "") -> Held:
        passes = after(skip)
        return self.dc.hold(
            self.methods[method], before=before, channel=chat, when=lambda call: call.content.endswith(ending) and passes(call)
        )

    def requests(self, place: Place) -> list[Request]:
        return [
            Request(call.at, call.route, str(call.body.get("content", "") if isinstance(call.body, dict) else "")[:60], call.status)
            for call in self.dc.calls
            if call.channel == place.chat
        ]
