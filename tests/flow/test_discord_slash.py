"""Discord end to end: slash commands, completions and buttons, acknowledged in time whatever else goes on, and answered whatever becomes of
their tokens."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.discord import FakeDiscord, Interaction
from tests.fakes.discord_state import CALLBACK, EDIT, EDIT_ORIGINAL, SEND
from tests.fakes.openai import DONE, Asked, FakeModel, Reply, Step, delta, says
from tests.flow.daemon import KEY
from tests.flow.on_discord import ANA, BEN, EVE, PATIENCE, alone, asks, check_bodies, check_log, restarted, served, shown, told, until

BUSY = 100
TIME = 3.0
"""Discord's, for the first answer to an interaction."""


async def answered(dc: FakeDiscord, item: Interaction, *parts: str) -> str:
    """Wait for the text that took the place of "thinking", with these words in it; it was acknowledged in time."""

    def text() -> str:
        message = dc.channels[item.channel].messages.get(item.original or 0)
        there = message is not None and not message.loading and all(part.lower() in message.content.lower() for part in parts)
        return message.content if there and message else ""

    found = await dc.wait_for(text, PATIENCE)
    assert item.delay is not None
    assert item.delay < TIME
    return found


async def completed(dc: FakeDiscord, item: Interaction) -> list[str]:
    """What is offered for what was typed."""
    await dc.wait_for(lambda: item.choices is not None, PATIENCE)
    assert item.delay is not None
    assert item.delay < TIME
    return [str(choice["value"]) for choice in item.choices or ()]


class Busy:
    """A model that talks to busy people until it is told to come to an end; others get the usual answer."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.given: dict[str, str] = {}

    def answer(self, asked: Asked) -> Reply | None:
        return Reply(self._steps(asked.words)) if asked.words.startswith("busy") else None

    def _steps(self, words: str) -> Iterator[Step]:
        self.given[words] = words
        yield delta(words, role="assistant")
        while not self.over.is_set():
            yield 0.1
            self.given[words] += " on"
            yield delta(" on")
        yield delta(finish="stop")
        yield DONE


@pytest.mark.timeout(90)
async def test_all_commands_are_acknowledged_in_time_while_100_turns_run(tmp_path: Path) -> None:
    """Each command of the house, completions and buttons: the first answer within three seconds, its words in that place."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        talking = Busy()
        model.script(talking.answer)
        busy = [dc.dm(700_000_000_000_002_000 + n) for n in range(BUSY)]
        chat = dc.dm(ANA)
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            await asks(dc, chat, "one")
            for number, channel in enumerate(busy):
                dc.say(channel, f"busy {number}")
            await model.wait(1 + BUSY, 20)
            assert model.active == BUSY
            names = [str(command["name"]) for command in dc.commands[None]]
            await answered(dc, dc.slash(chat, "status"), "Session: `main`")
            await answered(dc, dc.slash(chat, "fork", {"name": "West!"}), "`west`")
            assert await completed(dc, dc.autocomplete(chat, "switch", "name", "")) == ["west", "main"]
            assert await completed(dc, dc.autocomplete(chat, "switch", "name", "MA")) == ["main"]
            await answered(dc, dc.slash(chat, "switch", {"name": "main"}), "You are now in `main`.")
            await answered(dc, dc.slash(chat, "reset"), "`main`")
            pressed = dc.press(chat, "Back to main")
            await told(dc, chat, "You are now in `main`.")
            assert pressed.delay is not None
            assert pressed.delay < TIME
            await answered(dc, dc.slash(chat, "sessions"), "main", "west")
            await answered(dc, dc.slash(chat, "retry"), "Heard: one")
            await answered(dc, dc.slash(chat, "undo"), "Taken back")
            await answered(dc, dc.slash(chat, "start"))
            await answered(dc, dc.slash(chat, "help"), "/fork")
            await answered(dc, dc.slash(chat, "whoami"), f"discord:{ANA}")
            assert await completed(dc, dc.autocomplete(chat, "forget", "name", "we")) == ["west"]
            await answered(dc, dc.slash(chat, "forget", {"name": "west"}), "for good")
            stopped = dc.slash(busy[0], "stop")
            await answered(dc, stopped, "Stopped.")
            # All at once, each in a chat that is busy.
            everything = [
                dc.slash(channel, name) for channel, name in zip(busy[1:], ("status", "sessions", "help", "whoami") * 10, strict=False)
            ]
            for item in everything:
                await answered(dc, item)
            tried = {str(item.data["name"]) for item in dc.interactions if item.type == 2}
            assert tried == set(names)
            assert model.active == BUSY - 1
            talking.over.set()
            for number, channel in enumerate(busy[1:], 1):
                await until(dc, channel, lambda seen, number=number: talking.given[f"busy {number}"] in seen)  # type: ignore[misc]
            assert await daemon.stop() == 0
        assert not [call for call in dc.calls_of(CALLBACK) if not call.ok]
        assert sum(asked.words.startswith("busy") for asked in model.asked) == BUSY
        check_bodies(dc)
        check_log(daemon, dc)


@pytest.mark.parametrize("how", ["expired", "unknown message", "unknown webhook"])
async def test_an_expired_token_falls_back_to_a_message_that_names_the_asker(tmp_path: Path, how: str) -> None:
    """C02: the command waited for a long turn. In a server it names who asked, without a ping; nothing is lost, nothing is said twice."""
    gate = asyncio.Event()
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        channel = dc.channel()
        dc.join(dc.channels[channel].guild or 0, ANA)
        model.then(Reply([gate, *says("At last.").steps]))
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            dc.say(channel, f"<@{dc.bot.id}> a long one", user=ANA)
            await model.wait()
            item = dc.slash(channel, "fork", {"name": "west"}, user=ANA)
            await dc.wait_for(lambda: item.acknowledged, PATIENCE)
            if how == "expired":
                item.expire()
            else:
                dc.fail(EDIT_ORIGINAL, code=10008 if how == "unknown message" else 10015, times=None)
            gate.set()
            said = await told(dc, channel, "You are now in `west`")
            assert said.startswith(f"<@{ANA}>\n")
            message = dc.messages(channel)[-1]
            assert message.pings == set()
            assert message.buttons == [("Back to main", "/switch main")]
            dc.press(channel, "Back to main", user=ANA)
            await told(dc, channel, "You are now in `main`.")
            assert await daemon.stop() == 0
        assert sum("west" in text for text in dc.visible(channel)) == 1
        check_bodies(dc)
        check_log(daemon, dc)


async def test_a_token_that_expires_while_its_answer_grows(tmp_path: Path) -> None:
    """C02: the answer to /retry goes on in the same message, and in further ones where it is long, without the token."""
    gate = asyncio.Event()
    long = " ".join(f"word{n}" for n in range(700))
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        chat = dc.dm(ANA)
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            await asks(dc, chat, "tell me")
            model.then(Reply([delta("", role="assistant"), delta(long[:300]), gate, delta(long[300:]), delta(finish="stop"), DONE]))
            item = dc.slash(chat, "retry")
            await until(dc, chat, lambda seen: len(seen) == 2 and seen[-1].startswith("word0 word1"))
            item.expire()
            gate.set()
            await until(dc, chat, lambda seen: " ".join(seen[1:]) == long)
            assert await daemon.stop() == 0
        assert not [call for call in dc.calls_of(SEND, chat) if "word0 " in call.content]
        check_bodies(dc)
        check_log(daemon, dc)


async def test_a_command_is_answered_once_over_a_kill(tmp_path: Path) -> None:
    """The token is on record with the input: what was acknowledged before the kill gets its answer after it, in the same place."""
    gate = asyncio.Event()
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        chat = dc.dm(ANA)
        model.script(lambda asked: Reply([gate, *says("At last.").steps]))
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            dc.say(chat, "a long one")
            await model.wait()
            fork, retry = dc.slash(chat, "fork", {"name": "west"}), dc.slash(chat, "retry")
            await dc.wait_for(lambda: fork.acknowledged and retry.acknowledged, PATIENCE)
            await asks_status(dc, chat)  # it came after them and is answered: they are on record
            gate.set()  # with the kill: nothing of it gets out before
            await restarted(daemon, dc)
            await answered(dc, fork, "You are now in `west`")
            await answered(dc, retry, "At last.")
            await restarted(daemon, dc)
            await asks_status(dc, chat)
            assert await daemon.stop() == 0
        seen = [text for text in dc.visible(chat) if "Session:" not in text]
        assert len(seen) == 3, seen
        check_bodies(dc)
        check_log(daemon, dc)


async def asks_status(dc: FakeDiscord, chat: int) -> None:
    await answered(dc, dc.slash(chat, "status"), "Session:")


async def test_a_stranger_is_told_and_a_friend_is_served(tmp_path: Path) -> None:
    """C22: who is not let in gets a refusal that says so, in a direct chat and in a server; never a bare "done", and nothing of theirs has
    an effect. Completions give away nothing, buttons are no way around."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        ana, eve, channel = dc.dm(ANA), dc.dm(EVE), dc.channel()
        access = f'direct = "allowlist"\nallow = ["discord:{ANA}"]\ngroups = "closed"'
        async with served(tmp_path, alone(dc, model, access=access), dc) as daemon:
            await asks(dc, ana, "hello")
            await answered(dc, dc.slash(eve, "status"), "operator", "not among them")
            await answered(dc, dc.slash(eve, "retry"), "operator")
            await answered(dc, dc.slash(channel, "status", user=ANA), "operator", "discord:")
            assert await completed(dc, dc.autocomplete(channel, "switch", "name", "", user=ANA)) == []
            assert await completed(dc, dc.autocomplete(eve, "switch", "name", "")) == []
            dc.say(eve, "hello?")
            await answered(dc, dc.slash(ana, "status"), "Session: `main`")
            assert len(dc.visible(eve)) == 2
            assert await daemon.stop() == 0
        assert len(model.asked) == 1
        assert not (daemon.data / "sessions" / "discord" / str(eve)).exists()
        check_bodies(dc)
        check_log(daemon, dc)


async def test_a_stranger_who_may_pair_gets_the_code(tmp_path: Path) -> None:
    """By a slash command as by a message: a code, once; an admin's /approve with it lets them in."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        eve, boss = dc.dm(EVE), dc.dm(BEN)
        async with served(tmp_path, alone(dc, model, access=f'admins = ["discord:{BEN}"]'), dc) as daemon:
            said = await answered(dc, dc.slash(eve, "status"), "operator")
            code = re.search(r"\b[A-Z0-9]{8}\b", said)
            assert code
            assert f"discord:{EVE}" in said
            again = dc.slash(eve, "status")
            await dc.wait_for(lambda: again.acknowledged, PATIENCE)
            dc.say(boss, f"/approve {code[0]}")
            await told(dc, boss, f"discord:{EVE}")
            await asks(dc, eve, "hello")
            assert [text for text in dc.visible(eve) if code[0] in text] == [said]
            assert await daemon.stop() == 0
        check_bodies(dc)
        check_log(daemon, dc)


async def test_completions_show_each_person_their_own(tmp_path: Path) -> None:
    """Where each member of a server has a conversation of their own, they are offered the sessions of that one."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        channel = dc.channel()
        guild = dc.channels[channel].guild or 0
        sessions = 'group_scope = "user"'
        access = f'groups = "open"\nadmins = ["discord:{ANA}", "discord:{BEN}"]'
        async with served(tmp_path, alone(dc, model, access=access, sessions=sessions), dc) as daemon:
            for user, name in ((ANA, "west"), (BEN, "east")):
                dc.join(guild, user)
                await answered(dc, dc.slash(channel, "fork", {"name": name}, user=user), name)
            assert await completed(dc, dc.autocomplete(channel, "switch", "name", "", user=ANA)) == ["west", "main"]
            assert await completed(dc, dc.autocomplete(channel, "switch", "name", "", user=BEN)) == ["east", "main"]
            assert await completed(dc, dc.autocomplete(channel, "switch", "name", "", user=EVE)) == []
            assert await daemon.stop() == 0
        check_log(daemon, dc)


async def test_buttons_work_once_and_over_a_restart(tmp_path: Path) -> None:
    """A press is acknowledged, and acts; one on a message from before a restart does, too; told twice by Discord it acts once."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        chat = dc.dm(ANA)
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            await asks(dc, chat, "one")
            dc.say(chat, "/fork west")
            await told(dc, chat, "`west`")
            await restarted(daemon, dc)
            pressed = dc.press(chat, "Back to main")
            await told(dc, chat, "You are now in `main`.")
            assert pressed.acknowledged
            dc.say(chat, "/sessions")
            await told(dc, chat, "west")
            dc.press(chat, "west")
            await told(dc, chat, "You are now in `west`.")
            dc.press_raw(chat, "/switch nowhere", dc.messages(chat)[-1])
            await told(dc, chat, "There is no session `nowhere`")
            await asks(dc, chat, "two")
            assert await daemon.stop() == 0
        assert [str(m.content) for m in model.asked[-1].messages[1:]] == ["one", "Heard: one", "two"]
        assert not dc.calls_of(EDIT_ORIGINAL)
        assert dc.calls_of(EDIT)
        check_bodies(dc)
        check_log(daemon, dc)


async def test_a_refused_acknowledgement_costs_no_answer(tmp_path: Path) -> None:
    """Where Discord would not take the first answer (its time is over, or it broke), the words come as a message."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        chat = dc.dm(ANA)
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            for how in ("late", "broken"):
                if how == "late":
                    dc.fail(CALLBACK, code=10062)
                else:
                    dc.drop(CALLBACK)
                before = len(dc.visible(chat))
                dc.slash(chat, "status")
                await until(dc, chat, lambda seen, before=before: len(seen) == before + 1 and "Session" in seen[-1])  # type: ignore[misc]
            await shown(dc, chat, *dc.visible(chat))
            assert await daemon.stop() == 0
        check_bodies(dc)
        check_log(daemon, dc)
