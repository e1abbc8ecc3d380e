"""Who may be worked on: so many at a time and in order; while the gate is shut nobody but who is admitted."""

from __future__ import annotations

import asyncio

import pytest

from gateway.gate import Gate, Pass


class Crowd:
    """Inputs that want to get in, and those who did, in order."""

    def __init__(self, places: int) -> None:
        self.gate = Gate(places)
        self.inside: list[str] = []
        self.ways: dict[str, Pass] = {}
        self.sent_away: list[str] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str, turn: bool = True, key: str = "") -> None:
        for name in names:
            self._tasks[name] = asyncio.create_task(self._one(name, turn, key or name))
        await self.still()

    async def _one(self, name: str, turn: bool, key: str) -> None:
        way = await self.gate.enter(key, name, turn=turn)
        if way is None:
            self.sent_away.append(name)
        else:
            self.inside.append(name)
            self.ways[name] = way

    async def leave(self, *names: str) -> None:
        for name in names:
            self.ways.pop(name).leave()
        await self.still()

    async def give_up(self, name: str) -> None:
        self._tasks[name].cancel()
        await self.still()

    @staticmethod
    async def still() -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_as_many_turns_as_places_first_come_first_served() -> None:
    """Who comes later gets in when somebody leaves, and nobody slips past those who wait."""
    crowd = Crowd(2)
    await crowd.come("a", "b", "c", "d")
    assert crowd.inside == ["a", "b"]
    await crowd.leave("b")
    await crowd.come("e")
    assert crowd.inside == ["a", "b", "c"]
    await crowd.leave("a", "c")
    assert crowd.inside == ["a", "b", "c", "d", "e"]


async def test_what_needs_no_model_needs_no_place() -> None:
    """A command passes the turns that wait, and takes nothing from them."""
    crowd = Crowd(1)
    await crowd.come("a", "b")
    await crowd.come("command", turn=False)
    assert crowd.inside == ["a", "command"]
    await crowd.leave("command")
    assert crowd.inside == ["a", "command"]


async def test_who_was_stopped_waits_no_longer() -> None:
    """It passes without a place; the others keep theirs."""
    crowd = Crowd(1)
    await crowd.come("a", "b", "c")
    crowd.gate.hurry("c")
    await crowd.still()
    assert crowd.inside == ["a", "c"]
    await crowd.leave("c")
    assert crowd.inside == ["a", "c"]
    await crowd.leave("a")
    assert crowd.inside == ["a", "c", "b"]


@pytest.mark.parametrize("granted", [False, True])
async def test_who_gives_up_takes_no_place_along(granted: bool) -> None:
    """Cancelled while it waits, or at the very moment in which it was let in."""
    crowd = Crowd(1)
    await crowd.come("a", "b", "c")
    if granted:
        crowd.ways.pop("a").leave()
    await crowd.give_up("b")
    if not granted:
        await crowd.leave("a")
    assert crowd.inside == ["a", "c"]


async def test_after_the_close_nobody_gets_in() -> None:
    """Whoever waits is sent away, suspects as well, and so is whoever comes."""
    crowd = Crowd(1)
    crowd.gate.shut(["s"])
    crowd.gate.open()
    await crowd.come("s", "a", "b")
    crowd.gate.close()
    await crowd.come("c")
    assert crowd.inside == ["a"]
    assert sorted(crowd.sent_away) == ["b", "c", "s"]


async def test_a_shut_gate_lets_in_who_is_admitted_and_what_is_ahead_of_it() -> None:
    """Only its key, until it has had its turn; suspects wait even where the gate is open."""
    crowd = Crowd(5)
    crowd.gate.shut(["s", "t"])
    await crowd.come("a", "s", "t")
    await crowd.come("ahead", key="s")
    await crowd.come("command", turn=False)
    assert crowd.inside == []
    crowd.gate.admit("s", "s")
    await crowd.still()
    assert sorted(crowd.inside) == ["ahead", "s"]
    crowd.gate.dismiss()
    await crowd.come("behind", key="s")
    assert len(crowd.inside) == 2
    crowd.gate.open()
    await crowd.still()
    assert sorted(crowd.inside) == ["a", "ahead", "behind", "command", "s"]
    crowd.gate.admit("t", "t")
    await crowd.still()
    assert crowd.inside[-1] == "t"
