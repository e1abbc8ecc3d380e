"""Asks an OpenAI-compatible endpoint and reads its stream. What the bytes mean is in `sse`, `chunks` and `faults`; here are the connection
and its limits.

Two limits, set apart. `first_token_timeout` runs from the question to the first delta with anything in it: a slow local model may need
minutes, and comments, empty deltas and keep-alives neither shorten nor lengthen that wait. `idle_timeout` is the longest pause between
two such deltas afterwards. Neither is repeated by the turn: whoever waited that long is told. How long an answer may get is the turn's
business.

No retries in here, with one exception: a server that does not know `stream_options` is asked again without it, once, and it is remembered.
A redirect is not followed: the key would go to whatever address it names. Built by `gateway.app`, called by `gateway.turn`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from io import BytesIO
from typing import Literal

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver
from yarl import URL

from channels.settings import Secret
from gateway import options
from gateway.backends import faults, listing, proxy, sse
from gateway.backends.base import Part, Sight
from gateway.backends.chunks import Answer
from gateway.errors import BackendError
from gateway.message import ChatMessage, Request

CONNECT_TIMEOUT = 15.0
"""Seconds for one TCP connection."""
REACH_TIMEOUT = 30.0
"""Seconds for a connection from the name to the end of TLS, the proxy's part included."""
REST_TIMEOUT = 10.0
"""Seconds for the rest of an answer that is complete (usage, [DONE]), for the body of a refusal and for `check`."""
MAX_REFUSAL = 64 * 1024
"""Bytes read of a refusal's body."""
PIECE = 64 * 1024
"""Bytes of a request that are written in one go."""
MAX_LIST = 8 << 20
"""Bytes read of the list of models."""
MAX_WHOLE = 8 << 20
"""Bytes of an answer that comes as one JSON object."""
NO_KEY = Secret("")


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    id: str
    function: _Function
    type: str = "function"


class _Message(msgspec.Struct, omit_defaults=True):
    role: str
    content: str | None
    tool_calls: tuple[_Call, ...] = ()
    tool_call_id: str = ""
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET


class _Body(msgspec.Struct, omit_defaults=True):
    model: str
    messages: list[_Message | ChatMessage]
    stream_options: dict[str, bool] | None = None
    stream: bool = False


class OpenAI:
    name = "openai"

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        api_key: Secret = NO_KEY,
        first_token_timeout: float = 120.0,
        idle_timeout: float = 60.0,
        rest_timeout: float = REST_TIMEOUT,
        reasoning: Literal["drop", "send"] = "drop",
        env: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
        resolver: AbstractResolver | None = None,
    ) -> None:
        """`reasoning`: whether a model's thoughts go back to it within a tool loop; some servers want that, others refuse it.
        `resolver`: who turns names into addresses; None: the system, asked in a thread.

        User and password in `base_url` become Basic authorization, unless there is a key. Raises StartError for a proxy variable in `env`
        that cannot be used.
        """
        self._rest_timeout = rest_timeout
        self._reasoning = reasoning
        self._env, self._clock, self._resolver = env, clock, resolver
        self._session: aiohttp.ClientSession | None = None
        self._aim(base_url, model, api_key, first_token_timeout, idle_timeout)

    def adjust(self, settings: options.Backend) -> None:
        self._aim(settings.base_url, settings.model, settings.api_key, settings.first_token_timeout, settings.idle_timeout)

    def _aim(self, base_url: str, model: str, api_key: Secret, first_token_timeout: float, idle_timeout: float) -> None:
        url = URL(base_url)
        base = url.with_user(None).with_path(url.path.rstrip("/"))
        self._proxy = proxy.find(base, self._env)  # raises before anything is changed
        self._chat_url = (base / "chat" / "completions").with_query(url.query)
        self._models_url = (base / "models").with_query(url.query)
        self._model = model
        self._first_token_timeout, self._idle_timeout = first_token_timeout, idle_timeout
        self._stream_options = True
        # No compression: it would hold deltas back. The headers are of this request only; no session keeps them for another address.
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "parlour"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key.reveal()}"
        elif url.user or url.password:
            self._headers["Authorization"] = aiohttp.encode_basic_auth(url.user or "", url.password or "")
        self._proxy_headers: dict[str, str] | None = None
        if self._proxy and self._proxy.authorization:
            # Over TLS the proxy reads its own CONNECT request only; without, it reads ours.
            mine = {"Proxy-Authorization": self._proxy.authorization}
            if base.scheme == "https":
                self._proxy_headers = mine
            else:
                self._headers |= mine

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        now = asyncio.get_running_loop().time
        deadline = now() + self._first_token_timeout
        response = await self._ask(request, deadline)
        try:
            parser, answer = sse.Parser(), Answer()
            body: list[bytes] | None = None  # the pieces of an answer that is one JSON object
            growth, size, complete = 0, 0, False
            while not answer.over:
                data = await self._read(response, answer, deadline)
                if not data:
                    break
                if not size:
                    start = data.removeprefix(b"\xef\xbb\xbf").lstrip()
                    if not start:
                        continue
                    if start.startswith(b"<"):
                        raise BackendError(faults.NO_ANSWER, retryable=False, detail="a page of HTML instead of an answer")
                    body = [] if start.startswith(b"{") else None
                size += len(data)
                if body is not None:
                    if size > MAX_WHOLE:
                        raise BackendError(faults.NO_ANSWER, retryable=False, detail="a JSON body without end")
                    body.append(data)
                    continue
                for event in _events(parser, data):
                    for part in answer.event(event.data, event.kind):
                        yield part
                if answer.complete:
                    if not complete:
                        complete, deadline = True, now() + min(self._rest_timeout, self._idle_timeout)
                elif answer.growth != growth:
                    growth, deadline = answer.growth, now() + self._idle_timeout
            if body is not None:
                left = answer.whole(b"".join(body))
            else:
                left = [part for event in parser.finish() for part in answer.event(event.data, event.kind)]
            for part in left:
                yield part
            for part in answer.finish():
                yield part
            await _to_the_end(response)
        finally:
            response.close()

    async def check(self) -> None:
        """Ask for the list of models, which is free; an endpoint without one counts as there."""
        await self.survey()

    async def survey(self) -> Sight:
        """The list of models and the server's clock. Raises BackendError."""
        try:
            async with asyncio.timeout(self._rest_timeout), await self._request("GET", self._models_url) as response:
                now, body = self._clock(), await self._refusal(response, MAX_LIST)
                if response.status >= 300 and response.status not in {404, 405}:
                    raise faults.refused(response.status, response.headers, body[:MAX_REFUSAL], now)
                return listing.sight(body if response.status < 300 else b"", response.headers.get("Date", ""), now)
        except (aiohttp.ClientError, OSError) as error:
            raise faults.broken(error) from None

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    # -------------------------------------------------------------------------------------------------------------------- the request

    async def _ask(self, request: Request, deadline: float) -> aiohttp.ClientResponse:
        """The response whose body is the answer; whoever gets it closes it."""
        while True:
            with_usage = self._stream_options
            try:
                async with asyncio.timeout_at(deadline):
                    response = await self._request("POST", self._chat_url, self._body(request, with_usage=with_usage))
            except (aiohttp.ClientError, OSError) as error:
                if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):
                    raise self._silence(Answer()) from None
                raise faults.broken(error) from None
            if 200 <= response.status < 300:
                return response
            try:
                body = await self._refusal(response)
            finally:
                response.close()
            if response.status == 400 and with_usage and faults.names_stream_options(body):
                self._stream_options = False
                continue
            raise faults.refused(response.status, response.headers, body, self._clock())

    async def _refusal(self, response: aiohttp.ClientResponse, most: int = MAX_REFUSAL) -> bytes:
        """The body of a refusal, as much of it as comes soon and is worth reading."""
        body = bytearray()
        try:
            async with asyncio.timeout(self._rest_timeout):
                while len(body) < most and (data := await response.content.readany()):
                    body += data
        except (aiohttp.ClientError, OSError):
            pass  # the status says enough
        return bytes(body[:most])

    async def _request(self, method: str, url: URL, body: bytes | None = None) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Most servers close a connection that is idle for 5 s; a question must not meet that.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0, resolver=self._resolver),
                timeout=aiohttp.ClientTimeout(total=None, connect=REACH_TIMEOUT, sock_connect=CONNECT_TIMEOUT),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        return await self._session.request(
            method,
            url,
            data=body if body is None or len(body) <= PIECE else BytesIO(body),  # which goes in pieces, with others in between
            headers=headers,
            allow_redirects=False,
            proxy=self._proxy.url if self._proxy else None,
            proxy_headers=self._proxy_headers,
        )

    def _body(self, request: Request, *, with_usage: bool) -> bytes:
        messages = [self._message(message) for message in request.messages]
        return msgspec.json.encode(_Body(self._model, messages, {"include_usage": True} if with_usage else None, stream=True))

    def _message(self, message: ChatMessage) -> _Message | ChatMessage:
        if not message.tool_calls and message.reasoning is None:
            return message  # its fields are the endpoint's
        calls = tuple(_Call(call.id, _Function(call.name, msgspec.json.encode(call.arguments).decode())) for call in message.tool_calls)
        send = self._reasoning == "send" and message.role == "assistant" and (calls or message.reasoning)
        thought = (message.reasoning or "") if send else msgspec.UNSET
        return _Message(message.role, message.content, calls, message.tool_call_id, thought)

    # --------------------------------------------------------------------------------------------------------------------- the answer

    async def _read(self, response: aiohttp.ClientResponse, answer: Answer, deadline: float) -> bytes:
        """The next bytes, b"" at the end. What goes wrong once the answer is complete is no harm to it."""
        try:
            if not (data := response.content.read_nowait()):
                async with asyncio.timeout_at(deadline):
                    data = await response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            if answer.complete:
                return b""
            raise (self._silence(answer) if isinstance(error, TimeoutError) else faults.broken(error)) from None
        # With bytes always at hand nothing waits, so that the timeout above never fires.
        if data and asyncio.get_running_loop().time() > deadline:
            if answer.complete:
                return b""
            raise self._silence(answer)
        return data

    def _silence(self, answer: Answer) -> BackendError:
        if answer.growth:
            return BackendError(faults.STALLED, retryable=False, detail=f"no delta for {self._idle_timeout:g} s (idle_timeout)")
        return BackendError(faults.SILENT, retryable=False, detail=f"no delta within {self._first_token_timeout:g} s (first_token_timeout)")


async def survey(settings: options.Backend) -> Sight:
    """See `gateway.backends.base.Sight`."""
    backend = make(settings)
    try:
        return await backend.survey()
    finally:
        await backend.close()


def make(settings: options.Backend) -> OpenAI:
    """What `[backend]` with kind "openai" describes."""
    return OpenAI(
        base_url=settings.base_url,
        model=settings.model,
        api_key=settings.api_key,
        first_token_timeout=settings.first_token_timeout,
        idle_timeout=settings.idle_timeout,
    )


def _events(parser: sse.Parser, data: bytes) -> list[sse.Event]:
    try:
        return parser.feed(data)
    except sse.TooBig as error:
        raise BackendError(faults.NO_ANSWER, retryable=False, detail=str(error)) from None


async def _to_the_end(response: aiohttp.ClientResponse) -> None:
    """Read the end of the body, if it is there or nearly: only then can the connection be used again."""
    if response.content.at_eof():
        return
    try:
        async with asyncio.timeout(0.05):
            for _ in range(4):
                if response.content.at_eof() or not await response.content.readany():
                    return
    except (aiohttp.ClientError, OSError):
        return
