"""Markdown -> safe HTML for the page. Pure; any prefix of a text renders, and nothing in a text can become a script or a request.

What is safe here: no raw HTML passes (it is shown as text), links lead to http, https and mailto only and open apart without a referrer,
pictures are links (a page that loads what a model names tells a stranger's server that it was read), attributes are only those that are
set below. The page's Content-Security-Policy is the second wall, not the first. Called by `channels.web.channel`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from html import unescape

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

PLAIN_ABOVE = 200_000
"""Longer texts are shown as they are: rendering costs about 2 us a character (measured)."""

_SCHEME = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_URL = re.compile(r"\bhttps?://[^\s<>\"'`|\\^{}\[\]]+", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")


def _link_ok(url: str) -> bool:
    """The parser asks this of every address after entities and escapes are resolved; what is refused stays text."""
    return _SCHEME.match(url) is not None and not any(c <= " " or c == "\x7f" for c in url)


def _links(state: StateCore) -> None:
    """Make links of bare addresses, take out those that lead nowhere, and tell pictures that are links already. Behind the inline rules."""
    for block in state.tokens:
        if block.type != "inline" or not block.children:
            continue
        stack: list[bool] = []
        children: list[Token] = []
        for token in block.children:
            if token.type == "link_open":
                stack.append(_link_ok(str(token.attrs.get("href", ""))))
                if not stack[-1]:
                    continue
            elif token.type == "link_close" and stack and not stack.pop():
                continue
            elif token.type == "text" and not any(stack):
                children += _linked(token)
                continue
            elif token.type == "image" and (any(stack) or not _link_ok(str(token.attrs.get("src", "")))):
                token.meta = {"words": True}
            children.append(token)
        block.children = children


def _linked(token: Token) -> list[Token]:
    made: list[Token] = []
    at = 0
    for found in _URL.finditer(token.content):
        url = found[0].rstrip(".,;:!?*_~")
        if url.endswith(")") and url.count("(") < url.count(")"):
            url = url.rstrip(")")
        if not _link_ok(url) or url.endswith("//"):
            continue
        made.append(Token("text", "", 0, content=token.content[at : found.start()]))
        made.append(Token("link_open", "a", 1, attrs={"href": url}))
        made.append(Token("text", "", 0, content=url))
        made.append(Token("link_close", "a", -1))
        at = found.start() + len(url)
    if not made:
        return [token]
    return [*made, Token("text", "", 0, content=token.content[at:])]


class _Renderer(RendererHTML):
    """The HTML of the few tokens that the page wants otherwise than CommonMark has it."""

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A link opens apart, tells nobody where it was clicked, and counts for nothing. The title is left out."""
        return f'<a href="{escapeHtml(str(tokens[idx].attrs.get("href", "")))}" target="_blank" rel="noopener noreferrer nofollow">'

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A picture is a link to it, or its words alone where it stands in a link already or leads nowhere."""
        src = str(tokens[idx].attrs.get("src", ""))
        words = escapeHtml(self.renderInlineAsText(tokens[idx].children, options, env) or src)
        if tokens[idx].meta:
            return words
        return f'<a class="picture" href="{escapeHtml(src)}" target="_blank" rel="noopener noreferrer nofollow">{words}</a>'

    def heading_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Headings of a text stand below the page's own two."""
        return f"<h{min(int(tokens[idx].tag[1]) + 2, 6)}>"

    def heading_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """See `heading_open`."""
        return f"</h{min(int(tokens[idx].tag[1]) + 2, 6)}>\n"

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Tables scroll in a box of their own; a keyboard reaches it."""
        return '<div class="table" tabindex="0"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """See `table_open`."""
        return "</table></div>\n"

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A class for the alignment: the parser would set a style attribute, which the page's policy refuses."""
        return _cell(tokens[idx])

    def td_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """See `th_open`."""
        return _cell(tokens[idx])


def _cell(token: Token) -> str:
    side = str(token.attrs.get("style", "")).removeprefix("text-align:")
    return f'<{token.tag} class="{side}">' if side in ("left", "center", "right") else f"<{token.tag}>"


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}, renderer_cls=_Renderer).enable(["table", "strikethrough"])
    parser.validateLink = _link_ok  # type: ignore[method-assign]  # the parser's documented hook
    parser.core.ruler.push("links", _links)
    return parser


_markdown = _parser()


def to_html(markdown: str) -> str:
    """Safe HTML for a Markdown text."""
    if len(markdown) > PLAIN_ABOVE:
        return f"<pre>{escapeHtml(markdown)}</pre>"
    return str(_markdown.render(markdown))


def visible(markdown: str) -> bool:
    """Whether a person would see anything of it: "****", a zero-width space and "[]()" show nothing."""
    head = markdown if len(markdown) <= 2000 else markdown.strip()[:2000]
    return any(unicodedata.category(c)[0] not in "ZC" for c in unescape(_TAG.sub("", to_html(head))))
