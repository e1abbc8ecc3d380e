"""A bot as a process, and what the kernel says about it. Called by the benchmarks."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

ROOT = Path(__file__).resolve().parent.parent


class Usage(NamedTuple):
    cpu: float
    """Seconds of CPU so far, threads included."""
    rss: int
    """Bytes in memory now."""


def usage(pid: int) -> Usage:
    # The kernel's CPU clock of another process (MAKE_PROCESS_CPUCLOCK in linux/posix-timers.h): to the nanosecond, ended threads included.
    cpu = time.clock_gettime((~pid << 3) | 2)
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Usage(cpu, pages * os.sysconf("SC_PAGE_SIZE"))


class Process:
    """`async with Process([...], folder) as bot:`; its output goes to a file in `folder`, and is shown where it dies."""

    def __init__(self, args: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
        self._args, self._folder = args, folder
        self._env = dict(env or {})

    async def __aenter__(self) -> Self:
        self._log = (self._folder / "output.log").open("wb")
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            *self._args,
            cwd=self._folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | self._env,
            stdout=self._log,
            stderr=self._log,
        )
        self.pid = self._process.pid
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
        self._log.close()

    def usage(self) -> Usage:
        return usage(self.pid)

    async def alive(self) -> None:
        """Raises RuntimeError, with the end of what it said, if it is not."""
        if self._process.returncode is not None:
            said = (self._folder / "output.log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"ended with {self._process.returncode}:\n{said}")


def daemon(folder: Path, config: str, secrets: Mapping[str, str] | None = None) -> Process:
    """The daemon with this config, its data under `folder`."""
    path = folder / "config.toml"
    path.write_text(config)
    path.chmod(0o600)
    return Process(["-m", "gateway", "run", "--config", str(path)], folder, secrets)


def scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="parlour-bench-")
