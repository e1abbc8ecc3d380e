"""The whole path: what a turn costs from the network's update to the answer in the chat, against a bare bot that makes the same calls.

Everything is durable on our side; own pacing is off; the model answers at once. Runs are interleaved, and a ratio is the median of the
ratios of neighbouring runs.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from statistics import median

from benchmarks.model import Model
from benchmarks.on_discord import discord_rig
from benchmarks.rig import Bot, Load, Result, rig
from benchmarks.table import Row, percentile, ratio_of

GROUP = "whole path"


async def run(bot: Bot, load: Load, seconds: float) -> Result:
    async with rig(bot, load) as bench:
        await bench.warm(load.chats)
        return await bench.talk(load.chats, seconds)


async def run_discord(bot: Bot, stream: bool, seconds: float) -> Result:
    async with discord_rig(bot, stream) as bench:
        await bench.warm(50)
        return await bench.talk(50, seconds)


async def compared(quick: bool) -> AsyncIterator[Row]:
    """The rows with a goal: 200 chats, polling."""
    rounds, seconds = (1, 1.0) if quick else (7, 5.0)
    for stream, cpu_goal, rate_goal in ((True, 1.5, 0.7), (False, 1.7, 0.6)):
        load = Load(200, stream)
        results: dict[Bot, list[Result]] = {"bare": [], "parlour": [], "stock": []}
        for _ in range(rounds):
            for bot, found in results.items():
                found.append(await run(bot, load, seconds))
        how = "streaming" if stream else "one call"
        ours, bare, stock = (
            [result.cpu_ms for result in results["parlour"]],
            [result.cpu_ms for result in results["bare"]],
            results["stock"],
        )
        yield Row(GROUP, f"CPU a turn, {how}, 200 chats", _ms(ours), f"bare bot {_ms(bare)}", ratio_of(ours, bare), most=cpu_goal)
        rates, theirs, slow = ([result.per_second for result in each] for each in (results["parlour"], results["bare"], stock))
        yield Row(
            GROUP, f"turns a second, {how}, 200 chats", _rate(rates), f"bare bot {_rate(theirs)}", ratio_of(rates, theirs), least=rate_goal
        )
        yield Row(
            GROUP, f"turns a second, {how}, 200 chats", _rate(rates), f"stock transport {_rate(slow)}", ratio_of(rates, slow), least=3.0
        )


async def others(quick: bool) -> AsyncIterator[Row]:
    """One run each, for the picture."""
    seconds = 1.0 if quick else 5.0
    loads = (
        [Load(200, True, webhook=True)]
        if quick
        else [
            *(Load(chats, stream) for chats in (1, 50, 1000) for stream in (True, False)),
            Load(200, True, webhook=True),
            Load(200, False, webhook=True),
        ]
    )
    for load in loads:
        bare, ours = await run("bare", load, seconds), await run("parlour", load, seconds)
        how = f"{'streaming' if load.stream else 'one call'}, {'webhook' if load.webhook else 'polling'}"
        name = f"CPU a turn, {how}, {load.chats} chat{'s' if load.chats > 1 else ''}"
        yield Row(
            GROUP,
            name,
            f"{_ms([ours.cpu_ms])}, {ours.per_second:.0f}/s",
            f"{_ms([bare.cpu_ms])}, {bare.per_second:.0f}/s",
            ours.cpu_ms / bare.cpu_ms,
        )
    for stream in (True,) if quick else (True, False):
        ours, bare = await run_discord("parlour", stream, seconds), await run_discord("bare", stream, seconds)
        how = "streaming" if stream else "one call"
        yield Row(
            GROUP,
            f"CPU a turn, {how}, Discord, 50 chats",
            _ms([ours.cpu_ms]),
            f"bare discord.py {_ms([bare.cpu_ms])}",
            ours.cpu_ms / bare.cpu_ms,
        )


async def latency(quick: bool) -> AsyncIterator[Row]:
    """What we add, in an open loop: people write at moments of their own, at 30 percent of what the daemon can do."""
    load = Load(200, True)
    rate = 0.3 * (await run("parlour", load, 1.0 if quick else 4.0)).per_second
    rounds, seconds = (1, 2.0) if quick else (7, 5.0)
    added: dict[Bot, list[list[float]]] = {"bare": [], "parlour": []}
    for _ in range(rounds):
        for bot, found in added.items():
            found.append(await _added(bot, load, rate, seconds))
    for name, of in (("median", median), ("p99", _p99)):
        ours, bare = ([1000 * of(run) for run in added[bot]] for bot in ("parlour", "bare"))
        figure = f"added latency, {name}, {rate:.0f} turns/s"
        yield Row(GROUP, figure, _ms(ours), f"bare bot {_ms(bare)}", ratio_of(ours, bare), most=1.5)


async def _added(bot: Bot, load: Load, rate: float, seconds: float) -> list[float]:
    """Seconds of each turn from the update to the model's request, and from the model's last word to the whole answer in the chat."""
    asked: dict[str, float] = {}
    done: dict[str, float] = {}
    model = Model()

    def note(times: dict[str, float], mark: str) -> None:
        times.setdefault(mark, time.perf_counter())

    model.asked, model.done = partial(note, asked), partial(note, done)
    spread = random.Random(7)
    async with rig(bot, load, model) as bench:
        await bench.warm(load.chats)
        await asyncio.sleep(0.5)  # until what a bot does behind an answer is done, of all of them at once
        free = list(range(1000, 1000 + load.chats))
        said: list[tuple[str, float, asyncio.Future[float]]] = []
        loop = asyncio.get_running_loop()
        at = loop.time()
        ends = at + seconds
        while at < ends:
            at += spread.expovariate(rate)
            await asyncio.sleep(at - loop.time())
            if not free:
                continue
            chat = free.pop(spread.randrange(len(free)))
            now = time.perf_counter()
            mark, answered = bench.say(chat)
            answered.add_done_callback(partial(_free, free, chat))
            said.append((mark, now, answered))
        async with asyncio.timeout(30):
            ends_at = [(mark, now, await answered) for mark, now, answered in said]
    return [asked[mark] - now + end - done[mark] for mark, now, end in ends_at]


def _free(free: list[int], chat: int, _: object) -> None:
    free.append(chat)


def _p99(values: list[float]) -> float:
    return percentile(values, 0.99)


def _ms(values: list[float]) -> str:
    return f"{median(values):.2f} ms"


def _rate(values: list[float]) -> str:
    return f"{median(values):.0f}/s"


PARTS: list[Callable[[bool], AsyncIterator[Row]]] = [compared, others, latency]
