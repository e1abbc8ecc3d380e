"""A fake model server, and a maker of backends for it that are closed after the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from gateway.backends.openai import OpenAI
from tests.fakes.openai import FakeModel


@pytest.fixture
async def model() -> AsyncIterator[FakeModel]:
    async with FakeModel() as fake:
        yield fake


@pytest.fixture
async def make(model: FakeModel) -> AsyncIterator[Callable[..., OpenAI]]:
    made: list[OpenAI] = []

    def build(base_url: str = "", **settings: object) -> OpenAI:
        defaults: dict[str, object] = {"model": "fake", "first_token_timeout": 5.0, "idle_timeout": 5.0, "env": {}}
        made.append(OpenAI(base_url=base_url or model.base_url, **(defaults | settings)))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for backend in made:
        await backend.close()
