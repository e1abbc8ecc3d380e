"""Telegram's Bot API on loopback, with the service's refusals and words, for tests and load tests.

It keeps what a person would see in each chat (sends, edits and deletes applied), queues updates with the real offset rules, delivers to a
webhook if one is set, and can misbehave on demand: `fail`, `hold`, `drop`, `flood`, `stop` and `start` (an outage; same port, same state).

    async with FakeTelegram() as tg:            # tg.base_url, tg.token
        message_id = tg.say(42, "hello")        # private chats have positive ids, groups negative ones, supergroups -100...
        await tg.wait_for(lambda: tg.visible(42) == ["hi"])

Kept apart from the real service on purpose: an http webhook on loopback is accepted, and a chat that never wrote can be spoken to unless
`strict_chats` is set. A text's surrounding blanks are cut off as Telegram does; `calls` has it as it was sent.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from tests.fakes.telegram_rules import (
    CAPTION_LIMIT,
    Json,
    Refusal,
    check_menu,
    checked_entities,
    checked_markup,
    checked_text,
    found_entities,
)

T = TypeVar("T")

DEFAULT_USER = 42
"""Who speaks in groups where a test does not say."""
_NOT_MODIFIED = (
    "Bad Request: message is not modified: specified new message content and reply markup are exactly the same as a current content and "
    "reply markup of the message"
)
_PHRASES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
    413: "Request Entity Too Large",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
}
_DEFAULT_UPDATES = frozenset(
    (
        "message",
        "edited_message",
        "channel_post",
        "edited_channel_post",
        "inline_query",
        "callback_query",
        "poll",
        "poll_answer",
        "my_chat_member",
        "chat_join_request",
    )
)
_ADMIN_RIGHTS = dict.fromkeys(
    (
        "can_manage_chat",
        "can_delete_messages",
        "can_manage_video_chats",
        "can_restrict_members",
        "can_promote_members",
        "can_change_info",
        "can_invite_users",
        "can_post_stories",
        "can_edit_stories",
        "can_delete_stories",
    ),
    True,
)


@dataclass(slots=True)
class Call:
    """One request, as it came. `status` is 0 while it is not answered and -1 if its connection was dropped or the client went away."""

    method: str
    params: Json
    at: float
    """`time.monotonic` of its arrival."""
    chat: int | None
    peer: int = 0
    """The client's port: two calls with the same one came over one connection."""
    status: int = 0
    description: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 200


@dataclass(slots=True)
class Shown:
    """A message of the bot's, as it stands now."""

    id: int
    chat: int
    thread: int | None
    text: str
    entities: list[Json]
    markup: Json | None
    reply_to: int | None
    date: int
    edits: int = 0
    file: Json | None = None

    @property
    def buttons(self) -> list[tuple[str, str]]:
        """(label, data) of each button, row by row."""
        rows = self.markup["inline_keyboard"] if self.markup else []
        return [(button["text"], button["callback_data"]) for row in rows for button in row]


@dataclass(slots=True)
class Chat:
    """One chat's state. Tests may set `is_forum`, `refusal` (status, description) and `moved_to` directly."""

    id: int
    type: str
    title: str = ""
    is_forum: bool = False
    topics: set[int] = field(default_factory=set)
    last_id: int = 0
    shown: dict[int, Shown] = field(default_factory=dict)
    theirs: dict[int, Json] = field(default_factory=dict)
    admins: list[Json] = field(default_factory=list)
    refusal: tuple[int, str] | None = None
    moved_to: int | None = None
    flood_until: float = 0.0
    flood_told: bool = False
    typing: int = 0

    def json(self) -> Json:
        if self.type == "private":
            return {"id": self.id, "type": "private", "first_name": f"P{self.id}"}
        body: Json = {"id": self.id, "type": self.type, "title": self.title or f"Group {self.id}"}
        return body | {"is_forum": True} if self.is_forum else body


@dataclass(slots=True)
class Fault:
    """A planned misbehaviour; handed to the test. `hits` counts how often it struck; `remove()` ends it."""

    method: str
    chat: int | None
    times: int | None
    when: Callable[[Json], bool] | None
    act: str
    status: int = 0
    body: Any = None
    after: bool = False
    hits: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """hold: a request has arrived (and had its effect, unless `before`)."""
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        """hold: let the held requests go on."""
        self.released.set()

    def remove(self) -> None:
        self.times = 0
        self.released.set()

    def strikes(self, call: Call) -> bool:
        if self.times == 0 or self.method not in (call.method, "*") or (self.chat is not None and self.chat != call.chat):
            return False
        if self.when is not None and not self.when(call.params):
            return False
        self.hits += 1
        if self.times is not None:
            self.times -= 1
        return True


class _Poll:
    """A getUpdates that waits."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.terminated = False


class FakeTelegram:
    """The service for one bot. An async context manager; everything is called on its event loop."""

    def __init__(
        self,
        *,
        token: str = "123456:TESTTOKEN",
        username: str = "OurBot",
        reads_all: bool = True,
        strict_chats: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.token, self.username, self.host, self.port = token, username, host, port
        self.bot_id = int(token.partition(":")[0])
        self.reads_all = reads_all
        self.strict_chats = strict_chats
        self.calls: list[Call] = []
        self.chats: dict[int, Chat] = {}
        self.commands: list[Json] = []
        self.answered: dict[str, list[Json]] = {}
        """callback id -> the answers that were taken."""
        self.impatient: list[Call] = []
        """Calls that came within a flood wait that had been told."""
        self.files: dict[str, bytes | int] = {}
        """file id -> content, or a size for one that is too big to get."""
        self.webhook_url = ""
        self.webhook_secret = ""
        self.webhook_posts: list[int] = []
        """Status of each delivery; 0 where nobody answered."""
        self.webhook_pause = 0.02
        """Seconds before a refused delivery is repeated; doubles up to 50 times of it."""
        self.offset = 0
        """All updates below are confirmed."""
        self.resets: list[str] = []
        """Ways in which the queue was thrown away: drop_pending_updates, a negative offset. Should stay empty."""
        self._queue: deque[Any] = deque()
        self._next_update = 700_001
        self._next_callback = 1
        self._allowed = _DEFAULT_UPDATES
        self._faults: list[Fault] = []
        self._poll: _Poll | None = None
        self._watchers: dict[int | None, set[asyncio.Event]] = {}
        self._runner: web.AppRunner | None = None
        self._delivery: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()
        self._methods: dict[str, Callable[[Json], Any]] = {
            name.removeprefix("_do_"): getattr(self, name) for name in dir(self) if name.startswith("_do_")
        }

    # ------------------------------------------------------------------------------------------------------------- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        if self._delivery:
            self._delivery.cancel()
            await asyncio.gather(self._delivery, return_exceptions=True)
            self._delivery = None

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def start(self) -> None:
        """Listen; after a `stop` on the same port, with everything as it was."""
        app = web.Application(client_max_size=60 * 2**20)
        app.router.add_route("*", "/bot{token}/{method}", self._serve)
        app.router.add_get("/file/bot{token}/{path:.*}", self._serve_file)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port, backlog=1024).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """An outage: open connections are reset, new ones refused."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        for connection in runner.server.connections if runner.server else ():
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()
        self._poll = None

    # -------------------------------------------------------------------------------------------- what people do (tests call)

    def chat(self, chat_id: int, **fields: Any) -> Chat:
        """The chat, made if need be; `fields` are set on it: `tg.chat(-1001, is_forum=True, topics={36})`."""
        chat = self.chats.get(chat_id)
        if chat is None:
            kind = "private" if chat_id > 0 else "supergroup" if str(chat_id).startswith("-100") else "group"
            chat = self.chats[chat_id] = Chat(chat_id, kind)
        for name, value in fields.items():
            setattr(chat, name, value)
        return chat

    def user(self, user_id: int, **fields: Any) -> Json:
        return {"id": user_id, "is_bot": False, "first_name": f"P{user_id}"} | fields

    def message(
        self,
        chat: int,
        text: str | None = None,
        *,
        user: int | Json | None = None,
        thread: int | None = None,
        reply_to: int | None = None,
        date: int | None = None,
        **fields: Any,
    ) -> Json:
        """A message object as a person's client would make it, registered in the chat but not delivered."""
        place = self.chat(chat)
        place.last_id += 1
        sender = user if isinstance(user, dict) else self.user(user or (chat if chat > 0 else DEFAULT_USER))
        message: Json = {"message_id": place.last_id, "from": sender, "chat": place.json(), "date": date or int(time.time())}
        if thread is not None:
            place.topics.add(thread)
            message |= {"message_thread_id": thread, "is_topic_message": True}
        if reply_to is not None:
            message["reply_to_message"] = self._as_reply(place, reply_to)
        if text is not None:
            message["text"] = text
            entities = found_entities(text)
            if entities:
                message["entities"] = entities
        elif isinstance(fields.get("caption"), str):
            entities = found_entities(fields["caption"])
            if entities:
                message["caption_entities"] = entities
        message |= fields
        place.theirs[place.last_id] = message
        return message

    def say(self, chat: int, text: str | None = None, **fields: Any) -> int:
        """A person writes; gives the message id. Keywords as in `message`; others go into the message as they are."""
        message = self.message(chat, text, **fields)
        self._offer("message", message)
        return int(message["message_id"])

    def edit(self, chat: int, message_id: int, text: str, **fields: Any) -> None:
        """A person edits a message of theirs."""
        message = self.chat(chat).theirs[message_id]
        message = message | {"text": text, "edit_date": int(time.time())} | fields
        message["entities"] = fields.get("entities", found_entities(text))
        self.chat(chat).theirs[message_id] = message
        self._offer("edited_message", message)

    def press(self, chat: int, button: str, *, message_id: int | None = None, user: int | Json | None = None) -> str:
        """A person presses the button with this label or data, on the newest message that has one; gives the callback id."""
        place = self.chat(chat)
        candidates = [place.shown[message_id]] if message_id is not None else reversed(place.shown.values())
        for shown in candidates:
            for label, data in shown.buttons:
                if button in (label, data):
                    return self.callback(data, self._json(shown), user=user or (chat if chat > 0 else DEFAULT_USER))
        raise AssertionError(f"no button {button!r} in chat {chat}")

    def callback(self, data: str, message: Json | None, *, user: int | Json = DEFAULT_USER, **fields: Any) -> str:
        """A raw callback query, with any message or none."""
        callback_id = str(4_000_000_000_000 + self._next_callback)
        self._next_callback += 1
        self.answered[callback_id] = []
        query: Json = {"id": callback_id, "from": user if isinstance(user, dict) else self.user(user), "chat_instance": "1", "data": data}
        if message is not None:
            query["message"] = message
        self._offer("callback_query", query | fields)
        return callback_id

    def push(self, update: Any) -> int:
        """Queue any update as it is, whatever was subscribed to; an `update_id` is given where it has none. Gives the id."""
        if isinstance(update, dict) and "update_id" not in update:
            update = {"update_id": self._next_update} | update
        self._next_update = max(self._next_update, update.get("update_id", 0) if isinstance(update, dict) else 0) + 1
        self._queue.append(update)
        self._arrived.set()
        if self._poll:
            self._poll.wake.set()
        return self._next_update - 1

    # ------------------------------------------------------------------------------------------------------ what can be seen

    def visible(self, chat: int, thread: int | None = None) -> list[str]:
        """The bot's texts in the chat as a person sees them now, oldest first; of one topic where `thread` is given (0: General)."""
        return [message.text for message in self.messages(chat, thread)]

    def messages(self, chat: int, thread: int | None = None) -> list[Shown]:
        place = self.chats.get(chat)
        if place is None:
            return []
        return [shown for shown in place.shown.values() if thread is None or (shown.thread or 0) == thread]

    def calls_of(self, method: str, chat: int | None = None) -> list[Call]:
        return [call for call in self.calls if call.method == method and (chat is None or call.chat == chat)]

    @property
    def pending(self) -> int:
        """Updates that are not confirmed."""
        return len(self._queue)

    async def wait_for(self, predicate: Callable[[], T], timeout: float = 5.0, *, chat: int | None = None) -> T:
        """Wait until `predicate()` is true and give what it gave. With `chat` it is asked again only when that chat saw something: with
        hundreds of waiters the cheap way. AssertionError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        event = asyncio.Event()
        group = self._watchers.setdefault(chat, set())
        group.add(event)
        try:
            while True:
                event.clear()
                if found := predicate():
                    return found
                left = deadline - time.monotonic()
                if left <= 0:
                    tail = [f"{call.method}({call.chat}) {call.status} {call.description}" for call in self.calls[-8:]]
                    raise AssertionError(f"not within {timeout:g} s; last calls: {tail}")
                try:
                    async with asyncio.timeout(left if chat is not None else min(left, 0.05)):
                        await event.wait()
                except TimeoutError:
                    continue
        finally:
            group.discard(event)
            if not group:
                self._watchers.pop(chat, None)

    # --------------------------------------------------------------------------------------------------------- misbehaviour
    # Each call meets the first planned fault that fits, so that faults planned one after the other strike one after the other.

    def fail(
        self,
        method: str,
        status: int,
        body: str | bytes | Json | Callable[[Json], Any] | None = None,
        *,
        times: int | None = 1,
        chat: int | None = None,
        when: Callable[[Json], bool] | None = None,
    ) -> Fault:
        """Answer `status` without any effect, the next `times` times (None: always). "*" is every method.

        `body`: a description; bytes as they are; a dict to be merged into the usual one (`{"parameters": {"retry_after": 3}}`); or a
        function of the parameters that gives one of these, or None for no fault this time."""
        return self._plan(Fault(method, chat, times, when, "fail", status=status, body=body))

    def hold(
        self,
        method: str,
        *,
        before: bool = False,
        times: int | None = 1,
        chat: int | None = None,
        when: Callable[[Json], bool] | None = None,
    ) -> Fault:
        """Withhold the response until `release()`; the effect is done, or with `before` it waits too."""
        return self._plan(Fault(method, chat, times, when, "hold", after=not before))

    def drop(
        self,
        method: str,
        *,
        after: bool = False,
        times: int | None = 1,
        chat: int | None = None,
        when: Callable[[Json], bool] | None = None,
    ) -> Fault:
        """Reset the connection instead of answering, before the effect or `after` it."""
        return self._plan(Fault(method, chat, times, when, "drop", after=after))

    def flood(self, chat: int, retry_after: float) -> None:
        """For `retry_after` seconds from now every call for this chat is answered 429; those after the first go to `impatient`."""
        place = self.chat(chat)
        place.flood_until, place.flood_told = time.monotonic() + retry_after, False

    def block(self, chat: int, description: str = "Forbidden: bot was blocked by the user", status: int = 403) -> None:
        """Every call for this chat is refused for good."""
        self.chat(chat).refusal = (status, description)

    def migrate(self, old: int, new: int) -> None:
        """The group `old` is now the supergroup `new`."""
        self.chat(old).moved_to = new
        self.chat(new, title=self.chat(old).title)

    def _plan(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    # -------------------------------------------------------------------------------------------------------------- serving

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        params = await _params(request)
        method = request.match_info["method"]
        call = Call(method, params, time.monotonic(), _int(params.get("chat_id")), (request.get_extra_info("peername") or (0, 0))[1])
        self.calls.append(call)
        try:
            response = await self._answer(request, call)
        except asyncio.CancelledError:
            call.status = -1
            raise
        finally:
            self._touch(call.chat)
        return response

    async def _answer(self, request: web.Request, call: Call) -> web.StreamResponse:
        fault = next((fault for fault in self._faults if fault.strikes(call)), None) if self._faults else None
        if fault is not None and not fault.after:
            if fault.act == "drop":
                return _reset(request, call)
            if fault.act == "hold":
                await self._hold(fault, call)
            elif (failed := _failed(fault, call)) is not None:
                return failed
        try:
            self._admit(request.match_info["token"], call)
            handler = self._methods.get(call.method)
            if handler is None:
                raise Refusal(404, "Not Found: method not found")
            result = handler(call.params)
            if asyncio.iscoroutine(result):
                result = await result
            call.status, body = 200, {"ok": True, "result": result}
        except Refusal as refusal:
            call.status, call.description, body = refusal.status, refusal.description, refusal.body()
        if fault is not None and fault.after:
            if fault.act == "drop":
                return _reset(request, call)
            await self._hold(fault, call)
        return _json_response(call.status, body)

    async def _hold(self, fault: Fault, call: Call) -> None:
        fault.reached.set()
        self._touch(call.chat)
        await fault.released.wait()

    def _admit(self, token: str, call: Call) -> None:
        if token != self.token:
            raise Refusal(401, "Unauthorized") if re.fullmatch(r"\d+:[\w-]+", token) else Refusal(404, "Not Found")
        if call.chat is None:
            return
        place = self.chats.get(call.chat)
        if place is None:
            if self.strict_chats:
                raise Refusal(400, "Bad Request: chat not found")
            return
        if place.refusal:
            raise Refusal(*place.refusal)
        if place.moved_to is not None:
            raise Refusal(400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=place.moved_to)
        left = place.flood_until - time.monotonic()
        if left > 0:
            if place.flood_told:
                self.impatient.append(call)
            place.flood_told = True
            seconds = math.ceil(left)
            raise Refusal(429, f"Too Many Requests: retry after {seconds}", retry_after=seconds)

    async def _serve_file(self, request: web.Request) -> web.Response:
        content = self.files.get(request.match_info["path"].removeprefix("documents/"))
        if request.match_info["token"] != self.token or not isinstance(content, bytes):
            return _json_response(404, {"ok": False, "error_code": 404, "description": "Not Found"})
        return web.Response(body=content)

    def _touch(self, chat: int | None) -> None:
        for group in {None, chat}:
            for event in self._watchers.get(group, ()):
                event.set()

    def _offer(self, kind: str, content: Json) -> None:
        if kind in self._allowed:
            self.push({kind: content})

    def _as_reply(self, place: Chat, message_id: int) -> Json:
        if message_id in place.shown:
            return self._json(place.shown[message_id])
        return {key: value for key, value in place.theirs[message_id].items() if key != "reply_to_message"}

    def _me(self) -> Json:
        return {"id": self.bot_id, "is_bot": True, "first_name": "Our Bot", "username": self.username}

    def _json(self, shown: Shown) -> Json:
        body: Json = {"message_id": shown.id, "from": self._me(), "chat": self.chat(shown.chat).json(), "date": shown.date}
        if shown.file:
            body |= {"document": shown.file, "caption": shown.text}
        else:
            body["text"] = shown.text
        if shown.thread is not None:
            body |= {"message_thread_id": shown.thread, "is_topic_message": True}
        if shown.entities:
            body["entities"] = shown.entities
        if shown.markup:
            body["reply_markup"] = shown.markup
        return body

    # -------------------------------------------------------------------------------------------------------------- updates

    async def _do_getUpdates(self, params: Json) -> list[Json]:
        if self.webhook_url:
            raise Refusal(
                409, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
            )
        if self._poll:
            self._poll.terminated = True
            self._poll.wake.set()
        poll = self._poll = _Poll()
        self._subscribe(params)
        offset = _int(params.get("offset")) or 0
        if offset < 0:
            self.resets.append(f"offset={offset}")
            while len(self._queue) > -offset:
                self._queue.popleft()
        else:
            self._confirm(offset)
        limit = min(max(_int(params.get("limit")) or 100, 1), 100)
        deadline = time.monotonic() + min(float(params.get("timeout") or 0), 50)
        try:
            while not self._queue and (left := deadline - time.monotonic()) > 0:
                poll.wake.clear()
                try:
                    async with asyncio.timeout(left):
                        await poll.wake.wait()
                except TimeoutError:
                    break
                if poll.terminated:
                    raise Refusal(409, _PHRASES[409])
            return list(islice(self._queue, limit))
        finally:
            if self._poll is poll:
                self._poll = None

    def _confirm(self, offset: int) -> None:
        while self._queue and offset and (not isinstance(self._queue[0], dict) or self._queue[0].get("update_id", 0) < offset):
            self._queue.popleft()
        self.offset = max(self.offset, offset)

    def _subscribe(self, params: Json) -> None:
        allowed = _object(params, "allowed_updates")
        if allowed is not None:
            self._allowed = frozenset(allowed) or _DEFAULT_UPDATES

    def _do_setWebhook(self, params: Json) -> bool:
        url = str(params.get("url") or "")
        parts = urlsplit(url)
        if url and parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise Refusal(400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook")
        secret = str(params.get("secret_token") or "")
        if secret and not re.fullmatch(r"[A-Za-z0-9_-]{1,256}", secret):
            raise Refusal(400, "Bad Request: secret token contains unallowed characters")
        self._drop_pending(params)
        self._subscribe(params)
        self.webhook_url, self.webhook_secret = url, secret
        if url and self._delivery is None:
            self._delivery = asyncio.create_task(self._deliver())
        self._arrived.set()
        return True

    def _do_deleteWebhook(self, params: Json) -> bool:
        self._drop_pending(params)
        self.webhook_url = ""
        return True

    def _drop_pending(self, params: Json) -> None:
        if str(params.get("drop_pending_updates", "")).lower() in ("true", "1"):
            self.resets.append("drop_pending_updates")
            self._queue.clear()

    def _do_getWebhookInfo(self, params: Json) -> Json:
        return {"url": self.webhook_url, "has_custom_certificate": False, "pending_update_count": len(self._queue)}

    async def _deliver(self) -> None:
        pause = self.webhook_pause
        async with ClientSession(timeout=ClientTimeout(total=10)) as session:
            while True:
                while not (self.webhook_url and self._queue):
                    self._arrived.clear()
                    await self._arrived.wait()
                update = self._queue[0]
                headers = {"X-Telegram-Bot-Api-Secret-Token": self.webhook_secret} if self.webhook_secret else {}
                try:
                    async with session.post(self.webhook_url, json=update, headers=headers) as response:
                        status = response.status
                except (ClientError, TimeoutError):
                    status = 0
                self.webhook_posts.append(status)
                self._touch(None)
                if 200 <= status <= 299:
                    if self._queue and self._queue[0] is update:
                        self._queue.popleft()
                    pause = self.webhook_pause
                else:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, self.webhook_pause * 50)

    # -------------------------------------------------------------------------------------------------------------- methods

    def _do_getMe(self, params: Json) -> Json:
        return self._me() | {
            "can_join_groups": True,
            "can_read_all_group_messages": self.reads_all,
            "supports_inline_queries": False,
            "can_connect_to_business": False,
            "has_main_web_app": False,
        }

    def _do_setMyCommands(self, params: Json) -> bool:
        commands = _object(params, "commands")
        check_menu(commands)
        self.commands = commands
        return True

    def _do_sendMessage(self, params: Json) -> Json:
        self._no_parse_mode(params)
        place, thread, reply_to = self._target(params)
        sent = params.get("text")
        text = checked_text(sent, empty="Bad Request: message text is empty", long="Bad Request: message is too long")
        entities = checked_entities(str(sent), _object(params, "entities"))
        return self._put(place, thread, reply_to, text, entities, checked_markup(_object(params, "reply_markup")))

    def _do_sendDocument(self, params: Json) -> Json:
        self._no_parse_mode(params)
        place, thread, reply_to = self._target(params)
        file = params.get("document")
        if isinstance(file, str) and file.startswith("attach://"):
            file = params.get(file.removeprefix("attach://"))
        if not isinstance(file, dict):
            raise Refusal(400, "Bad Request: there is no document in the request")
        caption = str(params.get("caption") or "")
        if caption:
            checked_text(
                caption, empty="Bad Request: caption is empty", long="Bad Request: message caption is too long", limit=CAPTION_LIMIT
            )
        document = {"file_id": f"F{place.last_id}", "file_unique_id": f"U{place.last_id}", **file}
        return self._put(place, thread, reply_to, caption, [], None, document)

    def _do_editMessageText(self, params: Json) -> Json:
        self._no_parse_mode(params)
        shown = self._own(params, lost="Bad Request: message to edit not found", theirs="Bad Request: message can't be edited")
        sent = params.get("text")
        text = checked_text(sent, empty="Bad Request: message text is empty", long="Bad Request: MESSAGE_TOO_LONG")
        entities = checked_entities(str(sent), _object(params, "entities"))
        markup = checked_markup(_object(params, "reply_markup"))
        if (text, entities, markup) == (shown.text, shown.entities, shown.markup):
            raise Refusal(400, _NOT_MODIFIED)
        shown.text, shown.entities, shown.markup = text, entities, markup
        shown.edits += 1
        return self._json(shown) | {"edit_date": int(time.time())}

    def _do_deleteMessage(self, params: Json) -> bool:
        shown = self._own(params, lost="Bad Request: message to delete not found", theirs="Bad Request: message can't be deleted")
        del self.chats[shown.chat].shown[shown.id]
        return True

    def _do_sendChatAction(self, params: Json) -> bool:
        place, _, _ = self._target(params)
        if params.get("action") != "typing":
            raise Refusal(400, "Bad Request: wrong parameter action in request")
        place.typing += 1
        return True

    def _do_answerCallbackQuery(self, params: Json) -> bool:
        answers = self.answered.get(str(params.get("callback_query_id")))
        if answers is None:
            raise Refusal(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
        answers.append(params)
        return True

    def _do_getChatAdministrators(self, params: Json) -> list[Json]:
        place, _, _ = self._target(params)
        if place.type == "private":
            raise Refusal(400, "Bad Request: there are no administrators in the private chat")
        return place.admins

    def admin(self, chat: int, user: int, *, creator: bool = False) -> None:
        """Make a person an administrator of a group."""
        member: Json = {"user": self.user(user), "is_anonymous": False}
        self.chat(chat).admins.append(
            member | {"status": "creator"} if creator else member | {"status": "administrator", "can_be_edited": False} | _ADMIN_RIGHTS
        )

    def _do_getFile(self, params: Json) -> Json:
        file_id = str(params.get("file_id"))
        content = self.files.get(file_id)
        if content is None:
            raise Refusal(400, "Bad Request: invalid file_id")
        if isinstance(content, int) or len(content) > 20 * 2**20:
            raise Refusal(400, "Bad Request: file is too big")
        return {"file_id": file_id, "file_unique_id": f"U{file_id}", "file_size": len(content), "file_path": f"documents/{file_id}"}

    # -------------------------------------------------------------------------------------------------------------- helpers

    def _no_parse_mode(self, params: Json) -> None:
        if params.get("parse_mode"):
            raise Refusal(400, "Bad Request: can't parse entities: this fake takes entities, never a parse mode")

    def _target(self, params: Json) -> tuple[Chat, int | None, int | None]:
        chat_id = _int(params.get("chat_id"))
        if chat_id is None:
            raise Refusal(400, "Bad Request: chat_id is empty")
        place = self.chat(chat_id)
        thread = _int(params.get("message_thread_id"))
        if thread is not None and thread not in place.topics:
            raise Refusal(400, "Bad Request: message thread not found")
        reply = _object(params, "reply_parameters")
        reply_to = _int(reply.get("message_id")) if reply else None
        if reply and reply_to not in place.theirs and reply_to not in place.shown:
            if str(reply.get("allow_sending_without_reply", "")).lower() != "true":
                raise Refusal(400, "Bad Request: message to be replied not found")
            reply_to = None
        return place, thread, reply_to

    def _own(self, params: Json, *, lost: str, theirs: str) -> Shown:
        place, _, _ = self._target(params)
        message_id = _int(params.get("message_id"))
        if message_id is None:
            raise Refusal(400, "Bad Request: message identifier is not specified")
        if message_id in place.theirs:
            raise Refusal(400, theirs)
        if message_id not in place.shown:
            raise Refusal(400, lost)
        return place.shown[message_id]

    def _put(
        self,
        place: Chat,
        thread: int | None,
        reply_to: int | None,
        text: str,
        entities: list[Json],
        markup: Json | None,
        file: Json | None = None,
    ) -> Json:
        place.last_id += 1
        shown = Shown(place.last_id, place.id, thread, text, entities, markup, reply_to, int(time.time()), file=file)
        place.shown[shown.id] = shown
        return self._json(shown)


def _int(value: object) -> int | None:
    try:
        return int(value) if isinstance(value, (int, str)) and value != "" else None
    except ValueError:
        return None


def _object(params: Json, name: str) -> Any:
    """A parameter that is an object or array: as it is in a JSON body, as a string of JSON in a form."""
    value = params.get(name)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise Refusal(400, f"Bad Request: can't parse {name} JSON object") from None


async def _params(request: web.Request) -> Json:
    params: Json = dict(request.query)
    if request.content_type == "application/json":
        try:
            body = json.loads(await request.read() or b"{}")
        except ValueError:
            return params
        return params | body if isinstance(body, dict) else params
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            params[name] = {"file_name": value.filename, "mime_type": value.content_type, "file_size": len(value.file.read())}
        else:
            params[name] = value if isinstance(value, str) else bytes(value).decode()
    return params


def _json_response(status: int, body: Json) -> web.Response:
    return web.Response(status=status, body=json.dumps(body).encode(), content_type="application/json")


def _reset(request: web.Request, call: Call) -> web.Response:
    call.status = -1
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _failed(fault: Fault, call: Call) -> web.Response | None:
    body = fault.body(call.params) if callable(fault.body) else fault.body
    if callable(fault.body) and body is None:
        return None
    call.status = fault.status
    if isinstance(body, bytes):
        return web.Response(status=fault.status, body=body, content_type="text/html")
    usual: Json = {"ok": False, "error_code": fault.status, "description": _PHRASES.get(fault.status, "Error")}
    if isinstance(body, str):
        usual["description"] = body
    elif body:
        usual |= body
    call.description = str(usual["description"])
    return _json_response(fault.status, usual)
