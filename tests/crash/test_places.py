"""Every place at which the daemon can be told to die is one that people bring it to."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.crash.audit import Audit
from tests.crash.damage import age, tear
from tests.crash.lives import Lives
from tests.crash.moments import ELSEWHERE, reachable
from tests.crash.people import Crowd, quiet
from tests.crash.round import Way, meet, online, settle, stage
from tests.crash.talk import Talk

CHATS = 10
PATIENCE = 40.0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("webhook", [False, True], ids=["polling", "webhook"])
async def test_the_load_comes_to_every_place(tmp_path: Path, webhook: bool) -> None:
    """With what `./dev crash` has people do, each of the named places is reached: none is marked in vain. Those of retention have
    `test_retention_kill`."""
    way = Way(webhook=webhook)
    crowds: list[Crowd] = []

    def rules(talk: Talk) -> str:
        crowds.append(Crowd(talk, "places", CHATS))
        return crowds[0].rules()

    async with stage(tmp_path, way, rules) as (talk, daemon):
        lives = Lives(daemon, talk, crowds[0], random.Random("places"))
        age(daemon.data)
        age(daemon.data)
        await lives.begin(ready=True)
        await online(talk)
        await meet(talk, quiet(crowds[0].people))
        await daemon.kill()
        for network in way.channels:
            tear(daemon.data, random.Random(1), share=0.5)
            await lives.cut_long_answers(network)
        await lives.begin(ready=True)
        await online(talk)
        wanted = set(reachable(way.channels, webhook=webhook, streamed=way.streamed))
        deadline = time.monotonic() + PATIENCE
        while (left := wanted - set(lives.reached())) and time.monotonic() < deadline:
            for place in sorted(left):
                lives.provoke(place)
            await settle(talk, daemon.data)
        await lives.over()
        await settle(talk, daemon.data)
        assert await daemon.stop() == 0
        assert sorted(wanted - set(lives.reached())) == []
        assert not wanted & ELSEWHERE
        audit = Audit(talk, daemon.data, streamed=way.streamed)
        assert not audit.faults, audit.verdict(1)
