"""Drains one key's queue, one input at a time, under the key's lock: steps 6 to 12 of the way of a message (docs/architecture.md).

A runner opens the session, commits the person's line, has the model asked, commits the answer and hands it to the lane. It never sends and
never awaits a send. What crashed in the middle is met again here with its `Pending` as the journal left it, and goes on where it stopped.
Called by `gateway.router`, which decides what gets into a queue; `Runners` owns a task for each key that has work.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from channels.base import Button, Inbound
from channels.failpoints import reach
from gateway.access import Access
from gateway.attachments import Attachments, note, room, unread
from gateway.backends.base import Backend
from gateway.commands.base import Ask, Call, Command, House
from gateway.commands.conversations import FORGOTTEN
from gateway.commands.table import find
from gateway.errors import Conflict, Corrupt, Told
from gateway.groups import GroupAdmins
from gateway.inbox import Inbox, Pending, ReplyText
from gateway.message import Media, Message, Person, Request, SessionKey
from gateway.metrics import Metrics
from gateway.naming import free_name
from gateway.outbox import Delivery, Outbox, Stream
from gateway.session import Session
from gateway.sessions import Effect, SessionManager
from gateway.turn import Asking, Outcome
from gateway.window import TooLong, build

log = structlog.get_logger(__name__)

NOT_STORED = "I could not store your message: the disk is full or failing. Please send it again later."
BROKEN = "Something went wrong in here, and your message was not answered. It is in the log."
BROKEN_OFF = "Something went wrong in here. The answer is not complete."
UNREADABLE = "This conversation's file cannot be read. It was left as it is; /reset starts a new one."
ADMINS_ONLY = "In a group only its admins may do that."
STOPPED = "(stopped)"
TOLD_TO_STOP = "I was told to stop"


@dataclass(slots=True)
class Running:
    """The turn that a key is in, for whoever wants to end it."""

    pending: Pending
    asking: asyncio.Task[Outcome] | None = None
    fetching: asyncio.Task[tuple[Media, ...]] | None = None
    """What is attached to it is on its way."""
    done: asyncio.Event = field(default_factory=asyncio.Event)
    _stopped: bool = False

    def stop(self) -> None:
        """End it: what was seen is kept."""
        self._stopped = True
        for work in (self.asking, self.fetching):
            if work is not None:
                work.cancel()

    def stopped(self) -> bool:
        """Somebody ended it."""
        return self._stopped

    async def over(self) -> None:
        """Wait until it has ended and what is kept of it is on record."""
        await self.done.wait()


@dataclass(slots=True)
class Queue:
    """What waits for one key, and what runs."""

    waiting: deque[Pending] = field(default_factory=deque)
    since: deque[float] = field(default_factory=deque)
    """Since when each of them waits, by the loop's clock."""
    running: Running | None = None
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """What a turn is asked with, from the config."""

    backend: Backend
    system: str
    history_messages: int
    history_tokens: int
    max_chars: int


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
    ) -> None:
        """`model` may be replaced at any time; a turn goes on with the one that it began with."""
        self._house, self._inbox, self._sessions, self._outbox = house, inbox, sessions, outbox
        self._access, self._admins, self._attachments, self._asking, self._heard = access, admins, attachments, asking, heard
        self.model = model
        self._metrics = metrics or Metrics()
        self._slots = asyncio.Semaphore(slots)
        self._queues: dict[str, Queue] = {}
        self._closing = False

    # ------------------------------------------------------------------------------------------------------------------- the queues

    def __len__(self) -> int:
        return len(self._queues)

    def waiting(self, key: str) -> int:
        """How many inputs of this key wait behind the running one."""
        queue = self._queues.get(key)
        return len(queue.waiting) if queue else 0

    def turns(self) -> int:
        """How many turns run."""
        return sum(queue.running is not None for queue in self._queues.values())

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
        if queue.task is None and not self._closing:
            if pending.attempts:  # it ran when the process died: a /stop or /reset that was left behind it means it
                queue.running = Running(pending)
            queue.task = asyncio.create_task(self._drain(key, queue), name=f"runner {key}")

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
        tasks = {queue.task for queue in self._queues.values() if queue.task}
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)
        return sum(not task.done() for task in tasks)

    async def close(self) -> None:
        """Cut what runs. It stays `started` in the journal, and the next start goes on with it."""
        self._closing = True
        tasks = [queue.task for queue in self._queues.values() if queue.task]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _drain(self, key: str, queue: Queue) -> None:
        while queue.waiting and await self._may_begin(pending := queue.waiting[0]):
            queue.waiting.popleft()
            queue.since.popleft()
            running = queue.running = queue.running or Running(pending)
            try:
                await self._one(pending, running)
            except OSError as error:
                log.error("cannot write", key=key, input=pending.input.inbound.id, exc_info=error)
                await self.say(pending, ReplyText(NOT_STORED))
            except (Exception, asyncio.CancelledError):
                unless_cancelled()
                log.exception("turn failed", key=key, input=pending.input.inbound.id)
                self._metrics.turns.add("broken")
                await self.say(pending, ReplyText(BROKEN))
            finally:
                queue.running = None
            running.done.set()  # not where it was cut: then nothing is on record yet
        queue.task = None
        if not queue.waiting:
            self._queues.pop(key, None)

    async def _may_begin(self, pending: Pending) -> bool:
        """A full lane holds its runner up here, before the lock, so that nothing is produced that cannot be sent."""
        if not self._closing:
            await self._outbox.room(pending.input.inbound.address)
        return not self._closing

    # ---------------------------------------------------------------------------------------------------------------------- an input

    async def _one(self, pending: Pending, running: Running) -> None:
        inbound = pending.input.inbound
        if pending.reply is not None:
            self._outbox.put(delivery(pending, pending.reply.text, buttons=pending.reply.buttons))
            return
        command = find(pending.text)
        if command and await self._admins.refuses(command[0].name, inbound):
            await self.say(pending, ReplyText(ADMINS_ONLY))
            return
        key = SessionKey.parse(pending.input.key)
        async with self._sessions.hold(key):
            try:
                try:
                    await self._under_lock(key, pending, running, command)
                except Conflict:
                    # An append failed behind our back; the lines are not in the file. The session is read again and the input run anew.
                    log.warning("session read again", key=str(key), input=inbound.id)
                    await self._under_lock(key, pending, running, command)
            except Told as told:
                await self.say(pending, ReplyText(told.said))
            except Corrupt as error:
                log.error("session unreadable", key=str(key), path=error.path, line=error.line, fault=error.text)
                if command is None or command[0].name != "reset":
                    await self.say(pending, ReplyText(UNREADABLE))
                else:
                    await self._reset_unreadable(key, pending)

    async def _reset_unreadable(self, key: SessionKey, pending: Pending) -> None:
        infos = await self._sessions.sessions(key)
        name = free_name(info.name for info in infos)
        await self._sessions.create(key, name, for_=pending.input.inbound.id)
        await self.say(pending, ReplyText("A new conversation. The old one could not be read; its file was left as it is."))

    async def _under_lock(self, key: SessionKey, pending: Pending, running: Running, command: tuple[Command, str] | None) -> None:
        input_id = pending.input.inbound.id
        effect: Effect | None = None
        if pending.session:
            effect = await self._sessions.effect(key, pending.session, pending.last_seq, input_id)
            if effect.gone and not (effect.created or command):
                if pending.text or pending.input.inbound.attachments:
                    await asyncio.shield(self._inbox.finished(input_id, "forgotten"))
                else:  # a /forget that had blanked the journal, its own words included, when the process died
                    await self.say(pending, ReplyText(FORGOTTEN))
                return
        # A command that made or chose a session already moved the pointer: it goes on from there, everything else in its own session.
        if pending.session and not (effect and effect.gone) and not (command and effect and effect.moved):
            session = await self._sessions.open(key, pending.session)
        else:
            session = await self._sessions.current(key, for_=input_id)
        if effect and effect.answer is not None:
            if effect.answer.interrupted and effect.answer.content == STOPPED:
                self._outbox.put(delivery(pending, ""))  # stopped before a word, as below
            else:
                self._deliver_answer(key, session, pending, effect.answer, None)
            return
        # Lower than the record says: a line that was being written then went with the process, and its number is given anew. What this
        # input does from here on would not be found behind the old one.
        lower = session.name == pending.session and session.last < pending.last_seq
        if not pending.session or (effect and effect.gone) or lower:
            reach("started before")
            await asyncio.shield(self._inbox.started(input_id, session.name, session.last))
            reach("started after")
        if command is None:
            if question := (effect.question if effect else None) or await self._commit_question(session, pending, running):
                await self._ask(key, session, pending, running, question)
            return
        said = await command[0].handler(self._call(key, session, pending, command[1], effect))
        if isinstance(said, Ask):
            await self._ask(key, session, pending, running, said.question)
        else:
            await self.say(pending, said)

    def _call(self, key: SessionKey, session: Session, pending: Pending, argument: str, effect: Effect | None) -> Call:
        inbound = pending.input.inbound
        admin = self._access.is_admin(inbound.address.channel, inbound.sender)
        return Call(
            self._house, inbound.id, key, inbound.sender, argument, inbound.direct, admin, session.name, session=session, effect=effect
        )

    async def _commit_question(self, session: Session, pending: Pending, running: Running) -> Message | None:
        """None where there is nothing to ask: a file without words of which nothing could be read. Then the person has been told."""
        inbound = pending.input.inbound
        media = await self._media(inbound, running)
        if not pending.text.strip() and not any(one.text for one in media) and (why := note(media)):
            await self.say(pending, ReplyText(why))
            return None
        line = Message(
            seq=0,
            at="",
            for_=inbound.id,
            role="user",
            content=pending.text,
            from_=Person(inbound.sender.id, inbound.sender.name),
            quote=inbound.quote,
            media=media,
        )
        reach("question before")
        seq = await asyncio.shield(self._sessions.commit(session, line))
        reach("question after")
        question = session.question()
        assert question is not None, seq
        return question

    async def _media(self, inbound: Inbound, running: Running) -> tuple[Media, ...]:
        """What is attached, read. Of other keys nobody waits for it, and `/stop` ends it."""
        if running.stopped() or not inbound.attachments:
            return unread(inbound, TOLD_TO_STOP)
        running.fetching = asyncio.create_task(self._attachments.read(inbound, room(self.model.history_tokens)))
        try:
            await asyncio.wait({running.fetching})
            return running.fetching.result()
        except asyncio.CancelledError:
            running.fetching.cancel()
            await asyncio.wait({running.fetching})
            unless_cancelled()
            return unread(inbound, TOLD_TO_STOP)
        finally:
            running.fetching = None

    # ------------------------------------------------------------------------------------------------------------------------ a turn

    async def _ask(self, key: SessionKey, session: Session, pending: Pending, running: Running, question: Message) -> None:
        inbound = pending.input.inbound
        if not session.messages or session.messages[-1].final:
            # Its answer could not be stored, nor that this was told; then others were answered, and the process died. Its time is over.
            await self.say(pending, ReplyText(NOT_STORED))
            return
        stream = self._outbox.stream(
            inbound.address, inbound.id, direct=inbound.direct, reply_to=inbound.ticket or inbound.reply_to, placed=dict(pending.placed)
        )
        began = asyncio.get_running_loop().time()
        try:
            outcome = await self._outcome(session, running, stream, began, names=not inbound.direct)
            self._count(outcome, began)
            if outcome is None:
                # The model is to know that this question is off the table; the person hears it from whoever stopped the turn.
                await self._commit_answer(session, pending, Outcome(text=STOPPED, interrupted=True))
                self._outbox.put(delivery(pending, STOPPED if inbound.ticket else ""), stream)
                return
            self._heard(outcome)
            if outcome.failed:
                await self.say(pending, ReplyText(_joined(outcome.failed, note(question.media))), stream)
                return
            outcome = dataclasses.replace(outcome, note=_joined(outcome.note, note(question.media)))
            answer = await self._commit_answer(session, pending, outcome)
        except BaseException:
            # Cut by a shutdown or failed: what is placed stays, and is edited by whoever goes on with this input.
            stream.abandon()
            raise
        self._deliver_answer(key, session, pending, answer, stream)

    async def _outcome(self, session: Session, running: Running, stream: Stream, began: float, *, names: bool) -> Outcome | None:
        """Ask the model; None where the turn was stopped before a word was said. A request that is too long for the model is tried again
        with half the history, twice."""
        model = self.model
        outcome = Outcome(failed=BROKEN)
        for tokens in (model.history_tokens, model.history_tokens // 2, model.history_tokens // 4):
            try:
                request = build(session, system=model.system, messages=model.history_messages, tokens=tokens, names=names)
            except TooLong as error:
                return Outcome(failed=error.said, overflow=True)  # which says nothing about how the model is
            said: list[str] = []
            if running.stopped():
                return None
            running.asking = asyncio.create_task(self._slotted(model, request, said, stream, began))
            try:
                await asyncio.wait({running.asking})
                outcome = running.asking.result()
            except (Exception, asyncio.CancelledError) as error:
                running.asking.cancel()
                await asyncio.wait({running.asking})
                unless_cancelled()
                text = "".join(said)
                if running.stopped() and running.asking.cancelled():
                    return Outcome(text=text, interrupted=True, note=STOPPED) if text.strip() else None
                log.error("the model's adapter failed", backend=model.backend.name, key=str(session.key), exc_info=error)
                return Outcome(text=text, interrupted=True, note=f"({BROKEN_OFF})") if text.strip() else Outcome(failed=BROKEN)
            finally:
                running.asking = None
            if not outcome.overflow:
                break
        return outcome

    async def _slotted(self, model: Model, request: Request, said: list[str], stream: Stream, began: float) -> Outcome:
        def grow(text: str) -> None:
            if not said:
                self._metrics.first_token.observe(asyncio.get_running_loop().time() - began)
            said.append(text)
            stream.grow(text)

        async with self._slots:
            return await self._asking(model.backend, request, on_text=grow, max_chars=model.max_chars)

    def _count(self, outcome: Outcome | None, began: float) -> None:
        if outcome is None or outcome.note == STOPPED:
            kind = "stopped"
        else:
            kind = "failed" if outcome.failed else "cut" if outcome.interrupted else "answered"
        self._metrics.turns.add(kind)
        self._metrics.turn.observe(asyncio.get_running_loop().time() - began)
        if outcome is not None:
            self._metrics.retries.add(by=outcome.tries - 1)
            if outcome.usage is not None:
                self._metrics.tokens.add("input", by=max(0, outcome.usage.input))
                self._metrics.tokens.add("output", by=max(0, outcome.usage.output))

    async def _commit_answer(self, session: Session, pending: Pending, outcome: Outcome) -> Message:
        line = Message(
            seq=0,
            at="",
            for_=pending.input.inbound.id,
            role="assistant",
            content=outcome.text,
            model=outcome.model,
            usage=outcome.usage,
            interrupted=outcome.interrupted,
            note=outcome.note,
        )
        reach("answer before")
        seq = await asyncio.shield(self._sessions.commit(session, line))
        reach("answer after")
        answer = session.answer_for(pending.input.inbound.id)
        assert answer is not None, seq
        return answer

    # --------------------------------------------------------------------------------------------------------------------- what is said

    def _deliver_answer(self, key: SessionKey, session: Session, pending: Pending, answer: Message, stream: Stream | None) -> None:
        self._sessions.pin(key, session.name)
        reach("lane before")
        self._outbox.put(delivery(pending, answer.shown, answer=(session.name, answer.seq), sent_to=session.sent_to(answer.seq)), stream)
        reach("lane after")

    async def say(self, pending: Pending, reply: ReplyText, stream: Stream | None = None) -> None:
        """Journal a reply, then have it sent. From here on the input is never run again, only delivered."""
        reach("reply before")
        try:
            await asyncio.shield(self._inbox.reply(pending.input.inbound.id, reply))
        except OSError as error:
            # Said all the same: a repeat after a crash is better than silence now.
            log.error("reply not journalled", key=pending.input.key, input=pending.input.inbound.id, exc_info=error)
        reach("reply after")
        self._outbox.put(delivery(pending, reply.text, buttons=reply.buttons), stream)


def _joined(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


def unless_cancelled() -> None:
    """A CancelledError that nobody aimed at this task came out of something broken: a fault like any other, not the end of a queue."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def delivery(
    pending: Pending, text: str, *, buttons: tuple[Button, ...] = (), answer: tuple[str, int] | None = None, sent_to: int | None = None
) -> Delivery:
    """What a lane needs to know to bring `text` to where the input came from."""
    inbound = pending.input.inbound
    return Delivery(
        input_id=inbound.id,
        key=pending.input.key,
        address=inbound.address,
        direct=inbound.direct,
        text=text,
        answer=answer,
        reply_to=inbound.ticket or inbound.reply_to,
        buttons=buttons,
        placed=dict(pending.placed),
        sent_to=pending.sent_to if sent_to is None else sent_to,
    )
