"""SIGTERM with fifty turns in flight, on both networks."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.crash.audit import Audit
from tests.crash.rivals import chats
from tests.crash.round import Way, meet, online, settle, stage
from tests.crash.talk import Said, Talk
from tests.flow.daemon import Daemon

EACH = 25
"""Turns on each network."""
BUDGET = 2.0
"""Seconds; as `stage` has it in the config."""


@asynccontextmanager
async def in_flight(folder: Path) -> AsyncIterator[tuple[Talk, Daemon, list[Said]]]:
    """A daemon with fifty turns: every second one ends soon, the others hang."""
    async with stage(folder, Way()) as (talk, daemon):
        await daemon.start()
        await online(talk)
        places = chats(talk, 1000, EACH)
        await meet(talk, [talk.ask(place) for place in places])
        talk.delay = 0.2
        said = [talk.ask(place) for place in places]
        talk.hang |= {each.tag: 3 for each in said[::2]}
        await talk.model.wait(2 * len(places), 30)
        yield talk, daemon, said
        await settle(talk, daemon.data)
        assert await daemon.stop() == 0
        audit = Audit(talk, daemon.data, streamed=Way().streamed)
        assert not audit.faults, audit.verdict(1)


async def test_half_end_in_time_and_half_after_the_restart(tmp_path: Path) -> None:
    """It ends within its budget; what could end, was answered; the rest is answered by the next start; each once."""
    async with in_flight(tmp_path) as (talk, daemon, said):
        began = time.monotonic()
        assert await daemon.stop() == 0
        assert time.monotonic() - began < BUDGET + 1.5
        assert {each.tag for each in said if talk.answered(each)} == {each.tag for each in said[1::2]}
        asked = len(talk.model.asked)
        await daemon.start(ready=False)
        await meet(talk, said)
        assert len(talk.model.asked) - asked == len(said[::2])


async def test_a_second_one_ends_it_at_once_and_loses_nothing(tmp_path: Path) -> None:
    """Whoever asks twice does not wait; all is answered by the next start, each once."""
    async with in_flight(tmp_path) as (talk, daemon, said):
        assert daemon.process is not None
        os.kill(daemon.process.pid, signal.SIGTERM)
        await asyncio.wait({asyncio.ensure_future(daemon.process.wait())}, timeout=0.3)
        os.kill(daemon.process.pid, signal.SIGTERM)
        began = time.monotonic()
        assert await daemon.ended() == 130
        assert time.monotonic() - began < 1
        await daemon.start(ready=False)
        await meet(talk, said)
