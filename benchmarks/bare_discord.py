"""The reference on Discord: the least bot that discord.py can be, with the same calls as the daemon makes, and nothing kept. Run as a
process: `python -m benchmarks.bare_discord API MODEL TOKEN [--stream]`."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

import aiohttp
import discord
from discord.gateway import DiscordWebSocket
from discord.http import Route
from yarl import URL


class Bare(discord.Client):
    def __init__(self, model: str, stream: bool) -> None:
        super().__init__(intents=discord.Intents(guilds=True, messages=True, message_content=True))
        self._model, self._stream = model, stream

    async def setup_hook(self) -> None:
        self._posts = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def on_message(self, message: discord.Message) -> None:
        if message.author.bot:
            return
        # The model's answer comes as a stream in both modes, as the daemon has it.
        body: dict[str, Any] = {"model": "bench", "messages": [{"role": "user", "content": message.content}], "stream": True}
        parts: list[str] = []
        placed = None
        async with self._posts.post(f"{self._model}/chat/completions", json=body) as response:
            async for line in response.content:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                choices = json.loads(line[6:])["choices"]
                if choices and (delta := choices[0]["delta"].get("content")):
                    if placed is None and self._stream:
                        placed = await message.channel.send("…")
                    parts.append(delta)
        if placed is not None:
            await placed.edit(content="".join(parts))
        else:
            await message.channel.send("".join(parts))


async def run(args: argparse.Namespace) -> None:
    Route.BASE = args.api
    async with aiohttp.ClientSession() as session, session.get(f"{args.api}/gateway") as response:
        DiscordWebSocket.DEFAULT_GATEWAY = URL((await response.json())["url"])
    async with Bare(args.model, args.stream) as client:
        await client.start(args.token)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("api")
    parser.add_argument("model")
    parser.add_argument("token")
    parser.add_argument("--stream", action="store_true")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
