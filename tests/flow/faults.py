"""Every way in which a request can go wrong, as a table, for the tests that meet each kind of request with each of them.

A `Way` plans one fault on one of the fakes. What must be so afterwards is said in the tests; `Bystander` is the person in another chat who
must never notice. `PARLOUR_FAULTS=all` runs whole products (several minutes), without it a part that differs in kind.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.fakes.openai import DONE, Asked, Reply, delta

ALL = os.environ.get("PARLOUR_FAULTS") == "all"
PATIENCE = 120.0 if ALL else 40.0

PAGE = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><h1>Bad Gateway</h1></body></html>"


@dataclass(frozen=True)
class Way:
    """One way to go wrong. `blind`: nobody can say what became of the request, so that what may not be repeated is lost."""

    name: str
    act: Literal["fail", "hold", "drop", "drop after"] = "fail"
    status: int = 200
    body: Any = None
    blind: bool = False
    small: bool = True
    """Also in the short run."""

    def plan(self, fake: Any, what: str, **narrow: Any) -> Any:
        """Plan it on a fake for a method or a route."""
        if self.act == "fail":
            return fake.fail(what, self.status, self.body, **narrow)
        if self.act == "hold":
            return fake.hold(what, before=True, **narrow)
        return fake.drop(what, after=self.act == "drop after", **narrow)


def ways(*, wait: Any, no_wait: Any, nonsense: Iterable[tuple[str, Any]] = ()) -> list[Way]:
    """All of them. `wait`: the body of a 429 that says how long, `no_wait` of one that does not; `nonsense`: more answers of 200 that mean
    nothing."""
    return [
        Way("400", status=400),
        Way("401", status=401),
        Way("403", status=403),
        Way("404", status=404),
        Way("409", status=409, small=False),
        Way("429 with a wait", status=429, body=wait),
        Way("429 without a wait", status=429, body=no_wait, small=False),
        Way("429 page", status=429, body=PAGE),
        Way("500", status=500, blind=True),
        Way("502 page", status=502, body=PAGE, blind=True),
        Way("403 page", status=403, body=PAGE, blind=True, small=False),
        Way("200 page", body=PAGE, blind=True),
        Way("200 number", body=b"42", blind=True, small=False),
        Way("200 list", body=b"[]", blind=True, small=False),
        Way("200 null", body=b"null", blind=True, small=False),
        Way("200 empty", body=b"", blind=True, small=False),
        Way("200 truncated", body=b'{"ok": true, "result": {"message_id": 1', blind=True),
        *(Way(f"200 {name}", body=body, blind=True, small=number == 0) for number, (name, body) in enumerate(nonsense)),
        Way("hang", "hold", blind=True, small=False),
        Way("reset before", "drop", blind=True),
        Way("reset after", "drop after", blind=True),
    ]


LONG = ("401", "404", "429 page")
"""Behind these comes a wait of five seconds: once is enough in the short run."""


def chosen(ways: Sequence[Way], *, without: Iterable[str] = (), again: bool = False) -> list[Way]:
    """Those of this run. `again`: the same ways were met in another test of it."""
    left = {*without, *(LONG if again and not ALL else ())}
    return [way for way in ways if way.name not in left and (ALL or way.small)]


@dataclass
class Script:
    """For the model. "slow ...": an answer in two parts, the second when `go_on` is called; "late ...": one that begins then; others get
    the usual answer."""

    gates: dict[str, asyncio.Event] = field(default_factory=dict)

    def go_on(self, words: str) -> None:
        self.gates.setdefault(words, asyncio.Event()).set()

    def answer(self, asked: Asked) -> Reply | None:
        words = asked.words
        if not words.startswith(("slow", "late")):
            return None
        gate = self.gates.setdefault(words, asyncio.Event())
        first = delta("One" if words.startswith("slow") else "", role="assistant")
        return Reply([first, gate, delta(f" {words}."), delta(finish="stop"), DONE])


@dataclass
class Bystander:
    """Somebody who talks all along in a chat of their own: `say(text)`, then `answered(text)` waits for the answer."""

    say: Callable[[str], object]
    answered: Callable[[str], Awaitable[object]]
    slowest: float = 0.0
    turns: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def talk(self) -> None:
        while not self.over.is_set():
            began = time.monotonic()
            text = f"bystander {self.turns}"
            self.say(text)
            await self.answered(text)
            self.turns += 1
            self.slowest = max(self.slowest, time.monotonic() - began)


async def beside(bystander: Bystander, cases: Iterable[Awaitable[None]]) -> None:
    """All cases at once, while the bystander talks. The first failure is raised."""
    talk = asyncio.create_task(bystander.talk())
    try:
        async with asyncio.TaskGroup() as group:
            for case in cases:
                group.create_task(_awaited(case))
    finally:
        bystander.over.set()
    await talk
    assert bystander.turns


async def _awaited(case: Awaitable[None]) -> None:
    await case
