"""What a browser does, as far as the tests need it without one: a cookie jar, an Origin, and a reader of server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.channels.web.house import TOKEN


class Events:
    """An open feed."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.last_id = ""

    async def next(self, *kinds: str) -> tuple[str, Any]:
        """The next event (of these kinds); EOFError at the end of the stream."""
        while True:
            kind, data = "", ""
            async with asyncio.timeout(10):
                while line := (await self._response.content.readline()).decode():
                    if line == "\n":
                        break
                    field, _, value = line.rstrip("\n").partition(": ")
                    if field == "event":
                        kind = value
                    elif field == "data":
                        data = value
                    elif field == "id":
                        self.last_id = value
                else:
                    raise EOFError
            if not kinds or kind in kinds:
                return kind, json.loads(data) if data else None

    async def items(self, until: str) -> list[dict[str, Any]]:
        """Items up to the one whose HTML or text has these words in it."""
        found: list[dict[str, Any]] = []
        while not found or until not in found[-1].get("html", "") + found[-1].get("text", ""):
            found.append((await self.next("item"))[1])
        return found


class Visitor:
    """One browser: signed in or not."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http = http
        self.url = url
        self.headers = {"Origin": url}

    async def sign_in(self, token: str = TOKEN) -> aiohttp.ClientResponse:
        answer = await self.http.post(f"{self.url}/login", data={"token": token}, headers=self.headers)
        await answer.read()
        return answer

    async def say(self, text: str, input_id: str = "00000000-0000", **more: object) -> int:
        async with self.http.post(f"{self.url}/api/say", json={"id": input_id, "text": text, **more}, headers=self.headers) as answer:
            return answer.status

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
        async with self.http.get(f"{self.url}{path}", headers=headers) as answer:
            body = await answer.text()
            return answer.status, json.loads(body) if "json" in answer.content_type else body

    @asynccontextmanager
    async def feed(self, after: str = "") -> AsyncIterator[Events]:
        headers = {"Last-Event-ID": after} if after else {}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self.http.get(f"{self.url}/api/feed", headers=headers, timeout=timeout) as response:
            assert response.status == 200, await response.text()
            assert response.content_type == "text/event-stream"
            yield Events(response)


@asynccontextmanager
async def visitor(url: str, *, signed_in: bool = True) -> AsyncIterator[Visitor]:
    """A new browser."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True), connector=aiohttp.TCPConnector(limit=0)) as http:
        found = Visitor(http, url)
        if signed_in:
            assert (await found.sign_in()).status == 200
            assert (await found.get("/"))[0] == 200
        yield found
