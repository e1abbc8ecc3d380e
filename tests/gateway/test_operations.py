"""What an operator can do with conversations, over the stores: nothing that runs is harmed, and no key is ever guessed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.answers import Conversation, Listing, Row, Shown
from gateway.errors import Corrupt, Told
from gateway.message import Message, Person, SessionKey, ToolCall, Undo, encode_line
from gateway.operations import Operations
from gateway.sessions import SessionManager
from gateway.store.base import SessionLog
from gateway.store.jsonl import JsonlStore
from gateway.store.memory import MemoryStore
from gateway.store.names import session_file
from gateway.writer import Writer
from tests.gateway.stores import manager

T = TypeVar("T")

KEY = SessionKey("telegram", "42")


class Words:
    """The inbox's part in it: whose words were forgotten."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    async def forget(self, key: str) -> None:
        self.forgotten.append(key)


class House(NamedTuple):
    log: SessionLog
    sessions: SessionManager
    words: Words
    does: Operations


def house(log: SessionLog) -> House:
    sessions, words = manager(log), Words()
    return House(log, sessions, words, Operations(sessions, log, words))


@pytest.fixture(params=["memory", "jsonl"])
async def at(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    writer = Writer()
    log: SessionLog = MemoryStore() if request.param == "memory" else JsonlStore(tmp_path / "sessions", writer)
    await log.open()
    made = house(log)
    yield made
    await made.sessions.close()
    await log.close()
    await writer.close()


def asked(text: str, **more: object) -> Message:
    return Message(seq=0, role="user", content=text, from_=Person("42", "Ana"), **more)  # type: ignore[arg-type]


def answered(text: str, **more: object) -> Message:
    return Message(seq=0, role="assistant", content=text, model="m", **more)  # type: ignore[arg-type]


async def talk(at: House, key: SessionKey, name: str, turns: int, *, switch: bool = True) -> None:
    async with at.sessions.hold(key):
        session = await at.sessions.create(key, name, for_="x", switch=switch)
        for n in range(turns):
            await at.sessions.commit(session, asked(f"question {n} of {name}"), answered(f"answer {n} of {name}"))


async def all_of(parts: AsyncGenerator[T, None]) -> list[T]:
    return [part async for part in parts]


async def listed(at: House, prefix: str = "") -> list[Row]:
    return [row for part in await all_of(at.does.list(prefix)) for row in part.rows]


async def shown(at: House, key: str, name: str = "", last: int = 20) -> tuple[Conversation, list[Shown]]:
    head, *rest = await all_of(at.does.show(key, name, last))
    return head, [message for part in rest for message in part.messages]


# ----------------------------------------------------------------------------------------------------------------------------- lists


async def test_list(at: House) -> None:
    """Every session of every key, with what tells them apart; one of each key is current; a prefix chooses."""
    await talk(at, KEY, "main", 2)
    await talk(at, KEY, "west", 1)
    await talk(at, SessionKey("web", "b1"), "main", 0)
    rows = await listed(at)
    assert [(row.key, row.name, row.current, row.lines) for row in rows] == [
        ("telegram:42", "main", False, 4),
        ("telegram:42", "west", True, 2),
        ("web:b1", "main", True, 0),
    ]
    assert all(row.size > 0 for row in rows[:2])
    assert [row.key for row in await listed(at, "web:")] == ["web:b1"]
    assert await listed(at, "discord:") == []


async def test_a_pointer_to_nothing(at: House) -> None:
    """Where the current session is gone, the one that will be taken is marked, as the daemon takes it."""
    await talk(at, KEY, "main", 1)
    await talk(at, KEY, "west", 1)
    await at.log.delete(KEY, "west")
    assert [(row.name, row.current) for row in await listed(at)] == [("main", True)]


keys = st.builds(
    SessionKey,
    channel=st.sampled_from(["telegram", "discord", "web"]),
    chat=st.text(min_size=1, max_size=60).filter(lambda text: "\0" not in text and text.isprintable()),
    thread=st.sampled_from(["", "7", "user_1", "a:b", "é"]),
    user=st.sampled_from(["", "42", "User_9", "_", "x" * 120]),
)


@given(st.lists(keys, min_size=1, max_size=5, unique=True))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_keys_come_back_as_they_are(tmp_path: Path, several: list[SessionKey]) -> None:
    """D11: whatever is in a key, the list shows it whole, and by what it shows each session is found and nothing else."""

    async def run() -> None:
        writer = Writer()
        log = JsonlStore(tmp_path / f"{time.monotonic_ns()}", writer)
        await log.open()
        made = house(log)
        for n, key in enumerate(several):
            await talk(made, key, f"s{n}", n)
        rows = {row.name: row for row in await listed(made)}
        for n, key in enumerate(several):
            row = rows[f"s{n}"]
            assert SessionKey.parse(row.key) == key
            head, messages = await shown(made, row.key)
            assert (head.key, head.name, len(messages)) == (row.key, f"s{n}", 2 * n)
            await made.does.delete(row.key, row.name)
        assert await listed(made) == []
        await made.sessions.close()
        await log.close()
        await writer.close()

    asyncio.run(run())


async def test_an_underscore_is_no_colon(at: House) -> None:
    """D11: `telegram:user_123` and `telegram:user:123` are two."""
    await talk(at, SessionKey("telegram", "user_123"), "main", 1)
    await talk(at, SessionKey("telegram", "user", "123"), "west", 1)
    assert {row.key: row.name for row in await listed(at)} == {"telegram:user_123": "main", "telegram:user:123": "west"}
    assert (await shown(at, "telegram:user_123"))[0].name == "main"


def many(root: Path, sessions: int, size: int) -> int:
    """So many session files of that size in all keys together, sparse; gives the bytes in all."""
    for n in range(sessions):
        key = SessionKey("telegram", str(n // 5))
        path = session_file(root, key, f"chat-{n % 5}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(b'{"type":"session","v":1,"key":"%s","name":"x","created":"2026-11-29T10:00:00.000Z"}\n' % str(key).encode())
            last = encode_line(answered("x" * 300))
            file.seek(size - len(last) - 1)
            file.write(b"\n" + last.replace(b'"seq":0', b'"seq":9'))
    return sessions * size


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


async def test_a_long_list_reads_no_whole_file(tmp_path: Path) -> None:
    """F17: 5,000 sessions of 2 GB together are listed in less than two seconds of work, from headers and last lines, and meanwhile the
    loop serves others."""
    whole = many(tmp_path / "sessions", 5000, 400 * 1024)
    assert whole > 2 * 10**9
    writer = Writer()
    log = JsonlStore(tmp_path / "sessions", writer)
    before, began = bytes_read(), time.process_time()
    await log.open()
    made = house(log)
    pauses: list[float] = []

    async def others() -> None:
        while True:
            at = time.monotonic()
            await asyncio.sleep(0.001)
            pauses.append(time.monotonic() - at)

    beside = asyncio.create_task(others())
    rows = await listed(made)
    beside.cancel()
    await asyncio.wait([beside])
    assert time.process_time() - began < 2.0
    assert len(rows) == 5000
    assert {row.lines for row in rows} == {9}
    assert bytes_read() - before < 80 * 10**6
    assert max(pauses) < 0.5
    await log.close()
    await writer.close()


async def test_parts_of_a_list_are_small(tmp_path: Path) -> None:
    """No part holds more than a few keys: neither side of the socket ever has a long line."""
    many(tmp_path / "sessions", 1000, 2048)
    writer = Writer()
    log = JsonlStore(tmp_path / "sessions", writer)
    await log.open()
    parts: list[Listing] = await all_of(house(log).does.list(""))
    assert len(parts) == 4
    assert max(len(part.rows) for part in parts) == 250
    await log.close()
    await writer.close()


# ------------------------------------------------------------------------------------------------------------------ show and export


async def test_show(at: House) -> None:
    """The newest messages, as the conversation stands: what was taken back is not among them."""
    await talk(at, KEY, "main", 5)
    async with at.sessions.hold(KEY):
        session = await at.sessions.current(KEY, for_="")
        call = ToolCall("c1", "look", {})
        await at.sessions.commit(session, asked("off"), answered("off the table"), Undo(seq=0, at="", to=10))
        await at.sessions.commit(session, asked("tools?"), answered("", tool_calls=(call,)))
        await at.sessions.commit(session, Message(seq=0, role="tool", content="seen", tool_call_id="c1", name="look"))
        await at.sessions.commit(session, answered("half", interrupted=True, note="(stopped)"))
    head, messages = await shown(at, "telegram:42", last=6)
    assert (head.key, head.name, head.turns, head.lines) == ("telegram:42", "main", 6, session.last)
    assert [(one.role, one.text, one.calls) for one in messages] == [
        ("user", "question 4 of main", ()),
        ("assistant", "answer 4 of main", ()),
        ("user", "tools?", ()),
        ("assistant", "", ("look",)),
        ("tool", "seen", ()),
        ("assistant", "half\n\n(stopped)", ()),
    ]
    assert (messages[0].id, messages[0].name, messages[1].model) == ("42", "Ana", "m")
    assert messages[-1].interrupted


async def test_show_reads_as_far_as_it_is_asked(at: House) -> None:
    """However long the conversation is, that many messages, in small parts; more than 1,000 are refused."""
    await talk(at, KEY, "main", 700)
    for last in (1, 50, 1000):
        _, messages = await shown(at, "telegram:42", "main", last)
        assert len(messages) == last
        assert messages[-1].text == "answer 699 of main"
    assert max(len(part.messages) for part in await all_of(at.does.show("telegram:42", "", 1000))) == 20
    for last in (0, 1001):
        with pytest.raises(Told, match="1 to 1000"):
            await shown(at, "telegram:42", "", last)


async def test_export_is_the_file(at: House, tmp_path: Path) -> None:
    """Byte for byte, damaged lines and unknown fields included."""
    await talk(at, KEY, "main", 3)
    data = b"".join([part.data for part in await all_of(at.does.export("telegram:42", ""))])
    assert data.count(b"\n") == 7
    path = session_file(tmp_path / "sessions", KEY, "main")
    if isinstance(at.log, JsonlStore):
        with path.open("ab") as file:
            file.write(b'no JSON\n{"type":"odd","seq":7,"more":1}\n' + encode_line(answered("big" * 100_000)))
        writer = Writer()
        log = JsonlStore(tmp_path / "sessions", writer)
        parts = await all_of(house(log).does.export("telegram:42", "main"))
        assert b"".join([part.data for part in parts]) == path.read_bytes()
        assert parts[-1].size == path.stat().st_size
        assert len(parts) == 2
        await log.close()
        await writer.close()


# ------------------------------------------------------------------------------------------------------------------ delete and fork


async def test_delete_one(at: House) -> None:
    """That session is gone for good, the others stay, and the chat goes on in one of them."""
    await talk(at, KEY, "main", 1)
    await talk(at, KEY, "west", 1)
    deleted = await at.does.delete("telegram:42", "west")
    assert (deleted.names, deleted.everything) == (("west",), False)
    assert [(row.name, row.current) for row in await listed(at)] == [("main", True)]
    async with at.sessions.hold(KEY):
        assert (await at.sessions.current(KEY, for_="")).name == "main"
    assert at.words.forgotten == []


async def test_delete_everything(at: House) -> None:
    """All sessions of the key, its pointer, and the words in the journal; nobody else's."""
    await talk(at, KEY, "main", 1)
    await talk(at, KEY, "west", 1)
    await talk(at, SessionKey("telegram", "421"), "main", 1)
    deleted = await at.does.delete("telegram:42", "")
    assert (sorted(deleted.names), deleted.everything) == (["main", "west"], True)
    assert [row.key for row in await listed(at)] == ["telegram:421"]
    assert at.words.forgotten == ["telegram:42"]
    assert await at.log.chat(KEY) is None


async def test_a_running_turn_is_waited_for(at: House) -> None:
    """Deletion and fork come after the turn that holds the key; what it commits is in the fork."""
    await talk(at, KEY, "main", 1)
    async with at.sessions.hold(KEY):
        session = await at.sessions.current(KEY, for_="")
        await at.sessions.commit(session, asked("under way"))
        forking = asyncio.create_task(at.does.fork("telegram:42", "main", "copy"))
        deleting = asyncio.create_task(at.does.delete("telegram:42", "main"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not forking.done()
        assert not deleting.done()
        await at.sessions.commit(session, answered("finished"))
    forked = await forking
    await deleting
    assert (forked.parent, forked.name, forked.lines) == ("main", "copy", 4)
    assert [row.name for row in await listed(at)] == ["copy"]
    assert [one.text for one in (await shown(at, "telegram:42", "copy"))[1]][-2:] == ["under way", "finished"]


async def test_who_gives_up_waiting_has_changed_nothing(at: House) -> None:
    """A cancelled wait for a busy key orders nothing."""
    await talk(at, KEY, "main", 1)
    async with at.sessions.hold(KEY):
        waiting = [asyncio.create_task(at.does.delete("telegram:42", name)) for name in ("main", "")]
        for _ in range(20):
            await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
    async with at.sessions.hold(KEY):
        assert [row.name for row in await listed(at)] == ["main"]
    assert at.sessions.keys_held == 0


async def test_who_leaves_later_has_it_done_whole(at: House) -> None:
    """At whatever point of a deletion the caller goes, the session is there whole or gone whole, and memory agrees with the disk."""
    for steps in range(12):
        await talk(at, KEY, "main", 1)
        deleting = asyncio.create_task(at.does.delete("telegram:42", "main"))
        for _ in range(steps):
            await asyncio.sleep(0)
        deleting.cancel()
        await asyncio.wait([deleting])
        async with at.sessions.hold(KEY):
            there = [row.name for row in await listed(at)]
            assert there in ([], ["main"])
            if there:
                await at.sessions.commit(await at.sessions.open(KEY, "main"), asked("still"), answered("here"))
                await at.sessions.delete(KEY, "main")


async def test_fork(at: House) -> None:
    """A copy under a new name; the chat stays where it is, and neither sees the other any more (D17)."""
    await talk(at, KEY, "main", 2)
    forked = await at.does.fork("telegram:42", "main", "west")
    assert (forked.key, forked.parent, forked.name, forked.lines) == ("telegram:42", "main", "west", 4)
    rows = {row.name: row for row in await listed(at)}
    assert (rows["main"].current, rows["west"].current, rows["west"].parent) == (True, False, "main")
    await at.does.delete("telegram:42", "main")
    assert len((await shown(at, "telegram:42", "west"))[1]) == 4


async def test_what_cannot_be(at: House) -> None:
    """Each wish that cannot be fulfilled is a sentence that says what there is instead, and changes nothing."""
    await talk(at, SessionKey("telegram", "-100", "7"), "main", 1)
    await talk(at, KEY, "main", 1)
    await talk(at, KEY, "west", 0)
    before = await listed(at)
    wishes: list[tuple[Callable[[], Awaitable[object]], str]] = [
        (lambda: at.does.delete("telegram:43", ""), "nothing is kept of telegram:43; did you mean telegram:42"),
        (lambda: at.does.delete("telegram:-100", "main"), "did you mean telegram:-100:7"),
        (lambda: at.does.delete("telegram:42", "east"), "no session 'east'; it has main, west"),
        (lambda: at.does.delete("telegram:42", "../../x"), "no session '../../x'"),
        (lambda: at.does.delete("telegram", ""), "not a key: 'telegram'"),
        (lambda: at.does.delete("", ""), "not a key"),
        (lambda: at.does.delete("telegram:%FF", ""), "not a key"),
        (lambda: at.does.fork("telegram:42", "main", "west"), "has a session west already"),
        (lambda: at.does.fork("telegram:42", "main", "West Side"), "lower-case letters"),
        (lambda: at.does.fork("telegram:42", "east", "copy"), "no session 'east'"),
        (lambda: shown(at, "discord:1"), "nothing is kept of discord:1; `parlour sessions list`"),
        (lambda: shown(at, "telegram:42", "east"), "it has main, west"),
        (lambda: all_of(at.does.export("telegram:42", "../west")), "it has main, west"),
    ]
    for wish, said in wishes:
        with pytest.raises(Told) as caught:
            await wish()
        assert said in str(caught.value)
    assert await listed(at) == before
    assert at.words.forgotten == []


async def test_a_session_that_cannot_be_read(tmp_path: Path) -> None:
    """It is counted in the list, shown as what it is, left as it is, and can be deleted by its name."""
    writer = Writer()
    log = JsonlStore(tmp_path / "sessions", writer)
    await log.open()
    made = house(log)
    await talk(made, KEY, "main", 1)
    bad = session_file(tmp_path / "sessions", KEY, "bad")
    bad.write_bytes(b"no header\n")
    (part,) = await all_of(made.does.list(""))
    assert [(one.key, one.unreadable) for one in part.unlisted] == [("telegram:42", 1)]
    for wish in (
        shown(made, "telegram:42", "bad"),
        all_of(made.does.export("telegram:42", "bad")),
        made.does.fork("telegram:42", "bad", "x"),
    ):
        with pytest.raises(Corrupt, match="no session header"):
            await wish
    assert bad.read_bytes() == b"no header\n"
    await made.does.delete("telegram:42", "bad")
    assert not bad.exists()
    assert [row.name for row in await listed(made)] == ["main"]
    await made.sessions.close()
    await log.close()
    await writer.close()
