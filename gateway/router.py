"""The front door: steps 1 to 5 of the way of a message (docs/architecture.md). What comes in is recognised, admitted or refused,
journalled, and only then confirmed; then it stands in its key's queue, or is answered past it.

Knows no network and no model. Called by the channels through `accept`, and by `gateway.app` for what a crash left.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import structlog

from channels.base import Address, Channel, Inbound, Sender
from channels.failpoints import reach
from channels.files import readable
from gateway.access import Access, Pair, Refuse, over_quota
from gateway.asking import BROKEN
from gateway.commands.base import Call, Command, House, Stoppable, When, parse
from gateway.commands.table import BY_NAME, find
from gateway.errors import Told
from gateway.groups import GroupAdmins
from gateway.inbox import Entry, Inbox, Input, Pending, ReplyText
from gateway.message import SessionKey
from gateway.metrics import Metrics
from gateway.outbox import Outbox, Sending
from gateway.pairing import Approved
from gateway.runner import Runners
from gateway.running import Running, delivery
from gateway.sessions import SessionManager
from gateway.tasks import Tasks
from gateway.words import counted
from gateway.work import ADMINS_ONLY

log = structlog.get_logger(__name__)

WELCOME = "You were let in: write to me, and I answer."
TOO_OLD = "Messages came while I was away for too long, and I did not answer them. Please send again what still matters."
BATCH = 100
"""How much of what was left is queued before the loop may do something else."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is taken, from the config."""

    waiting: int
    """Inputs of one key."""
    turns_per_day: int
    """Of one person; 0: no limit."""


class Router:
    """Takes batches from the channels. Between the look at an id and its journalling there is no await, so that no input is taken twice."""

    def __init__(
        self,
        *,
        channels: Mapping[str, Channel],
        house: House,
        inbox: Inbox,
        sessions: SessionManager,
        runners: Runners,
        outbox: Outbox,
        access: Access,
        admins: GroupAdmins,
        group_scope: str,
        waiting: int,
        turns_per_day: int,
        clock: Callable[[], float],
        metrics: Metrics | None = None,
    ) -> None:
        """`bounds` may be replaced at any time."""
        self._channels, self._house, self._inbox, self._sessions = channels, house, inbox, sessions
        self._runners, self._outbox, self._access, self._admins = runners, outbox, access, admins
        self._per_user = group_scope == "user"
        self.bounds = Bounds(waiting, turns_per_day)
        self._clock = clock
        self._metrics = metrics or Metrics()
        for name in channels:
            for result in ("accepted", "duplicate", "refused"):
                self._metrics.inputs.add(name, result, by=0)
            self._metrics.aside.add(name, by=0)
        self._under_way: dict[str, asyncio.Future[list[Pending]]] = {}
        self._arriving: dict[str, int] = {}
        self._told_old: OrderedDict[str, None] = OrderedDict()
        self._told_many: OrderedDict[str, None] = OrderedDict()
        """Keys of which somebody heard that too much waits, since the last of their inputs that was taken."""
        self._tasks = Tasks()
        self._closed = False
        access.on_approval = self._welcome

    # ------------------------------------------------------------------------------------------------------------- what channels call

    async def accept(self, batch: Sequence[Inbound]) -> None:
        """`channels.base.Accept`. Raises OSError if the journal could not be written; then nothing of the batch is remembered."""
        entries: dict[str, Entry] = {}
        waits: list[asyncio.Future[list[Pending]] | asyncio.Future[None]] = []
        for inbound in batch:
            if inbound.kind == "edit":
                if ahead := entries.get(inbound.id):
                    entries[inbound.id] = _amended(ahead, inbound)
                elif amended := self._amend(inbound):
                    waits.append(amended)
            elif inbound.id in entries or self._inbox.seen(inbound.id):
                self._metrics.inputs.add(inbound.address.channel, "duplicate")
                if first := self._under_way.get(inbound.id):
                    waits.append(first)
            elif entry := self._admit(inbound, entries.values()):
                entries[inbound.id] = entry
        reach("accept before")
        if entries:
            waits.append(self._put(list(entries.values())))
        for wait in waits:
            await asyncio.shield(wait)
        reach("accept after")

    async def resume(self, pendings: Sequence[Pending]) -> None:
        """Queue what a crash left, in its order, before any channel starts. What belongs to a channel that is not there stays on record."""
        ours: list[Pending] = []
        for pending in pendings:
            address = pending.input.inbound.address
            if address.channel in self._channels:
                ours.append(pending)
            else:
                log.warning("kept: its channel is not configured", channel=address.channel, input=pending.input.inbound.id)
        self._runners.hold([pending for pending in ours if pending.deaths.suspect])
        for number, pending in enumerate(ours, 1):
            self._dispatch(pending)
            if not number % BATCH:
                await asyncio.sleep(0)
        self._runners.tried()

    async def settle(self, timeout: float) -> None:
        """Wait for the commands that are answered past the queue."""
        await self._tasks.settle(timeout)

    async def close(self, timeout: float | None = None) -> int:
        """End what still runs, and start nothing any more of what is yet accepted; it is on record. At most `timeout` seconds; how much
        hangs then."""
        self._closed = True
        return await self._tasks.close(timeout)

    @property
    def busy(self) -> int:
        """Commands that are being answered past the queue."""
        return len(self._tasks)

    # --------------------------------------------------------------------------------------------------------------------- admission

    def key_of(self, inbound: Inbound) -> SessionKey:
        """Whose conversation an input belongs to."""
        address = inbound.address
        user = inbound.sender.id if self._per_user and not inbound.direct else ""
        return SessionKey(address.channel, address.chat, address.thread, user)

    def _amend(self, inbound: Inbound) -> asyncio.Future[None] | None:
        """An edit replaces the text of an input that still waits."""
        pending = self._inbox.pending(inbound.id)
        return self._inbox.amend(inbound.id, inbound.text) if pending is not None and _amends(pending.text, inbound) else None

    def _admit(self, inbound: Inbound, batch: Collection[Entry]) -> Entry | None:
        """An entry for the journal, or None for what is refused in silence. `batch`: what goes into the journal with it, ahead of it.

        Where so much waits to be sent that the lane is full, nothing more is said past the queue, or a person who floods us could fill the
        memory with answers.
        """
        key = str(self.key_of(inbound))
        item = Input(inbound, key, self._clock())
        decision = self._access.decide(inbound)
        if isinstance(decision, Refuse):
            self._refused(inbound, decision.reason)
            return Entry(item, refused=decision.reason, reply=ReplyText(_shut(inbound))) if inbound.ticket else None
        if isinstance(decision, Pair):
            self._refused(inbound, "pairing")
            return Entry(item, refused="pairing", reply=ReplyText(decision.said))
        if not (inbound.direct or inbound.ticket) and (parsed := parse(inbound.text)) and parsed[0] not in BY_NAME:
            self._refused(inbound, "command")  # in a group it is most likely another bot's
            return None
        if refusal := self._refusal(inbound, key, batch):
            reason, said = refusal
            self._refused(inbound, reason)
            log.info("input refused", key=key, input=inbound.id, reason=reason)
            crowded = self._outbox.full(inbound.address)
            return Entry(item, refused=reason, reply=ReplyText(said) if said and not crowded else None)
        self._metrics.inputs.add(inbound.address.channel, "accepted")
        said = self._at_once(inbound)
        command = find(inbound.text)
        return Entry(item, reply=ReplyText(said) if said else None, turn=command is None or command[0].asks)

    def _refused(self, inbound: Inbound, reason: str) -> None:
        self._metrics.inputs.add(inbound.address.channel, "refused")
        self._metrics.refused.add(inbound.address.channel, reason)

    def _refusal(self, inbound: Inbound, key: str, batch: Collection[Entry]) -> tuple[str, str] | None:
        """Why an admitted person's input is not taken, and what they are told."""
        channel = self._channels[inbound.address.channel]
        if channel.backlog and inbound.sent_at and self._clock() - inbound.sent_at > channel.backlog:
            return "too old", TOO_OLD if _first(self._told_old, key) else ""
        command = find(inbound.text)
        now = command is not None and command[0].when(command[1]) is When.NOW
        if (
            (now or self._at_once(inbound))
            and self._outbox.full(inbound.address)
            and not (command and self._stops(command[0], inbound.address, key))
        ):
            return "lane", ""
        if now:
            return None
        waiting = self._runners.waiting(key) + self._arriving.get(key, 0) + sum(_runs(entry) and entry.input.key == key for entry in batch)
        bounds = self.bounds
        if waiting >= bounds.waiting:
            # Once: said of each message of a flood it would hold up the answers for minutes, in a group everybody's.
            if not _first(self._told_many, key) and not inbound.ticket:
                return "waiting", ""
            waits = counted(waiting, "message waits", "messages wait")
            return "waiting", f"{waits} here already; what comes now is not taken. Please send it again later."
        self._told_many.pop(key, None)
        most = bounds.turns_per_day
        if (not command or command[0].asks) and most and over_quota(most, self._turns_of(inbound, batch)):
            return "quota", f"You have used today's {counted(most, 'answer')}. From 00:00 UTC there are new ones."
        return None

    def _stops(self, command: Command, address: Address, key: str) -> bool:
        """It ends a turn: that is done even where the word about it has to wait for long."""
        running = self._stoppable(address, key)
        return command.name == "stop" and running is not None and not running.stopped()

    def _stoppable(self, address: Address, key: str) -> Running | Sending | None:
        """What /stop ends: the turn that runs, else the oldest answer that is not wholly sent."""
        return self._runners.running(key) or self._outbox.sending(address, key)

    def _turns_of(self, inbound: Inbound, batch: Collection[Entry]) -> int:
        """Turns that this person has had today, those of the batch included."""
        person = (inbound.address.channel, inbound.sender.id)
        ahead = sum(
            (entry.input.inbound.address.channel, entry.input.inbound.sender.id) == person for entry in batch if entry.turn and _runs(entry)
        )
        return ahead + self._inbox.turns_today(*person)

    def _at_once(self, inbound: Inbound) -> str:
        """The sentence that answers an input by itself, "" where it needs a turn or a command."""
        if inbound.unsupported:
            return f"I cannot read {inbound.unsupported} yet. Please write it in words."
        parsed = parse(inbound.text)
        if parsed:
            command = BY_NAME.get(parsed[0])
            if command is None or (command.admin and not self._access.is_admin(inbound.address.channel, inbound.sender)):
                return f"There is no command /{parsed[0]}. /help lists what there is."
        elif not inbound.text.strip() and not any(map(readable, inbound.attachments)):
            return "Yes? Write your question in the same message."
        return ""

    async def _welcome(self, approved: Approved) -> None:
        """Tell a person, where they were shown the code, that it was taken: on record like all that is said, and once by its id."""
        if approved.address is None or approved.address.channel not in self._channels:
            return
        inbound = Inbound(f"{approved.person}:let in:{approved.code}", approved.address, Sender(approved.person.partition(":")[2]))
        if self._inbox.seen(inbound.id):
            return
        try:
            await asyncio.shield(self._put([Entry(Input(inbound, str(self.key_of(inbound)), self._clock()), reply=ReplyText(WELCOME))]))
        except OSError as error:
            log.error("not told that they were let in", person=approved.person, error=str(error))

    # -------------------------------------------------------------------------------------------------------------------- the journal

    def _put(self, entries: list[Entry]) -> asyncio.Future[list[Pending]]:
        """Journal a batch; what waits on the returned future is confirmed with it. The order of the calls is the order in the queues.

        A question is queued at once: that it has begun, and its line in the session, then go to the disk together with its acceptance, and
        before that nothing is asked or said (`gateway.work`). Whatever else is done only once it is accepted for sure.
        """
        written = self._inbox.put(entries)
        begun: dict[str, Pending] = {}
        for entry in entries:
            input_id, key = entry.input.inbound.id, entry.input.key
            self._under_way[input_id] = written
            if not _runs(entry):
                continue
            if key not in self._arriving and not self._closed and find(entry.input.inbound.text) is None:
                pending = self._inbox.pending(input_id)
                assert pending is not None
                begun[input_id] = pending
                self._runners.add(pending)
            else:
                self._arriving[key] = self._arriving.get(key, 0) + 1

        def done(future: asyncio.Future[list[Pending]]) -> None:
            for entry in entries:
                self._under_way.pop(entry.input.inbound.id, None)
                if _runs(entry) and entry.input.inbound.id not in begun:
                    self._arrived(entry.input.key)
            if future.cancelled() or future.exception():
                for entry in entries:
                    if entry.refused == "pairing":
                        self._access.unsaid(entry.input.inbound)
                for pending in begun.values():
                    self._runners.drop(pending)
                return
            for pending in future.result():
                if pending.input.inbound.id not in begun:
                    self._dispatch(pending)

        written.add_done_callback(done)
        return written

    def _arrived(self, key: str) -> None:
        left = self._arriving.get(key, 0) - 1
        if left > 0:
            self._arriving[key] = left
        else:
            self._arriving.pop(key, None)

    def _dispatch(self, pending: Pending) -> None:
        """To where a journalled input goes: its lane, the side door for immediate commands, or its key's queue."""
        if self._closed:
            return
        inbound = pending.input.inbound
        command = find(pending.text)
        when = command[0].when(command[1]) if command else None
        if pending.deaths.suspect or pending.deaths.guilty:
            self._runners.add(pending)
            return
        if pending.reply is not None and (when is When.NOW or (when is None and not pending.attempts)):
            self._outbox.put(delivery(pending, pending.reply.text, buttons=pending.reply.buttons))
            return  # one that was run in its place before a crash is said in its place, behind the answers ahead of it
        if command and when is When.NOW:
            running = self._stoppable(inbound.address, pending.input.key)
            self._tasks.start(self._now(pending, *command, running), name=f"command {inbound.id}")
            return
        if command and when is When.CUT and not pending.session and (running := self._runners.running(pending.input.key)):
            self._tasks.start(self._cut(pending, command[0], running), name=f"cut {inbound.id}")
        self._runners.add(pending)

    async def _cut(self, pending: Pending, command: Command, running: Running) -> None:
        """End the turn that ran when the command came, if the person may; what waits ahead of the command still runs first."""
        if not await self._admins.refuses(command.name, pending.input.inbound):
            running.stop()

    async def _now(self, pending: Pending, command: Command, argument: str, running: Stoppable | None) -> None:
        inbound = pending.input.inbound
        stops = running is not None and command.name == "stop"  # which does not wait for the disk: what it means goes on meanwhile
        if not stops:
            with suppress(OSError):
                await asyncio.shield(self._inbox.begun(inbound.id))
        try:
            if await self._admins.refuses(command.name, inbound):
                reply = ReplyText(ADMINS_ONLY)
            else:
                key = SessionKey.parse(pending.input.key)
                admin = self._access.is_admin(inbound.address.channel, inbound.sender)
                current = "" if stops else await self._sessions.peek(key)
                call = Call(self._house, inbound.id, key, inbound.sender, argument, inbound.direct, admin, current, running)
                said = await command.handler(call)
                assert isinstance(said, ReplyText)
                reply = said
        except Told as told:
            reply = ReplyText(told.said)
        except Exception:
            log.exception("command failed", key=pending.input.key, input=inbound.id, command=command.name)
            reply = ReplyText(BROKEN)
        await self._runners.say(pending, reply)


def _first(told: OrderedDict[str, None], key: str) -> bool:
    """Note that a key is told, and whether it was not yet. The oldest are forgotten, and told again."""
    new = key not in told
    told[key] = None
    if len(told) > 1024:
        told.popitem(last=False)
    return new


def _runs(entry: Entry) -> bool:
    """It will be run, in its key's queue or past it; not merely answered."""
    return entry.reply is None and not entry.refused


def _amends(text: str, edit: Inbound) -> bool:
    """Whether an edit counts for an input that says `text`: it never makes or changes a command, and never empties a question."""
    return not parse(text) and not parse(edit.text) and bool(edit.text.strip())


def _amended(entry: Entry, edit: Inbound) -> Entry:
    """An entry that is not yet in the journal, as its author has edited it by now."""
    inbound = entry.input.inbound
    if not _runs(entry) or not _amends(inbound.text, edit):
        return entry
    return msgspec.structs.replace(
        entry, input=msgspec.structs.replace(entry.input, inbound=msgspec.structs.replace(inbound, text=edit.text))
    )


def _shut(inbound: Inbound) -> str:
    """What somebody hears who is not let in and has to be told something: the network shows them that the bot thinks."""
    if inbound.direct:
        return "I talk only to people whom my operator has let in, and you are not among them."
    place = f"{inbound.address.channel}:{inbound.group or inbound.address.chat}"
    return f"My operator has not let me talk here. They can: this place is `{place}`, for `allow_groups` in the config."
