"""The terminal: `channels.console` over real pipes, a pseudo-terminal and plain files."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from channels.base import Address, Button, Context, Gone, Inbound, Lost, Piece, SessionInfo, Shown
from channels.console import MAX_LINE, ConsoleChannel, Settings, make, plain

HERE = Address("console", "local")


class Pipes:
    """A console channel between two pipes."""

    def __init__(self) -> None:
        self.stdin, self.typing = os.pipe()
        self.reading, self.stdout = os.pipe()
        self.pauses: list[float] = []
        self.channel = ConsoleChannel(Settings(), self.stdin, self.stdout, sleep=self._sleep)
        self.seen: list[Inbound] = []
        self.faults = 0
        self.arrived = asyncio.Event()

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def accept(self, batch: Sequence[Inbound]) -> None:
        if self.faults:
            self.faults -= 1
            raise OSError(28, "full")
        self.seen += batch
        self.arrived.set()

    def type(self, data: bytes) -> None:
        os.write(self.typing, data)

    def end(self) -> None:
        os.close(self.typing)
        self.typing = -1

    async def texts(self, count: int) -> list[str]:
        async with asyncio.timeout(5):
            while len(self.seen) < count:
                self.arrived.clear()
                await self.arrived.wait()
        return [inbound.text for inbound in self.seen]


@pytest.fixture
async def pipes() -> AsyncIterator[Pipes]:
    made = Pipes()
    yield made
    if made.typing >= 0:
        made.end()  # the reader's thread ends with its input
    await made.channel.close()
    for thread in threading.enumerate():
        if thread.name.startswith("console"):
            await asyncio.to_thread(thread.join, 5)
    for fd in (made.stdin, made.reading, made.stdout):
        with suppress(OSError):
            os.close(fd)


async def test_a_line_is_a_message_of_the_owners(pipes: Pipes) -> None:
    """Each line that is not blank comes in, in order, trusted, with an id of its own."""
    running = asyncio.create_task(pipes.channel.run(pipes.accept))
    pipes.type("first\n\n  \nsécond\r\nthi".encode())
    await pipes.texts(2)
    pipes.type(b"rd\n")
    assert await pipes.texts(3) == ["first", "sécond", "third"]
    assert len({inbound.id for inbound in pipes.seen}) == 3
    assert all(inbound.id.startswith("console:local:") and inbound.sender.trusted and inbound.address == HERE for inbound in pipes.seen)
    pipes.end()
    await asyncio.wait_for(running, 5)


async def test_the_end_of_input_ends_the_channel_after_its_last_line(pipes: Pipes) -> None:
    """A last line without a line end counts, then `run` returns; sending still works, and a second `run` ends at once."""
    pipes.type(b"one\ntwo")
    pipes.end()
    await asyncio.wait_for(pipes.channel.run(pipes.accept), 5)
    assert await pipes.texts(2) == ["one", "two"]
    await pipes.channel.send(HERE, Piece("answer"))
    assert os.read(pipes.reading, 100) == b"answer\n"
    await asyncio.wait_for(pipes.channel.run(pipes.accept), 5)


async def test_bytes_that_are_no_text_come_in_cleaned(pipes: Pipes) -> None:
    """Broken UTF-8, a character split over two reads, NUL: what comes out may be stored."""
    running = asyncio.create_task(pipes.channel.run(pipes.accept))
    pipes.type(b"a\xff\x00b\n")
    await pipes.texts(1)
    pipes.type("€".encode()[:1])
    await asyncio.sleep(0.02)
    pipes.type("€".encode()[1:] + b"\n")
    assert await pipes.texts(2) == ["a\ufffdb", "€"]
    pipes.end()
    await running


async def test_a_line_without_end_is_bounded(pipes: Pipes) -> None:
    """A line of a megabyte comes in as messages of a bounded size, nothing lost."""
    running = asyncio.create_task(pipes.channel.run(pipes.accept))
    await asyncio.to_thread(_write_all, pipes.typing, b"x" * 1_000_000 + b"\n")
    pipes.end()
    await asyncio.wait_for(running, 5)
    assert "".join(inbound.text for inbound in pipes.seen) == "x" * 1_000_000
    assert max(len(inbound.text) for inbound in pipes.seen) <= MAX_LINE


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


async def test_what_cannot_be_written_down_is_tried_again(pipes: Pipes) -> None:
    """A full disk is told once, and the same messages, ids and all, go in when there is room."""
    pipes.faults = 3
    pipes.type(b"one\n")
    pipes.end()
    await asyncio.wait_for(pipes.channel.run(pipes.accept), 5)
    assert await pipes.texts(1) == ["one"]
    assert pipes.pauses == [1.0, 2.0, 4.0]
    assert os.read(pipes.reading, 1000).count(b"cannot be written down") == 1


async def test_a_silent_terminal_holds_up_nothing(pipes: Pipes) -> None:
    """While nothing is typed the loop goes on, and `run` is cancelled at once."""
    running = asyncio.create_task(pipes.channel.run(pipes.accept))
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 1)


async def test_run_after_a_failure_goes_on_where_it_was(pipes: Pipes) -> None:
    """The supervisor may cancel and start again: lines that came in between are not lost, and one reader reads."""
    running = asyncio.create_task(pipes.channel.run(pipes.accept))
    pipes.type(b"one\n")
    await pipes.texts(1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    pipes.type(b"two\n")
    again = asyncio.create_task(pipes.channel.run(pipes.accept))
    assert await pipes.texts(2) == ["one", "two"]
    assert sum(thread.name == "console reader" for thread in threading.enumerate()) == 1
    pipes.end()
    await again


async def test_answers_are_printed_as_they_are(pipes: Pipes) -> None:
    """The Markdown source, then the buttons as what to type. Whatever a terminal would obey is left out."""
    (piece,) = pipes.channel.render("**Hi** \x1b[2Jthere\x07\n\u009b31mred\tx\r\n")
    await pipes.channel.send(HERE, piece, buttons=[Button("West", "/switch west")])
    assert os.read(pipes.reading, 1000).decode() == "**Hi** [2Jthere\n31mred\tx\n\n[West: /switch west]\n"
    assert plain("a\x00b\x7fc") == "abc"


async def test_a_full_pipe_holds_up_the_sender_only(pipes: Pipes) -> None:
    """When nobody takes the output, the send waits and the loop does not; then everything is there."""
    sending = asyncio.create_task(pipes.channel.send(HERE, Piece("y" * 1_000_000)))
    for _ in range(10):
        await asyncio.sleep(0.001)
    assert not sending.done()
    got = await asyncio.to_thread(_read_exactly, pipes.reading, 1_000_001)
    await sending
    assert got == b"y" * 1_000_000 + b"\n"


def _read_exactly(fd: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        data += os.read(fd, 65536)
    return bytes(data)


async def test_nobody_at_the_other_end(pipes: Pipes) -> None:
    """Stdout that is closed over there: the chat is gone. What is typed still goes in."""
    os.close(pipes.reading)
    with pytest.raises(Gone):
        await pipes.channel.send(HERE, Piece("x"))
    pipes.faults = 1
    pipes.type(b"one\n")
    pipes.end()
    await asyncio.wait_for(pipes.channel.run(pipes.accept), 5)
    assert await pipes.texts(1) == ["one"]


async def test_prompts_are_for_terminals(pipes: Pipes) -> None:
    """On a pseudo-terminal there is a prompt before and after an answer; through pipes there is none."""
    ours, theirs = pty.openpty()
    try:
        channel = ConsoleChannel(Settings(prompt="? "), theirs, theirs)
        running = asyncio.create_task(channel.run(pipes.accept))
        assert await asyncio.to_thread(os.read, ours, 100) == b"? "
        os.write(ours, b"hi\n")
        assert await pipes.texts(1) == ["hi"]
        await channel.send(HERE, Piece("answer"))
        shown = b""
        while not shown.endswith(b"answer\r\n? "):
            shown += await asyncio.to_thread(os.read, ours, 100)
        os.write(ours, b"\x04")
        await asyncio.wait_for(running, 5)
        await channel.close()
    finally:
        os.close(ours)
        os.close(theirs)


async def test_a_plain_file_is_input_too(tmp_path: Path) -> None:
    """`parlour < file`, and no input at all: what no event loop can poll is read all the same."""
    path = tmp_path / "lines"
    path.write_text("one\ntwo\n")
    for name, expected in ((str(path), ["one", "two"]), ("/dev/null", [])):
        fd, seen = os.open(name, os.O_RDONLY), []  # type: tuple[int, list[str]]

        async def accept(batch: Sequence[Inbound], seen: list[str] = seen) -> None:
            seen += [inbound.text for inbound in batch]

        await asyncio.wait_for(ConsoleChannel(Settings(), fd, fd).run(accept), 5)
        assert seen == expected
        os.close(fd)


def test_a_waiting_reader_does_not_keep_the_process() -> None:
    """A process whose stdin stays open and silent ends when its loop ends."""
    code = """
import asyncio
from channels.console import ConsoleChannel, Settings
async def accept(batch): pass
async def main():
    channel = ConsoleChannel(Settings())
    task = asyncio.create_task(channel.run(accept))
    await channel.send(None, __import__("channels.base").base.Piece("up"))
    task.cancel()
    await channel.close()
asyncio.run(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as process:
        assert process.wait(10) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b"up\n"


async def test_the_contract_of_a_channel(pipes: Pipes, tmp_path: Path) -> None:
    """Blank texts give no piece; what is printed cannot be edited; to delete and to type is harmless; `close` may come twice."""
    channel = pipes.channel
    assert channel.render(" \n\x1b") == []
    assert channel.render("x\n") == [Piece("x\n", start=0, end=2)]
    with pytest.raises(Lost):
        await channel.edit(HERE, "1", Piece("x"))
    await channel.delete(HERE, "1")
    await channel.typing(HERE)
    await channel.start(())
    assert channel.routes() == ()
    assert channel.last_sign_of_life() == 0.0
    assert not channel.streams
    await channel.close()
    await channel.close()

    class Nobody:
        async def sessions(self, address: object, sender: object, *, direct: bool = True, group: str = "") -> list[SessionInfo]:
            return []

        async def history(self, address: object, sender: object, name: str = "", after: int = 0) -> list[Shown]:
            return []

    assert make(Settings(), Context(token="", folder=tmp_path, desk=Nobody())).name == "console"
