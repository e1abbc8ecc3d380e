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
        self._size = 0
        self._max = max_chars

    async def html(self, markdown: str) -> str:
        """Safe HTML of a text. Gives the loop a turn for each text that is rendered anew."""
        found = self._kept.get(markdown)
        if found is not None:
            self._kept.move_to_end(markdown)
            return found
        if len(markdown) > ASIDE_ABOVE:
            made = await asyncio.to_thread(to_html, markdown)
        else:
            await asyncio.sleep(0)
            made = to_html(markdown)
        if markdown not in self._kept:
            self._kept[markdown] = made
            self._size += len(markdown) + len(made)
            while self._size > self._max:
                source, old = self._kept.popitem(last=False)
                self._size -= len(source) + len(old)
        return made
