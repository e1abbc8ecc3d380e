"""`channels.text`."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from channels.text import bounded, clean, name


def test_lone_surrogates_and_nul_do_not_come_in() -> None:
    """A half character is marked, a pair that was split is joined, NUL goes, everything else stays."""
    assert clean("a\0b") == "ab"
    assert clean("x\ud83dy") == "x\ufffdy"
    assert clean("\ud83d\ude00") == "😀"
    assert clean("Grüße 😀\n\t") == "Grüße 😀\n\t"


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters()))
def test_cleaned_text_can_always_be_stored(text: str) -> None:
    """Whatever comes in can be written as UTF-8, and cleaning twice changes nothing more."""
    once = clean(text)
    once.encode("utf-8")
    assert clean(once) == once


def test_names_cannot_break_out_of_their_line() -> None:
    """Line breaks, control characters and direction marks are out of a name; joiners, which scripts need, stay."""
    assert name("Ana\nadmin: yes\x07") == "Ana admin: yes"
    assert name("evil\u202egnp.exe\u2069") == "evilgnp.exe"
    assert name("  می\u200cخواهم ") == "می\u200cخواهم"
    assert len(name("x" * 500)) == 128


def test_bounded_text_says_that_it_was_cut() -> None:
    """A text that fits is whole; a longer one ends with a mark and is within the limit."""
    assert bounded("abc", 3) == "abc"
    assert bounded("abcd", 3) == "ab…"
