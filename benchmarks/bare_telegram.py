"""The reference: the least bot that python-telegram-bot's `Bot` can be, with the same calls to the network and to the model as the daemon
makes, and nothing kept. A process: `python -m benchmarks.bare_telegram API MODEL [--stock] [--stream] [--webhook PORT]`.

It is as quick as such a bot can be honestly: no Application, no handlers, raw polling, one aiohttp session for everything (or, with
--stock, the library's own httpx transport), history of nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

import aiohttp
from aiohttp import web
from telegram import Bot, Update
from telegram.request import BaseRequest, HTTPXRequest, RequestData

from benchmarks.telegram import TOKEN

WANTED = ["message"]


class AiohttpRequest(BaseRequest):
    """The transport that anybody would write."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    @property
    def read_timeout(self) -> float | None:
        return 20.0

    async def initialize(self) -> None:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def shutdown(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def do_request(
        self, url: str, method: str, request_data: RequestData | None = None, *_: object, **__: object
    ) -> tuple[int, bytes]:
        assert self._session is not None
        data = request_data.json_parameters if request_data else None
        async with self._session.request(method, url, data=data) as response:
            return response.status, await response.read()


class Bare:
    def __init__(self, args: argparse.Namespace) -> None:
        self._stream, self._model = args.stream, args.model
        requests: list[BaseRequest] = (
            [HTTPXRequest(connection_pool_size=1000), HTTPXRequest()] if args.stock else [shared := AiohttpRequest(), shared]
        )
        self.bot = Bot(TOKEN, base_url=f"{args.api}/bot", request=requests[0], get_updates_request=requests[1])
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, webhook: int) -> None:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        await self.bot.initialize()
        if webhook:
            await self._serve(webhook)
        offset = 0
        while True:
            updates = await self.bot.get_updates(offset=offset, timeout=10, allowed_updates=WANTED)
            for update in updates:
                offset = update.update_id + 1
                self._take(update)

    async def _serve(self, port: int) -> None:
        async def hook(request: web.Request) -> web.Response:
            self._take(Update.de_json(json.loads(await request.read()), self.bot))
            return web.Response()

        app = web.Application()
        app.add_routes([web.post("/telegram", hook)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await self.bot.set_webhook(f"http://127.0.0.1:{port}/telegram")
        await asyncio.Event().wait()

    def _take(self, update: Update) -> None:
        if update.message is not None and update.message.text:
            task = asyncio.create_task(self._turn(update.message.chat_id, update.message.text))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _turn(self, chat: int, text: str) -> None:
        # The model's answer comes as a stream in both modes, as the daemon has it.
        body: dict[str, Any] = {"model": "bench", "messages": [{"role": "user", "content": text}], "stream": True}
        parts: list[str] = []
        placed = None
        async with self._session.post(f"{self._model}/chat/completions", json=body) as response:
            async for line in response.content:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                choices = json.loads(line[6:])["choices"]
                if choices and (delta := choices[0]["delta"].get("content")):
                    if placed is None and self._stream:
                        placed = await self.bot.send_message(chat, "…")
                    parts.append(delta)
        if placed is not None:
            await self.bot.edit_message_text("".join(parts), chat_id=chat, message_id=placed.message_id)
        else:
            await self.bot.send_message(chat, "".join(parts))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("api")
    parser.add_argument("model")
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--webhook", type=int, default=0)
    args = parser.parse_args()
    asyncio.run(Bare(args).run(args.webhook))


if __name__ == "__main__":
    main()
