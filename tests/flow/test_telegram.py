"""Telegram at its worst, end to end: floods, blocks, lost answers, hung polls, odd content, old buttons; and what a person sees of it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.openai import DONE, End, FakeModel, Reply, delta, refuses, says
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import Daemon
from tests.flow.people import config
from tests.flow.seen import BOTH, PATIENCE, replies, shown, texts_sent, told, until

ANA, BEN = 42, 43
FILE = {"file_id": "f", "file_unique_id": "f"}
PHOTO = [FILE | {"width": 9, "height": 9}]


def slow(first: str, rest: str, gate: asyncio.Event) -> Reply:
    """An answer that begins, and goes on behind the gate."""
    return Reply([delta("", role="assistant"), delta(first), gate, delta(rest), delta(finish="stop"), DONE])


# ------------------------------------------------------------------------------------------------------------- waits and refusals


@BOTH
async def test_a_flood_wait_is_kept_and_the_answer_comes_once(daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """B20: told to wait in mid-stream and again at the end: not one call for that chat before its time; others do not notice."""
    gate = asyncio.Event()
    replies(model, {"tell": slow("One ", "two three.", gate)})
    tg.say(ANA, "tell")
    await model.wait(1)
    if streaming == "edit":
        await shown(tg, ANA, "One")
    tg.flood(ANA, 2.5)
    gate.set()
    await tg.wait_for(lambda: tg.chats[ANA].flood_told, PATIENCE, chat=ANA)
    tg.say(BEN, "hi")
    await shown(tg, BEN, "Heard: hi")
    assert time.monotonic() < tg.chats[ANA].flood_until
    again = tg.fail("*", 429, {"parameters": {"retry_after": 1}}, when=lambda p: p.get("text") == "One two three.")
    await tg.wait_for(lambda: again.hits, PATIENCE, chat=ANA)
    refused = time.monotonic()
    calls = len(tg.calls)
    await shown(tg, ANA, "One two three.")
    assert time.monotonic() - refused > 0.9
    assert len([call for call in tg.calls[calls:] if call.chat == ANA]) == 1
    assert await daemon.stop() == 0
    assert tg.visible(ANA) == ["One two three."]
    assert tg.impatient == []
    assert len([call for call in texts_sent(tg, ANA) if call.status == 429]) == 2


GONE = {
    "blocked": (403, "Forbidden: bot was blocked by the user"),
    "kicked": (403, "Forbidden: bot was kicked from the supergroup chat"),
    "deleted": (400, "Bad Request: chat not found"),
    "deactivated": (403, "Forbidden: user is deactivated"),
    "no right to write": (400, "Bad Request: not enough rights to send text messages to the chat"),
}


@BOTH
async def test_a_chat_that_is_gone_costs_nobody_else(daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """B21: in whichever way it is gone, for an answer that was growing, a short one, a long one and a command: at most two calls for it;
    one warning names the place; another chat has its answer; whoever comes back is answered."""
    gate = asyncio.Event()
    replies(model, {"long": says("word " * 3000), "growing": slow("One ", "word " * 3000, gate)})
    ways = [(question, way) for question in ("growing", "short", "long", "/status") for way in GONE]
    chats = dict(enumerate(ways, 100))
    growing = [chat for chat, (question, _) in chats.items() if question == "growing"]
    for chat in growing:
        tg.say(chat, "growing")
    await model.wait(len(growing))
    if streaming == "edit":
        for chat in growing:
            await shown(tg, chat, "One")
    for chat, (_, way) in chats.items():
        tg.block(chat, GONE[way][1], GONE[way][0])
    left = {chat: len(tg.visible(chat)) for chat in chats}
    calls = len(tg.calls)
    gate.set()
    for chat, (question, _) in chats.items():
        if chat not in growing:
            tg.say(chat, question)
    tg.say(BEN, "hi")
    await shown(tg, BEN, "Heard: hi")
    for chat in chats:
        await tg.wait_for(lambda chat=chat: any(call.chat == chat for call in tg.calls[calls:]), PATIENCE, chat=chat)  # type: ignore[misc]
    for chat in chats:
        tg.chat(chat).refusal = None
        tg.say(chat, "back again")
    for chat, case in chats.items():
        seen = await until(tg, chat, lambda seen: seen and seen[-1].endswith("back again"))
        assert len(seen) == left[chat] + 1, case
        assert len([call for call in tg.calls[calls:] if call.chat == chat and not call.ok]) <= 2, case
    assert await daemon.stop() == 0
    warned = [line for line in daemon.text().splitlines() if "may not speak here" in line]
    assert all(sum(f'"chat":"{chat}"' in line.replace(" ", "") for line in warned) == 1 for chat in chats), warned
    assert "Traceback" not in daemon.text()


@BOTH
async def test_a_send_that_may_have_arrived_is_not_repeated(daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """B24: Telegram takes an answer or a reply and its own answer is lost: one copy. Where it certainly was not reached: one copy in the
    end. (An empty placeholder may be there twice; words may not.)"""
    lost = [tg.drop("sendMessage", after=True, chat=chat) for chat in (ANA, BEN)]
    tg.say(ANA, "hi")
    tg.say(BEN, "/whoami")
    await until(tg, ANA, lambda seen: "Heard: hi" in seen)
    await until(tg, BEN, lambda seen: len(seen) == 1)
    gate = asyncio.Event()
    model.script(lambda asked: slow("", f"{asked.words} done", gate))
    for chat in (ANA, BEN):
        tg.say(chat, f"second {chat}")
    await model.wait(3)
    await tg.stop()
    gate.set()
    await tg.wait_for(lambda: daemon.text().count("send failed") == 2, PATIENCE)
    await tg.start()
    for chat in (ANA, BEN):
        await until(tg, chat, lambda seen: seen[-1].endswith("done"))
        tg.say(chat, "/status")
        await until(tg, chat, lambda seen: "Session" in seen[-1])
    assert await daemon.stop() == 0
    assert [fault.hits for fault in lost] == [1, 1]
    seen = [[text for text in tg.visible(chat) if text != "…"] for chat in (ANA, BEN)]
    assert [texts[:-1] for texts in seen] == [["Heard: hi", "second 42 done"], [seen[1][0], "second 43 done"]]
    assert "telegram:43" in seen[1][0]
    assert len(tg.visible(ANA)) - len(seen[0]) == (streaming == "edit")
    assert len(tg.visible(BEN)) == 3


# ------------------------------------------------------------------------------------------------------------------------ reading


async def test_a_poll_that_hangs_is_given_up_for_another(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """B17: an error, then a request that is taken and never answered: within twice the poll's time there is a new one, and what waits is
    answered."""
    async with Daemon(tmp_path, config(tg, model, telegram="").replace('poll_timeout = "5s"', 'poll_timeout = "1s"')) as daemon:
        await tg.wait_for(lambda: tg.calls_of("getUpdates"), PATIENCE)
        tg.fail("getUpdates", 502, b"<html>bad gateway</html>")
        hung = tg.hold("getUpdates", before=True)
        await asyncio.wait_for(hung.reached.wait(), PATIENCE)
        polls, began = len(tg.calls_of("getUpdates")), time.monotonic()
        tg.say(ANA, "hello?")
        await shown(tg, ANA, "Heard: hello?")
        after = tg.calls_of("getUpdates")[polls]
        assert after.at - began < 10
        assert after.peer != tg.calls_of("getUpdates")[polls - 1].peer
        hung.release()
        assert await daemon.stop() == 0


CONTENT: dict[str, dict[str, Any]] = {
    "sticker": {"sticker": FILE | {"type": "regular", "width": 1, "height": 1, "is_animated": False, "is_video": False, "emoji": "👍"}},
    "animated sticker": {"sticker": FILE | {"type": "regular", "is_animated": True, "is_video": False}},
    "video sticker": {"sticker": FILE | {"type": "regular", "is_animated": False, "is_video": True}},
    "voice": {"voice": FILE | {"duration": 3, "mime_type": "audio/ogg"}},
    "video message": {"video_note": FILE | {"duration": 3, "length": 9}},
    "location": {"location": {"latitude": 1.0, "longitude": 2.0}},
    "place": {"venue": {"title": "Bar", "address": "x"}, "location": {"latitude": 1.0, "longitude": 2.0}},
    "contact": {"contact": {"phone_number": "1", "first_name": "A"}},
    "poll": {"poll": {"id": "1", "question": "?", "options": []}},
    "dice": {"dice": {"emoji": "🎲", "value": 3}},
    "photo": {"photo": PHOTO},
    "file": {"document": FILE | {"file_name": "a.pdf"}},
    "animation": {"animation": FILE, "document": FILE},
    "audio": {"audio": FILE | {"duration": 3}},
    "video": {"video": FILE | {"duration": 3}},
    "blank caption": {"photo": PHOTO, "caption": " \n"},
    "story": {"story": {"id": 1, "chat": {"id": 1, "type": "private"}}},
}
SERVICE: dict[str, dict[str, Any]] = {
    "joined": {"new_chat_members": [{"id": 5, "is_bot": False, "first_name": "A"}]},
    "left": {"left_chat_member": {"id": 5, "is_bot": False, "first_name": "A"}},
    "pinned": {"pinned_message": {"message_id": 1, "date": 1, "chat": {"id": 42, "type": "private"}}},
    "title": {"new_chat_title": "T"},
    "timer": {"message_auto_delete_timer_changed": {"message_auto_delete_time": 5}},
    "call": {"video_chat_started": {}},
    "boost": {"boost_added": {"boost_count": 1}},
    "unknown to all": {"some_future_thing": {"x": [1, None]}},
}


async def test_what_cannot_be_read_gets_one_word_and_what_nobody_said_none(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """B23: each kind of content has one short note and never the model's invention; service messages have nothing at all."""
    odd, service = dict(enumerate(CONTENT, 1)), dict(enumerate(SERVICE, 100))
    for chat, name in odd.items():
        tg.say(chat, **CONTENT[name])
    for chat, name in service.items():
        tg.say(chat, **SERVICE[name])
    for chat in odd:
        await told(tg, chat, "cannot read")
    tg.say(ANA, photo=PHOTO, caption="what is this?")
    await until(tg, ANA, lambda seen: len(seen) == 1 and seen[0].endswith("what is this?"))
    assert await daemon.stop() == 0
    assert [len(tg.visible(chat)) for chat in odd] == [1] * len(odd)
    assert [call for call in tg.calls if call.chat in service] == []
    assert len(model.asked) == 1
    assert "[photo, not shown]" in model.asked[0].words


@pytest.mark.parametrize("apart", [False, True], ids=["one batch", "two batches"])
async def test_an_album_is_one_question(daemon: Daemon, tg: FakeTelegram, model: FakeModel, apart: bool) -> None:
    """B14: three pictures with one caption: the model is asked once, with the caption; there is one answer."""
    tg.say(ANA, photo=PHOTO, caption="compare these", media_group_id="g1")
    if apart:
        await tg.wait_for(lambda: tg.pending == 0, PATIENCE)
    for _ in range(2):
        tg.say(ANA, photo=PHOTO, media_group_id="g1")
    await until(tg, ANA, lambda seen: len(seen) == 1 and "compare these" in seen[0])
    tg.say(ANA, "and?")
    await until(tg, ANA, lambda seen: seen[-1] == "Heard: and?")
    assert await daemon.stop() == 0
    assert len(tg.visible(ANA)) == len(model.asked) == 2
    assert model.asked[0].words.count("[photo, not shown]") == (1 if apart else 3)


# ---------------------------------------------------------------------------------------------------------- turns beside each other


async def test_one_slow_turn_holds_up_nobody(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """B26: while the model hangs for one chat another is answered, and /stop gets through at once, also when both come in one batch; what
    waited in that chat comes in order."""
    replies(model, {"hang": Reply([End.HANG]), "again": Reply([delta("So far"), End.HANG])})
    tg.say(ANA, "hang")
    tg.say(ANA, "one")
    tg.say(ANA, "two")
    await model.wait(1)
    tg.say(ANA, "/stop")
    tg.say(BEN, "hi")
    await shown(tg, BEN, "Heard: hi")
    await asyncio.wait_for(model.asked[0].done.wait(), 3)
    assert model.asked[0].ended == "left"
    await shown(tg, ANA, "Stopped.", "Heard: one", "Heard: two")
    tg.say(ANA, "again")
    await until(tg, ANA, lambda seen: seen[-1] == "So far")
    tg.say(BEN, "still there?")
    await until(tg, BEN, lambda seen: seen[-1] == "Heard: still there?")
    assert tg.visible(ANA)[-1] == "So far"
    tg.say(ANA, "/stop")
    await until(tg, ANA, lambda seen: "stopped" in seen[3] and seen[4:] == ["Stopped."])


async def test_typing_is_shown_while_a_turn_lasts_and_never_after(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """C25: from the first second without a word, through passing errors, in the topic of the question; not for a quick answer, and not
    after an end of any kind."""
    gates = {name: asyncio.Event() for name in ("ends", "fails", "flaky", "P42: topic")}
    table = {name: Reply([gate, delta(f"{name} done"), delta(finish="stop"), DONE]) for name, gate in gates.items()}
    refusal = refuses(401, "no")
    table["fails"] = Reply(refusal.steps, refusal.status, refusal.headers, before=gates["fails"])
    replies(model, table | {"stops": Reply([End.HANG]), "clock": Reply([End.HANG])})
    chats = {"ends": 1, "fails": 2, "flaky": 3, "stops": 4, "quick": 5, "P42: topic": -1001}
    tg.chat(-1001, is_forum=True)
    tg.fail("sendChatAction", 502, chat=3)
    began = time.monotonic()
    for name, chat in chats.items():
        tg.say(chat, name if chat > 0 else "@OurBot topic", thread=None if chat > 0 else 36)
    await shown(tg, 5, "Heard: quick")

    def typed(chat: int) -> int:
        return len(tg.calls_of("sendChatAction", chat))

    for chat in (1, 2, 3, 4, -1001):
        await tg.wait_for(lambda chat=chat: typed(chat), PATIENCE, chat=chat)  # type: ignore[misc]
        assert tg.calls_of("sendChatAction", chat)[0].at - began > 0.9
    for name, gate in gates.items():
        if name != "flaky":
            gate.set()
    tg.say(4, "/stop")
    await shown(tg, 1, "ends done")
    await told(tg, 2, "key")
    await shown(tg, 4, "Stopped.")
    await shown(tg, -1001, "P42: topic done")
    counts = {chat: typed(chat) for chat in (1, 2, 4, 5, -1001)}
    tg.say(6, "clock")  # the signs of another turn, after 1 and 5 seconds, tell how long nothing has come
    await tg.wait_for(lambda: typed(6) == 2, PATIENCE, chat=6)
    assert {chat: typed(chat) for chat in counts} == counts
    assert counts[5] == 0
    assert [call.status for call in tg.calls_of("sendChatAction", 3)][:2] == [502, 200]
    gates["flaky"].set()
    await shown(tg, 3, "flaky done")
    assert {call.params.get("message_thread_id") for call in tg.calls_of("sendChatAction", -1001)} == {36}


# ------------------------------------------------------------------------------------------------------------------------ buttons


async def test_every_press_is_answered_once(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """B28: buttons of today, of before a restart, of nobody knows when, pressed twice, and answered too late: no endless spinner, no turn
    for the model, no traceback."""
    for text in ("one", "/fork west"):
        tg.say(ANA, text)
    await until(tg, ANA, lambda seen: len(seen) == 2 and "west" in seen[-1])
    await daemon.kill()
    await daemon.start()
    presses = [tg.press(ANA, "Back to main"), tg.press(ANA, "Back to main")]
    await until(tg, ANA, lambda seen: len(seen) == 4 and "main" in seen[-1])
    ours = {"message_id": 1, "date": int(time.time()), "chat": {"id": ANA, "type": "private"}, "from": {"id": 7, "is_bot": True}}
    presses.append(tg.callback("/resetx", ours, user=ANA))
    expired = [tg.callback(data, ours, user=ANA) for data in ("old:42", "", "/", "hello model")]
    expired += [tg.callback("old:42", None, user=ANA), tg.callback("/reset", ours | {"date": 0}, user=ANA)]
    late = tg.callback("/status", ours, user=ANA)
    del tg.answered[late]  # the network does not know this press any more
    await until(tg, ANA, lambda seen: "Session" in "".join(seen[4:]))
    tg.say(ANA, "two")
    await until(tg, ANA, lambda seen: seen[-1] == "Heard: two")
    assert await daemon.stop() == 0
    assert [len(tg.answered[press]) for press in (*presses, *expired)] == [1] * (len(presses) + len(expired))
    assert [press for press in (*presses, *expired) if tg.answered[press][0].get("text")] == expired
    assert all("expired" in tg.answered[press][0]["text"] for press in expired)
    assert [asked.words for asked in model.asked] == ["one", "two"]
    assert "Traceback" not in daemon.text()
