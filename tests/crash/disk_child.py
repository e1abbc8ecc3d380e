"""A process that writes sessions, forks, pointers and inputs as fast as it can, and says on stdout what was acknowledged, until it is
killed. Run by `test_disk_kill` as `python -m tests.crash.disk_child FOLDER ROUND`."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path

from channels.base import Address, Inbound, Sender
from gateway.disk import lock_folder
from gateway.errors import NoSession
from gateway.inbox import Entry, Inbox, Input
from gateway.message import Chat, Header, Message, Parent, SessionKey, encode_line
from gateway.store.jsonl import JsonlStore
from gateway.writer import Writer

KEYS = [SessionKey("telegram", str(chat)) for chat in range(4)]


def say(*words: object) -> None:
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


def header(key: SessionKey, name: str, parent: Parent | None = None) -> Header:
    return Header(v=1, key=str(key), name=name, created="t", parent=parent)


async def talk(store: JsonlStore, key: SessionKey, dice: random.Random, round_: int) -> None:
    try:
        last = (await store.tail(key, "main", 5)).last
    except NoSession:
        await store.create(key, "main", header(key, "main"))
        last = 0
    forks = 0
    while True:
        count = dice.choice([1, 1, 2, 5])
        text = "é" * dice.choice([1] * 20 + [50] * 20 + [3000] * 2 + [40_000])
        lines = [encode_line(Message(seq=last + 1 + n, at="t", role="user", content=f"{last + 1 + n} {text}")) for n in range(count)]
        last = await store.append(key, "main", lines, last, last + count)
        say("line", key, last)
        if dice.random() < 0.05:
            name = f"f{round_}-{forks}"
            forks += 1
            await store.fork(key, "main", key, name, last, header(key, name, Parent(str(key), "main", last)))
            say("fork", key, name, last)
            await store.set_chat(key, Chat(at="t", current=name))
            say("chat", key, name)
            if forks > 3:
                await store.delete(key, f"f{round_}-{forks - 3}")
                say("gone", key, f"f{round_}-{forks - 3}")


async def listen(inbox: Inbox, round_: int) -> None:
    n = 0
    while True:
        batch = [f"t:{round_}:{n + each}" for each in range(3)]
        n += 3
        entries = [
            Entry(Input(Inbound(each, Address("telegram", "1"), Sender("42"), "words" * 20), "telegram:1", time.time())) for each in batch
        ]
        await inbox.put(entries)
        say("put", *batch)
        for each in batch[:2]:
            await inbox.started(each, "main", n)
        await inbox.finished(batch[0])
        say("end", batch[0])
        if n % 300 == 0:
            await inbox.forget("telegram:2")


async def main(folder: Path, round_: int) -> None:
    dice = random.Random(round_)
    lock_folder(folder)
    writer = Writer()
    store, inbox = JsonlStore(folder / "sessions", writer), Inbox(folder / "journal", writer, clock=time.time, rotate_bytes=30_000)
    await store.open()
    await inbox.open()
    say("ready")
    await asyncio.gather(*(talk(store, key, dice, round_) for key in KEYS), listen(inbox, round_))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
