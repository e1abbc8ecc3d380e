"""The whole daemon with `durability = "power"`, and the power goes: its own system calls decide what is left."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from tests.crash.power import FATES, Disk, lay_out, read, recorder
from tests.crash.records import unfinished
from tests.fakes.openai import FakeModel, Reply, says
from tests.fakes.telegram import FakeTelegram
from tests.flow.conftest import model, tg
from tests.flow.daemon import Daemon
from tests.flow.people import config

__all__ = ["model", "recorder", "tg"]

ANA, BEN = 42, 43
SECRET = "secret-9f86d081884c7d65"


def folder(place: Path, image: dict[str, bytes | None]) -> Path:
    place.mkdir()
    lay_out(image, place / "data")
    return place


async def say(tg: FakeTelegram, text: str, answer: str, chat: int = ANA) -> None:
    tg.say(chat, text)
    await tg.wait_for(lambda: answer in "".join(tg.visible(chat)[-1:]), 30, chat=chat)


async def test_the_power_goes(tmp_path: Path, tg: FakeTelegram, model: FakeModel, recorder: Path) -> None:
    """What was taken is answered, once, in the conversation that it belongs to; the next request knows all that was said; what was
    forgotten is nowhere."""
    power = config(tg, model, sessions='durability = "power"')
    (tmp_path / "live" / "data").mkdir(parents=True)
    daemon = Daemon(tmp_path / "live", power, {"LD_PRELOAD": str(recorder), "PARLOUR_RECORD": str(tmp_path / "ops")})
    disk = Disk(daemon.data)
    async with daemon:
        await say(tg, "one", "Heard: one")
        await say(tg, f"remember {SECRET}", SECRET, chat=BEN)
        await say(tg, "two", "Heard: two")
        await say(tg, "/forget yes", "deleted", chat=BEN)
        await say(tg, "/fork west", "in west")
        await say(tg, "three", "Heard: three")
        model.then(Reply([asyncio.Event()]))
        tg.say(ANA, "four")
        await model.wait(5)
        await tg.wait_for(lambda: not tg.pending, 20)
        await daemon.kill()
    for op in read((tmp_path / "ops").read_bytes()):
        disk.do(op)
    dice = random.Random(1)
    for number, fate in enumerate((FATES[0], FATES[7])):
        image = disk.after(*fate, dice)
        assert [path for path, content in image.items() if SECRET.encode() in (content or b"")] == []
        model.then(says("Heard: four"))
        async with Daemon(folder(tmp_path / f"image-{number}", image), power) as again:
            await model.wait(6 + 2 * number)
            await say(tg, f"five {number}", f"Heard: five {number}")
            said = [str(message.content) for message in model.asked[-1].messages if message.role == "user"]
            assert said == ["one", "two", "three", "four", f"five {number}"]
            # Neither of these lives knows of the other: it answers in the message placed before the cut, or in one of its own.
            assert tg.visible(ANA).count("Heard: four") <= number + 1
            await tg.wait_for(lambda again=again: not unfinished(again.data), 20)  # type: ignore[misc]
            assert await again.stop() == 0
            assert not list((again.data / "power").iterdir())
    once = ["Heard: one", "Heard: two", "Heard: three", "Heard: five 0", "Heard: five 1"]
    assert [text for text in tg.visible(ANA) if text in once] == once
