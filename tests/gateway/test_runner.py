"""One key's queue: each input once, in order, whatever the model, the disk and the commands around it do, and again after a restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels.base import Retry
from gateway.asking import BROKEN
from gateway.errors import BackendError
from gateway.health import Watch
from gateway.message import SessionKey
from gateway.options import Access as Rules
from gateway.turn import Outcome
from gateway.work import NOT_STORED, UNREADABLE
from tests.gateway.core import Core, down, until
from tests.gateway.outbox_net import HANG
from tests.gateway.stores import Troubled

KEY = SessionKey("net", "1")


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    async with Core(tmp_path) as core:
        yield core


def lines(core: Core, name: str = "main") -> list[dict[str, object]]:
    path = core.folder / "sessions" / "net" / "1" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def said(core: Core, name: str = "main") -> list[tuple[object, object]]:
    return [(line["role"], line["content"]) for line in lines(core, name) if "role" in line]


# ------------------------------------------------------------------------------------------------------------------------ the model fails


async def test_a_failure_is_told_in_one_sentence(core: Core) -> None:
    """What the backend says goes to the person; the next message is answered."""
    core.model.then(down("The model is down."))
    assert await core.ask("hi") == "The model is down."
    core.model.then("fine")
    assert await core.ask("again") == "fine"
    assert [outcome.failed for outcome in core.heard] == ["The model is down.", ""]


FAULTS = [OSError(5, "disk?"), TimeoutError(), ConnectionResetError(), RuntimeError("x"), KeyError("x"), asyncio.CancelledError()]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_an_adapter_that_breaks_is_not_taken_for_a_full_disk(core: Core, fault: BaseException) -> None:
    """Whatever comes out of a backend, a CancelledError that nobody aimed included: one sentence, and the queue goes on."""
    core.model.then(fault)
    await core.say("hi")
    await core.say("/undo")
    await core.say("next")
    await core.quiet()
    assert core.seen() == [BROKEN, "Taken back: your last message and its answer.", "Heard: next"]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_what_was_said_before_an_adapter_broke_is_kept(core: Core, fault: BaseException) -> None:
    """The words stand in the chat and in the session, with a note that they are not all."""
    core.model.then("so far", fault)
    assert (await core.ask("hi")).startswith("so far\n\n(Something went wrong")
    assert said(core)[-1] == ("assistant", "so far")
    assert lines(core)[1]["interrupted"] is True


async def test_a_request_that_is_too_long_for_the_model_is_tried_with_less(core: Core) -> None:
    """Twice with half the history; then the sentence, and nothing is lost of the session."""
    core.model.then(BackendError("Too long.", retryable=False, overflow=True))
    core.model.then("shorter it is")
    assert await core.ask("hi") == "shorter it is"
    for _ in range(3):
        core.model.then(BackendError("Too long.", retryable=False, overflow=True))
    assert (await core.ask("hi")).startswith("Too long.")
    assert len(core.model.asked) == 5


async def test_a_question_that_fits_in_no_window_ends_in_a_sentence(core: Core) -> None:
    """It is never asked, what comes behind it is answered after /undo, and nobody takes the model for down."""
    text = await core.ask("long " * 50_000)
    assert "shorter or in parts" in text
    assert core.model.asked == []
    watch = Watch(core.model)
    watch.heard(Outcome(text="fine"))
    watch.heard(core.heard[-1])
    assert watch.ready
    await core.ask("/undo")
    assert await core.ask("short") == "Heard: short"


# ------------------------------------------------------------------------------------------------------------------------------ /stop


async def test_stop_reaches_a_turn_that_waits_for_a_slot(tmp_path: Path) -> None:
    """With one slot, taken by another chat, /stop ends the waiting turn; the other one goes on, and the slot is free afterwards."""
    async with Core(tmp_path, slots=1) as core:
        go = asyncio.Event()
        core.model.then(go, "other")
        await core.say("a", chat="2")
        await core.running("2")
        await until(lambda: core.model.open == 1)
        await core.say("b")
        await until(lambda: core.runners.running("net:1"))
        assert core.runners.turns() == 1
        assert await core.ask("/stop") == "Stopped."
        await until(lambda: len(core.inbox.unfinished()) == 1)
        assert said(core) == [("user", "b"), ("assistant", "(stopped)")]
        go.set()
        await core.quiet()
        assert core.seen("2") == ["other"]
        assert await core.ask("c") == "Heard: c"


async def test_stop_with_nothing_to_stop_says_so(core: Core) -> None:
    """Before anything, after the turn ended and its answer is out, and while what a command says is on its way."""
    assert await core.ask("/stop") == "Nothing is running."
    await core.ask("hi")
    assert await core.ask("/stop") == "Nothing is running."
    core.net.fail("send", Retry(0.2))
    await core.say("/sessions")
    await until(lambda: core.outbox.waiting() == 1)
    await core.say("/stop")
    await core.quiet()
    assert core.seen()[-1] == "Nothing is running."
    assert "main" in core.seen()[-2]


async def test_a_stopped_turn_leaves_no_bot_that_thinks(core: Core) -> None:
    """Where the network shows that the bot thinks, a turn that is stopped before a word was said ends in a mark by its ticket."""
    await core.ask("a")
    core.model.then(asyncio.Event())
    await core.router.accept([core.inbound("/retry", ticket="ticket:t")])
    await core.running()
    await core.say("/stop")
    await core.quiet()
    assert [call.text for call in core.net.calls if call.reply_to == "ticket:t"] == ["(stopped)"]


async def test_stop_ends_one_turn_and_what_waits_goes_on(core: Core) -> None:
    """Said thrice in a row it still ends only the turn that ran when it came."""
    core.model.then("one", asyncio.Event())
    for text in ("a", "b", "c"):
        await core.say(text)
    await until(lambda: "one" in core.seen())
    await core.router.accept([core.inbound("/stop") for _ in range(3)])
    await core.quiet()
    assert "Heard: b" in core.seen()
    assert "Heard: c" in core.seen()
    assert "one\n\n(stopped)" in core.seen()


async def test_retry_after_stop_failure_and_undo(core: Core) -> None:
    """It asks the newest question that counts, as often as one likes, and only its last answer counts afterwards."""
    core.model.then(asyncio.Event())
    await core.say("a")
    await core.running()
    await core.ask("/stop")
    await core.quiet()
    assert await core.ask("/retry") == "Heard: a"
    core.model.then(down())
    assert await core.ask("/retry") == "The model is down."
    core.model.then("second try")
    assert await core.ask("/retry") == "second try"
    await core.ask("b")
    assert core.model.asked[-1] == [("user", "a"), ("assistant", "second try"), ("user", "b")]
    await core.ask("/undo")
    assert await core.ask("/retry") == "Heard: a"
    assert [await core.ask("/undo"), await core.ask("/undo"), await core.ask("/retry")] == [
        "Taken back: your last message and its answer.",
        "There is nothing to take back.",
        "There is nothing to ask again.",
    ]


# ------------------------------------------------------------------------------------------------------- commands around turns and lanes


async def test_reset_behind_waiting_inputs(core: Core) -> None:
    """The running turn is cut, what waited ahead of /reset is answered in the old session, what came behind it in the new one."""
    core.model.then("cut", asyncio.Event())
    for text in ("a", "b", "c"):
        await core.say(text)
    await until(lambda: "cut" in core.seen())
    await core.say("/reset")
    await core.say("d")
    await core.quiet()
    assert [content for role, content in said(core) if role == "user"] == ["a", "b", "c"]
    assert said(core, "chat-2") == [("user", "d"), ("assistant", "Heard: d")]
    assert core.model.asked[-1] == [("user", "d")]


@pytest.mark.parametrize("command", ["/forget yes", "/forget main yes"])
async def test_forget_while_its_last_answer_is_on_the_way(core: Core, command: str) -> None:
    """What was on its way still arrives, once; nothing of it is booked on the session that is made anew under the same name."""
    core.net.fail("send", Retry(0.3))
    await core.say("heron")
    await until(lambda: core.outbox.waiting() == 1)
    await core.say(command)
    await core.say("after")
    await core.quiet()
    assert core.seen()[0] == "Heard: heron"
    assert core.seen()[-1] == "Heard: after"
    assert [line["span"] for line in lines(core) if line.get("type") == "sent"] == [[0, len("Heard: after")]]
    assert core.sessions.cached[1] == 0


async def test_an_answer_that_waited_behind_a_forgotten_one_survives_a_restart(core: Core) -> None:
    """Cut between the two, the new answer is still delivered after the start: the old one's record does not stand for it."""
    core.net.fail("send", Retry(0.3))
    await core.say("heron")
    await until(lambda: core.outbox.waiting() == 1)
    await core.say("/forget yes")
    await core.say("owl")
    await until(lambda: core.outbox.waiting() == 3)
    core.net.judge = lambda call: HANG if call.text.startswith("All conv") else None
    await until(lambda: "Heard: heron" in core.seen() and core.outbox.waiting() == 2)
    core.net.judge = lambda call: None
    await core.restart()
    await core.quiet()
    assert core.seen()[-1] == "Heard: owl"


async def test_forget_while_a_turn_streams(core: Core) -> None:
    """The turn is cut, its words are deleted with the rest, and the chat goes on from nothing."""
    core.model.then("heron", asyncio.Event())
    await core.say("a")
    await until(lambda: "heron" in core.seen())
    await core.say("/forget yes")
    await core.say("b")
    await core.quiet()
    assert core.model.asked[-1] == [("user", "b")]
    assert [path for path in core.folder.rglob("*") if path.is_file() and b"heron" in path.read_bytes()] == []


async def test_fork_during_delivery_keeps_the_books_apart(core: Core) -> None:
    """The answer that is on its way when the fork is made is booked in the session that it belongs to, and delivered once."""
    core.net.fail("send", Retry(0.3))
    await core.say("one")
    await until(lambda: core.outbox.waiting() == 1)
    await core.say("/fork west")
    await core.say("two")
    await core.quiet()
    assert [core.seen()[0], core.seen()[-1]] == ["Heard: one", "Heard: two"]
    assert [line["of"] for line in lines(core) if line.get("type") == "sent"] == [2]
    assert [line["of"] for line in lines(core, "west") if line.get("type") == "sent"] == [4]


async def test_forget_of_the_current_session_and_of_a_parent(core: Core) -> None:
    """A fork lives on without its parent; after the current one is gone the chat goes on in what is left, then anew."""
    await core.ask("one")
    await core.ask("/fork west")
    await core.ask("two")
    assert await core.ask("/forget main yes") == "`main` is deleted."
    await core.ask("three")
    assert core.model.asked[-1][0] == ("user", "one")
    assert await core.ask("/switch west") == "You are now in `west`."
    assert await core.ask("/forget west yes") == "`west` is deleted."
    await core.ask("four")
    assert core.model.asked[-1] == [("user", "four")]
    assert await core.ask("/forget west yes") == "There is no session `west`. /sessions lists them."


async def test_an_old_button_does_what_it_says_as_often_as_it_is_pressed(core: Core) -> None:
    """A press is an input of its own: twice is twice, and one on a button of long ago is checked against what there is now."""
    await core.ask("one")
    await core.ask("/reset")
    for _ in range(2):
        await core.say("/switch main", button=True)
    await core.quiet()
    assert core.seen()[-2:] == ["You are now in `main`."] * 2
    await core.ask("/forget main yes")
    await core.say("/switch main", button=True)
    await core.quiet()
    assert core.seen()[-1] == "There is no session `main`. /sessions lists them."


# --------------------------------------------------------------------------------------------------------------------------- the disk


async def test_a_full_disk_is_told_and_passes(tmp_path: Path) -> None:
    """At the question's line or at the answer's: one sentence, and with room again the next message is answered."""
    store = Troubled()
    async with Core(tmp_path, store=lambda folder, writer: store) as core:
        for number in range(4):
            seen = [0]

            def fails(_: int, number: int = number, seen: list[int] = seen) -> OSError | None:
                seen[0] += 1
                return OSError(28, "no room") if seen[0] == number + 1 else None

            store.fails = fails
            before = len(core.seen())
            await core.say(f"q{number}")
            await core.quiet()
            assert core.seen()[before:][0] in {NOT_STORED, f"Heard: q{number}"} or "Heard: q" in core.seen()[-1]
            store.fails = lambda _: None
            assert await core.ask(f"after {number}") == core.seen()[-1]
            assert f"after {number}" in core.seen()[-1]
            assert core.inbox.unfinished() == []


async def test_a_log_that_somebody_else_wrote_to_is_read_again(tmp_path: Path) -> None:
    """The fence says no in the middle of a turn; the turn is run anew on what is there now, and the answer comes once."""
    store = Troubled()
    async with Core(tmp_path, store=lambda folder, writer: store) as core:
        await core.ask("one")
        go = asyncio.Event()
        core.model.then(go, "lost")
        await core.say("two")
        await core.running()
        last = (await store.tail(KEY, "main", 1)).last
        line = b'{"seq":%d,"at":"2026-01-01T00:00:00Z","for":"x","role":"user","content":"from elsewhere"}' % (last + 1)
        await store.append(KEY, "main", [line], last, last + 1)
        core.model.then("two it is")
        go.set()
        await core.quiet()
        assert core.seen()[-1] == "two it is"
        assert core.seen().count("two it is") == 1
        assert "from elsewhere" in str(core.model.asked[-1])


async def test_what_the_model_said_is_stored_though_an_append_failed_behind_its_back(tmp_path: Path) -> None:
    """The session has to be read again before the answer can be stored; the model is not asked a second time, and the answer comes once."""
    store = Troubled()
    async with Core(tmp_path, store=lambda folder, writer: store) as core:
        await core.ask("one")
        go = asyncio.Event()
        core.model.then(go, "two it is")
        await core.say("two")
        await core.running()
        store.fails = lambda _: OSError(28, "No space left on device")
        answer = (await core.sessions.glance(KEY, "main")).messages[1]
        with pytest.raises(OSError, match="No space"):
            await core.sessions.commit_sent(KEY, "main", answer.seq, (0, 1), ["9"])
        store.fails = lambda _: None
        go.set()
        await core.quiet()
        assert core.seen() == ["Heard: one", "two it is"]
        assert len(core.model.asked) == 2
        session = await core.sessions.view(KEY, "main")
        assert [message.content for message in session.messages] == ["one", "Heard: one", "two", "two it is"]


async def test_a_command_is_told_no_in_words_after_a_conflict_too(tmp_path: Path) -> None:
    """What a command raises on its second run is said like on its first."""
    store = Troubled()
    async with Core(tmp_path, store=lambda folder, writer: store) as core:
        await core.ask("one")
        last = (await store.tail(KEY, "main", 1)).last
        line = b'{"type":"undo","seq":%d,"at":"2026-01-01T00:00:00Z","for":"x","to":0}' % (last + 1)
        await store.append(KEY, "main", [line], last, last + 1)
        assert await core.ask("/undo") == "There is nothing to take back."


async def test_a_conflict_does_not_cost_the_rest_of_an_answer(tmp_path: Path) -> None:
    """Where a piece cannot be booked because somebody else wrote, the session is read again and the other pieces go out, each once."""
    store = Troubled()
    net = Core(tmp_path).net
    net.units = 10
    async with Core(tmp_path, net=net, store=lambda folder, writer: store) as core:
        core.model.then("0123456789abcdefghijKLMNOPQRST")
        net.fail("send", Retry(0.2))
        await core.say("x")
        await until(lambda: core.outbox.waiting() == 1)
        last = (await store.tail(KEY, "main", 1)).last
        line = b'{"seq":%d,"at":"2026-01-01T00:00:00Z","for":"x","role":"user","content":"from elsewhere"}' % (last + 1)
        await store.append(KEY, "main", [line], last, last + 1)
        await core.quiet()
        assert core.seen() == ["0123456789", "abcdefghij", "KLMNOPQRST"]


async def test_a_file_that_cannot_be_read_is_left_and_reset_leads_out(core: Core) -> None:
    """The person is told, the file keeps every byte, /reset starts another conversation."""
    folder = core.folder / "sessions" / "net" / "1"
    folder.mkdir(parents=True)
    (folder / "main.jsonl").write_bytes(b"no header\n")
    (folder / "_chat.jsonl").write_bytes(b'{"at":"2030-01-01T00:00:00Z","current":"main"}\n')
    assert await core.ask("hi") == UNREADABLE
    assert await core.ask("/undo") == UNREADABLE
    assert "new conversation" in await core.ask("/reset")
    assert await core.ask("hi") == "Heard: hi"
    assert (folder / "main.jsonl").read_bytes() == b"no header\n"


# ------------------------------------------------------------------------------------------------------------------------ ends and starts


@pytest.mark.parametrize("steps", range(0, 60, 3))
async def test_cut_after_any_number_of_steps_each_input_is_answered_once(tmp_path: Path, steps: int) -> None:
    """Stopped at any point of three inputs, two of them commands, and started again: everything happened once and is said."""
    core = Core(tmp_path)
    core.net.cut_lands = True  # a send that is cut on its way counts as sent (rule 13); here it did arrive
    await core.start()
    await core.router.accept([core.inbound("one"), core.inbound("/fork west"), core.inbound("two"), core.inbound("/undo")])
    for _ in range(steps):
        await asyncio.sleep(0.0002)
    await core.restart()
    await core.quiet()
    assert [text.split(",")[0] for text in core.seen() if text not in {"…", "·"}] == [
        "Heard: one",
        "You are now in `west`",
        "Heard: two",
        "Taken back: your last message and its answer.",
    ]
    assert [content for role, content in said(core)] == ["one", "Heard: one"]
    assert [content for role, content in said(core, "west")] == ["one", "Heard: one", "two", "Heard: two"]
    assert sum(line.get("type") == "undo" for line in lines(core, "west")) == 1
    await core.stop()


async def test_what_only_the_model_is_to_know_is_not_said_after_a_restart_either(tmp_path: Path) -> None:
    """Cut at any point after a /stop before the first word: nobody reads "(stopped)", and nothing is answered behind "Stopped."."""
    for steps in range(0, 40, 2):
        core = Core(tmp_path / str(steps))
        (tmp_path / str(steps)).mkdir()
        await core.start()
        core.model.then(asyncio.Event())
        await core.say("hi")
        await core.running()
        await core.say("/stop")
        for _ in range(steps):
            await asyncio.sleep(0.0001)
        await core.restart()
        await core.quiet()
        # Cut when all was on record but the word itself, /stop finds nothing to stop any more.
        assert {*core.seen()} <= {"Stopped.", "Nothing is running.", "…"}, steps
        assert [content for role, content in said(core)] == ["hi", "(stopped)"]
        await core.stop()


async def test_no_turn_begins_once_the_end_began(tmp_path: Path) -> None:
    """A runner that waited for room in a full lane begins nothing when there is room during the shutdown; what waits is kept."""
    core = Core(tmp_path, lane_limit=1)
    await core.start()
    core.net.fail("send", Retry(0.3))
    await core.say("/help")
    await until(lambda: core.outbox.waiting() == 1)
    await core.say("kept")
    await core.runners.settle(2)
    assert core.model.asked == []
    await core.restart()
    await core.quiet()
    assert core.seen()[-1] == "Heard: kept"
    await core.stop()


async def test_a_turn_cut_by_the_shutdown_goes_on_in_its_message(tmp_path: Path) -> None:
    """What was visible of it is edited, not sent anew; the model is asked again."""
    core = Core(tmp_path)
    await core.start()
    core.model.then("half of", asyncio.Event())
    await core.say("hi")
    await until(lambda: core.seen() == ["half of"])
    await core.stop()
    assert core.model.open == 0
    await core.start()
    await core.quiet()
    assert core.seen() == ["Heard: hi"]
    await core.stop()


async def test_a_delivery_that_waits_does_not_hold_the_end_up(tmp_path: Path) -> None:
    """A lane that the network told to wait for minutes is cut; its answer comes after the restart, once."""
    core = Core(tmp_path)
    await core.start()
    core.net.fail("send", Retry(300))
    await core.say("hi")
    await until(lambda: core.outbox.waiting() == 1)
    began = asyncio.get_running_loop().time()
    await core.stop()
    assert asyncio.get_running_loop().time() - began < 2
    core.net.forgive()
    await core.start()
    await core.quiet()
    assert core.seen() == ["Heard: hi"]
    await core.stop()


async def test_rules_hold_at_the_start_too(tmp_path: Path) -> None:
    """A command that was left by a member is refused after the restart as it would have been before."""
    core = Core(tmp_path, rules=Rules(direct="open", groups="open"))
    await core.start()
    core.model.then(asyncio.Event())
    await core.say("a", chat="-1", who="3", direct=False)
    await core.running("-1")
    await core.say("/reset", chat="-1", who="3", direct=False)
    await core.restart()
    await core.quiet()
    assert "In a group only its admins may do that." in core.seen("-1")
    assert "Heard: name of 3: a" in core.seen("-1")
    await core.stop()
