"""What an endpoint says of itself."""

from __future__ import annotations

import pytest

from gateway.backends.listing import sight

NOW = 1_795_946_400.0
DATE = "Sun, 29 Nov 2026 10:01:00 GMT"


@pytest.mark.parametrize(
    ("body", "models"),
    [
        (b'{"object":"list","data":[{"id":"a","owned_by":"x"},{"id":"b"},{"id":"a"},{"id":""}]}', ("a", "b")),
        (b'{"data":[]}', ()),
        (b'{"data":[{"id":3}]}', ()),
        (b'{"models":[]}', ()),
        (b"<html>", ()),
        (b"", ()),
        (b"[" * 100_000, ()),
        (b'{"data":[{"id":"\xff"}]}', ()),
    ],
)
def test_models(body: bytes, models: tuple[str, ...]) -> None:
    """The names, each once; what is no list is none, whatever it is."""
    assert sight(body, "", NOW).models == models


@pytest.mark.parametrize(
    ("body", "none"),
    [
        (b'{"data":[]}', True),
        (b'{"object":"list","data":null}', True),
        (b'{"data":[{"id":"a"}]}', False),
        (b'{"models":[]}', False),
        (b"", False),
    ],
)
def test_no_model(body: bytes, none: bool) -> None:
    """A list without a model is something else than no list."""
    assert sight(body, "", NOW).none is none


@pytest.mark.parametrize(("date", "ahead"), [(DATE, 60.0), ("", None), ("soon", None), ("Sun, 99 Nov 2026 10:01:00 GMT", None)])
def test_clock(date: str, ahead: float | None) -> None:
    """How far its clock is ahead of ours, if it says."""
    assert sight(b"", date, NOW).ahead == ahead
