"""Two hundred people at once, end to end: the daemon as a process between a fake Telegram and a fake model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import KEY, TOKEN, Daemon, free_port
from tests.flow.people import config, converse, expected, history, session_lines, windows

CHATS, TURNS = 200, 5


@pytest.mark.timeout(120)
@pytest.mark.parametrize("streaming", ["edit", "off"])
@pytest.mark.parametrize("webhook", [False, True], ids=["polling", "webhook"])
async def test_200_chats_each_get_their_own_answers_in_order(tmp_path: Path, webhook: bool, streaming: str) -> None:
    """Nobody sees another's words, nobody waits for ever, and each request carries exactly that chat's history."""
    async with FakeTelegram(token=TOKEN) as tg, FakeModel(api_key=KEY) as model:
        port = free_port() if webhook else 0
        async with Daemon(tmp_path, config(tg, model, streaming=streaming, webhook_port=port)) as daemon:
            async with asyncio.TaskGroup() as people:
                for chat in range(1, CHATS + 1):
                    people.create_task(converse(tg, chat, TURNS))
            for chat in range(1, CHATS + 1):
                assert tg.visible(chat) == expected(chat, TURNS)
            seen = list(windows(model.asked))
            assert len(seen) == CHATS * TURNS
            for chat, turn, messages in seen:
                assert messages == history(chat, turn)
            assert await daemon.stop() == 0
            assert "ERROR" not in daemon.text().upper().replace("ERRORS", ""), daemon.text()[-2000:]
        for chat in (1, CHATS):
            roles = [line["role"] for line in session_lines(daemon.data, chat) if "role" in line]
            assert roles == ["user", "assistant"] * TURNS
        assert tg.resets == []
