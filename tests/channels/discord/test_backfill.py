"""What was said while nobody listened, over restarts and lost sessions, from the fake's histories."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from channels.base import Inbound, Sender
from channels.discord.backfill import Backfill, History
from channels.discord.channel import DiscordChannel
from channels.discord.intake import Intake
from channels.discord.marks import Marks
from channels.discord.payloads import snowflake_at
from channels.discord.places import Place
from tests.channels.discord.support import Gateway, channel_for, no_pause, running
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import HISTORY


async def life(
    dc: FakeDiscord, folder: Path, gateway: Gateway, *expected: str, says: Sequence[tuple[int, str]] = (), **settings: Any
) -> None:
    """One life of the daemon, until the gateway has these texts and the past is through."""
    channel = channel_for(dc, folder, **settings)
    async with running(dc, channel, gateway):
        for chat, text in says:
            dc.say(chat, text)
        await dc.wait_for(lambda: gateway.texts == list(expected))
        await dc.wait_for(lambda: channel._marks.alive is not None and channel._reading and channel._reading.backfill.complete)
    await channel.close()


# ------------------------------------------------------------------------------------------------------------------------- restarts


async def test_what_was_missed_is_heard_once_and_in_order(dc: FakeDiscord, tmp_path: Path) -> None:
    """Direct chats that are known, channels and threads where we were meant; not others' talk, bots, and what is known already."""
    gateway = Gateway()
    guild = dc.guild()
    room, quiet = dc.channel(guild), dc.channel(guild)
    thread, chat = dc.thread(room), dc.dm()
    await life(dc, tmp_path, gateway, "one", says=[(chat, "one")])
    for n in range(3):
        dc.say(chat, f"missed {n}")
    dc.say(room, "talk among people")
    dc.say(room, f"<@{dc.bot.id}> in the room")
    dc.say(room, f"<@{dc.bot.id}> from a bot", user=dc.user(900, bot=True))
    dc.say(thread, f"<@{dc.bot.id}> in the thread")
    dc.add(chat, dc.bot, "our own words")
    dc.calls.clear()
    channel = channel_for(dc, tmp_path)
    async with running(dc, channel, gateway):
        await dc.wait_for(lambda: len(gateway.texts) == 6)
        dc.say(chat, "now")
        await dc.wait_for(lambda: "now" in gateway.texts)
    await channel.close()
    direct = [inbound.text for inbound in gateway.inbounds if inbound.direct]
    assert direct == ["one", "missed 0", "missed 1", "missed 2", "now"]
    assert {inbound.text for inbound in gateway.inbounds if not inbound.direct} == {"in the room", "in the thread"}
    assert dc.calls_of(HISTORY, quiet) == []
    again = {inbound.address.thread for inbound in gateway.inbounds if inbound.text == "in the thread"}
    assert again == {str(thread)}


async def test_a_first_start_fetches_nothing(dc: FakeDiscord, tmp_path: Path) -> None:
    """Whatever was said before the bot was first here."""
    chat, room = dc.dm(), dc.channel()
    dc.say(chat, "old")
    dc.say(room, f"<@{dc.bot.id}> old")
    gateway = Gateway()
    await life(dc, tmp_path, gateway, "new", says=[(chat, "new")])
    assert dc.calls_of(HISTORY) == []


async def test_nothing_is_asked_where_nothing_was_said(dc: FakeDiscord, tmp_path: Path) -> None:
    """Of a server's channels only those with a newer message; those that we may not read not at all."""
    guild = dc.guild()
    rooms = [dc.channel(guild, f"r{n}") for n in range(20)]
    for room in rooms:
        dc.say(room, "old talk")
    now = dc.clock()
    dc.clock = lambda: now + 3600
    gateway = Gateway()
    await life(dc, tmp_path, gateway)
    _set_alive(tmp_path, now + 3600)
    dc.clock = lambda: now + 7200
    dc.say(rooms[3], f"<@{dc.bot.id}> new")
    dc.say(rooms[4], f"<@{dc.bot.id}> new")
    dc.forbid(rooms[4], "read_message_history")
    await life(dc, tmp_path, gateway, "new", backlog=0)
    assert {call.channel for call in dc.calls_of(HISTORY)} == {rooms[3]}


def _set_alive(folder: Path, at: float) -> None:
    path = folder / "heard.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"alive": at}))


async def test_what_is_too_old_is_left(dc: FakeDiscord, tmp_path: Path) -> None:
    """Up to the backlog's age: a day by default; 0 is no limit."""
    chat = dc.dm()
    gateway = Gateway()
    await life(dc, tmp_path, gateway, "one", says=[(chat, "one")])
    began = dc.clock()
    times = iter([began + 100, began + 86_000])
    for text in ("early", "late"):
        at = next(times)
        dc.clock = lambda at=at: at  # type: ignore[misc]
        dc.say(chat, text)
    clock = began + 100_000.0
    for settings, expected in (({"backlog": 86_400.0}, ["late"]), ({"backlog": 0.0}, ["early", "late"])):
        marks = Marks(tmp_path)
        await marks.load(str(dc.bot.id))
        later = Gateway()
        intake = Intake(later.accept)
        found = Backfill(_history(dc), _read, intake, marks, **settings, clock=lambda: clock, pause=no_pause)
        found.begin([])
        await _through(found)
        assert later.texts == expected


async def test_a_full_disk_delays_and_loses_nothing(dc: FakeDiscord, tmp_path: Path) -> None:
    """A page that could not be stored is handed over again; a life that ended before leaves it to the next one."""
    chat = dc.dm()
    gateway = Gateway()
    await life(dc, tmp_path, gateway, "one", says=[(chat, "one")])
    dc.say(chat, "two")
    gateway.full = 10_000
    channel = channel_for(dc, tmp_path)
    async with running(dc, channel, gateway):
        dc.say(chat, "three")
        await dc.wait_for(lambda: gateway.full < 10_000)
    await channel.close()
    gateway.full = 0
    await life(dc, tmp_path, gateway, "one", "two", "three")


@pytest.mark.parametrize("fault", ["error", "cut", "wait", "refused"])
async def test_a_history_that_fails_for_a_while_is_asked_again(dc: FakeDiscord, tmp_path: Path, fault: str) -> None:
    """Errors, cuts and waits delay it; what may not be read is passed over, and the other chats are not affected."""
    chat, other = dc.dm(), dc.dm(43)
    gateway = Gateway()
    await life(dc, tmp_path, gateway, "one", "1", says=[(chat, "one"), (other, "1")])
    dc.say(chat, "two")
    dc.say(other, "2")
    match fault:
        case "error":
            dc.fail(HISTORY, 502, channel=chat)
        case "cut":
            dc.drop(HISTORY, channel=chat)
        case "wait":
            dc.fail(HISTORY, 429, {"retry_after": 0.2}, channel=chat)
        case _:
            dc.fail(HISTORY, code=50001, channel=chat, times=None)
    channel = channel_for(dc, tmp_path)
    async with running(dc, channel, gateway):
        dc.say(chat, "three")
        wanted = {"one", "1", "2", "three"} | (set() if fault == "refused" else {"two"})
        await dc.wait_for(lambda: set(gateway.texts) == wanted)
    await channel.close()
    mine = [inbound.text for inbound in gateway.inbounds if inbound.address.chat == str(chat)]
    assert mine == [text for text in ("one", "two", "three") if text in wanted]


async def test_a_lost_session_misses_nothing(dc: FakeDiscord, tmp_path: Path) -> None:
    """C09: a reconnect that could not resume is followed by the history of the time between; a resumed one asks for nothing."""
    channel = channel_for(dc, tmp_path)
    async with running(dc, channel) as gateway:
        chat = dc.dm()
        dc.say(chat, "one")
        await dc.wait_for(lambda: gateway.texts == ["one"])
        await dc.stop(resumable=True)
        dc.say(chat, "two")
        await dc.start()
        await dc.wait_for(lambda: gateway.texts == ["one", "two"])
        assert dc.calls_of(HISTORY) == []
        await dc.stop()
        dc.say(chat, "three")
        await dc.start()
        await dc.online()
        dc.say(chat, "four")
        await dc.wait_for(lambda: len(gateway.texts) == 4)
        assert gateway.texts == ["one", "two", "three", "four"]
        assert len(dc.calls_of(HISTORY, chat)) == 1
    await channel.close()


async def test_nothing_passes_a_command(dc: FakeDiscord, tmp_path: Path) -> None:
    """While the past is fetched, a command is told and a message after it, which the history has and the command not: they keep their
    order, behind what was missed."""
    gateway = Gateway()
    chat = dc.dm()
    await life(dc, tmp_path, gateway, "one", says=[(chat, "one")])
    dc.say(chat, "missed")
    held = dc.hold(HISTORY, before=True)
    channel = channel_for(dc, tmp_path)
    async with running(dc, channel, gateway):
        await dc.wait_for(held.reached.is_set)
        dc.say(chat, "two")
        dc.slash(chat, "retry")
        dc.say(chat, "three")
        dc.press_raw(chat, "/retry", dc.add(chat, dc.bot, "a button"))
        dc.say(chat, "four")
        held.release()
        await dc.wait_for(lambda: len(gateway.texts) == 7)
    await channel.close()
    assert gateway.texts == ["one", "missed", "two", "/retry", "three", "/retry", "four"]
    assert gateway.again == []


async def test_a_kill_in_the_middle_misses_nothing(dc: FakeDiscord, tmp_path: Path) -> None:
    """What the mark on disk says is never newer than what was accepted: a life that is cut anywhere is made good by the next one."""
    gateway = Gateway()
    said: list[str] = []
    chat = dc.dm()
    for n in range(6):
        channel = channel_for(dc, tmp_path)
        await channel.start([])
        task = asyncio.create_task(channel.run(gateway.accept))
        await dc.online()
        for m in range(3):
            said.append(f"{n}.{m}")
            dc.say(chat, said[-1])
        if n == 0:
            await dc.wait_for(lambda: gateway.texts)  # the very first one makes the chat known
            await channel._marks.save()
        kept = (tmp_path / "heard.json").read_bytes()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        (tmp_path / "heard.json").write_bytes(kept)  # a kill writes nothing at the end
        await channel.close()
    await life(dc, tmp_path, gateway, *said)


async def test_a_file_that_cannot_be_read_is_put_aside(dc: FakeDiscord, tmp_path: Path) -> None:
    """It is a first start then, and says so; what was in it stays for who wants to look."""
    (tmp_path / "heard.json").write_text("{broken")
    with capture_logs() as logs:
        await life(dc, tmp_path, Gateway(), "hi", says=[(dc.dm(), "hi")])
    assert any("messages may be missed" in entry["event"] for entry in logs)
    assert (tmp_path / "heard.bad").read_text() == "{broken"
    assert (tmp_path / "heard.json").stat().st_mode & 0o777 == 0o600


async def test_the_marks_of_another_bot_are_not_ours(dc: FakeDiscord, tmp_path: Path) -> None:
    """Another token in the same folder is a first start."""
    (tmp_path / "heard.json").write_text(json.dumps({"v": 1, "bot": "5", "alive": 0.0, "direct": {"1": "2"}}))
    await life(dc, tmp_path, Gateway(), "hi", says=[(dc.dm(), "hi")])
    assert dc.calls_of(HISTORY) == []


async def test_too_much_at_once_is_fetched_later(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """What there was no room for is not lost: when there is, a new session begins and the history brings it, once."""
    gateway = Gateway()
    await channel.start([])
    task = asyncio.create_task(channel.run(gateway.accept))
    await dc.online()
    assert channel._reading is not None
    channel._reading.intake._most = 5
    chat = dc.dm()
    dc.say(chat, "first")
    await dc.wait_for(lambda: gateway.texts == ["first"])
    gateway.full = 1
    for n in range(30):
        dc.say(chat, f"{n}")
    await dc.wait_for(lambda: len(gateway.texts) == 31, timeout=15)
    assert gateway.texts == ["first", *(f"{n}" for n in range(30))]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# ---------------------------------------------------------------------------------------------------------------------------- bounds


async def test_a_chat_that_said_very_much_is_bounded(dc: FakeDiscord, tmp_path: Path) -> None:
    """So many pages, the oldest ones, and a line about it; the pages are of a hundred."""
    marks = Marks(tmp_path)
    marks.live(0.0)
    marks.heard("1", 1)
    gateway = Gateway()
    asked: list[int] = []

    async def endless(channel: str, after: int) -> object:
        asked.append(after)
        return [{"id": str(after + 100 - n)} for n in range(100)]

    found = Backfill(endless, _read, Intake(gateway.accept), marks, backlog=0, clock=lambda: 1e6, pause=no_pause)
    with capture_logs() as logs:
        found.begin([])
        await _through(found)
    assert len(asked) == 20
    assert [int(text) for text in gateway.texts] == list(range(asked[0] + 1, asked[0] + 2001))
    assert any(entry["event"] == "more was said than is looked through" for entry in logs)


async def test_the_newest_chats_are_remembered(tmp_path: Path) -> None:
    """Two thousand direct chats, over a restart; the file stays small and is private."""
    marks = Marks(tmp_path)
    await marks.load("7")
    marks.live(5.0)
    for n in range(2500):
        marks.heard(f"{n}", 10**18 + n)
    marks.heard("600", 5)  # an older message changes nothing but the order
    await marks.save()
    later = Marks(tmp_path)
    await later.load("7")
    assert len(later.direct) == 2000
    assert later.direct["600"] == 10**18 + 600
    assert next(reversed(later.direct)) == "600"
    assert "499" not in later.direct
    assert (tmp_path / "heard.json").stat().st_size < 120_000


async def test_a_server_that_never_comes_holds_nothing_up(tmp_path: Path) -> None:
    """After half a minute it is complete without it; strange servers and channels are passed over."""
    marks = Marks(tmp_path)
    marks.live(1000.0)
    now = 2000.0
    found = Backfill(_nothing, _read, Intake(Gateway().accept), marks, backlog=0, clock=lambda: now, pause=no_pause)
    found.begin(["1", "2"])
    found.guild({"id": "1", "channels": [{"id": 5}, {"id": "6", "last_message_id": "x"}, None, {"id": "7", "type": 4}]}, lambda _: True)
    found.guild({"id": "3", "channels": [{"id": "9", "last_message_id": str(snowflake_at(1999.0))}]}, lambda _: True)
    assert not found.complete
    now += 31
    assert found.complete


# ------------------------------------------------------------------------------------------------------------------------------ tools


async def _nothing(channel: str, after: int) -> object:
    return []


def _history(dc: FakeDiscord) -> History:
    async def history(channel: str, after: int) -> object:
        return [dc.message_json(message) for message in dc.channels[int(channel)].messages.values() if message.id > after][:100]

    return history


def _read(raw: object, place: Place) -> Inbound | None:
    assert isinstance(raw, dict)
    return Inbound(f"discord:7:{place.channel}:{raw['id']}", place.address, Sender("42"), raw.get("content") or raw["id"])


async def _through(found: Backfill) -> None:
    task = asyncio.create_task(found.work())
    async with asyncio.timeout(5):
        while not found.complete:  # noqa: ASYNC110  # its state is what is looked at
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
