"""What a person on Telegram sees in the end, and what every text that went out must hold to: shared by the tests of answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest

from tests.fakes.openai import FakeModel, Reply
from tests.fakes.telegram import Call, FakeTelegram

BOTH = pytest.mark.parametrize("streaming", ["edit", "off"])
"""With answers that grow and with answers that come when they are done; for tests that use `daemon`."""
LIMIT = 4096
PATIENCE = 20.0


def replies(model: FakeModel, table: Mapping[str, Reply]) -> None:
    """What the model answers to whom, by the words of the question; others get the usual answer."""
    model.script(lambda asked: table.get(asked.words))


async def until(tg: FakeTelegram, chat: int, holds: Callable[[list[str]], object], timeout: float = PATIENCE) -> list[str]:
    """Wait until that is so of the bot's messages in the chat, and give them. A failure says what there was instead."""
    try:
        await tg.wait_for(lambda: holds(tg.visible(chat)), timeout, chat=chat)
    except AssertionError as error:
        seen = [text if len(text) < 300 else f"{text[:150]} ... {text[-100:]}" for text in tg.visible(chat)]
        raise AssertionError(f"in chat {chat}: {seen}; {error}") from None
    return tg.visible(chat)


async def shown(tg: FakeTelegram, chat: int, *texts: str) -> None:
    """Wait until the bot's messages in the chat are these."""
    await until(tg, chat, lambda seen: seen == [*texts])


async def whole(tg: FakeTelegram, chat: int, text: str) -> list[str]:
    """Wait until the bot's messages in the chat are this text, blanks aside; give them."""
    wanted = squeezed(text)
    return await until(tg, chat, lambda seen: squeezed(seen) == wanted)


async def told(tg: FakeTelegram, chat: int, *words: str) -> str:
    """Wait until the bot's only message in the chat has these words in it, and give it."""
    return (await until(tg, chat, lambda seen: len(seen) == 1 and all(word.lower() in seen[0].lower() for word in words)))[0]


def squeezed(texts: str | Iterable[str]) -> str:
    """Without any blanks: those at a cut between two messages go."""
    return "".join("".join(texts).split())


def texts_sent(tg: FakeTelegram, chat: int | None = None) -> list[Call]:
    """Every send and edit of a text, refused ones included, in order."""
    return [call for call in tg.calls if call.method in ("sendMessage", "editMessageText") and chat in (None, call.chat)]


def check_texts(tg: FakeTelegram) -> None:
    """Whatever was tried: whole characters, something to see, and within Telegram's limit by both ways to count."""
    for call in texts_sent(tg):
        text = str(call.params["text"])
        assert text.strip(), call
        assert "\ufffd" not in text
        assert max(len(text), len(text.encode("utf-16-le")) // 2) <= LIMIT
