"""The socket through which `parlour pair` and its like speak to the running daemon: one JSON line there, one JSON line back.

Who may open it may do everything that it offers, so it is 0600 from its first moment on. It knows no commands: `gateway.app` hands in what
a name does, `gateway.cli` is the other end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog

from gateway.errors import ParlourError, StartError

log = structlog.get_logger(__name__)

Handler = Callable[[Mapping[str, str]], Awaitable[object]]
"""Takes the arguments, gives what the person is shown: a text, or a list of flat tables. Raises ParlourError with a sentence for them."""

_LONGEST = 64 * 1024
_PATIENCE = 10.0
_MOST = 16


class NotRunning(ParlourError):
    """Nobody answers at this path. `absent`: because there is no socket at all."""

    absent = False


class _Absent(NotRunning):
    absent = True


class Declined(ParlourError):
    """The daemon said no; the text says why."""


class _Request(msgspec.Struct, frozen=True):
    name: str
    args: dict[str, str] = {}


class _Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    result: Any = None
    error: str = ""


def socket_path(data_dir: Path, env: Mapping[str, str] = os.environ) -> Path:
    """Where the daemon listens: systemd's runtime folder, else the data folder."""
    runtime = env.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return Path(runtime or data_dir, "control.sock")


def listen(path: Path) -> socket.socket:
    """A listening socket at `path`, 0600. What a killed daemon left there is replaced: whoever calls this holds the data folder's lock.
    Raises StartError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(sock.fileno(), 0o600)  # Linux gives the file this mode when it binds: there is no moment at which others can connect
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.lstat(path).st_mode):
                raise StartError(f"{path} is in the way: the daemon's control socket belongs there")
            path.unlink()
        sock.bind(os.fspath(path))
        path.chmod(0o600)
        sock.listen(_MOST)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if "too long" in str(error):
            hint = "choose a shorter data_dir" if "RUNTIME_DIRECTORY" not in os.environ else "choose a shorter RuntimeDirectory"
            raise StartError(f"{path}: too long for a socket ({len(os.fsencode(path))} bytes, about 100 are possible): {hint}") from None
        raise StartError(f"{path}: the control socket cannot be made: {error.strerror or error}") from None
    except StartError:
        sock.close()
        raise
    return sock


class ControlServer:
    """Listens at `path` between `start` and `close`. An answer is awaited in its connection's own task, so a slow one holds up no other."""

    def __init__(self, path: Path, handlers: Mapping[str, Handler]) -> None:
        self._path, self._handlers = path, handlers
        self._server: asyncio.Server | None = None
        self._inode = 0
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Raises StartError."""
        sock = listen(self._path)
        self._inode = self._path.stat().st_ino
        self._server = await asyncio.start_unix_server(self._connected, sock=sock, limit=_LONGEST)

    async def close(self) -> None:
        """No new ones; those that are open are cut. Safe to call twice and without `start`."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await server.wait_closed()
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            if len(self._open) > _MOST:
                answer = _Answer(error="too many at once, try again")
            else:
                answer = await self._answer(reader)
            writer.write(msgspec.json.encode(answer, enc_hook=str) + b"\n")
            async with asyncio.timeout(_PATIENCE):
                await writer.drain()
        except (OSError, TimeoutError):
            pass  # they left
        except asyncio.CancelledError:
            pass  # by `close`, which awaits this task; asyncio would log a traceback for a cancelled one (up to Python 3.11)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._open.discard(task)

    async def _answer(self, reader: asyncio.StreamReader) -> _Answer:
        try:
            async with asyncio.timeout(_PATIENCE):
                request = msgspec.json.decode(await reader.readline(), type=_Request)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
            return _Answer(error="not a request")
        handler = self._handlers.get(request.name)
        if handler is None:
            return _Answer(error=f"the running daemon knows no {request.name[:40]!r}; is it of this version?")
        (result,) = await asyncio.gather(handler(request.args), return_exceptions=True)
        if isinstance(result, ParlourError):
            return _Answer(error=str(result))
        if isinstance(result, BaseException):
            log.error("control request failed", request=request.name, exc_info=result)
            return _Answer(error="that failed; the daemon's log says why")
        return _Answer(result=result)


async def call(path: Path, name: str, args: Mapping[str, str]) -> object:
    """Ask the daemon that listens at `path`. Raises NotRunning or Declined."""
    try:
        async with asyncio.timeout(3 * _PATIENCE):
            reader, writer = await asyncio.open_unix_connection(os.fspath(path), limit=16 * 2**20)
            try:
                writer.write(msgspec.json.encode(_Request(name, dict(args))) + b"\n")
                await writer.drain()
                line = await reader.readline()
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except TimeoutError:
        raise NotRunning(f"{path}: the daemon does not answer") from None
    except FileNotFoundError:
        raise _Absent(f"{path}: no daemon listens here (there is no such socket)") from None
    except PermissionError:
        raise NotRunning(f"{path}: no permission; call it as the user that the daemon runs as, or as root") from None
    except OSError as error:
        raise NotRunning(f"{path}: no daemon listens here ({error.strerror or error})") from None
    if not line:
        raise NotRunning(f"{path}: the daemon gave no answer; its log says why")
    answer = msgspec.json.decode(line, type=_Answer)
    if answer.error:
        raise Declined(answer.error)
    return answer.result
