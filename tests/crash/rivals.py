"""The test that other daemons of this kind fail: kill -9 with five turns in flight on each network, among thirty idle chats with a history.

All five are answered within three seconds of the first poll, each once, and nothing goes to the idle ones. The same with the last call of
each answer held by the network when the kill comes, arrived there or not.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.crash.audit import Audit, Fault
from tests.crash.networks import OnDiscord, OnTelegram, Place
from tests.crash.round import Way, meet, online, settle, stage
from tests.crash.talk import Said, Talk

BUSY, IDLE = 5, 30
LIMIT = 3.0
"""Seconds from the first poll after the kill to the last answer."""
MODEL, LOST, ARRIVED = "while the model speaks", "the last call not arrived", "the last call arrived, nobody told"
Moment = Literal["while the model speaks", "the last call not arrived", "the last call arrived, nobody told"]
MOMENTS: tuple[Moment, ...] = ("while the model speaks", "the last call not arrived", "the last call arrived, nobody told")


@dataclass(frozen=True)
class Trial:
    """What came of it."""

    seconds: dict[str, float]
    """Network -> from its first poll to the last of its answers."""
    idle: int
    """Calls that say something in idle chats, after the kill."""
    faults: list[Fault]
    counts: Counter[str]


def chats(talk: Talk, first: int, count: int) -> list[Place]:
    """Direct chats on each network."""
    places: list[Place] = []
    for name, network in talk.networks.items():
        for number in range(first, first + count):
            chat = network.dc.dm(700_000_000_000_500_000 + number) if isinstance(network, OnDiscord) else number
            places.append(Place(name, chat))
    return places


async def trial(folder: Path, moment: Moment, *, streamed: bool, channels: Sequence[str] = ("telegram", "discord")) -> Trial:
    """On all of these networks at once."""
    way = Way(tuple(channels), streamed={"telegram": streamed, "discord": streamed})
    async with stage(folder, way) as (talk, daemon):
        await daemon.start()
        await online(talk)
        any_network = next(iter(talk.networks.values()))
        idle, busy = chats(talk, 1000, IDLE), chats(talk, 2000, BUSY)
        await meet(talk, [talk.ask(place) for place in (*idle, *busy)])
        if moment == MODEL:
            said = [talk.ask(place) for place in busy]
            talk.hang |= {each.tag: 3 for each in said}
            await any_network.wait_for(lambda: len(talk.silent) == len(said), 30)
        else:
            method = "edit" if streamed else "send"
            held = [talk.networks[place.network].hold(method, before=moment == LOST, chat=place.chat, ending=" end") for place in busy]
            said = [talk.ask(place) for place in busy]
            for each in held:
                await any_network.wait_for(each.reached.is_set, 30)
                each.times = 0
        await daemon.kill()
        killed = time.monotonic()
        await daemon.start(ready=False)
        seconds = await _answered(talk, said, killed)
        await settle(talk, daemon.data)
        code = await daemon.stop()
        after = sum(
            request.at > killed and not request.what.startswith("GET")
            for place in idle
            for request in talk.networks[place.network].requests(place)
        )
        audit = Audit(talk, daemon.data, streamed=way.streamed)
        return Trial(seconds, after, audit.faults + [Fault("wrong", f"exit code {code}")] * bool(code), audit.counts)


async def _answered(talk: Talk, said: list[Said], killed: float) -> dict[str, float]:
    """Network -> seconds from the first poll after the kill until all is there."""
    seconds: dict[str, float] = {}
    for name, network in talk.networks.items():
        mine = [each for each in said if each.place.network == name]
        polled = await network.wait_for(lambda network=network: min(_polls(network, killed), default=0.0), 30)  # type: ignore[misc]
        await network.wait_for(lambda mine=mine: all(map(talk.answered, mine)), 30)  # type: ignore[misc]
        last = max(request.at for each in mine for request in network.requests(each.place) if request.status)
        seconds[name] = max(0.0, last - polled)
    return seconds


def _polls(network: object, since: float) -> Iterator[float]:
    """When messages were asked for: on Discord, when the connection was asked for by which they come."""
    if isinstance(network, OnTelegram):
        return (call.at for call in network.tg.calls_of("getUpdates") if call.at > since)
    assert isinstance(network, OnDiscord)
    return (call.at for call in network.dc.calls if call.at > since)
