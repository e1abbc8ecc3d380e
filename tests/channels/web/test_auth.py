"""The page's door over a real server: hosts, origins, token, cookie, headers."""

from __future__ import annotations

import asyncio
import logging

import pytest
from yarl import URL

from channels.web.settings import Settings
from tests.channels.web.browsing import visitor
from tests.channels.web.house import TOKEN, House, served

API = ("/api/sessions", "/api/history", "/api/menu", "/api/feed")


async def test_nothing_of_a_conversation_without_the_token() -> None:
    """Without the cookie the page is a form (401), and the API says 401, for reading and for writing."""
    house = House()
    async with served(house) as url, visitor(url, signed_in=False) as v:
        status, page = await v.get("/")
        assert (status, "<form" in page, "page.js" in page) == (401, True, False)
        for path in API:
            assert (await v.get(path))[0] == 401
        assert await v.say("hello") == 401
        assert (await v.get(f"/?token={TOKEN}x"))[0] == 401
        assert (await v.sign_in("wrong")).status == 401
        assert (await v.sign_in("")).status == 401
    assert house.seen == []


async def test_a_link_with_the_token_signs_in_once_and_the_cookie_is_not_the_token() -> None:
    """`/?token=` gives a cookie that no script reads, and the page goes on to an address without the token."""
    async with served(House()) as url, visitor(url, signed_in=False) as v:
        async with v.http.get(f"{url}/?token={TOKEN}", allow_redirects=False) as answer:
            assert answer.status == 200
            page = await answer.text()
            cookies = answer.headers.getall("Set-Cookie")
        assert 'http-equiv="refresh" content="0; url=/"' in page
        assert TOKEN not in page
        assert len(cookies) == 2
        for cookie in cookies:
            assert TOKEN not in cookie
            assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="))
        status, page = await v.get("/")
        assert (status, "page.js" in page) == (200, True)


async def test_a_reload_keeps_the_chat_and_another_browser_has_its_own() -> None:
    """The chat's id is made by the server, once a browser."""
    house = House()
    async with served(house) as url, visitor(url) as one, visitor(url) as two:
        for text, v in (("a", one), ("b", two), ("c", one)):
            await v.get("/")
            assert await v.say(text, f"id-{text}-00000") == 200
    first, second, third = (inbound.address.chat for inbound in house.seen)
    assert first == third != second
    assert len(first) == 20


async def test_a_chat_id_of_somebody_elses_making_is_not_taken() -> None:
    """A cookie that is not of our form is replaced: it is part of ids and of file names."""
    house = House()
    async with served(house) as url, visitor(url) as v:
        name = next(cookie.key for cookie in v.http.cookie_jar if cookie.key.startswith("parlour-chat-"))
        for forged in ("../../etc", "a:b", "x" * 5000, "ABCDEF0123456789ABCD"):
            v.http.cookie_jar.update_cookies({name: forged}, URL(url))
            assert await v.say("hello", "id-00000000") == 200
    assert all(len(inbound.address.chat) == 20 and inbound.address.chat.isalnum() for inbound in house.seen)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "localhost@evil.example", "10.0.0.1"])
async def test_a_strange_host_name_gets_nothing(host: str) -> None:
    """DNS rebinding: with a Host that is not ours even the right cookie and token open nothing."""
    house = House()
    async with served(house) as url, visitor(url) as v:
        for path in ("/", f"/?token={TOKEN}", "/web/page.js", *API):
            assert (await v.get(path, {"Host": host}))[0] in (400, 403)
        async with v.http.post(
            f"{url}/api/say", json={"id": "00000000", "text": "x"}, headers={"Host": host, "Origin": f"http://{host}"}
        ) as answer:
            assert answer.status in (400, 403)
    assert house.seen == []


async def test_a_configured_host_is_taken() -> None:
    """[http].hosts: behind a proxy the page is reached by its public name."""
    house = House()
    async with served(house, hosts=("127.0.0.1:8787", "chat.example.org")) as url, visitor(url) as v:
        assert (await v.get("/", {"Host": "chat.example.org"}))[0] == 200
        v.headers = {"Host": "chat.example.org", "Origin": "https://chat.example.org"}
        assert await v.say("hello") == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1", None])
async def test_a_post_of_another_page_does_nothing(origin: str | None) -> None:
    """A foreign Origin, "null" and none at all: refused, although the browser sent the cookie along."""
    house = House()
    async with served(house) as url, visitor(url) as v:
        v.headers = {} if origin is None else {"Origin": origin}
        assert await v.say("hello") == 403
        assert (await v.sign_in()).status == 403
    assert house.seen == []


async def test_another_page_cannot_even_open_the_feed() -> None:
    """A GET with a foreign Origin is refused too, and no answer allows cross-origin reading."""
    async with served(House()) as url, visitor(url) as v:
        for path in API:
            assert (await v.get(path, {"Origin": "http://127.0.0.1:1"}))[0] == 403
        async with v.http.options(
            f"{url}/api/say", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        ) as answer:
            assert answer.status == 405
            assert not any(name.lower().startswith("access-control") for name in answer.headers)


async def test_a_form_of_another_kind_does_nothing() -> None:
    """What a foreign form could send without asking first is no message: JSON only."""
    house = House()
    async with served(house) as url, visitor(url) as v:
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            async with v.http.post(
                f"{url}/api/say", data=b'{"id":"00000000","text":"x"}', headers={**v.headers, "Content-Type": kind}
            ) as answer:
                assert answer.status == 415
    assert house.seen == []


async def test_a_script_comes_in_with_a_bearer_token() -> None:
    """No cookie and no Origin are needed where the token itself is shown; a foreign Origin is refused all the same."""
    house = House()
    async with served(house) as url, visitor(url, signed_in=False) as v:
        v.headers = {"Authorization": f"Bearer {TOKEN}"}
        assert await v.say("hello") == 200
        v.headers = {"Authorization": "Bearer wrong"}
        assert await v.say("hello", "id-11111111") == 401
        v.headers = {"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}
        assert await v.say("hello", "id-22222222") == 403
    assert len(house.seen) == 1


async def test_every_answer_has_the_security_headers() -> None:
    """Page, form, refusal, script, API: no scripts but ours, no frames, no sniffing, nothing kept in caches."""
    async with served(House(), settings=Settings(title="<b>&")) as url, visitor(url) as v:
        for path in (
            "/",
            "/web/page.js",
            "/web/page.css",
            "/web/login.js",
            "/web/icon.svg",
            "/api/menu",
            "/?token=wrong",
            "/api/history?after=x",
        ):
            async with v.http.get(f"{url}{path}") as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy
                assert "frame-ancestors 'none'" in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Cache-Control"] == "no-store"
                assert answer.headers["Referrer-Policy"] == "same-origin"
                assert "aiohttp" not in answer.headers["Server"]
                body = await answer.text()
                assert "<b>&" not in body
        async with v.feed() as events, v.http.get(f"{url}/api/menu"):
            assert (await events.next())[0] == "hello"


async def test_the_pages_load_nothing_from_elsewhere() -> None:
    """No address of another host, no inline script, no inline style in what is served."""
    async with served(House()) as url, visitor(url) as v:
        for path in ("/", "/?token=wrong"):
            page = (await v.get(path))[1]
            assert "http" not in page.replace("http-equiv", "")
            assert "<style" not in page
            assert " style=" not in page
            assert all(part.startswith(' src="/web/') for part in page.split("<script")[1:])
        for path in ("/web/page.js", "/web/page.css", "/web/login.js"):
            assert "http:" not in (await v.get(path))[1]


async def test_guessing_tokens_is_slowed_down_for_all_but_who_is_in() -> None:
    """After thirty wrong ones the form says 429; a browser that is signed in goes on."""
    async with served(House()) as url, visitor(url) as inside, visitor(url, signed_in=False) as outside:
        answers = [(await outside.sign_in(f"guess {n}")).status for n in range(31)]
        assert answers == [401] * 30 + [429]
        late = await outside.sign_in()
        assert (late.status, late.headers["Retry-After"]) == (429, "60")
        assert (await inside.get("/api/sessions"))[0] == 200


async def test_a_bad_login_body_is_only_a_wrong_token() -> None:
    """Not UTF-8, far too long, too many fields: 401, and no error."""
    async with served(House()) as url, visitor(url, signed_in=False) as v:
        for body in (b"\xff\xfe", b"token=" + b"x" * 10_000, b"&".join(b"a%d=1" % n for n in range(50)), b""):
            headers = {**v.headers, "Content-Type": "application/x-www-form-urlencoded"}
            async with v.http.post(f"{url}/login", data=body, headers=headers) as answer:
                assert answer.status == 401


async def test_a_body_that_breaks_off_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """Of whoever sends it, before any token was shown: nothing in the log, and the next one is served."""
    async with served(House()) as url, visitor(url, signed_in=False) as v:
        host = url.removeprefix("http://")
        reader, writer = await asyncio.open_connection(*host.split(":"))
        writer.write(f"POST /login HTTP/1.1\r\nHost: {host}\r\nOrigin: {url}\r\nContent-Length: 50\r\n\r\ntoken=".encode())
        writer.write_eof()
        assert b" 500 " not in await reader.read()
        writer.close()
        assert (await v.sign_in()).status in (200, 303)
    assert "Traceback" not in caplog.text


async def test_the_token_stays_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Right or wrong, in the address or in the form: no log line at any level has it."""
    caplog.set_level(logging.DEBUG)
    async with served(House()) as url, visitor(url) as v:
        await v.get(f"/?token={TOKEN}")
        await v.get(f"/?token={TOKEN}-wrong")
        await v.sign_in(f"{TOKEN}-wrong")
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readline()
        writer.close()
        await writer.wait_closed()
    assert TOKEN not in caplog.text


async def test_cookies_are_for_https_only_where_the_page_came_that_way() -> None:
    """Behind a TLS proxy the cookies are Secure; on plain loopback they cannot be."""
    async with served(House(), hosts=("127.0.0.1:1", "chat.example.org")) as url, visitor(url, signed_in=False) as v:
        plain = await v.sign_in()
        v.headers = {"Host": "chat.example.org", "Origin": "https://chat.example.org"}
        proxied = await v.sign_in()
    assert all("Secure" not in cookie for cookie in plain.headers.getall("Set-Cookie"))
    assert all("Secure" in cookie for cookie in proxied.headers.getall("Set-Cookie"))
