"""Growing answers on Discord as the lanes send them: under the service's limits, and with the typing sign."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from channels.base import Address, Retry, Unknown
from channels.discord.channel import DiscordChannel
from channels.discord.settings import Settings
from gateway.outbox import Delivery, Outbox
from tests.channels.discord.support import running
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_pace import Limit
from tests.fakes.discord_state import EDIT, SEND, TYPING
from tests.gateway.outbox_net import Book


@asynccontextmanager
async def lanes(channel: DiscordChannel) -> AsyncIterator[Outbox]:
    outbox = Outbox({"discord": channel}, Book())
    try:
        yield outbox
    finally:
        await outbox.close()


def answer(chat: Address, text: str, reply_to: str = "") -> Delivery:
    return Delivery(f"discord:7:{chat.chat}:1", f"discord:{chat.chat}", chat, text, answer=("main", 2), reply_to=reply_to)


async def test_a_fast_model_stays_below_the_limits(dc: FakeDiscord, started: DiscordChannel) -> None:
    """C23: 200 words a second for two seconds in three chats, 5 writes in 2 s each: edits are coalesced, hardly a 429, the final text soon
    after the last word, nothing after it, and another chat is not affected."""
    dc.pace.limit = Limit(5, 2.0)
    chats = [Address("discord", str(dc.dm(n))) for n in (1, 2, 3)]
    words = [f"w{n} " for n in range(400)]
    async with lanes(started) as outbox:
        streams = [outbox.stream(chat, f"discord:7:{chat.chat}:1") for chat in chats]
        for n, word in enumerate(words):
            for stream in streams:
                stream.grow(word)
            await asyncio.sleep(0.005)  # the pace of the model is what is tested
            if n == 200:
                other = Address("discord", str(dc.dm(4)))
                await asyncio.wait_for(outbox.put(Delivery("i", "k", other, "quick reply")), 1)
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(outbox.put(answer(chat, "".join(words)), stream) for chat, stream in zip(chats, streams, strict=True)))
        assert asyncio.get_running_loop().time() - began < 4
    for chat in chats:
        assert dc.visible(int(chat.chat)) == ["".join(words).strip()]
        calls = [call for call in dc.calls if call.channel == int(chat.chat) and call.route in (SEND, EDIT)]
        assert [call.status for call in calls].count(429) < 3
        assert calls[-1].content == "".join(words).strip()


@pytest.mark.parametrize("how", ["answered", "abandoned", "refused"])
async def test_the_typing_sign_ends_with_the_turn(dc: FakeDiscord, started: DiscordChannel, how: str) -> None:
    """C25: in a thread as in a chat, however the turn ends; a sign that hangs holds nothing up."""
    started.adjust(Settings(group_per_minute=0))
    room = dc.channel()
    thread = dc.thread(room)
    place = Address("discord", str(room), str(thread))
    held = dc.hold("POST /channels/{channel_id}/typing", times=None)
    async with lanes(started) as outbox:
        stream = outbox.stream(place, "discord:7:5:1", direct=False)
        await dc.wait_for(lambda: held.hits == 1)
        if how == "abandoned":
            stream.abandon()
        else:
            if how == "refused":
                dc.forbid(room, "send_messages_in_threads")
            await asyncio.wait_for(outbox.put(answer(place, "done"), stream), 3)
        held.release()
        await dc.wait_for(lambda: len(outbox) == 0, timeout=10)
        assert held.hits == 1
    assert dc.visible(thread) == (["done"] if how == "answered" else [])


async def test_an_answer_to_a_slash_command_grows_in_its_place(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C01: streamed into the deferred place, with what does not fit in follow-ups; the channel's own limit is not touched."""
    async with running(dc, channel) as gateway:
        channel.adjust(Settings(group_per_minute=0))
        room = dc.channel()
        dc.slash(room, "retry")
        await dc.wait_for(lambda: gateway.inbounds)
        (inbound,) = gateway.inbounds
        async with lanes(channel) as outbox:
            stream = outbox.stream(inbound.address, inbound.id, direct=False, reply_to=inbound.ticket)
            text = "word " * 500
            for _ in range(25):
                stream.grow("word " * 20)
                await asyncio.sleep(0.01)
            delivery = Delivery(inbound.id, "discord:1", inbound.address, text, answer=("main", 2), reply_to=inbound.ticket, direct=False)
            await outbox.put(delivery, stream)
        assert " ".join(dc.visible(room)).split() == ["word"] * 500
        assert len(dc.messages(room)) == 2
        assert dc.calls_of(SEND) == []


async def test_a_flood_wait_is_kept_and_the_answer_comes_once(dc: FakeDiscord, started: DiscordChannel) -> None:
    """B20: told to wait in mid-stream: not one call for that channel before its time, no typing sign neither; others do not notice."""
    chat, other = (Address("discord", str(dc.dm(user))) for user in (1, 2))
    async with lanes(started) as outbox:
        stream = outbox.stream(chat, "discord:7:1:1")
        stream.grow("One ")
        await dc.wait_for(lambda: dc.visible(int(chat.chat)) == ["One"])
        dc.flood(int(chat.chat), 2.5)
        stream.grow("two ")
        place = dc.channels[int(chat.chat)]
        await dc.wait_for(lambda: place.flood_told)
        final = outbox.put(answer(chat, "One two three."), stream)
        await outbox.put(Delivery("i", "k", other, "quick"))
        assert time.monotonic() < place.flood_until
        assert dc.visible(int(other.chat)) == ["quick"]
        await asyncio.wait_for(final, 10)
    assert dc.visible(int(chat.chat)) == ["One two three."]
    assert dc.pace.impatient == []


async def test_what_passes_is_no_end_of_the_typing_sign(dc: FakeDiscord, started: DiscordChannel) -> None:
    """C25: a 502, a cut connection and a wait are told to the lane as what they are, which goes on; none is taken for a closed place."""
    chat = Address("discord", str(dc.dm(1)))
    dc.fail(TYPING, 502)
    dc.drop(TYPING)
    dc.fail(TYPING, 429, {"retry_after": 0.5})
    for kind in (Unknown, Unknown, Retry):
        with pytest.raises(kind):
            await started.typing(chat)
    await started.typing(chat)
