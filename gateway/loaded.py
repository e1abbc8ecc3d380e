"""Sessions in memory: loading, committing, evicting. The one function that changes a session is `Loaded._commit`.

Commit cannot be split. `commit` is synchronous: it gives events their `seq` and `at`, encodes them, has the store append them and applies
them, and only then can anything else run. The future that it returns tells whether the lines are written; whoever waits for it may be
cancelled, that changes nothing. Where an append fails, memory is ahead of the file: the session is *stale*, what was committed behind the
failed lines fails too, and the session is read again, in place, before it takes another commit. Nothing that was acknowledged is lost.

A session is loaded, or a stub (its last seq, all that a `sent` line needs), or not here at all. One that is in use (its key is held, it has
an append on its way) is never evicted; one that is pinned (pieces of its answer are still to be sent) is evicted only when nothing else is
left to evict, and leaves a stub.

Each place has a short lock of its own, `gate`, closed while the session is read or deleted; no commit passes a closed gate.

Called by `gateway.sessions` alone, which adds the key locks and knows which session is current.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import islice

import msgspec
import structlog

from gateway.errors import Conflict, NoSession, StoreError
from gateway.lines import UNREADABLE
from gateway.message import NAME, Event, Foreign, Sent, SessionKey, State, decode_event, encode_line, timestamp
from gateway.outage import passing
from gateway.session import EVERYTHING, Keep, Session
from gateway.store.base import SessionLog, Tail

log = structlog.get_logger(__name__)

LOOK = 256
"""Sessions that one eviction looks at, at most."""
BREATH = 500
"""Lines that are decoded before others get their turn."""


class _Entry:
    """A session's place in the manager. See the module for the states that it has."""

    __slots__ = (
        "_waiting",
        "bytes",
        "durable",
        "flight",
        "gate",
        "gone",
        "key",
        "last",
        "lines",
        "name",
        "pins",
        "session",
        "size",
        "stale",
        "users",
    )

    def __init__(self, key: SessionKey, name: str) -> None:
        self.key, self.name = key, name
        self.session: Session | None = None
        self.last = -1  # the newest seq given out; -1: not known, read first
        self.durable = 0  # the newest seq known to be written
        self.stale = False
        self.gone = False  # deleted: whoever still holds this entry gets NoSession
        self.gate = asyncio.Lock()
        self.users = 0  # coroutines at work on this entry
        self.pins = 0
        self.flight = 0  # appends on their way
        self._waiting: list[asyncio.Future[None]] = []  # for all of them
        self.lines = self.bytes = 0  # since the newest `state` line
        self.size = 0  # what the cache counts for it

    @property
    def ready(self) -> bool:
        """A line may be appended now, without reading anything."""
        return self.last >= 0 and not self.stale and not self.gone and not self.gate.locked()

    def land(self) -> None:
        """An append has its result."""
        self.flight -= 1
        if not self.flight:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def landed(self) -> None:
        """Wait until nothing is on its way."""
        while self.flight:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future


class Loaded:
    """See the module."""

    def __init__(
        self,
        store: SessionLog,
        keep: Keep,
        *,
        limit: int,
        every: tuple[int, int],
        clock: Callable[[], float],
        in_use: Callable[[SessionKey], bool],
    ) -> None:
        """`limit`: bytes that loaded sessions may take together, those in use aside. `every`: lines and bytes between `state` lines."""
        self._log = store
        self.keep = keep
        self._limit = limit
        self._state_lines, self._state_bytes = every
        self._clock = clock
        self._in_use = in_use
        self._entries: dict[tuple[SessionKey, str], _Entry] = {}
        self._loaded: OrderedDict[tuple[SessionKey, str], _Entry] = OrderedDict()  # those with a session, the one used last at the end
        self._bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait until everything committed is written or has failed."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        for entry in list(self._entries.values()):
            await entry.landed()

    # -------------------------------------------------------------------------------------------------------------------- committing

    def commit(self, session: Session, events: Sequence[Event]) -> asyncio.Future[int]:
        """See `SessionManager.commit`."""
        entry = self._entries.get((session.key, session.name))
        if entry is None or entry.session is not session or not entry.ready:
            return _failed(Conflict(session.last, entry.durable if entry is not None else 0))
        return self._commit(entry, events)

    def commit_sent(self, key: SessionKey, name: str, event: Sent, for_: str = "") -> asyncio.Future[int]:
        """See `SessionManager.commit_sent`."""
        try:
            entry = self._entry(key, name)
        except NoSession as error:
            return _failed(error)
        if entry.ready:
            return self._commit_piece(entry, event, for_)
        recorded: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        entry.users += 1
        self._own(self._commit_later(entry, event, for_, recorded))
        return recorded

    def _commit_piece(self, entry: _Entry, event: Sent, for_: str) -> asyncio.Future[int]:
        known = next((m for m in reversed(entry.session.messages) if m.seq <= event.of), None) if entry.session is not None else None
        if event.of > entry.last or (
            for_ and known is not None and known.seq == event.of and known.for_ != for_ and for_ not in known.answers
        ):
            # A session of that name was deleted and made anew while its last answer was on the way.
            return _failed(NoSession(f"{entry.key} has no answer {event.of} in {entry.name}"))
        return self._commit(entry, (event,))

    async def _commit_later(self, entry: _Entry, event: Sent, for_: str, recorded: asyncio.Future[int]) -> None:
        try:
            await self._load(entry)
            written = self._commit_piece(entry, event, for_)
            await asyncio.wait([written])
            _hand_on(written, recorded)
        except (OSError, StoreError) as error:
            _fail(recorded, error)
        finally:
            recorded.cancel()  # does nothing unless the loop is being torn down
            entry.users -= 1
            self._tidy(entry)

    def _commit(self, entry: _Entry, events: Sequence[Event]) -> asyncio.Future[int]:
        """The one place where a session changes. Synchronous from the first line to the last."""
        at = timestamp(self._clock())
        expect = last = entry.last
        stamped: list[Event] = []
        for event in events:
            if isinstance(event, Foreign):
                raise TypeError("a line of an unknown type is only ever read")
            last += 1
            stamped.append(msgspec.structs.replace(event, seq=last, at=at))
        if not stamped:
            return _done(last)
        result = last
        lines = [encode_line(event) for event in stamped]  # raises before anything is changed
        entry.lines += len(lines)
        entry.bytes += sum(map(len, lines))
        if (session := entry.session) is not None:
            for event in stamped:
                session.apply(event)
            if (entry.lines >= self._state_lines or entry.bytes >= self._state_bytes) and not session.short:
                for event in _state(session, last + 1, at):
                    last = event.seq
                    session.apply(event)
                    lines.append(encode_line(event))
                entry.lines = entry.bytes = 0
        entry.last = last
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        try:
            self._log.append(entry.key, entry.name, lines, expect, last, partial(self._landed, entry, result, last, answer))
        except (OSError, StoreError) as error:
            self._fault(entry, error)
            _fail(answer, error)
            return answer
        entry.flight += 1
        self._account(entry)
        self.evict()
        return answer

    def _landed(self, entry: _Entry, result: int, last: int, answer: asyncio.Future[int], error: BaseException | None) -> None:
        entry.land()
        if error is None:
            entry.durable = max(entry.durable, last)
            if not answer.done():
                answer.set_result(result)
        else:
            fault = OSError("the append was cancelled") if isinstance(error, asyncio.CancelledError) else error
            self._fault(entry, fault)
            _fail(answer, fault)
        self._tidy(entry)

    def _fault(self, entry: _Entry, error: BaseException) -> None:
        if not entry.stale and not entry.gone:
            entry.stale = True
            tell = log.info if passing(error) else log.warning
            tell("append failed", key=str(entry.key), session=entry.name, error=type(error).__name__, errno=getattr(error, "errno", None))

    # ----------------------------------------------------------------------------------------------------------------------- loading

    def holds(self, key: SessionKey, name: str) -> bool:
        """It is in memory."""
        return (key, name) in self._loaded

    async def open(self, key: SessionKey, name: str) -> Session:
        """See `SessionManager.open`."""
        entry = self._entry(key, name)
        entry.users += 1
        try:
            return await self._load(entry)
        finally:
            entry.users -= 1
            self._tidy(entry)
            self.evict()

    def mistrust(self, key: SessionKey, name: str) -> None:
        """What is known of a session of that name is of another one: it was made anew."""
        entry = self._entries.get((key, name))
        if entry is not None:
            entry.stale = True

    async def glance(self, key: SessionKey, name: str) -> Session:
        """See `SessionManager.glance`."""
        entry = self._entries.get((key, name))
        if entry is not None and entry.session is not None and not entry.stale:
            return entry.session
        if not NAME.fullmatch(name):
            raise NoSession(f"{key} has no session {name!r}")
        return (await self._read(_Entry(key, name)))[0]

    async def newest(self, key: SessionKey, name: str, messages: int) -> Session:
        """See `SessionManager.newest`."""
        if not NAME.fullmatch(name):
            raise NoSession(f"{key} has no session {name!r}")
        return (await self._read(_Entry(key, name), EVERYTHING._replace(messages=messages)))[0]

    async def view(self, key: SessionKey, name: str) -> Session:
        """See `SessionManager.view`."""
        if not NAME.fullmatch(name):
            raise NoSession(f"{key} has no session {name!r}")
        return (await self._replay(key, name, await self._log.read(key, name), EVERYTHING))[0]

    def _entry(self, key: SessionKey, name: str) -> _Entry:
        if not NAME.fullmatch(name):
            raise NoSession(f"{key} has no session {name!r}")
        entry = self._entries.get((key, name))
        if entry is None:
            entry = self._entries[key, name] = _Entry(key, name)
        return entry

    async def _load(self, entry: _Entry) -> Session:
        async with entry.gate:
            if entry.gone:
                raise NoSession(f"{entry.key} has no session {entry.name}")
            if (session := entry.session) is None or entry.stale or session.short or session.keep != self.keep:
                await entry.landed()
                fresh, tail = await self._read(entry)
                if session is None:
                    session = entry.session = fresh
                else:
                    session.become(fresh)
                entry.last = entry.durable = max(tail.last, fresh.last)
                entry.stale = False
            self._account(entry)
        return session

    async def _read(self, entry: _Entry, keep: Keep | None = None) -> tuple[Session, Tail]:
        """The end of the session, as far back as it takes."""
        keep = keep or self.keep
        n = keep.messages + keep.surplus
        while True:
            tail = await self._log.tail(entry.key, entry.name, n)
            session, entry.lines, entry.bytes = await self._replay(entry.key, entry.name, tail, keep)
            if tail.whole or not session.short:
                return session, tail
            n *= 4

    async def _replay(self, key: SessionKey, name: str, tail: Tail, keep: Keep) -> tuple[Session, int, int]:
        """A session from its lines; lines and bytes since the newest `state`."""
        session = Session(key, name, tail.header, keep, whole=tail.whole, replay=True)
        lines = size = bad = 0
        for index, line in enumerate(tail.lines):
            if index % BREATH == BREATH - 1:
                await asyncio.sleep(0)
            try:
                event = decode_event(line)
            except UNREADABLE:
                bad += 1
                continue
            session.apply(event)
            lines, size = (0, 0) if isinstance(event, State) else (lines + 1, size + len(line))
        session.settle()
        if bad:
            log.warning("session lines skipped", key=str(key), session=name, lines=bad)
        return session, lines, size

    # ------------------------------------------------------------------------------------------------------------------------- cache

    def pin(self, key: SessionKey, name: str) -> None:
        """Keep at least the session's last seq at hand until `unpin`. Counted."""
        self._entry(key, name).pins += 1

    def unpin(self, key: SessionKey, name: str) -> None:
        """Undo one `pin`. Harmless where the session is gone."""
        entry = self._entries.get((key, name))
        if entry is not None:
            entry.pins = max(0, entry.pins - 1)
            self._tidy(entry)

    def pinned(self, key: SessionKey, name: str) -> bool:
        """See `SessionManager.pinned`."""
        entry = self._entries.get((key, name))
        return entry is not None and entry.pins > 0

    def busy(self) -> set[SessionKey]:
        """Keys of sessions that are pinned, that somebody is at work on, or that have an append on its way."""
        return {entry.key for entry in self._entries.values() if entry.pins or entry.users or entry.flight}

    @property
    def cached(self) -> tuple[int, int, int]:
        """Loaded sessions, stubs, and bytes of the loaded ones (an estimate)."""
        return len(self._loaded), len(self._entries) - len(self._loaded), self._bytes

    def _account(self, entry: _Entry) -> None:
        size = entry.session.size if entry.session is not None else 0
        self._bytes += size - entry.size
        entry.size = size
        if entry.session is not None:
            self._loaded[entry.key, entry.name] = entry
            self._loaded.move_to_end((entry.key, entry.name))

    def evict(self) -> None:
        """Let go of the sessions that were used longest ago, until the rest fits."""
        if self._bytes <= self._limit:
            return
        pinned: list[_Entry] = []
        for entry in list(islice(self._loaded.values(), LOOK)):
            if self._bytes <= self._limit:
                return
            if self._in_use(entry.key) or entry.flight or entry.users:
                self._loaded.move_to_end((entry.key, entry.name))  # in use, so not the oldest
            elif entry.pins:
                pinned.append(entry)
            else:
                self._unload(entry)
        for entry in pinned:
            if self._bytes <= self._limit:
                return
            self._unload(entry)

    def _unload(self, entry: _Entry) -> None:
        entry.session = None
        self._account(entry)
        self._loaded.pop((entry.key, entry.name), None)
        self._tidy(entry)

    def _tidy(self, entry: _Entry) -> None:
        """Drop a place that holds nothing."""
        idle = entry.session is None and not entry.pins and not entry.users and not entry.flight
        if idle and self._entries.get((entry.key, entry.name)) is entry:
            del self._entries[entry.key, entry.name]

    def _drop(self, entry: _Entry) -> None:
        """The session is deleted."""
        entry.gone = True
        entry.pins = 0
        self._unload(entry)
        if self._entries.get((entry.key, entry.name)) is entry:
            del self._entries[entry.key, entry.name]

    # ---------------------------------------------------------------------------------------------------------------------- deletion

    async def landed(self, session: Session) -> None:
        """Wait until all that was committed to the session is written or has failed."""
        entry = self._entries.get((session.key, session.name))
        if entry is not None:
            await entry.landed()

    async def delete(self, key: SessionKey, name: str) -> None:
        """One session, for good. Raises NoSession, OSError."""
        entry = self._entry(key, name)
        entry.users += 1
        try:
            async with entry.gate:
                await entry.landed()
                await self._log.delete(key, name)
                self._drop(entry)
        finally:
            entry.users -= 1
            self._tidy(entry)

    async def forget(self, key: SessionKey) -> None:
        """Everything of the key, for good. Raises OSError."""
        async with AsyncExitStack() as gates:
            for entry in sorted(self._of(key), key=lambda entry: entry.name):
                await gates.enter_async_context(entry.gate)
                await entry.landed()
            await self._log.delete(key)
            for entry in self._of(key):
                self._drop(entry)

    def _of(self, key: SessionKey) -> list[_Entry]:
        return [entry for entry in self._entries.values() if entry.key == key]

    def _own(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _state(session: Session, seq: int, at: str) -> Iterable[Event]:
    """The `state` line, and behind it the summary that stands, so that a load from the end finds both."""
    yield session.state(seq, at)
    if session.summary is not None:
        yield msgspec.structs.replace(session.summary, seq=seq + 1, at=at)


def _done(seq: int) -> asyncio.Future[int]:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    future.set_result(seq)
    return future


def _failed(error: BaseException) -> asyncio.Future[int]:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    _fail(future, error)
    return future


def _fail(future: asyncio.Future[int], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # whoever waited may be gone; the session's state tells the rest


def _hand_on(source: asyncio.Future[int], target: asyncio.Future[int]) -> None:
    if (error := source.exception()) is not None:
        _fail(target, error)
    elif not target.done():
        target.set_result(source.result())
