"""Brings one whole text into a chat: every piece once, in order, recorded one by one. Called by a lane for the delivery at its head.

What makes a repeat safe (architecture, rule 13). A streamed answer goes into messages that were placed empty and put on record: an edit
can be repeated and recovered, so the worst that can be doubled is an empty placeholder. A plain send of unknown outcome is recorded as
such and not repeated. A piece that the network refuses goes out as its original plain text, that piece only; if that is refused too, the
others go on.

What is left of an answer can be taken back on its way: a piece that has a message with words in it is brought to its end, those behind it
are not sent any more, also after a restart.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from channels.base import TICKET, Button, Gone, Lost, Piece, Refused, Unknown
from gateway.outbox.delivery import ASIDE, MARK, PLACEHOLDER, TAKEN_BACK, Brake, Delivery, Slots, as_written, nonce, plain, reference
from gateway.outbox.wire import Stopped, Wire

log = structlog.get_logger(__name__)

EMPTY_AT_MOST = 4
"""After so many placeholders of which nobody knows whether they are there, the words go out in one plain send: a network that takes every
message and answers none would otherwise fill the chat with empty ones."""
PATIENCE = 10
"""After so many edits of unknown outcome (some four minutes) the next simpler form is tried: there are contents over which a server breaks
each time, and what waits behind must not wait for ever. The last form of the words is repeated without end."""
NOT_TAKEN = "(A part of this could not be shown here: the network does not take it.)"
"""Said in the place of a piece that is refused in every form."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One piece with what goes with it."""

    number: int
    piece: Piece
    reply_to: str
    buttons: tuple[Button, ...]
    stop: asyncio.Event | None
    """Not to be begun once this is set."""


class Final:
    """One delivery under way."""

    def __init__(self, wire: Wire, delivery: Delivery, slots: Slots, brake: Brake) -> None:
        self._wire, self._delivery, self._slots, self._brake = wire, delivery, slots, brake
        self._channel, self._address = wire.channel, delivery.address
        # A reply goes out in one call, unless it takes the place of an answer that is already visible.
        self._placing = wire.channel.streams and (delivery.answer is not None or any(number < ASIDE for number in slots.taken()))
        self._pieces = 0
        self.finished = False
        """That nothing is left to do is on record already."""
        self._since = delivery.since
        """0.0: it is certain that what comes next was not sent by an earlier life of the process."""
        self._log = log.bind(channel=delivery.address.channel, input=delivery.input_id)

    async def run(self) -> str:
        """Returns the reason for `Ledger.finished`. Raises Gone, and whatever is unexpected. Once the brake is on, nothing new is begun."""
        delivery = self._delivery
        pieces = self._channel.render(delivery.text)
        if not pieces and delivery.answer is not None:
            pieces = as_written(delivery.text, self._channel.limits)
        self._pieces = len(pieces)
        for number, piece in enumerate(pieces):
            if 0 < piece.end <= delivery.sent_to:
                continue
            if any(piece.text == before.text for before in pieces[:number]):
                self._since = 0.0  # the earlier one would be taken for it
            buttons = delivery.buttons if number == len(pieces) - 1 else ()
            stop = None if self._shown(number) else self._brake.stop
            try:
                await self._deliver(_Part(number, piece, reference(delivery.reply_to, number), buttons, stop))
            except Stopped:
                await self._wire.record(partial(self._wire.ledger.stopped, delivery, piece.start))
                self._brake.took = True
                self._brake.over.set()
                await self._clear(number)
                if not number and delivery.reply_to.startswith(TICKET):
                    await self._stop_thinking()
                return "stopped"
            self._since = 0.0
        await self._clear(len(pieces))
        return "" if pieces else "empty"

    async def _stop_thinking(self) -> None:
        """Who came with a ticket sees that the bot thinks until something is said by it. It takes a repeat."""
        name = nonce(self._delivery.input_id, 0)
        send = partial(self._channel.send, self._address, TAKEN_BACK, reply_to=self._delivery.reply_to, nonce=name)
        try:
            await self._wire.call(send, unknown=PATIENCE)
        except (Refused, Unknown) as error:
            self._log.info("the bot still seems to think", kind=type(error).__name__)

    def _shown(self, number: int) -> bool:
        """There is a message for this piece, and words may be in it. (What an earlier life placed, nobody knows.)"""
        return number in self._slots.taken() and self._slots.shown.get(number) != PLACEHOLDER

    async def _clear(self, first: int) -> None:
        """Take away the messages that are not needed."""
        for number in self._slots.taken():
            if number >= first and not await self._take_away(number):
                break

    async def _deliver(self, part: _Part) -> None:
        slots, number = self._slots, part.number
        while number in slots.taken() or (self._placing and slots.lost.get(number, 0) < 2):
            message_id = await self._place(part)
            if not message_id:
                break
            try:
                await self._edit(part, message_id)
            except Lost:
                slots.lose(number)
                continue
            await self._sent(part, (message_id,))
            return
        await self._send(part)

    async def _place(self, part: _Part) -> str:
        """The message for a piece, on record; "" where the network takes no placeholder."""
        wire, slots, number = self._wire, self._slots, part.number
        input_id = self._delivery.input_id
        if number not in slots.taken():
            try:
                slots.loose[number] = await wire.call(
                    partial(wire.place, input_id, number, part.reply_to, slots), unknown=EMPTY_AT_MOST, stop=part.stop
                )
            except Gone:
                raise
            except (Refused, Unknown) as error:
                self._refused(part, error)
                return ""
        if number in slots.loose:
            await wire.record(partial(wire.ledger.placed, input_id, number, slots.loose[number]))
            slots.placed[number] = slots.loose.pop(number)
        return slots.placed[number]

    def _variants(self, part: _Part) -> list[tuple[Piece, tuple[Button, ...], str]]:
        """What is tried one after the other where content is refused: as rendered, as plain text, as plain text and nothing else. At last
        the person is told."""
        words = plain(part.piece, self._delivery.text, self._channel.limits)
        variants = [(part.piece, part.buttons, part.reply_to), (words, part.buttons, part.reply_to)]
        if part.buttons or part.reply_to:
            variants.append((words, (), ""))
        return [*variants, (Piece(NOT_TAKEN, start=part.piece.start, end=part.piece.end), (), "")]

    async def _edit(self, part: _Part, message_id: str) -> None:
        if self._slots.shows(part.number, part.piece) and not part.buttons:
            return
        variants = self._variants(part)
        for number, (piece, buttons, _) in enumerate(variants):
            patience = PATIENCE if number < len(variants) - 2 else math.inf
            try:
                edit = partial(self._channel.edit, self._address, message_id, piece, buttons=buttons)
                await self._wire.call(edit, unknown=patience, stop=part.stop)
            except (Gone, Lost):
                raise
            except (Refused, Unknown) as error:
                self._refused(part, error)
            else:
                self._slots.shown[part.number] = piece
                return

    async def _send(self, part: _Part) -> None:
        """A plain send: repeated only where it certainly had no effect. The first one may have been made before the process died."""
        if self._since:
            asked = self._delivery.input_id
            recall = partial(self._channel.recall, self._address, part.piece, since=self._since, asked=asked, reply_to=part.reply_to)
            if message_id := await self._wire.call(recall, unknown=0, stop=part.stop):
                await self._sent(part, (message_id,))
                return
        for piece, buttons, reply_to in self._variants(part):
            try:
                message_id = await self._wire.call(partial(self._once, part, piece, buttons, reply_to), unknown=0, stop=part.stop)
            except Gone:
                raise
            except Unknown:
                self._log.warning("outcome unknown, not repeated", piece=part.number)
                await self._sent(part, (), unknown=True)
                return
            except Refused as error:
                self._refused(part, error)
            else:
                await self._sent(part, (message_id,))
                return
        await self._sent(part, ())

    async def _once(self, part: _Part, piece: Piece, buttons: tuple[Button, ...], reply_to: str) -> str:
        name = nonce(self._delivery.input_id, part.number)
        try:
            return await self._channel.send(self._address, piece, reply_to=reply_to, buttons=buttons, nonce=name)
        except asyncio.CancelledError:
            # Cut on its way by the shutdown: nobody can say whether it had an effect, so the next start must not repeat it.
            span = (part.piece.start, part.piece.end)
            await self._wire.record_last(partial(self._wire.ledger.sent, self._delivery, span, (), True, False))
            raise

    async def _sent(self, part: _Part, ids: Sequence[str], *, unknown: bool = False) -> None:
        span = (part.piece.start, part.piece.end)
        last = part.number == self._pieces - 1 and not any(number >= self._pieces for number in self._slots.taken())
        await self._wire.record(partial(self._wire.ledger.sent, self._delivery, span, ids, unknown, last))
        self.finished = last

    def _refused(self, part: _Part, error: Refused | Unknown) -> None:
        self._log.warning("piece not taken", piece=part.number, kind=type(error).__name__)

    async def _take_away(self, number: int) -> bool:
        """Remove a placed message that the text does not need; False where the chat is gone, so that nothing more is tried."""
        message_id = self._slots.placed.get(number) or self._slots.loose[number]
        try:
            try:
                await self._wire.call(partial(self._channel.delete, self._address, message_id), unknown=PATIENCE)
            except Gone:
                raise
            except (Refused, Unknown):
                await self._wire.call(partial(self._channel.edit, self._address, message_id, MARK), unknown=PATIENCE)
        except Gone:
            return False
        except (Refused, Unknown) as error:
            self._log.info("a spare message stays", piece=number, kind=type(error).__name__)
        self._slots.placed.pop(number, None)
        self._slots.loose.pop(number, None)
        return True
