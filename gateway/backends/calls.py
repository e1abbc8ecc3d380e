"""Puts tool calls together from the pieces in which servers stream them: with and without an index, with and without an id. Pure.

Called by `gateway.backends.chunks`.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field

import msgspec

from gateway.backends import faults
from gateway.errors import BackendError
from gateway.message import ToolCall, clean

MAX_CALLS = 128
MAX_ARGUMENTS = 1 << 20
"""Characters of all arguments of one answer together."""


class Function(msgspec.Struct):
    name: object = None
    arguments: object = None


class CallDelta(msgspec.Struct):
    """One piece as it comes; fields that servers fill as they like are `object`."""

    index: object = None
    id: object = None
    function: Function | None = None


@dataclass(slots=True)
class _Call:
    id: str = ""
    index: int | None = None
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class Calls:
    """The calls of one answer as they grow."""

    __slots__ = ("_calls", "_size")

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, delta: CallDelta) -> None:
        """One piece. Raises BackendError where there are too many."""
        function = delta.function or Function()
        name = function.name if isinstance(function.name, str) else ""
        given = clean(delta.id) if isinstance(delta.id, str) else ""
        index = delta.index if isinstance(delta.index, int) and not isinstance(delta.index, bool) else None
        call = self._find(given, index, name)
        if call is None:
            if len(self._calls) >= MAX_CALLS:
                raise BackendError(faults.NO_ANSWER, retryable=False, detail="too many tool calls")
            call = _Call(index=index)
            self._calls.append(call)
        call.id = call.id or given
        call.name = call.name or name
        arguments = function.arguments
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments)
        if isinstance(arguments, str):
            self._size += len(arguments)
            if self._size > MAX_ARGUMENTS:
                raise BackendError(faults.NO_ANSWER, retryable=False, detail="tool arguments without end")
            call.arguments.append(arguments)

    def _find(self, given: str, index: int | None, name: str) -> _Call | None:
        """Which call a piece belongs to: by its id, else by its index, else to the newest. A name without either begins a new one."""
        if given and (call := next((known for known in self._calls if known.id == given), None)):
            return call
        if index is not None:
            call = next((known for known in reversed(self._calls) if known.index == index), None)
            # Two ids at one index are two calls, by a server that numbers them all 0.
            return None if call is not None and given and call.id else call
        return self._calls[-1] if self._calls and not given and not name else None

    def whole(self) -> tuple[ToolCall, ...]:
        """All calls, none of them cut. A missing id is made up. Raises BackendError where one cannot be read."""
        return tuple(_whole(call) for call in self._calls)


def _whole(call: _Call) -> ToolCall:
    try:
        arguments = msgspec.json.decode("".join(call.arguments).strip() or "{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BackendError(
            "The model asked for a tool in a way that cannot be read; nothing was run.",
            retryable=True,
            detail="tool arguments are not JSON",
        ) from None
    if not call.name:
        raise BackendError(faults.NO_ANSWER, retryable=True, detail="a tool call without a name")
    return ToolCall(call.id or f"call_{secrets.token_hex(6)}", clean(call.name), arguments)
