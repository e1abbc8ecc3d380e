"""The story of one input, for whoever looks into a fault: what was said, recorded, asked and sent in its chat, and when the daemon died."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.crash.lives import Life
from tests.crash.records import input_of, journal, parsed
from tests.crash.talk import Said, Talk

MOST = 160


def story(talk: Talk, data: Path, lives: Sequence[Life], input_id: str) -> str:
    """In the order of time, as far as it is known; then what is on disk and what is seen."""
    said = next((each for each in talk.said if each.id == input_id), None)
    if said is None:
        return f"(no story: {input_id!r} was said by nobody)"
    about = "\n".join(f"  {at - said.at:+8.3f} s  {text}" for at, text in sorted(_happened(talk, data, lives, said)))
    disk = "\n".join(f"  {line}" for line in _disk(data, said))
    seen = "\n".join(f"  {text[:MOST]!r}" for text in talk.visible(said.place)[-12:])
    return f"{input_id} in {said.place.folder}\n{about}\n on disk:\n{disk}\n seen at the end:\n{seen}"


def _happened(talk: Talk, data: Path, lives: Sequence[Life], said: Said) -> Iterator[tuple[float, str]]:
    here = [each for each in talk.said if each.place.key == said.place.key]
    at = here.index(said)
    for each in here[max(0, at - 4) : at + 4]:
        yield each.at, f"{'SAID' if each is said else 'said'} {each.text!r} ({each.id}{', slash' if each.slash else ''})"
    started = said.at - 3
    skew = time.time() - time.monotonic()
    for path, number, record in journal(data):
        if input_of(record) == said.id:
            text = {key: value for key, value in record.items() if key not in {"inbound", "id", "at", "key"}}
            yield float(record.get("at", 0)) - skew, f"{path.name}:{number} {text}"[:MOST]
    ends = [float(record.get("at", 0)) - skew for _, _, record in journal(data) if input_of(record) == said.id]
    last = max([*ends, said.at]) + 3
    for request in talk.networks[said.place.network].requests(said.place):
        if started < request.at < last:
            yield request.at, f"{request.what} -> {request.status} {request.text!r}"
    for life in lives:
        if started < life.began < last:
            yield life.began, "daemon started"
        if started < life.ended < last:
            yield life.ended, f"daemon ended: {life.plan}{'' if life.struck else ' (not struck)'}, code {life.code}"


def _disk(data: Path, said: Said) -> Iterator[str]:
    folder = data / "sessions" / said.place.folder
    for path in sorted(folder.glob("*.jsonl")):
        for number, raw in enumerate(path.read_bytes().splitlines(), 1):
            try:
                line = parsed(raw)
            except ValueError:
                yield f"{path.name}:{number} unreadable {raw[:MOST]!r}"
                continue
            if line.get("for") == said.id or (number == 1 and path.name != "_chat.jsonl"):
                yield f"{path.name}:{number} {raw.decode(errors='replace')[:MOST]}"
