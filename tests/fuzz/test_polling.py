"""Answers of getUpdates that are not as Telegram gives them: reading goes on, and what comes in order behind them is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.base import Inbound
from channels.telegram.intake import Intake
from channels.telegram.moves import Moves
from channels.telegram.parse import Me
from channels.telegram.poll import Poller
from tests.fuzz import real
from tests.fuzz.hostile import encoded, garbled, spoilt, tried

UPDATES = real.updates()
GOOD = encoded({"ok": True, "result": [{"update_id": 5}, {"update_id": 6} | UPDATES[0]]})


@tried(5)
@given(st.randoms(use_true_random=True))
def test_no_answer_stops_the_reading(tmp_path_factory: pytest.TempPathFactory, dice: Random) -> None:
    """Bytes and values spoilt anywhere, the numbers of updates included, and cut-off answers."""
    whole = [{"ok": True, "result": [{"update_id": n} | one for n, one in enumerate(dice.sample(UPDATES, 4), 1)]} for _ in range(10)]
    answers = [encoded(spoilt(dice, whole)) for _ in range(30)] + [garbled(dice, list(map(encoded, whole))) for _ in range(30)]
    answers += [raw[: dice.randint(0, len(raw))] for raw in answers[:10]]
    dice.shuffle(answers)
    left = iter([*answers, GOOD])
    heard: list[Inbound] = []
    over = asyncio.Event()
    folder = tmp_path_factory.mktemp("moves")

    async def fetch(offset: int | None) -> bytes:
        answer = next(left, None)
        if answer is None:
            over.set()
            await asyncio.Event().wait()
        return answer or b""

    async def accept(inbounds: Sequence[Inbound]) -> None:
        heard.extend(inbounds)

    async def nothing(*args: object) -> None:
        """A press is of no interest, and no pause is made."""

    async def read() -> None:
        poller = Poller(fetch, Intake(Me(7, "ourbot"), accept, nothing, Moves(folder)).take, pause=nothing)
        task = asyncio.create_task(poller.run())
        await asyncio.wait({task, waiting := asyncio.create_task(over.wait())}, return_when=asyncio.FIRST_COMPLETED)
        assert not task.done(), task.exception()
        for one in (task, waiting):
            one.cancel()
        await asyncio.gather(task, waiting, return_exceptions=True)
        assert poller.problem == ""

    asyncio.run(asyncio.wait_for(read(), 30))
    assert heard[-1].text == "hello"
