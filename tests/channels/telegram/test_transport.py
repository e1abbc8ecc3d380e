"""`channels.telegram.transport` and `errors`, with the real library on top and the fake service below."""

from __future__ import annotations

import asyncio
import logging
import socket
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from telegram import Bot
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, TelegramError

from channels.base import Denied, Gone, Lost, NotSent, Refused, Rejected, Retry, Unknown
from channels.telegram.errors import translate
from channels.telegram.transport import API, FILES, Flood, Transport, Unanswered, Unreached, refusal
from tests.fakes.telegram import FakeTelegram

TOKEN = "123456:TESTTOKEN"


@asynccontextmanager
async def bot_for(base: str, *, proxy: str = "", seconds: float = 2.0, idle: float = 5.0) -> AsyncIterator[Bot]:
    transport = Transport(base, TOKEN, proxy=proxy, read_seconds=seconds, media_seconds=seconds, idle_seconds=idle)
    await transport.initialize()
    try:
        yield Bot("unused", base_url=lambda _: API, base_file_url=lambda _: FILES, request=transport, get_updates_request=transport)
    finally:
        await transport.shutdown()
        await transport.shutdown()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def fault_of(bot: Bot) -> TelegramError:
    with pytest.raises(TelegramError) as raised:
        await bot.send_message(42, "hello")
    return raised.value


async def test_a_read_timeout_says_that_nobody_knows() -> None:
    """B24: the message was taken and the answer is late: Unanswered, and exactly one message is there."""
    async with FakeTelegram() as tg, bot_for(tg.base_url, seconds=0.2) as bot:
        held = tg.hold("sendMessage")
        assert isinstance(await fault_of(bot), Unanswered)
        assert tg.visible(42) == ["hello"]
        held.release()


async def test_a_refused_connection_says_that_nothing_happened() -> None:
    """B24: no connection, no effect: Unreached."""
    async with bot_for(f"http://127.0.0.1:{free_port()}") as bot:
        fault = await fault_of(bot)
    assert isinstance(fault, Unreached)
    assert "127.0.0.1" in str(fault)


async def test_a_name_that_does_not_resolve_says_that_nothing_happened() -> None:
    """A DNS failure is Unreached."""
    async with bot_for("http://no-such-host.invalid") as bot:
        assert isinstance(await fault_of(bot), Unreached)


async def test_a_failed_handshake_says_that_nothing_happened() -> None:
    """TLS with something that does not speak it: Unreached."""
    async with FakeTelegram() as tg, bot_for(tg.base_url.replace("http:", "https:")) as bot:
        assert isinstance(await fault_of(bot), Unreached)
        assert tg.calls == []


MESSAGE = b'{"message_id":7,"date":1,"chat":{"id":42,"type":"private"},"text":%s}'
DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("result", "number"),
    [
        (MESSAGE % b'"hello"', 7),
        (b"true", 0),
        (MESSAGE % rb'"half a character: \ud83d"', 7),
        (MESSAGE % b'"no UTF-8: \xff"', 7),
        (MESSAGE % b"NaN", 7),
        (MESSAGE % DEEP, None),
        (b"false", None),
        (b"null", None),
        (b"[]", None),
        (b"{}", None),
        (b'{"message_id":true}', None),
        (b'{"message_id":7.5}', None),
        (b'{"message_id":NaN}', None),
        (rb'"\ud800"', None),
        (rb'{"message_id":"\ud800"}', None),
        (rb'{"\ud800":7}', None),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_of_an_answer_only_the_number_must_be_sound(result: bytes, number: int | None) -> None:
    """What else a server puts into it does no harm; where the number itself is none, nobody knows what became of the words. Never anything
    but a TelegramError, which a lane knows how to meet."""
    async with FakeTelegram() as tg, bot_for(tg.base_url) as bot:
        tg.fail("sendMessage", 200, b'{"ok":true,"result":%s}' % result)
        transport = bot.request
        assert isinstance(transport, Transport)
        if number is None:
            with pytest.raises(Unanswered):
                await transport.say("sendMessage", {"chat_id": 42, "text": "hello"})
        else:
            assert await transport.say("sendMessage", {"chat_id": 42, "text": "hello"}) == number


@pytest.mark.parametrize("after", [False, True])
async def test_a_cut_connection_says_that_nobody_knows(after: bool) -> None:
    """From our side a reset before the effect and one after it are the same."""
    async with FakeTelegram() as tg, bot_for(tg.base_url) as bot:
        tg.drop("sendMessage", after=after)
        assert isinstance(await fault_of(bot), Unanswered)
        assert tg.visible(42) == (["hello"] if after else [])
        assert len(tg.calls) == 1, "a POST is never repeated by the transport"


async def test_an_idle_connection_is_not_used_again() -> None:
    """A send goes over a connection that was used a moment ago, and never over one that was idle for longer."""
    async with FakeTelegram() as tg, bot_for(tg.base_url, idle=0.2) as bot:
        await bot.send_message(42, "1")
        await bot.send_message(42, "2")
        await asyncio.sleep(0.3)  # the point of the test: real idle time
        await bot.send_message(42, "3")
        first, second, third = (call.peer for call in tg.calls)
        assert first == second != third


async def test_many_sends_at_once_do_not_wait_for_each_other() -> None:
    """There is no limit on connections: a hundred held sends do not stop the next."""
    async with FakeTelegram() as tg, bot_for(tg.base_url, seconds=10) as bot:
        held = tg.hold("sendMessage", chat=1, times=None)
        sends = [asyncio.create_task(bot.send_message(1, f"{n}")) for n in range(100)]
        await tg.wait_for(lambda: held.hits == 100)
        await bot.send_message(2, "through")
        held.release()
        await asyncio.gather(*sends)
        assert len(tg.visible(1)) == 100


async def test_an_upload_arrives_with_its_name() -> None:
    """Files go as multipart; a name that is not ASCII is sent as it is and not in percent signs."""
    async with FakeTelegram() as tg, bot_for(tg.base_url) as bot:
        await bot.send_document(42, b"x" * 100_000, filename="Übersicht 1.txt", caption="für dich")
        (shown,) = tg.messages(42)
        assert shown.file is not None
        assert (shown.text, shown.file["file_name"], shown.file["file_size"]) == ("für dich", "Übersicht 1.txt", 100_000)


async def test_a_download_goes_to_the_file_server() -> None:
    """B29: a file's content is got by the library's own way; a refusal is an error like the others, without the address."""
    async with FakeTelegram() as tg, bot_for(tg.base_url) as bot:
        tg.files |= {"a": b"content", "big": 90_000_000}
        assert bytes(await (await bot.get_file("a")).download_as_bytearray()) == b"content"
        with pytest.raises(BadRequest, match="File is too big"):
            await bot.get_file("big")
        file = await bot.get_file("a")
        del tg.files["a"]
        with pytest.raises(TelegramError) as raised:
            await file.download_as_bytearray()
        assert_silent("".join(traceback.format_exception(raised.value)))


def assert_silent(text: str) -> None:
    for secret in ("TESTTOKEN", "123456:", "hush"):
        assert secret not in text


async def test_no_failure_shows_the_token(caplog: pytest.LogCaptureFixture) -> None:
    """F01, F02: whatever breaks, neither the exception with its whole chain nor any logger at any level shows the token or a password."""
    caplog.set_level(logging.DEBUG)
    closed = f"http://127.0.0.1:{free_port()}"
    told: list[str] = []
    async with FakeTelegram() as tg:
        secure = tg.base_url.replace("http:", "https:")
        proxy = f"http://me:hush@127.0.0.1:{free_port()}"
        for base, through in ((closed, ""), (secure, ""), ("http://no-such-host.invalid", ""), (tg.base_url, proxy), (secure, proxy)):
            async with bot_for(base, proxy=through) as bot:
                fault = await fault_of(bot)
                assert isinstance(fault, Unreached), base
                told += traceback.format_exception(fault)
        async with bot_for(tg.base_url, seconds=0.2) as bot:
            for status in (200, 301, 400, 401, 403, 404, 429, 500, 502):
                tg.fail("sendMessage", status, b"<html>" + TOKEN.encode() if status == 502 else None)
                told += traceback.format_exception(await fault_of(bot))
            tg.drop("sendMessage")
            told += traceback.format_exception(await fault_of(bot))
            tg.hold("sendMessage", before=True)
            told += traceback.format_exception(await fault_of(bot))
            told += traceback.format_exception(translate(await fault_of_message(bot, "x" * 5000)))
            told += traceback.format_exception(await fault_of_message(bot, "half \ud83d"))
        told.append(repr(Transport(tg.base_url, TOKEN)))
    assert len(told) > 30
    assert_silent("".join(told))
    assert caplog.records
    assert_silent("".join(record.getMessage() + str(record.exc_text) for record in caplog.records))


async def fault_of_message(bot: Bot, text: str) -> TelegramError:
    with pytest.raises(TelegramError) as raised:
        await bot.send_message(42, text)
    return raised.value


async def test_a_proxy_carries_the_request() -> None:
    """With a proxy set, the request goes to it and not to the service; its refusal is Unreached for https (no tunnel)."""
    heads: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    address = f"http://me:hush@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with bot_for("https://api.telegram.example", proxy=address) as bot:
            fault = await fault_of(bot)
        assert isinstance(fault, Unreached)
        assert "407" in str(fault)
    finally:
        server.close()
        await server.wait_closed()
    assert heads[0].startswith(b"CONNECT api.telegram.example:443 ")
    assert b"Proxy-Authorization: Basic" in heads[0]


async def test_the_environments_proxies_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """F21: only the channel's own `proxy` counts, whatever ALL_PROXY and the others say."""
    for name in ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "socks://127.0.0.1:1")
    async with FakeTelegram() as tg, bot_for(tg.base_url) as bot:
        await bot.send_message(42, "hello")
        assert tg.visible(42) == ["hello"]


# ------------------------------------------------------------------------------------------------------------------------- refusals


def said(status: int, description: str, **more: object) -> TelegramError:
    import json

    return refusal(status, json.dumps({"ok": False, "error_code": status, "description": description} | more).encode())


@pytest.mark.parametrize(
    ("status", "description", "kind"),
    [
        (401, "Unauthorized", Denied),
        (404, "Not Found", Denied),
        (404, "Not Found: method not found", Refused),
        (403, "Forbidden: bot was blocked by the user", Gone),
        (403, "Forbidden: bot was kicked from the supergroup chat", Gone),
        (403, "Forbidden: user is deactivated", Gone),
        (400, "Bad Request: chat not found", Gone),
        (400, "Bad Request: not enough rights to send text messages to the chat", Gone),
        (400, "Bad Request: have no rights to send a message", Gone),
        (400, "Bad Request: CHAT_WRITE_FORBIDDEN", Gone),
        (400, "Bad Request: message thread not found", Gone),
        (400, "Bad Request: TOPIC_CLOSED", Gone),
        (400, "Bad Request: message to edit not found", Lost),
        (400, "Bad Request: message can't be edited", Lost),
        (400, "Bad Request: MESSAGE_ID_INVALID", Lost),
        (400, "Bad Request: message to delete not found", Lost),
        (400, "Bad Request: can't parse entities: entity beginning at byte offset 3", Rejected),
        (400, "Bad Request: message is too long", Rejected),
        (400, "Bad Request: MESSAGE_TOO_LONG", Rejected),
        (400, "Bad Request: message text is empty", Rejected),
        (400, "Bad Request: BUTTON_DATA_INVALID", Rejected),
        (413, "Request Entity Too Large", Rejected),
        (500, "Internal Server Error", Unknown),
        (502, "Bad Gateway", Unknown),
        (504, "Gateway Timeout", Unknown),
        (409, "Conflict: terminated by other getUpdates request", Refused),
    ],
)
def test_the_services_words(status: int, description: str, kind: type[Exception]) -> None:
    """B21: each refusal comes to what can be done about it."""
    assert type(translate(said(status, description))) is kind


def test_waiting_is_always_a_sensible_time() -> None:
    """429 gives Retry with the seconds that Telegram says, wherever it says them, and never a time that makes no sense."""
    fault = said(429, "Too Many Requests: retry after 33", parameters={"retry_after": 33})
    assert isinstance(fault, Flood)
    waits = [fault.after]
    for payload, header in ((b"<html>", "7"), (b"<html>", ""), (b"<html>", "Wed, 21 Oct"), (b"<html>", "nan"), (b"<html>", "-3")):
        found = translate(refusal(429, payload, header))
        assert isinstance(found, Retry)
        waits.append(found.after)
    assert waits == [33, 7, 5, 5, 5, 5]


def test_a_moved_group_is_told_apart() -> None:
    """B04: the new id is in the error."""
    fault = said(400, "Bad Request: group chat was upgraded to a supergroup chat", parameters={"migrate_to_chat_id": -1001500})
    assert isinstance(fault, ChatMigrated)
    assert fault.new_chat_id == -1001500


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409])
@pytest.mark.parametrize("payload", [b"", b"<html>no</html>", b"[]", b'{"ok":true}', b"\xff\xfe", b'{"error":"portal"}'])
def test_strangers_refuse_nothing_for_telegram(status: int, payload: bytes) -> None:
    """A page that is not the Bot API's cannot end the bot or a chat: the outcome is unknown, that is all."""
    fault = refusal(status, payload)
    assert type(fault) is Unanswered
    assert not isinstance(fault, InvalidToken | Forbidden | Conflict | BadRequest)
    assert isinstance(translate(fault), Unknown)
    assert isinstance(translate(Unreached("x")), NotSent)
