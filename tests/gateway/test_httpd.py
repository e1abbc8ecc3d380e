"""The daemon's HTTP server and its token: `gateway.httpd`."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from channels.guard import Guard
from channels.settings import Secret
from gateway.errors import StartError
from gateway.httpd.report import ChannelHealth, Health
from gateway.httpd.server import HttpServer, Listen, parse_listen
from gateway.httpd.token import web_token

TOKEN = "t0ken-of-the-test"
GOOD = Health(ready=True, channels={"web": ChannelHealth("up", last_sign_of_life=1.5)}, backend="echo, fine")
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def serving(
    listen: str = "127.0.0.1:0",
    health: Health = GOOD,
    *,
    token: str = TOKEN,
    hosts: Sequence[str] = (),
    routes: Sequence[web.RouteDef] = (),
) -> AsyncIterator[HttpServer]:
    server = HttpServer(listen, routes, lambda: health, hosts=hosts, token=token)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


async def get(url: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:
        return answer.status, await answer.text()


async def test_healthz_is_for_anybody() -> None:
    """While the loop lives it is 200, without a token and under any host name, and says nothing else."""
    async with serving(health=Health(ready=False)) as server:
        assert await get(f"{server.address}/healthz") == (200, "ok\n")
        assert await get(f"{server.address}/healthz", {"Host": "10.1.2.3"}) == (200, "ok\n")


async def test_readyz_says_how_each_part_is() -> None:
    """200 with a report when all is well, 503 with the same report when not."""
    async with serving() as server:
        status, body = await get(f"{server.address}/readyz", BEARER)
        assert status == 200
        assert json.loads(body) == {
            "ready": True,
            "channels": {"web": {"state": "up", "problem": "", "last_sign_of_life": 1.5}},
            "backend": "echo, fine",
            "backend_problem": "",
            "backend_remedy": "",
            "disk": "",
            "disk_free": None,
            "oldest_waiting": None,
            "longest_turn": None,
            "restarted": {},
            "stuck": "",
            **dict.fromkeys(("turns", "waiting", "lanes", "unsent"), 0),
        }
    down = Health(ready=False, channels={"telegram": ChannelHealth("down", "no answer")}, disk="full", unsent=3, oldest_waiting=12.5)
    async with serving(health=down) as server:
        status, body = await get(f"{server.address}/readyz", BEARER)
        assert status == 503
        assert '"disk":"full"' in body
        assert '"oldest_waiting":12.5' in body


async def test_readyz_is_of_now() -> None:
    """Who is asked how it is looks first, and answers then."""
    seen: list[str] = []

    async def look() -> None:
        await asyncio.sleep(0)
        seen.append("looked")

    def health() -> Health:
        return Health(ready=seen == ["looked"])

    server = HttpServer("127.0.0.1:0", (), health, hosts=(), token=TOKEN, look=look)
    await server.start()
    try:
        assert (await get(f"{server.address}/readyz", BEARER))[0] == 200
    finally:
        await server.close()


async def test_readyz_needs_the_token_or_the_pages_cookie() -> None:
    """Nothing of the report without it; the cookie of the web page is as good; guessing is slowed down."""
    guard = Guard(TOKEN)
    async with serving() as server:
        url = f"{server.address}/readyz"
        for headers in (
            {},
            {"Authorization": "Bearer x"},
            {"Authorization": "Basic eDp5"},
            {"Authorization": "Bearer "},
            {"Cookie": f"{guard.cookie_name}=x"},
        ):
            status, body = await get(url, headers)
            assert (status, "channels" in body) == (401, False)
        assert (await get(f"{url}?token={TOKEN}"))[0] == 401
        assert (await get(url, {"Cookie": f"{guard.cookie_name}={guard.cookie}"}))[0] == 200
        assert (await get(url, {**BEARER, "Host": "evil.example"}))[0] == 403
        for _ in range(30):
            await get(url, {"Authorization": "Bearer guess"})
        assert (await get(url, BEARER))[0] == 429


async def test_without_a_token_readyz_is_closed() -> None:
    """An empty token is no token: nobody gets in by showing nothing."""
    async with serving(token="") as server:
        for headers in ({}, {"Authorization": "Bearer "}, {"Cookie": f"{Guard('').cookie_name}={Guard('').cookie}"}):
            assert (await get(f"{server.address}/readyz", headers))[0] == 401


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "example.org:0", "10.0.0.1:0"])
async def test_an_open_door_is_not_opened(listen: str) -> None:
    """Where other machines reach the server an empty token stops the start, with one line."""
    with pytest.raises(StartError, match="no token") as told:
        await HttpServer(listen, (), lambda: GOOD, hosts=(), token="").start()
    assert "\n" not in str(told.value)


async def test_a_taken_port_is_told_in_one_line() -> None:
    """The line says which address; nothing of the server is left."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(StartError) as told:
            await HttpServer(listen, (), lambda: GOOD, hosts=(), token=TOKEN).start()
    assert str(told.value) == f"cannot listen on {listen}: {os.strerror(errno.EADDRINUSE)}"


@pytest.mark.parametrize(
    "listen", ["", "8787", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "::1:8787", "unix:web.sock", ":80", "[::1]", "127.0.0.1:-1"]
)
async def test_what_is_no_address_is_told(listen: str) -> None:
    """A listen value that is none stops the start with a line that shows it."""
    with pytest.raises(StartError) as told:
        await HttpServer(listen, (), lambda: GOOD, hosts=(), token=TOKEN).start()
    assert repr(listen) in str(told.value)


async def test_an_address_of_another_machine_and_a_name_of_nobody_are_told() -> None:
    """What the system says, in one line, for both."""
    for listen in ("192.0.2.1:0", "no-such-host.invalid:0"):
        with pytest.raises(StartError, match=f"cannot listen on {listen.replace('.', '[.]')}: .*[a-z]"):
            await HttpServer(listen, (), lambda: GOOD, hosts=(), token=TOKEN).start()
    with pytest.raises(StartError, match="hosts"):
        await HttpServer("127.0.0.1:0", (), lambda: GOOD, hosts=("https://x",), token=TOKEN).start()


def test_addresses_in_every_form() -> None:
    """Host and port, IPv6 in brackets, a Unix socket's path."""
    assert parse_listen("127.0.0.1:8787") == Listen("127.0.0.1", 8787)
    assert parse_listen("[::1]:8787") == Listen("::1", 8787)
    assert parse_listen("localhost:0") == Listen("localhost", 0)
    assert parse_listen("unix:/run/parlour/web.sock") == Listen("", 0, "/run/parlour/web.sock")


async def test_ipv6() -> None:
    """It listens there, and its address can be opened."""
    async with serving("[::1]:0") as server:
        assert server.address.startswith("http://[::1]:")
        assert (await get(f"{server.address}/readyz", BEARER))[0] == 200


async def test_a_unix_socket(tmp_path: Path) -> None:
    """It is not for everybody, is taken over from a killed daemon, refused where somebody answers, and gone after the end."""
    path = tmp_path / "web.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    async with serving(f"unix:{path}", token="") as server:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as http,
            http.get("http://localhost/healthz") as answer,
        ):
            assert answer.status == 200
        with pytest.raises(StartError, match=os.strerror(errno.EADDRINUSE)):
            await HttpServer(f"unix:{path}", (), lambda: GOOD, hosts=(), token=TOKEN).start()
        assert server.address == ""
    assert not path.exists()
    path.write_text("precious")
    with pytest.raises(StartError):
        await HttpServer(f"unix:{path}", (), lambda: GOOD, hosts=(), token=TOKEN).start()
    assert path.read_text() == "precious"


async def test_channels_bring_their_routes_and_a_hanging_one_does_not_hold_up_the_end() -> None:
    """A request that never ends is cut after a moment when the server closes."""
    begun = asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        begun.set()
        await asyncio.Event().wait()
        return web.Response()

    async with serving(routes=[web.get("/hang", hang)]) as server:
        asking = asyncio.create_task(get(f"{server.address}/hang"))
        await begun.wait()
        async with asyncio.timeout(5):
            await server.close()
            await server.close()
        with pytest.raises(aiohttp.ClientError):
            await asking


async def test_close_without_start() -> None:
    """Harmless."""
    await HttpServer("127.0.0.1:0", (), lambda: GOOD, hosts=(), token=TOKEN).close()


async def test_no_request_line_comes_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Good requests, bad ones and torn ones with the token in them: no log line at any level has it."""
    caplog.set_level(logging.DEBUG)
    async with serving() as server:
        await get(f"{server.address}/healthz?token={TOKEN}")
        await get(f"{server.address}/nothing?token={TOKEN}", BEARER)
        host, _, port = server.address.removeprefix("http://").partition(":")
        for line in (
            f"GET /?token={TOKEN} HTTP/9.9\r\n\r\n",
            f"G@T /?token={TOKEN}\r\n\r\n",
            f"GET / HTTP/1.1\r\nAuthorization {TOKEN}\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(line.encode())
            assert b" 400 " in await reader.readline()
            writer.close()
            await writer.wait_closed()
    assert TOKEN not in caplog.text


# -------------------------------------------------------------------------------------------------------------------- the token


def test_the_operators_token_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[http].token before the environment before the file; nothing is written where one is given."""
    monkeypatch.setenv("PARLOUR_WEB_TOKEN", " from-env\n")
    assert web_token(tmp_path, "from-config") == "from-config"
    assert web_token(tmp_path, Secret("from-config")) == "from-config"
    assert type(web_token(tmp_path, Secret("from-config"))) is str
    assert web_token(tmp_path, "") == "from-env"
    assert list(tmp_path.iterdir()) == []


def test_a_token_is_made_once_and_kept_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first start makes one, 0600 in a private folder; the next starts read it; an emptied file gets a new one."""
    monkeypatch.delenv("PARLOUR_WEB_TOKEN", raising=False)
    data = tmp_path / "data"
    token = web_token(data, "")
    path = data / "web-token"
    assert len(token) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert [child.name for child in data.iterdir()] == ["web-token"]
    path.chmod(0o644)
    assert web_token(data, "") == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("\n")
    assert web_token(data, "") not in ("", token)


def test_a_token_file_that_cannot_be_used_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link, a folder, bytes that are no text: one line with the path, and nothing is replaced."""
    monkeypatch.delenv("PARLOUR_WEB_TOKEN", raising=False)
    path = tmp_path / "web-token"
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartError, match=str(path)):
        web_token(tmp_path, "")
    assert path.is_symlink()
    path.unlink()
    path.mkdir()
    with pytest.raises(StartError, match=str(path)):
        web_token(tmp_path, "")
    path.rmdir()
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(StartError, match="not a text"):
        web_token(tmp_path, "")
    assert path.read_bytes() == b"\xff\xfe"
