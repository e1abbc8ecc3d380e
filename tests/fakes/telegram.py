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
import math
import re
import time
from collections.abc import Callable
from typing import Any, Self, TypeVar

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from tests.fakes.downloads import Downloads
from tests.fakes.telegram_rules import Json, Refusal, found_entities, integer
from tests.fakes.telegram_service import Service
from tests.fakes.telegram_state import Call, Chat, Fault, Shown
from tests.fakes.telegram_wire import failed, json_response, params_of, reset

__all__ = ["Call", "Chat", "FakeTelegram", "Fault", "Shown"]

T = TypeVar("T")

DEFAULT_USER = 42
"""Who speaks in groups where a test does not say."""


class FakeTelegram(Service):
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
        super().__init__(token, username, reads_all=reads_all, strict_chats=strict_chats)
        self.host, self.port = host, port
        self.calls: list[Call] = []
        self.downloads = Downloads()
        self.impatient: list[Call] = []
        """Calls that came within a flood wait that had been told."""
        self.webhook_posts: list[int] = []
        """Status of each delivery; 0 where nobody answered."""
        self.webhook_pause = 0.02
        """Seconds before a refused delivery is repeated; doubles up to 50 times of it."""
        self._next_update = 700_001
        self._next_callback = 1
        self._faults: list[Fault] = []
        self._watchers: dict[int | None, set[asyncio.Event]] = {}
        self._runner: web.AppRunner | None = None
        self._delivery: asyncio.Task[None] | None = None

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
        if self._delivery is None:
            self._delivery = asyncio.create_task(self._deliver())
        self._arrived.set()

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
        params = await params_of(request)
        method = request.match_info["method"]
        call = Call(method, params, time.monotonic(), integer(params.get("chat_id")), (request.get_extra_info("peername") or (0, 0))[1])
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
                return reset(request, call)
            if fault.act == "hold":
                await self._hold(fault, call)
            elif (response := failed(fault, call)) is not None:
                return response
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
                return reset(request, call)
            await self._hold(fault, call)
        return json_response(call.status, body)

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

    async def _serve_file(self, request: web.Request) -> web.StreamResponse:
        file_id = request.match_info["path"].removeprefix("documents/")
        content = self.files.get(file_id)
        if request.match_info["token"] != self.token or not isinstance(content, bytes):
            return json_response(404, {"ok": False, "error_code": 404, "description": "Not Found"})
        return await self.downloads.serve(request, file_id, content)

    def _touch(self, chat: int | None) -> None:
        for group in {None, chat}:
            for event in self._watchers.get(group, ()):
                event.set()

    def _offer(self, kind: str, content: Json) -> None:
        if kind in self._allowed:
            self.push({kind: content})

    async def _deliver(self) -> None:
        pause = self.webhook_pause
        async with ClientSession(timeout=ClientTimeout(total=10)) as session:
            while True:
                while not (self._runner and self.webhook_url and self._queue):
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
