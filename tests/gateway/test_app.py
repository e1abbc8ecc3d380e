"""The parts put together: start, work and end of a whole daemon in this process, a web page in front, an echo or a fake model behind."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path

import aiohttp
import pytest

from channels.base import Address, Inbound, Sender
from channels.settings import Seconds
from gateway.app import Daemon, channel_types
from gateway.config import Config
from gateway.errors import StartError
from gateway.message import SessionKey
from gateway.options import Access, Backend, Http, Shutdown
from tests.fakes.openai import End, FakeModel, Reply, delta
from tests.flow.daemon import free_port
from tests.gateway.core import until

KEY = SessionKey("web", "c1")


def config(folder: Path, *, listen: str = "127.0.0.1:0", backend: Backend | None = None, budget: float = 3.0) -> Config:
    return Config(
        path="config.toml",
        data_dir=folder / "data",
        http=Http(listen=listen),
        access=Access(direct="open"),
        backend=backend or Backend(kind="echo"),
        shutdown=Shutdown(budget=Seconds(budget)),
        channels={"web": channel_types()["web"]()},
        tokens={},
    )


def said(text: str, n: int, chat: str = "c1") -> Inbound:
    return Inbound(f"web:{chat}:{n}", Address("web", chat), Sender("owner", "Ana", trusted=True), text)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def answers(daemon: Daemon, chat: str = "c1") -> list[str]:
    session = await daemon.sessions.view(SessionKey("web", chat), "main")
    return [message.content or "" for message in session.messages if message.role == "assistant"]


async def test_a_whole_life_leaves_nothing_behind(tmp_path: Path) -> None:
    """Started, spoken to, ended: what came is answered and on disk, and no task, thread's file or socket stays."""
    before = asyncio.all_tasks()
    files = descriptors()
    for life in range(2):
        daemon = Daemon(config(tmp_path))
        await daemon.start()
        serving = asyncio.create_task(daemon.serve())
        await daemon.router.accept([said("hi", life), said("/status", 10 + life), said("hi", life)])
        await until(lambda daemon=daemon: not daemon.inbox.unfinished())  # type: ignore[misc]
        assert daemon.overview.health().ready
        daemon.end()
        await serving
        await daemon.stop()
        assert asyncio.all_tasks() == before
        assert descriptors() <= files
    daemon = Daemon(config(tmp_path))
    await daemon.start()
    assert await answers(daemon) == ["You said: hi", "You said: hi"]
    await daemon.stop()


@pytest.mark.parametrize("fault", ["locked", "port", "journal"])
async def test_a_start_that_fails_lets_go_of_everything(tmp_path: Path, fault: str) -> None:
    """One StartError, and the folder, the port and the tasks are free for the next try."""
    first = Daemon(config(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = "127.0.0.1:0"
        if fault == "locked":
            await first.start()
        elif fault == "port":
            listen = f"127.0.0.1:{taken.getsockname()[1]}"
        else:
            (tmp_path / "data" / "journal").write_text("not a folder")
        before = asyncio.all_tasks()
        second = Daemon(config(tmp_path, listen=listen))
        with pytest.raises(StartError):
            await second.start()
        await second.stop()
        assert asyncio.all_tasks() <= before
    await first.stop()
    if fault == "journal":
        (tmp_path / "data" / "journal").unlink()
    third = Daemon(config(tmp_path, listen=listen))
    await third.start()
    await third.stop()


async def test_the_end_comes_within_its_budget(tmp_path: Path) -> None:
    """With turns that never end, some of them waiting for a slot, an open feed and a silent control connection; they go on afterwards."""
    async with FakeModel() as model:
        backend = Backend(kind="openai", base_url=model.base_url, model="fake", max_concurrent_turns=2)
        listen = f"127.0.0.1:{free_port()}"
        daemon = Daemon(config(tmp_path, listen=listen, backend=backend, budget=1.0))
        await daemon.start()
        for _ in range(2):
            model.then(Reply([delta("so far"), End.HANG]))
        await daemon.router.accept([said("hi", 1, f"c{n}") for n in range(5)])
        await model.wait(2)
        reader, writer = await asyncio.open_unix_connection(tmp_path / "data" / "control.sock")
        token = {"Authorization": f"Bearer {daemon.web_token}"}
        async with aiohttp.ClientSession(headers=token) as browser, browser.get(f"http://{listen}/api/feed", params={"chat": "c1"}) as feed:
            assert feed.status == 200
            began = time.monotonic()
            await daemon.stop()
            assert time.monotonic() - began < 3
        assert await reader.read() == b""
        writer.close()
        assert model.active == 0
        daemon = Daemon(config(tmp_path, backend=backend))
        await daemon.start()
        await until(lambda: not daemon.inbox.unfinished())
        for n in range(5):
            assert await answers(daemon, f"c{n}") == ["Heard: hi"]
        await daemon.stop()


async def test_a_signal_during_the_start_ends_it_at_once(tmp_path: Path) -> None:
    """Nothing is announced as ready, and the end is in order."""
    daemon = Daemon(config(tmp_path))
    daemon.end()
    began = time.monotonic()
    await daemon.start()
    await daemon.serve()
    await daemon.stop()
    assert time.monotonic() - began < 2
