"""The short form of `./dev crash`: some kills under people who talk on both networks. The long form is the command's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.moments import Deck, reachable
from tests.crash.report import Report
from tests.crash.round import Way, run

KILLS, CHATS = 5, 20


@pytest.mark.timeout(180)
async def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    """Every message is answered once, in order, in its session, and every command acts once. What nobody can know is counted apart: see
    `tests.crash.audit` for what that is and why."""
    report = Report([])
    outcome = await run(tmp_path, "short", Deck("short"), Way(), CHATS, KILLS, lambda life: None)
    report.add(outcome)
    print(report.table())
    assert not outcome.faults, "\n".join([*map(str, outcome.faults[:20]), *outcome.stories])
    assert len(outcome.lives) >= KILLS
    assert outcome.counts["inputs"] > 5 * CHATS
    # At each place once in a life that is not cut; the rest is the long form's.
    assert len(set(reachable(Way().channels, webhook=False, streamed=Way().streamed)) & set(outcome.reached)) > 40
