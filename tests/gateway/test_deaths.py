"""What deaths of the daemon say about an input, read back from the journal as each start does: nothing of innocents, enough of the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from channels.base import Address, Inbound, Sender
from gateway.inbox import Entry, Inbox, Input, Pending, ReplyText
from gateway.writer import Writer


class Lives:
    """One journal, and the daemons that write to it one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def life(self, *, told: bool = False) -> AsyncIterator[Inbox]:
        """From a start to a death, or with `told` to an end that somebody wanted."""
        writer = Writer()
        inbox = Inbox(self._folder, writer, clock=lambda: 1e9)
        await inbox.open()
        yield inbox
        if told:
            inbox.ended()
        await inbox.close()
        await writer.close()

    async def left(self, input_id: str = "t:1") -> Pending:
        async with self.life(told=True) as inbox:
            pending = inbox.pending(input_id)
        assert pending is not None
        return pending

    async def accept(self, *ids: str) -> None:
        async with self.life() as inbox:
            who = Sender("1", "Ana")
            await inbox.put([Entry(Input(Inbound(each, Address("t", "1"), who, "hi"), "t:1", 1e9)) for each in ids])


@pytest.fixture
async def lives(tmp_path: Path) -> Lives:
    made = Lives(tmp_path / "journal")
    await made.accept("t:1", "t:2")
    return made


async def test_who_was_at_work_is_counted_and_who_waited_is_not(lives: Lives) -> None:
    """Each life in which its turn had begun counts one, whatever attempt it was."""
    for n in range(1, 4):
        async with lives.life() as inbox:
            await inbox.begun("t:1")
            await inbox.started("t:1", "main", 0)
        deaths = (await lives.left()).deaths
        assert (deaths.crashes, deaths.own, deaths.suspect) == (n, 0, n >= 2)
        assert (await lives.left("t:2")).deaths.crashes == 0
        assert (await lives.left()).attempts == n


async def test_an_end_that_was_wanted_counts_against_nobody(lives: Lives) -> None:
    """However often a turn is cut by a stop, also where the stop itself was cut by a kill."""
    for _ in range(5):
        async with lives.life(told=True) as inbox:
            await inbox.started("t:1", "main", 0)
    async with lives.life() as inbox:
        await inbox.started("t:1", "main", 0)
        inbox.ended()
        await inbox.placed("t:1", 0, "5")
    assert (await lives.left()).deaths.crashes == 0


async def test_a_death_without_it_clears_it(lives: Lives) -> None:
    """Who waited while the daemon died did not do it."""
    for _ in range(2):
        async with lives.life() as inbox:
            await inbox.started("t:1", "main", 0)
    async with lives.life() as inbox:
        await inbox.started("t:2", "main", 0)
    assert (await lives.left()).deaths.crashes == 0
    assert (await lives.left("t:2")).deaths.crashes == 1


async def test_a_death_with_somebody_on_trial_clears_nobody(lives: Lives) -> None:
    """It is explained; the other suspect stays one."""
    for _ in range(2):
        async with lives.life() as inbox:
            await inbox.started("t:1", "main", 0)
            await inbox.started("t:2", "main", 0)
    async with lives.life() as inbox:
        await inbox.alone("t:1")
        await inbox.started("t:1", "main", 0)
    one, two = (await lives.left()).deaths, (await lives.left("t:2")).deaths
    assert (one.crashes, one.own, two.crashes, two.own) == (3, 1, 2, 0)


async def test_two_deaths_of_its_own_convict(lives: Lives) -> None:
    """Not one; and what is over does not count."""
    for over, own, guilty in ((False, 1, False), (True, 1, False), (False, 2, True)):
        async with lives.life() as inbox:
            await inbox.alone("t:1")
            await inbox.started("t:1", "main", 0)
            if over:
                await inbox.alone("t:1", over=True)
        deaths = (await lives.left()).deaths
        assert (deaths.own, deaths.guilty) == (own, guilty)


@pytest.mark.parametrize(
    "deliver",
    [lambda inbox: inbox.reply("t:1", ReplyText("said")), lambda inbox: inbox.answered("t:1")],
    ids=["reply", "answer"],
)
async def test_what_is_not_delivered_counts_as_under_way(lives: Lives, deliver: Callable[[Inbox], object]) -> None:
    """Showing a text may be what kills us; after a reply the count begins anew."""
    async with lives.life() as inbox:
        await inbox.started("t:1", "main", 0)
    async with lives.life() as inbox:
        deliver(inbox)
    first = (await lives.left()).deaths.crashes
    async with lives.life():
        pass
    assert (await lives.left()).deaths.crashes == first + 1
    assert first == (1 if (await lives.left()).reply else 2)


async def test_what_was_set_aside_is_known_for_as_long_as_its_record_is_there(lives: Lives) -> None:
    """After it was told and finished, too."""
    async with lives.life() as inbox:
        pending = inbox.pending("t:1")
        assert pending is not None
        inbox.aside(pending)
        await inbox.reply("t:1", ReplyText("set aside"))
        await inbox.finished("t:1")
        assert [record.id for record in inbox.set_aside] == ["t:1"]
    async with lives.life() as inbox:
        assert [(record.id, record.key) for record in inbox.set_aside] == [("t:1", "t:1")]


async def test_a_death_in_the_pause_before_trials_clears_everybody(lives: Lives) -> None:
    """Those whose reply is only to be shown, too: nothing was worked on. Once all go on, a death counts again; on trial it is one's own."""
    async with lives.life() as inbox:
        await inbox.reply("t:2", ReplyText("done"))
    for _ in range(2):
        async with lives.life() as inbox:
            await inbox.started("t:1", "main", 0)
    assert [(await lives.left(each)).deaths.crashes for each in ("t:1", "t:2")] == [2, 3]
    async with lives.life() as inbox:
        inbox.held()
        await inbox.alone("t:1")
    assert [(await lives.left(each)).deaths.own for each in ("t:1", "t:2")] == [1, 0]
    async with lives.life() as inbox:
        inbox.held()
    assert [(await lives.left(each)).deaths.crashes for each in ("t:1", "t:2")] == [0, 0]
    async with lives.life() as inbox:
        inbox.held()
        inbox.held(over=True)
        await inbox.started("t:1", "main", 0)
    assert [(await lives.left(each)).deaths.crashes for each in ("t:1", "t:2")] == [1, 1]
