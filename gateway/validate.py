"""One TOML table to one frozen struct, with every fault found on the way: unknown keys, wrong types, values out of range.

msgspec stops at a table's first fault and knows no lines, so fields are taken one by one here. Types understood: bool, int, float, str,
Literal, tuple and list, `X | None`, Path, structs (a sub-table), the values of `channels.settings`, and `Annotated` with `msgspec.Meta`.
A struct's `__post_init__` may raise ValueError for what no type can say, "key: text" a line. No number of ours
may be negative or not finite.
Reads no files. Called by `gateway.config`.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from channels.settings import Bytes, Seconds, Secret
from gateway.errors import ConfigError
from gateway.tomllines import Lines

S = TypeVar("S", bound=msgspec.Struct)

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_AMOUNT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([A-Za-z]*)")
_LONGEST = 3650 * 86400.0


class Faults:
    """Collects what is wrong with one file, each with its line."""

    def __init__(self, path: str, lines: Lines) -> None:
        self._path, self._lines = path, lines
        self.found: list[ConfigError] = []

    def add(self, key: Sequence[str], text: str, line: int | None = None) -> None:
        at = self._lines.line(key) if line is None else line
        self.found.append(ConfigError(self._path, at, ".".join(map(_bare, key)), text))


def _bare(part: str) -> str:
    return part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part[:60])


def show(value: object) -> str:
    """A value from the file as it may stand in a fault: one line, short."""
    if isinstance(value, str):
        return json.dumps(value if len(value) <= 40 else f"{value[:37]}...", ensure_ascii=not value.isprintable())
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value) if abs(value) < 1e15 else "a huge number"
    return (
        "a table" if isinstance(value, Mapping) else "a list" if isinstance(value, list) else "a date" if value is not None else "nothing"
    )


def nearest(name: str, valid: Collection[str]) -> str:
    """ "did you mean ...?" or the list of what there is."""
    close = difflib.get_close_matches(name.lower(), valid, n=1, cutoff=0.6)
    if close:
        return f'did you mean "{close[0]}"?'
    return f"there is {', '.join(sorted(valid))}" if valid else "nothing can stand here"


def seconds(value: object) -> Seconds:
    """ "90s", "10m", "24h", "7d", "250ms"; 0 without a unit. Raises ValueError."""
    amount = _AMOUNT.fullmatch(value) if isinstance(value, str) else None
    if amount and amount[2] in _SECONDS:
        result = float(amount[1]) * _SECONDS[amount[2]]
        if result > _LONGEST:
            raise ValueError(f"{show(value)} is more than ten years")
        return Seconds(result)
    if value == 0 and not isinstance(value, bool):
        return Seconds(0)
    raise ValueError(f'expected a duration like "90s", "10m", "24h", "7d" or "250ms", not {show(value)}')


def size(value: object) -> Bytes:
    """ "64MiB", "10MB", "4096" or 4096. Raises ValueError."""
    amount = _AMOUNT.fullmatch(value) if isinstance(value, str) else None
    if amount and amount[2].lower() in _BYTES:
        return Bytes(float(amount[1]) * _BYTES[amount[2].lower()])
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return Bytes(value)
    raise ValueError(f'expected a size like "64MiB" or "10MB", not {show(value)}')


def _number(value: object, kind: type[int] | type[float]) -> int | float:
    word = "a whole number" if kind is int else "a number"
    if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        hint = f"the text {show(value)}" if isinstance(value, str) else show(value)
        raise ValueError(f"expected {word}, not {hint}")
    if abs(value) >= 2**53 or math.isnan(value):  # a number of any length is compared, not converted
        raise ValueError(f"{show(value)} is no number that makes sense here")
    if value < 0:
        raise ValueError(f"must not be negative, and is {show(value)}")
    return kind(value)


def _constrain(value: Any, meta: msgspec.Meta) -> None:
    checks = (
        (meta.ge, lambda limit: value >= limit, "must be at least {}"),
        (meta.gt, lambda limit: value > limit, "must be more than {}"),
        (meta.le, lambda limit: value <= limit, "must be at most {}"),
        (meta.lt, lambda limit: value < limit, "must be less than {}"),
        (meta.min_length, lambda limit: len(value) >= limit, "must not be shorter than {}"),
        (meta.max_length, lambda limit: len(value) <= limit, "must not be longer than {}"),
        (meta.pattern, lambda pattern: re.search(pattern, value), "does not have the form {}"),
    )
    for limit, holds, text in checks:
        if limit is not None and not holds(limit):
            raise ValueError(f"{text.format(limit)}, and is {show(value)}" if meta.pattern is None else text.format(limit))


def convert(value: object, kind: Any) -> Any:
    """A TOML value as `kind`. Raises ValueError with a sentence for the operator, which never shows a secret."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        result = convert(value, args[0])
        for meta in args[1:]:
            if isinstance(meta, msgspec.Meta):
                _constrain(result, meta)
        return result
    if origin in (Union, UnionType):
        return convert(value, next(one for one in args if one is not NoneType))
    if origin is Literal:
        if value in args and isinstance(value, str):
            return value
        if not isinstance(value, str):
            raise ValueError(f"expected one of {', '.join(map(show, args))}, not {show(value)}")
        raise ValueError(f"there is no {show(value)}: {nearest(value, args)}" if len(args) > 1 else f"can only be {show(args[0])} yet")
    if origin in (tuple, list):
        if not isinstance(value, list):
            item = value if isinstance(value, str | int | float) else "..."
            raise ValueError(f"expected a list like [{show(item)}], not {show(value)}")
        return origin(convert(item, args[0]) for item in value)
    if kind is Seconds:
        return seconds(value)
    if kind is Bytes:
        return size(value)
    if kind is Secret:
        if not isinstance(value, str):
            raise ValueError("expected a text in quotes")
        return Secret(value)
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError(f"expected true or false, not {show(value)}")
        return value
    if kind in (int, float):
        return _number(value, kind)
    if kind in (str, Path):
        if not isinstance(value, str):
            raise ValueError(f"expected a text in quotes, not {show(value)}")
        if "\0" in value:
            raise ValueError("has a NUL character in it")
        return kind(value)
    raise TypeError(f"no rule for the type {kind!r}")


def table(kind: type[S], value: object, at: tuple[str, ...], faults: Faults, elsewhere: Mapping[str, str] | None = None) -> S | None:
    """The struct for the table at path `at`, or None where it has faults. `elsewhere`: key -> where it
    belongs, for a key that is in the wrong table."""
    if not isinstance(value, Mapping):
        faults.add(at, f"expected a table [{'.'.join(map(_bare, at))}], not {show(value)}")
        return None
    before = len(faults.found)
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    given: dict[str, object] = {}
    for name, raw in value.items():
        if name not in fields:
            faults.add((*at, name), f"unknown key: {(elsewhere or {}).get(name) or nearest(name, fields)}")
            continue
        field = fields[name]
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            given[field.name] = table(field.type, raw, (*at, name), faults)
            continue
        try:
            given[field.name] = convert(raw, field.type)
        except ValueError as error:
            faults.add((*at, name), str(error))
    for name, field in fields.items():
        if name not in value and field.required:
            faults.add((*at, name), "is missing")
    if len(faults.found) > before:
        return None
    try:
        return kind(**given)
    except ValueError as error:  # from __post_init__: what concerns several keys
        for line in str(error).splitlines() or ["cannot be"]:
            name, colon, text = line.partition(": ")
            known = bool(colon) and name in fields
            faults.add((*at, name) if known else at, text if known else line)
        return None
