"""A house in virtual time: a disk, a network and a model that take their time by the loop's clock, fail when they are told to, and outlive
the process that uses them.

The real parts run on real files; the blocking calls that go to threads elsewhere are done here by the loop itself, a moment after they were
asked for, and are heard of a moment later. So every interleaving is the same each time, and a process can be made to end between any two
steps: before a write, after it, or before anybody learns of it.
"""

from __future__ import annotations

import asyncio
import errno
import re
import selectors
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from channels.base import TICKET, Address
from gateway.backends.base import Done, Part, Text
from gateway.errors import BackendError
from gateway.message import Request
from gateway.writer import Writer
from tests.gateway.core import Parrot, Place
from tests.gateway.histories import complaint
from tests.gateway.outbox_net import Call

T = TypeVar("T")
BASE = 1_800_000_000.0
"""What the wall clock says when the loop's clock says 0."""
DOWN = "The model is down."
AGAIN = "The model stumbled."
WORD = re.compile(r"\b([wa])([0-9]+)\b")


class Stuck(BaseException):
    """Everybody waits, and nothing is going to happen any more."""


class _Clock(selectors.SelectSelector):
    """Where a loop waits for its next timer: here the time comes at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck
        self.now += timeout
        return []


class Loop(asyncio.SelectorEventLoop):
    """Virtual time, and no threads."""

    def __init__(self) -> None:
        self._virtual = _Clock()
        super().__init__(self._virtual)
        self._clock_resolution = 1e-6
        self.disk = Disk()
        self._hops = 0
        self.faults: list[str] = []
        """What was raised where nobody listened."""
        self.set_exception_handler(lambda loop, context: self.faults.append(str(context)))

    def time(self) -> float:
        return self._virtual.now

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        future: asyncio.Future[T] = self.create_future()
        self._hops += 1

        def work() -> None:
            try:
                self.disk.permit(func)
                result = func(*args)
            except Exception as error:
                self.call_later(0.001, self._tell, future, None, error)
            else:
                self.call_later(0.001, self._tell, future, result, None)

        # The tiny share keeps those that were asked for at one moment in their order.
        self.call_later(0.001 + self._hops % 1000 * 1e-6, work)
        return future

    def _tell(self, future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


@dataclass
class Disk:
    """Whether there is room, and where."""

    full: str = ""
    """"" nowhere, else "journal", "lines" (of sessions), "pointers", "new" (files) or "all"."""

    def permit(self, func: object) -> None:
        """A new file is made by a call of its own."""
        name = getattr(getattr(func, "func", func), "__qualname__", "")
        if self.full in {"new", "all"} and (name == "create" or "JsonlStore.fork" in name):
            raise OSError(errno.ENOSPC, "no room")

    def refuses(self, path: Path) -> bool:
        """Nothing can be appended to this file."""
        kind = "journal" if path.parent.name == "journal" else "pointers" if path.name == "_chat.jsonl" else "lines"
        return self.full in {kind, "all"}


class RoughWriter(Writer):
    """Writes to such a disk."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    def _write_batch(self, groups: Sequence[Any]) -> list[int | OSError]:
        return [
            OSError(errno.ENOSPC, "no room", str(group.path))
            if self._disk.refuses(group.path)
            else super(RoughWriter, self)._write_batch([group])[0]
            for group in groups
        ]


@dataclass
class World(Place):
    """The chats, as one life of the daemon reaches them. Each life has its own, over the same messages."""

    owners: dict[str, str] = field(default_factory=dict)
    """Message -> the input that it refers to."""
    over: bool = False
    """The life has ended: what it still calls reaches nobody."""

    def next_life(self) -> World:
        other = World(
            units=self.units, streams=self.streams, latency=self.latency, admins=self.admins, messages=self.messages, owners=self.owners
        )
        other._count = self._count + 1000  # what the dying one still does gets numbers of its own
        return other

    async def _do(self, call: Call, effect: Callable[[], str]) -> str:
        if self.over:
            await asyncio.Event().wait()

        def landed() -> str:
            message_id = effect()
            if call.op == "send":
                self.owners[message_id] = call.reply_to.removeprefix(TICKET)
            return message_id

        return await super()._do(call, landed)

    def said(self, address: Address) -> list[tuple[str, str]]:
        """Input and text of each message that stands in a chat."""
        return [(self.owners.get(message_id, ""), text) for message_id, text in self.messages.get(address, {}).items()]


@dataclass(frozen=True)
class Plan:
    """How the model takes a question."""

    parts: int = 1
    before: float = 0.0
    """Seconds until the first part."""
    between: float = 0.0
    end: str = "stop"
    """Or "down" (at once), "flaky" (the first time it stumbles), "break" (after the first part), "empty"."""


@dataclass
class Memory:
    """What the model was asked and meant to say, over all lives."""

    plans: dict[int, Plan] = field(default_factory=dict)
    """By the number of the question's word."""
    asked: list[tuple[int, tuple[tuple[str, str], ...]]] = field(default_factory=list)
    """Each request: the number of its newest question's word, and its messages without the system text."""
    meant: dict[str, str] = field(default_factory=dict)
    """First word of an answer -> all of it."""
    faults: list[str] = field(default_factory=list)


class Voice(Parrot):
    """A model that says something else each time: "a17x2 ..." is its second answer to a question that ends with "w17"."""

    def __init__(self, memory: Memory) -> None:
        super().__init__("voice")
        self.memory = memory
        self.over = False

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        if self.over:
            await asyncio.Event().wait()
        memory = self.memory
        if fault := complaint(request.messages):
            memory.faults.append(f"{fault}: {request.messages}")
        body = tuple((m.role, m.content or "") for m in request.messages if m.role != "system")
        if len(body) == len(request.messages):
            memory.faults.append("no system text")
        if body[-1][0] != "user":
            memory.faults.append(f"it does not end with a question: {body}")
        number = int(WORD.findall(body[-1][1])[-1][1])
        times = 1 + sum(each == number for each, _ in memory.asked)
        memory.asked.append((number, body))
        plan = memory.plans[number]
        parts = [f"a{number} x{times}", *(f" p{n}" for n in range(1, plan.parts))]
        memory.meant[f"a{number} x{times}"] = "".join(parts)
        self.open += 1
        try:
            await asyncio.sleep(plan.before)
            if plan.end == "down":
                raise BackendError(DOWN, retryable=False)
            if plan.end == "flaky" and times == 1:
                raise BackendError(AGAIN, retryable=True)
            for part in parts if plan.end != "empty" else ():
                yield Text(part)
                await asyncio.sleep(plan.between)
                if plan.end == "break":
                    raise BackendError(AGAIN, retryable=True)
            yield Done(reason="stop")
        finally:
            self.open -= 1
