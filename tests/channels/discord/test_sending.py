"""`channels.discord.channel`, the sending half, with the real library's HTTP client against the fake service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from channels.base import (
    Address,
    Button,
    Channel,
    ChannelError,
    Context,
    Denied,
    Gone,
    Lost,
    NotSent,
    Piece,
    Refused,
    Rejected,
    Retry,
    Unknown,
)
from channels.discord.channel import DiscordChannel
from channels.discord.recall import SURE
from channels.discord.settings import Settings
from tests.channels.discord.support import MENU, Sessions, channel_for, quick
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_pace import Limit
from tests.fakes.discord_state import DELETE, EDIT, ME, SEND, TYPING, Call

HI = Piece("hi", start=0, end=2)


def direct(dc: FakeDiscord, user: int = 42) -> Address:
    return Address("discord", str(dc.dm(user)))


async def fault_of(call: Any) -> ChannelError:
    with pytest.raises(ChannelError) as raised:
        await call
    return raised.value


def test_it_is_a_channel(tmp_path: Path) -> None:
    """It has everything that the protocol names, and settings come through."""
    made: Channel = channel_for(FakeDiscord(), tmp_path, streaming="off", chat_per_second=2)
    assert (made.name, made.limits.units, made.streams, made.pacing.chat_per_second, made.backlog) == ("discord", 2000, False, 2, 86400)
    assert made.routes() == ()
    assert made.last_sign_of_life() == 0.0


# --------------------------------------------------------------------------------------------------------------------------- sends


async def test_a_message_is_sent_edited_and_taken_away(dc: FakeDiscord, started: DiscordChannel) -> None:
    """By the id that the send gave; a second removal is no error."""
    chat = direct(dc)
    number = await started.send(chat, HI, nonce="n1")
    assert dc.visible(int(chat.chat)) == ["hi"]
    await started.edit(chat, number, Piece("ho"))
    assert dc.visible(int(chat.chat)) == ["ho"]
    await started.delete(chat, number)
    await started.delete(chat, number)
    assert dc.visible(int(chat.chat)) == []


async def test_a_thread_is_spoken_to_in_itself(dc: FakeDiscord, started: DiscordChannel) -> None:
    """Its parent sees nothing of it."""
    room = dc.channel()
    thread = dc.thread(room)
    await started.send(Address("discord", str(room), str(thread)), HI)
    await started.typing(Address("discord", str(room), str(thread)))
    assert (dc.visible(thread), dc.visible(room)) == (["hi"], [])
    assert len(dc.channels[thread].typing) == 1


@pytest.mark.parametrize("text", ["@everyone <@&555> <@777> hi", "<@42>", "@here"])
async def test_nobody_is_pinged(dc: FakeDiscord, started: DiscordChannel, text: str) -> None:
    """A18: every create, edit and answer says that nobody is to be notified, the one who is answered included."""
    room = dc.channel()
    chat = Address("discord", str(room))
    asked = dc.say(room, "hello")
    number = await started.send(chat, Piece(text), reply_to=str(asked), buttons=[Button("b", "/help")], nonce="n")
    await started.edit(chat, number, Piece(text + "!"))
    (message,) = dc.messages(room)
    assert message.pings == set()
    bodies = [call.body for call in dc.calls if isinstance(call.body, dict) and "content" in call.body]
    assert len(bodies) == 2
    for body in bodies:
        assert body["allowed_mentions"] == {"parse": [], "replied_user": False}


async def test_an_answer_refers_to_its_question(dc: FakeDiscord, started: DiscordChannel) -> None:
    """While it is there; where it has vanished, or the history may not be read, the answer comes without."""
    room = dc.channel()
    chat = Address("discord", str(room))
    asked = dc.say(room, "hello")
    await started.send(chat, HI, reply_to=str(asked))
    dc.delete(room, asked)
    await started.send(chat, HI, reply_to=str(asked))
    dc.forbid(room, "read_message_history")
    await started.send(chat, HI, reply_to=str(asked))
    assert [message.reply_to for message in dc.messages(room)] == [asked, None, None]
    references = [call.body.get("message_reference") for call in dc.calls_of(SEND, room)]
    assert all(reference["fail_if_not_exists"] is False for reference in references if reference)


@pytest.mark.parametrize(
    "refusal",
    [
        {"code": 10008},
        {"code": 50035, "body": {"errors": {"message_reference": {"_errors": [{"code": "MESSAGE_REFERENCE_UNKNOWN_MESSAGE"}]}}}},
        {"status": 400, "code": 50035, "body": "Invalid Form Body\nIn message_reference: Unknown message"},
    ],
)
async def test_a_refused_reference_costs_nothing(dc: FakeDiscord, started: DiscordChannel, refusal: dict[str, Any]) -> None:
    """C08: whatever words the service has for it, the whole text arrives; the parts behind carry no reference anyway."""
    room = dc.channel()
    chat = Address("discord", str(room))
    dc.fail(SEND, when=lambda call: "message_reference" in call.body, times=None, **refusal)
    pieces = started.render("word " * 1000)
    assert len(pieces) == 3
    for number, piece in enumerate(pieces):
        await started.send(chat, piece, reply_to="" if number else "12345", nonce=f"n{number}")
    assert " ".join(dc.visible(room)).split() == ["word"] * 1000


async def test_buttons_are_rows_of_five(dc: FakeDiscord, started: DiscordChannel) -> None:
    """Twenty-five at most, each once, none that the service would refuse the message for; an edit without buttons takes them away."""
    chat = direct(dc)
    buttons = [Button(f"b{n}" + "x" * n, f"/switch {n}") for n in range(30)]
    bad = [Button("again", "/switch 0"), Button("", "/x"), Button("long", "/" + "x" * 100), Button("\U0001f600" * 60, "/wide")]
    with capture_logs() as logs:
        number = await started.send(chat, HI, buttons=[*bad[3:], *buttons, *bad[:3]])
    (message,) = dc.messages(int(chat.chat))
    assert [len(row["components"]) for row in message.components] == [5] * 5
    assert message.buttons[1] == ("b0", "/switch 0")
    assert message.buttons[0][0].endswith("…")
    assert any(entry["event"] == "buttons left out" for entry in logs)
    await started.edit(chat, number, HI)
    assert dc.messages(int(chat.chat))[0].buttons == []


async def test_no_previews(dc: FakeDiscord, started: DiscordChannel) -> None:
    """An address in an answer shows no card."""
    chat = direct(dc)
    await started.send(chat, Piece("https://a.example"))
    assert dc.calls_of(SEND)[0].body["flags"] == 4


# -------------------------------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (10003, Gone),
        (50001, Gone),
        (50007, Gone),
        (50013, Gone),
        (50083, Gone),
        (50035, Rejected),
        (50006, Rejected),
        (160004, Rejected),
    ],
)
async def test_a_refusal_says_what_to_do(dc: FakeDiscord, started: DiscordChannel, code: int, kind: type[ChannelError]) -> None:
    """C24: Discord's codes as what a lane can do about them; one call, no repeat."""
    dc.fail(SEND, code=code, times=None)
    assert type(await fault_of(started.send(direct(dc), HI, nonce="n"))) is kind
    assert len(dc.calls_of(SEND)) == 1


async def test_a_place_that_is_closed_says_what_the_operator_can_do(dc: FakeDiscord, started: DiscordChannel) -> None:
    """C24: whatever call finds it out, and whatever it was about; the lane tells it on."""
    room = dc.channel()
    chat = Address("discord", str(room))
    dc.forbid(room, "send_messages")
    for call in (started.send(chat, HI), started.typing(chat)):
        fault = await fault_of(call)
        assert isinstance(fault, Gone)
        assert "Send Messages" in str(fault)


async def test_a_lost_message_is_lost(dc: FakeDiscord, started: DiscordChannel) -> None:
    """An edit of what is not there, or is not ours, or has no number."""
    chat = direct(dc)
    theirs = dc.say(int(chat.chat), "hello")
    for number in (str(theirs + 1), str(theirs), "none"):
        assert type(await fault_of(started.edit(chat, number, HI))) is Lost


@pytest.mark.parametrize("address", [Address("discord", "x"), Address("discord", ""), Address("discord", "1", "y")])
async def test_an_address_of_another_network_is_refused(started: DiscordChannel, address: Address) -> None:
    """Nothing is asked for it."""
    assert isinstance(await fault_of(started.send(address, HI)), Refused)


@pytest.mark.parametrize("everywhere", [False, True])
async def test_a_wait_is_handed_on(dc: FakeDiscord, started: DiscordChannel, everywhere: bool) -> None:
    """A 429 says how long and for whom, at once: nothing sleeps in here. While the whole bot waits, nothing is asked."""
    chat = direct(dc)
    dc.fail(SEND, 429, {"retry_after": 7.5, "global": everywhere})
    fault = await fault_of(started.send(chat, HI))
    assert isinstance(fault, Retry)
    assert (fault.after, fault.everywhere) == (7.5, everywhere)
    before = len(dc.calls)
    if everywhere:
        assert isinstance(await fault_of(started.typing(direct(dc, 43))), Retry)
        assert len(dc.calls) == before
    else:
        await started.typing(chat)


async def test_an_empty_bucket_is_not_asked(dc: FakeDiscord, started: DiscordChannel) -> None:
    """C23: who used a channel's last token is told to wait without a call; other channels are not affected, and no 429 is collected."""
    dc.pace.limit = Limit(5, 5.0)
    chat, other = direct(dc), direct(dc, 43)
    number = await started.send(chat, HI)
    waits: list[float] = []
    for n in range(20):
        try:
            await started.edit(chat, number, Piece(f"{n}"))
        except Retry as error:
            waits.append(error.after)
    assert [call.status for call in dc.calls_of(EDIT)].count(429) <= 1
    assert all(0 < wait <= 5 for wait in waits)
    assert len(waits) >= 15
    await started.send(other, HI)


async def test_a_ban_page_is_no_crash(dc: FakeDiscord, started: DiscordChannel) -> None:
    """C20: a page instead of words means that nothing more is asked for as long as it says."""
    dc.ban(SEND)
    fault = await fault_of(started.send(direct(dc), HI, nonce="n"))
    assert isinstance(fault, Retry)
    assert (fault.after, fault.everywhere) == (3600.0, True)
    before = len(dc.calls)
    assert isinstance(await fault_of(started.send(direct(dc), HI, nonce="n")), Retry)
    assert len(dc.calls) == before


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("status", [0, 500, 502, 503])
async def test_a_send_of_unknown_outcome_is_repeated_by_its_nonce(
    dc: FakeDiscord, started: DiscordChannel, after: bool, status: int
) -> None:
    """Cut or failed, before or after its effect: with a nonce the repeat makes it one message, whichever it was."""
    chat = direct(dc)
    if status and after:
        dc.drop(SEND, after=True)
    elif status:
        dc.fail(SEND, status)
    else:
        dc.drop(SEND, after=after)
    assert isinstance(await fault_of(started.send(chat, HI, nonce="ABCDEFGHIJKLMNOPQRSTUVWXY")), NotSent)
    number = await started.send(chat, HI, nonce="ABCDEFGHIJKLMNOPQRSTUVWXY")
    assert [str(message.id) for message in dc.messages(int(chat.chat))] == [number]


async def test_what_stays_unknown_is_said_to_be(dc: FakeDiscord, tmp_path: Path) -> None:
    """It may be repeated for as long as the nonce is sure to do it, from the first try on, and not without one; an edit may be anyway."""
    now = [1_000_000.0]
    channel = DiscordChannel(
        Settings(api_base=dc.base_url), Context(dc.token, tmp_path, Sessions("main")), pace=quick(), clock=lambda: now[0]
    )
    await channel.start(MENU)
    chat = direct(dc)
    number = await channel.send(chat, HI)
    dc.fail(SEND, 502, times=None)
    dc.fail(EDIT, 504, times=None)
    for seconds in (0.0, SURE / 2, SURE / 2 - 0.01):
        now[0] += seconds
        assert isinstance(await fault_of(channel.send(chat, HI, nonce="n")), NotSent)
    now[0] += 0.01
    assert isinstance(await fault_of(channel.send(chat, HI, nonce="n")), Unknown)
    assert isinstance(await fault_of(channel.send(chat, HI, nonce="another")), NotSent)
    assert isinstance(await fault_of(channel.send(chat, HI)), Unknown)
    assert isinstance(await fault_of(channel.edit(chat, number, HI)), Unknown)
    assert len(dc.calls_of(SEND)) == 1 + 6
    assert len(dc.calls_of(EDIT)) == 1
    await channel.close()


async def test_without_a_connection_nothing_happened(dc: FakeDiscord, started: DiscordChannel) -> None:
    """A refused connection had no effect, and may be repeated at will."""
    chat = direct(dc)
    await dc.stop()
    for call in (started.send(chat, HI, nonce="n"), started.edit(chat, "1", HI), started.typing(chat), started.delete(chat, "1")):
        assert isinstance(await fault_of(call), NotSent)
    await dc.start()
    await started.send(chat, HI)


async def test_before_the_start_nothing_happened(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """What a crash left is tried before the channel has started: that is no outcome that nobody knows."""
    chat = direct(dc)
    for reply_to in ("", "ticket:1:2:token"):
        assert isinstance(await fault_of(channel.send(chat, HI, reply_to=reply_to, nonce="n")), NotSent)
    await channel.start(MENU)
    await channel.send(chat, HI)


@pytest.mark.parametrize("route", [SEND, EDIT, TYPING, DELETE])
async def test_a_token_that_is_refused_later_is_denied(dc: FakeDiscord, started: DiscordChannel, route: str) -> None:
    """C20: whatever call finds it out."""
    chat = direct(dc)
    refused = [dc.fail(route, 401, times=None)]
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        SEND: lambda: started.send(chat, HI),
        EDIT: lambda: started.edit(chat, "5", HI),
        TYPING: lambda: started.typing(chat),
        DELETE: lambda: started.delete(chat, "5"),
    }
    assert isinstance(await fault_of(calls[route]()), Retry)  # by this route alone: the token is good
    refused.append(dc.fail(ME, 401, b"<html>sign in</html>", times=1))
    assert isinstance(await fault_of(calls[route]()), Retry)
    refused.append(dc.fail(ME, 401, times=1))
    assert isinstance(await fault_of(calls[route]()), Denied)
    assert [fault.hits for fault in refused] == [3, 1, 1]


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"", b"[]", b'{"id": 5}', b"nonsense{"])
async def test_an_answer_that_makes_no_sense_says_as_little_as_none(dc: FakeDiscord, started: DiscordChannel, body: bytes) -> None:
    """A server that stands between, or none of Discord's. What may be repeated, may be."""
    chat = direct(dc)
    message_id = await started.send(chat, HI, nonce="1")
    for route in (SEND, EDIT):
        dc.fail(route, 200, body, times=None)
    assert isinstance(await fault_of(started.send(chat, HI)), Unknown)
    assert isinstance(await fault_of(started.edit(chat, message_id, HI)), Unknown)
    asked = len(dc.calls_of(SEND))
    assert isinstance(await fault_of(started.send(chat, HI, nonce="2")), NotSent)
    assert len(dc.calls_of(SEND)) == asked + 1


async def test_a_hung_typing_sign_can_be_cut(dc: FakeDiscord, started: DiscordChannel) -> None:
    """C25: it does not shield itself, and leaves nothing behind."""
    chat = direct(dc)
    held = dc.hold(TYPING)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await started.typing(chat)
    held.release()
    await started.typing(chat)


async def test_no_failure_shows_a_secret(dc: FakeDiscord, started: DiscordChannel, caplog: pytest.LogCaptureFixture) -> None:
    """C20, F01: neither the bot's token nor an interaction's nor anybody's words are in an error, or in any log at any level."""
    caplog.set_level(logging.DEBUG)
    chat, words = direct(dc), Piece("these are private words")
    ticket = "ticket:5:42:INTERACTIONTOKEN"
    said: list[str] = []
    faults: list[tuple[str, dict[str, Any]]] = [(SEND, {"status": 401}), (SEND, {"code": 50035}), (SEND, {"status": 502})]
    with capture_logs() as logs:
        for route, fault in faults:
            dc.fail(route, **fault)
            said.append(repr(await fault_of(started.send(chat, words))))
        dc.drop(SEND)
        said.append(repr(await fault_of(started.send(chat, words))))
        dc.fail("*", 500, times=None)
        said.append(repr(await fault_of(started.send(chat, words, reply_to="+" + ticket))))
        await dc.stop()
        said.append(repr(await fault_of(started.send(chat, words, reply_to=ticket))))
    heard = "".join((*said, caplog.text, repr(logs)))
    for secret in (dc.token, "fake-token", "INTERACTIONTOKEN", "private words", "/webhooks/"):
        assert secret not in heard


# ---------------------------------------------------------------------------------------------------------------------------- admins


async def test_who_administers_a_server(dc: FakeDiscord, started: DiscordChannel) -> None:
    """Its owner, and who may manage it by a role; not a member, nobody from outside, nobody in a direct chat."""
    guild = dc.guild(owner=1)
    room = dc.channel(guild)
    mods, bosses = dc.role(guild, "mods", "manage_messages"), dc.role(guild, "bosses", "manage_guild")
    dc.join(guild, 2, roles=(mods,))
    dc.join(guild, 3, roles=(mods, bosses))
    dc.join(guild, 4, roles=(dc.role(guild, "gods", "administrator"),))
    chat = Address("discord", str(room), str(dc.thread(room)))
    assert [await started.is_admin(chat, user) for user in ("1", "2", "3", "4", "9")] == [True, False, True, True, False]
    assert not await started.is_admin(direct(dc), "42")
    dc.fail("GET /guilds/{guild_id}", 500)
    assert isinstance(await fault_of(started.is_admin(chat, "3")), Unknown)


# ----------------------------------------------------------------------------------------------------------------------------- many


async def test_many_sends_at_once_do_not_wait_for_each_other(dc: FakeDiscord, started: DiscordChannel) -> None:
    """There is no limit on connections: a hundred held sends do not stop the next."""
    first = direct(dc, 1)
    held = dc.hold(SEND, channel=int(first.chat), times=None)
    sends = [asyncio.create_task(started.send(first, Piece(f"{n}"))) for n in range(100)]
    await dc.wait_for(lambda: held.hits == 100)
    await started.send(direct(dc, 2), HI)
    held.release()
    await asyncio.gather(*sends)
    assert len(dc.visible(int(first.chat))) == 100


async def test_what_the_library_knows_is_bounded(dc: FakeDiscord, started: DiscordChannel) -> None:
    """Thousands of chats leave no growing table of limits behind."""
    dc.pace.limit = Limit(5, 0.05)
    chats = [direct(dc, 1000 + n) for n in range(50)]
    for chat in chats:
        await started.send(chat, HI)
    calls: list[Call] = dc.calls_of(SEND)
    assert all(call.ok for call in calls)
    assert len(started._http._empty) <= 50
