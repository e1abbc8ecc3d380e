"""What the tests of the OpenAI backend share: a question, and ways to read what becomes of it."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from gateway.backends.base import Part, Text
from gateway.backends.openai import OpenAI
from gateway.errors import BackendError
from gateway.message import ChatMessage, Request

ASK = Request((ChatMessage("system", "Be brief."), ChatMessage("user", "How are you?")))
SOURCE = "naive -> \u4f60\u597d \U0001f680 \u05e9\u05dc\u05d5\u05dd"
KEY = "sk-proj-secret-0123456789abcdef"


async def read(backend: OpenAI, request: Request = ASK) -> list[Part]:
    async with aclosing(backend.stream(request)) as stream:
        return [part async for part in stream]


def text(parts: list[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


async def fault(backend: OpenAI, request: Request = ASK) -> BackendError:
    """How it fails; whatever was said before is passed over."""
    with pytest.raises(BackendError) as caught:
        await read(backend, request)
    assert not any(word in caught.value.said for word in ("<", "http", "127.0.0.1", KEY, "chunk", "Error", "aiohttp"))
    return caught.value
