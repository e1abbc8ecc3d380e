"""channels.split: rich text into pieces within limits."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.base import Limits, Piece, Span
from channels.inlines import Mark
from channels.markup import Rich, parse
from channels.split import blank, split, units
from tests.channels.markdown import markdown, well_nested

UNSEEN = str.maketrans("", "", "\u200b\u2066\u2067\u2068\u2069\u00a0")


def plain(text: str) -> Rich:
    return Rich(text, size=len(text))


def texts(pieces: Sequence[Piece]) -> list[str]:
    return [piece.text for piece in pieces]


# ------------------------------------------------------------------------------------------------------------------ where it cuts


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("aaaa bbb\n\ncc. dd\nee ff", ["aaaa bbb", "cc. dd\nee ff"]),
        ("aaaa bb. cc\ndd ee ff gg", ["aaaa bb. cc", "dd ee ff gg"]),
        ("aaaa bb. Cc dd ee ff", ["aaaa bb.", "Cc dd ee ff"]),
        ("aaaa bb cc ddd ee ff", ["aaaa bb cc", "ddd ee ff"]),
        ("aaaaaaaaaaaaaaaaaaaa", ["aaaaaaaaaaaaa", "aaaaaaa"]),
        ("aa。bb。cc！」dddddddd", ["aa。bb。cc！」", "dddddddd"]),
    ],
)
def test_it_cuts_where_a_reader_would(text: str, pieces: list[str]) -> None:
    """Between paragraphs, else lines, else sentences, else words, else characters; the blanks at the cut go."""
    assert texts(split(plain(text), Limits(13))) == pieces


def test_a_boundary_far_in_front_is_not_taken() -> None:
    """A paragraph break in the first half gives way to a line break in the second."""
    assert texts(split(plain("a\n\nbbbb bbbb\ncccc cc"), Limits(16))) == ["a\n\nbbbb bbbb", "cccc cc"]


@pytest.mark.parametrize("fill", ["z" * 40, "word " * 7 + "words", "\U0001f600" * 20, "```\n" + "z" * 40 + "\n```"])
def test_what_fits_exactly_is_one_piece(fill: str) -> None:
    """At the limit one piece, one unit above it two, both with real content."""
    assert len(split(parse(fill), Limits(40))) == 1
    more = split(parse(fill.replace("z" * 40, "z" * 41) if "z" in fill else fill + "\U0001f600"), Limits(40))
    assert len(more) == 2
    assert all(piece.text.strip() for piece in more)


@pytest.mark.parametrize("text", ["\U0001f600" * 500, "\U0001f600" * 51, "\U00020000" * 300])
def test_both_counts_hold(text: str) -> None:
    """Code points and UTF-16 units stay within the limit, and the pieces joined are the text."""
    pieces = split(plain(text), Limits(100))
    assert "".join(texts(pieces)) == text
    assert all(len(piece.text) <= 100 and units(piece.text) <= 100 for piece in pieces)


@pytest.mark.parametrize("slide", range(-3, 4))
def test_a_wide_character_at_the_border_stays_whole(slide: int) -> None:
    """An astral character around the limit is in one piece, once, and every piece is strict UTF-8."""
    text = "word " * 19 + "x" * (4 + slide) + "\U0001f3a9" + "word " * 19
    pieces = split(plain(text), Limits(100))
    assert sum(piece.text.encode().decode().count("\U0001f3a9") for piece in pieces) == 1
    assert "".join("".join(texts(pieces)).split()) == "".join(text.split())


@pytest.mark.parametrize(
    "character",
    [
        "e\u0301",
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",
        "\U0001f44d\U0001f3fd",
        "\u2764\ufe0f",
        "1\ufe0f\u20e3",
        "\U0001f1e9\U0001f1ea",
        "\u1112\u1161\u11ab",
        "\U0001f3f4\U000e0067\U000e0062\U000e007f",
    ],
    ids=ascii,
)
def test_what_a_reader_takes_for_one_character_is_not_cut(character: str) -> None:
    """Accents, families, skin tones, hearts, key caps, flags and syllables stay together at any limit that holds them."""
    for limit in range(units(character), units(character) + 5):
        for piece in split(plain(character * 9), Limits(limit)):
            assert piece.text == character * (len(piece.text) // len(character))


# --------------------------------------------------------------------------------------------------------------------------- code


def code_lines(pieces: Sequence[Piece]) -> list[str]:
    """The lines of all code, piece by piece."""
    return [
        line for piece in pieces for span in piece.spans if span.kind == "pre" for line in piece.text[span.start : span.end].split("\n")
    ]


@pytest.mark.parametrize("lead", ["Here:\n", ""])
def test_code_is_cut_between_its_lines(lead: str) -> None:
    """A block longer than a piece comes out as code of the same language in each, its lines unchanged and in order, wherever it begins."""
    lines = [f"line_{n} = compute({n})  # {'x' * (n % 7)}" for n in range(300)]
    pieces = split(parse(f"{lead}```py\n" + "\n".join(lines) + "\n```\nDone."), Limits(400))
    assert code_lines(pieces) == lines
    assert {span.value for piece in pieces for span in piece.spans} == {"py"}
    assert all(len(piece.spans) == 1 for piece in pieces)
    assert pieces[-1].text.endswith("\nDone.")


def test_code_that_fits_a_piece_is_not_cut_for_a_long_lead() -> None:
    """A block whose end would not fit goes to the next piece, if what is in front of it fills half of one."""
    pieces = split(parse("word " * 14 + "\n\n```\n" + "code\n" * 10 + "```"), Limits(100))
    assert texts(pieces) == [("word " * 14).strip(), "\n".join(["code"] * 10)]


def test_code_is_cut_before_a_line_without_indent() -> None:
    """Networks cut blanks off the start of a message: a part of code begins with an indented line only where there is no other."""
    body = "".join(f"def f{n}(x):\n    a = x\n    return a\n\n" for n in range(60))
    pieces = split(parse(f"```py\n{body}```"), Limits(300))
    assert all(piece.text.startswith("def f") for piece in pieces)
    assert "\n".join(texts(pieces)) == body.rstrip("\n") + "\n"  # the fence keeps its last, blank line
    indented = [f"    line {n}" for n in range(100)]
    assert code_lines(split(parse("```\n" + "\n".join(indented) + "\n```"), Limits(200))) == indented


def test_a_cut_behind_code_does_not_fall_into_it() -> None:
    """Blanks and line breaks in a block that fits are no place to cut at for the words behind it."""
    code = "aaaaaaaaaa b\n\nc d"
    assert texts(split(parse(f"```\n{code}\n```\n" + "x" * 30), Limits(20))) == [code, "x" * 20, "x" * 10]


def test_blank_lines_of_code_stay() -> None:
    """At a cut only the one line break goes."""
    lines = ["a", "", "", "b", ""] * 40 + ["c"]
    assert code_lines(split(parse("```\n" + "\n".join(lines) + "\n```"), Limits(50))) == lines


def test_a_line_of_code_longer_than_a_piece_is_cut_hard() -> None:
    """Nothing of it goes."""
    pieces = split(parse("```\n" + "&<" * 100 + "\n```"), Limits(60))
    assert "".join(texts(pieces)) == "&<" * 100


# -------------------------------------------------------------------------------------------------------------------------- spans


def test_spans_are_counted() -> None:
    """No piece has more spans than the limit; the text is cut instead, between lines."""
    pieces = split(parse("\n".join(f"**k{n}**: v" for n in range(110))), Limits(4096, 100))
    assert [len(piece.spans) for piece in pieces] == [100, 10]
    assert "\n".join(texts(pieces)) == "\n".join(f"k{n}: v" for n in range(110))


def test_more_spans_over_one_place_than_allowed_lose_the_inner_ones() -> None:
    """Where cutting cannot help the outermost spans are kept, and the text always."""
    (piece,) = split(parse("***~~word~~***"), Limits(100, 1))
    assert (piece.text, len(piece.spans)) == ("word", 1)


def test_a_span_across_a_cut_is_in_both_pieces() -> None:
    """Formatting goes on behind a cut, with its value."""
    first, second = split(parse("[aaaa bbbb cccc dddd](https://a.example)"), Limits(10))
    assert (first.text, first.spans) == ("aaaa bbbb", (Span("link", 0, 9, "https://a.example"),))
    assert (second.text, second.spans) == ("cccc dddd", (Span("link", 0, 9, "https://a.example"),))


def test_overhead_counts() -> None:
    """What a network's own markup adds is kept free in each piece."""

    def fences(text: str, spans: Sequence[Span]) -> int:
        return sum(8 + len(span.value) for span in spans if span.kind == "pre")

    pieces = split(parse("Hello.\n\n```python\n" + "x = 1\n" * 100 + "```"), Limits(100), fences)
    assert all(len(piece.text) + fences(piece.text, piece.spans) <= 100 for piece in pieces)
    assert code_lines(pieces) == ["x = 1"] * 100


# ------------------------------------------------------------------------------------------------------------------------- blanks


@pytest.mark.parametrize(
    "text", ["", " \n ", "\u200b", "\u200b\u200d\ufeff\u2060", "\u00a0\u3000", "\u2800", "\u3164", "\u202e\u2069", "\ufe0f"]
)
def test_what_shows_nothing_makes_no_piece(text: str) -> None:
    """Blanks, zero-width characters, direction marks and fillers are nothing to send."""
    assert blank(text)
    assert split(plain(text), Limits(10)) == []


@pytest.mark.parametrize("text", ["a", ".", "\u0301", "\U0001f600", "\U0001fae8", "\ue000", "\U0001fadf"])
def test_what_shows_something_is_not_blank(text: str) -> None:
    """Marks, private characters and emoji newer than our tables are content."""
    assert not blank(text)


def test_a_blank_stretch_makes_no_piece_and_no_gap() -> None:
    """Where nothing visible would fill a message it is left out, and its source belongs to a neighbour."""
    pieces = split(plain("aaaa" + "\u200b" * 50 + "bbbb"), Limits(10))
    assert [piece.text.strip("\u200b") for piece in pieces] == ["aaaa", "bbbb"]
    assert [(piece.start, piece.end) for piece in pieces] == [(0, 50), (50, 58)]


def test_a_source_shorter_than_what_is_shown_is_still_parted_in_order() -> None:
    """Where there are more pieces than characters in the source, some stand for none of it, and none reaches beyond its end."""
    pieces = split(Rich("aabbccdd", marks=(Mark(0, 0),), size=2), Limits(2))
    assert [(piece.text, piece.start, piece.end) for piece in pieces] == [("aa", 0, 0), ("bb", 0, 0), ("cc", 0, 1), ("dd", 1, 2)]
    pieces = split(Rich("aabbccdd", marks=(Mark(0, 0), Mark(1, 5)), size=5), Limits(2))
    assert [(piece.start, piece.end) for piece in pieces] == [(0, 2), (2, 3), (3, 4), (4, 5)]


def test_isolates_are_paired_in_each_piece() -> None:
    """A direction isolate that a cut separates from its end does not leak; those in code are bytes of the code."""
    pieces = split(plain("\u2067" + "אבג " * 10 + "\u2069 end"), Limits(20))
    for piece in pieces:
        assert sum(piece.text.count(c) for c in "\u2066\u2067\u2068") == piece.text.count("\u2069")
    assert "".join(texts(pieces)).translate(UNSEEN).replace(" ", "") == "אבג" * 10 + "end"
    (code,) = split(parse("```\na\u2069b\n```"), Limits(20))
    assert code.text == "a\u2069b"


# --------------------------------------------------------------------------------------------------------------------- properties

LIMITS = st.builds(Limits, st.integers(2, 60), st.integers(1, 6))


@settings(max_examples=200, deadline=None)
@given(markdown(), LIMITS)
def test_pieces_keep_all_that_is_promised(text: str, limits: Limits) -> None:
    """They partition the source, hold the limits, are never blank, nest their spans, and show everything but blanks at cuts."""
    rich = parse(text)
    pieces = split(rich, limits)
    assert [piece.start for piece in pieces] == [0, *(piece.end for piece in pieces)][: len(pieces)]
    assert not pieces or pieces[-1].end == len(text)
    for piece in pieces:
        assert len(piece.text) <= limits.units
        assert units(piece.text) <= limits.units
        assert len(piece.spans) <= limits.spans
        assert not blank(piece.text)
        assert well_nested(piece.spans, len(piece.text))
    assert "".join("".join(texts(pieces)).translate(UNSEEN).split()) == "".join(rich.text.translate(UNSEEN).split())


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300), LIMITS)
def test_any_text_is_cut_without_loss(text: str, limits: Limits) -> None:
    """The same for text of any characters, shown as it is."""
    pieces = split(plain(text), limits)
    assert all(units(piece.text) <= limits.units for piece in pieces)
    shown, source = (
        "".join(c for c in part if not blank(c) and c not in "\u2066\u2067\u2068\u2069") for part in ("".join(texts(pieces)), text)
    )
    assert shown == source


@settings(max_examples=60, deadline=None)
@given(markdown(most=120), st.integers(30, 60))
def test_pieces_of_a_growing_plain_text_stay(text: str, limit: int) -> None:
    """Where a cut falls depends on nothing behind the piece and its border."""
    whole = split(plain(text), Limits(limit))
    for at in range(0, len(text), 17):
        grown = [piece for piece in split(plain(text[:at]), Limits(limit))[:-1] if piece.end + 2 * limit < at]
        assert grown == whole[: len(grown)]


def test_it_is_fast() -> None:
    """30,000 characters with a span in every line take some milliseconds, and hostile ones not much more."""
    for text in (
        "A **bold** line of `code` and words.\n" * 1000,
        "\U0001f1e9\U0001f1ea" * 15_000,
        "a" + "\u0301" * 30_000,
        "**a** " * 5000,
    ):
        rich = parse(text)
        start = time.process_time()
        split(rich, Limits(4096, 100))
        assert time.process_time() - start < 0.5
