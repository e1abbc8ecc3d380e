"""The gateway of `tests.fakes.discord` with the real discord.py: what is lost, what is told again, what ends a client for good."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import discord
import pytest
from aiohttp import ClientError, ClientSession, WSMsgType

from tests.channels.discord.library import INTENTS, Client, connected, serving
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import ME


@pytest.fixture
async def dc() -> AsyncIterator[FakeDiscord]:
    async with serving() as fake:
        yield fake


@pytest.mark.parametrize("how", ["close 4000", "close 1001", "reconnect", "invalid but resumable", "silent"])
async def test_a_resume_tells_what_was_missed(dc: FakeDiscord, how: str) -> None:
    """However the socket ends, one session goes on: each message comes once, in order, also those of the meantime."""
    chat = dc.dm()
    dc.gateway.heartbeat_interval = 0.1
    async with connected(dc, heartbeat_timeout=0.7) as client:
        dc.say(chat, "before")
        await dc.wait_for(lambda: client.heard)
        match how:
            case "close 4000":
                dc.disconnect(4000)
            case "close 1001":
                dc.disconnect(1001)
            case "reconnect":
                dc.gateway.reconnect()
            case "invalid but resumable":
                dc.gateway.invalidate(resumable=True)
            case _:
                dc.go_silent()
        dc.say(chat, "meanwhile")
        await dc.wait_for(lambda: dc.gateway.resumes)
        dc.say(chat, "after")
        await dc.wait_for(lambda: len(client.heard) == 3)
        assert client.texts == ["before", "meanwhile", "after"]
        assert (len(dc.gateway.identifies), client.events.count("RESUMED")) == (1, 1)


@pytest.mark.parametrize("how", ["close 4009", "invalid"])
async def test_a_lost_session_is_started_anew(dc: FakeDiscord, how: str) -> None:
    """Where the session is gone, discord.py identifies again; what was said meanwhile is in the history alone."""
    chat = dc.dm()
    async with connected(dc) as client:
        first = dc.say(chat, "before")
        if how == "invalid":
            dc.gateway.invalidate(resumable=False)
        else:
            dc.disconnect(4009, resumable=False)
        dc.say(chat, "meanwhile")
        await dc.wait_for(lambda: len(dc.gateway.identifies) == 2 and dc.gateway.live)
        dc.say(chat, "after")
        await dc.wait_for(lambda: "after" in client.texts)
        assert "meanwhile" not in client.texts
        channel = await client.fetch_channel(chat)
        assert isinstance(channel, discord.DMChannel)
        missed = [message async for message in channel.history(after=discord.Object(first))]
        assert [message.content for message in missed] == ["meanwhile", "after"]


@pytest.mark.parametrize("away", [False, True])
async def test_an_outage(dc: FakeDiscord, away: bool) -> None:
    """While stopped nothing can be reached; afterwards it is at the same address, with what was said meanwhile in the history. The
    session is lost, also one whose client was about to come back."""
    chat = dc.dm()
    async with connected(dc) as client:
        dc.say(chat, "before")
        await dc.wait_for(lambda: client.heard)
        if away:
            dc.disconnect()
        await dc.stop()
        with pytest.raises(ClientError):
            await client.fetch_channel(chat)
        dc.say(chat, "meanwhile")
        await dc.start()
        await dc.wait_for(lambda: len(dc.gateway.identifies) == 2 and dc.gateway.live, 10)
        dc.say(chat, "after")
        await dc.wait_for(lambda: client.texts == ["before", "after"])
        assert [message.content for message in dc.channels[chat].messages.values()] == ["before", "meanwhile", "after"]


async def test_an_outage_that_keeps_the_session(dc: FakeDiscord) -> None:
    """With `resumable` the gateway tells afterwards what was said."""
    chat = dc.dm()
    async with connected(dc) as client:
        await dc.stop(resumable=True)
        dc.say(chat, "meanwhile")
        await dc.start()
        await dc.wait_for(lambda: client.texts == ["meanwhile"], 10)
        assert len(dc.gateway.identifies) == 1


async def test_the_same_message_again(dc: FakeDiscord) -> None:
    """`repeat` tells of a message a second time, under a new sequence number."""
    chat = dc.dm()
    async with connected(dc) as client:
        message_id = dc.say(chat, "hello")
        dc.repeat(chat, message_id)
        await dc.wait_for(lambda: len(client.heard) == 2)
        assert {message.id for message in client.heard} == {message_id}


async def test_an_event_that_does_not_parse(dc: FakeDiscord) -> None:
    """`push` sends anything; discord.py's `start` ends with whatever its parser raises."""
    async with Client() as client:
        running = asyncio.create_task(client.start(dc.token))
        await dc.online()
        dc.push("MESSAGE_CREATE", {"id": "1"})
        with pytest.raises(KeyError):
            await running


@pytest.mark.parametrize(
    ("code", "error"), [(4004, discord.ConnectionClosed), (4013, discord.ConnectionClosed), (4014, discord.PrivilegedIntentsRequired)]
)
async def test_refusals_that_end_a_client(dc: FakeDiscord, code: int, error: type[Exception]) -> None:
    """A bad token and bad intents: one IDENTIFY, and `start` raises."""
    if code == 4014:
        dc.privileged.clear()
    else:
        dc.gateway.refuse_identify.append(code)
    async with Client() as client:
        with pytest.raises(error):
            await client.start(dc.token)
    assert len(dc.gateway.identifies) == 1


async def test_a_wrong_token_and_a_ban(dc: FakeDiscord) -> None:
    """401 ends the login; so does the page of the wall in front of the API, which discord.py does not repeat."""
    async with Client() as client:
        with pytest.raises(discord.LoginFailure):
            await client.login("wrong")
    dc.ban()
    async with Client() as client:
        with pytest.raises(discord.HTTPException) as banned:
            await client.login(dc.token)
    assert banned.value.status == 429
    assert [call.status for call in dc.calls_of(ME)] == [401, 429]


async def test_content_without_the_intent(dc: FakeDiscord) -> None:
    """Without the intent a guild's messages come blank, unless they name the bot; direct ones come whole; the bot's own too."""
    room, chat = dc.channel(), dc.dm()
    intents = discord.Intents(guilds=True, guild_messages=True, dm_messages=True)
    note = dc.attachment("a.txt", b"words", "text/plain")
    async with connected(dc, intents) as client:
        dc.say(room, "secret", attachments=[note])
        dc.say(room, f"<@{dc.bot.id}> hello")
        dc.say(room, f"<@!{dc.bot.id}> unseen", mentions=[])
        dc.say(chat, "direct", attachments=[note])
        await dc.wait_for(lambda: len(client.heard) == 4)
        assert client.texts == ["", f"<@{dc.bot.id}> hello", "", "direct"]
        assert [len(message.attachments) for message in client.heard] == [0, 0, 0, 1]
        assert await client.heard[3].attachments[0].read() == b"words"


async def test_events_follow_the_intents(dc: FakeDiscord) -> None:
    """What a session did not ask for it does not get, nor what the bot may not see."""
    room, hidden, chat = dc.channel(), dc.channel(name="hidden"), dc.dm()
    dc.forbid(hidden, "view_channel")
    async with connected(dc, discord.Intents(guilds=True, guild_messages=True)) as client:
        assert [[member.id for member in guild.members] for guild in client.guilds] == [[dc.bot.id]]
        dc.say(chat, "direct")
        dc.say(hidden, "hidden")
        dc.say(room, "public")
        await dc.wait_for(lambda: client.heard)
        assert client.heard[0].channel.id == room
        assert len(client.heard) == 1


async def test_edits_and_deletes_are_told(dc: FakeDiscord) -> None:
    """A person's edit and the end of a message come as events; a thread with the note that starts it."""
    room = dc.channel()
    async with connected(dc) as client:
        message_id = dc.say(room, "frist")
        dc.edit(room, message_id, "first")
        thread = dc.thread(room, "more", message=message_id)
        dc.say(thread, "in the thread", user=5)
        dc.delete(room, message_id)
        await dc.wait_for(lambda: "MESSAGE_DELETE" in client.events)
        assert thread == message_id
        kinds = discord.MessageType
        assert [message.type for message in client.heard] == [kinds.default, kinds.thread_starter_message, kinds.default]
        place = client.heard[-1].channel
        assert isinstance(place, discord.Thread)
        assert (place.id, place.parent_id) == (thread, room)
        assert client.events.count("MESSAGE_UPDATE") == 2


async def test_heartbeats(dc: FakeDiscord) -> None:
    """They come at the interval that HELLO told, and are measured."""
    dc.gateway.heartbeat_interval = 0.05
    async with connected(dc) as client:
        await dc.wait_for(lambda: len(dc.gateway.gaps) >= 3)
        dc.gateway.ask_heartbeat()
        assert client.latency < 5
        assert 0 < min(dc.gateway.gaps) <= max(dc.gateway.gaps) < 3


async def test_the_bare_protocol(dc: FakeDiscord) -> None:
    """Without compression, by hand: where it is, and what is not allowed closes the socket with the service's code."""
    payloads = {"nonsense": 4002, '{"op": 99}': 4001, '{"op": 3, "d": {}}': 4003, '{"op": 2, "d": {"token": "x", "intents": 1}}': 4004}
    payloads[f'{{"op": 2, "d": {{"token": "{dc.token}", "intents": {1 << 40}}}}}'] = 4013
    async with ClientSession() as session:
        async with session.get(f"{dc.base_url}/gateway") as response:
            assert await response.json() == {"url": dc.gateway_url}
        for payload, code in payloads.items():
            async with session.ws_connect(f"{dc.gateway_url}?v=10&encoding=json") as socket:
                hello = await socket.receive_json()
                assert hello["op"] == 10
                await socket.send_str(payload)
                assert (await socket.receive()).type is WSMsgType.CLOSE
                assert socket.close_code == code
        async with session.ws_connect(dc.gateway_url) as socket:
            await socket.receive()
            await socket.send_json({"op": 6, "d": {"token": dc.token, "session_id": "gone", "seq": 1}})
            assert await socket.receive_json() == {"op": 9, "d": False, "s": None, "t": None}
        async with session.get(f"{dc.gateway_url}?compress=zstd-stream") as response:
            assert response.status == 400


async def test_a_goodbye(dc: FakeDiscord) -> None:
    """A client that closes with 1000 gives its session up; with any other code it may come back. (discord.py's `close` arrives as 4000:
    its reader closes first.)"""
    hello = {"op": 2, "d": {"token": dc.token, "intents": 1}}
    async with ClientSession() as session:
        for code, left in ((1000, 0), (4000, 1)):
            socket = await session.ws_connect(dc.gateway_url)
            await socket.send_json(hello)
            await dc.online()
            await socket.close(code=code)
            await dc.wait_for(lambda: not dc.gateway.links)
            assert len(dc.gateway.sessions) == left
    async with connected(dc):
        pass
    await dc.wait_for(lambda: dc.gateway.closes == [1000, 4000, 4000])


async def test_members(dc: FakeDiscord) -> None:
    """Roles, names and permissions of members, over the gateway with the intent and over REST."""
    room = dc.channel()
    guild = dc.channels[room].guild
    assert guild is not None
    admins = dc.role(guild, "admins", "manage_messages")
    dc.join(guild, 7, roles=(admins,), nick="Seven")
    async with connected(dc, INTENTS | discord.Intents(members=True)) as client:
        home = client.get_guild(guild)
        assert home is not None
        member = home.get_member(7)
        assert member is not None
        assert (member.display_name, [role.name for role in member.roles]) == ("Seven", ["@everyone", "admins"])
        channel = home.get_channel(room)
        assert channel is not None
        assert channel.permissions_for(member).manage_messages
        assert not channel.permissions_for(home.me).manage_messages
        assert (await home.fetch_member(7)).nick == "Seven"
        dc.say(room, "I am new", user=8)
        await dc.wait_for(lambda: client.heard)
        assert home.get_member(8) is not None
        assert [member.id for member in await home.query_members(user_ids=[8])] == [8]
        with pytest.raises(discord.NotFound):
            await home.fetch_member(99)


async def test_silence_with_a_deaf_peer_is_left_at_the_end(dc: FakeDiscord) -> None:
    """A socket that does not even answer a close does not hold up the end of the fake."""
    async with ClientSession() as session:
        socket = await session.ws_connect(dc.gateway_url)
        await socket.receive()
        dc.go_silent(deaf=True)
        closing = asyncio.create_task(socket.close())
        assert not (await asyncio.wait({closing}, timeout=0.1))[0]
        await dc.stop()
        await closing
