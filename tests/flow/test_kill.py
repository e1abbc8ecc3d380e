"""kill -9 at random moments, end to end: nothing lost, nothing said twice, whatever people do meanwhile.

Short by default. `PARLOUR_KILLS=300` makes it long: that many kills in all, in rounds with fresh folders and other dice; `PARLOUR_SEED`
throws other dice altogether.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram, Fault
from tests.fakes.telegram_rules import Json
from tests.flow.audit import OLD, Audit, unfinished
from tests.flow.daemon import KEY, TOKEN, Daemon, free_port
from tests.flow.people import config
from tests.flow.talk import WHOLE, Person, Place, Talk, nth, within
from tests.flow.watch import Watch

KILLS = int(os.environ.get("PARLOUR_KILLS", "0"))
SEED = os.environ.get("PARLOUR_SEED", "")
SHORT, ROUND = 5, 15
"""Kills of the short form, and of a round of the long one, for each of the four ways to run."""
FORUM = -1001000000001
ALL = "fork reset switch undo retry stop"


def people(talk: Talk, dice: random.Random) -> list[Person]:
    """Some wait for each answer, some do not; some get long answers, some steer; two topics of a forum have two people each."""
    talk.tg.chat(FORUM, is_forum=True)
    talk.tg.admin(FORUM, 901)
    everybody = [Person(talk, Place(chat), dice) for chat in range(1, 6)]
    everybody += [Person(talk, Place(chat), dice, bursts=5) for chat in range(11, 15)]
    everybody += [Person(talk, Place(chat), dice, bursts=2, long=True) for chat in range(21, 24)]
    everybody += [Person(talk, Place(chat), dice, bursts=4, commands=ALL) for chat in range(31, 36)]
    everybody += [Person(talk, Place(chat), dice, bursts=3, long=True, commands=ALL) for chat in range(41, 44)]
    everybody += [Person(talk, Place(chat), dice, bursts=3, commands=f"{ALL} {ALL} forget") for chat in range(51, 53)]
    everybody += [Person(talk, Place(61), dice, commands="fork reset switch retry")]
    everybody += [Person(talk, Place(FORUM, 11, user), dice, bursts=3) for user in (901, 902)]
    everybody += [Person(talk, Place(FORUM, 12, 901), dice, bursts=2, commands=ALL), Person(talk, Place(FORUM, 12, 902), dice)]
    return everybody


def large(data: Path, chat: int) -> None:
    """A session of 2 MB, all of it taken back, so that forking and loading it take their time."""
    folder = data / "sessions" / "telegram" / str(chat)
    folder.mkdir(parents=True, mode=0o700)
    lines: list[Json] = [
        {"type": "session", "v": 1, "key": f"telegram:{chat}", "name": "main", "created": "2026-01-01T00:00:00Z", "for": OLD}
    ]
    roles = ("assistant", "user")
    lines += ({"seq": n, "at": "", "for": f"{OLD}{n}", "role": roles[n % 2], "content": "x" * 1000} for n in range(1, 2001))
    lines.append({"seq": 2001, "at": "", "for": f"{OLD}2001", "type": "undo", "to": 0})
    (folder / "main.jsonl").write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    (folder / "_chat.jsonl").write_bytes(b'{"at":"","current":"main"}\n')


async def moment(daemon: Daemon, talk: Talk, dice: random.Random) -> Fault | None:
    """When to kill: at any time, in the middle of a call to the network (its effect done or not), while the model speaks, or between two
    writes to the disk, which kills by itself."""
    kind = dice.choice(("time", "call", "call", "model", "disk", "disk"))
    if kind == "call":
        method = dice.choice(("*", "sendMessage", "editMessageText", "deleteMessage", "getUpdates"))
        held = talk.tg.hold(method, before=dice.random() < 0.5, when=nth(dice.randrange(12)))
        await within(held.reached, 1.0)
        return held
    if kind == "disk":
        assert daemon.process is not None
        watch = Watch(daemon.data)
        await watch.kill(daemon.process.pid, dice.randrange(80), 1.0)
        watch.close()
    elif kind == "model":
        talk.on_ask.clear()
        await within(talk.on_ask, 1.0)
        await within(asyncio.Event(), dice.uniform(0, 0.1))
    else:
        await within(asyncio.Event(), dice.uniform(0.0, 0.8))
    return None


async def terminate(daemon: Daemon, patience: float | None) -> None:
    """SIGTERM; after `patience` seconds SIGKILL."""
    try:
        assert await daemon.stop(20 if patience is None else patience) in {0, -9, -15}  # -15: it had not even begun
    except TimeoutError:
        assert patience is not None
        await daemon.kill()


async def kill_and_start(daemon: Daemon, talk: Talk, dice: random.Random, kills: int) -> None:
    for _ in range(kills):
        held = await moment(daemon, talk, dice)
        if (how := dice.random()) < 0.7:
            await daemon.kill()
        if held is not None:
            held.remove()
        if how >= 0.7:  # asked to end, and in half of the cases killed while it does
            await terminate(daemon, dice.uniform(0, 0.3) if how < 0.85 else None)
        starting = dice.random() < 0.3
        await daemon.start(ready=not starting)
        if starting:  # the next kill comes while it starts
            await within(asyncio.Event(), dice.uniform(0.1, 0.9))


async def settle(daemon: Daemon, talk: Talk) -> None:
    """Until everything that was said is taken and finished."""

    def quiet() -> bool:
        return not talk.tg.pending and not unfinished(daemon.data)

    try:
        await talk.tg.wait_for(quiet, 60)
    except AssertionError as error:
        raise AssertionError(f"not finished: {sorted(unfinished(daemon.data))[:5]}, {talk.tg.pending} not taken; {error}") from None


async def one_round(folder: Path, seed: str, kills: int, *, webhook: bool, streaming: str) -> Counter[str]:
    """A fresh daemon, people who talk, kills; then the audit."""
    dice = random.Random(seed)
    async with FakeTelegram(token=TOKEN) as tg, FakeModel(api_key=KEY) as model:
        talk = Talk(tg, model)
        text = config(
            tg,
            model,
            streaming=streaming,
            webhook_port=free_port() if webhook else 0,
            sessions=WHOLE,
        )
        daemon = Daemon(folder, text)
        large(daemon.data, 61)
        async with daemon:
            ending = asyncio.Event()
            async with asyncio.TaskGroup() as talking:
                for person in people(talk, dice):
                    talking.create_task(person.talks(ending, 60))
                await kill_and_start(daemon, talk, dice, kills)
                ending.set()
            await settle(daemon, talk)
            assert await daemon.stop() == 0
            audit = Audit(talk, daemon.data, streamed=streaming == "edit")
        assert not audit.faults, f"seed {seed}: {audit.verdict(kills)}"
        for bad in ("Traceback", "turn failed", "put aside", "command failed", "task failed"):
            assert bad not in daemon.text(), daemon.text()[daemon.text().find(bad) - 500 :][:3000]
        # A kill can strike every lane at one message at most.
        lanes = len(audit.accounts)
        for what in ("placeholder left", "reply doubled", "piece doubled", "pointer repeated"):
            assert audit.counts[what] <= kills * lanes // 4, audit.verdict(kills)
        return audit.counts


@pytest.mark.timeout(60 + KILLS * 10)
@pytest.mark.parametrize("webhook", [False, True], ids=["polling", "webhook"])
@pytest.mark.parametrize("streaming", ["edit", "off"])
async def test_kills_lose_and_double_nothing(tmp_path: Path, webhook: bool, streaming: str) -> None:
    """D09, D35: every message is answered once, in order, in its session, and every command acts once. What nobody can know is counted:
    see `tests.flow.audit` for what that is and why."""
    totals: Counter[str] = Counter()
    rounds = [SHORT] if not KILLS else [ROUND] * max(1, KILLS // 4 // ROUND)
    for number, kills in enumerate(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        totals += await one_round(folder, f"{SEED}{streaming}{webhook}{number}", kills, webhook=webhook, streaming=streaming)
        totals["kills"] += kills
    print(streaming, "webhook" if webhook else "polling", dict(totals))
    assert totals["inputs"] > 20 * len(rounds)
