"""Discord end to end: killed between a send's effect and its record, and started again when Discord no longer knows the nonce. Nobody reads
anything twice, and nobody misses anything.

Hours are not waited for: the times on record are set back, and Discord is made to forget its nonces.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.message import seconds, timestamp
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import EDIT_ORIGINAL, SEND, Fault
from tests.fakes.openai import FakeModel, says
from tests.flow.daemon import KEY, Daemon
from tests.flow.on_discord import ANA, BEN, EVE, PATIENCE, alone, check_log, served, shown, told, until

HOURS = 2 * 3600.0
LONG = " ".join(f"word{n}" for n in range(700))


@pytest.fixture
async def dc() -> AsyncIterator[FakeDiscord]:
    async with FakeDiscord() as fake:
        fake.clock = lambda: time.time() - HOURS
        yield fake


@pytest.fixture
async def model() -> AsyncIterator[FakeModel]:
    async with FakeModel(api_key=KEY) as fake:
        yield fake


def hours_pass(daemon: Daemon, dc: FakeDiscord) -> None:
    """All that is on record is so much older, and what Discord knows for minutes is forgotten."""
    dc.nonce_life, dc.clock = 0.0, time.time
    for path in daemon.data.rglob("*.jsonl"):
        text = path.read_text()
        text = re.sub(r'"at":([0-9]+\.[0-9]+)', lambda found: f'"at":{float(found[1]) - HOURS}', text)
        path.write_text(re.sub(r'"at":"([^"]+)"', lambda found: f'"at":"{timestamp(seconds(found[1]) - HOURS)}"', text))
    for path in daemon.data.glob("journal/*.ids"):
        path.unlink()


async def restarted_later(daemon: Daemon, dc: FakeDiscord, *held: Fault) -> None:
    """Killed while these calls are held, and started again hours later."""
    await dc.wait_for(lambda: all(one.reached.is_set() for one in held), PATIENCE)
    await daemon.kill()
    for one in held:
        one.remove()
    await dc.wait_for(lambda: not dc.gateway.live, PATIENCE)
    hours_pass(daemon, dc)
    await daemon.start()
    await dc.online(PATIENCE)


async def test_what_was_sent_without_a_record_comes_once(tmp_path: Path, dc: FakeDiscord, model: FakeModel) -> None:
    """Killed when Discord has it and nobody was told: an answer that does not grow, its second piece in a server, a command's reply, and
    that of a slash command whose token has expired by then."""
    model.script(lambda asked: says(LONG) if "long" in asked.words else None)
    chat, typed, slashed = dc.dm(ANA), dc.dm(BEN), dc.dm(EVE)
    room = dc.channel()
    async with served(tmp_path, alone(dc, model, streaming="off"), dc) as daemon:
        held = [
            dc.hold(SEND, channel=chat),
            dc.hold(SEND, channel=typed),
            dc.hold(EDIT_ORIGINAL, channel=slashed),
            dc.hold(SEND, channel=room, when=lambda call: len(dc.calls_of(SEND, room)) == 2),
        ]
        dc.say(chat, "hi")
        dc.say(typed, "/reset")
        item = dc.slash(slashed, "status", user=EVE)
        dc.say(room, f"<@{dc.bot.id}> long", user=ANA)
        await dc.wait_for(lambda: all(one.reached.is_set() for one in held), PATIENCE)
        item.expire()
        await restarted_later(daemon, dc, *held)
        await until(dc, room, lambda seen: " ".join(seen).split() == LONG.split())
        for place in (chat, typed, slashed):
            dc.say(place, "next")
            await until(dc, place, lambda seen: seen[-1:] == ["Heard: next"])
        assert await daemon.stop() == 0
        assert [len(dc.visible(place)) for place in (chat, typed, slashed)] == [2, 2, 2]
        assert " ".join(dc.visible(room)).split() == LONG.split()
        assert len(model.asked) == 5
        check_log(daemon, dc)


async def test_what_was_not_sent_is_sent(tmp_path: Path, dc: FakeDiscord, model: FakeModel) -> None:
    """Killed ahead of the effect: the same words of an earlier answer are not taken for it."""
    chat = dc.dm(ANA)
    model.script(lambda asked: says("Yes."))
    async with served(tmp_path, alone(dc, model, streaming="off"), dc) as daemon:
        dc.say(chat, "one")
        await told(dc, chat, "Yes.")
        held = dc.hold(SEND, before=True, channel=chat)
        dc.say(chat, "two")
        await restarted_later(daemon, dc, held)
        await shown(dc, chat, "Yes.", "Yes.")
        assert await daemon.stop() == 0
        assert json.loads((daemon.data / "sessions" / "discord" / str(chat) / "main.jsonl").read_text().splitlines()[-1])["type"] == "sent"
