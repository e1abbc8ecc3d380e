"""Inputs from their acceptance to their end, over the journal: what is waiting, what began, what is said, what is out already.

It runs nothing and sends nothing. Called by `gateway.router` (seen, put, amend, begun), `gateway.work` (begun, started, answered, reply,
aside, finished), `gateway.trials` (alone), `gateway.ledger` (placed, sent, finished) and `gateway.app` (open, ended, close).

All marks are synchronous: the order of the calls is the order in the journal. A future is done when its record is with the kernel, or
raises OSError, and then the record is not there. Whoever waits for it may be cancelled, that changes nothing; but `put`'s and `finished`'s
may have others who wait, and are shielded.

What is in memory: the unfinished inputs, and 9 bytes for each of the last `horizon` seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from gateway.deaths import Deaths
from gateway.errors import StartError
from gateway.journal import ROTATE, Journal
from gateway.metrics import Damage
from gateway.records import (
    DAY,
    Accepted,
    Alone,
    Amended,
    Answered,
    Aside,
    Delivered,
    Ended,
    Finished,
    Foreign,
    Held,
    Input,
    Opened,
    Placed,
    Record,
    Refused,
    Replied,
    ReplyText,
    Started,
    blank,
    encode_record,
    mark,
)
from gateway.writer import Writer

__all__ = ["Entry", "Inbox", "Input", "Pending", "ReplyText"]


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `put` takes: an input, and what is to become of it if it is not to be run."""

    input: Input
    refused: str = ""
    """A reason: its words are not kept. Without a `reply` it is finished at once."""
    reply: ReplyText | None = None
    """The input is never run, only told this."""
    turn: bool = True
    """It has the model asked, if it is run: counted against the person's day."""


@dataclass(slots=True)
class Pending:
    """An unfinished input. The Inbox alone changes it; everybody may read it."""

    input: Input
    n: int
    """Its place in the order of everything that was ever accepted."""
    text: str
    """What it says now: as accepted, or as amended."""
    session: str = ""
    """From the newest `started`, like the next two; "" if it never began."""
    last_seq: int = 0
    attempts: int = 0
    reply: ReplyText | None = None
    turn: bool = False
    """It has the model asked, if it is run. Known even where its words were blanked."""
    placed: dict[int, str] = field(default_factory=dict)
    """Piece -> the message that it is, or will be, edited into."""
    sent_to: int = 0
    """Pieces of the reply that end at or before this offset of its text are out."""
    said_at: float = 0.0
    """When the reply was put on record, seconds since the epoch; 0.0: there is none."""
    recovered: bool = field(default=False, compare=False)
    """It was left by an earlier life."""
    deaths: Deaths = field(default_factory=Deaths, compare=False)


class Inbox:
    """The input states of one daemon, which holds the data folder's lock."""

    def __init__(
        self,
        folder: Path,
        writer: Writer,
        *,
        clock: Callable[[], float],
        horizon: float = 48 * 3600,
        rotate_bytes: int = ROTATE,
        damage: Damage | None = None,
    ) -> None:
        self._journal = Journal(folder, writer, clock=clock, horizon=horizon, rotate_bytes=rotate_bytes, damage=damage or Damage())
        self._folder, self._clock = folder, clock
        self._pending: dict[str, Pending] = {}
        self._putting: set[str] = set()
        self._finishing: dict[str, asyncio.Future[None]] = {}
        self._n = 0
        self._day = 0
        self._turns: dict[tuple[str, str], int] = {}
        self._aside: list[Aside] = []
        self._opened = False
        """This life has begun on record."""
        self._told = True
        """The life that is being lived, or read, was told to end."""
        self._held = False
        """In it, nothing is worked on but who is alone."""

    async def open(self) -> list[Pending]:
        """Read the journal, whatever a kill left of it; gives what is unfinished, in order. Raises StartError."""
        try:
            records = await self._journal.open()
        except OSError as error:
            raise StartError(f"{error.filename or self._folder}: the journal cannot be read: {error.strerror}") from error
        for record in records:
            self._apply(record)
        for pending in self._pending.values():
            pending.recovered = True
        self._life_over()
        self._aside = self._journal.aside
        self._n = self._journal.n
        self._day = int(self._clock() // DAY)
        self._turns = self._journal.turns(self._day)
        if self._pending:
            self._append([], _unheeded)
        return self.unfinished()

    def ended(self) -> None:
        """The daemon was told to end: from here on no input is to blame for that."""
        if self._opened and not self._told:
            self._told = True
            self._append([Ended(at=self._clock())], _unheeded)

    def held(self, *, over: bool = False) -> None:
        """From here on nothing is worked on but who is alone; `over`: all go on."""
        self._append([Held(at=self._clock(), over=over)], _unheeded)

    def _append(self, records: Sequence[Record], settled: Callable[[BaseException | None], None], *, behind: bool = False) -> None:
        """Journal records, behind the line that says that this life of the daemon has begun."""
        if self._opened:
            self._journal.append(records, settled, behind=behind)
            return
        self._journal.append([Opened(at=self._clock()), *records], partial(self._begun, settled))
        self._opened, self._told = True, False

    def _begun(self, settled: Callable[[BaseException | None], None], error: BaseException | None) -> None:
        self._opened = error is None
        settled(error)

    def _life_over(self) -> None:
        """A life of the daemon ends here in the journal. If nobody told it to, it died."""
        everybody = [pending.deaths for pending in self._pending.values()]
        if not self._told:
            explained = any(deaths.alone for deaths in everybody)
            for deaths in everybody:
                deaths.died(explained=explained, held=self._held)
        for deaths in everybody:
            deaths.over()
        self._held = False

    async def close(self) -> None:
        """Wait for what is being written. Nothing is called after it."""
        await self._journal.close()

    # ------------------------------------------------------------------------------------------------------------------- reading

    def seen(self, input_id: str) -> bool:
        """Whether this input was accepted or refused on record, or is being written right now."""
        return input_id in self._putting or input_id in self._pending or self._journal.seen(mark(input_id))

    def pending(self, input_id: str) -> Pending | None:
        """The input, if it is unfinished."""
        return self._pending.get(input_id)

    def holds(self, pending: Pending) -> bool:
        """It is unfinished, and on record or on its way there. False where its record failed: then the network brings it anew."""
        return self._pending.get(pending.input.inbound.id) is pending

    def unfinished(self) -> list[Pending]:
        """In the order in which they were accepted."""
        return list(self._pending.values())

    @property
    def open_inputs(self) -> int:
        """How many are unfinished."""
        return len(self._pending)

    @property
    def set_aside(self) -> Sequence[Aside]:
        """What the daemon died over too often, as far back as the journal goes."""
        return self._aside

    def was_set_aside(self, input_id: str) -> bool:
        """It is one of those."""
        return any(one.id == input_id for one in self._aside)

    @property
    def segments(self) -> int:
        """Files of the journal."""
        return len(self._journal)

    def turns_today(self, channel: str, sender_id: str) -> int:
        """Inputs of this person since 00:00 UTC that were taken to be run: neither refused, nor a command, nor answered at the door."""
        return self._today().get((channel, sender_id), 0)

    def _today(self) -> dict[tuple[str, str], int]:
        day = int(self._clock() // DAY)
        if day != self._day:
            self._day, self._turns = day, {}
        return self._turns

    # ----------------------------------------------------------------------------------------------------------------- accepting

    def put(self, entries: Sequence[Entry]) -> asyncio.Future[list[Pending]]:
        """Journal inputs, in one write. The future gives those that are unfinished now, in order: neither those that were seen before,
        nor those that were refused without a word. If it raises OSError, none of them was ever seen. Raises UnicodeEncodeError at once for
        text with lone surrogates, with nothing changed.

        An input that an earlier `put` is still writing is that one's: who confirms it to a network waits for that future as well.
        """
        future: asyncio.Future[list[Pending]] = asyncio.get_running_loop().create_future()
        records: dict[str, Accepted | Refused] = {}
        for entry in entries:
            input_id = entry.input.inbound.id
            if input_id not in records and not self.seen(input_id):
                records[input_id] = _record(entry, self._n + len(records) + 1)
        if not records:
            future.set_result([])
            return future
        self._append(list(records.values()), partial(self._put, list(records.values()), future))  # raises before anything is changed
        self._n += len(records)
        self._putting.update(records)
        for record in records.values():
            self._apply(record)
            self._count(record, 1)
        return future

    def _put(self, records: Sequence[Accepted | Refused], future: asyncio.Future[list[Pending]], error: BaseException | None) -> None:
        self._putting.difference_update(record.id for record in records)
        if error is not None:
            for record in records:
                self._pending.pop(record.id, None)
                self._count(record, -1)
            _fail(future, error)
        elif not future.done():
            future.set_result([self._pending[record.id] for record in records if record.id in self._pending])

    def _count(self, record: Accepted | Refused, by: int) -> None:
        if isinstance(record, Accepted) and record.turn and int(record.at // DAY) == int(self._clock() // DAY):
            person = (record.inbound.address.channel, record.inbound.sender.id)
            turns = self._today()
            turns[person] = turns.get(person, 0) + by

    # --------------------------------------------------------------------------------------------------------------------- marks

    def amend(self, input_id: str, text: str) -> asyncio.Future[None] | None:
        """The person edited the message. None where it does not wait any more: unknown, begun, answered."""
        pending = self._pending.get(input_id)
        if pending is None or pending.attempts or pending.reply is not None or input_id in self._finishing:
            return None
        record = Amended(id=input_id, at=self._clock(), key=pending.input.key, text=text)
        self._apply(record)
        return self._mark(record)

    def begun(self, input_id: str) -> asyncio.Future[None]:
        """An attempt begins, by something that may be the end of us (reading a session), in the session that the last one named, if any."""
        pending = self._pending.get(input_id)
        return self.started(input_id, pending.session if pending else "", pending.last_seq if pending else 0)

    def started(self, input_id: str, session: str, last_seq: int) -> asyncio.Future[None]:
        """An attempt begins, or has begun in this life, in a session that stands at `last_seq`."""
        pending = self._pending.get(input_id)
        n = 1 if pending is None else pending.attempts if pending.deaths.running else pending.attempts + 1
        record = Started(id=input_id, at=self._clock(), session=session, last_seq=last_seq, n=n)
        self._apply(record)
        return self._mark(record)

    def answered(self, input_id: str) -> None:
        """At recovery: there is an answer already."""
        self._mark(Answered(id=input_id, at=self._clock())).add_done_callback(_seen)

    def alone(self, input_id: str, *, over: bool = False) -> asyncio.Future[None]:
        """Nothing else is worked on from here on; with `over`, others are."""
        return self._mark(Alone(id=input_id, at=self._clock(), over=over))

    def aside(self, pending: Pending) -> None:
        """It is not worked on any more. A reply that says so follows."""
        record = Aside(id=pending.input.inbound.id, at=self._clock(), key=pending.input.key, deaths=pending.deaths.crashes)
        self._aside.append(record)
        self._mark(record).add_done_callback(_seen)

    def placed(self, input_id: str, piece: int, message_id: str) -> asyncio.Future[None]:
        """A message is in the chat into which this piece will be edited."""
        return self._mark(Placed(id=input_id, at=self._clock(), piece=piece, message=message_id))

    def reply(self, input_id: str, reply: ReplyText) -> asyncio.Future[None]:
        """This will be said; from here on the input is only delivered."""
        pending = self._pending.get(input_id)
        key = pending.input.key if pending else ""
        return self._mark(Replied(id=input_id, at=self._clock(), key=key, text=reply.text, buttons=reply.buttons))

    def sent(self, input_id: str, span: tuple[int, int], ids: Sequence[str], unknown: bool = False) -> asyncio.Future[None]:
        """A piece of the reply is out."""
        return self._mark(Delivered(id=input_id, at=self._clock(), span=span, ids=tuple(ids), unknown=unknown))

    def finished(self, input_id: str, reason: str = "") -> asyncio.Future[None]:
        """Nothing is left to do. The Pending is dropped when the record is written, not before the sessions' lines that were committed
        until now. May be called again."""
        if (under_way := self._finishing.get(input_id)) is not None:
            return under_way
        future = self._mark(Finished(id=input_id, at=self._clock(), reason=reason), behind=True)
        if not future.done():
            self._finishing[input_id] = future
            future.add_done_callback(lambda _: self._finishing.pop(input_id, None))
        return future

    def _mark(self, record: Record, *, behind: bool = False) -> asyncio.Future[None]:
        """Journal a record about an unfinished input. One that is finished or unknown needs none any more."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if record.id in self._pending:
            self._append([record], partial(self._marked, record, future), behind=behind)
        else:
            future.set_result(None)
        return future

    def _marked(self, record: Record, future: asyncio.Future[None], error: BaseException | None) -> None:
        if error is not None:
            _fail(future, error)
            return
        if not isinstance(record, Amended | Started):  # these count from the call on, so that neither slips past the other
            self._apply(record)
        if not future.done():
            future.set_result(None)

    def _apply(self, record: Record) -> None:
        """The one fold, at recovery and alive."""
        if isinstance(record, Accepted | Refused):
            if isinstance(record, Accepted) or record.reply is not None:
                item = Input(record.inbound, record.key, record.at)
                deaths = Deaths(answered=record.reply is not None)
                said_at = record.at if record.reply is not None else 0.0
                turn = isinstance(record, Accepted) and record.turn
                self._pending[record.id] = Pending(
                    item, record.n, record.inbound.text, reply=record.reply, turn=turn, said_at=said_at, deaths=deaths
                )
            return
        if isinstance(record, Opened):
            self._life_over()
            self._told = False
            return
        if isinstance(record, Ended):
            self._told = True
            return
        if isinstance(record, Held):
            self._held = not record.over
            return
        pending = self._pending.get(record.id)
        if pending is None:
            return
        if isinstance(record, Amended):
            if not pending.attempts:
                pending.text = record.text
        elif isinstance(record, Started):
            pending.session, pending.last_seq, pending.attempts = record.session, record.last_seq, record.n
            pending.deaths.running = True
        elif isinstance(record, Answered):
            pending.deaths.running, pending.deaths.answered = False, True
        elif isinstance(record, Alone):
            pending.deaths.alone = not record.over
        elif isinstance(record, Placed):
            pending.placed[record.piece] = record.message
        elif isinstance(record, Replied):
            pending.reply, pending.said_at, pending.sent_to = ReplyText(record.text, record.buttons), record.at, 0
            pending.deaths.replied()
        elif isinstance(record, Delivered):
            pending.sent_to = max(pending.sent_to, record.span[1])
        elif isinstance(record, Finished):
            del self._pending[record.id]

    # ---------------------------------------------------------------------------------------------------------------- forgetting

    async def forget(self, key: str) -> None:
        """Blank what the journal holds of this key's words and names, torn fragments of anybody's included. Raises OSError.

        What still waits to be run came after the wish to forget, and keeps its words. Ids, times and the key stay: they keep a repeat out.
        """
        waiting = {pending.input.inbound.id for pending in self._pending.values() if not pending.attempts and pending.reply is None}
        text = msgspec.json.encode(key)
        ids: set[str] = set()

        def change(line: bytes, record: Record | None) -> bytes:
            if record is None:  # unreadable: nobody can say whose words are in it but by the names that are
                return b"" if text in line or any(each.encode() in line for each in ids) else line
            owner = getattr(record, "key", "")
            if owner == key and record.id:
                ids.add(record.id)
            if record.id in waiting or (owner != key and record.id not in ids):
                return line
            if isinstance(record, Foreign):
                return encode_record(Foreign(type=record.type, id=record.id, at=record.at, key=record.key))
            blanked = blank(record)
            return line if blanked == record else encode_record(blanked)

        await self._journal.rewrite(change)


def _unheeded(_: BaseException | None) -> None:
    """What cannot be written here is no harm: a death more or less is counted."""


def _seen(written: asyncio.Future[None]) -> None:
    """As above, where there is a future of it."""
    if not written.cancelled():
        written.exception()


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """Whoever waited may be gone."""
    if isinstance(error, asyncio.CancelledError):
        future.cancel()
    elif not future.done():
        future.set_exception(error)
        future.exception()


def _record(entry: Entry, n: int) -> Accepted | Refused:
    inbound, key, at = entry.input.inbound, entry.input.key, entry.input.at
    if entry.refused:
        bare = msgspec.structs.replace(inbound, text="", quote="", attachments=())
        return Refused(n=n, at=at, key=key, inbound=bare, reason=entry.refused, reply=entry.reply)
    return Accepted(n=n, at=at, key=key, inbound=inbound, turn=entry.turn and entry.reply is None, reply=entry.reply)
