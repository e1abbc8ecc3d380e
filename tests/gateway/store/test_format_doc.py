"""`docs/store-format.md` tells the truth: its lines are lines, its commands work."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from gateway.message import Chat, Foreign, decode_event, decode_header, encode_line
from gateway.records import Foreign as ForeignRecord
from gateway.records import decode_record, encode_record
from gateway.redo import Frame, read_frames

DOC = (Path(__file__).parents[3] / "docs" / "store-format.md").read_text()


def block(kind: str) -> list[bytes]:
    """All lines of the page's blocks of one kind."""
    return [line.encode() + b"\n" for found in re.findall(rf"^```{kind}\n(.*?)^```", DOC, re.S | re.M) for line in found.splitlines()]


def test_session_lines() -> None:
    """Every example line of a session is read as what it says it is, and written again byte for byte."""
    first, *lines = block("jsonl")
    assert encode_line(decode_header(first)) == first
    for line in lines:
        event = decode_event(line)
        assert not isinstance(event, Foreign)
        assert encode_line(event) == line


def test_pointer_lines() -> None:
    """The same for the pointer."""
    for line in block("chat"):
        assert encode_line(msgspec.json.decode(line, type=Chat)) == line


def test_journal_lines() -> None:
    """The same for the journal; every type is among them."""
    records = [decode_record(line) for line in block("journal")]
    assert not any(isinstance(record, ForeignRecord) for record in records)
    assert b"".join(map(encode_record, records)) == b"".join(block("journal"))
    assert len({type(record) for record in records}) == 8


def test_power_log() -> None:
    """The example of a frame is one."""
    head, line = block("power")
    assert read_frames(head + line) == ([Frame("sessions/telegram/12345/main.jsonl", 178, line)], [])


@pytest.mark.skipif(not shutil.which("jq"), reason="no jq here")
def test_commands(tmp_path: Path) -> None:
    """The page's commands run over its own lines, and say something."""
    chat, journal = tmp_path / "data" / "sessions" / "telegram" / "12345", tmp_path / "data" / "journal"
    chat.mkdir(parents=True)
    journal.mkdir()
    cut = b'{"seq":21,"at":"t","role":"assistant","content":"Half an","interrupted":true,"note":"stopped"}\n'
    (chat / "main.jsonl").write_bytes(b"".join(block("jsonl")) + cut)
    (chat / "_chat.jsonl").write_bytes(b"".join(block("chat")))
    (journal / "000001.jsonl").write_bytes(b"".join(block("journal")))
    (journal / "000002.jsonl").write_bytes(block("journal")[0].replace(b"889", b"900"))
    done = subprocess.run(
        ["bash", "-euc", "\n".join(line.decode().rstrip() for line in block("sh")).replace("data/", f"{tmp_path}/data/", 1)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "user: Suppose the key doesn't fit?\n"
        "assistant: The Elder smiles.\n"
        "assistant: Half an\n"
        '{"seq":21,"note":"stopped"}\n'
        "21\n"
        '[\n  {\n    "model": "some-model",\n    "input": 900,\n    "output": 120\n  }\n]\n'
        "west\n"
        "telegram:12345 west West\n"
        '"telegram:7:12345:900"\n'
        '[\n  {\n    "id": "telegram:7:12345:889",\n    "s": 5.5\n  }\n]\n'
        "      1 waiting\n"
    )
