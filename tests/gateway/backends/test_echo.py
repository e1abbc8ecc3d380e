from __future__ import annotations

import pytest

from gateway.backends.base import Done, Text
from gateway.backends.echo import Echo, make
from gateway.message import ChatMessage, Request
from gateway.options import Backend


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("Hello", "You said: Hello"),
        ("\U0001f680" * 3000, "You said: " + "\U0001f680" * 3000),
        (" ", "You said nothing."),
        (None, "You said nothing."),
    ],
)
async def test_the_persons_words_come_back_in_a_few_parts(words: str | None, answer: str) -> None:
    """The newest user message, streamed, then Done."""
    echo = Echo()
    await echo.check()
    asked = Request((ChatMessage("user", "before"), ChatMessage("assistant", "You said: before"), ChatMessage("user", words)))
    parts = [part async for part in echo.stream(asked)]
    assert "".join(part.text for part in parts if isinstance(part, Text)) == answer
    assert len(parts) == 5
    assert isinstance(parts[-1], Done)
    assert parts[-1].reason == "stop"
    await echo.close()


async def test_a_request_without_a_user_is_answered_too() -> None:
    """There is no request that it cannot answer."""
    parts = [part async for part in make(Backend(kind="echo")).stream(Request(()))]
    assert isinstance(parts[0], Text)
