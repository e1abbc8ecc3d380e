"""A message over which the daemon dies, end to end: the model's server kills the process each time it is asked that question. With the
times of real life this takes half a minute, so that it runs only where PARLOUR_KILLS is set; `tests/gateway/test_trials.py` has the rest.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.fakes.openai import Asked, End, FakeModel, Reply
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import Daemon
from tests.flow.people import config
from tests.flow.test_cli_daemon import Parlour

ANA, BEN = 42, 43


@pytest.mark.timeout(180)
@pytest.mark.skipif(not os.environ.get("PARLOUR_KILLS"), reason="the long form: PARLOUR_KILLS is not set")
async def test_a_message_over_which_the_daemon_dies_is_set_aside(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """Its author and the operator are told; the chat goes on; who wrote beside it is answered meanwhile, once."""
    deadly = asyncio.Event()

    def answer(asked: Asked) -> Reply | None:
        if asked.words == "poison":
            deadly.set()
            return Reply([End.HANG])
        return None

    model.script(answer)
    async with Daemon(tmp_path, config(tg, model)) as daemon:
        tg.say(ANA, "poison")
        for death in range(4):
            await asyncio.wait_for(deadly.wait(), 30)
            await daemon.kill()
            deadly.clear()
            await daemon.start()
            tg.say(BEN, f"after death {death}")
        await tg.wait_for(lambda: tg.visible(ANA)[-1:] and "I broke down 4 times" in tg.visible(ANA)[-1], 30, chat=ANA)
        tg.say(ANA, "something else")
        await tg.wait_for(lambda: tg.visible(ANA)[-1] == "Heard: something else", 20, chat=ANA)
        await tg.wait_for(lambda: tg.visible(BEN) == [f"Heard: after death {death}" for death in range(4)], 20, chat=BEN)
        assert len(tg.visible(ANA)) == 2
        parlour = Parlour(daemon)
        status = await parlour("status")
        assert "Set aside" in status.out
        assert f"telegram:{ANA}" in status.out
        assert "1 message set aside" in (await parlour("doctor", "--offline")).out
        assert daemon.text().count("set aside: the daemon died each time") == 1
        assert await daemon.stop() == 0
