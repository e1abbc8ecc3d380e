"""A small house behind the web channel: sessions in memory, an echo that streams, the commands that the page has buttons for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from channels.base import Address, Button, CommandInfo, Inbound, Piece, Sender, SessionInfo, Shown
from channels.guard import Guard
from channels.web.channel import WebChannel
from channels.web.settings import Settings


async def eventually(condition: Callable[[], object], timeout: float = 5.0) -> None:
    """Wait until a condition holds; AssertionError if it does not in time."""
    deadline = asyncio.get_running_loop().time() + timeout
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "never came true"
        await asyncio.sleep(0.005)


TOKEN = "s3cret-t0ken"
MENU = (
    CommandInfo("fork", "go on in a copy of this conversation"),
    CommandInfo("forget", "delete for good"),
    CommandInfo("help", "this list"),
)


class House:
    """`Desk` and `Accept` in one, for any number of chats. Inputs are answered one at a time and in order, as the gateway does."""

    def __init__(self) -> None:
        self.channel: WebChannel
        self.seen: list[Inbound] = []
        self.fault: OSError | None = None
        self.chats: dict[str, dict[str, tuple[SessionInfo, list[Shown]]]] = {}
        self.current: dict[str, str] = {}
        self.answers: dict[str, str] = {}
        self.notes: dict[str, str] = {}
        """What stands under an answer, by the answer."""
        self.step = 0.0
        self._queue: asyncio.Queue[Inbound] = asyncio.Queue()

    async def accept(self, batch: Sequence[Inbound]) -> None:
        if self.fault is not None:
            raise self.fault
        for inbound in batch:
            if all(inbound.id != old.id for old in self.seen):
                self.seen.append(inbound)
                self._queue.put_nowait(inbound)

    async def sessions(self, address: Address, sender: Sender, *, direct: bool = True, group: str = "") -> list[SessionInfo]:
        current = self.current.get(address.chat, "")
        return [
            SessionInfo(i.name, i.title, i.created, i.name == current, len(lines), i.parent, i.parent_seq)
            for i, lines in self.chats.get(address.chat, {}).values()
        ]

    async def history(self, address: Address, sender: Sender, name: str = "", after: int = 0) -> list[Shown]:
        found = self.chats.get(address.chat, {}).get(name or self.current.get(address.chat, ""))
        return [line for line in found[1] if line.seq > after] if found else []

    async def settled(self, answers: int) -> None:
        """Wait until so many answers stand in the one chat's session."""
        await eventually(lambda: sum(line.role == "assistant" for line in self.session(self.seen[0].address.chat)) >= answers)

    def session(self, chat: str, name: str = "") -> list[Shown]:
        """The lines of a chat's session, made if it is not there."""
        name = name or self.current.setdefault(chat, "main")
        return self.chats.setdefault(chat, {}).setdefault(name, (SessionInfo(name, name.title(), "", False, 0), []))[1]

    async def work(self) -> None:
        """Answer what comes in, until cancelled."""
        while True:
            inbound = await self._queue.get()
            chat = inbound.address.chat
            if re.match(r"/[a-z]+( |$)", inbound.text):
                await self._command(chat, inbound)
            else:
                self._add(chat, "user", inbound.text, inbound.id)
                await self._answer(chat, inbound, self.answers.get(inbound.text, f"You said: {inbound.text}"))

    def _add(self, chat: str, role: str, text: str, input_id: str) -> None:
        lines = self.session(chat)
        seq, note = (lines[-1].seq if lines else 0) + 1, self.notes.get(text, "")
        lines.append(Shown(seq, "user" if role == "user" else "assistant", text, input_id, note=note))

    async def _answer(self, chat: str, inbound: Inbound, text: str) -> None:
        placed = await self.channel.send(inbound.address, Piece("…"), reply_to=inbound.reply_to)
        for end in range(20, len(text), 20):
            await self.channel.edit(inbound.address, placed, Piece(text[:end]))
            await asyncio.sleep(self.step)
        self._add(chat, "assistant", text, inbound.id)
        note = self.notes.get(text, "")
        await self.channel.edit(inbound.address, placed, Piece(f"{text}\n\n{note}" if note else text))

    async def _command(self, chat: str, inbound: Inbound) -> None:
        verb, _, argument = inbound.text.partition(" ")
        lines = self.session(chat)
        buttons: tuple[Button, ...] = ()
        reply = f"Done: {verb}"
        if verb == "/fork":
            name = argument.lower()
            parent = self.current[chat]
            self.chats[chat][name] = (SessionInfo(name, argument, "", False, 0, parent, len(lines)), list(lines))
            self.current[chat] = name
            reply = f"This is now **{argument}**, a fork of {parent}."
            buttons = (Button(f"Back to {parent}", f"/switch {parent}"),)
        elif verb == "/switch" and argument not in self.chats[chat]:
            reply = "There is no session of that name."
        elif verb == "/switch":
            self.current[chat] = argument
            reply = f"This is now **{argument}**."
        elif verb == "/undo":
            del lines[-2:]
        elif verb == "/reset":
            name = f"chat-{len(self.chats[chat])}"
            self.current[chat] = name
            self.session(chat)
        elif verb == "/retry" and not lines:
            reply = "There is nothing to ask again."
        elif verb == "/retry":
            del lines[-1:]
            await self._answer(chat, inbound, "Another answer.")
            return
        await self.channel.send(inbound.address, Piece(reply), reply_to=inbound.reply_to, buttons=buttons)


@asynccontextmanager
async def served(
    house: House, *, settings: Settings | None = None, hosts: tuple[str, ...] = (), running: bool = True, beat: float = 15.0, port: int = 0
) -> AsyncIterator[str]:
    """The channel over a real server on loopback; its address. `running` False: nobody called `run` yet."""
    channel = house.channel = WebChannel(settings or Settings(), Guard(TOKEN, hosts), house, pace=0.01, beat=beat)
    await channel.start(MENU)
    app = web.Application()
    app.add_routes(channel.routes())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    tasks = [asyncio.create_task(house.work())]
    if running:
        tasks.append(asyncio.create_task(channel.run(house.accept)))
        await asyncio.sleep(0)
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await channel.close()
        await runner.cleanup()
