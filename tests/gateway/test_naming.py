"""gateway.naming: from what people type to what a session is called."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.message import NAME
from gateway.naming import free_name, slug


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Über West!", "uber-west"),
        ("West", "west"),
        ("  a  b  ", "a-b"),
        ("chat-2", "chat-2"),
        ("Straße 7", "strasse-7"),
        ("", "chat"),
        (" \n", "chat"),
    ],
)
def test_a_title_becomes_a_name(title: str, name: str) -> None:
    """Lower case, accents off, everything else a dash."""
    assert slug(title) == name


@given(st.text(max_size=80))
@example("../../evil")
@example("/tmp/evil")
@example("a/../../b")
@example(".hidden")
@example("CON\n\0")
@example("..")
@example("\ud800")
def test_whatever_is_typed_becomes_a_name_and_never_a_path(title: str) -> None:
    """D12: every title gives a name of [a-z0-9-]{1,40}, the same each time, and a name gives itself."""
    name = slug(title)
    assert NAME.fullmatch(name)
    assert slug(title) == name
    assert slug(name) == name


def test_titles_in_other_scripts_do_not_become_one_name() -> None:
    """What cannot be spelled in a name still counts: such titles have names of their own, in any normal form."""
    titles = ["Запад", "Восток", "東京", "🎉", "Запад 2", "Восток 2", "x" * 41, "x" * 42]
    assert len({slug(title) for title in titles}) == len(titles)
    assert slug("é") == slug("e\u0301")


@pytest.mark.parametrize(
    ("existing", "name"),
    [
        ((), "chat-2"),
        (("main",), "chat-2"),
        (("main", "chat-2", "chat-9", "chat-x", "chat-3-b"), "chat-10"),
        ((f"chat-{'9' * 35}",), "chat-2"),
    ],
)
def test_numbered_names_go_on_behind_the_last(existing: tuple[str, ...], name: str) -> None:
    """A number is not used again as long as a later one is there, and odd names do not disturb."""
    assert free_name(existing) == name
