"""Drains one key's queue, one input at a time: who is worked on when.

What is done with an input is `gateway.work`; how many at a time, and whether anybody at all, is `gateway.gate`. Called by `gateway.router`,
which decides what gets into a queue; `Runners` owns a task for each key that has work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog

from gateway.access import Access
from gateway.asking import BROKEN, Questions
from gateway.attachments import Attachments
from gateway.commands.base import House
from gateway.commands.table import find
from gateway.gate import Gate, Pass
from gateway.groups import GroupAdmins
from gateway.inbox import Inbox, Pending, ReplyText
from gateway.metrics import Metrics
from gateway.outage import tell
from gateway.outbox import Outbox
from gateway.patience import Patience
from gateway.running import Model, Running, unless_cancelled
from gateway.sessions import SessionManager
from gateway.tasks import Restarts, Tasks
from gateway.trials import NORMAL, Times, Trials
from gateway.turn import Asking, Outcome
from gateway.work import NOT_STORED, Work

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Queue:
    """What waits for one key, and what runs."""

    waiting: deque[Pending] = field(default_factory=deque)
    since: deque[float] = field(default_factory=deque)
    """Since when each of them waits, by the loop's clock."""
    running: Running | None = None
    task: asyncio.Task[None] | None = None


class Runners:
    """A queue and, while it holds anything, a task for each key."""

    def __init__(
        self,
        *,
        house: House,
        inbox: Inbox,
        sessions: SessionManager,
        outbox: Outbox,
        access: Access,
        admins: GroupAdmins,
        attachments: Attachments,
        model: Model,
        asking: Asking,
        slots: int,
        heard: Callable[[Outcome], None],
        metrics: Metrics | None = None,
        times: Times = NORMAL,
        restarts: Restarts | None = None,
    ) -> None:
        restarts = restarts or Restarts()
        self._outbox, self._metrics = outbox, metrics or Metrics()
        self._questions = Questions(model, asking, heard, self._metrics, restarts)
        self._work = Work(
            house=house,
            inbox=inbox,
            sessions=sessions,
            outbox=outbox,
            access=access,
            admins=admins,
            attachments=attachments,
            questions=self._questions,
            metrics=self._metrics,
        )
        self.say = self._work.say
        self._inbox = inbox
        self._gate = Gate(slots)
        self._trials = Trials(self._gate, inbox, times)
        self._tasks = Tasks(restarts)
        self._patience = Patience(outbox)
        self._queues: dict[str, Queue] = {}
        self._closing = False

    @property
    def model(self) -> Model:
        """What turns are asked with. May be replaced at any time; a turn goes on with the one that it began with."""
        return self._questions.model

    @model.setter
    def model(self, model: Model) -> None:
        self._questions.model = model

    # ------------------------------------------------------------------------------------------------------------------- the queues

    def __len__(self) -> int:
        return len(self._queues)

    def waiting(self, key: str) -> int:
        """How many inputs of this key wait behind the running one."""
        queue = self._queues.get(key)
        if not queue or not queue.waiting:
            return 0
        return len(queue.waiting) - (not self._inbox.holds(queue.waiting[0]))  # see `drop`

    def turns(self) -> int:
        """How many turns run."""
        return len(self._begun())

    def longest(self) -> float | None:
        """Seconds that the turn runs that began first; None where none runs."""
        began = min(self._begun(), default=None)
        return None if began is None else asyncio.get_running_loop().time() - began

    def _begun(self) -> list[float]:
        running = (queue.running for queue in self._queues.values())
        return [one.begun for one in running if one is not None and one.begun is not None]

    def backlog(self) -> int:
        """How many inputs wait, of all keys together."""
        return sum(len(queue.waiting) for queue in self._queues.values())

    def oldest(self) -> float | None:
        """Seconds that the oldest waiting input has waited in this process; None where none waits."""
        since = min((queue.since[0] for queue in self._queues.values() if queue.since), default=None)
        return None if since is None else asyncio.get_running_loop().time() - since

    def add(self, pending: Pending) -> None:
        """Queue an input behind all others of its key."""
        key = pending.input.key
        queue = self._queues.setdefault(key, Queue())
        queue.waiting.append(pending)
        queue.since.append(asyncio.get_running_loop().time())
        self._patience.begin(pending)
        if queue.task is None and not self._closing:
            if pending.attempts:  # it ran when the process died: a /stop or /reset that was left behind it means it
                queue.running = Running(pending)
            queue.task = self._tasks.keep(partial(self._drain, key, queue), f"runner {key}", "runner")

    def drop(self, pending: Pending) -> None:
        """It was not accepted, and comes again: it takes up no place. The foremost, while it is being let in, is left to `gateway.work`."""
        queue = self._queues.get(pending.input.key)
        if queue is None:
            return
        busy = queue.running is not None and queue.running.begun is not None
        for place, waits in enumerate(queue.waiting):
            if waits is pending and (place or busy):
                del queue.waiting[place], queue.since[place]
                return

    def hold(self, suspects: Sequence[Pending]) -> None:
        """Before anything is added: the daemon died with these at work, and they are to be tried alone. Nobody is worked on before `tried`
        is called and the trials let them."""
        if suspects:
            self._trials.hold(suspects)

    def tried(self) -> None:
        """All that was left is in the queues: the trials may begin."""
        if self._gate.is_shut:
            self._tasks.start(self._trials.run(), "trials")

    def running(self, key: str) -> Running | None:
        """The input that the key is busy with."""
        queue = self._queues.get(key)
        return queue.running if queue else None

    async def idle(self) -> None:
        """Until nothing waits and nothing runs."""
        while tasks := {queue.task for queue in self._queues.values() if queue.task}:
            await asyncio.wait(tasks)

    async def settle(self, timeout: float) -> int:
        """No new turn begins; wait until the running ones are through, at most `timeout` seconds. How many still run."""
        self._closing = True
        self._gate.close()
        tasks = {queue.task for queue in self._queues.values() if queue.task}
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)
        return sum(not task.done() for task in tasks)

    async def close(self, timeout: float | None = None) -> int:
        """Cut what runs. It stays `started` in the journal, and the next start goes on with it. At most `timeout` seconds; how much hangs
        then."""
        self._closing = True
        self._gate.close()
        self._patience.close()
        return await self._tasks.close(timeout)

    async def _drain(self, key: str, queue: Queue) -> None:
        while queue.waiting and (way := await self._may_begin(queue.waiting[0], queue)):
            pending = queue.waiting.popleft()
            queue.since.popleft()
            self._patience.begun(pending.input.inbound.id)
            running = queue.running
            assert running is not None
            running.begun = asyncio.get_running_loop().time()
            try:
                await self._work.do(pending, running)
            except OSError as error:
                if self._inbox.holds(pending):  # else it was not accepted, and comes again
                    tell(log, "cannot write", error, key=key, input=pending.input.inbound.id)
                    await self.say(pending, ReplyText(NOT_STORED))
            except (Exception, asyncio.CancelledError):
                unless_cancelled()
                log.exception("turn failed", key=key, input=pending.input.inbound.id)
                self._metrics.turns.add("broken")
                await self.say(pending, ReplyText(BROKEN))
            finally:
                queue.running = None
                self._patience.over(pending.input.inbound.id)
                self._trials.over(pending.input.inbound.id)
                way.leave()
            running.done.set()  # not where it was cut: then nothing is on record yet
        queue.task = None
        if not queue.waiting:
            self._queues.pop(key, None)

    async def _may_begin(self, pending: Pending, queue: Queue) -> Pass | None:
        """A full lane holds its runner up here, before the lock, so that nothing is produced that cannot be sent. Then for its turn."""
        if self._closing:
            return None
        await self._outbox.room(pending.input.inbound.address)
        running = queue.running = queue.running or Running(pending)
        command = find(pending.text)
        told = pending.reply is not None or pending.deaths.guilty
        turn = not told and (command is None or command[0].asks)
        input_id = pending.input.inbound.id
        running.hurry = partial(self._gate.hurry, input_id)
        try:
            way = await self._gate.enter(pending.input.key, input_id, turn=turn)
        finally:
            running.hurry = None
        if way is None:
            queue.running = None
        return way
