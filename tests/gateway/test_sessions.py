"""gateway.sessions: which session a key talks in, and how sessions come, go and are listed. Over every store."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from gateway.errors import Conflict, Corrupt, NoSession, SessionExists
from gateway.message import Again, Chat, Header, Message, SessionKey, Undo, encode_line
from gateway.session import Session
from gateway.sessions import SessionManager
from gateway.store.base import SessionLog
from gateway.store.jsonl import JsonlStore
from gateway.store.memory import MemoryStore
from gateway.window import build
from gateway.writer import Writer
from tests.gateway.histories import KEY, answer, calls, sent, undo, user
from tests.gateway.stores import Clock, Troubled, manager

OTHER = SessionKey("telegram", "2")


@pytest.fixture(params=["memory", "jsonl"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionLog]:
    if request.param == "memory":
        yield MemoryStore()
        return
    writer = Writer()
    files = JsonlStore(tmp_path / "sessions", writer)
    await files.open()
    yield files
    await files.close()
    await writer.close()


@pytest.fixture
def sessions(store: SessionLog) -> SessionManager:
    return manager(store)


async def ask(sessions: SessionManager, session: Session, text: str, said: str = "a", for_: str = "") -> None:
    await sessions.commit(session, user(text, for_))
    await sessions.commit(session, answer(said, for_))


def words(session: Session) -> list[str | None]:
    return [message.content for message in build(session, system="s", messages=100, tokens=10**6).messages[1:]]


# --------------------------------------------------------------------------------------------------------------------------- current


async def test_the_first_input_makes_main(store: SessionLog, sessions: SessionManager) -> None:
    """A key that never talked gets `main`, which carries the id of the input that made it, and a pointer to it."""
    assert await sessions.peek(KEY) == ""
    session = await sessions.current(KEY, for_="i1")
    assert (session.name, session.last, session.header.for_) == ("main", 0, "i1")
    chat = await store.chat(KEY)
    assert chat is not None
    assert chat.current == "main"
    assert await sessions.peek(KEY) == "main"
    assert await sessions.peek(OTHER) == ""


async def test_current_is_the_same_object_until_it_is_let_go(sessions: SessionManager) -> None:
    """Who opens a session twice holds one session, not two."""
    first = await sessions.current(KEY, for_="i1")
    assert await sessions.current(KEY, for_="i2") is first
    assert await sessions.open(KEY, "main") is first


async def test_the_pointer_is_found_after_a_restart(store: SessionLog, sessions: SessionManager) -> None:
    """Which session is current is on record, and so is what was said in it."""
    await sessions.current(KEY, for_="i1")
    west = await sessions.create(KEY, "west", for_="i2")
    await ask(sessions, west, "q1", "a1")
    restarted = manager(store)
    assert await restarted.peek(KEY) == "west"
    session = await restarted.current(KEY, for_="i3")
    assert (session.name, [m.content for m in session.messages]) == ("west", ["q1", "a1"])


async def test_a_pointer_to_nothing_falls_back(store: SessionLog, sessions: SessionManager) -> None:
    """Killed between a session's file and its pointer, or the file was taken away: the key goes on in the session that was used last."""
    main = await sessions.current(KEY, for_="i1")
    await ask(sessions, main, "q1", "a1")
    await store.set_chat(KEY, Chat(at="", current="lost"))
    restarted = manager(store)
    assert await restarted.peek(KEY) == "main"
    assert [info.current for info in await restarted.sessions(KEY)] == [True]
    assert (await restarted.current(KEY, for_="i2")).name == "main"
    chat = await store.chat(KEY)
    assert chat is not None
    assert (chat.current, chat.for_) == ("main", "")


async def test_a_session_without_a_pointer_is_found(store: SessionLog, sessions: SessionManager) -> None:
    """Killed right after the first session was made: the next input goes on in it and does not stumble over its name."""
    await store.create(KEY, "main", Header(v=1, key=str(KEY), name="main", created="2026-11-29T10:00:00Z", for_="i1"))
    assert (await sessions.current(KEY, for_="i1")).name == "main"


async def test_a_pointer_that_is_no_name_leads_nowhere(store: SessionLog, sessions: SessionManager) -> None:
    """D12: whatever a `_chat.jsonl` says, it never becomes a path."""
    await sessions.current(KEY, for_="i1")
    await store.set_chat(KEY, Chat(at="", current="../../evil"))
    assert (await manager(store).current(KEY, for_="i2")).name == "main"


async def test_an_unreadable_current_session_is_not_replaced_unasked(tmp_path: Path) -> None:
    """D05: where the current file cannot be read, nobody is put into another conversation; a new one can be made beside it, and the file
    stays as it is. A key that has nothing else gets a session of another name."""
    writer = Writer()
    store = JsonlStore(tmp_path, writer)
    await store.open()
    await manager(store).current(KEY, for_="i1")
    (path,) = tmp_path.rglob("main.jsonl")
    path.write_bytes(b"{broken\n")
    restarted = manager(store)
    with pytest.raises(Corrupt):
        await restarted.current(KEY, for_="i2")
    assert (await restarted.create(KEY, "chat-2", for_="i2")).name == "chat-2"
    assert (await restarted.current(KEY, for_="i3")).name == "chat-2"
    (path.parent / "chat-2.jsonl").unlink()
    (path.parent / "_chat.jsonl").unlink()
    assert (await manager(store).current(KEY, for_="i4")).name == "chat-2"
    assert path.read_bytes() == b"{broken\n"
    await store.close()
    await writer.close()


# --------------------------------------------------------------------------------------------------------------- create, switch, names


async def test_create_makes_the_new_session_current(sessions: SessionManager) -> None:
    """A new session is empty, current, and carries title and input; the old one is there and can be switched to."""
    main = await sessions.current(KEY, for_="i1")
    await ask(sessions, main, "q1", "a1")
    west = await sessions.create(KEY, "west", title="West!", for_="i2")
    assert (west.last, west.header.title, west.header.for_) == (0, "West!", "i2")
    assert await sessions.current(KEY, for_="i3") is west
    back = await sessions.switch(KEY, "main", for_="i4")
    assert [m.content for m in back.messages] == ["q1", "a1"]
    assert await sessions.peek(KEY) == "main"


async def test_create_without_switch_leaves_the_pointer(sessions: SessionManager) -> None:
    """`switch=False` makes a session and nothing else."""
    await sessions.current(KEY, for_="i1")
    await sessions.create(KEY, "west", for_="i2", switch=False)
    assert await sessions.peek(KEY) == "main"


async def test_a_name_that_exists_is_refused(sessions: SessionManager) -> None:
    """Neither create nor fork touches a session that is there."""
    main = await sessions.current(KEY, for_="i1")
    await ask(sessions, main, "q1", "a1")
    for attempt in (sessions.create(KEY, "main", for_="i2"), sessions.fork(main, "main", for_="i2")):
        with pytest.raises(SessionExists):
            await attempt
    assert [m.content for m in (await sessions.view(KEY, "main")).messages] == ["q1", "a1"]


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "a/../../b", ".hidden", "", "x\n", "a\0", "WEST", "x" * 41, "_chat"])
async def test_what_is_no_name_is_no_session(sessions: SessionManager, tmp_path: Path, name: str) -> None:
    """D12: names that people type are never paths: they name nothing that exists and nothing that can be made."""
    main = await sessions.current(KEY, for_="i1")
    before = sorted(tmp_path.parent.rglob("*"))
    for attempt in (sessions.open(KEY, name), sessions.switch(KEY, name, for_="i2"), sessions.view(KEY, name), sessions.delete(KEY, name)):
        with pytest.raises(NoSession):
            await attempt
    with pytest.raises(NoSession):
        await sessions.commit_sent(KEY, name, 1, (0, 1), [])
    for attempt in (sessions.create(KEY, name, for_="i2"), sessions.fork(main, name, for_="i2")):
        with pytest.raises(ValueError, match="not a session name"):
            await attempt
    assert sorted(tmp_path.parent.rglob("*")) == before


async def test_a_session_that_is_not_there_is_told(sessions: SessionManager) -> None:
    """Open, switch, view and delete of nothing raise NoSession and make nothing."""
    await sessions.current(KEY, for_="i1")
    for attempt in (
        sessions.open(KEY, "west"),
        sessions.switch(KEY, "west", for_="i2"),
        sessions.view(KEY, "west"),
        sessions.delete(KEY, "west"),
    ):
        with pytest.raises(NoSession):
            await attempt
    assert [info.name for info in await sessions.sessions(KEY)] == ["main"]
    assert sessions.cached[:2] == (1, 0)


async def test_where_the_pointer_cannot_be_written_nothing_is_made() -> None:
    """Create and fork are all or nothing: a full disk leaves no session behind that nobody asked for, and the old one stays current."""
    store = Troubled()
    sessions = manager(store)
    main = await sessions.current(KEY, for_="i1")
    await ask(sessions, main, "q1", "a1")
    makes: list[Callable[[], Awaitable[Session]]] = [
        lambda: sessions.create(KEY, "west", for_="i2"),
        lambda: sessions.fork(main, "west", for_="i2"),
    ]
    for make in makes:
        store.chat_fails = OSError(errno.ENOSPC, "full")
        with pytest.raises(OSError, match="full"):
            await make()
        store.chat_fails = None
        assert [(info.name, info.current) for info in await sessions.sessions(KEY)] == [("main", True)]
    assert (await sessions.fork(main, "west", for_="i2")).last == 2
    assert await sessions.peek(KEY) == "west"


# ----------------------------------------------------------------------------------------------------------------------- reset (D13)


@pytest.mark.parametrize("restart", [False, True])
async def test_after_a_reset_nothing_of_the_old_session_is_asked(store: SessionLog, restart: bool) -> None:
    """D13: a new session knows nothing of the old one, in memory, after eviction and after a restart; another key keeps its own."""
    sessions = manager(store, cache_bytes=0)
    for key in (KEY, OTHER):
        async with sessions.hold(key):
            await ask(sessions, await sessions.current(key, for_="i1"), "my code is 4711")
    async with sessions.hold(KEY):
        await sessions.current(KEY, for_="i2")
        await sessions.create(KEY, "chat-2", for_="i2")
    sessions = manager(store) if restart else sessions
    async with sessions.hold(KEY):
        session = await sessions.current(KEY, for_="i3")
        await sessions.commit(session, user("what is my code?"))
        assert words(session) == ["what is my code?"]
    async with sessions.hold(OTHER):
        assert "my code is 4711" in words(await sessions.current(OTHER, for_="i4"))


# --------------------------------------------------------------------------------------------------------------------- fork (D17, D18)


async def test_a_fork_equals_its_parent_and_then_neither_sees_the_other(sessions: SessionManager) -> None:
    """D18, rule 12: the child tells what the parent told; what is said, taken back or summed up in one is not in the other."""
    main = await sessions.current(KEY, for_="i1")
    await ask(sessions, main, "q1", "a1")
    await ask(sessions, main, "q2", "a2")
    west = await sessions.fork(main, "west", title="West", for_="i2")
    assert words(west) == words(main) == ["q1", "a1", "q2", "a2"]
    assert (west.header.parent is not None and west.header.parent.seq) == main.last == 4
    before = words(main)
    await sessions.commit(west, undo(2))
    await ask(sessions, west, "in the west", "yes")
    await sessions.create(KEY, "chat-2", for_="i3")
    assert words(await sessions.open(KEY, "main")) == before
    await ask(sessions, main, "in the main", "no")
    assert words(await manager(sessions._log).open(KEY, "west")) == ["q1", "a1", "in the west", "yes"]


async def test_the_parents_file_is_not_touched_by_a_fork(tmp_path: Path) -> None:
    """D18: byte for byte the same before and after, whatever is done in the child; and the child outlives its parent."""
    writer = Writer()
    store = JsonlStore(tmp_path, writer)
    await store.open()
    sessions = manager(store)
    main = await sessions.current(KEY, for_="i1")
    for turn in range(25):
        await ask(sessions, main, f"q{turn}")
    (path,) = tmp_path.rglob("main.jsonl")
    before = hashlib.sha256(path.read_bytes()).digest()
    west = await sessions.fork(main, "west", for_="i2")
    await sessions.commit(west, undo(0))
    assert hashlib.sha256(path.read_bytes()).digest() == before
    await sessions.delete(KEY, "main")
    assert (await manager(store).view(KEY, "west")).last == 51
    await store.close()
    await writer.close()


@pytest.mark.parametrize(
    "running", [(user("half"),), (user("half"), calls("c1")), (Again(seq=0, at="", of=3),), (user("failed"), user("half"))], ids=repr
)
async def test_a_fork_has_no_unfinished_turn(sessions: SessionManager, running: tuple[Message | Again, ...]) -> None:
    """D17: what is under way in the parent is not in the child, which ends with a whole turn; the parent ends its turn undisturbed."""
    main = await sessions.current(KEY, for_="i1")
    await ask(sessions, main, "q1", "a1")
    await ask(sessions, main, "q2", "a2")
    await sessions.commit(main, *running)
    west = await sessions.fork(main, "west", for_="i2")
    assert words(west) == ["q1", "a1", "q2", "a2"]
    await sessions.commit(main, answer("whole"))
    assert words(main)[-1] == "whole"
    assert west.settled == west.last == 4


async def test_a_fork_finds_the_settled_point_however_far_back(store: SessionLog) -> None:
    """A turn that is longer than what a load reads is still left out as a whole."""
    sessions = manager(store, state_lines=10)
    main = await sessions.current(KEY, for_="i1")
    await ask(sessions, main, "q1", "a1")
    await sessions.commit(main, user("half"))
    for n in range(60):
        await sessions.commit(main, calls(f"c{n}"), Message(seq=0, at="", role="tool", content="x", tool_call_id=f"c{n}"))
    restarted = manager(store, state_lines=10)
    assert words(await restarted.fork(await restarted.current(KEY, for_="i2"), "west", for_="i2")) == ["q1", "a1"]


async def test_a_fork_of_an_empty_session_is_empty(sessions: SessionManager) -> None:
    """Nothing to copy is no fault."""
    main = await sessions.current(KEY, for_="i1")
    assert (await sessions.fork(main, "west", for_="i2")).last == 0
    await sessions.commit(main, user("q"))
    assert (await sessions.fork(main, "east", for_="i3")).last == 0


# ------------------------------------------------------------------------------------------------------------------ lists and deletion


async def test_the_list_tells_the_tree_and_loads_nothing(store: SessionLog, sessions: SessionManager) -> None:
    """All sessions, oldest first, with parent, the point of the fork and which is current; no session is loaded for it."""
    main = await sessions.current(KEY, for_="i1")
    await ask(sessions, main, "q1", "a1")
    west = await sessions.fork(main, "west", title="West!", for_="i2")
    await ask(sessions, west, "q2", "a2")
    await sessions.create(KEY, "chat-2", for_="i3")
    restarted = manager(store)
    listed = await restarted.sessions(KEY)
    assert [(i.name, i.title, i.current, i.last_seq, i.parent, i.parent_seq) for i in listed] == [
        ("main", "main", False, 2, "", 0),
        ("west", "West!", False, 4, "main", 2),
        ("chat-2", "chat-2", True, 0, "", 0),
    ]
    assert restarted.cached == (0, 0, 0)
    assert await restarted.sessions(OTHER) == []


async def test_delete_is_for_good(sessions: SessionManager) -> None:
    """A deleted session is gone from memory and store; whoever still holds it cannot write, and its name can be used anew, empty."""
    main = await sessions.current(KEY, for_="i1")
    await ask(sessions, main, "q1", "a1")
    await sessions.create(KEY, "west", for_="i2")
    sessions.pin(KEY, "main")
    await sessions.delete(KEY, "main")
    with pytest.raises(Exception, match="expected to build"):
        await sessions.commit(main, user("ghost"))
    with pytest.raises(NoSession):
        await sessions.commit_sent(KEY, "main", 2, (0, 1), ["5"])
    sessions.unpin(KEY, "main")
    assert [info.name for info in await sessions.sessions(KEY)] == ["west"]
    await sessions.delete(KEY, "west")
    assert await sessions.peek(KEY) == ""
    await sessions.create(KEY, "west", for_="i2")
    new = await sessions.create(KEY, "main", for_="i3")
    with pytest.raises(NoSession):
        await sessions.commit_sent(KEY, "main", 2, (0, 1), ["5"])
    assert (new.last, len(new.messages)) == (0, 0)
    await sessions.delete(KEY, "main")
    assert (await sessions.current(KEY, for_="i4")).name == "west"


async def test_what_is_made_anew_has_nothing_of_what_was_there(store: SessionLog, sessions: SessionManager) -> None:
    """A session's file was taken away by hand while it was in memory: a new one of that name does not bring the old words back."""
    main = await sessions.current(KEY, for_="i1")
    await ask(sessions, main, "old", "old")
    west = await sessions.create(KEY, "west", for_="i2")
    await ask(sessions, west, "q1", "a1")
    await store.delete(KEY, "main")
    assert words(await sessions.fork(west, "main", for_="i3")) == ["q1", "a1"]


async def test_forget_takes_all_of_a_key_and_nothing_else(sessions: SessionManager) -> None:
    """All sessions and the pointer of the key are gone; another key has its own; the next input begins anew."""
    for key in (KEY, OTHER):
        main = await sessions.current(key, for_="i1")
        await ask(sessions, main, "q1", "a1")
        await sessions.fork(main, "west", for_="i2")
    sessions.pin(KEY, "west")
    await sessions.forget(KEY)
    with pytest.raises(NoSession):
        await sessions.commit_sent(KEY, "west", 2, (0, 1), ["5"])
    assert (await sessions.peek(KEY), await sessions.sessions(KEY)) == ("", [])
    assert [info.name for info in await sessions.sessions(OTHER)] == ["main", "west"]
    assert (await sessions.current(KEY, for_="i3")).last == 0


# -------------------------------------------------------------------------------------------------------------------------- recovery


async def test_effect_of_an_input_that_did_nothing(sessions: SessionManager) -> None:
    """Started, then killed: nothing is found, so that it is run as if new."""
    main = await sessions.current(KEY, for_="i0")
    await ask(sessions, main, "q0", "a0", "i0")
    found = await sessions.effect(KEY, "main", 2, "i1")
    assert (found.question, found.answer, found.undone, found.retried, found.created, found.moved, found.gone) == (None,) * 4 + (
        "",
        "",
        False,
    )


async def test_effect_of_a_message(sessions: SessionManager) -> None:
    """Its user line, then its answer; those of others, and those from before it was started, are not taken for its own."""
    main = await sessions.current(KEY, for_="i1")
    await ask(sessions, main, "q0", "a0", "i1")
    last = main.last
    await sessions.commit(main, user("q1", "i1"), calls("c1"))
    found = await sessions.effect(KEY, "main", last, "i1")
    assert (found.question and found.question.content, found.answer) == ("q1", None)
    await sessions.commit(main, answer("other", "i2"), answer("a1", "i1"))
    found = await sessions.effect(KEY, "main", last, "i1")
    assert (found.answer and found.answer.content) == "a1"
    assert (await sessions.effect(KEY, "main", main.last, "i1")).answer is None


async def test_effect_of_an_answer_that_was_taken_back(sessions: SessionManager) -> None:
    """An answer that is still being delivered is found even where a later undo has taken it back."""
    main = await sessions.current(KEY, for_="i1")
    await ask(sessions, main, "q1", "a1", "i1")
    await sessions.commit(main, Undo(seq=0, at="", for_="i2", to=0))
    assert (await sessions.effect(KEY, "main", 0, "i1")).answer is not None
    assert (await sessions.effect(KEY, "main", 2, "i2")).undone is not None


async def test_effect_of_commands(sessions: SessionManager) -> None:
    """Retry, fork, reset and switch are recognised by their input's id, and the session that was current then is named."""
    main = await sessions.current(KEY, for_="i1")
    await ask(sessions, main, "q1", "a1", "i1")
    await sessions.commit(main, Again(seq=0, at="", for_="i2", of=1))
    assert (await sessions.effect(KEY, "main", 2, "i2")).retried is not None
    await sessions.commit(main, answer("b1", "i2"))
    await sessions.fork(main, "west", for_="i3", switch=False)
    found = await sessions.effect(KEY, "main", 4, "i3")
    assert (found.session, found.created, found.moved) == ("main", "west", "")
    await sessions.switch(KEY, "west", for_="i3")
    found = await sessions.effect(KEY, "main", 4, "i3")
    assert (found.created, found.moved) == ("west", "west")
    await sessions.switch(KEY, "main", for_="i4")
    found = await sessions.effect(KEY, "west", 4, "i4")
    assert (found.created, found.moved) == ("", "main")


async def test_effect_of_a_reset_as_the_first_input(sessions: SessionManager) -> None:
    """The `main` that any first input makes is not taken for what a reset made."""
    main = await sessions.current(KEY, for_="i1")
    assert (await sessions.effect(KEY, main.name, 0, "i1")).created == ""
    await sessions.create(KEY, "chat-2", for_="i1")
    assert (await sessions.effect(KEY, main.name, 0, "i1")).created == "chat-2"


async def test_effect_in_a_session_that_is_gone(sessions: SessionManager) -> None:
    """Forgotten meanwhile: said, not raised."""
    assert (await sessions.effect(KEY, "main", 7, "i1")).gone
    assert (await sessions.effect(KEY, "../x", 7, "i1")).gone


# -------------------------------------------------------------------------------------------------------------------------- the rest


async def test_view_shows_all_and_is_nobody_elses(sessions: SessionManager) -> None:
    """A view has the session from its first line, as it stands after undo, and is neither kept nor written to."""
    small = manager(sessions._log, history_messages=4)
    main = await small.current(KEY, for_="i1")
    for turn in range(60):
        await ask(small, main, f"q{turn}", f"a{turn}")
    await small.commit(main, undo(118))
    seen = await small.view(KEY, "main")
    assert [m.content for m in seen.messages if m.role == "user"] == [f"q{turn}" for turn in range(59)]
    with pytest.raises(Exception, match="expected to build"):
        await small.commit(seen, user("no"))


async def test_bad_lines_are_passed_over(tmp_path: Path) -> None:
    """D05: a line of garbage in the middle costs itself only, and stays where it is."""
    writer = Writer()
    store = JsonlStore(tmp_path, writer)
    await store.open()
    await manager(store).current(KEY, for_="i1")
    (path,) = tmp_path.rglob("main.jsonl")
    bad = [
        b"{not json}\n",
        b"42\n",
        b"[]\n",
        b'{"role":"wizard"}\n',
        b"\xff\xfe\n",
        b'{"seq":3,"type":"undo","to":"x"}\n',
        b"[" * 5000 + b"\n",
    ]
    good = [encode_line(line) for line in (user("q1"), answer("a1"))]
    numbers = [line.replace(b'"seq":0', b'"seq":%d' % seq) for seq, line in enumerate(good, 1)]
    path.write_bytes(path.read_bytes() + numbers[0] + b"".join(bad) + numbers[1])
    await store.close()
    store = JsonlStore(tmp_path, writer)
    await store.open()
    sessions = manager(store)
    session = await sessions.current(KEY, for_="i2")
    await sessions.commit(session, user("q2"))
    assert words(session) == ["q1", "a1", "q2"]
    assert all(line in path.read_bytes() for line in bad)
    await store.close()
    await writer.close()


async def test_a_file_that_changes_under_us_costs_one_commit(tmp_path: Path) -> None:
    """Somebody edits a session's file, or takes it away for a moment, while the daemon runs: the commit that notices fails, nothing of
    theirs is overwritten, and the next one builds on what is there."""
    writer = Writer()
    store = JsonlStore(tmp_path, writer)
    await store.open()
    sessions = manager(store)
    main = await sessions.current(KEY, for_="i1")
    await ask(sessions, main, "q1", "a1")
    (path,) = tmp_path.rglob("main.jsonl")
    line = encode_line(user("by hand")).replace(b'"seq":0', b'"seq":3')
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(Conflict):
        await sessions.commit(main, user("q2"))
    await sessions.refresh(main)
    assert await sessions.commit(main, answer("a2")) == 4
    path.rename(path.with_suffix(".away"))
    with pytest.raises(NoSession):
        await sessions.commit(main, user("q3"))
    with pytest.raises(NoSession):
        await sessions.refresh(main)
    path.with_suffix(".away").rename(path)
    assert await sessions.current(KEY, for_="i2") is main
    assert await sessions.commit(main, user("q3")) == 5
    assert words(main) == words(await manager(store).open(KEY, "main")) == ["q1", "a1", "by hand", "a2", "q3"]
    await store.close()
    await writer.close()


async def test_nothing_blocks_the_loop(tmp_path: Path) -> None:
    """Whatever the manager does with files happens off the loop."""
    writer = Writer()
    store = JsonlStore(tmp_path, writer)
    await store.open()
    with blockbuster_ctx():
        for sessions in (manager(store, state_lines=20), manager(store, cache_bytes=0)):
            async with sessions.hold(KEY):
                main = await sessions.current(KEY, for_="i1")
                for turn in range(20):
                    await ask(sessions, main, f"q{turn}")
                await sessions.commit_sent(KEY, "main", 2, (0, 1), ["5"])
                name = sessions.free_name([info.name for info in await sessions.sessions(KEY)])
                await sessions.fork(main, name, for_="i2")
                await sessions.effect(KEY, "main", 0, "i2")
                await sessions.switch(KEY, "main", for_="i3")
            await sessions.close()
    await store.close()
    await writer.close()


async def test_times_are_the_clocks(store: SessionLog) -> None:
    """`at` and `created` come from the clock that was handed in."""
    clock = Clock(0.0)
    sessions = manager(store, clock=clock)
    main = await sessions.current(KEY, for_="i1")
    clock.now = 1.5
    await sessions.commit(main, user("q"), sent(1))
    assert main.header.created == "1970-01-01T00:00:00.000Z"
    assert main.messages[0].at == "1970-01-01T00:00:01.500Z"


async def test_a_glance_sees_the_newest_part_from_memory_or_from_the_file(store: SessionLog, sessions: SessionManager) -> None:
    """Reading beside the lock gives what the holder of the lock has; what is no session is told."""
    session = await sessions.current(KEY, for_="i1")
    for n in range(30):
        await ask(sessions, session, f"q{n}", f"a{n}")
    assert words(await sessions.glance(KEY, "main")) == words(session)
    assert words(await manager(store).glance(KEY, "main"))[-20:] == words(session)[-20:]
    for name in ("none", "../main"):
        with pytest.raises(NoSession):
            await sessions.glance(KEY, name)
