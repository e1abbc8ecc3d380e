"""channels.tables: cells into lines of equal columns."""

from __future__ import annotations

from channels.tables import WIDEST, layout, width


def test_columns_line_up_as_they_are_aligned() -> None:
    """Each column is as wide as its widest cell, and cells stand left, right or in the middle of it; no line ends in blanks."""
    rows = [["fruit", "kg", "note"], ["fig", "10", "x"], ["pear", "2", ""]]
    assert [line for _, line in layout(rows, ["left", "right", "center"])] == [
        "fruit │ kg │ note",
        "──────┼────┼─────",
        "fig   │ 10 │  x",
        "pear  │  2",
    ]


def test_lines_know_their_rows() -> None:
    """Each line says which row it shows; the rule under the head belongs to the head."""
    assert [row for row, _ in layout([["a"], ["b"], ["c"]], ["left"])] == [0, 0, 1, 2]


def test_a_head_without_words_is_left_out() -> None:
    """A table whose head is empty begins with its first row."""
    assert layout([["", ""], ["a", "b"]], ["left", "left"]) == [(1, "a │ b")]


def test_wide_characters_count_twice() -> None:
    """East Asian wide characters take two cells, combining marks and joiners none."""
    assert (width("ab"), width("中文"), width("e\u0301"), width("a\u200bb")) == (2, 4, 1, 2)


def test_one_long_cell_does_not_widen_the_rows() -> None:
    """A column is padded up to a bound only."""
    lines = [line for _, line in layout([["head", "x"], ["y" * 500, "z"], ["a", "b"]], ["left", "left"])]
    assert len(lines[0]) == WIDEST + len(" │ x")
    assert lines[2] == "y" * 500 + " │ z"


def test_padding_cannot_blow_a_table_up() -> None:
    """Many empty cells under a few wide ones are not padded: the lines stay within a small multiple of what was written."""
    rows = [["y" * 40] * 30, *([""] * 29 + ["x"] for _ in range(1000))]
    assert sum(len(line) for _, line in layout(rows, ["left"] * 30)) < 200_000
