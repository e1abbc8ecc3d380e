"""How the command line writes: what fits, what is cut, and that nothing steers a terminal."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cli import show
from gateway.cli.show import _fold

texts = st.text(alphabet=st.one_of(st.characters(), st.sampled_from(" \n\t\x1b\u202e\u200d漢é")), max_size=300)


@given(texts)
@settings(max_examples=100, deadline=None)
def test_a_cell_is_one_harmless_line(text: str) -> None:
    """Whatever goes in: no control character, no line break, nothing that turns the writing around."""
    assert all(c.isprintable() or c == "\u200d" for c in show.cell(text))
    assert len(show.cell(text)) == len(text)
    assert all(c.isprintable() or c in "\u200d\n" for c in show.block(text))


def test_plain_text_stays_as_it_is() -> None:
    """Letters of any writing, and emoji of several parts."""
    for text in ("Ana", "Émile 漢字 עברית", "👩\u200d👧"):
        assert show.cell(text) == text
    assert show.block("a\r\n\tb") == "a\n    b"
    assert show.cell(None) == ""


@given(texts.map(show.cell), st.integers(20, 80), st.integers(0, 16), st.integers(0, 16))
@settings(max_examples=100, deadline=None)
def test_folded_text_fits_and_loses_nothing(text: str, most: int, first: int, rest: int) -> None:
    """No line is wider than it may be, wide characters count double, and only blanks are changed."""
    lines = list(_fold(text, " " * first, " " * rest, most))
    assert max(map(show.width, lines)) <= most
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_fold_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Where no terminal is, a line stays a line: for grep and for mails."""
    assert show.fold("word " * 50, "  ", "    ") == f"  {'word ' * 50}".rstrip()


@given(texts.map(show.cell), st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_cut(text: str, most: int) -> None:
    """At most so wide, and what is cut shows it."""
    short = show.cut(text, most)
    assert show.width(short) <= most
    assert short == text or short.endswith("…")


def test_table() -> None:
    """One heading, aligned by what is seen; a cell that a row lacks is blank; wide characters count double."""
    rows: list[dict[str, object]] = [{"id": "a", "name": "漢字"}, {"id": "bcd", "more": "x\n"}]
    assert show.table(rows, "nobody").split("\n") == ["ID   NAME  MORE", "a    漢字", "bcd        x\N{REPLACEMENT CHARACTER}"]
    assert show.table([], "nobody") == "nobody"


@pytest.mark.parametrize(("seconds", "said"), [(0, "0 s"), (59, "59 s"), (61, "1 min"), (3661, "1 h 1 min"), (90061, "1 d 1 h")])
def test_span(seconds: float, said: str) -> None:
    """As people say it."""
    assert show.span(seconds) == said


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 KiB"), (20480, "20 KiB"), (3 * 2**30, "3.0 GiB"), (2**50, "1024.0 TiB")]
)
def test_size(count: int, said: str) -> None:
    """Three digits are enough."""
    assert show.size(count) == said


@pytest.mark.parametrize("odd", ["", "nonsense", "2026-99-99", "\x1b[2J", float("inf"), 1e300, 0.0])
def test_odd_times(odd: float | str) -> None:
    """A time that is none is shown as it stands, harmless, and nothing fails."""
    assert "\x1b" not in show.minute(odd)
    assert len(show.minute("2026-11-29T10:00:00.123Z")) == len("2026-11-29 10:00")


def test_json() -> None:
    """One line, with the text as it is."""
    assert json.loads(show.as_json({"a": ["ü\x1b\u202e"]})) == {"a": ["ü\x1b\u202e"]}
    assert "\n" not in show.as_json({"a": "b\nc"})
