"""channels.discord.intake: order, patience and bounds of what was heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from structlog.testing import capture_logs

from channels.base import Address, Inbound, Sender
from channels.discord.intake import Intake


def said(text: str, chat: str = "1") -> Inbound:
    return Inbound(f"discord:7:{chat}:{text}", Address("discord", chat), Sender("42"), text)


class Taker:
    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.full = 0
        self.pauses: list[float] = []

    async def accept(self, batch: Sequence[Inbound]) -> None:
        if self.full:
            self.full -= 1
            raise OSError(28, "No space left on device")
        self.batches.append([inbound.text for inbound in batch])

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    @property
    def texts(self) -> list[str]:
        return [text for batch in self.batches for text in batch]


@asynccontextmanager
async def at_work(intake: Intake) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    task = asyncio.create_task(intake.run())

    async def settle() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    yield settle
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_is_not_ready_holds_up_its_own_channel() -> None:
    """Others pass; within a channel the order is that of the hearing; what turns out to be nothing is no hole."""
    taker = Taker()
    intake = Intake(taker.accept)
    async with at_work(intake) as settle:
        slow, nothing = intake.add("1", 1.0), intake.add("1", 2.0)
        intake.add("1", 3.0, said("c"))
        intake.add("2", 4.0, said("d", "2"))
        await settle()
        assert taker.texts == ["d"]
        assert intake.oldest() == 1.0
        assert slow is not None
        assert nothing is not None
        intake.settle(nothing, None)
        intake.settle(slow, said("a"))
        await settle()
        assert taker.texts == ["d", "a", "c"]
        assert (len(intake), intake.oldest()) == (0, None)


async def test_a_held_channel_waits_for_all_who_hold_it() -> None:
    """Its past comes first; holds are counted."""
    taker = Taker()
    intake = Intake(taker.accept)
    async with at_work(intake) as settle:
        intake.hold("1")
        intake.hold("1")
        intake.add("1", 1.0, said("a"))
        assert intake.waits("1")
        assert not intake.waits("2")
        intake.release("1")
        await settle()
        assert taker.texts == []
        intake.release("1")
        intake.release("1")
        await settle()
        assert taker.texts == ["a"]
        assert not intake.waits("1")


async def test_what_comes_together_goes_in_one_batch() -> None:
    """And what comes meanwhile in the next one, of five hundred at most."""
    taker = Taker()
    intake = Intake(taker.accept)
    for n in range(1200):
        intake.add(f"{n}", float(n), said(f"{n}"))
    async with at_work(intake) as settle:
        await settle()
    assert [len(batch) for batch in taker.batches] == [500, 500, 200]


async def test_what_cannot_be_stored_is_handed_over_again() -> None:
    """With growing pauses and without an end, said once; what came meanwhile stands behind it."""
    taker = Taker()
    taker.full = 8
    taken: list[str] = []
    intake = Intake(taker.accept, lambda channel, inbound: taken.append(inbound.text), pause=taker.pause)
    intake.add("1", 1.0, said("a"))
    with capture_logs() as logs:
        async with at_work(intake) as settle:
            await settle()
            intake.add("1", 2.0, said("b"))
            await settle()
    assert (taker.texts, taken) == (["a", "b"], ["a", "b"])
    assert taker.pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    assert [entry["event"] for entry in logs] == ["messages cannot be stored, kept here", "messages are stored again"]


async def test_what_there_is_no_room_for_is_remembered() -> None:
    """Not the thing, but since when something is missing; said once."""
    intake = Intake(Taker().accept, most=2)
    with capture_logs() as logs:
        assert [intake.add("1", float(n), said(f"{n}")) is not None for n in (5, 6, 7, 8)] == [True, True, False, False]
    assert intake.lost == 7.0
    assert len(logs) == 1
    assert intake.oldest() == 5.0


async def test_what_was_fetched_stands_where_it_was_written() -> None:
    """Among what was told of its channel, by the ids, each once; other channels are as they were."""
    taker = Taker()
    intake = Intake(taker.accept)
    intake.hold("1")
    for number, text in ((5, "five"), (9, "nine")):
        intake.add("1", float(number), said(text), number)
    intake.add("1", 1.0, said("an edit"))
    intake.add("2", 6.0, said("elsewhere", "2"), 6)
    assert (intake.first("1"), intake.first("2"), intake.first("3")) == (5, 6, 0)
    for number, text in ((5, "five"), (7, "seven"), (8, "eight"), (11, "eleven")):
        intake.insert("1", float(number), said(text), number)
    async with at_work(intake) as settle:
        await settle()
        intake.release("1")
        await settle()
    assert taker.texts == ["elsewhere", "five", "seven", "eight", "nine", "an edit", "eleven"]
