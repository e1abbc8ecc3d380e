"""One measurement of a bot on Discord, over the fake network of the tests, which costs more than the bots do: only CPU a turn is told."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.model import Model
from benchmarks.process import Process, daemon, scratch
from benchmarks.rig import Bot, Result
from benchmarks.server import Server
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import EDIT, SEND, Call

_MARK = re.compile(r"#\d+#$")


class DiscordRig:
    def __init__(self, network: FakeDiscord, bot: Process) -> None:
        self._network, self.bot = network, bot
        self._next = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._chats: dict[int, int] = {}
        for route in (SEND, EDIT):
            network.routes[route] = self._seen(network.routes[route])

    def _seen(self, handler: Callable[[Call], Any]) -> Callable[[Call], Any]:
        def call(call: Call) -> Any:
            result = handler(call)
            text = str(call.body.get("content") or "")
            if _MARK.search(text[-12:]) and call.channel and (waiting := self._waiting.pop(call.channel, None)):
                waiting.set_result(None)
            return result

        return call

    async def turn(self, number: int) -> None:
        chat = self._chats.get(number) or self._network.dm(900_000_000_000_000_000 + number)
        self._chats[number] = chat
        self._next += 1
        self._waiting[chat] = future = asyncio.get_running_loop().create_future()
        self._network.say(chat, f"What is the light on the pier for? #{self._next}#")
        await asyncio.wait_for(future, 60)

    async def warm(self, chats: int) -> None:
        await asyncio.gather(*(self.turn(number) for number in range(chats)))

    async def talk(self, chats: int, seconds: float) -> Result:
        turns = 0
        ends = time.perf_counter() + seconds

        async def person(number: int) -> None:
            nonlocal turns
            while time.perf_counter() < ends:
                await self.turn(number)
                turns += 1

        before, began = self.bot.usage(), time.perf_counter()
        await asyncio.gather(*(person(number) for number in range(chats)))
        after, ended = self.bot.usage(), time.perf_counter()
        return Result(turns, ended - began, after.cpu - before.cpu, after.rss)


@asynccontextmanager
async def discord_rig(bot: Bot, stream: bool) -> AsyncIterator[DiscordRig]:
    model = Model()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(scratch()))
        network = await stack.enter_async_context(FakeDiscord())
        backend = await stack.enter_async_context(Server(model.handle))
        if bot == "parlour":
            config = f"""
data_dir = "data"
[http]
listen = ""
[access]
direct = "open"
[backend]
kind = "openai"
base_url = "{backend.url}/v1"
model = "bench"
max_concurrent_turns = 1000
[channels.discord]
api_base = "{network.base_url}"
streaming = "{"edit" if stream else "off"}"
sends_per_second = 0
chat_per_second = 0
group_per_minute = 0
"""
            process = daemon(folder, config, {"PARLOUR_DISCORD_TOKEN": network.token})
        else:
            args = ["-m", "benchmarks.bare_discord", network.base_url, f"{backend.url}/v1", network.token]
            process = Process([*args, *(["--stream"] if stream else [])], folder)
        await stack.enter_async_context(process)
        await network.online(20)
        await process.alive()
        yield DiscordRig(network, process)
