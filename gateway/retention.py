"""What is deleted by itself, once a day: files that came along, conversations that nobody uses, the oldest of both above a limit.

`decide` is the policy, pure. `Retention` carries it out, with what must not be touched: a chat that somebody is in (its key is held or
waited for), whose answers are still on their way, or that has unfinished inputs on record. What has been used since it was looked at stays.
Off unless it is configured, and then a dry run until the operator says otherwise. Called by `gateway.app`, which owns the task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

import structlog

from gateway.errors import NoSession
from gateway.inbox import Inbox
from gateway.message import SessionKey
from gateway.metrics import Metrics
from gateway.options import Retention as Rules
from gateway.sessions import SessionManager
from gateway.store.upkeep import Kept, delete_media, look, occupied, survey
from gateway.threads import Threads

log = structlog.get_logger(__name__)

DAY = 86400.0
FIRST = 600.0
"""Seconds from the start to the first run: a daemon that is being looked at is not to delete under the operator's hands."""
RECENT = 7 * DAY
"""A chat that was used since then keeps its current conversation, however old that is, unless `sessions` is shorter."""
NAMED = 20
"""How much of what went the log names."""


class Doomed(NamedTuple):
    """What is to go."""

    key: SessionKey
    kind: Literal["media", "session"]
    name: str
    size: int
    used: float


def decide(kept: Iterable[Kept], rules: Rules, *, now: float, taken: int, busy: Container[SessionKey] = ()) -> list[Doomed]:
    """What goes, of what there is. `taken`: bytes that the whole data folder takes up; `busy`: chats of which nothing goes now.

    First what is too old. If that does not bring the folder below its limit, the oldest files that came along, then the conversations that
    were unused for longest and not within the last day. What is protected stays, and so does the current conversation of a chat that was
    used of late.
    """
    recent = min(RECENT, rules.sessions) if rules.sessions else RECENT
    going: list[Doomed] = []
    media: list[Doomed] = []
    sessions: list[Doomed] = []
    for chat in kept:
        key = str(chat.key)
        if chat.key in busy or key in rules.protect:
            continue
        if not any(f"{key}/{file.name}" in rules.protect for file in chat.sessions):  # whose attachments they are, nobody knows
            for file in chat.media:
                one = Doomed(chat.key, "media", *file)
                (going if rules.media and now - file.used > rules.media else media).append(one)
        for file in chat.sessions:
            if f"{key}/{file.name}" in rules.protect or (file.name == chat.current and now - chat.used <= recent):
                continue
            one = Doomed(chat.key, "session", *file)
            if rules.sessions and now - file.used > rules.sessions:
                going.append(one)
            elif now - file.used > DAY:
                sessions.append(one)
    if rules.disk:
        left = taken - sum(one.size for one in going)
        for one in (*sorted(media, key=_age), *sorted(sessions, key=_age)):
            if left <= rules.disk:
                break
            going.append(one)
            left -= one.size
    return sorted(going, key=lambda one: (str(one.key), one.kind, one.name))


def _age(one: Doomed) -> float:
    return one.used


class Went(NamedTuple):
    """What became of a run."""

    gone: list[Doomed]
    in_use: int
    """Left for the next time."""
    failed: int


class Retention:
    """`rules` may be replaced at any time."""

    def __init__(
        self,
        rules: Rules,
        folder: Path,
        sessions: SessionManager,
        inbox: Inbox,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`folder`: the data folder. `clock`: seconds since the epoch, as files have their times."""
        self.rules = rules
        self._folder, self._root = folder, folder / "sessions"
        self._sessions, self._inbox, self._metrics = sessions, inbox, metrics
        self._clock, self._pause = clock, pause
        self._threads = Threads(1, "retention")

    async def run(self) -> None:
        """Once a day until cancelled."""
        await self._pause(FIRST)
        while True:
            try:
                await self.once()
            except OSError as error:
                log.error("retention failed", error=str(error))
            await self._pause(DAY)

    async def once(self) -> Went:
        """Look, decide, and let go of it, or say what would go. Raises OSError where the folder cannot be looked at."""
        rules = self.rules
        if not (rules.media or rules.sessions or rules.disk):
            return Went([], 0, 0)
        kept = await self._threads.hop(survey, self._root)
        taken = await self._threads.hop(occupied, self._folder) if rules.disk else 0
        doomed = decide(kept, rules, now=self._clock(), taken=taken, busy=self._busy())
        went = Went(doomed, 0, 0) if rules.dry_run else await self._let_go(doomed)
        log.info(
            "retention (dry run, nothing was deleted)" if rules.dry_run else "retention",
            sessions=sum(one.kind == "session" for one in went.gone),
            media=sum(one.kind == "media" for one in went.gone),
            bytes=sum(one.size for one in went.gone),
            in_use=went.in_use,
            failed=went.failed,
            names=[f"{one.key}/{one.name}" for one in went.gone[:NAMED]],
        )
        return went

    async def close(self) -> None:
        await self._threads.close()

    def _busy(self) -> set[SessionKey]:
        return self._sessions.busy() | {SessionKey.parse(pending.input.key) for pending in self._inbox.unfinished()}

    async def _let_go(self, doomed: Sequence[Doomed]) -> Went:
        gone: list[Doomed] = []
        in_use = failed = 0
        for key, group in groupby(doomed, key=lambda one: one.key):
            each = list(group)
            if key in self._busy():
                in_use += len(each)
                continue
            async with self._sessions.hold(key):
                try:
                    done = await self._of(key, each)
                except OSError as error:
                    log.warning("retention cannot delete", key=str(key), error=str(error))
                    failed += len(each)
                else:
                    gone += done
                    in_use += len(each) - len(done)
        for one in gone:
            self._metrics.removed.add(one.kind)
            self._metrics.freed.add(by=one.size)
        return Went(gone, in_use, failed)

    async def _of(self, key: SessionKey, doomed: Sequence[Doomed]) -> list[Doomed]:
        """Under the key's lock. What is not as it was when it was looked at has been used since, and stays."""
        chat = await self._threads.hop(look, self._root, key)
        if chat is None:
            return []
        there = {("session", file.name): file.used for file in chat.sessions} | {("media", file.name): file.used for file in chat.media}
        unused = [one for one in doomed if there.get((one.kind, one.name)) == one.used]
        if len(unused) == len(there) and not any(self._sessions.pinned(key, one.name) for one in unused):
            # All of the chat, in one step: what a crash left of it one by one, a pointer to nothing, no later run would find.
            await self._sessions.forget(key)
            return unused
        gone: list[Doomed] = []
        for one in unused:
            if one.kind == "media":
                await self._threads.hop(delete_media, self._root, key, one.name)
            elif self._sessions.pinned(key, one.name):
                continue
            else:
                try:
                    await self._sessions.delete(key, one.name)
                except NoSession:
                    continue
            gone.append(one)
        return gone
