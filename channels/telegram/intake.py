"""What happens to updates whichever way they come: each is read for itself, the batch is accepted in one call, then button presses are
answered. Called by `poll` and `webhook`; owned by the channel.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

import structlog

from channels.base import Accept
from channels.telegram.moves import Moves
from channels.telegram.parse import Me, Parsed, merge_albums, parse
from channels.telegram.updates import FAULTS, decode, number

log = structlog.get_logger(__name__)

_ALBUMS = 1000
"""How many albums are remembered, so that the rest of one that comes with the next batch is not answered again."""
_ANSWERS = 100
"""Most answers to button presses on their way; those above are left out: the button stops spinning by itself after a while."""

Answer = Callable[[str, bool], Awaitable[None]]
"""(callback id, expired): tells Telegram that a press has arrived. Raises nothing."""


class Intake:
    def __init__(self, me: Me, accept: Accept, answer: Answer, moves: Moves) -> None:
        self._me, self._accept, self._answer, self._moves = me, accept, answer, moves
        self._albums: OrderedDict[str, None] = OrderedDict()
        self._answers: set[asyncio.Task[None]] = set()
        self.bad = 0
        """Updates that could not be read, and were passed over."""

    async def take(self, updates: Sequence[bytes]) -> None:
        """Returns when all of them are with the gateway: only then may they be confirmed. Raises OSError where it could not write; then
        nothing was done, and the same updates shall come again."""
        read = [parsed for raw in updates if (parsed := self._read(raw)) is not None]
        for parsed in read:
            if parsed.moved:
                await self._moves.learn(*parsed.moved)
        batch = merge_albums(read, self._albums.keys())
        inbounds = [self._moves.homed(parsed.inbound) for parsed in batch if parsed.inbound is not None]
        if inbounds:
            await self._accept(inbounds)
        for parsed in batch:
            if parsed.album:
                self._albums[parsed.album] = None
        while len(self._albums) > _ALBUMS:
            self._albums.popitem(last=False)
        for parsed in read:
            if parsed.callback:
                self._tell(parsed)

    def _read(self, raw: bytes) -> Parsed | None:
        try:
            return parse(decode(raw), self._me)
        except FAULTS as fault:
            self.bad += 1
            why = type(fault).__name__  # and not its text, which may have a person's words in it
            log.warning("update passed over", channel="telegram", update=number(raw), reason=why, bytes=len(raw), count=self.bad)
            return None

    def _tell(self, parsed: Parsed) -> None:
        """Beside the reading: a slow answer to a press must not hold up the next message."""
        if len(self._answers) >= _ANSWERS:
            log.warning("too many button presses to answer", channel="telegram")
            return
        task = asyncio.create_task(self._say(parsed), name="telegram answer")
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _say(self, parsed: Parsed) -> None:
        await self._answer(parsed.callback, parsed.expired)

    async def close(self) -> None:
        """Gives the answers that are on their way a moment, then ends them."""
        if self._answers:
            _, late = await asyncio.wait(self._answers, timeout=1.0)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
