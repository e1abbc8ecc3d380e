"""The operator's work on conversations where no daemon runs: the folder's lock, the store, and the same operations.

A daemon that starts meanwhile is told that the folder is taken, as by another daemon. Called by `gateway.cli`.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import msgspec

from gateway.app import open_store
from gateway.config import is_data
from gateway.disk import lock_folder, sync_all
from gateway.errors import ParlourError
from gateway.inbox import Inbox
from gateway.operations import Operations
from gateway.options import Sessions
from gateway.power import begin
from gateway.sessions import SessionManager
from gateway.writer import Writer


async def work(folder: Path, name: str, args: Mapping[str, str], part: Callable[[object], None] | None = None) -> object:
    """One operation, as `control.call` gives it: values as JSON holds them. Raises StartError where the folder cannot be had, ParlourError,
    OSError."""
    async with _opened(folder) as operations:
        handler = operations.handlers().get(name)
        if handler is None:
            raise ParlourError(f"{name} needs the running daemon")
        answer = handler(args)
        if not isinstance(answer, AsyncGenerator):
            return msgspec.to_builtins(await answer)
        async with aclosing(answer) as parts:
            async for one in parts:
                if part is not None:
                    part(msgspec.to_builtins(one))
        return None


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[Operations]:
    if not is_data(folder):
        raise ParlourError(f"{folder}: no data of Parlour's is here")
    lock = lock_folder(folder)
    writer = Writer()
    try:
        begin(folder, durable=False)
        store = open_store(folder, writer)
        try:
            await store.open()
            options = Sessions()
            sessions = SessionManager(
                store,
                cache_bytes=options.cache,
                history_messages=options.history_messages,
                history_tokens=options.history_tokens,
                clock=time.time,
            )
            yield Operations(sessions, store, _Journal(folder / "journal", writer))
            await sessions.close()
            sync_all(folder)  # what is said to be deleted is, whatever the daemon is set to
        finally:
            await store.close()
    finally:
        await writer.close()
        _hand_back(folder)
        lock.close()


class _Journal:
    """The journal, opened when something is to be forgotten in it and not before: it may be large."""

    def __init__(self, folder: Path, writer: Writer) -> None:
        self._folder, self._writer = folder, writer

    async def forget(self, key: str) -> None:
        """See `Inbox.forget`."""
        inbox = Inbox(self._folder, self._writer, clock=time.time)
        await inbox.open()
        try:
            await inbox.forget(key)
        finally:
            await inbox.close()


def _hand_back(folder: Path) -> None:
    """Root's new files become those of the folder's owner: the daemon, which is not root, has to read them."""
    owner = os.stat(folder)
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = os.path.join(place, name)
            with suppress(OSError):
                info = os.lstat(path)
                if info.st_uid == 0 and (stat.S_ISDIR(info.st_mode) or info.st_nlink == 1):
                    os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
