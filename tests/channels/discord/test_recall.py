"""`channels.discord.recall`, through the channel: whether an earlier life of the process sent something already."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels.base import FOLLOWS, Address, ChannelError, Context, NotSent, Piece, Retry
from channels.discord.channel import DiscordChannel
from channels.discord.recall import MOST_PAGES, PAGE, SURE
from channels.discord.settings import Settings
from tests.channels.discord.support import MENU, Sessions, quick
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import HISTORY

NOW = time.time()
HOUR = 3600.0
SAID = Piece("The answer.")
ASKED = "discord:7:5:1000"


class Times:
    """The clocks of both sides, which are one."""

    def __init__(self, dc: FakeDiscord) -> None:
        self.now = NOW
        dc.clock = lambda: self.now


@pytest.fixture
def times(dc: FakeDiscord) -> Times:
    """An hour ago, in the earlier life."""
    times = Times(dc)
    times.now = NOW - HOUR
    return times


@pytest.fixture
async def later(dc: FakeDiscord, times: Times, tmp_path: Path) -> AsyncIterator[DiscordChannel]:
    """The channel of the life that begins now."""
    settings, context = Settings(api_base=dc.base_url), Context(dc.token, tmp_path / "discord", Sessions("main"))
    channel = DiscordChannel(settings, context, pace=quick(), clock=lambda: NOW)
    await channel.start(MENU)
    yield channel
    await channel.close()


def here(channel: int) -> Address:
    return Address("discord", str(channel))


async def fault_of(later: DiscordChannel, chat: int) -> ChannelError:
    with pytest.raises(ChannelError) as raised:
        await later.recall(here(chat), SAID, since=NOW - HOUR, asked=ASKED)
    return raised.value


async def test_what_was_sent_before_is_found(dc: FakeDiscord, times: Times, later: DiscordChannel) -> None:
    """By its words alone: a nonce is not kept with a message. In threads, too."""
    chat = dc.dm()
    room = dc.channel()
    thread = dc.thread(room)
    for channel, address in ((chat, here(chat)), (thread, Address("discord", str(room), str(thread)))):
        sent = dc.add(channel, dc.bot, " The answer.\n").id
        times.now += 1
        dc.say(channel, "The answer.")
        assert await later.recall(address, SAID, since=NOW - HOUR, asked=ASKED) == str(sent)
        assert await later.recall(address, Piece("Another."), since=NOW - HOUR, asked=ASKED) == ""


async def test_only_what_this_send_can_have_made_counts(dc: FakeDiscord, times: Times, later: DiscordChannel) -> None:
    """Not the same words from before the text was on record, not from this life, not to another question, not by somebody else."""
    room = dc.channel()
    mine, other = dc.say(room, "mine"), dc.say(room, "other")
    dc.add(room, dc.bot, "The answer.", reply_to=mine)
    times.now, since = NOW - HOUR + 61, NOW - HOUR + 60
    dc.add(room, dc.bot, "The answer.", reply_to=other)
    dc.say(room, "The answer.")
    times.now = NOW + 1
    dc.add(room, dc.bot, "The answer.", reply_to=mine)
    assert await later.recall(here(room), SAID, since=since, asked=ASKED, reply_to=str(mine)) == ""
    assert await later.recall(here(room), SAID, since=since, asked=ASKED, reply_to=str(other)) != ""


async def test_nothing_from_before_the_question_counts(dc: FakeDiscord, times: Times, later: DiscordChannel) -> None:
    """Whatever the clocks say: the last question may have had the same answer, a moment ago."""
    chat = dc.dm()
    dc.add(chat, dc.bot, "The answer.")
    asked = f"discord:{dc.bot.id}:{chat}:{dc.say(chat, 'and?')}"
    assert await later.recall(here(chat), SAID, since=NOW - HOUR, asked=asked) == ""
    sent = dc.add(chat, dc.bot, "The answer.").id
    assert await later.recall(here(chat), SAID, since=NOW - HOUR, asked=asked) == str(sent)
    pressed = f"discord:{dc.bot.id}:{chat}:i{dc.slash(chat, 'status').id}"
    assert await later.recall(here(chat), SAID, since=NOW - HOUR, asked=pressed) == ""


async def test_a_slash_commands_answer_is_known_by_its_command(dc: FakeDiscord, times: Times, later: DiscordChannel) -> None:
    """Two people get the same words for the same command: each answer is only their own. One that came after the token had expired names
    the asker."""
    chat = dc.dm()
    first, second = (dc.slash(chat, "status") for _ in range(2))
    tickets = [f"ticket:{one.id}:{dc.channels[chat].recipient}:{one.token}" for one in (first, second)]
    dc.add(chat, dc.bot, "The answer.", interaction=first.id)
    assert await later.recall(here(chat), SAID, since=NOW - HOUR, asked=ASKED, reply_to=tickets[0]) != ""
    assert await later.recall(here(chat), SAID, since=NOW - HOUR, asked=ASKED, reply_to=tickets[1]) == ""
    assert await later.recall(here(chat), SAID, since=NOW - HOUR, asked=ASKED) == ""
    named = dc.add(chat, dc.bot, f"<@{dc.channels[chat].recipient}>\nThe answer.").id
    assert await later.recall(here(chat), SAID, since=NOW - HOUR, asked=ASKED, reply_to=tickets[1]) == str(named)
    assert await later.recall(here(chat), SAID, since=NOW - HOUR, asked=ASKED, reply_to=FOLLOWS + tickets[1]) == ""


async def test_while_the_nonce_does_it_nothing_is_read(dc: FakeDiscord, times: Times, later: DiscordChannel) -> None:
    """A restart within a minute asks for no history."""
    chat = dc.dm()
    dc.add(chat, dc.bot, "The answer.")
    assert await later.recall(here(chat), SAID, since=NOW - SURE + 1, asked=ASKED) == ""
    assert dc.calls_of(HISTORY) == []


async def test_a_busy_channel_is_read_up_to_a_bound(dc: FakeDiscord, times: Times, later: DiscordChannel) -> None:
    """Page after page from the record on, and not without end."""
    room = dc.channel()
    for n in range(PAGE + 50):
        dc.say(room, f"talk {n}")
    sent = dc.add(room, dc.bot, "The answer.").id
    assert await later.recall(here(room), SAID, since=NOW - HOUR, asked=ASKED) == str(sent)
    assert len(dc.calls_of(HISTORY)) == 2
    for n in range(PAGE * MOST_PAGES):
        dc.say(room, f"talk {n}")
    assert await later.recall(here(room), Piece("Another."), since=NOW - HOUR, asked=ASKED) == ""
    assert len(dc.calls_of(HISTORY)) == 2 + MOST_PAGES


async def test_where_we_may_not_read_it_is_sent(dc: FakeDiscord, times: Times, later: DiscordChannel) -> None:
    """A repeat is better than silence."""
    room = dc.channel()
    dc.add(room, dc.bot, "The answer.")
    dc.forbid(room, "read_message_history")
    assert await later.recall(here(room), SAID, since=NOW - HOUR, asked=ASKED) == ""
    dc.forbid(room, "view_channel")
    assert await later.recall(here(room), SAID, since=NOW - HOUR, asked=ASKED) == ""


async def test_while_nobody_can_say_nothing_is_sent(dc: FakeDiscord, times: Times, later: DiscordChannel) -> None:
    """An outage and a wait are for the lane: it asks again."""
    chat = dc.dm()
    dc.fail(HISTORY, 503)
    assert isinstance(await fault_of(later, chat), NotSent)
    outage = dc.drop(HISTORY, times=None)
    assert isinstance(await fault_of(later, chat), NotSent)
    outage.remove()
    dc.fail(HISTORY, 429, {"retry_after": 7.0})
    assert isinstance(await fault_of(later, chat), Retry)


@pytest.mark.parametrize("body", [b"{}", b"[1, null, {}]", b'[{"id": "x", "channel_id": "1", "author": {"id": "1"}}]'])
async def test_a_history_that_makes_no_sense_has_nothing_in_it(dc: FakeDiscord, times: Times, later: DiscordChannel, body: bytes) -> None:
    """And costs no more than that."""
    chat = dc.dm()
    dc.fail(HISTORY, 200, body)
    assert await later.recall(here(chat), SAID, since=NOW - HOUR, asked=ASKED) == ""
