"""channels.discord.render: Markdown to pieces in Discord's own Markdown, held to a small reader of that."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels import markup
from channels.base import Piece
from channels.discord.render import LIMITS, render
from channels.discord.writing import write
from channels.markup import Parser
from channels.split import blank, units
from tests.channels.discord.reader import Seen, read
from tests.channels.markdown import markdown

KINDS = {"bold", "italic", "strike", "code", "block", "address", "link", "quote", "item"}
"""What we ever mean."""
_UNSEEN = re.compile("[\u200b\u2066-\u2069\\s]")


def one(source: str) -> Seen:
    """How a text is seen that is one piece."""
    (piece,) = render(source)
    assert units(piece.text) <= LIMITS.units
    return read(piece.text)


def sent(source: str) -> str:
    (piece,) = render(source)
    return piece.text


# ------------------------------------------------------------------------------------------------------------ what stays what it is


@pytest.mark.parametrize(
    "text",
    [
        "user_id_field and a_b_ or _a __init__ x__y",
        "a*b and 2*3*4 and *unbalanced and ** too",
        "~~ not struck, ~5 minutes, a~b",
        "|| no spoiler ||, a || b, |",
        "`unbalanced, ``` three",
        "C:\\new\\temp \\_ \\\\ ¯\\_(ツ)_/¯",
        "# no heading",
        "<@222> <@!222> <@&444> <#333> <:a:1> <a:b:2> <t:1700000000:R> </fork:12> <id:browse> @everyone @here",
        "<https://a.example> in angles",
        ":smile: :+1: and 12:30:45 and a::b",
        "[no](link) and f[i](x) and [x](https://a.example/b_c)",
        "https://e.example/a_b_c*d~~e and http://e.example/(x_y)",
        "1. one",
        "2024. It was a year",
        "> no quote\n>>> nor this",
        "- no list\n-# no subtext\n* nor this",
        "3\\. 4. 5) 1.5 v1. ",
    ],
)
def test_text_is_seen_as_it_is(text: str) -> None:
    """A text without markup, with whatever Discord would make something of: it is seen character by character, and pings nobody."""
    shown = read(write(text.strip(), ()))
    assert shown.text == text.strip()
    assert shown.kinds() <= {"address", "item"}


def test_little_is_escaped() -> None:
    """Where the text is seen raw (notifications), ordinary words and lists read as they are."""
    text = "The user_id_field is 5 - 3 > 1, costs ~5 (see #2), at 12:30.\n\n1. one\n2. two\n\nSee https://a.example/x_y."
    assert sent(text).replace("\\_", "_") == text
    assert sent("snake_case_name: 1.5") == "snake_case_name: 1.5"


@given(markdown())
@settings(max_examples=150, deadline=None)
def test_what_is_seen_is_what_was_meant(source: str) -> None:
    """Whatever a model writes: Discord shows its visible text, character by character, and formats nothing of its own accord."""
    check(source)


_DISCORDS = [
    *("*", "**", "_", "__", "`", "``", "~~", "~", "|", "||", "[", "](https://x.example/a_b)", ")", "<@12>", "<#3>", "<a:b:1>", "<t:12:R>"),
    *("</ab c:12>", "<https://a_b.cc/_d_>", "@everyone", ":smile:", ":", "# ", "#", "-# ", "- ", "> ", ">>> ", "1. ", "1. a\n2. b\n"),
    *(" ", "\n", "\n\n", "\\", "\\*", "\\_", "\\#", "\\-", "\\>", "1\\. ", "https://e.xx/a_b*c", "http://q", "```py\n", "\n```\n", "!["),
    *("[w](https://y.example)", "[a_b](https://y.example)", "a_b", "_c", "d_", "**b**", "*i*", "~~s~~", "`c`", "`a_b_ *x*`", "\u00a0", "."),
]


@given(st.lists(st.one_of(st.none(), st.sampled_from(_DISCORDS)), max_size=40))
@settings(max_examples=200, deadline=None)
def test_what_is_seen_is_what_was_meant_with_discords_own_marks(parts: list[str | None]) -> None:
    """The same for texts full of what only Discord reads."""
    check("".join(f"w{i}" if part is None else part for i, part in enumerate(parts)))


def check(source: str) -> None:
    pieces = render(source)
    seen = [read(piece.text) for piece in pieces]
    assert _UNSEEN.sub("", "".join(each.text for each in seen)) == _UNSEEN.sub("", _with_spelled_links(source, seen))
    assert not any(each.kinds() - KINDS for each in seen)
    assert all(units(piece.text) <= LIMITS.units and not blank(piece.text) for piece in pieces)


def _with_spelled_links(source: str, seen: list[Seen]) -> str:
    """The visible text, with " (address)" behind the words of those links that the pieces do not show as links."""
    rich = markup.parse(source)
    shown = [address for each in seen for kind, _, address in each.marks if kind == "link"]
    for span in sorted((s for s in rich.spans if s.kind == "link"), key=lambda s: -s.end):
        words = rich.text[span.start : span.end]
        if words in (span.value, span.value.removeprefix("mailto:")):
            continue
        if span.value in shown:
            shown.remove(span.value)
        else:
            rich = markup.Rich(f"{rich.text[: span.end]} ({span.value}){rich.text[span.end :]}")
    return rich.text


# --------------------------------------------------------------------------------------------------------------------- formatting


def test_all_kinds_are_discords() -> None:
    """Each kind of span is what Discord has for it."""
    seen = one("**b** *i* ~~s~~ `c` [l](https://a.example/x_y)\n\n```py\np = 1\n```\n\n> q\n> r")
    assert seen.marks == [
        ("bold", "b", ""),
        ("italic", "i", ""),
        ("strike", "s", ""),
        ("code", "c", ""),
        ("link", "l", "https://a.example/x_y"),
        ("block", "p = 1", "py"),
        ("quote", "q\nr", ""),
    ]


def test_headings_are_bold_and_tables_are_code() -> None:
    """Discord has no tables; a heading of any level is a bold line."""
    seen = one("#### A *b* c\n\n| x | y |\n|---|---|\n| 1 | 2 |")
    assert ("bold", "A b c", "") in seen.marks
    assert [words for kind, words, _ in seen.marks if kind == "block"] == ["x │ y\n──┼──\n1 │ 2"]


def test_nested_lists_and_quotes_keep_their_shape() -> None:
    """Each line of a quote has its mark; what is deeper stands further in."""
    assert one("- a\n  - b\n    1. c\n- d").text == "• a\n  • b\n    1. c\n• d"
    assert one("> a\n> - b\n> > c\n>\n> d\n\ne").text == "a\n• b\n> c\n\nd\n\ne"
    assert sent("> a\n>\n> b") == "> a\n> \n> b"
    assert one("1. > quoted\n   > on").text == "1. quoted\n   on"


def test_numbers_stay_the_writers() -> None:
    """A list that Discord would count otherwise is text; one that it would not is its own list."""
    assert sent("1. a\n2. b\n3. c") == "1. a\n2. b\n3. c"
    assert one("1. a\n1. b\n7. c").text == "1. a\n1. b\n7. c"
    assert one("0. a\n\n01. b").text == "0. a\n\n01. b"
    assert one("1. a\n2. b\n\nand\n\n1. c\n2. d").text == "1. a\n2. b\n\nand\n\n1. c\n2. d"


def test_code_in_quotes_is_quoted_line_by_line() -> None:
    """Fences inside a quote carry its mark on each line."""
    assert sent("> see\n> ```py\n> x = 1\n>\n> y = 2\n> ```\n> so") == "> see\n> ```py\n> x = 1\n> \n> y = 2\n> ```\n> so"
    assert ("block", "x = 1\n\ny = 2", "py") in one("> see\n> ```py\n> x = 1\n>\n> y = 2\n> ```\n> so").marks


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("***it* rest**", ["bold", "italic"]),
        ("***b** rest*", ["italic", "bold"]),
        ("***both***", ["bold", "italic"]),
        ("**rest *it***", ["bold", "italic"]),
        ("*rest **b***", ["italic", "bold"]),
        ("**a ~~b *c*~~**", ["bold", "strike", "italic"]),
        ("**`code` and**", ["bold", "code"]),
        ("**see https://a.example/b_c**", ["bold", "address"]),
    ],
)
def test_emphasis_may_nest(source: str, kinds: list[str]) -> None:
    """One inside the other, at the same place or not, is seen so."""
    assert sorted(one(source).kinds()) == sorted(kinds)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("**a**_b_", "ab"),
        ("**bold with `a**b` code**", "bold with a**b code"),
        ("~~struck with ~ in it~~", "struck with ~ in it"),
        ("https://a.example/**b**", "https://a.example/b"),
        ("a_bd_**b**", "a_bd_b"),
        ("~~s~~_c", "s_c"),
        ("`c`*`c`*", "cc"),
        ("a_bd_http://q<@12>", "a_bd_http://q<@12>"),
        ("x *```\nw2```py*", "x  w2py"),
    ],
)
def test_emphasis_that_would_be_read_otherwise_is_left_out(source: str, text: str) -> None:
    """Rather no emphasis than other words."""
    assert one(source).text == text


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("[words](https://a.example/x_(y))", "words (https://a.example/x_(y))"),
        ("[a_b](https://a.example/x)", "a_b"),
        ("[README.md](https://a.example/x)", "README.md"),
        ("[https://b.example](https://a.example)", "https://b.example (https://a.example)"),
        ("[hxxp](tg://user?id=1)", "hxxp (tg://user?id=1)"),
        ("[mail](mailto:a@b.example)", "mail (mailto:a@b.example)"),
        ("[a*b](https://a.example)", "a*b (https://a.example)"),
        ("[\U0001f600](https://a.example)", "\U0001f600 (https://a.example)"),
        ("[a [b] c](https://a.example)", "a [b] c (https://a.example)"),
        ("[discord.gg/x](https://a.example)", "discord.gg/x (https://a.example)"),
        ("![alt](https://a.example/p.png)", "alt"),
        ("<https://a.example/b_c>", "https://a.example/b_c"),
        ("<a@b.example>", "a@b.example"),
    ],
)
def test_a_link_is_one_where_discord_makes_one(source: str, seen: str) -> None:
    """Otherwise its address stands behind its words; an address is never lost, and never changed by a byte."""
    assert one(f"see {source} there").text == f"see {seen} there"
    address = re.search(r"\((\w+:[^\s]*)\)$|<([^>]+)>", source)
    assert address
    assert (address[1] or address[2]) in sent(source)


def test_bare_addresses_are_untouched() -> None:
    """Nothing is escaped in them, whatever is around."""
    for address in ("https://e.example/wiki/Main_Page_(x)?a_b=1&c=*2*~3", "http://e.example/__init__.py#L1"):
        for around in ("see {} there", "**see {} there**", "*a* ({}).", "> {}", "- {}", "{}, _x_", "`a_` {}"):
            assert address in sent(around.format(address)), around


# --------------------------------------------------------------------------------------------------------------------------- code


@pytest.mark.parametrize("before", ["Here:\n\n", ""])
@pytest.mark.parametrize("after", ["\n\nDone.", ""])
def test_a_long_block_is_code_in_each_piece(before: str, after: str) -> None:
    """A04, A05: fences are balanced and carry the same language, also where the block begins the answer; the lines are unchanged and in
    order; the fences count."""
    lines = [f"line_{n} = compute({n})" for n in range(500)]
    pieces = render(f"{before}```py\n" + "\n".join(lines) + f"\n```{after}")
    assert len(pieces) > 5
    found: list[str] = []
    for piece in pieces:
        assert units(piece.text) <= 2000
        fences = [line for line in piece.text.split("\n") if line.startswith("```")]
        assert len(fences) % 2 == 0
        assert fences[0] == "```py"
        found += [line for words in read(piece.text).words("block") for line in words.split("\n")]
    assert found == lines
    assert not any(re.search(r"```.*\(\d+/\d+\)", piece.text) for piece in pieces)  # A07: no part counter is glued to a fence


@pytest.mark.parametrize(("length", "count"), [(1991, 1), (1992, 1), (1993, 2), (1994, 2)])
def test_a_block_that_fits_is_one_message(length: int, count: int) -> None:
    """A08: text and fences together are 2000 at most in one message; one more makes two, both with code in them."""
    pieces = render("```\n" + "z" * length + "\n```")
    assert len(pieces) == count
    assert all(len(piece.text) <= 2000 for piece in pieces)
    blocks = [words for piece in pieces for words in read(piece.text).words("block")]
    assert "".join(blocks) == "z" * length
    assert all(blocks)
    if count == 1:
        assert len(pieces[0].text) == length + 8


def test_code_with_fences_in_it_stays_one_block() -> None:
    """Three backticks in code would end it: a character without width parts them."""
    seen = one("````md\na\n```py\nb\n```\n````")
    assert [(kind, words.replace("\u200b", ""), value) for kind, words, value in seen.marks] == [("block", "a\n```py\nb\n```", "md")]


@pytest.mark.parametrize(
    ("source", "language"),
    [("```c++\nx\n```", "c++"), ("```c#\nx\n```", "cs"), ("```{.py}\nx\n```", ""), ("~~~js\nx\n~~~", "js"), ("    x", "")],
)
def test_a_language_is_one_that_discord_takes_for_one(source: str, language: str) -> None:
    """Any other word would be seen as the first line of the code."""
    assert one(source).marks == [("block", "x", language)]


@pytest.mark.parametrize("code", ["a`b", "a``b", "x *y* _z_", "\\", "<@1>", "a b", "https://a.example/b_c"])
def test_code_in_a_line_is_untouched(code: str) -> None:
    """With as many backticks around as it needs."""
    fence = "```" if "`" in code else "`"
    assert one(f"see {fence}{code}{fence} there").words("code") == [code]


# ------------------------------------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize("character", ["*", "_", "\\", "a", "\U0001f600", "<@1> ", "- x\n", "> y\n", "**b** ", "`c` "])
def test_no_piece_is_too_long_and_none_is_wasted(character: str) -> None:
    """Escapes and marks count, by code points and by UTF-16 units; pieces are still full."""
    source = "a" + character * 6000
    pieces = render(source)
    sizes = [units(piece.text) for piece in pieces]
    assert max(sizes) <= 2000
    assert all(size > 900 for size in sizes[:-1])
    assert len(pieces) <= 6 + sum(sizes) // 900


@pytest.mark.parametrize("text", ["", " \n\n ", "\u200b", "****", "&nbsp;", "***\n\n---"])
def test_nothing_visible_is_no_piece(text: str) -> None:
    """There is nothing to send for a blank answer."""
    assert render(text) == []


@given(markdown(most=30), st.integers(0, 400))
@settings(max_examples=60, deadline=None)
def test_a_growing_answer_can_be_shown_at_any_moment(source: str, cut: int) -> None:
    """Any prefix renders, alone as by the parser that remembers, and its pieces stand for the whole source without a gap."""
    prefix = source[:cut]
    pieces = render(prefix)
    assert pieces == render(prefix, Parser().parse)
    assert [(a.end, b.start) for a, b in pairwise(pieces) if a.end != b.start] == []
    if pieces:
        assert (pieces[0].start, pieces[-1].end) == (0, len(prefix))


def test_pieces_stay_as_they_are_while_the_answer_grows() -> None:
    """Only the last message changes with a new word."""
    source = "".join(f"Word_{n} of **paragraph** {n} with `code_{n}`, *more* and https://a.example/x_{n}.\n\n" for n in range(120))
    before: list[Piece] = []
    for end in range(500, len(source), 731):
        pieces = render(source[:end])
        assert [piece.text for piece in pieces[: len(before) - 1]] == [piece.text for piece in before[:-1]]
        before = pieces


@pytest.mark.parametrize(
    "source", ["[" * 20_000, "**a" * 8000, "`" * 20_001, "https://a.b/" * 2000, "<@1" * 8000, "_a" * 10_000, "1. a\n" * 5000]
)
def test_hostile_texts_cost_little(source: str) -> None:
    """Time grows with the length alone."""
    began = time.process_time()
    pieces = render(source)
    assert time.process_time() - began < 5
    assert max(units(piece.text) for piece in pieces) <= 2000


# ------------------------------------------------------------------------------------------------------------------- right to left


def test_hebrew_keeps_its_order() -> None:
    """A27: nothing of ours stands before a line's words, isolates are paired in each message, code and addresses are untouched."""
    line = "זה \u2067Python\u2069 ו-`x = \u2067y` ב-https://a.example/a_b?"
    pieces = render("\n\n".join(f"{line} {n}?" for n in range(200)))
    assert len(pieces) > 5
    for piece in pieces:
        outside = re.sub(r"`[^`]*`", "", piece.text)
        assert sum(outside.count(c) for c in "\u2066\u2067\u2068") == outside.count("\u2069")
        assert all(words.startswith(("זה", "")) for words in piece.text.split("\n"))
        for words in re.findall(r"`([^`]*)`", piece.text):
            assert words == "x = \u2067y"
        for words in re.findall(r"https\S*?\?", piece.text):
            assert words == "https://a.example/a_b?"
