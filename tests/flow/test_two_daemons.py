"""Two daemons, two data folders, one Telegram token: a mistake of operators that Telegram tells of, and that has to be heard of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import Daemon
from tests.flow.people import config
from tests.flow.test_cli_daemon import Parlour
from tests.gateway.core import until

ANA = 42
TROUBLE = "another program is reading this bot's messages"


@pytest.mark.slow
async def test_a_second_daemon_on_the_token_is_told_and_outlived(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """B19: within half a minute both say so, once each, in the log, the status and the doctor; what comes meanwhile is answered by one of
    them; the one that stays goes on by itself."""
    for name in "ab":
        (tmp_path / name).mkdir()
    async with Daemon(tmp_path / "a", config(tg, model)) as first, Daemon(tmp_path / "b", config(tg, model)) as second:
        await until(lambda: all(TROUBLE in daemon.text() for daemon in (first, second)), 30)
        parlour = Parlour(first)
        assert TROUBLE in (await parlour("status", "--json")).json["health"]["channels"]["telegram"]["problem"]
        assert TROUBLE in (await parlour("doctor", "--offline")).out
        for n in range(2):
            tg.say(ANA, f"question {n}")
            await tg.wait_for(lambda n=n: f"Heard: question {n}" in tg.visible(ANA), 40, chat=ANA)  # type: ignore[misc]
        assert await second.stop() == 0
        tg.say(ANA, "alone again")
        await tg.wait_for(lambda: "Heard: alone again" in tg.visible(ANA), 40, chat=ANA)
        for daemon in (first, second):
            assert daemon.text().count("polling has a problem") == 1
            assert "Traceback" not in daemon.text()
        polls = [call for call in tg.calls_of("getUpdates") if call.status == 409]
        assert len(polls) < 40
