"""A data folder in which bytes are not as they were written: the house opens, nobody is shut out, nothing is written elsewhere.

What a damaged file says may be lost, and is told; what cannot be told apart from good lines is taken for what it says. Single kinds of
damage, and what is kept of each file, stand beside the modules.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from gateway.errors import ParlourError
from gateway.options import Access as Rules
from tests.fuzz.hostile import TIMES, encoded, garbled, spoilt, tried
from tests.gateway.core import Core, until

pytestmark = pytest.mark.timeout(60 * TIMES)
RULES = Rules(direct="pairing", groups="open", allow=tuple(f"net:{n}" for n in range(1, 9)))
CHATS = ("1", "2", "3")
_examples = count()


async def lived(folder: Path) -> None:
    """Three chats with forks, resets and what was said in them, a stranger, and one question that nobody answered."""
    core = Core(folder, rules=RULES, rotate_bytes=3000)
    await core.start()
    for chat in CHATS:
        for text in ("one", "/fork West", "two", "/reset", "three", "/undo", "four", "/switch west"):
            await core.ask(text, chat=chat, who=chat)
    await core.ask("who are you?", chat="99", who="99")
    core.model.then(asyncio.Event())
    await core.say("left behind", chat="1", who="1")
    await core.running("1")
    await core.stop(crash=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lived")
    asyncio.run(lived(folder))
    return folder


def damaged(dice: Random, folder: Path) -> list[str]:
    """Some files of the folder, spoilt in one way or another."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    chosen = dice.sample(files, dice.randint(1, 4))
    for path in chosen:
        raw = path.read_bytes()
        lines = raw.splitlines(keepends=True)
        match dice.randrange(6):
            case 0:
                path.write_bytes(raw[: dice.randint(0, len(raw))])
            case 1:
                path.unlink()
            case 2:
                dice.shuffle(lines)
                path.write_bytes(b"".join(lines))
            case 3 if lines and path.suffix == ".jsonl":
                at = dice.randrange(len(lines))
                try:
                    lines[at] = encoded(spoilt(dice, [json.loads(lines[at])])) + b"\n"
                except ValueError:
                    lines[at] = b"\n"
                path.write_bytes(b"".join(lines))
            case _:
                path.write_bytes(garbled(dice, [raw]))
    return [str(path.relative_to(folder)) for path in chosen]


async def opened(folder: Path) -> None:
    core = Core(folder, rules=RULES)
    try:
        await core.start()
    except ParlourError:
        return  # one sentence for the operator
    try:
        for chat in (*CHATS, "5"):
            for number in (10_000, 10_001):
                before = len(core.seen(chat))
                good = core.inbound("good", chat=chat, who=chat, input_id=f"net:7:{chat}:{number}")
                await core.router.accept([good])
                await until(lambda good=good: core.inbox.pending(good.id) is None)  # type: ignore[misc]
                assert len(core.seen(chat)) > before, chat
        assert core.seen("5") == ["Heard: good", "Heard: good"]
    finally:
        await core.stop()
    assert core.net.faults == []


@tried(25)
@given(st.randoms(use_true_random=True))
def test_no_damage_shuts_anybody_out(folder: Path, dice: Random) -> None:
    """Whatever became of up to four files: those who talk are told something each time, and who is new has an answer."""
    world = folder.parent / f"damaged-{next(_examples)}"
    shutil.copytree(folder, world / "data")
    told = damaged(dice, world / "data")
    with capture_logs() as logs:
        asyncio.run(asyncio.wait_for(opened(world / "data"), 30))
    assert not [entry for entry in logs if entry.get("exc_info")], (told, logs)
    assert [path.name for path in world.iterdir()] == ["data"]
    shutil.rmtree(world)
