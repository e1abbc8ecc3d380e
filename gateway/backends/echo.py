"""Answers with the person's own words: for a first try without a model, and for tests of everything around one. No network.

Built by `gateway.app`, called by `gateway.turn`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from gateway import options
from gateway.backends.base import Done, Part, Sight, Text
from gateway.message import Request, Usage

PARTS = 4
"""An answer comes in a few parts, so that streaming is seen."""


class Echo:
    name = "echo"

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        asked = next((message.content for message in reversed(request.messages) if message.role == "user"), None)
        text = f"You said: {asked}" if asked and asked.strip() else "You said nothing."
        size = -(-len(text) // PARTS)
        for at in range(0, len(text), size):
            yield Text(text[at : at + size])
            await asyncio.sleep(0)
        yield Done(
            reason="stop", model="echo", usage=Usage(sum(len(message.content or "") for message in request.messages) // 4, len(text) // 4)
        )

    async def check(self) -> None:
        pass

    async def close(self) -> None:
        pass


def make(settings: options.Backend) -> Echo:
    """What `[backend]` with kind "echo" describes: nothing can be set."""
    return Echo()


async def survey(settings: options.Backend) -> Sight:
    """It is always there."""
    return Sight()
