"""Who may be worked on now: as many turns as there are slots, first come first served, and nobody else while a suspect is tried alone.

Whoever waits here has nothing open: no lock, no session, no stream; so that a start with ten thousand waiting chats opens as many sessions
as there are slots. What needs no model (a command, a delivery) needs no place, and passes the turns that wait for one. Called by
`gateway.runner`, and by `gateway.trials`, which shuts and opens it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable


class Pass:
    """A way in. `leave` must be called once, when the work has ended."""

    __slots__ = ("_gate", "_place")

    def __init__(self, gate: Gate, place: int) -> None:
        self._gate, self._place = gate, place

    def leave(self) -> None:
        self._gate._leave(self._place)  # the two are one


class _Waiter:
    __slots__ = ("future", "input_id", "key", "turn")

    def __init__(self, key: str, input_id: str, turn: bool) -> None:
        self.key, self.input_id, self.turn = key, input_id, turn
        self.future: asyncio.Future[Pass | None] = asyncio.get_running_loop().create_future()


class Gate:
    """See the module. `places`: turns at a time."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._turns: deque[_Waiter] = deque()
        self._others: deque[_Waiter] = deque()
        """Those that need no place, and wait for the gate to open."""
        self._held: dict[str, _Waiter | None] = {}
        """Suspects that have not had their turn yet, whether they stand here already or not."""
        self._shut = False
        self._only = ""
        """The one key that may pass a shut gate."""
        self._closed = False

    async def enter(self, key: str, input_id: str, *, turn: bool) -> Pass | None:
        """Wait until this input may be worked on; None where nothing is begun any more. `turn`: it will ask the model."""
        if self._closed:
            return None
        waiter = _Waiter(key, input_id, turn)
        if input_id in self._held:
            self._held[input_id] = waiter
        elif self._shut and key != self._only:
            (self._turns if turn else self._others).append(waiter)
        elif turn and not self._shut and (self._turns or self._free <= 0):
            self._turns.append(waiter)
        else:
            return self._pass(turn)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if waiter.future.done() and not waiter.future.cancelled() and (granted := waiter.future.result()) is not None:
                granted.leave()
            raise

    def hurry(self, input_id: str) -> None:
        """This input, if it waits for a place, needs none: it was stopped, and only says so."""
        for waiter in self._turns if not self._shut else ():
            if waiter.input_id == input_id:
                self._turns.remove(waiter)
                self._grant(waiter, turn=False)
                return

    def close(self) -> None:
        """Nothing is begun any more: whoever waits is told so."""
        self._closed = True
        for waiter in (*self._turns, *self._others, *self._held.values()):
            if waiter is not None and not waiter.future.done():
                waiter.future.set_result(None)
        self._turns.clear()
        self._others.clear()

    # -------------------------------------------------------------------------------------------------------------- for the trials

    def shut(self, suspects: Iterable[str]) -> None:
        """Let nobody in until `open`; and each of these not before `admit`."""
        self._shut = True
        self._held.update(dict.fromkeys(suspects))

    @property
    def is_shut(self) -> bool:
        return self._shut

    def admit(self, key: str, input_id: str) -> None:
        """Let this suspect in, with whatever stands ahead of it in its key's queue."""
        held = self._held.pop(input_id, None)
        self._only = key
        if held is not None:
            self._grant(held)
        for line in (self._turns, self._others) if self._shut else ():
            ahead = [waiter for waiter in line if waiter.key == key]
            for waiter in ahead:
                line.remove(waiter)
                self._grant(waiter)

    def dismiss(self) -> None:
        """The suspect that was admitted has had its turn: what stands behind it waits like everybody."""
        self._only = ""

    def open(self) -> None:
        """Let everybody in who is no suspect."""
        self._shut, self._only = False, ""
        self._look()

    # --------------------------------------------------------------------------------------------------------------------- places

    def _pass(self, turn: bool) -> Pass:
        self._free -= turn
        return Pass(self, int(turn))

    def _grant(self, waiter: _Waiter, *, turn: bool | None = None) -> None:
        if not waiter.future.done():
            waiter.future.set_result(self._pass(waiter.turn if turn is None else turn))

    def _leave(self, place: int) -> None:
        self._free += place
        self._look()

    def _look(self) -> None:
        while self._others and not self._shut:
            self._grant(self._others.popleft())
        while self._turns and self._free > 0 and not self._shut:
            self._grant(self._turns.popleft())
