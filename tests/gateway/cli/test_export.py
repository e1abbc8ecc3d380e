"""A conversation as Markdown: what counts of it, whoever wrote it and however its file looks."""

from __future__ import annotations

from gateway.cli.export import markdown
from gateway.message import Header, Media, Message, Parent, Person, ToolCall, Undo, encode_line

HEADER = Header(
    v=1,
    key="telegram:42",
    name="west",
    title="West of \x1b[2Jhere",
    created="2026-11-29T10:00:00.000Z",
    parent=Parent("telegram:42", "main", 4),
)


def lines(*events: Message | Undo) -> list[bytes]:
    return [encode_line(HEADER), *(encode_line(event) for event in events)]


def user(seq: int, text: str, name: str = "Ana", **more: object) -> Message:
    return Message(seq=seq, at="2026-11-29T10:00:01.000Z", role="user", content=text, from_=Person("42", name), **more)  # type: ignore[arg-type]


def bot(seq: int, text: str, **more: object) -> Message:
    return Message(seq=seq, role="assistant", content=text, model="m", **more)  # type: ignore[arg-type]


def test_markdown() -> None:
    """A heading a message, texts as they were written, in order; what was taken back is left out."""
    told = "".join(
        markdown(
            lines(
                user(1, "# hello\n\nthere", name="An\x1ba\n"),
                bot(2, "*hi*"),
                user(3, "off"),
                bot(4, "off the table"),
                Undo(seq=5, at="", to=2),
                user(6, "", media=(Media("photo"),)),
                bot(7, "", tool_calls=(ToolCall("c1", "look", {}),)),
                Message(seq=8, role="tool", content="seen", tool_call_id="c1", name="look"),
                bot(9, "half", interrupted=True, note="(stopped)"),
            ),
            "west",
        )
    )
    assert told.startswith(
        "# West of \N{REPLACEMENT CHARACTER}[2Jhere\n\n`telegram:42`, session `west`, a fork of `main`, made 2026-11-29 "
    )
    parts = [part.strip().split("\n", 1) for part in told.split("\n## ")[1:]]
    assert [part[0].split(",")[0] for part in parts] == [
        "An\N{REPLACEMENT CHARACTER}a\N{REPLACEMENT CHARACTER} (42)",
        "m",
        "Ana (42)",
        "m",
        "tool look",
        "m",
    ]
    assert [part[1].strip() for part in parts] == ["# hello\n\nthere", "*hi*", "(photo)", "(asks for look)", "seen", "half\n\n(stopped)"]


def test_the_words_of_attached_files() -> None:
    """They are a part of what was said: the model answered to them."""
    told = "".join(markdown(lines(user(1, "look", media=(Media("file", "a.txt", text="```\nx"), Media("photo")))), "west"))
    assert told.endswith(
        "\nlook\n\n(file, photo)\n\n[Attached file a.txt:]\n````\n```\nx\n````\n[End of file a.txt; that was all of it.]\n"
    )


def test_damaged_lines_and_a_mark_of_an_editor() -> None:
    """Passed over, as everywhere."""
    damaged = [
        b"\xef\xbb\xbf" + encode_line(HEADER),
        b"no JSON\n",
        b'{"seq":1,"role":"user"}\n',
        b"\n",
        encode_line(user(2, "hello")),
        b'{"tor',
    ]
    assert "".join(markdown(damaged, "west")).count("\n## ") == 1


def test_an_empty_conversation() -> None:
    """Its heading."""
    assert "".join(markdown(lines(), "west")).count("\n") == 3
