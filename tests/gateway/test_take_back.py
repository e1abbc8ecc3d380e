"""/stop while an answer is being sent: what was seen stays, in the chat as in the session, and the rest never comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels.base import Retry
from gateway.inbox import Entry, Input
from gateway.message import Header, Message, Sent, SessionKey
from gateway.session import EVERYTHING, Session
from tests.gateway.core import Core, Place, until
from tests.gateway.outbox_net import Call, Fate

FOUR = "aaaabbbbccccdddd"
KEY = SessionKey("net", "1")


def held(call: Call) -> Fate:
    """The network takes two pieces, and then asks for a long wait."""
    return Retry(3600) if call.text in ("cccc", "dddd") else None


@pytest.fixture(params=["plain", "streaming"])
async def core(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Core]:
    async with Core(tmp_path, net=Place(units=4, streams=request.param == "streaming")) as core:
        core.net.units = core.net.limits.units
        yield core


def lines(core: Core) -> list[dict[str, object]]:
    path = core.folder / "sessions" / "net" / "1" / "main.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def seen(core: Core) -> list[str]:
    """What is in the chat, but for empty messages that wait to be taken away."""
    return [text for text in core.seen() if text != "\u2026"]


async def said_for_good(core: Core, command: str) -> None:
    """What is said of a command is on record: it is not run again."""
    await until(lambda: (pending := core.inbox.pending(command)) is None or pending.reply is not None)


async def sending(core: Core) -> str:
    """An answer of which two pieces are out, and two wait."""
    core.net.judge = held
    core.model.then(FOUR)
    asked = await core.say("ask")
    await until(lambda: seen(core)[:2] == ["aaaa", "bbbb"] and not core.runners.running("net:1"))
    if core.net.streams:
        pending = core.inbox.pending(asked)
        assert pending is not None
        await until(lambda: 2 in pending.placed)
    return asked


async def test_what_was_seen_is_kept_and_the_rest_is_recorded_as_taken_back(core: Core) -> None:
    """The line says from where on; the model is shown what the person saw, now and after a restart, which sends nothing more."""
    asked = await sending(core)
    stop = await core.say("/stop")
    await until(lambda: any(line.get("stopped") for line in lines(core)))
    (taken,) = [line for line in lines(core) if line.get("stopped")]
    assert (taken["span"], "ids" in taken) == ([8, 16], False)
    session = await core.sessions.view(KEY, "main")
    answer = session.answer_for(asked)
    assert answer is not None
    assert (answer.content, answer.interrupted) == ("aaaabbbb", True)
    await said_for_good(core, stop)
    await core.restart()
    core.net.judge = lambda call: None
    core.net.forgive()
    await core.quiet()
    assert "".join(seen(core)) == "aaaabbbb" + "Stopped."
    core.model.then("fine")
    await core.ask("and now?")
    assert core.model.asked[-1] == [("user", "ask"), ("assistant", "aaaabbbb"), ("user", "and now?")]


async def test_a_stop_that_was_left_takes_back_what_was_being_sent(core: Core) -> None:
    """Accepted, and the process died before it was done: the next life begins no piece of the answer any more. (It cannot know whether
    the message that was placed for one has words in it, and brings that to its end.)"""
    await sending(core)
    await core.inbox.put([Entry(Input(core.inbound("/stop"), "net:1", 0.0))])
    await core.restart()
    core.net.judge = lambda call: None
    core.net.forgive()
    await core.quiet()
    end = 12 if core.net.streams else 8
    assert "".join(seen(core)) == FOUR[:end] + "Stopped."
    assert [line["span"] for line in lines(core) if line.get("stopped")] == [[end, 16]]


async def test_only_one_answer_is_taken_back(core: Core) -> None:
    """The one that is being sent: the answer behind it comes."""
    await sending(core)
    core.model.then("next")
    await core.say("second")
    await until(lambda: len(core.model.asked) == 2 and not core.runners.running("net:1"))
    stop = await core.say("/stop")
    await until(lambda: any(line.get("stopped") for line in lines(core)))
    await said_for_good(core, stop)
    core.net.judge = lambda call: None
    await core.restart()
    core.net.forgive()
    await core.quiet()
    shown = "".join(seen(core))
    assert (shown.startswith("aaaabbbb"), len(shown), "next" in shown, "Stopped." in shown) == (True, 20, True, True)


async def test_a_stop_between_the_last_word_and_the_lane_is_meant_for_the_answer(tmp_path: Path) -> None:
    """It came while the answer was being written to the disk: what is not out yet stays in."""
    async with Core(tmp_path, net=Place(units=4, streams=False)) as core:
        core.net.judge = lambda call: Retry(3600)
        go = asyncio.Event()
        core.model.then(FOUR, go)
        await core.say("ask")
        await core.running()
        running = core.runners.running("net:1")
        assert running is not None
        go.set()
        await until(lambda: running.asking is None or running.asking.done())
        stop = await core.say("/stop")
        await until(lambda: any(line.get("stopped") or line.get("interrupted") for line in lines(core)))
        await said_for_good(core, stop)
        core.net.judge = lambda call: None
        await core.restart()
        core.net.forgive()
        await core.quiet()
        assert "".join(core.seen()) in ("Stopped.", FOUR + "(stopped)Stopped.", FOUR + "\n\n(stopped)Stopped.")


def test_the_fold_counts_what_was_seen() -> None:
    """Live or read again, whole or only the end: words, cost and size are those of the shorter answer; nothing seen is a mark."""
    header = Header(key="net:1", name="main")
    for start, content in ((8, "aaaabbbb"), (0, "(stopped)"), (16, FOUR), (18, FOUR)):
        session = Session(KEY, "main", header, EVERYTHING)
        session.apply(Message(seq=1, for_="i", role="user", content="ask"))
        before = session.size
        session.apply(Message(seq=2, for_="i", role="assistant", content=FOUR, note="(a note)"))
        session.apply(Sent(seq=3, at="", of=2, span=(start, 26), stopped=True))
        answer = session.answer_for("i")
        assert answer is not None
        assert (answer.content, answer.interrupted) == (content, content != FOUR)
        assert session.sent_to(2) == 26
        fresh = Session(KEY, "main", header, EVERYTHING)
        fresh.apply(session.messages[0])
        fresh.apply(answer)
        assert session.size - before == fresh.size - before
        session.apply(Sent(seq=4, at="", of=77, span=(0, 5), stopped=True))
