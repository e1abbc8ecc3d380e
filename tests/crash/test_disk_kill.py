"""SIGKILL at random moments of appends, forks, deletions, pointer changes, accepted and finished inputs, rotation and blanking."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import defaultdict
from pathlib import Path

import msgspec

from gateway.inbox import Inbox
from gateway.message import Message, decode_event, decode_header
from gateway.store.jsonl import JsonlStore
from gateway.writer import Writer
from tests.crash.disk_child import KEYS

ROUNDS = 6


def order(name: str) -> list[int]:
    """Forks are called f, round, dash, number."""
    return [int(part) for part in name.removeprefix("f").split("-")]


async def run_and_kill(folder: Path, number: int, after: float) -> list[list[str]]:
    """What the child had acknowledged when it was killed `after` seconds of work."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.crash.disk_child", str(folder), str(number), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
    reading = asyncio.create_task(child.stdout.read())
    await asyncio.wait({reading}, timeout=after)
    child.kill()
    said = await reading
    assert await child.wait() == -9
    return [line.decode().split() for line in said.splitlines(keepends=True) if line.endswith(b"\n")]


async def test_a_kill_takes_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """After every kill each file is what it was before or after its last write: all acknowledged lines, forks, changes, inputs are there,
    at most the last unacknowledged ones besides; nothing is torn, half made or fused; and the next process goes on from there."""
    dice = random.Random(7)
    lines: dict[str, int] = defaultdict(int)
    forks: dict[tuple[str, str], int] = {}
    put: set[str] = set()
    ended: set[str] = set()
    for number in range(ROUNDS):
        pointers: dict[str, str] = {}
        for what, *words in await run_and_kill(tmp_path, number, dice.uniform(0.02, 0.4)):
            if what == "line":
                lines[words[0]] = int(words[1])
            elif what == "fork":
                forks[words[0], words[1]] = int(words[2])
            elif what == "chat":
                pointers[words[0]] = words[1]
            elif what == "gone":
                forks.pop((words[0], words[1]))
            elif what == "put":
                put.update(words)
            elif what == "end":
                ended.update(words)
        writer = Writer()
        store, inbox = JsonlStore(tmp_path / "sessions", writer), Inbox(tmp_path / "journal", writer, clock=time.time, rotate_bytes=30_000)
        await store.open()
        left = {pending.input.inbound.id for pending in await inbox.open()}
        for key in KEYS:
            if str(key) not in lines:
                continue
            tail = await store.read(key, "main")
            events = [decode_event(line) for line in tail.lines]
            assert tail.bad == 0
            assert [event.seq for event in events] == list(range(1, tail.last + 1))
            assert tail.last >= lines[str(key)]
            assert all(isinstance(event, Message) and event.content and event.content.startswith(f"{event.seq} ") for event in events)
            there = {listed.header.name: listed for listed in await store.sessions(key)}
            for (owner, name), last in forks.items():
                if owner == str(key) and name in there:
                    assert there[name].last == last
                    assert (await store.read(key, name)).lines == tail.lines[:last]
            missing = {name for (owner, name) in forks if owner == str(key)} - set(there)
            assert len(missing) <= 1  # one that was being deleted
            for name in missing:
                forks.pop((str(key), name))
            chat = await store.chat(key)
            assert str(key) not in pointers or (chat is not None and order(chat.current) >= order(pointers[str(key)]))
        assert put - ended - left <= {each for each in put if int(each.split(":")[2]) % 3 == 0}
        assert len(put - ended - left) <= 1  # one whose end was being written
        ended |= put - ended - left
        assert not left & ended
        assert all(inbox.seen(each) for each in put)
        await inbox.close()
        await store.close()
        await writer.close()
        for path in tmp_path.rglob("*.jsonl"):
            content = path.read_bytes()
            assert not content or content.endswith(b"\n"), path
            assert all(isinstance(msgspec.json.decode(line), dict) for line in content.splitlines()), path
            if path.parent.parent.parent == tmp_path / "sessions" and path.name != "_chat.jsonl":
                decode_header(content.partition(b"\n")[0])
        assert not [path for path in tmp_path.rglob(".*") if path.name.startswith((".new-", ".gone-"))]
    assert sum(lines.values()) > 100
    assert len(put) > 100
