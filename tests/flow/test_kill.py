"""kill -9 at random moments, end to end: nothing lost, nothing said twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import KEY, TOKEN, Daemon, free_port
from tests.flow.people import config, converse, expected, history, session_lines, windows

CHATS, TURNS, KILLS = 40, 5, 8


async def _killer(daemon: Daemon, people: asyncio.Task[None], dice: random.Random) -> int:
    """Kills and starts the daemon while people talk; how often."""
    kills = 0
    while kills < KILLS:
        done, _ = await asyncio.wait({people}, timeout=dice.uniform(0.05, 0.6))
        if done:
            break
        await daemon.kill()
        kills += 1
        await daemon.start(ready=dice.random() < 0.7)
    return kills


@pytest.mark.timeout(180)
@pytest.mark.parametrize("webhook", [False, True], ids=["polling", "webhook"])
@pytest.mark.parametrize("streaming", ["edit", "off"])
async def test_kills_lose_and_double_nothing(tmp_path: Path, webhook: bool, streaming: str) -> None:
    """Every message is answered, in order, in its session; streamed answers are seen once. Without streaming a kill between a send and its
    record repeats that answer once, which is counted."""
    dice = random.Random(f"{webhook}{streaming}")
    async with FakeTelegram(token=TOKEN) as tg, FakeModel(api_key=KEY, delay=0.02) as model:
        port = free_port() if webhook else 0
        async with Daemon(tmp_path, config(tg, model, streaming=streaming, webhook_port=port)) as daemon:

            async def everybody() -> None:
                async with asyncio.TaskGroup() as people:
                    for chat in range(1, CHATS + 1):
                        people.create_task(converse(tg, chat, TURNS, timeout=90))

            people = asyncio.create_task(everybody())
            kills = await _killer(daemon, people, dice)
            await people
            assert await daemon.stop() == 0
        assert kills >= 3
        doubled = 0
        for chat in range(1, CHATS + 1):
            # An empty placeholder may be left over by a kill between its send and its record; content may not.
            seen = [text for text in tg.visible(chat) if text != "…"]
            if streaming == "off":
                extra = Counter(seen) - Counter(expected(chat, TURNS))
                doubled += extra.total()
                seen = list(dict.fromkeys(seen))
            assert seen == expected(chat, TURNS)
            lines = session_lines(daemon.data, chat)
            assert [line["seq"] for line in lines[1:]] == list(range(1, len(lines)))
            assert [line["role"] for line in lines if "role" in line] == ["user", "assistant"] * TURNS
        assert doubled <= kills * CHATS // 4
        for chat, turn, messages in windows(model.asked):
            assert messages == history(chat, turn)
