"""How requests to Discord travel: discord.py's HTTP client with one attempt a request, and an answer that says what became of it.

The library's own waits out a 429 inside the request, holds a request that used a bucket's last token back until the bucket is full again,
and repeats a 5xx up to five times, so that nobody knows for half a minute what became of a send. Here each request is one attempt: a wait
is for the lanes, which know what is newer by then. A request that would be answered with 429, by the headers of those before it, is not
made (Discord bans who collects ten thousand errors in ten minutes).

Whom a 429 means (Discord's documentation, "Rate Limits"). `"global": true`, or `X-RateLimit-Global` or `X-RateLimit-Scope: global`: the
whole bot, except for what answers an interaction, which the global limit does not bind. Every other one, those of the scope `shared`
included, which many bots use up together: this route in this channel. One without `Via` did not come from the API but from the wall in
front of it, which shuts out our address with all that it asks.

Every failure is one of `NotSent` (no connection was made), `Unknown` (it may have arrived), `Retry` (wait), or `Refusal`, with Discord's
status and code. None of them has an address, a token or a body in it: interaction tokens are parts of addresses, so that aiohttp's
exceptions stay in here, not even as a cause. Called by discord.py (`request`, `ws_connect`) and by the modules of this package.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver
from discord.gateway import DiscordClientWebSocketResponse
from discord.http import HTTPClient, Route
from yarl import URL

from channels.base import ChannelError, NotSent, Retry, Unknown
from channels.clock import ahead
from channels.download import download

CONNECT_SECONDS = 10.0
READ_SECONDS = 20.0
DOUBT_SECONDS = 5.0
"""The wait behind a refusal of the token that nobody confirms."""
IDLE_SECONDS = 5.0
"""A connection that was idle for longer is not used again: the far end may close it just then, and the outcome of that send is unknown."""
BANNED = (60.0, 3600.0)
"""The wall in front of the API: at least and at most so long nothing is asked any more, whatever it says."""
_CLOSE_SECONDS = 5.0
_MOST_BUCKETS = 4096
_NONSENSE = "the answer is not what Discord sends"


class Refusal(ChannelError):
    """Discord said no. `open`: to a request that needs no bot token (it carries an interaction's)."""

    def __init__(self, status: int, code: int, text: str, *, errors: Mapping[str, Any] | None = None, open_: bool = False) -> None:
        super().__init__(f"{status} ({code}): {text}")
        self.status, self.code, self.text, self.errors, self.open = status, code, text, errors or {}, open_


class Http(HTTPClient):
    """One bot's connections, for as long as its channel lives. `open` and `close` may be called repeatedly."""

    def __init__(
        self,
        *,
        proxy: str = "",
        read_seconds: float = READ_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        resolver: AbstractResolver | None = None,
    ) -> None:
        """`resolver`: who turns names into addresses; None: the system, asked in a thread."""
        super().__init__(None, proxy=proxy or None)  # type: ignore[arg-type]  # the loop: only the library's own request would need it
        self._read_seconds, self._clock, self._resolver = read_seconds, clock, resolver
        self._session: aiohttp.ClientSession | None = None
        self._buckets: dict[str, str] = {}  # type: ignore[assignment]  # the library's has other values; its request is not called
        """Route -> the name of the bucket that Discord counts it in."""
        self._empty: dict[str, float] = {}
        """Bucket and channel -> when it has tokens again."""
        self._pause = 0.0
        """Nothing that needs the bot's token is asked before."""
        self._wall = 0.0
        """Nothing at all is asked before."""
        self._told = ("", 0.0)
        self.socket: aiohttp.ClientWebSocketResponse | None = None
        """The gateway's newest one."""

    async def open(self) -> None:
        if self._session is None:
            # limit=0: sends of many chats never wait for each other here, the lanes pace them.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, resolver=self._resolver)
            self._session = aiohttp.ClientSession(
                connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar(), ws_response_class=DiscordClientWebSocketResponse
            )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def ahead(self) -> float | None:
        """Seconds that Discord's clock is ahead of ours, by its newest answer."""
        return ahead(*self._told)

    # ------------------------------------------------------------------------------------------------------ what discord.py calls

    async def static_login(self, token: str) -> Any:
        self.token = token
        return await self.request(Route("GET", "/users/@me"))

    async def ws_connect(self, url: str, *, compress: int = 0) -> aiohttp.ClientWebSocketResponse:
        if self._session is None:
            raise NotSent("the channel is closed")
        self.socket = await self._session.ws_connect(
            url,
            proxy=self.proxy,
            max_msg_size=0,
            timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
            autoclose=False,
            headers={"User-Agent": self.user_agent},
            compress=compress,
        )
        return self.socket

    async def request(self, route: Route, *, files: object = None, form: object = None, **options: Any) -> Any:
        """The JSON of the answer, None where there is none. `options`: `json`, `params`, and `seconds` for another limit than usual."""
        assert not files
        assert not form
        open_ = route.path.startswith(("/webhooks/", "/interactions/"))
        key = self._may(route, open_)
        seconds = options.get("seconds", self._read_seconds)
        status, headers, payload = await self._exchange(route, open_, options, seconds)
        if date := headers.get("Date"):
            self._told = (date, time.time())
        self._count(route, key, headers)
        answer = _parsed(payload)
        if 200 <= status <= 299:
            if payload and answer is None:
                raise Unknown(_NONSENSE)
            return answer
        if status == 401 and not open_ and not (isinstance(answer, dict) and await self._refuses(route)):
            # A token that is refused ends the channel, so it is believed where the plainest question is refused too.
            raise Retry(DOUBT_SECONDS)
        if status != 429 and route.method == "GET" and not isinstance(answer, dict):
            # A page says nothing about what was asked. (To what we say it may: there are walls that look into texts.)
            raise Unknown(f"an answer {status} that is not Discord's")
        raise self._fault(status, headers, answer, open_)

    async def _refuses(self, asked: Route) -> bool:
        """Whether our own name is refused to us as well."""
        me = Route("GET", "/users/@me")
        if asked.path == me.path:
            return True
        try:
            status, _, payload = await self._exchange(me, False, {}, self._read_seconds)
        except ChannelError:
            return False
        return status == 401 and isinstance(_parsed(payload), dict)

    async def file(self, url: URL, most: int) -> bytes:
        """The first `most` bytes of a file. Raises ChannelError."""
        if self._session is None or self._session.connector is None:
            raise NotSent("the channel is closed")
        return await download(self._session.connector, url, most, proxy=self.proxy or "")

    # ---------------------------------------------------------------------------------------------------------------- limits

    def _may(self, route: Route, open_: bool) -> str:
        """The bucket of this request. Raises Retry where it is empty."""
        now = self._clock()
        held = self._wall if open_ else max(self._wall, self._pause)
        if held > now:
            raise Retry(held - now, everywhere=True)
        key = self._key(route)
        left = self._empty.get(key, 0.0) - now
        if left > 0:
            raise Retry(left)
        return key

    def _key(self, route: Route) -> str:
        return f"{self._buckets.get(route.key, route.key)} {route.major_parameters}"

    def _count(self, route: Route, key: str, headers: Mapping[str, str]) -> None:
        """Note what an answer says about the bucket."""
        bucket = headers.get("X-RateLimit-Bucket")
        if not bucket:
            return
        if len(self._empty) + len(self._buckets) > _MOST_BUCKETS:
            now = self._clock()
            self._empty = {key: until for key, until in self._empty.items() if until > now}
            self._buckets.clear()
        self._buckets[route.key] = bucket
        if headers.get("X-RateLimit-Remaining") == "0" and (after := _seconds(headers.get("X-RateLimit-Reset-After"))):
            self._empty[self._key(route)] = self._clock() + after
        else:
            self._empty.pop(self._key(route), None)

    def _fault(self, status: int, headers: Mapping[str, str], answer: object, open_: bool) -> ChannelError:
        said = answer if isinstance(answer, dict) else {}
        if status == 429:
            return self._limited(headers, said)
        text = str(said.get("message") or "no reason given")[:200]
        if status >= 500 or status < 400 or status == 408:
            return Unknown(f"Discord answered {status}")
        code, errors = said.get("code"), said.get("errors")
        return Refusal(status, code if isinstance(code, int) else 0, text, errors=errors if isinstance(errors, dict) else None, open_=open_)

    def _limited(self, headers: Mapping[str, str], said: Mapping[str, Any]) -> Retry:
        now = self._clock()
        after = _seconds(said.get("retry_after")) or _seconds(headers.get("Retry-After"))
        if not said or "Via" not in headers:
            # Each further request makes it last longer. A page says nothing that can be relied on; words may name a shorter time.
            least = 0.0 if said and after else BANNED[0]
            after = min(max(after or 0.0, least), BANNED[1])
            self._wall = max(self._wall, now + after)
            return Retry(after, everywhere=True)
        after = after or 1.0
        everywhere = bool(said.get("global")) or "X-RateLimit-Global" in headers or headers.get("X-RateLimit-Scope") == "global"
        if everywhere:
            self._pause = max(self._pause, now + after)
        return Retry(after, everywhere=everywhere)

    # ---------------------------------------------------------------------------------------------------------------- the wire

    async def _exchange(
        self, route: Route, open_: bool, options: Mapping[str, Any], seconds: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        if self._session is None:
            raise NotSent("the channel is closed")
        headers = {"User-Agent": self.user_agent}
        if self.token is not None and not open_:
            headers["Authorization"] = f"Bot {self.token}"
        body = None
        if "json" in options:
            headers["Content-Type"] = "application/json"
            try:
                body = msgspec.json.encode(options["json"])
            except UnicodeEncodeError:
                raise Refusal(400, 50109, "the text is no text (a lone surrogate)") from None
        # connect is shorter than total, so that a total that runs out says that the request had left, or may have.
        timeout = aiohttp.ClientTimeout(total=CONNECT_SECONDS + seconds, connect=CONNECT_SECONDS, sock_read=seconds)
        host = urlsplit(route.url).hostname or ""
        fault: ChannelError
        try:
            async with self._session.request(
                route.method,
                route.url,
                data=body,
                params=options.get("params"),
                headers=headers,
                timeout=timeout,
                proxy=self.proxy,
                allow_redirects=False,
            ) as response:
                return response.status, response.headers, await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError) as error:
            fault = NotSent(unreached(error, f"{host} through the proxy" if self.proxy else host))
        except TimeoutError:
            fault = Unknown(f"no answer from {host} in time")
        except (aiohttp.InvalidURL, ValueError):
            fault = NotSent("the address of Discord or of the proxy is not valid")
        except (aiohttp.ClientError, OSError) as error:
            fault = Unknown(f"the connection to {host} broke ({type(error).__name__})")
        raise fault  # outside of the handlers: a fault that is logged with its context shows no address


def unreached(error: Exception, where: str) -> str:
    """Why no connection was made, in words without an address."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"cannot reach {where}: the proxy answered {error.status}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"cannot reach {where}: the name does not resolve"
    if isinstance(error, TimeoutError):
        return f"cannot reach {where}: no connection in time"
    if isinstance(error, aiohttp.ClientSSLError):
        return f"cannot reach {where}: TLS failed ({type(error).__name__})"
    reason = error.os_error.strerror if isinstance(error, aiohttp.ClientConnectorError) else ""
    return f"cannot reach {where}: {reason or type(error).__name__}"


def _parsed(payload: bytes) -> Any:
    """None where it is no JSON."""
    if not payload:
        return None
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        try:
            return json.loads(payload.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None


def _seconds(said: object) -> float | None:
    try:
        seconds = float(said)  # type: ignore[arg-type]  # whatever it is
    except (TypeError, ValueError):
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None
