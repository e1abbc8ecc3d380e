"""The first contact with both networks, met by each way to go wrong: the daemon starts, tries again by itself, and then answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import COMMANDS, GATEWAY, ME
from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow import on_discord, test_faults_discord, test_faults_telegram
from tests.flow.daemon import KEY, TOKEN, free_port
from tests.flow.faults import ALL, PATIENCE, Way
from tests.flow.on_discord import both, daemon_of
from tests.flow.seen import until

TELEGRAM = ("getMe", "getWebhookInfo", "deleteWebhook", "setMyCommands", "setWebhook")
DISCORD = (GATEWAY, ME, "GET /oauth2/applications/@me", COMMANDS)
WAYS = {way.name: way for way in test_faults_telegram.WAYS}
OURS = {way.name: way for way in test_faults_discord.WAYS if way.name != "429 page"}
FEW = 4
"""Daemons at once."""

Fault = tuple[str, Way]


async def begins(folder: Path, telegram: Sequence[Fault], discord: Sequence[Fault]) -> None:
    """A daemon whose first requests meet these, one after the other; in the end both networks are answered, and the log is calm."""
    folder.mkdir(exist_ok=True)
    async with FakeTelegram(token=TOKEN) as tg, FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        faults = [way.plan(tg, method) for method, way in telegram] + [way.plan(dc, route) for route, way in discord]
        webhook = any(method == "setWebhook" for method, _ in telegram)
        text = both(dc, tg, model, **({"webhook_port": free_port()} if webhook else {}))  # type: ignore[arg-type]
        if any(method == "deleteWebhook" for method, _ in telegram):
            # One of our own is left from another life.
            tg.webhook_url = "http://127.0.0.1:1/telegram"
            text = text.replace("[channels.telegram]", f'[channels.telegram]\nwebhook_url = "{tg.webhook_url}"')
        daemon = daemon_of(folder, text, dc)
        await daemon.start(timeout=PATIENCE)
        try:
            await tg.wait_for(lambda: all(fault.hits for fault in faults), PATIENCE)
            await dc.online(PATIENCE)
            tg.say(1, "hello")
            await until(tg, 1, lambda seen: seen == ["Heard: hello"], PATIENCE)
            chat = dc.dm(2)
            dc.say(chat, "hello")
            await on_discord.until(dc, chat, lambda seen: seen == ["Heard: hello"], PATIENCE)
            assert await daemon.stop() == 0
        finally:
            if daemon.process is not None and daemon.process.returncode is None:
                await daemon.kill()
        test_faults_telegram.clean(daemon)
        on_discord.check_log(daemon, dc)


@pytest.mark.parametrize(
    ("telegram", "discord"),
    [
        (["getMe 502 page", "getWebhookInfo reset before", "setMyCommands 200 truncated"], [f"{GATEWAY} 502 page", f"{COMMANDS} 500"]),
        (["deleteWebhook 429 with a wait"], [f"{ME} 200 id number", "GET /oauth2/applications/@me reset after"]),
    ],
    ids=["outage", "nonsense"],
)
async def test_a_start_in_bad_weather(tmp_path: Path, telegram: list[str], discord: list[str]) -> None:
    """Each of these, and then all is well without anybody's help."""

    def planned(text: str, names: tuple[str, ...], ways: dict[str, Way]) -> Fault:
        name = next(name for name in names if text.startswith(f"{name} "))
        return name, ways[text.removeprefix(f"{name} ")]

    await begins(tmp_path / "x", [planned(text, TELEGRAM, WAYS) for text in telegram], [planned(text, DISCORD, OURS) for text in discord])


@pytest.mark.skipif(not ALL, reason="minutes; PARLOUR_FAULTS=all runs it")
@pytest.mark.timeout(1800)
async def test_a_start_in_any_weather(tmp_path: Path) -> None:
    """Every request of the first contact, every way to go wrong, each with a daemon of its own. (A token that is refused at its first
    showing is the operator's mistake: exit 78, tested elsewhere.)"""
    gate = asyncio.Semaphore(FEW)

    async def case(number: int, telegram: list[Fault], discord: list[Fault]) -> None:
        async with gate:
            try:
                await begins(tmp_path / str(number), telegram, discord)
            except AssertionError as error:
                raise AssertionError(f"{[(what, way.name) for what, way in (*telegram, *discord)]}: {error}") from None

    mine = [(method, way) for method in TELEGRAM for way in WAYS.values() if (method, way.name) not in {("getMe", "401"), ("getMe", "404")}]
    theirs = [(route, way) for route in DISCORD for way in OURS.values() if (route, way.name) != (ME, "401")]
    cases = (case(n, mine[n : n + 1], theirs[n : n + 1]) for n in range(max(len(mine), len(theirs))))
    failed = [error for error in await asyncio.gather(*cases, return_exceptions=True) if error is not None]
    assert not failed, "\n".join(str(error)[:500] for error in failed)
