"""The table at the end: what must be zero, and what nobody can know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tests.crash.audit import KINDS
from tests.crash.moments import FAILPOINT, PAUSE
from tests.crash.round import Outcome

AMBIGUOUS = {
    "placeholder left": 'an empty "…" beside the message that holds the answer',
    "piece doubled": "a piece of an answer twice: Telegram, streaming off",
    "reply doubled": "a command's reply twice: Telegram",
    "unknown": "a send that hung until a SIGTERM's time was over: not repeated, may be missing",
    "taken back": "answers of which /stop took back what was not sent",
    "blanked": "a reply to /stop or /sessions that /forget took before it was out",
    "slash lost": "a slash command, button or first words on Discord while nothing ran",
    "pointer repeated": "the same choice of a conversation on record twice",
}


class Report:
    """Gathers rounds."""

    def __init__(self, places: Iterable[str]) -> None:
        """`places`: the named places that the load has to come to."""
        self._places = set(places)
        self.outcomes: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    @property
    def kills(self) -> int:
        return sum(len(outcome.lives) for outcome in self.outcomes)

    def faults(self) -> Counter[str]:
        return Counter(fault.kind for outcome in self.outcomes for fault in outcome.faults)

    def reached(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for outcome in self.outcomes:
            total += outcome.reached
        return total

    def unreached(self) -> list[str]:
        return sorted(self._places - set(self.reached()))

    def table(self) -> str:
        counts: Counter[str] = Counter()
        for outcome in self.outcomes:
            counts += outcome.counts
        faults, reached = self.faults(), self.reached()
        lives = [life for outcome in self.outcomes for life in outcome.lives]
        how = Counter(life.plan.how for life in lives)
        rows: list[tuple[str, object]] = [
            ("daemon ended", len(lives)),
            *((f"  by {name}", number) for name, number in how.most_common()),
            ("  at a named place", sum(life.plan.moment == FAILPOINT and life.struck for life in lives)),
            ("  at the moment that was planned", sum(life.struck for life in lives)),
            ("named places reached", f"{len(self._places & set(reached))} of {len(self._places)}"),
            ("  killed at", f"{sum(name + '!' in reached for name in self._places)} of {len(self._places)}"),
            ("torn tails planted", counts["torn tails"]),
            ("inputs sent", counts["inputs"]),
            ("  of them answered or replied to", counts["inputs"] - counts["slash lost"] - faults["input lost"] - faults["answer lost"]),
            ("requests to the model", counts["requests"]),
            ("attempts beyond the first", counts["attempts beyond the first"]),
        ]
        rows.insert(5, ("  in the pause before suspects are tried alone", sum(life.plan.moment == PAUSE for life in lives)))
        must: Sequence[tuple[str, object]] = [(kind, faults[kind]) for kind in KINDS]
        may = [(f"{name}: {words}", counts[name]) for name, words in AMBIGUOUS.items()]
        parts = [_rows(rows), "must be 0", _rows(must), "nobody can know, and it is documented", _rows(may)]
        return "\n".join(parts)


def _rows(rows: Sequence[tuple[str, object]]) -> str:
    return "\n".join(f"  {name:<76} {value!s:>10}" for name, value in rows)
