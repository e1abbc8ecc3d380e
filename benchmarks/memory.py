"""Memory: at rest, with many chats that talked, and while many turns stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from statistics import median

from benchmarks.model import Model
from benchmarks.rig import Bot, Load, rig
from benchmarks.table import Row, ratio_of

GROUP = "memory"
MIB = 2**20


async def rest(quick: bool) -> AsyncIterator[Row]:
    found: dict[Bot, list[float]] = {"parlour": [], "bare": []}
    for _ in range(1 if quick else 7):
        for bot, sizes in found.items():
            async with rig(bot, Load(1)) as bench:
                await asyncio.sleep(1.0)  # what is loaded a moment after the start counts, too
                sizes.append(bench.bot.usage().rss / MIB)
    ours, bare = found["parlour"], found["bare"]
    yield Row(GROUP, "at rest, Telegram", f"{median(ours):.0f} MiB", f"bare bot {median(bare):.0f} MiB", ratio_of(ours, bare), most=1.5)


async def many(quick: bool) -> AsyncIterator[Row]:
    chats = 500 if quick else 10_000
    async with rig("parlour", Load(1), sessions='cache = "64MiB"') as bench:
        await bench.warm(1)
        await asyncio.sleep(1.0)
        before = bench.bot.usage().rss
        for start in range(0, chats, 500):
            for _ in range(3):
                await asyncio.gather(*(bench.turn(2000 + start + chat) for chat in range(min(500, chats - start))))
        more = (bench.bot.usage().rss - before) / MIB
    # The goal is a number of MiB, said as a share of it.
    yield Row(GROUP, f"{chats:,} chats, 3 turns each, more than at rest", f"{more:.0f} MiB", "100 MiB", more / 100, most=1.0)


async def streaming(quick: bool) -> AsyncIterator[Row]:
    turns = 100 if quick else 1000
    model = Model(length=400, tokens=20.0) if quick else Model(length=1200, tokens=10.0)
    async with rig("parlour", Load(turns), model) as bench:
        await asyncio.sleep(1.0)
        before = bench.bot.usage().rss
        answers = [bench.say(2000 + chat)[1] for chat in range(turns)]
        async with asyncio.timeout(25):  # they write for half a minute, in the quick form for five seconds
            while model.running < turns:  # noqa: ASYNC110  # nothing says so
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5 if quick else 2.0)
        during = bench.bot.usage().rss
        await asyncio.wait_for(asyncio.gather(*answers), 120)
    each = (during - before) / turns / 1024
    yield Row(GROUP, f"while {turns:,} turns stream", f"{during / MIB:.0f} MiB", f"{each:.0f} KiB a turn")


PARTS = [rest, many, streaming]
