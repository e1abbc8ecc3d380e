"""`channels.telegram.webhook`, alone and as the channel's way of reading."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import pytest
from aiohttp import ClientSession

from channels.base import NotSent
from channels.telegram.settings import Settings, secret_of
from channels.telegram.webhook import BODY_LIMIT, HEADER, Webhook
from tests.channels.telegram.support import Gateway, channel_for
from tests.fakes.telegram import FakeTelegram


class Taker:
    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.full = 0

    async def take(self, updates: Sequence[bytes]) -> None:
        if self.full:
            self.full -= 1
            raise OSError(28, "No space left on device")
        self.taken += updates


@asynccontextmanager
async def listening(secret: str = "s3cret") -> AsyncIterator[tuple[Taker, Webhook, ClientSession, str]]:
    taker = Taker()
    webhook = Webhook("127.0.0.1:0", secret, taker.take)
    await webhook.start()
    try:
        async with ClientSession() as session:
            yield taker, webhook, session, f"http://127.0.0.1:{webhook.port}/telegram"
    finally:
        await webhook.close()
        await webhook.close()


async def test_only_who_shows_the_secret_is_heard() -> None:
    """B27: without it, with an empty one, a wrong one, part of it, or with two: 401 and no effect, whatever the body is."""
    async with listening() as (taker, webhook, session, url):
        for headers in ([], [""], ["wrong"], ["s3cre"], ["s3cretx"], ["S3CRET"], ["s3cret", "wrong"], ["sécret"]):
            async with session.post(url, data=b'{"update_id":1}', headers=[(HEADER, value) for value in headers]) as response:
                assert response.status == 401, headers
                assert await response.read() == b""
        async with session.post(url, data=BytesIO(b"x" * (BODY_LIMIT + 1))) as response:
            assert response.status == 401
        assert (taker.taken, webhook.last, webhook.refused) == ([], 0.0, 9)
        async with session.post(url, data=b'{"update_id":1}', headers={HEADER: "s3cret"}) as response:
            assert response.status == 200
        assert taker.taken == [b'{"update_id":1}']
        assert webhook.last > 0


async def test_there_is_no_webhook_without_a_secret() -> None:
    """B27: an empty secret would take anybody's word."""
    with pytest.raises(ValueError, match="secret"):
        Webhook("127.0.0.1:0", "", Taker().take)


async def test_what_could_not_be_written_is_not_taken() -> None:
    """503 asks for it again."""
    async with listening() as (taker, _, session, url):
        taker.full = 1
        for status in (503, 200):
            async with session.post(url, data=b"{}", headers={HEADER: "s3cret"}) as response:
                assert response.status == status
        assert taker.taken == [b"{}"]


async def test_too_large_a_body_and_other_methods_are_refused() -> None:
    """What is no update of Telegram's is not read into memory."""
    async with listening() as (taker, _, session, url):
        async with session.post(url, data=BytesIO(b"x" * (BODY_LIMIT + 1)), headers={HEADER: "s3cret"}) as response:
            assert response.status == 413
        async with session.get(url, headers={HEADER: "s3cret"}) as response:
            assert response.status == 405
        assert taker.taken == []


async def test_a_broken_request_does_not_get_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Neither the secret that may be in it nor anything else of it, nor a traceback of whoever leaves in the middle; 4xx or nothing."""
    caplog.set_level(logging.DEBUG)
    async with listening() as (taker, _, _, url):
        host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
        for head in (
            f"POST / HTTP/1.1\r\nX {HEADER}: s3cret\r\n\r\n",
            f"PO ST / HTTP/1.1\r\n{HEADER}: s3cret\r\n\r\n",
            f"POST / HTTP/1.1\r\n{HEADER}: s3cret\r\nContent-Length: 50\r\n\r\n{{",
            f"POST / HTTP/1.1\r\n{HEADER}: s3cret\r\nTransfer-Encoding: chunked\r\n\r\ns3cret\r\n",
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(head.encode())
            writer.write_eof()
            assert (await reader.read())[9:10] in (b"4", b"")
            writer.close()
        assert taker.taken == []
    assert "s3cret" not in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_taken_port_is_a_clear_sentence() -> None:
    """The supervisor can say what is wrong, and try again."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        with pytest.raises(NotSent, match=f"cannot listen on 127.0.0.1:{port}: .*in use"):
            await Webhook(f"127.0.0.1:{port}", "s", Taker().take).start()


# ----------------------------------------------------------------------------------------------------------------- with the channel


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@asynccontextmanager
async def reading(tg: FakeTelegram, folder: Path, gateway: Gateway) -> AsyncIterator[None]:
    port = free_port()
    webhook = {"mode": "webhook", "webhook_url": f"http://127.0.0.1:{port}/tg", "webhook_listen": f"127.0.0.1:{port}"}
    channel = channel_for(tg, folder, **webhook)
    await channel.start([])
    task = asyncio.create_task(channel.run(gateway.accept))
    try:
        yield
        assert channel.last_sign_of_life() > 0
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await channel.close()


async def test_the_whole_way(tmp_path: Path) -> None:
    """B03, B11: what waited comes in order; what nobody can read is taken and counted, and does not stop what is behind it."""
    async with FakeTelegram() as tg:
        gateway = Gateway()
        for text in ("a", "b"):
            tg.say(42, text)
        tg.push("not an update")
        tg.push({"message": {"message_id": "x"}})
        tg.push({"message_reaction": {}})
        tg.say(42, "c")
        async with reading(tg, tmp_path, gateway):
            await tg.wait_for(lambda: not tg.pending)
        assert gateway.texts == ["a", "b", "c"]
        assert set(tg.webhook_posts) == {200}
        assert tg.resets == []
        assert tg.webhook_secret == secret_of(Settings(), tg.token)


async def test_telegram_brings_it_again_until_it_is_written(tmp_path: Path) -> None:
    """B02: 200 means written; until then Telegram keeps it, and order is kept."""
    async with FakeTelegram() as tg:
        gateway = Gateway()
        gateway.full = 2
        async with reading(tg, tmp_path, gateway):
            tg.say(42, "a")
            tg.say(42, "b")
            await tg.wait_for(lambda: not tg.pending)
        assert gateway.texts == ["a", "b"]
        assert tg.webhook_posts == [503, 503, 200, 200]


async def test_the_webhook_stays_over_a_stop(tmp_path: Path) -> None:
    """While the daemon is down Telegram keeps what comes, and brings it after the start."""
    async with FakeTelegram() as tg:
        gateway = Gateway()
        async with reading(tg, tmp_path, gateway):
            await tg.wait_for(lambda: tg.webhook_url)
        tg.say(42, "while away")
        assert tg.webhook_url
        async with reading(tg, tmp_path, gateway):
            await tg.wait_for(lambda: gateway.texts == ["while away"])
