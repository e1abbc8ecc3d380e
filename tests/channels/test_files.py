"""`channels.files`: which attached files count as text."""

from __future__ import annotations

import pytest

from channels.base import Attachment
from channels.files import is_text, readable


@pytest.mark.parametrize(
    ("name", "mime"),
    [
        ("message.txt", "text/plain; charset=utf-8"),
        ("notes.MD", "application/octet-stream"),
        ("main.py", "text/x-python"),
        ("a.json", ""),
        ("table.csv", "application/vnd.ms-excel"),
        ("view.ts", "video/mp2t"),
        ("Dockerfile", ""),
        ("", "text/plain"),
        ("data", "application/json"),
        ("feed", "application/atom+xml; charset=utf-8"),
        (".env", "application/octet-stream"),
    ],
)
def test_text_is_known_by_its_ending_or_its_type(name: str, mime: str) -> None:
    """Whatever the sender's program took it for."""
    assert is_text(name, mime)


@pytest.mark.parametrize(
    ("name", "mime"),
    [
        ("a.pdf", "application/pdf"),
        ("a.png", "image/png"),
        ("a.zip", "application/zip"),
        ("letter.rtf", "text/rtf"),
        ("letter.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("program", "application/octet-stream"),
        ("txt.exe", ""),
        ("", ""),
    ],
)
def test_nothing_else_is(name: str, mime: str) -> None:
    """It is not fetched."""
    assert not is_text(name, mime)


def test_only_files_are_read() -> None:
    """A picture or a recording is none, however it is called."""
    assert readable(Attachment("file", "r", "a.txt"))
    assert not readable(Attachment("photo", "r", "a.txt", "text/plain"))
    assert not readable(Attachment("voice", "r", "a.txt"))
