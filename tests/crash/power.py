"""What a power cut leaves of a folder: what was synced, and of everything else anything.

A process runs with `recorder.c` preloaded, which writes down each of its system calls on files, in order, with what it says on stdout
between them. `Disk` follows that record and can be asked at any point for the folder as it may be found after a cut there.

The model is the weak one of POSIX: a sync of a file is about its bytes and says nothing about its name; a sync of a folder is about the
names in it; a sync that fails is never made good by the next one. What is not synced is on the medium or not, each write and each name for
itself, in any order; of a write some pages may be there and others not, and read as NULs. Only a single rename is never seen half done.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

PAGE = 512
"""What a medium writes at once; smaller than the pages of a kernel, so that more can be torn."""

Fate = Literal["lost", "kept", "prefix", "torn"]
"""What becomes of what was not synced: nothing of it, all, all up to some moment (and a part of that write), anything."""


class Op(NamedTuple):
    """One line of the record: `kind` as in `recorder.c`, which says what the others are."""

    kind: str
    a: int
    b: int
    number: int
    name: str
    data: bytes


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library to preload. Skips the test where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler here, or not Linux")
    made = tmp_path_factory.mktemp("recorder") / "recorder.so"
    source = Path(__file__).with_name("recorder.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(made), str(source), "-ldl", "-lpthread"], check=True)
    return made


async def record(recorder: Path, place: Path, *command: str, sync_fails: int = 0) -> list[Op]:
    """Run a Python module to its end; what it did. `sync_fails`: every so many-th sync of a file fails."""
    env = {**os.environ, "LD_PRELOAD": str(recorder), "PARLOUR_RECORD": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    if sync_fails:
        env["PARLOUR_SYNC_FAILS"] = str(sync_fails)
    child = await asyncio.create_subprocess_exec(sys.executable, "-m", *command, env=env, stdout=asyncio.subprocess.PIPE)
    await child.communicate()
    assert child.returncode == 0
    return list(read(place.read_bytes()))


def read(data: bytes) -> Iterator[Op]:
    position = 0
    while position < len(data):
        kind, a, b, number, named, size = struct.unpack_from("6Q", data, position)
        position += 48
        name, content = data[position : position + named], data[position + named : position + named + size]
        position += named + size
        yield Op(chr(kind), a, b, number, name.decode(), content)


@dataclass
class _File:
    durable: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes (place, bytes) and cuts (size, None) since the last sync."""


@dataclass
class _Folder:
    durable: dict[str, _File | _Folder] = field(default_factory=dict)
    pending: list[tuple[str, _File | _Folder | None, str]] = field(default_factory=list)
    """Names that came (name, node, ""), went (name, None, "") or were changed (new name, node, old name) since the last sync."""


_Node = _File | _Folder


class Disk:
    """The folder `root`, as it is now and safe, and then as the process goes on that is recorded."""

    def __init__(self, root: Path) -> None:
        self._nodes: dict[int, _Node] = {}
        self._dice = random.Random(0)
        self._root = self._look(root)

    def _look(self, place: Path) -> _Node:
        info = place.lstat()
        node: _Node
        if stat.S_ISDIR(info.st_mode):
            node = _Folder({each.name: self._look(each) for each in place.iterdir()})
        else:
            node = _File(place.read_bytes())
        self._nodes[info.st_ino] = node
        return node

    def do(self, op: Op) -> None:
        """Follow one call. Those on other folders are passed over."""
        assert op.kind != "X", f"the process did something that is not modelled: {op}"
        if op.kind == "S":
            for each in self._nodes.values():
                _sync(each)
            return
        node = self._nodes.get(op.a)
        if node is None:
            return
        if isinstance(node, _File):
            if op.kind == "w":
                node.pending.append((op.number, op.data))
            elif op.kind == "t":
                node.pending.append((op.number, None))
            elif op.kind == "s":
                _sync(node)
            elif op.kind == "e":
                node.durable = _content(node, "torn", self._dice)
                node.pending.clear()
        elif op.kind in "cm":
            self._nodes[op.b] = _File() if op.kind == "c" else _Folder()
            node.pending.append((op.name, self._nodes[op.b], ""))
        elif op.kind == "l":
            node.pending.append((op.name, self._nodes[op.b], ""))
        elif op.kind == "r":
            node.pending.append((op.name, self._nodes[op.b], op.data.decode()))
        elif op.kind == "u":
            node.pending.append((op.name, None, ""))
        elif op.kind == "s":
            _sync(node)

    def after(self, fate: Fate, names: Fate, dice: random.Random) -> dict[str, bytes | None]:
        """The folder after a cut at this moment: path -> content, None for a folder. `fate` of what is in files, of `names`."""
        found: dict[str, bytes | None] = {}

        def walk(folder: _Folder, prefix: str) -> None:
            for name, node in _names(folder, names, dice).items():
                path = f"{prefix}{name}"
                if isinstance(node, _Folder):
                    found[path] = None
                    walk(node, f"{path}/")
                else:
                    found[path] = _content(node, fate, dice)

        assert isinstance(self._root, _Folder)
        walk(self._root, "")
        return found


def _sync(node: _Node) -> None:
    if isinstance(node, _File):
        node.durable = _content(node, "kept", random.Random())
    else:
        node.durable = _names(node, "kept", random.Random())
    node.pending.clear()


def _names(folder: _Folder, fate: Fate, dice: random.Random) -> dict[str, _Node]:
    names = dict(folder.durable)
    until = dice.randint(0, len(folder.pending))
    for number, (name, came, old) in enumerate(folder.pending):
        if fate == "kept" or (fate == "prefix" and number < until) or (fate == "torn" and dice.random() < 0.5):
            if came is None:
                names.pop(name, None)
                continue
            names[name] = came
            if old and names.get(old) is came:
                del names[old]
    return names


def _content(file: _File, fate: Fate, dice: random.Random) -> bytes:
    content = bytearray(file.durable)
    until = dice.randint(0, len(file.pending))
    for number, (place, data) in enumerate(file.pending):
        if fate == "lost" or (fate == "prefix" and number > until) or (fate == "torn" and data is None and dice.random() < 0.5):
            continue
        if data is None:
            del content[place:]
            content.extend(bytes(place - len(content)))
            continue
        if fate == "prefix" and number == until:
            data = data[: dice.randint(0, len(data))]  # noqa: PLW2901
        content.extend(bytes(max(0, place + len(data) - len(content))))
        if fate != "torn":
            content[place : place + len(data)] = data
            continue
        for start in range(place - place % PAGE, place + len(data), PAGE):
            if dice.random() < 0.5:
                low, high = max(start, place), min(start + PAGE, place + len(data))
                content[low:high] = data[low - place : high - place]
        if dice.random() < 0.5:
            del content[max(len(file.durable), len(content) - dice.randint(0, len(data))) :]
    return bytes(content)


def lay_out(image: dict[str, bytes | None], place: Path) -> None:
    """Make the folder of an image."""
    place.mkdir(mode=0o700)
    for path, content in image.items():
        if content is None:
            (place / path).mkdir(mode=0o700)
        else:
            (place / path).write_bytes(content)
            (place / path).chmod(0o600)


FATES: Sequence[tuple[Fate, Fate]] = (
    ("lost", "lost"),
    ("kept", "kept"),
    ("lost", "kept"),
    ("kept", "lost"),
    ("prefix", "prefix"),
    ("torn", "kept"),
    ("torn", "torn"),
    ("torn", "torn"),
)
"""What is tried at each moment: of files, of names. The second is what a kill leaves."""
