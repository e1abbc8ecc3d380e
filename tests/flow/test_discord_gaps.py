"""Discord end to end: what is written while the connection is away, or the daemon is. Discord repeats nothing; each is answered once.

`PARLOUR_AWAY=60 .venv/bin/python -m pytest tests/flow/test_discord_gaps.py` has both stay away for a whole minute, while people write.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.fakes.discord import FakeDiscord
from tests.fakes.openai import FakeModel
from tests.flow.daemon import KEY, Daemon
from tests.flow.on_discord import ANA, BEN, EVE, PATIENCE, alone, asks, check_bodies, check_log, fetched, served, until

DAY = 24 * 3600
AWAY = float(os.environ.get("PARLOUR_AWAY", "0"))
"""Seconds; people write at the beginning, in the middle and at the end of them."""
at_length = pytest.mark.timeout(60 + 3 * AWAY)


class World:
    """A direct chat, two channels of a server and a thread, in which somebody has talked with the bot already, or never."""

    def __init__(self, dc: FakeDiscord, model: FakeModel) -> None:
        self.dc, self.model = dc, model
        self.me = f"<@{dc.bot.id}>"
        self.direct = dc.dm(ANA)
        self.general, self.quiet = dc.channel(), dc.channel(name="quiet")
        self.thread = dc.thread(self.general)
        self.said: list[tuple[int, str]] = []

    @property
    def channels(self) -> tuple[int, ...]:
        return self.direct, self.general, self.quiet, self.thread

    def say(self, channel: int, text: str, user: int = ANA) -> int:
        """To the bot."""
        self.said.append((channel, text))
        return self.dc.say(channel, text if channel == self.direct else f"{self.me} {text}", user=user)

    async def begin(self) -> None:
        """First words, in the direct chat and in one channel."""
        self.say(self.direct, "hello")
        self.say(self.general, "hello")
        await self.settled()

    def chatter(self) -> None:
        """What is nothing to the bot."""
        self.dc.say(self.general, "between us", user=BEN)
        self.dc.say(self.quiet, "between us, too", user=BEN)
        self.dc.say(self.quiet, f"{self.me} I am a bot", user=self.dc.user(EVE, bot=True).id)

    def missed(self) -> None:
        """Two things in the direct chat, one in each other place, among the chatter."""
        self.chatter()
        for channel in (*self.channels, self.direct):
            self.say(channel, f"missed {len(self.said)}")
        self.chatter()

    async def missed_over_time(self) -> None:
        """The same, as long as it lasts."""
        self.missed()
        for _ in range(2 if AWAY else 0):
            await asyncio.sleep(AWAY / 2)
            self.missed()

    async def settled(self) -> None:
        """Each thing that was said is answered once, in order, each the model was asked for once."""
        for channel in self.channels:
            wanted = [text for where, text in self.said if where == channel]
            holds = lambda seen, wanted=wanted: [text.rpartition(": ")[2] for text in seen] == wanted  # noqa: E731
            await until(self.dc, channel, holds, PATIENCE + AWAY)  # after a long outage the next try may be half a minute away
        asked = Counter(asked.words.rpartition(": ")[2] for asked in self.model.asked)
        assert asked == Counter(text for _, text in self.said)

    async def last_word(self) -> None:
        """All is well again: what is said now is answered, and behind it nothing else came."""
        for channel in self.channels:
            self.say(channel, f"last {len(self.said)}")
        await self.settled()


async def test_a_drop_that_resumes_brings_everything_once(tmp_path: Path) -> None:
    """C09: what was said meanwhile is replayed by Discord, in part twice, while the first is being answered and later; a message is one
    turn. Nothing is fetched, no second session begins."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY, delay=0.05) as model:
        world = World(dc, model)
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            await world.begin()
            running = world.say(world.direct, "while it runs")
            await model.wait(3)
            dc.disconnect(4000)
            world.missed()
            dc.repeat(world.direct, running)
            await dc.wait_for(lambda: dc.gateway.resumes, 10)
            dc.repeat(world.direct, running)
            await world.settled()
            for channel in world.channels:
                for message in [m for m in dc.channels[channel].messages.values() if m.author.id == ANA]:
                    dc.repeat(channel, message.id)
            dc.gateway.reconnect()
            await dc.wait_for(lambda: len(dc.gateway.resumes) == 2, 10)
            await world.last_word()
            await daemon.kill()
            await daemon.start()
            await dc.online(10)
            dc.repeat(world.direct, running)
            await world.last_word()
            assert await daemon.stop() == 0
        assert len(dc.gateway.identifies) == 2
        check_bodies(dc)
        check_log(daemon, dc)


@at_length
@pytest.mark.parametrize("how", ["new session", "invalid session", "outage"])
async def test_what_no_resume_brings_is_fetched_once(tmp_path: Path, how: str) -> None:
    """A connection whose session is gone, a session that is declared invalid, an outage of all of Discord: what was written meanwhile is
    found in the history."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        world = World(dc, model)
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            await world.begin()
            if how == "new session":
                dc.disconnect(4000, resumable=False)
                world.missed()
            elif how == "invalid session":
                dc.gateway.invalidate(resumable=False)
                world.missed()
            else:
                await dc.stop()
                await world.missed_over_time()
                await dc.start()
            world.chatter()
            await world.settled()
            await world.last_word()
            assert await daemon.stop() == 0
        assert len(dc.gateway.identifies) == 2
        check_bodies(dc)
        check_log(daemon, dc)


@at_length
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
async def test_what_was_written_while_the_daemon_was_down_is_answered_once(tmp_path: Path, killed: bool) -> None:
    """In direct chats that have a session, and mentions in servers and threads, in their order, over two ends of the daemon; only those
    channels are looked into where something was said."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        world = World(dc, model)
        never = dc.channel(name="never")
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            await world.begin()
            for _ in range(2):
                await (daemon.kill() if killed else daemon.stop())
                await world.missed_over_time()
                await daemon.start()
                world.say(world.direct, f"at once {len(world.said)}")
                await world.settled()
            assert await daemon.stop() == 0
        assert not fetched(dc, never)
        check_bodies(dc)
        check_log(daemon, dc)


async def test_a_first_start_fetches_nothing(tmp_path: Path) -> None:
    """What was written before the bot ever ran was not for it."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        world = World(dc, model)
        world.missed()
        world.said.clear()
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            world.say(world.general, "hello")
            await world.settled()
            assert await daemon.stop() == 0
        assert not fetched(dc)


async def test_a_first_life_that_was_short_counts(tmp_path: Path) -> None:
    """A daemon that was killed as soon as it was connected for the first time fetches at its second start what was said since."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        world = World(dc, model)
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            world.say(world.general, "hello")
            await world.settled()
            await daemon.kill()
            world.say(world.quiet, "anybody?")
            await daemon.start()
            await world.settled()
            assert await daemon.stop() == 0


async def test_what_is_too_old_is_left_alone(tmp_path: Path) -> None:
    """Where the daemon was away for longer than the backlog, what was written in its first part is not answered any more."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        now = time.time()
        dc.clock = lambda: now - 3 * DAY
        world = World(dc, model)
        async with served(tmp_path, alone(dc, model, more='backlog = "30d"'), dc) as daemon:
            await world.begin()
            assert await daemon.stop() == 0
            away_since(daemon, now - 2.9 * DAY)
            dc.clock = lambda: now - 2 * DAY
            for channel in world.channels:
                world.say(channel, "too old")
            del world.said[-len(world.channels) :]
            dc.clock = time.time
            world.missed()
            daemon.config.write_text(alone(dc, model, more='backlog = "1d"'))
            await daemon.start()
            await world.last_word()
            assert await daemon.stop() == 0
        assert "too old" not in "".join(text for channel in world.channels for text in dc.visible(channel))


def away_since(daemon: Daemon, at: float) -> None:
    """As if the daemon had ended then."""
    path = next(daemon.data.rglob("heard.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"alive": at}))


async def test_more_than_a_page_is_fetched_in_order(tmp_path: Path) -> None:
    """A history gives a hundred messages at a time; all of them are looked through."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        world = World(dc, model)
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            await world.begin()
            await daemon.kill()
            for number in range(230):
                if number % 60 == 0:
                    world.say(world.general, f"question {number}")
                dc.say(world.general, f"talk {number}", user=BEN)
            await daemon.start()
            await world.settled()
            assert await daemon.stop() == 0
        assert len(fetched(dc, world.general)) >= 3


async def test_a_second_answer_is_not_given_to_what_the_first_life_answered(tmp_path: Path) -> None:
    """The margin before the last sign of life is fetched again, and recognised: one line of the person's in the session."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        chat = dc.dm(ANA)
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            for number in range(3):
                await asks(dc, chat, f"hello {number}")
                await daemon.kill()
                await daemon.start()
            await asks(dc, chat, "and now")
            assert await daemon.stop() == 0
        assert len(model.asked) == 4
        lines = (daemon.data / "sessions" / "discord" / str(chat) / "main.jsonl").read_text().splitlines()
        assert [json.loads(line)["content"] for line in lines if '"role":"user"' in line] == ["hello 0", "hello 1", "hello 2", "and now"]
