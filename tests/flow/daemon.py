"""The daemon as a process, for end-to-end tests: a folder, a config, `parlour run`, signals. Knows the command line and nothing inside."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

REPO = Path(__file__).parents[2]
TOKEN = "7:TEST-TOKEN-aaaabbbbccccddddeeeeffff"
KEY = "sk-TEST-0123456789"
WEB_TOKEN = "web-token-0123456789abcdef"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Daemon:
    """`async with Daemon(folder, toml) as daemon`: started at entry, ended at exit. May be killed and started again in between."""

    def __init__(self, folder: Path, config: str, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.config = folder / "config.toml"
        self.config.write_text(config)
        self.config.chmod(0o600)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": str(REPO),
            "PARLOUR_TELEGRAM_TOKEN": TOKEN,
            "PARLOUR_BACKEND_API_KEY": KEY,
            "PARLOUR_WEB_TOKEN": WEB_TOKEN,
            **(env or {}),
        }
        self.process: asyncio.subprocess.Process | None = None
        self.log = folder / "log"

    async def start(self, *, ready: bool = True, timeout: float = 20.0) -> None:
        """Start it; with `ready`, wait for its word on the notify socket."""
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        address = str(self.folder / "notify")
        Path(address).unlink(missing_ok=True)
        notify.bind(address)
        notify.setblocking(False)
        with self.log.open("ab") as out:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "gateway",
                "run",
                "--config",
                str(self.config),
                cwd=self.folder,
                env={**self.env, "NOTIFY_SOCKET": address},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        try:
            if ready:
                async with asyncio.timeout(timeout):
                    while b"READY=1" not in await asyncio.get_running_loop().sock_recv(notify, 4096):
                        pass
        except TimeoutError:
            raise AssertionError(f"not ready:\n{self.text()[-4000:]}") from None
        finally:
            notify.close()

    async def kill(self) -> None:
        """kill -9; it may be dead already."""
        assert self.process is not None
        self._signal(self.process, signal.SIGKILL)
        await self.process.wait()

    @staticmethod
    def _signal(process: asyncio.subprocess.Process, number: int) -> None:
        """Past subprocess, which would take the end of a process that is dead already away from asyncio."""
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    async def stop(self, timeout: float = 30.0) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self._signal(self.process, signal.SIGTERM)
        async with asyncio.timeout(timeout):
            return await self.process.wait()

    async def ended(self, timeout: float = 20.0) -> int:
        """Wait for its own end; the exit code."""
        assert self.process is not None
        async with asyncio.timeout(timeout):
            return await self.process.wait()

    def text(self) -> str:
        """All that it printed and logged."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        if kind is not None:
            print(self.text()[-6000:])
