"""Sessions in JSONL files, one folder a key: the SessionLog of one machine.

What a file looks like is in `docs/store-format.md`; the blocking work is in `gateway.store.files`. This module orders it: who may append,
what waits for what. It holds no lines, only where a session stands.

The fence. A session is appended to only when it is known where it stands: after `create`, `fork`, or a look at the file, which repairs its
tail. `append` to a session that is not known (never used, or long not used) looks first, by itself; so `expect` is always compared with
the truth, never trusted. While that look runs, appends are held in order. When a write fails, or the file is not of the size that it was
left with (somebody edited it), the session is broken: every append is a Conflict until `tail` or `read` has looked again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from gateway.disk import make_folder, tighten
from gateway.errors import Conflict, NoSession, SessionExists, StartError, StoreError
from gateway.message import NAME, Chat, Header, SessionKey
from gateway.metrics import Damage
from gateway.store import files
from gateway.store.base import Landed, Listed, Overview, Page, Tail
from gateway.store.names import key_folder, session_file
from gateway.store.pointers import Pointers, bound
from gateway.threads import Threads
from gateway.writer import Fence, Overtaken, Result, Writer

log = structlog.get_logger(__name__)

T = TypeVar("T")


class _Job:
    """An append that waits or is on its way."""

    __slots__ = ("_landed", "data", "expect", "future", "last")

    def __init__(self, data: bytes, expect: int, last: int, landed: Landed | None) -> None:
        self.data, self.expect, self.last, self._landed = data, expect, last, landed
        self.future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def settle(self, error: BaseException | None) -> None:
        """Say what came of it, the first time."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(self.last)
        elif isinstance(error, asyncio.CancelledError):
            self.future.cancel()
        else:
            self.future.set_exception(error)
        if self._landed is not None:
            if error is not None:
                self.future.add_done_callback(_heeded)
            self._landed(error)

    def refuse(self, error: BaseException) -> None:
        """The same, at once, from within the call that wants it written."""
        asyncio.get_running_loop().call_soon(self.settle, error)


class _Session(Fence):
    """Where a session stands. `size` is -1 while it is not known; `last` runs ahead of the disk by what is on its way."""

    __slots__ = ("flying", "held", "key", "last", "looking", "name", "path", "told")

    def __init__(self, key: SessionKey, name: str, path: Path) -> None:
        super().__init__()
        self.key, self.name, self.path = key, name, path
        self.last = 0
        self.flying = 0
        self.held: list[_Job] = []
        self.looking: asyncio.Task[StoreError | OSError | None] | None = None
        self.told = -1
        """Offset of the newest bad line that was logged."""

    def usable(self) -> bool:
        return self.size >= 0 and not self.broken and self.looking is None

    @property
    def idle(self) -> bool:
        return not self.flying and not self.held and self.looking is None

    def stands(self, known: files.Known) -> None:
        self.size, self.last, self.broken = known.size, known.last, False


def _heeded(failed: asyncio.Future[int]) -> None:
    """Whoever keeps the books knows of the error; nobody may be left who waits for the future."""
    if not failed.cancelled():
        failed.exception()


class JsonlStore:
    """`SessionLog` over `folder` (`data/sessions`). The caller holds the data folder's lock for as long as this lives."""

    def __init__(self, folder: Path, writer: Writer, *, known: int = 20_000, damage: Damage | None = None) -> None:
        """`known`: of how many sessions it is remembered where they stand; one that is forgotten costs a look at its end."""
        self._root = folder
        self._writer = writer
        self._known = known
        self._damage = damage or Damage()
        self._sessions: OrderedDict[tuple[SessionKey, str], _Session] = OrderedDict()
        self._tasks: set[asyncio.Task[StoreError | OSError | None]] = set()
        self._threads = Threads(4, "store")
        self._hop = self._threads.hop
        self._pointers = Pointers(folder, writer, self._threads, known, self._damage)
        self._forks = asyncio.Semaphore(2)  # so that copies of large sessions leave threads for everybody else

    async def open(self) -> None:
        """Close the folder to others, take away what a crash left half made. Raises StartError."""

        def opening() -> None:
            make_folder(self._root, durable=self._writer.durable)
            tighten(self._root, files.clear)

        try:
            await self._hop(opening)
        except OSError as error:
            raise StartError(f"{self._root}: cannot be used: {error.strerror}") from error

    async def close(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._pointers.close()
        await self._writer.flush()
        await self._threads.close()

    # ---------------------------------------------------------------------------------------------------------------- appending

    def append(
        self, key: SessionKey, name: str, lines: Sequence[bytes], expect: int, last: int, landed: Landed | None = None
    ) -> asyncio.Future[int]:
        job = _Job(b"".join(lines), expect, last, landed)
        try:
            session = self._session(key, name)
        except NoSession as error:
            job.refuse(error)
            return job.future
        if session.usable():
            self._submit(session, job)
        elif session.broken and session.looking is None:
            job.refuse(Conflict(expect, session.last))
        else:
            session.held.append(job)
            self._look(session)
        return job.future

    def _submit(self, session: _Session, job: _Job) -> None:
        if session.broken or job.expect != session.last:
            job.refuse(Conflict(job.expect, session.last))
            return
        session.last = job.last
        session.flying += 1
        self._writer.submit(session.path, job.data, partial(self._written, session, job), create=False, fence=session)

    def _written(self, session: _Session, job: _Job, result: Result) -> None:
        session.flying -= 1
        if isinstance(result, int | asyncio.CancelledError):
            job.settle(None if isinstance(result, int) else result)
            return
        error: OSError | StoreError = result
        session.last = min(session.last, job.expect)
        if isinstance(error, Overtaken):
            error = Conflict(job.expect, session.last)
        elif isinstance(error, FileNotFoundError):
            error = NoSession(f"{session.key} has no session {session.name}")
        job.settle(error)

    def _session(self, key: SessionKey, name: str) -> _Session:
        session = self._sessions.get((key, name))
        if session is None:
            session = self._sessions[key, name] = _Session(key, name, session_file(self._root, key, name))
            bound(self._sessions, self._known)
        else:
            self._sessions.move_to_end((key, name))
        return session

    def _forget(self, session: _Session) -> None:
        if self._sessions.get((session.key, session.name)) is session:
            del self._sessions[session.key, session.name]

    def _look(self, session: _Session) -> asyncio.Task[StoreError | OSError | None]:
        """Find out where the session stands, once for all who want to know; gives what went wrong."""
        if session.looking is None:
            session.looking = asyncio.get_running_loop().create_task(self._looking(session))
            self._tasks.add(session.looking)
            session.looking.add_done_callback(self._tasks.discard)
        return session.looking

    async def _looking(self, session: _Session) -> StoreError | OSError | None:
        failure: StoreError | OSError | None = None
        try:
            if session.flying:
                await self._writer.flush()
            looking = self._hop(files.prepare, session.path, session.key, self._writer.settle, self._damage, durable=self._writer.durable)
            session.stands(await looking)
        except FileNotFoundError:
            failure = NoSession(f"{session.key} has no session {session.name}")
            self._forget(session)
        except (StoreError, OSError) as error:
            failure = error
        finally:
            session.looking = None
            held, session.held = session.held, []
            for job in held:
                if failure is not None:
                    job.settle(failure)
                elif session.usable():
                    self._submit(session, job)
                else:
                    job.settle(asyncio.CancelledError())  # the loop is being torn down
        return failure

    # ------------------------------------------------------------------------------------------------------------------ reading

    async def tail(self, key: SessionKey, name: str, n: int) -> Tail:
        return await self._read(self._session(key, name), lambda path, end: files.read_tail(path, key, end, n))

    async def read(self, key: SessionKey, name: str, from_seq: int = 0) -> Tail:
        return await self._read(self._session(key, name), lambda path, end: files.read_from(path, key, end, from_seq))

    async def _read(self, session: _Session, work: Callable[[Path, int], files.Read]) -> Tail:
        read = await self._acknowledged(session, work)
        # The newest line need not have the greatest seq (a damaged one, an editor's): what is read together with it says so, and whoever
        # reads it builds on that.
        session.last = max(session.last, read.tail.last)
        if read.bad and read.bad[0] > session.told:
            self._damage.bad(sum(offset > session.told for offset in read.bad))
            session.told = read.bad[0]
            log.warning("bad lines passed over", file=str(session.path), lines=len(read.bad), offset=read.bad[0])
        return read.tail

    async def _acknowledged(self, session: _Session, work: Callable[[Path, int], T]) -> T:
        """Do blocking work on the part of the file that is acknowledged, whatever is appended meanwhile."""
        tries = 3
        while True:
            while not session.usable():
                failure = await asyncio.shield(self._look(session))
                if failure is not None:
                    raise failure
            if session.flying:
                await self._writer.flush()
                if not session.usable():
                    continue
            try:
                return await self._hop(work, session.path, session.size)
            except FileNotFoundError:
                self._forget(session)
                raise NoSession(f"{session.key} has no session {session.name}") from None
            except files.Changed:
                session.broken = True
                tries -= 1
                if not tries:
                    raise Conflict(session.last, 0) from None

    async def page(self, key: SessionKey, name: str, start: int, most: int) -> Page:
        return await self._acknowledged(self._session(key, name), lambda path, end: files.read_page(path, key, end, start, most))

    async def overview(self, keys: Sequence[SessionKey]) -> list[Overview]:
        found, faults = await self._hop(files.list_all, self._root, keys)
        if faults:
            log.warning("sessions left out of a list", sessions=len(faults), first=faults[0])
        return found

    async def sessions(self, key: SessionKey) -> list[Listed]:
        found, unreadable = await self._hop(files.list_sessions, key_folder(self._root, key), key)
        if unreadable:
            log.warning("sessions left out of a list", key=str(key), sessions=len(unreadable), first=unreadable[0])
        return found

    async def keys(self, prefix: str = "") -> list[SessionKey]:
        return await self._hop(files.list_keys, self._root, prefix)

    # --------------------------------------------------------------------------------------------------------- coming and going

    async def create(self, key: SessionKey, name: str, header: Header, lines: Sequence[bytes] = ()) -> None:
        path = self._new_path(key, name)
        await self._make(key, name, self._hop(files.create, path, header, lines, durable=self._writer.durable))

    async def fork(self, src_key: SessionKey, src: str, dst_key: SessionKey, dst: str, at: int, header: Header) -> None:
        source, path = self._session(src_key, src), self._new_path(dst_key, dst)
        async with self._forks:
            durable = self._writer.durable
            copying = self._acknowledged(source, lambda file, end: files.fork(file, src_key, end, at, path, header, durable=durable))
            await self._make(dst_key, dst, copying)

    def _new_path(self, key: SessionKey, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise ValueError(f"not a session name: {name!r}")
        return session_file(self._root, key, name)

    async def _make(self, key: SessionKey, name: str, making: Awaitable[files.Known]) -> None:
        try:
            known = await making
        except FileExistsError:
            raise SessionExists(f"{key} has a session {name} already") from None
        self._sessions.pop((key, name), None)  # one of that name that is gone
        self._session(key, name).stands(known)

    async def delete(self, key: SessionKey, name: str = "") -> None:
        await self._writer.flush()
        await self._writer.empty_log()
        for session in [session for session in self._sessions.values() if session.key == key and name in {"", session.name}]:
            self._forget(session)
        if not name:
            self._pointers.forget(key)
            await self._hop(files.delete_folder, key_folder(self._root, key), durable=self._writer.durable)
            return
        try:
            await self._hop(files.delete_session, session_file(self._root, key, name), durable=self._writer.durable)
        except FileNotFoundError:
            raise NoSession(f"{key} has no session {name}") from None

    # ---------------------------------------------------------------------------------------------------------------- pointer

    def set_chat(self, key: SessionKey, change: Chat) -> asyncio.Future[None]:
        return self._pointers.change(key, change)

    async def chat(self, key: SessionKey) -> Chat | None:
        return files.fold_chat(await self._pointers.changes(key))

    async def find_chat(self, key: SessionKey, for_: str) -> Chat | None:
        return next((change for change in reversed(await self._pointers.changes(key)) if change.for_ == for_), None)
