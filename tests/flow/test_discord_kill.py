"""kill -9 at random moments while people talk and steer on Discord: nothing lost, nothing said twice.

The harness is that of `test_kill`: its people, its audit. `PARLOUR_KILLS=300` makes it long, `PARLOUR_SEED` throws other dice.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import pytest

from tests.fakes.discord import FakeDiscord, Fault
from tests.fakes.discord_state import DELETE, EDIT, HISTORY, SEND, Call
from tests.fakes.discord_world import BOT
from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow.audit import Audit, unfinished
from tests.flow.daemon import KEY, Daemon
from tests.flow.on_discord import alone, check_bodies, check_log, daemon_of
from tests.flow.talk import WHOLE, Person, Place, Talk, within
from tests.flow.watch import Watch

T = TypeVar("T")

KILLS = int(os.environ.get("PARLOUR_KILLS", "0"))
SEED = os.environ.get("PARLOUR_SEED", "")
SHORT, ROUND = 4, 15
ALL = "fork reset switch undo retry stop"


class Seen:
    """The fake of Discord as `Talk` and `Audit` look at a network. Code marks, which Telegram has beside the text, are left out of it."""

    def __init__(self, dc: FakeDiscord) -> None:
        self.dc = dc

    def say(self, chat: int, text: str, **fields: Any) -> int:
        return self.dc.say(chat, text, **fields)

    def edit(self, chat: int, message_id: int, text: str) -> None:
        self.dc.edit(chat, message_id, text)

    def visible(self, chat: int, thread: int | None = None) -> list[str]:
        return [text.replace("`", "") for text in self.dc.visible(chat)]

    async def wait_for(self, predicate: Callable[[], T], timeout: float = 5.0, *, chat: int | None = None) -> T:
        return await self.dc.wait_for(predicate, timeout, channel=chat)


class DiscordTalk(Talk):
    """People who talk there, in direct chats."""

    network: ClassVar[str] = "discord"
    bot: ClassVar[int] = BOT

    def __init__(self, dc: FakeDiscord, model: FakeModel) -> None:
        super().__init__(cast(FakeTelegram, Seen(dc)), model)
        self.dc = dc


def people(talk: DiscordTalk, dice: random.Random) -> list[Person]:
    """Some wait for each answer, some do not; some get long answers, some steer."""

    def places(first: int, last: int) -> list[Place]:
        return [Place(talk.dc.dm(700_000_000_000_003_000 + number)) for number in range(first, last)]

    everybody = [Person(talk, place, dice) for place in places(1, 6)]
    everybody += [Person(talk, place, dice, bursts=5) for place in places(11, 15)]
    everybody += [Person(talk, place, dice, bursts=2, long=True) for place in places(21, 24)]
    everybody += [Person(talk, place, dice, bursts=4, commands=ALL) for place in places(31, 36)]
    everybody += [Person(talk, place, dice, bursts=3, long=True, commands=ALL) for place in places(41, 44)]
    return everybody


def nth(number: int) -> Callable[[Call], bool]:
    """For a planned fault: it strikes at the call with this number, from 0."""
    left = [number]

    def strikes(_: Call) -> bool:
        left[0] -= 1
        return left[0] < 0

    return strikes


async def moment(daemon: Daemon, talk: DiscordTalk, dice: random.Random) -> Fault | None:
    """When to kill: at any time, in the middle of a request (its effect done or not), while the model speaks, between two writes."""
    kind = dice.choice(("time", "call", "call", "model", "disk", "disk"))
    if kind == "call":
        route = dice.choice(("*", SEND, EDIT, DELETE, HISTORY))
        held = talk.dc.hold(route, before=dice.random() < 0.5, when=nth(dice.randrange(12)))
        await within(held.reached, 1.0)
        return held
    if kind == "disk":
        assert daemon.process is not None
        watch = Watch(daemon.data)
        await watch.kill(daemon.process.pid, dice.randrange(80), 1.0)
        watch.close()
    elif kind == "model":
        talk.on_ask.clear()
        await within(talk.on_ask, 1.0)
        await within(asyncio.Event(), dice.uniform(0, 0.1))
    else:
        await within(asyncio.Event(), dice.uniform(0.0, 0.8))
    return None


async def kill_and_start(daemon: Daemon, talk: DiscordTalk, dice: random.Random, kills: int) -> None:
    for _ in range(kills):
        held = await moment(daemon, talk, dice)
        await daemon.kill()
        if held is not None:
            held.remove()
        starting = dice.random() < 0.3
        await daemon.start(ready=not starting)
        if starting:  # the next kill comes while it starts, or looks for what it missed
            await within(asyncio.Event(), dice.uniform(0.1, 1.2))


async def one_round(folder: Path, seed: str, kills: int, *, streaming: str) -> Counter[str]:
    """A fresh daemon, people who talk, kills; then the audit."""
    dice = random.Random(seed)
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        talk = DiscordTalk(dc, model)
        everybody = people(talk, dice)
        async with daemon_of(folder, alone(dc, model, streaming=streaming, sessions=WHOLE), dc) as daemon:
            await dc.online(20)
            # Nothing tells of a direct chat in which somebody wrote for the first time while nobody listened.
            for first in [talk.ask(person.place) for person in everybody]:
                assert await talk.wait(first, 10)
            ending = asyncio.Event()
            async with asyncio.TaskGroup() as talking:
                for person in everybody:
                    talking.create_task(person.talks(ending, 60))
                await kill_and_start(daemon, talk, dice, kills)
                ending.set()
            await settle(daemon, talk)
            assert await daemon.stop() == 0
            audit = Audit(talk, daemon.data, streamed=True)
        assert not audit.faults, f"seed {seed}: {audit.verdict(kills)}"
        for what in ("reply doubled", "piece doubled"):
            assert audit.counts[what] == 0, f"seed {seed}: {audit.verdict(kills)}"
        assert audit.counts["placeholder left"] <= kills, f"seed {seed}: {audit.verdict(kills)}"
        check_bodies(dc)
        check_log(daemon, dc)
        return audit.counts


async def settle(daemon: Daemon, talk: DiscordTalk) -> None:
    """Until everything that was said is taken and finished."""

    def quiet() -> bool:
        left = unfinished(daemon.data)
        return not left and all(said.id in taken(daemon.data) for said in talk.said)

    try:
        await talk.dc.wait_for(quiet, 60)
    except AssertionError as error:
        lost = [said for said in talk.said if said.id not in taken(daemon.data)]
        raise AssertionError(f"not finished: {sorted(unfinished(daemon.data))[:5]}, never taken: {lost[:5]}; {error}") from None


def taken(data: Path) -> str:
    """All that the journal has."""
    return "".join(path.read_text(errors="replace") for path in (data / "journal").glob("*.jsonl"))


@pytest.mark.timeout(60 + KILLS * 10)
@pytest.mark.parametrize("streaming", ["edit", "off"])
async def test_kills_lose_and_double_nothing_on_discord(tmp_path: Path, streaming: str) -> None:
    """Every message is answered once, in order, in its session, and every command acts once and says so once: a send that is made again
    carries the nonce of the first, by which Discord knows it for some minutes.

    What nobody can know, and is counted apart: an empty "…" whose send had its effect before a kill and its record not, where the turn was
    then cut (/stop, /reset) before it came to send that again.
    """
    totals: Counter[str] = Counter()
    rounds = [SHORT] if not KILLS else [ROUND] * max(1, KILLS // 2 // ROUND)
    for number, kills in enumerate(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        totals += await one_round(folder, f"{SEED}{streaming}{number}", kills, streaming=streaming)
        totals["kills"] += kills
    print(streaming, dict(totals))
    assert totals["inputs"] > 20 * len(rounds)
