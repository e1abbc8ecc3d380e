"""Which session of a key is current: `_chat.jsonl`, one line a change. A part of `gateway.store.jsonl`, called by nothing else.

Changes are appended without a fence: the newest one holds, and none depends on what the file says before it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import structlog

from gateway.message import Chat, SessionKey, encode_line
from gateway.metrics import Damage
from gateway.store import files
from gateway.store.names import chat_file
from gateway.threads import Threads
from gateway.writer import Writer

log = structlog.get_logger(__name__)

T = TypeVar("T")


class _Pointer:
    """A key's file: its tail is looked at once, before the first change."""

    __slots__ = ("held", "looking", "ready", "told")

    def __init__(self) -> None:
        self.ready = False
        self.held: list[tuple[bytes, asyncio.Future[None]]] = []
        self.looking: asyncio.Task[OSError | None] | None = None
        self.told = -1
        """Offset of the newest bad line that was logged."""

    @property
    def idle(self) -> bool:
        return not self.held and self.looking is None


class Pointers:
    """The pointer files under `root`."""

    def __init__(self, root: Path, writer: Writer, threads: Threads, known: int, damage: Damage) -> None:
        self._root, self._writer, self._known, self._damage = root, writer, known, damage
        self._hop = threads.hop
        self._pointers: OrderedDict[SessionKey, _Pointer] = OrderedDict()
        self._tasks: set[asyncio.Task[OSError | None]] = set()

    async def close(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def forget(self, key: SessionKey) -> None:
        """The key's folder is going: look again before the next change."""
        self._pointers.pop(key, None)

    def change(self, key: SessionKey, change: Chat) -> asyncio.Future[None]:
        """Append one change, in the order of the calls. Raises OSError by the future."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pointer = self._pointer(key)
        if pointer.ready:
            self._append(key, encode_line(change), future)
        else:
            pointer.held.append((encode_line(change), future))
            self._look(key, pointer)
        return future

    def _append(self, key: SessionKey, line: bytes, future: asyncio.Future[None]) -> None:
        self._writer.append(self._file(key), line).add_done_callback(partial(_changed, future))

    def _file(self, key: SessionKey) -> Path:
        return chat_file(self._root, key)

    def _pointer(self, key: SessionKey) -> _Pointer:
        pointer = self._pointers.setdefault(key, _Pointer())
        self._pointers.move_to_end(key)
        bound(self._pointers, self._known)
        return pointer

    def _look(self, key: SessionKey, pointer: _Pointer) -> asyncio.Task[OSError | None]:
        if pointer.looking is None:
            pointer.looking = asyncio.get_running_loop().create_task(self._looking(key, pointer))
            self._tasks.add(pointer.looking)
            pointer.looking.add_done_callback(self._tasks.discard)
        return pointer.looking

    async def _looking(self, key: SessionKey, pointer: _Pointer) -> OSError | None:
        failure: OSError | None = None
        try:
            await self._hop(files.prepare_chat, self._file(key), self._writer.settle, self._damage, durable=self._writer.durable)
            pointer.ready = True
        except OSError as error:
            failure = error
        finally:
            pointer.looking = None
            held, pointer.held = pointer.held, []
            for line, future in held:
                if failure is not None:
                    fail(future, failure)
                elif pointer.ready:
                    self._append(key, line, future)
                else:
                    future.cancel()  # the loop is being torn down
        return failure

    async def changes(self, key: SessionKey) -> list[Chat]:
        """All changes that are acknowledged, oldest first; [] for a key without any. Raises OSError."""
        pointer = self._pointer(key)
        if not pointer.ready:
            failure = await asyncio.shield(self._look(key, pointer))
            if failure is not None:
                raise failure
        await self._writer.flush()
        path = self._file(key)
        changes, bad = await self._hop(files.read_chat, path)
        if bad and bad[-1] > pointer.told:
            self._damage.bad(sum(offset > pointer.told for offset in bad))
            pointer.told = bad[-1]
            log.warning("bad lines passed over", file=str(path), lines=len(bad), offset=bad[-1])
        return changes


def _changed(future: asyncio.Future[None], written: asyncio.Future[int]) -> None:
    if written.cancelled():
        future.cancel()
    elif (error := written.exception()) is not None:
        fail(future, error)
    elif not future.done():
        future.set_result(None)


def fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


class _Idle(Protocol):
    @property
    def idle(self) -> bool: ...


K = TypeVar("K")
V = TypeVar("V", bound=_Idle)


def bound(kept: OrderedDict[K, V], limit: int) -> None:
    """Forget those that were not used for longest; the few that are in use stay, at worst above the limit."""
    for _ in range(min(len(kept) - limit, 8)):
        key, value = next(iter(kept.items()))
        if value.idle:
            del kept[key]
        else:
            kept.move_to_end(key)
