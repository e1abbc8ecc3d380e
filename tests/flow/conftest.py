"""Fixtures of the end-to-end tests: the two fakes, and a running daemon between them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import KEY, TOKEN, Daemon
from tests.flow.people import config


@pytest.fixture
async def tg() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram(token=TOKEN) as fake:
        yield fake


@pytest.fixture
async def model() -> AsyncIterator[FakeModel]:
    async with FakeModel(api_key=KEY) as fake:
        yield fake


@pytest.fixture
def streaming() -> str:
    """How the daemon shows an answer; tests parametrize it."""
    return "edit"


@pytest.fixture
async def daemon(tmp_path: Path, tg: FakeTelegram, model: FakeModel, streaming: str) -> AsyncIterator[Daemon]:
    async with Daemon(tmp_path, config(tg, model, streaming=streaming)) as running:
        yield running
