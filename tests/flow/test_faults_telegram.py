"""Each kind of request to Telegram, met by each way to go wrong: the chat goes on, and nobody else notices.

What may be lost is written down here: a text of which nobody can say whether it arrived is not sent again (`Way.blind`), one that was
refused because there is nobody to speak to neither. Whatever was asked next is answered in every case, without a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from gateway.outbox.final import NOT_TAKEN
from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.fakes.telegram_rules import Json
from tests.flow.daemon import TOKEN, Daemon
from tests.flow.faults import ALL, PATIENCE, Bystander, Script, Way, beside, chosen, ways
from tests.flow.people import config
from tests.flow.seen import BOTH, until

BEGUN = "…"
WAYS = ways(
    wait={"parameters": {"retry_after": 1}},
    no_wait="Too Many Requests",
    nonsense=[
        ("result number", {"ok": True, "result": 42}),
        ("result null", {"ok": True, "result": None}),
        ("result list", {"ok": True, "result": [None]}),
        ("result string", {"ok": True, "result": "\ud800"}),
        ("not ok", {"ok": False, "result": {}}),
    ],
)


@dataclass(frozen=True)
class Request:
    """A kind of request, and how a person brings it about. `said` is what the chat must show of that, once."""

    name: str
    method: str
    begin: Callable[[FakeTelegram, int], object]
    said: Callable[[int], str]
    when: Callable[[Json], bool] | None = None
    sends: bool = False
    """The text itself is in it, and it may not be repeated blindly."""
    lost: tuple[str, ...] = ()
    """Ways behind which nothing is said."""
    group: bool = False
    streaming: str = "edit"

    def loses(self, way: Way) -> bool:
        """What was to be said is not said again, so that the next fault of that kind would meet the next answer."""
        return way.name in self.lost or (self.sends and way.blind) or self.name == "press"


def whoami(chat: int) -> str:
    return f"telegram:{chat}"


def press(tg: FakeTelegram, chat: int) -> None:
    tg.callback("/whoami", {"message_id": 1, "date": 1, "chat": {"id": chat, "type": "private"}}, user=chat)


def attach(tg: FakeTelegram, chat: int) -> None:
    tg.files[f"F{chat}"] = b"some words"
    tg.say(
        chat, caption="look", document={"file_id": f"F{chat}", "file_unique_id": "f", "file_name": "notes.txt", "mime_type": "text/plain"}
    )


REQUESTS = [
    Request(
        "placeholder", "sendMessage", lambda tg, c: tg.say(c, "one"), lambda c: "Heard: one", lambda p: p["text"] == BEGUN, lost=("403",)
    ),
    Request(
        "growing",
        "editMessageText",
        lambda tg, c: tg.say(c, f"slow {c}"),
        lambda c: f"One slow {c}.",
        lambda p: p["text"] == "One",
        lost=("403",),
    ),
    Request(
        "last edit",
        "editMessageText",
        lambda tg, c: tg.say(c, f"slow {c}"),
        lambda c: f"One slow {c}.",
        lambda p: p["text"] != "One",
        lost=("403",),
    ),
    Request("file", "getFile", attach, lambda c: "look"),
    Request("typing", "sendChatAction", lambda tg, c: tg.say(c, f"late {c}"), lambda c: f"late {c}."),
    Request("reply", "sendMessage", lambda tg, c: tg.say(c, "/whoami"), whoami, sends=True, lost=("403",)),
    Request(
        "press",
        "answerCallbackQuery",
        press,
        whoami,
    ),
    Request("admins", "getChatAdministrators", lambda tg, c: tg.say(c, "/reset@OurBot"), lambda c: "", group=True),
    Request("answer", "sendMessage", lambda tg, c: tg.say(c, "one"), lambda c: "Heard: one", sends=True, lost=("403",), streaming="off"),
]
REFUSALS = frozenset({"400", "409"})
"""A text that is refused is tried as plain text, and then given up: the person reads that something is missing."""
READING = ("200 result list", "hang")


@dataclass
class World:
    tg: FakeTelegram
    script: Script = field(default_factory=Script)
    chats: count[int] = field(default_factory=lambda: count(1000))

    async def case(self, request: Request, way: Way, times: int) -> None:
        """One fault in a chat of its own; the next question there is answered, and what was asked before it is answered once."""
        tg, chat = self.tg, next(self.chats)
        if request.group:
            chat = -chat
        fault = way.plan(tg, request.method, times=times, when=self._when(request, chat))
        try:
            request.begin(tg, chat)
            if request.name == "last edit":
                self.script.go_on(f"slow {chat}")
            await tg.wait_for(lambda: fault.hits, PATIENCE)
            self.script.go_on(f"{'late' if request.name == 'typing' else 'slow'} {chat}")
            question = f"next {chat}"
            tg.say(chat, f"@OurBot {question}" if request.group else question)
            seen = await until(tg, chat, lambda seen: seen and seen[-1].startswith("Heard:") and question in seen[-1], PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{request.name}, {way.name}, {times} times: {error}") from None
        said = [text for text in seen[:-1] if text not in (BEGUN, NOT_TAKEN)]
        copies = sum(request.said(chat) in text for text in said)
        gone = way.name in request.lost  # what was there of it stays as it is: nobody can be spoken to
        assert copies <= 1, (request.name, way.name, times, seen)
        words = request.sends or request.name == "last edit"
        tried_in_vain = (request.sends and way.blind) or (words and times > 1 and way.name in REFUSALS)
        assert copies or gone or tried_in_vain, (request.name, way.name, times, seen)
        assert NOT_TAKEN not in seen or (not copies and way.name in REFUSALS), (request.name, way.name, times, seen)
        assert gone or len(said) == copies, (request.name, way.name, times, seen)
        if copies and not way.blind:
            assert BEGUN not in seen, (request.name, way.name, times, seen)

    @staticmethod
    def _when(request: Request, chat: int) -> Callable[[Json], bool]:
        if request.method == "answerCallbackQuery":
            return lambda params: True
        if request.method == "getFile":
            return lambda params: params.get("file_id") == f"F{chat}"
        return lambda params: params.get("chat_id") == chat and (request.when is None or request.when(params))

    async def reading(self, way: Way) -> None:
        """One fault of the reading half, which all chats share: the next message is answered."""
        chat = next(self.chats)
        fault = way.plan(self.tg, "getUpdates")
        await self.tg.wait_for(lambda: fault.hits, PATIENCE)
        self.tg.say(chat, "behind it")
        await until(self.tg, chat, lambda seen: seen == ["Heard: behind it"], PATIENCE)


def clean(daemon: Daemon) -> None:
    """A network's fault is no fault of ours, and nobody reads the token."""
    said = daemon.text()
    for bad in ("Traceback", "never retrieved", "put aside", 'failed"', TOKEN, TOKEN.partition(":")[2]):
        assert bad not in said, said[max(0, said.find(bad) - 1500) :][:4000]


@BOTH
@pytest.mark.timeout(900 if ALL else 60)
async def test_each_request_survives_each_fault(tmp_path: Path, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """Sends, edits, signs, presses, questions about admins: refused, delayed, unanswered or answered with nonsense, once or three times.
    Somebody in another chat talks all along and is answered each time; no traceback, no token in the log."""
    world = World(tg)
    model.script(world.script.answer)
    async with Daemon(tmp_path, config(tg, model, streaming=streaming)) as daemon:
        cases = [
            world.case(request, way, times)
            for request in REQUESTS
            if streaming in ("edit", request.streaming) and (ALL or request.streaming == streaming)
            for way in chosen(WAYS, again=streaming == "off")
            for times in ((1, 3) if ALL and not request.loses(way) else (1,))
        ]
        ben = Bystander(lambda text: tg.say(7, text), lambda text: until(tg, 7, lambda seen: seen[-1:] == [f"Heard: {text}"], PATIENCE))
        await beside(ben, cases)
        assert await daemon.stop() == 0
        assert len(tg.visible(7)) == ben.turns
    clean(daemon)


@pytest.mark.timeout(900 if ALL else 60)
async def test_reading_survives_each_fault(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """getUpdates, one fault after the other, a hang among them: the message behind each is answered once."""
    world = World(tg)
    quick = config(tg, model).replace('poll_timeout = "5s"', 'poll_timeout = "1s"')
    async with Daemon(tmp_path, quick) as daemon:
        for way in WAYS if ALL else [way for way in WAYS if way.name in READING]:
            await world.reading(way)
        assert await daemon.stop() == 0
    clean(daemon)
