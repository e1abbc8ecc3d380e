"""`channels.telegram.intake`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from channels.telegram.intake import Intake
from channels.telegram.moves import Moves
from channels.telegram.parse import Me
from tests.channels.telegram.support import Gateway
from tests.fakes.telegram import FakeTelegram


class Desk:
    """An intake with its surroundings. `tg` only makes messages here; nothing is listening."""

    def __init__(self, folder: Path) -> None:
        self.gateway = Gateway()
        self.answers: list[tuple[str, bool]] = []
        self.folder = folder
        self.moves = Moves(folder)
        self.tg = FakeTelegram(token="7:T")
        self.intake = Intake(Me(7, "ourbot"), self.gateway.accept, self._answer, self.moves)
        self._numbers = iter(range(1, 10_000))

    async def _answer(self, callback: str, expired: bool) -> None:
        self.answers.append((callback, expired))

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
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "telegram")


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

    intake = Intake(Me(7, "ourbot"), desk.gateway.accept, stuck, desk.moves)
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


@pytest.mark.parametrize("said", ["in the old group", "in the new group"])
async def test_a_group_that_moved_stays_the_group_that_it_was(desk: Desk, said: str) -> None:
    """B04: the service message about it is no input. What comes from the new id, in the same batch too, belongs to the group's old address,
    under an id of its own, and names the new one for the gate and for replies."""
    old, new = desk.tg.message(-500, migrate_to_chat_id=-1001500), desk.tg.message(-1001500, migrate_from_chat_id=-500)
    service = desk.update(message=old if said == "in the old group" else new)
    await desk.intake.take([desk.text(-500, "@OurBot a"), service, desk.text(-1001500, "@OurBot b"), desk.text(-1001500, "/reset@OurBot")])
    before, *after = desk.gateway.inbounds
    assert (before.address.chat, before.group, before.text) == ("-500", "", "a")
    assert [(each.address.chat, each.group, each.text) for each in after] == [("-500", "-1001500", "b"), ("-500", "-1001500", "/reset")]
    assert all(each.id.startswith("telegram:7:-1001500:") for each in after)
    assert all(each.reply_to == f"-1001500/{each.id.rpartition(':')[2]}" for each in after)


async def test_a_group_that_moves_twice_stays_what_it_was(desk: Desk) -> None:
    """From id to id: it is still the first one, in this process and in the next."""
    for old, new in ((-500, -1001500), (-1001500, -1001600)):
        await desk.intake.take([desk.update(message=desk.tg.message(old, migrate_to_chat_id=new))])
    again = Moves(desk.folder)
    await again.load()
    for moves in (desk.moves, again):
        await Intake(Me(7, "ourbot"), desk.gateway.accept, desk._answer, moves).take([desk.text(-1001600, "@OurBot a")])
    assert [each.address.chat for each in desk.gateway.inbounds] == ["-500", "-500"]


async def test_a_move_that_cannot_be_written_comes_again(desk: Desk) -> None:
    """Nothing of the batch is confirmed before it is on disk that the group has moved: else it would lose its conversation at the next
    start. When there is room, the same batch is taken."""
    desk.folder.write_text("in the way of the folder")
    batch = [desk.update(message=desk.tg.message(-500, migrate_to_chat_id=-1001500)), desk.text(-1001500, "@OurBot a")]
    for _ in range(2):
        with pytest.raises(OSError, match="File exists"):
            await desk.intake.take(batch)
    assert desk.gateway.inbounds == []
    desk.folder.unlink()
    await desk.intake.take(batch)
    assert [each.address.chat for each in desk.gateway.inbounds] == ["-500"]
    assert json.loads((desk.folder / "moved.json").read_text()) == {"-500": "-1001500"}
