"""channels.dialect: where our Markdown differs from CommonMark, seen through what is shown of it."""

from __future__ import annotations

import time

import pytest

from channels.markup import parse


def shown(markdown: str) -> list[tuple[str, str]]:
    """The visible text, then kind and words of each span."""
    rich = parse(markdown)
    return [("", rich.text), *((span.kind, rich.text[span.start : span.end]) for span in rich.spans)]


@pytest.mark.parametrize(
    "text",
    [
        "call user_id_field, MAX_RETRY_COUNT and __init__ now",
        "__init__",
        "obj.__class__.__name__ == '__main__'",
        "__FILE__ and __LINE__, snake_case_ and _leading",
        "2*3*4 is 24, 2**3**2 is 512, f*g*h",
        "def f(*args, **kwargs): ...",
        "char *p, **q; p = *q;",
        "*.py and *.txt",
    ],
)
def test_identifiers_and_operators_are_shown_as_written(text: str) -> None:
    """Underscores in names, dunder names, stars of arithmetic and of signatures are text: nothing goes and nothing is slanted."""
    assert shown(text) == [("", text)]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("**B**old and *it*", [("bold", "B"), ("italic", "it")]),
        ("__two words__ and _one_", [("bold", "two words"), ("italic", "one")]),
        ("**注意：**请看", [("bold", "注意：")]),
        ("请看**「重点」**了", [("bold", "「重点」")]),
        ("**call `__init__` or __init__**", [("bold", "call __init__ or __init__"), ("code", "__init__")]),
        ("~~gone~~", [("strike", "gone")]),
    ],
)
def test_emphasis_that_is_meant_is_seen(text: str, spans: list[tuple[str, str]]) -> None:
    """Emphasis works around words, at the start of words, and beside the punctuation of scripts that put no blanks between words."""
    assert shown(text)[1:] == spans


@pytest.mark.parametrize(
    "address",
    [
        "https://example.org/wiki/Main_Page_(x)?a_b=1&c=2",
        "http://example.org/__init__/*/~user/~~x",
        "https://example.org/a\\_b&amp;c",
    ],
)
def test_a_bare_address_is_passed_over_whole(address: str) -> None:
    """Underscores, parentheses, stars, escapes and entities in an address that stands in the text stay as they are."""
    assert parse(f"see {address}. And on.").text == f"see {address}. And on."


def test_markup_around_a_bare_address_still_works() -> None:
    """An address ends where markup around it closes."""
    assert shown("**https://a.example/b_c**, *https://a.example* [https://a.example/d_e](https://b.example)") == [
        ("", "https://a.example/b_c, https://a.example https://a.example/d_e"),
        ("bold", "https://a.example/b_c"),
        ("italic", "https://a.example"),
        ("link", "https://a.example/d_e"),
    ]


def test_the_address_of_a_link_is_byte_identical() -> None:
    """Nothing is percent-encoded, lowered or turned into punycode."""
    address = "https://Bücher.example/Wiki_(x)/ü?a_b=%C3%BC&c=2"
    (span,) = parse(f"[t]({address})").spans
    assert (span.kind, span.value) == ("link", address)


@pytest.mark.parametrize(
    "text",
    [
        "f[i](x) + g[0](y)",
        "[a](javascript:alert)",
        "[x]()",
        "![x]()",
        "a[<int>]() and f[*b]()",
        "[x](",
        "![y](z.png)",
        "[file](./docs/a.md)",
        "[1]: https://a.example",
    ],
)
def test_brackets_that_are_no_link_are_text(text: str) -> None:
    """What leads nowhere a chat can go stays as it was written, a definition included."""
    assert shown(text) == [("", text)]


@pytest.mark.parametrize("text", ["List<int> and <b>x</b>", "<script>\nalert(1)\n</script>", "<!-- note -->", "5 < 6 && 7 > 3"])
def test_html_is_text(text: str) -> None:
    """Tags are shown, never taken for markup and never dropped."""
    assert shown(text) == [("", text)]


def test_a_line_of_dashes_is_never_an_underlined_heading() -> None:
    """A text that grows from "text" over "text, newline, dash" to a list is not bold in between."""
    assert shown("Things:\n-") == [("", "Things:\n-")]
    assert shown("text\n---\nmore") == [("", "text\n———\nmore")]


@pytest.mark.parametrize(
    "text",
    [
        "$$\na_1 = b_1 \\\\\n- c\n+ d\n$$",
        "\\[\n  \\frac{a}{b} * c * d\n\\]",
        "so \\(a_b + c_d\\) and \\[x^2\\] and $$e^{i\\pi}$$ hold",
        "$$\nnever closed *a*",
    ],
)
def test_tex_is_left_alone(text: str) -> None:
    """Formulas in a line or in lines of their own keep every backslash, star and dash."""
    assert shown(text) == [("", text)]


def test_escapes_are_taken_out() -> None:
    """A backslash before punctuation is markup where it is not TeX."""
    assert parse("1\\. \\*a\\* \\(approx\\.\\) \\[x\\]").text == "1. *a* (approx.) [x]"


def test_a_table_ends_where_its_rows_do() -> None:
    """Prose with pipes right behind a table is not a row of it, nor is a spoiler."""
    table = "| a | b | c |\n|---|---|---|\n| 1 | 2 | 3 |\n"
    assert shown(table + "foo | bar\n||secret||")[0][1].split("\n")[2:] == ["1 │ 2 │ 3", "foo | bar", "||secret||"]
    assert shown(table + "||secret||")[0][1].split("\n")[2:] == ["1 │ 2 │ 3", "||secret||"]
    assert shown("a | b\n--- | ---\n1 | 2\nand so on")[0][1].split("\n")[2:] == ["1 │ 2", "and so on"]


@pytest.mark.parametrize("text", ["foo | bar", "||secret||", "a | b\nc | d", "|-|", "cat x | sort | uniq"])
def test_pipes_alone_make_no_table(text: str) -> None:
    """Without a row of dashes a pipe is a pipe."""
    assert shown(text) == [("", text)]


def test_no_cell_is_dropped() -> None:
    """Cells beyond the head's columns stand in the last one."""
    assert parse("| a | b |\n|---|---|\n| 1 | x || y | z |").text.endswith("1 │ x | | y | z")


def test_deep_nesting_is_text_and_loses_nothing() -> None:
    """Quotes and lists beyond the depth that we follow are shown, and so is all that comes behind them."""
    quotes = "\n".join(">" * depth + f" w{depth}z" for depth in range(1, 60))
    items = "\n".join("  " * depth + f"- v{depth}z" for depth in range(60))
    text = parse(f"{quotes}\n\n{items}\n\nthe end").text
    assert all(f"w{depth}z" in text for depth in range(1, 60))
    assert all(f"v{depth}z" in text for depth in range(60))
    assert text.endswith("the end")


@pytest.mark.parametrize(
    "unit",
    [
        "[",
        "![",
        "*",
        "a**",
        "_a ",
        "__a",
        "*a _b ",
        "`a``b",
        "> ",
        ">",
        "- ",
        "[a](",
        "<a:",
        "&#",
        "~~a",
        "a\n",
        "- a\n",
        "\\(",
        "$$\n",
        "$$a",
        "```\n",
        "http://**",
        *("| a ", "|-", "\u200b", "\r", "\t", "# a\n", "1. a\n\n\n", "> ```\n", "a | b\n-|-\n"),
    ],
)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    """Twenty times the text takes not much more than twenty times as long, whatever is repeated, and nothing raises."""

    def seconds(text: str) -> float:
        start = time.process_time()
        parse(text)
        return time.process_time() - start

    small, large = unit * (1_000 // len(unit)), unit * (20_000 // len(unit))
    once = min(seconds(small) for _ in range(3))
    # Four hundred times, if it were quadratic; the rest is room for a machine that is busy.
    assert min(seconds(large) for _ in range(2)) < 120 * once + 0.1
