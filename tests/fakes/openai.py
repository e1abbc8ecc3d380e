"""A model's server on loopback, as strict about roles and tool pairs as the strictest providers, that answers what a script says.

`async with FakeModel() as model:` serves `model.base_url`. Every request is recorded in `model.asked`. Without a script the answer is
"Heard: " and the words of the last user message, so it is the same for the same conversation. `model.then(...)` queues single replies,
`model.script(fn)` decides per request. A `Reply` is a list of steps: bytes to write, seconds or an event to wait for, an `End`; with
`wire=True` the steps are the bytes of the connection, status line and headers included. Knows nothing of Parlour.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias

import msgspec
from aiohttp import web

from tests.fakes.openai_strict import AskedMessage, Body, fault

# ---------------------------------------------------------------------------------------------------------------------- what is asked


@dataclass(eq=False)
class Asked:
    """One request: when (`time.monotonic`), what, and how it went."""

    at: float
    body: Body
    raw: bytes
    headers: Mapping[str, str]
    peer: object = None
    """The client's address: the same for requests over the same connection."""
    ended: Literal["", "answered", "left", "cut"] = ""
    """"" while under way; `left`: the client closed the connection; `cut`: the script did."""
    sent: int = 0
    """Bytes of the answer so far."""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def messages(self) -> list[AskedMessage]:
        return self.body.messages

    @property
    def words(self) -> str:
        """The last user message's text."""
        return next((m.content for m in reversed(self.messages) if m.role == "user" and isinstance(m.content, str)), "")


# ------------------------------------------------------------------------------------------------------------------- what is answered


class End(Enum):
    """How a script stops being polite."""

    FIN = "close the connection"
    RST = "reset the connection"
    HANG = "say nothing more, until the client leaves"


Step: TypeAlias = bytes | float | asyncio.Event | End


@dataclass(frozen=True)
class Reply:
    steps: Iterable[Step] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream"})
    before: Step | None = None
    """What happens before the status line."""
    wire: bool = False


def event(value: object) -> bytes:
    """One SSE event with JSON data."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def delta(content: object = None, *, finish: str | None = None, **more: object) -> bytes:
    """A chunk in OpenAI's form; `more` are further fields of the delta."""
    body = dict(more) if content is None else {"content": content, **more}
    return event(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "model": "fake",
            "choices": [{"index": 0, "delta": body, "finish_reason": finish}],
        }
    )


DONE = b"data: [DONE]\n\n"


def says(
    text: str, *, deltas: int = 4, delay: float = 0.0, finish: str = "stop", usage: tuple[int, int] | None = (10, 5), hang_after: int = -1
) -> Reply:
    """A whole, proper answer in `deltas` pieces, `delay` seconds before each; `hang_after` n pieces it falls silent."""
    size = max(1, -(-len(text) // max(1, deltas)))
    chunks = [delta(text[at : at + size]) for at in range(0, len(text), size)]
    end = [delta(finish=finish)]
    if usage:
        end.append(event({"choices": [], "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]}}))
    end.append(DONE)
    head = delta("", role="assistant")
    if hang_after >= 0:
        return Reply([head, *chunks[:hang_after], End.HANG])
    if not delay:
        return Reply([b"".join([head, *chunks, *end])])
    steps: list[Step] = [head]
    for chunk in chunks:
        steps += (delay, chunk)
    return Reply([*steps, *end])


def refuses(status: int, message: str = "", *, code: str | None = None, headers: Mapping[str, str] | None = None, **more: object) -> Reply:
    """An error in OpenAI's form; `more` are further fields of the error object."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code, **more}
    return Reply([msgspec.json.encode({"error": error})], status, {"Content-Type": "application/json", **(headers or {})})


def plain(body: bytes, status: int = 200, content_type: str = "application/json", **headers: str) -> Reply:
    """Any body as it is."""
    return Reply([body], status, {"Content-Type": content_type, **headers})


# ------------------------------------------------------------------------------------------------------------------------------ server


class FakeModel:
    """`async with FakeModel() as model`. Attributes may be changed while it runs."""

    def __init__(
        self,
        *,
        api_key: str = "",
        models: Sequence[str] = (),
        max_context: int = 0,
        deltas: int = 4,
        delay: float = 0.0,
        strict: bool = True,
        reasoning: Literal["any", "required", "forbidden"] = "any",
        stream_options: bool = True,
        port: int = 0,
    ) -> None:
        self.api_key = api_key
        self.models = models
        self.listed: Sequence[str] = models or ("fake",)
        self.max_context = max_context
        """In tokens of four bytes of the request; 0: no limit."""
        self.deltas, self.delay = deltas, delay
        self.strict = strict
        self.reasoning = reasoning
        """Whether `reasoning_content` must be (or may not be) in assistant messages with tool calls."""
        self.stream_options = stream_options
        """False: the server does not know that field."""
        self.asked: list[Asked] = []
        self.active = 0
        self.peak = 0
        self.models_status = 200
        self.base_url = ""
        self._port = port
        self._decide: Callable[[Asked], Reply | None] = lambda asked: None
        self._queue: deque[Reply] = deque()
        self._runner: web.AppRunner | None = None
        self._news = asyncio.Event()

    def script(self, decide: Callable[[Asked], Reply | None]) -> None:
        """`decide` is asked for every request; None means the default answer."""
        self._decide = decide

    def then(self, *replies: Reply) -> None:
        """The next requests that pass the strict checks get these, in order, ahead of the script."""
        self._queue.extend(replies)

    async def wait(self, n: int = 1, timeout: float = 10.0) -> Asked:
        """The n-th request (from 1), as soon as it is there."""
        async with asyncio.timeout(timeout):
            while len(self.asked) < n:
                self._news.clear()
                await self._news.wait()
        return self.asked[n - 1]

    async def __aenter__(self) -> FakeModel:
        app = web.Application(client_max_size=256 << 20)
        app.add_routes([web.post("/v1/chat/completions", self._chat), web.get("/v1/models", self._models)])
        # Handlers are cancelled when the client leaves: that is how `left` is noticed.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=1024)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.base_url = f"http://127.0.0.1:{self._port}/v1"
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    # ------------------------------------------------------------------------------------------------------------------------ handlers

    async def _models(self, request: web.Request) -> web.Response:
        if self.api_key and request.headers.get("Authorization") != f"Bearer {self.api_key}":
            return web.json_response({"error": {"message": "Incorrect API key provided"}}, status=401)
        if self.models_status != 200:
            return web.Response(status=self.models_status, text="<html>no</html>")
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in self.listed]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        try:
            body = msgspec.json.decode(raw, type=Body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return web.json_response({"error": {"message": f"We could not parse the JSON body of your request: {error}"}}, status=400)
        asked = Asked(
            time.monotonic(), body, raw, dict(request.headers), request.transport and request.transport.get_extra_info("peername")
        )
        self.asked.append(asked)
        self._news.set()
        self.active += 1
        self.peak = max(self.peak, self.active)
        try:
            reply = self._refusal(asked) or (self._queue.popleft() if self._queue else None) or self._decide(asked) or self._answer(asked)
            return await self._play(request, asked, reply)
        except (asyncio.CancelledError, ConnectionError):
            asked.ended = asked.ended or "left"
            raise
        finally:
            self.active -= 1
            asked.done.set()

    def _answer(self, asked: Asked) -> Reply:
        text = f"Heard: {asked.words}"
        usage = (len(asked.raw) // 4, len(text) // 4)
        if asked.body.stream:
            return says(text, deltas=self.deltas, delay=self.delay, usage=usage)
        message = {"role": "assistant", "content": text}
        return plain(msgspec.json.encode({"model": "fake", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}))

    def _refusal(self, asked: Asked) -> Reply | None:
        if self.api_key and asked.headers.get("Authorization") != f"Bearer {self.api_key}":
            return refuses(401, "Incorrect API key provided: sk-xxxx. You can find your API key at <a href='x'>", code="invalid_api_key")
        if self.models and asked.body.model not in self.models:
            return refuses(404, f"The model `{asked.body.model}` does not exist", code="model_not_found")
        if asked.body.stream_options is not None and not self.stream_options:
            return refuses(400, "Unrecognized request argument supplied: stream_options")
        if self.max_context and len(asked.raw) // 4 > self.max_context:
            return refuses(
                400,
                f"This model's maximum context length is {self.max_context} tokens. However, your messages resulted in "
                f"{len(asked.raw) // 4} tokens. Please reduce the length of the messages.",
                code="context_length_exceeded",
            )
        if self.strict and (said := fault(asked.messages)):
            return refuses(400, said)
        for index, message in enumerate(asked.messages):
            if message.role == "assistant" and message.tool_calls:
                there = message.reasoning_content is not None
                if self.reasoning == "required" and not there:
                    return refuses(400, f"Missing `reasoning_content` field in the assistant message at message index {index}")
                if self.reasoning == "forbidden" and there:
                    return refuses(400, f"messages.{index}: property 'reasoning_content' is unsupported")
        return None

    async def _play(self, request: web.Request, asked: Asked, reply: Reply) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        if reply.before is not None and await self._unusual(reply.before, transport, asked):
            return web.Response()
        response = web.StreamResponse(status=reply.status, headers=dict(reply.headers))
        if not reply.wire:
            await response.prepare(request)
        for step in reply.steps:
            if not isinstance(step, bytes):
                if await self._unusual(step, transport, asked):
                    return response
                continue
            if reply.wire:
                if transport.is_closing():
                    raise ConnectionResetError
                transport.write(step)
            else:
                await response.write(step)
            asked.sent += len(step)
            await asyncio.sleep(0)
        asked.ended = "answered"
        if reply.wire:
            transport.close()
        else:
            await response.write_eof()
        return response

    async def _unusual(self, step: Step, transport: asyncio.Transport, asked: Asked) -> bool:
        """A step that is not bytes. True: the connection is over."""
        match step:
            case asyncio.Event():
                await step.wait()
            case End.HANG:
                await asyncio.Event().wait()
            case End.FIN:
                asked.ended = "cut"
                transport.close()
                return True
            case End.RST:
                asked.ended = "cut"
                # Linger of zero seconds: close sends RST and drops what was not sent; so let it go out first.
                for _ in range(10_000):
                    if not transport.get_write_buffer_size():
                        break
                    await asyncio.sleep(0)
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                transport.abort()
                return True
            case bytes():
                transport.write(step)
            case seconds:
                await asyncio.sleep(seconds)
        return False


@asynccontextmanager
async def nobody() -> AsyncIterator[str]:
    """The address of a port where nobody listens, for as long as the context lasts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, never listening: connections are refused and nobody else gets the port
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
