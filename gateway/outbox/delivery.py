"""The values of the outbox: what is to be delivered, where lanes record what they did, and the messages that one text takes up in a chat.

No I/O. Called by everything in `gateway.outbox`, and by whoever puts something into it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from channels.base import BEGUN, FOLLOWS, TICKET, Address, Button, Limits, Piece
from channels.markup import Rich
from channels.split import split

PLACEHOLDER = Piece(BEGUN)
"""What a streamed answer's message holds until words go into it by edit."""
ASIDE = 1000
"""The number of a message that is no piece of what will be said, and goes when that is said: no text has as many pieces."""
TAKEN_BACK = Piece("(stopped)")
"""What is said of an answer that was taken back before a word of it was out, where something must be said."""
MARK = Piece("·")
"""What a placed message that is not needed any more is edited to, where the network will not delete it."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One text on its way to one Address. It is on record before it gets here; where it goes is fixed for good."""

    input_id: str
    key: str
    address: Address
    text: str
    """Markdown. A reply with nothing visible in it: nothing is sent, and what was placed is taken away."""
    answer: tuple[str, int] | None = None
    """Session name and seq of a committed answer; None: a reply that the journal holds."""
    direct: bool = True
    """A chat of one person with the bot; groups are paced differently."""
    reply_to: str = ""
    """The question's `reply_to`, or its `ticket` if it came with one. Secret then."""
    buttons: tuple[Button, ...] = ()
    """They go under the last piece."""
    placed: Mapping[int, str] = field(default_factory=dict)
    """Piece number to message id, from the journal. A live stream's own are used instead."""
    sent_to: int = 0
    """Pieces that end at or before this offset of `text` are out already."""
    since: float = 0.0
    """When an earlier life of the process put `text` on record, seconds since the epoch: it may have sent it since. 0.0: this one did."""


@dataclass(slots=True, eq=False)
class Brake:
    """With which the rest of an answer is taken back."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: nothing new of it is begun."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """What became of it is on record, or will not be in this life of the daemon."""
    took: bool = False
    """Something was left to be taken back."""


class Ledger(Protocol):
    """Where a lane records. Each call is durable when it returns and may be repeated; OSError means that nothing was recorded."""

    def placed(self, input_id: str, piece: int, message_id: str) -> Awaitable[None]:
        """An empty message stands ready for a piece. Recorded before any content goes into it; a later record replaces an earlier one."""

    def sent(self, delivery: Delivery, span: tuple[int, int], ids: Sequence[str], unknown: bool, last: bool) -> Awaitable[None]:
        """A piece is with the network. `unknown`: nobody can say, and it is not repeated. No ids: unknown, or refused for good. `last`:
        it is `finished` with that, too."""

    def stopped(self, delivery: Delivery, start: int) -> Awaitable[None]:
        """What stands behind offset `start` of an answer was taken back: it is not sent any more."""

    def finished(self, delivery: Delivery, reason: str) -> Awaitable[None]:
        """Nothing more will be done: "", "empty" (nothing visible in it), "gone" (nobody to speak to), "stopped" (somebody took the rest
        back), "undeliverable" (our own fault)."""


@dataclass(slots=True)
class Slots:
    """The messages that one text takes up in a chat, by piece number."""

    placed: dict[int, str] = field(default_factory=dict)
    """On record: content may go in."""
    loose: dict[int, str] = field(default_factory=dict)
    """Placed, and not on record yet: no content goes in until it is."""
    shown: dict[int, Piece] = field(default_factory=dict)
    """What a message certainly shows. Missing: nobody knows, an edit is due."""
    lost: dict[int, int] = field(default_factory=dict)
    """How often a piece's message turned out to have vanished."""

    def taken(self) -> list[int]:
        """All piece numbers that have a message."""
        return sorted({*self.placed, *self.loose})

    def lose(self, number: int) -> None:
        """The message of this piece is not there any more."""
        self.placed.pop(number, None)
        self.shown.pop(number, None)
        self.lost[number] = self.lost.get(number, 0) + 1

    def shows(self, number: int, piece: Piece) -> bool:
        """Whether an edit to `piece` would change nothing visible."""
        shown = self.shown.get(number)
        return shown is not None and (shown.text, shown.spans) == (piece.text, piece.spans)


def reference(reply_to: str, number: int) -> str:
    """What the message of piece `number` refers to: the first one to the question; where the answer goes by a ticket, each to that."""
    if not number:
        return reply_to
    return FOLLOWS + reply_to if reply_to.startswith(TICKET) else ""


def nonce(input_id: str, number: int, what: str = "") -> str:
    """25 characters that are the same for every repeat of one send, after a restart too."""
    digest = hashlib.blake2b(f"{number}:{what}:{input_id}".encode("utf-8", "replace"), digest_size=16).digest()
    return base64.b32encode(digest).decode()[:25]


def plain(piece: Piece, source: str, limits: Limits) -> Piece:
    """The piece as its own slice of the Markdown source, unformatted; its visible text where the slice is blank or too long."""
    words = source[piece.start : piece.end].strip("\n")
    units = max(len(words), len(words.encode("utf-16-le", "surrogatepass")) // 2)
    return Piece(words if words.strip() and units <= limits.units else piece.text, (), piece.start, piece.end)


def as_written(source: str, limits: Limits) -> list[Piece]:
    """Pieces of the Markdown source itself, for an answer whose markup shows nothing ("---", "&nbsp;"): better that than silence."""
    return split(Rich(source, size=len(source)), limits)
