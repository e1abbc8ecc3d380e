"""What hangs or dies without a word of its own is noticed, goes on or begins anew, and loses nothing: a call, a turn, a lane, the writer,
the end itself. Channels are in `test_supervisor`, the tasks of the daemon in `test_tasks`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import sys
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from channels.base import Address, Channel, Pacing
from gateway.asking import BROKEN, BROKEN_OFF
from gateway.metrics import Metrics
from gateway.outbox import Delivery, Outbox
from gateway.outbox.counted import LIMIT, counted
from gateway.power import PowerLog
from gateway.tasks import Restarts
from gateway.writer import Fence, Result, Writer
from tests.gateway.core import Core
from tests.gateway.disk_tools import under_way
from tests.gateway.outbox_net import CHAT, HANG, Book, Net


def told() -> tuple[Metrics, Restarts]:
    metrics = Metrics()
    return metrics, Restarts(metrics.restarts)


def reply(text: str, input_id: str) -> Delivery:
    return Delivery(input_id, "net:1", CHAT, text)


# ------------------------------------------------------------------------------------------------------------------------------- calls


@pytest.mark.looptime
async def test_a_call_that_never_returns_holds_its_lane_no_longer_than_it_may() -> None:
    """A send past every limit of its channel: its outcome is unknown, so that it is not repeated; what waits behind it goes out."""
    metrics, restarts = told()
    net = Net()
    net.fail("send", HANG)
    outbox = Outbox({"net": counted(net, metrics, restarts)}, book := Book(), spread=lambda: 0.0)
    first, second = outbox.put(reply("one", "i1")), outbox.put(reply("two", "i2"))
    await asyncio.sleep(LIMIT - 1)
    assert not first.done()
    await asyncio.wait({first, second}, timeout=5)
    assert (first.done(), second.done()) == (True, True)
    assert net.visible() == ["two"]
    assert book.sent_of("i1") == [((0, 3), (), True)]
    assert metrics.restarts.values == {("call",): 1}
    assert metrics.calls.values["net", "send", "unknown"] == 1
    await outbox.close()


# ------------------------------------------------------------------------------------------------------------------------------- turns


async def test_a_turn_that_hangs_is_ended_and_the_next_one_runs(tmp_path: Path) -> None:
    """A model's adapter that neither speaks nor gives up: what was said is kept, the person is told, the chat goes on. Each word counts as
    a sign of life."""
    async with Core(tmp_path) as core:
        core.runners.model = dataclasses.replace(core.runners.model, patience=0.15)
        never = asyncio.Event()
        core.model.then(never)
        assert await core.ask("one") == BROKEN
        core.model.then("so far", never)
        assert BROKEN_OFF in await core.ask("two")
        assert core.seen()[-1].startswith("so far")
        assert core.model.open == 0
        assert await core.ask("three") == "Heard: three"


# ------------------------------------------------------------------------------------------------------------------------------- lanes


class Odd:
    """A channel of which something cannot be asked, so many times."""

    def __init__(self, net: Net, faults: int) -> None:
        self._net, self._faults = net, faults

    def __getattr__(self, name: str) -> object:
        if name == "streams" and self._faults:
            self._faults -= 1
            raise KeyError(name)
        return getattr(self._net, name)


@pytest.mark.looptime
async def test_a_lane_that_breaks_goes_on() -> None:
    """A fault of ours outside of any delivery: the lane's task begins anew with what it had, and nothing is lost or said twice."""
    metrics, restarts = told()
    net = Net()
    channel: Channel = Odd(net, 3)  # type: ignore[assignment]
    outbox = Outbox({"net": channel}, Book(), restarts=restarts, spread=lambda: 0.0)
    with capture_logs() as logs:
        stream = outbox.stream(CHAT, "i1")
        stream.grow("growing")
        await asyncio.sleep(20)
    assert metrics.restarts.values == {("lane",): 3}
    assert {line["event"] for line in logs} == {"task failed, started again"}
    assert net.visible() == ["growing"]
    await outbox.put(Delivery("i1", "net:1", CHAT, "growing up", answer=("main", 2)), stream)
    await outbox.put(reply("next", "i2"))
    assert net.visible() == ["growing up", "next"]
    await outbox.close()


class Sick(Odd):
    """One that breaks one chat's lane, again and again."""

    def __getattr__(self, name: str) -> object:
        task = asyncio.current_task()
        if name == "streams" and self._faults and task is not None and task.get_name() == "lane net 1 ":
            raise KeyError(name)
        return getattr(self._net, name)


@pytest.mark.looptime
async def test_a_lane_that_breaks_keeps_no_other_from_its_edits() -> None:
    """It leaves the line of those that wait to edit: growing answers in other chats go on as if it were not there."""
    _, restarts = told()
    net = Net(units=5000, pacing=Pacing(per_second=2.0))
    channel = Sick(net, 0)
    outbox = Outbox({"net": channel}, Book(), restarts=restarts, spread=lambda: 0.0)  # type: ignore[dict-item]
    streams = [outbox.stream(Address("net", chat), f"i{chat}") for chat in "12345"]

    async def grow(seconds: int) -> None:
        for _ in range(10 * seconds):
            for stream in streams:
                stream.grow("x")
            await asyncio.sleep(0.1)

    await grow(6)
    channel._faults = 1  # from its turn on: it stands in the line now
    began = asyncio.get_running_loop().time()
    await grow(60)
    edits = [call.at for call in net.of("edit", Address("net", "2")) if call.at > began]
    assert max(after - before for before, after in pairwise([began, *edits, began + 60])) < 5.0
    await outbox.close()


# ------------------------------------------------------------------------------------------------------------------------------ writer


class Faulty(PowerLog):
    """Fails, so many times, in a way that is no error of a disk."""

    faults = 1

    def record(self, written: Sequence[tuple[Path, int, bytes]]) -> None:
        if self.faults:
            self.faults -= 1
            raise MemoryError


async def test_a_writer_that_dies_leaves_nobody_without_a_result(tmp_path: Path) -> None:
    """Those of the batch get an error and have to look at their file; what waited behind them is written by a new task, without another
    append to wake it."""
    metrics, restarts = told()
    writer = Writer(Faulty(tmp_path), restarts)
    fence = Fence()
    path = tmp_path / "file"
    flying = writer.append(path, b"one\n", fence=fence)
    await under_way()
    waiting = writer.append(tmp_path / "other", b"two\n")
    with pytest.raises(OSError, match="the writer failed"):
        await asyncio.wait_for(flying, 10)
    assert await asyncio.wait_for(waiting, 10) == 4
    assert fence.broken
    assert (tmp_path / "other").read_bytes() == b"two\n"
    assert metrics.restarts.values == {("writer",): 1}
    await writer.close()


class Unwilling(PowerLog):
    """Cannot write, while the files can neither be cut back: something else lies in their places."""

    faults = 1

    def record(self, written: Sequence[tuple[Path, int, bytes]]) -> None:
        if self.faults:
            self.faults -= 1
            for path in {path for path, _, _ in written}:
                path.rename(path.with_suffix(".away"))
                path.symlink_to(path.with_suffix(".away"))
            raise OSError(errno.EIO, "no log")
        super().record(written)


async def test_all_of_a_batch_is_cut_back_though_that_takes_until_later(tmp_path: Path) -> None:
    """A file that was written to twice in the batch is cut to what it was before it, before anything is appended again."""
    writer = Writer(Unwilling(tmp_path))
    path = tmp_path / "file"
    path.write_bytes(b"good\n")
    results: list[Result] = []
    writer.submit(path, b"one\n", results.append, journal=True)
    writer.submit(path, b"two\n", results.append, journal=True, behind=True)
    await writer.flush()
    assert [str(result) for result in results] == ["[Errno 5] no log"] * 2
    path.unlink()
    path.with_suffix(".away").rename(path)
    await writer.append(path, b"three\n", journal=True)
    assert path.read_bytes() == b"good\nthree\n"
    await writer.close()


async def test_who_fails_over_a_result_keeps_nobody_else_from_theirs(tmp_path: Path) -> None:
    """A fault of ours in one that is told, and in another one that is told of that: all others hear, and the writer goes on."""
    told: dict[int, Result] = {}

    def hear(n: int, result: Result) -> None:
        told[n] = result
        if n in {1, 3}:
            raise KeyError(n)

    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
    writer = Writer()
    for n in range(6):
        writer.submit(tmp_path / f"{n % 2}", b"line\n", partial(hear, n))
    await asyncio.wait_for(writer.flush(), 10)
    assert sorted(told) == [0, 1, 2, 3, 4, 5]
    assert list(map(repr, faults)) == ["KeyError(3)"]  # the other one is the writer's own, and in the log
    assert await asyncio.wait_for(writer.append(tmp_path / "more", b"line\n"), 10) == 5
    await writer.close()


# ------------------------------------------------------------------------------------------------------------------------------ the end


class Silent(Book):
    """A disk that does not answer."""

    async def sent(self, delivery: Delivery, span: tuple[int, int], ids: Sequence[str], unknown: bool, last: bool) -> None:
        await asyncio.Event().wait()


@pytest.mark.looptime
async def test_the_outbox_closes_though_a_record_hangs() -> None:
    """In the time that it is given; what hangs is counted. It is on record as not sent, or not at all."""
    net = Net(streams=False)
    outbox = Outbox({"net": net}, Silent(), spread=lambda: 0.0)
    outbox.put(reply("one", "i1"))
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    assert await outbox.close(2.0) >= 1
    assert asyncio.get_running_loop().time() - began <= 2.0
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@pytest.mark.parametrize(
    ("call", "code", "says"),
    [("end_without_threads(7)", 7, "ended without waiting for threads"), ("end_by_force(-7.7)", 1, "ended by force")],
    ids=["threads", "force"],
)
async def test_a_thread_that_hangs_keeps_nobody(call: str, code: int, says: str) -> None:
    """A name that does not resolve, a disk that does not answer: Python would wait for ever."""
    script = f"import threading; from gateway.overtime import *; threading.Thread(target=threading.Event().wait).start(); {call}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == code
    assert says in out.decode()
