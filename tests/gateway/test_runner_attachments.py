"""Text files on their way through a turn: to the model, into the session, and what the person hears of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from channels.base import Attachment, Inbound, TooLarge
from gateway.attachments import NOT_TEXT, TOO_LARGE
from tests.gateway.core import Core, down, until


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    async with Core(tmp_path) as core:
        yield core


def asks(core: Core, text: str = "what is it?", *refs: str, chat: str = "1") -> Inbound:
    """A message with text files of these refs."""
    return core.inbound(text, chat=chat, attachments=tuple(Attachment("file", ref, f"{ref}.txt", "text/plain", 9) for ref in refs))


def user_lines(core: Core, name: str = "main") -> list[dict[str, Any]]:
    path = core.folder / "sessions" / "net" / "1" / f"{name}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if line.get("role") == "user"]


async def test_the_model_reads_all_of_it_now_and_later(core: Core) -> None:
    """The words stand in the session, marked as a file's, so that a later turn, a retry and a fork have them; fetched once."""
    core.net.files["paste"] = b"word " * 1200 + b"\nCODEWORD: heron"
    for answer in ("heron", "heron again", "still heron"):
        core.model.then(answer)
    await core.router.accept([asks(core, "what is the codeword?", "paste")])
    await core.quiet()
    for command in ("/retry", "/fork west", "and now?"):
        await core.ask(command)
    told = [request[0][1] for request in core.model.asked]
    assert len(told) == 3
    for words in told:
        assert words.startswith("[Attached file paste.txt:]\n```\nword ")
        assert words.endswith("CODEWORD: heron\n```\n[End of file paste.txt; that was all of it.]\n\nwhat is the codeword?")
    assert len(core.net.fetches) == 1
    assert core.seen()[0] == "heron"
    assert core.seen()[-1] == "still heron"
    (line,) = user_lines(core)
    assert line["content"] == "what is the codeword?"
    assert line["media"][0]["text"].endswith("heron")


async def test_a_cut_is_told_to_both(core: Core) -> None:
    """The person and the model know that there was more, and the answer with the sentence is what a restart would deliver."""
    core.net.files["paste"] = b"x" * 10**6
    await core.router.accept([asks(core, "what?", "paste")])
    await core.quiet()
    assert "only its beginning is above, the rest was cut off" in core.model.asked[0][0][1]
    assert len(core.model.asked[0][0][1]) < 40_000
    assert "".join(core.seen()).endswith("(I read only the first 35 KiB of `paste.txt`.)")
    assert core.net.fetches == [("paste", 36001)]


async def test_without_a_caption_the_file_is_the_question(core: Core) -> None:
    """A long paste is sent as a file alone."""
    core.net.files["message"] = b"please say hi"
    await core.router.accept([asks(core, "", "message")])
    await core.quiet()
    assert (
        core.model.asked[0][-1][1]
        == "[Attached file message.txt:]\n```\nplease say hi\n```\n[End of file message.txt; that was all of it.]"
    )
    assert len(core.seen()) == 1


@pytest.mark.parametrize(("content", "why"), [(b"\0", NOT_TEXT), (TooLarge("file is too big"), TOO_LARGE)], ids=["bytes", "large"])
async def test_the_caption_is_answered_where_the_file_cannot_be_read(core: Core, content: bytes | TooLarge, why: str) -> None:
    """One sentence, to the model as well; the next message works."""
    core.net.files["r"] = content
    core.model.then("I cannot see it.")
    await core.router.accept([asks(core, "look", "r")])
    await core.quiet()
    assert core.seen() == [f"I cannot see it.\n\n(I did not read `r.txt`: {why}.)"]
    assert core.model.asked[0][-1][1] == f"[file r.txt, not shown: {why}]\n\nlook"
    assert await core.ask("next") == "Heard: next"


async def test_without_a_caption_and_without_a_file_nothing_is_asked(core: Core) -> None:
    """The model gets no empty question, and nothing of it stays in the conversation."""
    core.net.files["r"] = b"\0"
    await core.router.accept([asks(core, "", "r")])
    await core.quiet()
    assert core.seen() == [f"(I did not read `r.txt`: {NOT_TEXT}.)"]
    assert core.model.asked == []
    assert user_lines(core) == []


async def test_a_failed_turn_says_it_too(core: Core) -> None:
    """The sentence about the file is not lost with the answer."""
    core.net.files["r"] = b"\0"
    core.model.then(down("The model is down."))
    await core.router.accept([asks(core, "look", "r")])
    await core.quiet()
    assert core.seen() == [f"The model is down.\n\n(I did not read `r.txt`: {NOT_TEXT}.)"]


async def test_a_download_that_hangs_holds_up_nobody_else(core: Core) -> None:
    """Neither another chat nor an immediate command of the same one; /stop ends it, and what waits behind it is answered."""
    began = asyncio.Event()
    core.net.files["r"] = began
    await core.router.accept([asks(core, "look", "r")])
    await began.wait()
    assert await core.ask("hi", chat="2") == "Heard: hi"
    await core.say("behind")
    assert "1" in await core.ask("/status")
    await core.say("/stop")
    await core.quiet()
    assert core.seen()[-1] == "Heard: behind"
    assert len(core.model.asked) == 2
    assert [line["content"] for line in user_lines(core)] == ["look", "behind"]


async def test_a_kill_in_mid_download_costs_nothing(tmp_path: Path) -> None:
    """The input is run again, the file fetched again, and there is one answer."""
    async with Core(tmp_path) as core:
        began = asyncio.Event()
        core.net.files["r"] = began
        await core.router.accept([asks(core, "look", "r")])
        await began.wait()
        core.net.files["r"] = b"heron"
        await core.restart()
        await core.quiet()
        assert len(core.net.fetches) == 2
        assert len(core.model.asked) == len(core.seen()) == 1
        assert "heron" in core.model.asked[0][-1][1]


async def test_a_kill_behind_the_download_does_not_fetch_again(tmp_path: Path) -> None:
    """What stands in the session is not asked of the network once more, which may have it no longer."""
    async with Core(tmp_path) as core:
        core.net.files["r"] = b"heron"
        core.model.then(asyncio.Event())
        await core.router.accept([asks(core, "look", "r")])
        await core.running()
        del core.net.files["r"]
        await core.restart()
        await core.quiet()
        assert len(core.net.fetches) == 1
        assert "heron" in core.model.asked[-1][-1][1]
        assert len(core.seen()) == 1


async def test_forgetting_takes_the_words_with_it(core: Core) -> None:
    """/forget leaves nothing of a file on the disk."""
    core.net.files["r"] = b"heronheron"
    await core.router.accept([asks(core, "look", "r")])
    await core.quiet()
    await core.say("/forget yes")
    await core.quiet()
    await until(lambda: not any(b"heronheron" in path.read_bytes() for path in core.folder.rglob("*") if path.is_file()))
