"""`channels.download`, from a real server on loopback."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from channels.base import ChannelError, NotSent, Refused, Retry, Unknown
from channels.download import download

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[URL]]
SECRET = "TOKEN"


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    runners: list[web.AppRunner] = []

    async def start(handler: Handler) -> URL:
        app = web.Application()
        app.router.add_get(f"/{SECRET}", handler)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0, handler_cancellation=True)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return URL(f"http://127.0.0.1:{runner.addresses[0][1]}/{SECRET}")

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def connector() -> AsyncIterator[aiohttp.TCPConnector]:
    made = aiohttp.TCPConnector()
    yield made
    await made.close()


async def fault_of(connector: aiohttp.BaseConnector, url: URL, *, stall: float = 5.0) -> ChannelError:
    with pytest.raises(ChannelError) as raised:
        await download(connector, url, 100, stall=stall)
    assert SECRET not in f"{raised.value!r} {raised.value.__cause__!r} {raised.value.__context__!r}"
    return raised.value


async def test_no_more_is_read_than_asked_for(serve: Serve, connector: aiohttp.TCPConnector) -> None:
    """Whatever the server says of the length: what has no end ends all the same, and its connection with it."""
    ended = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000000000000"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 1000)
        finally:
            ended.set()

    assert await download(connector, await serve(endless), 2500) == b"x" * 2500
    async with asyncio.timeout(10):
        await ended.wait()


async def test_a_shorter_file_is_all_there(serve: Serve, connector: aiohttp.TCPConnector) -> None:
    """Fewer bytes than asked for: that was it. Credentials are not sent."""

    async def short(request: web.Request) -> web.StreamResponse:
        assert "Authorization" not in request.headers
        return web.Response(body="äöü".encode())

    assert await download(connector, await serve(short), 100) == "äöü".encode()


async def test_what_stops_on_its_way_is_given_up(serve: Serve, connector: aiohttp.TCPConnector) -> None:
    """A download that stalls has a time limit of its own."""

    async def stalls(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "50"})
        await response.prepare(request)
        await response.write(b"x" * 25)
        await asyncio.Event().wait()
        return response

    assert isinstance(await fault_of(connector, await serve(stalls), stall=0.2), Unknown)


async def test_what_breaks_off_is_not_taken_for_the_whole(serve: Serve, connector: aiohttp.TCPConnector) -> None:
    """A part of a file is never passed off as all of it."""

    async def breaks(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "50"})
        await response.prepare(request)
        await response.write(b"x" * 25)
        assert request.transport is not None
        request.transport.abort()
        return response

    assert isinstance(await fault_of(connector, await serve(breaks)), Unknown)


async def test_nothing_is_unpacked(serve: Serve, connector: aiohttp.TCPConnector) -> None:
    """A few bytes can stand for very many: what comes packed although nobody asked for it is refused."""

    async def bomb(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept-Encoding"] == "identity"
        return web.Response(body=gzip.compress(bytes(10**6)), headers={"Content-Encoding": "gzip"})

    assert isinstance(await fault_of(connector, await serve(bomb)), Refused)


async def test_no_redirect_is_followed(serve: Serve, connector: aiohttp.TCPConnector) -> None:
    """Only the address that was checked is asked."""
    asked: list[str] = []

    async def inner(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response(body=b"internal")

    target = await serve(inner)

    async def redirects(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(str(target))

    assert isinstance(await fault_of(connector, await serve(redirects)), Refused)
    assert asked == []


@pytest.mark.parametrize(("status", "kind"), [(404, Refused), (403, Refused), (429, Retry), (500, Unknown), (503, Unknown)])
async def test_a_status_says_what_can_be_done(serve: Serve, connector: aiohttp.TCPConnector, status: int, kind: type[ChannelError]) -> None:
    """Gone for good, later, or nobody knows."""

    async def answers(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Retry-After": "7"})

    fault = await fault_of(connector, await serve(answers))
    assert isinstance(fault, kind)
    if isinstance(fault, Retry):
        assert fault.after == 7


async def test_it_goes_through_the_proxy_of_the_channel(serve: Serve, connector: aiohttp.TCPConnector) -> None:
    """Which has to find the server's name: nobody else asks for it."""
    asked: list[str] = []

    async def forwards(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers["Host"])
        return web.Response(body=b"by proxy")

    proxy = await serve(forwards)
    assert await download(connector, URL(f"http://files.test/{SECRET}"), 100, proxy=str(proxy.origin())) == b"by proxy"
    assert asked == ["files.test"]


async def test_a_server_that_is_not_there(connector: aiohttp.TCPConnector) -> None:
    """Nothing was asked of anybody: it can be tried again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = URL(f"http://127.0.0.1:{probe.getsockname()[1]}/{SECRET}")
        assert isinstance(await fault_of(connector, url), NotSent)
