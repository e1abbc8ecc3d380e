"""The interface of a backend: a request in, a stream of parts out. Knows nothing of sessions and chats. Called by `gateway.turn`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from gateway import options
from gateway.message import Request, ToolCall, Usage


class Text(msgspec.Struct, frozen=True):
    """The answer grew by this. Never a lone surrogate, never hidden reasoning."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """The model thought; not shown. Tells the reader of the stream that the model is alive."""

    text: str


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The last part of every stream that did not raise."""

    reason: Literal["stop", "length", "tool_calls", "content_filter"]
    tool_calls: tuple[ToolCall, ...] = ()
    model: str = ""
    usage: Usage | None = None


Part: TypeAlias = Text | Reasoning | Done


class Sight(msgspec.Struct, frozen=True):
    """What a look at a backend finds: `await survey(settings)`, a function beside `make`, which costs no tokens, loads no model and takes a
    few seconds at most. Raises BackendError, and StartError where it cannot be used at all."""

    models: tuple[str, ...] = ()
    """Their names, as the server lists them; () where it has no list."""
    ahead: float | None = None
    """Seconds that the server's clock is ahead of ours; None where it does not say."""
    none: bool = False
    """It has a list, and there is no model in it."""


class Backend(Protocol):
    name: str

    def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        """Ask. Exactly one `Done` ends it; anything else (cut, error in a 200, silence, timeouts) raises BackendError. Closing the
        generator closes the connection. No retries in here: `gateway.turn` decides, since only it knows what was shown."""

    async def check(self) -> None:
        """Is it there and would it answer? Raises BackendError. Costs no tokens."""

    async def close(self) -> None:
        """Let go of connections and threads."""


@runtime_checkable
class Adjustable(Protocol):
    """What a backend may offer besides: its settings can change while it runs."""

    def adjust(self, settings: options.Backend) -> None:
        """Ask as these say from here on; what is under way goes on as it began. Raises StartError with nothing changed."""
