"""How requests to the Bot API travel: python-telegram-bot's request interface on aiohttp.

Stock httpx costs about eight times the CPU (measured), and says less about what became of a request. Here every failure is one of:
`Unreached` (no connection was made, so nothing happened), `Unanswered` (the request may have arrived), `Flood` (wait), `Doubtful` (a token
refused that is not refused), or the refusal in python-telegram-bot's own class.

The token is known in this file alone. `Bot` is given addresses without it ("api:/sendMessage"), since the library logs them and puts them
into exceptions; aiohttp's exceptions carry the real ones, so none of them leaves this file, not even as a cause.
Called by `channels.telegram.channel`, through `Bot` and, for the raw updates, by `call`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, NetworkError, TelegramError
from telegram.request import BaseRequest, RequestData
from yarl import URL

from channels.base import NotSent
from channels.clock import ahead
from channels.download import download

API = "api:"
FILES = "files:"
NO_METHOD = "method not found"
"""A server of one's own that does not know a method says it with the status of a token that is not good."""
CONNECT_SECONDS = 10.0
IDLE_SECONDS = 5.0
"""A connection that was idle for longer is not used again: the far end may close it just then, and the outcome of that send is unknown."""
_AGENT = "parlour"


class Unreached(NetworkError):
    """No connection was made: the request had no effect."""


class Unanswered(NetworkError):
    """The request left, or may have left, and nothing that makes sense came back."""


class Flood(TelegramError):
    """Telegram asks to wait `after` seconds; the request had no effect."""

    def __init__(self, after: float) -> None:
        super().__init__(f"asked to wait {after:g} s")
        self.after = after


class Doubtful(TelegramError):
    """A refusal of the token that nobody confirms: it had no effect, and may pass."""


class _Parameters(msgspec.Struct):
    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class _Refusal(msgspec.Struct):
    ok: bool
    error_code: int = 0
    description: str = ""
    parameters: _Parameters | None = None


_refusal = msgspec.json.Decoder(_Refusal)


class _Message(msgspec.Struct):
    message_id: int


class _Said(msgspec.Struct):
    result: _Message | bool


_said = msgspec.json.Decoder(_Said)


class Transport(BaseRequest):
    """One bot's connections. `initialize` and `shutdown` may be called repeatedly."""

    __slots__ = ("_api", "_files", "_host", "_idle_seconds", "_media_seconds", "_proxy", "_read_seconds", "_resolver", "_session", "_told")

    def __init__(
        self,
        api_base: str,
        token: str,
        *,
        proxy: str = "",
        read_seconds: float = 20.0,
        media_seconds: float = 120.0,
        idle_seconds: float = IDLE_SECONDS,
        resolver: AbstractResolver | None = None,
    ) -> None:
        """`resolver`: who turns names into addresses; None: the system, asked in a thread."""
        base = api_base.rstrip("/")
        self._api = f"{base}/bot{token}"
        self._files = f"{base}/file/bot{token}"
        self._host = urlsplit(base).hostname or ""
        self._proxy = proxy or None
        self._read_seconds, self._media_seconds, self._idle_seconds = read_seconds, media_seconds, idle_seconds
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None
        self._told = ("", 0.0)
        """The Date of the newest answer, and when that was by our clock."""

    @property
    def read_timeout(self) -> float | None:
        return self._read_seconds

    async def initialize(self) -> None:
        if self._session is None:
            # limit=0: sends of many chats never wait for each other here, the lanes pace them.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=self._idle_seconds, resolver=self._resolver)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar())

    async def shutdown(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def ahead(self) -> float | None:
        """Seconds that the far end's clock is ahead of ours, by its newest answer."""
        return ahead(*self._told)

    async def call(self, method: str, params: Mapping[str, object], *, seconds: float) -> bytes:
        """A method's whole answer as it came, for who wants to take it apart. Raises TelegramError."""
        return (await self._ask("POST", method, dict(params), None, seconds))[1]

    async def say(self, method: str, params: Mapping[str, object]) -> int:
        """A method that puts words into a chat, and the number of their message, 0 where the answer does not tell it. Raises TelegramError.

        Two of these are most of what a turn does with the network, and the library's own methods make an object of a hundred fields of
        each answer, a quarter of what such a call costs, of which nobody reads more.
        """
        _, payload = await self._ask("POST", method, params, None, self._read_seconds)
        try:
            result = _said.decode(payload).result
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            try:  # half a character, or a number that is none, does no harm where nobody reads it
                result = msgspec.convert(self.parse_json_payload(payload), _Said).result
            except (msgspec.MsgspecError, ValueError, RecursionError):
                result = False
        if result is False:
            raise Unanswered("the answer is not what the Bot API sends")
        return 0 if result is True else result.message_id

    async def file(self, path: str, most: int) -> bytes:
        """The first `most` bytes of what lies at a `file_path`. Raises ChannelError."""
        if self._session is None or self._session.connector is None:
            raise NotSent("the channel is closed")
        return await download(self._session.connector, URL(f"{self._files}/{quote(path)}", encoded=True), most, proxy=self._proxy or "")

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: object = BaseRequest.DEFAULT_NONE,
        write_timeout: object = BaseRequest.DEFAULT_NONE,
        connect_timeout: object = BaseRequest.DEFAULT_NONE,
        pool_timeout: object = BaseRequest.DEFAULT_NONE,
    ) -> tuple[int, bytes]:
        """What the library calls. Of its four timeouts only `read_timeout` is obeyed, where it is a number."""
        place, _, name = url.partition("/")
        media = place == FILES or (request_data is not None and request_data.contains_files)
        seconds = self._media_seconds if media else self._read_seconds
        if isinstance(read_timeout, int | float):
            seconds = read_timeout
        if place == FILES:
            try:
                return await self._exchange("GET", f"{self._files}/{name}", None, None, seconds)
            except InvalidToken as error:
                raise BadRequest(error.message) from None  # the same status, and here it is the file that is not there
        if request_data is None:
            return await self._ask(method, name, None, None, seconds)
        if not request_data.contains_files:
            return await self._ask(method, name, request_data.parameters, None, seconds)
        # quote_fields=False: a file's name goes out as UTF-8, as Telegram expects it, and not in percent signs.
        form = aiohttp.FormData(quote_fields=False)
        for key, value in request_data.json_parameters.items():
            form.add_field(key, value)
        for key, (filename, content, mime) in request_data.multipart_data.items():
            form.add_field(key, content, filename=filename, content_type=mime)
        return await self._ask(method, name, None, form, seconds)

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Like the library's, which logs the payload (people's words) where it cannot be read."""
        try:
            answer = msgspec.json.decode(payload)
        except (msgspec.DecodeError, RecursionError):
            try:
                answer = json.loads(payload.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                answer = None
        if not isinstance(answer, dict) or "result" not in answer:
            raise Unanswered("the answer is not what the Bot API sends")
        return answer

    async def _ask(
        self, method: str, name: str, params: Mapping[str, object] | None, form: aiohttp.FormData | None, seconds: float
    ) -> tuple[int, bytes]:
        """One call of a method of the API. A token that is refused ends the channel, so it is believed where `getMe` refuses it too: an
        answer that is none of Telegram's (of what stands between) or a bad minute over there passes."""
        try:
            return await self._exchange(method, f"{self._api}/{name}", params, form, seconds)
        except InvalidToken as error:
            if name == "getMe" or NO_METHOD in error.message.lower() or await self._refuses():
                raise
        raise Doubtful(f"{self._host} refused the token, and does not stay with it")

    async def _refuses(self) -> bool:
        try:
            await self._exchange("POST", f"{self._api}/getMe", None, None, self._read_seconds)
        except InvalidToken:
            return True
        except TelegramError:
            pass
        return False

    async def _exchange(
        self, method: str, url: str, params: Mapping[str, object] | None, form: aiohttp.FormData | None, seconds: float
    ) -> tuple[int, bytes]:
        if self._session is None:
            raise Unreached("the channel is closed")
        try:
            body = msgspec.json.encode(params) if params else None
        except UnicodeEncodeError:
            raise BadRequest("strings must be encoded in UTF-8") from None
        headers = {"User-Agent": _AGENT, **({"Content-Type": "application/json"} if body else {})}
        # connect is shorter than total, so that a total that runs out says that the request had left, or may have.
        timeout = aiohttp.ClientTimeout(total=CONNECT_SECONDS + seconds, connect=CONNECT_SECONDS, sock_read=seconds)
        fault: TelegramError
        try:
            # No redirects: the address has the token in it, and the answer to a redirected POST says nothing about the first one.
            async with self._session.request(
                method, url, data=body or form, headers=headers, timeout=timeout, proxy=self._proxy, allow_redirects=False
            ) as response:
                status, payload = response.status, await response.read()
                self._told = response.headers.get("Date", ""), time.time()
            if 200 <= status <= 299:
                return status, payload
            fault = refusal(status, payload, response.headers.get("Retry-After", ""))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError) as error:
            fault = Unreached(self._why(error))
        except TimeoutError:
            fault = Unanswered(f"no answer from {self._host} in time")
        except (aiohttp.InvalidURL, ValueError):
            fault = Unreached("the address of the Bot API or of the proxy is not valid")
        except (aiohttp.ClientError, OSError) as error:
            fault = Unanswered(f"the connection to {self._host} broke ({type(error).__name__})")
        raise fault  # outside of the handlers: a fault that is logged with its context shows no address

    def _why(self, error: Exception) -> str:
        where = f"{self._host} through the proxy" if self._proxy else self._host
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return f"cannot reach {where}: the proxy answered {error.status}"
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return f"cannot reach {where}: the name does not resolve"
        if isinstance(error, TimeoutError):
            return f"cannot reach {where}: no connection in {CONNECT_SECONDS:g} s"
        if isinstance(error, aiohttp.ClientSSLError):
            return f"cannot reach {where}: TLS failed ({type(error).__name__})"
        reason = error.os_error.strerror if isinstance(error, aiohttp.ClientConnectorError) else ""
        return f"cannot reach {where}: {reason or type(error).__name__}"


def refusal(status: int, payload: bytes, retry_after: str = "") -> TelegramError:
    """The error that a response which is not a success stands for.

    What does not look like the Bot API (a proxy's page, a captive portal) decides nothing about the token or the chat: `Unanswered`.
    """
    try:
        said = _refusal.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = None
    parameters = said.parameters if said and said.parameters else _Parameters()
    if status == 429:
        return Flood(_wait(parameters.retry_after, retry_after))
    if said is None or said.ok:
        return Unanswered(f"an answer {status} that is not the Bot API's")
    if parameters.migrate_to_chat_id:
        return ChatMigrated(parameters.migrate_to_chat_id)
    text = said.description or f"error {status}"
    if status in (401, 404):
        return InvalidToken(text)
    if status == 403:
        return Forbidden(text)
    if status == 409:
        return Conflict(text)
    if status in (400, 413):
        return BadRequest(text)
    return Unanswered(text)


def _wait(said: float | None, header: str) -> float:
    """Seconds to wait; 5 where Telegram does not say or says nonsense."""
    if said is None:
        try:
            said = float(header)
        except ValueError:
            said = 5.0
    return said if math.isfinite(said) and said > 0 else 5.0
