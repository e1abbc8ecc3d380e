"""How the next life goes on with what the last one left: in order, and with every wish meant for what it was meant for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels.base import Address, NotSent
from gateway.commands.conversations import FORGOTTEN
from gateway.inbox import Entry, Input
from gateway.message import Message, SessionKey
from gateway.outbox import PLACEHOLDER
from gateway.work import NOT_STORED
from tests.gateway.core import Core, Place, until


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    async with Core(tmp_path) as running:
        yield running


@pytest.mark.parametrize("streams", [True, False], ids=["streaming", "plain"])
@pytest.mark.parametrize("row", [("one", "/fork west", "two"), ("one", "/retry", "/undo"), ("/fork", "one", "/switch nowhere")])
async def test_what_was_decided_and_not_sent_is_said_in_order(tmp_path: Path, streams: bool, row: tuple[str, ...]) -> None:
    """An answer that has to be looked up in its session does not fall behind a reply that stands in the journal."""
    net = Place(units=4000, streams=streams)
    async with Core(tmp_path, net=net) as core:
        for text in row:
            await core.ask(text, chat="2")
        expected = core.seen("2")
        net.judge = lambda call: NotSent("the network is down")
        last = [await core.say(text) for text in row][-1]
        await until(lambda: not core.runners.running("net:1") and not core.runners.waiting("net:1"))
        assert core.inbox.pending(last) is not None
        await core.restart()
        net.judge = lambda call: None
        await core.quiet(10)
        assert core.seen() == expected
        assert net.visible(Address("net", "2")) == expected


async def leave(core: Core, text: str) -> None:
    """A message that is accepted in the last moment of a life."""
    await core.inbox.put([Entry(Input(core.inbound(text), "net:1", time.time()))])


async def test_a_stop_that_was_left_ends_the_turn_that_it_was_meant_for(core: Core) -> None:
    """Its author wanted no answer; one that comes in full after the restart, and the word that nothing was running, would be a mockery."""
    core.model.then("It is ", asyncio.Event())
    await core.say("tell me")
    await core.running()
    await leave(core, "/stop")
    core.model.then(asyncio.Event())
    await core.restart()
    await core.quiet()
    assert core.seen() == ["Stopped."]
    core.model.script.clear()
    assert await core.ask("hello") == "Heard: hello"
    assert core.model.asked[-1] == [("user", "tell me"), ("assistant", "(stopped)"), ("user", "hello")]


async def test_a_reset_that_was_left_cuts_the_turn_that_ran(core: Core) -> None:
    """As it would have, had the process lived; and what was said behind it is answered in the new session."""
    core.model.then("It is ", asyncio.Event())
    await core.say("tell me")
    await core.running()
    await leave(core, "/reset")
    await leave(core, "hello")
    await core.restart()
    await core.quiet()
    assert len(core.model.asked) == 2
    assert [text.split(".")[0] for text in core.seen()] == ["A new conversation", "Heard: hello"]
    assert core.model.asked[1:] == [[("user", "hello")]]
    old = await core.sessions.view(SessionKey("net", "1"), "main")
    assert [message.content for message in old.messages] == ["tell me", "(stopped)"]


async def test_a_stop_that_was_left_without_a_turn_stops_nothing(core: Core) -> None:
    """What was waiting and had not begun is not what it meant."""
    await leave(core, "/stop")
    await leave(core, "hello")
    await core.restart()
    await core.quiet()
    assert sorted(core.seen()) == ["Heard: hello", "Nothing is running."]


async def test_a_question_that_others_overtook_is_not_asked_again(core: Core) -> None:
    """The disk was full when its answer and every word about that were to be written; the next question was answered, then the process
    died. A request that ends with an answer is none."""
    await core.ask("hello")
    late = core.inbound("late")
    key = SessionKey("net", "1")
    await core.inbox.put([Entry(Input(late, "net:1", time.time()))])
    async with core.sessions.hold(key):
        session = await core.sessions.open(key, "main")
        await core.inbox.started(late.id, "main", session.last)
        await core.sessions.commit(session, Message(seq=0, for_=late.id, role="user", content="late"))
    await core.say("in time")
    await until(lambda: len(core.seen()) == 2)
    await core.restart()
    await core.quiet()
    assert core.seen()[2:] == [NOT_STORED]
    assert len(core.model.asked) == 2
    assert await core.ask("bye") == "Heard: bye"


async def test_a_question_is_put_down_once_where_the_journal_was_ahead_of_the_session(core: Core) -> None:
    """A line that was on its way into the session when the turn was put on record as started is lost with the process, which dies twice
    more: where the session stands lower than the record says, the question's own line is found again all the same."""
    await core.ask("hello")
    late = core.inbound("late")
    await core.inbox.put([Entry(Input(late, "net:1", time.time()))])
    async with core.sessions.hold(SessionKey("net", "1")):
        session = await core.sessions.open(SessionKey("net", "1"), "main")
        await core.inbox.started(late.id, "main", session.last + 2)
    for _ in range(2):
        core.model.then(asyncio.Event())
        await core.restart()
        await core.running()
    await core.restart()
    await core.quiet()
    assert core.seen() == ["Heard: hello", "Heard: late"]
    assert core.model.asked[-1] == [("user", "hello"), ("assistant", "Heard: hello"), ("user", "late")]
    session = await core.sessions.open(SessionKey("net", "1"), "main")
    assert [message.content for message in session.messages if message.role == "user"] == ["hello", "late"]


@pytest.mark.parametrize("streams", [True, False], ids=["streaming", "plain"])
async def test_what_was_forgotten_before_it_was_said_is_not_said(tmp_path: Path, streams: bool) -> None:
    """Answers that were still to be sent when the conversation was deleted for good: after the restart there is one word, about that, and
    it is the command's; messages that stood ready for them are gone."""
    net = Place(units=4000, streams=streams)
    async with Core(tmp_path, net=net) as core:
        net.judge = lambda call: None if call.text == PLACEHOLDER.text else NotSent("nothing else gets through")
        for text in ("hello", "/retry", "/forget yes"):
            await core.say(text)
            await until(lambda: not len(core.runners))
        assert core.inbox.open_inputs == 3
        await core.restart()
        net.judge = lambda call: None
        await core.quiet(10)
        assert core.seen() == [FORGOTTEN]
        assert await core.ask("who am I?") == "Heard: who am I?"
        assert len(core.model.asked) == 3
