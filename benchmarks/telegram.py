"""A Bot API server that answers at once and refuses nothing but what is told to it. Called by the benchmarks."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from urllib.parse import parse_qsl

import msgspec

from benchmarks.server import Exchange

TOKEN = "7:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
_ME = (
    b'{"ok":true,"result":{"id":7,"is_bot":true,"first_name":"Bench","username":"BenchBot",'
    b'"can_join_groups":true,"can_read_all_group_messages":true}}'
)
_TRUE = b'{"ok":true,"result":true}'
_WEBHOOK = b'{"ok":true,"result":{"url":"","has_custom_certificate":false,"pending_update_count":0}}'


class Telegram:
    """`say` makes an update; `shown(chat, text)` is called for each text that the bot sends or edits. `per_second`: how many calls a chat
    and all chats together may make, 0 for no limit; what is above is refused with 429 and counted in `floods`."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.shown: Callable[[int, str], None] = lambda chat, text: None
        self.polled = asyncio.Event()
        self.webhook: Callable[[bytes], None] | None = None
        self.floods = 0
        self.secret = ""
        self.limit: Callable[[int], float] = lambda chat: 0.0
        self._waiting: Exchange | None = None
        self._updates: deque[tuple[int, bytes]] = deque()
        self._number = 0
        self._message = 0
        self._due = False

    def say(self, chat: int, text: str) -> None:
        self._number += 1
        self._message += 1
        name = f"P{chat}"
        update = msgspec.json.encode(
            {
                "update_id": self._number,
                "message": {
                    "message_id": self._message,
                    "date": int(time.time()),
                    "text": text,
                    "chat": {"id": chat, "type": "private", "first_name": name},
                    "from": {"id": chat, "is_bot": False, "first_name": name},
                },
            }
        )
        if self.webhook is not None:
            self.webhook(update)
            return
        self._updates.append((self._number, update))
        if self._waiting is not None and not self._due:
            # As the network does: what comes at the same moment goes out together.
            self._due = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        self._due = False
        if self._waiting is not None and self._updates:
            waiting, self._waiting = self._waiting, None
            batch = b",".join(update for _, update in list(self._updates)[:100])
            waiting.answer(b'{"ok":true,"result":[%b]}' % batch)

    def handle(self, exchange: Exchange) -> None:
        method = exchange.path.rpartition("/")[2].partition("?")[0]
        self.calls[method] += 1
        if method == "getUpdates":
            self._poll(exchange)
        elif method in {"sendMessage", "editMessageText"}:
            self._text(exchange, method)
        elif method == "getMe":
            exchange.answer(_ME)
        elif method == "getWebhookInfo":
            exchange.answer(_WEBHOOK)
        elif method == "setWebhook":
            self.secret = _params(exchange.body).get("secret_token", "")
            exchange.answer(_TRUE)
        else:
            exchange.answer(_TRUE)

    def _poll(self, exchange: Exchange) -> None:
        params = _params(exchange.body)
        offset = int(params.get("offset") or 0)
        while self._updates and self._updates[0][0] < offset:
            self._updates.popleft()
        if self._waiting is not None:
            self._waiting.answer(b'{"ok":true,"result":[]}')
        self._waiting = exchange
        self.polled.set()
        self._deliver()

    def _text(self, exchange: Exchange, method: str) -> None:
        params = _params(exchange.body)
        chat, text = int(params["chat_id"]), str(params["text"])
        if (wait := self.limit(chat)) > 0:
            self.floods += 1
            body = {"ok": False, "error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": max(1, int(wait))}}
            exchange.answer(msgspec.json.encode(body), "429 Too Many Requests")
            return
        if method == "sendMessage":
            self._message += 1
            number = self._message
        else:
            number = int(params["message_id"])
        now = int(time.time())
        edited = b'"edit_date":%d,' % now if method == "editMessageText" else b""
        exchange.answer(
            b'{"ok":true,"result":{"message_id":%d,"date":%d,%b"from":{"id":7,"is_bot":true,"first_name":"Bench","username":"BenchBot"},'
            b'"chat":{"id":%d,"type":"private","first_name":"P"},"text":%b}}' % (number, now, edited, chat, msgspec.json.encode(text))
        )
        self.shown(chat, text)


def _params(body: bytes) -> dict[str, str]:
    """The Bot API takes JSON and forms."""
    if body[:1] == b"{":
        return dict(msgspec.json.decode(body))
    return dict(parse_qsl(body.decode()))
