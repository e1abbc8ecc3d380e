"""gateway.loaded: commits that cannot be split, failures that lose nothing, memory that is bounded."""

from __future__ import annotations

import asyncio
import errno
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import Conflict, NoSession
from gateway.message import Event, Foreign, Message, SessionKey, State, Summary, decode_event
from gateway.session import Session
from gateway.sessions import SessionManager
from gateway.store.memory import MemoryStore
from gateway.window import build
from tests.gateway.histories import KEY, answer, calls, folded, histories, sent, summary, undo, user
from tests.gateway.stores import Troubled, manager
from tests.gateway.test_session import told

FULL = OSError(errno.ENOSPC, "no space left")


async def events(store: MemoryStore, name: str = "main", key: SessionKey = KEY) -> list[Event]:
    """What is on record."""
    return [decode_event(line) for line in (await store.read(key, name)).lines]


async def same_as_read(sessions: SessionManager, store: MemoryStore, name: str = "main", key: SessionKey = KEY) -> None:
    """Memory and record tell the same, and seqs are 1, 2, 3..."""
    lines = await events(store, name, key)
    assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
    assert told(await sessions.open(key, name)) == told(folded(lines))


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


# ----------------------------------------------------------------------------------------------------------------------------- commit


async def test_commit_gives_seqs_and_applies_at_once() -> None:
    """Seq and order are fixed when `commit` returns; what was committed counts at once, and the future tells the last seq."""
    store = Troubled()
    sessions = manager(store)
    session = await sessions.current(KEY, for_="i1")
    store.hold()
    first, second = sessions.commit(session, user("q")), sessions.commit(session, calls("c1"), answer("a"))
    assert [(m.seq, m.content) for m in session.messages] == [(1, "q"), (2, None), (3, "a")]
    assert not first.done()
    store.release()
    assert [await first, await second] == [1, 3]
    assert await sessions.commit(session) == 3
    await same_as_read(sessions, store)


async def test_what_cannot_be_written_changes_nothing() -> None:
    """Text with half a character, and a line of an unknown type, are refused before anything has happened."""
    store = Troubled()
    sessions = manager(store)
    session = await sessions.current(KEY, for_="i1")
    with pytest.raises(UnicodeEncodeError):
        sessions.commit(session, user("fine"), answer("\ud800"))
    with pytest.raises(TypeError):
        sessions.commit(session, Foreign(seq=0, type="x"))
    assert (session.last, await sessions.commit(session, user("q"))) == (0, 1)
    await same_as_read(sessions, store)


async def test_cancellation_cannot_split_a_commit() -> None:
    """Rule 3: whoever waits for a commit may be cancelled at any moment, shielded or not: memory and record stay the same."""
    dice = random.Random(3)
    for _ in range(60):
        store = Troubled()
        sessions = manager(store)
        session = await sessions.current(KEY, for_="i1")
        store.hold()

        async def turn(n: int, sessions: SessionManager = sessions, session: Session = session) -> None:
            async with sessions.hold(KEY):
                await sessions.commit(session, user(f"q{n}"))
                await asyncio.shield(sessions.commit(session, answer(f"a{n}")))

        tasks = [asyncio.create_task(turn(n)) for n in range(4)]
        for step in range(20):
            await asyncio.sleep(0)
            if step == 2:
                store.release()
            if dice.random() < 0.2:
                dice.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await sessions.close()
        await same_as_read(sessions, store)
        assert sessions.keys_held == 0


async def test_twenty_messages_of_one_chat_are_answered_in_order() -> None:
    """D20: messages that come at once are one turn each, in order, and no turn sees half of another; two chats run side by side."""
    store = Troubled()
    sessions = manager(store, history_messages=100)
    running: set[SessionKey] = set()
    beside = False

    async def turn(key: SessionKey, n: int) -> None:
        nonlocal beside
        async with sessions.hold(key):
            assert key not in running
            running.add(key)
            session = await sessions.current(key, for_=f"i{n}")
            await sessions.commit(session, user(f"q{n}"))
            beside |= len(running) > 1
            asked = build(session, system="", messages=100, tokens=10**6).messages
            assert (len(asked), asked[-1].content) == (2 * n + 1, f"q{n}")
            for _ in range(20 - n):
                await asyncio.sleep(0)
            await sessions.commit(session, answer(f"a{n}"))
            running.remove(key)

    other = SessionKey("telegram", "2")
    await asyncio.gather(*[turn(key, n) for n in range(20) for key in (KEY, other)])
    for key in (KEY, other):
        assert [line.content for line in await events(store, "main", key) if isinstance(line, Message)] == [
            f"{w}{n}" for n in range(20) for w in "qa"
        ]
    assert beside


async def test_each_chat_is_asked_its_own_words_only() -> None:
    """D23: fifty chats at once; a request never holds a word of another chat."""
    sessions = manager(MemoryStore(), cache_bytes=20_000)

    async def chat(n: int) -> None:
        key = SessionKey("telegram", str(n))
        for turn in range(5):
            async with sessions.hold(key):
                session = await sessions.current(key, for_=f"i{n}.{turn}")
                await sessions.commit(session, user(f"word{n}."))
                asked = build(session, system="", messages=100, tokens=10**6).messages
                assert {message.content for message in asked} == {f"word{n}."}
                await asyncio.sleep(0)
                await sessions.commit(session, answer(f"word{n}."))

    await asyncio.gather(*[chat(n) for n in range(50)])


# ---------------------------------------------------------------------------------------------------------------------------- failure


async def test_a_failed_commit_is_told_and_the_session_read_again() -> None:
    """D08, D36: a full disk: the turn is told, memory forgets what is not on record, and the next commit works once there is room."""
    store = Troubled()
    sessions = manager(store)
    session = await sessions.current(KEY, for_="i1")
    await sessions.commit(session, user("q1"), answer("a1"))
    store.fails = lambda _: FULL
    with pytest.raises(OSError, match="no space"):
        await sessions.commit(session, user("q2"))
    with pytest.raises(Conflict):
        await sessions.commit(session, answer("a2"))
    store.fails = lambda _: None
    assert await sessions.current(KEY, for_="i3") is session
    assert [m.content for m in session.messages] == ["q1", "a1"]
    assert await sessions.commit(session, user("q3")) == 3
    await same_as_read(sessions, store)


async def test_what_was_queued_behind_a_failure_fails_too() -> None:
    """Rule 2: one append fails while three more wait behind it: none of them is in the session, each is told, and nothing is lost that
    was acknowledged before."""
    store = Troubled()
    sessions = manager(store)
    session = await sessions.current(KEY, for_="i1")
    await sessions.commit(session, user("q1"), answer("a1"))
    store.hold()
    waiting = [sessions.commit(session, user(f"q{n}")) for n in range(3)] + [sessions.commit_sent(KEY, "main", 2, (0, 9), ["5"])]
    store.fails = lambda n: FULL if n == 1 else None
    store.release()
    told_errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in told_errors] == [OSError, Conflict, Conflict, Conflict]
    await sessions.refresh(session)
    assert [m.content for m in session.messages] == ["q1", "a1"]
    assert session.sent_to(2) == 0
    assert await sessions.commit_sent(KEY, "main", 2, (0, 9), ["5"]) == 3
    await same_as_read(sessions, store)


async def test_sent_reads_a_stale_session_again_by_itself() -> None:
    """A lane has no lock and opens nothing: after a failure its next record goes into the session as it is on record."""
    store = Troubled()
    sessions = manager(store)
    session = await sessions.current(KEY, for_="i1")
    await sessions.commit(session, user("q1"), answer("a1"))
    store.fails = lambda n: FULL if n == 1 else None
    with pytest.raises(OSError, match="no space"):
        await sessions.commit_sent(KEY, "main", 2, (0, 5), ["5"])
    assert await sessions.commit_sent(KEY, "main", 2, (0, 5), ["5"]) == 3
    assert (session.sent_to(2), await sessions.commit(session, user("q2"))) == (5, 4)
    await same_as_read(sessions, store)


async def test_a_store_that_was_written_behind_our_back_is_a_conflict() -> None:
    """Rule 8: whoever else appended, the fence holds, and after a second look both stories are one."""
    store = Troubled()
    sessions, stranger = manager(store), manager(store)
    ours, theirs = await sessions.current(KEY, for_="i1"), await stranger.current(KEY, for_="i2")
    await stranger.commit(theirs, user("theirs"))
    with pytest.raises(Conflict):
        await sessions.commit(ours, user("ours"))
    await sessions.refresh(ours)
    await sessions.commit(ours, user("ours"))
    assert [m.content for m in ours.messages] == ["theirs", "ours"]


@settings(max_examples=60, deadline=None)
@given(histories, st.integers(2, 9), st.sets(st.integers(0, 40), max_size=6), st.randoms(use_true_random=False))
def test_whatever_fails_memory_and_record_tell_the_same(history: list[Event], every: int, fails: set[int], dice: random.Random) -> None:
    """Rules 3, 4 and 7 together: random commits, deliveries, failures, slow disks, evictions and readings; at every rest the session in
    memory cannot be told from one that is read from its first line, and every acknowledged line is on record."""

    async def live() -> None:
        store = Troubled()
        store.fails = lambda n: FULL if n in fails else None
        sessions = manager(store, history_messages=6, history_tokens=150, state_lines=every, cache_bytes=dice.choice([0, 10**9]))
        await sessions.current(KEY, for_="i1")
        acknowledged: list[int] = []
        for event in history:
            async with sessions.hold(KEY):
                session = await sessions.open(KEY, "main")
                if isinstance(event, Foreign):
                    continue
                if slow := dice.random() < 0.3:
                    store.hold()
                waiting = [sessions.commit(session, event)]
                if dice.random() < 0.4 and session.last:
                    waiting.append(sessions.commit_sent(KEY, "main", dice.randint(1, session.last), (0, 5), ["5"]))
                if slow:
                    await settled()
                    store.release()
                results = await asyncio.gather(*waiting, return_exceptions=True)
                acknowledged += [seq for seq in results if isinstance(seq, int)]
                assert all(isinstance(each, int | OSError | Conflict | NoSession) for each in results)
        await sessions.close()
        assert set(acknowledged) <= {line.seq for line in await events(store)}
        assert len(acknowledged) == len(set(acknowledged))
        await same_as_read(sessions, store)
        await same_as_read(manager(store, history_messages=6, history_tokens=150), store)

    asyncio.run(live())


# ------------------------------------------------------------------------------------------------------------------------ sent, stubs


async def test_sent_goes_between_the_commits_of_a_running_turn() -> None:
    """Pieces of the last answer go out while the next turn runs: both get their seqs, nothing conflicts."""
    store = Troubled()
    sessions = manager(store)

    async def turns() -> None:
        for n in range(20):
            async with sessions.hold(KEY):
                session = await sessions.current(KEY, for_=f"i{n}")
                await sessions.commit(session, user(f"q{n}"))
                await asyncio.sleep(0)
                await sessions.commit(session, answer(f"a{n}"))

    async def lane() -> None:
        for n in range(60):
            await sessions.commit_sent(KEY, "main", 2, (0, n), [str(n)])
            await asyncio.sleep(0)

    session = await sessions.current(KEY, for_="i")
    await sessions.commit(session, user("q"), answer("a"))
    await asyncio.gather(turns(), lane())
    await same_as_read(sessions, store)
    assert session.sent_to(2) == 59


async def test_an_evicted_session_takes_sent_by_its_stub() -> None:
    """A pinned session that must go leaves its last seq, which is all that a `sent` needs; the stub goes with the last pin."""
    store = Troubled()
    sessions = manager(store, cache_bytes=0)
    async with sessions.hold(KEY):
        session = await sessions.current(KEY, for_="i1")
        await sessions.commit(session, user("q"), answer("a"))
        sessions.pin(KEY, "main")
        sessions.pin(KEY, "main")
    await settled()
    async with sessions.hold(SessionKey("telegram", "2")):
        await sessions.current(SessionKey("telegram", "2"), for_="i2")
    assert sessions.cached[:2] == (0, 1)
    assert [await sessions.commit_sent(KEY, "main", 2, (0, n), ["5"]) for n in (5, 9)] == [3, 4]
    assert sessions.cached[:2] == (0, 1)
    sessions.unpin(KEY, "main")
    assert sessions.cached[:2] == (0, 1)
    sessions.unpin(KEY, "main")
    assert sessions.cached == (0, 0, 0)
    sessions.unpin(KEY, "main")
    await same_as_read(sessions, store)
    assert (await sessions.open(KEY, "main")).sent_to(2) == 9


async def test_a_stub_that_failed_finds_its_place_again() -> None:
    """A failed `sent` of an evicted session costs that record only."""
    store = Troubled()
    sessions = manager(store, cache_bytes=0)
    async with sessions.hold(KEY):
        session = await sessions.current(KEY, for_="i1")
        await sessions.commit(session, user("q"), answer("a"))
        sessions.pin(KEY, "main")
    await settled()
    store.fails = lambda n: FULL if n == 1 else None
    with pytest.raises(OSError, match="no space"):
        await sessions.commit_sent(KEY, "main", 2, (0, 5), ["5"])
    assert await sessions.commit_sent(KEY, "main", 2, (0, 5), ["5"]) == 3
    await same_as_read(sessions, store)


async def test_sent_needs_nobody_to_open_the_session() -> None:
    """After a restart a lane goes on with what was left, many pieces at once, while a turn opens the same session."""
    store = Troubled()
    before = manager(store)
    session = await before.current(KEY, for_="i1")
    await before.commit(session, user("q"), answer("a"))
    sessions = manager(store)
    sessions.pin(KEY, "main")
    pieces = [sessions.commit_sent(KEY, "main", 2, (n, n + 1), [str(n)]) for n in range(5)]
    async with sessions.hold(KEY):
        opened = await sessions.current(KEY, for_="i2")
        pieces += [sessions.commit_sent(KEY, "main", 2, (n, n + 1), [str(n)]) for n in range(5, 8)]
        await sessions.commit(opened, user("q2"))
    assert sorted(await asyncio.gather(*pieces)) == sorted({*range(3, 12)} - {m.seq for m in opened.messages})
    assert opened.sent_to(2) == 8
    await same_as_read(sessions, store)


@pytest.mark.parametrize("moment", range(0, 30, 3))
async def test_sent_waits_while_the_session_is_being_read(moment: int) -> None:
    """A piece that goes out while an evicted session is being read is neither lost nor in conflict, whenever it comes."""
    store = Troubled()
    sessions = manager(store, cache_bytes=0)
    async with sessions.hold(KEY):
        await sessions.commit(await sessions.current(KEY, for_="i1"), user("q"), answer("a"))
        sessions.pin(KEY, "main")
    assert sessions.cached[:2] == (0, 1)
    store.slow = True
    async with sessions.hold(KEY):
        reading = asyncio.create_task(sessions.open(KEY, "main"))
        for _ in range(moment):
            await asyncio.sleep(0)
        recorded = sessions.commit_sent(KEY, "main", 2, (0, 5), ["5"])
        session = await reading
        assert await recorded == 3
        assert await sessions.commit(session, user("q2")) == 4
        assert session.sent_to(2) == 5
    await same_as_read(sessions, store)


async def test_a_reading_waits_for_what_is_on_its_way() -> None:
    """A session is read only when all that was committed to it has landed or failed."""
    store = Troubled()
    sessions = manager(store, cache_bytes=0)
    async with sessions.hold(KEY):
        await sessions.commit(await sessions.current(KEY, for_="i1"), user("q"), answer("a"))
        sessions.pin(KEY, "main")
    store.hold()
    recorded = sessions.commit_sent(KEY, "main", 2, (0, 5), ["5"])
    async with sessions.hold(KEY):
        reading = asyncio.create_task(sessions.open(KEY, "main"))
        await settled()
        store.release()
        assert (await reading).sent_to(2) == 5
        assert await recorded == 3
        assert await sessions.commit(await reading, user("q2")) == 4


@pytest.mark.parametrize("fails", [False, True])
async def test_a_fork_waits_for_what_is_on_its_way(fails: bool) -> None:
    """What was committed right before a fork is in the child if it is in the parent, and only then."""
    store = Troubled()
    sessions = manager(store)
    async with sessions.hold(KEY):
        main = await sessions.current(KEY, for_="i1")
        await sessions.commit(main, user("q1"), answer("a1"))
        store.hold()
        sessions.commit(main, user("q2"), answer("a2"))
        forking = asyncio.create_task(sessions.fork(main, "west", for_="i2"))
        await settled()
        store.fails = lambda _: FULL if fails else None
        store.release()
        west = await forking
        assert [m.content for m in west.messages] == [m.content for m in main.messages] == ["q1", "a1", "q2", "a2"][: 2 if fails else 4]
        assert west.last == main.last


async def test_sent_does_not_go_to_another_answer_of_the_same_number() -> None:
    """Forgotten and made anew while pieces were on the way: a record for an answer of the old session stays out of the new one."""
    store = Troubled()
    sessions = manager(store)
    for input_id in ("old", "new"):
        session = await sessions.current(KEY, for_=input_id)
        await sessions.commit(session, user("q", input_id), answer("a", input_id))
        if input_id == "old":
            await sessions.forget(KEY)
    with pytest.raises(NoSession):
        await sessions.commit_sent(KEY, "main", 2, (0, 5), ["5"], for_="old")
    assert await sessions.commit_sent(KEY, "main", 2, (0, 7), ["6"], for_="new") == 3
    assert (await sessions.open(KEY, "main")).sent_to(2) == 7


async def test_who_gives_up_waiting_for_sent_does_not_undo_it() -> None:
    """Cancelled while the session is still being read: the record is made all the same, and close waits for it."""
    store = Troubled()
    before = manager(store)
    await before.commit(await before.current(KEY, for_="i1"), user("q"), answer("a"))
    sessions = manager(store)
    recorded = sessions.commit_sent(KEY, "main", 2, (0, 5), ["5"])
    recorded.cancel()
    await sessions.close()
    assert (await sessions.open(KEY, "main")).sent_to(2) == 5


# ------------------------------------------------------------------------------------------------------------------------------ cache


@pytest.fixture
def many() -> tuple[SessionManager, MemoryStore]:
    store = MemoryStore()
    return manager(store, cache_bytes=100_000), store


async def test_memory_is_bounded_over_many_chats(many: tuple[SessionManager, MemoryStore]) -> None:
    """F13: 3,000 chats with a message each: what is held stays within its bound, no lock is left, and each chat is whole later."""
    sessions, store = many

    async def chat(n: int) -> None:
        key = SessionKey("telegram", str(n))
        async with sessions.hold(key):
            session = await sessions.current(key, for_=f"i{n}")
            await sessions.commit(session, user(f"q{n}"))
            await sessions.commit(session, answer("a" * 2000))
            sessions.pin(key, "main")
        await sessions.commit_sent(key, "main", 2, (0, 2000), ["5"])
        sessions.unpin(key, "main")

    for start in range(0, 3000, 20):
        await asyncio.gather(*[chat(n) for n in range(start, start + 20)])
        loaded, stubs, size = sessions.cached
        assert size <= 100_000
        assert (loaded < 40, stubs) == (True, 0)
    assert sessions.keys_held == 0
    await same_as_read(sessions, store, key=SessionKey("telegram", "7"))


async def test_what_is_in_use_is_not_evicted(many: tuple[SessionManager, MemoryStore]) -> None:
    """A session under a held key stays the same object, however many others come by and however large it is."""
    sessions, _ = many
    async with sessions.hold(KEY):
        session = await sessions.current(KEY, for_="i1")
        await sessions.commit(session, user("x" * 200_000))
        for n in range(100):
            other = SessionKey("telegram", f"o{n}")
            async with sessions.hold(other):
                await sessions.commit(await sessions.current(other, for_="i"), user("q" * 3000))
        assert await sessions.open(KEY, "main") is session
        assert await sessions.commit(session, answer("a")) == 2
    assert sessions.cached[2] <= 100_000


async def test_the_one_used_longest_ago_goes_first(many: tuple[SessionManager, MemoryStore]) -> None:
    """Least recently used, with pinned ones kept as long as there is anything else to let go."""
    sessions, _ = many
    keys = [SessionKey("telegram", f"k{n}") for n in range(4)]
    opened = {}
    for key in keys:
        async with sessions.hold(key):
            opened[key] = await sessions.current(key, for_="i")
            await sessions.commit(opened[key], user("q" * 20_000))
    sessions.pin(keys[1], "main")
    async with sessions.hold(keys[0]):
        await sessions.current(keys[0], for_="i")
    await settled()
    async with sessions.hold(KEY):
        await sessions.commit(await sessions.current(KEY, for_="i"), user("q" * 20_000))
    await settled()
    assert [await sessions.open(keys[n], "main") is opened[keys[n]] for n in (0, 1, 3, 2)] == [True, True, True, False]


# ------------------------------------------------------------------------------------------------------------- state lines, long files


async def test_a_state_line_stands_every_so_often() -> None:
    """Every so many lines or bytes, in the same append as the lines before it; the future still tells the seq of what was committed."""
    store = Troubled()
    sessions = manager(store, state_lines=10, state_bytes=5000)
    session = await sessions.current(KEY, for_="i1")
    seqs = [await sessions.commit(session, user("q")) for _ in range(30)]
    assert [line.seq for line in await events(store) if isinstance(line, State)] == [11, 22, 33]
    assert seqs == [seq for seq in range(1, 33) if seq not in {11, 22}]
    assert await sessions.commit(session, user("x" * 6000)) == 34
    assert isinstance((await events(store))[-1], State)


async def test_the_count_to_the_next_state_line_survives_a_reading() -> None:
    """A session that is read after every few lines has its `state` lines all the same."""
    store = Troubled()
    for _ in range(10):
        sessions = manager(store, state_lines=10)
        session = await sessions.current(KEY, for_="i")
        await sessions.commit(session, user("q"), answer("a"), sent(2))
    assert [line.seq for line in await events(store) if isinstance(line, State)] == [13, 26]


async def test_the_summary_is_found_from_the_end() -> None:
    """The summary that stands is written again behind a `state` line, so that a reading from the end needs nothing older."""
    store = Troubled()
    sessions = manager(store, state_lines=50, history_messages=4)
    session = await sessions.current(KEY, for_="i1")
    await sessions.commit(session, user("q"), answer("a"), summary(2, "They met."))
    for n in range(100):
        await sessions.commit(session, user(f"q{n}"), answer(f"a{n}"))
    tail = await store.tail(KEY, "main", 5)
    assert not tail.whole
    read = await manager(store, history_messages=4).open(KEY, "main")
    assert read.summary is not None
    assert read.summary.content == "They met."
    assert sum(isinstance(line, Summary) for line in await events(store)) == 5
    await same_as_read(sessions, store)


async def test_a_load_reads_the_end_only() -> None:
    """Rule 6: a session of 20,000 lines is loaded from a few hundred of them."""

    class Counting(MemoryStore):
        lines = 0

        async def tail(self, key: SessionKey, name: str, n: int):  # type: ignore[no-untyped-def]
            tail = await super().tail(key, name, n)
            Counting.lines += len(tail.lines)
            return tail

    store = Counting()
    sessions = manager(store, history_messages=40)
    session = await sessions.current(KEY, for_="i1")
    for n in range(0, 20_000, 100):
        await sessions.commit(session, *[line for m in range(n, n + 50) for line in (user(f"q{m}"), answer(f"a{m}"))])
    Counting.lines = 0
    read = await manager(store, history_messages=40).open(KEY, "main")
    assert Counting.lines < 1200
    assert told(read) == told(session)
    assert read.turns == 10_000


async def test_a_glance_keeps_nothing_and_changes_nothing() -> None:
    """Who only looks sees the newest part, takes no place in memory, and cannot write by it."""
    store = Troubled()
    sessions = manager(store, history_messages=4)
    main = await sessions.current(KEY, for_="i1")
    await sessions.commit(main, *[line for n in range(30) for line in (user(f"q{n}"), answer(f"a{n}"))])
    assert await sessions.glance(KEY, "main") is main
    looking = manager(store, history_messages=4)
    seen = await looking.glance(KEY, "main")
    assert seen.messages[-1].content == "a29"
    assert looking.cached == (0, 0, 0)
    with pytest.raises(Conflict):
        await looking.commit(seen, user("no"))
    for name in ("west", "../main"):
        with pytest.raises(NoSession):
            await looking.glance(KEY, name)


async def test_undo_far_back_finds_the_older_messages_again() -> None:
    """A hundred undos in a row: each time the session is opened it has a full window of what is left, down to the first turn."""
    store = Troubled()
    sessions = manager(store, history_messages=6, state_lines=20)
    for n in range(100):
        async with sessions.hold(KEY):
            await sessions.commit(await sessions.current(KEY, for_="i"), user(f"q{n}"), answer(f"a{n}"))
    for left in range(99, -1, -1):
        async with sessions.hold(KEY):
            session = await sessions.current(KEY, for_="i")
            to = session.undo_target()
            assert to is not None
            await sessions.commit(session, undo(to))
            await sessions.refresh(session)
            assert session.turns == left
            assert [m.content for m in session.messages][-6:] == [f"{w}{n}" for n in range(max(0, left - 3), left) for w in "qa"]
    await same_as_read(sessions, store)
