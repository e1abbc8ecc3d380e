"""Slash commands, presses and completions, and how answers find their place by a ticket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from channels.base import Address, Button, ChannelError, Desk, Inbound, NotSent, Piece, SessionInfo, Unknown
from channels.discord.bodies import ticket_of
from channels.discord.channel import DiscordChannel
from channels.discord.interactions import choices
from tests.channels.discord.support import Gateway, Sessions, channel_for, running
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import CALLBACK, EDIT_ORIGINAL, FOLLOWUP, SEND, Interaction

EDIT_HOOK = "PATCH /webhooks/{application_id}/{token}/messages/{message_id}"


async def asked(dc: FakeDiscord, gateway: Gateway, item: Interaction) -> Inbound:
    """The command as the gateway has it."""
    return (await dc.wait_for(lambda: [i for i in gateway.inbounds if i.id.endswith(f":i{item.id}")]))[0]


# ---------------------------------------------------------------------------------------------------------------------- first answers


async def test_a_command_is_deferred_before_it_is_accepted(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C01: the person sees at once that the bot thinks, whatever the gateway is busy with."""
    gateway = Gateway()
    go = asyncio.Event()

    async def busy(batch: object) -> None:
        await go.wait()
        await Gateway.accept(gateway, batch)  # type: ignore[arg-type]

    gateway.accept = busy  # type: ignore[method-assign]
    async with running(dc, channel, gateway):
        room = dc.channel()
        for n in range(300):
            dc.say(dc.dm(1000 + n), "busy")
        items = [dc.slash(room, "status", user=2000 + n) for n in range(100)]
        await dc.wait_for(lambda: all(item.acknowledged for item in items))
        assert max(item.delay or 9 for item in items) < 2.5
        assert all(item.callback and item.callback["type"] == 5 for item in items)
        assert gateway.inbounds == []
        go.set()
        await dc.wait_for(lambda: len(gateway.inbounds) == 400)


async def test_what_is_said_behind_a_command_stays_behind_it(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """A slow first answer holds up its own chat alone."""
    async with running(dc, channel) as gateway:
        chat, other = dc.dm(), dc.dm(43)
        held = dc.hold(CALLBACK)
        dc.slash(chat, "reset")
        await held.reached.wait()
        dc.say(chat, "after it")
        dc.say(other, "elsewhere")
        await dc.wait_for(lambda: gateway.texts == ["elsewhere"])
        held.release()
        await dc.wait_for(lambda: len(gateway.texts) == 3)
        assert gateway.texts == ["elsewhere", "/reset", "after it"]


@pytest.mark.parametrize("fault", ["late", "twice", "error", "cut", "hung"])
async def test_a_command_counts_also_where_its_first_answer_failed(dc: FakeDiscord, channel: DiscordChannel, fault: str) -> None:
    """Its answer then finds another way; nothing is left that nobody awaits."""
    async with running(dc, channel) as gateway:
        room = dc.channel()
        if fault == "late":
            dc.callback_life = -1.0
        elif fault == "twice":
            dc.fail(CALLBACK, code=40060)
        elif fault == "error":
            dc.fail(CALLBACK, 500)
        elif fault == "cut":
            dc.drop(CALLBACK)
        else:
            dc.hold(CALLBACK, before=True)
        item = dc.slash(room, "status")
        inbound = await asked(dc, gateway, item)
        if fault in ("late", "error", "cut"):
            await channel.send(inbound.address, Piece("up"), reply_to=inbound.ticket, nonce="n")
            assert dc.visible(room) == [f"<@{dc.user().id}>\nup"]


async def test_a_press_is_acknowledged_and_heard(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C22's gate sees it like any other line; the message that was pressed stays as it is."""
    async with running(dc, channel) as gateway:
        room = dc.channel()
        await channel.send(Address("discord", str(room)), Piece("which?"), buttons=[Button("West", "/switch west")])
        item = dc.press(room, "West", user=77)
        await dc.wait_for(lambda: gateway.inbounds and item.acknowledged)
        (inbound,) = gateway.inbounds
        assert (inbound.kind, inbound.text, inbound.sender.id, inbound.ticket) == ("button", "/switch west", "77", "")
        assert (item.callback or {})["type"] == 6
        assert dc.visible(room) == ["which?"]


# ------------------------------------------------------------------------------------------------------------------------- completions


async def test_sessions_are_completed(dc: FakeDiscord, tmp_path: Path) -> None:
    """From the chat's own sessions, in a thread the thread's."""
    desk = Sessions("main", "west", "east")
    channel = channel_for(dc, tmp_path, desk=desk)
    async with running(dc, channel):
        room = dc.channel()
        thread = dc.thread(room)
        item = dc.autocomplete(thread, "switch", "name", "st")
        await dc.wait_for(lambda: item.choices is not None)
        assert [choice["value"] for choice in item.choices or ()] == ["east", "west"]
        assert desk.asked == [Address("discord", str(room), str(thread))]
    await channel.close()


async def test_a_slow_or_failing_desk_completes_nothing_in_time(dc: FakeDiscord, tmp_path: Path) -> None:
    """An empty list within the three seconds is better than none."""

    class Slow(Sessions):
        async def sessions(self, address: object, sender: object, *, direct: bool = True, group: str = "") -> list[SessionInfo]:
            if self.names:
                raise OSError(5, "broken")
            await asyncio.Event().wait()
            return []

    desks: list[Desk] = [Slow("x"), Slow()]
    for n, desk in enumerate(desks):
        channel = channel_for(dc, tmp_path / f"{n}", desk=desk)
        async with running(dc, channel):
            item = dc.autocomplete(dc.dm(), "switch", "name", "")
            await dc.wait_for(lambda: item.choices is not None)  # noqa: B023  # awaited here
            assert item.choices == []
            assert (item.delay or 9) < 2.5
        await channel.close()


def test_choices_are_within_bounds() -> None:
    """C14: twenty-five at most, a hundred characters each; the newest first, what begins with it before what has it in it."""
    sessions = [SessionInfo(f"s{n}", "T" * 200 + "\u202e\n", "", n == 39, 1) for n in range(40)]
    found = choices(sessions, "")
    assert len(found) == 25
    assert (found[0]["value"], found[1]["value"]) == ("s39", "s38")
    assert all(1 <= len(choice["name"]) <= 100 and choice["name"].isprintable() for choice in found)
    named = [SessionInfo(name, title, "", False, 1) for name, title in (("far-west", ""), ("a", "West"), ("b", "north"))]
    assert [choice["value"] for choice in choices(named, " WEST ")] == ["a", "far-west"]
    assert choices([], "x") == []


# ----------------------------------------------------------------------------------------------------------------- answers by a ticket


async def test_an_answer_goes_into_the_deferred_place(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C01: the first message takes the place of "thinks", the others follow it; edits and removals work; nobody is pinged."""
    async with running(dc, channel) as gateway:
        room = dc.channel()
        item = dc.slash(room, "retry")
        inbound = await asked(dc, gateway, item)
        place = inbound.address
        assert dc.messages(room)[0].loading
        first = await channel.send(place, Piece("\u2026"), reply_to=inbound.ticket, nonce="a")
        second = await channel.send(place, Piece("two @everyone"), reply_to="+" + inbound.ticket, buttons=[Button("B", "/help")])
        await channel.edit(place, first, Piece("one <@&5>"))
        await channel.edit(place, second, Piece("two"))
        assert dc.visible(room) == ["one <@&5>", "two"]
        assert first == str(item.original)
        assert item.followups == [int(second)]
        await channel.delete(place, second)
        assert dc.visible(room) == ["one <@&5>"]
        assert dc.calls_of(SEND) == []
        for call in dc.calls:
            if call.route in (EDIT_ORIGINAL, EDIT_HOOK, FOLLOWUP, CALLBACK):
                body = call.body.get("data", call.body)
                assert body["allowed_mentions"]["parse"] == []


@pytest.mark.parametrize(
    "fault", [{"code": 50027}, {"code": 10015}, {"code": 10062}, {"code": 10008}, {"status": 404}, {"status": 401}], ids=str
)
async def test_an_expired_ticket_becomes_a_message_that_names_the_asker(
    dc: FakeDiscord, channel: DiscordChannel, fault: dict[str, Any]
) -> None:
    """C02: the answer is in the chat, with the asker's name and no ping; edits keep the name; parts behind it follow plainly."""
    async with running(dc, channel) as gateway:
        room = dc.channel()
        inbound = await asked(dc, gateway, dc.slash(room, "retry", user=42))
        for route in (EDIT_ORIGINAL, FOLLOWUP, EDIT_HOOK):
            dc.fail(route, times=None, **fault)
        first = await channel.send(inbound.address, Piece("\u2026"), reply_to=inbound.ticket, nonce="a")
        await channel.send(inbound.address, Piece("part two"), reply_to="+" + inbound.ticket, nonce="b")
        await channel.edit(inbound.address, first, Piece("the answer"))
        assert dc.visible(room) == ["<@42>\nthe answer", "part two"]
        assert all(message.pings == set() for message in dc.messages(room))


async def test_a_ticket_expires_after_a_quarter_of_an_hour(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C02: a message that was sent by it can still be edited and taken away; the next one goes into the chat."""
    async with running(dc, channel) as gateway:
        room = dc.channel()
        item = dc.slash(room, "retry", user=42)
        inbound = await asked(dc, gateway, item)
        first = await channel.send(inbound.address, Piece("one"), reply_to=inbound.ticket)
        item.expire()
        await channel.edit(inbound.address, first, Piece("one, later"))
        second = await channel.send(inbound.address, Piece("two"), reply_to="+" + inbound.ticket)
        assert dc.visible(room) == ["one, later", "two"]
        await channel.delete(inbound.address, first)
        await channel.delete(inbound.address, second)
        assert dc.visible(room) == []


async def test_a_full_message_is_named_in_one_before_it(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """Where there is no room for the name, it goes ahead by itself; nothing is cut."""
    async with running(dc, channel) as gateway:
        room = dc.channel()
        item = dc.slash(room, "retry", user=42)
        inbound = await asked(dc, gateway, item)
        item.expire()
        await channel.send(inbound.address, Piece("x" * 2000), reply_to=inbound.ticket, nonce="ABCDE")
        assert dc.visible(room) == ["<@42>", "x" * 2000]


async def test_a_first_answer_of_unknown_outcome_is_repeated(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """It is an edit, which may be; a follow-up is none, and may not."""
    async with running(dc, channel) as gateway:
        room = dc.channel()
        inbound = await asked(dc, gateway, dc.slash(room, "retry"))
        dc.drop(EDIT_ORIGINAL, after=True)
        with pytest.raises(NotSent):
            await channel.send(inbound.address, Piece("one"), reply_to=inbound.ticket)
        await channel.send(inbound.address, Piece("one"), reply_to=inbound.ticket)
        dc.drop(FOLLOWUP, after=True)
        with pytest.raises(Unknown):
            await channel.send(inbound.address, Piece("two"), reply_to="+" + inbound.ticket)
        assert dc.visible(room) == ["one", "two"]


async def test_a_ticket_outlives_the_daemon(dc: FakeDiscord, channel: DiscordChannel, tmp_path: Path) -> None:
    """It is all that the answer needs: another life of the daemon fills the same place."""
    async with running(dc, channel) as gateway:
        room = dc.channel()
        inbound = await asked(dc, gateway, dc.slash(room, "retry"))
    later = channel_for(dc, tmp_path / "later")
    async with running(dc, later):
        await later.send(inbound.address, Piece("late"), reply_to=inbound.ticket)
        assert dc.visible(room) == ["late"]
        assert not dc.messages(room)[0].loading
    await later.close()


async def test_a_closed_channel_is_answered_by_the_ticket(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C24: where the bot may not write, a slash command is answered all the same, long answers too."""
    async with running(dc, channel) as gateway:
        room = dc.channel()
        dc.forbid(room, "send_messages")
        inbound = await asked(dc, gateway, dc.slash(room, "status"))
        await channel.send(inbound.address, Piece("one"), reply_to=inbound.ticket)
        await channel.send(inbound.address, Piece("two"), reply_to="+" + inbound.ticket)
        assert dc.visible(room) == ["one", "two"]


@pytest.mark.parametrize("reply_to", ["", "12345", "ticket:", "ticket:1:2", "ticket:1:2:", "+", "nonsense"])
def test_what_is_no_ticket(reply_to: str) -> None:
    """A message's id, or a ticket that was blanked, is none."""
    assert ticket_of(reply_to) is None


async def test_nothing_of_a_ticket_is_logged(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C02: no log line and no error has the token in it."""
    with capture_logs() as logs:
        async with running(dc, channel) as gateway:
            room = dc.channel()
            item = dc.slash(room, "retry")
            inbound = await asked(dc, gateway, item)
            dc.fail(EDIT_ORIGINAL, code=50035)
            with pytest.raises(ChannelError) as raised:
                await channel.send(inbound.address, Piece("x"), reply_to=inbound.ticket)
            dc.fail(CALLBACK, 400)
            await asked(dc, gateway, dc.slash(room, "status"))
    assert item.token not in repr(logs) + repr(raised.value)
