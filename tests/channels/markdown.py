"""Texts that look like Markdown gone wrong, for properties; and what must hold for spans. No tests of its own."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from channels.base import Span

_GLUE = [
    *(
        "*",
        "**",
        "***",
        "_",
        "__",
        "`",
        "``",
        "~~",
        "[",
        "](",
        "](https://x.example/a_b)",
        ")",
        "(",
        "![",
        "<",
        ">",
        "&amp;",
        "&",
        "\\",
        "!",
        ":",
    ),
    *(
        "https://e.example/a_b*c",
        "$$",
        "\\(",
        "\\)",
        "\\[\n",
        "\\]",
        "|",
        "| a | b |\n|---|---|\n",
        "|---|---|\n",
        "```",
        "```py\n",
        "~~~",
        "$$\n",
    ),
    *("> ", "- ", "+ ", "1. ", "2) ", "# ", "    ", "  ", " ", "\t", "\n", "\n\n", "\r\n", "\r", "***\n", "---\n", "===\n"),
    *("\u200b", "\u2067", "\u2069", "\U0001f600", "\U0001f1e9\U0001f1ea", "中文。", "שלום?", " \u0301", "é", "\u00a0"),
]


@st.composite
def markdown(draw: st.DrawFn, most: int = 60) -> str:
    """Marks of all kinds around words that are all different: w0z w1z ..."""
    parts = draw(st.lists(st.one_of(st.none(), st.sampled_from(_GLUE)), max_size=most))
    return "".join(f"w{i}z" if part is None else part for i, part in enumerate(parts))


def well_nested(spans: Sequence[Span], length: int) -> bool:
    """Sorted, inside the text, not empty, and no two across each other."""
    ends: list[int] = []
    last = (0, -length)
    for span in spans:
        if not 0 <= span.start < span.end <= length or (span.start, -span.end) < last:
            return False
        last = (span.start, -span.end)
        while ends and ends[-1] <= span.start:
            ends.pop()
        if ends and ends[-1] < span.end:
            return False
        ends.append(span.end)
    return True
