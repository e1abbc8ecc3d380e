"""Whom a 429 of Discord's means, and what still passes meanwhile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from channels.base import Address, Piece, Retry
from channels.discord.channel import DiscordChannel
from tests.channels.discord.support import running
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import CALLBACK, EDIT_ORIGINAL, SEND

HI = Piece("hi")


def chat(dc: FakeDiscord, user: int) -> Address:
    return Address("discord", str(dc.dm(user)))


async def waits(channel: DiscordChannel, place: Address) -> Retry | None:
    try:
        await channel.send(place, HI)
    except Retry as error:
        return error
    return None


@pytest.mark.parametrize(
    ("body", "headers", "everywhere"),
    [
        ({"global": True}, {}, True),
        ({}, {"X-RateLimit-Global": "true"}, True),
        ({}, {"X-RateLimit-Scope": "global"}, True),
        ({}, {"X-RateLimit-Scope": "shared"}, False),
        ({}, {"X-RateLimit-Scope": "user", "X-RateLimit-Bucket": "b", "X-RateLimit-Remaining": "0"}, False),
    ],
)
async def test_whom_a_wait_means(
    dc: FakeDiscord, started: DiscordChannel, body: dict[str, Any], headers: dict[str, str], everywhere: bool
) -> None:
    """The whole bot where Discord says so in any of its ways, and then nothing is asked; else this channel alone, also where others used
    its limit up."""
    ana, ben = chat(dc, 42), chat(dc, 43)
    dc.fail(SEND, 429, {"retry_after": 40.0} | body, headers=headers)
    told = await waits(started, ana)
    assert told is not None
    assert (told.after, told.everywhere) == (40.0, everywhere)
    before = len(dc.calls)
    other = await waits(started, ben)
    assert (other is not None, len(dc.calls) - before) == (everywhere, 0 if everywhere else 1)


@pytest.mark.parametrize(
    ("body", "headers", "after"),
    [
        (b"<html>error 1015</html>", {"Retry-After": "120"}, 120),
        (b"<html>error 1015</html>", {}, 60),
        (b"", {"Retry-After": "999999"}, 3600),
        (json.dumps({"message": "You are being blocked from accessing our API", "code": 0}).encode(), {}, 60),
        (json.dumps({"message": "You are being rate limited.", "retry_after": 7.5, "global": False}).encode(), {}, 7.5),
    ],
)
async def test_the_wall_in_front_shuts_everything_out(
    dc: FakeDiscord, started: DiscordChannel, body: bytes, headers: dict[str, str], after: float
) -> None:
    """What did not come from the API (there is no `Via`) is about our address: nothing is asked in any channel for as long as it lasts,
    at least a minute where it does not say so in words, an hour at most."""
    dc.fail(SEND, 429, body, headers=headers)
    told = await waits(started, chat(dc, 42))
    assert told is not None
    assert (told.after, told.everywhere) == (after, True)
    before = len(dc.calls)
    assert await waits(started, chat(dc, 43)) is not None
    with pytest.raises(Retry):
        await started.send(chat(dc, 43), HI, reply_to="ticket:1:42:token")
    assert len(dc.calls) == before


async def test_a_command_is_acknowledged_and_answered_in_a_wait_of_the_whole_bot(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """What answers an interaction is not bound by the global limit: neither the acknowledgement nor what is said by the ticket waits."""
    async with running(dc, channel) as gateway:
        ana = chat(dc, 42)
        dc.fail(SEND, 429, {"retry_after": 40.0, "global": True})
        assert await waits(channel, ana) is not None
        item = dc.slash(int(ana.chat), "status", user=42)
        await dc.wait_for(lambda: gateway.inbounds)
        assert item.acknowledged is not None
        await channel.send(ana, Piece("Fine."), reply_to=gateway.inbounds[0].ticket, nonce="n")
        assert dc.visible(int(ana.chat)) == ["Fine."]
        assert (len(dc.calls_of(CALLBACK)), len(dc.calls_of(EDIT_ORIGINAL)), len(dc.calls_of(SEND))) == (1, 1, 1)
