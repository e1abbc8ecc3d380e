"""People who chat, and the config of the daemon that they chat with: what the end-to-end tests share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fakes.openai import Asked, FakeModel
from tests.fakes.telegram import FakeTelegram

SYSTEM = "You are a parrot."


def config(
    tg: FakeTelegram,
    model: FakeModel,
    *,
    streaming: str = "edit",
    webhook_port: int = 0,
    telegram: str = "",
    access: str = 'direct = "open"\ngroups = "open"',
    sessions: str = "",
    backend: str = "",
    more: str = "",
) -> str:
    """A config.toml for the two fakes, own pacing off. Keyword texts are added to the tables of their name."""
    webhook = ""
    if webhook_port:
        webhook = f'mode = "webhook"\nwebhook_url = "http://127.0.0.1:{webhook_port}/telegram"\nwebhook_listen = "127.0.0.1:{webhook_port}"'
    return f"""
data_dir = "data"
[log]
level = "info"
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
{backend}
[shutdown]
budget = "8s"
[channels.telegram]
api_base = "{tg.base_url}"
streaming = "{streaming}"
poll_timeout = "5s"
sends_per_second = 0
chat_per_second = 0
group_per_minute = 0
{webhook}
{telegram}
{more}
"""


def words(chat: int, turn: int) -> str:
    """What the person of a chat says in a turn; found nowhere else."""
    return f"chat {chat} turn {turn} word w{chat * 7919 + turn}x"


async def converse(tg: FakeTelegram, chat: int, turns: int, *, timeout: float = 60.0) -> None:
    """One person: says something, waits for the answer, says the next thing."""
    for turn in range(turns):
        tg.say(chat, words(chat, turn))
        answer = f"Heard: {words(chat, turn)}"
        await tg.wait_for(lambda answer=answer: answer in tg.visible(chat)[-1:], timeout, chat=chat)  # type: ignore[misc]


def expected(chat: int, turns: int) -> list[str]:
    """What such a person then sees of the bot."""
    return [f"Heard: {words(chat, turn)}" for turn in range(turns)]


def windows(asked: list[Asked]) -> Iterator[tuple[int, int, list[tuple[str, str]]]]:
    """Each request as (chat, turn, messages behind the system text), by the words of its last user message."""
    for one in asked:
        assert one.messages[0].role == "system"
        assert one.messages[0].content == SYSTEM
        parts = one.words.split()
        yield int(parts[1]), int(parts[3]), [(m.role, str(m.content)) for m in one.messages[1:]]


def history(chat: int, turn: int) -> list[tuple[str, str]]:
    """The messages that the request for `turn` must carry, and no others."""
    before = [pair for n in range(turn) for pair in (("user", words(chat, n)), ("assistant", f"Heard: {words(chat, n)}"))]
    return [*before, ("user", words(chat, turn))]


def session_lines(data: Path, chat: int | str, name: str = "main") -> list[dict[str, Any]]:
    """A session file of a Telegram chat; every line of it must be JSON."""
    text = (data / "sessions" / "telegram" / str(chat) / f"{name}.jsonl").read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]
