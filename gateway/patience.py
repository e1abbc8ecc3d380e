"""Says after two seconds that a command waits for the answer ahead of it. Called by `gateway.runner`.

The word is no answer and nothing that must arrive, so it is on no record of its own: it is shown as a growing answer is, in a message that
is put down in the journal while it is empty, and that goes when the command has said what it has to say (not in its place: what it waits
for may be sent behind the word). So a kill doubles nothing. Where a channel shows no growing answers there is the typing sign instead, and
who came with a ticket sees that the bot thinks.
"""

from __future__ import annotations

import asyncio

from gateway.commands.table import find
from gateway.inbox import Pending
from gateway.outbox import Outbox, Stream

COMMANDS = frozenset({"undo", "fork", "switch"})
SECONDS = 2.0
WAITS = "I will do that as soon as the answer before it is done."


class Patience:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._shown: dict[str, Stream] = {}

    def begin(self, pending: Pending) -> None:
        """It waits from now on."""
        command = find(pending.text)
        if command is not None and command[0].name in COMMANDS and pending.reply is None and not pending.input.inbound.ticket:
            later = asyncio.get_running_loop().call_later
            self._timers[pending.input.inbound.id] = later(SECONDS, self._show, pending)

    def begun(self, input_id: str) -> None:
        """It waits no more."""
        if timer := self._timers.pop(input_id, None):
            timer.cancel()

    def over(self, input_id: str) -> None:
        """It is done, whatever it said."""
        if stream := self._shown.pop(input_id, None):
            stream.abandon()

    def close(self) -> None:
        """Nothing is said any more."""
        for input_id in list(self._timers):
            self.begun(input_id)

    def _show(self, pending: Pending) -> None:
        inbound = pending.input.inbound
        self._timers.pop(inbound.id, None)
        stream = self._outbox.stream(inbound.address, inbound.id, direct=inbound.direct, placed=dict(pending.placed), aside=True)
        stream.show(WAITS)
        self._shown[inbound.id] = stream
