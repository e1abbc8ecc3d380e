"""Whom a 429 of Telegram's means: one chat, or the bot as a whole. Pure bookkeeping; the clock is handed in. Called by the channel alone.

The answer does not say. The Bot API has limits for a chat, for a group and for all sends of a bot ("Bots FAQ"), and its server turns each
of them, and its own restart, into the same words, "Too Many Requests: retry after N" (telegram-bot-api: Client.cpp, ClientManager.cpp).
So a wait is taken for the chat's that was refused, until the bot's other chats say otherwise: a limit of the whole bot is one moment for
all of them, and none of them gets through meanwhile. When this many chats were refused with waits that end together, and no call got
through since the first of these refusals, the whole bot is meant. What that costs is known: two more refused calls where it is the bot's
limit; where three chats happened to be held to the same second, and nobody else was spoken to, their wait for who comes next.
"""

from __future__ import annotations

import time
from collections.abc import Callable

CHATS = 3
TOGETHER = 2.0
"""Seconds between the ends of waits that are the same wait: Telegram counts whole ones."""
_MOST = 1000


class Floods:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: dict[str, float] = {}
        """Chat -> when its wait is over."""
        self._suspects: dict[str, float] = {}
        """The same, of those that were refused since a call last got through."""
        self._all = 0.0
        """When a wait of the whole bot is over."""

    def passed(self) -> None:
        """A call for some chat got through: the bot as a whole is not being held."""
        self._suspects.clear()

    def told(self, chat: str, after: float) -> bool:
        """This chat was refused for `after` seconds; whether it seems that the whole bot is."""
        end = self._clock() + after
        if len(self._ends) >= _MOST:
            self._ends = {one: until for one, until in self._ends.items() if until > self._clock()}
            self._suspects = {one: until for one, until in self._suspects.items() if one in self._ends}
        self._ends[chat] = self._suspects[chat] = end
        whole = sum(abs(other - end) <= TOGETHER for other in self._suspects.values()) >= CHATS
        if whole:
            self._all = max(self._all, end)
        return whole

    def left(self, chat: str) -> float:
        """Seconds for which this chat is not to be called any more; 0.0 if it may be."""
        return max(0.0, max(self._ends.get(chat, 0.0), self._all) - self._clock())
