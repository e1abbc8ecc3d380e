"""A full disk, end to end: who is told, what is acknowledged, what is left behind; and all goes on without a restart when there is room.

The disk is real: a small tmpfs in the place of the data folder or of a part of it. Where nobody may mount, the kernel's limit on the size
of a file does the same to all files of the daemon at once, its log included; that is tested anyway.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import resource
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from gateway.unstored import NOT_YET
from gateway.work import UNREADABLE
from tests.crash.records import unfinished
from tests.fakes.openai import DONE, FakeModel, Reply, delta, says
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import Daemon, free_port
from tests.flow.people import config, session_lines
from tests.gateway.disk_tools import fill, small_disk

ANA, BEN = 42, 43
NOT_STORED = "I could not store your message: the disk is full or failing. Please send it again later."
LONG = "x" * 3900
"""A message that does not fit into what is left of the last page of a file."""


def whole(data: Path) -> None:
    """Every line of every file is whole, and every session counts without a gap."""
    for path in data.rglob("*.jsonl"):
        lines = path.read_bytes().split(b"\n")
        assert lines.pop() == b"", path
        values = [json.loads(line) for line in lines]
        if path.parent.parent.name == "telegram" and path.name != "_chat.jsonl":
            assert [value["seq"] for value in values[1:]] == list(range(1, len(values))), path
    assert not [path for path in data.rglob("*") if path.name.startswith(".") or path.suffix == ".torn"]


class Scarce:
    """Room that can be taken away and given back."""

    def __init__(self, take: Callable[[], object], give: Callable[[], object]) -> None:
        self.take, self.give = take, give


@contextmanager
def scarce_disk(place: Path, size: int = 1 << 20) -> Iterator[Scarce]:
    place.parent.mkdir(parents=True, exist_ok=True)
    with small_disk(place, size):
        yield Scarce(lambda: fill(place), (place / "ballast").unlink)


def scarce_files(daemon: Daemon) -> Scarce:
    """No file of the running daemon may grow beyond what the largest one of its data has now."""

    def limit(size: int) -> None:
        assert daemon.process is not None
        _, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (size, hard))

    def take() -> None:
        limit(max(path.stat().st_size for path in daemon.data.rglob("*.jsonl")) + 50)

    return Scarce(take, lambda: limit(resource.RLIM_INFINITY))


@pytest.fixture(params=["disk", "limit", "power"])
async def scarce(
    request: pytest.FixtureRequest, tmp_path: Path, tg: FakeTelegram, model: FakeModel
) -> AsyncIterator[tuple[Daemon, Scarce]]:
    """A running daemon whose room can be taken away altogether."""
    with ExitStack() as mounted:
        daemon = Daemon(tmp_path, config(tg, model, sessions='durability = "power"' if request.param == "power" else ""))
        room = scarce_files(daemon) if request.param == "limit" else mounted.enter_context(scarce_disk(daemon.data))
        async with daemon:
            yield daemon, room


async def say(tg: FakeTelegram, text: str, answer: str = "", chat: int = ANA) -> None:
    """Say it and wait for the answer, which is the newest message then."""
    tg.say(chat, text)
    await tg.wait_for(lambda: tg.visible(chat)[-1:] == [answer or f"Heard: {text}"], 20, chat=chat)


async def test_what_cannot_be_written_is_not_acknowledged(scarce: tuple[Daemon, Scarce], tg: FakeTelegram, model: FakeModel) -> None:
    """The network keeps what the journal cannot take; each sender hears it once, and the operator too. With room it is answered in order,
    without a restart, and the next life knows it all."""
    daemon, room = scarce
    await say(tg, "one")
    await say(tg, "two")
    room.take()
    for chat, text in ((ANA, f"three {LONG}"), (BEN, "three of Ben"), (ANA, "four")):
        tg.say(chat, text)
    polls = len(tg.calls_of("getUpdates"))
    await tg.wait_for(lambda: len(tg.calls_of("getUpdates")) > polls + 1, 20)
    assert tg.pending == 3
    await tg.wait_for(lambda: tg.visible(ANA) == ["Heard: one", "Heard: two", NOT_YET] and tg.visible(BEN) == [NOT_YET], 20)
    room.give()
    await tg.wait_for(lambda: tg.visible(ANA)[-1] == "Heard: four", 20, chat=ANA)
    await tg.wait_for(lambda: tg.visible(BEN) == [NOT_YET, "Heard: three of Ben"], 20, chat=BEN)
    assert tg.visible(ANA).count(NOT_YET) == 1
    assert "cannot be stored" in daemon.text()
    assert daemon.text().count("cannot write to the disk") == 1
    assert "Traceback" not in daemon.text()
    await daemon.kill()
    whole(daemon.data)
    await daemon.start()
    await say(tg, "five")
    said = [str(message.content) for message in model.asked[-1].messages if message.role == "user"]
    assert said == ["one", "two", f"three {LONG}", "four", "five"]
    assert await daemon.stop() == 0
    whole(daemon.data)


async def test_a_webhook_is_told_to_come_again(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """503 while the journal cannot be written; the same update is taken when there is room."""
    daemon = Daemon(tmp_path, config(tg, model, webhook_port=free_port()))
    with scarce_disk(daemon.data / "journal") as room:
        async with daemon:
            await say(tg, "one")
            room.take()
            tg.say(ANA, f"two {LONG}")
            tg.say(BEN, "hello")
            await tg.wait_for(lambda: tg.webhook_posts.count(503) > 2, 20)
            assert tg.pending == 2
            room.give()
            await tg.wait_for(lambda: len(tg.visible(ANA)) == 3 and tg.visible(BEN)[-1:] == ["Heard: hello"], 20)
            assert await daemon.stop() == 0
        whole(daemon.data)
    assert len(model.asked) == 3


async def test_a_question_that_cannot_be_stored_is_told(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """D36, the person's line: no model is asked about what would be forgotten; the sender is told, and what follows is in order."""
    daemon = Daemon(tmp_path, config(tg, model))
    with scarce_disk(daemon.data / "sessions") as room:
        async with daemon:
            await say(tg, "one")
            room.take()
            await say(tg, f"two {LONG}", NOT_STORED)
            await say(tg, "hello", NOT_STORED, chat=BEN)  # there is not even a folder for this one
            room.give()
            await say(tg, "three")
            await say(tg, "hello again", chat=BEN)
            await tg.wait_for(lambda: not unfinished(daemon.data), 10)
            assert await daemon.stop() == 0
        whole(daemon.data)
        assert [line["content"] for line in session_lines(daemon.data, ANA) if line.get("role") == "user"] == ["one", "three"]
    assert [asked.words for asked in model.asked] == ["one", "three", "hello again"]
    assert tg.visible(ANA) == ["Heard: one", NOT_STORED, "Heard: three"]


@pytest.mark.parametrize("streaming", ["edit", "off"])
async def test_an_answer_that_cannot_be_stored_is_told(tmp_path: Path, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """D36, a later line: nobody is left with an answer that the next turn knows nothing of, and the history stays legal."""
    daemon = Daemon(tmp_path, config(tg, model, streaming=streaming))
    with scarce_disk(daemon.data / "sessions") as room:
        async with daemon:
            await say(tg, "one")
            full = asyncio.Event()
            model.then(Reply([delta("The first words. "), full, delta(LONG), delta(finish="stop"), DONE]))
            tg.say(ANA, "two")
            await model.wait(2)
            if streaming == "edit":
                await tg.wait_for(lambda: tg.visible(ANA)[-1] == "The first words.", 10, chat=ANA)
            room.take()
            full.set()
            await tg.wait_for(lambda: tg.visible(ANA) == ["Heard: one", NOT_STORED], 10, chat=ANA)
            room.give()
            model.then(says("Heard: three"))
            await say(tg, "three")
            assert [message.role for message in model.asked[-1].messages] == ["system", "user", "assistant", "user"]
            assert "two" in str(model.asked[-1].messages[-1].content)
            await tg.wait_for(lambda: not unfinished(daemon.data), 10)
            await daemon.kill()
            await daemon.start()
            await say(tg, "four")
            assert await daemon.stop() == 0
        whole(daemon.data)
    assert tg.visible(ANA) == ["Heard: one", NOT_STORED, "Heard: three", "Heard: four"]


@pytest.mark.parametrize("part", ["journal", "sessions"])
@pytest.mark.parametrize("end", ["give", "kill"])
async def test_records_of_what_was_sent_wait_for_room(tmp_path: Path, tg: FakeTelegram, model: FakeModel, part: str, end: str) -> None:
    """Answers whose delivery cannot be booked are there all the same, each once; so they are if the process dies before there is room."""
    chats = range(1, 61)  # their records are more than what is left of a page
    daemon = Daemon(tmp_path, config(tg, model))
    with scarce_disk(daemon.data / part) as room:
        async with daemon:
            # An answer in the session's file that is as long as a page, less what its own `sent` needs, leaves no room for that.
            model.script(lambda asked: says(f"{asked.words} " + "y" * (4096 - 470)) if "fill" in asked.words else None)
            held = [tg.hold("editMessageText", chat=chat) for chat in chats]
            for chat in chats:
                tg.say(chat, f"fill {chat}")
            await tg.wait_for(lambda: all(one.reached.is_set() for one in held), 20)
            await tg.wait_for(lambda: all(asked.ended for asked in model.asked) and len(model.asked) == len(chats), 20)
            room.take()
            for one in held:
                one.release()
            await tg.wait_for(lambda: "cannot record" in daemon.text(), 20)
            if end == "kill":
                await daemon.kill()
            room.give()
            if end == "kill":
                await daemon.start()
            for chat in chats:
                tg.say(chat, f"and now {chat}")
            await tg.wait_for(lambda: not unfinished(daemon.data) and not tg.pending, 40)
            assert await daemon.stop() == 0
        whole(daemon.data)
    for chat in chats:
        first, second = (text[:20].split("y")[0].strip() for text in tg.visible(chat))
        assert first == f"fill {chat}"
        assert second == f"Heard: and now {chat}"


async def test_a_start_on_a_full_disk(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """Killed while the disk was full: it starts all the same, goes on with what it has, and takes new things when there is room."""
    daemon = Daemon(tmp_path, config(tg, model))
    with scarce_disk(daemon.data) as room:
        async with daemon:
            await say(tg, "one")
            gate = asyncio.Event()
            model.then(Reply([gate]))
            tg.say(ANA, "two")
            await model.wait(2)
            room.take()
            await daemon.kill()
            await daemon.start()
            tg.say(BEN, LONG)
            await tg.wait_for(lambda: tg.visible(ANA)[-1] in {"Heard: two", NOT_STORED}, 20, chat=ANA)
            room.give()
            await tg.wait_for(lambda: f"Heard: {LONG}"[:50] in "".join(tg.visible(BEN)), 20, chat=BEN)
            await say(tg, "three")
            assert await daemon.stop() == 0
        whole(daemon.data)
    assert tg.visible(ANA)[0] == "Heard: one"
    assert tg.visible(ANA)[-1] == "Heard: three"


@pytest.mark.parametrize("part", ["", "journal", "sessions"])
async def test_commands_on_a_full_disk(tmp_path: Path, tg: FakeTelegram, model: FakeModel, part: str) -> None:
    """A fork or a new session is there as a whole or not at all, and its author is told which; /forget makes room even then."""
    daemon = Daemon(tmp_path, config(tg, model))
    with scarce_disk(daemon.data / part, 1 << 20) as room:
        async with daemon:
            for n in range(8):
                await say(tg, f"{n} {LONG}")
            room.take()
            for command in ("/fork west", "/reset", "/fork east"):
                tg.say(ANA, command)
            await tg.wait_for(lambda: not unfinished(daemon.data) or "cannot" in daemon.text(), 20)
            tg.say(ANA, "/forget main yes")
            room.give()
            await tg.wait_for(lambda: not unfinished(daemon.data) and not tg.pending, 40)
            said = [text for text in tg.visible(ANA)[8:] if text != NOT_YET]
            folder = daemon.data / "sessions" / "telegram" / str(ANA)
            assert ("main" in {path.stem for path in folder.glob("*.jsonl")}) == (said[-1] == NOT_STORED)
            for name, words in (("west", "in west,"), ("east", "in east,"), ("chat-2", "A new conversation.")):
                assert (folder / f"{name}.jsonl").exists() == any(words in text for text in said), (name, said)
            await say(tg, "and now?")
            assert await daemon.stop() == 0
        whole(daemon.data)


@pytest.mark.parametrize("kills", [False, True], ids=["alive", "killed"])
async def test_a_disk_that_is_full_again_and_again(tmp_path: Path, tg: FakeTelegram, model: FakeModel, kills: bool) -> None:
    """Eight people talk while room comes and goes: each message is answered or its sender told, in order. Killed on a full disk, the daemon
    may do both; nobody is left without either."""
    dice = random.Random(kills)
    daemon = Daemon(tmp_path, config(tg, model))
    model.delay = 0.005
    ending = asyncio.Event()
    counts: Counter[int] = Counter()

    def numbers(text: str) -> list[int]:
        return [int(found) for found in re.findall(r"\bn(\d+)x", text)]

    # A question whose answer could not be stored is in the next request too, marked as unanswered: the last words are the new ones.
    model.script(lambda asked: says(f"Heard: n{numbers(asked.words)[-1]}x"))

    def known(chat: int, answer: str, told: int) -> bool:
        return answer in tg.visible(chat) or tg.visible(chat).count(NOT_STORED) > told

    async def person(chat: int) -> None:
        while not ending.is_set():
            counts[chat] += 1
            number, told = counts[chat], tg.visible(chat).count(NOT_STORED)
            tg.say(chat, f"n{number}x {'y' * dice.choice((10, 700, 2500))}")
            await tg.wait_for(partial(known, chat, f"Heard: n{number}x", told), 40, chat=chat)

    with scarce_disk(daemon.data, 3 << 20) as room:
        async with daemon:
            async with asyncio.TaskGroup() as people:
                for chat in range(1, 9):
                    people.create_task(person(chat))
                for round_ in range(4):
                    before = counts.total()
                    await tg.wait_for(lambda before=before: counts.total() > before + 8, 40)  # type: ignore[misc]
                    room.take()
                    polls = len(tg.calls_of("getUpdates"))
                    await tg.wait_for(lambda polls=polls: len(tg.calls_of("getUpdates")) > polls, 20)  # type: ignore[misc]
                    if kills:
                        await daemon.kill()
                        if round_ % 2:
                            room.give()
                        await daemon.start()
                    if not kills or not round_ % 2:
                        room.give()
                ending.set()
            await tg.wait_for(lambda: not unfinished(daemon.data) and not tg.pending, 40)
            assert await daemon.stop() == 0
        whole(daemon.data)
    for chat, count in counts.items():
        seen = [text for text in tg.visible(chat) if text not in {"…", NOT_YET}]
        assert tg.visible(chat).count(NOT_YET) <= 1 + 4 * kills
        answered = [numbers(text) for text in seen if text != NOT_STORED]
        assert answered == sorted(answered), seen
        assert len({*map(tuple, answered)}) == len(answered), seen
        assert count <= len(seen) <= count + 4 * kills, seen


@contextmanager
def read_only_now(place: Path) -> Iterator[None]:
    """What is mounted there takes no write, as after a fault of the medium. The kernel refuses that while a file is open for writing."""

    def remount(how: str) -> None:
        deadline = time.monotonic() + 10
        while subprocess.run(["mount", "-o", f"remount,{how}", str(place)], capture_output=True, check=False).returncode:
            assert time.monotonic() < deadline

    remount("ro")
    try:
        yield
    finally:
        remount("rw")


@pytest.mark.parametrize("part", ["journal", "sessions"])
async def test_a_disk_that_becomes_read_only(tmp_path: Path, tg: FakeTelegram, model: FakeModel, part: str) -> None:
    """Its senders are told, nothing that was acknowledged goes, and all goes on when it can be written to again."""
    daemon = Daemon(tmp_path, config(tg, model))
    with scarce_disk(daemon.data / part):
        async with daemon:
            await say(tg, "one")
            await tg.wait_for(lambda: not unfinished(daemon.data), 20)
            with read_only_now(daemon.data / part):
                tg.say(ANA, "two")
                said = NOT_YET if part == "journal" else NOT_STORED
                await tg.wait_for(lambda: tg.visible(ANA) == ["Heard: one", said], 20, chat=ANA)
            if part == "journal":
                await tg.wait_for(lambda: tg.visible(ANA)[-1] == "Heard: two", 20, chat=ANA)
            await say(tg, "three")
            assert daemon.text().count("cannot write to the disk") == 1
            assert "Traceback" not in daemon.text()
            assert await daemon.stop() == 0
        whole(daemon.data)


async def test_a_session_that_something_took_the_place_of(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """Where a folder is in the place of a conversation's file its delivery is not waited for for ever: the chat hears that it cannot be
    read, and goes on in a new one; the others never notice."""
    async with Daemon(tmp_path, config(tg, model)) as daemon:
        await say(tg, "one")
        held = tg.hold("editMessageText", chat=ANA)
        tg.say(ANA, "two")
        await asyncio.wait_for(held.reached.wait(), 20)
        await tg.wait_for(lambda: any(line.get("content") == "Heard: two" for line in session_lines(daemon.data, ANA)), 20)
        file = daemon.data / "sessions" / "telegram" / str(ANA) / "main.jsonl"
        file.rename(tmp_path / "kept")
        file.mkdir()
        held.release()
        await say(tg, "hello", chat=BEN)
        await say(tg, "three", UNREADABLE)
        tg.say(ANA, "/reset")
        await tg.wait_for(lambda: "new conversation" in tg.visible(ANA)[-1], 20, chat=ANA)
        await say(tg, "four")
        await tg.wait_for(lambda: not unfinished(daemon.data), 20)
        assert daemon.text().count("delivery cannot be recorded") == 1
        assert await daemon.stop() == 0
    assert file.is_dir()
