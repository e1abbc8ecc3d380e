"""One round: a fresh folder, a daemon with its networks, a crowd, kills one after the other; then, in peace, the audit."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.audit import Audit, Fault
from tests.crash.damage import age
from tests.crash.lives import Life, Lives
from tests.crash.moments import Deck, reachable
from tests.crash.networks import Network, OnDiscord, OnTelegram
from tests.crash.people import Crowd, quiet
from tests.crash.records import taken, unfinished
from tests.crash.story import story
from tests.crash.talk import SESSIONS, Said, Talk
from tests.fakes.discord import FakeDiscord
from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import KEY, TOKEN, Daemon, free_port
from tests.flow.on_discord import table
from tests.flow.people import config

OPEN = 'direct = "open"\ngroups = "open"'
SETTLED = 90.0
"""Seconds within which everything that was said must be finished, once nobody kills any more."""
BAD = ("Traceback", "turn failed", "put aside", "command failed", "task failed", "never retrieved", "reading failed", "lane broke")
"""What must not be in the log."""


@dataclass(frozen=True)
class Way:
    """How the daemon is configured."""

    channels: tuple[str, ...] = ("telegram", "discord")
    webhook: bool = False
    streamed: Mapping[str, bool] = field(default_factory=lambda: {"telegram": True, "discord": True})

    def makes(self, network: str, method: str) -> bool:
        """Whether the daemon makes such calls."""
        if method in {"edit", "delete"}:
            return self.streamed[network]
        return not (network == "telegram" and method == "read" and self.webhook)

    def __str__(self) -> str:
        streams = [f"{name} {'streaming' if self.streamed[name] else 'streaming off'}" for name in self.channels]
        return ", ".join([*streams, *(["webhook" if self.webhook else "polling"] if "telegram" in self.channels else [])])


def ways(channels: Sequence[str]) -> list[Way]:
    """Those that rounds take by turns."""
    kinds = ((False, True, True), (True, False, True), (False, False, False), (True, True, False))
    return [Way(tuple(channels), webhook, {"telegram": telegram, "discord": discord}) for webhook, telegram, discord in kinds]


@dataclass
class Outcome:
    """What came of a round."""

    way: Way
    lives: list[Life]
    counts: Counter[str]
    faults: list[Fault]
    reached: Counter[str]
    stories: list[str]


@asynccontextmanager
async def stage(folder: Path, way: Way, rules: Callable[[Talk], str] = lambda talk: OPEN) -> AsyncIterator[tuple[Talk, Daemon]]:
    """The fakes, and a daemon that is not started yet. `rules`: the config's table of who may speak."""
    async with FakeTelegram(token=TOKEN) as tg, FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        every: dict[str, Network] = {"telegram": OnTelegram(tg), "discord": OnDiscord(dc)}
        talk = Talk({name: every[name] for name in way.channels}, model)
        text = config(
            tg,
            model,
            streaming="edit" if way.streamed["telegram"] else "off",
            webhook_port=free_port() if way.webhook else 0,
            access=rules(talk),
            sessions=SESSIONS,
            more=table(dc, streaming="edit" if way.streamed["discord"] else "off") if "discord" in way.channels else "",
        )
        if "telegram" not in way.channels:
            text = text.partition("[channels.telegram]")[0] + table(dc, streaming="edit" if way.streamed["discord"] else "off")
        text = text.replace('budget = "8s"', 'budget = "2s"').replace('poll_timeout = "5s"', 'poll_timeout = "2s"')
        daemon = Daemon(folder, text, env={"PARLOUR_DISCORD_TOKEN": dc.token})
        try:
            yield talk, daemon
        finally:
            if daemon.process is not None and daemon.process.returncode is None:
                await daemon.kill()


async def run(folder: Path, seed: str, deck: Deck, way: Way, chats: int, kills: int, tell: Callable[[Life], None]) -> Outcome:
    """The whole round. The folder stays as it is at the end."""
    crowds: list[Crowd] = []

    def rules(talk: Talk) -> str:
        crowds.append(Crowd(talk, seed, chats))
        return crowds[0].rules()

    async with stage(folder, way, rules) as (talk, daemon):
        crowd = crowds[0]
        lives = Lives(daemon, talk, crowd, random.Random(f"{seed} lives"))
        for _ in range(3):
            age(daemon.data)
        await lives.begin(ready=True)
        await online(talk)
        await meet(talk, quiet(crowd.people))
        await daemon.kill()
        places = reachable(way.channels, webhook=way.webhook, streamed=way.streamed)
        calls = [f"{name} {method}" for name, network in talk.networks.items() for method in network.methods if way.makes(name, method)]
        ending = asyncio.Event()
        async with asyncio.TaskGroup() as talking:
            for person in crowd.people:
                talking.create_task(person.talks(ending))
            try:
                for plan in deck.plans(places, calls, kills):
                    told = len(lives.past)
                    await lives.one(plan)
                    for life in lives.past[told:]:
                        tell(life)
                    if len(lives.past) >= kills:
                        break
            finally:
                ending.set()
            await lives.begin(ready=True)
        faults: list[Fault] = []
        try:
            await lives.over()
            await settle(talk, daemon.data)
        except AssertionError as error:
            left = sorted(unfinished(daemon.data) or missing(talk, daemon.data))
            faults.append(Fault("answer lost", f"not finished in peace: {error}", left[0] if left else ""))
        code = await daemon.stop()
        audit = Audit(talk, daemon.data, streamed=way.streamed)
        faults += audit.faults
        text = daemon.text()
        if code:
            faults.append(Fault("wrong", f"exit code {code} at the end"))
        faults += [Fault("wrong", f"in the log: {text[max(0, text.find(bad) - 300) :][:1500]}") for bad in BAD if bad in text]
        stories = [story(talk, daemon.data, lives.past, fault.input) for fault in faults[:3] if fault.input]
        return Outcome(way, lives.past, audit.counts + Counter({"torn tails": lives.torn}), faults, lives.reached(), stories)


async def online(talk: Talk) -> None:
    """Until Discord has somebody to tell things."""
    dc = talk.networks.get("discord")
    if isinstance(dc, OnDiscord):
        await dc.dc.online(20)


async def meet(talk: Talk, first: Sequence[Said]) -> None:
    """Until all of these are answered."""
    for said in first:
        if not await talk.wait(said, 30):
            raise AssertionError(f"no answer to the first words: {said}")


def missing(talk: Talk, data: Path) -> set[str]:
    """What the journal never had, and the network keeps."""
    had = taken(data)
    return {said.id for said in talk.said if not said.passing and said.id not in had}


async def settle(talk: Talk, data: Path) -> None:
    """Until everything that was said is taken and finished."""
    deadline = time.monotonic() + SETTLED
    while left := unfinished(data) or missing(talk, data):
        if time.monotonic() > deadline:
            raise AssertionError(f"{len(left)} inputs left after {SETTLED:g} s: {sorted(left)[:5]}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await asyncio.Event().wait()
