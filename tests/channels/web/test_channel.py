"""The web channel over a real server: what is said, what is shown, and the live feed between them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from channels.base import Address, Button, Context, Lost, Piece
from channels.web import channel as web_channel
from channels.web.channel import WebChannel
from channels.web.settings import Settings
from channels.web.stream import MAX_READERS
from tests.channels.web.browsing import Events, visitor
from tests.channels.web.house import House, eventually, served


async def test_a_message_goes_in_as_the_owners_with_the_pages_id() -> None:
    """The id is channel, chat and the page's own id; the sender is trusted; the answer can refer to it."""
    house = House()
    async with served(house) as url, visitor(url) as v:
        assert await v.say("hello\r\nthere", "11111111-aaaa") == 200
        assert await v.say("/switch west", "22222222-bbbb", button=True) == 200
    hello, press = house.seen
    assert hello.id == f"web:{hello.address.chat}:11111111-aaaa"
    assert (hello.text, hello.kind, hello.direct) == ("hello\nthere", "message", True)
    assert hello.address.channel == "web"
    assert hello.sender.trusted
    assert (press.text, press.kind) == ("/switch west", "button")


async def test_200_means_written() -> None:
    """The page hears 200 after `accept` returned; 503 where it could not write, and the same id is then good again."""
    house = House()
    async with served(house) as url, visitor(url) as v:
        house.fault = OSError(28, "full")
        assert await v.say("hello") == 503
        house.fault = None
        async with v.feed() as events:
            assert await v.say("hello") == 200
            assert await v.say("hello") == 200
            items = await events.items("You said: hello")
    assert len(house.seen) == 1
    assert [item["text"] for item in items if item["role"] == "user"] == ["hello"]


async def test_before_and_after_run_nothing_is_taken() -> None:
    """A daemon that starts or stops says 503, and the page tries again."""
    house = House()
    async with served(house, running=False) as url, visitor(url) as v:
        assert await v.say("hello") == 503
        running = asyncio.create_task(house.channel.run(house.accept))
        await asyncio.sleep(0)
        assert await v.say("hello") == 200
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert await v.say("hello", "id-11111111") == 503


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"id":"00000000","text":1}',
        b'{"id":"00000000","text":"x","more":1}',
        b'{"id":"short","text":"x"}',
        b"\xff",
        b'{"id":"a:b:c:d:e:f","text":"x"}',
        b'{"id":"00000000\\n","text":"x"}',
        b'{"id":"00000000","text":" \\u0000 "}',
        b"[" * 50_000,
        b"{" * 9,
    ],
)
async def test_what_is_no_message_is_refused(body: bytes) -> None:
    """Wrong types, strange ids, blank texts, broken and bottomless JSON: 400, and nothing goes in."""
    house = House()
    async with served(house) as url, visitor(url) as v:
        headers = {**v.headers, "Content-Type": "application/json"}
        async with v.http.post(f"{url}/api/say", data=body, headers=headers) as answer:
            assert answer.status == 400
            assert (await answer.json())["error"]
    assert house.seen == []


async def test_texts_are_cleaned_at_the_door() -> None:
    """Halves of surrogate pairs and NUL, which a page can send, do not come into the house."""
    house = House()
    async with served(house) as url, visitor(url) as v:
        headers = {**v.headers, "Content-Type": "application/json"}
        async with v.http.post(
            f"{url}/api/say", data=b'{"id":"00000000","text":"a\\ud83d b\\u0000c \\ud83d\\ude00"}', headers=headers
        ) as answer:
            assert answer.status == 200
    assert house.seen[0].text == "a\ufffd bc \U0001f600"


async def test_a_message_that_is_too_long_is_refused() -> None:
    """Over the limit by code points, and over what a limit can weigh in bytes: 413 with the limit in it."""
    house = House()
    async with served(house, settings=Settings(max_chars=10)) as url, visitor(url) as v:
        assert await v.say("\U0001f600" * 10, "id-00000000") == 200
        assert await v.say("x" * 11, "id-11111111") == 413
        assert await v.say("x" * 5000, "id-22222222") == 413
    assert len(house.seen) == 1


async def test_an_answer_is_shown_while_it_grows() -> None:
    """Placed, edited, done: the page gets HTML that the server made, and who asked."""
    house = House()
    house.answers["tell"] = "A **long** answer, <script>alert(1)</script>. " * 20
    async with served(house) as url, visitor(url) as v, v.feed() as events:
        assert await v.say("tell", "11111111-aaaa") == 200
        items = await events.items(" answer, &lt;script&gt;alert(1)&lt;/script&gt;. A <strong>long</strong>")
        while items[-1]["html"].count("strong") < 40:
            items.append((await events.next("item"))[1])
    assert items[0] | {"at": 0} == {
        "key": "in.11111111-aaaa",
        "n": 1,
        "of": 1,
        "at": 0,
        "role": "user",
        "input": "11111111-aaaa",
        "text": "tell",
    }
    assert {item["key"] for item in items[1:]} == {items[1]["key"]}
    assert all(item["input"] == "11111111-aaaa" and "<script" not in item["html"] for item in items[1:])


async def test_typing_buttons_and_deletion_reach_the_page() -> None:
    """What the gateway does to a message, the page is told."""
    house = House()
    async with served(house) as url, visitor(url) as v:
        await v.say("hello", "11111111-aaaa")
        here = house.seen[0].address
        async with v.feed() as events:
            await events.items("You said")
            await house.channel.typing(here)
            assert (await events.next("typing"))[0] == "typing"
            one = await house.channel.send(here, Piece("pick"), buttons=[Button("West", "/switch west")])
            assert (await events.next("item"))[1]["buttons"] == [{"label": "West", "data": "/switch west"}]
            await house.channel.delete(here, one)
            assert (await events.next("item"))[1]["deleted"]
            with pytest.raises(Lost):
                await house.channel.edit(here, one, Piece("again"))


async def test_a_command_that_changes_the_history_says_so() -> None:
    """After its reply the page is told to fetch anew, and which live turns are settled."""
    async with served(House()) as url, visitor(url) as v, v.feed() as events:
        await v.say("hello", "11111111-aaaa")
        await events.items("You said: hello")
        await v.say("/undo", "22222222-bbbb")
        items = await events.items("Done: /undo")
        assert [item.get("note", False) for item in items] == [True, True]
        assert (await events.next("history"))[1] == {"before": items[0]["n"], "notes": 0}


async def test_what_commands_said_stays_until_the_conversation_is_another() -> None:
    """A refused /retry, /switch or /undo leaves the notes before it; a /switch that goes elsewhere does not."""
    async with served(House()) as url, visitor(url) as v, v.feed() as events:
        for n, (text, reply) in enumerate(
            (
                ("/retry", "nothing to ask again"),
                ("hello", "You said: hello"),
                ("/switch nosuch", "no session"),
                ("/fork West", "a fork of main"),
                ("/switch nosuch", "no session"),
                ("/switch main", "This is now"),
            )
        ):
            await v.say(text, f"id-{n:08}")
            assert (await events.items(reply))[-1].get("note", False) == text.startswith("/")
            if text.startswith("/"):
                before = (await events.next("history"))[1]
                moved = text in ("/fork West", "/switch main")
                assert (before["notes"] == before["before"]) == moved, text


async def test_after_a_cut_the_feed_goes_on_without_loss_or_doubles() -> None:
    """With the last id a new connection gets exactly what was missed, each message in its newest state."""
    house = House()
    async with served(house) as url, visitor(url) as v:
        async with v.feed() as events:
            assert (await events.next())[1]["gap"]
            await v.say("one", "id-00000001")
            await events.items("You said: one")
            seen = events.last_id
        for n in range(2, 6):
            await v.say(f"text {n}", f"id-0000000{n}")
        await house.settled(5)
        async with v.feed(seen) as events:
            assert not (await events.next())[1]["gap"]
            missed = await events.items("You said: text 5")
        async with v.feed(events.last_id) as events:
            assert (await events.next())[0] == "hello"
            await house.channel.typing(house.seen[0].address)
            assert (await events.next())[0] == "typing"
    said = [item.get("text") or item["html"] for item in missed]
    assert said == [words for n in range(2, 6) for words in (f"text {n}", f"<p>You said: text {n}</p>\n")]


async def test_an_unknown_place_is_a_gap_and_gives_the_whole_ring() -> None:
    """An id of another process, a strange one or none: the page is told to forget what it has, and gets everything that is there."""
    house = House()
    async with served(house) as url, visitor(url) as v:
        await v.say("one", "id-00000001")
        for after in ("", "0123456789ab-7", "rubbish", "x" * 3000):
            async with v.feed(after) as events:
                assert (await events.next())[1]["gap"]
                assert len(await events.items("You said: one")) >= 2


async def test_nobody_waits_for_a_browser_that_takes_nothing() -> None:
    """Sends and edits return at once while a page does not read, what waits for it is bounded, and another page is not held up."""
    house = House()
    async with served(house) as url, visitor(url) as v:
        await v.say("hello", "id-00000001")
        await house.settled(1)
        here = house.seen[0].address
        host, port = url.removeprefix("http://").split(":")
        cookies = "; ".join(f"{cookie.key}={cookie.value}" for cookie in v.http.cookie_jar)
        _, slow = await asyncio.open_connection(host, int(port), limit=1)
        slow.write(f"GET /api/feed HTTP/1.1\r\nHost: localhost\r\nCookie: {cookies}\r\n\r\n".encode())
        async with v.feed() as events:
            await events.items("You said: hello")
            one = await house.channel.send(here, Piece("start"))
            async with asyncio.timeout(5):
                for n in range(300):
                    await house.channel.edit(here, one, Piece(f"{n} " + "word " * 20_000))
                    await house.channel.send(here, Piece(f"message {n}"))
            await events.items("message 299")
        slow.close()


async def test_replies_without_a_browser_wait_for_it() -> None:
    """What is sent while no page is open is there when one comes."""
    house = House()
    async with served(house) as url, visitor(url) as v:
        await v.say("/help", "id-00000001")
        async with v.feed() as events:
            assert len(await events.items("Done: /help")) == 2


async def test_each_chat_gets_its_own_words_only() -> None:
    """Twenty browsers ask at once; every page sees its own answer and nobody else's."""
    house = House()
    async with served(house) as url:

        async def chat(n: int) -> str:
            async with visitor(url) as v, v.feed() as events:
                assert await v.say(f"word-{n}-end", f"id-{n:08}") == 200
                items = await events.items(f"You said: word-{n}-end")
                return " ".join(item.get("html", "") + item.get("text", "") for item in items)

        for n, words in enumerate(await asyncio.gather(*(chat(n) for n in range(20)))):
            assert all(f"word-{other}-end" not in words for other in range(20) if other != n)


async def test_closing_ends_the_feeds() -> None:
    """The HTTP server need not wait for open pages, and a feed that ends is a proper end for the browser."""
    house = House()
    async with served(house) as url, visitor(url) as v, v.feed() as events:
        await events.next()
        await house.channel.close()
        with pytest.raises(EOFError):
            await events.next()
        assert (await v.get("/api/feed"))[0] == 503
        await house.channel.close()


async def test_open_pages_are_bounded() -> None:
    """Too many feeds at once: the next one is told to come later."""
    house = House()
    async with served(house) as url, visitor(url) as v, AsyncExitStack() as open_pages:
        for _ in range(MAX_READERS):
            await (await open_pages.enter_async_context(v.feed())).next()
        assert house.channel.open_pages() == MAX_READERS
        assert (await v.get("/api/feed"))[0] == 503


async def test_a_quiet_feed_beats() -> None:
    """When there is nothing to say the page still hears that the connection lives."""
    house = House()
    async with served(house, beat=0.05) as url, visitor(url) as v, v.feed() as events:
        assert (await events.next("beat"))[0] == "beat"
        assert (await events.next("beat"))[0] == "beat"


async def test_history_is_safe_html_and_knows_its_inputs() -> None:
    """Lines behind a seq, the person's as text, the model's as HTML, each with the page's id of its input."""
    house = House()
    house.answers["<i>q</i>"] = "<img src=x onerror=alert(1)> [x](javascript:alert(1))"
    async with served(house) as url, visitor(url) as v:
        await v.say("<i>q</i>", "11111111-aaaa")
        await house.settled(1)
        status, past = await v.get("/api/history")
        assert status == 200
        ask, answer = past["lines"]
        assert ask == {"seq": 1, "role": "user", "text": "<i>q</i>", "input": "11111111-aaaa"}
        assert answer["html"] == "<p>&lt;img src=x onerror=alert(1)&gt; [x](javascript:alert(1))</p>\n"
        assert answer["input"] == "11111111-aaaa"
        assert [line["seq"] for line in (await v.get("/api/history?after=1"))[1]["lines"]] == [2]
        assert (await v.get("/api/history?after=2"))[1] == {"lines": [], "more": False}
        assert len((await v.get("/api/history?name=main"))[1]["lines"]) == 2
        assert (await v.get("/api/history?name=nosuch"))[0] == 404
        for bad in ("after=x", "after=-1", "name=../x", "name=A", "after=" + "9" * 40):
            assert (await v.get(f"/api/history?{bad}"))[0] == 400


async def test_a_long_history_is_cut_at_its_newest_lines() -> None:
    """The page gets the newest ones, and that there is more."""
    house = House()
    async with served(house, settings=Settings(history_lines=4)) as url, visitor(url) as v:
        for n in range(4):
            await v.say(f"text {n}", f"id-{n:08}")
        await house.settled(4)
        past = (await v.get("/api/history"))[1]
        assert ([line["seq"] for line in past["lines"]], past["more"]) == ([5, 6, 7, 8], True)


async def test_sessions_are_listed_with_their_parents() -> None:
    """The list says which is current and what was forked from what; a chat that never talked has none."""
    house = House()
    async with served(house) as url, visitor(url) as v, visitor(url) as other, v.feed() as events:
        await v.say("hello", "id-00000001")
        await v.say("/fork West", "id-00000002")
        await events.items("This is now")
        listed = (await v.get("/api/sessions"))[1]["sessions"]
        assert [(s["name"], s["title"], s["current"], s.get("parent")) for s in listed] == [
            ("main", "Main", False, None),
            ("west", "West", True, "main"),
        ]
        assert (await other.get("/api/sessions"))[1] == {"sessions": []}


async def test_a_disk_that_cannot_be_read_is_told() -> None:
    """503 with a sentence, for the list and for the history."""

    class Broken(House):
        async def sessions(self, address: object, sender: object, *, direct: bool = True, group: str = "") -> list[object]:  # type: ignore[override]
            raise OSError(5, "input/output")

        async def history(self, address: object, sender: object, name: str = "", after: int = 0) -> list[object]:  # type: ignore[override]
            raise OSError(5, "input/output")

    async with served(Broken()) as url, visitor(url) as v:
        for path in ("/api/sessions", "/api/history"):
            status, body = await v.get(path)
            assert status == 503
            assert body["error"].endswith(".")


async def test_the_contract_of_a_channel(tmp_path: Path) -> None:
    """One piece for a text, none for a blank one; Lost for what was never there; deleting twice is no error; every chat is the owner's."""
    made = web_channel.make(Settings(), Context(token="t", folder=tmp_path, desk=House(), hosts=("127.0.0.1:8787",)))
    assert isinstance(made, WebChannel)
    here = Address("web", "0123456789abcdef0123")
    assert made.render("**x**") == [Piece("**x**", start=0, end=5)]
    assert made.render(" \n****") == []
    with pytest.raises(Lost):
        await made.edit(here, "never", Piece("x"))
    await made.delete(here, "never")
    await made.typing(here)
    assert await made.is_admin(here, "owner")
    assert made.last_sign_of_life() == 0.0
    await made.close()
    await made.close()


async def test_a_page_that_asks_is_a_sign_of_life() -> None:
    """The health report knows when a signed-in page was last heard of; strangers do not count."""
    house = House()
    async with served(house) as url, visitor(url, signed_in=False) as v:
        await v.get("/")
        assert house.channel.last_sign_of_life() == 0.0
        await v.sign_in()
        assert house.channel.last_sign_of_life() > 0.0


async def test_an_event_is_never_split_by_what_is_in_it() -> None:
    """Line ends of every kind in a message stay inside their event's one data line."""
    house = House()
    async with served(house) as url, visitor(url) as v, v.feed() as events:
        await v.say("a\nb\rc\u2028d\x85e\n\nevent: item\ndata: {}", "id-00000001")
        assert (await events.next("item"))[1]["text"] == "a\nb\nc\u2028d\x85e\n\nevent: item\ndata: {}"
        assert isinstance(events, Events)


async def test_a_browser_that_goes_leaves_nothing_behind() -> None:
    """A hundred connections that are cut are forgotten, whether or not anything was on its way to them."""
    house = House()
    async with served(house, beat=0.02) as url, visitor(url) as v:
        await v.say("hello", "id-00000001")
        for _ in range(100):
            response = await v.http.get(f"{url}/api/feed", timeout=aiohttp.ClientTimeout(total=None))
            assert response.status == 200
            response.close()
        await eventually(lambda: not house.channel.open_pages())
