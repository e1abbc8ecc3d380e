"""`tests.fakes.telegram`: that the fake refuses what the service refuses. Everything else about it shows in the tests that use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession

from tests.fakes.telegram import FakeTelegram
from tests.fakes.telegram_rules import found_entities

Json = dict[str, Any]


class Client:
    def __init__(self, tg: FakeTelegram, session: ClientSession) -> None:
        self.tg, self.session = tg, session

    async def __call__(self, method: str, *, token: str = "", **params: Any) -> Json:
        async with self.session.post(f"{self.tg.base_url}/bot{token or self.tg.token}/{method}", json=params) as response:
            answer: Json = await response.json()
            assert response.status == (200 if answer["ok"] else answer["error_code"])
            return answer

    async def refused(self, method: str, **params: Any) -> str:
        answer = await self(method, **params)
        assert not answer["ok"], answer
        return str(answer["description"])


@pytest.fixture
async def tg() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as fake:
        yield fake


@pytest.fixture
async def call(tg: FakeTelegram) -> AsyncIterator[Client]:
    async with ClientSession() as session:
        yield Client(tg, session)


async def test_tokens(call: Client) -> None:
    """401 for a token of the right form, 404 for anything else and for unknown methods."""
    assert (await call("getMe", token="1:x"))["error_code"] == 401
    assert (await call("getMe", token="x"))["error_code"] == 404
    assert await call.refused("noSuchMethod") == "Not Found: method not found"


async def test_texts(call: Client) -> None:
    """Length by code points and UTF-16 units, blank texts, blanks around."""
    for text in ("x" * 4097, "😀" * 2049):
        assert await call.refused("sendMessage", chat_id=1, text=text) == "Bad Request: message is too long"
    for text in ("", " \n", "\u200b"):
        assert await call.refused("sendMessage", chat_id=1, text=text) == "Bad Request: message text is empty"
    for text in ("x" * 4096, "😀" * 2048, "  kept \n"):
        assert (await call("sendMessage", chat_id="1", text=text))["ok"]
    assert call.tg.visible(1)[-1] == "kept"


@pytest.mark.parametrize(
    "entities",
    [
        [{"type": "bold", "offset": 0, "length": 5}],
        [{"type": "bold", "offset": -1, "length": 1}],
        [{"type": "bold", "offset": 0, "length": 0}],
        [{"type": "bold", "offset": 0, "length": 1}],
        [{"type": "bold", "offset": 1, "length": 1}],
        [{"type": "bold", "offset": 0, "length": 3}, {"type": "italic", "offset": 2, "length": 2}],
        [{"type": "nonsense", "offset": 0, "length": 2}],
        [{"type": "text_link", "offset": 0, "length": 2}],
    ],
)
async def test_entities(call: Client, entities: list[Json]) -> None:
    """Out of bounds, within a character, across each other, unknown: refused. The text has four UTF-16 units."""
    assert (await call.refused("sendMessage", chat_id=1, text="😀ab", entities=entities)).startswith("Bad Request: ")
    good = [{"type": "bold", "offset": 0, "length": 4}, {"type": "italic", "offset": 2, "length": 1}]
    assert (await call("sendMessage", chat_id=1, text="😀ab", entities=good))["ok"]


async def test_edits(call: Client) -> None:
    """Unchanged, unknown, not ours; an edit and a delete show."""
    theirs = call.tg.say(1, "hi")
    sent = (await call("sendMessage", chat_id=1, text="a"))["result"]["message_id"]
    assert "message is not modified" in await call.refused("editMessageText", chat_id=1, message_id=sent, text="a\n")
    assert await call.refused("editMessageText", chat_id=1, message_id=99, text="b") == "Bad Request: message to edit not found"
    assert await call.refused("editMessageText", chat_id=1, message_id=theirs, text="b") == "Bad Request: message can't be edited"
    assert (await call("editMessageText", chat_id=1, message_id=sent, text="b"))["ok"]
    assert call.tg.visible(1) == ["b"]
    assert (await call("deleteMessage", chat_id=1, message_id=sent))["ok"]
    assert await call.refused("deleteMessage", chat_id=1, message_id=sent) == "Bad Request: message to delete not found"
    assert call.tg.visible(1) == []


async def test_threads_replies_buttons(call: Client) -> None:
    """A thread that is no topic (1 is none), a reply to nothing, data of more than 64 bytes."""
    call.tg.chat(-1001, is_forum=True, topics={36})
    for thread in (1, 7777):
        assert (
            await call.refused("sendMessage", chat_id=-1001, text="a", message_thread_id=thread) == "Bad Request: message thread not found"
        )
    assert (await call("sendMessage", chat_id=-1001, text="a", message_thread_id=36))["ok"]
    reply = {"message_id": 99}
    assert await call.refused("sendMessage", chat_id=1, text="a", reply_parameters=reply) == "Bad Request: message to be replied not found"
    reply["allow_sending_without_reply"] = True
    assert (await call("sendMessage", chat_id=1, text="a", reply_parameters=reply))["ok"]
    markup = {"inline_keyboard": [[{"text": "x", "callback_data": "ü" * 33}]]}
    assert await call.refused("sendMessage", chat_id=1, text="a", reply_markup=markup) == "Bad Request: BUTTON_DATA_INVALID"


async def test_updates_stay_until_they_are_confirmed(call: Client) -> None:
    """An offset confirms what is below it; until then the same updates come; a request that waits is woken; ways to lose them are noted."""
    tg = call.tg
    for text in ("a", "b", "c"):
        tg.say(1, text)
    first = (await call("getUpdates"))["result"]
    assert [update["message"]["text"] for update in first] == ["a", "b", "c"]
    assert (await call("getUpdates", limit=1))["result"] == first[:1]
    assert (await call("getUpdates", offset=first[1]["update_id"]))["result"] == first[1:]
    assert (tg.pending, tg.offset) == (2, first[1]["update_id"])
    waiting = asyncio.create_task(call("getUpdates", offset=first[2]["update_id"] + 1, timeout=5))
    await tg.wait_for(lambda: tg.pending == 0)
    tg.say(1, "d")
    assert [update["message"]["text"] for update in (await waiting)["result"]] == ["d"]
    assert tg.resets == []
    tg.say(1, "e")
    assert len((await call("getUpdates", offset=-1))["result"]) == 1
    await call("deleteWebhook", drop_pending_updates=True)
    assert tg.resets == ["offset=-1", "drop_pending_updates"]


async def test_one_poller_at_a_time(call: Client) -> None:
    """A second getUpdates ends the first with 409; with a webhook there is none at all."""
    waiting = asyncio.create_task(call("getUpdates", timeout=5))
    await call.tg.wait_for(lambda: call.tg.calls)
    assert (await call("getUpdates"))["ok"]
    assert (await waiting)["error_code"] == 409
    call.tg.webhook_url = "https://x.example/"
    assert "webhook is active" in await call.refused("getUpdates")


async def test_faults(call: Client) -> None:
    """fail, hold and drop strike in the order in which they were planned; flood counts those who do not wait."""
    tg = call.tg
    tg.fail("sendMessage", 500)
    tg.drop("sendMessage", after=True)
    held = tg.hold("sendMessage")
    assert await call.refused("sendMessage", chat_id=1, text="a") == "Internal Server Error"
    with pytest.raises(ClientError):
        await call("sendMessage", chat_id=1, text="b")
    waiting = asyncio.create_task(call("sendMessage", chat_id=1, text="c"))
    await held.reached.wait()
    assert tg.visible(1) == ["b", "c"]
    assert not waiting.done()
    held.release()
    assert (await waiting)["ok"]
    tg.flood(2, 30)
    for _ in range(2):
        assert (await call("sendChatAction", chat_id=2, action="typing"))["parameters"] == {"retry_after": 30}
    assert len(tg.impatient) == 1
    assert (await call("sendMessage", chat_id=1, text="d"))["ok"]


async def test_an_outage(call: Client) -> None:
    """While stopped it refuses connections; afterwards it is at the same address with the same chats."""
    await call("sendMessage", chat_id=1, text="a")
    await call.tg.stop()
    with pytest.raises(ClientError):
        await call("getMe")
    await call.tg.start()
    assert (await call("getMe"))["ok"]
    assert call.tg.visible(1) == ["a"]


def test_what_telegram_finds_in_a_text() -> None:
    """Commands, mentions and addresses, in UTF-16 units, as the service marks them."""

    def found(text: str) -> list[tuple[str, str]]:
        wide = text.encode("utf-16-le")
        return [(e["type"], wide[e["offset"] * 2 : (e["offset"] + e["length"]) * 2].decode("utf-16-le")) for e in found_entities(text)]

    assert found("/reset@OurBot 😀 @Ana me@OurBot.example") == [
        ("bot_command", "/reset@OurBot"),
        ("mention", "@Ana"),
        ("email", "me@OurBot.example"),
    ]
    assert found("a/b /usr/bin x@y") == []
