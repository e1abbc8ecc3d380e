"""gateway.message: times as files have them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from gateway.message import Header, Message, SessionKey, encode_line, seconds, timestamp
from gateway.store.memory import MemoryStore
from tests.gateway.stores import Clock, manager

KEY = SessionKey("net", "1")


@pytest.fixture(params=["UTC", "Asia/Kolkata", "America/St_Johns", "Europe/Berlin"])
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """The machine stands there."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2026-01-01T00:00:00Z", 1767225600.0),
        ("2026-01-01T00:00:00.500Z", 1767225600.5),
        ("2026-01-01T00:00:00", 1767225600.0),
        ("2026-01-01T05:30:00+05:30", 1767225600.0),
        ("2026-03-29T01:30:00", 1774747800.0),
        ("2026-10-25T02:30:00", 1792895400.0),
        ("1767225600", 0.0),
        ("yesterday", 0.0),
        ("", 0.0),
    ],
)
def test_a_time_is_the_same_wherever_the_machine_stands(zone: str, at: str, expected: float) -> None:
    """With and without a zone, on the days when clocks are changed; what is no time is none, and nothing is raised."""
    assert seconds(at) == expected


def test_our_own_times_are_utc(zone: str) -> None:
    """Written and read again they are what they were."""
    for moment in (0.0, 1767225600.125, 1774746000.0, 1792891800.0):
        assert timestamp(moment).endswith("Z")
        assert seconds(timestamp(moment)) == moment


@pytest.mark.parametrize("at", ["2026-01-01T00:00:00", "2026-01-01T00:00:00Z", "2026-01-01T05:30:00+05:30", "yesterday", ""])
async def test_odd_times_in_a_file_cost_no_line(zone: str, at: str) -> None:
    """Lines whose times have other forms, or none, are part of the conversation like any other; it goes on, and lists it."""
    store = MemoryStore()
    lines = [
        encode_line(Message(seq=1, at=at, role="user", content="my code is 4711")),
        encode_line(Message(seq=2, at="2026-01-01T00:00:01Z", role="assistant", content="noted")),
    ]
    await store.create(KEY, "main", Header(v=1, key=str(KEY), name="main", created=at), lines)
    await store.create(KEY, "west", Header(v=1, key=str(KEY), name="west", created="2026-01-01T00:00:00Z"), lines)
    sessions = manager(store, clock=Clock(1_800_000_000.0))
    async with sessions.hold(KEY):
        session = await sessions.switch(KEY, "main", for_="i1")
        await sessions.commit(session, Message(seq=0, at="", for_="i1", role="user", content="and?"))
    assert [message.content for message in session.messages] == ["my code is 4711", "noted", "and?"]
    assert {info.name: info.last_seq for info in await sessions.sessions(KEY)} == {"main": 3, "west": 2}
