"""A process that writes sessions, forks, pointers, inputs and approvals, forgets some of them, and says on stdout what was acknowledged.
Run by `test_power` as `python -m tests.crash.power_child FOLDER SEED (process|power) STEPS`. With 0 steps it only starts and ends."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from itertools import count
from pathlib import Path

from channels.base import Address, Inbound, Sender
from gateway.access import Access
from gateway.disk import lock_folder
from gateway.errors import NoSession
from gateway.inbox import Entry, Inbox, Input
from gateway.message import Chat, Header, Message, Parent, SessionKey, encode_line
from gateway.options import Access as Rules
from gateway.power import PowerLog, begin
from gateway.store.jsonl import JsonlStore
from gateway.writer import Writer

_numbers = count()
KEYS = [SessionKey("telegram", str(chat)) for chat in range(4)]


def say(*words: object) -> None:
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


def header(key: SessionKey, name: str, parent: Parent | None = None) -> Header:
    return Header(v=1, key=str(key), name=name, created="t", parent=parent)


class House:
    """The parts that keep something."""

    def __init__(self, folder: Path, durability: str) -> None:
        self.folder = folder
        self.writer = Writer(PowerLog(folder, rotate_bytes=30_000) if durability == "power" else None)
        self.store = JsonlStore(folder / "sessions", self.writer)
        self.inbox = Inbox(folder / "journal", self.writer, clock=time.time, rotate_bytes=20_000)
        self.access = Access(Rules(direct="pairing"), folder / "access.jsonl", self.writer, clock=time.time)

    async def open(self) -> set[str]:
        """What is unfinished."""
        begin(self.folder, durable=self.writer.durable)
        await self.access.open()
        await self.store.open()
        return {pending.input.inbound.id for pending in await self.inbox.open()}

    async def close(self) -> None:
        await self.inbox.close()
        await self.store.close()
        await self.writer.close()


async def talk(house: House, key: SessionKey, dice: random.Random, steps: int, mark: str) -> None:
    """`mark` is in every word of this chat's until it is forgotten."""
    store = house.store
    try:
        last = (await store.tail(key, "main", 5)).last
    except NoSession:
        await store.create(key, "main", header(key, "main"))
        say("made", key, "main")
        last = 0
    forks: list[str] = []
    for _ in range(steps):
        size = dice.choice([1, 1, 2, 5])
        text = mark + "é" * dice.choice([1] * 20 + [50] * 20 + [3000])
        lines = [encode_line(Message(seq=last + 1 + n, at="t", role="user", content=f"{last + 1 + n} {text}")) for n in range(size)]
        last = await store.append(key, "main", lines, last, last + size)
        say("line", key, last)
        await store.set_chat(key, Chat(at="t", for_=str(number := next(_numbers)), current="main"))
        say("chat", key, number)
        if dice.random() < 0.15:
            name = f"f{next(_numbers)}"
            await store.fork(key, "main", key, name, last, header(key, name, Parent(str(key), "main", last)))
            say("fork", key, name, last)
            forks.append(name)
            more = await store.append(key, name, [encode_line(Message(seq=last + 1, at="t", role="user", content=name))], last, last + 1)
            say("grown", key, name, more)
        if len(forks) > 1:
            say("going", key, name := forks.pop(0))
            await store.delete(key, name)
            say("gone", key, name)


async def forgetful(house: House, dice: random.Random, steps: int) -> None:
    """A chat that is forgotten again and again, each time for good."""
    key = KEYS[3]
    for _ in range(max(1, steps // 8)):
        mark = f"secret-{next(_numbers)}-{dice.randrange(10**9)}"
        asked = await ask(house, mark)
        await talk(house, key, dice, 3, mark)
        for brief in (f"{mark}-one", f"{mark}-two"):  # of the same name, and byte for byte the same but for the words
            await house.store.create(key, "brief", header(key, "brief"))
            await house.store.append(key, "brief", [encode_line(Message(seq=1, at="t", role="user", content=brief))], 0, 1)
            await house.store.delete(key, "brief")
            say("forgotten", brief)
        await house.store.create(key, "brief", header(key, "brief"))
        await house.store.delete(key)
        await house.inbox.forget(str(key))
        say("forgotten", mark)
        await house.inbox.finished(asked)
        mark = f"secret-{next(_numbers)}-{dice.randrange(10**9)}"
        asked = await ask(house, mark)
        await house.inbox.forget(str(key))
        say("forgotten", mark)
        await house.inbox.finished(asked)


async def ask(house: House, mark: str) -> str:
    """An input of that chat's that began; its id."""
    inbound = Inbound(f"t:{mark}".replace("secret", "id"), Address("telegram", "3"), Sender("3"), mark)
    await house.inbox.put([Entry(Input(inbound, str(KEYS[3]), time.time()))])
    await house.inbox.started(inbound.id, "main", 0)
    return inbound.id


async def listen(house: House, seed: int, steps: int) -> None:
    for n in range(steps):
        batch = [f"t:{seed}:{n}:{each}" for each in range(3)]
        entries = [
            Entry(Input(Inbound(each, Address("telegram", "1"), Sender("42"), "words" * 20), "telegram:1", time.time())) for each in batch
        ]
        await house.inbox.put(entries)
        say("put", *batch)
        for each in batch[:2]:
            await house.inbox.started(each, "main", n)
        await house.inbox.finished(batch[0])
        say("end", batch[0])
        if n % 4 == 0:
            stranger = Inbound(f"s:{seed}:{n}", Address("telegram", f"{seed}{n}"), Sender(f"{seed}{n}"), "hello")
            house.access.decide(stranger)
            code = next(row["code"] for row in house.access.listed() if row["id"] == f"telegram:{seed}{n}")
            say("in", await house.access.approve(code, by="operator"))


async def main(folder: Path, seed: int, durability: str, steps: int) -> None:
    global _numbers  # noqa: PLW0603  # no two processes give one twice
    _numbers = count(seed * 10**6)
    dice = random.Random(seed)
    lock_folder(folder)
    house = House(folder, durability)
    await house.open()
    if steps:
        await asyncio.gather(
            *(talk(house, key, dice, steps, "words") for key in KEYS[:3]), forgetful(house, dice, steps), listen(house, seed, steps)
        )
    await house.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
