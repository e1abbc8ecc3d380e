"""When to kill, and how: a deck of plans, shuffled by a seed, in which each named place of the source comes round."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from channels.failpoints import names

ELSEWHERE = frozenset({"media delete before", "media delete after"})
"""Reached by `test_retention_kill` alone: retention runs once a day."""
POLLING = frozenset({"offset before", "offset after"})
WEBHOOK = frozenset({"webhook before", "webhook after"})
NETWORK_OF = {
    "marks": "discord",
    "slash": "discord",
    "offset": "telegram",
    "webhook": "telegram",
    "append before access": "telegram",
    "append after access": "telegram",
}
"""How names begin that one network alone comes to, besides those that end with its name."""

OFTEN = ("accept", "started", "question", "answer", "lane", "placed", "sent", "finished", "send", "edit", "reply")
"""How names begin of places that a life comes to many times; any other is struck at the first time."""

FAILPOINT, CALL, MODEL, TIME, START, PAUSE = "failpoint", "call", "model", "time", "start", "pause"
KILL, TERM, TERM_TERM, TERM_KILL = "SIGKILL", "SIGTERM", "SIGTERM twice", "SIGTERM, then SIGKILL"


@dataclass(frozen=True)
class Plan:
    """One end of the daemon."""

    moment: str
    how: str = KILL
    name: str = ""
    """Of the place, or the network and its method."""
    nth: int = 1
    before: bool = False
    """For a call: before its effect."""
    wait: float = 0.0
    """Seconds, where chance decides."""
    gap: float = 0.0
    """Seconds between two signals, or between a place and the death there."""

    def __str__(self) -> str:
        what = f" {self.name}" if self.name else ""
        which = f" #{self.nth}" if self.name else ""
        return f"{self.moment}{what}{which}{' before its effect' if self.before else ''}, {self.how}"


def reachable(channels: Sequence[str], *, webhook: bool, streamed: Mapping[str, bool]) -> list[str]:
    """The places that a daemon with these channels can come to. `streamed`: where answers grow."""
    growing = {
        f"{call} {when} {name}" for call in ("edit", "delete") for when in ("before", "after") for name in channels if streamed[name]
    }
    if any(streamed[name] for name in channels):
        growing |= {"placed before", "placed after"}
    found = []
    for name in names():
        if name in ELSEWHERE | (POLLING if webhook else WEBHOOK):
            continue
        only = next((network for start, network in NETWORK_OF.items() if name.startswith(start)), "")
        last = name.rpartition(" ")[2]
        if name.startswith(("edit", "delete", "placed")) and name not in growing:
            continue
        if (only and only not in channels) or (last in {"telegram", "discord"} and last not in channels):
            continue
        found.append(name)
    return found


class Deck:
    """Half of the plans strike at a named place, in turn; the others at a call to a network, while the model speaks, at any time, or while
    it starts; a part of them by SIGTERM."""

    def __init__(self, seed: str) -> None:
        self._dice = random.Random(f"{seed} deck")
        self._waiting: list[str] = []

    def _place(self, places: Sequence[str]) -> str:
        fitting = [name for name in self._waiting if name in places]
        if not fitting:
            fresh = list(names())
            self._dice.shuffle(fresh)
            self._waiting += fresh
            fitting = [name for name in self._waiting if name in places]
        self._waiting.remove(fitting[0])
        return fitting[0]

    def plans(self, places: Sequence[str], calls: Sequence[str], count: int) -> Iterator[Plan]:
        """`calls`: "network method"."""
        dice = self._dice
        for _ in range(count):
            if dice.random() < 0.5:
                name = self._place(places)
                often = name.startswith(OFTEN) or (name.endswith((" journal", " session")) and name.startswith("append"))
                pause = dice.choice((0.0, 0.0, 0.05, 0.15)) if name.startswith("append") else 0.0
                yield Plan(FAILPOINT, name=name, nth=dice.choice((1, 1, 2, 3, 5, 8, 13)) if often else 1, gap=pause)
                continue
            how = dice.choices((KILL, TERM, TERM_TERM, TERM_KILL), (60, 16, 12, 12))[0]
            match dice.choices((CALL, MODEL, TIME, START), (40, 15, 30, 15))[0]:
                case "call":
                    name = dice.choice(calls)
                    nth = dice.randint(1, 8) if name.endswith((" any", " send", " edit")) else 1
                    yield Plan(CALL, how, name, nth, dice.random() < 0.5, gap=dice.uniform(0, 0.3))
                case "model":
                    yield Plan(MODEL, how, wait=dice.uniform(0, 0.1), gap=dice.uniform(0, 0.3))
                case "start":
                    yield Plan(START, how, wait=dice.uniform(0.02, 0.8), gap=dice.uniform(0, 0.3))
                case _:
                    yield Plan(TIME, how, wait=dice.uniform(0.0, 1.0), gap=dice.uniform(0, 0.3))
