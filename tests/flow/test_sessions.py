"""Histories end to end: whose they are, where they are kept, what never gets into them, and what they hold after a kill."""

from __future__ import annotations

import asyncio
import json
import random
import re
from functools import partial
from pathlib import Path

import pytest

from tests.crash.records import unfinished
from tests.fakes.openai import DONE, Asked, End, FakeModel, Reply, delta, refuses, says
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import Daemon, free_port
from tests.flow.people import config, session_lines

ANA, BEN = 42, 43
BOTH = pytest.mark.parametrize("streaming", ["edit", "off"])


def roles(data: Path, chat: int, name: str = "main") -> list[tuple[str, str]]:
    return [(line["role"], line["content"]) for line in session_lines(data, chat, name) if "role" in line]


async def settled(daemon: Daemon, tg: FakeTelegram) -> None:
    await tg.wait_for(lambda: not tg.pending and not unfinished(daemon.data), 30)


async def last(tg: FakeTelegram, chat: int, text: str, seconds: float = 10) -> None:
    await tg.wait_for(lambda: tg.visible(chat)[-1:] == [text], seconds, chat=chat)


# ------------------------------------------------------------------------------------------------------------------- whose, and where


@pytest.mark.parametrize("scope", ["chat", "user"])
async def test_no_two_keys_share_a_history(tmp_path: Path, tg: FakeTelegram, model: FakeModel, scope: str) -> None:
    """D10: ids that look alike in a file's name, topics of a forum and General, people of a group: one file each, and no secret of one in a
    request of another, also after a restart."""
    for forum in (-100, -1003):
        tg.chat(forum, is_forum=True)
    people = (36, 100) if scope == "user" else (36,)
    places = [(chat, 0, chat) for chat in (36, 100, 10036)]
    places += [(chat, thread, user) for chat, thread in ((-100, 0), (-100, 36), (-100, 3), (-1003, 6), (-1003, 0)) for user in people]
    places += [(chat, 0, user) for chat in (-10036, -36, -1) for user in people]
    text = config(tg, model, sessions=f'group_scope = "{scope}"')
    async with Daemon(tmp_path, text) as daemon:
        for turn in range(3):
            for number, (chat, thread, user) in enumerate(places):
                tg.say(chat, f"{'@OurBot ' if chat < 0 else ''}secret{number}x turn {turn}", thread=thread or None, user=user)
            await settled(daemon, tg)
            await daemon.kill()
            await daemon.start()
        assert await daemon.stop() == 0
    for asked in model.asked:
        said = [str(message.content) for message in asked.messages if message.role == "user"]
        assert len({words.split("secret")[1].split("x")[0] for words in said}) == 1, said
    assert sorted(len(asked.messages) for asked in model.asked) == sorted(count for count in (2, 4, 6) for _ in places)
    assert len(list(daemon.data.glob("sessions/telegram/*/main.jsonl"))) == len(places)
    keys = {json.loads(path.read_bytes().splitlines()[0])["key"] for path in daemon.data.glob("sessions/telegram/*/main.jsonl")}
    assert len(keys) == len(places)


async def test_no_id_and_no_name_leads_out_of_the_folder(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """D12: crafted updates, names and button data: nothing appears outside of what is ours, and the next message is answered."""
    await settled(daemon, tg)

    def outside() -> set[str]:
        ours = (daemon.data / "sessions" / "telegram", daemon.data / "journal")
        return {str(path) for path in daemon.folder.parent.rglob("*") if not any(each in (path, *path.parents) for each in ours)}

    before = outside()
    for odd in ("../x", "/tmp/x", "..", "a/../../b", "x\0y", 2**70, -1.5, None, True, [1], {"id": 1}):
        for field in ("chat", "from", "message_id", "message_thread_id"):
            message = tg.message(ANA, "hi") | {"is_topic_message": True}
            message[field] = odd if field.startswith("message") else message[field] | {"id": odd}
            tg.push({"message": message})
    for name in ("../../evil", "/etc/passwd", "..", ".", "_chat", "main.jsonl", "a/b", "%2e%2e%2f", "\u202e", "CON", "x" * 5000, "main\0"):
        for command in ("/fork", "/switch", "/forget"):
            tg.say(ANA, f"{command} {name}")
        tg.say(ANA, f"/forget {name} yes")
        tg.callback(f"/switch {name}"[:64], tg.message(ANA, "x"), user=ANA)
    tg.say(BEN, "hello")
    await last(tg, BEN, "Heard: hello", 20)
    await settled(daemon, tg)
    assert outside() == before
    names = {path.name for path in (daemon.data / "sessions" / "telegram").rglob("*")}
    assert all(re.fullmatch(r"[a-z0-9%@:_-]+(\.jsonl)?", name) for name in names), names


async def test_of_many_daemons_on_one_folder_one_runs(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """D24: started at the same moment on a fresh folder, whatever their channels; the others say why, at once, and leave nothing."""
    texts = [config(tg, model), config(tg, model), config(tg, model, webhook_port=free_port()), config(tg, model, streaming="off")]
    daemons = [Daemon(tmp_path, texts[0])]
    for number, text in enumerate(texts[1:], 1):
        (tmp_path / str(number)).mkdir()
        daemons.append(Daemon(tmp_path / str(number), text.replace('data_dir = "data"', f'data_dir = "{tmp_path / "data"}"')))
    try:
        await asyncio.gather(*(daemon.start(ready=False) for daemon in daemons))
        ends = [asyncio.ensure_future(daemon.ended(60)) for daemon in daemons]
        async with asyncio.timeout(15):
            while sum(end.done() for end in ends) < 3:
                await asyncio.wait([end for end in ends if not end.done()], return_when=asyncio.FIRST_COMPLETED)
        assert [end.result() for end in ends if end.done()] == [1, 1, 1]
        first = next(daemon for daemon, end in zip(daemons, ends, strict=True) if not end.done())
        assert first.process is not None
        for daemon in daemons:
            assert daemon is first or "another daemon works in this folder" in daemon.text()
            assert "Traceback" not in daemon.text()
        tg.say(ANA, "hello")
        await last(tg, ANA, "Heard: hello", 20)
        assert not [path for path in (tmp_path / "data").rglob("*") if path.name.startswith(".")]
        assert await first.stop() == 0
        await asyncio.gather(*ends)
    finally:
        for daemon in daemons:
            if daemon.process is not None and daemon.process.returncode is None:
                await daemon.kill()


# --------------------------------------------------------------------------------------------------------------- what is never in them


NOTHING = {
    "only the role": Reply([delta("", role="assistant"), End.HANG]),
    "only thoughts": Reply([delta(reasoning_content="Let me think"), End.HANG]),
    "only blanks": Reply([delta(" \n\n "), End.HANG]),
    "broken off": Reply([delta("", role="assistant"), End.RST]),
    "filtered": Reply([delta("", role="assistant"), delta(finish="content_filter"), DONE]),
    "empty": Reply([delta("", role="assistant"), delta(finish="stop"), DONE]),
    "refused": refuses(400, "no"),
    "failing": refuses(500, "no"),
}
"""Answers without a word. The hanging ones are ended by /stop."""


async def test_a_turn_without_an_answer_leaves_a_legal_history(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """D26, D27: nothing empty is stored or sent, roles alternate (the fake is as strict as any), the person is told, and the model is told
    that it is not to answer the old question; also after a restart."""
    chats = dict(enumerate(NOTHING, 1))

    def answer(asked: Asked) -> Reply | None:
        number = asked.words.split()[-1]
        return NOTHING[chats[int(number)]] if asked.words.startswith("q1") and "hello" not in asked.words else None

    model.script(answer)
    async with Daemon(tmp_path, config(tg, model)) as daemon:
        for chat in chats:
            tg.say(chat, f"q0 {chat}")
        await settled(daemon, tg)
        for chat in chats:
            tg.say(chat, f"q1 {chat}")
        await tg.wait_for(lambda: {int(asked.words.split()[-1]) for asked in model.asked if asked.words.startswith("q1")} == {*chats}, 20)
        for chat, kind in chats.items():
            if kind.startswith("only"):
                tg.say(chat, "/stop")
        await settled(daemon, tg)
        for round_ in ("hello", "hello again"):
            for chat in chats:
                tg.say(chat, f"{round_} {chat}")
            await settled(daemon, tg)
            await daemon.kill()
            await daemon.start()
        assert await daemon.stop() == 0
    for chat, kind in chats.items():
        seen = tg.visible(chat)
        assert len(seen) == 4, (kind, seen)
        assert seen[0] == f"Heard: q0 {chat}"
        assert seen[1] == "Stopped." if kind.startswith("only") else "model" in seen[1].lower(), (kind, seen)
        assert f"hello {chat}" in seen[2]
        assert seen[3].endswith(f"hello again {chat}")
        assert all(content for _, content in roles(daemon.data, chat)), kind
        marked = [asked for asked in model.asked if asked.words.endswith(f"hello {chat}")][-1]
        assert "(stopped)" in str(marked.messages[-2].content) or "no answer was given" in str(marked.messages[-1].content), kind


async def test_a_stopped_answer_is_marked_and_not_answered_again(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """D27: what was said until /stop stays, and the next question is the only one that is open."""
    model.then(Reply([delta("The first "), delta("half"), End.HANG]))
    tg.say(ANA, "q1")
    await last(tg, ANA, "The first half")
    tg.say(ANA, "/stop")
    await last(tg, ANA, "Stopped.")
    tg.say(ANA, "q2")
    await last(tg, ANA, "Heard: q2")
    assert [(m.role, m.content) for m in model.asked[-1].messages[1:]] == [("user", "q1"), ("assistant", "The first half"), ("user", "q2")]


# -------------------------------------------------------------------------------------------------------------------- after a kill


@BOTH
@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_what_was_seen_is_known_after_a_restart(tmp_path: Path, tg: FakeTelegram, model: FakeModel, streaming: str, end: str) -> None:
    """D35: ended the moment that an answer is visible; the next request has the answer that the person saw last. A hundred times, in twenty
    chats and five lives."""

    def answer(asked: Asked) -> Reply:
        return says(f"to {asked.words}: number {len(model.asked)}", delay=0.002)

    model.script(answer)
    dice = random.Random(f"{streaming}{end}")

    def sees(chat: int, words: str) -> bool:
        return any(words in text for text in tg.visible(chat))

    def shown(chat: int) -> list[str]:
        """Without what a kill may leave: an empty placeholder; a text twice, where streaming is off."""
        return [text for text in dict.fromkeys(tg.visible(chat)) if text != "…"]

    chats = range(1, 21)
    async with Daemon(tmp_path, config(tg, model, streaming=streaming)) as daemon:
        for life in range(5):
            for chat in chats:
                tg.say(chat, f"q{life}")
            first = dice.choice(chats)
            await tg.wait_for(partial(sees, first, f"to q{life}: number"), 20, chat=first)
            if end == "kill":
                await daemon.kill()
            else:
                assert await daemon.stop() == 0
            seen = {chat: shown(chat) for chat in chats}
            await daemon.start()
            if life % 2:
                await settled(daemon, tg)
                seen = {chat: shown(chat) for chat in chats}
            for chat in chats:
                tg.say(chat, "yes, do it")
            await settled(daemon, tg)
            for chat in chats:
                now = shown(chat)
                assert len(now) == 2 * (life + 1), now
                assert [content for role, content in roles(daemon.data, chat) if role == "assistant"] == now
                # Where it streams, an answer that was visible and not yet on record may change before the next one comes.
                if streaming == "off" or life % 2:
                    assert seen[chat] == now[: len(seen[chat])]
        assert await daemon.stop() == 0
    for asked in model.asked:
        if asked.words == "yes, do it":
            said = [str(message.content) for message in asked.messages if message.role == "assistant"]
            assert any(said == shown(chat)[: len(said)] for chat in chats)
