"""How each of our HTTP clients gets to a server whose name has several addresses, some of which lead nowhere: to the networks' APIs, to
Discord's gateway and to the model. The addresses are real ones on loopback, and what leads nowhere is a socket that takes no connection
any more; only the names are made up.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from discord.http import Route

from channels.base import NotSent
from channels.discord.transport import Http
from channels.telegram.transport import Transport, Unreached
from gateway.backends.base import Text
from gateway.backends.openai import OpenAI
from gateway.errors import BackendError
from gateway.message import ChatMessage, Request
from tests.fakes.openai import delta

QUESTION = Request((ChatMessage("user", "hi"),))


@dataclass
class Names(AbstractResolver):
    """What names resolve to; one that is not in here is looked for until somebody gives up."""

    known: dict[str, tuple[str, ...]]
    asked: int = 0

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        self.asked += 1
        if host not in self.known:
            await asyncio.Event().wait()
        families = {one: socket.AF_INET6 if ":" in one else socket.AF_INET for one in self.known[host]}
        return [ResolveResult(hostname=host, host=one, port=port, family=families[one], proto=0, flags=0) for one in self.known[host]]

    async def close(self) -> None:
        """Nothing is open."""


Client = Callable[[Names, str], Awaitable[None]]
"""Asks the server of that name and port, and is content with its answer."""


async def telegram(names: Names, place: str) -> None:
    transport = Transport(f"http://{place}", "7:T", resolver=names)
    await transport.initialize()
    try:
        assert b"true" in await transport.call("getMe", {}, seconds=20)
    finally:
        await transport.shutdown()


async def discord(names: Names, place: str) -> None:
    http = Http(resolver=names)
    await http.open()
    before, Route.BASE = Route.BASE, f"http://{place}"
    try:
        assert await http.request(Route("GET", "/gateway")) == {"ok": True, "result": True, "data": []}
    finally:
        Route.BASE = before
        await http.close()


async def websocket(names: Names, place: str) -> None:
    http = Http(resolver=names)
    await http.open()
    try:
        opened = await http.ws_connect(f"ws://{place}/socket")
        assert await opened.receive_str() == "hello"
        await opened.close()
    finally:
        await http.close()


async def model(names: Names, place: str) -> None:
    backend = OpenAI(base_url=f"http://{place}/v1", model="fake", env={}, resolver=names)
    try:
        assert [part.text async for part in backend.stream(QUESTION) if isinstance(part, Text)] == ["hi"]
    finally:
        await backend.close()


CLIENTS = pytest.mark.parametrize("client", [telegram, discord, websocket, model])


async def answer(request: web.Request) -> web.StreamResponse:
    """What each of them takes for an answer."""
    if request.path == "/socket":
        opened = web.WebSocketResponse()
        await opened.prepare(request)
        await opened.send_str("hello")
        await opened.receive()
        return opened
    if request.method == "POST" and request.path.startswith("/v1"):
        body = delta("hi") + delta(finish="stop") + b"data: [DONE]\n\n"
        return web.Response(body=body, content_type="text/event-stream")
    return web.json_response({"ok": True, "result": True, "data": []})


async def serve(host: str) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0).start()
    except OSError:
        await runner.cleanup()
        pytest.skip(f"this machine has no {host}")
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server on IPv4 alone."""
    async for found in serve("127.0.0.1"):
        yield found


@pytest.fixture
async def port6() -> AsyncIterator[int]:
    """A server on IPv6 alone."""
    async for found in serve("::1"):
        yield found


@pytest.fixture
def hole(port: int) -> Iterator[str]:
    """An IPv6 address at which, on the server's port, a connection neither comes about nor is refused."""
    full = socket.socket(socket.AF_INET6)
    waiting: list[socket.socket] = []
    try:
        full.bind(("::1", port))
        full.listen(0)
        for _ in range(8):  # more than it has room for
            waiting.append(socket.socket(socket.AF_INET6))
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(("::1", port))
        with socket.socket(socket.AF_INET6) as probe:
            probe.settimeout(0.3)
            with pytest.raises(TimeoutError):
                probe.connect(("::1", port))
        yield "::1"
    except OSError:
        pytest.skip("this machine has no IPv6")
    finally:
        for one in (full, *waiting):
            one.close()


@CLIENTS
async def test_an_address_that_leads_nowhere_is_left_for_another(client: Client, port: int, hole: str) -> None:
    """Behind a broken IPv6 route the server is reached by IPv4 within seconds, however many dead addresses come first."""
    began = time.monotonic()
    await client(Names({"both.test": (hole, "127.0.0.1")}), f"both.test:{port}")
    await client(Names({"both.test": (hole, hole, hole, "127.0.0.1")}), f"both.test:{port}")
    assert time.monotonic() - began < 10


@CLIENTS
async def test_a_server_with_ipv6_alone_is_reached(client: Client, port6: int) -> None:
    """By its name and by its bare address."""
    await client(Names({"six.test": ("::1",)}), f"six.test:{port6}")
    await client(Names({}), f"[::1]:{port6}")


@pytest.mark.looptime
@pytest.mark.parametrize(("client", "fault", "seconds"), [(telegram, Unreached, 10), (discord, NotSent, 10), (model, BackendError, 30)])
async def test_a_name_that_nobody_answers_for_is_given_up(client: Client, fault: type[Exception], seconds: int) -> None:
    """A resolver that hangs costs the time of a connection, after which it is said that nothing was sent; the loop runs meanwhile."""
    loop = asyncio.get_running_loop()
    names, began, ticks = Names({}), loop.time(), 0
    asking = asyncio.ensure_future(client(names, "nobody.test:80"))
    while not asking.done():
        await asyncio.sleep(0.5)
        ticks += 1
    with pytest.raises(fault):
        await asking
    assert names.asked == 1
    assert loop.time() - began <= seconds + 1
    assert ticks >= 2 * seconds - 1
