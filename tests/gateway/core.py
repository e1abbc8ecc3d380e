"""The core with real parts, for the tests of router, runner, commands and groups: journal, sessions, lanes and access in a folder, a
network in memory (`outbox_net.Net`) on the one side and a scripted model on the other. Put together as `gateway.app` does it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from channels.base import Address, Attachment, Channel, ChannelError, Inbound, Sender
from gateway.access import Access
from gateway.attachments import Attachments
from gateway.backends.base import Done, Part, Text
from gateway.errors import BackendError
from gateway.groups import GroupAdmins
from gateway.inbox import Inbox
from gateway.journal import ROTATE
from gateway.ledger import JournalLedger
from gateway.message import Request, SessionKey
from gateway.metrics import Metrics
from gateway.options import Access as Rules
from gateway.outbox import Outbox
from gateway.router import Router
from gateway.runner import Runners
from gateway.running import Model
from gateway.sessions import STATE_LINES, SessionManager
from gateway.store.base import SessionLog
from gateway.store.jsonl import JsonlStore
from gateway.trials import NORMAL, Times
from gateway.turn import Outcome, run
from gateway.writer import Writer
from tests.gateway.outbox_net import Net

OPEN = Rules(direct="open", groups="open")
Step: TypeAlias = str | BaseException | asyncio.Event
"""What a scripted answer does next: say something, fail, wait."""


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait for what others bring about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.002)


@dataclass
class Parrot:
    """A `Backend`: says "Heard: " and the newest words, or what the script has for the next question."""

    name: str = "parrot"
    script: deque[tuple[Step, ...]] = field(default_factory=deque)
    asked: list[list[tuple[str, str]]] = field(default_factory=list)
    """The messages of each request, without the system text."""
    open: int = 0
    """Streams that are being read."""

    def then(self, *steps: Step) -> None:
        self.script.append(steps)

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        said: list[tuple[str, str]] = [(m.role, m.content or "") for m in request.messages if m.role != "system"]
        self.asked.append(said)
        self.open += 1
        try:
            for step in self.script.popleft() if self.script else (f"Heard: {said[-1][1]}",):
                if isinstance(step, BaseException):
                    raise step
                if isinstance(step, asyncio.Event):
                    await step.wait()
                else:
                    yield Text(step)
            yield Done(reason="stop")
        finally:
            self.open -= 1

    async def check(self) -> None:
        pass

    async def close(self) -> None:
        pass


@dataclass
class Place(Net):
    """A network whose groups have admins."""

    admins: set[str] = field(default_factory=set)
    silent: ChannelError | None = None
    """Why it does not say who the admins are."""
    admin_questions: int = 0

    async def is_admin(self, address: Address, user_id: str) -> bool:
        self.admin_questions += 1
        if self.silent is not None:
            raise self.silent
        return user_id in self.admins


class Core:
    """`async with Core(folder) as core`: started at entry, ended at exit; `restart` in between, in order or as after a kill."""

    def __init__(
        self,
        folder: Path,
        *,
        net: Place | None = None,
        model: Parrot | None = None,
        store: Callable[[Path, Writer], SessionLog] = JsonlStore,
        writer: Callable[[], Writer] = Writer,
        rules: Rules = OPEN,
        scope: str = "chat",
        waiting: int = 50,
        slots: int = 100,
        lane_limit: int = 100,
        turns_per_day: int = 0,
        clock: Callable[[], float] = time.time,
        times: Times = NORMAL,
        cache_bytes: int = 10**8,
        history_messages: int = 200,
        state_lines: int = STATE_LINES,
        rotate_bytes: int = ROTATE,
    ) -> None:
        self.folder = folder
        self.net = net or Place(units=4000)
        self.model = model or Parrot()
        self.heard: list[Outcome] = []
        self.metrics = Metrics()
        self._make_store, self._make_writer, self._rules, self._scope = store, writer, rules, scope
        self._waiting, self._slots, self._lane_limit, self._turns_per_day, self._clock = waiting, slots, lane_limit, turns_per_day, clock
        self._cache_bytes, self._history_messages = cache_bytes, history_messages
        self._state_lines, self._rotate_bytes = state_lines, rotate_bytes
        self._ids, self._times = 0, times

    # ------------------------------------------------------------------------------------------------------------------------- life

    async def start(self) -> None:
        channels: dict[str, Channel] = {"net": self.net}
        self.writer = self._make_writer()
        self.inbox = Inbox(self.folder / "journal", self.writer, clock=self._clock, rotate_bytes=self._rotate_bytes)
        self.store = self._make_store(self.folder / "sessions", self.writer)
        self.sessions = SessionManager(
            self.store,
            cache_bytes=self._cache_bytes,
            history_messages=self._history_messages,
            history_tokens=16000,
            clock=self._clock,
            state_lines=self._state_lines,
        )
        self.access = Access(self._rules, self.folder / "access.jsonl", self.writer, clock=self._clock)
        self.outbox = Outbox(channels, JournalLedger(self.inbox, self.sessions), lane_limit=self._lane_limit)
        self.admins = GroupAdmins(channels, self.access, time.monotonic)
        self.runners = Runners(
            house=self,
            inbox=self.inbox,
            sessions=self.sessions,
            outbox=self.outbox,
            access=self.access,
            admins=self.admins,
            attachments=Attachments(channels),
            model=Model(self.model, "system", self._history_messages, 16000, 30000),
            asking=run,
            slots=self._slots,
            heard=self.heard.append,
            metrics=self.metrics,
            times=self._times,
        )
        self.router = Router(
            channels=channels,
            house=self,
            inbox=self.inbox,
            sessions=self.sessions,
            runners=self.runners,
            outbox=self.outbox,
            access=self.access,
            admins=self.admins,
            group_scope=self._scope,
            waiting=self._waiting,
            turns_per_day=self._turns_per_day,
            clock=self._clock,
            metrics=self.metrics,
        )
        await self.access.open()
        await self.store.open()
        await self.router.resume(await self.inbox.open())

    async def stop(self, patience: float = 0.0, *, crash: bool = False) -> None:
        """The phases of `gateway.app`; what runs is cut after `patience` seconds. With `crash`, nobody has told it to end."""
        if not crash:
            self.inbox.ended()
        await self.router.settle(patience)
        await self.runners.settle(patience)
        await self.runners.close()
        await self.router.close()
        await self.outbox.drain(patience)
        await self.outbox.close()
        await self.inbox.close()
        await self.sessions.close()
        await self.store.close()
        await self.writer.close()

    async def restart(self, *, crash: bool = False) -> None:
        await self.stop(crash=crash)
        await self.start()

    async def __aenter__(self) -> Core:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()
        assert self.net.faults == []

    # ------------------------------------------------------------------------------------------------------------ what commands may use

    def status(self, key: SessionKey) -> list[str]:
        return [f"Waiting here: {self.runners.waiting(str(key))}"]

    async def forget_inputs(self, key: SessionKey) -> None:
        await self.inbox.forget(str(key))

    # ----------------------------------------------------------------------------------------------------------------- what tests do

    def inbound(
        self,
        text: str,
        *,
        chat: str = "1",
        who: str = "1",
        direct: bool = True,
        input_id: str = "",
        edit: bool = False,
        button: bool = False,
        trusted: bool = False,
        sent_at: float = 0.0,
        unsupported: str = "",
        ticket: str = "",
        group: str = "",
        attachments: tuple[Attachment, ...] = (),
    ) -> Inbound:
        if not input_id:
            self._ids += 1
            input_id = f"net:7:{chat}:{self._ids}"
        return Inbound(
            id=input_id,
            address=Address("net", chat),
            sender=Sender(who, f"name of {who}", trusted),
            text=text,
            kind="edit" if edit else "button" if button else "message",
            direct=direct,
            sent_at=sent_at,
            unsupported=unsupported,
            ticket=ticket,
            group=group,
            attachments=attachments,
        )

    async def say(self, text: str, *, chat: str = "1", who: str = "1", direct: bool = True, button: bool = False) -> str:
        """Have it accepted; its id."""
        inbound = self.inbound(text, chat=chat, who=who, direct=direct, button=button)
        await self.router.accept([inbound])
        return inbound.id

    def seen(self, chat: str = "1") -> list[str]:
        """What the chat shows of the bot."""
        return self.net.visible(Address("net", chat))

    @property
    def refused(self) -> dict[str, float]:
        """How many inputs were not taken, by reason."""
        return {reason: count for (_, reason), count in self.metrics.refused.values.items()}

    async def quiet(self, seconds: float = 5.0) -> None:
        """Wait until everything that came in is finished."""
        await until(lambda: not self.inbox.unfinished(), seconds)

    async def ask(self, text: str, *, chat: str = "1", who: str = "1", direct: bool = True) -> str:
        """Say it, wait until it is settled; the newest message in the chat."""
        input_id = await self.say(text, chat=chat, who=who, direct=direct)
        await until(lambda: self.inbox.pending(input_id) is None)
        return self.seen(chat)[-1]

    async def running(self, chat: str = "1") -> None:
        """Wait until the chat's turn has the model's ear."""
        await until(lambda: (turn := self.runners.running(f"net:{chat}")) and turn.asking)


def down(said: str = "The model is down.") -> BackendError:
    """A failure that is not tried again."""
    return BackendError(said, retryable=False)
