"""The fake and a channel on it, for all tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import discord
import pytest

from channels.discord.channel import DiscordChannel
from tests.channels.discord.support import MENU, channel_for
from tests.fakes.discord import FakeDiscord


@pytest.fixture(autouse=True)
def addresses() -> Iterator[None]:
    """discord.py keeps its two addresses in class attributes: they are for one test alone."""
    base, gateway = discord.http.Route.BASE, discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY
    yield
    discord.http.Route.BASE, discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = base, gateway


@pytest.fixture
async def dc() -> AsyncIterator[FakeDiscord]:
    async with FakeDiscord() as fake:
        yield fake


@pytest.fixture
async def channel(dc: FakeDiscord, tmp_path: Path) -> AsyncIterator[DiscordChannel]:
    """Closed twice at the end, which must do no harm."""
    made = channel_for(dc, tmp_path / "discord")
    yield made
    await made.close()
    await made.close()


@pytest.fixture
async def started(channel: DiscordChannel) -> DiscordChannel:
    await channel.start(MENU)
    return channel
