"""Discord for the end-to-end tests: the config, what a person there sees in the end, and what every request must hold to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_rules import Json
from tests.fakes.discord_state import CALLBACK, HISTORY, Call
from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import Daemon
from tests.flow.people import SYSTEM, config, words

PATIENCE = 25.0
LIMIT = 2000
ANA, BEN, EVE = 700_000_000_000_000_042, 700_000_000_000_000_043, 700_000_000_000_000_044


def table(dc: FakeDiscord, *, streaming: str = "edit", more: str = "") -> str:
    """The config's table for the fake, own pacing off."""
    return f"""
[channels.discord]
api_base = "{dc.base_url}"
streaming = "{streaming}"
sends_per_second = 0
chat_per_second = 0
group_per_minute = 0
{more}
"""


def alone(
    dc: FakeDiscord,
    model: FakeModel,
    *,
    streaming: str = "edit",
    access: str = 'direct = "open"\ngroups = "open"',
    sessions: str = "",
    more: str = "",
) -> str:
    """A config.toml with Discord as the only network."""
    return f"""
data_dir = "data"
[http]
listen = ""
[access]
{access}
[sessions]
{sessions}
[backend]
kind = "openai"
base_url = "{model.base_url}"
model = "fake"
system_prompt = "{SYSTEM}"
[shutdown]
budget = "8s"
{table(dc, streaming=streaming, more=more)}
"""


def both(dc: FakeDiscord, tg: FakeTelegram, model: FakeModel, **options: str) -> str:
    """A config.toml with both networks."""
    return config(tg, model, more=table(dc, streaming=options.get("streaming", "edit")), **options)  # type: ignore[arg-type]


def daemon_of(folder: Path, text: str, dc: FakeDiscord) -> Daemon:
    """Not started yet."""
    return Daemon(folder, text, env={"PARLOUR_DISCORD_TOKEN": dc.token})


@asynccontextmanager
async def served(folder: Path, text: str, dc: FakeDiscord) -> AsyncIterator[Daemon]:
    """A daemon that Discord knows."""
    async with daemon_of(folder, text, dc) as daemon:
        await dc.online(PATIENCE)
        yield daemon


async def restarted(daemon: Daemon, dc: FakeDiscord) -> None:
    """Killed and started again, and Discord knows of both: what is told from then on is heard."""
    await daemon.kill()
    await dc.wait_for(lambda: not dc.gateway.live, PATIENCE)
    await daemon.start()
    await dc.online(PATIENCE)


# ------------------------------------------------------------------------------------------------------------------------ what is seen


async def until(dc: FakeDiscord, channel: int, holds: Callable[[list[str]], object], timeout: float = PATIENCE) -> list[str]:
    """Wait until that is so of the bot's texts in the channel, and give them. A failure says what there was instead."""
    try:
        await dc.wait_for(lambda: holds(dc.visible(channel)), timeout, channel=channel)
    except AssertionError as error:
        seen = [text if len(text) < 300 else f"{text[:150]} ... {text[-100:]}" for text in dc.visible(channel)]
        raise AssertionError(f"in channel {channel}: {seen}; {error}") from None
    return dc.visible(channel)


async def shown(dc: FakeDiscord, channel: int, *texts: str) -> None:
    """Wait until the bot's texts in the channel are these."""
    await until(dc, channel, lambda seen: seen == [*texts])


async def told(dc: FakeDiscord, channel: int, *parts: str) -> str:
    """Wait until the bot's newest text in the channel has these words in it, and give it."""
    seen = await until(dc, channel, lambda seen: seen and all(part.lower() in seen[-1].lower() for part in parts))
    return seen[-1]


async def asks(dc: FakeDiscord, channel: int, text: str, *, user: int | None = None, answer: str | None = None) -> int:
    """Say something and wait for its answer as the newest text; gives the id of what was said."""
    said = dc.say(channel, text, user=user)
    await until(dc, channel, lambda seen: seen[-1:] == [answer or f"Heard: {text}"])
    return said


async def converse(dc: FakeDiscord, channel: int, number: int, turns: range, *, timeout: float = 60.0) -> None:
    """One person, known to the model by `number`: says something, waits for the answer, says the next thing."""
    for turn in turns:
        dc.say(channel, words(number, turn))
        answer = f"Heard: {words(number, turn)}"
        await until(dc, channel, lambda seen, answer=answer: seen[-1:] == [answer], timeout)  # type: ignore[misc]


def fetched(dc: FakeDiscord, channel: int | None = None) -> list[Call]:
    """Looks into the history."""
    return dc.calls_of(HISTORY, channel)


# -------------------------------------------------------------------------------------------------------------- what must always hold


def texts_of(call: Call) -> list[Json]:
    """The parts of a request that make or change a message."""
    if call.route.startswith("GET") or not call.body or not isinstance(call.body, dict):
        return []  # also what a kill cut off before it was here
    if call.route == CALLBACK:
        return [call.body["data"]] if call.body.get("type") in (4, 5, 7) else []
    return [call.body] if "messages" in call.route or call.route.startswith("POST /webhooks") else []


def check_bodies(dc: FakeDiscord) -> int:
    """Whatever was tried: nobody can be pinged by it, it is whole characters, and within Discord's limit by both ways to count. Gives the
    number of texts."""
    count = 0
    for call in dc.calls:
        for body in texts_of(call):
            assert body["allowed_mentions"] == {"parse": [], "replied_user": False}, call
            if call.route == CALLBACK:
                continue
            text = str(body["content"])
            assert text.strip(), call
            assert "\ufffd" not in text
            assert max(len(text), len(text.encode("utf-16-le")) // 2) <= LIMIT
            count += 1
    return count


CALM = ("Traceback", "never retrieved", "turn failed", "put aside", "command failed", "task failed", "reading failed", "channel failed")


def check_log(daemon: Daemon, dc: FakeDiscord) -> None:
    """Nothing broke, and no secret is told: neither the bot's token nor one of an interaction."""
    said = daemon.text()
    for bad in CALM:
        assert bad not in said, said[max(0, said.find(bad) - 1500) :][:4000]
    for secret in (dc.token, dc.token.rpartition(".")[2], *(one.token for one in dc.interactions)):
        assert secret not in said
