"""`channels.telegram.files`, through the channel, against the fake service: getFile, then the file's own address."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels.base import Attachment, ChannelError, NotSent, Refused, Retry, TooLarge, Unknown
from channels.telegram.channel import TelegramChannel
from tests.channels.telegram.support import channel_for
from tests.fakes.telegram import FakeTelegram

PASTE = Attachment("file", "F1", "message.txt")


@pytest.fixture
async def tg() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as fake:
        yield fake


@pytest.fixture
async def channel(tg: FakeTelegram, tmp_path: Path) -> AsyncIterator[TelegramChannel]:
    made = channel_for(tg, tmp_path / "telegram")
    await made.start([])
    yield made
    await made.close()


async def fault_of(channel: TelegramChannel, tg: FakeTelegram) -> ChannelError:
    with pytest.raises(ChannelError) as raised:
        await channel.fetch(PASTE, 100)
    assert tg.token not in f"{raised.value!r} {raised.value.__cause__!r} {raised.value.__context__!r}"
    return raised.value


async def test_a_file_is_fetched_up_to_what_is_wanted(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """All of a short one, the beginning of a long one."""
    tg.files["F1"] = b"words " * 100
    assert await channel.fetch(PASTE, 1000) == b"words " * 100
    assert await channel.fetch(PASTE, 10) == b"words word"
    assert [call.params for call in tg.calls_of("getFile")] == [{"file_id": "F1"}] * 2


async def test_a_file_that_bots_do_not_get(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """Over 20 MB getFile says 400, once and for all."""
    tg.files["F1"] = 90_000_000
    assert isinstance(await fault_of(channel, tg), TooLarge)
    assert tg.downloads.asked == []


@pytest.mark.parametrize(
    ("status", "kind"), [(400, Refused), (401, Retry), (429, Retry), (500, Unknown)], ids=["unknown", "token", "flood", "broken"]
)
async def test_a_refusal_says_what_can_be_done(tg: FakeTelegram, channel: TelegramChannel, status: int, kind: type[ChannelError]) -> None:
    """The words of the service as the errors of a channel."""
    tg.fail("getFile", status, "Bad Request: invalid file_id")
    fault = await fault_of(channel, tg)
    assert isinstance(fault, kind)
    assert not isinstance(fault, TooLarge)


@pytest.mark.parametrize("path", ["", "/var/lib/telegram-bot-api/7/documents/f.txt", "../../bot7:T/getMe", None, 5])
async def test_only_a_path_below_the_files_is_asked_for(tg: FakeTelegram, channel: TelegramChannel, path: object) -> None:
    """A server in local mode names files of its own machine, and one that is broken names anything: neither is opened or asked for."""
    body = json.dumps({"ok": True, "result": {"file_id": "F1", "file_path": path}}).encode()
    tg.fail("getFile", 200, lambda _: body)
    assert isinstance(await fault_of(channel, tg), Refused | Unknown)
    assert tg.downloads.asked == []


async def test_a_file_that_is_gone_meanwhile_is_no_bad_token(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """The same status stands for both: a download never stops the channel."""
    tg.files["F1"] = b"x"
    tg.fail("getFile", 200, lambda _: json.dumps({"ok": True, "result": {"file_path": "documents/other file?#.txt"}}).encode())
    fault = await fault_of(channel, tg)
    assert type(fault) is Refused


async def test_a_closed_channel_fetches_nothing(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """It says that nothing was asked."""
    await channel.close()
    assert isinstance(await fault_of(channel, tg), NotSent)
