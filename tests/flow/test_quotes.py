"""What somebody answers to, on both networks: the model reads it, marked as quoted, and no more of it than is wanted."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.discord import FakeDiscord
from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import KEY, TOKEN, Daemon
from tests.flow.on_discord import ANA, BEN, alone, asks, check_bodies, check_log, served, told
from tests.flow.people import config

MARK = "[In reply to this:]"
LONG = "point 1 is this. " * 175
PHOTO = [{"file_id": "p", "file_unique_id": "u", "width": 9, "height": 9}]


async def ask(tg: FakeTelegram, text: str, **fields: object) -> None:
    before = len(tg.visible(42))
    tg.say(42, text, **fields)
    await tg.wait_for(lambda: len(tg.visible(42)) > before and tg.visible(42)[-1].endswith(text), 20, chat=42)


async def test_what_was_answered_on_telegram_is_read(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """The quoted phrase and nothing else of a long message; without one a bounded part of it; a caption; also after a /reset, when it is
    all that the model knows of what was said before."""
    theirs = {"message_id": 9, "date": 1, "chat": {"id": 42, "type": "private"}, "from": {"id": 42, "is_bot": False, "first_name": "P"}}
    async with Daemon(tmp_path, config(tg, model)) as daemon:
        await ask(tg, "expand this", reply_to_message=theirs | {"text": LONG}, quote={"text": "point 2", "position": 0})
        await ask(tg, "and that", reply_to_message=theirs | {"text": LONG})
        await ask(tg, "where is it", reply_to_message=theirs | {"photo": PHOTO, "caption": "the old barn"})
        tg.say(42, "/reset")
        await tg.wait_for(lambda: "new conversation" in tg.visible(42)[-1], 20, chat=42)
        await ask(tg, "who said so", reply_to_message=theirs | {"text": "A heron did."})
        assert await daemon.stop() == 0
    asked = [str(one.messages[-1].content) for one in model.asked]
    assert asked[0] == f"{MARK}\n> point 2\n\nexpand this"
    assert asked[1].startswith(f"{MARK}\n> point 1 is this.")
    assert len(asked[1]) < 1100
    assert asked[2] == f"{MARK}\n> the old barn\n\nwhere is it"
    assert [str(message.content) for message in model.asked[-1].messages[1:]] == [f"{MARK}\n> A heron did.\n\nwho said so"]
    assert TOKEN not in daemon.text()


async def test_what_was_answered_on_discord_is_read(tmp_path: Path) -> None:
    """Of people a bounded part, of the bot's own words less; in a server and in a direct chat, after a /reset as well."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        chat, channel = dc.dm(ANA), dc.channel()
        async with served(tmp_path, alone(dc, model), dc) as daemon:
            long = dc.say(channel, LONG[:2000], user=BEN)
            dc.say(channel, f"<@{dc.bot.id}> expand this", user=ANA, reply_to=long)
            await told(dc, channel, "expand this")
            first = await asks(dc, chat, "A heron did.")
            ours = dc.messages(chat)[-1].id
            dc.say(chat, "/reset")
            await told(dc, chat, "new conversation")
            for text, answered in (("who said so", first), ("and you", ours)):
                dc.say(chat, text, reply_to=answered)
                await told(dc, chat, text)
            assert await daemon.stop() == 0
        asked = [str(one.messages[-1].content) for one in model.asked]
        assert f"{MARK}\n> point 1 is this." in asked[0]
        assert len(asked[0]) < 1100
        assert asked[2] == f"{MARK}\n> A heron did.\n\nwho said so"
        assert asked[3] == f"{MARK}\n> Heard: A heron did.\n\nand you"
        assert len(model.asked[2].messages) == 2
        check_bodies(dc)
        check_log(daemon, dc)
