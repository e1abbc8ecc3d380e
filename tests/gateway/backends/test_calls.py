from __future__ import annotations

import json

import pytest

from gateway.backends.base import Done, Part, Text
from gateway.backends.chunks import Answer
from gateway.errors import BackendError
from gateway.message import ToolCall


def chunk(finish: object = None, **delta: object) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def read(*events: str) -> list[Part]:
    answer = Answer()
    return [part for event in events for part in answer.event(event.encode())] + answer.finish()


def done(parts: list[Part]) -> Done:
    assert isinstance(parts[-1], Done)
    return parts[-1]


def calls(*pieces: dict[str, object], finish: str = "tool_calls") -> tuple[ToolCall, ...]:
    return done(read(*(chunk(tool_calls=[piece]) for piece in pieces), chunk(finish))).tool_calls


def piece(name: str | None = None, arguments: object = None, **more: object) -> dict[str, object]:
    return {"function": {"name": name, "arguments": arguments}, **more}


A_B = (ToolCall("a", "f", {"p": 1}), ToolCall("b", "g", {"q": 2}))


def test_calls_without_an_index() -> None:
    """E05: id and name, no index, arguments in one piece each: two calls. As an object too, and in one delta."""
    one, two = piece("f", '{"p":1}', id="a"), piece("g", {"q": 2}, id="b")
    assert calls(one, two) == A_B
    assert done(read(chunk(tool_calls=[one, two]), chunk("stop"))).tool_calls == A_B


def test_calls_that_interleave() -> None:
    """E07: the id in the first piece only; pieces go where their index says."""
    assert (
        calls(
            piece("f", '{"p":', index=0, id="a"), piece("g", '{"q":', index=1, id="b"), piece(None, "1}", index=0), piece("", "2}", index=1)
        )
        == A_B
    )
    assert calls(piece("f", '{"p":', id="a"), piece(None, "1}"), piece("g", '{"q":', id="b"), piece(None, "2}")) == A_B
    assert calls(piece("f", '{"p":', id="a"), piece("g", '{"q":', id="b"), piece(None, "1}", id="a"), piece(None, "2}", id="b")) == A_B


def test_calls_that_are_all_numbered_0() -> None:
    """Two ids at one index are two calls."""
    assert calls(piece("f", '{"p":1}', index=0, id="a"), piece("g", '{"q":2}', index=0, id="b")) == A_B


def test_calls_without_an_id_get_one_of_their_own() -> None:
    """E07: made up, unlike each other; an id that comes late is taken."""
    made = calls(piece("f", '{"p":', index=0), piece("g", '{"q":', index=1), piece(None, "1}", index=0), piece(None, "2}", index=1))
    assert [(call.name, call.arguments) for call in made] == [("f", {"p": 1}), ("g", {"q": 2})]
    assert all(call.id for call in made)
    assert made[0].id != made[1].id
    assert calls(piece("f", "", index=0), piece(None, "", index=0, id="late")) == (ToolCall("late", "f", {}),)
    assert len(calls(piece("f", "{}"), piece("g", "{}"))) == 2


def test_a_call_that_is_cut_is_never_handed_on() -> None:
    """E15: bad arguments with `tool_calls` are a failure; with `length` the whole answer says so and carries no call."""
    cut = piece("f", '{"path":"a","text":"lo', index=0, id="a")
    with pytest.raises(BackendError):
        calls(cut)
    with pytest.raises(BackendError):
        calls(piece("f", "[1]", id="a"))
    with pytest.raises(BackendError):
        calls(piece(None, "{}", id="a"))
    parts = read(chunk(content="Let me see."), chunk(tool_calls=[cut]), chunk("length"))
    assert done(parts) == Done(reason="length")
    assert parts[:-1] == [Text("Let me see.")]


def test_calls_are_bounded() -> None:
    """Neither their number nor their arguments grow without end."""
    with pytest.raises(BackendError):
        calls(*(piece("f", "{}", id=str(n)) for n in range(1000)))
    with pytest.raises(BackendError):
        calls(*(piece(None, "x" * 1000, index=0) for n in range(2000)))
