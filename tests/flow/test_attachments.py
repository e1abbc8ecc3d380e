"""Attached files end to end: text is read to its last line, what cannot be read is said, and nothing that people send hangs or repeats."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.discord import FakeDiscord
from tests.fakes.openai import FakeModel, says
from tests.fakes.telegram import FakeTelegram
from tests.flow import on_discord
from tests.flow.daemon import Daemon
from tests.flow.on_discord import PATIENCE, both, check_log, daemon_of
from tests.flow.people import session_lines
from tests.flow.seen import told, until

PASTE = ("the quick brown fox " * 300)[:5983] + "\nCODEWORD: heron"
ANA, BEN, EVE, GIL = 41, 42, 43, 44
DOCUMENT = {"file_id": "F", "file_unique_id": "F", "file_name": "message.txt", "mime_type": "text/plain"}


@pytest.fixture
async def dc() -> AsyncIterator[FakeDiscord]:
    async with FakeDiscord() as fake:
        yield fake


@pytest.fixture
async def daemon(tmp_path: Path, dc: FakeDiscord, tg: FakeTelegram, model: FakeModel) -> AsyncIterator[Daemon]:
    """With both networks."""
    model.script(lambda asked: says("Read."))
    async with daemon_of(tmp_path, both(dc, tg, model), dc) as running:
        await dc.online(PATIENCE)
        yield running


async def test_a_long_paste_is_read_to_its_last_line(daemon: Daemon, dc: FakeDiscord, tg: FakeTelegram, model: FakeModel) -> None:
    """Discord's message.txt of 6000 characters, with a question and alone, and the same on Telegram: the model has all of it, in the
    next turn as well. One that is longer than a turn holds is cut, and both sides hear of it."""
    assert len(PASTE) == 5999
    chat, other = dc.dm(), dc.dm(on_discord.BEN)
    dc.say(chat, "what is the codeword?", attachments=[dc.attachment("message.txt", PASTE.encode(), "text/plain; charset=utf-8")])
    await on_discord.shown(dc, chat, "Read.")
    dc.say(chat, "and now?")
    await on_discord.shown(dc, chat, "Read.", "Read.")
    dc.say(other, "", attachments=[dc.attachment("message.txt", PASTE.encode(), "text/plain; charset=utf-8")])
    await on_discord.shown(dc, other, "Read.")
    tg.files["F"] = PASTE.encode()
    tg.say(ANA, document=DOCUMENT)
    await until(tg, ANA, lambda seen: seen == ["Read."])
    assert len(model.asked) == 4
    assert all("CODEWORD: heron\n```" in str(one.messages[1].content) for one in model.asked)
    tg.files["F"] = PASTE.encode() * 100
    tg.say(BEN, document=DOCUMENT, caption="what is the codeword?")
    assert await told(tg, BEN, "Read.") == "Read.\n\n(I read only the first 35 KiB of message.txt.)"
    assert "only its beginning is above, the rest was cut off" in model.asked[-1].words
    assert await daemon.stop() == 0
    check_log(daemon, dc)


async def test_a_file_that_cannot_be_had_costs_one_sentence(daemon: Daemon, tg: FakeTelegram, dc: FakeDiscord, model: FakeModel) -> None:
    """Too large by what is said of it, too large by getFile's refusal, and a download that stalls half-way: the caption is answered,
    with one sentence about the file, the next message as ever, and a restart repeats nothing."""
    tg.files |= {"large": 90_000_000, "stalls": b"x" * 1000}
    tg.downloads.stall("stalls")
    tg.say(ANA, document=DOCUMENT | {"file_id": "large", "file_size": 90_000_000}, caption="look")
    tg.say(BEN, document=DOCUMENT | {"file_id": "large"}, caption="look")
    tg.say(EVE, document=DOCUMENT | {"file_id": "stalls"}, caption="look")
    tg.say(GIL, document=DOCUMENT | {"file_id": "large"})
    assert await told(tg, GIL, "I did not read") == "(I did not read message.txt: it is too large for me to get.)"
    for chat in (ANA, BEN):
        assert await told(tg, chat, "Read.") == "Read.\n\n(I did not read message.txt: it is too large for me to get.)"
        tg.say(chat, "next")
        await until(tg, chat, lambda seen: seen[1:] == ["Read."])
    assert await told(tg, EVE, "Read.") == "Read.\n\n(I did not read message.txt: it could not be downloaded.)"
    assert tg.pending == 0
    seen, asked = {chat: tg.visible(chat) for chat in (ANA, BEN, EVE, GIL)}, len(model.asked)
    assert await daemon.stop() == 0
    await daemon.start()
    tg.say(99, "hello")
    await until(tg, 99, lambda seen: seen == ["Read."])
    assert await daemon.stop() == 0
    assert {chat: tg.visible(chat) for chat in seen} == seen
    assert (asked, len(model.asked)) == (5, 6)
    check_log(daemon, dc)


async def test_a_kill_in_mid_download_costs_nothing(daemon: Daemon, dc: FakeDiscord, tg: FakeTelegram, model: FakeModel) -> None:
    """On both networks the file is fetched again, and there is one answer, which knows it."""
    chat, file = dc.dm(), dc.attachment("a.py", PASTE.encode(), "text/x-python")
    tg.files["F"] = PASTE.encode()
    gates = [tg.downloads.stall("F"), dc.downloads.stall(file["id"])]
    tg.say(ANA, document=DOCUMENT, caption="look")
    dc.say(chat, "look", attachments=[file])
    await tg.wait_for(lambda: tg.downloads.asked and dc.downloads.asked, PATIENCE)
    await daemon.kill()
    for gate in gates:
        gate.set()
    await daemon.start()
    await until(tg, ANA, lambda seen: seen == ["Read."])
    await on_discord.shown(dc, chat, "Read.")
    assert await daemon.stop() == 0
    assert [len(fake.downloads.asked) for fake in (tg, dc)] == [2, 2]
    assert len(model.asked) == 2
    assert all("heron" in one.words for one in model.asked)
    assert [line["media"][0]["text"] for line in session_lines(daemon.data, ANA) if line.get("role") == "user"] == [PASTE]


VOICE = 1 << 13
STICKER = [{"id": "1", "name": "wave", "format_type": 1}]


async def test_what_cannot_be_read_on_discord_gets_one_word(daemon: Daemon, dc: FakeDiscord, model: FakeModel) -> None:
    """Stickers, voice messages, pictures, polls and files: one short note each and never the model's invention; what the service says
    by itself has nothing at all."""
    content: dict[str, dict[str, Any]] = {
        "sticker": {"sticker_items": STICKER},
        "animated sticker": {"sticker_items": [STICKER[0] | {"format_type": 3}]},
        "voice": {"attachments": [dc.attachment("voice-message.ogg", b"x", "audio/ogg", duration_secs=3.0, waveform="A")], "flags": VOICE},
        "picture": {"attachments": [dc.attachment("a.png", b"x", "image/png")]},
        "film": {"attachments": [dc.attachment("a.mp4", b"x", "video/mp4")]},
        "song": {"attachments": [dc.attachment("a.mp3", b"x", "audio/mpeg")]},
        "file": {"attachments": [dc.attachment("a.pdf", b"x", "application/pdf")]},
        "poll": {"poll": {"question": {"text": "?"}, "answers": []}},
        "not text after all": {"attachments": [dc.attachment("a.txt", b"\0\1\2", "text/plain")]},
    }
    chats = {name: dc.dm(number) for number, name in enumerate(content, 700_000_000_000_000_100)}
    for name, chat in chats.items():
        dc.say(chat, "", **content[name])
    quiet = {kind: dc.dm(700_000_000_000_000_200 + kind) for kind in (3, 6, 7, 8, 18, 22, 46)}
    for kind, chat in quiet.items():
        dc.say(chat, "", type=kind)
    for name, chat in chats.items():
        assert len(await on_discord.told(dc, chat, "read")) < 80, name
    assert [len(dc.visible(chat)) for chat in chats.values()] == [1] * len(chats)
    assert [dc.visible(chat) for chat in quiet.values()] == [[]] * len(quiet)
    assert model.asked == []
    assert await daemon.stop() == 0
    check_log(daemon, dc)
