"""The journal's segments: rotation, sidecars, what a start reads, and what old age takes."""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from channels.base import Address, Inbound, Sender
from gateway.journal import Journal
from gateway.records import (
    Accepted,
    Delivered,
    Facts,
    Finished,
    Foreign,
    Placed,
    Record,
    Refused,
    Sealed,
    Started,
    decode_record,
    encode_record,
    mark,
)
from gateway.segments import read_sidecar
from gateway.writer import Writer
from tests.gateway.disk_tools import counter, file_limit, open_to_others

HOUR, DAY = 3600.0, 86400.0
START = 20_000 * DAY + 10 * HOUR


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def writer() -> AsyncIterator[Writer]:
    writer = Writer()
    yield writer
    await writer.close()


Opening = Callable[..., "asyncio.Future[tuple[Journal, list[Record]]]"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@asynccontextmanager
async def opened(tmp_path: Path, writer: Writer, clock: Clock, rotate: int = 2000) -> AsyncIterator[tuple[Journal, list[Record]]]:
    journal = Journal(tmp_path / "journal", writer, clock=clock, horizon=48 * HOUR, rotate_bytes=rotate)
    records = await journal.open()
    yield journal, records
    await journal.close()


async def put(journal: Journal, records: Sequence[Record]) -> None:
    """Write them, and raise what came of it."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    journal.append(records, lambda error: done.set_result(None) if error is None else done.set_exception(error))
    await done


def accepted(n: int, at: float = START, text: str = "", turn: bool = True) -> Accepted:
    inbound = Inbound(f"t:{n}", Address("telegram", "1"), Sender("42", "Ana"), text or f"words {n}")
    return Accepted(n=n, at=at, key="telegram:1", inbound=inbound, turn=turn)


def finished(n: int, at: float = START) -> Finished:
    return Finished(id=f"t:{n}", at=at)


def names(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "journal").iterdir())


async def fill(journal: Journal, numbers: Sequence[int], clock: Clock, *, end: bool = True) -> None:
    for n in numbers:
        await put(journal, [accepted(n, clock.now)])
        if end:
            await put(journal, [finished(n, clock.now)])


class TestRotation:
    async def test_by_size(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """A segment that would grow beyond its size is done with: the next one begins, and the old one gets its sidecar."""
        async with opened(tmp_path, writer, clock) as (journal, _):
            await fill(journal, range(1, 31), clock)
        found = names(tmp_path)
        assert found[:4] == ["000001.ids", "000001.jsonl", "000002.ids", "000002.jsonl"]
        assert found[-1].endswith(".jsonl")
        assert found[-2].removesuffix(".jsonl") != found[-1].removesuffix(".jsonl")
        sizes = [path.stat().st_size for path in (tmp_path / "journal").glob("*.jsonl")]
        assert max(sizes) <= 2000

    async def test_by_day(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """With a new day (UTC) a new segment begins; a segment holds the records of one day."""
        async with opened(tmp_path, writer, clock, rotate=10**9) as (journal, _):
            for day in range(3):
                clock.now = START + day * DAY
                await fill(journal, [day], clock)
        assert [name for name in names(tmp_path) if name.endswith("jsonl")] == ["000001.jsonl", "000002.jsonl", "000003.jsonl"]

    async def test_a_write_is_never_parted(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """What is written as one stands in one segment, also where it alone is larger than one."""
        async with opened(tmp_path, writer, clock) as (journal, _):
            await put(journal, [accepted(n) for n in range(100)])
            await put(journal, [accepted(100)])
        assert len((tmp_path / "journal" / "000001.jsonl").read_bytes().splitlines()) == 100

    async def test_goes_on_after_a_start(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """A start goes on in the newest segment; numbers are never used twice."""
        for n in range(6):
            async with opened(tmp_path, writer, clock) as (journal, _):
                await fill(journal, range(n * 5, n * 5 + 5), clock)
        segments = [name for name in names(tmp_path) if name.endswith("jsonl")]
        assert segments == [f"{number:06d}.jsonl" for number in range(1, len(segments) + 1)]
        lines = b"".join((tmp_path / "journal" / name).read_bytes() for name in segments).splitlines()
        assert [decode_record(line).id for line in lines] == [f"t:{n}" for n in range(30) for _ in range(2)]

    async def test_private(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """Everything in the journal is ours alone, also what was open to others before."""
        async with opened(tmp_path, writer, clock) as (journal, _):
            await fill(journal, range(30), clock)
        for path in [tmp_path / "journal", *(tmp_path / "journal").iterdir()]:
            path.chmod(0o755)
        async with opened(tmp_path, writer, clock):
            assert open_to_others(tmp_path / "journal") == []


class TestAge:
    async def test_old_and_finished_goes_oldest_first(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """Segments in which all is finished are deleted once they are older than the horizon, with their sidecars."""
        async with opened(tmp_path, writer, clock, rotate=10**9) as (journal, _):
            for day in range(6):
                clock.now = START + day * DAY
                await fill(journal, [day], clock)
        assert names(tmp_path) == ["000004.ids", "000004.jsonl", "000005.ids", "000005.jsonl", "000006.jsonl"]

    async def test_an_open_input_keeps_its_segment_and_all_behind_it(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """While something in a segment is open, neither it nor a newer one is deleted; when it is finished, all may go."""
        async with opened(tmp_path, writer, clock, rotate=10**9) as (journal, _):
            await fill(journal, [0], clock)
            clock.now += DAY
            await fill(journal, [1], clock, end=False)
            for day in range(2, 9):
                clock.now += DAY
                await fill(journal, [day], clock)
        assert names(tmp_path)[0] == "000002.ids"
        async with opened(tmp_path, writer, clock, rotate=10**9) as (journal, records):
            assert [record.id for record in records] == ["t:1"]
            assert names(tmp_path)[0] == "000002.ids"
            await put(journal, [finished(1, clock.now)])
            clock.now += DAY
            await fill(journal, [10], clock)
        assert names(tmp_path)[0] == "000008.ids"

    async def test_also_at_a_start(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """What grew old while the daemon was down is deleted when it comes up."""
        async with opened(tmp_path, writer, clock, rotate=10**9) as (journal, _):
            await fill(journal, [0], clock)
            clock.now += DAY
            await fill(journal, [1], clock)
        clock.now += 30 * DAY
        async with opened(tmp_path, writer, clock):
            assert names(tmp_path) == ["000002.jsonl"]

    async def test_a_clock_that_was_ahead(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """A segment from a time when the clock was years ahead is deleted like the one behind it."""
        clock.now += 1000 * DAY
        async with opened(tmp_path, writer, clock, rotate=10**9) as (journal, _):
            await fill(journal, [0], clock)
        for day in range(5):
            clock.now = START + day * DAY
            async with opened(tmp_path, writer, clock, rotate=10**9) as (journal, _):
                await fill(journal, [1 + day], clock)
            assert ("000001.jsonl" in names(tmp_path)) == (day < 3)

    async def test_killed_while_deleting(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """A sidecar whose segment is gone already is removed; it never stands for another segment."""
        async with opened(tmp_path, writer, clock) as (journal, _):
            await fill(journal, range(30), clock)
        (tmp_path / "journal" / "000001.jsonl").unlink()
        async with opened(tmp_path, writer, clock) as (journal, records):
            assert records == []
            assert not journal.seen(mark("t:0"))
            assert journal.seen(mark("t:29"))
        assert names(tmp_path)[0] == "000002.ids"


class TestStart:
    async def test_what_is_open_comes_back(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """All records about unfinished inputs come back, in order, from whatever segments; nothing of finished ones does."""
        ours: list[Record] = [accepted(3), Started(id="t:3", session="main", last_seq=7, n=1), Placed(id="t:3", piece=0, message="99")]
        async with opened(tmp_path, writer, clock) as (journal, _):
            for number, record in enumerate(ours):
                await put(journal, [record])
                await fill(journal, range(100 * number + 100, 100 * number + 120), clock)
        async with opened(tmp_path, writer, clock) as (journal, records):
            assert records == ours
            assert journal.n == 319

    async def test_reads_little(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """A start reads the newest segment and the sidecars, not what was said in two days."""
        async with opened(tmp_path, writer, clock, rotate=200_000) as (journal, _):
            for n in range(300):
                await put(journal, [accepted(10 * n + each, text="x" * 1000) for each in range(10)])
                await put(journal, [finished(10 * n + each) for each in range(10)])
        whole = sum(path.stat().st_size for path in (tmp_path / "journal").glob("*.jsonl"))
        before = counter("rchar")
        async with opened(tmp_path, writer, clock, rotate=200_000) as (journal, records):
            assert counter("rchar") - before < whole / 5
            assert records == []
            assert all(journal.seen(mark(f"t:{n}")) for n in range(3000))
            assert not journal.seen(mark("t:3000"))

    async def test_an_id_that_comes_back_after_the_horizon(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """An id that was finished and, long after, is accepted anew, is open: the old end does not end the new one."""
        async with opened(tmp_path, writer, clock) as (journal, _):
            await fill(journal, [1], clock)
            await put(journal, [accepted(2)])
            await fill(journal, range(100, 130), clock)
            await put(journal, [accepted(1)])
        async with opened(tmp_path, writer, clock) as (_, records):
            assert records == [accepted(2), accepted(1)]

    async def test_what_was_refused_in_silence(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """A refusal that nobody is told of is over at once: it comes back at no start and keeps no segment."""
        refused = Refused(n=1, at=START, key="telegram:1", inbound=accepted(1).inbound, reason="access")
        async with opened(tmp_path, writer, clock) as (journal, _):
            await put(journal, [refused])
            await fill(journal, range(100, 130), clock)
        clock.now += 9 * DAY
        async with opened(tmp_path, writer, clock) as (journal, records):
            assert records == []
            assert "000001.jsonl" not in names(tmp_path)

    async def test_turns_of_today(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """Turns are counted by day and person over all segments, sealed or not."""
        async with opened(tmp_path, writer, clock) as (journal, _):
            await fill(journal, range(25), clock)
            await put(journal, [accepted(100, turn=False)])
            clock.now += DAY
            await fill(journal, range(200, 230), clock)
        today = int(clock.now // DAY)
        async with opened(tmp_path, writer, clock) as (journal, _):
            assert journal.turns(today) == {("telegram", "42"): 30}
            assert journal.turns(today - 1) == {("telegram", "42"): 25}
            assert journal.turns(today + 1) == {}


class TestDamage:
    @pytest.mark.parametrize("content", [b"", b"null", b"garbage", b"{}\n12345678", b"cut", b"flipped", None, "folder"])
    async def test_of_a_sidecar(self, tmp_path: Path, writer: Writer, clock: Clock, content: bytes | str | None) -> None:
        """A sidecar that is missing or damaged in whatever way is made anew from its segment; nothing is forgotten, nothing comes back to
        life, and the damaged one is kept aside with a warning."""
        async with opened(tmp_path, writer, clock) as (journal, _):
            await fill(journal, [0], clock, end=False)
            await fill(journal, range(1, 30), clock)
        place = tmp_path / "journal" / "000001.ids"
        good = place.read_bytes()
        damaged = (
            {b"cut": good[:-20], b"flipped": good[:-30] + b"\xff" + good[-29:]}.get(content, content)
            if isinstance(content, bytes)
            else content
        )
        place.unlink()
        if isinstance(damaged, bytes):
            place.write_bytes(damaged)
        elif damaged:
            place.mkdir()
        with capture_logs() as logs:
            async with opened(tmp_path, writer, clock) as (journal, records):
                assert records == [accepted(0)]
                assert all(journal.seen(mark(f"t:{n}")) for n in range(30))
        assert place.read_bytes() == good
        assert [(entry["log_level"], entry["file"]) for entry in logs] == ([] if content is None else [("warning", str(place))])
        if isinstance(damaged, bytes):
            assert place.with_suffix(".ids.bad").read_bytes() == damaged

    async def test_a_sidecar_that_does_not_fit(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """A sidecar of another state of its segment (killed between the two, edited by hand) is not believed."""
        async with opened(tmp_path, writer, clock) as (journal, _):
            await fill(journal, [0], clock, end=False)
            await fill(journal, range(1, 30), clock)
        with (tmp_path / "journal" / "000001.jsonl").open("ab") as file:
            file.write(encode_record(finished(0)))
        async with opened(tmp_path, writer, clock) as (journal, records):
            assert records == []
        sealed = read_sidecar(tmp_path / "journal" / "000001.jsonl")
        assert sealed is not None
        assert dict(sealed.marks())[mark("t:0")] == 3

    async def test_of_lines(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """Lines that are no records are passed over with one warning a segment, and left; those of unknown types are kept in silence."""
        bad = [
            b"{not json}\n",
            b"42\n",
            b"[]\n",
            b'{"type":"accepted"}\n',
            b'{"type":"finished","id":"\xff"}\n',
            b"[" * 9999 + b"\n",
            b"\0\0\n",
            b"{}\n",
        ]
        foreign = b'{"type":"mood","id":"t:1","value":[1,2]}\n'
        content = b"".join([encode_record(accepted(1)), *bad, foreign, b"\n", encode_record(accepted(2)), encode_record(finished(2))])
        (tmp_path / "journal").mkdir()
        for number in (1, 2):
            (tmp_path / "journal" / f"{number:06d}.jsonl").write_bytes(content)
        with capture_logs() as logs:
            async with opened(tmp_path, writer, clock) as (journal, records):
                assert records[-2:] == [accepted(1), Foreign(type="mood", id="t:1")]
                assert journal.seen(mark("t:2"))
        assert {(entry["file"][-12:], entry["lines"]) for entry in logs} == {("000001.jsonl", 8), ("000002.jsonl", 8)}
        assert not any("words" in str(entry) for entry in logs)
        for number in (1, 2):
            assert (tmp_path / "journal" / f"{number:06d}.jsonl").read_bytes() == content

    async def test_every_prefix(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """Cut anywhere, a segment gives every record that was whole, and takes the next ones; alone, and with a newer segment behind it."""
        lines = [
            encode_record(record) for record in (accepted(1), Started(id="t:1", session="é", last_seq=1, n=1), finished(1), accepted(2))
        ]
        content = b"".join(lines)

        async def check(cut: int, behind: bool) -> None:
            place = tmp_path / f"{cut}-{behind}"
            (place / "journal").mkdir(parents=True)
            path = place / "journal" / "000001.jsonl"
            path.write_bytes(content[:cut])
            if behind:
                (place / "journal" / "000002.jsonl").write_bytes(encode_record(accepted(9)))
            whole = [line for number, line in enumerate(lines) if cut >= len(b"".join(lines[: number + 1])) - 1]
            async with opened(place, writer, clock) as (journal, records):
                open_ids = {0: set(), 1: {"t:1"}, 2: {"t:1"}, 3: set(), 4: {"t:2"}}[len(whole)]
                assert {record.id for record in records} - {"t:9"} == open_ids
                await put(journal, [accepted(5)])
            assert path.read_bytes() == b"".join(whole) + (b"" if behind else encode_record(accepted(5)))
            torn = path.with_suffix(".torn")
            assert content[:cut] in path.read_bytes() or content[:cut].endswith(torn.read_bytes()[:-1])

        for cut in range(len(content) + 1):
            await check(cut, behind=cut % 2 == 0)

    async def test_foreign_files(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """Other files in the folder are left alone; a half written one of a crash is removed."""
        folder = tmp_path / "journal"
        folder.mkdir()
        for name in ("README", "1.jsonl", "000001.jsonl.bak", "x.jsonl", "000001.JSONL"):
            (folder / name).write_bytes(b"x")
        (folder / ".new-0123").write_bytes(b"x")
        async with opened(tmp_path, writer, clock) as (journal, _):
            await fill(journal, [1], clock)
        assert names(tmp_path) == ["000001.JSONL", "000001.jsonl", "000001.jsonl.bak", "1.jsonl", "README", "x.jsonl"]


class TestFullDisk:
    async def test_a_write_that_fails_is_not_there(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """What could not be written is neither seen nor open nor counted; what fits is written at once."""
        async with opened(tmp_path, writer, clock, rotate=10**9) as (journal, _):
            with file_limit(4096):
                with pytest.raises(OSError, match="too large"):
                    await put(journal, [accepted(1, text="x" * 9000)])
                await put(journal, [accepted(2)])
            assert not journal.seen(mark("t:1"))
            assert journal.seen(mark("t:2"))
            clock.now += DAY
            await put(journal, [accepted(3, clock.now)])
        assert read_sidecar(tmp_path / "journal" / "000001.jsonl") is not None
        async with opened(tmp_path, writer, clock) as (journal, records):
            assert records == [accepted(2), accepted(3, clock.now)]
            assert not journal.seen(mark("t:1"))

    async def test_no_room_for_a_sidecar(self, tmp_path: Path, writer: Writer, clock: Clock) -> None:
        """A sidecar that cannot be written is told of, and costs the next start some reading."""
        (tmp_path / "journal").mkdir()
        async with opened(tmp_path, writer, clock, rotate=20_000) as (journal, _):
            with capture_logs() as logs, file_limit(400_000):
                await put(journal, [Finished(id=f"x:{n}", at=START) for n in range(4000)])
                with file_limit(20_000):
                    await put(journal, [accepted(1)])
                    await journal.close()
        assert [entry["event"] for entry in logs] == ["no sidecar written"]
        assert names(tmp_path) == ["000001.jsonl", "000002.jsonl"]
        async with opened(tmp_path, writer, clock) as (_, records):
            assert records == [accepted(1)]
        assert names(tmp_path) == ["000001.ids", "000001.jsonl", "000002.jsonl"]


class TestRecords:
    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from("afsx"), st.booleans()), max_size=60), st.integers(0, 2**40))
    def test_facts_survive_the_sidecar(self, steps: list[tuple[int, str, bool]], size: int) -> None:
        """What a sidecar says is what its segment says, whatever happened in it."""
        facts = Facts()
        for n, (number, step, turn) in enumerate(steps):
            kinds: dict[str, Record] = {
                "a": accepted(number, START + n * HOUR, turn=turn),
                "f": finished(number, START + n * HOUR),
                "s": Delivered(id=f"t:{number}", span=(0, 1)),
                "x": Foreign(type="x"),
            }
            record = kinds[step]
            assert decode_record(encode_record(record)) == record
            facts.add(record)
        sealed = Sealed.decode(facts.seal(size).encode())
        assert sealed == facts.seal(size)
        assert isinstance(sealed.hashes, array)
        assert dict(sealed.marks()) == facts.marks
        assert all(sealed.accepted(seen) == bool(flags & 1) for seen, flags in facts.marks.items())
        assert not sealed.accepted(mark("another"))

    def test_no_two_inputs_share_a_mark(self) -> None:
        """The eight bytes tell a hundred thousand ids apart, and are the same in every process."""
        assert len({mark(f"telegram:7:12345:{n}") for n in range(100_000)}) == 100_000
        assert mark("telegram:7:12345:889") == 18317320603237948576


def test_nothing_is_left_open(tmp_path: Path) -> None:
    """A journal that was used and closed leaves no descriptor behind."""

    async def use() -> None:
        writer = Writer()
        async with opened(tmp_path, writer, Clock()) as (journal, _):
            await fill(journal, range(40), Clock())
        await writer.close()

    before = len(os.listdir("/proc/self/fd"))
    with asyncio.Runner() as runner:
        runner.run(use())
    assert len(os.listdir("/proc/self/fd")) <= before
