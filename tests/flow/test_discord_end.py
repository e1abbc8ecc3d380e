"""The end of a daemon that is on Discord: whatever hangs there, SIGTERM is enough, and what was taken is answered by the next life."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import SEND
from tests.fakes.openai import End, FakeModel, Reply, delta
from tests.flow.daemon import KEY
from tests.flow.on_discord import ANA, alone, check_log, daemon_of, until

BUDGET = 0.8
PATIENCE = 25.0

Trouble = Callable[[FakeDiscord, FakeModel, int], Awaitable[None]]


async def reconnecting(dc: FakeDiscord, model: FakeModel, chat: int) -> None:
    """Discord is gone, and the daemon tries to get back."""
    await dc.stop()


async def zombie(dc: FakeDiscord, model: FakeModel, chat: int) -> None:
    """The gateway's socket is open and says nothing any more, not even to a close."""
    dc.go_silent(deaf=True)


async def model_hangs(dc: FakeDiscord, model: FakeModel, chat: int) -> None:
    """The model has begun and says nothing more."""
    model.then(Reply([delta("", role="assistant"), delta("so far"), End.HANG]))
    dc.say(chat, "tell")
    await until(dc, chat, lambda seen: "so far" in seen)


async def flooded(dc: FakeDiscord, model: FakeModel, chat: int) -> None:
    """The network wants us to wait for five minutes before the answer may go out."""
    dc.flood(chat, 300)
    dc.say(chat, "tell")
    await dc.wait_for(lambda: dc.calls_of(SEND, chat), PATIENCE)


async def network_hangs(dc: FakeDiscord, model: FakeModel, chat: int) -> None:
    """The network has taken a send and does not say so."""
    dc.hold(SEND, channel=chat)
    dc.say(chat, "tell")
    await dc.wait_for(lambda: dc.calls_of(SEND, chat), PATIENCE)


@pytest.mark.parametrize("trouble", [reconnecting, zombie, model_hangs, flooded, network_hangs])
async def test_it_ends_in_time_whatever_hangs_on_discord(tmp_path: Path, trouble: Trouble) -> None:
    """Exit 0 within the budget and a little; the next life answers what was taken, and what is said then."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        chat = dc.dm(ANA)
        daemon = daemon_of(tmp_path, alone(dc, model).replace('budget = "8s"', f'budget = "{BUDGET:g}s"'), dc)
        async with daemon:
            await dc.online(PATIENCE)
            await trouble(dc, model, chat)
            if trouble is reconnecting:
                await dc.wait_for(lambda: "the gateway has a problem" in daemon.text(), PATIENCE)
            began = asyncio.get_running_loop().time()
            assert await daemon.stop(timeout=BUDGET + 10) == 0
            assert asyncio.get_running_loop().time() - began < BUDGET + 2
            assert "Traceback" not in daemon.text()
            if trouble is reconnecting:
                await dc.start()
            for channel in dc.channels.values():
                channel.flood_until = 0.0
            asked = [text for text in ("tell",) if dc.channels[chat].messages]
            await daemon.start()
            await dc.online(PATIENCE)
            dc.say(chat, "hello")
            expected = [f"Heard: {text}" for text in (*asked, "hello")]
            await until(dc, chat, lambda seen: [text for text in seen if text != "…"] == expected)
            assert await daemon.stop() == 0
        check_log(daemon, dc)
