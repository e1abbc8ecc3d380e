"""A command that waits for an answer says so, once, until it says what it has to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway import patience
from gateway.patience import WAITS
from tests.gateway.core import Core, Place, until


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    async with Core(tmp_path) as core:
        yield core


@pytest.mark.parametrize("command", ["/undo", "/fork west", "/switch main"])
async def test_a_command_that_waits_says_so_until_it_is_done(core: Core, command: str) -> None:
    """After two seconds, not before; the word goes when the reply is there, which stands behind the answer; a question that waits says
    nothing."""
    go = asyncio.Event()
    core.model.then("first", go)
    loop = asyncio.get_running_loop()
    await core.say("ask")
    await core.running()
    await core.say(command)
    began = loop.time()
    await core.say("more")
    await until(lambda: WAITS in core.seen())
    assert loop.time() - began > patience.SECONDS - 0.1
    go.set()
    await core.quiet()
    first, reply, more = core.seen()
    assert (first, more) == ("first", "Heard: more")
    assert reply != WAITS
    assert [call.text for call in core.net.calls].count(WAITS) == 1


async def test_nothing_is_said_where_a_command_need_not_wait(core: Core) -> None:
    """Behind an answer that ends in time: its reply is one send."""
    await core.ask("ask")
    core.model.then("quick")
    await core.say("again")
    await core.say("/undo")
    await core.quiet()
    await core.ask("/fork")
    assert not core.runners._patience._timers
    assert not core.runners._patience._shown
    assert [call.op for call in core.net.calls if "Taken back" in call.text or "copy of" in call.text] == ["send", "send"]


async def test_a_kill_doubles_neither_the_word_nor_the_reply(core: Core) -> None:
    """The next life finds the message, and takes it away when it has said the reply."""
    core.model.then("first", asyncio.Event())
    await core.say("ask")
    await core.running()
    await core.say("/undo")
    await until(lambda: WAITS in core.seen())
    core.model.then("second")
    await core.restart()
    await core.quiet()
    assert core.seen() == ["second", "Taken back: your last message and its answer."]


async def test_where_answers_do_not_grow_there_is_the_typing_sign(tmp_path: Path) -> None:
    """No message of its own that nothing could take back."""
    async with Core(tmp_path, net=Place(units=4000, streams=False)) as core:
        go = asyncio.Event()
        core.model.then(go, "first")
        await core.say("ask")
        await core.running()
        await core.say("/undo")
        await until(lambda: core.runners._patience._shown)
        await until(lambda: "typing" in core.net.ops(typing=True))
        go.set()
        await core.quiet()
        assert core.seen() == ["first", "Taken back: your last message and its answer."]


async def test_the_word_goes_where_the_command_is_refused(tmp_path: Path) -> None:
    """In a group, to somebody who may not."""
    async with Core(tmp_path) as core:
        go = asyncio.Event()
        core.model.then(go, "first")
        await core.say("ask", chat="-5", direct=False)
        await core.running("-5")
        await core.say("/undo", chat="-5", direct=False)
        await until(lambda: WAITS in core.seen("-5"))
        go.set()
        await core.quiet()
        assert core.seen("-5") == ["first", "In a group only its admins may do that."]


async def test_what_it_waits_for_stands_above_its_reply(core: Core) -> None:
    """Also an answer of which nothing was to be seen when the word came."""
    go = asyncio.Event()
    core.model.then(go, "first")
    core.model.then("second")
    await core.say("one")
    await core.say("two")
    await core.running()
    await core.say("/undo")
    await until(lambda: WAITS in core.seen())
    go.set()
    await core.quiet()
    assert core.seen() == ["first", "second", "Taken back: your last message and its answer."]


async def test_who_came_with_a_ticket_sees_that_the_bot_thinks(core: Core) -> None:
    """The network shows it, in the place of the reply: nothing else is put beside it."""
    go = asyncio.Event()
    core.model.then("first", go)
    await core.say("one")
    await core.running()
    await core.router.accept([core.inbound("/undo", ticket="ticket:t")])
    assert not core.runners._patience._timers
    go.set()
    await core.quiet()
    assert [call.text for call in core.net.calls if call.reply_to == "ticket:t"] == ["Taken back: your last message and its answer."]
