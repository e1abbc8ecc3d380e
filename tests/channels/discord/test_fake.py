"""`tests.fakes.discord` against the real discord.py: that it logs in, hears, answers and comes back as with the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import discord
import pytest
import yarl

from tests.fakes.discord import DEFAULT_USER, FakeDiscord
from tests.fakes.discord_state import EDIT, SEND

INTENTS = discord.Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=True)


class Client(discord.Client):
    """A client that keeps what it heard."""

    def __init__(self, intents: discord.Intents = INTENTS) -> None:
        super().__init__(intents=intents, guild_ready_timeout=0.1, heartbeat_timeout=5.0)
        self.heard: list[discord.Message] = []
        self.pressed: list[discord.Interaction] = []
        self.events: list[str] = []

    async def on_socket_event_type(self, event: str) -> None:
        self.events.append(event)

    async def on_message(self, message: discord.Message) -> None:
        if message.author != self.user:
            self.heard.append(message)

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        self.pressed.append(interaction)


@pytest.fixture
async def dc() -> AsyncIterator[FakeDiscord]:
    async with FakeDiscord() as fake:
        yield fake


@pytest.fixture(autouse=True)
def addresses(dc: FakeDiscord) -> Iterator[None]:
    """discord.py keeps its two addresses in class attributes; the fake's, for one test."""
    base, gateway = discord.http.Route.BASE, discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY
    discord.http.Route.BASE, discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = dc.base_url, yarl.URL(dc.gateway_url)
    yield
    discord.http.Route.BASE, discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = base, gateway


@asynccontextmanager
async def connected(dc: FakeDiscord, intents: discord.Intents = INTENTS) -> AsyncIterator[Client]:
    async with Client(intents) as client:
        running = asyncio.create_task(client.start(dc.token))
        try:
            await dc.online()
            await asyncio.wait_for(client.wait_until_ready(), 5)
            yield client
        finally:
            await client.close()
            await running


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
