"""A model that answers at once, or token by token at a given speed. Called by the benchmarks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import msgspec

from benchmarks.server import Exchange

WORDS = "The harbour was quiet, and the light on the pier turned slowly over the water. "
_MARK = re.compile(rb"#\d+#")


def _delta(text: str) -> bytes:
    return b"data: " + msgspec.json.encode({"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]}) + b"\n\n"


_END = (
    b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":50,"completion_tokens":40}}\n\ndata: [DONE]\n\n'
)


class Model:
    """Repeats the mark ("#17#") of the newest message at the end of its answer, so that whoever waits for it knows it. `length`: characters
    of an answer. `tokens` a second, in deltas of one token (`size` characters); 0: all at once in ten pieces."""

    def __init__(self, *, length: int = 240, tokens: float = 0.0, size: int = 4) -> None:
        self.length, self.tokens = length, tokens
        self.asked: Callable[[str], None] = lambda mark: None
        self.done: Callable[[str], None] = lambda mark: None
        self.grown: Callable[[str, int], None] = lambda mark, characters: None
        self.running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        text = (WORDS * (length // len(WORDS) + 1))[:length]
        step = max(1, -(-length // 10))
        self._text = text
        self._quick = b"".join(_delta(text[at : at + step]) for at in range(0, length, step))
        self._slow = [(at + size, _delta(text[at : at + size])) for at in range(0, length, size)]

    def handle(self, exchange: Exchange) -> None:
        if not exchange.path.endswith("/chat/completions"):
            exchange.answer(b'{"object":"list","data":[{"id":"bench","object":"model"}]}')
            return
        marks = _MARK.findall(exchange.body)
        mark = marks[-1].decode() if marks else ""
        self.asked(mark)
        if b'"stream":true' not in exchange.body.replace(b" ", b""):
            content = msgspec.json.encode(f"{self._text} {mark}")
            exchange.answer(b'{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":%b}}]}' % content)
            self.done(mark)
        elif self.tokens:
            task = asyncio.create_task(self._stream(exchange, mark))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            exchange.begin()
            exchange.write(self._quick + _delta(f" {mark}") + _END)
            exchange.end()
            self.done(mark)

    async def _stream(self, exchange: Exchange, mark: str) -> None:
        self.running += 1
        loop = asyncio.get_running_loop()
        exchange.begin()
        began = loop.time()
        for number, (characters, data) in enumerate(self._slow):
            await asyncio.sleep(began + number / self.tokens - loop.time())
            exchange.write(data)
            self.grown(mark, characters)
        exchange.write(_delta(f" {mark}") + _END)
        exchange.end()
        self.running -= 1
        self.done(mark)
