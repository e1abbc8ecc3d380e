"""`systemctl reload`, end to end: what changes while people talk, what does not, and a file with faults."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import KEY, TOKEN
from tests.flow.manager import Managed
from tests.flow.people import config

ANA, BEN = 42, 43


def lines(daemon: Managed, event: str) -> list[dict[str, Any]]:
    """The log's lines of this event."""
    found = (json.loads(line) for line in daemon.text().splitlines() if line.startswith("{"))
    return [line for line in found if line["event"] == event]


async def ask(tg: FakeTelegram, who: int, text: str) -> str:
    """Say something, and wait for what comes."""
    before = len(tg.visible(who))
    tg.say(who, text)
    await tg.wait_for(lambda: len(tg.visible(who)) > before and tg.visible(who)[-1] != "…", 10, chat=who)
    return tg.visible(who)[-1]


async def test_a_reload_changes_what_it_can_while_people_talk(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """Another model with another key, another system text, another list of people, a quota, less history: all from the next message on,
    in the same process, with the conversation that was. One line of the log says what was taken over, and what needs a restart."""
    async with FakeModel(api_key="sk-OTHER-0123456789") as other:
        text = config(tg, model, access=f'direct = "allowlist"\nallow = ["telegram:{ANA}"]', backend=f'api_key = "{KEY}"')
        async with Managed(tmp_path, text, {"PARLOUR_BACKEND_API_KEY": ""}) as daemon:
            assert await ask(tg, ANA, "one") == "Heard: one"
            tg.say(BEN, "and me?")
            assert await ask(tg, ANA, "two") == "Heard: two"
            changed = config(
                tg,
                other,
                access=f'direct = "allowlist"\nallow = ["telegram:{ANA}", "telegram:{BEN}"]\nturns_per_day = 3',
                sessions="history_messages = 1\nwaiting = 7",
                backend='api_key = "sk-OTHER-0123456789"\nmax_answer_chars = 12\nmax_concurrent_turns = 3',
            )
            changed = changed.replace("You are a parrot.", "You are an owl.").replace("chat_per_second = 0", "chat_per_second = 50")
            changed = changed.replace('streaming = "edit"', 'streaming = "off"').replace('level = "info"', 'level = "warning"')
            daemon.config.write_text(changed)
            await daemon.reload()
            assert re.fullmatch(r"MONOTONIC_USEC=[0-9]{6,}", daemon.words("MONOTONIC_USEC=")[0])
            assert daemon.words()[daemon.words().index("RELOADING=1") :][-1] in {"READY=1", *daemon.words("STATUS=")}

            assert (await ask(tg, ANA, "three")).startswith("Heard: three"[:12])
            assert len(model.asked) == 2
            (asked,) = other.asked
            assert [(m.role, m.content) for m in asked.messages] == [("system", "You are an owl."), ("user", "three")]
            assert "today's 3" in await ask(tg, ANA, "four")
            assert (await ask(tg, BEN, "me")).startswith("Heard: me")
            (told,) = lines(daemon, "config taken over")
            assert set(told["taken"]) == {
                "log.level",
                "access.allow",
                "access.turns_per_day",
                "sessions.history_messages",
                "sessions.waiting",
                "backend.base_url",
                "backend.api_key",
                "backend.system_prompt",
                "backend.max_answer_chars",
                "channels.telegram.chat_per_second",
            }
            assert set(told["needs_restart"]) == {"backend.max_concurrent_turns", "channels.telegram.streaming"}
            assert "OTHER" not in daemon.text()
            assert daemon.process is not None
            assert daemon.process.returncode is None
            assert await daemon.stop() == 0


async def test_a_turn_that_runs_ends_as_it_began(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """A reload in the middle of an answer, and many at once: the answer comes whole, and none is asked twice."""
    async with Managed(tmp_path, config(tg, model)) as daemon:
        model.delay = 0.1
        tg.say(ANA, "a long question of many words that takes its time to be repeated")
        await model.wait(1)
        daemon.config.write_text(config(tg, model).replace("a parrot", "an owl"))
        await asyncio.gather(*(daemon.reload() for _ in range(5)))
        await tg.wait_for(
            lambda: tg.visible(ANA) == ["Heard: a long question of many words that takes its time to be repeated"], 20, chat=ANA
        )
        assert len(model.asked) == 1
        assert await daemon.stop() == 0


@pytest.mark.parametrize(
    "fault",
    ["[backend\nkind = 7", "", 'direkt = "open"', "[channels.telegran]"],
    ids=["no TOML", "nothing", "a key", "a channel"],
)
async def test_a_file_with_faults_is_refused_whole(tmp_path: Path, tg: FakeTelegram, model: FakeModel, fault: str) -> None:
    """Its faults are in the log, the old one stays in force to the last key, and the next good one is taken."""
    text = config(tg, model, access=f'direct = "allowlist"\nallow = ["telegram:{ANA}"]')
    async with Managed(tmp_path, text) as daemon:
        better = text.replace("a parrot", "an owl").replace("allowlist", "open")
        daemon.config.write_text(better.replace("[access]", f"[access]\n{fault}") if fault else "")
        await daemon.reload()
        (refused,) = lines(daemon, "config not taken over, the one that runs stays")
        assert refused["level"] == "error"
        assert all(str(daemon.config) in line for line in refused["faults"])
        tg.say(BEN, "am I in?")
        assert await ask(tg, ANA, "hello") == "Heard: hello"
        assert model.asked[-1].messages[0].content == "You are a parrot."
        daemon.config.write_text(better)
        await daemon.reload()
        assert await ask(tg, BEN, "and now?") == "Heard: and now?"
        assert "Heard: am I in?" not in tg.visible(BEN)
        assert model.asked[-1].messages[0].content == "You are an owl."
        assert TOKEN not in daemon.text()
        assert KEY not in daemon.text()
