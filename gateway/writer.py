"""The one writer: every append of the house, in batches, off the loop; with a power log (`gateway.power`) safe from power cuts too.

It does not know what it appends; it neither reads files nor repairs them. Called by `gateway.store.jsonl`, `gateway.inbox`, the access log.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import aiofiles.os
import structlog

from channels.failpoints import reach
from gateway.disk import open_or_create, open_private, open_sized, write_all
from gateway.outage import Outage, passing
from gateway.power import PowerLog
from gateway.tasks import Restarts
from gateway.threads import Threads

log = structlog.get_logger(__name__)

RETRY = 30.0
"""Seconds until a power log that could not be emptied is tried again."""


Result = int | OSError | asyncio.CancelledError
"""The file's size behind what was appended; or why it is not in the file; or that the loop is being torn down and nobody knows."""


class Overtaken(OSError):
    """The file is not what the append was meant for: an earlier append to it failed, or somebody else wrote to it. Nothing was written."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.ESTALE, "changed or failed under an append", str(path))


class Fence:
    """What the owner of a file knows of it; the writer keeps it true.

    `size`: bytes of the file whose append is acknowledged (-1: not known, not compared). `broken`: an append failed; those behind it fail
    with Overtaken until the owner has looked at the file and set it back.
    """

    __slots__ = ("broken", "size")

    def __init__(self) -> None:
        self.size = -1
        self.broken = False


class _Append:
    __slots__ = ("create", "data", "fence", "path", "settled")

    def __init__(self, path: Path, data: bytes, create: bool, fence: Fence | None, settled: Callable[[Result], None]) -> None:
        self.path, self.data, self.create, self.fence, self.settled = path, data, create, fence, settled

    def settle(self, result: Result) -> None:
        """Say what came of it, the first time."""
        settled, self.settled = self.settled, _told
        settled(result)


class _Group:
    """All appends of one batch to one file: written as one, so that they stand or fall together."""

    __slots__ = ("appends", "create", "data", "expect", "fence", "path")

    def __init__(self, first: _Append) -> None:
        self.path, self.create, self.fence = first.path, first.create, first.fence
        self.expect = first.fence.size if first.fence else -1
        self.appends = [first]
        self.data = b""


class Writer:
    """Group commit: whatever is appended while a batch is on its way to the disk makes up the next batch.

    `append` fixes the order at the call. A batch is one hop to one thread; in it the journal's files are written before all others, each
    file by open, one write, close: no handle is kept and nothing is buffered. Every file has its own result. A write that comes short
    (full disk, limit, broken medium) is cut back to the size before it; its waiters get the OSError, and the next append to that file is
    tried like any other. Done means: with the kernel; with a power log: on the medium.
    """

    def __init__(self, power: PowerLog | None = None, restarts: Restarts | None = None) -> None:
        self._power, self._restarts = power, restarts or Restarts()
        self._outage = Outage(time.monotonic)
        self._ahead: list[_Append] = []
        self._journal: list[_Append] = []
        self._others: list[_Append] = []
        self._behind: list[_Append] = []
        self._flying: list[_Append] = []
        self._now: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None
        """For whoever waits until the batch that is flying, or the one that gathers, is settled."""
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="writer")
        self._write = aiofiles.os.wrap(self._write_batch)
        self._uncut: dict[Path, int] = {}
        """Files that could not be cut back, with their good size. Nothing is appended to one before it is cut."""
        self._retiring: asyncio.Task[None] | None = None
        self._retire_at = 0.0
        self._threads = Threads(1, "power")

    @property
    def durable(self) -> bool:
        """What is done is on the medium: whoever makes files beside the writer has to see to it as well."""
        return self._power is not None

    def append(
        self,
        path: Path,
        data: bytes,
        *,
        journal: bool = False,
        ahead: bool = False,
        create: bool = True,
        fence: Fence | None = None,
    ) -> asyncio.Future[int]:
        """`submit` with a future, which gives the size or raises OSError. It is never cancelled by the writer; shield it where the waiter
        may be."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.submit(path, data, partial(_hand, future), journal=journal, ahead=ahead, create=create, fence=fence)
        return future

    def submit(
        self,
        path: Path,
        data: bytes,
        settled: Callable[[Result], None],
        *,
        journal: bool = False,
        ahead: bool = False,
        behind: bool = False,
        create: bool = True,
        fence: Fence | None = None,
    ) -> None:
        """Append `data` to `path`, and call `settled` once with what came of it, after this call has returned. Where it is an OSError,
        nothing of `data` is in the file. `settled` must be quick, must not raise and must not append.

        `ahead`: of a batch it is written first of all, even before what the journal has in it; `behind`: last of all.
        `create=False`: a missing file is FileNotFoundError. With a `fence` it is Overtaken where the file's size is not the fence's, or
        where an append before this one failed.
        """
        if self._closed:
            asyncio.get_running_loop().call_soon(settled, OSError(errno.EBADF, "the writer is closed", str(path)))
            return
        line = self._ahead if ahead else self._behind if behind else self._journal if journal else self._others
        line.append(_Append(path, data, create, fence, settled))
        if self._task is None:
            self._begin()

    def _waiting(self) -> bool:
        return bool(self._ahead or self._journal or self._others or self._behind)

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="writer")
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Nothing that was appended is left without a result, whatever ended the task: it is a fault of ours or of the machine (no memory,
        no thread to be had). What was flying may be on the disk or not, so that its owners look; what waits goes with a new task."""
        if self._task is not task:
            return  # it ended in order
        self._task = None
        flying, self._flying = self._flying, []
        for append in flying:
            if task.cancelled():  # the loop is being torn down
                append.settle(asyncio.CancelledError())
                continue
            if append.fence is not None:
                append.fence.broken = True
            # One by one: who fails over it, and may have ended the task by that, keeps nobody else from hearing.
            task.get_loop().call_soon(append.settle, OSError(errno.EIO, "the writer failed", str(append.path)))
        _land(self._now)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("writer failed, started again", appends=len(flying), exc_info=error)
            self._restarts.note("writer", type(error).__name__)
            if self._waiting():
                self._begin()
                return
        _land(self._next)

    async def flush(self) -> None:
        """Wait until everything that was appended before this call has its result. Costs the same however much that is."""
        loop = asyncio.get_running_loop()
        if self._waiting():
            landed = self._next = self._next or loop.create_future()
        elif self._flying:
            landed = self._now = self._now or loop.create_future()
        else:
            return
        await asyncio.shield(landed)

    async def empty_log(self) -> None:
        """No copy of what was appended before this call is in the power log any more: called before a file is deleted or replaced, by
        whoever sees to it that nothing is appended to that one meanwhile. Raises OSError."""
        if self._power is not None:
            await self.flush()
            await self._threads.hop(self._power.empty)

    async def close(self) -> None:
        """Write what waits, then refuse. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        while self._task is not None:
            await asyncio.wait({self._task})
            await asyncio.sleep(0)
        if self._retiring is not None:
            await asyncio.shield(self._retiring)
        if self._power is not None:
            with suppress(OSError):  # then the next start has a little more to do
                await self._threads.hop(self._power.retire, everything=True)
        await self._threads.close()
        await asyncio.to_thread(self._thread.shutdown)

    async def _retire(self, power: PowerLog) -> None:
        loop = asyncio.get_running_loop()
        try:
            await self._threads.hop(power.retire)
        except OSError:
            self._retire_at = loop.time() + RETRY
        finally:
            self._retiring = None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)  # what the first append sets off at once joins its batch
        while self._waiting():
            groups = [*_groups([*self._ahead, *self._journal, *self._others]), *_groups(self._behind)]
            self._flying = [append for group in groups for append in group.appends]
            self._now, self._next = self._next, None
            for line in (self._ahead, self._journal, self._others, self._behind):
                line.clear()
            if groups:
                results = await self._write(groups, executor=self._thread)
                for group, result in zip(groups, results, strict=True):
                    _settle(group, result)
                self._tell(groups, results)
            self._flying = []
            _land(self._now)
            if self._power is not None and self._power.due and self._retiring is None and loop.time() >= self._retire_at:
                self._retiring = loop.create_task(self._retire(self._power), name="power log")
        self._task = None

    def _tell(self, groups: Iterable[_Group], results: Sequence[int | OSError]) -> None:
        failed = [(group, result) for group, result in zip(groups, results, strict=True) if isinstance(result, OSError) and passing(result)]
        for group, error in failed:
            self._outage.failed(group.path, error, len(group.appends))
        if not failed:
            self._outage.worked()

    def _write_batch(self, groups: Sequence[_Group]) -> list[int | OSError]:
        """Sync, in the writer's thread: each file's size before the write, or what went wrong."""
        results: list[int | OSError] = []
        for group in groups:
            try:
                results.append(self._write_group(group))
            except OSError as error:
                results.append(error)
        if self._power is not None:
            self._record(self._power, groups, results)
        return results

    def _record(self, power: PowerLog, groups: Sequence[_Group], results: list[int | OSError]) -> None:
        """What was appended counts when the log has it; else it is cut back, as after a write that came short."""
        written = [(group.path, size, group.data) for group, size in zip(groups, results, strict=True) if not isinstance(size, OSError)]
        if not written:
            return
        try:
            power.record(written)
        except OSError as error:
            for path, size, _ in reversed(written):  # one may be in it twice: what stays is the size before the first
                self._uncut[path] = size
                with suppress(OSError):
                    self.settle(path)
            results[:] = [result if isinstance(result, OSError) else error for result in results]

    def _write_group(self, group: _Group) -> int:
        path = group.path
        self.settle(path)
        flags = os.O_WRONLY | os.O_APPEND
        try:
            fd, size = open_sized(path, flags)
        except FileNotFoundError:
            if not group.create:
                raise
            fd = open_or_create(path, flags, durable=self.durable)
            size = os.fstat(fd).st_size
        group.data = b"".join([append.data for append in group.appends])
        try:
            if group.expect not in {-1, size}:
                raise Overtaken(path)
            reach("append before", path)
            try:
                write_all(fd, group.data)
            except OSError:
                self._uncut[path] = size
                os.ftruncate(fd, size)
                del self._uncut[path]
                raise
        except BaseException:
            with suppress(OSError):
                os.close(fd)
            raise
        try:
            os.close(fd)
        except OSError:  # network file systems tell of a full disk here
            self._uncut[path] = size
            raise
        reach("append after", path)
        return size

    def settle(self, path: Path) -> None:
        """Sync, off the loop: cut what a failed append left in `path`, if it could not be cut then. Raises OSError if it still cannot."""
        size = self._uncut.get(path)
        if size is None:
            return
        with suppress(FileNotFoundError):
            fd = open_private(path, os.O_WRONLY)
            try:
                if os.fstat(fd).st_size > size:
                    os.ftruncate(fd, size)
                if self.durable:
                    os.fdatasync(fd)
            finally:
                os.close(fd)
        self._uncut.pop(path, None)


def _land(batch: asyncio.Future[None] | None) -> None:
    if batch is not None and not batch.done():
        batch.set_result(None)


def _groups(appends: Iterable[_Append]) -> list[_Group]:
    """What goes to each file; an append behind one that failed is told so at once."""
    groups: dict[Path, _Group] = {}
    for append in appends:
        if append.fence is not None and append.fence.broken:
            append.settle(Overtaken(append.path))
        elif group := groups.get(append.path):
            group.appends.append(append)
        else:
            groups[append.path] = _Group(append)
    return list(groups.values())


def _settle(group: _Group, result: int | OSError) -> None:
    if isinstance(result, OSError):
        if group.fence is not None:
            group.fence.broken = True
        for append in group.appends:
            append.settle(result)
        return
    if group.fence is not None:
        group.fence.size = result + len(group.data)
    for append in group.appends:
        result += len(append.data)
        append.settle(result)


def _told(_: Result) -> None:
    """Whoever appended knows already."""


def _hand(future: asyncio.Future[int], result: Result) -> None:
    if future.done():
        return
    if isinstance(result, int):
        future.set_result(result)
    elif isinstance(result, OSError):
        future.set_exception(result)
    else:
        future.cancel()
