"""From the start of the process to the first poll."""

from __future__ import annotations

import asyncio
import compileall
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median

from benchmarks.model import Model
from benchmarks.process import ROOT, Process, daemon, scratch
from benchmarks.rig import config
from benchmarks.server import Exchange, Server
from benchmarks.table import Row, ratio_of
from benchmarks.telegram import TOKEN, Telegram
from gateway.message import FORMAT_VERSION, Header, SessionKey, encode_line
from gateway.store.names import session_file

GROUP = "start"


async def _first_poll(prepared: Path | None = None) -> float:
    """Seconds. `prepared`: a data folder to start on, else an empty one."""
    network, model = Telegram(), Model()
    polled: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def handle(exchange: Exchange) -> None:
        if exchange.path.endswith("/getUpdates") and not polled.done():
            polled.set_result(time.perf_counter())
        network.handle(exchange)

    async with Server(handle) as api, Server(model.handle) as backend:
        with scratch() as place:
            folder = Path(place)
            text = config(api.url, f"{backend.url}/v1", stream=True)
            if prepared is not None:
                text = text.replace('"data"', f'"{prepared}"')
            process: Process = daemon(folder, text, {"PARLOUR_TELEGRAM_TOKEN": TOKEN})
            began = time.perf_counter()
            async with process:
                return await asyncio.wait_for(polled, 60) - began


async def _imports() -> float:
    began = time.perf_counter()
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", "import telegram, aiohttp"], check=True)
    return time.perf_counter() - began


async def first_poll(quick: bool) -> AsyncIterator[Row]:
    # What is installed has its bytecode; so has a fresh clone here, also where Python is told to write none.
    for package in ("gateway", "channels"):
        await asyncio.to_thread(compileall.compile_dir, ROOT / package, quiet=2)
    ours, theirs = [], []
    for _ in range(2 if quick else 15):
        ours.append(await _first_poll())
        theirs.append(await _imports())
    yield Row(
        GROUP,
        "process to first poll",
        f"{1000 * median(ours):.0f} ms",
        f"python, import telegram, aiohttp: {1000 * median(theirs):.0f} ms",
        ratio_of(ours, theirs),
        most=1.6,
    )


async def many_sessions(quick: bool) -> AsyncIterator[Row]:
    count = 2000 if quick else 100_000
    with scratch() as place:
        data = Path(place) / "data"
        await asyncio.to_thread(_fill, data, count)
        ours, empty = [], []
        for _ in range(2 if quick else 3):
            ours.append(await _first_poll(data))
            empty.append(await _first_poll())
        await asyncio.to_thread(_clear, data)
    yield Row(
        GROUP,
        f"the same with {count:,} sessions on disk",
        f"{1000 * median(ours):.0f} ms",
        f"with none: {1000 * median(empty):.0f} ms",
        ratio_of(ours, empty),
    )


def _fill(data: Path, count: int) -> None:
    data.mkdir(mode=0o700)
    for number in range(count):
        key = SessionKey("telegram", str(10_000 + number))
        path = session_file(data / "sessions", key, "main")
        path.parent.mkdir(mode=0o700, parents=True)
        path.write_bytes(encode_line(Header(v=FORMAT_VERSION, key=str(key), name="main", created="2026-11-29T10:00:00.000Z")))
        path.chmod(0o600)


def _clear(data: Path) -> None:
    subprocess.run(["rm", "-rf", str(data)], check=True)


PARTS = [first_poll, many_sessions]
