"""What the two networks really send, to be spoilt: made by the fakes, of each kind something."""

from __future__ import annotations

from typing import Any

from tests.fakes.discord import FakeDiscord
from tests.fakes.telegram import FakeTelegram

Json = dict[str, Any]
FILE = {"file_id": "F1", "file_unique_id": "f", "file_name": "notes.txt", "mime_type": "text/plain", "file_size": 12}
FORUM, GROUP = -1_001_234, -55


def updates() -> list[Json]:
    """Telegram's, without their numbers."""
    tg = FakeTelegram(token="7:T")
    tg.chat(FORUM, is_forum=True)
    ours = tg._put(tg.chat(42), None, None, "Heard: hi", [], None)
    messages = [
        tg.message(42, "hello"),
        tg.message(42, "/fork west"),
        tg.message(42, "answer", reply_to=int(ours["message_id"]), quote={"text": "Heard", "position": 0}),
        tg.message(GROUP, "@OurBot hello 😀 there", user=43),
        tg.message(GROUP, "/reset@OurBot", user=43),
        tg.message(FORUM, "@OurBot in a topic", thread=36),
        tg.message(42, caption="@OurBot look", photo=[{**FILE, "width": 1, "height": 1}], media_group_id="g1"),
        tg.message(42, document=FILE, caption="read it"),
        tg.message(42, voice={**FILE, "duration": 3}),
        tg.message(42, sticker={**FILE, "type": "regular"}),
        tg.message(GROUP, migrate_to_chat_id=-1_009_999),
        tg.message(42, forward_origin={"type": "user", "date": 1, "sender_user": tg.user(9)}, text="forwarded"),
    ]
    press = {"id": "77", "from": tg.user(42), "message": ours, "chat_instance": "1", "data": "/whoami"}
    found: list[Json] = [{"message": message} for message in messages]
    found += [{"edited_message": messages[0] | {"edit_date": 5, "text": "hello?"}}, {"callback_query": press}]
    found += [{"channel_post": messages[0]}, {"poll_answer": {"poll_id": "1"}}, {}]
    return found


async def events() -> list[tuple[str, Json]]:
    """Discord's, by name: written down from a session of the fake's."""
    async with FakeDiscord() as dc:
        from tests.fakes.discord_gateway import Session  # a session that nobody connects

        listener = dc.gateway.sessions["x"] = Session("x", (1 << 32) - 1)
        guild = dc.guild("Home")
        chat, channel = dc.dm(42), dc.channel(guild)
        thread = dc.thread(channel)
        dc.role(guild, "mods", "manage_guild")
        first = dc.say(chat, "hello")
        dc.say(channel, f"<@{dc.bot.id}> and <@43> in <#{channel}> <:e:1>", user=43, reply_to=None)
        dc.say(thread, f"<@{dc.bot.id}> here", user=43)
        dc.say(chat, "read", attachments=[dc.attachment("notes.txt", b"words", "text/plain")])
        dc.say(chat, "again", reply_to=first)
        dc.edit(chat, first, "hello?")
        answer = dc.add(chat, dc.bot, "Heard: hello")
        dc.slash(chat, "whoami", user=42, check=False)
        dc.slash(channel, "fork", {"name": "west"}, user=43, check=False)
        dc.press_raw(chat, "/whoami", answer, 42)
        dc.delete(chat, first)
        found = [(str(event["t"]), event["d"]) for event in listener.events]
        found += [("GUILD_CREATE", dc.guild_json(dc.guilds[guild])), ("GUILD_DELETE", {"id": "5", "unavailable": True})]
        found += [("RESUMED", {"_trace": []}), ("TYPING_START", {"user_id": "1"}), ("NO_SUCH_EVENT", {"x": 1})]
        dc.drop_channel(thread)
        return found
