"""Telegram groups end to end: who is answered, who may steer, topics apart, and groups that move."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fakes.openai import DONE, FakeModel, Reply, delta, refuses
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import Daemon
from tests.flow.people import config
from tests.flow.seen import BOTH, replies, shown, squeezed, until, whole

GROUP, OTHER = -1001, -1002
ANA, BEN, ROOT = 42, 43, 1
PHOTO = [{"file_id": "p", "file_unique_id": "p", "width": 9, "height": 9}]


async def files(daemon: Daemon, tg: FakeTelegram) -> dict[str, bytes]:
    """The group's folder, once its answer is on record as sent."""
    folder = daemon.data / "sessions" / "telegram" / str(GROUP)
    await tg.wait_for(lambda: b'"sent"' in (folder / "main.jsonl").read_bytes(), 10)
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def command(tg: FakeTelegram, text: str, user: int = ANA, chat: int = GROUP) -> str:
    """Give a command and wait for what is said to it: one message."""
    before = len(tg.visible(chat))
    tg.say(chat, text, user=user)
    return (await until(tg, chat, lambda seen: len(seen) > before and seen[-1] != "…"))[before]


async def test_only_what_is_meant_for_the_bot_is_answered(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """B16, B30: by its name or by a reply. Other talk, other names, other bots' commands and addresses of mail are nothing to it. All who
    are answered share one conversation."""
    tg.say(GROUP, "@OurBot one", user=ANA)
    await until(tg, GROUP, lambda seen: seen[-1:] == ["Heard: P42: one"])
    ours, theirs = tg.messages(GROUP)[0].id, tg.say(GROUP, "just talk", user=BEN)
    before = await files(daemon, tg)
    for text in (
        "@OtherBot hi",
        "@OurBotX hi",
        "me@OurBot.example",
        "OurBot, hi",
        "/reset@OtherBot",
        "/reset@OurBotX",
        "/fork@OtherBot west",
        "/stop@OtherBot",
        "/nonsense@OtherBot",
    ):
        tg.say(GROUP, text, user=BEN)
    tg.say(GROUP, "well said", user=BEN, reply_to=theirs)
    tg.say(GROUP, photo=PHOTO, caption="look", user=BEN)
    tg.say(GROUP, photo=PHOTO, user=BEN)
    tg.say(GROUP, sticker={"file_id": "s"}, user=BEN)
    await tg.wait_for(lambda: tg.pending == 0, 10)
    tg.say(ANA, "are you there?")
    await shown(tg, ANA, "Heard: are you there?")
    assert len(tg.visible(GROUP)) == 1
    assert await files(daemon, tg) == before
    assert len(model.asked) == 2
    tg.say(GROUP, "two", user=BEN, reply_to=ours)
    tg.say(GROUP, photo=PHOTO, caption="three @ourbot", user=BEN)
    mention = {"type": "text_mention", "offset": 0, "length": 3, "user": {"id": tg.bot_id, "is_bot": True, "first_name": "Our"}}
    tg.say(GROUP, "Our four", user=BEN, entities=[mention])
    seen = await until(tg, GROUP, lambda seen: len(seen) == 4 and seen[-1].startswith("Heard:"))
    assert [text.split()[-1] for text in seen] == ["one", "two", "three", "four"]
    assert all(message.reply_to for message in tg.messages(GROUP))
    assert len(model.asked) == 5
    said = [str(message.content) for message in model.asked[-1].messages if message.role == "user"]
    assert said[0] == "P42: one"
    assert all(text.startswith("P43: ") for text in said[1:])


async def test_commands_with_the_bots_name_are_the_bare_commands(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """B15: whatever the case, before or behind the name: the effect once, confirmed once."""
    tg.admin(GROUP, ANA)
    folder = daemon.data / "sessions" / "telegram" / str(GROUP)
    for n, text in enumerate(("/reset@OurBot", "/RESET@ourbot", "@OurBot /reset", "/new@OURBOT"), 2):
        tg.say(GROUP, "@OurBot one")
        await until(tg, GROUP, lambda seen: seen[-1:] == ["Heard: P42: one"])
        assert "new conversation" in await command(tg, text)
        assert len(list(folder.glob("chat-*.jsonl"))) == n - 1
    assert "west" in await command(tg, "/fork@OurBot West")
    assert "west West (here)" in await command(tg, "/sessions@OurBot")
    assert "main" in await command(tg, "/switch@OurBot main")
    tg.say(GROUP, "@OurBot two")
    await until(tg, GROUP, lambda seen: seen[-1] == "Heard: P42: two")
    assert [str(m.content) for m in model.asked[-1].messages[1:]] == ["P42: one", "Heard: P42: one", "P42: two"]
    assert len(tg.visible(GROUP)) == 12


async def test_only_admins_steer_what_many_share(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """Nobody else resets, forks, switches, undoes or forgets, not by a button either; the group's admins and the daemon's may. What
    changes nothing is everybody's."""
    tg.admin(GROUP, ANA)
    async with Daemon(tmp_path, config(tg, model, access='groups = "open"\nadmins = ["telegram:1"]')) as daemon:
        tg.say(GROUP, "@OurBot one", user=BEN)
        await until(tg, GROUP, lambda seen: seen[-1:] == ["Heard: P43: one"])
        before = await files(daemon, tg)
        for text in ("/reset", "/new", "/undo", "/fork", "/fork west", "/switch main", "/forget", "/forget yes", "/RESET@OurBot"):
            assert "only its admins" in await command(tg, text, BEN), text
        assert await files(daemon, tg) == before
        for text in ("/status", "/sessions", "/whoami", "/help", "/stop"):
            assert "only its admins" not in await command(tg, text, BEN), text
        assert "new conversation" in await command(tg, "/reset", ANA)
        tg.press(GROUP, "Back to main", user=BEN)
        await until(tg, GROUP, lambda seen: "only its admins" in seen[-1])
        tg.press(GROUP, "Back to main", user=ROOT)
        await until(tg, GROUP, lambda seen: "You are now in main" in seen[-1])
        assert "west" in await command(tg, "/fork west", ROOT)
        assert all(len(answers) == 1 for answers in tg.answered.values())
        assert len(tg.calls_of("getChatAdministrators")) <= 2


async def test_admins_that_the_network_does_not_name_are_none(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """Where Telegram does not say who the admins are, nobody is one; as soon as it says so, they are."""
    tg.admin(GROUP, ANA)
    fault = tg.fail("getChatAdministrators", 400, "Bad Request: member list is inaccessible", times=None)
    assert "only its admins" in await command(tg, "/reset")
    fault.remove()
    assert "new conversation" in await command(tg, "/reset")


async def test_a_group_that_is_not_listed_is_met_with_silence(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """A listed group's members speak there and nowhere else by that; in another group not even the daemon's admin is heard."""
    access = 'allow_groups = ["telegram:-1001"]\nadmins = ["telegram:1"]'
    tg.admin(OTHER, ROOT)
    async with Daemon(tmp_path, config(tg, model, access=access)):
        for user in (ROOT, ANA):
            for text in ("@OurBot hello", "/start@OurBot", "/status", "/reset", "/approve x"):
                tg.say(OTHER, text, user=user)
        tg.callback("/reset", tg.message(OTHER, "x") | {"from": {"id": 7, "is_bot": True}}, user=ROOT)
        tg.say(GROUP, "@OurBot hello", user=ANA)
        await shown(tg, GROUP, "Heard: P42: hello")
        tg.say(ANA, "hello")
        await until(tg, ANA, lambda seen: len(seen) == 1 and "telegram:42" in seen[0])
        tg.say(ROOT, "hello")
        await shown(tg, ROOT, "Heard: hello")
        assert [call for call in tg.calls if call.chat == OTHER] == []
        assert len(model.asked) == 2


# -------------------------------------------------------------------------------------------------------------------------- topics


@BOTH
async def test_each_topic_is_a_conversation_of_its_own(daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """B09: a long, slow answer, one that comes meanwhile, a failure and a command: each in the topic of its question; no history has a word
    of another topic."""
    tg.chat(GROUP, is_forum=True)
    tg.admin(GROUP, ANA)
    text = "".join(f"{n:05d} in topic 36. " for n in range(500))
    late = asyncio.Event()
    slow = Reply([delta(text[:3000]), late, delta(text[3000:]), delta(finish="stop"), DONE])
    replies(model, {"P42: q36": slow, "P42: q99": refuses(401, "no")})
    for thread in (36, 854, 99, None):
        tg.say(GROUP, f"@OurBot q{thread}", thread=thread)
    await tg.wait_for(lambda: tg.visible(GROUP, 854) == ["Heard: P42: q854"], 20, chat=GROUP)
    await tg.wait_for(lambda: tg.visible(GROUP, 0) == ["Heard: P42: qNone"], 20, chat=GROUP)
    await tg.wait_for(lambda: "key" in "".join(tg.visible(GROUP, 99)), 20, chat=GROUP)
    tg.say(GROUP, "/reset", thread=854)
    await tg.wait_for(lambda: "new conversation" in tg.visible(GROUP, 854)[-1], 20, chat=GROUP)
    late.set()
    await tg.wait_for(lambda: squeezed(tg.visible(GROUP, 36)) == squeezed(text), 20, chat=GROUP)
    for thread in (36, 854, None):
        tg.say(GROUP, "@OurBot again", thread=thread)
    for thread in (36, 854, 0):
        await tg.wait_for(lambda thread=thread: tg.visible(GROUP, thread)[-1:] == ["Heard: P42: again"], 20, chat=GROUP)  # type: ignore[misc]
    assert await daemon.stop() == 0
    assert {thread: len(tg.visible(GROUP, thread)) for thread in (36, 854, 99, 0)} == {36: 4, 854: 3, 99: 1, 0: 2}
    histories = sorted(
        [str(m.content)[:12] for m in asked.messages if m.role == "user"] for asked in model.asked if asked.words == "P42: again"
    )
    assert histories == [["P42: again"], ["P42: q36", "P42: again"], ["P42: qNone", "P42: again"]]
    assert all(call.ok for call in tg.calls if call.chat == GROUP)


@BOTH
async def test_a_thread_that_is_no_topic_is_not_spoken_to(daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """B06: in General a chain of replies has a number that no send may carry; its answers are in General, and in General's conversation."""
    tg.chat(GROUP, is_forum=True, topics={36})
    tg.say(GROUP, "@OurBot one")
    await shown(tg, GROUP, "Heard: P42: one")
    first = tg.messages(GROUP)[0].id
    tg.say(GROUP, "@OurBot two", message_thread_id=7777, reply_to=first)
    tg.say(GROUP, "@OurBot three", message_thread_id=1, is_topic_message=True)
    await until(tg, GROUP, lambda seen: len(seen) == 3 and seen[-1].endswith("three"))
    assert await daemon.stop() == 0
    assert len(tg.visible(GROUP, 0)) == 3
    assert not any("message_thread_id" in call.params for call in tg.calls)
    assert [str(m.content).split()[-1] for m in model.asked[-1].messages if m.role == "user"] == ["one", "two", "three"]
    assert [path.name for path in (daemon.data / "sessions" / "telegram").iterdir()] == [str(GROUP)]


# --------------------------------------------------------------------------------------------------------------- groups that move

MOVES = {-500: -1001500, -600: -1001600}
"""Old id to new; of the second group Telegram says so itself, before anything is refused."""


@BOTH
async def test_a_group_that_became_a_supergroup_is_followed(daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """B04: it moves while an answer is being written: the answer is in the new group, once and whole, and what comes later goes there at
    once."""
    late = asyncio.Event()
    text = "The answer. " * 500
    replies(model, {"P42: one": Reply([delta(text[:20]), late, delta(text[20:]), delta(finish="stop"), DONE])})
    for old in MOVES:
        tg.say(old, "@OurBot one")
    await model.wait(2)
    if streaming == "edit":
        for old in MOVES:
            await until(tg, old, lambda seen: "The answer." in "".join(seen))
    for old, new in MOVES.items():
        tg.migrate(old, new)
    tg.say(-600, migrate_to_chat_id=MOVES[-600])
    await tg.wait_for(lambda: tg.pending == 0, 20)
    late.set()

    def refused(old: int) -> int:
        return len([call for call in tg.calls if call.chat == old and not call.ok])

    for old, new in MOVES.items():
        before = await whole(tg, new, text)
        wrong = refused(old)
        assert wrong <= (3 if streaming == "edit" else 1 if old == -500 else 0)
        tg.say(old, "/status@OurBot")
        await until(tg, new, lambda seen: len(seen) == 3 and "Session" in seen[-1])
        tg.say(new, "@OurBot two")
        seen = await until(tg, new, lambda seen: seen[3:] == ["Heard: P42: two"])
        assert seen[:2] == before
        assert refused(old) == wrong
    assert await daemon.stop() == 0
    assert [len(tg.visible(new)) for new in MOVES.values()] == [4, 4]


async def test_a_group_keeps_its_conversations_when_it_becomes_a_supergroup(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """What was said is still known under the new id, every session is there, one queue goes on, and a config that names the old id lets the
    new one in; over a restart, too. Another group with a new id of its own stays apart."""
    old, new, other = -700, -1001700, -1001800
    access = f'allow_groups = ["telegram:{old}", "telegram:{other}"]\nadmins = ["telegram:{ROOT}"]'
    async with Daemon(tmp_path, config(tg, model, access=access)) as daemon:
        tg.say(old, "@OurBot one", user=ROOT)
        await until(tg, old, lambda seen: seen == ["Heard: P1: one"])
        assert "west" in await command(tg, "/fork@OurBot west", user=ROOT, chat=old)
        tg.migrate(old, new)
        tg.say(old, migrate_to_chat_id=new)
        tg.say(new, migrate_from_chat_id=old)
        tg.say(new, "@OurBot two", user=ROOT)
        await until(tg, new, lambda seen: seen == ["Heard: P1: two"])
        assert [str(m.content).split()[-1] for m in model.asked[-1].messages if m.role == "user"] == ["one", "two"]
        await daemon.kill()
        await daemon.start()
        said = await command(tg, "/sessions@OurBot", user=ROOT, chat=new)
        assert "main" in said
        assert "west" in said
        tg.say(new, "@OurBot three", user=ROOT)
        await until(tg, new, lambda seen: seen[-1] == "Heard: P1: three")
        assert [str(m.content).split()[-1] for m in model.asked[-1].messages if m.role == "user"] == ["one", "two", "three"]
        tg.say(other, "@OurBot hello", user=ROOT)
        await until(tg, other, lambda seen: seen == ["Heard: P1: hello"])
        assert [str(m.content).split()[-1] for m in model.asked[-1].messages if m.role == "user"] == ["hello"]
        assert sorted(path.name for path in (daemon.data / "sessions" / "telegram").iterdir()) == sorted([str(old), str(other)])
