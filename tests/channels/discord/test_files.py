"""`channels.discord.files`, through the channel, against the fake service: the message's address of today, then the file."""

from __future__ import annotations

import pytest

from channels.base import Attachment, ChannelError, Lost, NotSent, Refused, Retry, Unknown
from channels.discord.channel import DiscordChannel
from channels.discord.files import address
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_rules import Json
from tests.fakes.discord_state import FETCH

API = "https://discord.com/api/v10"


def attached(dc: FakeDiscord, content: bytes, **more: object) -> Attachment:
    """A text file that somebody said in a direct chat."""
    chat = dc.dm()
    file = dc.attachment("message.txt", content, "text/plain; charset=utf-8") | more
    said = dc.say(chat, "", attachments=[file])
    return Attachment("file", f"{chat}/{said}/{file['id']}", "message.txt")


async def fault_of(channel: DiscordChannel, attachment: Attachment) -> ChannelError:
    with pytest.raises(ChannelError) as raised:
        await channel.fetch(attachment, 100)
    return raised.value


async def test_a_file_is_fetched_up_to_what_is_wanted(dc: FakeDiscord, started: DiscordChannel) -> None:
    """All of a short one, the beginning of a long one. The bot's token is for the API alone, not for the file server."""
    file = attached(dc, b"words " * 100)
    assert await started.fetch(file, 1000) == b"words " * 100
    assert await started.fetch(file, 10) == b"words word"
    assert {token for _, token in dc.downloads.asked} == {""}


async def test_a_forwarded_file_is_found_where_it_was_forwarded(dc: FakeDiscord, started: DiscordChannel) -> None:
    """It is named by the message that forwards it."""
    chat, file = dc.dm(), dc.attachment("a.txt", b"news", "text/plain")
    snapshots: list[Json] = [{"message": {"content": "", "attachments": [file]}}]
    said = dc.say(chat, "", message_reference={"type": 1, "message_id": "5"}, message_snapshots=snapshots)
    assert await started.fetch(Attachment("file", f"{chat}/{said}/{file['id']}"), 100) == b"news"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/latest/meta-data",
        "http://169.254.169.254/latest/meta-data",
        "https://cdn.discordapp.com.evil.example/a.txt",
        "https://cdn.discordapp.com@evil.example/a.txt",
        "https://cdn.discordapp.com:8443/a.txt",
        "http://cdn.discordapp.com/a.txt",
        "https://evil.example\\@cdn.discordapp.com/a.txt",
        "//cdn.discordapp.com/a.txt",
        "file:///etc/passwd",
        "http://[::1/",
        "x",
        "",
    ],
)
async def test_no_other_server_is_asked(dc: FakeDiscord, started: DiscordChannel, url: str) -> None:
    """Whatever a message says, it cannot have us call an address of our own network, or send anything to a stranger."""
    assert address(url, API) is None
    fault = await fault_of(started, attached(dc, b"x", url=url))
    assert isinstance(fault, Refused)
    assert dc.downloads.asked == []


@pytest.mark.parametrize(
    "url", ["https://cdn.discordapp.com/attachments/1/2/a.txt?ex=6&is=5&hm=4&", "https://media.discordapp.net/a%20b.txt"]
)
def test_discords_own_servers_may_be_asked(url: str) -> None:
    """With the signature as Discord wrote it."""
    found = address(url, API)
    assert str(found) == url
    assert address(url, "http://127.0.0.1:8080/api/v10") == found  # the API through a proxy of one's own


async def test_what_is_gone_is_lost(dc: FakeDiscord, started: DiscordChannel) -> None:
    """The message was deleted, or edited so that the file is gone."""
    file = attached(dc, b"x")
    chat, said, _ = file.ref.split("/")
    assert isinstance(await fault_of(started, Attachment("file", f"{chat}/{said}/1")), Lost)
    dc.delete(int(chat), int(said))
    assert isinstance(await fault_of(started, file), Lost)


@pytest.mark.parametrize(
    ("status", "kind"), [(403, Refused), (401, Retry), (429, Retry), (500, Unknown)], ids=["forbidden", "token", "flood", "broken"]
)
async def test_a_refusal_says_what_can_be_done(dc: FakeDiscord, started: DiscordChannel, status: int, kind: type[ChannelError]) -> None:
    """The words of the service as the errors of a channel."""
    file = attached(dc, b"x")
    dc.fail(FETCH, status)
    assert isinstance(await fault_of(started, file), kind)


@pytest.mark.parametrize("body", [b"[]", b'{"id": 5}', b'"x"', b"null"])
async def test_an_answer_that_makes_no_sense_is_no_answer(dc: FakeDiscord, started: DiscordChannel, body: bytes) -> None:
    """A ChannelError, and no other exception."""
    file = attached(dc, b"x")
    dc.fail(FETCH, 200, body)
    assert isinstance(await fault_of(started, file), Unknown)


@pytest.mark.parametrize("ref", ["", "a/b/c", "1/2", "1"])
async def test_what_is_no_handle_of_ours_is_refused(started: DiscordChannel, ref: str) -> None:
    """A record that somebody edited costs a file, no more."""
    assert isinstance(await fault_of(started, Attachment("file", ref)), Refused)


async def test_a_closed_channel_fetches_nothing(dc: FakeDiscord, started: DiscordChannel) -> None:
    """It says that nothing was asked."""
    file = attached(dc, b"x")
    await started.close()
    assert isinstance(await fault_of(started, file), NotSent)
