"""Markdown to HTML that is safe to put into the page: `channels.web.html`."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.web.html import PLAIN_ABOVE, to_html, visible

TAGS = {
    "p",
    "br",
    "strong",
    "em",
    "s",
    "code",
    "pre",
    "a",
    "ul",
    "ol",
    "li",
    "blockquote",
    "hr",
    "div",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
}
TAGS |= {"h3", "h4", "h5", "h6"}
ATTRIBUTES = {
    ("a", "href"),
    ("a", "target"),
    ("a", "rel"),
    ("a", "class"),
    ("code", "class"),
    ("ol", "start"),
    ("div", "class"),
    ("div", "tabindex"),
}
ATTRIBUTES |= {("th", "class"), ("td", "class")}


class Inspector(HTMLParser):
    """Refuses whatever is not on the list."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        for name, value in attrs:
            assert (tag, name) in ATTRIBUTES, (tag, name)
            if name == "href":
                self.links.append(value or "")
                assert (value or "").lower().startswith(("http://", "https://", "mailto:")), value
        if tag == "a":
            assert dict(attrs)["rel"] == "noopener noreferrer nofollow"
            assert dict(attrs)["target"] == "_blank"

    def handle_data(self, data: str) -> None:
        self.words += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl}")


def inspect(markdown: str) -> Inspector:
    seen = Inspector()
    seen.feed(to_html(markdown))
    seen.close()
    return seen


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<!-- --><iframe src=javascript:alert(1)>",
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt:alert(1))",
    "[a](java\tscript:alert(1))",
    "[a](&#106;avascript:alert(1))",
    "[a](<javascript:alert(1)>)",
    "[a](\x01javascript:alert(1))",
    "[a](data:text/html;base64,PHNjcmlwdD4=)",
    "[a](vbscript:x) [b](file:///etc/passwd) [c](blob:x) [d](//evil.example) [e](/api/say) [f](#x) [g](?token=1)",
    "<javascript:alert(1)> <data:text/html,x>",
    "![x](javascript:alert(1)) ![y](data:image/svg+xml,<svg/onload=alert(1)>)",
    '![x](https://e.example/a.png"onerror="alert(1))',
    '[a](https://e.example/"onmouseover="alert(1) "t\\" onclick=\\"x")',
    "[a]: javascript:alert(1)\n\n[a] [a][] ![a]",
    '```"><script>alert(1)</script>\nx\n```',
    '```js" onload="x\nx\n```',
    '|<b>a</b>|`<i>`|\n|:-:|-|\n|<script>|"|',
    'https://e.example/"><script>alert(1)</script>',
    "https://e.example/'onclick=x",
    "`<script>` **<b onclick=x>** ~~</p><script>~~",
    "&lt;script&gt; &#60;script&#62;",
    "[![x](https://i.example/a.png)](https://l.example)",
    "\u2028<script>\u2029",
    "\0<script\0>",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_a_text_becomes_a_script_or_a_request(text: str) -> None:
    """Only the listed tags and attributes come out, links lead to http, https and mailto, and no picture is loaded."""
    inspect(text)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from([*HOSTILE, "[", "](", ")", "<", ">", '"', "javascript:", "https://", "`", "\n", "|", "*", "![", "&#", "x", " "]),
        max_size=12,
    )
)
def test_no_mixture_is_unsafe(parts: list[str]) -> None:
    """Pieces of hostile texts, put together in any way and cut anywhere, stay text."""
    text = "".join(parts)
    inspect(text)
    inspect(text[: len(text) * 2 // 3])


def test_a_text_is_shown_as_meant() -> None:
    """Markdown's usual forms come out, line breaks count, addresses are links, markup of the source is not seen."""
    seen = inspect(
        "**Sure!** call `user_id_field` and __init__\nsee https://a.example/x_(y). ([t](https://b.example))\n\n| a |\n|--:|\n| 1 |"
    )
    assert seen.links == ["https://a.example/x_(y)", "https://b.example"]
    assert "Sure! call user_id_field and" in seen.words
    html = to_html("a\nb")
    assert html == "<p>a<br />\nb</p>\n"
    assert '<td class="right">1</td>' in to_html("| a |\n|--:|\n| 1 |")
    assert to_html("# One\n###### Six") == "<h3>One</h3>\n<h6>Six</h6>\n"


def test_a_picture_is_a_link_to_it() -> None:
    """What a model names is not fetched by the page; the words or the address are there to click."""
    assert inspect("![a cat](https://i.example/c.png)").links == ["https://i.example/c.png"]
    assert inspect("![](https://i.example/c.png)").words.strip() == "https://i.example/c.png"
    assert inspect("[![a cat](https://i.example/c.png)](https://l.example)").links == ["https://l.example"]


def test_a_huge_text_is_shown_plain() -> None:
    """Where rendering would take long the source is shown, escaped."""
    html = to_html("**<b>**" * (PLAIN_ABOVE // 7 + 1))
    assert html.startswith("<pre>**&lt;b&gt;**")


@pytest.mark.parametrize("text", ["", " \n\n ", "****", "\u200b", "[]()", "---", "```\n```", "&nbsp;", "\u2060\ufeff", "> ", "- "])
def test_what_shows_nothing_is_not_visible(text: str) -> None:
    """Blank in every form: such a text is never sent."""
    assert not visible(text)


@pytest.mark.parametrize("text", ["x", "…", "**", "🎉", "![](https://i.example)", "`a`", "<b>", " " * 3000 + "x"])
def test_what_shows_something_is_visible(text: str) -> None:
    """A placeholder, a picture, an unfinished mark: something is there to see."""
    assert visible(text)
