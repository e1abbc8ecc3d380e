"""Interactions in `tests.fakes.discord` with the real discord.py: commands, buttons, completion, and how long each may be answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import discord
import pytest

from tests.channels.discord.library import Client, code_of, connected, serving
from tests.fakes.discord import FakeDiscord, Interaction
from tests.fakes.discord_state import CALLBACK, EDIT_ORIGINAL, FOLLOWUP

COMMANDS = [
    {
        "name": "ask",
        "description": "Ask",
        "options": [
            {"name": "text", "description": "What", "type": 3, "required": True},
            {"name": "times", "description": "How often", "type": 4},
        ],
    },
    {
        "name": "switch",
        "description": "Switch",
        "options": [{"name": "to", "description": "Where", "type": 3, "autocomplete": True, "required": True}],
    },
    {"name": "chat", "description": "Chats", "options": [{"name": "new", "description": "A new one", "type": 1, "options": []}]},
]


@pytest.fixture
async def dc() -> AsyncIterator[FakeDiscord]:
    async with serving() as fake:
        yield fake


@pytest.fixture
async def client(dc: FakeDiscord) -> AsyncIterator[Client]:
    dc.channel()
    async with connected(dc) as ready:
        await ready.http.bulk_upsert_global_commands(dc.application_id, payload=COMMANDS)
        yield ready


@pytest.fixture
def room(dc: FakeDiscord, client: Client) -> int:
    return next(iter(dc.channels))


async def heard(dc: FakeDiscord, client: Client) -> discord.Interaction:
    """The newest that came."""
    await dc.wait_for(lambda: len(client.asked) == len(dc.interactions))
    return client.asked[-1]


@pytest.mark.parametrize("direct", [False, True])
async def test_a_slash_command(dc: FakeDiscord, client: Client, room: int, direct: bool) -> None:
    """Its name, options and who sent it come; deferred and edited, a person sees the answer; followups come after it."""
    place = dc.dm(5) if direct else room
    asked = dc.slash(place, "ask", {"text": "why?", "times": 2}, user=5)
    item = await heard(dc, client)
    assert item.data is not None
    assert item.data["name"] == "ask"  # type: ignore[typeddict-item]
    assert [(option["name"], option["value"]) for option in item.data["options"]] == [("text", "why?"), ("times", 2)]  # type: ignore
    assert (item.user.id, item.channel_id, item.guild_id is None) == (5, place, direct)
    await item.response.defer()
    assert (dc.visible(place), dc.messages(place)[0].loading) == ([], True)
    assert asked.delay is not None
    assert asked.delay < 3
    await item.edit_original_response(content="because", allowed_mentions=discord.AllowedMentions.none())
    await item.followup.send("and more")
    assert dc.visible(place) == ["because", "and more"]
    assert (await item.original_response()).id == asked.original
    assert [call.body.get("allowed_mentions") for call in dc.calls_of(EDIT_ORIGINAL, place)] == [{"parse": []}]
    await item.delete_original_response()
    assert dc.visible(place) == ["and more"]
    assert await code_of(item.edit_original_response(content="x")) == (404, 10008)


async def test_a_followup_takes_the_place_of_a_deferred_response(dc: FakeDiscord, client: Client, room: int) -> None:
    """The first followup after "is thinking" is that message."""
    asked = dc.slash(room, "ask", {"text": "why?"})
    item = await heard(dc, client)
    await item.response.defer()
    sent = await item.followup.send("because", wait=True)
    assert (sent.id, dc.visible(room), asked.followups) == (asked.original, ["because"], [])


async def test_answers_for_one_person(dc: FakeDiscord, client: Client, room: int) -> None:
    """An ephemeral response is seen by a person, but is no message of the channel."""
    dc.slash(room, "chat new")
    item = await heard(dc, client)
    assert item.data is not None
    assert item.data["options"][0]["name"] == "new"  # type: ignore
    await item.response.send_message("only you", ephemeral=True)
    assert dc.visible(room) == ["only you"]
    assert dc.messages(room)[0].ephemeral
    channel = await client.fetch_channel(room)
    assert isinstance(channel, discord.TextChannel)
    assert [message async for message in channel.history()] == []
    await dc.wait_for(lambda: "MESSAGE_CREATE" in client.events)


async def test_how_long_it_can_be_answered(dc: FakeDiscord, client: Client, room: int) -> None:
    """Once, within three seconds; the token then lives for a quarter of an hour."""
    late = dc.slash(room, "ask", {"text": "late"})
    late.age_by(3)
    assert await code_of((await heard(dc, client)).response.defer()) == (404, 10062)
    asked = dc.slash(room, "ask", {"text": "twice"})
    item = await heard(dc, client)
    assert await code_of(item.followup.send("too early")) == (404, 10015)
    await item.response.defer()
    data: Any = {"id": item.id, "type": 2, "token": item.token, "version": 1, "application_id": 1, "attachment_size_limit": 1}
    again: discord.Interaction = discord.Interaction(data=data, state=item._state)
    assert await code_of(again.response.defer()) == (400, 40060)
    asked.expire()
    assert await code_of(item.edit_original_response(content="x")) == (401, 50027)
    assert await code_of(item.followup.send("x")) == (401, 50027)
    item.token = "unknown"
    assert await code_of(item.edit_original_response(content="x")) == (404, 10015)
    assert [call.code for call in dc.calls_of(CALLBACK)] == [10062, 0, 40060]
    assert [call.code for call in dc.calls_of(FOLLOWUP)] == [10015, 50027]


async def test_buttons(dc: FakeDiscord, client: Client, room: int) -> None:
    """A press is found by label or custom id; the message can be edited in answering it, or left."""
    view = discord.ui.View(timeout=None)
    view.add_item(discord.ui.Button(label="Yes", custom_id="y:1"))
    await client.get_partial_messageable(room).send("sure?", view=view)
    view.stop()
    pressed: list[Interaction] = []
    for button in ("Yes", "y:1"):
        pressed.append(dc.press(room, button, user=5))
        item = await heard(dc, client)
        assert (item.type, item.user.id) == (discord.InteractionType.component, 5)
        assert item.data is not None
        assert item.data["custom_id"] == "y:1"  # type: ignore[typeddict-item]
        assert item.message is not None
        assert item.message.content == "sure?"
        if button == "Yes":
            await item.response.defer()
            assert (await item.edit_original_response(content="really?")).id == item.message.id
            assert dc.visible(room) == ["really?"]
            dc.edit(room, item.message.id, "sure?")
        else:
            await item.response.edit_message(content="done", view=None)
    assert dc.visible(room) == ["done"]
    assert [one.callback and one.callback["type"] for one in pressed] == [6, 7]
    with pytest.raises(AssertionError, match="no button"):
        dc.press(room, "Yes")


async def test_completion(dc: FakeDiscord, client: Client, room: int) -> None:
    """Choices come back, at most 25; a completion has no other answer."""
    asked = dc.autocomplete(room, "switch", "to", "wo")
    item = await heard(dc, client)
    assert item.type is discord.InteractionType.autocomplete
    assert item.data is not None
    assert item.data["options"] == [{"name": "to", "type": 3, "value": "wo", "focused": True}]  # type: ignore[typeddict-item]
    many = [discord.app_commands.Choice(name=f"c{n}", value=f"c{n}") for n in range(26)]
    assert await code_of(item.response.autocomplete(many)) == (400, 50035)
    await item.response.autocomplete(many[:1])
    assert asked.choices == [{"name": "c0", "value": "c0"}]


def test_a_person_can_only_send_what_is_registered() -> None:
    """An unknown command, a missing or an unknown option are the test's mistakes."""
    dc = FakeDiscord()
    room = dc.channel()
    dc.commands[None] = [command | {"id": str(n)} for n, command in enumerate(COMMANDS)]
    for name, options in (("nothing", {}), ("chat old", {}), ("ask", {}), ("ask", {"text": "a", "colour": "red"})):
        with pytest.raises(AssertionError):
            dc.slash(room, name, options)
    assert dc.slash(room, "nothing", {"n": 1.5}, check=False).data["options"] == [{"name": "n", "type": 10, "value": 1.5}]


async def test_a_deleted_channel(dc: FakeDiscord, client: Client, room: int) -> None:
    """An interaction whose channel is gone cannot be answered."""
    for deferred in (False, True):
        place = dc.channel(name="gone")
        dc.slash(place, "ask", {"text": "a"})
        item = await heard(dc, client)
        if deferred:
            await item.response.defer()
        dc.drop_channel(place)
        call = item.edit_original_response(content="x") if deferred else item.response.defer()
        assert await code_of(call) == (404, 10003)
