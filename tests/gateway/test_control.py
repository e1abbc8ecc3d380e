"""The control socket: ours alone, one line there and one back, and nothing that arrives on it can stop it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path

import pytest
import structlog

from gateway.control import ControlServer, Declined, NotRunning, call, identity, listen, socket_path
from gateway.errors import ParlourError, StartError


async def shout(args: Mapping[str, str]) -> object:
    return args["text"].upper()


async def refuse(args: Mapping[str, str]) -> object:
    raise ParlourError("there is no such code")


async def table(args: Mapping[str, str]) -> object:
    return [{"id": "telegram:42", "path": Path("x")}]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Path]:
    path = tmp_path / "control.sock"
    server = ControlServer(path, {"shout": shout, "refuse": refuse, "table": table})
    await server.start()
    yield path
    await server.close()
    await server.close()
    assert not path.exists()


async def raw(path: Path, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    writer.write_eof()
    answer = await reader.read()
    await shut(writer)
    return answer


async def shut(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_call(server: Path) -> None:
    """A handler's result comes back, texts and tables alike."""
    assert await call(server, "shout", {"text": "a\nb ü"}) == "A\nB Ü"
    assert await call(server, "table", {}) == [{"id": "telegram:42", "path": "x"}]


async def test_declined(server: Path) -> None:
    """A handler's no comes back as its sentence, and so does a name that nobody knows."""
    with pytest.raises(Declined, match=r"^there is no such code$"):
        await call(server, "refuse", {})
    with pytest.raises(Declined, match="knows no 'nonsense'"):
        await call(server, "nonsense", {})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"nonsense\n",
        b'{"name":3}\n',
        b"[]\n",
        b"\xff\n",
        b'{"name":"shout","args":[]}\n',
        b"x" * 200_000,
        b"[" * 50_000 + b"\n",
    ],
)
async def test_nonsense(server: Path, data: bytes) -> None:
    """What is no request gets a no, and the next one is served."""
    assert b"not a request" in await raw(server, data)
    assert await call(server, "shout", {"text": "x"}) == "X"


async def test_slow_and_vanished_callers(server: Path) -> None:
    """Who says nothing, or leaves before the answer, holds up no other."""
    silent = [await asyncio.open_unix_connection(server) for _ in range(5)]
    _, gone = await asyncio.open_unix_connection(server)
    gone.write(b'{"name":"table"}\n')
    gone.transport.abort()
    await shut(gone)
    assert await call(server, "shout", {"text": "x"}) == "X"
    await shut(*(writer for _, writer in silent))


async def test_bounded(server: Path) -> None:
    """Sixteen callers at once are served; one more is told so."""
    silent = [await asyncio.open_unix_connection(server) for _ in range(16)]
    with pytest.raises(Declined, match="too many"):
        await call(server, "shout", {"text": "x"})
    await shut(*(writer for _, writer in silent))


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_mode(tmp_path: Path, mask: int) -> None:
    """F12: the socket is 0600 whatever the umask."""
    before = os.umask(mask)
    try:
        with listen(tmp_path / "s"):
            assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_mode_from_the_first_moment(tmp_path: Path) -> None:
    """F12: the kernel makes the socket's file with the mode of the descriptor, so it is never open to others for a moment."""
    before = os.umask(0)
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            os.fchmod(sock.fileno(), 0o600)
            sock.bind(str(tmp_path / "s"))
            assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    finally:
        os.umask(before)


async def test_stale_socket(tmp_path: Path) -> None:
    """What a killed daemon left is replaced."""
    path = tmp_path / "control.sock"
    listen(path).close()
    assert path.exists()
    with pytest.raises(NotRunning, match="no daemon listens here"):
        await call(path, "shout", {})
    server = ControlServer(path, {"shout": shout})
    await server.start()
    assert await call(path, "shout", {"text": "x"}) == "X"
    await server.close()


async def test_successor_keeps_its_socket(tmp_path: Path) -> None:
    """A daemon that ends late does not take away the socket of the one that came after it."""
    path = tmp_path / "control.sock"
    old, new = ControlServer(path, {}), ControlServer(path, {"shout": shout})
    await old.start()
    await new.start()
    await old.close()
    assert await call(path, "shout", {"text": "x"}) == "X"
    await new.close()


def test_in_the_way(tmp_path: Path) -> None:
    """A file of somebody's at that place is left alone."""
    path = tmp_path / "control.sock"
    path.write_text("mine")
    with pytest.raises(StartError, match="is in the way"):
        listen(path)
    assert path.read_text() == "mine"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartError, match="is in the way"):
        listen(path)


def test_path_that_cannot_be(tmp_path: Path) -> None:
    """A path that is too long for a socket, or whose folder is not there, is one sentence that says so."""
    long = tmp_path / ("x" * 120)
    long.mkdir()
    with pytest.raises(StartError, match=r"too long for a socket .* shorter data_dir"):
        listen(long / "control.sock")
    with pytest.raises(StartError, match="cannot be made: No such file"):
        listen(tmp_path / "nope" / "control.sock")


async def test_call_to_nobody(tmp_path: Path) -> None:
    """Without a daemon the caller learns where one was expected."""
    with pytest.raises(NotRunning, match=f"^{tmp_path}/control.sock: no daemon listens here"):
        await call(tmp_path / "control.sock", "shout", {})
    with pytest.raises(NotRunning):
        await call(tmp_path / ("x" * 120), "shout", {})


async def test_daemon_that_fails_in_a_handler(server: Path) -> None:
    """A handler's own fault is logged, the caller learns that there is one but not what, and the next request is served."""
    with structlog.testing.capture_logs() as logged, pytest.raises(Declined, match="log says why"):
        await call(server, "shout", {})
    assert [(entry["event"], type(entry["exc_info"])) for entry in logged] == [("control request failed", KeyError)]
    assert await call(server, "shout", {"text": "x"}) == "X"


async def test_close_cuts_a_running_handler(tmp_path: Path) -> None:
    """The daemon does not wait at its end for a caller's answer."""
    began = asyncio.Event()

    async def forever(args: Mapping[str, str]) -> object:
        began.set()
        return await asyncio.Event().wait()

    server = ControlServer(tmp_path / "s", {"forever": forever})
    await server.start()
    caller = asyncio.create_task(call(tmp_path / "s", "forever", {}))
    await began.wait()
    await server.close()
    with pytest.raises(NotRunning):
        await caller


def test_socket_path() -> None:
    """Under systemd the socket is in the runtime folder, else in the data folder."""
    assert socket_path(Path("/data"), {}) == Path("/data/control.sock")
    assert socket_path(Path("/data"), {"RUNTIME_DIRECTORY": "/run/parlour:/run/x"}) == Path("/run/parlour/control.sock")


async def test_close_cuts_what_is_open_without_a_word(tmp_path: Path) -> None:
    """Somebody who connected and says nothing does not hold up the end, and leaves no traceback behind."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    server = ControlServer(tmp_path / "control.sock", {})
    await server.start()
    reader, writer = await asyncio.open_unix_connection(tmp_path / "control.sock")
    writer.write(b'{"name":')
    for _ in range(10):
        await asyncio.sleep(0)
    async with asyncio.timeout(2):
        await server.close()
        assert await reader.read() == b""
    await shut(writer)
    assert complaints == []


# ---------------------------------------------------------------------------------------------------------------- answers of several lines


class Long:
    """Handlers that take their time or say much; what became of them is to be seen."""

    def __init__(self) -> None:
        self.began, self.go, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.cut = False

    async def wait(self, args: Mapping[str, str]) -> object:
        self.began.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cut = True
            raise
        finally:
            self.ended.set()
        return "done"

    async def many(self, args: Mapping[str, str]) -> AsyncGenerator[object, None]:
        try:
            for n in range(int(args["n"])):
                yield {"n": n, "text": "x" * int(args.get("size", "10"))}
            if "fail" in args:
                raise ParlourError("broke in the middle")
        finally:
            self.ended.set()


@pytest.fixture
async def long(tmp_path: Path) -> AsyncIterator[tuple[Path, Long]]:
    handlers = Long()
    server = ControlServer(tmp_path / "s", {"wait": handlers.wait, "many": handlers.many}, tmp_path)
    await server.start()
    yield tmp_path / "s", handlers
    await server.close()


async def test_parts(long: tuple[Path, Long]) -> None:
    """A long answer comes in parts, in order, however much it is in all: no line is longer than its part."""
    parts: list[object] = []
    assert await call(long[0], "many", {"n": "300", "size": "100000"}, part=parts.append) is None
    assert parts == [{"n": n, "text": "x" * 100_000} for n in range(300)]
    assert await call(long[0], "many", {"n": "0"}, part=parts.append) is None
    assert len(parts) == 300


async def test_a_failure_between_parts(long: tuple[Path, Long]) -> None:
    """What came is handed on, and then the sentence."""
    parts: list[object] = []
    with pytest.raises(Declined, match="broke in the middle"):
        await call(long[0], "many", {"n": "2", "fail": "1"}, part=parts.append)
    assert len(parts) == 2


async def test_an_old_caller_gets_no_half_answer(long: tuple[Path, Long]) -> None:
    """Who takes one line only is told so instead of being given the first part."""
    with pytest.raises(Declined, match="several lines"):
        await call(long[0], "many", {"n": "2"})


async def test_signs_of_life(long: tuple[Path, Long]) -> None:
    """While the work goes on the caller hears so, and the answer comes when it is there."""
    path, handlers = long
    beats: list[int] = []

    def beat() -> None:
        beats.append(1)
        handlers.go.set()

    assert await call(path, "wait", {}, part=lambda one: None, beat=beat) == "done"
    assert beats
    assert not handlers.cut


async def test_who_leaves_ends_the_work(long: tuple[Path, Long]) -> None:
    """An operator who gives up waiting has not ordered anything: what waits for its turn is cut."""
    path, handlers = long
    caller = asyncio.create_task(call(path, "wait", {}, part=lambda one: None))
    await handlers.began.wait()
    caller.cancel()
    async with asyncio.timeout(5):
        await handlers.ended.wait()
    assert handlers.cut


async def test_a_reader_who_stops_holds_up_no_other(long: tuple[Path, Long]) -> None:
    """Parts wait for him, bounded, and others are served; when he leaves, the work ends."""
    path, handlers = long
    _, writer = await asyncio.open_unix_connection(path, limit=1024)
    writer.write(b'{"name":"many","args":{"n":"100000","size":"10000"},"lines":true}\n')
    await writer.drain()
    for _ in range(3):
        assert await call(path, "many", {"n": "1"}, part=lambda one: None) is None
    handlers.ended.clear()
    writer.transport.abort()
    async with asyncio.timeout(5):
        await handlers.ended.wait()
    await shut(writer)


async def test_another_folders_daemon(long: tuple[Path, Long], tmp_path: Path) -> None:
    """Who means the daemon of another folder is not answered by this one; any path to the folder will do."""
    path, handlers = long
    handlers.go.set()
    (tmp_path / "way").symlink_to(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    assert await call(path, "wait", {}, folder=identity(tmp_path / "way")) == "done"
    with pytest.raises(NotRunning, match=f"this daemon works in {tmp_path}") as caught:
        await call(path, "wait", {}, folder=identity(other))
    assert caught.value.absent
    assert identity(tmp_path / "nowhere") == ""


async def test_a_full_disk_is_told(tmp_path: Path) -> None:
    """What the disk says is worth more than that something failed; the log, which has told of the outage, gets no traceback of it."""

    async def full(args: Mapping[str, str]) -> object:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/x")

    server = ControlServer(tmp_path / "s", {"full": full})
    await server.start()
    with structlog.testing.capture_logs() as logs, pytest.raises(Declined, match=r"^/data/x: No space left"):
        await call(tmp_path / "s", "full", {})
    assert [(line["log_level"], "exc_info" in line) for line in logs if line["event"] == "control request failed"] == [("info", False)]
    await server.close()


async def test_the_callers_own_trouble(long: tuple[Path, Long]) -> None:
    """A full disk or a reader that left on the caller's side is not blamed on the daemon."""

    def full(one: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out.jsonl")

    with pytest.raises(OSError, match="No space left"):
        await call(long[0], "many", {"n": "3"}, part=full)
    assert await call(long[0], "many", {"n": "0"}, part=full) is None


async def test_a_daemon_that_goes_in_the_middle(tmp_path: Path) -> None:
    """Who asked and got no answer knows that the request may have been carried out; who met nobody, that it was not."""
    handlers = Long()
    server = ControlServer(tmp_path / "s", {"wait": handlers.wait})
    await server.start()
    caller = asyncio.create_task(call(tmp_path / "s", "wait", {}, part=lambda one: None))
    await handlers.began.wait()
    await server.close()
    with pytest.raises(NotRunning) as caught:
        await caller
    assert caught.value.asked
    with pytest.raises(NotRunning) as caught:
        await call(tmp_path / "s", "wait", {})
    assert not caught.value.asked
