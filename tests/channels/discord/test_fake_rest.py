"""The REST side of `tests.fakes.discord` with the real discord.py: what is refused, what is kept, how limits and faults show."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator
from typing import Any

import discord
import pytest
from aiohttp import ClientError, ClientSession

from tests.channels.discord.library import Client, code_of, connected, serving
from tests.fakes.discord import DEFAULT_USER, FakeDiscord, Limit
from tests.fakes.discord_rules import pinged
from tests.fakes.discord_state import EDIT, FETCH, HISTORY, ME, SEND, TYPING

NONE = discord.AllowedMentions.none()


@pytest.fixture
async def dc() -> AsyncIterator[FakeDiscord]:
    async with serving() as fake:
        yield fake


@pytest.fixture
async def client(dc: FakeDiscord) -> AsyncIterator[Client]:
    dc.channel()
    async with connected(dc) as ready:
        yield ready


def place(client: Client, channel: int) -> discord.PartialMessageable:
    return client.get_partial_messageable(channel)


@pytest.fixture
def room(dc: FakeDiscord, client: Client) -> discord.PartialMessageable:
    return place(client, next(iter(dc.channels)))


async def test_texts(dc: FakeDiscord, room: discord.PartialMessageable) -> None:
    """Length by code points and by UTF-16 units, nothing but blanks, blanks around."""
    for text in ("x" * 2001, "😀" * 1001):
        with pytest.raises(discord.HTTPException) as refused:
            await room.send(text)
        assert (refused.value.status, refused.value.code) == (400, 50035)
        assert refused.value.text == "Invalid Form Body\nIn content: Must be 2000 or fewer in length."
    for text in ("", " \n"):
        assert await code_of(room.send(text)) == (400, 50006)
    for text in ("x" * 2000, "😀" * 1000, "  kept \n"):
        await room.send(text)
    assert dc.visible(room.id)[-1] == "kept"
    await raw(dc, "POST", f"/channels/{room.id}/messages", {"content": "for all", "flags": 64})
    assert not dc.messages(room.id)[-1].ephemeral


async def test_edits_and_deletes(dc: FakeDiscord, room: discord.PartialMessageable) -> None:
    """Others' messages, messages that are gone, an edit to nothing; what an edit does not name stays."""
    theirs = dc.say(room.id, "hi")
    sent = await room.send("a", embed=discord.Embed(title="t"))
    assert await code_of(room.get_partial_message(theirs).edit(content="b")) == (403, 50005)
    assert await code_of(room.get_partial_message(theirs).delete()) == (403, 50013)
    assert await code_of(room.get_partial_message(99).edit(content="b")) == (404, 10008)
    assert await code_of(sent.edit(content=None, embed=None)) == (400, 50006)
    assert await code_of(sent.edit(content="x" * 2001)) == (400, 50035)
    edited = await sent.edit(content="b")
    assert (edited.content, edited.embeds[0].title, edited.edited_at is not None) == ("b", "t", True)
    await sent.delete()
    assert await code_of(sent.delete()) == (404, 10008)
    assert (dc.visible(room.id), dc.messages(room.id)) == ([], [])


async def test_references(dc: FakeDiscord, room: discord.PartialMessageable) -> None:
    """A reply to nothing is refused, unless `fail_if_not_exists` is false; a reply notifies whom it answers unless told otherwise."""
    gone = discord.MessageReference(message_id=99, channel_id=room.id)
    with pytest.raises(discord.HTTPException, match="In message_reference: Unknown message"):
        await room.send("a", reference=gone)
    gone.fail_if_not_exists = False
    assert (await room.send("a", reference=gone)).reference is None
    theirs = dc.say(room.id, "hi")
    reply = await room.send("b", reference=discord.MessageReference(message_id=theirs, channel_id=room.id))
    assert (reply.type, reply.reference and reply.reference.message_id) == (discord.MessageType.reply, theirs)
    await room.send("c", reference=reply, allowed_mentions=NONE)
    assert [message.pings for message in dc.messages(room.id)] == [set(), {str(DEFAULT_USER)}, set()]


async def test_mentions(dc: FakeDiscord, room: discord.PartialMessageable) -> None:
    """Every body is kept with its `allowed_mentions`, and says whom it notified."""
    text = f"@everyone @here <@{DEFAULT_USER}> <@&77>"
    await room.send(text)
    sent = await room.send(text, allowed_mentions=NONE)
    await sent.edit(
        content=text, allowed_mentions=discord.AllowedMentions(everyone=False, roles=False, users=[discord.Object(DEFAULT_USER)])
    )
    assert [message.pings for message in dc.messages(room.id)] == [{"everyone", str(DEFAULT_USER), "&77"}, {str(DEFAULT_USER)}]
    assert dc.calls_of(SEND)[1].body["allowed_mentions"] == {"parse": []}
    assert dc.calls_of(EDIT)[0].body["allowed_mentions"]["users"] == [DEFAULT_USER]
    both = {"content": "x", "allowed_mentions": {"parse": ["users"], "users": ["1"]}}
    assert (await raw(dc, "POST", f"/channels/{room.id}/messages", both))[1]["errors"]["allowed_mentions"]["_errors"][0]["code"] == (
        "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE"
    )
    assert pinged("<@1> <@2>", {"parse": [], "users": ["2"], "replied_user": True}, 3) == {"2", "3"}


async def test_nonces(dc: FakeDiscord, room: discord.PartialMessageable) -> None:
    """The same nonce gives the message that is there, for minutes; one of more than 25 characters is refused. discord.py sets its own."""
    first = await room.send("a", nonce="n1")
    assert (await room.send("b", nonce="n1")).id == first.id
    assert dc.visible(room.id) == ["a"]
    dc.nonce_life = 0.0
    assert (await room.send("b", nonce="n1")).id != first.id
    assert await code_of(room.send("c", nonce="n" * 26)) == (400, 50035)
    await room.send("d")
    assert dc.calls_of(SEND)[-1].body["enforce_nonce"] is True


async def test_permissions(dc: FakeDiscord, client: Client, room: discord.PartialMessageable) -> None:
    """What the bot may not see, write or read, and people who take no direct messages."""
    dc.forbid(room.id, "send_messages")
    assert await code_of(room.send("a")) == (403, 50013)
    assert await code_of(client.http.send_typing(room.id)) == (403, 50013)
    dc.permit(room.id, "send_messages")
    dc.forbid(room.id, "read_message_history")
    theirs = dc.say(room.id, "hi")
    assert [message async for message in room.history()] == []
    assert await code_of(room.send("a", reference=discord.MessageReference(message_id=theirs, channel_id=room.id))) == (400, 160002)
    dc.forbid(room.id, "attach_files")
    assert await code_of(room.send(file=discord.File(io.BytesIO(b"x"), "x.txt"))) == (403, 50013)
    dc.forbid(room.id, "view_channel")
    for call in (room.send("a"), client.fetch_channel(room.id), room.fetch_message(theirs)):
        assert await code_of(call) == (403, 50001)
    assert await code_of(place(client, 99).send("a")) == (404, 10003)
    user = await client.fetch_user(DEFAULT_USER)
    chat = await user.create_dm()
    await chat.send("a")
    dc.user(DEFAULT_USER, closed=True)
    assert await code_of(chat.send("b")) == (403, 50007)
    assert await code_of(client.fetch_user(99)) == (404, 10013)
    dc.drop_channel(room.id)
    assert await code_of(room.send("a")) == (404, 10003)


async def test_threads(dc: FakeDiscord, client: Client, room: discord.PartialMessageable) -> None:
    """A thread at a message has its id, and is made once; writing wakes an archived one, but not a locked one."""
    message = dc.say(room.id, "start")
    channel = await client.fetch_channel(room.id)
    assert isinstance(channel, discord.TextChannel)
    thread = await channel.create_thread(name="talk", message=discord.Object(message))
    assert (thread.id, thread.parent_id) == (message, room.id)
    assert await code_of(channel.create_thread(name="again", message=discord.Object(message))) == (400, 160004)
    await dc.wait_for(lambda: channel.guild.get_thread(thread.id))
    sent = await thread.send("in it")
    dc.channels[thread.id].archived = True
    assert await code_of(sent.edit(content="b")) == (400, 50083)
    await thread.send("awake")
    assert not dc.channels[thread.id].archived
    dc.channels[thread.id].archived = dc.channels[thread.id].locked = True
    assert await code_of(thread.send("c")) == (400, 50083)
    assert dc.visible(thread.id) == ["in it", "awake"]
    assert [item.id for item in await channel.guild.active_threads()] == []


async def test_history(dc: FakeDiscord, room: discord.PartialMessageable) -> None:
    """Before, after, around; newest first on the wire; ids in the order of time."""
    ids = [dc.say(room.id, str(n)) for n in range(230)]
    assert ids == sorted(ids)
    assert [message.id async for message in room.history(limit=None)] == ids[::-1]
    assert [message.id async for message in room.history(limit=None, after=discord.Object(ids[9]))] == ids[10:]
    assert [message.id async for message in room.history(limit=3, before=discord.Object(ids[9]))] == ids[8:5:-1]
    assert [message.id async for message in room.history(limit=3, around=discord.Object(ids[9]))] == ids[10:7:-1]
    assert abs(discord.utils.snowflake_time(ids[0]).timestamp() - time.time()) < 60
    status, page = await raw(dc, "GET", f"/channels/{room.id}/messages?after={ids[0]}&limit=2")
    assert (status, [int(item["id"]) for item in page]) == (200, [ids[2], ids[1]])
    assert (await raw(dc, "GET", f"/channels/{room.id}/messages?limit=101"))[0] == 400
    assert (await room.fetch_message(ids[0])).content == "0"
    assert {call.channel for call in dc.calls_of(HISTORY) + dc.calls_of(FETCH)} == {room.id}


async def test_files(dc: FakeDiscord, room: discord.PartialMessageable) -> None:
    """A file comes beside the JSON of its message, and can be fetched."""
    sent = await room.send("look", file=discord.File(io.BytesIO(b"words"), "a b.txt"))
    assert (sent.attachments[0].filename, await sent.attachments[0].read()) == ("a b.txt", b"words")
    call = dc.calls_of(SEND)[-1]
    assert (call.content, call.files[0]["content"]) == ("look", b"words")


async def test_buttons(dc: FakeDiscord, room: discord.PartialMessageable) -> None:
    """Buttons are kept; a row too many, a long custom id, the same twice are refused where they are."""
    view = discord.ui.View()
    view.add_item(discord.ui.Button(label="Yes", custom_id="y"))
    await room.send("sure?", view=view)
    assert dc.messages(room.id)[0].buttons == [("Yes", "y")]
    view.stop()
    button = {"type": 2, "style": 1, "label": "x", "custom_id": "c"}
    bad = {"content": "x", "components": [{"type": 1, "components": [button, button, button | {"custom_id": "c" * 101}]}]}
    status, body = await raw(dc, "POST", f"/channels/{room.id}/messages", bad)
    errors = body["errors"]["components"]["0"]["components"]
    assert (status, body["code"], sorted(errors)) == (400, 50035, ["1", "2"])


async def test_pacing(dc: FakeDiscord, room: discord.PartialMessageable) -> None:
    """With a limit discord.py reads the headers and waits before it is refused; another channel is not held up."""
    dc.pace.limit = Limit(3, 0.4)
    began = time.monotonic()
    for n in range(5):
        await room.send(str(n))
    assert time.monotonic() - began > 0.35
    assert [call.status for call in dc.calls_of(SEND)] == [200] * 5


async def test_limits_that_strike(
    dc: FakeDiscord, client: Client, room: discord.PartialMessageable, caplog: pytest.LogCaptureFixture
) -> None:
    """A flood wait and a global one come as 429 with `Via`, which discord.py sits out; who asks again too early is noted."""
    dc.flood(room.id, 0.3)
    sent = await room.send("a")
    assert [call.status for call in dc.calls_of(SEND)] == [429, 200]
    assert dc.pace.impatient == []
    dc.fail(EDIT, 429, {"retry_after": 0.2, "global": True})
    edit = asyncio.create_task(sent.edit(content="b"))
    await dc.wait_for(lambda: "Global rate limit has been hit" in caplog.text)
    await client.http.send_typing(room.id)
    await edit
    assert dc.calls_of(TYPING)[0].at - dc.calls_of(EDIT)[0].at > 0.19
    dc.flood(room.id, 31)
    for _ in range(2):
        status, body = await raw(dc, "POST", f"/channels/{room.id}/typing")
        assert (status, body["global"], round(body["retry_after"])) == (429, False, 31)
    assert len(dc.pace.impatient) == 1


async def test_faults(dc: FakeDiscord, room: discord.PartialMessageable) -> None:
    """fail, hold and drop strike in the order in which they were planned, at the channel they name."""
    dc.fail(SEND, code=50013, channel=99)
    dc.fail(SEND, code=50013, channel=room.id)
    dc.fail(SEND, 503, b"<html>")
    dc.drop(SEND, after=True)
    held = dc.hold(SEND)
    assert await code_of(room.send("a")) == (403, 50013)
    assert await code_of(room.send("a")) == (503, 0)
    with pytest.raises(ClientError):
        await room.send("b")
    waiting = asyncio.create_task(room.send("c"))
    await held.reached.wait()
    assert dc.visible(room.id) == ["b", "c"]
    assert not waiting.done()
    held.release()
    await waiting


async def test_commands(dc: FakeDiscord, client: Client) -> None:
    """A bulk overwrite is all or nothing: each entry that is wrong is named in the answer."""

    @client.tree.command(description="Say something")
    async def ask(interaction: discord.Interaction, text: str, loud: bool = False) -> None:
        await interaction.response.send_message(text)

    assert [command.name for command in await client.tree.sync()] == ["ask"]
    good = {"name": "ok", "description": "d"}
    url = f"/applications/{dc.application_id}/commands"
    wrong: list[dict[str, Any]] = [
        {"name": "Upper"},
        {"name": "a b"},
        {"name": "x" * 33},
        {"description": ""},
        {"description": "x" * 101},
        {"options": [{"name": "o", "description": "d", "type": 3, "choices": [{"name": str(n), "value": str(n)} for n in range(26)]}]},
        {"options": [{"name": "o", "description": "d", "type": 3}, {"name": "r", "description": "d", "type": 3, "required": True}]},
        {"options": [{"name": f"o{n}", "description": "d", "type": 3} for n in range(26)]},
    ]
    for n, change in enumerate(wrong):
        status, body = await raw(dc, "PUT", url, [good, good | {"name": f"c{n}"} | change])
        assert (status, body["code"], list(body["errors"])) == (400, 50035, ["1"]), change
    assert (await raw(dc, "PUT", url, [good, good]))[0] == 400
    assert (await raw(dc, "PUT", url, [good | {"name": f"c{n}"} for n in range(101)]))[1]["code"] == 30032
    assert [command["name"] for command in dc.commands[None]] == ["ask"]
    assert (await raw(dc, "PUT", url, [good | {"name": f"c{n}"} for n in range(100)]))[0] == 200


async def test_hostile_requests(dc: FakeDiscord, room: discord.PartialMessageable) -> None:
    """No token, no JSON, JSON of another shape, a lone surrogate, a path that is none: refused, not broken."""
    url = f"/channels/{room.id}/messages"
    assert await raw(dc, "GET", "/users/@me", token="x") == (401, {"message": "401: Unauthorized", "code": 0})
    assert await raw(dc, "GET", "/nothing") == (404, {"message": "404: Not Found", "code": 0})
    for body, code in ((b"{", 50109), (b'{"content": "\\ud800"}', 50109), (b"[]", 50035), (b"null", 50035), (b'{"content": []}', 50035)):
        assert (await raw(dc, "POST", url, body))[1]["code"] == code
    assert (await raw(dc, "POST", "/channels/x/messages", {"content": "a"}))[1]["code"] == 10003
    assert len(dc.calls_of(ME)) == 2


async def raw(dc: FakeDiscord, method: str, path: str, body: Any = None, *, token: str = "") -> tuple[int, Any]:
    """A request that discord.py would not make."""
    headers = {"Authorization": f"Bot {token or dc.token}"}
    content = {"data": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
    async with ClientSession() as session, session.request(method, dc.base_url + path, headers=headers, **content) as response:
        return response.status, await response.json()
