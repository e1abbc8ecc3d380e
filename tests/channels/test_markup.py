"""channels.markup, channels.blocks and channels.inlines: Markdown to visible text, spans and places in the source."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.blocks import read
from channels.markup import Parser, Rich, parse
from tests.channels.markdown import markdown, well_nested


def spans(rich: Rich) -> list[tuple[str, str, str]]:
    return [(span.kind, rich.text[span.start : span.end], span.value) for span in rich.spans]


# ------------------------------------------------------------------------------------------------------------------- what is shown


def test_lists_keep_numbers_order_and_indent() -> None:
    """Numbers stand as written, bullets become dots, and deeper items have more blanks in front."""
    assert parse("1. one\n2. two\n   - a\n   - b\n     * c\n10) ten").text == "1. one\n2. two\n   • a\n   • b\n     • c\n10) ten"


def test_what_is_indented_too_little_to_be_nested_still_looks_nested() -> None:
    """Two blanks under a number make no nested list in CommonMark; the reader sees the indent all the same."""
    assert parse("1. one\n  - a\n  - b\n2. two").text == "1. one\n  • a\n  • b\n2. two"


def test_pros_stay_apart_from_cons() -> None:
    """A list marked by plus signs keeps them."""
    assert parse("+ cheap\n+ quick\n- loud").text == "+ cheap\n+ quick\n• loud"


def test_blank_lines_are_kept_as_one() -> None:
    """Blocks are as far apart as in the source: not at all, or by one blank line."""
    assert parse("# H\ntext\n\n\n\nmore\n- a\n\n- b\n\n  c\n\n***\n\nend").text == "H\ntext\n\nmore\n• a\n\n• b\n\n  c\n\n———\n\nend"


def test_line_breaks_and_indents_of_prose_stay() -> None:
    """Soft and hard breaks are line breaks, and a line keeps its indent, as in a poem."""
    assert parse("Analysis\n continues  \nhard\\\nbreak").text == "Analysis\n continues\nhard\nbreak"


def test_headings_are_bold_once() -> None:
    """A heading is one bold span, whatever is bold in it."""
    assert spans(parse("## A **b** *c*")) == [("bold", "A b c", ""), ("italic", "c", "")]


def test_crossing_emphasis_nests() -> None:
    """Overlapping stars and underscores come out well nested, and what does not fit stays text."""
    rich = parse("***both* one** and **b _i** j_ k")
    assert rich.text == "both one and b _i j_ k"
    assert spans(rich) == [("bold", "both one", ""), ("italic", "both", ""), ("bold", "b _i", "")]


def test_code_keeps_its_lines_and_language() -> None:
    """A fence is `pre` with its first word as language; lines, indents and blank lines are as written, in a list too."""
    rich = parse("Do:\n\n1. x\n   ```py title\n   def f():\n\n       return\n   ```\n\n~~~\n\tq\n~~~\n\n    indented\n      code")
    assert rich.text == "Do:\n\n1. x\ntitle\ndef f():\n\n    return\n\n\tq\n\nindented\n  code"
    assert spans(rich) == [("pre", "def f():\n\n    return", "py"), ("pre", "\tq", ""), ("pre", "indented\n  code", "")]


def test_fences_in_fences_lose_nothing() -> None:
    """A longer fence holds shorter ones; with fences of one length each line is still there, in order."""
    inner = "```python\nprint(1)\n```"
    assert spans(parse(f"````markdown\nbefore\n{inner}\nafter\n````")) == [("pre", f"before\n{inner}\nafter", "markdown")]
    text = parse(f"```markdown\nbefore\n{inner}\nafter\n```").text
    assert re.findall(r"before|```python|print\(1\)|after", text) == ["before", "```python", "print(1)", "after"]


def test_quotes_are_spans_and_deeper_ones_are_marked() -> None:
    """One quote span around all, and "> " in front of what is quoted deeper."""
    rich = parse("> a\n> > b\n> > c\n>\n> d\n\nend")
    assert rich.text == "a\n> b\n> c\n\nd\n\nend"
    assert spans(rich) == [("quote", "a\n> b\n> c\n\nd", "")]


def test_images_are_links() -> None:
    """An image is a link of its words, or of its address where it has none; inside a link only the words are left."""
    rich = parse("![cat](https://a.example/c.png) ![](https://a.example/d.png) [![go](https://a.example/b.svg)](https://b.example)")
    assert rich.text == "cat https://a.example/d.png go"
    assert [(kind, value) for kind, _, value in spans(rich)] == [
        ("link", "https://a.example/c.png"),
        ("link", "https://a.example/d.png"),
        ("link", "https://b.example"),
    ]


def test_tables_are_monospaced() -> None:
    """A table is one `pre` of equal columns with every cell's words once: a pipe, a link with its address, an empty cell."""
    table = "| name | what | n |\n|:---|---|--:|\n| `x\\|y` | [docs](https://a.example/d) | |\n| **bold** | b | 10 |"
    rich = parse(f"{table}\n\nfoo | bar\n||secret||")
    assert rich.text.split("\n") == [
        "name │ what                       │  n",
        "─────┼────────────────────────────┼───",
        "x|y  │ docs (https://a.example/d)",
        "bold │ b                          │ 10",
        "",
        "foo | bar",
        "||secret||",
    ]
    assert [kind for kind, _, _ in spans(rich)] == ["pre"]


@pytest.mark.parametrize(
    "text",
    [
        "use _ as prefix",
        "a*b",
        "open ` tick",
        "[x](",
        "5 < 6 && 7 > 3",
        "price (approx.) - 10% !",
        "```",
        "```py",
        "a lone\n```",
        "**",
        "~~",
        *("-", "+", "*", "#", "###", ">", "1.", "|", "\\", "_", "~~~", "$$", "![", "**a", "`a", "```\n```"),
    ],
)
def test_markup_that_is_not_closed_or_holds_nothing_is_text(text: str) -> None:
    """Lone marks are shown as they are, since they may be the answer."""
    rich = parse(text)
    assert rich.text == text.rstrip()
    assert [kind for kind, _, _ in spans(rich) if kind != "bold"] == []


@pytest.mark.parametrize("text", ["", " \n\n ", "****", "---", "\n***\n\n___\n"])
def test_nothing_is_nothing(text: str) -> None:
    """Blanks, empty emphasis and rules between nothing show nothing."""
    assert parse(text).text == ""


def test_direction_is_left_to_the_text() -> None:
    """Right-to-left text gets nothing of ours in front of it but a list's mark, which has no direction."""
    text = "שלום Parlour, `code` https://a.example/x?\n\n- מה שלומך?"
    assert parse(text).text == "שלום Parlour, code https://a.example/x?\n\n• מה שלומך?"


# ---------------------------------------------------------------------------------------------------------------------- properties


@settings(max_examples=150, deadline=None)
@given(markdown())
def test_no_word_is_lost_or_moved(text: str) -> None:
    """Every word of the source is shown once and in order, but for a fence's language."""
    languages = re.findall(r"w\d+z", " ".join(re.findall(r"(?:```|~~~)[`~]*[ \t]*([\w+#./-]+)", text)))
    expected = [word for word in re.findall(r"w\d+z", text) if word not in languages]
    assert [word for word in re.findall(r"w\d+z", parse(text).text) if word not in languages] == expected


@settings(max_examples=150, deadline=None)
@given(markdown())
def test_spans_nest_and_places_grow(text: str) -> None:
    """Spans never cross, and the way back to the source is monotone and stays within it."""
    rich = parse(text)
    assert well_nested(rich.spans, len(rich.text))
    places = [rich.source(at) for at in range(len(rich.text) + 1)]
    assert places == sorted(places)
    assert all(0 <= place <= len(text) for place in places)


@settings(max_examples=100, deadline=None)
@given(markdown())
def test_words_lead_back_to_where_they_stand(text: str) -> None:
    """The place of a shown word is never behind the word in the source, and close before it; in a table it is in the word's row."""
    rich = parse(text)
    for match in re.finditer(r"w\d+z", rich.text):
        there = text.index(match[0])
        row = re.search(r"\Z|[\r\n]", text[there:])
        assert row
        slack = row.start() if "|" in text else 0
        assert rich.source(match.start()) <= there + slack
        assert match.start() == 0 or rich.source(match.end()) <= there + len(match[0]) + 40


@settings(max_examples=80, deadline=None)
@given(markdown(), st.randoms(use_true_random=False))
def test_a_growing_text_is_read_like_a_whole_one(text: str, rng: random.Random) -> None:
    """Whatever prefixes of whatever texts it is given, the parser that remembers answers like the one that does not; none raises."""
    parser = Parser(texts=2)
    at = 0
    while at < len(text):
        at = min(len(text), at + rng.randrange(1, 7))
        assert parser.parse(text[:at]) == parse(text[:at])
        if rng.random() < 0.1:
            other = text[at // 2 : at]
            assert parser.parse(other) == parse(other)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_any_text_at_all_is_taken(text: str) -> None:
    """Controls, lone surrogates, unassigned characters: nothing raises."""
    rich = parse(text)
    assert well_nested(rich.spans, len(rich.text))


@pytest.mark.parametrize(
    "text",
    [
        "*para\n#hash* goes on",
        "para\n# heading\nmore",
        "*words\na | b\n|---|---|x* and on",
        "words\na | b\n|---|---|\n| 1 | 2 |\nend",
        "1. a\n\n2. b\n\n3 is no item",
        "- a\n\n  still a\n\n-b",
        "`para\n- item\n--` no item",
        "*para\n```a ` b* code\n\n```\ncode\n``` no end\n```\nafter",
        "*para\n$$\nx\n$$\n*after\n$$ y*",
        "> a\nlazy\n>b\n\nend\n>",
        "a\r\n\r\nb\rc\r\r\n- d\r\n\r\n\r\n- e",
        "a\n\n***\n\nb\n\n---\n",
        "**a\n***b** c\n* * *\n* * c",
        "*a\n1.b* c",
        "~~a\n>\tb",
        "a\n    b\n\n    c\n\n\n    d\ne",
    ],
)
def test_a_last_line_may_still_undo_what_it_ended(text: str) -> None:
    """Fed one character at a time, a line that ends a block while it is short, and does not once it is longer, is read right each time."""
    parser = Parser()
    for at in range(len(text) + 1):
        assert parser.parse(text[:at]) == parse(text[:at])


def test_a_growing_text_costs_what_is_new() -> None:
    """With twenty paragraphs settled, the parser reads the last ones only."""
    parser = Parser()
    text = "".join(f"Paragraph {i} with **bold** words.\n\n" for i in range(20))
    parser.parse(text)
    (head,) = parser._known
    assert len(text) - len(head) < 100


@given(st.text(st.sampled_from("aZé東1 ,.;:!?'\"()#%/+-–—’“”…*_~`[]<>&|\\\n\t$@={}"), max_size=30))
@settings(max_examples=500, deadline=None)
def test_a_line_is_read_as_the_parser_would(text: str) -> None:
    """The short way for a line without markup gives what the parser gives, for whatever looks like one."""
    blocks, _ = read(text, 0)
    if len(blocks) == 1 and not blocks[0].rule:
        whole = Rich(blocks[0].text, blocks[0].spans, blocks[0].marks, len(text))
        assert parse(text) == whole
        assert Parser().parse(text) == whole
