"""`./dev bench [--quick] [PART ...]`: run the benchmarks and print their table. Parts: whole store flat memory start streams; and flame,
which measures nothing and is made only where it is asked for.

Also says on what: processor, Python, version. A row that has a goal and misses it does not make this fail: figures are for people.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import flame, flat, memory, start, store, streams, whole
from benchmarks.table import Row, markdown

MODULES = {"whole": whole, "store": store, "flat": flat, "memory": memory, "start": start, "streams": streams, "flame": flame}
MEASURES = [name for name in MODULES if name != "flame"]


async def run(names: list[str], quick: bool) -> list[Row]:
    rows: list[Row] = []
    for name in names:
        for part in MODULES[name].PARTS:
            began = time.monotonic()
            async for row in part(quick):
                rows.append(row)
                print(f"  {row.figure}: {row.ours} ({row.reference}) {row.verdict}", file=sys.stderr, flush=True)
            print(f"{name}.{part.__name__}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return rows


def machine() -> str:
    cpu = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return f"{os.cpu_count()} cores of {cpu}, Python {platform.python_version()}, {platform.system()} {platform.release()}, commit {commit}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench", description="What the daemon costs, next to bare bots and plain code.")
    parser.add_argument("--quick", action="store_true", help="a minute instead of twenty: for a look, not for claims")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of: {' '.join(MODULES)}")
    args = parser.parse_args()
    unknown = [name for name in args.parts if name not in MODULES]
    if unknown:
        parser.error(f"no such part: {' '.join(unknown)}; there are: {' '.join(MODULES)}")
    began = time.monotonic()
    try:
        rows = asyncio.run(run(args.parts or MEASURES, args.quick))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    print(f"{machine()}; {time.strftime('%Y-%m-%d')}, {(time.monotonic() - began) / 60:.0f} min{', --quick' if args.quick else ''}\n")
    print(markdown(rows))


if __name__ == "__main__":
    main()
