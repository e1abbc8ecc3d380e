"""A chat network and a journal in memory, for the tests of the outbox.

`Net` behaves like a network: it stores messages, shows them, refuses what is not there, too long or blank, asks to wait and notes who does
not, loses calls and answers. What happens to a call is scripted by fates. `Book` is the journal: it keeps what lanes record, and can fail.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aiohttp.web import RouteDef

from channels.base import (
    Accept,
    Address,
    Attachment,
    Button,
    ChannelError,
    CommandInfo,
    Limits,
    Lost,
    Pacing,
    Piece,
    Refused,
    Rejected,
    Retry,
    Span,
)
from gateway.outbox import Delivery

NO_PACING = Pacing()
CHAT = Address("net", "1")


@dataclass(frozen=True)
class Landed:
    """The call has its effect, and then its answer is lost this way."""

    error: Exception


@dataclass(frozen=True)
class Slow:
    """The answer takes this long."""

    seconds: float


HANG = Slow(1e9)
Fate = Exception | Landed | Slow | None


@dataclass(frozen=True)
class Call:
    at: float
    op: str
    address: Address
    message_id: str = ""
    text: str = ""
    spans: tuple[Span, ...] = ()
    reply_to: str = ""
    buttons: tuple[Button, ...] = ()
    nonce: str = ""


@dataclass
class Net:
    """A `Channel`. `*` in a text is markup: it makes bold and is not shown."""

    units: int = 100
    streams: bool = True
    pacing: Pacing = NO_PACING
    latency: float = 0.0
    fates: dict[str, deque[Fate]] = field(default_factory=dict)
    """By operation, or "any": what becomes of the next calls, one each."""
    judge: Callable[[Call], Fate] = lambda call: None
    """Asked when no fate is left."""
    before: set[str] = field(default_factory=set)
    """Messages that an earlier life of the process sent, and that can be told from those of this one."""
    cut_lands: bool = False
    """A call that is cut on its way has its effect all the same."""
    calls: list[Call] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What a caller must not do, and did."""
    refused: Counter[str] = field(default_factory=Counter)
    """How often a text was refused."""
    messages: dict[Address, dict[str, str]] = field(default_factory=dict)
    files: dict[str, bytes | ChannelError | asyncio.Event] = field(default_factory=dict)
    """What is attached, by ref: its content, what the network says instead, or what is set when it is asked for; then it never comes."""
    fetches: list[tuple[str, int]] = field(default_factory=list)
    renders: int = 0
    name: str = "net"
    backlog: float = 0.0

    def __post_init__(self) -> None:
        self.limits = Limits(self.units)
        self._busy: set[Address] = set()
        self._wait: dict[str, float] = {}
        self._count = 0

    # what the tests look at

    def visible(self, address: Address = CHAT) -> list[str]:
        return list(self.messages.get(address, {}).values())

    def shown(self, address: Address = CHAT) -> str:
        return "".join(self.visible(address))

    def ops(self, address: Address | None = CHAT, *, typing: bool = False) -> list[str]:
        return [c.op for c in self.calls if address in (None, c.address) and (typing or c.op != "typing")]

    def of(self, op: str, address: Address = CHAT) -> list[Call]:
        return [c for c in self.calls if c.op == op and c.address == address]

    def fail(self, op: str, *fates: Fate) -> None:
        self.fates.setdefault(op, deque()).extend(fates)

    def forgive(self) -> None:
        """Whoever calls now did not hear that they were asked to wait."""
        self._wait.clear()

    # the sending half

    async def send(self, address: Address, piece: Piece, *, reply_to: str = "", buttons: Sequence[Button] = (), nonce: str = "") -> str:
        def effect() -> str:
            self._count += 1
            message_id = f"m{self._count}"
            self.messages.setdefault(address, {})[message_id] = piece.text
            return message_id

        call = Call(self._now(), "send", address, "", piece.text, piece.spans, reply_to, tuple(buttons), nonce)
        return await self._do(call, effect)

    async def recall(self, address: Address, piece: Piece, *, since: float, asked: str, reply_to: str = "") -> str:
        """Of what `before` names: the messages of an earlier life."""
        found = next((one for one, text in self.messages.get(address, {}).items() if text == piece.text and one in self.before), "")
        return await self._do(Call(self._now(), "recall", address, "", piece.text, reply_to=reply_to), lambda: found)

    async def edit(self, address: Address, message_id: str, piece: Piece, *, buttons: Sequence[Button] = ()) -> None:
        def effect() -> str:
            if message_id not in self.messages.get(address, {}):
                raise Lost("no such message")
            self.messages[address][message_id] = piece.text
            return ""

        await self._do(Call(self._now(), "edit", address, message_id, piece.text, piece.spans, "", tuple(buttons)), effect)

    async def delete(self, address: Address, message_id: str) -> None:
        def effect() -> str:
            self.messages.get(address, {}).pop(message_id, None)
            return ""

        await self._do(Call(self._now(), "delete", address, message_id), effect)

    async def typing(self, address: Address) -> None:
        await self._do(Call(self._now(), "typing", address), lambda: "")

    async def _do(self, call: Call, effect: Callable[[], str]) -> str:
        self.calls.append(call)
        if call.address in self._busy:
            self.faults.append(f"two calls at once: {call}")
        if call.at < max(self._wait.get(call.address.chat, 0.0), self._wait.get("", 0.0)):
            self.faults.append(f"called while asked to wait: {call}")
        if call.op in {"send", "edit"} and (not call.text.strip() or len(call.text) > self.units):
            self.faults.append(f"blank or too long: {call}")
            raise Rejected("bad text")
        self._busy.add(call.address)
        try:
            fates = self.fates.get(call.op) or self.fates.get("any")
            fate = fates.popleft() if fates else self.judge(call)
            try:
                await asyncio.sleep(fate.seconds if isinstance(fate, Slow) else self.latency)
            except asyncio.CancelledError:
                if self.cut_lands:
                    effect()
                raise
            if isinstance(fate, Retry):
                scope = "" if fate.everywhere else call.address.chat
                self._wait[scope] = max(self._wait.get(scope, 0.0), self._now() + fate.after)
            if isinstance(fate, Refused):
                self.refused[call.text] += 1
            if isinstance(fate, Exception):
                raise fate
            result = effect()
            if isinstance(fate, Landed):
                raise fate.error
            return result
        finally:
            self._busy.discard(call.address)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # the rest of a channel

    def render(self, markdown: str) -> list[Piece]:
        self.renders += 1
        if not markdown.strip():
            return []
        pieces = []
        for start in range(0, len(markdown), self.units):
            source = markdown[start : start + self.units]
            text = source.replace("*", "")
            spans = (Span("bold", 0, len(text)),) if "*" in source else ()
            if text.strip():
                pieces.append(Piece(text, spans, start, start + len(source)))
        return pieces

    async def start(self, menu: Sequence[CommandInfo]) -> None:
        pass

    async def run(self, accept: Accept) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass

    def last_sign_of_life(self) -> float:
        return 0.0

    def routes(self) -> Sequence[RouteDef]:
        return ()

    async def is_admin(self, address: Address, user_id: str) -> bool:
        return False

    async def fetch(self, attachment: Attachment, most: int) -> bytes:
        """What `files` has by that ref; an error is raised, and what is an event is waited for first, for ever."""
        self.fetches.append((attachment.ref, most))
        found = self.files.get(attachment.ref, Refused("no such file"))
        if isinstance(found, Exception):
            raise found
        if isinstance(found, asyncio.Event):
            found.set()
            await asyncio.Event().wait()
        assert isinstance(found, bytes)
        return found[:most]


@dataclass
class Book:
    """A `Ledger`. `fates`: what the next records fail with; None lets one pass."""

    lines: list[tuple[object, ...]] = field(default_factory=list)
    fates: dict[str, deque[Exception | None]] = field(default_factory=dict)
    latency: float = 0.0
    closed: bool = False
    dead: bool = False
    """The process was killed: nothing is written any more."""
    faults: list[str] = field(default_factory=list)

    def fail(self, kind: str, *fates: Exception | None) -> None:
        self.fates.setdefault(kind, deque()).extend(fates)

    def known(self, input_id: str) -> dict[int, str]:
        """The placed messages as a restart would find them."""
        return {int(str(line[2])): str(line[3]) for line in self.lines if line[0] == "placed" and line[1] == input_id}

    def sent_of(self, input_id: str) -> list[tuple[object, ...]]:
        return [line[2:] for line in self.lines if line[0] == "sent" and line[1] == input_id]

    def reason(self, input_id: str) -> str | None:
        reasons = [str(line[2]) for line in self.lines if line[0] == "finished" and line[1] == input_id]
        if len(reasons) > 1:
            self.faults.append(f"finished twice: {input_id}")
        return reasons[0] if reasons else None

    async def placed(self, input_id: str, piece: int, message_id: str) -> None:
        await self._write("placed", ("placed", input_id, piece, message_id))

    async def sent(self, delivery: Delivery, span: tuple[int, int], ids: Sequence[str], unknown: bool, last: bool) -> None:
        await self._write("sent", ("sent", delivery.input_id, span, tuple(ids), unknown))
        if last:
            await self.finished(delivery, "")

    async def stopped(self, delivery: Delivery, start: int) -> None:
        await self._write("stopped", ("stopped", delivery.input_id, start))

    async def finished(self, delivery: Delivery, reason: str) -> None:
        await self._write("finished", ("finished", delivery.input_id, reason))

    async def _write(self, kind: str, line: tuple[object, ...]) -> None:
        if self.dead:
            return
        if self.closed:
            self.faults.append(f"called after close: {line}")
        await asyncio.sleep(self.latency)
        fates = self.fates.get(kind)
        if fates and (error := fates.popleft()):
            raise error
        self.lines.append(line)
