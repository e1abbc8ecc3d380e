"""Whoever goes on before a write is through is found out: the writes stand still for a moment, while all else goes on, and then comes the
kill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.crash.moments import FAILPOINT, Deck, Plan
from tests.crash.round import Way, run

CHATS = 10
FILES = ("journal", "session", "journal", "access")


class Slow(Deck):
    """Kills before writes that take their time."""

    def plans(self, places: Sequence[str], calls: Sequence[str], count: int) -> Iterator[Plan]:
        for number, file in enumerate(FILES[:count]):
            yield Plan(FAILPOINT, name=f"append before {file}", nth=1 + number, gap=0.25)


@pytest.mark.timeout(120)
async def test_nothing_goes_on_before_it_is_written(tmp_path: Path) -> None:
    """No message is confirmed to the network, no command and no answer is told, before it is on record."""
    outcome = await run(tmp_path, "slow", Slow("slow"), Way(), CHATS, len(FILES), lambda life: None)
    assert not outcome.faults, "\n".join([*map(str, outcome.faults[:20]), *outcome.stories])
    assert sum(life.struck for life in outcome.lives) >= len(FILES) // 2
