"""Rendered texts and the memory for them: `channels.web.rendering`."""

from __future__ import annotations

import asyncio

from channels.web.html import to_html
from channels.web.rendering import ASIDE_ABOVE, Rendering


async def test_the_same_html_from_memory_and_anew() -> None:
    """Short and long texts, asked for once, twice and by many at a time, are what `to_html` gives."""
    rendering = Rendering()
    for text in ("**x**", "**x** " * ASIDE_ABOVE):
        found = await asyncio.gather(*(rendering.html(text) for _ in range(20)))
        assert set(found) == {to_html(text)}
        assert await rendering.html(text) is await rendering.html(text)


async def test_the_memory_is_bounded() -> None:
    """The longest unused text goes; one that is larger than the whole is rendered and not kept."""
    rendering = Rendering(max_chars=100)
    first = await rendering.html("one")
    for n in range(50):
        await rendering.html(f"text {n}")
    assert await rendering.html("one") is not first
    assert "x" * 500 in await rendering.html("x" * 500)
    assert rendering.size <= 100


async def test_a_long_text_does_not_stop_the_loop() -> None:
    """While a text of 150,000 characters is rendered, other tasks go on."""
    rendering = Rendering()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(others())
    await rendering.html("word **bold** [a](https://b.example) " * 4000)
    task.cancel()
    assert turns > 3
