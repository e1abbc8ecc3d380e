"""A process that deletes what is older than thirty days, once, as the daemon does it. Run by `test_retention_kill` as
`python -m tests.crash.retention_child FOLDER`."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from channels.settings import Seconds
from gateway.disk import lock_folder
from gateway.inbox import Inbox
from gateway.metrics import Metrics
from gateway.options import Retention as Rules
from gateway.retention import DAY, Retention
from gateway.sessions import SessionManager
from gateway.store.jsonl import JsonlStore
from gateway.writer import Writer


async def main(folder: Path) -> None:
    lock_folder(folder)
    writer = Writer()
    store = JsonlStore(folder / "sessions", writer)
    inbox = Inbox(folder / "journal", writer, clock=time.time)
    sessions = SessionManager(store, cache_bytes=2**20, history_messages=50, history_tokens=5000, clock=time.time)
    await store.open()
    await inbox.open()
    rules = Rules(media=Seconds(30 * DAY), sessions=Seconds(30 * DAY), dry_run=False)
    retention = Retention(rules, folder, sessions, inbox, Metrics())
    went = await retention.once()
    print(len(went.gone), went.failed)
    for close in (retention, inbox, sessions, store, writer):
        await close.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
