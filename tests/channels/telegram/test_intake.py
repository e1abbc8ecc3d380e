"""`channels.telegram.intake`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from channels.telegram.intake import Intake
from channels.telegram.parse import Me
from tests.channels.telegram.support import Gateway
from tests.fakes.telegram import FakeTelegram


class Desk:
    """An intake with its surroundings. `tg` only makes messages here; nothing is listening."""

    def __init__(self) -> None:
        self.gateway = Gateway()
        self.answers: list[tuple[str, bool]] = []
        self.moves: list[tuple[str, str]] = []
        self.tg = FakeTelegram(token="7:T")
        self.intake = Intake(Me(7, "ourbot"), self.gateway.accept, self._answer, self._moved)
        self._numbers = iter(range(1, 10_000))

    async def _answer(self, callback: str, expired: bool) -> None:
        self.answers.append((callback, expired))

    async def _moved(self, old: str, new: str) -> None:
        self.moves.append((old, new))

    def update(self, **content: Any) -> bytes:
        return json.dumps({"update_id": next(self._numbers)} | content).encode()

    def text(self, chat: int, text: str) -> bytes:
        return self.update(message=self.tg.message(chat, text))

    def photo(self, caption: str = "") -> bytes:
        fields: dict[str, Any] = {"caption": caption} if caption else {}
        return self.update(message=self.tg.message(42, media_group_id="g", photo=[{"file_id": "p"}], **fields))

    def press(self, callback: str, **message: Any) -> bytes:
        return self.update(callback_query={"id": callback, "from": {"id": 42}, "data": "/x", **message})


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_batch_is_accepted_in_one_call(desk: Desk) -> None:
    """What is not for us is left out, and the rest goes to the gateway together and in order."""
    await desk.intake.take([desk.text(1, "a"), desk.update(), desk.text(-5, "others talk"), desk.text(2, "b")])
    assert desk.gateway.batches == [["a", "b"]]


async def test_a_batch_with_nothing_for_us_disturbs_nobody(desk: Desk) -> None:
    """The gateway is not called for nothing."""
    await desk.intake.take([desk.update(), desk.text(-5, "others talk")])
    await desk.intake.take([])
    assert desk.gateway.batches == []


async def test_what_cannot_be_read_is_counted_and_passed(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """One malformed update never stops the ones behind it; the log has its number, and none of its words."""
    secret = {"message_id": "private words", "chat": {"id": 1}}
    await desk.intake.take([b"private words{", desk.update(message=secret), b"", desk.update(message=[]), desk.text(1, "a")])
    assert desk.gateway.batches == [["a"]]
    assert desk.intake.bad == 4
    logged = capsys.readouterr().out
    assert "update=1" in logged
    assert "private words" not in logged


async def test_nothing_is_done_for_a_batch_that_could_not_be_written(desk: Desk) -> None:
    """OSError goes to the caller, no button is answered; when the same batch comes again, everything happens, once."""
    desk.gateway.full = 1
    batch = [desk.text(1, "a"), desk.press("c1", message=desk.tg.message(42, "m")), desk.photo()]
    with pytest.raises(OSError, match="No space"):
        await desk.intake.take(batch)
    await desk.intake.close()
    assert desk.answers == []
    await desk.intake.take(batch)
    await desk.intake.close()
    assert desk.gateway.texts == ["a", "/x", "a photo without a caption"]
    assert desk.answers == [("c1", False)]


async def test_each_press_is_answered_once(desk: Desk) -> None:
    """B28: known and unknown buttons alike; one whose message is gone is told that it has expired and is no input."""
    shown = desk.tg.message(42, "m")
    await desk.intake.take([desk.press("c1", message=shown), desk.press("c2"), desk.press("c3", message=shown | {"date": 0})])
    await desk.intake.close()
    assert sorted(desk.answers) == [("c1", False), ("c2", True), ("c3", True)]
    assert desk.gateway.texts == ["/x"]


async def test_a_slow_answer_to_a_press_holds_up_nothing(desk: Desk) -> None:
    """Answers run beside the reading; closing gives them a moment and leaves no task behind."""
    never = asyncio.Event()

    async def stuck(callback: str, expired: bool) -> None:
        await never.wait()

    intake = Intake(Me(7, "ourbot"), desk.gateway.accept, stuck, desk._moved)
    await intake.take([desk.press(f"c{n}", message=desk.tg.message(42, "m")) for n in range(300)])
    await intake.take([desk.text(1, "next")])
    assert desk.gateway.texts[-1] == "next"
    tasks = [task for task in asyncio.all_tasks() if task.get_name() == "telegram answer"]
    assert 0 < len(tasks) <= 100
    await intake.close()
    assert all(task.done() for task in tasks)


async def test_an_album_over_two_batches_is_answered_once(desk: Desk) -> None:
    """B14: what comes late of an album that was answered is not answered again, with words or without."""
    await desk.intake.take([desk.photo("what are these"), desk.photo()])
    await desk.intake.take([desk.photo()])
    assert desk.gateway.texts == ["what are these"]


async def test_a_late_caption_still_counts(desk: Desk) -> None:
    """An album whose caption comes in the second batch is answered for it."""
    await desk.intake.take([desk.photo()])
    await desk.intake.take([desk.photo(), desk.photo("what are these")])
    assert desk.gateway.texts == ["a photo without a caption", "what are these"]


async def test_a_moved_group_is_told_to_the_channel(desk: Desk) -> None:
    """B04: the service message about it is no input."""
    await desk.intake.take([desk.update(message=desk.tg.message(-500, migrate_to_chat_id=-1001500))])
    assert desk.moves == [("-500", "-1001500")]
    assert desk.gateway.batches == []
