"""The connection to Discord's gateway: discord.py's client and socket, with a loop of our own around them.

The library's own loop (`Client.connect`) pauses up to a quarter of an hour after a long outage, not at all where the gateway closes at
once, and stumbles where the very first connection fails. Here the pauses grow to half a minute, IDENTIFYs are kept apart (Discord counts a
thousand a day, and resets the token of whoever passes that), and what closes for good is `Denied`, with what to do about it.

discord.py parses what concerns servers, channels, threads and roles, and keeps those in memory; messages and interactions go raw to
`hear`, in the order in which they come. An event that cannot be read is passed over: an exception in a parser would end the connection, and
the next one would bring the same event. Called by `reading`.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

import aiohttp
import discord
import structlog
import yarl
from discord.gateway import DiscordWebSocket, ReconnectWebSocket

from channels.base import ChannelError, Denied, Unknown
from channels.discord.errors import BAD_TOKEN
from channels.discord.payloads import FAULTS
from channels.discord.transport import Http, unreached

log = structlog.get_logger(__name__)

Hear = Callable[[str, Mapping[str, Any]], None]
"""An event's name and its raw data. Must not raise."""

CONNECT_SECONDS = 60.0
HEARTBEAT_SECONDS = 60.0
"""A connection on which nothing came for so long, not even an answer to a heartbeat, is dead."""
IDENTIFY_GAP = 5.0
LONGEST_GAP = 120.0
LONGEST_PAUSE = 30.0
_SPARE = 30.0
"""Seconds more than a step's own limit, before it counts as hanging: closing a dead socket takes some."""
STEADY = 60.0
"""A connection that lived for so long was a good one: what fails after it is the first failure again."""

_PORTAL = "in the Discord developer portal (your application, Bot, Privileged Gateway Intents)"
MISSING_INTENT = f"the Message Content intent is not switched on for this bot: switch it on {_PORTAL}, then restart parlour"
_FINAL = {
    4004: BAD_TOKEN,
    4010: "Discord refuses this connection (4010, shard)",
    4011: "this bot is in too many servers for one connection (4011, sharding is required)",
    4012: "Discord does not serve this version of its gateway any more (4012)",
    4013: f"Discord refuses the intents that we ask for (4013): look whether the Message Content intent is switched on {_PORTAL}",
    4014: MISSING_INTENT,
}
_GOES_ON, _IS_OVER = 4000, 1000
"""Codes with which we close: the session may be gone on with; it is over, and the bot is shown as offline at once."""
_KEPT = ("READY", "RESUMED", "GUILD_", "CHANNEL_", "THREAD_")
_UNUSED = ("GUILD_MEMBER", "GUILD_EMOJIS", "GUILD_STICKERS", "GUILD_SCHEDULED", "GUILD_SOUNDBOARD", "GUILD_AUDIT", "CHANNEL_PINS")
_UNREADABLE = (*FAULTS, AssertionError, discord.DiscordException, zlib.error)
"""What the library raises for what it cannot read."""
_RAW = ("MESSAGE_CREATE", "MESSAGE_UPDATE", "INTERACTION_CREATE")


class _Garbled(Exception):
    """A frame that is none of Discord's."""


class Pace:
    """When we may IDENTIFY next. Outlives the connections, and the channel's restarts. `clock` and `pause` are handed in for tests."""

    def __init__(
        self,
        *,
        gap: float = IDENTIFY_GAP,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._gap, self.clock, self.pause, self._spread = gap, clock, pause, spread
        self._next = 0.0
        self._short = 0
        """Connections in a row that did not last."""
        self._at_once = False

    def lasted(self, seconds: float) -> None:
        """A connection ended."""
        self._short = 0 if seconds >= STEADY else self._short + 1

    def answered(self) -> None:
        """Discord is there, and wants a new session: it is not waited for. How close IDENTIFYs may come stays as it is."""
        self._at_once = True

    async def reconnect(self) -> None:
        """The pause before any connection but the first: none after a good one, then growing."""
        at_once, self._at_once = self._at_once, False
        if self._short > 1 and not at_once:
            await self.pause(min(LONGEST_PAUSE, 2.0 ** min(self._short - 2, 10)) * (0.5 + self._spread() / 2))

    async def identify(self) -> None:
        left = self._next - self.clock()
        if left > 0:
            await self.pause(left)
        self._next = self.clock() + min(LONGEST_GAP, self._gap * 2.0 ** min(max(0, self._short - 2), 10))


class Client(discord.Client):
    """One login; made anew for each start of the channel."""

    def __init__(self, http: Http, hear: Hear, pace: Pace, *, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # nobody wants to speak here
        super().__init__(
            intents=discord.Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=True),
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            allowed_mentions=discord.AllowedMentions.none(),
            heartbeat_timeout=heartbeat_seconds,
            guild_ready_timeout=0.0,
        )
        self.http = http
        self._connection.http = http
        self._hear, self._pace, self._silence = hear, pace, heartbeat_seconds
        self.heard = 0.0
        """When anything last came over the gateway, by the pace's clock."""
        self.connected = False
        """Something came over the newest socket."""
        self.synced = False
        """All that Discord keeps for a session that goes on has come; for a new session, what began with it."""
        self.bad = 0
        """Events that could not be read, and were passed over."""
        self.problem = ""
        """What is wrong with the connection, in words; "" while all is well."""
        self._due = math.inf
        parsers = dict(self._connection.parsers)
        self._connection.parsers.clear()
        for event, parse in parsers.items():
            if event.startswith(_KEPT) and not event.startswith(_UNUSED):
                self._connection.parsers[event] = self._guarded(event, parse)
        for event in _RAW:
            self._connection.parsers[event] = self._raw(event)

    def _guarded(self, event: str, parse: Callable[[Any], None]) -> Callable[[Any], None]:
        def guarded(data: Any) -> None:
            try:
                parse(data)
            except _UNREADABLE as error:
                if event == "READY":
                    raise
                self._pass_over(event, error)
                return
            self.synced = self.synced or event in ("READY", "RESUMED")
            self._hear(event, data)

        return guarded

    def _raw(self, event: str) -> Callable[[Any], None]:
        def heard(data: Any) -> None:
            self._hear(event, data)

        return heard

    def _pass_over(self, event: str, error: Exception) -> None:
        self.bad += 1
        log.warning("event passed over", channel="discord", event_type=event, reason=type(error).__name__, count=self.bad)

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """The library would sleep for five seconds here; `Pace` does it better."""

    # ------------------------------------------------------------------------------------------------------------- the loop

    def overdue(self) -> float:
        """Seconds by which a step has outlasted its limit; 0.0 while none has, and while nothing is read."""
        return max(0.0, self._pace.clock() - self._due)

    def _within(self, seconds: float) -> None:
        self._due = self._pace.clock() + seconds + _SPARE

    async def listen(self) -> NoReturn:
        """Until cancelled. Raises Denied where the gateway closes for good, and whatever is unexpected."""
        try:
            await self._listen()
        finally:
            self._due = math.inf

    async def _listen(self) -> NoReturn:
        resume: dict[str, Any] = {}
        first = True
        while True:
            self._within(LONGEST_PAUSE + LONGEST_GAP)
            if not first:
                await self._pace.reconnect()
            first = False
            if not resume:
                await self._pace.identify()
            self._within(CONNECT_SECONDS)
            began = self._pace.clock()
            resumes = bool(resume)
            try:
                resume = await self._connection_life(resume)
                problem = ""
            except Denied:
                raise
            except _Garbled as error:
                # Not the same session: it would bring the same frame again. What was missed is fetched.
                resume, problem = {}, f"what the gateway sends cannot be read ({error})"
            except (OSError, aiohttp.ClientError, ChannelError) as error:
                # With a session it is tried again to go on with it: if that is too late, the gateway says so.
                problem = self._why(error)
            self.connected = self.synced = False
            lasted = self._pace.clock() - began
            self._pace.lasted(lasted)
            if resumes and not problem and not resume and lasted < STEADY:
                log.info("the session cannot be resumed, a new one begins", channel="discord")
                self._pace.answered()
            self._turn(problem)

    async def _connection_life(self, resume: Mapping[str, Any]) -> dict[str, Any]:
        """One socket, from its opening to its end. Gives what the next one needs to go on with the session; {} for a new session."""
        known = dict(resume)
        socket: DiscordWebSocket | None = None
        code = _GOES_ON
        try:
            socket = await asyncio.wait_for(DiscordWebSocket.from_client(self, initial=True, **known), CONNECT_SECONDS)
            self.ws = socket
            while True:
                self._within(self._silence)
                await socket.poll_event()
                self.heard = self._pace.clock()
                if not self.connected:
                    self.connected = True
                    self._turn("")
        except ReconnectWebSocket as error:
            if not error.resume:
                return {}
            return _session(socket) or known
        except (OSError, aiohttp.ClientError):
            if session := _session(socket):
                return session
            raise
        except discord.ConnectionClosed as error:
            if error.code in _FINAL:
                raise Denied(_FINAL[error.code]) from None
            return {}
        except _UNREADABLE as error:
            raise _Garbled(type(error).__name__) from None
        except asyncio.CancelledError:
            code = _IS_OVER
            raise
        finally:
            await self._close_socket(socket, code)

    async def renew(self) -> None:
        """Begin a new session, with what was missed fetched from the history."""
        if self.ws is not None:
            self.ws.session_id = None
            await self.ws.close(_GOES_ON)

    async def _close_socket(self, socket: DiscordWebSocket | None, code: int) -> None:
        """Also one that `from_client` opened and did not live to give us."""
        assert isinstance(self.http, Http)
        opened, self.http.socket = self.http.socket, None
        try:
            if socket is not None:
                await socket.close(code)
            elif opened is not None:
                await opened.close()
        except (OSError, aiohttp.ClientError):
            pass

    def _why(self, error: Exception) -> str:
        host = yarl.URL(str(DiscordWebSocket.DEFAULT_GATEWAY)).host or ""
        if isinstance(error, ChannelError):
            return str(error)
        if isinstance(error, aiohttp.WSServerHandshakeError):
            return f"{host} answered {error.status} instead of a connection"
        if isinstance(error, TimeoutError):
            return f"{host} does not answer"
        return unreached(error, host)

    def _turn(self, problem: str) -> None:
        """A line when there begins to be a problem, and when there is none any more."""
        if problem and not self.problem:
            log.warning("the gateway has a problem", channel="discord", problem=problem)
        elif self.problem and not problem and self.connected:
            log.info("the gateway works again", channel="discord")
        if problem or self.connected:
            self.problem = problem


def _session(socket: DiscordWebSocket | None) -> dict[str, Any]:
    if socket is None or socket.session_id is None:
        return {}
    return {"session": socket.session_id, "sequence": socket.sequence, "gateway": socket.gateway, "resume": True}


def gateway_of(answer: object, *, plain: bool) -> yarl.URL:
    """The address in an answer of GET /gateway. Raises Unknown where it is none, or not encrypted while the API is."""
    said = answer.get("url") if isinstance(answer, dict) else None
    url = yarl.URL(said) if isinstance(said, str) else yarl.URL()
    if url.scheme not in (("ws", "wss") if plain else ("wss",)) or not url.host:
        raise Unknown("the API does not say where its gateway is")
    return url
