"""How the channel comes and stays connected: login, the gateway's closes, resumes, dead sockets, and what ends it for good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from channels.base import Accept, Address, Adjustable, Context, Denied, NotSent, Pacing, Piece, Retry, Telling, Timed, Unknown
from channels.discord.channel import DiscordChannel, make
from channels.discord.client import Client, Pace
from channels.discord.interactions import Interactions
from channels.discord.marks import Marks
from channels.discord.places import Places
from channels.discord.reading import Reading
from channels.discord.settings import Settings
from channels.discord.transport import Http
from channels.settings import Seconds
from tests.channels.discord.support import MENU, Gateway, Sessions, channel_for, quick, running
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import COMMANDS, ME, SEND

_EVENTS = ("MESSAGE_CREATE", "MESSAGE_UPDATE", "INTERACTION_CREATE", "GUILD_CREATE", "READY", "THREAD_UPDATE", "CHANNEL_CREATE")
_KEYS = (
    "id",
    "channel_id",
    "guild_id",
    "author",
    "content",
    "type",
    "token",
    "data",
    "user",
    "channel",
    "guilds",
    "channels",
    "threads",
    "mentions",
)
_LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-1, 12), st.sampled_from(("1", "600", "", "x", "<@600> hi")))
_JSON = st.recursive(
    _LEAVES, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4)), max_leaves=8
)


async def ended(channel: DiscordChannel, accept: Accept) -> Exception:
    """What the run ends with."""
    try:
        async with asyncio.timeout(5):
            await channel.run(accept)
    except Exception as error:
        return error
    raise AssertionError("it ended by itself")


# ---------------------------------------------------------------------------------------------------------------------------- login


async def test_the_first_contact(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """One login, the slash commands, and no connection yet."""
    await channel.start(MENU)
    assert len(dc.calls_of(ME)) == 1
    assert len(dc.calls_of(COMMANDS)) == 1
    assert channel.last_sign_of_life() > 0
    assert dc.gateway.connects == []


async def test_a_wrong_token_is_tried_once(dc: FakeDiscord, tmp_path: Path) -> None:
    """C20: one try, Denied, and the token in no log."""
    channel = channel_for(dc, tmp_path, token="MTIz.wrong.token")
    with capture_logs() as logs, pytest.raises(Denied, match="does not accept the bot token"):
        await channel.start(MENU)
    assert len(dc.calls_of(ME)) == 1
    assert "wrong.token" not in repr(logs)
    await channel.close()


async def test_a_ban_page_at_the_login_means_a_long_wait(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C20: HTML instead of JSON is no crash; the next try comes when the page says so, whoever asks earlier."""
    dc.ban("*", times=None)
    with pytest.raises(Retry) as raised:
        await channel.start(MENU)
    assert raised.value.after >= 600
    before = len(dc.calls)
    with pytest.raises(Retry):
        await channel.start(MENU)
    assert len(dc.calls) == before


@pytest.mark.parametrize("body", [b"<html></html>", b"[]", b'{"id": "x"}'])
async def test_nonsense_at_the_login_is_tried_again(dc: FakeDiscord, channel: DiscordChannel, body: bytes) -> None:
    """A captive portal is no crash, and no reason to stop for good."""
    dc.fail(ME, 200, body)
    with pytest.raises(Unknown):
        await channel.start(MENU)
    await channel.start(MENU)


async def test_an_outage_at_the_start_is_tried_again(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """Refused connections, errors of the service, a gateway address that is none."""
    await dc.stop()
    with pytest.raises(NotSent):
        await channel.start(MENU)
    await dc.start()
    dc.fail("GET /gateway", 503)
    with pytest.raises(Unknown):
        await channel.start(MENU)
    dc.fail("GET /gateway", 200, b'{"url": "file:///etc"}')
    with pytest.raises(Unknown):
        await channel.start(MENU)
    await channel.start(MENU)


async def test_run_without_start_is_an_error(channel: DiscordChannel) -> None:
    """And no crash of another kind."""
    with pytest.raises(Unknown):
        await channel.run(Gateway().accept)


# ------------------------------------------------------------------------------------------------------------ closed for good or not


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (4014, "Message Content intent"),
        (4013, "Message Content intent"),
        (4004, "does not accept the bot token"),
        (4011, "too many servers"),
        (4010, "4010"),
        (4012, "4012"),
    ],
)
async def test_a_close_for_good_says_what_to_do(dc: FakeDiscord, channel: DiscordChannel, code: int, words: str) -> None:
    """C04: one IDENTIFY, no reconnect, one sentence that names the switch and where it is."""
    dc.gateway.refuse_identify = [code]
    await channel.start(MENU)
    error = await ended(channel, Gateway().accept)
    assert isinstance(error, Denied)
    assert words in str(error)
    if code in (4013, 4014):
        assert "developer portal" in str(error)
    assert len(dc.gateway.identifies) == 1


async def test_a_missing_intent_is_named_by_the_service_itself(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C04: switched off in the portal: already the login says so, and the connection ends the channel."""
    dc.privileged.clear()
    with capture_logs() as logs:
        await channel.start(MENU)
    assert ["Message Content" in entry["event"] for entry in logs if entry["log_level"] == "warning"] == [True]
    assert isinstance(await ended(channel, Gateway().accept), Denied)
    assert len(dc.gateway.identifies) == 1


async def test_only_what_is_needed_is_asked_for(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """Servers, messages and their content: no members, no presences."""
    async with running(dc, channel):
        (identify,) = dc.gateway.identifies
        assert identify["intents"] == 1 << 0 | 1 << 9 | 1 << 12 | 1 << 15


@pytest.mark.parametrize("code", [1000, 1001, 4000, 4001, 4007, 4008, 4009])
async def test_a_passing_close_is_got_over(dc: FakeDiscord, channel: DiscordChannel, code: int) -> None:
    """The session goes on where it can, and no message is missed or heard twice."""
    async with running(dc, channel) as gateway:
        chat = dc.dm()
        dc.say(chat, "one")
        await dc.wait_for(lambda: gateway.texts == ["one"])
        dc.disconnect(code)
        dc.say(chat, "two")
        await dc.wait_for(lambda: gateway.texts == ["one", "two"])
        assert gateway.again == []


GARBLED: dict[str, bytes | str] = {
    "no JSON": "hello?",
    "a number": "42",
    "a list": "[]",
    "null": "null",
    "an empty object": "{}",
    "an op of words": '{"op": "x", "d": null, "s": null, "t": null}',
    "an unknown op": '{"op": 99, "d": {}, "s": null, "t": null}',
    "no event": '{"op": 0, "d": {}, "s": 3}',
    "an event of a number": '{"op": 0, "d": {}, "s": null, "t": 7}',
    "an event of a list": '{"op": 0, "d": {}, "s": null, "t": []}',
    "a sequence of words": '{"op": 0, "d": {}, "s": "x", "t": "MESSAGE_CREATE"}',
    "a hello without words": '{"op": 10, "d": null, "s": null, "t": null}',
    "a hello of nonsense": '{"op": 10, "d": {"heartbeat_interval": "often"}, "s": null, "t": null}',
    "an invalid session of nonsense": '{"op": 9, "d": {"x": 1}, "s": null, "t": null}',
    "a second READY": '{"op": 0, "d": {"session_id": 5}, "s": 9, "t": "READY"}',
    "READY of null": '{"op": 0, "d": null, "s": 9, "t": "READY"}',
    "no zlib": b"hello\x00\x00\xff\xff",
    "half of zlib": b"\x78\x9c\x00",
    "zeros": bytes(1 << 16),
    "deep": "[" * 100_000,
    "no text": b"\xff\xfe\xfd",
    "very long": '{"op": 0, "t": "TYPING_START", "s": null, "d": "' + "x" * (1 << 20) + '"}',
}


@pytest.mark.parametrize("frame", GARBLED.values(), ids=GARBLED)
async def test_a_frame_that_is_none_of_discord_s_costs_a_connection_at_most(
    dc: FakeDiscord, channel: DiscordChannel, frame: bytes | str
) -> None:
    """What is said behind it is heard, once; the channel does not end by it."""
    async with running(dc, channel) as gateway:
        chat = dc.dm()
        dc.say(chat, "one")
        await dc.wait_for(lambda: gateway.texts == ["one"])
        dc.gateway.garble(frame)
        dc.say(chat, "two")
        await dc.wait_for(lambda: gateway.texts == ["one", "two"], timeout=15)
        dc.say(chat, "three")
        await dc.wait_for(lambda: gateway.texts == ["one", "two", "three"])


async def test_a_resume_repeats_nothing_to_the_gateway_that_it_has(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C09: the same message with a new sequence number has the same id."""
    async with running(dc, channel) as gateway:
        chat = dc.dm()
        number = dc.say(chat, "hello")
        await dc.wait_for(lambda: gateway.texts == ["hello"])
        dc.disconnect()
        dc.repeat(chat, number)
        await dc.wait_for(lambda: gateway.again)
        assert len(dc.gateway.resumes) == 1
        assert gateway.texts == ["hello"]


async def test_the_gateway_may_ask_to_come_again(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """Op 7, a session that is invalid but can go on, one that cannot, and a heartbeat out of turn."""
    async with running(dc, channel) as gateway:
        chat = dc.dm()
        dc.say(chat, "one")
        await dc.wait_for(lambda: gateway.texts == ["one"])
        acts: list[Callable[[], None]] = [
            dc.gateway.reconnect,
            lambda: dc.gateway.invalidate(resumable=True),
            lambda: dc.gateway.invalidate(resumable=False),
            dc.gateway.ask_heartbeat,
        ]
        for n, act in enumerate(acts):
            act()
            dc.say(chat, f"after {n}")
            await dc.wait_for(lambda: gateway.texts[-1].startswith("after") and len(gateway.texts) == n + 2)  # noqa: B023  # awaited here
        assert gateway.texts == ["one", "after 0", "after 1", "after 2", "after 3"]


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_dead_socket_is_noticed(dc: FakeDiscord, tmp_path: Path, deaf: bool) -> None:
    """Nothing comes any more, not even an answer to a heartbeat: the connection is made anew, also where a close goes unanswered."""
    dc.gateway.heartbeat_interval = 0.1
    channel = channel_for(dc, tmp_path, heartbeat_seconds=0.4)
    async with running(dc, channel) as gateway:
        chat = dc.dm()
        dc.say(chat, "one")
        await dc.wait_for(lambda: gateway.texts == ["one"])
        dc.go_silent(deaf=deaf)
        dc.say(chat, "two")
        await dc.wait_for(lambda: gateway.texts == ["one", "two"], timeout=10)
        life = channel.last_sign_of_life()
        await dc.wait_for(lambda: channel.last_sign_of_life() > life)
    await channel.close()


@pytest.mark.parametrize("resumable", [False, True])
async def test_an_outage_is_got_over(dc: FakeDiscord, channel: DiscordChannel, resumable: bool) -> None:
    """Refused connections for a while: one line when it begins and one when it ends, and then what was missed."""
    with capture_logs() as logs:
        async with running(dc, channel) as gateway:
            chat = dc.dm()
            dc.say(chat, "one")
            await dc.wait_for(lambda: gateway.texts == ["one"])
            await dc.stop(resumable=resumable)
            dc.say(chat, "two")
            await asyncio.sleep(0.3)  # real time of refused connections
            await dc.start()
            await dc.wait_for(lambda: gateway.texts == ["one", "two"])
    events = [entry["event"] for entry in logs if "gateway" in entry["event"]]
    assert events == ["the gateway has a problem", "the gateway works again"]


@pytest.mark.parametrize("resumes", [False, True], ids=["no session", "sessions that cannot go on"])
async def test_the_pauses_keep_the_service_s_counts(resumes: bool) -> None:
    """Connections that do not last are followed by growing pauses, IDENTIFYs never come closer than five seconds, and a bad day stays below
    the thousand of them that cost the token; even where each session is lost at once."""
    now = 0.0

    async def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    pace = Pace(clock=lambda: now, pause=pause, spread=lambda: 0.0)
    times: list[float] = []
    while now < 86_400:
        await pace.reconnect()
        await pace.identify()
        times.append(now)
        pace.lasted(0.0)
        if resumes:
            await pace.reconnect()
            pace.lasted(0.0)
            pace.answered()
    assert len(times) < 900
    assert min(b - a for a, b in pairwise(times)) >= 5
    pace.lasted(600.0)
    before = now
    await pace.reconnect()
    assert now == before


async def test_after_a_long_outage_a_lost_session_is_replaced_at_once() -> None:
    """What answers "that session is gone" is back: the new one does not wait as long as the outage has taught."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    pace = Pace(clock=lambda: 1000.0, pause=pause)
    for _ in range(12):
        await pace.reconnect()
        pace.lasted(0.0)
    pauses.clear()
    pace.answered()
    await pace.reconnect()
    await pace.identify()
    assert pauses == []
    await pace.reconnect()
    assert pauses[0] > 10


# ------------------------------------------------------------------------------------------------------------------- strange events


@pytest.mark.parametrize(
    ("event", "data"),
    [
        ("MESSAGE_CREATE", {"id": "1"}),
        ("MESSAGE_CREATE", {"id": 5, "channel_id": [], "author": None}),
        ("MESSAGE_UPDATE", {"id": "1", "channel_id": "2"}),
        ("INTERACTION_CREATE", {"id": "1", "type": 2, "token": "t", "data": 5}),
        ("GUILD_CREATE", {"id": "7"}),
        ("GUILD_CREATE", {"nothing": True}),
        ("CHANNEL_UPDATE", {"id": "x"}),
        ("THREAD_CREATE", {"id": "1", "guild_id": "2"}),
        ("GUILD_ROLE_UPDATE", {}),
        ("SOMETHING_NEW", {"id": 1}),
        ("TYPING_START", None),
    ],
)
async def test_one_event_that_cannot_be_read_stops_nothing(dc: FakeDiscord, channel: DiscordChannel, event: str, data: object) -> None:
    """The library would end the connection; here it is passed over, and what comes behind it is heard over the same session."""
    async with running(dc, channel) as gateway:
        dc.push(event, data)
        dc.say(dc.dm(), "still there?")
        await dc.wait_for(lambda: gateway.texts == ["still there?"])
        assert len(dc.gateway.connects) == 1


async def test_a_ready_that_cannot_be_read_is_followed_by_another(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """Without it there is no session: a new one begins."""
    async with running(dc, channel) as gateway:
        dc.push("READY", {"user": None})
        await dc.wait_for(lambda: len(dc.gateway.identifies) == 2)
        await dc.online()
        dc.say(dc.dm(), "hello")
        await dc.wait_for(lambda: gateway.texts == ["hello"])
    assert not dc.gateway.resumes


async def test_sends_go_on_while_the_reading_begins_anew(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """The lanes need no gateway: between two runs, and after a failed start, they send."""
    async with running(dc, channel):
        pass
    chat = Address("discord", str(dc.dm()))
    await channel.send(chat, Piece("between"))
    dc.fail(ME, 500)
    with pytest.raises(Unknown):
        await channel.start(MENU)
    await channel.send(chat, Piece("after"))
    async with running(dc, channel) as gateway:
        dc.say(dc.dm(), "hello")
        await dc.wait_for(lambda: gateway.texts == ["hello"])
    assert dc.visible(int(chat.chat)) == ["between", "after"]
    assert all(call.ok for call in dc.calls_of(SEND))


async def test_heartbeats_keep_their_time(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C03: also while thousands of messages come."""
    dc.gateway.heartbeat_interval = 0.2
    async with running(dc, channel) as gateway:
        chat = dc.dm()
        for n in range(2000):
            dc.say(chat, f"{n}")
        await dc.wait_for(lambda: len(gateway.texts) == 2000 and len(dc.gateway.heartbeats) > 5, timeout=15)
        assert gateway.texts == [f"{n}" for n in range(2000)]
        gaps = [b - a for a, b in pairwise(dc.gateway.heartbeats)]
        assert max(gaps) < 3.0  # with room for a machine that is busy; a blocked loop would take it all


async def test_the_library_says_nothing_of_what_people_write(dc: FakeDiscord, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Below WARNING it logs every event whole; made by `make`, it does not."""
    caplog.set_level(logging.DEBUG)
    logging.getLogger("discord").setLevel(logging.NOTSET)
    channel = make(Settings(api_base=dc.base_url), Context(dc.token, tmp_path, Sessions()))
    async with running(dc, channel) as gateway:
        dc.say(dc.dm(), "private words")
        await dc.wait_for(lambda: gateway.texts)
    await channel.close()
    assert "private words" not in caplog.text
    assert dc.token not in caplog.text


async def test_the_end_is_said_to_the_gateway(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """The bot does not stay online for a minute after the daemon has ended."""
    async with running(dc, channel):
        pass
    await dc.wait_for(lambda: dc.gateway.closes == [1000])


@given(st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=8), st.sampled_from(_EVENTS))
@settings(max_examples=80, deadline=None)
def test_no_event_breaks_the_reading(data: dict[str, object], event: str) -> None:
    """Whatever shape it has: it is heard, or passed over."""

    async def hear() -> None:
        http = Http()
        client = Client(http, lambda event, data: None, quick())
        marks = Marks(Path("/nonexistent"))
        marks.live(1.0)
        places = Places(lambda channel: asyncio.sleep(1e9, None))  # type: ignore[arg-type]  # never answers
        reading = Reading(http, client, "600", Gateway().accept, places, marks, Interactions(http, Sessions()), backlog=0)
        for parse in (client._connection.parsers[event],) if event != "READY" else ():
            parse(data)
        reading.hear(event, data)
        await reading._shut(0.0)

    asyncio.run(hear())


async def test_an_outage_shows_in_the_health(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """While the gateway is away the channel says so, goes on by itself, and does not count as hanging."""
    assert isinstance(channel, Telling)
    assert isinstance(channel, Timed)
    assert (channel.trouble(), channel.overdue()) == ("", 0.0)
    async with running(dc, channel):
        await dc.wait_for(lambda: not channel.trouble())
        await dc.stop()
        await dc.wait_for(lambda: "cannot reach 127.0.0.1" in channel.trouble())
        assert channel.overdue() == 0.0
        await dc.start()
        await dc.wait_for(lambda: not channel.trouble())
    assert channel.overdue() == 0.0


def test_what_may_change_while_it_runs(tmp_path: Path) -> None:
    """Pacing and backlog, as the config has them."""
    channel = channel_for(FakeDiscord(), tmp_path)
    assert isinstance(channel, Adjustable)
    channel.adjust(Settings(sends_per_second=7, chat_per_second=0.5, group_per_minute=9, backlog=Seconds(60)))
    assert (channel.pacing, channel.backlog) == (Pacing(7, 0.5, 9, apart=True), 60.0)
    assert channel.adjustable == {"sends_per_second", "chat_per_second", "group_per_minute", "backlog"}
