"""An answer that grows: what the model said so far, and what of it is visible. The lane does the sending; nothing here waits.

Called by `gateway.runner` (grow, reset, show, abandon) and by `gateway.outbox.lane` (the rest).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from channels.base import Address, Piece
from gateway.outbox.delivery import Slots

TYPING_AFTER = 1.0
"""Seconds without shown text after which the chat is told that we are at work."""


class Move(NamedTuple):
    """The one call that brings the chat closer to the text: edit `number` to `piece`, or (None) place its message."""

    number: int
    piece: Piece | None


class Stream:
    """One growing answer in one lane. It holds a place in the chat, not the lane: everything else passes it.

    Every call of the outer half is O(1) and never awaits: text is joined and rendered only when an edit can be sent.
    """

    def __init__(
        self, address: Address, input_id: str, reply_to: str, slots: Slots, now: float, wake: Callable[[], None], *, first: int = 0
    ) -> None:
        """`first`: the number of its first piece."""
        self.address, self.input_id, self.reply_to, self.slots, self.first = address, input_id, reply_to, slots, first
        self.ended = False
        """Its final is put, or it is abandoned: no more intermediate edits, no more typing."""
        self.gone = ""
        """Why there is nobody to speak to, as the network says: the final is not tried any more."""
        self.mute = False
        """No more intermediate edits and placeholders; the final will show it all."""
        self.untyped = False
        """No more typing."""
        self.began = now
        self.typing_at = now + TYPING_AFTER
        self.next_at = 0.0
        """No intermediate step before this loop time."""
        self.fails = 0
        """Failures in a row."""
        self.unknown = 0
        """Placeholders of which nobody knows whether they are there."""
        self._wake = wake
        self._parts: list[str] = []
        self._dirty = False
        self._pieces: list[Piece] = []
        self._tried: dict[int, Piece] = {}
        self._moving = False

    # ------------------------------------------------------------------------------------------------------------ for the runner

    def grow(self, delta: str) -> None:
        """The answer got longer by this."""
        self._parts.append(delta)
        self._touch()

    def show(self, text: str) -> None:
        """The answer is this, as a whole, so far. The latest wins."""
        self._parts = [text]
        self._touch()

    def reset(self) -> None:
        """The answer begins anew. What is visible stays until new text is edited over it."""
        self.show("")

    def abandon(self) -> None:
        """No final will follow. What is placed stays as it is, on record, for whoever goes on with this input. Safe to call twice,
        and after the final was put."""
        if not self.ended:
            self.ended = True
            self._wake()

    # ------------------------------------------------------------------------------------------------------------- for the lane

    def _touch(self) -> None:
        # Only the first of many deltas wakes the lane: the rest is found when it looks.
        if not self._dirty and not self.ended:
            self._dirty = True
            self._wake()

    def due(self) -> float:
        """When its next step may be made, as far as it is concerned; infinity if there is none."""
        if self.slots.loose:
            return self.next_at
        wants = not self.ended and not self.mute and not self.gone and (self._dirty or self._moving)
        return self.next_at if wants else math.inf

    def move(self, render: Callable[[str], list[Piece]]) -> Move | None:
        """The next call, by the newest text; None if the chat shows it already."""
        if self._dirty:
            text = "".join(self._parts)
            self._parts = [text]
            self._dirty = False
            self._pieces = render(text)
        for number, piece in enumerate(self._pieces, self.first):
            if number not in self.slots.placed:
                self._moving = True
                return Move(number, None)
            if not self.slots.shows(number, piece) and self._tried.get(number) != piece:
                self._moving = True
                return Move(number, piece)
        self._moving = False
        return None

    def tried(self, number: int, piece: Piece) -> None:
        """The network refused this content: it is not tried again before it changes."""
        self._tried[number] = piece
