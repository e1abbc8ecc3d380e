"""The interface between sessions and whatever keeps them. A cluster engine replaces this with the same eight calls.

No file path crosses it: a session is named by its key and its name. Lines are bytes with their newline, as `gateway.message` encodes them.
Called by `gateway.sessions` alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from gateway.message import Chat, Header, SessionKey

Landed: TypeAlias = Callable[[BaseException | None], None]


class Tail(NamedTuple):
    """The end of a session: its header, lines oldest first (the header not among them), the last seq (0: none), lines that were skipped."""

    header: Header
    lines: list[bytes]
    last: int
    whole: bool
    """`lines` is everything that the session has."""
    bad: int


class Listed(NamedTuple):
    """One session in a list; reads no more of it than header and last line."""

    header: Header
    last: int
    size: int
    modified: float


class Overview(NamedTuple):
    """What one key has."""

    key: SessionKey
    current: str
    """As the pointer says; "" where it says nothing."""
    sessions: list[Listed]
    """Oldest first."""
    unreadable: int
    """Sessions that are there and left out."""


class Page(NamedTuple):
    """A stretch of a session as it is kept, the header first, bad lines included."""

    data: bytes
    """Whole lines."""
    end: int
    """Where the next page begins."""
    size: int
    """What there is now, all pages together."""


class SessionLog(Protocol):
    async def open(self) -> None:
        """Make ready; repairs what a crash left. Raises StartError."""

    async def close(self) -> None:
        """Finish what is under way. Nothing is called after it."""

    async def create(self, key: SessionKey, name: str, header: Header, lines: Sequence[bytes] = ()) -> None:
        """A new session, whole or not at all. Raises SessionExists, OSError. Nothing else makes a session come into being."""

    def append(
        self, key: SessionKey, name: str, lines: Sequence[bytes], expect: int, last: int, landed: Landed | None = None
    ) -> asyncio.Future[int]:
        """Append `lines`, whose last seq is `last`, to a session that stands at seq `expect`.

        The call is synchronous: order is fixed when it returns. The future is done when the bytes are with the kernel; it gives `last`, or
        raises Conflict, NoSession or OSError, and then nothing of these lines is in the session. A failure also fails (Conflict) every
        append to this session that was called before the failure was seen. The future must not be cancelled (shield it). `landed` is called
        with the error or None, once, after this call has returned and not later than the future is done: for whoever keeps books.
        """

    async def tail(self, key: SessionKey, name: str, n: int) -> Tail:
        """The newest lines: backwards to the newest `state` line and further until at least `n` message lines are in hand, or all.
        Repairs a torn tail first. Raises NoSession, Corrupt, OSError."""

    async def read(self, key: SessionKey, name: str, from_seq: int = 0) -> Tail:
        """All lines whose seq is at least `from_seq`. Raises NoSession, Corrupt, OSError."""

    async def fork(self, src_key: SessionKey, src: str, dst_key: SessionKey, dst: str, at: int, header: Header) -> None:
        """A new session with `header` and all lines of `src` up to seq `at`. All or nothing; runs beside the appends of other sessions.
        Raises NoSession, SessionExists, OSError."""

    async def sessions(self, key: SessionKey) -> list[Listed]:
        """The key's sessions, oldest first; unreadable ones are left out and counted in the log."""

    async def keys(self, prefix: str = "") -> list[SessionKey]:
        """All keys that have a session, by the headers (never guessed from file names), whose `str` starts with `prefix`."""

    async def overview(self, keys: Sequence[SessionKey]) -> list[Overview]:
        """What each of these keys has, at once, for lists over many; reads no more than `sessions` and `chat` do."""

    async def page(self, key: SessionKey, name: str, start: int, most: int) -> Page:
        """About `most` bytes of the session (at least a line) from `start` on, 0 at first. Empty at the end. Raises NoSession, Corrupt,
        OSError."""

    async def delete(self, key: SessionKey, name: str = "") -> None:
        """For good: one session with its torn bytes, or ("") everything of the key, media and pointer included."""

    async def chat(self, key: SessionKey) -> Chat | None:
        """The key's pointer and settings, folded from all its lines; None if it has none."""

    def set_chat(self, key: SessionKey, change: Chat) -> asyncio.Future[None]:
        """Append one change. Synchronous and ordered like `append`."""

    async def find_chat(self, key: SessionKey, for_: str) -> Chat | None:
        """The change that this input made, if it made one (recovery)."""
