"""One measurement of a bot on Telegram: fake network and model, people who talk, a bot as a process, and what it took."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aiohttp import ClientSession, TCPConnector

from benchmarks.model import Model
from benchmarks.process import Process, daemon, scratch
from benchmarks.server import Server
from benchmarks.telegram import TOKEN, Telegram

Bot = Literal["parlour", "bare", "stock"]
_MARK = re.compile(r"#\d+#$")
OFF = "sends_per_second = 0\nchat_per_second = 0\ngroup_per_minute = 0"
"""Own pacing off."""


@dataclass(frozen=True)
class Load:
    chats: int
    stream: bool = True
    webhook: bool = False


@dataclass(frozen=True)
class Result:
    turns: int
    seconds: float
    cpu: float
    rss: int

    @property
    def per_second(self) -> float:
        return self.turns / self.seconds

    @property
    def cpu_ms(self) -> float:
        return 1000 * self.cpu / self.turns


def config(api: str, model: str, *, stream: bool, webhook: int = 0, telegram: str = "", sessions: str = "", http: str = "") -> str:
    hook = (
        f'mode = "webhook"\nwebhook_url = "http://127.0.0.1:{webhook}/telegram"\nwebhook_listen = "127.0.0.1:{webhook}"' if webhook else ""
    )
    return f"""
data_dir = "data"
[http]
listen = "{http}"
[access]
direct = "open"
[sessions]
{sessions}
[backend]
kind = "openai"
base_url = "{model}"
model = "bench"
max_concurrent_turns = 1000
[channels.telegram]
api_base = "{api}"
streaming = "{"edit" if stream else "off"}"
poll_timeout = "10s"
{telegram or OFF}
{hook}
"""


class Rig:
    """The servers, and one bot."""

    def __init__(self, telegram: Telegram, model: Model, bot: Process, folder: Path) -> None:
        self.telegram, self.model, self.bot, self.folder = telegram, model, bot, folder
        self._next = 0
        self._waiting: dict[int, asyncio.Future[float]] = {}
        telegram.shown = self._shown

    def _shown(self, chat: int, text: str) -> None:
        if _MARK.search(text[-12:]) and (waiting := self._waiting.pop(chat, None)) is not None and not waiting.done():
            waiting.set_result(time.perf_counter())

    def say(self, chat: int, words: str = "What is the light on the pier for?") -> tuple[str, asyncio.Future[float]]:
        """The mark of a new message and the future time of its answer."""
        self._next += 1
        mark = f"#{self._next}#"
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting[chat] = future
        self.telegram.say(chat, f"{words} {mark}")
        return mark, future

    async def turn(self, chat: int) -> None:
        await asyncio.wait_for(self.say(chat)[1], 60)

    async def talk(self, chats: int, seconds: float) -> Result:
        """Everybody talks, as fast as they are answered, for about so long."""
        turns = 0
        ends = time.perf_counter() + seconds

        async def person(chat: int) -> None:
            nonlocal turns
            while time.perf_counter() < ends:
                await self.turn(chat)
                turns += 1

        before, began = self.bot.usage(), time.perf_counter()
        await asyncio.gather(*(person(1000 + chat) for chat in range(chats)))
        after, ended = self.bot.usage(), time.perf_counter()
        return Result(turns, ended - began, after.cpu - before.cpu, after.rss)

    async def warm(self, chats: int) -> None:
        await asyncio.gather(*(self.turn(1000 + chat) for chat in range(chats)))


@asynccontextmanager
async def rig(
    bot: Bot,
    load: Load,
    model: Model | None = None,
    *,
    telegram: str = "",
    sessions: str = "",
    prepare: Callable[[Path], object] = lambda data: None,
) -> AsyncIterator[Rig]:
    """A bot that has polled, or has set its webhook. `telegram`, `sessions`: lines for these tables of the daemon's config; `prepare` may
    put something into its data folder."""
    model = model or Model()
    network = Telegram()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(scratch()))
        api = await stack.enter_async_context(Server(network.handle))
        backend = await stack.enter_async_context(Server(model.handle))
        port = 0
        if load.webhook:
            async with Server(network.handle) as free:
                port = free.port
            session = await stack.enter_async_context(ClientSession(connector=TCPConnector(limit=0)))
            await stack.enter_async_context(_posting(network, session, port))
        if bot == "parlour":
            (folder / "data").mkdir(mode=0o700)
            prepare(folder / "data")
            text = config(api.url, f"{backend.url}/v1", stream=load.stream, webhook=port, telegram=telegram, sessions=sessions)
            process = daemon(folder, text, {"PARLOUR_TELEGRAM_TOKEN": TOKEN})
        else:
            flags = [
                *(["--stock"] if bot == "stock" else []),
                *(["--stream"] if load.stream else []),
                *(["--webhook", str(port)] if port else []),
            ]
            process = Process(["-m", "benchmarks.bare_telegram", api.url, f"{backend.url}/v1", *flags], folder)
        await stack.enter_async_context(process)
        ready = asyncio.create_task(network.polled.wait())
        while not (ready.done() or (load.webhook and network.calls["setWebhook"])):
            await process.alive()
            await asyncio.wait([ready], timeout=0.05)
        ready.cancel()
        yield Rig(network, model, process, folder)


@asynccontextmanager
async def _posting(network: Telegram, session: ClientSession, port: int) -> AsyncIterator[None]:
    """Updates go to the bot's webhook, at most 40 at a time as Telegram does by default, and again until they are taken."""
    slots = asyncio.Semaphore(40)
    tasks: set[asyncio.Task[None]] = set()

    async def post(update: bytes) -> None:
        async with slots:
            headers = {"X-Telegram-Bot-Api-Secret-Token": network.secret, "Content-Type": "application/json"}
            async with session.post(f"http://127.0.0.1:{port}/telegram", data=update, headers=headers) as response:
                if response.status != 200:
                    raise RuntimeError(f"the webhook answered {response.status}")

    def start(update: bytes) -> None:
        task = asyncio.create_task(post(update))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    network.webhook = start
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
