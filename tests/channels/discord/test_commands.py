"""The slash commands' registration: what is sent, when, and what a refusal costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from channels.base import CommandInfo, Denied
from channels.discord.channel import DiscordChannel
from channels.discord.commands import entries
from gateway.commands.table import MENU as HOUSE
from tests.channels.discord.support import MENU, channel_for, running
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_rules import check_commands
from tests.fakes.discord_state import COMMANDS, ME


def test_all_commands_of_the_house_are_there() -> None:
    """Each with its argument as an option, in servers and direct chats; the service takes them as they are."""
    found = {entry["name"]: entry for entry in entries(HOUSE)}
    assert set(found) == {info.name for info in HOUSE}
    assert {"help", "reset", "fork", "sessions", "switch", "undo", "retry", "stop", "status", "forget"} <= set(found)
    check_commands(list(found.values()))
    assert found["switch"]["options"] == [{"type": 3, "name": "name", "description": "which one", "required": True, "autocomplete": True}]
    assert found["forget"]["options"][0]["autocomplete"]
    assert not found["forget"]["options"][0]["required"]
    assert (found["fork"]["options"][0]["name"], found["fork"]["options"][0]["required"]) == ("name", False)
    assert "options" not in found["status"]
    assert all(entry["contexts"] == [0, 1] for entry in found.values())


def test_what_is_too_long_or_strange_is_bent_or_left_out() -> None:
    """C14: descriptions of a hundred characters, a hundred commands, names that Discord takes, each once."""
    odd = [CommandInfo("Bad Name", "x"), CommandInfo("", "x"), CommandInfo("x" * 33, "x"), CommandInfo("blank", "  ")]
    many = [CommandInfo(f"c{n}", "d" * 140, "<What is this?>") for n in range(150)]
    found = entries([*odd, *many, *many])
    assert len(found) == 100
    check_commands(found)
    assert all(len(entry["description"]) == 100 for entry in found)
    assert found[0]["options"][0]["name"] == "text"


async def test_they_are_registered_when_they_changed(dc: FakeDiscord, tmp_path: Path) -> None:
    """Once, also over restarts; again when the menu or the application is another one."""

    async def begin(menu: list[CommandInfo]) -> None:
        channel = channel_for(dc, tmp_path)
        await channel.start(menu)
        await channel.start(menu)
        await channel.close()

    await begin(MENU)
    await begin(MENU)
    assert len(dc.calls_of(COMMANDS)) == 1
    await begin([*MENU, CommandInfo("new", "A new one")])
    assert [len(call.body) for call in dc.calls_of(COMMANDS)] == [5, 6]
    dc.application_id += 1
    await begin([*MENU, CommandInfo("new", "A new one")])
    assert len(dc.calls_of(COMMANDS)) == 3
    assert (tmp_path / "commands").stat().st_mode & 0o777 == 0o600


def _errors(*places: int) -> dict[str, Any]:
    return {"errors": {str(place): {"description": {"_errors": [{"code": "X", "message": "no"}]}} for place in places}}


async def test_a_refused_command_costs_itself_alone(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """C14: the others are registered, one line says which one is not, and the bot works."""
    dc.fail(COMMANDS, code=50035, body=lambda call: _errors(1) if any(c["name"] == "fork" for c in call.body) else None, times=None)
    with capture_logs() as logs:
        async with running(dc, channel) as gateway:
            dc.say(dc.dm(), "/reset")
            await dc.wait_for(lambda: gateway.texts == ["/reset"])
    assert {command["name"] for command in dc.commands[None]} == {"reset", "switch", "status", "retry"}
    warnings = [entry for entry in logs if entry["log_level"] == "warning"]
    assert [entry["refused"] for entry in warnings] == ["/fork"]


@pytest.mark.parametrize("refusal", [{"code": 30032}, {"code": 50035}, {"code": 50035, "body": _errors(0, 1, 2, 3, 4)}], ids=str)
async def test_a_refusal_of_all_stops_nothing(dc: FakeDiscord, channel: DiscordChannel, refusal: dict[str, Any]) -> None:
    """C14: text commands work, one log line says so, and it is not asked again and again."""
    dc.fail(COMMANDS, times=None, **refusal)
    with capture_logs() as logs:
        for _ in range(3):
            async with running(dc, channel) as gateway:
                dc.say(dc.dm(), "/reset")
                await dc.wait_for(lambda: gateway.texts == ["/reset"])
    assert len([entry for entry in logs if entry["log_level"] == "warning"]) == 1
    assert len(dc.calls_of(COMMANDS)) <= 3


async def test_a_registration_that_does_not_get_through_is_tried_at_the_next_start(dc: FakeDiscord, channel: DiscordChannel) -> None:
    """An error of the service stops nothing; a token that is refused, and stays so, stops all."""
    dc.fail(COMMANDS, 502)
    await channel.start(MENU)
    assert dc.commands == {}
    await channel.start(MENU)
    assert len(dc.commands[None]) == 5
    dc.fail(COMMANDS, 401)
    await channel.start([*MENU, CommandInfo("new", "x")])
    assert len(dc.commands[None]) == 5
    dc.fail(COMMANDS, 401)
    dc.fail(ME, 401, when=lambda call: dc.calls[-2].route == COMMANDS)
    with pytest.raises(Denied):
        await channel.start([*MENU, CommandInfo("new", "x")])


async def test_a_folder_that_cannot_be_written_stops_nothing(dc: FakeDiscord, tmp_path: Path) -> None:
    """They are registered, only not remembered."""
    (tmp_path / "file").write_text("x")
    channel = channel_for(dc, tmp_path / "file" / "discord")
    with capture_logs() as logs:
        async with running(dc, channel) as gateway:
            dc.say(dc.dm(), "hello")
            await dc.wait_for(lambda: gateway.texts == ["hello"])
    await channel.close()
    assert len(dc.commands[None]) == 5
    assert {entry["event"] for entry in logs if entry["log_level"] == "warning"} <= {
        "cannot keep what is registered",
        "cannot keep what was heard",
    }
