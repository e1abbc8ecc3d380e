"""Power cuts on a medium that fails: a sync that returned an error has written nothing that can be relied on, now or later."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from gateway.lines import is_record, repair_tail
from gateway.redo import recover
from tests.crash.power import FATES, Disk, lay_out, record, recorder
from tests.crash.power_fault_child import FILES

__all__ = ["recorder"]


class Line(msgspec.Struct):
    n: int


def numbers(content: bytes) -> list[int]:
    """Of the lines that can be read. Of one that failed, and could not be cut back either, a part may be left: readers pass it over."""
    return [msgspec.json.decode(line, type=Line).n for line in content.splitlines() if is_record(line)]


@pytest.mark.parametrize("every", [3, 11])
async def test_syncs_that_fail(tmp_path: Path, recorder: Path, every: int) -> None:
    """What was acknowledged is there, in order; what was said to have failed is not, once anything was acknowledged after it."""
    dice = random.Random(every)
    data = tmp_path / "data"
    data.mkdir()
    disk = Disk(data)
    ops = await record(recorder, tmp_path / "ops", "tests.crash.power_fault_child", str(data), "60", sync_fails=every)
    acknowledged: list[tuple[str, int]] = []
    failed: list[int] = []
    when = {dice.randrange(len(ops)) for _ in range(15)} | {len(ops) - 1}
    for moment, op in enumerate(ops):
        disk.do(op)
        if op.kind == "!" and op.data.startswith((b"line", b"failed")):
            what, file, number = op.data.decode().split()
            if what == "line":
                acknowledged.append((file, int(number)))
            else:
                failed.append(int(number))
        if moment not in when:
            continue
        newest = max((number for _, number in acknowledged), default=-1)
        for fate in dice.sample(FATES, 3):
            lay_out(disk.after(*fate, dice), tmp_path / "image")
            with capture_logs():
                recover(tmp_path / "image")
            for file in FILES:
                path = tmp_path / "image" / file
                if path.exists():
                    with capture_logs():
                        repair_tail(path)
                found = numbers(path.read_bytes()) if path.exists() else []
                certain = [number for number in found if number <= newest]
                assert certain == [number for of, number in acknowledged if of == file], (moment, fate, file, failed)
            shutil.rmtree(tmp_path / "image")
    assert failed
    assert len(acknowledged) > 10
