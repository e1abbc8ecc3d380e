"""The pulse: a loop that is late shows, what is stuck is not fed, and the status line says how it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from gateway.metrics import Histogram
from gateway.pulse import BEAT, LINE, PATIENCE, Farewell, Pulse


class Manager:
    """Who is told, and what it has been told when."""

    def __init__(self) -> None:
        self.problem = ""
        self.line = "fine"
        self.told: list[tuple[float, str]] = []
        self.delay = Histogram("x", "", [0.01, 0.1])

    def notify(self, *states: str) -> None:
        self.told += [(asyncio.get_running_loop().time(), state) for state in states]

    def times(self, state: str) -> list[float]:
        return [at for at, said in self.told if said == state]

    @asynccontextmanager
    async def beating(self, feed_every: float) -> AsyncIterator[Pulse]:
        pulse = Pulse(stuck=lambda: self.problem, line=lambda: self.line, delay=self.delay, feed_every=feed_every, notify=self.notify)
        task = asyncio.create_task(pulse.run())
        try:
            yield pulse
        finally:
            task.cancel()
            await asyncio.wait({task})


@pytest.mark.looptime
async def test_the_watchdog_is_fed_at_once_and_often_enough() -> None:
    """Never later than asked for, whether that is longer or shorter than a beat."""
    for every in (0.2, 30.0):
        manager = Manager()
        async with manager.beating(every):
            await asyncio.sleep(every * 10.5)
        fed = manager.times("WATCHDOG=1")
        assert len(fed) >= 10
        assert max(b - a for a, b in pairwise(fed)) <= every + BEAT


@pytest.mark.looptime
async def test_what_is_stuck_is_not_fed_until_it_moves() -> None:
    """No food while a channel is stuck, one line in the log however long it takes, the reason in the status line; then all as before."""
    manager = Manager()
    with capture_logs() as logs:
        async with manager.beating(1.0):
            await asyncio.sleep(10)
            before = len(manager.times("WATCHDOG=1"))
            for late in range(60):
                manager.problem = f"telegram should have moved {late} s ago"
                await asyncio.sleep(1)
            assert len(manager.times("WATCHDOG=1")) <= before + 1
            assert manager.told[-1][1].startswith("STATUS=telegram should have moved")
            manager.problem = ""
            await asyncio.sleep(10)
            assert len(manager.times("WATCHDOG=1")) > before + 5
    assert manager.told[-1][1] in {"STATUS=fine", "WATCHDOG=1"}
    assert [(line["log_level"], line["event"]) for line in logs] == [("error", "stuck"), ("info", "not stuck any more")]


@pytest.mark.looptime
async def test_without_a_watchdog_nothing_is_fed() -> None:
    """The status line is all that is said, and only when it changes, and not too often."""
    manager = Manager()
    async with manager.beating(0.0):
        for n in range(100):
            manager.line = f"{n // 50} turns"
            await asyncio.sleep(1)
    assert [said for _, said in manager.told] == ["STATUS=0 turns", "STATUS=1 turns"]
    assert manager.told[1][0] - manager.told[0][0] <= 50 + LINE


async def test_a_blocked_loop_shows_and_feeds_nothing() -> None:
    """The delay is measured, and while the loop is blocked no food comes: that is what the watchdog is for."""
    manager = Manager()
    async with manager.beating(0.05):
        await asyncio.sleep(0.2)
        began = asyncio.get_running_loop().time()
        time.sleep(0.4)  # noqa: ASYNC251  # it is what is tested
        ended = asyncio.get_running_loop().time()
        await asyncio.sleep(0.1)
    assert not [at for at in manager.times("WATCHDOG=1") if began < at < ended]
    assert manager.delay.counts[-1] == 1
    assert 0.3 < manager.delay.sum < 1


@pytest.mark.looptime
async def test_an_end_that_takes_its_time_says_what_it_waits_for() -> None:
    """systemd hears each change within a beat; the log has a line after a while and after each further one, none where there is nothing to
    wait for, and how much time is left."""
    manager, loop = Manager(), asyncio.get_running_loop()
    deadline = loop.time() + 10
    farewell = Farewell(left=lambda: deadline - loop.time(), notify=manager.notify)
    assert farewell.line == "finishing"
    with capture_logs() as logs:
        task = asyncio.create_task(farewell.run())
        await asyncio.sleep(PATIENCE + BEAT)
        farewell.waits_for(lambda: "2 answers")
        await asyncio.sleep(2 * PATIENCE)
        farewell.waits_for(lambda: "1 message")
        await asyncio.sleep(2 * BEAT)
        task.cancel()
    assert [state for _, state in manager.told] == [
        "STATUS=finishing",
        "STATUS=finishing, waits for 2 answers",
        "STATUS=finishing, waits for 1 message",
    ]
    assert [(line["event"], line["waits_for"], line["seconds_left"]) for line in logs] == [
        ("the end waits", "2 answers", 6.5),
        ("the end waits", "2 answers", 3.5),
        ("the end waits", "1 message", 0.5),
    ]
