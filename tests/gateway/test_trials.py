"""An input that brings the daemon down is found and set aside; nobody else loses anything by it, and nobody waits for long.

With real deaths (`tests.gateway.poison`; `PARLOUR_KILLS=1` has more kinds of them), and in this process, where a life that nobody ended
stands for one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from channels.base import NotSent
from gateway.trials import Times
from gateway.work import SET_ASIDE
from tests.gateway.core import Core, Place, until
from tests.gateway.disk_tools import Disk
from tests.gateway.poison import DIED

TOLD = SET_ASIDE.partition("{}")[0]


async def live(folder: Path, *texts: str) -> tuple[int, dict[str, Any]]:
    """One life of the daemon: its exit code, and what it said at its end, if it had one."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.gateway.poison", str(folder), *texts, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode in {0, DIED}, err.decode()[-4000:]
    return process.returncode or 0, json.loads(out.splitlines()[-1]) if process.returncode == 0 else {}


async def lives(folder: Path, *texts: str, most: int) -> tuple[int, dict[str, Any]]:
    """Until one ends as it should: how many died before it."""
    code, end = await live(folder, *texts)
    deaths = 0
    while code:
        deaths += 1
        assert deaths <= most
        code, end = await live(folder)
    return deaths, end


def seen(folder: Path) -> dict[str, list[str]]:
    """What each chat was shown, placeholders and steps on the way included."""
    chats: dict[str, list[str]] = {}
    for line in (folder / "seen").read_text().splitlines():
        chat, text = json.loads(line)
        chats.setdefault(chat, []).append(text)
    return chats


SHORT = {"render": "a render poison", "load": "load a question", "past the queue": "a /status"}
LONG = {"model": "a model poison", "command": "a /fork west"}
KINDS = SHORT | (LONG if os.environ.get("PARLOUR_KILLS") else {})


@pytest.mark.parametrize("poison", KINDS.values(), ids=KINDS)
async def test_what_the_daemon_dies_of_is_set_aside(tmp_path: Path, poison: str) -> None:
    """Wherever it strikes: its author is told, those who were answered beside it have their answers once, and the daemon lives."""
    chat = poison.partition(" ")[0]
    others = [f"c{n} {'slow ' * (n % 2)}question {n}" for n in range(6)]
    if chat == "load":
        # There has to be something to read.
        (folder := tmp_path / "sessions" / "net" / "load").mkdir(parents=True, mode=0o700)
        header = {"type": "session", "v": 1, "key": "net:load", "name": "main", "created": "2026-01-01T00:00:00Z"}
        (folder / "main.jsonl").write_text(json.dumps(header) + "\n")
    deaths, end = await lives(tmp_path, *others[:3], poison, *others[3:], most=5)
    assert end == {"open": 0, "aside": [f"net:7:{chat}:1"]}
    assert deaths >= 3
    told = seen(tmp_path)
    assert told[chat][-1].startswith(TOLD)
    for other in others:
        name, _, words = other.partition(" ")
        assert told[name][-1] == f"Heard: {words}"
    journal = (tmp_path / "journal" / "000001.jsonl").read_text()
    assert poison.partition(" ")[2] in journal  # its words are still there, for who wants to know what it was


@pytest.mark.skipif(not os.environ.get("PARLOUR_KILLS"), reason="the long form: PARLOUR_KILLS is not set")
async def test_several_of_them_are_found_one_after_the_other(tmp_path: Path) -> None:
    """Each costs deaths of its own, and in the end everybody else has an answer."""
    deaths, end = await lives(tmp_path, "a model poison", "b question", "c model poison too", "d question", most=10)
    assert (end["open"], sorted(end["aside"])) == (0, ["net:7:a:1", "net:7:c:1"])
    told = seen(tmp_path)
    assert (told["b"][-1], told["d"][-1]) == ("Heard: question", "Heard: question")
    assert deaths >= 5


# --------------------------------------------------------------------------------------------------------------------- in this process


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    async with Core(tmp_path, times=Times(quiet=0.2, each=0.4, hold=2.0)) as core:
        yield core


async def suspicious(core: Core, *chats: str) -> None:
    """Let these chats' questions be under way at two deaths."""
    never = asyncio.Event()
    for chat in chats:
        core.model.then(never)
        await core.say("question", chat=chat)
    await until(lambda: core.model.open == len(chats))
    for _ in chats:
        core.model.then(never)
    await core.restart(crash=True)
    await until(lambda: core.model.open == len(chats))


async def test_suspects_run_one_by_one_and_the_others_after_a_short_wait(core: Core) -> None:
    """Innocent suspects are answered alone, in order; who is no suspect is answered right behind them; nobody is set aside."""
    await suspicious(core, "1", "2", "3")
    most = Counter[int]()
    for _ in range(3):
        core.model.then("fine")
    await core.say("and me", chat="4")
    core.model.script.popleft()
    core.model.then("fine")
    await core.restart(crash=True)
    await core.say("later", chat="5")

    while core.inbox.unfinished():
        most[core.model.open] += 1
        await asyncio.sleep(0.005)
    assert all(core.seen(chat)[-1].startswith(("fine", "Heard")) for chat in "12345")
    assert not core.inbox.set_aside
    trials = [line for line in (core.folder / "journal" / "000001.jsonl").read_text().splitlines() if '"alone"' in line]
    assert len(trials) == 6
    assert ["over" in line for line in trials] == [False, True] * 3


async def test_a_slow_suspect_holds_nobody_up(core: Core) -> None:
    """After its time alone is over, that is on record, and the others are answered while it still runs; a death then is not its own."""
    await suspicious(core, "1")
    never = asyncio.Event()
    core.model.then(never)
    await core.restart(crash=True)
    await core.say("quick", chat="2")
    await until(lambda: core.seen("2") == ["Heard: quick"])
    assert core.model.open == 1
    await core.restart(crash=True)
    (pending,) = core.inbox.unfinished()
    assert (pending.deaths.crashes, pending.deaths.own) == (3, 0)
    await core.quiet()
    assert core.seen("1")[-1] == "Heard: question"


async def test_kills_that_come_quicker_than_the_pause_convict_nobody(core: Core) -> None:
    """However many there are: who was under way at two of them is cleared by the next, is answered in the end, and once."""
    await suspicious(core, "1", "2")
    core.model.script.clear()
    never = asyncio.Event()
    for _ in range(12):
        for _ in range(2):
            core.model.then(never)
        await core.restart(crash=True)
        await asyncio.sleep(0)
        core.model.script.clear()
    assert all(pending.deaths.own == 0 for pending in core.inbox.unfinished())
    await core.quiet()
    assert (core.seen("1")[-1], core.seen("2")[-1]) == ("Heard: question", "Heard: question")
    assert not core.inbox.set_aside


async def test_nor_those_whose_words_only_have_to_be_shown(tmp_path: Path) -> None:
    """A network that is away, and kills that come again and again soon after the start: what is there to be shown is cleared by each death
    in the pause, and shown at last, once."""
    net = Place(units=4000)
    async with Core(tmp_path, net=net, times=Times(quiet=0.3, each=0.4, hold=2.0)) as core:
        net.judge = lambda call: NotSent("away")
        for chat in "12":
            await core.say("/undo", chat=chat)
        await until(lambda: all(pending.reply is not None for pending in core.inbox.unfinished()))
        most = 0
        for _ in range(9):
            await core.restart(crash=True)
            await asyncio.sleep(0)
            most = max(most, *(pending.deaths.crashes for pending in core.inbox.unfinished()))
        assert most == 2
        net.judge = lambda call: None
        await core.restart(crash=True)
        await core.quiet()
        assert [len(core.seen(chat)) for chat in "12"] == [1, 1]
        assert "nothing to take back" in core.seen("1")[0]
        assert not core.inbox.set_aside


async def test_a_stop_during_a_trial_is_no_conviction(core: Core) -> None:
    """The operator restarts the daemon again and again, while it tries somebody."""
    await suspicious(core, "1")
    never = asyncio.Event()
    for _ in range(4):
        core.model.then(never)
        await core.restart(crash=core.inbox.unfinished()[0].deaths.crashes < 2)
        await until(lambda: core.model.open == 1)
    (pending,) = core.inbox.unfinished()
    assert (pending.deaths.crashes, pending.deaths.own) == (2, 0)
    core.model.script.clear()
    await core.restart()
    await core.quiet()
    assert core.seen("1")[-1] == "Heard: question"


def begins_a_trial(data: bytes) -> bool:
    return b'{"type":"alone"' in data


async def test_what_is_not_on_record_is_no_trial(tmp_path: Path) -> None:
    """Where the disk is full the suspects go on beside the others, who do not wait for them."""
    async with Core(tmp_path, writer=lambda: Disk(begins_a_trial), times=Times(quiet=0.05, each=0.2, hold=2.0)) as core:
        await suspicious(core, "1")
        core.model.then(asyncio.Event())
        await core.restart(crash=True)
        await until(lambda: core.model.open == 1)
        await core.say("quick", chat="2")
        await until(lambda: core.seen("2") == ["Heard: quick"])
        assert core.model.open == 1
        assert '"alone"' not in (core.folder / "journal" / "000001.jsonl").read_text()


async def test_many_waiting_chats_open_no_more_than_there_are_slots(tmp_path: Path) -> None:
    """A start with as many inputs as there may be: the oldest first, as many sessions in use as there are slots, and who comes now stands
    behind them all."""
    waiting = 1000
    async with Core(tmp_path, slots=5) as core:
        go = asyncio.Event()
        for _ in range(5):
            core.model.then(go, "first")
        await core.router.accept([core.inbound("question", chat=str(chat)) for chat in range(waiting)])
        await until(lambda: core.model.open == 5)
        for _ in range(5):
            core.model.then(go, "first")
        await core.restart()
        await until(lambda: core.model.open == 5, 20)
        assert core.sessions.keys_held == 5
        assert core.sessions.cached[0] == 5
        assert core.runners.turns() == 5
        assert core.runners.backlog() == waiting - 5
        await core.say("late", chat="late")
        go.set()
        await core.quiet(60)
        assert "late" in [asked[-1][1] for asked in core.model.asked[-10:]]
