"""systemd as the daemon sees it: a notify socket of the test's own, a watchdog, and what the unit puts into the environment."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.flow.daemon import Daemon


class Managed(Daemon):
    """A `Daemon` whose notify socket is read for as long as it lives."""

    def __init__(self, folder: Path, config: str, env: Mapping[str, str] | None = None, *, watchdog: float = 0.0) -> None:
        super().__init__(folder, config, env)
        if watchdog:
            self.env["WATCHDOG_USEC"] = str(int(watchdog * 1e6))
        self.told: list[tuple[float, str]] = []
        """Each word with the loop's time at which it came."""
        self._word = asyncio.Event()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    async def start(self, *, ready: bool = True, timeout: float = 20.0) -> None:
        address = self.folder / "notify"
        self._socket.bind(str(address))
        asyncio.get_running_loop().add_reader(self._socket, self._heard)
        with self.log.open("ab") as out:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "gateway",
                "run",
                "--config",
                str(self.config),
                cwd=self.folder,
                env={**self.env, "NOTIFY_SOCKET": str(address)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        if ready:
            await self.hears("READY=1", timeout=timeout)

    def _heard(self) -> None:
        now = asyncio.get_running_loop().time()
        self.told += [(now, word) for word in self._socket.recv(65536).decode().splitlines()]
        self._word.set()

    def words(self, start: str = "") -> list[str]:
        """What was said, as far as it begins so."""
        return [word for _, word in self.told if word.startswith(start)]

    async def hears(self, start: str, count: int = 1, *, timeout: float = 15.0) -> None:
        """Wait until it has said something that begins so, `count` times in all."""
        try:
            async with asyncio.timeout(timeout):
                while len(self.words(start)) < count:
                    self._word.clear()
                    await self._word.wait()
        except TimeoutError:
            raise AssertionError(f"no {start}: {self.told[-20:]}\n{self.text()[-4000:]}") from None

    async def reload(self) -> None:
        """SIGHUP, as the unit's ExecReload sends it; waits until it is through."""
        assert self.process is not None
        count = len(self.words("READY=1"))
        self.process.send_signal(signal.SIGHUP)
        await self.hears("READY=1", count + 1)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await super().__aexit__(kind, error, trace)
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
