"""The sessions of all keys: who may change one, which one a key talks in, and how they come, go and are listed.

Locks. The key lock (`hold`) comes first: `current`, `open`, `commit`, `create`, `fork`, `switch`, `delete` and `forget` are called under
it ("lock, then load"). `commit_sent`, `pin`, `unpin`, `peek`, `view` and `sessions` need none. What keeps a session in memory, and the one
commit function, is `gateway.loaded`.

A session is made first and pointed to afterwards, so that the pointer never leads to a file that was not finished; where the process dies
between the two, the session's header names the input that asked for it (`effect`).

Called by the runner, the commands, the ledger and the desk. Knows no network, no model and no file.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager

import structlog

from channels.base import SessionInfo
from gateway.effects import Effect, effect
from gateway.errors import Conflict, Corrupt, NoSession, SessionExists, StoreError
from gateway.keylocks import KeyLocks
from gateway.loaded import Loaded
from gateway.message import FORMAT_VERSION, NAME, Chat, Event, Header, Parent, Sent, SessionKey, timestamp
from gateway.naming import free_name, slug
from gateway.session import Keep, Session
from gateway.store.base import Listed, SessionLog
from gateway.window import cost

__all__ = ["Effect", "SessionManager", "free_name", "slug"]

log = structlog.get_logger(__name__)

MAIN = "main"
STATE_LINES = 250
STATE_BYTES = 256 * 1024
POINTERS = 4096
"""Keys whose current session is remembered, so that a turn does not read `_chat.jsonl`."""


class SessionManager:
    """See the module."""

    slug = staticmethod(slug)
    free_name = staticmethod(free_name)

    def __init__(
        self,
        store: SessionLog,
        *,
        cache_bytes: int,
        history_messages: int,
        history_tokens: int,
        clock: Callable[[], float],
        state_lines: int = STATE_LINES,
        state_bytes: int = STATE_BYTES,
    ) -> None:
        """`store` is open and is closed by whoever opened it. `clock`: seconds since the epoch. A `state` line is written at least every
        `state_lines` lines or `state_bytes` bytes, whichever comes first."""
        self._log = store
        self._clock = clock
        self._loaded = Loaded(
            store,
            Keep(history_messages, history_tokens, cost),
            limit=cache_bytes,
            clock=clock,
            every=(state_lines, state_bytes),
            in_use=lambda key: key in self._locks,
        )
        self._locks = KeyLocks(self._loaded.evict)
        self._pointers: OrderedDict[SessionKey, str] = OrderedDict()

    def hold(self, key: SessionKey) -> AbstractAsyncContextManager[None]:
        """The key lock: FIFO, counted, dropped when idle."""
        return self._locks.hold(key)

    def remember(self, history_messages: int, history_tokens: int) -> None:
        """How much a window may hold from here on. A session in memory is read again before its next turn."""
        self._loaded.keep = Keep(history_messages, history_tokens, cost)

    async def close(self) -> None:
        """Wait until everything committed is written or has failed."""
        await self._loaded.close()

    # ------------------------------------------------------------------------------------------------------ one session (gateway.loaded)

    def commit(self, session: Session, *events: Event) -> asyncio.Future[int]:
        """Make `events` (with seq 0 and at "") the newest lines. Synchronous; the future gives the seq of the last of them once they are
        written. Under `hold`.

        The future raises OSError, Conflict or NoSession, and then none of them is in the session. Conflict also where the session is stale
        or not the one that is loaded: `open`, `current` or `refresh` it, then decide anew. Raises UnicodeEncodeError at once for text with
        lone surrogates, with nothing changed.
        """
        return self._loaded.commit(session, events)

    def commit_sent(
        self,
        key: SessionKey,
        name: str,
        of: int,
        span: tuple[int, int],
        ids: Sequence[str] = (),
        unknown: bool = False,
        *,
        stopped: bool = False,
        for_: str = "",
    ) -> asyncio.Future[int]:
        """Record that a piece of the answer `of` is with the network, or (`stopped`) that it never will be. Needs no lock and no loaded
        session; a stale one is read again first. `for_`: the input that it answers; where `of` is known to answer another one, the session
        was deleted and made anew. The future raises OSError, Conflict, NoSession or Corrupt."""
        event = Sent(seq=0, at="", of=of, span=span, ids=tuple(ids), unknown=unknown, stopped=stopped)
        return self._loaded.commit_sent(key, name, event, for_)

    async def open(self, key: SessionKey, name: str) -> Session:
        """The session, loaded and with all that a window can need. Under `hold`. Raises NoSession, Corrupt, OSError."""
        return await self._loaded.open(key, name)

    async def refresh(self, session: Session) -> None:
        """Read a stale or short session again, in place: after a failed commit, or after a retry that took back much. No-op for a sound
        one. Raises NoSession, Corrupt, OSError, and Conflict where another object is the loaded one."""
        if await self._loaded.open(session.key, session.name) is not session:
            raise Conflict(session.last, 0)

    async def view(self, key: SessionKey, name: str) -> Session:
        """All of a session, as it is on record, for reading: nobody else's object, kept by nobody. Raises NoSession, Corrupt, OSError."""
        return await self._loaded.view(key, name)

    async def glance(self, key: SessionKey, name: str) -> Session:
        """The session's newest part, as much as a window can need, for reading at this moment only: it may be the loaded one, which goes
        on changing. Takes no lock, and costs the same however long the session is. Raises NoSession, Corrupt, OSError."""
        return await self._loaded.glance(key, name)

    async def newest(self, key: SessionKey, name: str, messages: int) -> Session:
        """The session's newest part, that many of the messages that count or a few more, for reading: nobody else's object, kept by
        nobody. Takes no lock. Raises NoSession, Corrupt, OSError."""
        return await self._loaded.newest(key, name, messages)

    def at_hand(self, key: SessionKey) -> bool:
        """The session that the key talks in is in memory: nothing has to be read."""
        name = self._pointers.get(key)
        return name is not None and self._loaded.holds(key, name)

    def pin(self, key: SessionKey, name: str) -> None:
        """Keep at least the session's last seq at hand until `unpin`. Counted."""
        self._loaded.pin(key, name)

    def unpin(self, key: SessionKey, name: str) -> None:
        """Undo one `pin`. Harmless where the session is gone."""
        self._loaded.unpin(key, name)

    @property
    def cached(self) -> tuple[int, int, int]:
        """Loaded sessions, stubs, and bytes of the loaded ones (an estimate)."""
        return self._loaded.cached

    def pinned(self, key: SessionKey, name: str) -> bool:
        """A piece of an answer in this session is still to be sent."""
        return self._loaded.pinned(key, name)

    def busy(self) -> set[SessionKey]:
        """Keys that somebody holds or waits for, or that have something on its way to the disk or to a network."""
        return self._locks.keys() | self._loaded.busy()

    @property
    def keys_held(self) -> int:
        """Keys that somebody holds or waits for."""
        return len(self._locks)

    # ------------------------------------------------------------------------------------------------- which session a key is talking in

    async def current(self, key: SessionKey, *, for_: str) -> Session:
        """The session that the key talks in. Under `hold`.

        A key without any gets `main`, made for the input `for_`. A pointer to nothing falls back to the session that was used last, and
        says so in the log. Raises OSError, and Corrupt where the current session cannot be read: no other is taken in its place unasked.
        """
        name = self._pointers.get(key) or await self._pointer(key)
        if name:
            try:
                session = await self.open(key, name)
            except NoSession:
                log.warning("current session is gone", key=str(key), session=name)
            else:
                self._remember(key, name)
                return session
        for listed in _newest_first(await self._log.sessions(key)):
            try:
                session = await self.open(key, listed.header.name)
            except (NoSession, Corrupt):
                continue
            log.info("went back to the session used last", key=str(key), session=session.name)
            await self._point(key, session.name, "")
            return session
        for name in _main_names():
            try:
                return await self.create(key, name, for_=for_)
            except SessionExists:
                continue  # one that cannot be read: it stays as it is
        raise AssertionError("unreachable")

    async def peek(self, key: SessionKey) -> str:
        """Name of the session that the key talks in, "" if it has none. Takes no lock and makes nothing."""
        if (known := self._pointers.get(key)) is not None:
            return known
        return _current(await self._pointer(key), await self._log.sessions(key))

    async def _pointer(self, key: SessionKey) -> str:
        chat = await self._log.chat(key)
        return chat.current if chat is not None else ""

    async def _point(self, key: SessionKey, name: str, for_: str) -> None:
        self._pointers.pop(key, None)  # until the change is written, the file is asked
        changed = self._log.set_chat(key, Chat(at=timestamp(self._clock()), for_=for_, current=name))
        changed.add_done_callback(lambda done: None if done.cancelled() or done.exception() else self._remember(key, name))
        await asyncio.shield(changed)

    def _remember(self, key: SessionKey, name: str) -> None:
        self._pointers[key] = name
        self._pointers.move_to_end(key)
        if len(self._pointers) > POINTERS:
            self._pointers.popitem(last=False)

    async def create(self, key: SessionKey, name: str, *, title: str = "", for_: str, switch: bool = True) -> Session:
        """A new, empty session. Under `hold`. All or nothing. Raises SessionExists, OSError; ValueError where `name` is none."""
        header = self._header(key, name, title, for_, None)
        await self._log.create(key, name, header)
        return await self._enter(key, name, for_, switch)

    async def begin(self, key: SessionKey, *, for_: str) -> Session:
        """A new, empty session under the next free number. Under `hold`. Raises OSError."""
        taken = {info.name for info in await self.sessions(key)}
        while True:
            name = free_name(taken)
            try:
                return await self.create(key, name, for_=for_)
            except SessionExists:
                taken.add(name)  # one that cannot be read is in no list: it stays as it is

    async def fork(self, session: Session, name: str, *, title: str = "", for_: str, switch: bool = True) -> Session:
        """A new session that equals `session` up to its newest settled point: no unfinished turn goes along. Under `hold`. All or
        nothing. Raises SessionExists, NoSession, OSError; ValueError where `name` is none."""
        key = session.key
        await self.refresh(session)
        await self._loaded.landed(session)
        await self.refresh(session)
        at = session.settled
        if at is None:
            at = (await self.view(key, session.name)).settled or 0
        await self._log.fork(key, session.name, key, name, at, self._header(key, name, title, for_, Parent(str(key), session.name, at)))
        return await self._enter(key, name, for_, switch)

    async def switch(self, key: SessionKey, name: str, *, for_: str) -> Session:
        """Make an existing session current. Under `hold`. Raises NoSession, Corrupt, OSError."""
        session = await self.open(key, name)
        await self._point(key, name, for_)
        return session

    def _header(self, key: SessionKey, name: str, title: str, for_: str, parent: Parent | None) -> Header:
        if not NAME.fullmatch(name):
            raise ValueError(f"not a session name: {name!r}")
        created = timestamp(self._clock())
        return Header(
            v=FORMAT_VERSION, key=str(key), name=name, title="" if title == name else title, created=created, for_=for_, parent=parent
        )

    async def _enter(self, key: SessionKey, name: str, for_: str, switch: bool) -> Session:
        """Load a session that was just made, then point to it. If the pointer cannot be written, the session goes again."""
        self._loaded.mistrust(key, name)
        try:
            session = await self.open(key, name)
            if switch:
                await self._point(key, name, for_)
        except OSError:
            try:
                await self.delete(key, name)
            except (OSError, StoreError) as error:
                log.warning("unused session left", key=str(key), session=name, error=type(error).__name__)
            raise
        return session

    # --------------------------------------------------------------------------------------------------------- lists, recovery, deletion

    async def sessions(self, key: SessionKey) -> list[SessionInfo]:
        """All sessions of the key that can be read, oldest first. Reads headers and last lines only."""
        listed = await self._log.sessions(key)
        current = self._pointers.get(key) or _current(await self._pointer(key), listed)
        return [
            SessionInfo(
                name=each.header.name,
                title=each.header.title or each.header.name,
                created=each.header.created,
                current=each.header.name == current,
                last_seq=each.last,
                parent=each.header.parent.name if each.header.parent is not None else "",
                parent_seq=each.header.parent.seq if each.header.parent is not None else 0,
            )
            for each in sorted(listed, key=lambda each: (each.header.created, each.header.name))
        ]

    async def effect(self, key: SessionKey, session_name: str, last_seq: int, input_id: str) -> Effect:
        """What the input did after it was started in `session_name` at `last_seq`. Only at recovery: it reads. Raises Corrupt, OSError."""
        return await effect(self._log, key, session_name, last_seq, input_id)

    async def delete(self, key: SessionKey, name: str) -> None:
        """One session, for good. Under `hold`. Raises NoSession, OSError."""
        try:
            await self._loaded.delete(key, name)
        finally:
            if self._pointers.get(key) == name:
                del self._pointers[key]

    async def forget(self, key: SessionKey) -> None:
        """Everything of the key, for good. Under `hold`. Raises OSError."""
        try:
            await self._loaded.forget(key)
        finally:
            self._pointers.pop(key, None)


def _newest_first(listed: Iterable[Listed]) -> list[Listed]:
    return sorted(listed, key=lambda each: (each.modified, each.header.created), reverse=True)


def _current(pointer: str, listed: Sequence[Listed]) -> str:
    """What the pointer leads to, or what is fallen back to where that is nothing."""
    if not listed or any(each.header.name == pointer for each in listed):
        return pointer if listed else ""
    return _newest_first(listed)[0].header.name


def _main_names() -> Iterable[str]:
    yield MAIN
    yield from (f"chat-{n}" for n in range(2, 10**6))
