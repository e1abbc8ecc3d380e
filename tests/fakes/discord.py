"""Discord on loopback, REST and gateway, with the service's refusals and words, for tests and load tests with the real discord.py.

It keeps what a person would see in each channel, tells the gateway what happens, and can misbehave on demand: `fail`, `hold`, `drop`,
`flood`, `disconnect`, `go_silent`, `stop` and `start` (an outage; same port, same state).

    async with FakeDiscord() as dc:                      # dc.base_url is discord.py's Route.BASE, dc.gateway_url its DEFAULT_GATEWAY
        chat = dc.dm(DEFAULT_USER)                       # or dc.channel(guild, "general"), dc.thread(channel)
        message_id = dc.say(chat, "hello")
        await dc.wait_for(lambda: dc.visible(chat) == ["hi"])

Kept apart from the real service on purpose: rate limits bind only where `pace` has some, everything is on one port and without
TLS, guilds are small and unsharded, and a member who presses or types a command is in the guild from then on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Self, TypeVar

from aiohttp import web

from tests.fakes.discord_gateway import Gateway
from tests.fakes.discord_pace import Limit, Pace
from tests.fakes.discord_rules import Json, Refusal, check_shape, integer
from tests.fakes.discord_state import GATEWAY, Call, Channel, Fault, Interaction, Message, Person
from tests.fakes.discord_view import View
from tests.fakes.discord_wire import answer, banned, failed, read_body, refused, reset
from tests.fakes.discord_world import DEFAULT_USER, stamp
from tests.fakes.downloads import Downloads

__all__ = ["DEFAULT_USER", "Call", "Channel", "FakeDiscord", "Fault", "Interaction", "Limit", "Message", "Person"]

T = TypeVar("T")

API = "/api/v10"


class FakeDiscord(View):
    """The service for one bot. An async context manager; everything is called on its event loop."""

    def __init__(
        self,
        *,
        token: str = "NjAwMDAwMDAwMDAwMDAwMDAx.GTESTS.fake-token-of-the-tests",
        bot_name: str = "OurBot",
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        super().__init__(token, bot_name)
        self.host, self.port = host, port
        self.gateway = Gateway(self)
        self.calls: list[Call] = []
        self.downloads = Downloads()
        self.pace = Pace()
        self.broken: list[Exception] = []
        """Mistakes of the fake itself: a request that it did not foresee. Raised at the end."""
        limits: Json = {"total": 1000, "remaining": 1000, "reset_after": 86_400_000, "max_concurrency": 1}
        self.routes[GATEWAY] = lambda call: {"url": self.gateway_url}
        self.routes["GET /gateway/bot"] = lambda call: {"url": self.gateway_url, "shards": 1, "session_start_limit": limits}
        self.open_routes.add(GATEWAY)
        self._faults: list[Fault] = []
        self._watchers: dict[int | None, set[asyncio.Event]] = {}
        self._runner: web.AppRunner | None = None

    # ------------------------------------------------------------------------------------------------------------- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.stop()
        if self.broken and kind is None:
            raise AssertionError("the fake broke") from self.broken[0]

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}{API}"

    @property
    def cdn_url(self) -> str:
        return f"http://{self.host}:{self.port}/attachments"

    @property
    def gateway_url(self) -> str:
        return f"ws://{self.host}:{self.port}/"

    async def start(self) -> None:
        """Listen; after a `stop` on the same port, with everything as it was."""
        app = web.Application(client_max_size=60 * 2**20)
        for route in self.routes:
            method, _, path = route.partition(" ")
            app.router.add_route(method, API + path, partial(self._serve, route))
        app.router.add_route("*", f"{API}/{{path:.*}}", partial(self._serve, ""))
        app.router.add_get("/attachments/{file_id}/{name}", self._serve_file)
        app.router.add_get("/{path:(resume)?}", self.gateway.accept)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port, backlog=1024).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self, *, resumable: bool = False) -> None:
        """An outage: open connections are reset, new ones refused. Sessions are lost, and what is said meanwhile is only in the channels'
        history; with `resumable` the gateway keeps both for a RESUME."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        self.gateway.abort(resumable=resumable)
        for connection in runner.server.connections if runner.server else ():
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()

    # -------------------------------------------------------------------------------------------- what people do (tests call)

    def say(self, channel: int, text: str = "", *, user: int | Person | None = None, reply_to: int | None = None, **fields: Any) -> int:
        """A person writes; gives the message id. Keywords that a `Message` has are set on it, others go into its JSON as they are."""
        return self.add(channel, self._speaker(channel, user), text, reply_to=reply_to, **fields).id

    def edit(self, channel: int, message_id: int, text: str, **fields: Any) -> None:
        """A person edits a message."""
        self.change(self.channels[channel].messages[message_id], content=text, edited=stamp(self.clock()), **fields)

    def delete(self, channel: int, message_id: int) -> None:
        """A message is taken away."""
        self.remove(self.channels[channel].messages[message_id])

    def repeat(self, channel: int, message_id: int) -> None:
        """Tell of a message again, with a new sequence number, as the gateway does at times after a RESUME."""
        self.tell("MESSAGE_CREATE", self.channels[channel].messages[message_id])

    def drop_channel(self, channel: int) -> None:
        """A channel or a thread is deleted."""
        body = self.channel_json(self.channels[channel])
        self.emit("THREAD_DELETE" if self.channels[channel].is_thread else "CHANNEL_DELETE", body, channel)
        del self.channels[channel]

    def push(self, event: str, data: Any) -> None:
        """Any event as it is, to every session whatever its intents."""
        self.gateway.push(event, data)

    def _speaker(self, channel: int, user: int | Person | None) -> Person:
        if isinstance(user, Person):
            return user
        place = self.channels[channel]
        person = self.user(user or place.recipient or DEFAULT_USER)
        if place.guild is not None:
            self.join(place.guild, person.id)
        return person

    # ------------------------------------------------------------------------------------------------------ what can be seen

    def visible(self, channel: int) -> list[str]:
        """The bot's texts in the channel as a person sees them now, oldest first; without the notes of the service, and without those
        that are still "thinking"."""
        return [message.content for message in self.messages(channel) if not message.loading and message.type in (0, 19, 20)]

    def messages(self, channel: int) -> list[Message]:
        """The bot's messages in the channel, ephemeral ones among them."""
        place = self.channels.get(channel)
        return [message for message in place.messages.values() if message.author is self.bot] if place else []

    def calls_of(self, route: str, channel: int | None = None) -> list[Call]:
        """By the constants of `discord_state`: `calls_of(SEND, channel)`."""
        return [call for call in self.calls if call.route == route and (channel is None or call.channel == channel)]

    async def wait_for(self, predicate: Callable[[], T], timeout: float = 5.0, *, channel: int | None = None) -> T:
        """Wait until `predicate()` is true and give what it gave. With `channel` it is asked again only when that channel saw something:
        with hundreds of waiters the cheap way. AssertionError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        event = asyncio.Event()
        group = self._watchers.setdefault(channel, set())
        group.add(event)
        try:
            while True:
                event.clear()
                if found := predicate():
                    return found
                left = deadline - time.monotonic()
                if left <= 0:
                    tail = [f"{call.route} ({call.channel}) {call.status} {call.code} {call.message}" for call in self.calls[-8:]]
                    raise AssertionError(f"not within {timeout:g} s; last calls: {tail}")
                try:
                    async with asyncio.timeout(left if channel is not None else min(left, 0.05)):
                        await event.wait()
                except TimeoutError:
                    continue
        finally:
            group.discard(event)
            if not group:
                self._watchers.pop(channel, None)

    async def online(self, timeout: float = 5.0) -> None:
        """Wait until a client has a session."""
        await self.wait_for(lambda: self.gateway.live, timeout)

    # --------------------------------------------------------------------------------------------------------- misbehaviour
    # Each call meets the first planned fault that fits, so that faults planned one after the other strike one after the other.

    def fail(
        self,
        route: str,
        status: int = 0,
        body: str | bytes | Json | Callable[[Call], Any] | None = None,
        *,
        code: int = 0,
        headers: dict[str, str] | None = None,
        times: int | None = 1,
        channel: int | None = None,
        when: Callable[[Call], bool] | None = None,
    ) -> Fault:
        """Answer an error without any effect, the next `times` times (None: always). "*" is every route.

        `code`: one of Discord's, with its status and words (`fail(SEND, code=50013)`). `body`: a message; bytes of a page; a dict to be
        merged into the usual body (`fail(SEND, 429, {"retry_after": 3.0, "global": True})`); or a function of the call that gives one of
        these, or None for no fault this time."""
        return self._plan(Fault(route, channel, times, when, "fail", status=status, code=code, body=body, headers=headers or {}))

    def ban(self, route: str = "*", *, times: int | None = 1) -> Fault:
        """Answer 429 with a page of the wall in front of the API."""
        return self._plan(Fault(route, None, times, None, "ban"))

    def hold(
        self,
        route: str,
        *,
        before: bool = False,
        times: int | None = 1,
        channel: int | None = None,
        when: Callable[[Call], bool] | None = None,
    ) -> Fault:
        """Withhold the response until `release()`; the effect is done, or with `before` it waits too."""
        return self._plan(Fault(route, channel, times, when, "hold", after=not before))

    def drop(
        self,
        route: str,
        *,
        after: bool = False,
        times: int | None = 1,
        channel: int | None = None,
        when: Callable[[Call], bool] | None = None,
    ) -> Fault:
        """Reset the connection instead of answering, before the effect or `after` it."""
        return self._plan(Fault(route, channel, times, when, "drop", after=after))

    def flood(self, channel: int, retry_after: float) -> None:
        """For `retry_after` seconds from now every call for this channel is answered 429; those after the first go to `pace.impatient`."""
        place = self.channels[channel]
        place.flood_until, place.flood_told = time.monotonic() + retry_after, False

    def disconnect(self, code: int = 4000, *, resumable: bool = True) -> None:
        """Close the gateway's sockets."""
        self.gateway.disconnect(code, resumable=resumable)

    def go_silent(self, *, deaf: bool = False) -> None:
        """Turn the open gateway sockets into zombies: nothing comes any more, not even an ACK; new ones work. With `deaf` a close goes
        unanswered too, for which discord.py waits 30 seconds."""
        self.gateway.go_silent(deaf=deaf)

    def _plan(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    # -------------------------------------------------------------------------------------------------------------- serving

    async def _serve_file(self, request: web.Request) -> web.StreamResponse:
        file_id = request.match_info["file_id"]
        content = self.files.get(file_id)
        return web.Response(status=404) if content is None else await self.downloads.serve(request, file_id, content)

    def _note(self, request: web.Request, route: str) -> Call:
        call = Call(route, dict(request.match_info), dict(request.query), {}, time.monotonic())
        call.authorization = request.headers.get("Authorization", "")
        call.peer = (request.get_extra_info("peername") or (0, 0))[1]
        item = self.interaction_of(call)
        call.channel = item.channel if item else integer(call.path.get("channel_id"))
        self.calls.append(call)
        return call

    async def _serve(self, route: str, request: web.Request) -> web.StreamResponse:
        call = self._note(request, route or f"{request.method} {request.path.removeprefix(API)}")
        try:
            response = await self._answer(request, call)
        except asyncio.CancelledError:
            call.status = -1
            raise
        finally:
            self._touch(call.channel)
        return response

    async def _answer(self, request: web.Request, call: Call) -> web.StreamResponse:
        try:
            await read_body(request, call)
        except Refusal as refusal:
            return refused(call, refusal)
        fault = next((fault for fault in self._faults if fault.strikes(call)), None) if self._faults else None
        if fault is not None and not fault.after:
            if fault.act == "drop":
                return reset(request, call)
            if fault.act == "ban":
                return banned(call)
            if fault.act == "hold":
                await self._hold(fault, call)
            elif (response := failed(fault, call)) is not None:
                return response
        response = self._done(call)
        if fault is not None and fault.after:
            if fault.act == "drop":
                return reset(request, call)
            await self._hold(fault, call)
        return response

    def _done(self, call: Call) -> web.Response:
        headers: dict[str, str] = {}
        try:
            handler = self.routes.get(call.route)
            if handler is None:
                raise Refusal(0, status=404, message="404: Not Found")
            self.admit(call)
            check_shape(call.body, listed=call.route.startswith("PUT /applications"))
            hook, place = call.route in self.open_routes, self.channels.get(call.channel or 0)
            if (response := self.pace.held_back(call, place, hook=hook, headers=headers)) is not None:
                return response
            return answer(call, 200, handler(call), headers)
        except Refusal as refusal:
            return refused(call, refusal, headers)
        except Exception as error:
            self.broken.append(error)
            return refused(call, Refusal(0, status=400, message=f"the fake broke: {error!r}"))

    async def _hold(self, fault: Fault, call: Call) -> None:
        fault.reached.set()
        self._touch(call.channel)
        await fault.released.wait()

    def _touch(self, channel: int | None) -> None:
        for group in {None, channel}:
            for event in self._watchers.get(group, ()):
                event.set()

    # -------------------------------------------------------------------------------------------------- what the gateway asks

    def emit(self, event: str, data: Json, channel: int | None = None) -> None:
        self.gateway.dispatch(event, data, channel)
        self._touch(channel)

    def noticed(self) -> None:
        self._touch(None)
