"""A model that really generates, over HTTP, behind the `openai` backend and the Telegram path."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.backends import local
from tests.fakes.local_http import local_model
from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import Daemon
from tests.flow.people import config, session_lines

ANA = 42


@pytest.mark.timeout(180)
async def test_the_embedded_model_over_http_answers_on_telegram(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """Two turns with a real model: streamed into the chat, stored as they were shown."""
    if why := local.available():
        pytest.skip(why)
    with local_model() as url:
        model.base_url = url
        text = config(tg, model).replace('model = "fake"', f'model = "{local.MODEL}"')
        async with Daemon(tmp_path, text) as daemon:
            for n, question in enumerate(("What is the capital of France?", "And of Italy?")):
                tg.say(ANA, question)
                await tg.wait_for(lambda n=n: _answers(daemon.data) > n, 90)  # type: ignore[misc]
            await tg.wait_for(lambda: tg.pending == 0, 10)
            assert await daemon.stop() == 0
        said = [line["content"] for line in session_lines(daemon.data, ANA) if line.get("role") == "assistant"]
        assert len(said) == 2
        assert all(text.strip() for text in said)
        assert len(tg.visible(ANA)) == 2
        assert "…" not in tg.visible(ANA)


def _answers(data: Path) -> int:
    path = data / "sessions" / "telegram" / str(ANA) / "main.jsonl"
    return path.read_text().count('"role":"assistant"') if path.exists() else 0
