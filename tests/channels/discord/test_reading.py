"""What people say reaches the gateway, through the real library, from the fake's gateway."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from channels.base import Address
from channels.discord.channel import DiscordChannel
from tests.channels.discord.support import Gateway, running
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import PUBLIC_THREAD, Channel

GET_CHANNEL = "GET /channels/{channel_id}"


async def test_messages_come_in_order(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C21: each once, in the order in which they were written, however slow the gateway is with the first."""
    gateway = Gateway()
    go = asyncio.Event()
    accept = gateway.accept

    async def slow(batch: object) -> None:
        await go.wait()
        await accept(batch)  # type: ignore[arg-type]

    gateway.accept = slow  # type: ignore[method-assign]
    async with running(dc, channel, gateway):
        chat = dc.dm()
        for n in range(50):
            dc.say(chat, f"m{n}")
        await asyncio.sleep(0.05)
        go.set()
        await dc.wait_for(lambda: len(gateway.texts) == 50)
    assert gateway.texts == [f"m{n}" for n in range(50)]
    assert gateway.again == []


async def test_servers_threads_and_mentions(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """In a server it hears what mentions or answers it, by channel and thread, under the server's id; the words are people's."""
    async with running(dc, channel) as gateway:
        guild = dc.guild()
        room = dc.channel(guild, "general")
        thread = dc.thread(room)
        mods = dc.role(guild, "mods")
        dc.user(222, name="Bob")
        dc.say(room, "talk among people")
        dc.say(room, f"<@{dc.bot.id}> ask <@222> about <#{room}> and <@&{mods}>")
        dc.say(thread, f"<@!{dc.bot.id}> hello")
        dc.say(room, "@everyone <@&600000000000000001>")
        dc.say(dc.dm(), "direct")
        await dc.wait_for(lambda: len(gateway.inbounds) == 3)
        first, second, third = gateway.inbounds
        assert (first.text, first.address, first.group) == ("ask @Bob about #general and @mods", Address("discord", str(room)), str(guild))
        assert (second.text, second.address) == ("hello", Address("discord", str(room), str(thread)))
        assert (third.text, third.direct, third.group) == ("direct", True, "")


async def test_an_answer_to_the_bot_is_heard(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """Without a mention; one to somebody else is not."""
    async with running(dc, channel) as gateway:
        room = dc.channel()
        ours = dc.add(room, dc.bot, "my words").id
        theirs = dc.say(room, "their words")
        dc.say(room, "to them", reply_to=theirs)
        dc.say(room, "to us", reply_to=ours)
        await dc.wait_for(lambda: gateway.inbounds)
        assert [(inbound.text, inbound.quote) for inbound in gateway.inbounds] == [("to us", "my words")]


async def test_bots_and_webhooks_are_not_heard(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C06: neither in a thread where we take part nor directly."""
    async with running(dc, channel) as gateway:
        thread = dc.thread(dc.channel())
        other = dc.user(900, name="OtherBot", bot=True)
        dc.say(thread, f"<@{dc.bot.id}> hello", user=other)
        dc.say(thread, f"<@{dc.bot.id}> hello", webhook_id="5")
        dc.say(thread, f"<@{dc.bot.id}> end")
        await dc.wait_for(lambda: gateway.texts)
        assert gateway.texts == ["end"]


async def test_a_thread_is_the_same_place_on_every_path(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C12: known from the start, made later, archived meanwhile, by message and slash command: one address; another thread has another."""
    room = dc.channel()
    early = dc.thread(room, "early")
    async with running(dc, channel) as gateway:
        late, archived = dc.thread(room, "late"), dc.thread(room, "archived")
        for thread in (early, late, archived):
            dc.say(thread, f"<@{dc.bot.id}> one")
            dc.slash(thread, "status")
        await dc.wait_for(lambda: len(gateway.inbounds) == 6)
    dc.channels[archived].archived = True  # what is archived is not told of at the next start
    async with running(dc, channel, gateway):
        dc.say(archived, f"<@{dc.bot.id}> two")
        dc.say(archived, f"<@{dc.bot.id}> three")
        await dc.wait_for(lambda: len(gateway.inbounds) == 8)
    places = {thread: {i.address for i in gateway.inbounds if i.address.thread == str(thread)} for thread in (early, late, archived)}
    assert places == {thread: {Address("discord", str(room), str(thread))} for thread in (early, late, archived)}
    assert gateway.texts[-2:] == ["two", "three"]


def untold(dc: FakeDiscord, parent: int) -> int:
    """A thread of which the gateway says nothing."""
    thread = Channel(dc.new_id(), PUBLIC_THREAD, "untold", dc.channels[parent].guild, parent=parent)
    dc.channels[thread.id] = thread
    return thread.id


@pytest.mark.parametrize(("status", "body"), [(200, b'{"id": 5}'), (200, b'{"id": "5"}'), (200, b"[]"), (403, b"<html>"), (404, b"<html>")])
async def test_a_place_that_is_not_known_is_asked_for(dc: FakeDiscord, channel: DiscordChannel, status: int, body: bytes) -> None:
    """What is said there waits, in order, through a passing fault; other chats do not; it is asked once."""
    room = dc.channel()
    async with running(dc, channel) as gateway:
        thread = untold(dc, room)
        held = dc.hold(GET_CHANNEL, before=True)
        dc.fail(GET_CHANNEL, status, body)
        for n in range(3):
            dc.say(thread, f"<@{dc.bot.id}> {n}")
        dc.say(dc.dm(), "meanwhile")
        await dc.wait_for(lambda: gateway.texts == ["meanwhile"])
        held.release()
        await dc.wait_for(lambda: len(gateway.texts) == 4)
        assert gateway.texts == ["meanwhile", "0", "1", "2"]
        assert {inbound.address for inbound in gateway.inbounds[1:]} == {Address("discord", str(room), str(thread))}
        asked = len(dc.calls_of(GET_CHANNEL))
        dc.say(thread, f"<@{dc.bot.id}> 3")
        await dc.wait_for(lambda: len(gateway.texts) == 5)
        assert len(dc.calls_of(GET_CHANNEL)) == asked


async def test_a_place_that_is_not_shown_to_us_is_passed_over(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """Nothing waits for it for ever."""
    room = dc.channel()
    async with running(dc, channel) as gateway:
        thread = untold(dc, room)
        dc.fail(GET_CHANNEL, code=50001, times=None)
        dc.say(thread, f"<@{dc.bot.id}> hello")
        dc.say(dc.dm(), "still there?")
        await dc.wait_for(lambda: gateway.texts == ["still there?"])


async def test_edits_come_as_edits(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """With the id of their message; a preview that Discord adds is none."""
    async with running(dc, channel) as gateway:
        chat = dc.dm()
        number = dc.say(chat, "first")
        await dc.wait_for(lambda: gateway.texts)
        dc.change(dc.channels[chat].messages[number], embeds=[{"title": "x"}])
        dc.edit(chat, number, "second")
        await dc.wait_for(lambda: len(gateway.inbounds) == 2)
        edit = gateway.inbounds[1]
        assert (edit.kind, edit.text, edit.id) == ("edit", "second", gateway.inbounds[0].id)


async def test_withheld_words_are_told_once(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C05: content that does not come makes one warning that names the intent, and no turn; a direct chat works."""
    async with running(dc, channel) as gateway:
        with capture_logs() as logs:
            room = dc.channel()
            for _ in range(3):
                dc.say(room, "", mentions=[dc.bot.json()])
            dc.say(room, f"<@{dc.bot.id}>")
            dc.say(dc.dm(), "hello")
            await dc.wait_for(lambda: len(gateway.inbounds) == 2)
        assert gateway.texts == ["", "hello"]
        warnings = [entry["event"] for entry in logs if entry["log_level"] == "warning"]
        assert len(warnings) == 1
        assert "Message Content" in warnings[0]


async def test_a_full_disk_keeps_what_was_heard(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """Discord never repeats: what could not be stored is handed over again until it is, in order, once."""
    gateway = Gateway()
    gateway.full = 1
    async with running(dc, channel, gateway):
        chat = dc.dm()
        for n in range(5):
            dc.say(chat, f"{n}")
        await dc.wait_for(lambda: len(gateway.texts) == 5, timeout=10)
    assert gateway.texts == [f"{n}" for n in range(5)]


async def test_the_sign_of_life_is_the_gateway_s(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """It moves with heartbeats, where nobody writes."""
    dc.gateway.heartbeat_interval = 0.05
    async with running(dc, channel):
        before = channel.last_sign_of_life()
        await dc.wait_for(lambda: channel.last_sign_of_life() > before)
