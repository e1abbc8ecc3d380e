from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.backends.base import Text
from gateway.backends.think import Thoughts


def shown(*deltas: str) -> str:
    thoughts = Thoughts()
    parts = [part for delta in deltas for part in thoughts.feed(delta)] + thoughts.finish()
    return "".join(part.text for part in parts if isinstance(part, Text))


CASES = [
    (("<th", "ink>sec", "ret</thi", "nk>Hello"), "Hello"),
    (("</think>Hello",), "Hello"),
    (("a <b and <think>secret",), "a <b and "),
    (("a <b and <think>secret</think>c",), "a <b and c"),
    (("<think>\nsecret\n</think>\n\nHello",), "Hello"),
    (("<THINK>secret</Think>Hello",), "Hello"),
    (("<thinking>secret</thinking>Hello",), "Hello"),
    (("Before.\n<think>secret</think>\nAfter.",), "Before.\n\nAfter."),
    (("<think>secret</think>one<think>secret</think>two",), "onetwo"),
    (("<think>secret <think> secret</think>Hello</think>!",), "Hello!"),
    (("<thin", " ice"), "<thin ice"),
    (("1 < 2, <thinker> and <", "think"), "1 < 2, <thinker> and <think"),
    (("Use `<think>` for it.",), "Use `<think>` for it."),
    (("Use ``a ` <think>`` for it.",), "Use ``a ` <think>`` for it."),
    (("it`s <think>secret\nsecret</think>Hello",), "it`s Hello"),
    (("it`s <think>secret",), "it`s "),
    (("```html\n<think>\nliteral\n</think>\n```\nDone <think>secret</think>.",), "```html\n<think>\nliteral\n</think>\n```\nDone ."),
    (("- x\n\n   ~~~\n   <think>\n   ~~~\n<think>secret",), "- x\n\n   ~~~\n   <think>\n   ~~~\n"),
    (("> ```\n> <think>\n> ```\n<think>secret",), "> ```\n> <think>\n> ```\n"),
    (("````\n```\n<think>\n```\n````\n<think>secret",), "````\n```\n<think>\n```\n````\n"),
    (("```\na\n```python\n<think>\n```\n<think>secret",), "```\na\n```python\n<think>\n```\n"),
    (("```x``` <think>secret",), "```x``` "),
    (("<think>```secret</think>Hello <think>secret</think>!",), "Hello !"),
    (("```\n<think>never closed",), "```\n<think>never closed"),
    (("text ``` <think>secret\n</think>more",), "text ``` more"),
    (("`<think> " + "x" * 300 + "`",), "`"),
    (("`<think> " + "x" * 100 + "`",), "`<think> " + "x" * 100 + "`"),
    (("",), ""),
    (("<", "<think>secret</think>x"), "<x"),
]


@pytest.mark.parametrize(("deltas", "visible"), CASES)
def test_thoughts_are_hidden_and_code_is_kept(deltas: tuple[str, ...], visible: str) -> None:
    """E14: what is between the tags never shows, the rest is intact, a tag in code is the model's own text. Whole, as given, by letter."""
    text = "".join(deltas)
    assert shown(*deltas) == visible
    assert shown(text) == visible
    assert shown(*text) == visible


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_deltas_do_not_matter(data: st.DataObject) -> None:
    """However a text is cut into deltas, the same of it is visible, and what is visible never has to be taken back."""
    pieces = ["<think>", "</think>", "`", "```", "~~~", "\n", "a", " ", "<", "</th", "- ", "> ", "b`"]
    text = "".join(data.draw(st.lists(st.sampled_from(pieces), max_size=25)))
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=8))
    places = [0, *sorted(cuts), len(text)]
    assert shown(*(text[a:b] for a, b in pairwise(places))) == shown(text)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="abc \n<>`~*-", max_size=80))
def test_text_without_a_tag_is_untouched(text: str) -> None:
    """Nothing is lost and nothing changed, apart from space before the first word."""
    assert shown(*text) == text.lstrip()


def test_a_flood_stays_linear() -> None:
    """Endless backticks, open tags and spans cost time by their length only."""
    began = time.perf_counter()
    for unit in ("`", "<", "``` <think>", "`<think>", "~~", "<think>x</think>`"):
        thoughts = Thoughts()
        for _ in range(20_000):
            thoughts.feed(unit)
        thoughts.finish()
    assert time.perf_counter() - began < 8
