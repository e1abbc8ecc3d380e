"""The store by itself: appends, loads of a window, forks, next to the plainest code that does the same."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from statistics import median

import aiofiles
import msgspec

from benchmarks.histories import ANSWER, write_session
from benchmarks.process import scratch
from benchmarks.table import Row, percentile, ratio_of
from gateway.message import FORMAT_VERSION, Header, Message, SessionKey, encode_line, timestamp
from gateway.options import Sessions
from gateway.power import PowerLog
from gateway.sessions import SessionManager
from gateway.store.jsonl import JsonlStore
from gateway.writer import Writer

GROUP = "store"
AT = timestamp(1.8e9)
Append = Callable[[int, int], Awaitable[object]]
"""`await append(session, seq)`: one line more."""


def _line(seq: int) -> bytes:
    return encode_line(Message(seq=seq, at=AT, for_="telegram:7:1:1", role="assistant", content=ANSWER, model="bench"))


async def _rate(append: Append, sessions: int, seconds: float, begin: int) -> tuple[float, list[float]]:
    """Appends a second while each session appends one line after the other, and how long each took."""
    times: list[float] = []
    ends = time.perf_counter() + seconds

    async def writing(session: int) -> None:
        seq = begin
        while (now := time.perf_counter()) < ends:
            seq += 1
            await append(session, seq)
            times.append(time.perf_counter() - now)

    began = time.perf_counter()
    await asyncio.gather(*(writing(session) for session in range(sessions)))
    return len(times) / (time.perf_counter() - began), times


async def _ours(folder: Path, sessions: int, seconds: float, *, power: bool) -> tuple[float, list[float]]:
    writer = Writer(PowerLog(folder)) if power else Writer()
    store = JsonlStore(folder / "sessions", writer)
    await store.open()
    keys = [SessionKey("bench", str(number)) for number in range(sessions)]
    for key in keys:
        await store.create(key, "main", Header(v=FORMAT_VERSION, key=str(key), name="main", created=AT))

    async def append(session: int, seq: int) -> None:
        await store.append(keys[session], "main", [_line(seq)], seq - 1, seq)

    try:
        return await _rate(append, sessions, seconds, 0)
    finally:
        await store.close()
        await writer.close()


async def _inline(folder: Path, sessions: int, seconds: float) -> tuple[float, list[float]]:
    """Handles kept open, written to in the loop: the fastest there is, and everybody waits for the disk."""
    handles = [os.open(folder / str(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) for number in range(sessions)]

    async def append(session: int, seq: int) -> None:
        os.write(handles[session], _line(seq))
        await asyncio.sleep(0)

    try:
        return await _rate(append, sessions, seconds, 0)
    finally:
        for handle in handles:
            os.close(handle)


async def _calls(folder: Path, sessions: int, seconds: float) -> tuple[float, list[float]]:
    """The four calls to the kernel that an append is without handles, in the loop and with nothing around them: the limit of that way."""
    paths = [folder / str(number) for number in range(sessions)]
    for path in paths:
        path.touch()

    async def append(session: int, seq: int) -> None:
        handle = os.open(paths[session], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        os.fstat(handle)
        os.write(handle, _line(seq))
        os.close(handle)
        await asyncio.sleep(0)

    return await _rate(append, sessions, seconds, 0)


async def _each(folder: Path, sessions: int, seconds: float) -> tuple[float, list[float]]:
    """aiofiles as most people use it."""

    async def append(session: int, seq: int) -> None:
        async with aiofiles.open(folder / str(session), "ab") as file:
            await file.write(_line(seq))

    return await _rate(append, sessions, seconds, 0)


async def _process(folder: Path, sessions: int, seconds: float) -> tuple[float, list[float]]:
    return await _ours(folder, sessions, seconds, power=False)


async def _power(folder: Path, sessions: int, seconds: float) -> tuple[float, list[float]]:
    return await _ours(folder, sessions, seconds, power=True)


WAYS = {"process": _process, "power": _power, "inline": _inline, "calls": _calls, "aiofiles": _each}


async def appends(quick: bool) -> AsyncIterator[Row]:
    rounds = 1 if quick else 7
    for sessions in (100,) if quick else (1, 100, 1000):
        goal = sessions == 100
        rates: dict[str, list[float]] = {}
        times: dict[str, list[float]] = {}
        for _ in range(rounds if goal else 1):
            for name, how in WAYS.items():
                seconds = 0.5 if quick else 5.0 if goal and name in {"process", "power", "inline"} else 1.0
                with scratch() as folder:
                    rate, took = await how(Path(folder), sessions, seconds)
                rates.setdefault(name, []).append(rate)
                times.setdefault(name, []).extend(took)
        many = f"{sessions} session{'s' if sessions > 1 else ''}"

        def said(name: str) -> str:
            return f"{median(rates[name]):,.0f}/s, p99 {1000 * percentile(times[name], 0.99):.1f} ms"  # noqa: B023

        for ours, theirs, least in (
            ("process", "inline", 0.6),
            ("process", "calls", None),
            ("process", "aiofiles", None),
            ("power", "process", 0.3),
        ):
            reference = {
                "inline": "os.write in the loop",
                "calls": "open, fstat, write, close in the loop",
                "aiofiles": "aiofiles, a file opened a line",
                "process": "process",
            }[theirs]
            yield Row(
                GROUP,
                f"appends, {many}, {ours}",
                said(ours),
                f"{reference}: {said(theirs)}",
                ratio_of(rates[ours], rates[theirs]),
                least=least if goal else None,
            )


async def _load(folder: Path, key: SessionKey) -> float:
    """Seconds to a loaded session, by a manager that has never seen it."""
    writer = Writer()
    store = JsonlStore(folder / "sessions", writer)
    options = Sessions()
    await store.open()
    manager = SessionManager(
        store,
        cache_bytes=options.cache,
        history_messages=options.history_messages,
        history_tokens=options.history_tokens,
        clock=time.time,
    )
    began = time.perf_counter()
    async with manager.hold(key):
        await manager.open(key, "main")
    took = time.perf_counter() - began
    await manager.close()
    await store.close()
    await writer.close()
    return took


def _parse(path: Path) -> float:
    """Seconds to the whole file as messages, as the plain way has it."""
    began = time.perf_counter()
    with path.open("rb") as file:
        for line in file:
            msgspec.json.decode(line)
    return time.perf_counter() - began


async def loads(quick: bool) -> AsyncIterator[Row]:
    lengths = (100, 10_000) if quick else (100, 10_000, 1_000_000)
    rounds = 3 if quick else 7
    with scratch() as place:
        folder = Path(place)
        keys = {length: SessionKey("bench", str(length)) for length in lengths}
        paths = {length: write_session(folder, key, length) for length, key in keys.items()}
        took: dict[int, list[float]] = {length: [] for length in lengths}
        for _ in range(rounds):
            for length, key in keys.items():
                took[length].append(await _load(folder, key))
        for length in lengths:
            parsed = _parse(paths[length])
            ours = median(took[length])
            yield Row(
                GROUP, f"cold load, {length:,} lines", f"{1000 * ours:.1f} ms", f"parse the file: {1000 * parsed:.0f} ms", ours / parsed
            )
        longest = lengths[-1]
        yield Row(
            GROUP,
            f"cold load, {longest:,} lines",
            f"{1000 * median(took[longest]):.1f} ms",
            f"100 lines: {1000 * median(took[100]):.1f} ms",
            ratio_of(took[longest], took[100]),
            most=3.0,
        )


async def forks(quick: bool) -> AsyncIterator[Row]:
    """A large session is forked while others talk."""
    rounds = 1 if quick else 7
    with scratch() as place:
        folder = Path(place)
        key, other = SessionKey("bench", "large"), SessionKey("bench", "other")
        path = write_session(folder, key, 20_000 if quick else 400_000)
        size = path.stat().st_size
        writer = Writer()
        store = JsonlStore(folder / "sessions", writer)
        await store.open()
        tail = await store.tail(key, "main", 1)
        await store.create(other, "main", Header(v=FORMAT_VERSION, key=str(other), name="main", created=AT))
        ours, theirs, alone, beside = [], [], [], []
        seq = 0

        async def append() -> float:
            nonlocal seq
            seq += 1
            began = time.perf_counter()
            await store.append(other, "main", [_line(seq)], seq - 1, seq)
            await asyncio.sleep(0.001)
            return time.perf_counter() - began - 0.001

        for number in range(rounds):
            began = time.perf_counter()
            await asyncio.to_thread(subprocess.run, ["cp", "--reflink=never", str(path), str(folder / "copy")], check=True)
            theirs.append(time.perf_counter() - began)
            (folder / "copy").unlink()
            alone += [await append() for _ in range(100)]
            header = Header(v=FORMAT_VERSION, key=str(key), name=f"fork{number}", created=AT)
            began = time.perf_counter()
            forking = asyncio.ensure_future(store.fork(key, "main", key, f"fork{number}", tail.last, header))
            while not forking.done():
                beside.append(await append())
            await forking
            ours.append(time.perf_counter() - began)
            await store.delete(key, f"fork{number}")
        await store.close()
        await writer.close()
        figure = f"fork of {size / 1e6:.0f} MB"
        yield Row(GROUP, figure, f"{1000 * median(ours):.0f} ms", f"cp: {1000 * median(theirs):.0f} ms", ratio_of(ours, theirs), most=1.2)
        yield Row(
            GROUP,
            "another chat's append during a fork, p99",
            _times(beside),
            f"without one: {_times(alone)}; the fork: {1000 * median(ours):.0f} ms",
            percentile(beside, 0.99) / percentile(alone, 0.99),
        )


def _times(seconds: list[float]) -> str:
    return f"{1000 * percentile(seconds, 0.99):.1f} ms, median {1000 * median(seconds):.1f} ms"


PARTS = [appends, loads, forks]
