from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.backends.sse import Event, Parser, TooBig

STREAM = (
    ": PROCESSING\n\nevent: note\nid: 7\nretry: 100\ndata: naive -> \u4f60\u597d \U0001f680 \u05e9\u05dc\u05d5\u05dd\n\ndata:no space\n\n"
    "data\ndata: two\ndata:  three\n\n:\n\ndata: [DONE]\n\n"
)
EVENTS = [
    Event("naive -> \u4f60\u597d \U0001f680 \u05e9\u05dc\u05d5\u05dd".encode(), "note"),
    Event(b"no space"),
    Event(b"\ntwo\n three"),
    Event(b"[DONE]"),
]


def read(*segments: bytes, limit: int = 1 << 20) -> list[Event]:
    parser = Parser(limit)
    return [event for segment in segments for event in parser.feed(segment)] + parser.finish()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_is_a_line_end(end: str) -> None:
    """LF, CRLF and CR alike, whole and one byte a segment, so that CRLF and every character are split too."""
    raw = STREAM.replace("\n", end).encode()
    assert read(raw) == EVENTS
    assert read(*(raw[i : i + 1] for i in range(len(raw)))) == EVENTS
    assert read(b"\xef\xbb\xbf" + raw) == EVENTS
    assert read(b"\xef", b"\xbb", b"\xbf" + raw) == EVENTS


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 2 * len(STREAM.encode())), max_size=12), end=st.sampled_from(["\n", "\r\n", "\r"]))
def test_segments_do_not_matter(cuts: list[int], end: str) -> None:
    """However the network cuts the bytes, empty segments included, the events are the same."""
    raw = STREAM.replace("\n", end).encode()
    places = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    assert read(*(raw[a:b] for a, b in pairwise(places))) == EVENTS


def test_comments_glued_to_data_in_one_segment_are_passed_over() -> None:
    """E09: keep-alives before, between and behind events never reach the reader."""
    assert read(b": keep-alive\ndata: 1\n: keep-alive\n\n: x\n\n:y\ndata: 2\n\n:z") == [Event(b"1"), Event(b"2")]


def test_a_line_end_of_two_bytes_is_one() -> None:
    """CR LF cut in the middle does not make a blank line."""
    assert read(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [Event(b"a\nb")]


def test_an_event_without_its_blank_line_comes_at_the_end() -> None:
    """A server that ends right behind its last line is understood."""
    assert read(b"data: 1\n\ndata: [DONE]") == [Event(b"1"), Event(b"[DONE]")]
    assert read(b"data: 1\n\ndata: [DONE]\n") == [Event(b"1"), Event(b"[DONE]")]


def test_a_bare_event_line_is_told() -> None:
    """`event: error` without data is not lost."""
    assert read(b"event: error\n\n") == [Event(b"", "error")]


@pytest.mark.parametrize("raw", [b"data: " + b"x" * 200, b"data: xxxx\n" * 25, b"data\n" * 200, b": " + b"x" * 200])
def test_one_event_is_bounded(raw: bytes) -> None:
    """A line without an end and an event without an end stop at the bound, in segments of any size."""
    with pytest.raises(TooBig):
        read(raw, limit=100)
    with pytest.raises(TooBig):
        read(*(raw[i : i + 1] for i in range(len(raw))), limit=100)


def test_many_events_are_not_bounded() -> None:
    """The bound is for one event, not for the stream; comments are nothing to keep."""
    assert read(*[b": c\n", b":\n\n"] * 1000, b"data: 1\n\n", limit=100) == [Event(b"1")]
    assert len(read(*[b"data: " + b"x" * 50 + b"\n\n"] * 1000, limit=100)) == 1000
    assert len(read(b"data: xxxxxxxx\n\n" * 1000, limit=100)) == 1000


def test_tiny_segments_cost_no_more_than_their_bytes() -> None:
    """A megabyte in one line, byte by byte, is joined once: this takes well under the minutes of a quadratic join."""
    parser = Parser(1 << 21)
    began = time.perf_counter()
    for _ in range(1 << 18):
        parser.feed(b"x")
    assert time.perf_counter() - began < 5
