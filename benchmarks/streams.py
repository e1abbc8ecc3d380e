"""Many answers that grow at once: what it costs, and how far what people see lags behind what the model has written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from statistics import median

from benchmarks.model import Model
from benchmarks.rig import Load, rig
from benchmarks.table import Row, percentile

GROUP = "streaming"
TOKENS = 50.0
PER_TOKEN = 2
"""Characters, so that an answer that takes long is still one message."""
NETWORK_PER_SECOND = 30.0
OWN_PER_SECOND = 25.0
CHAT_PER_SECOND = 1.0


@dataclass
class Bucket:
    rate: float
    burst: float
    level: float = field(init=False)
    at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.level = self.burst

    def take(self) -> float:
        """Seconds to wait; 0: taken."""
        now = time.monotonic()
        self.level = min(self.burst, self.level + (now - self.at) * self.rate)
        self.at = now
        if self.level < 1:
            return (1 - self.level) / self.rate
        self.level -= 1
        return 0.0


def limits() -> Callable[[int], float]:
    """As Telegram has them: about 30 calls a second in all, about one a second for one chat, with a little credit."""
    whole = Bucket(NETWORK_PER_SECOND, NETWORK_PER_SECOND)
    chats: dict[int, Bucket] = {}

    def limit(chat: int) -> float:
        return chats.setdefault(chat, Bucket(CHAT_PER_SECOND, 3.0)).take() or whole.take()

    return limit


@dataclass
class Seen:
    cpu: float
    """Share of one core."""
    lags: list[float]
    """How far what is shown is behind what is written, seconds, of all answers four times a second, once each of them has words."""
    first: list[float]
    """Seconds to the first words of each."""
    edits: int
    floods: int


async def _run(streams: int, seconds: float, telegram: str, limited: bool) -> Seen:
    """All begin in one moment, and write for so long."""
    model = Model(length=int(seconds * TOKENS) * PER_TOKEN, tokens=TOKENS, size=PER_TOKEN)
    written: dict[int, int] = {}
    seen: dict[int, int] = {}
    first: dict[int, float] = {}
    chat_of: dict[str, int] = {}

    def grown(mark: str, characters: int) -> None:
        written[chat_of[mark]] = characters

    model.grown = grown
    async with rig("parlour", Load(streams), model, telegram=telegram) as bench:
        if limited:
            bench.telegram.limit = limits()
        shown = bench.telegram.shown
        began, before = time.perf_counter(), bench.bot.usage()

        def note(chat: int, text: str) -> None:
            seen[chat] = len(text)
            if len(text) > 1:  # more than the sign that an answer begins
                first.setdefault(chat, time.perf_counter() - began)
            shown(chat, text)

        bench.telegram.shown = note
        answers = []
        for chat in range(streams):
            mark, future = bench.say(2000 + chat)
            chat_of[mark] = 2000 + chat
            answers.append(future)
        lags: list[float] = []
        while time.perf_counter() < began + seconds * 0.97:
            await asyncio.sleep(0.25)
            if len(first) == streams:
                lags += [(written[chat] - seen[chat]) / (TOKENS * PER_TOKEN) for chat in chat_of.values()]
        took, after = time.perf_counter() - began, bench.bot.usage()
        await asyncio.wait_for(asyncio.gather(*answers), 300)
        lags = lags or [seconds]  # not all of them had words in time
        edits, floods = bench.telegram.calls["editMessageText"], bench.telegram.floods
        return Seen((after.cpu - before.cpu) / took, lags, list(first.values()), edits, floods)


async def streams(quick: bool) -> AsyncIterator[Row]:
    count, rounds, seconds = (50, 1, 2.5) if quick else (200, 7, 8.0)
    free = [await _run(count, seconds, "", limited=False) for _ in range(rounds)]
    cpu, edits = median(run.cpu for run in free), median(run.edits for run in free)
    yield Row(
        GROUP, f"{count} streams, limits off: share of a core", f"{cpu:.2f}", f"one core; {edits / seconds:.0f} edits/s", cpu, most=1.0
    )
    late, middle = median(percentile(run.lags, 0.95) for run in free), median(median(run.lags) for run in free)
    yield Row(GROUP, f"{count} streams, limits off: lag, p95", f"{late:.2f} s, median {middle:.2f} s", "1.5 s", late / 1.5, most=1.0)
    paced = f"sends_per_second = {OWN_PER_SECOND:g}\nchat_per_second = {CHAT_PER_SECOND:g}"
    fair = count / OWN_PER_SECOND
    # Each answer takes two calls to its first words, and then some rounds are looked at. Once: what counts here is the pace, not the speed.
    bound = await _run(count, (4.0 if quick else 5.0) * fair, paced, limited=True)
    late = percentile(bound.lags, 0.95)
    yield Row(
        GROUP,
        f"{count} streams, limits on: lag, p95",
        f"{late:.2f} s, median {median(bound.lags):.2f} s, {bound.cpu:.2f} of a core",
        f"fair share {fair:.1f} s; {bound.edits} edits",
        late / fair,
        most=1.3,
    )
    yield Row(
        GROUP,
        f"{count} streams, limits on: first words, p95",
        f"{percentile(bound.first, 0.95):.1f} s",
        f"two calls each: {2 * fair:.1f} s",
        percentile(bound.first, 0.95) / (2 * fair),
    )
    yield Row(GROUP, f"{count} streams, limits on: refused with 429", str(bound.floods), "none", float(bound.floods), most=0.0)


PARTS = [streams]
