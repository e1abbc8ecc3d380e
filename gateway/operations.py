"""What an operator can do with conversations: list, show, export, delete, fork. One implementation, used twice: by the running daemon
behind its control socket (made in `gateway.app`), and by the command line on a folder that no daemon has (`gateway.offline`).

Keys are taken as lists show them and are never guessed from file names. What changes something waits for the key's lock, so for the end of
a running turn; a caller who leaves while it waits has changed nothing, and one who leaves later has it done whole.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import structlog

from gateway.answers import Conversation, Deleted, Forked, Listing, Row, Stretch, Unlisted, shown
from gateway.errors import NoSession, SessionExists, Told
from gateway.message import NAME, SessionKey
from gateway.sessions import SessionManager
from gateway.store.base import Overview, SessionLog

log = structlog.get_logger(__name__)

T = TypeVar("T")

PAGE = 192 * 1024
"""Bytes of a session in one part of an export."""
KEYS_AT_ONCE = 50
"""Keys whose sessions one part of a list holds, and one hop off the loop reads."""
MOST_SHOWN = 1000
"""Messages that `show` gives; more is what an export is for."""
_SHOWN_AT_ONCE = 20
_HINTS = 6


class Forgets(Protocol):
    """The inbox, or as much of it as is needed here."""

    async def forget(self, key: str) -> None:
        """See `gateway.inbox.Inbox.forget`."""


class Operations:
    """Raises Told with a sentence where something cannot be, and what the store raises."""

    def __init__(self, sessions: SessionManager, log: SessionLog, inbox: Forgets) -> None:
        self._sessions, self._log, self._inbox = sessions, log, inbox

    def handlers(self) -> Mapping[str, Callable[[Mapping[str, str]], Awaitable[object] | AsyncGenerator[object, None]]]:
        """By the names that the command line calls them."""
        return {
            "sessions.list": lambda args: self.list(args.get("prefix", "")),
            "sessions.show": lambda args: self.show(args.get("key", ""), args.get("name", ""), _number(args.get("last", "20"))),
            "sessions.export": lambda args: self.export(args.get("key", ""), args.get("name", "")),
            "sessions.delete": lambda args: self.delete(args.get("key", ""), args.get("name", "")),
            "sessions.fork": lambda args: self.fork(args.get("key", ""), args.get("name", ""), args.get("new", "")),
        }

    async def list(self, prefix: str) -> AsyncGenerator[Listing, None]:
        """All sessions of all keys that begin so, a few keys at a time. Reads headers and last lines only."""
        keys = await self._log.keys(prefix)
        for at in range(0, len(keys), KEYS_AT_ONCE):
            found = await self._log.overview(keys[at : at + KEYS_AT_ONCE])
            yield Listing(
                tuple(row for overview in found for row in _rows(overview)),
                tuple(Unlisted(str(overview.key), overview.unreadable) for overview in found if overview.unreadable),
            )

    async def show(self, key_text: str, name: str, last: int) -> AsyncGenerator[Conversation, None]:
        """The newest `last` messages, as the conversation stands after undo and retry."""
        if not 1 <= last <= MOST_SHOWN:
            raise Told(f"show gives 1 to {MOST_SHOWN} messages; export gives all")
        key = _key(key_text)
        name = await self._named(key, name)
        async with self._knowing(key, name):
            session = await self._sessions.newest(key, name, last)
        header = session.header
        yield Conversation(
            key=str(key),
            name=name,
            title=header.title,
            created=header.created,
            lines=session.last,
            turns=session.turns,
            parent=header.parent.name if header.parent else "",
        )
        messages = list(session.messages)[-last:]
        for at in range(0, len(messages), _SHOWN_AT_ONCE):
            yield Conversation(messages=tuple(map(shown, messages[at : at + _SHOWN_AT_ONCE])))

    async def export(self, key_text: str, name: str) -> AsyncGenerator[Stretch, None]:
        """The session's file, in parts. Lines that are written meanwhile come along."""
        key = _key(key_text)
        name = await self._named(key, name)
        at, more = 0, True
        while more:
            async with self._knowing(key, name):
                page = await self._log.page(key, name, at, PAGE)
            if more := bool(page.data):
                yield Stretch(str(key), name, page.data, page.size)
                at = page.end

    async def delete(self, key_text: str, name: str) -> Deleted:
        """One session for good, or ("") all that is kept of the key, words in the journal included."""
        key = _key(key_text)
        async with self._sessions.hold(key):
            there = tuple(each.header.name for each in await self._log.sessions(key))
            if name:
                gone: tuple[str, ...] = (name,)
                async with self._knowing(key, name):
                    await _whole(self._sessions.delete(key, name))
            else:
                gone = there
                if not there and await self._log.chat(key) is None:
                    raise Told(await self._no_such(key, ""))
                await _whole(self._forget(key))
        log.info("deleted by the operator", key=str(key), sessions=len(gone), everything=not name)
        return Deleted(str(key), gone, not name)

    async def _forget(self, key: SessionKey) -> None:
        await self._inbox.forget(str(key))  # first: whoever is cut in between finds the sessions still there, and asks again
        await self._sessions.forget(key)

    async def fork(self, key_text: str, name: str, new: str) -> Forked:
        """A copy of all settled turns under a new name; the person's current conversation stays the current one."""
        key = _key(key_text)
        if not NAME.fullmatch(new):
            raise Told("a name has lower-case letters, digits and dashes only, at most 40 of them")
        async with self._sessions.hold(key):
            return await _whole(self._fork(key, name, new))

    async def _fork(self, key: SessionKey, name: str, new: str) -> Forked:
        async with self._knowing(key, name):
            parent = await self._sessions.open(key, name)
            try:
                child = await self._sessions.fork(parent, new, for_="", switch=False)
            except SessionExists:
                raise Told(f"{key} has a session {new} already") from None
        log.info("forked by the operator", key=str(key), session=name, fork=new)
        return Forked(str(key), new, name, child.last)

    # ----------------------------------------------------------------------------------------------------------------------- helpers

    async def _named(self, key: SessionKey, name: str) -> str:
        """The session that is meant: the current one where no name is said."""
        name = name or await self._sessions.peek(key)
        if not name:
            raise Told(await self._no_such(key, ""))
        return name

    @asynccontextmanager
    async def _knowing(self, key: SessionKey, name: str) -> AsyncIterator[None]:
        try:
            yield
        except NoSession:
            raise Told(await self._no_such(key, name)) from None

    async def _no_such(self, key: SessionKey, name: str) -> str:
        """What there is instead."""
        if names := [each.header.name for each in await self._log.sessions(key)]:
            more = f" and {len(names) - _HINTS} more" if len(names) > _HINTS else ""
            return f"{key} has no session {name[:40]!r}; it has {', '.join(names[-_HINTS:])}{more}"
        known = list(map(str, await self._log.keys()))
        longer = [each for each in known if each.startswith(str(key))]
        if close := longer[:3] or difflib.get_close_matches(str(key), known, n=3, cutoff=0.8):
            return f"nothing is kept of {key}; did you mean {' or '.join(close)}?"
        return f"nothing is kept of {key}; `parlour sessions list` shows what there is"


async def _whole(work: Awaitable[T]) -> T:
    """See it through, whoever leaves meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _rows(overview: Overview) -> list[Row]:
    listed = overview.sessions
    names = {each.header.name for each in listed}
    current = overview.current if overview.current in names else ""
    if not current and listed:
        current = max(listed, key=lambda each: (each.modified, each.header.created)).header.name
    return [
        Row(
            key=str(overview.key),
            name=each.header.name,
            title=each.header.title,
            current=each.header.name == current,
            lines=each.last,
            size=each.size,
            created=each.header.created,
            used=round(each.modified, 3),
            parent=each.header.parent.name if each.header.parent else "",
        )
        for each in listed
    ]


def _key(text: str) -> SessionKey:
    try:
        return SessionKey.parse(text)
    except ValueError:
        raise Told(f"not a key: {text[:80]!r}. Keys look like telegram:42; `parlour sessions list` shows them") from None


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
