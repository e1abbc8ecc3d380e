"""What every SessionLog promises, over each of them."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from gateway.errors import Conflict, NoSession, SessionExists
from gateway.message import Chat, Foreign, Header, Message, Parent, Sent, SessionKey, State, Undo, decode_event, encode_line
from gateway.store.base import SessionLog
from gateway.store.jsonl import JsonlStore
from gateway.store.memory import MemoryStore
from gateway.writer import Writer

KEY = SessionKey("telegram", "12345")
OTHER = SessionKey("telegram", "-100", "36", "7")


@pytest.fixture(params=["memory", "jsonl"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionLog]:
    writer = Writer()
    log: SessionLog = MemoryStore() if request.param == "memory" else JsonlStore(tmp_path / "sessions", writer)
    await log.open()
    yield log
    await log.close()
    await writer.close()


def header(name: str, key: SessionKey = KEY, created: str = "2026-11-29T10:00:00.000Z", parent: Parent | None = None) -> Header:
    return Header(v=1, key=str(key), name=name, created=created, parent=parent)


def said(seq: int, content: str = "") -> bytes:
    return encode_line(Message(seq=seq, at="t", for_=f"telegram:7:12345:{seq}", role="user", content=content or f"line {seq}"))


def talk(first: int, last: int) -> list[bytes]:
    return [said(seq) for seq in range(first, last + 1)]


def seqs(lines: Sequence[bytes]) -> list[int]:
    return [decode_event(line).seq for line in lines]


class TestCreate:
    async def test_whole_with_its_lines(self, log: SessionLog) -> None:
        """A session is there with everything that it was made with."""
        await log.create(KEY, "main", header("main"), talk(1, 3))
        assert await log.tail(KEY, "main", 10) == (header("main"), talk(1, 3), 3, True, 0)

    async def test_empty(self, log: SessionLog) -> None:
        """A session without lines stands at seq 0, and the first append builds on that."""
        await log.create(KEY, "main", header("main"))
        assert await log.tail(KEY, "main", 10) == (header("main"), [], 0, True, 0)
        assert await log.append(KEY, "main", talk(1, 1), 0, 1) == 1

    async def test_never_over_another(self, log: SessionLog) -> None:
        """A name that exists is refused, and what is there stays as it was."""
        await log.create(KEY, "main", header("main"), talk(1, 3))
        with pytest.raises(SessionExists):
            await log.create(KEY, "main", header("main", created="later"))
        assert await log.tail(KEY, "main", 10) == (header("main"), talk(1, 3), 3, True, 0)

    async def test_one_of_many_at_once_wins(self, log: SessionLog) -> None:
        """Of ten creations of one name at the same time, one succeeds, whole."""
        results = await asyncio.gather(
            *(log.create(KEY, "main", header("main"), [said(1, f"by {n}")]) for n in range(10)), return_exceptions=True
        )
        assert [type(result) for result in results if result is not None] == [SessionExists] * 9
        assert len((await log.tail(KEY, "main", 10)).lines) == 1

    @pytest.mark.parametrize("name", ["", "../../evil", "/tmp/evil", "a/../../b", ".hidden", "CON", "a\nb", "a\0b", "_chat", "x" * 41, "é"])
    async def test_a_name_is_never_a_path(self, log: SessionLog, name: str, tmp_path: Path) -> None:
        """What is not a session name makes nothing and finds nothing, anywhere."""
        await log.create(KEY, "main", header("main"), talk(1, 1))
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(ValueError, match="name"):
            await log.create(KEY, name, header(name))
        with pytest.raises(ValueError, match="name"):
            await log.fork(KEY, "main", KEY, name, 1, header(name))
        with pytest.raises(NoSession):
            await log.append(KEY, name, talk(1, 1), 0, 1)
        with pytest.raises(NoSession):
            await log.tail(KEY, name, 1)
        with pytest.raises(NoSession):
            await log.read(KEY, name)
        if name:
            with pytest.raises(NoSession):
                await log.delete(KEY, name)
        assert sorted(tmp_path.rglob("*")) == before


class TestAppend:
    async def test_order_is_fixed_at_the_call(self, log: SessionLog) -> None:
        """Appends that are called one after the other, unawaited, stand in that order."""
        await log.create(KEY, "main", header("main"))
        futures = [log.append(KEY, "main", talk(seq, seq), seq - 1, seq) for seq in range(1, 101)]
        assert await asyncio.gather(*futures) == list(range(1, 101))
        assert (await log.read(KEY, "main")).lines == talk(1, 100)

    async def test_several_lines_at_once(self, log: SessionLog) -> None:
        """One append may hold many lines; its future gives the seq of the last."""
        await log.create(KEY, "main", header("main"))
        assert await log.append(KEY, "main", talk(1, 5), 0, 5) == 5
        assert (await log.tail(KEY, "main", 9)).last == 5

    async def test_many_sessions_beside_each_other(self, log: SessionLog) -> None:
        """Sessions that are written at the same time never get each other's lines."""
        keys = [SessionKey("telegram", str(chat)) for chat in range(30)]
        await asyncio.gather(*(log.create(key, "main", header("main", key)) for key in keys))
        futures = [log.append(key, "main", [said(seq, f"{key} {seq}")], seq - 1, seq) for seq in range(1, 21) for key in keys]
        await asyncio.gather(*futures)
        for key in keys:
            assert (await log.read(key, "main")).lines == [said(seq, f"{key} {seq}") for seq in range(1, 21)]

    @pytest.mark.parametrize("expect", [0, 2, 4])
    async def test_the_fence(self, log: SessionLog, expect: int) -> None:
        """An append that builds on another seq than the session's is a Conflict, and writes nothing; the right one goes on."""
        await log.create(KEY, "main", header("main"), talk(1, 3))
        with pytest.raises(Conflict):
            await log.append(KEY, "main", talk(expect + 1, expect + 1), expect, expect + 1)
        assert await log.append(KEY, "main", talk(4, 4), 3, 4) == 4
        assert (await log.read(KEY, "main")).lines == talk(1, 4)

    async def test_what_builds_on_a_conflict_conflicts(self, log: SessionLog) -> None:
        """Appends that were called behind a conflicting one, and build on it, are not written either."""
        await log.create(KEY, "main", header("main"), talk(1, 3))
        futures = [log.append(KEY, "main", talk(seq, seq), seq - 1, seq) for seq in (6, 7, 8)]
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(result) for result in results] == [Conflict] * 3
        assert (await log.read(KEY, "main")).lines == talk(1, 3)

    async def test_only_create_creates(self, log: SessionLog, tmp_path: Path) -> None:
        """An append to nothing is NoSession, and there is still nothing."""
        with pytest.raises(NoSession):
            await log.append(KEY, "main", talk(1, 1), 0, 1)
        assert await log.sessions(KEY) == []
        assert await log.keys() == []
        assert list(tmp_path.rglob("*.jsonl")) == []


class TestRead:
    async def test_tail_is_bounded(self, log: SessionLog) -> None:
        """A tail holds the newest lines down to the newest state, and at least as many messages as asked for."""
        state = encode_line(State(seq=50, at="t"))
        await log.create(KEY, "main", header("main"), [*talk(1, 49), state, *talk(51, 100)])
        short = await log.tail(KEY, "main", 10)
        assert seqs(short.lines) == list(range(50, 101))
        assert (short.last, short.whole) == (100, False)
        long = await log.tail(KEY, "main", 60)
        assert seqs(long.lines) == list(range(40, 101))
        everything = await log.tail(KEY, "main", 1000)
        assert (seqs(everything.lines), everything.whole) == (list(range(1, 101)), True)

    async def test_tail_counts_messages_only(self, log: SessionLog) -> None:
        """Lines that are no messages do not count for the tail's length."""
        lines = [
            encode_line(State(seq=1, at="t")),
            *talk(2, 10),
            *(encode_line(Sent(seq=n, at="t", of=2, span=(0, 1))) for n in range(11, 60)),
        ]
        await log.create(KEY, "main", header("main"), lines)
        assert seqs((await log.tail(KEY, "main", 3)).lines) == list(range(1, 60))

    async def test_without_state_everything_is_read(self, log: SessionLog) -> None:
        """Without a state line nothing less than the whole session will do."""
        await log.create(KEY, "main", header("main"), talk(1, 30))
        assert (await log.tail(KEY, "main", 2)).whole

    async def test_read_from(self, log: SessionLog) -> None:
        """`read` gives the lines from a seq on, all of them from 0, and says whether it is all."""
        await log.create(KEY, "main", header("main"), talk(1, 20))
        assert seqs((await log.read(KEY, "main", 15)).lines) == list(range(15, 21))
        assert not (await log.read(KEY, "main", 15)).whole
        assert (await log.read(KEY, "main")).lines == talk(1, 20)
        assert (await log.read(KEY, "main", 1)).whole
        assert (await log.read(KEY, "main", 21)) == (header("main"), [], 20, False, 0)

    async def test_bad_lines_are_passed_over_and_counted(self, log: SessionLog) -> None:
        """What is no event is left out, counted, and hinders nothing behind it."""
        bad = [
            b"{not json}\n",
            b"42\n",
            b"[]\n",
            b'{"seq":3,"role":"wizard","content":"x"}\n',
            b'{"seq":3,"x":"\xff"}\n',
            b"[" * 9999 + b"\n",
        ]
        await log.create(KEY, "main", header("main"), [*talk(1, 2), *bad, *talk(3, 4)])
        assert await log.tail(KEY, "main", 10) == (header("main"), talk(1, 4), 4, True, 6)
        assert await log.append(KEY, "main", talk(5, 5), 4, 5) == 5
        assert seqs((await log.read(KEY, "main", 2)).lines) == [2, 3, 4, 5]

    async def test_unknown_types_are_kept(self, log: SessionLog) -> None:
        """A line of a type from another version is given out like the others, word for word, and its seq counts."""
        foreign = b'{"seq":3,"at":"t","type":"mood","value":{"x":[1,2]}}\n'
        await log.create(KEY, "main", header("main"), [*talk(1, 2), foreign])
        tail = await log.tail(KEY, "main", 10)
        assert (tail.lines[-1], tail.last) == (foreign, 3)
        assert decode_event(tail.lines[-1]) == Foreign(seq=3, type="mood")


class TestFork:
    async def test_equal_up_to_the_point(self, log: SessionLog) -> None:
        """A fork has its own header and the parent's lines up to and with a seq, byte for byte."""
        undo = encode_line(Undo(seq=4, at="t", to=2))
        await log.create(KEY, "main", header("main"), [*talk(1, 3), undo, *talk(5, 9)])
        west = header("west", parent=Parent(str(KEY), "main", 5))
        await log.fork(KEY, "main", KEY, "west", 5, west)
        assert await log.tail(KEY, "west", 50) == (west, [*talk(1, 3), undo, *talk(5, 5)], 5, True, 0)

    async def test_neither_sees_the_other(self, log: SessionLog) -> None:
        """Afterwards both go their own way, and the child outlives its parent."""
        await log.create(KEY, "main", header("main"), talk(1, 3))
        await log.fork(KEY, "main", KEY, "west", 2, header("west"))
        await asyncio.gather(log.append(KEY, "main", [said(4, "east")], 3, 4), log.append(KEY, "west", [said(3, "west")], 2, 3))
        assert (await log.read(KEY, "main")).lines == [*talk(1, 3), said(4, "east")]
        assert (await log.read(KEY, "west")).lines == [*talk(1, 2), said(3, "west")]
        await log.delete(KEY, "main")
        assert (await log.read(KEY, "west")).lines == [*talk(1, 2), said(3, "west")]

    async def test_to_another_key_and_to_nothing(self, log: SessionLog) -> None:
        """A fork may belong to another key; at 0 it is empty; at a seq beyond the end it is everything."""
        await log.create(KEY, "main", header("main"), talk(1, 3))
        await log.fork(KEY, "main", OTHER, "main", 99, header("main", OTHER))
        await log.fork(KEY, "main", OTHER, "none", 0, header("none", OTHER))
        assert (await log.read(OTHER, "main")).lines == talk(1, 3)
        assert (await log.tail(OTHER, "none", 5)) == (header("none", OTHER), [], 0, True, 0)

    async def test_all_or_nothing(self, log: SessionLog) -> None:
        """A taken name or a missing parent: nothing is made, nothing is changed."""
        await log.create(KEY, "main", header("main"), talk(1, 3))
        await log.create(KEY, "west", header("west"), talk(1, 1))
        with pytest.raises(SessionExists):
            await log.fork(KEY, "main", KEY, "west", 3, header("west"))
        with pytest.raises(NoSession):
            await log.fork(KEY, "east", KEY, "north", 3, header("north"))
        assert (await log.read(KEY, "west")).lines == talk(1, 1)
        assert [listed.header.name for listed in await log.sessions(KEY)] == ["main", "west"]

    async def test_holds_what_was_appended_before(self, log: SessionLog) -> None:
        """A fork holds what was appended before it was called, though nobody waited for that."""
        await log.create(KEY, "main", header("main"))
        appended = log.append(KEY, "main", talk(1, 1), 0, 1)
        await log.fork(KEY, "main", KEY, "west", 1, header("west"))
        await appended
        assert (await log.read(KEY, "west")).lines == talk(1, 1)


class TestLists:
    async def test_sessions(self, log: SessionLog) -> None:
        """A key's sessions come oldest first, each with its header and last seq; other keys' are not among them."""
        await log.create(KEY, "b", header("b", created="2026-01-01"), talk(1, 7))
        await log.create(KEY, "a", header("a", created="2026-01-02"))
        await log.create(OTHER, "c", header("c", OTHER, created="2026-01-03"))
        assert [(listed.header.name, listed.last) for listed in await log.sessions(KEY)] == [("b", 7), ("a", 0)]
        assert await log.sessions(SessionKey("telegram", "none")) == []

    async def test_keys(self, log: SessionLog) -> None:
        """All keys with a session, or those whose text begins so."""
        keys = [SessionKey("discord", "1"), KEY, OTHER, SessionKey("telegram", "12345", "", "6")]
        for key in keys:
            await log.create(key, "main", header("main", key))
        assert await log.keys() == sorted(keys, key=str)
        assert await log.keys("telegram:12345") == [KEY, SessionKey("telegram", "12345", "", "6")]

    async def test_look_alikes(self, log: SessionLog) -> None:
        """Keys that look alike, in any way that a file system may confuse, never share a session."""
        long = "x" * 300
        keys = [
            SessionKey("telegram", "a_b"),
            SessionKey("telegram", "a:b"),
            SessionKey("telegram", "a", "b"),
            SessionKey("telegram/a", "b"),
            SessionKey("telegram_a", "b"),
            SessionKey("telegram", "-100", "36"),
            SessionKey("telegram", "-100_36"),
            SessionKey("telegram", "100", "36"),
            SessionKey("telegram", "Anna"),
            SessionKey("telegram", "anna"),
            SessionKey("telegram", "%41nna"),
            SessionKey("telegram", long),
            SessionKey("telegram", long + "x"),
            SessionKey("telegram", "X" + long),
            SessionKey("telegram", unicodedata.normalize("NFC", "é")),
            SessionKey("telegram", unicodedata.normalize("NFD", "é")),
            SessionKey("telegram", "a", "", "b"),
            SessionKey("telegram", "a@b"),
            SessionKey("telegram", "../x"),
            SessionKey("telegram", ".."),
            SessionKey("..", "telegram"),
            SessionKey("telegram", "."),
            SessionKey("telegram", ""),
            SessionKey("telegram", "a\0b\n/c"),
        ]
        for number, key in enumerate(keys):
            await log.create(key, "main", header("main", key), [said(1, f"secret {number}")])
            await log.set_chat(key, Chat(at="t", current=f"chat-{number}"))
        for number, key in enumerate(keys):
            assert (await log.read(key, "main")).lines == [said(1, f"secret {number}")]
            assert await log.chat(key) == Chat(at="t", current=f"chat-{number}")
        assert await log.keys() == sorted(keys, key=str)


class TestDelete:
    async def test_one(self, log: SessionLog) -> None:
        """One session goes, the others stay; its name is free again, from seq 0."""
        for name in ("main", "west"):
            await log.create(KEY, name, header(name), talk(1, 3))
        await log.delete(KEY, "main")
        with pytest.raises(NoSession):
            await log.tail(KEY, "main", 1)
        with pytest.raises(NoSession):
            await log.append(KEY, "main", talk(4, 4), 3, 4)
        with pytest.raises(NoSession):
            await log.delete(KEY, "main")
        await log.create(KEY, "main", header("main"))
        assert await log.append(KEY, "main", talk(1, 1), 0, 1) == 1
        assert (await log.read(KEY, "west")).lines == talk(1, 3)

    async def test_everything_of_a_key(self, log: SessionLog) -> None:
        """All sessions and the pointer of a key go, nobody else's; doing it again is no error."""
        for key in (KEY, OTHER):
            await log.create(key, "main", header("main", key), talk(1, 3))
            await log.set_chat(key, Chat(at="t", current="main"))
        for _ in range(2):
            await log.delete(KEY)
        assert await log.sessions(KEY) == []
        assert await log.chat(KEY) is None
        assert await log.keys() == [OTHER]
        assert await log.chat(OTHER) == Chat(at="t", current="main")
        await log.set_chat(KEY, Chat(at="u", current="new"))
        assert await log.chat(KEY) == Chat(at="u", current="new")


class TestPointer:
    async def test_none(self, log: SessionLog) -> None:
        """A key that never talked has no pointer."""
        assert await log.chat(KEY) is None
        assert await log.find_chat(KEY, "x") is None

    async def test_the_newest_holds(self, log: SessionLog) -> None:
        """Changes are kept in the order of the calls, and the newest one holds; what it does not name stays."""
        futures = [log.set_chat(KEY, Chat(at=str(n), for_=f"i{n}", current=f"s{n}")) for n in range(20)]
        await asyncio.gather(*futures, log.set_chat(KEY, Chat(at="20", for_="i20")))
        assert await log.chat(KEY) == Chat(at="20", for_="i20", current="s19")

    async def test_who_changed_it(self, log: SessionLog) -> None:
        """The change that an input made is found by the input's id."""
        for n in range(5):
            await log.set_chat(KEY, Chat(at=str(n), for_=f"i{n}", current=f"s{n}"))
        assert await log.find_chat(KEY, "i3") == Chat(at="3", for_="i3", current="s3")
        assert await log.find_chat(KEY, "i9") is None


class TestOverview:
    async def test_many_keys_at_once(self, log: SessionLog) -> None:
        """Each key with its sessions, oldest first, and where its pointer stands; one that has nothing is empty."""
        await log.create(KEY, "main", header("main"), talk(1, 3))
        await log.create(KEY, "west", header("west", created="2026-11-30T10:00:00.000Z"), talk(1, 2))
        await log.create(OTHER, "main", header("main", OTHER))
        await log.set_chat(KEY, Chat(at="t", current="west"))
        nobody = SessionKey("web", "nobody")
        found = await log.overview([OTHER, nobody, KEY])
        assert [(each.key, each.current, [(one.header.name, one.last) for one in each.sessions], each.unreadable) for each in found] == [
            (OTHER, "", [("main", 0)], 0),
            (nobody, "", [], 0),
            (KEY, "west", [("main", 3), ("west", 2)], 0),
        ]
        assert [each.sessions for each in found] == [await log.sessions(key) for key in (OTHER, nobody, KEY)]


class TestPage:
    @pytest.mark.parametrize("most", [1, 40, 300, 10**6])
    async def test_all_of_a_session_in_stretches(self, log: SessionLog, most: int) -> None:
        """The pages are whole lines, together they are the header and every line, and the size that they tell is theirs."""
        await log.create(KEY, "main", header("main"), [*talk(1, 3), said(4, "x" * 200_000), *talk(5, 30)])
        pages = []
        at = 0
        while (page := await log.page(KEY, "main", at, most)).data:
            assert page.data.endswith(b"\n")
            assert page.data.count(b"\n") == 1 or len(page.data) <= most
            pages.append(page.data)
            at = page.end
        whole = b"".join(pages)
        lines = whole.splitlines(keepends=True)
        assert lines[0] == encode_line(header("main"))
        assert seqs(lines[1:]) == list(range(1, 31))
        assert page.size == len(whole) == at

    async def test_lines_that_come_meanwhile(self, log: SessionLog) -> None:
        """What is appended between two pages is in the next one."""
        await log.create(KEY, "main", header("main"), talk(1, 2))
        first = await log.page(KEY, "main", 0, 10**6)
        await log.append(KEY, "main", talk(3, 3), 2, 3)
        second = await log.page(KEY, "main", first.end, 10**6)
        assert seqs(second.data.splitlines(keepends=True)) == [3]
        assert (await log.page(KEY, "main", second.end, 10**6)).data == b""

    async def test_nothing_there(self, log: SessionLog) -> None:
        """No session, no page; nor one of a name that could not be."""
        await log.create(KEY, "main", header("main"))
        for name in ("west", "../main", ""):
            with pytest.raises(NoSession):
                await log.page(KEY, name, 0, 100)
