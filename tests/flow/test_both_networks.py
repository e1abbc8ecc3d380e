"""A hundred people on each of two networks at once, end to end; then some of them while the daemon is killed again and again."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.talk import within
from tests.fakes.discord import FakeDiscord
from tests.fakes.openai import Asked, FakeModel, Reply, says
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import KEY, TOKEN, Daemon
from tests.flow.on_discord import ANA, BEN, both, check_bodies, check_log, converse, daemon_of, shown
from tests.flow.people import converse as converse_on_telegram
from tests.flow.people import expected, history, windows, words
from tests.flow.seen import shown as shown_on_telegram

CHATS, TURNS = 100, 5
FEW, KILLS = 20, 4
DISCORD = 1000
"""Numbers of people on Discord begin here, those of people on Telegram at 1: each has words of their own."""


def chats(dc: FakeDiscord, count: int) -> dict[int, int]:
    """Number -> direct chat."""
    return {DISCORD + n: dc.dm(700_000_000_000_001_000 + n) for n in range(1, count + 1)}


async def goes_on(tg: FakeTelegram, number: int) -> None:
    """A person on Telegram, from the second turn on."""
    for turn in range(1, TURNS):
        tg.say(number, words(number, turn))
        answer = f"Heard: {words(number, turn)}"
        await tg.wait_for(lambda answer=answer: answer in tg.visible(number)[-1:], 60, chat=number)  # type: ignore[misc]


def roles(daemon: Daemon, folder: str) -> list[str]:
    lines = (daemon.data / "sessions" / folder / "main.jsonl").read_text().splitlines()
    return [line["role"] for line in map(json.loads, lines) if "role" in line]


@pytest.mark.timeout(120)
async def test_100_chats_on_each_network_at_once(tmp_path: Path) -> None:
    """D23: each is answered in order, nobody sees another's words, and each request carries exactly that chat's history."""
    async with FakeDiscord() as dc, FakeTelegram(token=TOKEN) as tg, FakeModel(api_key=KEY) as model:
        there = chats(dc, CHATS)
        async with daemon_of(tmp_path, both(dc, tg, model), dc) as daemon:
            await dc.online(20)
            async with asyncio.TaskGroup() as people:
                for number in range(1, CHATS + 1):
                    people.create_task(converse_on_telegram(tg, number, TURNS))
                for number, channel in there.items():
                    people.create_task(converse(dc, channel, number, range(TURNS)))
            for number in range(1, CHATS + 1):
                assert tg.visible(number) == expected(number, TURNS)
            for number, channel in there.items():
                assert dc.visible(channel) == expected(number, TURNS)
            seen = list(windows(model.asked))
            assert Counter((number, turn) for number, turn, _ in seen) == {
                (number, turn): 1 for number in (*range(1, CHATS + 1), *there) for turn in range(TURNS)
            }
            for number, turn, messages in seen:
                assert messages == history(number, turn)
            assert await daemon.stop() == 0
            assert "ERROR" not in daemon.text().upper().replace("ERRORS", ""), daemon.text()[-2000:]
        for folder in ("telegram/1", f"telegram/{CHATS}", *(f"discord/{channel}" for channel in there.values())):
            assert roles(daemon, folder) == ["user", "assistant"] * TURNS
        assert check_bodies(dc) >= 2 * CHATS * TURNS
        assert len(dc.gateway.identifies) == 1
        check_log(daemon, dc)


async def kills(daemon: Daemon, dc: FakeDiscord, tg: FakeTelegram, model: FakeModel, dice: random.Random) -> None:
    """At any time, in the middle of a call to either network with its effect done or not, while the model speaks, while it starts."""
    for number in range(KILLS):
        asked = len(model.asked)
        kind = ("discord", "telegram", "model", "time")[number % 4]
        remove: list[Callable[[], None]] = []
        if kind == "discord":
            route = dice.choice(("POST /channels/{channel_id}/messages", "PATCH /channels/{channel_id}/messages/{message_id}"))
            held = dc.hold(route, before=dice.random() < 0.5)
            await within(held.reached, 2.0)
            remove.append(held.remove)
        elif kind == "telegram":
            other = tg.hold(dice.choice(("sendMessage", "editMessageText", "getUpdates")), before=dice.random() < 0.5)
            await within(other.reached, 2.0)
            remove.append(other.remove)
        elif kind == "model":
            await model.wait(asked + 5)
        else:
            await within(asyncio.Event(), dice.uniform(0, 0.5))
        await daemon.kill()
        for each in remove:
            each()
        await daemon.start()


@pytest.mark.timeout(120)
async def test_kills_lose_and_double_nothing_on_either_network(tmp_path: Path) -> None:
    """Whatever is said before, while and after the daemon is dead is answered once, in its place, on both networks.

    What nobody can know, and is counted apart: on Telegram a kill between a placeholder's effect and its record leaves an empty "…"
    behind; on Discord the nonce of the send finds it again. On Discord nobody tells of a person who wrote for the first time while nothing
    ran (nothing lists the direct chats), so that all have spoken before the first kill.
    """
    dice = random.Random("both")
    async with FakeDiscord() as dc, FakeTelegram(token=TOKEN) as tg, FakeModel(api_key=KEY, delay=0.03) as model:
        there = chats(dc, FEW)
        async with daemon_of(tmp_path, both(dc, tg, model), dc) as daemon:
            await dc.online(20)
            async with asyncio.TaskGroup() as people:
                for number in range(1, FEW + 1):
                    people.create_task(converse_on_telegram(tg, number, 1))
                for number, channel in there.items():
                    people.create_task(converse(dc, channel, number, range(1)))
            async with asyncio.TaskGroup() as people:
                for number in range(1, FEW + 1):
                    people.create_task(goes_on(tg, number))
                for number, channel in there.items():
                    people.create_task(converse(dc, channel, number, range(1, TURNS)))
                people.create_task(kills(daemon, dc, tg, model, dice))
            assert await daemon.stop() == 0
        left = 0
        for number in range(1, FEW + 1):
            seen = tg.visible(number)
            left += seen.count("…")
            assert [text for text in seen if text != "…"] == expected(number, TURNS)
        for number, channel in there.items():
            assert dc.visible(channel) == expected(number, TURNS)
        assert left <= KILLS * FEW // 4
        for number, turn, messages in windows(model.asked):
            assert messages == history(number, turn)
        again = len(model.asked) - 2 * FEW * TURNS
        assert 0 <= again <= KILLS * 2 * FEW  # a turn that a kill cut is asked for again
        for folder in (*(f"telegram/{number}" for number in range(1, FEW + 1)), *(f"discord/{channel}" for channel in there.values())):
            assert roles(daemon, folder) == ["user", "assistant"] * TURNS
        check_bodies(dc)
        check_log(daemon, dc)
        print({"placeholders left on Telegram": left, "turns asked for again": again, "kills": KILLS})


async def test_an_answer_goes_where_it_was_asked_for(tmp_path: Path) -> None:
    """D23: a slow question and a fast one on each network; they end in another order than they came in, and each is told to its asker."""
    gates = {text: asyncio.Event() for text in ("slow one", "slow two", "quick one", "quick two")}

    def answer(asked: Asked) -> Reply:
        whole = says(f"Only for {asked.words}")
        return Reply([gates[asked.words], *whole.steps])

    async with FakeDiscord() as dc, FakeTelegram(token=TOKEN) as tg, FakeModel(api_key=KEY) as model:
        model.script(answer)
        ana, ben = dc.dm(ANA), dc.dm(BEN)
        async with daemon_of(tmp_path, both(dc, tg, model), dc) as daemon:
            await dc.online(20)
            tg.say(1, "slow one")
            dc.say(ana, "slow two")
            await model.wait(2)
            tg.say(2, "quick one")
            dc.say(ben, "quick two")
            await model.wait(4)
            gates["quick two"].set()
            await shown(dc, ben, "Only for quick two")
            gates["slow one"].set()
            await shown_on_telegram(tg, 1, "Only for slow one")
            gates["slow two"].set()
            await shown(dc, ana, "Only for slow two")
            gates["quick one"].set()
            await shown_on_telegram(tg, 2, "Only for quick one")
            assert await daemon.stop() == 0
        assert [dc.visible(channel) for channel in (ana, ben)] == [["Only for slow two"], ["Only for quick two"]]
        assert [tg.visible(chat) for chat in (1, 2)] == [["Only for slow one"], ["Only for quick one"]]
        check_bodies(dc)
