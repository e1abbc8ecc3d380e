"""A process that appends to a few files on a medium whose syncs fail, and says on stdout what was acknowledged and what was not. Run by
`test_power_faults` as `python -m tests.crash.power_fault_child FOLDER COUNT`."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from gateway.power import PowerLog
from gateway.writer import Writer

FILES = "abc"


def line(number: int) -> bytes:
    return b'{"n":%d,"x":"%s"}\n' % (number, b"x" * (number % 7 * 100))


async def main(folder: Path, count: int) -> None:
    writer = Writer(PowerLog(folder, rotate_bytes=1500))
    for number in range(count):
        file = FILES[number % len(FILES)]
        try:
            await writer.append(folder / file, line(number))
        except OSError:
            os.write(1, f"failed {file} {number}\n".encode())
        else:
            os.write(1, f"line {file} {number}\n".encode())
        for _ in range(5 if number % 10 == 9 else 0):
            with suppress(OSError):
                await writer.empty_log()
                break
    await writer.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
