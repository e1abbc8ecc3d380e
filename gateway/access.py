"""Who may speak to the bot, and who may do more: one gate for text, files, commands and buttons (architecture, rule 15).

`decide` is the policy, pure. `Access` keeps what it needs: the config's lists, and the approvals of `access.jsonl`. Closed by default, and
by ids only: a name decides nothing. Called by `gateway.router` for everything that comes in, by commands and the control socket.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import aiofiles.os
import structlog

from channels.base import Inbound, Sender
from gateway.disk import open_private
from gateway.errors import StartError, Told
from gateway.lines import forwards, repair_tail
from gateway.metrics import Damage
from gateway.options import Access as Rules
from gateway.pairing import Approved, Event, Pairing, Revoked, encode, moment
from gateway.writer import Writer

log = structlog.get_logger(__name__)

GROUP_ADMIN_COMMANDS = frozenset({"reset", "new", "forget", "switch", "undo", "fork"})
"""What steers a conversation that many share: in a group its admins', or the daemon's, alone."""

PAIR = "I talk only to people whom my operator has let in. Show them this code within the hour: `{code}`. You are `{person}`."


@dataclass(frozen=True, slots=True)
class Allow:
    """They may speak."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """They may not, and hear nothing. `reason` is a word for the counters."""

    reason: str


@dataclass(frozen=True, slots=True)
class Pair:
    """A stranger who may ask to be let in: `said`, which holds the code, is all that they hear."""

    said: str = ""


Decision: TypeAlias = Allow | Refuse | Pair


def decide(rules: Rules, approved: Container[str], inbound: Inbound) -> Decision:
    """The gate. What the message holds makes no difference, so that no kind of message is a way around it.

    A group is let in as a whole, or not at all: who is in an allowed one may speak there, and nobody, admins included, brings the bot to
    speak in another. Whoever the channel vouches for (the terminal, the web token) is in already.
    """
    sender, address = inbound.sender, inbound.address
    if sender.trusted:
        return Allow()
    if not inbound.direct:
        listed = rules.groups == "allowlist" and any(
            f"{address.channel}:{group}" in rules.allow_groups for group in (address.chat, inbound.group) if group
        )
        return Allow() if listed or rules.groups == "open" else Refuse("group")
    if not sender.id:
        return Refuse("nobody")
    person = f"{address.channel}:{sender.id}"
    if person in rules.allow or person in rules.admins or rules.direct == "open":
        return Allow()
    if rules.direct in {"pairing", "allowlist"} and person in approved:
        return Allow()
    return Pair() if rules.direct == "pairing" else Refuse("stranger")


def over_quota(turns_per_day: int, turns: int) -> bool:
    """Whether a person who had `turns` answers today gets no more. 0 a day: no limit."""
    return 0 < turns_per_day <= turns


class Access:
    """The gate with its memory. `open` reads the file before anything is decided. `rules` may be replaced at any time."""

    def __init__(self, rules: Rules, path: Path, writer: Writer, *, clock: Callable[[], float], damage: Damage | None = None) -> None:
        self.rules = rules
        self._path, self._writer, self._clock = path, writer, clock
        self._damage = damage or Damage()
        self._pairing = Pairing()
        self.on_approval: Callable[[Approved], Awaitable[None]] | None = None
        """Tells a person that they were let in, once however often it is called for one approval. Raises nothing."""

    async def open(self) -> None:
        """Read the approvals. Raises StartError where the file is there and cannot be read: nobody is shut out in silence."""
        try:
            bad = await aiofiles.os.wrap(self._load)()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StartError(f"cannot read {self._path}: {error.strerror}") from error
        if bad:
            self._damage.bad(bad)
            log.error("unreadable lines passed over", file=str(self._path), lines=bad)

    def _load(self) -> int:
        size = repair_tail(self._path, self._damage)
        fd = open_private(self._path, os.O_RDONLY)
        try:
            os.fchmod(fd, 0o600)
            return self._pairing.load(line.data for line in forwards(fd, size))
        finally:
            os.close(fd)

    def decide(self, inbound: Inbound) -> Decision:
        """`decide` by what is known now. A stranger gets a code at most once an hour; otherwise, and in a crowd of strangers, silence."""
        decision = decide(self.rules, self._pairing.approved, inbound)
        if not isinstance(decision, Pair):
            return decision
        person = f"{inbound.address.channel}:{inbound.sender.id}"
        issued = self._pairing.issue(person, inbound.sender.name, self._clock(), inbound.id, inbound.address)
        if issued is None:
            return Refuse("stranger")
        self._pairing.apply(issued)
        # Not waited for: it is written with the journal's batch, ahead of the answer that shows the code, so that no crash parts them the
        # wrong way round; the other way round the input comes again, and gets the same code.
        self._append(issued, ahead=True).add_done_callback(self._written)
        return Pair(PAIR.format(code=issued.code, person=issued.person))

    def admits(self, inbound: Inbound) -> bool:
        """Whether they may speak; nothing comes of the question."""
        return isinstance(decide(self.rules, self._pairing.approved, inbound), Allow)

    def unsaid(self, inbound: Inbound) -> None:
        """The code could not be put on record and was not shown: the person's next message gets one."""
        self._pairing.withdraw(f"{inbound.address.channel}:{inbound.sender.id}")

    def is_admin(self, channel: str, sender: Sender) -> bool:
        """Whether this person administers the daemon."""
        return sender.trusted or (bool(sender.id) and f"{channel}:{sender.id}" in self.rules.admins)

    async def approve(self, code: str, *, by: str) -> str:
        """Let the person in who was shown this code; returns "channel:id". On disk when it returns. Raises Told."""
        now = self._clock()
        issued = self._pairing.find(code, now)
        approved = self._pairing.used(code, now) if issued is None else None
        if issued is not None:
            address = issued.address
            approved = Approved(at=moment(now), person=issued.person, name=issued.name, by=by, code=issued.code, address=address)
            await self._record(approved)
            log.info("let in", person=issued.person, by=by)
        if approved is None:
            raise Told("There is no such code, or it is older than an hour.")
        if self.on_approval is not None:
            await self.on_approval(approved)
        return approved.person

    async def revoke(self, person: str, *, by: str) -> None:
        """Shut a person out again. On disk when it returns. Raises Told."""
        if person in self.rules.allow or person in self.rules.admins:
            raise Told(f"{person} is let in by the config: take them out of `allow` and `admins` there.")
        if person not in self._pairing.approved:
            raise Told("Nobody with this id was let in.")
        await self._record(Revoked(at=moment(self._clock()), person=person, by=by))
        log.info("shut out", person=person, by=by)

    def listed(self) -> list[dict[str, str]]:
        """Who asks and who was let in, as rows for a person."""
        asks = [
            {"id": event.person, "name": event.name, "state": "asks", "code": event.code, "since": _minute(event.at.timestamp()), "by": ""}
            for event in self._pairing.pending(self._clock())
        ]
        let_in = [
            {"id": event.person, "name": event.name, "state": "let in", "code": "", "since": _minute(event.at.timestamp()), "by": event.by}
            for event in self._pairing.approved.values()
        ]
        return asks + let_in

    def _append(self, event: Event, *, ahead: bool = False) -> asyncio.Future[int]:
        return self._writer.append(self._path, encode(event), ahead=True) if ahead else self._writer.append(self._path, encode(event))

    def _written(self, future: asyncio.Future[int]) -> None:
        if not future.cancelled() and (error := future.exception()):
            log.error("cannot write", file=str(self._path), error=str(error))

    async def _record(self, event: Event) -> None:
        future = self._append(event)
        # Applied when it is written, whatever becomes of whoever waits here: the file and the memory never differ.
        future.add_done_callback(lambda done: None if done.cancelled() or done.exception() else self._pairing.apply(event))
        try:
            await asyncio.shield(future)
        except OSError as error:
            log.error("cannot write", file=str(self._path), error=str(error))
            raise Told("That could not be written to the disk; nothing has changed.") from error


def _minute(seconds: float) -> str:
    return moment(seconds).strftime("%Y-%m-%d %H:%M UTC")
