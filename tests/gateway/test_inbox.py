"""The inbox: what is accepted is kept until it is finished, through every kind of end of the process."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from channels.base import Address, Attachment, Button, Inbound, Sender
from gateway.errors import StartError
from gateway.inbox import Entry, Inbox, Input, Pending, ReplyText
from gateway.writer import Writer
from tests.gateway.disk_tools import file_limit, fill, small_disk

START = 20_000 * 86400.0 + 36_000
KEY = "telegram:1"


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@asynccontextmanager
async def opened(tmp_path: Path, clock: Clock, rotate: int = 3000) -> AsyncIterator[tuple[Inbox, list[Pending]]]:
    writer = Writer()
    inbox = Inbox(tmp_path / "journal", writer, clock=clock, rotate_bytes=rotate)
    left = await inbox.open()
    yield inbox, left
    await inbox.close()
    await writer.close()


def entry(n: int, text: str = "", *, key: str = KEY, sender: str = "42", refused: str = "", reply: str = "", at: float = START) -> Entry:
    inbound = Inbound(
        f"t:{n}",
        Address("telegram", key.rpartition(":")[2]),
        Sender(sender, f"Name{sender}"),
        text or f"words {n}",
        quote=f"quoted {n}",
        attachments=(Attachment("photo", f"ref {n}", name=f"file {n}"),),
        ticket=f"ticket {n}",
    )
    return Entry(Input(inbound, key, at), refused=refused, reply=ReplyText(reply) if reply else None, turn=not text.startswith("/"))


def ids(pendings: list[Pending]) -> list[str]:
    return [pending.input.inbound.id for pending in pendings]


def journal(tmp_path: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((tmp_path / "journal").glob("*.jsonl")))


class TestPut:
    async def test_order(self, tmp_path: Path, clock: Clock) -> None:
        """Inputs are numbered in the order of the calls, over batches and starts."""
        async with opened(tmp_path, clock) as (inbox, left):
            assert left == []
            first, second = inbox.put([entry(1), entry(2)]), inbox.put([entry(3)])
            assert [[pending.n for pending in await future] for future in (first, second)] == [[1, 2], [3]]
            assert ids(inbox.unfinished()) == ["t:1", "t:2", "t:3"]
        async with opened(tmp_path, clock) as (inbox, left):
            assert ids(left) == ["t:1", "t:2", "t:3"]
            assert [pending.n for pending in await inbox.put([entry(4)])] == [4]

    async def test_done_means_on_record(self, tmp_path: Path, clock: Clock) -> None:
        """When the future is done, a kill loses nothing of it."""
        async with opened(tmp_path, clock) as (inbox, _):
            await inbox.put([entry(1), entry(2, "/help")])
            assert journal(tmp_path).count(b'{"type":"accepted"') == 2

    async def test_a_batch_is_one_write(self, tmp_path: Path, clock: Clock) -> None:
        """A batch that does not fit is not there at all: no part of it is waiting, no part of it is confirmed."""
        async with opened(tmp_path, clock, rotate=10**9) as (inbox, _):
            with file_limit(4096), pytest.raises(OSError, match="too large"):
                await inbox.put([entry(n) for n in range(100)])
            assert inbox.unfinished() == []
            assert journal(tmp_path) == b""

    async def test_seen(self, tmp_path: Path, clock: Clock) -> None:
        """An input is seen from the call of `put` on, while it waits, after it is finished, and after a start."""
        async with opened(tmp_path, clock) as (inbox, _):
            assert not inbox.seen("t:1")
            written = inbox.put([entry(1), entry(2, refused="waiting")])
            assert inbox.seen("t:1")
            await written
            assert (inbox.seen("t:1"), inbox.seen("t:2"), inbox.seen("t:3")) == (True, True, False)
            await inbox.finished("t:1")
            assert inbox.seen("t:1")
        async with opened(tmp_path, clock) as (inbox, _):
            assert (inbox.seen("t:1"), inbox.seen("t:2"), inbox.seen("t:3")) == (True, True, False)

    async def test_the_same_input_again(self, tmp_path: Path, clock: Clock) -> None:
        """However often the network delivers it, in one batch, at the same time, later or after a start, an input is taken once."""
        async with opened(tmp_path, clock) as (inbox, _):
            futures = [inbox.put([entry(1), entry(1)]), inbox.put([entry(1), entry(2)])]
            assert [ids(await future) for future in futures] == [["t:1"], ["t:2"]]
            assert await inbox.put([entry(1)]) == []
            await inbox.finished("t:1")
            assert await inbox.put([entry(1)]) == []
            assert ids(inbox.unfinished()) == ["t:2"]
        async with opened(tmp_path, clock) as (inbox, left):
            assert ids(left) == ["t:2"]
            assert await inbox.put([entry(1), entry(2)]) == []
        assert journal(tmp_path).count(b'"accepted"') == 2

    async def test_remembered_for_two_days(self, tmp_path: Path, clock: Clock) -> None:
        """An input is known for 48 hours at least, and its words are gone from the disk some time afterwards."""
        async with opened(tmp_path, clock) as (inbox, _):
            await inbox.put([entry(1)])
            await inbox.finished("t:1")
            clock.now += 47.9 * 3600
            await inbox.put([entry(2)])
            assert inbox.seen("t:1")
        async with opened(tmp_path, clock) as (inbox, _):
            assert inbox.seen("t:1")
            clock.now += 5 * 86400
            await inbox.put([entry(3)])
        async with opened(tmp_path, clock) as (inbox, _):
            assert b"words 1" not in journal(tmp_path)
            assert inbox.seen("t:2")

    async def test_refused(self, tmp_path: Path, clock: Clock) -> None:
        """What is refused is on record without its words; where something is said it waits for that, else it is over at once."""
        async with opened(tmp_path, clock) as (inbox, _):
            told, silent = entry(1, "secret", refused="waiting", reply="Later, please."), entry(2, "secret", refused="access")
            (pending,) = await inbox.put([told, silent])
            assert (pending.input.inbound.id, pending.text, pending.reply) == ("t:1", "", ReplyText("Later, please."))
            assert ids(inbox.unfinished()) == ["t:1"]
        for word in (b"secret", b"quoted", b"ref "):
            assert word not in journal(tmp_path)
        async with opened(tmp_path, clock) as (inbox, left):
            assert [(pending.input.inbound.id, pending.reply) for pending in left] == [("t:1", ReplyText("Later, please."))]
            assert inbox.seen("t:2")

    async def test_a_failed_accept_forgets(self, tmp_path: Path, clock: Clock) -> None:
        """On a full disk nothing is accepted, seen, counted or waiting; the network's repeat is taken once there is room."""
        with small_disk(tmp_path / "disk", 256 * 1024) as disk:
            async with opened(disk, clock, rotate=10**9) as (inbox, _):
                await inbox.put([entry(1)])
                ballast = fill(disk)
                for _ in range(2):
                    with pytest.raises(OSError, match="No space"):
                        await inbox.put([entry(2, "x" * 9000)])
                    assert not inbox.seen("t:2")
                    assert inbox.pending("t:2") is None
                    assert inbox.turns_today("telegram", "42") == 1
                with pytest.raises(OSError, match="No space"):
                    await inbox.reply("t:1", ReplyText("x" * 9000))
                ballast.unlink()
                assert ids(await inbox.put([entry(2, "x" * 9000)])) == ["t:2"]
            async with opened(disk, clock) as (_, left):
                assert [(pending.input.inbound.id, pending.reply) for pending in left] == [("t:1", None), ("t:2", None)]


class TestMarks:
    async def test_everything_comes_back(self, tmp_path: Path, clock: Clock) -> None:
        """All that was marked of an unfinished input is there after a start, as it was."""
        async with opened(tmp_path, clock) as (inbox, _):
            await inbox.put([entry(1), entry(2), entry(3, "/help")])
            amended = inbox.amend("t:1", "better words")
            assert amended is not None
            await amended
            await inbox.started("t:1", "main", 7)
            await inbox.started("t:1", "main", 9)
            await inbox.placed("t:1", 0, "5571")
            await inbox.placed("t:1", 1, "5572")
            await inbox.placed("t:1", 1, "5573")
            await inbox.reply("t:3", ReplyText("Help!", (Button("Go", "/go"),)))
            await inbox.sent("t:3", (0, 3), ["1"])
            await inbox.sent("t:3", (3, 5), [], True)
            before = inbox.unfinished()
        async with opened(tmp_path, clock) as (inbox, left):
            assert left == before
            one, two, three = left
            assert (one.text, one.session, one.last_seq, one.attempts, one.placed) == ("better words", "main", 9, 1, {0: "5571", 1: "5573"})
            assert one.input.inbound.text == "words 1"
            assert (two.text, two.attempts, two.reply, two.placed) == ("words 2", 0, None, {})
            assert (three.reply, three.sent_to) == (ReplyText("Help!", (Button("Go", "/go"),)), 5)
            assert inbox.pending("t:1") is one

    async def test_another_reply_begins_at_its_beginning(self, tmp_path: Path, clock: Clock) -> None:
        """What was sent of one text says nothing about the text that takes its place."""
        async with opened(tmp_path, clock) as (inbox, _):
            await inbox.put([entry(1)])
            await inbox.reply("t:1", ReplyText("I could not store it."))
            await inbox.sent("t:1", (0, 21), ["9"])
            await inbox.reply("t:1", ReplyText("Done."))
        async with opened(tmp_path, clock) as (_, left):
            assert (left[0].reply, left[0].sent_to) == (ReplyText("Done."), 0)

    async def test_finished(self, tmp_path: Path, clock: Clock) -> None:
        """A finished input is gone, here and after a start; finishing it again, at once or later, is one record."""
        async with opened(tmp_path, clock) as (inbox, _):
            await inbox.put([entry(1), entry(2)])
            await asyncio.gather(inbox.finished("t:1"), inbox.finished("t:1", "gone"))
            await inbox.finished("t:1")
            assert inbox.pending("t:1") is None
            assert ids(inbox.unfinished()) == ["t:2"]
        assert journal(tmp_path).count(b'"finished"') == 1
        async with opened(tmp_path, clock) as (_, left):
            assert ids(left) == ["t:2"]

    async def test_finishing_that_fails(self, tmp_path: Path, clock: Clock) -> None:
        """An end that could not be written is none: the input is still there, and may be finished again."""
        async with opened(tmp_path, clock, rotate=10**9) as (inbox, _):
            await inbox.put([entry(1)])
            with file_limit(len(journal(tmp_path)) + 10), pytest.raises(OSError, match="too large"):
                await inbox.finished("t:1")
            assert inbox.pending("t:1") is not None
            await inbox.finished("t:1")
            assert inbox.pending("t:1") is None
        async with opened(tmp_path, clock) as (_, left):
            assert left == []

    async def test_marks_on_what_is_over(self, tmp_path: Path, clock: Clock) -> None:
        """Marks on an input that is finished or was never accepted are done at once, and leave nothing on record."""
        async with opened(tmp_path, clock) as (inbox, _):
            await inbox.put([entry(1)])
            await inbox.finished("t:1")
            before = journal(tmp_path)
            for input_id in ("t:1", "t:99"):
                await inbox.started(input_id, "main", 1)
                await inbox.placed(input_id, 0, "1")
                await inbox.reply(input_id, ReplyText("x"))
                await inbox.sent(input_id, (0, 1), ["1"])
                await inbox.finished(input_id)
                assert inbox.amend(input_id, "x") is None
            assert journal(tmp_path) == before
            assert inbox.unfinished() == []

    @pytest.mark.parametrize("how", ["started", "reply", "finished"])
    async def test_amending_too_late(self, tmp_path: Path, clock: Clock, how: str) -> None:
        """From the moment that an input begins, is answered or ends, an edit of it changes nothing."""
        async with opened(tmp_path, clock) as (inbox, _):
            await inbox.put([entry(1)])
            marked = {
                "started": lambda: inbox.started("t:1", "main", 1),
                "reply": lambda: inbox.reply("t:1", ReplyText("no")),
                "finished": lambda: inbox.finished("t:1"),
            }[how]()
            if how == "reply":
                await marked
            assert inbox.amend("t:1", "too late") is None
            await marked
            assert b"too late" not in journal(tmp_path)

    async def test_an_edit_overtakes_nothing(self, tmp_path: Path, clock: Clock) -> None:
        """An edit that was journalled before the begin counts, one that a crash left behind it does not."""
        async with opened(tmp_path, clock) as (inbox, _):
            await inbox.put([entry(1)])
            edit, begin = inbox.amend("t:1", "edited"), inbox.started("t:1", "main", 3)
            pending = inbox.pending("t:1")
            assert pending is not None
            assert (pending.text, pending.attempts) == ("edited", 1)
            assert edit is not None
            await asyncio.gather(edit, begin)
        with (tmp_path / "journal" / "000001.jsonl").open("ab") as file:
            file.write(b'{"type":"amended","id":"t:1","key":"telegram:1","text":"late"}\n')
        async with opened(tmp_path, clock) as (_, left):
            assert [pending.text for pending in left] == ["edited"]


class TestQuota:
    async def test_counts_turns_of_today(self, tmp_path: Path, clock: Clock) -> None:
        """What counts is what was taken to be run: no refusal, no command, no answer at the door; each person by channel."""
        async with opened(tmp_path, clock) as (inbox, _):
            await inbox.put(
                [entry(1), entry(2, "/help"), entry(3, refused="waiting"), entry(4, reply="What?"), entry(5, sender="7"), entry(1)]
            )
            await inbox.put([entry(6)])
            await inbox.finished("t:1")
            counts = [("telegram", "42"), ("telegram", "7"), ("telegram", "8"), ("discord", "42")]
            assert [inbox.turns_today(*each) for each in counts] == [2, 1, 0, 0]
        async with opened(tmp_path, clock) as (inbox, _):
            assert [inbox.turns_today(*each) for each in counts] == [2, 1, 0, 0]

    async def test_a_new_day(self, tmp_path: Path, clock: Clock) -> None:
        """At 00:00 UTC everybody begins anew, alive and over a start."""
        async with opened(tmp_path, clock) as (inbox, _):
            clock.now = START - START % 86400 + 86399
            await inbox.put([entry(1, at=clock.now)])
            assert inbox.turns_today("telegram", "42") == 1
            clock.now += 2
            assert inbox.turns_today("telegram", "42") == 0
            await inbox.put([entry(2, at=clock.now)])
        async with opened(tmp_path, clock) as (inbox, _):
            assert inbox.turns_today("telegram", "42") == 1

    async def test_over_many_segments(self, tmp_path: Path, clock: Clock) -> None:
        """The count is right however many segments the day has, also when their words were blanked."""
        async with opened(tmp_path, clock, rotate=1000) as (inbox, _):
            for n in range(40):
                await inbox.put([entry(n, "/x" if n % 2 else "")])
                await inbox.finished(f"t:{n}")
            await inbox.forget(KEY)
        assert len(list((tmp_path / "journal").glob("*.ids"))) > 10
        for _ in range(2):
            async with opened(tmp_path, clock) as (inbox, _):
                assert inbox.turns_today("telegram", "42") == 20
            for path in (tmp_path / "journal").glob("*.ids"):
                path.unlink()


class TestForget:
    async def test_blanks_words_and_names(self, tmp_path: Path, clock: Clock) -> None:
        """Of a forgotten key nothing is left that anybody said or is called, in no segment; it still keeps repeats out."""
        other = "telegram:2"
        async with opened(tmp_path, clock, rotate=1500) as (inbox, _):
            for n in range(20):
                await inbox.put([entry(n, f"mine {n}"), entry(100 + n, f"theirs {n}", key=other, sender="9")])
                for each in (n, 100 + n):
                    edit = inbox.amend(f"t:{each}", f"amended {each}")
                    assert edit is not None
                    await edit
                    await inbox.started(f"t:{each}", "main", n)
                    await inbox.reply(f"t:{each}", ReplyText(f"reply {each}", (Button("b", f"/data {each}"),)))
                    await inbox.finished(f"t:{each}")
            await inbox.put([entry(50, "mine, answered at the door", reply="door reply")])
            (tmp_path / "journal" / "000001.torn").write_bytes(b"mine, torn")
            await inbox.forget(KEY)
            rest = b"".join(path.read_bytes() for path in (tmp_path / "journal").iterdir())
            for word in (
                "mine",
                "Name42",
                "door reply",
                *(f'{what} {n}"' for n in range(20) for what in ("amended", "reply", "quoted", "ref", "/data")),
            ):
                assert word.encode() not in rest, word
            for word in (f'{what} {100 + n}"' for n in range(20) for what in ("amended", "reply", "quoted", "ref", "/data")):
                assert word.encode() in rest, word
            assert b"theirs 19" in rest
            assert all(inbox.seen(f"t:{n}") for n in (*range(20), *range(100, 120)))
            assert ids(await inbox.put([entry(7), entry(60)])) == ["t:60"]
        for _ in range(2):
            async with opened(tmp_path, clock) as (inbox, left):
                assert [(pending.input.inbound.id, pending.reply) for pending in left] == [("t:50", ReplyText("")), ("t:60", None)]
                assert all(inbox.seen(f"t:{n}") for n in (*range(20), *range(100, 120)))
            for path in (tmp_path / "journal").glob("*.ids"):
                path.unlink()

    async def test_what_waits_keeps_its_words(self, tmp_path: Path, clock: Clock) -> None:
        """An input that still waits to be run came after the wish, and is run with all its words; one that began is blanked."""
        async with opened(tmp_path, clock) as (inbox, _):
            await inbox.put([entry(1, "/forget"), entry(2, "after it")])
            await inbox.started("t:1", "main", 3)
            await inbox.forget(KEY)
        async with opened(tmp_path, clock) as (_, left):
            assert [(pending.input.inbound.id, pending.text) for pending in left] == [("t:1", ""), ("t:2", "after it")]

    async def test_while_others_are_accepted(self, tmp_path: Path, clock: Clock) -> None:
        """Inputs that are accepted during it lose nothing, in whatever order things happen to come."""
        async with opened(tmp_path, clock, rotate=1500) as (inbox, _):
            for n in range(30):
                await inbox.put([entry(n)])
                await inbox.finished(f"t:{n}")
            forgetting = asyncio.gather(inbox.forget(KEY), inbox.forget("telegram:9"))
            n = 100
            while not forgetting.done():
                await inbox.put([entry(n, key="telegram:2")])
                n += 1
            await forgetting
        async with opened(tmp_path, clock) as (_, left):
            assert [pending.text for pending in left] == [f"words {each}" for each in range(100, n)]
        assert b'words 1"' not in journal(tmp_path)

    async def test_lines_that_nobody_can_read(self, tmp_path: Path, clock: Clock) -> None:
        """Of damaged lines and those of other versions, what names the key or its inputs goes too, what does not stays."""
        async with opened(tmp_path, clock) as (inbox, _):
            await inbox.put([entry(1), entry(2, key="telegram:2")])
            await inbox.finished("t:1")
        extra = [
            b'{"type":"mood","id":"t:1","at":1.0,"words":"mine"}\n',
            b'{"type":"mood","id":"t:2","at":1.0,"words":"theirs"}\n',
            b'{"type":"reply","id":"t:1","key":"telegram:1","te\xff mine}\n',
            b'{"type":"reply","id":"t:2","key":"telegram:2","te\xff theirs}\n',
        ]
        with (tmp_path / "journal" / "000001.jsonl").open("ab") as file:
            file.write(b"".join(extra))
        with capture_logs():
            async with opened(tmp_path, clock) as (inbox, _):
                await inbox.forget(KEY)
        rest = journal(tmp_path)
        assert b"mine" not in rest
        assert b'{"type":"mood","id":"t:1","at":1.0}\n' in rest
        assert extra[1] in rest
        assert extra[3] in rest

    async def test_a_full_disk(self, tmp_path: Path, clock: Clock) -> None:
        """Where there is no room for the copy, it raises OSError, loses nothing, and may be done again."""
        async with opened(tmp_path, clock, rotate=10**9) as (inbox, _):
            await inbox.put([entry(n, "x" * 100, sender=str(n)) for n in range(100)])
            for n in range(100):
                await inbox.finished(f"t:{n}")
            before = journal(tmp_path)
            with file_limit(4096), pytest.raises(OSError, match="too large"):
                await inbox.forget(KEY)
            assert journal(tmp_path) == before
            await inbox.forget(KEY)
            assert b"xxx" not in journal(tmp_path)


class TestStart:
    async def test_a_folder_that_is_none(self, tmp_path: Path, clock: Clock) -> None:
        """A journal that cannot be read ends the start with one line that names it: nothing is accepted beside it."""
        (tmp_path / "journal").touch()
        with pytest.raises(StartError, match="journal"):
            async with opened(tmp_path, clock):
                pass

    async def test_a_segment_that_is_none(self, tmp_path: Path, clock: Clock) -> None:
        """The same for a segment: what was accepted is not known then, and guessing would answer it twice or never."""
        (tmp_path / "journal" / "000001.jsonl").mkdir(parents=True)
        with pytest.raises(StartError, match="000001"):
            async with opened(tmp_path, clock):
                pass

    async def test_a_line_lost_to_damage(self, tmp_path: Path, clock: Clock) -> None:
        """A damaged `accepted` takes that input alone; later marks on it disturb nobody."""
        async with opened(tmp_path, clock) as (inbox, _):
            await inbox.put([entry(1), entry(2)])
            await inbox.started("t:1", "main", 1)
        path = tmp_path / "journal" / "000001.jsonl"
        path.write_bytes(path.read_bytes().replace(b'{"type":"accepted"', b'{"type":"accepte\xff"', 1))
        with capture_logs() as logs:
            async with opened(tmp_path, clock) as (_, left):
                assert ids(left) == ["t:2"]
        assert [each["lines"] for each in logs] == [1]

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    async def test_any_history_survives_any_number_of_starts(self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
        """Whatever was put, marked, finished, forgotten, over whatever days and segments: a start gives what was there before it."""
        place, clock = tmp_path_factory.mktemp("inbox"), Clock()
        rotate = data.draw(st.sampled_from([300, 1000, 5000]))
        number = 0
        for _ in range(data.draw(st.integers(1, 4))):
            async with opened(place, clock, rotate) as (inbox, left):
                assert left == inbox.unfinished()
                for step in data.draw(st.lists(st.sampled_from("ppprsaxlfffffffdo"), max_size=25)):
                    waiting = inbox.unfinished()
                    pending = data.draw(st.sampled_from(waiting)) if waiting else None
                    input_id = pending.input.inbound.id if pending else "t:none"
                    if step == "p":
                        number += 1
                        await inbox.put([entry(number, at=clock.now, key=f"telegram:{number % 3}")])
                    elif step == "r":
                        number += 1
                        await inbox.put([entry(number, refused="x", reply="no" if number % 2 else "", at=clock.now)])
                    elif step == "s":
                        await inbox.started(input_id, "main", number)
                    elif step == "a":
                        await (inbox.amend(input_id, f"amended {number}") or asyncio.sleep(0))
                    elif step == "x":
                        await inbox.reply(input_id, ReplyText("said"))
                    elif step == "l":
                        await inbox.placed(input_id, number % 3, str(number))
                    elif step == "f":
                        await inbox.finished(input_id)
                    elif step == "d":
                        clock.now += 86400
                    else:
                        await inbox.forget("telegram:none")
                before = inbox.unfinished()
                turns = inbox.turns_today("telegram", "42")
            async with opened(place, clock, rotate) as (inbox, left):
                assert left == before
                assert inbox.turns_today("telegram", "42") == turns


async def test_a_waiter_that_is_gone_leaves_no_complaint(tmp_path: Path, clock: Clock) -> None:
    """Cut while its record was on the way, and then the disk was full: that is told to whoever asks again, not to the log as a fault."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    async with opened(tmp_path, clock) as (inbox, _):
        await inbox.put([entry(1)])
        with file_limit(len(journal(tmp_path)) + 10):
            marks: list[asyncio.Future[Any]] = [inbox.started("t:1", "main", 0), inbox.reply("t:1", ReplyText("x"))]
            marks += [inbox.finished("t:1"), inbox.put([entry(2)])]
            waiters = [asyncio.shield(mark) for mark in marks]
            await asyncio.sleep(0)
            for waiter in waiters:
                waiter.cancel()
            await asyncio.wait(marks)
        assert all("exception=" in repr(mark) for mark in marks)  # to ask for it would be to hear it
        await inbox.started("t:1", "main", 0)
    del marks, waiters
    gc.collect()
    assert told == []
