"""Content is never doubled by a retry: each way by which words go out, met by each way in which a call can end, through the real lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from channels.base import Button, Inbound
from gateway.outbox import Delivery, Outbox
from tests.channels.discord.support import channel_for, running
from tests.fakes.discord import FakeDiscord
from tests.gateway.core import until
from tests.gateway.outbox_net import Book

TEXT = "first " * 300 + "\n\n" + "second " * 200
When = Callable[[Any], bool]


@dataclass(frozen=True)
class Way:
    """How a call ends. `told`: we hear that it had no effect."""

    name: str
    plan: Callable[[FakeDiscord, When], Any]
    told: bool = False
    landed: bool = False


WAYS = [
    Way("429", lambda dc, when: dc.fail("*", 429, {"retry_after": 0.2}, when=when), told=True),
    Way("reset before", lambda dc, when: dc.drop("*", when=when)),
    Way("reset after", lambda dc, when: dc.drop("*", after=True, when=when), landed=True),
    Way("hang before", lambda dc, when: dc.hold("*", before=True, when=when)),
    Way("hang after", lambda dc, when: dc.hold("*", when=when), landed=True),
    Way("500", lambda dc, when: dc.fail("*", 500, when=when)),
    Way("502 page", lambda dc, when: dc.fail("*", 502, b"<html>Bad Gateway</html>", when=when)),
]


@dataclass(frozen=True)
class Kind:
    """What goes out, and a word of the piece whose call is met. `blind`: a call that may be repeated by no means."""

    name: str
    text: str
    word: str
    answer: bool = True
    grows: bool = False
    slash: bool = False
    blind: bool = False
    buttons: tuple[Button, ...] = ()


GO = (Button("Go", "/help"),)
KINDS = [
    Kind("growing answer", "hello there", "hello", grows=True),
    Kind("second piece of a growing answer", TEXT, "second", grows=True),
    Kind("whole answer", "hello there", "hello"),
    Kind("second piece of a whole answer", TEXT, "second"),
    Kind("reply with buttons", "hello there", "hello", answer=False, buttons=GO),
    Kind("reply to a slash command", "hello there", "hello", answer=False, slash=True, buttons=GO),
    Kind("growing answer to a slash command", TEXT, "second", grows=True, slash=True),
    Kind("second piece of a whole answer to a slash command", TEXT, "second", slash=True, blind=True),
]


STREAMING = pytest.mark.parametrize("streaming", ["edit", "off"])


def kinds(streaming: str) -> list[Kind]:
    """Those that go out that way; replies are the same in both."""
    return [kind for kind in KINDS if kind.grows == (streaming == "edit") or not kind.answer]


def delivery(inbound: Inbound, kind: Kind) -> Delivery:
    chat = inbound.address.chat
    answer = ("main", 2) if kind.answer else None
    reply_to = inbound.ticket or inbound.reply_to
    return Delivery(inbound.id, f"discord:{chat}", inbound.address, kind.text, answer=answer, reply_to=reply_to, buttons=kind.buttons)


def words(dc: FakeDiscord, chat: int) -> list[str]:
    return " ".join(dc.visible(chat)).split()


@STREAMING
async def test_no_words_are_doubled(dc: FakeDiscord, tmp_path: Path, streaming: str) -> None:
    """Sends carry a nonce, edits may be repeated: the words are there once. Only what follows in a second message behind a slash command's
    place has neither: it is not sent again where nobody knows, and the books say so. What stands behind it comes in each case."""
    channel = channel_for(dc, tmp_path, streaming=streaming, sends_per_second=0, chat_per_second=0)
    channel._http._read_seconds = 0.5
    book = Book()
    outbox = Outbox({"discord": channel}, book, spread=lambda: 0.0)

    async def met(kind: Kind, way: Way, user: int) -> None:
        chat = dc.dm(user)
        if kind.slash:
            dc.slash(chat, "status", user=user)
        else:
            dc.say(chat, "question", user=user)
        await dc.wait_for(lambda: any(one.sender.id == str(user) for one in gateway.inbounds))
        inbound = next(one for one in gateway.inbounds if one.sender.id == str(user))
        due = delivery(inbound, kind)
        fault = way.plan(dc, lambda call: call.channel == chat and kind.word in (call.content or ""))
        await outbox.put(due, outbox.stream(due.address, due.input_id, reply_to=due.reply_to) if kind.grows else None)
        fault.release()
        await outbox.put(Delivery(f"{inbound.id}:2", due.key, due.address, "behind it"))
        lost = kind.blind and not way.told and not way.landed
        said = [word for word in kind.text.split() if not lost or word == "first"]
        assert words(dc, chat) == [*said, "behind", "it"], (kind, way)
        unknown = [line[2] for line in book.sent_of(due.input_id)]
        assert unknown == [*([False] if kind.word == "second" else []), kind.blind and not way.told], (kind, way)
        assert fault.hits == 1, (kind, way)

    async with running(dc, channel) as gateway, asyncio.timeout(30), asyncio.TaskGroup() as group:
        for user, (kind, way) in enumerate(product(kinds(streaming), WAYS), 100):
            group.create_task(met(kind, way, user))
    await outbox.close()
    await channel.close()


@STREAMING
async def test_a_connection_that_is_refused_is_tried_again(dc: FakeDiscord, tmp_path: Path, streaming: str) -> None:
    """Until the network is back; then all of it is there, once."""
    channel = channel_for(dc, tmp_path, streaming=streaming, sends_per_second=0, chat_per_second=0)
    book = Book()
    outbox = Outbox({"discord": channel}, book, spread=lambda: 0.0)
    async with running(dc, channel) as gateway:
        people = dict(enumerate(kinds(streaming), 100))
        for user, kind in people.items():
            if kind.slash:
                dc.slash(dc.dm(user), "status", user=user)
            else:
                dc.say(dc.dm(user), "question", user=user)
        await dc.wait_for(lambda: len(gateway.inbounds) == len(people))
        asked = {int(one.sender.id): one for one in gateway.inbounds}
        await dc.stop()
        done = [outbox.put(delivery(asked[user], kind)) for user, kind in people.items()]
        await until(lambda: outbox.repeats()["discord"] >= len(done))
        await dc.start()
        async with asyncio.timeout(20):
            await asyncio.gather(*done)
        for user, kind in people.items():
            assert words(dc, dc.dm(user)) == kind.text.split()
            assert not any(line[2] for line in book.sent_of(asked[user].id))
        await outbox.close()
    await channel.close()
