"""Discord end to end: who is answered, where, with what; and a Discord that refuses us."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import ME, SEND, TYPING
from tests.fakes.openai import End, FakeModel, Reply, delta, refuses, says
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import KEY, TOKEN, Daemon
from tests.flow.on_discord import (
    ANA,
    BEN,
    EVE,
    PATIENCE,
    alone,
    asks,
    both,
    check_bodies,
    check_log,
    daemon_of,
    fetched,
    served,
    shown,
    told,
    until,
)
from tests.flow.seen import shown as shown_on_telegram

BOTH = pytest.mark.parametrize("streaming", ["edit", "off"])


def asked_of(model: FakeModel) -> list[str]:
    return [asked.words for asked in model.asked]


def names(daemon: Daemon, folder: str) -> set[str]:
    return {path.stem for path in (daemon.data / "sessions" / "discord" / folder).glob("*.jsonl")} - {"_chat"}


# --------------------------------------------------------------------------------------------------------------- who is answered, and what


async def test_only_people_who_mean_the_bot_are_answered(tmp_path: Path) -> None:
    """C06: other bots, webhooks, the service itself and the bot's own messages are nothing to it, in a thread where it takes part or in a
    direct chat, live or from the history; nor is what people say to each other."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        me, channel = f"<@{dc.bot.id}>", dc.channel()
        thread, direct = dc.thread(channel), dc.dm(ANA)
        other = dc.user(EVE, name="OtherBot", bot=True)
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            dc.say(thread, f"{me} one", user=ANA)
            ours = dc.messages(thread)[0].id if await told(dc, thread, "one") else 0
            for _ in range(2):
                dc.say(thread, f"{me} hello bot", user=other)
                dc.say(thread, "hello bot", user=other, reply_to=ours)
                dc.say(direct, "hello bot", user=other)
                dc.say(thread, f"{me} from a webhook", webhook_id=str(EVE))
                dc.say(thread, f"{me} joined", type=7)
                dc.say(thread, f"{me} what I say myself", user=dc.bot)
                dc.say(thread, "between us", user=BEN)
                dc.say(thread, f"<@{BEN}> between us", user=ANA)
                dc.say(thread, "@everyone hello", user=BEN)
                await daemon.kill()
                await daemon.start()
                await dc.online(PATIENCE)
            dc.say(thread, "two", user=BEN, reply_to=ours)
            await told(dc, thread, "two")
            assert await daemon.stop() == 0
        assert len([text for text in dc.visible(thread) if me not in text]) == 2
        assert dc.visible(direct) == []
        assert [text.split()[-1] for text in asked_of(model)] == ["one", "two"]
        check_bodies(dc)
        check_log(daemon, dc)


async def test_a_thread_is_one_conversation_whichever_way_it_is_met(tmp_path: Path) -> None:
    """C12: a thread that begins at a question, one that is met for the first time live, by a slash command or in the history: one session,
    apart from the channel's and from other threads'."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        me, channel = f"<@{dc.bot.id}>", dc.channel()
        dc.join(dc.channels[channel].guild or 0, ANA)
        text = alone(dc, model, access=f'groups = "open"\nadmins = ["discord:{ANA}"]')
        async with served(tmp_path, text, dc) as daemon:
            question = dc.say(channel, f"{me} in the channel", user=ANA)
            await told(dc, channel, "in the channel")
            dc.thread(channel, message=question, user=ANA)
            other = dc.thread(channel, user=ANA)
            for thread in (question, other):
                for turn in ("first", "second"):
                    dc.say(thread, f"{me} {turn} of {thread}", user=ANA)
                    await told(dc, thread, f"{turn} of {thread}")
            dc.slash(other, "fork", {"name": "west"}, user=ANA)
            await told(dc, other, "You are now in `west`")
            await daemon.kill()
            dc.say(other, f"{me} third of {other}", user=ANA)
            await daemon.start()
            await told(dc, other, f"third of {other}")
            assert await daemon.stop() == 0
        for asked in model.asked:
            place = re.search(r"of (\d+)|in the channel", asked.words)
            assert place
            users = [str(m.content) for m in asked.messages if m.role == "user"]
            assert all(place[0] in words for words in users), users
        assert len([m for m in model.asked[-1].messages if m.role == "user"]) == 3
        assert names(daemon, str(channel)) == names(daemon, f"{channel}:{question}") == {"main"}
        assert names(daemon, f"{channel}:{other}") == {"main", "west"}
        assert len(dc.visible(question)) == 2
        check_bodies(dc)
        check_log(daemon, dc)


async def test_names_stay_and_a_bare_ping_is_no_turn(tmp_path: Path) -> None:
    """C15, C16: of the mentions only the bot's own goes, others get their names; both forms of a mention count; who says nothing else is
    told how, without the model."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        channel = dc.channel()
        guild = dc.channels[channel].guild or 0
        me, old = f"<@{dc.bot.id}>", f"<@!{dc.bot.id}>"
        role, den = dc.role(guild, "Owls"), dc.channel(guild, "den")
        dc.user(BEN, name="Ben")
        dc.join(guild, BEN)
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            dc.say(channel, f"{me} ask <@{BEN}> about <#{den}> and <@&{role}> and <@999>", user=ANA)
            await told(dc, channel, "@Ben")
            dc.say(channel, me, user=ANA)
            await until(dc, channel, lambda seen: len(seen) == 2)
            dc.say(channel, f"  {me}  ", user=ANA)
            await until(dc, channel, lambda seen: len(seen) == 3)
            dc.say(channel, f"{old} hello", user=ANA)
            await told(dc, channel, "hello")
            assert await daemon.stop() == 0
        said = [words.partition(": ")[2] for words in asked_of(model)]
        assert said == ["ask @Ben about #den and @Owls and <@999>", "hello"]
        assert str(dc.bot.id) not in "".join(asked_of(model))
        assert all(message.pings == set() for message in dc.messages(channel))
        check_bodies(dc)
        check_log(daemon, dc)


async def test_a_command_behind_a_mention_is_a_command(tmp_path: Path) -> None:
    """C17: with and without a blank between, both forms of the mention; nothing of it goes to the model."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        me, channel = f"<@{dc.bot.id}>", dc.channel()
        text = alone(dc, model, access=f'groups = "open"\nadmins = ["discord:{ANA}"]')
        async with served(tmp_path, text, dc) as daemon:
            dc.say(channel, f"{me} one", user=ANA)
            await told(dc, channel, "one")
            for command, words in (
                (f"{me} /reset", "A new conversation."),
                (f"{me}/fork x", "You are now in `x`"),
                (f"<@!{dc.bot.id}>  /switch main", "You are now in `main`."),
                (f"/switch x {me}", "You are now in `x`."),
            ):
                dc.say(channel, command, user=ANA)
                await told(dc, channel, words)
            dc.say(channel, f"{me} /nonsense", user=ANA)
            dc.say(channel, f"{me} /reset", user=BEN)
            await told(dc, channel, "only its admins")
            assert await daemon.stop() == 0
        assert names(daemon, str(channel)) == {"main", "chat-2", "x"}
        assert len(model.asked) == 1
        check_bodies(dc)
        check_log(daemon, dc)


@BOTH
async def test_what_comes_while_a_turn_runs_is_answered_once_in_order(tmp_path: Path, streaming: str) -> None:
    """C21: two more messages in the midst of an answer; each once, one after the other."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY, delay=0.05) as model:
        chat = dc.dm(ANA)
        async with served(tmp_path, alone(dc, model, streaming=streaming), dc) as daemon:
            dc.say(chat, "m1")
            await model.wait()
            m2 = dc.say(chat, "m2")
            dc.say(chat, "m3")
            dc.repeat(chat, m2)
            await shown(dc, chat, "Heard: m1", "Heard: m2", "Heard: m3")
            assert await daemon.stop() == 0
        assert asked_of(model) == ["m1", "m2", "m3"]
        assert [str(m.content) for m in model.asked[-1].messages[1:]] == ["m1", "Heard: m1", "m2", "Heard: m2", "m3"]
        lines = (daemon.data / "sessions" / "discord" / str(chat) / "main.jsonl").read_text().splitlines()
        assert [line["content"] for line in map(json.loads, lines) if line.get("role") == "user"] == ["m1", "m2", "m3"]
        check_bodies(dc)


async def test_stop_in_words_ends_the_turn(tmp_path: Path) -> None:
    """What was seen stays, and the next question is answered."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        chat = dc.dm(ANA)
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            model.then(Reply([delta("", role="assistant"), delta("A long "), delta("story"), End.HANG]))
            dc.say(chat, "tell me")
            await shown(dc, chat, "A long story")
            stop = dc.slash(chat, "stop")
            await until(dc, chat, lambda seen: len(seen) == 2 and "Stopped." in seen[1] and "stopped" in seen[0])
            assert stop.acknowledged
            await asks(dc, chat, "hello")
            assert await daemon.stop() == 0
        check_bodies(dc)
        check_log(daemon, dc)


# -------------------------------------------------------------------------------------------------------------------- what is shown


@BOTH
async def test_nothing_that_goes_out_pings_anybody(tmp_path: Path, streaming: str) -> None:
    """A18: the model repeats mentions of everybody, in both parts of a long answer; so does an error's text, and the title of a fork, in
    words and by slash command. Each request forbids it, and nobody is notified."""
    evil = f"@everyone @here <@&{EVE}> <@{BEN}> hi"
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        chat, channel, me = dc.dm(ANA), dc.channel(), f"<@{dc.bot.id}>"
        guild = dc.channels[channel].guild or 0
        dc.join(guild, ANA)
        dc.join(guild, BEN)
        text = alone(dc, model, streaming=streaming, access=f'direct = "open"\ngroups = "open"\nadmins = ["discord:{ANA}"]')
        async with served(tmp_path, text, dc) as daemon:
            for place, before in ((chat, ""), (channel, f"{me} ")):
                model.then(says(evil), says(f"{evil} " + "word " * 450 + evil), refuses(400, evil))
                dc.say(place, f"{before}repeat: {evil}", user=ANA)
                await told(dc, place, "@everyone")
                dc.say(place, f"{before}and long", user=ANA)
                await until(dc, place, lambda seen: len(seen) == 3 and seen[-1].endswith("hi"))
                dc.say(place, f"{before}and an error", user=ANA)
                await until(dc, place, lambda seen: len(seen) == 4 and seen[-1] != "…")
                dc.say(place, f"{before}/fork {evil}", user=ANA)
                await told(dc, place, "You are now in")
                dc.slash(place, "fork", {"name": f"two {evil}"}, user=ANA)
                await told(dc, place, "You are now in `two")
                dc.slash(place, "sessions", user=ANA)
                await told(dc, place, "(here)")
            assert await daemon.stop() == 0
        for place in (chat, channel):
            assert [message.pings for message in dc.messages(place)] == [set()] * len(dc.messages(place))
        assert check_bodies(dc) >= 14
        check_log(daemon, dc)


# ----------------------------------------------------------------------------------------------------------------- a Discord that refuses


@pytest.mark.parametrize(("code", "words"), [(4014, "Message Content"), (4013, "Message Content"), (4004, "does not accept the bot token")])
async def test_a_gateway_that_closes_for_good_is_not_asked_again(tmp_path: Path, code: int, words: str) -> None:
    """C04: one IDENTIFY, one line that says what to do; Telegram goes on."""
    async with FakeDiscord() as dc, FakeTelegram(token=TOKEN) as tg, FakeModel(api_key=KEY) as model:
        dc.gateway.refuse_identify = [code] * 10
        async with daemon_of(tmp_path, both(dc, tg, model), dc) as daemon:
            await dc.wait_for(lambda: "channel stopped" in daemon.text(), PATIENCE)
            (line,) = [line for line in daemon.text().splitlines() if "channel stopped" in line]
            assert words in line
            tg.say(1, "hello")
            await shown_on_telegram(tg, 1, "Heard: hello")
            assert await daemon.stop() == 0
        assert len(dc.gateway.identifies) == len(dc.gateway.connects) == 1
        check_log(daemon, dc)


async def test_a_missing_intent_is_said_plainly(tmp_path: Path) -> None:
    """As it is with the real service, where the switch is off: IDENTIFY is refused by the intents that it names."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        dc.privileged.clear()
        daemon = daemon_of(tmp_path, alone(dc, model), dc)
        await daemon.start(ready=False)
        try:
            await dc.wait_for(lambda: "channel stopped" in daemon.text(), PATIENCE)
            assert "developer portal" in daemon.text()
            assert len(dc.gateway.identifies) == 1
        finally:
            await daemon.kill()
        check_log(daemon, dc)


async def test_a_wrong_token_is_tried_once(tmp_path: Path) -> None:
    """C20: exit 78, which the unit file does not restart on; one line, without the token."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        daemon = daemon_of(tmp_path, alone(dc, model), dc)
        dc.token, right = "another", dc.token
        await daemon.start(ready=False)
        assert await daemon.ended() == 78
        assert "Discord does not accept the bot token" in daemon.text()
        assert len(dc.calls_of(ME)) == 1
        assert not dc.gateway.connects
        assert right not in daemon.text()
        assert "Traceback" not in daemon.text()


async def test_a_wall_in_front_of_discord_is_not_run_against(tmp_path: Path) -> None:
    """C20: a 429 whose body is a page and no JSON: the login waits, Telegram does not."""
    async with FakeDiscord() as dc, FakeTelegram(token=TOKEN) as tg, FakeModel(api_key=KEY) as model:
        dc.ban(times=None)
        daemon = daemon_of(tmp_path, both(dc, tg, model), dc)
        await daemon.start(ready=False)
        try:
            await dc.wait_for(lambda: "channel down" in daemon.text(), PATIENCE)
            seen = len(dc.calls)
            began = time.monotonic()
            for number in range(3):
                tg.say(1, f"hello {number}")
                await shown_on_telegram(tg, 1, *(f"Heard: hello {n}" for n in range(number + 1)))
            await dc.wait_for(lambda: time.monotonic() - began > 1, 5)
            assert len(dc.calls) == seen <= 2
            assert "Traceback" not in daemon.text()
        finally:
            await daemon.kill()


async def test_a_token_that_is_taken_back_later_ends_the_channel(tmp_path: Path) -> None:
    """C20: after normal work; no login is tried again, the other network goes on."""
    async with FakeDiscord() as dc, FakeTelegram(token=TOKEN) as tg, FakeModel(api_key=KEY) as model:
        chat = dc.dm(ANA)
        async with daemon_of(tmp_path, both(dc, tg, model), dc) as daemon:
            await dc.online(PATIENCE)
            await asks(dc, chat, "hello")
            right, dc.token = dc.token, "another"
            dc.disconnect(4000)
            await dc.wait_for(lambda: "channel stopped" in daemon.text(), PATIENCE)
            seen = len(dc.calls), len(dc.gateway.connects)
            tg.say(1, "hello")
            await shown_on_telegram(tg, 1, "Heard: hello")
            assert (len(dc.calls), len(dc.gateway.connects)) == seen
            assert right not in daemon.text()
            assert await daemon.stop() == 0
        assert len(dc.calls_of(ME)) == 1
        check_log(daemon, dc)


@BOTH
@pytest.mark.parametrize("code", [50013, 50007, 50001])
async def test_a_place_where_we_may_not_speak_is_left_alone(tmp_path: Path, streaming: str, code: int) -> None:
    """C24: the turn ends, one warning names the place, no error goes to the same closed place, others are answered; when it opens again,
    so is it."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        closed, other = dc.dm(ANA), dc.dm(BEN)
        async with served(tmp_path, alone(dc, model, streaming=streaming), dc) as daemon:
            sends = dc.fail(SEND, code=code, channel=closed, times=None)
            typing = dc.fail(TYPING, code=code, channel=closed, times=None)
            dc.say(closed, "hello?")
            await model.wait()
            await dc.wait_for(lambda: sends.hits, PATIENCE)
            await asks(dc, other, "hello")
            dc.say(closed, "again?")
            await dc.wait_for(lambda: sends.hits >= 2, PATIENCE)
            await asks(dc, other, "hello again")
            assert sends.hits + typing.hits <= 4
            sends.remove()
            typing.remove()
            await asks(dc, closed, "and now?")
            assert await daemon.stop() == 0
        assert dc.visible(closed) == ["Heard: and now?"]
        warnings = [line for line in daemon.text().splitlines() if '"warning"' in line and str(closed) in line]
        assert len(warnings) == 1, warnings
        assert not fetched(dc)
        check_bodies(dc)
        check_log(daemon, dc)
