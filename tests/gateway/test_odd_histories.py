"""Conversations with tool calls in them, whole, cut off and out of order, steered by people: this version runs no tool, and lives with what
another one left in its files.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.backends.base import Part
from gateway.message import Chat, Event, Foreign, Header, Request, SessionKey, encode_line
from gateway.window import INTERRUPTED
from tests.gateway.core import Core, Parrot
from tests.gateway.histories import answer, calls, complaint, garbage, histories, numbered, result, user
from tests.model.virtual import BASE, Loop

KEY = SessionKey("net", "1")
LONG = os.environ.get("PARLOUR_MODEL", "")
STEPS = ["one", "/undo", "/retry", "/fork west", "/switch main", "/reset", "/fork", "two"]


class Strict(Parrot):
    """Takes what the strictest provider takes."""

    def __init__(self) -> None:
        super().__init__("strict")
        self.faults: list[str] = []
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        self.requests.append(request)
        if fault := complaint(request.messages):
            self.faults.append(fault)
        if request.messages[-1].role != "user" and request.messages[-1].role != "tool":
            self.faults.append("it ends with an answer")
        async for part in super().stream(request):
            yield part


async def told(core: Core, texts: list[str]) -> None:
    """Say one after the other; each is answered by exactly one message."""
    for text in texts:
        before = len(core.seen())
        input_id = await core.say(text)
        for _ in range(6000):
            if core.inbox.pending(input_id) is None:
                break
            await asyncio.sleep(0.1)
        assert len(core.seen()) == before + 1, (text, core.seen()[before:])
        if not text.startswith("/"):
            assert core.seen()[-1].startswith("Heard: ")


async def leave(core: Core, events: list[Event]) -> None:
    """What another version wrote."""
    lines = [encode_line(event) for event in numbered(events) if not isinstance(event, Foreign)]
    await core.store.create(KEY, "main", Header(v=1, key=str(KEY), name="main", created="2026-11-29T10:00:00.000Z"), lines)
    await core.store.set_chat(KEY, Chat(at="", current="main"))


@settings(max_examples=int(LONG or 15), derandomize=not LONG, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(histories, garbage()),
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=6),
    st.sampled_from([3, 200]),
    st.sampled_from([4, 1000]),
)
def test_whatever_a_file_holds_people_can_go_on(events: list[Event], steps: list[str], most: int, state_lines: int) -> None:
    """Lines of all kinds in any order: each message and each command is answered once, no request is one that a strict provider refuses,
    and so it stays after a restart."""
    loop, model = Loop(), Strict()

    async def people(folder: Path) -> None:
        core = Core(folder, model=model, clock=lambda: BASE + loop.time(), history_messages=most, state_lines=state_lines)
        async with core:
            await leave(core, events)
            await told(core, [*steps, "three"])
            await core.restart()
            await told(core, ["/retry", "four"])

    try:
        with tempfile.TemporaryDirectory() as folder:
            loop.run_until_complete(people(Path(folder)))
        assert model.faults + loop.faults == []
        assert model.requests
    finally:
        loop.close()


async def test_a_call_that_hangs_in_the_air_is_answered_and_never_run(tmp_path: Path) -> None:
    """The daemon had died while a tool ran: the next request says that nobody knows whether it did; a fork stops before that turn, /undo
    takes the whole of it back, /retry asks its question again without it."""
    model = Strict()
    async with Core(tmp_path, model=model) as core:
        await leave(
            core, [user("q1"), calls("c0"), result("c0", "a barn"), answer("a1"), user("q2"), calls("c1", "c2"), result("c2", "a key")]
        )

        def newest() -> list[tuple[str, str | None]]:
            return [(m.role, m.content) for m in model.requests[-1].messages[1:]]

        first = [("user", "q1"), ("assistant", None), ("tool", "a barn"), ("assistant", "a1")]
        assert await core.ask("/retry") == "Heard: q2"
        assert newest() == [*first, ("user", "q2")]
        await core.ask("/undo")
        assert await core.ask("q3") == "Heard: q3"
        assert newest() == [*first, ("user", "q3")]
    async with Core(tmp_path / "again", model=model) as core:
        await leave(core, [user("q1"), answer("a1"), user("q2"), calls("c1", "c2"), result("c2", "a key")])
        await core.ask("/fork west")
        assert await core.ask("q3") == "Heard: q3"
        assert newest() == [("user", "q1"), ("assistant", "a1"), ("user", "q3")]
        await core.ask("/switch main")
        await core.ask("q4")
        assert newest()[2:5] == [("user", "q2"), ("assistant", None), ("tool", INTERRUPTED)]
        assert newest()[5] == ("tool", "a key")
        assert newest()[-1] == ("user", "q4")
        lines = await core.store.read(KEY, "main")
        assert sum(b'"tool_calls"' in line for line in lines.lines) == 1
    assert model.faults == []
