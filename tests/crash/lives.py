"""The daemon's lives: each is begun, watched until its moment has come, ended as planned, and noted."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.crash.damage import age, tear
from tests.crash.moments import CALL, FAILPOINT, MODEL, PAUSE, START, TERM, TERM_KILL, TERM_TERM, Plan
from tests.crash.networks import Held
from tests.crash.people import Crowd
from tests.crash.talk import Said, Talk
from tests.flow.daemon import Daemon

PATIENCE = 2.5
"""Seconds that a moment is waited for. Then the daemon is killed as it stands, so that no life is without an end."""
CUT = 8.0
"""Seconds for an answer to get into a second message, and for a start to get to its first word, on a busy machine."""
TRIALS = 12.0
"""Seconds that trials are let go on."""
CALM = 20.0
"""Seconds within which a daemon that was asked to end must be gone; its budget is much shorter."""
CODES = {0, -9, -15, 130}
"""Exit codes of ends as they should be: through, killed, killed before there was a handler, asked twice."""


@dataclass(frozen=True)
class Life:
    """What became of one."""

    began: float
    ended: float
    plan: Plan
    struck: bool
    """It ended at the moment that was planned."""
    code: int


class Lives:
    """One data folder's."""

    def __init__(self, daemon: Daemon, talk: Talk, crowd: Crowd, dice: random.Random) -> None:
        self.daemon, self.talk, self.crowd, self.dice = daemon, talk, crowd, dice
        self.past: list[Life] = []
        self.torn = 0
        self.log = daemon.folder / "places"
        self._born = 0
        """Where the log of this life begins."""
        self._visits: set[asyncio.Task[None]] = set()

    async def begin(self, plan: Plan | None = None, *, ready: bool = False) -> None:
        """Start the daemon, armed as planned; without a plan, for good."""
        self.daemon.env["PARLOUR_FAILPOINT_LOG"] = str(self.log)
        self.daemon.env["PARLOUR_FAILPOINT"] = f"{plan.name}:{plan.nth}:{plan.gap}" if plan and plan.moment == FAILPOINT else ""
        self._born = self.daemon.log.stat().st_size if self.daemon.log.exists() else 0
        await self.daemon.start(ready=ready)

    async def one(self, plan: Plan) -> None:
        """A whole life. Where the daemon begins with a pause, since it died twice over the same inputs, that life is one of its own: it is
        ended in the pause, or in one of ten after the trials, and the plan is carried out in the next."""
        for _ in range(4):
            if await self._life(plan):
                return

    async def _life(self, plan: Plan) -> bool:
        """Whether it was the plan that ended it."""
        if plan.name.startswith("repair") or self.dice.random() < 0.1:
            self.torn += tear(self.daemon.data, self.dice)
        if plan.name.startswith("segment") or self.dice.random() < 0.1:
            age(self.daemon.data)
        if (" delete" in f" {plan.name}" and plan.name.endswith(tuple(self.talk.networks))) or plan.name.endswith(" delete"):
            await self.cut_long_answers(plan.name.partition(" ")[0] if plan.moment == CALL else plan.name.rpartition(" ")[2])
        began = time.monotonic()
        await self.begin(plan)
        assert self.daemon.process is not None
        end = asyncio.ensure_future(self.daemon.process.wait())
        held = self._hold(plan)
        try:
            struck = await self._moment(plan, end, held)
            if paused := not struck and self._paused():
                plan = Plan(PAUSE)
                # At any time, not at the moment that the log tells of: no death is to be aimed at who is tried.
                await asyncio.wait({end}, timeout=TRIALS if self.dice.random() < 0.1 else self.dice.uniform(0, 0.3))
            await self._end(plan, end)
        finally:
            if held is not None:
                held.remove()
        self.past.append(Life(began, time.monotonic(), plan, struck, end.result()))
        if end.result() not in CODES:
            raise AssertionError(f"exit code {end.result()} after {plan}:\n{self.daemon.text()[-3000:]}")
        return not paused

    def _paused(self) -> bool:
        """Whether this life has begun with trials."""
        with self.daemon.log.open("rb") as log:
            log.seek(self._born)
            return b"they are tried alone" in log.read()

    async def cut_long_answers(self, network: str) -> None:
        """A life in which answers in several messages are cut: the next ones are shorter, and there are messages to take away."""
        plan = Plan(MODEL)
        began = time.monotonic()
        await self.begin()
        assert self.daemon.process is not None
        end = asyncio.ensure_future(self.daemon.process.wait())
        said = self.crowd.long(network)
        self.talk.hang |= {each.tag: 17 for each in said}  # eight paragraphs, and silence
        shorter = 2 if network == "discord" else 1  # messages that the next one takes
        await self._until(lambda: any(self._pieces(each) > shorter for each in said), end, CUT)
        await self._end(plan, end)
        for each in said:
            self.talk.hang.pop(each.tag, None)
        self.past.append(Life(began, time.monotonic(), plan, True, end.result()))

    def _pieces(self, said: Said) -> int:
        return sum(f"{said.tag}." in text for text in self.talk.visible(said.place))

    def _hold(self, plan: Plan) -> Held | None:
        if plan.moment != CALL:
            return None
        network, _, method = plan.name.partition(" ")
        return self.talk.networks[network].hold(method, before=plan.before, skip=plan.nth - 1)

    async def _moment(self, plan: Plan, end: asyncio.Future[int], held: Held | None) -> bool:
        """Wait for it; whether it came."""
        if plan.moment != START:
            await self._until(lambda: self.daemon.log.stat().st_size > self._born, end, CUT)
        if plan.moment == FAILPOINT:
            return await self._provoked(plan, end)
        if held is not None:
            if plan.name.endswith(" slash"):
                await self._until(self.crowd.connected, end)
                self.provoke("slash")
            return await self._first(held.reached.wait(), end)
        if plan.moment == MODEL:
            self.talk.on_ask.clear()
            came = await self._first(self.talk.on_ask.wait(), end)
            await asyncio.wait({end}, timeout=plan.wait)
            return came
        if plan.moment != START:
            asked = len(self.talk.model.asked)
            await self._until(lambda: len(self.talk.model.asked) > asked, end)
            if self._paused():
                return False
        await asyncio.wait({end}, timeout=plan.wait)
        return True

    async def _first(self, event: Coroutine[Any, Any, bool], end: asyncio.Future[int]) -> bool:
        waiting = asyncio.create_task(event)
        await self._until(waiting.done, end)
        came = waiting.done()
        waiting.cancel()
        return came

    async def _until(self, holds: Callable[[], bool], end: asyncio.Future[int], seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while not holds() and not end.done() and time.monotonic() < deadline and not self._paused():
            await asyncio.wait({end}, timeout=0.02)

    async def _provoked(self, plan: Plan, end: asyncio.Future[int]) -> bool:
        """Have people do what leads to that place, until it has killed."""
        deadline = time.monotonic() + PATIENCE
        while not end.done() and time.monotonic() < deadline and not self._paused():
            self.provoke(plan.name)
            await asyncio.wait({end}, timeout=0.3)
            if plan.name.startswith("marks") and not end.done():  # written when the connection ends, too
                self._signal(signal.SIGTERM)
        return end.done() and end.result() == -signal.SIGKILL

    def provoke(self, name: str) -> None:
        if name.startswith(("folder delete", "rotate")) or (name.endswith((" journal", "sidecar")) and name.startswith("rename")):
            self.crowd.forget()
        elif name.startswith("session delete"):
            self.crowd.forget_one()
        elif name.endswith("access"):
            task = asyncio.ensure_future(self.crowd.stranger())
            self._visits.add(task)
        elif name.startswith("marks"):
            self.crowd.newcomer()
        elif name.startswith("slash"):
            self.crowd.slash()
        elif name.startswith(("rename", "append", "reply")):
            for person in self.dice.sample(self.crowd.people, k=min(3, len(self.crowd.people))):
                if person.commands:
                    person.steer()

    async def _end(self, plan: Plan, end: asyncio.Future[int]) -> None:
        if end.done():
            return
        if plan.how in {TERM, TERM_TERM, TERM_KILL}:
            self._signal(signal.SIGTERM)
            await asyncio.wait({end}, timeout=CALM if plan.how == TERM else plan.gap)
            if plan.how == TERM_TERM:
                self._signal(signal.SIGTERM)
                await asyncio.wait({end}, timeout=CALM)
            if plan.how != TERM_KILL and not end.done():
                raise AssertionError(f"still there {CALM:g} s after {plan.how}:\n{self.daemon.text()[-3000:]}")
        self._signal(signal.SIGKILL)
        await end

    def _signal(self, number: int) -> None:
        process = self.daemon.process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    async def over(self) -> None:
        """Wait for the strangers."""
        while self._visits:
            done, self._visits = await asyncio.wait(self._visits)
            for task in done:
                task.result()

    def reached(self) -> Counter[str]:
        """Places that were come to, and with a "!" those that killed."""
        return Counter(self.log.read_text().split("\n")[:-1] if self.log.exists() else [])
