from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.backends.base import Done, Part, Reasoning, Text
from gateway.backends.chunks import Answer
from gateway.errors import BackendError
from gateway.message import Usage


def chunk(finish: object = None, **delta: object) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def read(*events: str) -> list[Part]:
    """All parts of an answer whose events carry these data."""
    answer = Answer()
    parts = [part for event in events for part in answer.event(event.encode("utf-8", "surrogatepass"))]
    return parts + answer.finish()


def text(parts: list[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def done(parts: list[Part]) -> Done:
    assert isinstance(parts[-1], Done)
    assert sum(isinstance(part, Done) for part in parts) == 1
    return parts[-1]


ODD = [
    ['{"choices":[]}', chunk(content="Hello"), chunk("stop")],
    [chunk(content="Hello"), chunk("stop"), '{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}', '{"usage":{"x":1}}'],
    [chunk(content="Hello"), '{"choices":[{"index":0,"delta":null}]}', chunk("stop", content=None)],
    [chunk(role="assistant", content=""), chunk(content="Hel"), chunk(content="lo"), "[DONE]"],
    ['{"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}'],
    ['{"choices":null}', '{"id":"x"}', '{"choices":[null]}', "{}", chunk(content="Hello"), chunk("stop")],
    [chunk(content=[{"type": "text", "text": "Hel"}, "lo", {"type": "image_url"}]), chunk("stop")],
    [chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "secret"}]}, {"type": "text", "text": "Hello"}]), "[DONE]"],
    [json.dumps({"object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "Hello"}}]})],
    [chunk(content="Hello"), json.dumps({"choices": [{"index": 1, "delta": {"content": "another"}}]}), chunk("stop")],
    ['{"choices":[{"delta":{"content":"Hello"},"finish_reason":""}],"error":null}', chunk("eos_token")],
    [chunk(refusal="Hello"), chunk("stop")],
    [": PROCESSING", "", "42", "[]", '"x"', chunk(content="Hello"), "null", chunk("stop"), "[DONE]", "trailing", '{"cut'],
    [chunk(content="Hel") + "\n" + chunk(content="lo"), chunk("stop") + "\n[DONE]"],
]


@pytest.mark.parametrize("events", ODD)
def test_odd_but_honest_streams_are_read(events: list[str]) -> None:
    """E01, E09: no choices, null anywhere, usage anywhere, parts, whole messages, proxies' noise: the text is whole."""
    parts = read(*events)
    assert text(parts) == "Hello"
    assert done(parts).reason == "stop"


def test_usage_is_read_wherever_it_stands() -> None:
    """In the last content chunk or in one of its own; a count that is missing is 0."""
    assert done(read(*ODD[4])).usage == Usage(3, 0)
    assert done(read(*ODD[1])).usage is not None
    assert done(read(chunk("stop", content="x"), '{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}')).usage == Usage(7, 2)
    assert done(read(chunk("stop", content="x"), '{"usage":"none"}')).usage is None


ERRORS = [
    '{"error":{"message":"quota","code":429}}',
    '{"error":"quota"}',
    '{"object":"error","message":"quota"}',
    '{"choices":[{"delta":{},"error":{"message":"quota"}}]}',
    chunk("error"),
    '{"error":{"message":"quota"},"choices":[{"delta":{"content":""},"finish_reason":"stop"}]}',
    '{"error":42}',
    '{"error":["quota"]}',
]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("before", [[], [chunk(content="a"), chunk(content="b"), chunk(content="c")]])
def test_an_error_inside_a_good_stream_is_a_failure(error: str, before: list[str]) -> None:
    """E02: an object, a string, any dialect, first or after good deltas; the server's words never reach the person."""
    with pytest.raises(BackendError) as caught:
        read(*before, error, "[DONE]")
    assert "quota" not in caught.value.said


def test_an_error_event_is_a_failure_whatever_its_data() -> None:
    """E02: `event: error` with an object, with words, with nothing."""
    for data in (b'{"message":"x"}', b'{"error":"x"}', b"overloaded", b"", b"null", b"[" * 100_000):
        with pytest.raises(BackendError):
            Answer().event(data, "error")


def test_a_cut_is_a_failure() -> None:
    """E03: neither a finish_reason nor [DONE], or half a chunk, is no end of an answer."""
    for events in ([], [chunk(content="The answer is "), chunk(content="forty")], [chunk(content="x"), '{"choices":[{"del']):
        with pytest.raises(BackendError) as caught:
            read(*events)
        assert caught.value.retryable


@pytest.mark.parametrize(
    "bad", [chunk(content=42), chunk(content={"a": 1}), chunk(content=[42]), '{"choices":{}}', '{"choices":[7]}', "{" + '"a":[' * 50_000]
)
def test_what_is_no_text_is_a_failure(bad: str) -> None:
    """Content of a wrong type is never guessed at or left out of the answer."""
    with pytest.raises(BackendError):
        read(bad, chunk("stop"))


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_thoughts_are_parts_of_their_own(key: str) -> None:
    """E12: by either name; an empty one is told once, so that it can be sent back."""
    parts = read(*(chunk(content=None, **{key: part}) for part in ("", "se", "cret", "")), chunk("stop"))
    assert parts[:-1] == [Reasoning(""), Reasoning("se"), Reasoning("cret")]


@pytest.mark.parametrize("thought", ["secret", [{"type": "text", "text": "sec"}, 1, {"text": "ret"}]])
def test_thoughts_may_be_parts_of_the_content(thought: object) -> None:
    """They are taken out of it, as a string or as parts again."""
    parts = read(chunk(content=[{"type": "thinking", "thinking": thought}, {"type": "text", "text": "Hello"}]), chunk("stop"))
    assert parts[:-1] == [Reasoning("secret"), Text("Hello")]


def test_think_tags_are_taken_out() -> None:
    """E14: hidden text is Reasoning."""
    parts = read(*(chunk(content=part) for part in ("<th", "ink>sec", "ret</thi", "nk>Hello")), chunk("stop"))
    assert text(parts) == "Hello"
    assert "".join(part.text for part in parts if isinstance(part, Reasoning)) == "secret"


def test_characters_cut_in_two_are_joined() -> None:
    """E11: a surrogate pair over two deltas is one character; half of one is U+FFFD; no lone surrogate and no NUL ever comes out."""

    def raw(escape: str) -> str:
        return '{"choices":[{"delta":{"content":"' + escape + '"}}]}'

    assert text(read(raw("a\\ud83d"), raw("\\ude80b"), chunk("stop"))) == "a\U0001f680b"
    assert text(read(raw("\\ud83d"), raw(""), raw("\\uDE80"), chunk("stop"))) == "\U0001f680"
    assert text(read(raw("\\ud83d"), raw("x"), chunk("stop"))) == "\ufffdx"
    assert text(read(raw("a\\ud83d"), chunk("stop"))) == "a\ufffd"
    assert text(read(raw("\\ude80a\\u0000b"), chunk("stop"))) == "\ufffdab"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("length", "length"),
        ("MAX_TOKENS", "length"),
        ("content_filter", "content_filter"),
        ("SAFETY", "content_filter"),
        ("end_turn", "stop"),
    ],
)
def test_reasons(said: str, reason: str) -> None:
    """Dialects of finish_reason."""
    assert done(read(chunk(content="x"), chunk(said))).reason == reason


def test_only_growth_counts_as_life() -> None:
    """E19: role deltas, empty deltas, usage and noise are no sign that the model answers."""
    answer = Answer()
    for event in (
        chunk(role="assistant", content=""),
        chunk(),
        '{"choices":[]}',
        ": x",
        '{"usage":{"prompt_tokens":1}}',
        chunk(reasoning=""),
    ):
        answer.event(event.encode())
    assert answer.growth == 0
    for event in (chunk(content="x"), chunk(reasoning="x"), chunk(tool_calls=[{"function": {"name": "f"}}])):
        before = answer.growth
        answer.event(event.encode())
        assert answer.growth == before + 1


HALF = "\\ud800"
TEMPLATE = (
    '{"id":"%s","model":"%s","error":%s,"usage":{"prompt_tokens":%s},"choices":[{"index":0,"finish_reason":"%s","delta":{"content":"%s",'
    '"reasoning":"%s","tool_calls":[{"id":"%s","index":0,"function":{"name":"%s","arguments":"%s"}}]}}]}'
)


@pytest.mark.parametrize("place", range(10))
def test_half_a_character_anywhere_breaks_nothing(place: int) -> None:
    """In whichever field it stands: the answer is read or refused, and what comes out can be stored."""
    fields = ["x", "x", "null", "1", "stop", "x", "x", "x", "x", "{}"]
    fields[place] = f'"{HALF}"' if place in {2, 3} else HALF
    answer = Answer()
    try:
        parts = [*answer.event((TEMPLATE % tuple(fields)).encode()), *answer.finish()]
    except BackendError as error:
        assert place in {2, 9}
        str(error).encode()
    else:
        msgspec.json.encode(parts)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_damaged_stream_ends_in_an_answer_or_a_backend_error(data: st.DataObject) -> None:
    """Whatever replaces a value in it: nothing but BackendError is raised, and an answer that is read can be stored."""
    events = [
        chunk(content="He", reasoning="x"),
        chunk(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f"}}]),
        chunk("stop"),
        "[DONE]",
    ]
    raw = "\n".join(data.draw(st.lists(st.sampled_from(events), min_size=1, max_size=5)))
    values = re.findall(r'"[^"]*"|\d+|null|[{}\[\]]', raw)
    for _ in range(data.draw(st.integers(0, 3))):
        new = data.draw(st.sampled_from(["null", "42", '"x"', "[]", "{}", "true", "1e999", '"\\ud800"', "NaN", "", '{"a":[1]}']))
        raw = raw.replace(data.draw(st.sampled_from(values)), new, data.draw(st.integers(1, 2)))
    answer = Answer()
    try:
        parts = [part for line in raw.split("\n") for part in answer.event(line.encode())] + answer.finish()
    except BackendError:
        return
    msgspec.json.encode(parts)
    done(parts)
