"""One input under its key's lock: steps 6 to 12 of the way of a message (docs/architecture.md).

It opens the session, commits the person's line, has the model asked, commits the answer and hands it to the lane. It never sends and never
awaits a send. What crashed in the middle is met again here with its `Pending` as the journal left it, and goes on where it stopped.
Called by `gateway.runner`, which decides what is worked on when.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
from contextlib import suppress

import structlog

from channels.base import Inbound
from channels.failpoints import reach
from gateway.access import Access
from gateway.asking import Questions
from gateway.attachments import Attachments, note, room, unread
from gateway.commands.base import Ask, Call, Command, House
from gateway.commands.conversations import FORGOTTEN
from gateway.commands.table import find
from gateway.errors import Conflict, Corrupt, StoreError, Told
from gateway.groups import GroupAdmins
from gateway.inbox import Inbox, Pending, ReplyText
from gateway.message import STOPPED, Media, Message, Person, SessionKey, Undo, seconds
from gateway.metrics import Metrics
from gateway.outage import tell
from gateway.outbox import Outbox, Stream
from gateway.running import Running, delivery, unless_cancelled
from gateway.session import Session
from gateway.sessions import Effect, SessionManager
from gateway.turn import Outcome

log = structlog.get_logger(__name__)

NOT_STORED = "I could not store your message: the disk is full or failing. Please send it again later."
UNREADABLE = "This conversation's file cannot be read. It was left as it is; /reset starts a new one."
ADMINS_ONLY = "In a group only its admins may do that."
TOLD_TO_STOP = "I was told to stop"
SET_ASIDE = "I broke down {} times over this message and have set it aside. My operator can see that. Please try to put it differently."


class Work:
    """See the module."""

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
        questions: Questions,
        metrics: Metrics,
    ) -> None:
        self._house, self._inbox, self._sessions, self._outbox = house, inbox, sessions, outbox
        self._access, self._admins, self._attachments, self._questions = access, admins, attachments, questions
        self._metrics = metrics

    async def do(self, pending: Pending, running: Running) -> None:
        if not self._inbox.holds(pending):
            return  # its acceptance failed while it waited: it comes again
        inbound = pending.input.inbound
        if pending.deaths.guilty:
            await self._set_aside(pending)
            return
        if pending.reply is not None:
            self._try(pending, pending.reply.text)
            self._outbox.put(delivery(pending, pending.reply.text, buttons=pending.reply.buttons))
            return
        command = find(pending.text)
        if command and await self._admins.refuses(command[0].name, inbound):
            await self.say(pending, ReplyText(ADMINS_ONLY))
            return
        key = SessionKey.parse(pending.input.key)
        async with self._sessions.hold(key):
            try:
                await self._twice(key, pending, running, command)
            except Told as told:
                await self.say(pending, ReplyText(told.said))
            except Corrupt as error:
                log.error("session unreadable", key=str(key), path=error.path, line=error.line, fault=error.text)
                if command is None or command[0].name != "reset":
                    await self.say(pending, ReplyText(UNREADABLE))
                else:
                    await self._reset_unreadable(key, pending)

    async def _twice(self, key: SessionKey, pending: Pending, running: Running, command: tuple[Command, str] | None) -> None:
        try:
            try:
                await self._under_lock(key, pending, running, command)
            except Conflict:
                # An append failed behind our back; the lines are not in the file. The session is read again and the input run anew. If the
                # model was asked by then, what it said is stored now: it is not asked, and paid for, a second time, unless there is more in
                # the session than it had been told.
                log.warning("session read again", key=str(key), input=pending.input.inbound.id)
                await self._under_lock(key, pending, running, command)
        finally:
            if running.stream is not None:
                # Cut by a shutdown or failed: what is placed stays, and is edited by whoever goes on with this input.
                running.stream.abandon()

    async def _set_aside(self, pending: Pending) -> None:
        """It is not worked on any more, and its author is told; its words stay in the journal as long as everybody's."""
        deaths = pending.deaths.crashes
        log.error("set aside: the daemon died each time", key=pending.input.key, input=pending.input.inbound.id, deaths=deaths)
        self._metrics.aside.add(pending.input.inbound.address.channel)
        self._inbox.aside(pending)
        await self.say(pending, ReplyText(SET_ASIDE.format(deaths)))

    def _try(self, pending: Pending, text: str) -> None:
        """Render what a suspect is to be shown, now, while it is alone. Else that happens in its lane, beside everybody."""
        if pending.deaths.suspect:
            self._outbox.render(pending.input.inbound.address, text)

    async def _reset_unreadable(self, key: SessionKey, pending: Pending) -> None:
        await self._sessions.begin(key, for_=pending.input.inbound.id)
        await self.say(pending, ReplyText("A new conversation. The old one could not be read; its file was left as it is."))

    async def _under_lock(self, key: SessionKey, pending: Pending, running: Running, command: tuple[Command, str] | None) -> None:
        input_id = pending.input.inbound.id
        effect: Effect | None = None
        if not pending.deaths.running and (pending.attempts or not self._sessions.at_hand(key)):
            await self._written(pending, self._inbox.begun(input_id))  # reading a session may be the end of us
        if pending.session:
            effect = await self._sessions.effect(key, pending.session, pending.last_seq, input_id)
            if effect.gone and not (effect.created or command):
                if not (pending.turn or pending.text or pending.input.inbound.attachments):
                    # A /forget that had blanked the journal, its own words included, when the process died.
                    await self.say(pending, ReplyText(FORGOTTEN))
                elif pending.placed:
                    self._outbox.put(delivery(pending, ""))  # which takes away what was placed for it
                else:
                    await asyncio.shield(self._inbox.finished(input_id, "forgotten"))
                return
        # A command that made or chose a session already moved the pointer: it goes on from there, everything else in its own session.
        if pending.session and not (effect and effect.gone) and not (command and effect and effect.moved):
            session = await self._sessions.open(key, pending.session)
        else:
            session = await self._sessions.current(key, for_=input_id)
        if effect and effect.answer is not None:
            self._inbox.answered(input_id)
            answer = session.answer_for(input_id) or effect.answer  # the session knows what was taken back of it
            if answer.interrupted and answer.content == STOPPED:
                self._outbox.put(delivery(pending, ""))  # stopped before a word, as below
            else:
                self._try(pending, answer.shown)
                self._deliver_answer(key, session, pending, running, answer, None)
            return
        # Lower than the record says: a line that was being written then went with the process, and its number is given anew. What this
        # input does from here on would not be found behind the old one.
        lower = session.name == pending.session and session.last < pending.last_seq
        if not pending.session or (effect and effect.gone) or lower:
            reach("started before")
            running.started = self._inbox.started(input_id, session.name, session.last)
        question = effect.question if effect else None
        await self._take_back(session, "" if command or question else input_id)
        if command is None:
            if question is None:
                question = await self._commit_question(session, pending, running)
            else:
                await self._started(pending, running)
            if question is not None:
                await self._ask(key, session, pending, running, question)
            return
        await self._started(pending, running)
        said = await command[0].handler(self._call(key, session, pending, command[1], effect))
        if isinstance(said, Ask):
            await self._ask(key, session, pending, running, said.question)
        else:
            await self.say(pending, said)

    async def _take_back(self, session: Session, input_id: str) -> None:
        """What does not stand in the history of the next question. One over which the daemon died, or that would end like it; only now,
        since reading the session for its sake may have been what did it. And the line of `input_id`, not yet asked: it was written, and
        then its acceptance failed; the words that came now may be others."""
        newest = session.messages[-1] if session.messages else None
        if newest is not None and newest.role == "user" and (newest.for_ == input_id or self._inbox.was_set_aside(newest.for_)):
            await self._undo(session, newest)

    async def _undo(self, session: Session, line: Message) -> None:
        await self._sessions.commit(session, Undo(seq=0, at="", for_=line.for_, to=line.seq - 1))
        await self._sessions.refresh(session)

    def _call(self, key: SessionKey, session: Session, pending: Pending, argument: str, effect: Effect | None) -> Call:
        inbound = pending.input.inbound
        admin = self._access.is_admin(inbound.address.channel, inbound.sender)
        return Call(
            self._house, inbound.id, key, inbound.sender, argument, inbound.direct, admin, session.name, session=session, effect=effect
        )

    async def _commit_question(self, session: Session, pending: Pending, running: Running) -> Message | None:
        """None where there is nothing to ask: a file without words of which nothing could be read. Then the person has been told.

        `started` goes to the disk in the same batch as the question, and ahead of it (architecture, rule 2), so one wait does for both.
        """
        inbound = pending.input.inbound
        media = await self._media(inbound, running)
        if not pending.text.strip() and not any(one.text for one in media) and (why := note(media)):
            await self._started(pending, running)
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
        committed = self._sessions.commit(session, line)
        try:
            await self._started(pending, running)
        except OSError:
            if not self._inbox.holds(pending):  # nobody said it: what comes next is not to be asked beside it
                with suppress(OSError, StoreError):  # then it is taken back when it comes again
                    await committed
                    await self._undo(session, session.messages[-1])
            raise
        seq = await committed
        reach("question after")
        question = session.question()
        assert question is not None, seq
        return question

    async def _started(self, pending: Pending, running: Running) -> None:
        """Until it is on record that the input was accepted and has begun. Raises OSError."""
        if running.started is not None:
            await self._written(pending, running.started)
            reach("started after")

    async def _written(self, pending: Pending, record: asyncio.Future[None]) -> None:
        """Until a record about the input is on record, and with it that it was accepted. Raises OSError."""
        await record
        if not self._inbox.holds(pending):
            raise OSError(errno.EIO, "not accepted")

    async def _media(self, inbound: Inbound, running: Running) -> tuple[Media, ...]:
        """What is attached, read. Of other keys nobody waits for it, and `/stop` ends it."""
        if running.stopped() or not inbound.attachments:
            return unread(inbound, TOLD_TO_STOP)
        running.fetching = asyncio.create_task(self._attachments.read(inbound, room(self._questions.model.history_tokens)))
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
        stream = running.stream
        if stream is None:
            placed, reply_to = dict(pending.placed), inbound.ticket or inbound.reply_to
            stream = running.stream = self._outbox.stream(
                inbound.address, inbound.id, direct=inbound.direct, reply_to=reply_to, placed=placed
            )
        outcome = running.outcome if session.messages[-1].seq == question.seq else None
        if outcome is None:
            if running.outcome is not None:
                stream.reset()
            outcome = running.outcome = await self._questions.ask(session, running, stream, names=not inbound.direct)
        if outcome is None:
            # The model is to know that this question is off the table; the person hears it from whoever stopped the turn.
            await self._commit_answer(session, pending, Outcome(text=STOPPED, interrupted=True))
            self._outbox.put(delivery(pending, STOPPED if inbound.ticket else ""), stream)
            return
        if outcome.failed:
            await self.say(pending, ReplyText(_joined(outcome.failed, note(question.media))), stream)
            return
        outcome = dataclasses.replace(outcome, note=_joined(outcome.note, note(question.media)))
        answer = await self._commit_answer(session, pending, outcome)
        self._deliver_answer(key, session, pending, running, answer, stream)

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
        seq = await self._sessions.commit(session, line)
        reach("answer after")
        answer = session.answer_for(pending.input.inbound.id)
        assert answer is not None, seq
        return answer

    # --------------------------------------------------------------------------------------------------------------------- what is said

    def _deliver_answer(
        self, key: SessionKey, session: Session, pending: Pending, running: Running, answer: Message, stream: Stream | None
    ) -> None:
        self._sessions.pin(key, session.name)
        reach("lane before")
        self._outbox.put(
            delivery(
                pending,
                answer.shown,
                answer=(session.name, answer.seq),
                sent_to=session.sent_to(answer.seq),
                since=seconds(answer.at) if pending.recovered and stream is None else 0.0,
            ),
            stream,
        )
        reach("lane after")
        if not answer.interrupted:
            running.sending = self._outbox.sending(pending.input.inbound.address, str(key), pending.input.inbound.id)
            if running.sending is not None and running.stopped():
                running.sending.stop()  # the word came when the answer was whole, or before a crash

    async def say(self, pending: Pending, reply: ReplyText, stream: Stream | None = None) -> None:
        """Journal a reply, then have it sent. From here on the input is never run again, only delivered."""
        reach("reply before")
        try:
            await self._inbox.reply(pending.input.inbound.id, reply)
        except OSError as error:
            # Said all the same: a repeat after a crash is better than silence now.
            tell(log, "reply not journalled", error, key=pending.input.key, input=pending.input.inbound.id)
        reach("reply after")
        if not self._inbox.holds(pending):
            return  # it was not accepted, and comes again
        self._outbox.put(delivery(pending, reply.text, buttons=reply.buttons), stream)


def _joined(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))
