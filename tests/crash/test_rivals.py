"""Five turns in flight, kill -9, restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.rivals import LIMIT, MOMENTS, Moment, trial


@pytest.mark.parametrize("streamed", [True, False], ids=["streaming", "streaming off"])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_all_are_answered_soon_and_nobody_else_hears_anything(tmp_path: Path, moment: Moment, streamed: bool) -> None:
    """On both networks, each answer once, within three seconds of the first poll; thirty idle chats are left alone."""
    done = await trial(tmp_path, moment, streamed=streamed)
    assert not done.faults
    assert done.idle == 0
    assert max(done.seconds.values()) < LIMIT
    if streamed:
        assert done.counts["piece doubled"] == 0
