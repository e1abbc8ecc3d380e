"""What the daemon's files say, read by nothing of Parlour."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def parsed(raw: bytes) -> Line:
    """A line. Raises ValueError where it is none."""
    line: Line = json.loads(raw)
    return line


def journal(data: Path) -> Iterator[tuple[Path, int, Line]]:
    """All records that are written, oldest first, with their places. What has no newline yet is being written; a line that is none is a
    torn one."""
    for path in sorted((data / "journal").glob("*.jsonl")):
        for number, raw in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
            try:
                yield path, number, parsed(raw)
            except ValueError:
                yield path, number, {"type": "", "raw": raw}


def input_of(record: Line) -> str:
    """Whom a record is about."""
    return str(record["inbound"]["id"] if "inbound" in record else record.get("id", ""))


def taken(data: Path) -> set[str]:
    """Inputs that the journal has ever had."""
    return {input_of(record) for _, _, record in journal(data) if record["type"] in {"accepted", "refused"}}


def unfinished(data: Path) -> set[str]:
    """Inputs that the journal has and has not seen the end of."""
    left: Counter[str] = Counter()
    for _, _, record in journal(data):
        if record["type"] == "accepted" or (record["type"] == "refused" and record.get("reply")):
            left[input_of(record)] += 1
        elif record["type"] == "finished":
            left[input_of(record)] = 0
    return {one for one, count in left.items() if count}
