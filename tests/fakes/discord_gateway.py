"""Discord's gateway: sessions with their events, over websockets; for one unsharded bot. Used by `tests.fakes.discord`.

It speaks JSON, plain or as one zlib stream (`compress=zlib-stream`, what discord.py asks for where no zstd is installed). An event goes to
each session whose intents ask for it; a session without a socket keeps them for a RESUME, as long as it is resumable.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiohttp import WSCloseCode, WSMsgType, web

from tests.fakes.discord_rules import INTENTS, KNOWN_INTENTS, PRIVILEGED, Json

DISPATCH, HEARTBEAT, IDENTIFY, PRESENCE, VOICE, RESUME = 0, 1, 2, 3, 4, 6
RECONNECT, REQUEST_MEMBERS, INVALID_SESSION, HELLO, ACK = 7, 8, 9, 10, 11
KEPT = 2000
"""Events that a session holds for a RESUME; one that asks for older ones is invalid."""


class Source(Protocol):
    """What the gateway asks the service."""

    token: str
    privileged: set[str]

    def ready(self) -> Json: ...
    def guilds_json(self) -> list[Json]: ...
    def for_session(self, event: str, data: Json, channel: int | None, intents: int) -> Json | None: ...
    def members_chunk(self, wanted: Json) -> list[Json]: ...
    def noticed(self) -> None: ...


@dataclass(slots=True, eq=False)
class Session:
    """One IDENTIFY and what came of it."""

    id: str
    intents: int
    seq: int = 0
    events: deque[Json] = field(default_factory=lambda: deque(maxlen=KEPT))
    link: Link | None = None


class Link:
    """One websocket. What is sent goes through a queue, so that events keep their order and nobody waits for a slow reader."""

    def __init__(self, socket: web.WebSocketResponse, compress: bool) -> None:
        self.socket = socket
        self.session: Session | None = None
        self.silent = False
        """Nothing is sent any more; the socket stays open."""
        self.deaf = False
        """Nor is anything read: not even a close is answered."""
        self.undeaf = asyncio.Event()
        self.closing = False
        """We closed it."""
        self.last_beat = 0.0
        self._zlib = zlib.compressobj() if compress else None
        self._queue: asyncio.Queue[bytes | str | tuple[int, str]] = asyncio.Queue()

    def send(self, op: int, d: Any = None, *, s: int | None = None, t: str | None = None) -> None:
        if self.silent:
            return
        self.raw(json.dumps({"op": op, "d": d, "s": s, "t": t}))

    def raw(self, frame: bytes | str) -> None:
        """Text in the way of this link, bytes as they are."""
        if self._zlib and isinstance(frame, str):
            frame = self._zlib.compress(frame.encode()) + self._zlib.flush(zlib.Z_SYNC_FLUSH)
        self._queue.put_nowait(frame)

    def close(self, code: int, reason: str = "") -> None:
        """Close after what is queued."""
        self.closing = True
        self._queue.put_nowait((code, reason))

    async def write(self) -> None:
        while True:
            item = await self._queue.get()
            try:
                if isinstance(item, bytes):
                    await self.socket.send_bytes(item)
                elif isinstance(item, str):
                    await self.socket.send_str(item)
                else:
                    await self.socket.close(code=item[0], message=item[1].encode())
                    return
            except ConnectionError:
                return


class Gateway:
    """The sessions of one bot. `accept` serves one websocket."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.heartbeat_interval = 41.25
        """Seconds, told in HELLO."""
        self.sessions: dict[str, Session] = {}
        self.links: set[Link] = set()
        self.connects: list[float] = []
        """`time.monotonic` of each websocket that was opened."""
        self.identifies: list[Json] = []
        """The body of each IDENTIFY."""
        self.resumes: list[Json] = []
        """The body of each RESUME."""
        self.heartbeats: list[float] = []
        """`time.monotonic` of each heartbeat."""
        self.gaps: list[float] = []
        """Seconds from each heartbeat to the one before it on the same socket."""
        self.closes: list[int] = []
        """Codes with which clients closed."""
        self.refuse_identify: list[int] = []
        """Close codes for the next IDENTIFYs, one each."""

    # ---------------------------------------------------------------------------------------------------------------- tests

    @property
    def live(self) -> list[Session]:
        """Sessions whose socket is open and hears."""
        return [session for session in self.sessions.values() if session.link is not None and not session.link.silent]

    def disconnect(self, code: int, *, resumable: bool) -> None:
        """Close all sockets; with `resumable` their sessions can go on."""
        for link in self.links:
            link.close(code)
            self._part(link, keep=resumable)

    def reconnect(self) -> None:
        """Ask every client to come again (op 7)."""
        for link in self.links:
            link.send(RECONNECT)

    def invalidate(self, *, resumable: bool) -> None:
        """Tell every client that its session is invalid (op 9)."""
        for link in self.links:
            link.send(INVALID_SESSION, resumable)
            if not resumable:
                self._part(link, keep=False)

    def garble(self, frame: bytes | str) -> None:
        """Send what no gateway sends: text as a text frame (within the zlib stream, where there is one), bytes as they are."""
        for link in self.links:
            link.raw(frame)

    def ask_heartbeat(self) -> None:
        for link in self.links:
            link.send(HEARTBEAT)

    def go_silent(self, *, deaf: bool) -> None:
        """All open sockets turn into zombies: nothing comes any more, no ACK either. With `deaf` a close is not answered."""
        for link in self.links:
            link.silent, link.deaf = True, deaf

    def abort(self, *, resumable: bool) -> None:
        """Reset every connection."""
        for link in list(self.links):
            link.undeaf.set()
            self._part(link, keep=resumable)
        if not resumable:
            self.sessions.clear()

    def _part(self, link: Link, *, keep: bool) -> None:
        session, link.session = link.session, None
        if session is not None:
            session.link = None
            if not keep:
                self.sessions.pop(session.id, None)

    # --------------------------------------------------------------------------------------------------------------- events

    def dispatch(self, event: str, data: Json, channel: int | None = None) -> None:
        for session in self.sessions.values():
            seen = self._source.for_session(event, data, channel, session.intents)
            if seen is not None:
                self._send(session, event, seen)

    def push(self, event: str, data: Any) -> None:
        """An event as it is, to every session."""
        for session in self.sessions.values():
            self._send(session, event, data)

    def _send(self, session: Session, event: str, data: Any) -> None:
        session.seq += 1
        payload: Json = {"d": data, "s": session.seq, "t": event}
        session.events.append(payload)
        if session.link is not None:
            session.link.send(DISPATCH, **payload)

    # -------------------------------------------------------------------------------------------------------------- serving

    async def accept(self, request: web.Request) -> web.WebSocketResponse:
        compress, encoding = request.query.get("compress", ""), request.query.get("encoding", "json")
        if compress not in ("", "zlib-stream") or encoding != "json" or request.query.get("v", "10") not in ("9", "10"):
            raise web.HTTPBadRequest(text="this fake speaks JSON of version 9 or 10, plain or as a zlib-stream")
        socket = web.WebSocketResponse(compress=False, max_msg_size=16 * 1024, timeout=2.0, autoclose=False)
        await socket.prepare(request)
        link = Link(socket, bool(compress))
        self.links.add(link)
        self.connects.append(time.monotonic())
        link.send(HELLO, {"heartbeat_interval": round(self.heartbeat_interval * 1000), "_trace": ["fake"]})
        writer = asyncio.create_task(link.write())
        try:
            await self._read(link)
        finally:
            self.links.discard(link)
            self._part(link, keep=True)
            if not link.closing:
                writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            self._source.noticed()
        return socket

    async def _read(self, link: Link) -> None:
        while True:
            message = await link.socket.receive()
            if message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
                if message.type is WSMsgType.CLOSE and link.deaf:
                    await link.undeaf.wait()
                elif message.type is WSMsgType.CLOSE:
                    await link.socket.close(code=link.socket.close_code or WSCloseCode.OK, drain=False)
                self._closed(link)
                return
            if link.closing:
                continue
            try:
                payload = json.loads(message.data)
                op, data = payload["op"], payload.get("d")
            except (ValueError, TypeError, KeyError):
                link.close(4002, "Error while decoding payload.")
                continue
            self._take(link, op, data)
            self._source.noticed()

    def _closed(self, link: Link) -> None:
        if link.closing:
            return
        code = link.socket.close_code or WSCloseCode.ABNORMAL_CLOSURE
        self.closes.append(code)
        if code in (1000, 1001):  # a client that closes so gives its session up
            self._part(link, keep=False)

    def _take(self, link: Link, op: int, data: Any) -> None:
        handler: Callable[[Link, Any], None] | None = {
            HEARTBEAT: self._beat,
            IDENTIFY: self._identify,
            RESUME: self._resume,
            REQUEST_MEMBERS: self._members,
            PRESENCE: self._nothing,
            VOICE: self._nothing,
        }.get(op)
        if handler is None:
            link.close(4001, "Unknown opcode.")
        elif link.session is None and op not in (HEARTBEAT, IDENTIFY, RESUME):
            link.close(4003, "Not authenticated.")
        else:
            handler(link, data)

    def _nothing(self, link: Link, data: Any) -> None:
        """Taken, without effect."""

    def _beat(self, link: Link, data: Any) -> None:
        now = time.monotonic()
        self.heartbeats.append(now)
        if link.last_beat:
            self.gaps.append(now - link.last_beat)
        link.last_beat = now
        link.send(ACK)

    def _identify(self, link: Link, data: Json) -> None:
        self.identifies.append(data)
        if link.session is not None:
            return link.close(4005, "Already authenticated.")
        if self.refuse_identify:
            return link.close(self.refuse_identify.pop(0), "Refused.")
        if data.get("token") != self._source.token:
            return link.close(4004, "Authentication failed.")
        intents = data.get("intents")
        if not isinstance(intents, int) or intents & ~KNOWN_INTENTS:
            return link.close(4013, "Invalid intent(s).")
        if any(intents & INTENTS[name] and name not in self._source.privileged for name in PRIVILEGED):
            return link.close(4014, "Disallowed intent(s).")
        session = Session(secrets.token_hex(16), intents, link=link)
        self.sessions[session.id] = session
        link.session = session
        ready = self._source.ready() | {"session_id": session.id}
        if "shard" in data:
            ready["shard"] = data["shard"]
        self._send(session, "READY", ready)
        for guild in self._source.guilds_json() if intents & INTENTS["guilds"] else ():
            seen = self._source.for_session("GUILD_CREATE", guild, None, intents)
            if seen is not None:
                self._send(session, "GUILD_CREATE", seen)
        return None

    def _resume(self, link: Link, data: Json) -> None:
        self.resumes.append(data)
        if data.get("token") != self._source.token:
            return link.close(4004, "Authentication failed.")
        session = self.sessions.get(str(data.get("session_id")))
        seq = data.get("seq")
        if session is None or not isinstance(seq, int):
            return link.send(INVALID_SESSION, False)
        if seq > session.seq:
            self.sessions.pop(session.id)
            return link.close(4007, "Invalid seq.")
        missed = [payload for payload in session.events if payload["s"] > seq]
        if len(missed) < session.seq - seq:
            self.sessions.pop(session.id)
            return link.send(INVALID_SESSION, False)
        if session.link is not None:
            session.link.session = None
        session.link, link.session = link, session
        for payload in missed:
            link.send(DISPATCH, **payload)
        link.send(DISPATCH, {"_trace": ["fake"]}, s=session.seq, t="RESUMED")
        return None

    def _members(self, link: Link, data: Json) -> None:
        session = link.session
        assert session is not None
        chunk: Json = {"guild_id": str(data.get("guild_id")), "members": self._source.members_chunk(data), "chunk_index": 0}
        chunk |= {"chunk_count": 1} | ({"nonce": data["nonce"]} if "nonce" in data else {})
        self._send(session, "GUILD_MEMBERS_CHUNK", chunk)
