"""Rendered texts by their source, so that a reload and a second tab cost nothing, and so that long ones do not stop the loop.

Called by `channels.web.api` and `channels.web.stream`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from channels.web.html import to_html

MAX_CHARS = 4 * 1024 * 1024
ASIDE_ABOVE = 4000
"""Texts above this many characters (some 5 ms) are rendered in a thread, so that the loop goes on between its slices."""


class Rendering:
    """`to_html` with a bounded memory, the longest unused going first."""

    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self._kept: OrderedDict[str, str] = OrderedDict()
        self.size = 0
        """Characters that are held, sources and results."""
        self._max = max_chars
        self._aside = asyncio.Lock()

    async def html(self, markdown: str) -> str:
        """Safe HTML of a text. Gives the loop a turn for each text that is rendered anew. The lock guards the thread only, and is short."""
        found = self._kept.get(markdown)
        if found is not None:
            self._kept.move_to_end(markdown)
            return found
        if len(markdown) > ASIDE_ABOVE:
            # One at a time: the threads are the writer's too, and many pages may want the same text at once.
            async with self._aside:
                if markdown in self._kept:
                    return self._kept[markdown]
                made = await asyncio.to_thread(to_html, markdown)
                self._keep(markdown, made)
        else:
            await asyncio.sleep(0)
            made = to_html(markdown)
            self._keep(markdown, made)
        return made

    def _keep(self, markdown: str, made: str) -> None:
        if markdown not in self._kept:
            self._kept[markdown] = made
            self.size += len(markdown) + len(made)
            while self.size > self._max:
                source, old = self._kept.popitem(last=False)
                self.size -= len(source) + len(old)
