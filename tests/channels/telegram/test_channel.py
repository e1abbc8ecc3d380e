"""`channels.telegram.channel`: the whole channel, with the real library, against the fake service."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from channels.base import (
    Address,
    Button,
    Channel,
    ChannelError,
    CommandInfo,
    Denied,
    Gone,
    Lost,
    NotSent,
    Piece,
    Refused,
    Rejected,
    Retry,
    Span,
    Unknown,
)
from channels.telegram.channel import TelegramChannel
from channels.telegram.transport import Transport
from tests.channels.telegram.support import Gateway, channel_for
from tests.fakes.telegram import FakeTelegram

ANA = Address("telegram", "42")
HI = Piece("hi", start=0, end=2)
MENU = [CommandInfo("reset", "Start over"), CommandInfo("fork", "Try another way")]


@pytest.fixture
async def tg() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as fake:
        yield fake


@pytest.fixture
async def channel(tg: FakeTelegram, tmp_path: Path) -> AsyncIterator[TelegramChannel]:
    made = channel_for(tg, tmp_path / "telegram")
    await made.start(MENU)
    yield made
    await made.close()
    await made.close()


Running = Callable[[], AbstractAsyncContextManager[Gateway]]


@pytest.fixture
def running(channel: TelegramChannel) -> Running:
    @asynccontextmanager
    async def run() -> AsyncIterator[Gateway]:
        gateway = Gateway()
        task = asyncio.create_task(channel.run(gateway.accept))
        try:
            yield gateway
            if task.done():
                await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return run


def test_it_is_a_channel(tmp_path: Path) -> None:
    """It has everything that the protocol names; settings come through; closing without a start is fine."""
    made: Channel = channel_for(FakeTelegram(), tmp_path, streaming="off", chat_per_second=2)
    assert (made.name, made.limits.units, made.streams, made.backlog) == ("telegram", 4096, False, 86400.0)
    assert made.pacing.chat_per_second == 2
    assert made.routes() == ()
    assert made.last_sign_of_life() == 0.0
    asyncio.run(made.close())


# ---------------------------------------------------------------------------------------------------------------------------- start


async def test_first_contact(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """Who are we, is a webhook in the way, the menu: each asked once; the service has answered."""
    assert [call.method for call in tg.calls] == ["getMe", "getWebhookInfo", "setMyCommands"]
    assert [command["command"] for command in tg.commands] == ["reset", "fork"]
    assert channel.last_sign_of_life() > 0


async def test_a_second_start_does_not_set_the_same_menu(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """A channel that is started again after a failure does not spend requests on what it knows."""
    await channel.start(MENU)
    assert len(tg.calls_of("setMyCommands")) == 1


@pytest.mark.parametrize("token", ["123456:WRONG", "nonsense"])
async def test_a_wrong_token_is_denied(tg: FakeTelegram, tmp_path: Path, token: str) -> None:
    """F06: 401 and 404 at the first contact are permanent, and the sentence does not show the token."""
    tg.token, right = token, tg.token
    made = channel_for(tg, tmp_path)
    tg.token = right
    with pytest.raises(Denied) as raised:
        await made.start([])
    assert token not in str(raised.value)
    await made.close()


async def test_a_service_that_is_away_is_no_reason_to_give_up(tg: FakeTelegram, tmp_path: Path) -> None:
    """F07: a refused connection is NotSent, an answer that makes no sense is Unknown: to be tried again."""
    made = channel_for(tg, tmp_path)
    tg.fail("getMe", 502, b"<html>")
    with pytest.raises(Unknown):
        await made.start([])
    await tg.stop()
    with pytest.raises(NotSent):
        await made.start([])
    await tg.start()
    await made.start([])
    await made.close()


async def test_a_menu_that_cannot_be_set_is_no_reason_to_stop(tg: FakeTelegram, tmp_path: Path) -> None:
    """The menu is a comfort; names that Telegram refuses are left out of it."""
    made = channel_for(tg, tmp_path)
    tg.fail("setMyCommands", 429, {"parameters": {"retry_after": 60}})
    menu = [*MENU, CommandInfo("Bad-Name", "x"), CommandInfo("empty", ""), CommandInfo("long", "y" * 400)]
    await made.start(menu)
    assert tg.commands == []
    await made.start(menu)
    assert [command["command"] for command in tg.commands] == ["reset", "fork", "long"]
    await made.close()


async def test_a_strangers_webhook_is_not_taken_away(tg: FakeTelegram, tmp_path: Path) -> None:
    """Another program may be using the bot: the channel stops with a sentence that says what to do, and changes nothing."""
    tg.webhook_url = "https://elsewhere.example/hook"
    made = channel_for(tg, tmp_path)
    with capture_logs() as lines, pytest.raises(Denied, match="deleteWebhook"):
        await made.start([])
    assert len(lines) == 1
    assert "elsewhere" not in str(lines)
    assert tg.webhook_url == "https://elsewhere.example/hook"
    await made.close()


async def test_a_webhook_that_may_still_be_there_is_taken_away_again(tg: FakeTelegram, tmp_path: Path) -> None:
    """An answer that makes no sense is none: with the webhook left there, polling would be refused for ever."""
    tg.webhook_url = "http://127.0.0.1:1/telegram"
    channel = channel_for(tg, tmp_path, webhook_url=tg.webhook_url)
    tg.fail("deleteWebhook", 200, {"ok": True, "result": 42})
    with pytest.raises(Unknown):
        await channel.start(())
    await channel.start(())
    assert tg.webhook_url == ""
    await channel.close()


async def test_our_own_webhook_makes_room_for_polling(tg: FakeTelegram, tmp_path: Path) -> None:
    """After a change from webhook to polling the webhook that we set goes, and what waits stays."""
    tg.webhook_url = "https://bot.example.org/tg"
    tg.say(42, "waits")
    made = channel_for(tg, tmp_path, webhook_url="https://bot.example.org/tg")
    await made.start([])
    assert (tg.webhook_url, tg.pending, tg.resets) == ("", 1, [])
    await made.close()


async def test_our_own_webhook_that_comes_back_goes_again(tg: FakeTelegram, tmp_path: Path) -> None:
    """Set while we poll (by a daemon that went on for a moment), it would keep every message from us until a restart."""
    made = channel_for(tg, tmp_path, webhook_url="https://bot.example.org/tg")
    await made.start([])
    tg.webhook_url = "https://bot.example.org/tg"
    task = asyncio.create_task(made.run(Gateway().accept))
    await tg.wait_for(lambda: made.trouble() == "a webhook is set on this bot", 10)
    assert tg.webhook_url == ""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await made.close()


@pytest.mark.parametrize("reads_all", [False, True])
async def test_privacy_mode_is_told_once(tg: FakeTelegram, tmp_path: Path, reads_all: bool) -> None:
    """B31: one warning that says what will not arrive and how to change it, and none where everything arrives."""
    tg.reads_all = reads_all
    made = channel_for(tg, tmp_path)
    with capture_logs() as lines:
        await made.start([])
        await made.start([])
    told = [line["event"] for line in lines if "privacy" in line["event"]]
    assert len(told) == (0 if reads_all else 1)
    assert all("/setprivacy" in text and "mentions" in text for text in told)
    await made.close()


# -------------------------------------------------------------------------------------------------------------------------- reading


async def test_a_message_comes_in_and_is_confirmed(tg: FakeTelegram, running: Running) -> None:
    """What is subscribed to is what is read; a message is confirmed after it was accepted."""
    async with running() as gateway:
        tg.say(42, "hello")
        await tg.wait_for(lambda: gateway.texts == ["hello"] and not tg.pending)
    assert tg.calls_of("getUpdates")[0].params["allowed_updates"] == ["message", "edited_message", "callback_query"]


async def test_odd_updates_stop_nothing(tg: FakeTelegram, running: Running) -> None:
    """B11, B12, B29: updates of every kind, malformed ones, a huge file: the offset moves, no error, and the next message is read."""
    async with running() as gateway:
        odds: list[Any] = [
            {},
            {"edited_message": {}},
            {"message": None},
            {"channel_post": {"text": "x"}},
            {"poll_answer": 5},
            17,
            None,
            "x",
        ]
        for odd in odds:
            tg.push(odd)
        tg.say(42, caption="read this", document={"file_id": "F", "file_size": 90_000_000})
        tg.say(42, "next")
        await tg.wait_for(lambda: gateway.texts == ["read this", "next"] and not tg.pending)
    assert tg.calls_of("getFile") == []


async def test_a_full_disk_keeps_the_message_with_telegram(tg: FakeTelegram, running: Running) -> None:
    """B02: what could not be written is not confirmed, and comes again."""
    async with running() as gateway:
        gateway.full = 1
        tg.say(42, "hello")
        await tg.wait_for(lambda: gateway.batches == [["hello"]])
        assert tg.pending == 1
        await tg.wait_for(lambda: gateway.texts == ["hello"] and not tg.pending)


async def test_buttons_are_answered(tg: FakeTelegram, channel: TelegramChannel, running: Running) -> None:
    """B28: each press is answered exactly once: a good one, one of an earlier program and one without a message (told that they have
    expired); that Telegram finds it too old harms nothing."""
    await channel.send(ANA, HI, buttons=[Button("West", "/switch west")])
    tg.fail("answerCallbackQuery", 400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
    async with running() as gateway:
        with capture_logs() as lines:
            too_old = tg.press(42, "West")
            await tg.wait_for(lambda: tg.calls_of("answerCallbackQuery"))
        good, gone, old = tg.press(42, "West"), tg.callback("old:42", None), tg.callback("old:42", tg.message(42, "before"))
        await tg.wait_for(lambda: all(tg.answered[one] for one in (good, gone, old)))
        assert gateway.texts == ["/switch west", "/switch west"]
    assert [len(tg.answered[one]) for one in (too_old, good, gone, old)] == [0, 1, 1, 1]
    assert all("expired" in tg.answered[one][0]["text"] for one in (gone, old))
    assert "text" not in tg.answered[good][0]
    assert lines == []


async def test_polling_that_hangs_is_given_up_in_time(tg: FakeTelegram, tmp_path: Path) -> None:
    """B17: a request that is never answered ends within twice the time it may take, and a new connection reads on."""
    made = channel_for(tg, tmp_path, poll_timeout=1)
    await made.start([])
    hung, gateway = tg.hold("getUpdates", before=True), Gateway()
    task = asyncio.create_task(made.run(gateway.accept))
    await tg.wait_for(hung.reached.is_set)
    tg.say(42, "after")
    await tg.wait_for(lambda: gateway.texts == ["after"])
    first, second = tg.calls_of("getUpdates")[:2]
    assert second.peer != first.peer
    assert second.at - first.at < 2 + 1.5, "twice the poll timeout, and the first pause"
    hung.release()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await made.close()


async def test_polling_that_hangs_shows(tg: FakeTelegram, channel: TelegramChannel, running: Running) -> None:
    """B17: sends that work are no sign of life of the reading."""
    tg.hold("getUpdates", before=True)
    async with running():
        await tg.wait_for(lambda: tg.calls_of("getUpdates"))
        before = channel.last_sign_of_life()
        await channel.send(ANA, HI)
        assert channel.last_sign_of_life() == before


async def test_a_token_that_is_revoked_ends_the_channel(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """A 401 while reading is Denied, to whoever awaits `run`."""
    tg.fail("*", 401, times=None)
    with pytest.raises(Denied):
        await asyncio.wait_for(channel.run(Gateway().accept), 5)


@pytest.mark.parametrize("status", [401, 404])
async def test_a_token_that_is_refused_once_and_not_twice_is_good(tg: FakeTelegram, channel: TelegramChannel, status: int) -> None:
    """Whatever was asked: it had no effect, and is tried again later. Reading goes on."""
    message_id = await channel.send(ANA, HI)
    calls: tuple[tuple[str, Callable[[], Awaitable[object]]], ...] = (
        ("sendMessage", lambda: channel.send(ANA, HI)),
        ("editMessageText", lambda: channel.edit(ANA, message_id, Piece("x"))),
        ("deleteMessage", lambda: channel.delete(ANA, message_id)),
        ("sendChatAction", lambda: channel.typing(ANA)),
        ("getChatAdministrators", lambda: channel.is_admin(GROUP, "42")),
    )
    for method, action in calls:
        tg.fail(method, status)
        with pytest.raises(Retry):
            await action()
    gateway = Gateway()
    fault = tg.fail("getUpdates", status)
    reading = asyncio.create_task(channel.run(gateway.accept))
    await tg.wait_for(lambda: fault.hits)
    tg.say(42, "still there?")
    await tg.wait_for(lambda: [inbound.text for inbound in gateway.inbounds] == ["still there?"])
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


# -------------------------------------------------------------------------------------------------------------------------- sending


async def test_a_send_says_what_the_piece_says(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """Text with entities and never a parse mode, no link preview, offsets in UTF-16 units; the id of the message comes back."""
    piece = Piece("😀 bold https://example.org", (Span("bold", 2, 6),))
    message_id = await channel.send(ANA, piece)
    (shown,) = tg.messages(42)
    assert (message_id, shown.text) == (str(shown.id), piece.text)
    assert [(e["type"], e["offset"], e["length"]) for e in shown.entities] == [("bold", 3, 4)]
    (call,) = tg.calls_of("sendMessage")
    assert "parse_mode" not in call.params
    assert call.params["link_preview_options"] == {"is_disabled": True}


async def test_rendered_markdown_passes(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """What `render` gives, the service takes."""
    for piece in channel.render("# T\n\n**b** _i_ `c` [l](https://example.org)\n\n```py\nx = 1\n```\n\n> q\n\n- a\n  - b"):
        await channel.send(ANA, piece)
    assert "x = 1" in tg.visible(42)[0]


async def test_an_answer_refers_to_its_question(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """The reply goes to the message; one that has vanished is left out, in whichever way the service says so."""
    asked = tg.say(-5, "@OurBot hi")
    group = Address("telegram", "-5")
    await channel.send(group, HI, reply_to=str(asked))
    await channel.send(group, HI, reply_to="999")
    tg.fail("sendMessage", 400, "Bad Request: message to be replied not found")
    await channel.send(group, HI, reply_to="998")
    assert [shown.reply_to for shown in tg.messages(-5)] == [asked, None, None]


async def test_threads_are_topics(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """B06, B08, B09: an address of a topic sends and types there; one of General names no thread at all."""
    forum = -1001500
    tg.chat(forum, is_forum=True, topics={36})
    topic, general = Address("telegram", str(forum), "36"), Address("telegram", str(forum))
    for address in (topic, general):
        await channel.send(address, HI)
        await channel.typing(address)
    assert [call.params.get("message_thread_id") for call in tg.calls if call.chat == forum] == [36, 36, None, None]
    tg.chat(forum).topics.clear()
    with pytest.raises(Gone):
        await channel.send(topic, HI)


async def test_buttons_stand_under_the_message(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """One a row where they are long; one whose data Telegram would refuse does not cost the message; an edit takes or renews them."""
    long, short = [Button("A long title of a session", "/switch a"), Button("x", "y" * 65)], [Button("Yes", "/yes"), Button("No", "/no")]
    first, second = await channel.send(ANA, HI, buttons=long), await channel.send(ANA, HI, buttons=short)
    assert [shown.buttons for shown in tg.messages(42)] == [[("A long title of a session", "/switch a")], [("Yes", "/yes"), ("No", "/no")]]
    await channel.edit(ANA, first, Piece("done"))
    await channel.edit(ANA, second, HI, buttons=short[:1])
    assert [shown.buttons for shown in tg.messages(42)] == [[], [("Yes", "/yes")]]


async def test_an_edit_that_changes_nothing_is_a_success(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """A16: "not modified" is what we wanted: no error, and one message."""
    message_id = await channel.send(ANA, HI)
    await channel.edit(ANA, message_id, HI)
    await channel.edit(ANA, message_id, Piece("hi \n"))
    assert tg.calls[-1].status == 400
    assert tg.visible(42) == ["hi"]


async def test_edits_and_deletes_of_what_is_not_there(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """An edit of a vanished message is Lost; deleting one twice is a success."""
    message_id = await channel.send(ANA, HI)
    await channel.delete(ANA, message_id)
    await channel.delete(ANA, message_id)
    for gone in (message_id, "999", "nonsense", ""):
        with pytest.raises(Lost):
            await channel.edit(ANA, gone, HI)
    assert tg.visible(42) == []


@pytest.mark.parametrize(
    ("status", "description", "kind"),
    [
        (403, "Forbidden: bot was blocked by the user", Gone),
        (403, "Forbidden: bot was kicked from the group chat", Gone),
        (400, "Bad Request: chat not found", Gone),
        (400, "Bad Request: can't parse entities: unexpected end", Rejected),
        (500, "Internal Server Error", Unknown),
        (429, "Too Many Requests: retry after 5", Retry),
    ],
)
async def test_every_sending_call_ends_in_a_channel_error(
    tg: FakeTelegram, channel: TelegramChannel, status: int, description: str, kind: type[ChannelError]
) -> None:
    """B21: whatever is called, the caller hears what can be done about it, after a single request."""
    message_id = await channel.send(ANA, HI)
    tg.fail("*", status, {"description": description, "parameters": {"retry_after": 5}} if status == 429 else description, times=None)
    calls = len(tg.calls)
    for action in (
        channel.send(ANA, HI),
        channel.edit(ANA, message_id, Piece("x")),
        channel.delete(ANA, message_id),
        channel.typing(ANA),
        channel.is_admin(ANA, "42"),
    ):
        with pytest.raises(ChannelError) as raised:
            await action
        assert type(raised.value) is kind
        assert str(raised.value)
    assert len(tg.calls) == calls + (4 if kind is Retry else 5)  # who asks for the admins waits with the chat


@pytest.mark.parametrize("result", [True, None, [], {}, {"message_id": "x"}, 17, "text"])
async def test_an_answer_that_makes_no_sense_is_no_answer(tg: FakeTelegram, channel: TelegramChannel, result: object) -> None:
    """Whatever stands in a 200, a ChannelError is what the caller gets, and no other exception."""
    message_id = await channel.send(ANA, HI)
    tg.fail("*", 200, lambda _: json.dumps({"ok": True, "result": result}).encode(), times=None)
    with pytest.raises(Unknown):
        await channel.send(ANA, HI)
    for action in (channel.edit(ANA, message_id, HI), channel.typing(ANA), channel.delete(ANA, message_id), channel.is_admin(ANA, "1")):
        with suppress(ChannelError):
            await action


async def test_one_blocked_chat_does_not_touch_another(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """B21: chat 7 has blocked us; chat 8 has its answer."""
    tg.block(7)
    with pytest.raises(Gone):
        await channel.send(Address("telegram", "7"), HI)
    await channel.send(Address("telegram", "8"), HI)
    assert (tg.visible(7), tg.visible(8)) == ([], ["hi"])


async def test_nothing_is_sent_twice_on_a_guess(tg: FakeTelegram, tmp_path: Path) -> None:
    """B24: a send whose answer does not come is Unknown and there once; a refused connection is NotSent."""
    made = channel_for(tg, tmp_path)
    made._transport._read_seconds = 0.2
    await made.start([])
    held = tg.hold("sendMessage")
    with pytest.raises(Unknown):
        await made.send(ANA, HI)
    held.release()
    assert tg.visible(42) == ["hi"]
    tg.drop("sendMessage", after=True)
    with pytest.raises(Unknown):
        await made.send(ANA, HI)
    assert tg.visible(42) == ["hi", "hi"]
    await tg.stop()
    with pytest.raises(NotSent):
        await made.send(ANA, HI)
    assert len(tg.calls_of("sendMessage")) == 2
    await made.close()


async def test_an_address_of_another_network_is_refused(channel: TelegramChannel) -> None:
    """Only ChannelErrors leave the sending half, whatever it is given."""
    for action in (channel.send(Address("discord", "x"), HI), channel.typing(Address("discord", "x"))):
        with pytest.raises(Refused):
            await action


# ---------------------------------------------------------------------------------------------------------------- groups that move

OLD, NEW = -500, -1001500
GROUP = Address("telegram", str(OLD))


async def test_a_group_that_moved_is_followed(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """B04: the same text goes to the new id at once; later ones, typing and questions for admins go there directly."""
    tg.migrate(OLD, NEW)
    tg.admin(NEW, 5)
    await channel.send(GROUP, HI, reply_to="3")
    await channel.send(GROUP, Piece("again"))
    await channel.typing(GROUP)
    assert await channel.is_admin(GROUP, "5")
    assert tg.visible(NEW) == ["hi", "again"]
    answered = tg.say(NEW, "@OurBot in the new group")
    await channel.send(GROUP, Piece("to that"), reply_to=f"{NEW}/{answered}")
    tg.chat(NEW, topics={7})
    await channel.send(Address("telegram", str(OLD), "7"), Piece("in a topic"), reply_to="3")
    *_, reply, topic = tg.calls_of("sendMessage", NEW)
    assert str(answered) in str(reply.params["reply_parameters"])
    assert str(topic.params["message_thread_id"]) == "7"
    assert "reply_parameters" not in topic.params
    del tg.calls[-2:]
    assert [call.chat for call in tg.calls if call.chat] == [OLD, NEW, NEW, NEW, NEW]


async def test_a_moved_groups_messages_are_not_mixed_up(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """Ids of the old group and of the new one are told apart: an edit never hits a stranger's message with the same number."""
    before = await channel.send(GROUP, Piece("old"))
    tg.migrate(OLD, NEW)
    after = await channel.send(GROUP, Piece("new"))
    assert before == "1"
    assert after == f"{NEW}/1"
    with pytest.raises(Lost):
        await channel.edit(GROUP, before, Piece("changed"))
    await channel.edit(GROUP, after, Piece("changed"))
    assert tg.visible(NEW) == ["changed"]
    await channel.delete(GROUP, after)
    assert tg.visible(NEW) == []


async def test_a_move_is_kept_over_a_restart(tg: FakeTelegram, channel: TelegramChannel, running: Running, tmp_path: Path) -> None:
    """B04: learned from the service message in the group, too; kept in a private file; a new process sends there directly."""
    async with running():
        tg.say(OLD, migrate_to_chat_id=NEW)
        await tg.wait_for(lambda: not tg.pending and (tmp_path / "telegram" / "moved.json").exists())
    file = tmp_path / "telegram" / "moved.json"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    again = channel_for(tg, tmp_path / "telegram")
    await again.start([])
    await again.send(GROUP, HI)
    assert tg.visible(NEW) == ["hi"]
    assert not tg.calls_of("sendMessage", OLD)
    await again.close()


@pytest.mark.parametrize("content", [b"", b"null", b"[1]", b'{"a":', b"\xff\xfe"])
async def test_a_bad_file_of_moves_is_put_aside(tg: FakeTelegram, tmp_path: Path, content: bytes) -> None:
    """F18: it costs one refused send, is never overwritten, and does not stop the start."""
    (tmp_path / "moved.json").write_bytes(content)
    tg.migrate(OLD, NEW)
    made = channel_for(tg, tmp_path)
    await made.start([])
    await made.send(GROUP, HI)
    assert (tmp_path / "moved.bad").read_bytes() == content
    assert tg.visible(NEW) == ["hi"]
    await made.close()


async def test_groups_that_move_in_a_circle_end(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """A service that sends us from id to id gets a few requests and no endless loop."""
    tg.migrate(OLD, NEW)
    tg.migrate(NEW, OLD)
    with pytest.raises(Gone):
        await channel.send(GROUP, HI)
    assert len(tg.calls_of("sendMessage")) <= 5


# --------------------------------------------------------------------------------------------------------------------------- admins


async def test_admins_are_as_the_network_says(tg: FakeTelegram, channel: TelegramChannel) -> None:
    """Creator and administrators are, others are not; a chat that has none does not say."""
    tg.admin(-5, 1, creator=True)
    tg.admin(-5, 2)
    group = Address("telegram", "-5")
    assert [await channel.is_admin(group, user) for user in ("1", "2", "3")] == [True, True, False]
    with pytest.raises(ChannelError):
        await channel.is_admin(ANA, "42")


# -------------------------------------------------------------------------------------------------------------------------- secrets


async def test_no_secret_and_no_words_in_any_log(
    tg: FakeTelegram, channel: TelegramChannel, running: Running, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """F01, F02: with every logger at its most talkative, after good calls and bad ones, neither half of the token, and not what people
    and the model say."""
    caplog.set_level(logging.DEBUG)
    told: list[Any] = []
    async with running() as gateway:
        tg.say(42, "their private words")
        tg.push({"message": {"text": "their private words"}})
        await tg.wait_for(lambda: gateway.texts)
        await channel.send(ANA, Piece("our private words"))
        for status in (400, 403, 500, 502):
            tg.fail("sendMessage", status, b"<html>" if status == 502 else None)
            with pytest.raises(ChannelError) as raised:
                await channel.send(ANA, Piece("our private words"))
            told.append(raised.value)
        await tg.stop()
        with pytest.raises(NotSent) as refused:
            await channel.send(ANA, Piece("our private words"))
        told.append(refused.value)
        await tg.wait_for(lambda: "polling has a problem" in capsys.readouterr().out or len(told) > 4)
        await tg.start()
    logged = "".join(record.getMessage() + str(record.exc_text) for record in caplog.records)
    everything = logged + "".join(map(repr, told)) + capsys.readouterr().out
    for secret in ("TESTTOKEN", "123456:", "private words"):
        assert secret not in everything


def test_the_library_never_knows_the_token(tmp_path: Path) -> None:
    """F01: it cannot log or raise what it was not given."""
    tg = FakeTelegram()
    made = channel_for(tg, tmp_path)
    assert made._bot.token == "unused"
    assert tg.token not in f"{made._bot.base_url}{made._bot.base_file_url}{made._bot!r}"
    assert "TESTTOKEN" not in repr(Transport(tg.base_url, tg.token))
