"""A daemon with every door open, for hostile input: it must live, answer the next good message, and leave nothing beside its folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from tests.fakes.discord import FakeDiscord
from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow import on_discord, seen
from tests.flow.daemon import KEY, TOKEN, Daemon, free_port
from tests.flow.on_discord import table
from tests.flow.people import config

T = TypeVar("T")
SPARE = 200 << 20
"""Bytes by which the daemon may grow over all that is done to it."""
OURS = {"access.jsonl", "control.sock", "discord", "journal", "lock", "sessions", "telegram", "web", "web-token"}
BAD = ("Traceback", "never retrieved", "channel failed", "turn failed", "reading failed", "put aside", "supervisor failed", "lane broke")


class House:
    """Entered by `opened`; `do` runs something on its loop, since Hypothesis is no coroutine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.tg, self.dc, self.model = FakeTelegram(token=TOKEN), FakeDiscord(), FakeModel(api_key=KEY, strict=False)
        self.webhook_port, self.http_port = free_port(), free_port()
        self._people = count(5_000_000)
        self._read = 0
        self._stack = AsyncExitStack()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def start(self) -> None:
        for fake in (self.tg, self.dc, self.model):
            await self._stack.enter_async_context(fake)
        text = config(self.tg, self.model, webhook_port=self.webhook_port, more=table(self.dc) + "[channels.web]\n")
        text = text.replace('listen = ""', f'listen = "127.0.0.1:{self.http_port}"', 1)
        self.daemon = await self._stack.enter_async_context(Daemon(self.folder, text, env={"PARLOUR_DISCORD_TOKEN": self.dc.token}))
        await self.dc.online(20)
        await self.good()
        self.memory = self._memory()

    async def stop(self) -> None:
        assert await self.daemon.stop() == 0
        await self._stack.aclose()

    def _memory(self) -> int:
        assert self.daemon.process is not None
        return int(Path(f"/proc/{self.daemon.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async def good(self) -> None:
        """A good message on each network is answered."""
        person = next(self._people)
        self.tg.say(person, "good")
        chat = self.dc.dm(person)
        self.dc.say(chat, "good")
        await seen.until(self.tg, person, lambda seen: seen == ["Heard: good"])
        await on_discord.until(self.dc, chat, lambda seen: seen == ["Heard: good"])

    async def asked(self, words: str) -> None:
        """A new person asks this, then something good: each is told something."""
        person = next(self._people)
        self.tg.say(person, words)
        self.tg.say(person, "good")
        texts = await seen.until(self.tg, person, lambda seen: seen and seen[-1].startswith("Heard: ") and seen[-1].endswith("good"))
        assert len(texts) >= 2, texts
        assert "…" not in texts

    def check(self) -> None:
        """Alive, no fault of ours in the log, not much larger, nothing written elsewhere."""
        text = self.daemon.text()
        said, self._read = text[self._read :], len(text)
        for bad in BAD:
            assert bad not in said, said[max(0, said.find(bad) - 1500) :][:4000]
        assert self.daemon.process is not None
        assert self.daemon.process.returncode is None, said[-3000:]
        assert self._memory() < self.memory + SPARE
        assert {path.name for path in self.folder.iterdir()} <= {"data", "config.toml", "log", "notify"}
        assert {path.name for path in self.daemon.data.iterdir()} <= OURS


@contextmanager
def opened(folder: Path) -> Iterator[House]:
    house = House(folder)
    try:
        house.do(house.start())
        yield house
        house.do(house.stop())
    finally:
        house.do(house._stack.aclose())
        house.loop.close()
