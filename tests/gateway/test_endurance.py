"""What shows only in the long run or on a bad day: memory over thousands of chats, jumps of the clock, a slow disk, a repeated update."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import msgspec

from channels.base import Retry
from channels.settings import Bytes, Secret
from gateway.app import Daemon, channel_types
from gateway.message import SessionKey
from gateway.options import Backend, Http, Sessions
from gateway.store.names import key_folder
from gateway.writer import Writer
from tests.fakes.openai import FakeModel, Reply, delta
from tests.fakes.telegram import FakeTelegram
from tests.gateway.core import Core, until
from tests.gateway.test_app import config, said

# ------------------------------------------------------------------------------------------------------------------------------ memory

KNOWN = {"_Session", "_Pointer", "Feed", "Item"}
"""Of these there is one a chat or conversation that was ever used, up to bounds of their own: where a file stands (`JsonlStore.known`), and
what the page shows (`channels.web.feed`)."""


def alive() -> Counter[str]:
    """Our own objects that the process holds, by type."""
    gc.collect()
    kinds = (type(each) for each in gc.get_objects())
    return Counter(kind.__name__ for kind in kinds if str(kind.__module__).partition(".")[0] in {"gateway", "channels"})


async def talk(daemon: Daemon, chats: range, per_batch: int = 50) -> None:
    for start in range(chats.start, chats.stop, per_batch):
        await daemon.router.accept([said("hello " * 50, 1, f"c{n}") for n in range(start, min(start + per_batch, chats.stop))])
        await until(lambda: not daemon.inbox.unfinished(), 20)


async def test_hundreds_of_chats_leave_no_more_behind_than_the_first(tmp_path: Path) -> None:
    """F13: locks, queues, lanes and sessions of chats that are over are gone; what is kept a chat is counted, small and bounded."""
    asked = msgspec.structs.replace(config(tmp_path), sessions=Sessions(cache=Bytes(200_000)))
    daemon = Daemon(asked)
    await daemon.start()
    try:
        await talk(daemon, range(100))
        await until(lambda: not len(daemon.outbox) and not len(daemon.runners))
        before, files, tasks = alive(), len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
        await talk(daemon, range(100, 600))
        await until(lambda: not len(daemon.outbox) and not len(daemon.runners))
        grown = {name: count - before[name] for name, count in alive().items() if count - before[name] > 50}
        assert set(grown) <= KNOWN, grown
        assert daemon.sessions.keys_held == 0
        loaded, stubs, size = daemon.sessions.cached
        assert size <= 200_000
        assert loaded + stubs < 100
        assert len(os.listdir("/proc/self/fd")) <= files + 2
        assert len(asyncio.all_tasks()) <= tasks
    finally:
        await daemon.stop()


async def test_resets_without_end_leave_nothing_behind(tmp_path: Path) -> None:
    """F13: the conversations that /reset leaves stay on disk, not in memory."""
    daemon = Daemon(msgspec.structs.replace(config(tmp_path), sessions=Sessions(cache=Bytes(50_000))))
    await daemon.start()
    try:
        before: Counter[str] = Counter()
        for n in range(220):
            await daemon.router.accept([said(f"word {n}", 2 * n), said("/reset", 2 * n + 1)])
            await until(lambda: not daemon.inbox.unfinished())
            if n == 70:
                before = alive()
        grown = {name: count - before[name] for name, count in alive().items() if count - before[name] > 50}
        assert set(grown) <= KNOWN, grown
        assert daemon.sessions.cached[2] <= 50_000
    finally:
        await daemon.stop()


# --------------------------------------------------------------------------------------------------------------------------- the clock


async def test_jumps_of_the_wall_clock_are_no_time(tmp_path: Path) -> None:
    """F15: half a day ahead and an hour back, while an answer grows, while the network has asked to wait, while an input waits: the answer
    comes whole, the wait is as long as it was asked for, nothing is too old, and the lines stay in order."""
    now = time.time()
    async with Core(tmp_path, clock=lambda: now) as core:
        core.net.backlog = 3600.0
        assert await core.ask("one") == "Heard: one"
        go = asyncio.Event()
        core.model.then("so ", go, "far")
        first = await core.say("two")
        await core.running()
        waiting = await core.say("three")
        now += 12 * 3600
        await asyncio.sleep(0.05)
        waited = core.runners.oldest()
        assert waited is not None
        assert waited < 5
        now -= 13 * 3600
        core.net.fail("edit", Retry(0.4))
        began = time.monotonic()
        go.set()
        await until(lambda: core.inbox.pending(first) is None)
        assert 0.4 <= time.monotonic() - began < 2
        await until(lambda: core.inbox.pending(waiting) is None)
        assert core.seen() == ["Heard: one", "so far", "Heard: three"]
        assert core.metrics.turn.sum < 5
        assert core.refused == {}
        path = key_folder(tmp_path / "sessions", SessionKey("net", "1")) / "main.jsonl"
        seqs = [line["seq"] for line in map(json.loads, path.read_bytes().splitlines()) if "seq" in line]
        assert seqs == sorted(set(seqs))
        roles = [line["content"] for line in map(json.loads, path.read_bytes().splitlines()) if "role" in line]
        assert roles == ["one", "Heard: one", "two", "so far", "three", "Heard: three"]


# ---------------------------------------------------------------------------------------------------------------------------- the disk


@asynccontextmanager
async def heartbeat(longest: float) -> AsyncIterator[None]:
    """The loop is never held up for longer than this."""
    beats: list[float] = []

    async def beat() -> None:
        while True:
            beats.append(time.monotonic())
            await asyncio.sleep(0.01)

    task = asyncio.create_task(beat())
    yield
    task.cancel()
    await asyncio.wait({task})
    assert max(b - a for a, b in pairwise(beats)) < longest


class SlowWriter(Writer):
    """A disk on which every write takes long."""

    seconds = 0.0

    def _write_batch(self, groups: Sequence[object]) -> list[int | OSError]:
        time.sleep(self.seconds)
        return super()._write_batch(groups)  # type: ignore[arg-type]


async def test_a_slow_disk_holds_up_writes_and_nothing_else(tmp_path: Path) -> None:
    """F16: while each write takes a fifth of a second, an answer that has begun goes on growing before its reader's eyes, the loop is free,
    and many chats share a write instead of standing in line for one each."""
    writers: list[SlowWriter] = []

    def slow() -> Writer:
        writers.append(SlowWriter())
        return writers[-1]

    async with Core(tmp_path, writer=slow) as core:
        await core.ask("warm up", chat="1")
        steps = [asyncio.Event() for _ in range(4)]
        core.model.then("one ", steps[0], "two ", steps[1], "three ", steps[2], "four ", steps[3], "five")
        first = await core.say("count", chat="1")
        await until(lambda: "one" in core.seen("1")[-1])
        writers[0].seconds = 0.2
        async with heartbeat(0.25):
            others = [asyncio.create_task(core.say("hello", chat=str(n))) for n in range(2, 17)]
            for number, word in enumerate(("two", "three", "four")):
                began = time.monotonic()
                steps[number].set()
                await until(lambda word=word: word in core.seen("1")[-1])  # type: ignore[misc]
                assert time.monotonic() - began < 0.18
            steps[3].set()
            began = time.monotonic()
            await asyncio.gather(*others)
            await until(lambda: all(core.seen(str(n)) == ["Heard: hello"] for n in range(2, 17)), 20)
            assert time.monotonic() - began < 4  # one by one it would be 15 chats of some 5 writes: 15 s
        writers[0].seconds = 0.0
        await core.quiet(10)
        assert core.inbox.pending(first) is None


async def test_a_huge_conversation_holds_up_nobody_else(tmp_path: Path) -> None:
    """F16: while one of 30 MB is loaded, forked and written to, another chat is answered at once."""
    async with Core(tmp_path) as core:
        await core.ask("begin", chat="1")
    path = key_folder(tmp_path / "sessions", SessionKey("net", "1")) / "main.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    seq = json.loads(lines[-1])["seq"]
    with path.open("ab") as file:
        for n in range(0, 6000, 2):
            for m, role in enumerate(("user", "assistant")):
                line = {
                    "seq": seq + n + m + 1,
                    "at": "2026-11-29T10:00:00Z",
                    "for": f"x{n}",
                    "role": role,
                    "content": f"{n} " + "word " * 1000,
                }
                file.write(json.dumps(line).encode() + b"\n")
    assert path.stat().st_size > 30_000_000
    async with Core(tmp_path) as core, heartbeat(0.5):
        big = [await core.say(text, chat="1") for text in ("and now?", "/fork copy", "and there?")]
        longest = 0.0
        while any(core.inbox.pending(each) for each in big):
            began = time.monotonic()
            await core.ask("hello", chat="2")
            longest = max(longest, time.monotonic() - began)
        assert longest < 1.0
        assert core.seen("1")[-1] == "Heard: and there?"


# ---------------------------------------------------------------------------------------------------------------------- a repeated update


async def test_an_update_that_comes_again_to_a_new_poll_is_one_turn(tmp_path: Path) -> None:
    """F19: reading is started anew inside the process, without an offset, while the answer to the newest update is still being written:
    the network gives it again, and the model is not asked again."""
    async with FakeTelegram() as tg, FakeModel() as model:
        types = channel_types()
        asked = msgspec.structs.replace(
            config(tmp_path, backend=Backend(kind="openai", base_url=model.base_url, model="fake")),
            http=Http(listen=""),
            channels={"telegram": types["telegram"](api_base=tg.base_url, sends_per_second=0, chat_per_second=0)},
            tokens={"telegram": Secret(tg.token)},
        )
        tg.fail("getUpdates", 502, times=None, when=lambda params: "offset" in params)  # what we have is never confirmed
        go = asyncio.Event()
        model.then(Reply([delta("", role="assistant"), go, delta("done"), delta(finish="stop")]))
        daemon = Daemon(asked)
        await daemon.start()
        try:
            tg.say(42, "hello")
            await model.wait(1)
            daemon._reading[0].cancel()
            await asyncio.wait({daemon._reading[0]})
            again = asyncio.create_task(daemon.supervisors[0].run())
            await until(lambda: daemon.metrics.inputs.values["telegram", "duplicate"])
            go.set()
            await tg.wait_for(lambda: tg.visible(42) == ["done"], 10, chat=42)
            assert len(model.asked) == 1
            assert daemon.metrics.inputs.values["telegram", "accepted"] == 1
            again.cancel()
            await asyncio.wait({again})
        finally:
            await daemon.stop()
