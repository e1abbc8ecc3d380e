"""Content is never doubled by a retry: each way by which words go out, met by each way in which a call can end, through the real lanes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from channels.base import Address, Button
from channels.telegram.channel import TelegramChannel
from gateway.outbox import Delivery, Outbox
from tests.channels.telegram.support import channel_for
from tests.fakes.telegram import FakeTelegram
from tests.gateway.core import until
from tests.gateway.outbox_net import Book

TEXT = "first " * 600 + "\n\n" + "second " * 400
When = Callable[[Any], bool]


@dataclass(frozen=True)
class Way:
    """How a call ends. `landed`: it has its effect; None where nobody is told that it has none, so that nobody repeats it blindly."""

    name: str
    plan: Callable[[FakeTelegram, When], Any]
    landed: bool | None


WAYS = [
    Way("429", lambda tg, when: tg.fail("*", 429, {"parameters": {"retry_after": 1}}, when=when), False),
    Way("reset before", lambda tg, when: tg.drop("*", when=when), None),
    Way("reset after", lambda tg, when: tg.drop("*", after=True, when=when), True),
    Way("hang before", lambda tg, when: tg.hold("*", before=True, when=when), None),
    Way("hang after", lambda tg, when: tg.hold("*", when=when), True),
    Way("500", lambda tg, when: tg.fail("*", 500, when=when), None),
    Way("502 page", lambda tg, when: tg.fail("*", 502, b"<html>Bad Gateway</html>", when=when), None),
]


@dataclass(frozen=True)
class Kind:
    """What goes out, and a word of the piece whose call is met. `edits`: the words come by edit, which may be repeated."""

    name: str
    text: str
    word: str
    answer: bool = True
    edits: bool = False
    buttons: tuple[Button, ...] = ()

    def to(self, chat: int) -> Delivery:
        place = Address("telegram", str(chat))
        answer = ("main", 2) if self.answer else None
        return Delivery(f"telegram:7:{chat}:1", f"telegram:{chat}", place, self.text, answer=answer, reply_to="1", buttons=self.buttons)


GO = (Button("Go", "/go"),)
KINDS = [
    Kind("growing answer", "hello there", "hello", edits=True),
    Kind("second piece of a growing answer", TEXT, "second", edits=True),
    Kind("whole answer", "hello there", "hello"),
    Kind("second piece of a whole answer", TEXT, "second"),
    Kind("reply with buttons", "hello there", "hello", answer=False, buttons=GO),
    Kind("second piece of a reply", TEXT, "second", answer=False, buttons=GO),
]


@pytest.fixture
async def tg() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as fake:
        yield fake


@pytest.fixture(params=["edit", "off"])
def streaming(request: pytest.FixtureRequest) -> str:
    made: str = request.param
    return made


@pytest.fixture
async def channel(tg: FakeTelegram, streaming: str, tmp_path: Path) -> AsyncIterator[TelegramChannel]:
    made = channel_for(tg, tmp_path, streaming=streaming, sends_per_second=0, chat_per_second=0)
    made._transport._read_seconds = 0.5
    await made.start([])
    yield made
    await made.close()


def kinds(streaming: str) -> list[Kind]:
    """Those that go out that way; replies are the same in both."""
    return [kind for kind in KINDS if kind.edits == (streaming == "edit") or not kind.answer]


def words(tg: FakeTelegram, chat: int) -> list[str]:
    return " ".join(tg.visible(chat)).split()


async def test_no_words_are_doubled(tg: FakeTelegram, channel: TelegramChannel, streaming: str) -> None:
    """What comes by edit is there once. A plain send is there once where it certainly had no effect or had one; else it is not sent again,
    and the books say that nobody knows. What stands behind it comes in each case."""
    book = Book()
    outbox = Outbox({"telegram": channel}, book, spread=lambda: 0.0)

    async def met(kind: Kind, way: Way, chat: int) -> None:
        delivery = kind.to(chat)
        tg.say(chat, "question")
        fault = way.plan(tg, lambda params: params.get("chat_id") == chat and kind.word in params.get("text", ""))
        await outbox.put(delivery, outbox.stream(delivery.address, delivery.input_id, reply_to="1") if kind.edits else None)
        fault.release()
        await outbox.put(Delivery(f"telegram:7:{chat}:2", f"telegram:{chat}", delivery.address, "behind it"))
        lost = way.landed is None and not kind.edits
        said = [word for word in kind.text.split() if not lost or word == "first"]
        assert words(tg, chat) == [*said, "behind", "it"], (kind, way)
        unknown = [line[2] for line in book.sent_of(delivery.input_id)]
        assert unknown == [*([False] if kind.word == "second" else []), not kind.edits and way.landed is not False], (kind, way)
        assert fault.hits == 1, (kind, way)

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for chat, (kind, way) in enumerate(product(kinds(streaming), WAYS), 42):
            group.create_task(met(kind, way, chat))
    await outbox.close()


async def test_a_connection_that_is_refused_is_tried_again(tg: FakeTelegram, channel: TelegramChannel, streaming: str) -> None:
    """Until the network is back; then all of it is there, once."""
    book = Book()
    outbox = Outbox({"telegram": channel}, book, spread=lambda: 0.0)
    chats = dict(enumerate(kinds(streaming), 42))
    for chat in chats:
        tg.say(chat, "question")
    await tg.stop()
    done = [outbox.put(kind.to(chat)) for chat, kind in chats.items()]
    await until(lambda: outbox.repeats()["telegram"] >= len(done))
    await tg.start()
    async with asyncio.timeout(20):
        await asyncio.gather(*done)
    for chat, kind in chats.items():
        assert words(tg, chat) == kind.text.split()
        assert not any(line[2] for line in book.sent_of(f"telegram:7:{chat}:1"))
    await outbox.close()
