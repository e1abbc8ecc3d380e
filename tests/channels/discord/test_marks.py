"""What is remembered of where nothing can be missing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from channels.discord.marks import EVERY, Marks


async def running(marks: Marks, path: Path) -> None:
    """Until its file is there, within a small part of the usual time between two writes."""
    task = asyncio.create_task(marks.run())
    try:
        async with asyncio.timeout(EVERY / 5):
            while not path.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_first_sign_of_life_is_kept_at_once(tmp_path: Path) -> None:
    """A daemon that ends right after its first connection has been there: the next start is not the first one."""
    marks = Marks(tmp_path / "discord")
    await marks.load("1")
    assert marks.alive is None
    marks.live(1000.0)
    await running(marks, tmp_path / "discord" / "heard.json")
    again = Marks(tmp_path / "discord")
    await again.load("1")
    assert again.alive == 1000.0


async def test_a_new_direct_chat_is_kept_at_once(tmp_path: Path) -> None:
    """Nobody else would tell of it."""
    marks = Marks(tmp_path)
    await marks.load("1")
    marks.live(1000.0)
    await marks.save()
    (tmp_path / "heard.json").unlink()
    marks.heard("7", 70)
    await running(marks, tmp_path / "heard.json")
    again = Marks(tmp_path)
    await again.load("1")
    assert again.direct == {"7": 70}


async def test_what_could_not_be_kept_is_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """When the disk takes it again, it is kept though nothing new is heard; the operator is told once."""
    folder = tmp_path / "discord"
    folder.write_text("in the way")
    marks = Marks(folder, every=0.01)
    await marks.load("1")
    marks.live(1000.0)
    marks.heard("7", 70)
    for _ in range(3):
        await marks.save()
    folder.unlink()
    await running(marks, folder / "heard.json")
    again = Marks(folder)
    await again.load("1")
    assert again.direct == {"7": 70}
    assert capsys.readouterr().out.count("cannot keep what was heard") == 1
