"""A turn costs the same however long its conversation is."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median

from benchmarks.histories import write_session
from benchmarks.process import scratch
from benchmarks.rig import Load, rig
from benchmarks.table import Row, ratio_of
from gateway.message import SessionKey

KEY = SessionKey("telegram", "1000")


async def turns(quick: bool) -> AsyncIterator[Row]:
    lengths = (100, 10_000) if quick else (100, 10_000, 1_000_000)
    rounds, seconds = (1, 1.0) if quick else (7, 5.0)
    cpu: dict[int, list[float]] = {length: [] for length in lengths}
    with scratch() as place:
        for length in lengths:
            write_session(Path(place) / str(length), KEY, length)
        for _ in range(rounds):
            for length in lengths:

                def prepare(data: Path, length: int = length) -> None:
                    shutil.copytree(Path(place) / str(length), data, dirs_exist_ok=True)

                async with rig("parlour", Load(1), prepare=prepare) as bench:
                    for _ in range(100):  # a window is full in each of them, and loaded
                        await bench.turn(1000)
                    cpu[length].append((await bench.talk(1, seconds)).cpu_ms)
    for length in lengths[1:]:
        yield Row(
            "flat cost",
            f"CPU a turn, {length:,} lines, loaded",
            f"{median(cpu[length]):.2f} ms",
            f"100 lines: {median(cpu[100]):.2f} ms",
            ratio_of(cpu[length], cpu[100]),
            most=1.15 if length == lengths[-1] else None,
        )


PARTS = [turns]
