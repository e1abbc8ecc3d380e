"""channels.telegram.render: Markdown to pieces and entities that Telegram takes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from telegram import MessageEntity

from channels.base import Piece
from channels.markup import Parser
from channels.split import blank, units
from channels.telegram.render import LIMITS, entities, render
from tests.channels.markdown import markdown, well_nested


def shown(markdown: str) -> list[tuple[str, str]]:
    """Kind and words of each entity of a text that is one piece, the words found by UTF-16 offsets as Telegram does."""
    (piece,) = render(markdown)
    return [(entity.type, words(piece, entity)) for entity in entities(piece)]


def words(piece: Piece, entity: MessageEntity) -> str:
    return piece.text.encode("utf-16-le")[2 * entity.offset : 2 * (entity.offset + entity.length)].decode("utf-16-le")


def test_offsets_are_utf16_units() -> None:
    """Behind characters of two units the entities still cover their words."""
    assert shown("\U0001f600\U0001f600 **bold \U0001f3a9** and `code`\n\n\U00020000 *x*") == [
        ("bold", "bold \U0001f3a9"),
        ("code", "code"),
        ("italic", "x"),
    ]


def test_all_kinds_have_their_entity() -> None:
    """Each kind of span is the entity of Telegram's; code carries its language, a link its address."""
    (piece,) = render("**b** *i* ~~s~~ `c` [l](https://a.example/x_y)\n\n```py\np\n```\n\n> q")
    found = entities(piece)
    assert [entity.type for entity in found] == ["bold", "italic", "strikethrough", "code", "text_link", "pre", "blockquote"]
    assert (found[4].url, found[5].language) == ("https://a.example/x_y", "py")
    assert [(entity.url, entity.language) for entity in found[:4]] == [(None, None)] * 4


def test_code_holds_nothing_and_stands_in_nothing_but_a_quote() -> None:
    """Bold is cut around code and at a link's borders; a link of code is a link; code in a quote stays."""
    assert shown("**a `b` c [d *e*](https://a.example) f**") == [
        ("bold", "a "),
        ("code", "b"),
        ("bold", "c "),
        ("text_link", "d e"),
        ("bold", "d e"),
        ("italic", "e"),
        ("bold", "f"),
    ]
    assert shown("[`x`](https://a.example)") == [("text_link", "x")]
    assert shown("> `x` **y**") == [("blockquote", "x y"), ("code", "x"), ("bold", "y")]


def test_a_quote_that_begins_with_indented_code_holds_it() -> None:
    """Code keeps its indent, and the quote around it does not cross it."""
    assert shown(">     code\n>       more") == [("blockquote", "code\n  more"), ("pre", "code\n  more")]
    assert shown("> ```\n>   x\n> ```") == [("blockquote", "  x"), ("pre", "  x")]


def test_entities_begin_with_something_visible() -> None:
    """Telegram moves an entity past blanks and drops one of blanks alone; ours are so already."""
    assert shown("a **b\n  c** ` ` d") == [("bold", "b\n  c")]
    assert shown("**`a` b**") == [("code", "a"), ("bold", "b")]


@pytest.mark.parametrize(
    ("address", "linked"),
    [
        ("https://a.example/wiki/Main_Page_(x)?a_b=1&c=2", True),
        ("http://a.example", True),
        ("mailto:me@a.example", True),
        ("tg://resolve?domain=someone", True),
        ("tg://user?id=42", False),
        ("TG://USER?id=42", False),
    ],
)
def test_links_lead_to_the_web_and_ping_nobody(address: str, linked: bool) -> None:
    """Addresses arrive byte-identical; one that stands for a person is text."""
    (piece,) = render(f"see [words]({address}) there")
    assert piece.text == "see words there"
    assert [(entity.type, entity.url) for entity in entities(piece)] == ([("text_link", address)] if linked else [])


def test_a_bare_address_is_untouched() -> None:
    """Telegram finds it by itself, whole."""
    (piece,) = render("see https://example.org/wiki/Main_Page_(x)?a_b=1&c=2.")
    assert (piece.text, entities(piece)) == ("see https://example.org/wiki/Main_Page_(x)?a_b=1&c=2.", [])


def test_tabs_are_four_blanks() -> None:
    """Telegram would make one blank of a tab; spans and places move along."""
    (piece,) = render("```go\nif x {\n\treturn\t1\n}\n```\n**b**")
    assert piece.text == "if x {\n    return    1\n}\nb"
    assert [words(piece, entity) for entity in entities(piece)] == ["if x {\n    return    1\n}", "b"]


@pytest.mark.parametrize("text", ["", " \n\n ", "\u200b", "****", "&nbsp;", "***\n\n---"])
def test_nothing_visible_is_no_piece(text: str) -> None:
    """There is nothing to send for a blank answer."""
    assert render(text) == []


def test_blanks_around_a_message_are_gone() -> None:
    """A piece begins and ends with something visible, so that what is sent is what Telegram keeps."""
    (piece,) = render("&#10; **a** \n\n&#32;")
    assert (piece.text, [words(piece, entity) for entity in entities(piece)]) == ("a", ["a"])


def test_a_long_row_of_links_is_all_there() -> None:
    """300 links come as three messages of 100 links, and markup characters in code count once each."""
    pieces = render(" ".join(f"[l{n}](https://a.example/{n})" for n in range(300)))
    assert [len(entities(piece)) for piece in pieces] == [100, 100, 100]
    assert " ".join(piece.text for piece in pieces) == " ".join(f"l{n}" for n in range(300))
    (code,) = render("```\n" + "&<" * 1950 + "\n```")
    assert code.text == "&<" * 1950


def test_cut_bold_counts_as_the_entities_it_becomes() -> None:
    """Spans are bent to Telegram's rules before they are counted."""
    pieces = render("\n".join("**a `b` c**" for _ in range(40)))
    assert [len(entities(piece)) for piece in pieces] == [99, 21]


def test_right_to_left_text_is_left_alone() -> None:
    """A long Hebrew answer keeps its words, marks, code and addresses; nothing of ours is put in front, and isolates are paired."""
    line = "שלום \u2067Parlour\u2069, ראה `code_x` ב https://a.example/x_(y)?a=1 מה שלומך?"
    pieces = render("\n".join([line] * 120))
    assert len(pieces) > 1
    assert "\n".join(piece.text for piece in pieces) == "\n".join([line.replace("`", "")] * 120)
    for piece in pieces:
        assert piece.text.count("\u2067") == piece.text.count("\u2069")


def test_growth_shows_the_same() -> None:
    """With a parser that remembers, every prefix of an answer gives the pieces that it gives without."""
    text = "# Title\n\nSome **bold** and `code`.\n\n- one\n- two\n\n```py\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    parser = Parser()
    for at in range(len(text) + 1):
        assert render(text[:at], parser.parse) == render(text[:at])


RANK = {"quote": 0, "pre": 1, "code": 1, "link": 1}


@settings(max_examples=200, deadline=None)
@given(markdown(most=80))
def test_telegram_takes_whatever_comes_out(text: str) -> None:
    """Pieces partition the source, hold the limits, and nest as TDLib demands: code in nothing but a quote, no link in a link, no kind in
    itself, none beginning with a blank but code."""
    pieces = render(text)
    assert [piece.start for piece in pieces] == [0, *(piece.end for piece in pieces)][: len(pieces)]
    for piece in pieces:
        assert not blank(piece.text)
        assert units(piece.text) <= LIMITS.units
        assert well_nested(piece.spans, len(piece.text))
        found = entities(piece)
        assert [entity.offset for entity in found] == sorted(entity.offset for entity in found)
        around: list[MessageEntity] = []
        for entity in found:
            while around and around[-1].offset + around[-1].length <= entity.offset:
                around.pop()
            outer = {each.type for each in around}
            assert entity.type not in outer
            assert not outer & {"code", "pre"}
            assert entity.type not in ("code", "pre") or outer <= {"blockquote"}
            assert entity.type not in ("blockquote", "text_link") or outer <= {"blockquote"}
            assert entity.type in ("pre", "blockquote") or words(piece, entity)[0] not in " \n"
            around.append(entity)


# ------------------------------------------------------------------------------------------------------------------------ mentions


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("ask @ana_b or (@Ben99), @x and @" + "n" * 33, ["@ana_b", "@Ben99"]),
        ("mail ana@example.com, see https://medium.com/@ana/why or [@ana](https://a.example/@ana)", []),
        ("`@ana` and\n\n```\n@ben\n```", ["@ana"]),
        ("#tag /help $USD", []),
        ("> @quoted", ["@quoted"]),
        ("[@ana](tg://user?id=42)", ["@ana"]),
        ("\u00e9@ana \u4e2d@ben @cec\u00e9", []),
    ],
)
def test_nobody_is_pinged(text: str, codes: list[str]) -> None:
    """What the server would take for a mention goes out as code, not a character of it changed; what it would not is left alone."""
    assert [said for kind, said in shown(text) if kind == "code"] == codes


def test_a_mention_cuts_what_stands_around_it() -> None:
    """Code stands in nothing but a quote."""
    assert shown("**hello @ana, *you* there**") == [("bold", "hello "), ("code", "@ana"), ("bold", ", you there"), ("italic", "you")]


def test_a_plain_copy_pings_nobody_either() -> None:
    """What goes out without its formatting, since Telegram refused it, is looked through as well."""
    piece = Piece("**hi** @ana, see http://a.example/@b")
    assert [(entity.type, words(piece, entity)) for entity in entities(piece)] == [("code", "@ana")]


def test_many_mentions_are_within_what_one_message_may_hold() -> None:
    """Three hundred names are three hundred codes in as many messages as that takes: none is dropped for being the hundred and first."""
    pieces = render(" ".join(f"@name{n}" for n in range(300)))
    assert sum(len(entities(piece)) for piece in pieces) == 300
    assert all(len(entities(piece)) <= LIMITS.spans for piece in pieces)
