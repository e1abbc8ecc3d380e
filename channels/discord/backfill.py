"""What was written while nobody listened: fetched from the channels' histories, oldest first, when a new session begins.

Discord never repeats a message, and a session that is resumed in time brings all of them. A new session begins with READY and the servers;
from the marks it is known since when something may be missing. Of a server's channels those are asked in which something was said since
then (Discord tells each one's newest message), and all direct chats that are known. Messages that mention or answer the bot go the usual
way; what the gateway has already it recognises by its id. Until a channel's past is through, what is said in it now waits in the intake.

A first start fetches nothing. Slash commands and presses cannot be fetched, nor can direct chats be found in which nobody wrote before:
Discord's list of them is always empty for a bot (discord-api-docs, issue 615). Called by `reading`, which owns the tasks that run `work`.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from channels.base import Denied, Inbound, NotSent, Refused, Retry, Unknown
from channels.discord.errors import translate
from channels.discord.intake import Intake
from channels.discord.marks import Marks
from channels.discord.payloads import FAULTS, Channel, convert, made_at, snowflake_at
from channels.discord.places import Place, place_of
from channels.discord.transport import Refusal

log = structlog.get_logger(__name__)

MARGIN = 120.0
"""Seconds before the last sign of life from which on is fetched: clocks differ, and a connection dies before it is noticed."""
PAGE = 100
MOST_PAGES = 20
"""Of one channel so many pages are fetched, the oldest ones."""
GUILDS_SECONDS = 30.0
"""So long after READY the servers are waited for."""
_TRIES = 5
_TEXT = frozenset({0, 1, 2, 5, 10, 11, 12, 13})
"""Types of channels in which people write."""

History = Callable[[str, int], Awaitable[object]]
"""`await history(channel id, after)`: raw messages behind that id, at most PAGE, the oldest ones. Raises ChannelError."""
Read = Callable[[object, Place], Inbound | None]
"""What a raw message comes to. Must not raise."""


@dataclass(slots=True)
class _Job:
    place: Place
    after: int
    fails: int = 0
    held: bool = True


class Backfill:
    """`clock` gives seconds since the epoch."""

    def __init__(
        self,
        history: History,
        read: Read,
        intake: Intake,
        marks: Marks,
        *,
        backlog: float,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._history, self._read, self._intake, self._marks = history, read, intake, marks
        self._clock, self._pause = clock, pause
        self.backlog = backlog
        """What is older than so many seconds is left; 0: nothing is."""
        self._jobs: OrderedDict[str, _Job] = OrderedDict()
        self._guilds: set[str] = set()
        self._until = 0.0
        self._floor = 0
        self._active = 0
        self._wake = asyncio.Event()
        self._open = False
        self._fetched = 0
        self.inputs = 0

    @property
    def complete(self) -> bool:
        """Nothing is missing any more, as far as it can be fetched."""
        return not (self._jobs or self._active) and (not self._guilds or self._clock() > self._until)

    def begin(self, guilds: Iterable[str]) -> None:
        """READY: a new session, with these servers to come."""
        now = self._clock()
        if self._marks.alive is None:
            self._marks.live(now)
            return
        since = max(self._marks.alive - MARGIN, now - self.backlog if self.backlog else 0.0)
        self._floor, self._guilds, self._until, self._open = snowflake_at(since), set(guilds), now + GUILDS_SECONDS, True
        for chat, last in reversed(self._marks.direct.items()):
            self._plan(Place(chat), max(last, self._floor))
        self._wake.set()

    def guild(self, data: Mapping[str, Any], may_read: Callable[[str], bool]) -> None:
        """GUILD_CREATE: one of the servers, with its channels and threads."""
        guild = str(data.get("id"))
        if guild not in self._guilds:
            return
        self._guilds.discard(guild)
        for raw in (*(data.get("channels") or ()), *(data.get("threads") or ())):
            try:
                channel = convert(raw, Channel)
                last = int(channel.last_message_id or 0)
            except FAULTS:
                continue
            if channel.type in _TEXT and last > self._floor and may_read(channel.id):
                self._plan(place_of(channel, guild), self._floor)
        self._wake.set()

    def _plan(self, place: Place, after: int) -> None:
        if place.channel not in self._jobs:
            self._intake.hold(place.channel)
            self._jobs[place.channel] = _Job(place, after)

    def hurry(self, channel: str) -> None:
        """Somebody speaks there now: its past comes first."""
        if channel in self._jobs:
            self._jobs.move_to_end(channel, last=False)

    async def work(self) -> None:
        """Fetch one channel after the other, until cancelled. Several may work side by side. Raises Denied."""
        while True:
            if not self._jobs:
                self._done()
                self._wake.clear()
                await self._wake.wait()
                continue
            channel, job = self._jobs.popitem(last=False)
            self._active += 1
            try:
                again = not await self._fetch(channel, job)
                if again:
                    self._jobs[channel] = job
            finally:
                self._active -= 1
            if not again or job.fails >= _TRIES:
                self._let_go(channel, job)

    def _let_go(self, channel: str, job: _Job) -> None:
        if job.held:
            job.held = False
            self._intake.release(channel)

    def _done(self) -> None:
        if self._open and self.complete:
            self._open = False
            log.info("caught up with what was missed", channel="discord", chats=self._fetched, inputs=self.inputs)
            self._fetched = self.inputs = 0

    async def _fetch(self, channel: str, job: _Job) -> bool:
        """False: not now, it shall be tried again."""
        for _ in range(MOST_PAGES):
            try:
                page = await self._history(channel, job.after)
            except Retry as error:
                await self._pause(error.after)
                return False
            except (NotSent, Unknown):
                job.fails += 1
                await self._pause(min(30.0, 2.0 ** min(job.fails - 1, 10)))
                return False
            except Refusal as error:
                fault = translate(error)
                if isinstance(fault, Denied):
                    raise fault from None
                assert isinstance(fault, Refused)
                log.info("cannot read what was missed", channel="discord", chat=channel, problem=str(fault))
                return True
            raws = sorted((raw for raw in page if _id(raw)), key=_id) if isinstance(page, list) else []
            found = [(_id(raw), inbound) for raw in raws if (inbound := self._read(raw, job.place)) is not None]
            # What is newer than something that was told meanwhile waits with it: commands are in no history, and nothing may pass them.
            told = self._intake.first(channel)
            for number, inbound in found:
                if told and number >= told:
                    self._intake.insert(channel, made_at(str(number)), inbound, number)
            early = [(channel, inbound) for number, inbound in found if not told or number < told]
            failures = 0
            while not await self._intake.hand_over(early, failures):
                failures += 1
            self.inputs += len(found)
            if raws:
                job.after = _id(raws[-1])
                if not job.place.guild:
                    self._marks.heard(channel, min(job.after, told - 1) if told else job.after)
            if len(raws) < PAGE:
                self._fetched += 1
                return True
        log.warning("more was said than is looked through", channel="discord", chat=channel, messages=MOST_PAGES * PAGE)
        return True


def _id(raw: object) -> int:
    said = raw.get("id") if isinstance(raw, dict) else None
    return int(said) if isinstance(said, str) and said.isdecimal() else 0
