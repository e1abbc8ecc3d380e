"""What a machine that loses power, and time, do to files while no daemon runs: torn tails, and segments that are long over."""

from __future__ import annotations

import json
import random
import time
from datetime import UTC, datetime
from pathlib import Path

FIRST_SEGMENT = 500
"""Numbers of segments that the daemon makes begin behind this one, so that there is room for older ones."""
OLD = 3 * 86400.0
TORN = b'{"type":"sent","of":1,"spa'


def tear(data: Path, dice: random.Random, share: float = 0.05) -> int:
    """Half a line behind some files that daemons append to (that share of the sessions, and the journal); gives how many."""
    files = [path for path in data.glob("sessions/*/*/*.jsonl") if dice.random() < share]
    files += sorted((data / "journal").glob("*.jsonl"))[-1:]
    files = [path for path in files if not path.read_bytes().endswith(TORN)]
    for path in files:
        with path.open("ab") as out:
            out.write(TORN)
    return len(files)


def age(data: Path) -> None:
    """An old segment that nobody needs any more, below all others."""
    folder = data / "journal"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    numbers = [int(path.stem) for path in folder.glob("*.jsonl")]
    number = min(numbers, default=FIRST_SEGMENT) - (1 if numbers else 0)
    at = time.time() - OLD
    inbound = {
        "id": f"telegram:7:1:old{number}",
        "address": {"channel": "telegram", "chat": "1", "thread": ""},
        "sender": {"id": "1"},
        "text": "long ago",
    }
    day = datetime.fromtimestamp(at, UTC)
    records = [
        {"type": "accepted", "n": 0, "at": at, "key": "telegram:1", "inbound": inbound},
        {"type": "finished", "id": inbound["id"], "at": day.timestamp()},
    ]
    path = folder / f"{number:06d}.jsonl"
    path.write_bytes(b"".join(json.dumps(record).encode() + b"\n" for record in records))
    path.chmod(0o600)
