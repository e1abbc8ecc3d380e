from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.backends.openai import OpenAI
from tests.fakes.openai import DONE, End, FakeModel, Reply, Step, delta
from tests.gateway.backends.asking import SOURCE, fault, read, text

SILENCES: dict[str, Reply] = {
    "before the status": Reply(before=End.HANG),
    "after the headers": Reply([End.HANG]),
    "after the role": Reply([delta("", role="assistant"), End.HANG]),
    "comments for ever": Reply(step for _ in range(10_000) for step in (b": x\n\n", 0.01)),
    "empty deltas for ever": Reply(step for _ in range(10_000) for step in (delta(""), 0.01)),
    "a flood of comments": Reply(b": x\n\n" * 1000 for _ in range(1_000_000)),
    "a json body that does not come": Reply([b"{", End.HANG]),
}


@pytest.mark.parametrize("way", SILENCES)
async def test_a_model_that_does_not_begin(model: FakeModel, make: Callable[..., OpenAI], way: str) -> None:
    """E19: the first delta has its limit, and nothing but a delta with something in it meets it. Not repeated: who waited is told."""
    model.then(SILENCES[way])
    async with asyncio.timeout(4):
        error = await fault(make(first_token_timeout=0.3))
    assert "begin" in error.said
    assert not error.retryable
    await asyncio.wait_for(model.asked[0].done.wait(), 5)
    assert model.asked[0].ended == "left"


@pytest.mark.parametrize("rest", [[End.HANG], [step for _ in range(500) for step in (b": x\n\n", 0.01)], [delta("")] * 3 + [End.HANG]])
async def test_a_model_that_stops_in_the_middle(model: FakeModel, make: Callable[..., OpenAI], rest: list[Step]) -> None:
    """E19: silence after five deltas, comments included, ends by the idle limit, which is another one than the first."""
    model.then(Reply([*[delta("x")] * 5, *rest]))
    async with asyncio.timeout(4):
        error = await fault(make(first_token_timeout=60.0, idle_timeout=0.3))
    assert "middle" in error.said
    assert not error.retryable


async def test_a_slow_model_is_waited_for(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """E20: the first token may take longer than the idle limit, and an answer longer than both, as long as it goes on."""
    model.then(Reply([*[step for _ in range(10) for step in (b": wait\n\n", 0.05)], *[s for c in SOURCE for s in (delta(c), 0.02)], DONE]))
    assert text(await read(make(first_token_timeout=5.0, idle_timeout=0.4))) == SOURCE


async def test_a_model_that_thinks_is_alive(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """Thoughts count as life, though nobody sees them."""
    thoughts: list[Step] = [step for _ in range(20) for step in (delta(None, reasoning_content="hm"), 0.03)]
    model.then(Reply([*thoughts, delta("x"), delta(finish="stop"), DONE]))
    assert text(await read(make(first_token_timeout=0.4, idle_timeout=0.4))) == "x"


async def test_a_complete_answer_is_not_held_up_by_a_server_that_stays(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """After [DONE], or a while after finish_reason, the connection is ours to close."""
    model.then(Reply([delta("x"), delta(finish="stop"), DONE, End.HANG]), Reply([delta("y"), delta(finish="stop"), End.HANG]))
    model.then(Reply([delta("z"), delta(finish="stop"), *[step for _ in range(1000) for step in (b": z\n\n", 0.02)]]))
    async with asyncio.timeout(2):
        assert text(await read(make())) == "x"
        assert text(await read(make(idle_timeout=0.2))) == "y"
        assert text(await read(make(rest_timeout=0.2))) == "z"
