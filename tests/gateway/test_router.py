"""The front door: once only, in order, bounded, closed to strangers, and honest when the journal cannot be written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from channels.base import Denied, NotSent, Retry
from gateway.options import Access as Rules
from gateway.router import WELCOME
from gateway.work import NOT_STORED, UNREADABLE
from tests.gateway.core import Core, until
from tests.gateway.disk_tools import Disk, everything, nothing

FULL = Rules(direct="pairing", groups="allowlist", allow=("net:1",), allow_groups=("net:-100",), admins=("net:9",))


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    async with Core(tmp_path) as core:
        yield core


# ------------------------------------------------------------------------------------------------------------------------- once only


async def test_a_message_is_answered_once_however_often_it_comes(core: Core) -> None:
    """Repeats in one batch, in concurrent batches and long afterwards are recognised."""
    message = core.inbound("hi")
    await core.router.accept([message, message])
    await asyncio.gather(*(core.router.accept([message]) for _ in range(20)))
    await core.quiet()
    await core.router.accept([message])
    await core.quiet()
    assert core.seen() == ["Heard: hi"]
    assert core.metrics.inputs.values["net", "duplicate"] == 22


async def test_a_repeat_is_confirmed_only_when_the_first_is_written(tmp_path: Path) -> None:
    """A repeat that comes while the first one is on its way to the disk is not confirmed ahead of it."""
    disk = Disk()
    async with Core(tmp_path, writer=lambda: disk) as core:
        disk.gate = gate = asyncio.Event()
        message = core.inbound("hi")
        first = asyncio.create_task(core.router.accept([message]))
        await asyncio.sleep(0)
        second = asyncio.create_task(core.router.accept([message]))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not first.done()
        assert not second.done()
        gate.set()
        await asyncio.gather(first, second)
        await core.quiet()
        assert core.seen() == ["Heard: hi"]


async def test_a_failed_accept_is_as_if_it_had_never_come(tmp_path: Path) -> None:
    """With a full disk nothing is confirmed, the repeat counts, is answered once and uses up no place in the queue."""
    disk = Disk()
    async with Core(tmp_path, writer=lambda: disk, waiting=2) as core:
        disk.refuses = everything
        message = core.inbound("hi")
        for _ in range(5):
            with pytest.raises(OSError, match="no room"):
                await core.router.accept([message])
        disk.refuses = nothing
        await core.router.accept([message])
        await core.quiet()
        assert core.seen() == ["Heard: hi"]


async def test_only_the_journal_is_full(tmp_path: Path) -> None:
    """A question begins beside its acceptance. Where that fails the model is not asked and nobody is told anything; when the network brings
    it again it is answered once, and stands once in the conversation, also behind what had gone before."""
    disk = Disk()
    async with Core(tmp_path, writer=lambda: disk) as core:
        await core.say("before")
        await core.quiet()
        disk.refuses = lambda data: data.startswith((b'{"type":"accepted"', b'{"type":"started"'))
        message = core.inbound("hi")
        for _ in range(3):
            with pytest.raises(OSError, match="no room"):
                await core.router.accept([message])
            await core.quiet()
        disk.refuses = lambda data: data.startswith(b'{"type":"accepted"')
        with pytest.raises(OSError, match="no room"):
            await core.router.accept([message])
        await core.quiet()
        assert (core.seen(), len(core.model.asked)) == (["Heard: before"], 1)
        disk.refuses = nothing
        await core.router.accept([message])
        await core.quiet()
        assert core.seen() == ["Heard: before", "Heard: hi"]
        assert [said for _, said in core.model.asked[-1]] == ["before", "Heard: before", "hi"]


async def test_what_waits_behind_a_turn_and_was_not_accepted_is_dropped(tmp_path: Path) -> None:
    """It stands in the queue already when its acceptance fails; the network brings it again, and it is answered then."""
    disk = Disk()
    async with Core(tmp_path, writer=lambda: disk) as core:
        over = asyncio.Event()
        core.model.then(over, "Heard: first")
        await core.say("first")
        await until(lambda: core.model.open == 1)
        disk.refuses = everything
        message = core.inbound("second")
        with pytest.raises(OSError, match="no room"):
            await core.router.accept([message])
        disk.refuses = nothing
        over.set()
        await core.quiet()
        assert core.seen() == ["Heard: first"]
        await core.router.accept([message])
        await core.quiet()
        assert core.seen() == ["Heard: first", "Heard: second"]


async def test_what_was_not_accepted_takes_up_no_place_in_the_queue(tmp_path: Path) -> None:
    """However often it comes while the disk is full and a turn runs, or while all slots are taken: then it is taken, and answered once."""
    disk = Disk()
    async with Core(tmp_path, writer=lambda: disk, waiting=1, slots=1) as core:
        over = asyncio.Event()
        core.model.then(over, "Heard: first")
        await core.say("first")
        await until(lambda: core.model.open == 1)
        for chat in ("1", "2"):
            disk.refuses = everything
            message = core.inbound("second", chat=chat)
            for _ in range(3):
                with pytest.raises(OSError, match="no room"):
                    await core.router.accept([message])
            assert core.runners.waiting(f"net:{chat}") == 0
            disk.refuses = nothing
            await core.router.accept([message])
        assert core.refused == {}
        over.set()
        await core.quiet()
        assert (core.seen("1"), core.seen("2")) == (["Heard: first", "Heard: second"], ["Heard: second"])


def _begins(lines: tuple[bytes, ...], data: bytes) -> bool:
    return data.startswith(lines)


async def test_what_was_not_accepted_leaves_no_words_in_the_conversation(tmp_path: Path) -> None:
    """Its line may have been written beside its acceptance, which failed: it is taken back, and the next is not asked beside it. Where it
    comes again with other words, edited meanwhile, it is these that are asked. Also where it could not be taken back at once."""
    disk = Disk()
    async with Core(tmp_path, writer=lambda: disk) as core:
        await core.ask("before")
        for undone in (True, False):
            lines = (b'{"type":"accepted"', b'{"type":"started"' if undone else b'{"type":"undo"')
            disk.refuses = partial(_begins, lines)
            message = core.inbound("teh words")
            with pytest.raises(OSError, match="no room"):
                await core.router.accept([message])
            await until(lambda: not core.runners.running("net:1"))
            disk.refuses = nothing
            if undone:
                await core.ask("between")
            await core.router.accept([message, core.inbound("the words", input_id=message.id, edit=True)])
            await core.quiet()
        turn = ["the words", "Heard: the words"]
        assert core.seen() == ["Heard: before", "Heard: between", turn[1], turn[1]]
        assert [said for _, said in core.model.asked[-1]] == ["before", "Heard: before", "between", "Heard: between", *turn, "the words"]


async def test_nothing_is_said_of_what_was_not_accepted(tmp_path: Path) -> None:
    """Also where there was something to say before it was known: the network brings it again, and then it is said, once."""
    disk = Disk()
    async with Core(tmp_path, writer=lambda: disk) as core:
        await core.ask("before")
        disk.refuses = lambda data: b'"role":"assistant"' in data
        assert await core.ask("more") == NOT_STORED  # from here on the conversation is read anew
        (file,) = (tmp_path / "sessions").rglob("main.jsonl")
        file.write_bytes(b"no session\n")
        disk.refuses = everything
        message = core.inbound("hi")
        with pytest.raises(OSError, match="no room"):
            await core.router.accept([message])
        await until(lambda: not core.runners.running("net:1"))
        disk.refuses = nothing
        await core.router.accept([message])
        await core.quiet()
        assert core.seen()[2:] == [UNREADABLE]


async def test_a_text_that_cannot_be_written_leaves_nothing_behind(core: Core) -> None:
    """A lone surrogate, which no channel lets through, fails its batch as a whole: nothing of it counts as seen or waiting."""
    good = core.inbound("good")
    for _ in range(60):
        with pytest.raises(UnicodeEncodeError):
            await core.router.accept([good, core.inbound("\ud800")])
    await core.router.accept([good])
    await core.quiet()
    assert core.seen() == ["Heard: good"]


async def test_a_caller_that_is_cut_loses_nothing(core: Core) -> None:
    """Cancelling the one who waits for `accept` does not take back what is being written."""
    message = core.inbound("hi")
    task = asyncio.create_task(core.router.accept([message]))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await until(lambda: core.seen() == ["Heard: hi"])


async def test_the_order_of_the_calls_is_the_order_of_the_answers(core: Core) -> None:
    """Batches that are accepted concurrently keep the order in which they were handed in."""
    await asyncio.gather(*(core.router.accept([core.inbound(f"n{n}")]) for n in range(20)))
    await core.quiet()
    assert core.seen() == [f"Heard: n{n}" for n in range(20)]


# ------------------------------------------------------------------------------------------------------------------------------ edits


async def test_an_edit_counts_while_its_message_waits(core: Core) -> None:
    """Also where both come in one batch; not any more when the turn has begun or is over, and nothing is said twice."""
    go = asyncio.Event()
    core.model.then("first", go)
    running, waiting = core.inbound("a"), core.inbound("b")
    await core.router.accept([running, waiting])
    await core.running()
    both = core.inbound("c")
    await core.router.accept(
        [
            core.inbound("A", input_id=running.id, edit=True),
            core.inbound("B", input_id=waiting.id, edit=True),
            both,
            core.inbound("C", input_id=both.id, edit=True),
            core.inbound("CC", input_id=both.id, edit=True),
        ]
    )
    go.set()
    await core.quiet()
    await core.router.accept([core.inbound("later", input_id=both.id, edit=True), core.inbound("of nothing", input_id="net:?", edit=True)])
    assert core.seen() == ["first", "Heard: B", "Heard: CC"]
    assert core.model.asked[-1][0] == ("user", "a")


@pytest.mark.parametrize("apart", [True, False])
async def test_an_edit_never_makes_or_changes_a_command(core: Core, apart: bool) -> None:
    """Words do not become a command, a command does not become words or another command, nothing becomes nothing."""
    go = asyncio.Event()
    core.model.then("first", go)
    await core.say("a")
    await core.running()
    words, command, blank = core.inbound("words"), core.inbound("/fork west"), core.inbound("kept")
    edits = [
        core.inbound("/forget yes", input_id=words.id, edit=True),
        core.inbound("/forget yes", input_id=command.id, edit=True),
        core.inbound("x", input_id=command.id, edit=True),
        core.inbound(" ", input_id=blank.id, edit=True),
    ]
    if apart:
        await core.router.accept([words, command, blank])
        await core.router.accept(edits)
    else:
        await core.router.accept([words, command, blank, *edits])
    go.set()
    await core.quiet()
    assert [text.split(",")[0] for text in core.seen()] == ["first", "Heard: words", "You are now in `west`", "Heard: kept"]


# ------------------------------------------------------------------------------------------------------------------------- bounded


async def test_what_is_too_much_is_refused_aloud(tmp_path: Path) -> None:
    """As many as configured wait behind the running one; of further ones that is said once, and once more when some were taken since; what
    waited is answered, in order."""
    async with Core(tmp_path, waiting=3) as core:
        go = asyncio.Event()
        core.model.then(go, "slow")
        await core.say("slow one")
        await core.running()
        for n in range(5):
            await core.say(f"n{n}")
        await core.router.accept([core.inbound(f"batch {n}") for n in range(5)])
        go.set()
        await core.quiet()
        assert sorted(core.seen())[-4:] == ["Heard: n0", "Heard: n1", "Heard: n2", "slow"]
        assert core.refused == {"waiting": 7}
        assert sum("not taken" in text for text in core.seen()) == 1
        assert await core.ask("again") == "Heard: again"
        await core.router.accept([core.inbound(f"batch {n}") for n in range(20)])
        await core.quiet()
        assert sum("not taken" in text for text in core.seen()) == 2


async def test_a_batch_alone_does_not_pass_the_bound(tmp_path: Path) -> None:
    """Thousands that come at once are counted as they come, not when they are written."""
    async with Core(tmp_path, waiting=10) as core:
        await core.router.accept([core.inbound(f"n{n}") for n in range(3000)])
        await core.quiet(20)
        assert len(core.model.asked) == 10
        assert core.refused["waiting"] + core.refused.get("lane", 0) == 2990
        assert len(core.runners) == 0


async def test_a_flood_fills_no_memory_with_answers(tmp_path: Path) -> None:
    """While a network makes us wait, what is answered past the queue ends in silence once the lane is full: commands, questions that are
    refused, what cannot be read. A turn can be stopped all the same."""
    async with Core(tmp_path, lane_limit=5, waiting=5) as core:
        core.model.then(asyncio.Event())
        await core.say("hang")
        await core.running()
        core.net.fail("send", Retry(1000))
        for n in range(100):
            await core.say("/help")
            await core.say(f"q{n}")
            await core.say("/unknown")
            await core.router.accept([core.inbound("", unsupported="a sticker")])
            await asyncio.sleep(0)
        await until(lambda: core.outbox.waiting() >= 5)
        assert core.outbox.waiting() < 20
        assert len(core.inbox.unfinished()) < 30
        assert core.refused["lane"] > 200
        await core.say("/stop")
        await until(lambda: core.model.open == 0)
        for _ in range(50):
            await core.say("/stop")
        assert core.outbox.waiting() < 25


async def test_many_chats_leave_nothing_behind(tmp_path: Path) -> None:
    """When everybody has their answer, there is no queue, lock, lane or task left of any of them."""
    async with Core(tmp_path) as core:
        tasks = asyncio.all_tasks()
        for start in range(0, 500, 100):
            await core.router.accept([core.inbound("hi", chat=str(n)) for n in range(start, start + 100)])
            await core.router.accept([core.inbound("/status", chat=str(n)) for n in range(start, start + 100)])
        await core.quiet(30)
        await until(lambda: len(core.outbox) == 0)
        assert (len(core.runners), core.sessions.keys_held, core.router.busy) == (0, 0, 0)
        assert asyncio.all_tasks() == tasks


# --------------------------------------------------------------------------------------------------------------------------- access


KINDS = ["hello", "/help", "/stop", "/forget yes", "/approve ABCDEFGH", "/nothing"]


@pytest.mark.parametrize("text", KINDS)
async def test_a_stranger_gets_a_code_and_nothing_else(tmp_path: Path, text: str) -> None:
    """Whatever a stranger sends, as words, button, edit or what cannot be read: one code an hour; the model and the sessions never hear."""
    async with Core(tmp_path, rules=FULL) as core:
        for button in (False, True):
            await core.say(text, chat="5", who="5", button=button)
        await core.router.accept([core.inbound(text, chat="5", who="5", edit=True)])
        await core.router.accept([core.inbound("", chat="5", who="5", unsupported="a sticker")])
        await core.quiet()
        (said,) = core.seen("5")
        assert "Show them this code" in said
        assert core.model.asked == []
        assert not (tmp_path / "sessions" / "net").exists()


async def test_a_group_that_is_not_allowed_hears_nothing(tmp_path: Path) -> None:
    """Nobody brings the bot to speak there, the daemon's admins included; nothing is even recorded."""
    async with Core(tmp_path, rules=FULL) as core:
        for who in ("1", "5", "9"):
            for text in KINDS:
                await core.say(text, chat="-200", who=who, direct=False)
        assert core.seen("-200") == []
        assert core.inbox.unfinished() == []
        assert core.refused == {"group": 18}


async def test_who_comes_with_a_ticket_hears_why_not(tmp_path: Path) -> None:
    """C22: where the network shows that the bot thinks, a refusal is a sentence that names the reason, by the ticket; nothing is run."""
    rules = Rules(direct="allowlist", groups="allowlist", allow=("net:1",))
    async with Core(tmp_path, rules=rules) as core:
        for n in range(2):
            await core.router.accept([core.inbound("/status", chat="5", who="5", ticket=f"ticket:{n}")])
            await core.router.accept([core.inbound("/status", chat="-200", who="1", direct=False, group="77", ticket=f"ticket:g{n}")])
        await core.router.accept([core.inbound("/nothing", chat="1", who="1", ticket="ticket:x")])
        await core.router.accept([core.inbound("/status", chat="1", who="1", ticket="ticket:y")])
        await core.quiet()
        assert core.seen("5") == ["I talk only to people whom my operator has let in, and you are not among them."] * 2
        assert all("`net:77`" in said and "allow_groups" in said for said in core.seen("-200"))
        assert len(core.seen("-200")) == 2
        assert core.seen("1")[0] == "There is no command /nothing. /help lists what there is."
        assert "Session: none yet" in core.seen("1")[1]
        assert {call.reply_to for call in core.net.calls if call.op == "send"} == {
            *("ticket:0", "ticket:1", "ticket:g0", "ticket:g1", "ticket:x", "ticket:y")
        }
        assert core.model.asked == []


async def test_a_crowd_of_strangers_ends_in_silence(tmp_path: Path) -> None:
    """Ten thousand strangers get a hundred codes; files and memory do not grow with the rest."""
    async with Core(tmp_path, rules=FULL) as core:
        for start in range(1000, 11000, 500):
            await core.router.accept([core.inbound("hi", chat=str(n), who=str(n)) for n in range(start, start + 500)])
        await core.quiet(20)
        assert sum(len(core.seen(str(n))) for n in range(1000, 11000)) == 100
        assert core.refused == {"pairing": 100, "stranger": 9900}
        await core.writer.flush()
        assert len((tmp_path / "access.jsonl").read_bytes().splitlines()) == 100
        assert (tmp_path / "journal" / "000001.jsonl").stat().st_size < 100_000


async def test_a_code_that_could_not_be_shown_uses_up_no_hour(tmp_path: Path) -> None:
    """With a full disk the stranger hears nothing; the network's repeat gets a code that lets them in."""
    disk = Disk()
    async with Core(tmp_path, writer=lambda: disk, rules=FULL) as core:
        stranger = core.inbound("hi", chat="5", who="5")
        disk.refuses = everything
        with pytest.raises(OSError, match="no room"):
            await core.router.accept([stranger])
        disk.refuses = nothing
        await core.router.accept([stranger])
        await core.quiet()
        (said,) = core.seen("5")
        assert "may talk" in await core.ask(f"/approve {said.split('`')[1]}", chat="9", who="9")
        assert await core.ask("hi", chat="5", who="5") == "Heard: hi"


async def test_only_admins_of_the_daemon_approve(tmp_path: Path) -> None:
    """To everybody else there is no such command; a person who was let in may speak at once."""
    async with Core(tmp_path, rules=FULL) as core:
        await core.say("hi", chat="5", who="5")
        await core.quiet()
        code = core.seen("5")[0].split("`")[1]
        assert await core.ask(f"/approve {code}", who="1") == "There is no command /approve. /help lists what there is."
        assert "may talk" in await core.ask(f"/approve {code}", chat="9", who="9")
        assert await core.ask("hi again", chat="5", who="5") == "Heard: hi again"


async def test_a_person_who_was_let_in_is_told_so_once(tmp_path: Path) -> None:
    """Where they were shown the code, by whomever they are let in, on record: not lost with the process, and not said again when the
    approval is repeated after a crash."""
    async with Core(tmp_path, rules=FULL) as core:
        await core.say("hi", chat="55", who="5")
        await core.quiet()
        code = core.seen("55")[0].split("`")[1]
        core.net.judge = lambda call: NotSent("the network is away") if call.address.chat == "55" else None
        assert await core.access.approve(code, by="operator") == "net:5"
        await core.restart()
        assert await core.access.approve(code, by="operator") == "net:5"
        core.net.judge = lambda call: None
        await core.quiet()
        assert core.seen("55")[1:] == [WELCOME]
        assert await core.ask("hi again", chat="55", who="5") == "Heard: hi again"


@pytest.mark.parametrize("text", ["/reset", "/new", "/forget yes", "/forget", "/switch main", "/undo", "/fork x"])
async def test_a_group_is_steered_by_its_admins(tmp_path: Path, text: str) -> None:
    """Everybody else is told so, and the running turn is not cut, whether they write or press somebody's button."""
    async with Core(tmp_path, rules=FULL) as core:
        core.net.admins = {"2"}
        go = asyncio.Event()
        core.model.then("so far", go, " and on")
        await core.say("tell", chat="-100", who="3", direct=False)
        await core.running("-100")
        await core.say(text, chat="-100", who="3", direct=False)
        await core.say(text, chat="-100", who="4", direct=False, button=True)
        await until(lambda: core.net.admin_questions == 2 or text not in {"/reset", "/new", "/forget yes"})
        go.set()
        await core.quiet()
        assert core.seen("-100").count("In a group only its admins may do that.") == 2
        assert "so far and on" in core.seen("-100")
        await core.say(text, chat="-100", who="2", direct=False)
        await core.quiet()
        assert core.seen("-100").count("In a group only its admins may do that.") == 2


async def test_a_network_that_does_not_say_who_is_admin_means_no(tmp_path: Path) -> None:
    """What is unknown is a no, for the command and for the running turn."""
    async with Core(tmp_path, rules=FULL) as core:
        core.net.silent = Denied("who are you")
        await core.ask("one", chat="-100", who="2", direct=False)
        assert await core.ask("/reset", chat="-100", who="2", direct=False) == "In a group only its admins may do that."
        assert "new conversation" in await core.ask("/reset", chat="-100", who="9", direct=False)


async def test_a_group_scoped_by_person_keeps_people_apart(tmp_path: Path) -> None:
    """Each member has a conversation, and one's /stop or /reset does not touch another's turn."""
    async with Core(tmp_path, rules=FULL, scope="user") as core:
        core.net.admins = {"2", "3"}
        go = asyncio.Event()
        core.model.then("for two", go)
        await core.say("a", chat="-100", who="2", direct=False)
        await until(lambda: core.seen("-100") == ["for two"])
        assert await core.ask("/stop", chat="-100", who="3", direct=False) == "Nothing is running."
        await core.say("/reset", chat="-100", who="3", direct=False)
        go.set()
        await core.quiet()
        assert "for two" in core.seen("-100")


async def test_the_quota_of_a_day_is_kept(tmp_path: Path) -> None:
    """What is over it is refused aloud, /retry included; commands stay free; a batch cannot pass it."""
    async with Core(tmp_path, turns_per_day=2) as core:
        await core.router.accept([core.inbound("a"), core.inbound("/help"), core.inbound("b"), core.inbound("c")])
        await core.quiet()
        await core.say("/retry")
        await core.quiet()
        assert len(core.model.asked) == 2
        assert sum("today's 2 answers" in text for text in core.seen()) == 2
        assert "Session" in await core.ask("/status")


# ------------------------------------------------------------------------------------------------------------------------ age, shutdown


async def test_what_is_too_old_is_told_once(tmp_path: Path) -> None:
    """Old messages are not answered; their chat hears of it once, the others hear nothing of it."""
    async with Core(tmp_path, clock=lambda: 1_800_000_000.0) as core:
        core.net.backlog = 60.0
        await core.router.accept([core.inbound(f"n{n}", sent_at=1_799_999_000.0) for n in range(3)])
        await core.router.accept([core.inbound("fresh", sent_at=1_799_999_990.0), core.inbound("undated")])
        await core.quiet()
        assert [text.split()[0] for text in core.seen()] == ["Messages", "Heard:", "Heard:"]


async def test_what_comes_while_it_ends_is_on_record(tmp_path: Path) -> None:
    """What is accepted after the queues and the router were closed starts nothing, and is answered after the restart."""
    core = Core(tmp_path)
    await core.start()
    await core.router.settle(0)
    await core.runners.settle(0)
    await core.runners.close()
    await core.router.close()
    await core.say("late")
    await core.say("/help")
    assert core.router.busy == 0
    await core.restart()
    await core.quiet()
    assert sorted(text[:11] for text in core.seen()) == ["Heard: late", "Write to me"]
    await core.stop()
