"""The terminal channel: a line of stdin is a message, answers go to stdout. One chat, and whoever sits there is the daemon's owner.

Reading and writing block where the other side does (a terminal that waits, a full pipe), and asyncio's pipes refuse plain files and turn
the terminal's own flags, which the shell shares. So one daemon thread reads and one writes: neither blocks the loop, nor the end of the
process. The end of input ends this channel only. Made by `gateway.app`.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import queue
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec
from aiohttp.web import RouteDef

from channels.base import (
    Accept,
    Address,
    Attachment,
    Button,
    Channel,
    CommandInfo,
    Context,
    Gone,
    Inbound,
    Limits,
    Lost,
    Pacing,
    Piece,
    Refused,
    Sender,
)
from channels.text import clean

MAX_LINE = 64 * 1024
"""A longer line comes in as several messages of this many characters."""
_AHEAD = 8
"""Chunks that are read ahead; then the reader waits, and with it whoever writes to our stdin."""
_KEPT = {"\n", "\t"}


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The keys of `[channels.console]`."""

    prompt: str = "> "
    """Shown where stdin and stdout are a terminal."""


def plain(text: str) -> str:
    """A text without what a terminal would obey: control characters go, line ends and tabs stay."""
    return "".join(c for c in text.replace("\r\n", "\n") if c in _KEPT or not (c < " " or "\x7f" <= c <= "\x9f"))


class _Lines:
    """Bytes as they come in -> lines. Pure."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> list[str]:
        """The lines that are whole now; b"" is the end and gives the last one. Blank lines are left out."""
        *lines, self._rest = (self._rest + self._decoder.decode(data, final=not data)).split("\n")
        if not data or len(self._rest) >= MAX_LINE:
            lines.append(self._rest)
            self._rest = ""
        parts = [line[at : at + MAX_LINE] for line in lines for at in range(0, len(line), MAX_LINE)]
        return [text for part in parts if (text := clean(part).strip())]


class _Reader:
    """The thread that reads. What it read waits in `chunks`; b"" is the end."""

    def __init__(self, fd: int) -> None:
        self.chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(_AHEAD)
        self._fd = fd
        threading.Thread(target=self._read, name="console reader", daemon=True).start()

    def taken(self) -> None:
        """A chunk is worked off."""
        self._room.release()

    def _read(self) -> None:
        data = b"-"
        while data:
            self._room.acquire()
            try:
                data = os.read(self._fd, 64 * 1024)
            except OSError:
                data = b""
            try:
                self._loop.call_soon_threadsafe(self.chunks.put_nowait, data)
            except RuntimeError:
                return  # the loop is closed: the process ends


class _Writer:
    """The thread that writes. One text at a time, as the lanes have it; a few more may wait."""

    def __init__(self, fd: int) -> None:
        self._jobs: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        threading.Thread(target=self._write, name="console writer", daemon=True).start()

    def put(self, data: bytes) -> asyncio.Future[None]:
        """Done when the text is out; raises OSError where it cannot be."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((data, done))
        return done

    def close(self) -> None:
        """Let the thread go when it is through with what it has."""
        self._jobs.put(None)

    def _write(self) -> None:
        while (job := self._jobs.get()) is not None:
            data, done = job
            error: OSError | None = None
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError as caught:
                error = caught
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_settle, done, error)


def _settle(done: asyncio.Future[None], error: OSError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


class ConsoleChannel:
    """See `channels.base.Channel`."""

    name = "console"
    limits = Limits(units=10_000_000, spans=1_000_000)
    pacing = Pacing()
    backlog = 0.0
    streams = False

    def __init__(
        self, settings: Settings, stdin: int = 0, stdout: int = 1, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._stdin, self._stdout = stdin, stdout
        self._sleep = sleep
        self._prompt = settings.prompt if _is_terminal(stdin) and _is_terminal(stdout) else ""
        self._address = Address(self.name, "local")
        self._lines = _Lines()
        self._reader: _Reader | None = None
        self._writer: _Writer | None = None
        self._alive = 0.0

    # -- the channel's life

    async def start(self, menu: Sequence[CommandInfo]) -> None:
        """Nothing to reach."""

    async def run(self, accept: Accept) -> None:
        """Take lines until the end of input. What could not be written down is tried again: nobody would type it twice."""
        reader = self._reader = self._reader or _Reader(self._stdin)
        await self._ask()
        while True:
            data = await reader.chunks.get()
            self._alive = time.monotonic()
            batch = [self._inbound(line) for line in self._lines.feed(data)]
            if batch:
                await self._hand_over(accept, batch)
            reader.taken()
            if not data:
                reader.chunks.put_nowait(b"")  # for a second `run`: the end stays the end
                return
            if not batch:
                await self._ask()

    async def close(self) -> None:
        """Let the writer go. The reader's thread ends with its input or with the process."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def last_sign_of_life(self) -> float:
        """When stdin last gave something."""
        return self._alive

    def routes(self) -> Sequence[RouteDef]:
        """None."""
        return ()

    def _inbound(self, line: str) -> Inbound:
        owner = Sender(id="owner", trusted=True)
        return Inbound(id=f"console:local:{secrets.token_hex(10)}", address=self._address, sender=owner, text=line, sent_at=time.time())

    async def _hand_over(self, accept: Accept, batch: Sequence[Inbound]) -> None:
        pause = 0.0
        while True:
            try:
                await accept(batch)
                return
            except OSError:
                if not pause:
                    with suppress(OSError):
                        await self._show("(It cannot be written down now; trying again.)\n")
            pause = min(30.0, 2 * pause or 1.0)
            await self._sleep(pause)

    # -- what goes out

    def render(self, markdown: str) -> list[Piece]:
        """The text itself."""
        return [Piece(markdown, start=0, end=len(markdown))] if plain(markdown).strip() else []

    async def send(self, address: Address, piece: Piece, *, reply_to: str = "", buttons: Sequence[Button] = (), nonce: str = "") -> str:
        """Print it. Buttons are lines that tell what to type. Raises Gone when nobody reads stdout any more."""
        lines = [plain(piece.text), *(f"[{plain(button.label)}: {plain(button.data)}]" for button in buttons)]
        start = "\r" if self._prompt else ""
        try:
            await self._show(start + "\n".join(lines) + "\n")
        except OSError:
            raise Gone("nobody reads the output") from None
        return secrets.token_hex(6)

    async def recall(self, address: Address, piece: Piece, *, since: float, asked: str, reply_to: str = "") -> str:
        return ""  # what is on a terminal nobody knows

    async def edit(self, address: Address, message_id: str, piece: Piece, *, buttons: Sequence[Button] = ()) -> None:
        """What is printed is printed."""
        raise Lost("printed already")

    async def delete(self, address: Address, message_id: str) -> None:
        """What is printed is printed; to ask is no mistake."""

    async def typing(self, address: Address) -> None:
        """Not shown."""

    async def is_admin(self, address: Address, user_id: str) -> bool:
        """Whoever sits at the terminal."""
        return True

    async def fetch(self, attachment: Attachment, most: int) -> bytes:
        raise Refused("nothing is attached here")

    async def _ask(self) -> None:
        with suppress(OSError):  # nobody reads stdout: what is typed still counts
            await self._show("")

    async def _show(self, text: str) -> None:
        """Text and, on a terminal, a new prompt behind it."""
        data = (text + self._prompt).encode("utf-8", "replace")
        if data:
            writer = self._writer = self._writer or _Writer(self._stdout)
            await writer.put(data)


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False


def make(settings: Settings, context: Context) -> Channel:
    """The channel over this process's stdin and stdout."""
    return ConsoleChannel(settings)
