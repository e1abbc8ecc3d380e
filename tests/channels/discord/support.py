"""What the tests of the Discord channel share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from channels.base import Address, CommandInfo, Context, Desk, Inbound, SessionInfo, Shown
from channels.discord.channel import DiscordChannel
from channels.discord.client import Pace
from channels.discord.settings import Settings
from tests.fakes.discord import FakeDiscord

MENU = [
    CommandInfo("reset", "Start over"),
    CommandInfo("fork", "Try another way", "[name]"),
    CommandInfo("switch", "Go to another conversation", "NAME", sessions=True),
    CommandInfo("status", "How it is"),
    CommandInfo("retry", "Again"),
]


class Gateway:
    """The gateway's side of a channel: keeps what it accepts, once each; `full` times it cannot write."""

    def __init__(self) -> None:
        self.inbounds: list[Inbound] = []
        self.again: list[str] = []
        """Ids that came a second time."""
        self.full = 0

    async def accept(self, batch: Sequence[Inbound]) -> None:
        if self.full:
            self.full -= 1
            raise OSError(28, "No space left on device")
        for inbound in batch:
            if inbound.kind != "edit" and any(inbound.id == known.id for known in self.inbounds if known.kind != "edit"):
                self.again.append(inbound.id)
            else:
                self.inbounds.append(inbound)

    @property
    def texts(self) -> list[str]:
        return [inbound.text or inbound.unsupported for inbound in self.inbounds]


class Sessions(Desk):
    """A desk with these sessions; `asked` is where it was looked for them."""

    def __init__(self, *names: str) -> None:
        self.names, self.asked = names, list[Address]()

    async def sessions(self, address: Address, sender: object, *, direct: bool = True, group: str = "") -> list[SessionInfo]:
        self.asked.append(address)
        return [SessionInfo(name, name.title(), "", name == self.names[-1], 1) for name in self.names]

    async def history(self, address: object, sender: object, name: str = "", after: int = 0) -> list[Shown]:
        return []


async def no_pause(seconds: float) -> None:
    await asyncio.sleep(min(seconds, 0.02))


def quick() -> Pace:
    """Connections follow each other without the pauses that the real service wants."""
    return Pace(gap=0.02, pause=no_pause)


def channel_for(
    dc: FakeDiscord, folder: Path, *, desk: Desk | None = None, token: str = "", heartbeat_seconds: float = 60.0, **settings: Any
) -> DiscordChannel:
    made, context = Settings(**({"api_base": dc.base_url} | settings)), Context(token or dc.token, folder, desk or Sessions("main"))
    return DiscordChannel(made, context, pace=quick(), heartbeat_seconds=heartbeat_seconds)


@asynccontextmanager
async def running(
    dc: FakeDiscord, channel: DiscordChannel, gateway: Gateway | None = None, *, online: bool = True
) -> AsyncIterator[Gateway]:
    """The started channel at work. What ended it is raised at the end."""
    gateway = gateway or Gateway()
    await channel.start(MENU)
    task = asyncio.create_task(channel.run(gateway.accept))
    try:
        if online:
            await dc.online()
        yield gateway
        if task.done():
            await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
