"""Sessions in memory, gone with the process: the SessionLog of tests, and what the contract means without a disk in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from gateway.errors import Conflict, NoSession, SessionExists
from gateway.lines import UNREADABLE
from gateway.message import NAME, Chat, Event, Header, Message, SessionKey, State, decode_event, encode_line
from gateway.store.base import Landed, Listed, Overview, Page, Tail


class _Session:
    __slots__ = ("header", "last", "lines")

    def __init__(self, header: Header, lines: list[bytes]) -> None:
        self.header, self.lines = header, lines
        self.last = next((event.seq for _, event in reversed(_events(lines)) if event.seq > 0), 0)


def tell(future: asyncio.Future[int], landed: Landed) -> None:
    """Call `landed` when the future is done."""
    future.add_done_callback(lambda done: landed(asyncio.CancelledError() if done.cancelled() else done.exception()))


class MemoryStore:
    """`gateway.store.base.SessionLog`, without files."""

    def __init__(self) -> None:
        self._sessions: dict[SessionKey, dict[str, _Session]] = {}
        self._chats: dict[SessionKey, list[Chat]] = {}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def create(self, key: SessionKey, name: str, header: Header, lines: Sequence[bytes] = ()) -> None:
        if not NAME.fullmatch(name):
            raise ValueError(f"not a session name: {name!r}")
        if name in self._sessions.get(key, {}):
            raise SessionExists(f"{key} has a session {name} already")
        self._sessions.setdefault(key, {})[name] = _Session(header, list(lines))

    def append(
        self, key: SessionKey, name: str, lines: Sequence[bytes], expect: int, last: int, landed: Landed | None = None
    ) -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if landed is not None:
            tell(future, landed)
        try:
            session = self._session(key, name)
        except NoSession as error:
            future.set_exception(error)
            return future
        if session.last == expect:
            session.lines += lines
            session.last = last
            future.set_result(last)
        else:
            future.set_exception(Conflict(expect, session.last))
        return future

    def _session(self, key: SessionKey, name: str) -> _Session:
        session = self._sessions.get(key, {}).get(name)
        if session is None:
            raise NoSession(f"{key} has no session {name}")
        return session

    async def tail(self, key: SessionKey, name: str, n: int) -> Tail:
        session = self._session(key, name)
        events = _events(session.lines)
        messages, state, start = 0, False, len(events)
        while start and not (state and messages >= n):
            start -= 1
            event = events[start][1]
            messages += isinstance(event, Message)
            state |= isinstance(event, State)
        lines = [line for line, _ in events[start:]]
        return Tail(session.header, lines, session.last, start == 0, len(session.lines) - len(events))

    async def read(self, key: SessionKey, name: str, from_seq: int = 0) -> Tail:
        session = self._session(key, name)
        events = _events(session.lines)
        lines = [line for line, event in events if event.seq >= from_seq]
        return Tail(session.header, lines, session.last, len(lines) == len(events), len(session.lines) - len(events))

    async def fork(self, src_key: SessionKey, src: str, dst_key: SessionKey, dst: str, at: int, header: Header) -> None:
        copied = [line for line, event in _events(self._session(src_key, src).lines) if event.seq <= at]
        await self.create(dst_key, dst, header, copied)

    async def sessions(self, key: SessionKey) -> list[Listed]:
        found = [
            Listed(session.header, session.last, sum(map(len, session.lines)), 0.0) for session in self._sessions.get(key, {}).values()
        ]
        return sorted(found, key=lambda listed: (listed.header.created, listed.header.name))

    async def keys(self, prefix: str = "") -> list[SessionKey]:
        return sorted((key for key, sessions in self._sessions.items() if sessions and str(key).startswith(prefix)), key=str)

    async def overview(self, keys: Sequence[SessionKey]) -> list[Overview]:
        chats = [await self.chat(key) for key in keys]
        return [Overview(key, chat.current if chat else "", await self.sessions(key), 0) for key, chat in zip(keys, chats, strict=True)]

    async def page(self, key: SessionKey, name: str, start: int, most: int) -> Page:
        session = self._session(key, name)
        whole = b"".join((encode_line(session.header), *session.lines))
        stop = start + most
        if stop < len(whole):
            stop = whole.rfind(b"\n", start, stop) + 1 or whole.find(b"\n", start) + 1
        data = whole[start:stop]
        return Page(data, start + len(data), len(whole))

    async def delete(self, key: SessionKey, name: str = "") -> None:
        if name:
            self._session(key, name)
            del self._sessions[key][name]
        else:
            self._sessions.pop(key, None)
            self._chats.pop(key, None)

    async def chat(self, key: SessionKey) -> Chat | None:
        changes = self._chats.get(key)
        if not changes:
            return None
        current = next((change.current for change in reversed(changes) if change.current), "")
        return msgspec.structs.replace(changes[-1], current=current)

    def set_chat(self, key: SessionKey, change: Chat) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._chats.setdefault(key, []).append(change)
        future.set_result(None)
        return future

    async def find_chat(self, key: SessionKey, for_: str) -> Chat | None:
        return next((change for change in reversed(self._chats.get(key, [])) if change.for_ == for_), None)


def _events(lines: Sequence[bytes]) -> list[tuple[bytes, Event]]:
    """The lines that are events."""
    events: list[tuple[bytes, Event]] = []
    for line in lines:
        try:
            events.append((line, decode_event(line)))
        except UNREADABLE:
            continue
    return events
