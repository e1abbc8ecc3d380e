"""The real discord.py on the fake of Discord, for the tests of that fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import discord
import yarl
from discord import app_commands

from tests.fakes.discord import FakeDiscord

INTENTS = discord.Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=True)


class Client(discord.Client):
    """A client that keeps what it heard from others."""

    def __init__(self, intents: discord.Intents = INTENTS, **options: Any) -> None:
        super().__init__(intents=intents, **{"guild_ready_timeout": 0.05, "heartbeat_timeout": 5.0} | options)
        self.tree = app_commands.CommandTree(self)
        self.heard: list[discord.Message] = []
        self.asked: list[discord.Interaction] = []
        self.events: list[str] = []

    @property
    def texts(self) -> list[str]:
        return [message.content for message in self.heard]

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """The library's own waits 5 seconds before a second IDENTIFY."""

    async def on_socket_event_type(self, event: str) -> None:
        self.events.append(event)

    async def on_message(self, message: discord.Message) -> None:
        if message.author != self.user:
            self.heard.append(message)

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        self.asked.append(interaction)


@asynccontextmanager
async def serving() -> AsyncIterator[FakeDiscord]:
    """A fake, and discord.py pointed at it: both of its addresses are class attributes."""
    route, socket = discord.http.Route, discord.gateway.DiscordWebSocket
    before = route.BASE, socket.DEFAULT_GATEWAY
    async with FakeDiscord() as dc:
        route.BASE, socket.DEFAULT_GATEWAY = dc.base_url, yarl.URL(dc.gateway_url)
        try:
            yield dc
        finally:
            route.BASE, socket.DEFAULT_GATEWAY = before


@asynccontextmanager
async def connected(
    dc: FakeDiscord, intents: discord.Intents = INTENTS, *, client: Client | None = None, **options: Any
) -> AsyncIterator[Client]:
    """A client that is ready."""
    async with client or Client(intents, **options) as ready:
        running = asyncio.create_task(ready.start(dc.token))
        try:
            await dc.online()
            await asyncio.wait_for(ready.wait_until_ready(), 5)
            yield ready
        finally:
            await ready.close()
            await running


async def code_of(call: Any) -> tuple[int, int]:
    """HTTP status and Discord's code of a refused call."""
    try:
        await call
    except discord.HTTPException as refusal:
        return refusal.status, refusal.code
    raise AssertionError("not refused")
