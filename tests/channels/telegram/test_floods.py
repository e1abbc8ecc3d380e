"""Whom a 429 means."""

from __future__ import annotations

from pathlib import Path

import pytest

from channels.base import Address, Piece, Retry
from channels.telegram.floods import Floods
from tests.channels.telegram.support import channel_for
from tests.fakes.telegram import FakeTelegram

HI = Piece("hi")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_one_chat_is_one_chat() -> None:
    """However often it is refused."""
    floods = Floods(Clock())
    assert not any(floods.told("1", 30) for _ in range(10))
    assert (floods.left("1"), floods.left("2")) == (30, 0)


def test_three_chats_that_are_held_to_one_moment_are_the_bot() -> None:
    """The waits count down to one end, in whole seconds; from the third chat on it is the bot's, and holds who was never refused, too."""
    clock = Clock()
    floods = Floods(clock)
    said = []
    for chat, at, after in (("1", 100.0, 30), ("2", 104.5, 26), ("3", 109.2, 21), ("4", 109.3, 21)):
        clock.now = at
        said.append(floods.told(chat, after))
    assert said == [False, False, True, True]
    assert floods.left("5") == pytest.approx(21.0)
    clock.now += 22
    assert floods.left("5") == floods.left("1") == 0


def test_chats_that_are_held_for_their_own_reasons_are_not_the_bot() -> None:
    """Their waits end at different times."""
    floods = Floods(Clock())
    assert not any(floods.told(str(n), 10 + 5 * n) for n in range(20))


def test_whoever_gets_through_shows_that_the_bot_is_free() -> None:
    """Then it takes three refusals anew."""
    floods = Floods(Clock())
    floods.told("1", 30)
    floods.told("2", 30)
    floods.passed()
    assert not floods.told("3", 30)
    assert not floods.told("4", 30)
    assert floods.told("5", 30)


def test_what_is_remembered_is_bounded() -> None:
    """Ten thousand chats, each refused for a second."""
    clock = Clock()
    floods = Floods(clock)
    for n in range(10_000):
        clock.now += 0.5
        floods.told(str(n), 1)
    assert len(floods._ends) <= 1000
    assert len(floods._suspects) <= 1000


async def test_the_channel_says_whom_a_wait_means(tmp_path: Path) -> None:
    """Sends, edits, deletions and typing signs tell of it; who asks for the admins is told the same without a call."""
    async with FakeTelegram() as tg:
        channel = channel_for(tg, tmp_path)
        await channel.start([])
        chats = [Address("telegram", str(chat)) for chat in (1, 2, 3, 4)]
        numbers = [await channel.send(chat, HI) for chat in chats]
        for chat in (1, 2, 3, 4):
            tg.flood(chat, 30)
        calls = [
            channel.send(chats[0], HI),
            channel.edit(chats[1], numbers[1], Piece("ho")),
            channel.delete(chats[2], numbers[2]),
            channel.typing(chats[3]),
        ]
        everywhere = []
        for call in calls:
            with pytest.raises(Retry) as caught:
                await call
            everywhere.append(caught.value.everywhere)
        assert everywhere == [False, False, True, True]
        before = len(tg.calls)
        with pytest.raises(Retry):
            await channel.is_admin(Address("telegram", "-5"), "42")
        assert len(tg.calls) == before
        await channel.close()
