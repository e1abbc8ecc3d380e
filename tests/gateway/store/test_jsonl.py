"""Sessions as files: where they are, who may read them, what they cost, and what happens when the disk or somebody else interferes."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from blockbuster import BlockingError, blockbuster_ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import Conflict, Corrupt, NoSession, SessionExists, StartError
from gateway.message import Chat, Header, Message, SessionKey, State, decode_event, encode_line
from gateway.store.jsonl import JsonlStore
from gateway.store.names import folder_name, key_folder
from gateway.writer import Writer
from tests.gateway.disk_tools import counter, file_limit, fill, open_to_others, small_disk, umask, under_way

KEY = SessionKey("telegram", "12345")


@pytest.fixture
async def writer() -> AsyncIterator[Writer]:
    writer = Writer()
    yield writer
    await writer.close()


@pytest.fixture
async def store(tmp_path: Path, writer: Writer) -> AsyncIterator[JsonlStore]:
    store = JsonlStore(tmp_path / "sessions", writer)
    await store.open()
    yield store
    await store.close()


def header(name: str, key: SessionKey = KEY) -> Header:
    return Header(v=1, key=str(key), name=name, created="2026-11-29T10:00:00.000Z")


def said(seq: int, content: str = "") -> bytes:
    return encode_line(Message(seq=seq, at="t", role="user", content=content or f"line {seq}"))


def talk(first: int, last: int) -> list[bytes]:
    return [said(seq) for seq in range(first, last + 1)]


def main_file(tmp_path: Path) -> Path:
    return tmp_path / "sessions" / "telegram" / "12345" / "main.jsonl"


class TestNames:
    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("12345", "12345"),
            ("-100123:36@42", "-100123:36@42"),
            ("a.b", "a%2eb"),
            ("..", "%2e%2e"),
            ("../x", "%2e%2e%2fx"),
            ("Anna", "%41nna"),
            ("a~b%c", "a%7eb%25c"),
            ("é", "%c3%a9"),
            ("", "%"),
        ],
    )
    def test_examples(self, text: str, name: str) -> None:
        """Short names read like the key; what is not plain is escaped byte for byte."""
        assert folder_name(text) == name

    @settings(max_examples=200, deadline=None)
    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=150))
    def test_a_name_is_always_one_harmless_component(self, text: str) -> None:
        """Any text gives one visible component that every file system takes and tells apart: short, lower-case, ASCII, no slash, no dot."""
        name = folder_name(text)
        assert 0 < len(name) <= 100
        assert name.isascii()
        assert name == name.lower()
        assert not set(name) & set("./\\\0\n ")

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.text("aA.%~:/é2e", max_size=8), max_size=20, unique=True))
    def test_no_two_share_one(self, texts: list[str]) -> None:
        """Different texts have different names, also where they are long."""
        for stem in ("", "x" * 99, "é" * 100):
            assert len({folder_name(stem + text) for text in texts}) == len(texts)

    def test_long_ones_keep_their_beginning(self) -> None:
        """A long key is cut, and told apart by its hash; it stays at a hundred characters."""
        name = folder_name("x" * 300)
        assert name.startswith("x" * 35 + "~")
        assert len(name) == 100


class TestFiles:
    async def test_as_the_format_says(self, store: JsonlStore, tmp_path: Path) -> None:
        """A session is a file of its header and its lines, nothing else; the pointer stands beside it."""
        await store.create(KEY, "main", header("main"), talk(1, 2))
        await store.append(KEY, "main", talk(3, 3), 2, 3)
        await store.set_chat(KEY, Chat(at="t", for_="i", current="main"))
        assert main_file(tmp_path).read_bytes() == encode_line(header("main")) + b"".join(talk(1, 3))
        assert main_file(tmp_path).with_name("_chat.jsonl").read_bytes() == b'{"at":"t","for":"i","current":"main"}\n'
        assert sorted(path.name for path in main_file(tmp_path).parent.iterdir()) == ["_chat.jsonl", "main.jsonl"]

    @pytest.mark.parametrize("mask", [0o000, 0o022])
    async def test_private(self, store: JsonlStore, tmp_path: Path, mask: int) -> None:
        """Sessions, forks, pointers, torn pieces and every folder are ours alone, while they are made as well as afterwards."""
        seen: list[str] = []

        async def watch() -> None:
            while True:
                with suppress(FileNotFoundError):
                    seen.extend(open_to_others(tmp_path / "sessions"))
                await asyncio.sleep(0)

        with umask(mask):
            watching = asyncio.create_task(watch())
            await store.create(KEY, "main", header("main"), talk(1, 100))
            for n in range(10):
                await store.fork(KEY, "main", KEY, f"west-{n}", 50, header(f"west-{n}"))
            await store.append(KEY, "main", talk(101, 101), 100, 101)
            await store.set_chat(KEY, Chat(at="t", current="west"))
            watching.cancel()
        assert seen == []
        assert open_to_others(tmp_path / "sessions") == []

    async def test_closed_and_cleared_at_open(self, store: JsonlStore, writer: Writer, tmp_path: Path) -> None:
        """At the start, files that are open to others are closed, half made ones of a crash are gone, and what is not ours stays."""
        await store.create(KEY, "main", header("main"), talk(1, 2))
        folder = main_file(tmp_path).parent
        (folder / ".new-0123456789abcdef").write_bytes(b"half")
        (folder.parent / ".gone-0123456789abcdef").mkdir()
        (folder.parent / ".gone-0123456789abcdef" / "main.jsonl").write_bytes(b"deleted")
        (folder / ".hidden").write_bytes(b"theirs")
        (folder / "notes.txt").write_bytes(b"theirs")
        for path in (folder, folder / "main.jsonl", folder / "notes.txt"):
            path.chmod(0o755)
        (folder / ".hidden").chmod(0o600)
        again = JsonlStore(tmp_path / "sessions", writer)
        await again.open()
        await again.close()
        assert open_to_others(tmp_path / "sessions") == []
        assert sorted(path.name for path in folder.iterdir()) == [".hidden", "main.jsonl", "notes.txt"]
        assert [path.name for path in folder.parent.iterdir()] == ["12345"]

    async def test_a_folder_that_is_none(self, writer: Writer, tmp_path: Path) -> None:
        """A file in the folder's place ends the start with a line that names it."""
        (tmp_path / "sessions").touch()
        store = JsonlStore(tmp_path / "sessions", writer)
        with pytest.raises(StartError, match="sessions"):
            await store.open()
        await store.close()

    async def test_deleting_takes_everything(self, store: JsonlStore, tmp_path: Path) -> None:
        """A deleted session takes its torn pieces with it; a deleted key its folder, media and all."""
        await store.create(KEY, "main", header("main"), talk(1, 2))
        await store.create(KEY, "west", header("west"))
        folder = main_file(tmp_path).parent
        (folder / "main.torn").write_bytes(b"secret")
        (folder / "west.torn").write_bytes(b"secret")
        (folder / "media").mkdir()
        (folder / "media" / "0123").write_bytes(b"secret")
        await store.delete(KEY, "main")
        assert sorted(path.name for path in folder.iterdir()) == ["media", "west.jsonl", "west.torn"]
        await store.delete(KEY)
        assert list((tmp_path / "sessions").rglob("*")) == [tmp_path / "sessions" / "telegram"]

    async def test_links_are_not_followed(self, store: JsonlStore, tmp_path: Path) -> None:
        """A link in a session's place is no session: it is not read, not written, not listed, and hinders nothing else."""
        await store.create(KEY, "main", header("main"), talk(1, 2))
        elsewhere = tmp_path / "elsewhere"
        elsewhere.write_bytes(encode_line(header("west")) + said(1))
        content = elsewhere.read_bytes()
        main_file(tmp_path).with_name("west.jsonl").symlink_to(elsewhere)
        with pytest.raises(Corrupt, match="something else"):
            await store.tail(KEY, "west", 1)
        with pytest.raises(Corrupt, match="something else"):
            await store.append(KEY, "west", talk(2, 2), 1, 2)
        with pytest.raises(SessionExists):
            await store.create(KEY, "west", header("west"))
        assert [listed.header.name for listed in await store.sessions(KEY)] == ["main"]
        assert elsewhere.read_bytes() == content


class TestFence:
    async def test_a_session_that_is_not_in_memory(self, store: JsonlStore, writer: Writer, tmp_path: Path) -> None:
        """An append to a session that this process never saw is compared with the file, and works in any number, in order."""
        await store.create(KEY, "main", header("main"), talk(1, 3))
        again = JsonlStore(tmp_path / "sessions", writer)
        futures = [again.append(KEY, "main", talk(seq, seq), seq - 1, seq) for seq in range(4, 9)]
        wrong = again.append(KEY, "main", talk(4, 4), 3, 4)
        assert await asyncio.gather(*futures) == [4, 5, 6, 7, 8]
        with pytest.raises(Conflict):
            await wrong
        assert (await again.read(KEY, "main")).lines == talk(1, 8)
        await again.close()

    async def test_few_are_remembered(self, writer: Writer, tmp_path: Path) -> None:
        """However few sessions are remembered, each is appended to where it stands."""
        store = JsonlStore(tmp_path / "sessions", writer, known=3)
        await store.open()
        keys = [SessionKey("telegram", str(chat)) for chat in range(20)]
        for key in keys:
            await store.create(key, "main", header("main", key))
        for seq in range(1, 6):
            await asyncio.gather(*(store.append(key, "main", talk(seq, seq), seq - 1, seq) for key in keys))
            await asyncio.gather(*(store.set_chat(key, Chat(at=str(seq), current=f"s{seq}")) for key in keys))
        for key in keys:
            assert (await store.read(key, "main")).lines == talk(1, 5)
            assert await store.chat(key) == Chat(at="5", current="s5")
        await store.close()

    async def test_somebody_edits_the_file(self, store: JsonlStore, tmp_path: Path) -> None:
        """A session that an editor changed under us is not written to blindly: a Conflict, then it is read again and goes on."""
        await store.create(KEY, "main", header("main"), talk(1, 3))
        with main_file(tmp_path).open("ab") as file:
            file.write(said(4, "by hand"))
        with pytest.raises(Conflict):
            await store.append(KEY, "main", talk(4, 4), 3, 4)
        with pytest.raises(Conflict):
            await store.append(KEY, "main", talk(4, 4), 3, 4)
        assert (await store.tail(KEY, "main", 10)).lines == [*talk(1, 3), said(4, "by hand")]
        assert await store.append(KEY, "main", talk(5, 5), 4, 5) == 5

    async def test_somebody_shortens_the_file(self, store: JsonlStore, tmp_path: Path) -> None:
        """A session that was cut under us is read as it is now."""
        await store.create(KEY, "main", header("main"), talk(1, 9))
        main_file(tmp_path).write_bytes(encode_line(header("main")) + b"".join(talk(1, 3))[:-4])
        assert (await store.tail(KEY, "main", 10)).lines == talk(1, 2)
        assert await store.append(KEY, "main", talk(3, 3), 2, 3) == 3
        assert (await store.read(KEY, "main")).lines == talk(1, 3)

    async def test_somebody_removes_the_file(self, store: JsonlStore, tmp_path: Path) -> None:
        """A session whose file is gone is NoSession for everybody; appending does not bring it back."""
        await store.create(KEY, "main", header("main"), talk(1, 3))
        main_file(tmp_path).unlink()
        with pytest.raises(NoSession):
            await store.append(KEY, "main", talk(4, 4), 3, 4)
        with pytest.raises(NoSession):
            await store.tail(KEY, "main", 1)
        assert not main_file(tmp_path).exists()
        await store.create(KEY, "main", header("main"))
        assert await store.append(KEY, "main", talk(1, 1), 0, 1) == 1


class TestFullDisk:
    async def test_told_then_read_again_then_on(self, store: JsonlStore, tmp_path: Path) -> None:
        """A write that does not fit is an OSError, all behind it are Conflicts, nothing of them is in the file; after `tail` it goes on."""
        await store.create(KEY, "main", header("main"), talk(1, 3))
        before = main_file(tmp_path).read_bytes()
        with file_limit(4096):
            full = store.append(KEY, "main", [said(4, "x" * 9000)], 3, 4)
            await under_way()
            behind = store.append(KEY, "main", talk(5, 5), 4, 5)
            results = await asyncio.gather(full, behind, return_exceptions=True)
            assert [type(result) for result in results] == [OSError, Conflict]
            with pytest.raises(Conflict) as caught:
                await store.append(KEY, "main", talk(4, 4), 3, 4)
            assert caught.value.found == 3
            assert (await store.tail(KEY, "main", 9)).last == 3
            assert await store.append(KEY, "main", talk(4, 4), 3, 4) == 4
        assert main_file(tmp_path).read_bytes() == before + said(4)

    async def test_a_small_disk_that_fills_and_empties(self, writer: Writer, tmp_path: Path) -> None:
        """On a disk that is full for a while, what was told to have failed is not there, everything else is, and no line is torn."""
        with small_disk(tmp_path / "disk", 512 * 1024) as disk:
            store = JsonlStore(disk / "sessions", writer)
            await store.open()
            await store.create(KEY, "main", header("main"), talk(1, 2))
            ballast = fill(disk)
            with pytest.raises(OSError, match="No space"):
                await store.append(KEY, "main", [said(3, "x" * 9000)], 2, 3)
            with pytest.raises(OSError, match="No space"):
                await store.create(KEY, "west", header("west"), [said(1, "x" * 9000)])
            assert (await store.tail(KEY, "main", 9)).last == 2
            with pytest.raises(OSError, match="No space"):
                await store.append(KEY, "main", [said(3, "x" * 9000)], 2, 3)
            ballast.unlink()
            assert (await store.tail(KEY, "main", 9)).last == 2
            assert await store.append(KEY, "main", talk(3, 3), 2, 3) == 3
            await store.fork(KEY, "main", KEY, "west", 3, header("west"))
            await store.close()
            again = JsonlStore(disk / "sessions", writer)
            assert (await again.read(KEY, "main")).lines == talk(1, 3)
            assert (await again.read(KEY, "west")).lines == talk(1, 3)
            assert sorted(path.name for path in (disk / "sessions" / "telegram" / "12345").iterdir()) == ["main.jsonl", "west.jsonl"]
            await again.close()

    async def test_a_fork_that_does_not_fit(self, store: JsonlStore, tmp_path: Path) -> None:
        """A fork that does not fit is not there at all, and can be made once there is room."""
        await store.create(KEY, "main", header("main"), talk(1, 500))
        with file_limit(8192), pytest.raises(OSError, match="too large"):
            await store.fork(KEY, "main", KEY, "west", 500, header("west"))
        assert sorted(path.name for path in main_file(tmp_path).parent.iterdir()) == ["main.jsonl"]
        await store.fork(KEY, "main", KEY, "west", 500, header("west"))
        assert (await store.read(KEY, "west")).lines == talk(1, 500)

    @pytest.mark.parametrize("seed", range(4))
    async def test_a_disk_that_comes_and_goes(self, store: JsonlStore, tmp_path: Path, seed: int) -> None:
        """Whatever fails and whoever appends meanwhile: a session holds exactly the lines whose futures said so, in their order."""
        dice = random.Random(seed)
        keys = [SessionKey("telegram", str(chat)) for chat in range(3)]
        for key in keys:
            await store.create(key, "main", header("main", key))
        held: dict[SessionKey, list[bytes]] = {key: [] for key in keys}
        failed = 0

        async def talk_to(key: SessionKey) -> None:
            nonlocal failed
            last = 0
            for number in range(60):
                jobs: list[tuple[bytes, asyncio.Future[int]]] = []
                for _ in range(dice.randint(1, 4)):
                    line = said(last + 1, f"{number} " + "x" * dice.choice([1, 100, 5000]))
                    jobs.append((line, store.append(key, "main", [line], last, last + 1)))
                    last += 1
                    if dice.random() < 0.5:
                        await asyncio.sleep(0)
                results = await asyncio.gather(*(future for _, future in jobs), return_exceptions=True)
                for (line, _), result in zip(jobs, results, strict=True):
                    if isinstance(result, int):
                        held[key].append(line)
                    else:
                        failed += 1
                        assert isinstance(result, OSError | Conflict)
                if any(isinstance(result, BaseException) for result in results) or dice.random() < 0.1:
                    tail = await (store.tail(key, "main", 1000) if dice.random() < 0.5 else store.read(key, "main"))
                    assert tail.lines == held[key]
                    last = tail.last

        talking = [asyncio.create_task(talk_to(key)) for key in keys]
        while not all(task.done() for task in talking):
            sizes = [(key_folder(tmp_path / "sessions", key) / "main.jsonl").stat().st_size for key in keys]
            with file_limit(max(dice.choice(sizes) + dice.choice([10, 1000, 8000]), 4096)):
                await asyncio.sleep(0.002)
            await asyncio.sleep(0.002)
        await asyncio.gather(*talking)
        assert failed > 10
        again = JsonlStore(tmp_path / "sessions", Writer())
        for key in keys:
            assert (await again.read(key, "main")).lines == held[key]
        await again.close()


class TestCost:
    async def test_a_tail_costs_the_same_at_every_length(self, store: JsonlStore, tmp_path: Path) -> None:
        """The newest lines of a session of 300,000 lines cost as few bytes as those of 3,000."""
        costs = []
        for count in (3_000, 300_000):
            key = SessionKey("telegram", str(count))
            path = key_folder(tmp_path / "sessions", key) / "main.jsonl"
            path.parent.mkdir(parents=True)
            with path.open("wb") as file:
                file.write(encode_line(header("main", key)))
                for seq in range(1, count + 1):
                    file.write(
                        encode_line(State(seq=seq, at="t")) if seq % 1000 == 0 else b'{"seq":%d,"role":"user","content":"hi"}\n' % seq
                    )
            before = counter("rchar")
            tail = await store.tail(key, "main", 100)
            costs.append(counter("rchar") - before)
            assert (tail.last, tail.whole) == (count, False)
        assert costs[1] < costs[0] + 4096
        assert costs[1] < 400_000

    async def test_lists_read_ends_only(self, store: JsonlStore, tmp_path: Path) -> None:
        """Listing 2,000 sessions of 1 MB each, and finding all keys, reads a fraction and is done in a moment."""
        path = main_file(tmp_path)
        path.parent.mkdir(parents=True)
        for number in range(1000):
            for folder, key in ((path.parent, KEY), (path.parent.parent / f"c{number}", SessionKey("telegram", f"c{number}"))):
                folder.mkdir(exist_ok=True)
                with (folder / f"chat-{number}.jsonl").open("wb") as file:
                    file.write(encode_line(header(f"chat-{number}", key)))
                    file.seek(1_000_000)
                    file.write(b"\n" + said(7))
        before, began = counter("rchar"), time.monotonic()
        assert len(await store.sessions(KEY)) == 1000
        assert len(await store.keys()) == 1001
        assert time.monotonic() - began < 5
        assert counter("rchar") - before < 40_000_000

    async def test_a_large_fork_is_a_copy(self, store: JsonlStore, tmp_path: Path) -> None:
        """A fork of 100 MB takes about as long as copying the file, and others go on writing meanwhile."""
        await store.create(KEY, "main", header("main"), [said(1)])
        await store.create(KEY, "busy", header("busy"))
        line = encode_line(Message(seq=0, at="t", role="user", content="x" * 9950))
        with main_file(tmp_path).open("ab") as file:
            for seq in range(2, 10_001):
                file.write(b'{"seq":%d' % seq + line[len(b'{"seq":0') :])
        size = main_file(tmp_path).stat().st_size
        assert size > 99_000_000
        with pytest.raises(Conflict):
            await store.append(KEY, "main", [said(2)], 1, 2)
        forking = asyncio.create_task(store.fork(KEY, "main", KEY, "west", 9_990, header("west")))
        slowest, seq = 0.0, 0
        while not forking.done():
            began = time.monotonic()
            seq = await store.append(KEY, "busy", talk(seq + 1, seq + 1), seq, seq + 1)
            slowest = max(slowest, time.monotonic() - began)
        await forking
        assert slowest < 1
        tail = await store.read(KEY, "west", 9_980)
        assert [decode_event(each).seq for each in tail.lines] == list(range(9_980, 9_991))
        dropped = main_file(tmp_path).read_bytes().partition(b'{"seq":9991,')[2]
        assert main_file(tmp_path).with_name("west.jsonl").stat().st_size == size - len(dropped) - len(b'{"seq":9991,')
        await store.delete(KEY)  # pytest keeps the folder for a while

    async def test_the_loop_is_not_blocked(self, store: JsonlStore, tmp_path: Path) -> None:
        """No call to the disk is made on the loop: not for a large session, nor for a small one."""
        with blockbuster_ctx():
            await store.create(KEY, "main", header("main"), talk(1, 5_000))
            await store.append(KEY, "main", talk(5_001, 5_001), 5_000, 5_001)
            assert len((await store.read(KEY, "main")).lines) == 5_001
            assert len((await store.tail(KEY, "main", 10)).lines) >= 10
            await store.fork(KEY, "main", KEY, "west", 5_000, header("west"))
            assert len(await store.sessions(KEY)) == 2
            with pytest.raises(BlockingError):  # the watch works
                os.stat(tmp_path)


def test_nothing_is_left_open(tmp_path: Path) -> None:
    """A store that was used and closed leaves no descriptor behind."""

    async def use() -> None:
        writer = Writer()
        store = JsonlStore(tmp_path / "sessions", writer)
        await store.open()
        await store.create(KEY, "main", header("main"), talk(1, 3))
        await store.fork(KEY, "main", KEY, "west", 2, header("west"))
        await asyncio.gather(store.tail(KEY, "main", 1), store.read(KEY, "west"), store.sessions(KEY), store.keys(), store.chat(KEY))
        await store.close()
        await writer.close()

    before = len(os.listdir("/proc/self/fd"))
    with asyncio.Runner() as runner:
        runner.run(use())
    assert len(os.listdir("/proc/self/fd")) <= before
