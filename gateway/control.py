"""The socket through which the command line speaks to the running daemon: one JSON line there, one or several JSON lines back.

Who may open it may do everything that it offers, so it is 0600 from its first moment on. It knows no commands: `gateway.app` hands in what
a name does, `gateway.cli` is the other end.

An answer is `{"result": ...}` or `{"error": "..."}`. A caller that says `"lines": true` may get lines with `"more": true` before it: a
`part` of a long answer, or none where the work goes on (at least one every BEAT seconds). So no line is long, neither side waits for the
other longer than it should, and a caller who leaves ends the work that was for him.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import structlog

from gateway import outage
from gateway.errors import ParlourError, StartError

log = structlog.get_logger(__name__)

Handler = Callable[[Mapping[str, str]], Awaitable[object] | AsyncGenerator[object, None]]
"""Takes the arguments, gives a value that JSON can hold, or the parts of a long one. Raises ParlourError with a sentence for the caller."""

BEAT = 1.0
"""Seconds between two signs of life while the work goes on."""
PART = 256 * 1024
"""Bytes that a part should not exceed by much."""
_LONGEST = 64 * 1024
_PATIENCE = 10.0
_PAUSED = 600.0
"""Seconds that a caller may take for a part: somebody reads in a pager."""
_MOST = 16


class NotRunning(ParlourError):
    """Nobody answers at this path. `absent`: because there is no socket at all. `asked`: somebody took the request, and then said nothing;
    nobody knows what became of it."""

    absent = False
    asked = False


class _Absent(NotRunning):
    absent = True


class _Silent(NotRunning):
    asked = True


class Declined(ParlourError):
    """The daemon said no; the text says why."""


class _Request(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    args: dict[str, str] = {}
    lines: bool = False
    folder: str = ""
    """Whose daemon is meant: see `identity`."""


class _Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    result: Any = None
    error: str = ""
    more: bool = False
    part: Any = None


class _Elsewhere(ParlourError):
    """The daemon behind this socket works in another folder than the one that is meant."""


def socket_path(data_dir: Path, env: Mapping[str, str] = os.environ) -> Path:
    """Where the daemon listens: systemd's runtime folder, else the data folder."""
    runtime = env.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return Path(runtime or data_dir, "control.sock")


def identity(folder: Path) -> str:
    """What a folder is known by, whatever path leads to it; "" if it is not there or not for our eyes."""
    try:
        info = folder.stat()
    except OSError:
        return ""
    return f"{info.st_dev}:{info.st_ino}"


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

    def __init__(self, path: Path, handlers: Mapping[str, Handler], folder: Path | None = None) -> None:
        """`folder`: the data folder, for callers that mean one daemon among several."""
        self._path, self._handlers, self._folder = path, handlers, folder
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
                answer: _Answer | None = _Answer(error="too many at once, try again")
            else:
                answer = await self._answer(reader, writer)
            if answer is not None:
                await _write(writer, answer, _PATIENCE)
        except (OSError, TimeoutError):
            pass  # they left
        except asyncio.CancelledError:
            pass  # by `close`, which awaits this task; asyncio would log a traceback for a cancelled one (up to Python 3.11)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._open.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Answer | None:
        """The last line of the answer; None where nobody is there any more to read it."""
        try:
            async with asyncio.timeout(_PATIENCE):
                request = msgspec.json.decode(await reader.readline(), type=_Request)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors, and so is a line that is too long
            return _Answer(error="not a request")
        if request.folder and self._folder is not None and request.folder != identity(self._folder):
            return _Answer(error=f"{_Elsewhere.__name__}: this daemon works in {self._folder}")
        handler = self._handlers.get(request.name)
        if handler is None:
            return _Answer(error=f"the running daemon knows no {request.name[:40]!r}; is it of this version?")
        work = asyncio.create_task(_work(handler, request, writer), name=f"control {request.name}")
        watch = [asyncio.create_task(_until_left(reader, writer))] if request.lines else []
        try:
            await asyncio.wait([work, *watch], return_when=asyncio.FIRST_COMPLETED)
            left = not work.done()
        finally:
            for task in (work, *watch):
                task.cancel()
            await asyncio.gather(work, *watch, return_exceptions=True)
        return None if left or work.cancelled() else work.result()


async def _write(writer: asyncio.StreamWriter, answer: _Answer, patience: float) -> None:
    """Raises TimeoutError, OSError."""
    writer.write(msgspec.json.encode(answer, enc_hook=str) + b"\n")
    async with asyncio.timeout(patience):
        await writer.drain()


async def _work(handler: Handler, request: _Request, writer: asyncio.StreamWriter) -> _Answer | None:
    """Carry the request out, and write its parts. None: the caller is gone."""
    try:
        answer = handler(request.args)
        if not isinstance(answer, AsyncGenerator):
            return _Answer(result=await answer)
        if not request.lines:
            return _Answer(error=f"{request.name} answers in several lines")
        async with aclosing(answer) as parts:
            async for part in parts:
                try:
                    await _write(writer, _Answer(more=True, part=part), _PAUSED)
                except (OSError, TimeoutError):
                    return None
        return _Answer()
    except ParlourError as error:
        return _Answer(error=str(error))
    except OSError as error:  # of the disk: it says more than we could
        outage.tell(log, "control request failed", error, request=request.name)
        return _Answer(error=f"{error.filename or 'disk'}: {error.strerror or error}")
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        log.error("control request failed", request=request.name, exc_info=error)
        return _Answer(error="that failed; the daemon's log says why")


async def _until_left(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Give signs of life until the caller leaves; such callers keep their half of the connection open and say nothing more."""
    while True:
        try:
            async with asyncio.timeout(BEAT):
                if not await reader.read(1024):
                    return
        except TimeoutError:
            if not writer.transport.get_write_buffer_size():
                writer.write(msgspec.json.encode(_Answer(more=True)) + b"\n")
        except OSError:
            return


class _CallersError(Exception):
    """What the caller's own callback raised: a full disk of theirs, a reader that left."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


Part = Callable[[object], None]
"""Takes a part of a long answer."""


async def call(
    path: Path, name: str, args: Mapping[str, str], *, part: Part | None = None, beat: Callable[[], None] | None = None, folder: str = ""
) -> object:
    """Ask the daemon that listens at `path`; with `part` it may answer in several parts and take as long as it needs, and `beat` is called
    while it does. `folder`: the `identity` of the data folder that is meant; the daemon of another one is NotRunning. Raises NotRunning or
    Declined."""
    request = _Request(name, dict(args), part is not None, folder)
    asked = False
    try:
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_unix_connection(os.fspath(path), limit=16 * 2**20)
        try:
            writer.write(msgspec.json.encode(request) + b"\n")
            await writer.drain()
            asked = True
            while True:
                async with asyncio.timeout(3 * _PATIENCE):
                    line = await reader.readline()
                if not line:
                    raise _Silent(f"{path}: the daemon gave no answer; its log says why")
                answer = msgspec.json.decode(line, type=_Answer)
                if not answer.more:
                    break
                try:
                    if beat is not None:
                        beat()
                    if part is not None and answer.part is not None:
                        part(answer.part)
                except OSError as error:
                    raise _CallersError(error) from None
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    except _CallersError as error:
        raise error.error from None
    except TimeoutError:
        raise (_Silent if asked else NotRunning)(f"{path}: the daemon does not answer") from None
    except FileNotFoundError:
        raise _Absent(f"{path}: no daemon listens here (there is no such socket)") from None
    except PermissionError:
        raise NotRunning(f"{path}: no permission; call it as the user that the daemon runs as, or as root") from None
    except OSError as error:
        if asked:
            raise _Silent(f"{path}: the daemon broke off ({error.strerror or error}); its log says why") from None
        raise NotRunning(f"{path}: no daemon listens here ({error.strerror or error})") from None
    if answer.error.startswith(f"{_Elsewhere.__name__}: "):
        raise _Absent(f"{path}: {answer.error.partition(': ')[2]}")
    if answer.error:
        raise Declined(answer.error)
    return answer.result
