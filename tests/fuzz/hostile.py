"""What is worse than random: real values with something wrong in them. For the tests of what comes from outside.

Made by dice and not by Hypothesis's own strategies, which take forty times as long over values of this size: an example is a seed, which
Hypothesis prints where it fails. `PARLOUR_FUZZ=20` makes every one of these tests twenty times as long.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings

TIMES = max(1, int(os.environ.get("PARLOUR_FUZZ", "1")))


def tried(examples: int) -> settings:
    """So many examples, none of them under a stop watch."""
    return settings(max_examples=examples * TIMES, deadline=None, suppress_health_check=list(HealthCheck))


def nested(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


NUMBERS = [0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30, 10**400, 1.5, -0.0, 1e308, float("inf"), float("nan")]
TEXTS = [
    "",
    " ",
    "\0",
    "\ud83d",
    "a\udc00b",
    "\u202e\u2066",
    "../../../etc/passwd",
    "a/b\\c",
    ".",
    "..",
    "con",
    "x" * 300,
    "\n\r\x1b[2J",
    "1",
    "-1",
    "007",
    "9" * 400,
    "٣",
    "null",
    "/reset",
    "/fork ../../x",
    "/forget yes",
    "/switch \0",
    "%s{}",
    "😀" * 50,
]
INNER: list[Any] = [None, True, False, [], {}, [None], [[]], {"id": 1}, {"": "\ud800"}, nested(3), nested(40), nested(400)]


def junk(dice: Random) -> Any:
    """Something that does not belong anywhere."""
    return copy.deepcopy(dice.choice(dice.choice((NUMBERS, TEXTS, INNER))))


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything within a JSON value."""
    found = [at] if at else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        found += places(one, (*at, key))
    return found


def spoilt(dice: Random, values: Sequence[Any], keep: Sequence[str] = ()) -> Any:
    """One of these JSON values with up to three things in it missing, of another kind, or out of place. Top keys in `keep` stay."""
    value = copy.deepcopy(dice.choice(values))
    for _ in range(dice.choice((1, 1, 2, 3))):
        paths = [path for path in places(value) if path[0] not in keep]
        if not paths:
            break
        path = dice.choice(paths)
        inner = _found(value, path[:-1])
        match dice.randrange(6):
            case 0:
                del inner[path[-1]]
            case 1:
                inner[path[-1]] = [inner[path[-1]]]
            case 2:
                inner[path[-1]] = copy.deepcopy(_found(value, dice.choice(paths)))
            case _:
                inner[path[-1]] = junk(dice)
    return value


def _found(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def garbled(dice: Random, texts: Sequence[bytes]) -> bytes:
    """One of these texts with a few bytes lost, doubled, changed or put in."""
    raw = bytearray(dice.choice(texts))
    for _ in range(dice.randint(1, 4)):
        at = dice.randint(0, len(raw))
        match dice.randrange(5):
            case 0:
                del raw[at : at + dice.choice([1, 2, 10, 1000])]
            case 1:
                raw[at:at] = dice.randbytes(dice.randint(1, 8))
            case 2:
                raw[at:at] = dice.choice(BYTES)
            case 3:
                raw[at : at + 1] = dice.randbytes(1)
            case _:
                raw[at:at] = raw[: dice.randint(0, len(raw))]
    return bytes(raw)


BYTES = [
    b"\0",
    b"\n",
    b"\r",
    b'"',
    b"{",
    b"}",
    b"]",
    b",",
    b":",
    b"\xff",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"[" * 5000,
    b"9" * 500,
    b"-",
    b"e999",
    b"null",
]


def encoded(value: Any) -> bytes:
    """As JSON of the careless: NaN, halves of surrogate pairs."""
    return json.dumps(value).encode()
