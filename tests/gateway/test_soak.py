"""Weeks of people who come and go, in virtual time: whatever the house keeps a chat, a person or a message is let go of again.

`PARLOUR_SOAK=20000 .venv/bin/python -m pytest -q -s tests/gateway/test_soak.py --timeout=0` is the long form: that many chats after the
warm-up, and the process's memory is looked at, too (about a quarter of an hour).
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import re
from collections import Counter, deque
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from channels.base import Gone, Inbound, NotSent, Retry
from gateway.options import Access as Rules
from gateway.store.jsonl import JsonlStore
from tests.gateway.core import Core, Parrot, Place
from tests.gateway.outbox_net import Call, Fate
from tests.model.virtual import BASE, Loop

CHATS = int(os.environ.get("PARLOUR_SOAK", "0"))
LONG = bool(CHATS)
WAVES = 10 if LONG else 6
WARM_UP = 6 if LONG else 5
"""Waves until everything that has a bound has met it: the dedupe horizon is four of them."""
WAVE = max(CHATS // WAVES, 8)
HALF_A_DAY = 12 * 3600.0
MIB = 2**20
BOUNDED = {
    "SessionManager._pointers": 4096,
    "Router._told_old": 1024,
    "GroupAdmins._known": 4096,
    "Pace.shut": 2000,
    "Facts.marks": 20_000 if LONG else 2000,
}
"""Collections that grow until they hold so many; the last one is of the journal's newest file, which begins anew when it is full."""
KNOWN = WAVE // 2
"""Sessions of which the store remembers where they stand."""


def resident() -> int:
    """Bytes of the process that are in memory."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def ours() -> Counter[str]:
    """What the process holds, by type: our own kinds of things and what they are made of; and how much is in each collection of theirs."""
    gc.collect()
    plain: set[type] = {asyncio.Task, asyncio.Future, asyncio.Event, asyncio.Lock}
    if LONG:  # in the short form the process may be full of other tests' things
        plain |= {dict, list, set, tuple}
    found: Counter[str] = Counter()
    for each in gc.get_objects():
        kind = type(each)
        mine = str(kind.__module__).partition(".")[0] in {"gateway", "channels"}
        if mine or kind in plain:
            found[kind.__name__] += 1
        if mine:
            for name in (*getattr(each, "__dict__", ()), *getattr(kind, "__slots__", ())):
                if isinstance(held := getattr(each, name, None), dict | set | list | deque):
                    found[f"{kind.__name__}.{name}"] += len(held)
    return found


class Town:
    """People, a network that has its bad days, and a daemon."""

    def __init__(self, folder: Path) -> None:
        self.loop = Loop()
        self.dice = random.Random(7)
        self.net = Place(units=4000, latency=0.05, admins={"a"})
        self.net.judge = self.judge
        self.net.backlog = 24 * 3600.0
        self.model = Parrot()
        self.core = Core(
            folder,
            net=self.net,
            model=self.model,
            store=partial(JsonlStore, known=KNOWN),
            rules=Rules(direct="pairing", groups="open"),
            clock=lambda: BASE + self.loop.time(),
            cache_bytes=200_000,
            rotate_bytes=1_000_000 if LONG else 100_000,
            turns_per_day=50,
        )
        self.taken = 0

    def judge(self, call: Call) -> Fate:
        dice = self.dice.random()
        if call.address.chat.endswith("13"):
            return Gone("blocked")
        return NotSent("x") if dice < 0.01 else Retry(2) if dice < 0.02 else None

    async def visit(self, chat: str) -> None:
        """One chat's life: it comes, talks, steers, and goes."""
        direct, ids = not chat.endswith("7"), iter(range(10**6))

        def write(text: str, **more: object) -> Inbound:
            input_id = f"net:7:{chat}:{self.taken}:{next(ids)}"
            inbound = self.core.inbound(text, chat=chat, who="a", direct=direct, trusted=direct, input_id=input_id)
            return msgspec.structs.replace(inbound, **more) if more else inbound

        row = [
            "hello",
            "/fork west",
            "and now?",
            "/status",
            "/undo",
            "/retry",
            "/reset",
            "hello again",
            "/sessions",
            "/switch main",
            "/stop",
        ]
        if self.dice.random() < (0.005 if LONG else 0.3):  # it reads the whole journal
            row += ["/forget west yes", "/forget yes"]
        for text in row:
            await asyncio.sleep(self.dice.random() * 2)
            inbound = write(text)
            await self.core.router.accept([inbound, inbound])
            if self.dice.random() < 0.2:
                await self.core.router.accept([inbound])
                await self.core.router.accept([msgspec.structs.replace(inbound, kind="edit", text="better so")])
        await self.core.router.accept([write("old", sent_at=1.0), write("", unsupported="a sticker"), write("/nonsense")])
        stranger = self.core.inbound("let me in", chat=f"s{chat}", who=f"s{chat}", input_id=f"net:7:s{chat}:{self.taken}")
        await self.core.router.accept([stranger])

    async def wave(self, number: int) -> None:
        """Half a day: some come back, most are new."""
        self.taken += 1
        first = number * WAVE
        chats = [str(first + n) for n in range(WAVE)] + [str(self.dice.randrange(first + 1)) for _ in range(WAVE // 10)]
        ends = self.loop.time() + HALF_A_DAY
        for start in range(0, len(chats), 40):
            async with asyncio.TaskGroup() as people:
                for chat in dict.fromkeys(chats[start : start + 40]):
                    people.create_task(self.visit(chat))
            await asyncio.sleep(60)
        await asyncio.sleep(ends - self.loop.time())
        assert not self.core.inbox.unfinished()
        for remembered in (self.net.calls, self.net.messages, self.net.refused, self.model.asked, self.core.heard):
            remembered.clear()

    def idle(self) -> None:
        """Nothing is left of anybody who has gone."""
        core = self.core
        assert (len(core.runners), len(core.outbox), core.outbox.waiting(), core.router.busy, core.sessions.keys_held) == (0, 0, 0, 0, 0)
        assert core.sessions.busy() == set()
        assert not asyncio.all_tasks(self.loop)
        loaded, stubs, size = core.sessions.cached
        assert (stubs, size <= 200_000, loaded <= 100) == (0, True, True)
        assert core.inbox.segments <= 1 + len(list((core.folder / "journal").glob("*.jsonl")))


@dataclass
class Size:
    """How much there is of everything."""

    things: Counter[str]
    labels: dict[str, int]
    files: int
    segments: int
    memory: int


def size(town: Town) -> Size:
    labels = {name: len(metric.values) for name, metric in vars(town.core.metrics).items() if hasattr(metric, "values")}
    return Size(ours(), labels, len(os.listdir("/proc/self/fd")), town.core.inbox.segments, resident())


def test_whoever_goes_leaves_nothing_behind(tmp_path: Path) -> None:
    """New chats all the time, each with its forks, resets, repeats, edits, strangers and refusals: after the warm-up neither the number of
    any kind of object grows, nor tasks, descriptors, journal files or metrics' labels; in the long form neither does the memory."""
    town = Town(tmp_path)
    loop = town.loop
    loop.run_until_complete(town.core.start())
    try:

        def live(waves: range) -> Size:
            for number in waves:
                loop.run_until_complete(town.wave(number))
                town.idle()
                if LONG:
                    now = size(town)
                    things = sum(now.things.values())
                    print(
                        f"{(number + 1) * WAVE:6} chats: {now.memory / MIB:.1f} MiB, {things} objects, {now.segments} segments", flush=True
                    )
            return size(town)

        before, after = live(range(WARM_UP)), live(range(WARM_UP, WARM_UP + WAVES))
        few = {name: max(30, count // 20) for name, count in before.things.items()}
        grown = {name: count - before.things[name] for name, count in after.things.items() if count > BOUNDED.get(name, 0)}
        assert {name: more for name, more in grown.items() if more > few.get(name, 30)} == {}
        # The cache holds so many bytes, in more or in fewer sessions: in the short form some fifty, each of a dozen things.
        most = sum(count for name, count in before.things.items() if name not in BOUNDED) * (1.05 if LONG else 1.15)
        assert sum(count for name, count in after.things.items() if name not in BOUNDED) <= most
        # A kind of turn may come up for the first time; nothing has a label of its own.
        assert all(count <= max(before.labels[name], 8) for name, count in after.labels.items()), after.labels
        assert (after.files, after.segments) <= (before.files, before.segments + 2)
        if LONG:
            assert after.memory <= before.memory * 1.05
        loop.run_until_complete(town.core.stop())
        assert loop.faults + town.net.faults == []
    finally:
        loop.close()
