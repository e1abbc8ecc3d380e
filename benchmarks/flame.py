"""Where the time of a turn goes, as pictures: `./dev bench flame` writes docs/flames/, and says whose code it is that runs.

py-spy samples the daemon while 200 chats talk; only the thread of the event loop is drawn, from the handles that it runs upwards. A
picture is a plain SVG without scripts: each box a function, as wide as its share of the samples, with its callees on it. py-spy has to be
allowed to look into another process: root, or `sysctl kernel.yama.ptrace_scope=0`.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from benchmarks.process import ROOT, scratch
from benchmarks.rig import Load, rig
from benchmarks.table import Row

GROUP = "flames"
FOLDER = ROOT / "docs" / "flames"
WIDTH, HEIGHT, FOOT = 1200.0, 17, 46
LEAST = 0.004
"""Share below which a box is left out: it would be too narrow to be read."""
OWNERS = {
    "gateway": "#e8a05a",
    "channels": "#e5c558",
    "aiohttp": "#7fb0dd",
    "python-telegram-bot": "#8cc6a0",
    "asyncio": "#b9b4c7",
    "others": "#cfcfcf",
}
_FRAME = re.compile(r"(?P<name>.*) \((?P<file>[^()]*?)(?::\d+)?\)")
_LOOP = "Handle._run (asyncio/events.py"


@dataclass
class Box:
    """A function at its place in the stack."""

    label: str = ""
    count: int = 0
    own: int = 0
    """Samples in which it ran itself."""
    callees: dict[str, Box] = field(default_factory=dict)


def owner(label: str) -> str:
    """Whose code a frame is, by the file in its label."""
    place = label.rpartition("(")[2].partition("/")[0].rstrip(")")
    place = {"telegram": "python-telegram-bot", "multidict": "aiohttp", "yarl": "aiohttp", "selectors.py": "asyncio"}.get(place, place)
    return place if place in OWNERS else "others"


def fold(raw: Iterable[str]) -> Box:
    """Lines of py-spy's raw format ("frame;frame;frame COUNT") as one tree, of the main thread."""
    root = Box("event loop (asyncio/events.py)")
    for line in raw:
        stack, _, count = line.rstrip().rpartition(" ")
        thread, *frames = stack.split(";")
        if "MainThread" not in thread or not count.isdecimal():
            continue
        at = next((place for place, frame in enumerate(frames) if frame.startswith(_LOOP)), None)
        box = root
        box.count += int(count)
        for frame in frames[at + 1 :] if at is not None else ():
            found = _FRAME.fullmatch(frame)
            label = f"{found['name']} ({found['file']})" if found else frame
            box = box.callees.setdefault(label, Box(label))
            box.count += int(count)
        box.own += int(count)
    return root


def shares(root: Box) -> dict[str, float]:
    """Whose code ran, as shares of all samples, largest first."""
    total: Counter[str] = Counter()
    waiting = [root]
    while waiting:
        box = waiting.pop()
        total[owner(box.label)] += box.own
        waiting += box.callees.values()
    return {name: count / root.count for name, count in total.most_common()} if root.count else {}


def svg(root: Box, title: str) -> str:
    """The picture, its root at the bottom."""
    total = root.count or 1
    boxes = list(_laid(root, 0.0, 0, total))
    top = (max(level for _, _, level, _ in boxes) + 1) * HEIGHT
    height = top + FOOT
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:g}" height="{height}" viewBox="0 0 {WIDTH:g} {height}" '
        'font-family="monospace" font-size="11">',
        "<style>rect{stroke:#fff;stroke-width:.5}"
        + "".join(f".{_css(name)}{{fill:{colour}}}" for name, colour in OWNERS.items())
        + "</style>",
        f'<rect width="{WIDTH:g}" height="{height}" fill="#fff"/>',
    ]
    for box, x, level, width in boxes:
        y = top - (level + 1) * HEIGHT
        name, short = escape(box.label), box.label.partition(" (")[0]
        room = int(width / 6.7)
        words = f'<text x="{x + 2:.1f}" y="{y + 12}">{escape(short if len(short) <= room else short[: room - 1] + "…")}</text>'
        out.append(
            f'<g><title>{name}: {100 * box.count / total:.1f} %</title><rect class="{_css(owner(box.label))}" x="{x:.1f}" y="{y}" '
            f'width="{width:.1f}" height="{HEIGHT}"/>{words if room > 3 else ""}</g>'
        )
    at = 4.0
    for name, share in shares(root).items():
        said = f"{name} {100 * share:.0f} %"
        out.append(
            f'<rect class="{_css(name)}" x="{at:.0f}" y="{top + 8}" width="12" height="12"/>'
            f'<text x="{at + 16:.0f}" y="{top + 18}">{said}</text>'
        )
        at += 30 + 6.7 * len(said)
    out.append(f'<text x="4" y="{top + 38}">{escape(title)}</text></svg>')
    return "\n".join(out) + "\n"


def _css(name: str) -> str:
    return name.partition("-")[0]


def _laid(box: Box, x: float, level: int, total: int) -> Iterator[tuple[Box, float, int, float]]:
    """A box and those on it: where it begins, how high it stands, how wide it is."""
    yield box, x, level, WIDTH * box.count / total
    for callee in sorted(box.callees.values(), key=lambda callee: -callee.count):
        if callee.count / total >= LEAST:
            yield from _laid(callee, x, level + 1, total)
        x += WIDTH * callee.count / total


async def _sampled(stream: bool, seconds: int) -> list[str]:
    async with rig("parlour", Load(200, stream)) as bench:
        await bench.warm(200)
        with scratch() as folder:
            raw = Path(folder, "raw")
            how = f"record --threads --format raw --rate 500 --duration {seconds} --pid {bench.bot.pid}"
            spy = await asyncio.create_subprocess_exec(
                Path(sys.executable).with_name("py-spy"),
                *how.split(),
                "--output",
                raw,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
            _, (_, said) = await asyncio.gather(bench.talk(200, seconds + 1), spy.communicate())
            if spy.returncode or not raw.exists():
                raise RuntimeError(f"py-spy: {said.decode(errors='replace')[-500:]}")
            return raw.read_text().splitlines()


async def flames(quick: bool) -> AsyncIterator[Row]:
    """One picture for each way of answering."""
    FOLDER.mkdir(exist_ok=True)
    for stream, name in ((True, "streaming"), (False, "one-call")):
        root = fold(await _sampled(stream, 4 if quick else 15))
        path = FOLDER / f"{name}.svg"
        path.write_text(svg(root, f"The event loop's time, {name}, 200 chats, Telegram by polling: {root.count} samples"))
        whose = ", ".join(f"{whom} {100 * share:.0f} %" for whom, share in shares(root).items())
        yield Row(GROUP, f"the loop's time, {name}, 200 chats", str(path.relative_to(ROOT)), whose)


PARTS = [flames]
