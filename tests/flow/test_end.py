"""The end of the daemon, and the watchdog that watches over it in between: whatever hangs, it ends in time and is fed while it lives."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fakes.openai import End, FakeModel, Reply, delta
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import Daemon
from tests.flow.manager import Managed
from tests.flow.people import config
from tests.gateway.core import until

ANA = 42
BUDGET = 0.8

Trouble = Callable[[FakeTelegram, FakeModel], Awaitable[None]]


async def polling(tg: FakeTelegram, model: FakeModel) -> None:
    """A long poll is open, and nothing else happens."""
    await tg.wait_for(lambda: tg.calls_of("getUpdates"), 10)


async def model_hangs(tg: FakeTelegram, model: FakeModel) -> None:
    """The model has begun and says nothing more."""
    model.then(Reply([delta("", role="assistant"), delta("so far"), End.HANG]))
    tg.say(ANA, "tell")
    await tg.wait_for(lambda: "so far" in tg.visible(ANA), 10, chat=ANA)


async def flooded(tg: FakeTelegram, model: FakeModel) -> None:
    """The network wants us to wait for five minutes before the answer may go out."""
    tg.flood(ANA, 300)
    tg.say(ANA, "tell")
    await tg.wait_for(lambda: tg.calls_of("sendMessage", ANA), 10)


async def network_hangs(tg: FakeTelegram, model: FakeModel) -> None:
    """The network has taken the answer and does not say whether it has."""
    tg.hold("sendMessage")
    tg.say(ANA, "tell")
    await tg.wait_for(lambda: tg.calls_of("sendMessage", ANA), 10)


async def network_is_gone(tg: FakeTelegram, model: FakeModel) -> None:
    """Nobody is there any more, and an answer waits."""
    model.then(Reply([delta("", role="assistant"), 1.0, delta("late"), delta(finish="stop")]))
    tg.say(ANA, "tell")
    await model.wait(1)
    await tg.stop()


@pytest.mark.parametrize("trouble", [polling, model_hangs, flooded, network_hangs, network_is_gone])
async def test_it_ends_in_time_whatever_hangs(tmp_path: Path, tg: FakeTelegram, model: FakeModel, trouble: Trouble) -> None:
    """F04: SIGTERM is enough in each of them: exit 0 within the budget and a second."""
    text = config(tg, model, streaming="edit").replace('budget = "8s"', f'budget = "{BUDGET:g}s"')
    async with Daemon(tmp_path, text) as daemon:
        await trouble(tg, model)
        began = asyncio.get_running_loop().time()
        assert await daemon.stop(timeout=BUDGET + 10) == 0
        assert asyncio.get_running_loop().time() - began < BUDGET + 1.5
        assert "Traceback" not in daemon.text()


async def test_it_ends_before_its_start_is_through(tmp_path: Path, model: FakeModel) -> None:
    """F04: SIGTERM while the first contact hangs, with a network that takes connections and never says a word."""
    silence = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silence.wait()
        writer.close()

    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server, FakeTelegram() as tg:
        port = server.sockets[0].getsockname()[1]
        text = config(tg, model).replace(tg.base_url, f"http://127.0.0.1:{port}").replace('budget = "8s"', f'budget = "{BUDGET:g}s"')
        daemon = Daemon(tmp_path, text)
        await daemon.start(ready=False)
        await until(lambda: "backend up" in daemon.text(), 20)
        began = asyncio.get_running_loop().time()
        assert await daemon.stop(timeout=BUDGET + 10) == 0
        assert asyncio.get_running_loop().time() - began < BUDGET + 1.5
        silence.set()


@pytest.mark.parametrize(
    ("budget", "full", "waits_for"),
    [
        (5, False, "1 answer under way"),
        (4, True, "1 message to be sent and put on record (telegram 1)"),
    ],
    ids=["model", "disk"],
)
async def test_an_end_that_takes_its_time_says_what_it_waits_for(
    tmp_path: Path, tg: FakeTelegram, model: FakeModel, budget: int, full: bool, waits_for: str
) -> None:
    """To systemd and in the log, without anybody's words: an operator sees that it does not hang, why, and for how long it may go on. So
    it is for a model that does not end, and for a disk on which it cannot be noted that an answer has arrived."""
    text = config(tg, model).replace('budget = "8s"', f'budget = "{budget}s"')
    async with Managed(tmp_path, text) as daemon:
        if full:
            for n in range(1, 4):  # so that the log, which the limit is for as well, is the smallest file
                tg.say(ANA, "x" * 3900)
                await tg.wait_for(lambda n=n: len(model.asked) == n and len(tg.visible(ANA)) >= n, 10, chat=ANA)  # type: ignore[misc]
            go = asyncio.Event()
            model.then(Reply([delta("", role="assistant"), delta("so far"), go, delta(" and on"), delta(finish="stop")]))
            tg.say(ANA, "tell")
            await tg.wait_for(lambda: "so far" in tg.visible(ANA), 10, chat=ANA)
            assert daemon.process is not None
            room = min(path.stat().st_size for path in daemon.data.rglob("*.jsonl") if path.name in {"main.jsonl", "000001.jsonl"})
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
            go.set()
            await tg.wait_for(lambda: "could not store" in "".join(tg.visible(ANA)), 10, chat=ANA)
        else:
            await model_hangs(tg, model)
        assert await daemon.stop() == 0
        await daemon.hears(f"STATUS=finishing, waits for {waits_for}")
        (line,) = [json.loads(line) for line in daemon.text().splitlines() if '"the end waits"' in line]
        assert line["waits_for"] == waits_for
        assert 0 < line["seconds_left"] < budget


async def test_a_second_signal_ends_it_at_once(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """F04: whoever asks twice does not want to wait; what was acknowledged is answered by the next start."""
    async with Daemon(tmp_path, config(tg, model)) as daemon:
        await model_hangs(tg, model)
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGTERM)
        with pytest.raises(TimeoutError):
            await daemon.ended(timeout=0.5)
        began = asyncio.get_running_loop().time()
        daemon.process.send_signal(signal.SIGTERM)
        assert await daemon.ended(timeout=5) == 130
        assert asyncio.get_running_loop().time() - began < 1
        await daemon.start()
        await tg.wait_for(lambda: tg.visible(ANA) == ["Heard: tell"], 10, chat=ANA)
        assert await daemon.stop() == 0


# -------------------------------------------------------------------------------------------------------------------------- watchdog


async def test_the_watchdog_is_fed_while_it_lives(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """From READY on, at half of the time that systemd gives, with a status line for people; also while the network is away. A process that
    does not run feeds nothing, and goes on feeding when it does."""
    async with Managed(tmp_path, config(tg, model), watchdog=0.6) as daemon:
        await daemon.hears("WATCHDOG=1", 4)
        fed = [at for at, word in daemon.told if word == "WATCHDOG=1"]
        assert max(b - a for a, b in pairwise(fed)) < 0.6
        assert daemon.words("STATUS=")[-1] == "STATUS=telegram up; openai, fine; 0 turns, 0 unsent"

        await tg.stop()
        await daemon.hears("STATUS=telegram up (")
        count = len(daemon.words("WATCHDOG=1"))
        await daemon.hears("WATCHDOG=1", count + 3, timeout=5)

        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(0.2)
        count = len(daemon.words("WATCHDOG=1"))
        await asyncio.sleep(1.0)
        assert len(daemon.words("WATCHDOG=1")) == count
        daemon.process.send_signal(signal.SIGCONT)
        await daemon.hears("WATCHDOG=1", count + 2, timeout=5)
        assert await daemon.stop() == 0
        await daemon.hears("STOPPING=1")
        assert daemon.words("STATUS=")[-1] == "STATUS=finishing"
