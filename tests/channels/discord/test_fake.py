"""`tests.fakes.discord` against the real discord.py: that it logs in, hears, answers, and carries many channels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import discord
import pytest

from tests.channels.discord.library import Client, connected, serving
from tests.fakes.discord import DEFAULT_USER, FakeDiscord
from tests.fakes.discord_state import EDIT, SEND


@pytest.fixture
async def dc() -> AsyncIterator[FakeDiscord]:
    async with serving() as fake:
        yield fake


async def test_a_conversation(dc: FakeDiscord) -> None:
    """Log in, hear a message in a direct chat and one in a guild, send, edit: a person sees the edited text."""
    chat, room = dc.dm(), dc.channel()
    async with connected(dc) as client:
        dc.say(chat, "hello")
        await dc.wait_for(lambda: client.heard)
        message = client.heard[0]
        assert (message.content, message.author.id, message.channel.id) == ("hello", DEFAULT_USER, chat)
        sent = await message.channel.send("hi")
        assert dc.visible(chat) == ["hi"]
        await sent.edit(content="hi there")
        assert dc.visible(chat) == ["hi there"]
        dc.say(room, f"<@{dc.bot.id}> you?")
        await dc.wait_for(lambda: len(client.heard) == 2)
        assert client.user in client.heard[1].mentions
        await client.heard[1].reply("me")
        assert dc.visible(room) == ["me"]
        assert [call.ok for call in dc.calls_of(SEND) + dc.calls_of(EDIT)] == [True] * 3


async def test_a_hundred_channels(dc: FakeDiscord) -> None:
    """Five turns in each of a hundred channels, each with a placeholder and an edit, take seconds; each answer is in its channel."""
    rooms = [dc.channel(name=f"room-{n}") for n in range(100)]

    class Echo(Client):
        async def on_message(self, message: discord.Message) -> None:
            if message.author != self.user:
                placed = await message.channel.send("…")
                await placed.edit(content=f"echo {message.content}")

    async def talk(room: int) -> None:
        expected: list[str] = []
        for n in range(5):
            dc.say(room, f"{room} {n}")
            expected.append(f"echo {room} {n}")
            await dc.wait_for(lambda: dc.visible(room) == expected, 30, channel=room)

    async with connected(dc, client=Echo()):
        await asyncio.gather(*map(talk, rooms))
    assert len(dc.calls_of(SEND)) == len(dc.calls_of(EDIT)) == 500
