"""Power cuts at any moment: with `durability = "power"` everything that was acknowledged is there afterwards, whatever the medium made of
the rest. Long form: PARLOUR_POWER_CUTS=100, some 3 minutes."""

from __future__ import annotations

import os
import random
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.message import Chat, Message, SessionKey, decode_event, encode_line
from tests.crash.power import FATES, Disk, Op, lay_out, record, recorder
from tests.crash.power_child import KEYS, House

__all__ = ["recorder"]

CUTS = int(os.environ.get("PARLOUR_POWER_CUTS", "2"))
STEPS = 10


@dataclass
class Acknowledged:
    """What the process had said before the cut."""

    lines: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    going: set[tuple[str, str]] = field(default_factory=set)
    """That it was about to delete."""
    gone: set[tuple[str, str]] = field(default_factory=set)
    pointers: dict[str, int] = field(default_factory=dict)
    put: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    let_in: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)

    def hear(self, said: bytes) -> None:
        for line in said.decode().splitlines():
            what, *words = line.split() or [""]
            if what in {"made", "line"}:
                self.lines[words[0], "main"] = int(words[1]) if what == "line" else 0
            elif what in {"fork", "grown"}:
                self.lines[words[0], words[1]] = int(words[2])
            elif what == "going":
                self.going.add((words[0], words[1]))
            elif what == "gone":
                self.gone.add((words[0], words[1]))
            elif what == "chat":
                self.pointers[words[0]] = int(words[1])
            elif what == "put":
                self.put.update(words)
            elif what == "end":
                self.ended.update(words)
            elif what == "in":
                self.let_in.update(words)
            elif what == "forgotten":
                self.forgotten.update(words)


async def missing(folder: Path, said: Acknowledged) -> list[str]:
    """What of that is not in the folder, as its next owner finds it; then that one goes on."""
    found: list[str] = []
    house = House(folder, "process")
    left = await house.open()
    for (owner, name), last in said.lines.items():
        key = SessionKey.parse(owner)
        if key == KEYS[3] or (owner, name) in said.gone:
            continue
        there = {listed.header.name for listed in await house.store.sessions(key)}
        if name not in there:
            if (owner, name) not in said.going:
                found.append(f"{owner} {name}")
            continue
        tail = await house.store.read(key, name)
        events = [decode_event(line) for line in tail.lines]
        if tail.last < last or tail.bad or [event.seq for event in events] != list(range(1, tail.last + 1)):
            found.append(f"{owner} {name} {last}: {tail.last}, {tail.bad} bad")
        if name == "main" and not all(isinstance(event, Message) and str(event.content).startswith(f"{event.seq} ") for event in events):
            found.append(f"{owner} {name}: other lines")
        line = encode_line(Message(seq=tail.last + 1, at="t", role="user", content=f"{tail.last + 1} and on"))
        assert await house.store.append(key, name, [line], tail.last, tail.last + 1) == tail.last + 1
        assert (await house.store.read(key, name)).lines == [*tail.lines, line]
    there = {path for key in KEYS for path in (str(key), *(f"{key} {listed.header.name}" for listed in await house.store.sessions(key)))}
    found += [f"{owner} {name} is back" for owner, name in said.gone if owner != str(KEYS[3]) and f"{owner} {name}" in there]
    for owner, number in said.pointers.items():
        key = SessionKey.parse(owner)
        chat = await house.store.chat(key)
        if key != KEYS[3] and (chat is None or int(chat.for_) < number):
            found.append(f"{owner} pointer {number}: {chat}")
        await house.store.set_chat(key, Chat(at="t", for_="1000000", current="main"))
    found += [f"input {each}" for each in said.put if not house.inbox.seen(each)]
    found += [f"input {each} is not finished" for each in said.ended & left]
    lost = said.put - said.ended - left
    found += [f"input {each} is finished" for each in lost if not each.endswith(":0")]
    known = {row["id"] for row in house.access.listed() if row["state"] == "let in"}
    found += [f"{each} is shut out" for each in said.let_in - known]
    await house.close()
    everything = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    found += [f"{mark} is back" for mark in said.forgotten if mark.encode() in everything]
    return found


def moments(ops: Sequence[Op], count: int, dice: random.Random, begun: int = 0) -> set[int]:
    """After which calls the power is cut, from `begun` on: about half of them just behind an acknowledgement, and the last one."""
    calls = range(begun, len(ops))
    told = [number for number in calls if ops[number].kind == "!"]
    return {dice.choice(each) for _ in range(count // 2 + 1) for each in (told, calls)} | {len(ops) - 1} if calls else set()


async def cut(ops: Sequence[Op], disk: Disk, said: Acknowledged, at: Iterable[int], place: Path, dice: random.Random) -> list[str]:
    """Follow the record and look at what is left at these moments."""
    wanted = set(at)
    faults: list[str] = []
    for number, op in enumerate(ops):
        disk.do(op)
        if op.kind == "!":
            said.hear(op.data)
        if number in wanted:
            for fate in (FATES[0], *dice.sample(FATES[1:], 2)):
                lay_out(disk.after(*fate, dice), place)
                with capture_logs():
                    faults += [f"after {number} ({' '.join(fate)}): {each}" for each in await missing(place, said)]
                shutil.rmtree(place)
    return faults


@pytest.fixture
def data(tmp_path: Path) -> Path:
    place = tmp_path / "data"
    place.mkdir(mode=0o700)
    return place


async def test_a_power_cut_takes_nothing_that_was_acknowledged(tmp_path: Path, data: Path, recorder: Path) -> None:
    """Every line, fork, pointer, input and approval that was acknowledged is there, in order and whole; what was said to be deleted or
    forgotten is not; the next process goes on from there. It holds from the start on that asks for it, for what was written before too."""
    dice = random.Random(CUTS)
    said, disk = Acknowledged(), Disk(data)
    for seed, durability in enumerate(("process", "power", "power")):
        ops = await record(recorder, tmp_path / "ops", "tests.crash.power_child", str(data), str(seed), durability, str(STEPS))
        begun = next(number for number, op in enumerate(ops) if op.kind == "S") if durability == "power" else len(ops)
        assert await cut(ops, disk, said, moments(ops, CUTS, dice, begun), tmp_path / "image", dice) == []
        assert disk.after("kept", "kept", dice) == {
            str(path.relative_to(data)): path.read_bytes() if path.is_file() else None for path in data.rglob("*")
        }  # the model has missed nothing
    assert not list((data / "power").iterdir())
    assert len(said.put) == 3 * 3 * STEPS
    assert said.forgotten
    assert said.gone
    assert said.let_in


async def test_a_cut_in_the_recovery_from_a_cut(tmp_path: Path, data: Path, recorder: Path) -> None:
    """The power goes again while what it had taken is being put back: nothing is lost that way either, nor put back twice."""
    dice = random.Random(CUTS)
    said, disk = Acknowledged(), Disk(data)
    ops = await record(recorder, tmp_path / "ops", "tests.crash.power_child", str(data), "0", "power", "12")
    at = sorted(moments(ops, max(1, CUTS // 8), dice))
    for number, op in enumerate(ops):
        disk.do(op)
        if op.kind == "!":
            said.hear(op.data)
        if number in at:
            left = tmp_path / f"left-{number}"
            lay_out(disk.after("torn", "torn", dice), left)
            again = Disk(left)
            doing = await record(recorder, tmp_path / "again", "tests.crash.power_child", str(left), "1", "process", "0")
            when = {dice.randrange(len(doing)) for _ in range(CUTS // 2)}
            assert await cut(doing, again, said, when, tmp_path / "image", dice) == []


async def test_the_same_cut_takes_what_is_with_the_system_only(tmp_path: Path, data: Path, recorder: Path) -> None:
    """What all this is for: with `durability = "process"` the same cuts take acknowledged lines. After a kill they are all there."""
    said, disk = Acknowledged(), Disk(data)
    ops = await record(recorder, tmp_path / "ops", "tests.crash.power_child", str(data), "0", "process", "5")
    for op in ops:
        disk.do(op)
        said.hear(op.data if op.kind == "!" else b"")
    dice = random.Random(0)
    lost: dict[tuple[str, str], int] = {}
    for number, fate in enumerate(FATES):
        lay_out(disk.after(*fate, dice), tmp_path / f"image-{number}")
        with capture_logs():
            lost[fate] = len(await missing(tmp_path / f"image-{number}", said))
    assert lost["kept", "kept"] == 0
    assert lost["lost", "lost"] > 10
