"""A process in which something hangs that no other code of ours can reach: a thread in a name's resolution, the loop itself. And the second
signal, in states that an end may meet; `test_end` has more of them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.fakes.discord import FakeDiscord
from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import KEY, REPO, TOKEN, Daemon
from tests.flow.manager import Managed
from tests.flow.on_discord import both
from tests.flow.people import config
from tests.flow.test_end import ANA, flooded, model_hangs
from tests.gateway.core import until

BUDGET = 0.8

MACHINE = """
import signal, socket, threading, time

real = socket.getaddrinfo

def getaddrinfo(host, *args, **more):
    if host in ("hangs.test", b"hangs.test"):
        print("a name hangs", flush=True)
        threading.Event().wait()
    return real(host, *args, **more)

socket.getaddrinfo = getaddrinfo

def block(*args):
    print("the loop is blocked", flush=True)
    while True:
        time.sleep(1)

signal.signal(signal.SIGUSR1, block)
"""
"""The daemon's machine: a resolver that never answers for one name; and SIGUSR1 blocks the main thread, as a fault of ours would."""


def machine(folder: Path) -> dict[str, str]:
    """The environment of a daemon on it."""
    (folder / "sitecustomize.py").write_text(MACHINE)
    return {"PYTHONPATH": f"{folder}{os.pathsep}{REPO}", "PYTHONFAULTHANDLER": "1"}


def quick(text: str) -> str:
    """With a budget that a test can wait for."""
    return text.replace('budget = "8s"', f'budget = "{BUDGET:g}s"')


# ---------------------------------------------------------------------------------------------------------------------------- states


@asynccontextmanager
async def telegram(folder: Path, trouble: Callable[[FakeTelegram, FakeModel], Awaitable[None]]) -> AsyncIterator[Daemon]:
    async with FakeTelegram(token=TOKEN) as tg, FakeModel(api_key=KEY) as model, Daemon(folder, config(tg, model)) as daemon:
        await trouble(tg, model)
        yield daemon


@asynccontextmanager
async def discord_reconnects(folder: Path) -> AsyncIterator[Daemon]:
    """The gateway is gone, and is tried again and again."""
    async with (
        FakeTelegram(token=TOKEN) as tg,
        FakeModel(api_key=KEY) as model,
        FakeDiscord() as dc,
        Daemon(folder, quick(both(dc, tg, model)), {"PARLOUR_DISCORD_TOKEN": dc.token}) as daemon,
    ):
        await dc.online(20)
        await dc.stop()
        await until(lambda: "the gateway has a problem" in daemon.text(), 30)
        yield daemon


@asynccontextmanager
async def a_name_hangs(folder: Path) -> AsyncIterator[Daemon]:
    """The first contact waits for a resolver that never answers."""
    async with FakeTelegram(token=TOKEN) as tg, FakeModel(api_key=KEY) as model:
        text = quick(config(tg, model)).replace(tg.base_url, "https://hangs.test")
        daemon = Daemon(folder, text, machine(folder))
        await daemon.start(ready=False)
        try:
            await until(lambda: "a name hangs" in daemon.text(), 20)
            yield daemon
        except AssertionError:
            print(daemon.text())
            raise
        finally:
            await daemon.kill()


STATES = {
    "flood wait": lambda folder: telegram(folder, flooded),
    "discord reconnects": discord_reconnects,
    "a name hangs": a_name_hangs,
}


@pytest.mark.parametrize("state", STATES)
async def test_a_second_signal_ends_it_at_once(tmp_path: Path, state: str) -> None:
    """F04: whoever asks twice does not want to wait; nothing that was acknowledged is lost, and no input is blamed for it."""
    async with STATES[state](tmp_path) as daemon:
        assert daemon.process is not None
        for _ in range(2):
            if daemon.process.returncode is None:
                daemon.process.send_signal(signal.SIGTERM)
            await asyncio.wait({asyncio.ensure_future(daemon.process.wait())}, timeout=0.2)
        began = asyncio.get_running_loop().time()
        assert await daemon.ended(timeout=10) in {0, 130}  # 0: it had ended before the second one
        assert asyncio.get_running_loop().time() - began < 2
        if state == "flood wait":
            journal = (daemon.data / "journal" / "000001.jsonl").read_text()
            assert [word in journal for word in ('"accepted"', '"ended"', '"finished"')] == [True, True, False]


@pytest.mark.parametrize("state", ["discord reconnects", "a name hangs"])
async def test_it_ends_in_time_whatever_hangs(tmp_path: Path, state: str) -> None:
    """F04: one SIGTERM is enough, and the exit code is 0, though Python itself would wait for a thread that never ends."""
    async with STATES[state](tmp_path) as daemon:
        began = asyncio.get_running_loop().time()
        assert await daemon.stop(timeout=30) == 0
        assert asyncio.get_running_loop().time() - began < BUDGET + 3
        assert "Traceback" not in daemon.text()


# -------------------------------------------------------------------------------------------------------------------------- the loop


async def test_a_blocked_loop_is_the_watchdogs_and_tells_where_it_is(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """While the loop is blocked nothing is fed; what systemd sends then (SIGABRT) leaves the stacks of all threads in the log; and what was
    under way goes on after the restart."""
    async with Managed(tmp_path, config(tg, model), machine(tmp_path), watchdog=0.6) as daemon:
        await daemon.hears("WATCHDOG=1", 3)
        await model_hangs(tg, model)
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGUSR1)
        await until(lambda: "the loop is blocked" in daemon.text(), 10)
        count = len(daemon.words("WATCHDOG=1"))
        await asyncio.wait({asyncio.ensure_future(asyncio.Event().wait())}, timeout=1.2)
        assert len(daemon.words("WATCHDOG=1")) <= count + 1
        daemon.process.send_signal(signal.SIGABRT)
        assert await daemon.ended() == -signal.SIGABRT
        text = daemon.text()
        assert "Fatal Python error: Aborted" in text
        assert "in block" in text[text.index("Fatal Python error") :]
    async with Daemon(tmp_path, (tmp_path / "config.toml").read_text()) as after:
        await tg.wait_for(lambda: tg.visible(ANA) == ["Heard: tell"], 15, chat=ANA)
        assert await after.stop() == 0
