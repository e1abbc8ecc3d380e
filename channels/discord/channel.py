"""Discord as a Channel: the sending half over discord.py's HTTP client, and who reads for it.

Reading is `reading` over `client`; formatting is `render`; what an error means is `errors`. Made by `gateway.app`.

Nothing here needs discord.py's memory of messages or members. Every text goes out with a mention policy of nobody, and without previews.
A send carries the nonce that it is given, by which Discord knows a repeat for some minutes: so a send of unknown outcome may be repeated.
"""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import structlog
from aiohttp.web import RouteDef
from discord.gateway import DiscordWebSocket
from discord.http import Route

from channels.base import (
    FOLLOWS,
    Accept,
    Address,
    Attachment,
    Button,
    ChannelError,
    CommandInfo,
    Context,
    Lost,
    NotSent,
    Pacing,
    Piece,
    Refused,
    Unknown,
)
from channels.discord import files
from channels.discord.admins import administers
from channels.discord.bodies import Ticket, compose, naming, ticket_of
from channels.discord.client import MISSING_INTENT, Client, Pace, gateway_of
from channels.discord.commands import Registry
from channels.discord.errors import expired, no_target, translate
from channels.discord.interactions import Interactions
from channels.discord.marks import Marks
from channels.discord.payloads import FAULTS, Channel, convert, snowflake_at
from channels.discord.places import Places
from channels.discord.reading import Reading
from channels.discord.recall import MARGIN, PAGE, SURE, Wanted, recall, snowflake_of
from channels.discord.render import LIMITS, render
from channels.discord.settings import Settings
from channels.discord.transport import Http
from channels.markup import Parser

log = structlog.get_logger(__name__)

K = TypeVar("K")
V = TypeVar("V")

_REMEMBERED = 2000
_NONSENSE = "the answer is not what Discord sends"


def make(settings: Settings, context: Context) -> DiscordChannel:
    """Called by `gateway.app`. Below WARNING the library logs what people write; that is never wanted, whoever sets the log up."""
    logging.getLogger("discord").setLevel(logging.WARNING)
    return DiscordChannel(settings, context)


class DiscordChannel:
    name = "discord"
    adjustable = frozenset({"sends_per_second", "chat_per_second", "group_per_minute", "backlog"})

    def __init__(
        self,
        settings: Settings,
        context: Context,
        *,
        pace: Pace | None = None,
        heartbeat_seconds: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._token = context.token or settings.token.reveal()
        self._parser = Parser()
        self.limits = LIMITS
        self.pacing = _pacing(settings)
        self.backlog = float(settings.backlog)
        self.streams = settings.streaming == "edit"
        self._settings = settings
        self._http = Http(proxy=settings.proxy)
        self._http.token = self._token
        self._registry = Registry(self._http, context.folder)
        self._interactions = Interactions(self._http, context.desk)
        self._marks = Marks(context.folder)
        self._places = Places(self._channel)
        self._pace = pace or Pace()
        self._heartbeat_seconds = heartbeat_seconds
        self._client: Client | None = None
        self._application: int | None = None
        self._me = ""
        """Our user id, once it is known."""
        self._clock, self._born = clock, clock()
        self._reading: Reading | None = None
        self._heard = 0.0
        self._warned = False
        self._hooks: OrderedDict[str, Ticket] = OrderedDict()
        """Message id -> the ticket by which it was sent: it can be edited by that where the bot may not do it otherwise."""
        self._tried: OrderedDict[str, float] = OrderedDict()
        """Nonce or token -> when a send by it was first tried, of which nobody knows what became."""
        self._named: OrderedDict[str, str] = OrderedDict()
        """Message id -> the asker whom it names."""

    # --------------------------------------------------------------------------------------------------------------------- life

    async def start(self, menu: Sequence[CommandInfo]) -> None:
        # discord.py has both addresses in one place for all of its clients.
        Route.BASE = self._settings.api_base.rstrip("/")
        await self._http.open()
        client = Client(self._http, self._hear, self._pace, heartbeat_seconds=self._heartbeat_seconds)
        try:
            plain = urlsplit(self._settings.api_base).scheme == "http"
            DiscordWebSocket.DEFAULT_GATEWAY = gateway_of(await self._http.request(Route("GET", "/gateway")), plain=plain)
            await client.login(self._token)
            user, application = client.user, client.application_id
        except ChannelError as error:
            raise translate(error) from None
        except (*FAULTS, AttributeError):
            raise Unknown(_NONSENSE) from None
        if user is None or application is None:
            raise Unknown(_NONSENSE)
        self._heard = time.monotonic()
        self._client, self._application, self._me = client, application, str(user.id)
        await self._marks.load(str(user.id))
        flags = client.application_flags
        if not (flags.gateway_message_content or flags.gateway_message_content_limited) and not self._warned:
            self._warned = True
            log.warning(MISSING_INTENT, channel=self.name)
        await self._registry.sync(application, menu)

    async def run(self, accept: Accept) -> None:
        client = self._client
        if client is None or client.user is None:
            raise Unknown("the channel is not started")
        self._reading = Reading(
            self._http,
            client,
            str(client.user.id),
            accept,
            self._places,
            self._marks,
            self._interactions,
            backlog=self.backlog,
            # Ids tell Discord's time, so that ours is set by it.
            clock=lambda: self._clock() + (self._http.ahead() or 0.0),
        )
        try:
            await self._reading.run()
        finally:
            self._heard = self.last_sign_of_life()
            self._reading = self._client = None

    def _hear(self, event: str, data: Mapping[str, Any]) -> None:
        if self._reading is not None:
            self._reading.hear(event, data)

    async def close(self) -> None:
        await self._http.close()

    def last_sign_of_life(self) -> float:
        """Of the reading half: sends that work say nothing about whether messages come in."""
        return max(self._heard, self._client.heard if self._client is not None else 0.0)

    def overdue(self) -> float:
        return self._client.overdue() if self._client is not None else 0.0

    def trouble(self) -> str:
        if self._client is None or self._reading is None:
            return ""
        return self._client.problem or self._reading.intake.problem

    def adjust(self, settings: msgspec.Struct) -> None:
        assert isinstance(settings, Settings)
        self.pacing, self.backlog = _pacing(settings), float(settings.backlog)
        if self._reading is not None:
            self._reading.backfill.backlog = self.backlog

    def routes(self) -> Sequence[RouteDef]:
        return ()

    # ------------------------------------------------------------------------------------------------------------------ sending

    def render(self, markdown: str) -> list[Piece]:
        return render(markdown, self._parser.parse)

    async def send(self, address: Address, piece: Piece, *, reply_to: str = "", buttons: Sequence[Button] = (), nonce: str = "") -> str:
        body = compose(piece.text, buttons)
        if ticket := ticket_of(reply_to):
            return await self._answer(address, ticket, body, nonce, follows=reply_to.startswith(FOLLOWS))
        return await self._post(address, body, reply_to, nonce)

    async def _post(self, address: Address, body: dict[str, Any], reply_to: str, nonce: str) -> str:
        route = Route("POST", "/channels/{channel_id}/messages", channel_id=_channel_id(address))
        if nonce:
            body |= {"nonce": nonce, "enforce_nonce": True}
        if reply_to.isdecimal():
            body["message_reference"] = {"type": 0, "message_id": reply_to, "fail_if_not_exists": False}
        seconds = SURE if nonce else 0.0
        try:
            return await self._surely(nonce, seconds, lambda: self._made(route, body))
        except ChannelError as error:
            if not ("message_reference" in body and no_target(error)):
                raise translate(error) from None
        del body["message_reference"]
        try:
            return await self._surely(nonce, seconds, lambda: self._made(route, body))
        except ChannelError as error:
            raise translate(error) from None

    async def _answer(self, address: Address, ticket: Ticket, body: dict[str, Any], nonce: str, *, follows: bool) -> str:
        """By the ticket; once it has expired, as a message in the chat that names the asker."""
        try:
            if follows:
                message_id = await self._made(self._hook("POST", "", ticket), body)
            else:
                original = self._hook("PATCH", "/messages/@original", ticket)
                message_id = await self._surely(ticket.token, math.inf, lambda: self._made(original, body))
        except ChannelError as error:
            if not expired(error):
                raise translate(error) from None
        else:
            _remember(self._hooks, message_id, ticket)
            return message_id
        if follows:
            return await self._post(address, body, "", nonce)
        named = naming(ticket.user, body["content"])
        if named is None:
            await self._post(address, compose(f"<@{ticket.user}>", ()), "", nonce[::-1])
            return await self._post(address, body, "", nonce)
        message_id = await self._post(address, body | {"content": named}, "", nonce)
        _remember(self._named, message_id, ticket.user)
        return message_id

    async def recall(self, address: Address, piece: Piece, *, since: float, asked: str, reply_to: str = "") -> str:
        channel = address.thread or address.chat
        if self._clock() - since < SURE or not channel.isdecimal():
            return ""
        if not self._me:
            raise NotSent("the channel is not started")
        ahead = self._http.ahead() or 0.0

        async def history(after: int) -> object:
            return await self._http.logs_from(int(channel), PAGE, after=after)

        after = max(snowflake_at(since + ahead - MARGIN), snowflake_of(asked))
        found = await recall(history, Wanted(self._me, piece.text, reply_to), after=after, end=snowflake_at(self._born + ahead))
        if found:
            log.info("sent before the restart, not repeated", channel=self.name, chat=address.chat, thread=address.thread)
        return found

    async def edit(self, address: Address, message_id: str, piece: Piece, *, buttons: Sequence[Button] = ()) -> None:
        body = compose(piece.text, buttons)
        if user := self._named.get(message_id):
            body["content"] = naming(user, piece.text) or piece.text
        await self._change("PATCH", address, message_id, body)

    async def delete(self, address: Address, message_id: str) -> None:
        try:
            await self._change("DELETE", address, message_id, None)
        except Lost:
            return

    async def _change(self, method: str, address: Address, message_id: str, body: dict[str, Any] | None) -> None:
        if not message_id.isdecimal():
            raise Lost("this is no message of Discord's")
        if ticket := self._hooks.get(message_id):
            try:
                await self._changed(self._hook(method, f"/messages/{message_id}", ticket), body)
            except ChannelError as error:
                if not expired(error):
                    raise translate(error) from None
                del self._hooks[message_id]
            else:
                return
        route = Route(method, "/channels/{channel_id}/messages/{message_id}", channel_id=_channel_id(address), message_id=int(message_id))
        try:
            await self._changed(route, body)
        except ChannelError as error:
            raise translate(error) from None

    async def _changed(self, route: Route, body: Mapping[str, Any] | None) -> None:
        """Without a body: taken away. An edit is answered with its message, or it was nobody who knows about it that answered."""
        if body is None:
            await self._http.request(route)
        else:
            await self._made(route, body)

    async def typing(self, address: Address) -> None:
        try:
            await self._http.send_typing(_channel_id(address))
        except ChannelError as error:
            raise translate(error) from None

    def _hook(self, method: str, path: str, ticket: Ticket) -> Route:
        if self._application is None:
            raise NotSent("the channel is not started")
        return Route(method, "/webhooks/{webhook_id}/{webhook_token}" + path, webhook_id=self._application, webhook_token=ticket.token)

    async def _made(self, route: Route, body: Mapping[str, Any]) -> str:
        """One request that makes or fills a message; its id."""
        return _message_id(await self._http.request(route, json=body))

    async def _surely(self, name: str, seconds: float, action: Callable[[], Awaitable[str]]) -> str:
        """What Discord takes a repeat for the same of, for so many seconds from the first try on: where nobody can say what became of it,
        whoever sends may do it again."""
        began = self._tried.get(name, self._clock())
        try:
            made = await action()
        except Unknown as error:
            if not 0 <= self._clock() - began < seconds:
                raise
            _remember(self._tried, name, began)
            raise NotSent(f"{error}, and it may be repeated") from None
        self._tried.pop(name, None)
        return made

    # ------------------------------------------------------------------------------------------------------------- who is admin

    async def is_admin(self, address: Address, user_id: str) -> bool:
        try:
            guild_id = self._places.guild_of(address.chat) or (await self._channel(address.chat)).guild_id
            return bool(guild_id) and await administers(self._http, guild_id or "", user_id)
        except ChannelError as error:
            raise translate(error) from None
        except FAULTS:
            raise Unknown(_NONSENSE) from None

    async def fetch(self, attachment: Attachment, most: int) -> bytes:
        return await files.fetch(self._http, self._settings.api_base, attachment, most)

    async def _channel(self, channel: str) -> Channel:
        if not channel.isdecimal():
            raise Refused("this is no address of Discord's")
        answer = await self._http.get_channel(int(channel))
        try:
            found = convert(answer, Channel)
        except FAULTS:
            found = None
        if found is None or found.id != channel:
            # As little as no answer: who asks where somebody spoke must ask again, or what was said is lost.
            raise Unknown(_NONSENSE)
        return found


def _pacing(settings: Settings) -> Pacing:
    # A thread is a channel of its own, for limits too.
    return Pacing(settings.sends_per_second, settings.chat_per_second, settings.group_per_minute, apart=True)


def _channel_id(address: Address) -> int:
    """A thread is a channel of its own."""
    channel = address.thread or address.chat
    if not channel.isdecimal():
        raise Refused("this is no address of Discord's")
    return int(channel)


def _message_id(answer: object) -> str:
    said = answer.get("id") if isinstance(answer, dict) else None
    if not isinstance(said, str) or not said.isdecimal():
        raise Unknown(_NONSENSE)
    return said


def _remember(where: OrderedDict[K, V], key: K, value: V) -> None:
    where[key] = value
    where.move_to_end(key)
    if len(where) > _REMEMBERED:
        where.popitem(last=False)
