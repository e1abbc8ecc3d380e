"""Tasks with an owner: none fails unseen, and what is to live as long as the daemon begins anew where it fails."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from gateway.metrics import Metrics
from gateway.tasks import LONGEST_PAUSE, STEADY, Restarts, Tasks

pytestmark = [pytest.mark.looptime, pytest.mark.asyncio]


class Worker:
    """Meets, at each beginning, what the script has for it: a fault after so many seconds, or work without end."""

    def __init__(self, *script: tuple[float, BaseException]) -> None:
        self._script = list(script)
        self.begun: list[float] = []

    async def work(self) -> None:
        loop = asyncio.get_running_loop()
        self.begun.append(loop.time())
        if not self._script:
            await asyncio.Event().wait()
        seconds, fault = self._script.pop(0)
        await asyncio.sleep(seconds)
        raise fault

    def pauses(self) -> list[float]:
        return [round(b - a, 3) for a, b in zip(self.begun, self.begun[1:], strict=False)]


def told() -> tuple[Metrics, Restarts]:
    metrics = Metrics()
    return metrics, Restarts(metrics.restarts, clock=lambda: asyncio.get_running_loop().time())


@pytest.mark.parametrize("fault", [KeyError("x"), OSError(5, "x"), asyncio.CancelledError()], ids=lambda fault: type(fault).__name__)
async def test_whatever_ends_it_it_begins_anew(fault: BaseException) -> None:
    """Logged with its name, counted, and shown for a while; a cancellation that nobody aimed is a fault like any other."""
    metrics, restarts = told()
    tasks, worker = Tasks(restarts), Worker((3.0, fault))
    with capture_logs() as logs:
        tasks.keep(worker.work, "retention")
        await asyncio.sleep(10)
    assert worker.pauses() == [4.0]
    assert [(line["event"], line["task"]) for line in logs] == [("task failed, started again", "retention")]
    assert metrics.restarts.values == {("retention",): 1}
    assert restarts.recent() == {"retention": type(fault).__name__}
    await asyncio.sleep(STEADY)
    assert restarts.recent() == {}
    assert await tasks.close() == 0


async def test_pauses_grow_and_begin_anew_after_steady_work() -> None:
    """1, 2, 4 ... up to a minute; what has worked for long begins anew soon."""
    worker = Worker(*[(0.0, KeyError("x"))] * 8, (STEADY + 1, KeyError("x")))
    tasks = Tasks()
    tasks.keep(worker.work, "x")
    await asyncio.sleep(1000)
    assert worker.pauses() == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, LONGEST_PAUSE, LONGEST_PAUSE, STEADY + 2]
    await tasks.close()


async def test_an_end_in_order_is_the_end_and_so_is_a_cancellation() -> None:
    """Neither is a failure; and a task that pauses can be ended like one that works."""
    metrics, restarts = told()
    tasks = Tasks(restarts)

    async def done() -> None:
        await asyncio.sleep(1)

    tasks.keep(done, "x")
    tasks.keep(Worker().work, "y")
    await asyncio.sleep(5)
    assert len(tasks) == 1
    assert await tasks.close() == 0
    assert metrics.restarts.values == {}
    failing = Worker((0.0, KeyError("x")), (0.0, KeyError("x")))
    tasks.keep(failing.work, "z")
    await asyncio.sleep(1.5)
    assert await tasks.close() == 0
    assert len(failing.begun) == 2


async def test_the_end_waits_no_longer_than_it_may() -> None:
    """What does not react is counted, and left behind."""
    tasks = Tasks()
    let_go = asyncio.Event()

    async def deaf() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    task = tasks.start(deaf(), "deaf")
    tasks.start(Worker().work(), "polite")
    await asyncio.sleep(0)
    assert await tasks.close(5.0) == 1
    let_go.set()
    await task
