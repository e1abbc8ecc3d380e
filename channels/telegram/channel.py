"""Telegram as a Channel: the sending half over python-telegram-bot's `Bot` (never its Updater or Application; words go past it, see
`transport.Transport.say`), and who reads for it.

Reading is `poll` or `webhook`, both into `intake`; formatting is `render`; what an error means is `errors`. Made by `gateway.app`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog
from aiohttp.web import RouteDef
from telegram import (
    Bot,
    BotCommand,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    LinkPreviewOptions,
    ReplyParameters,
    User,
    WebhookInfo,
)
from telegram.error import ChatMigrated, Conflict, InvalidToken, TelegramError

from channels.base import (
    Accept,
    Address,
    Attachment,
    Button,
    ChannelError,
    CommandInfo,
    Context,
    Denied,
    Gone,
    Lost,
    Pacing,
    Piece,
    Refused,
    Retry,
    Unknown,
)
from channels.markup import Parser
from channels.telegram import files
from channels.telegram.errors import NO_REPLY_TARGET, NOT_MODIFIED, QUERY_TOO_OLD, sane, says, translate
from channels.telegram.floods import Floods
from channels.telegram.intake import Intake
from channels.telegram.moves import Moves
from channels.telegram.parse import Me
from channels.telegram.poll import Poller
from channels.telegram.render import LIMITS, entities, render
from channels.telegram.settings import Settings, secret_of
from channels.telegram.transport import API, FILES, Transport, Unanswered
from channels.telegram.updates import WANTED
from channels.telegram.webhook import Webhook

log = structlog.get_logger(__name__)

_NO_PREVIEW: Final = LinkPreviewOptions(is_disabled=True).to_dict()
_DATA_LIMIT = 64
_CHECK_SECONDS = 60.0
_EXPIRED = "This button has expired."


def make(settings: Settings, context: Context) -> TelegramChannel:
    """Called by `gateway.app`. Below WARNING the library logs what people write; that is never wanted, whoever sets the log up."""
    logging.getLogger("telegram").setLevel(logging.WARNING)
    return TelegramChannel(settings, context)


class TelegramChannel:
    name = "telegram"
    adjustable = frozenset({"sends_per_second", "chat_per_second", "group_per_minute", "backlog"})

    def __init__(self, settings: Settings, context: Context) -> None:
        token = context.token or settings.token.reveal()
        self._parser = Parser()
        self.limits = LIMITS
        self.pacing = _pacing(settings)
        self.backlog = float(settings.backlog)
        self.streams = settings.streaming == "edit"
        self._settings = settings
        self._secret = secret_of(settings, token)
        self._transport = Transport(settings.api_base, token, proxy=settings.proxy)
        # The library gets no token and no real address, see `transport`.
        self._bot = Bot(
            "unused",
            base_url=lambda _: API,
            base_file_url=lambda _: FILES,
            request=self._transport,
            get_updates_request=self._transport,
        )
        self._moves = Moves(context.folder)
        self._floods = Floods()
        self._me: Me | None = None
        self._menu: list[BotCommand] | None = None
        self._warned = False
        self._unchecked = False
        self._poller: Poller | None = None
        self._webhook: Webhook | None = None
        self._heard = 0.0

    # --------------------------------------------------------------------------------------------------------------------- life

    async def start(self, menu: Sequence[CommandInfo]) -> None:
        await self._transport.initialize()
        await self._moves.load()
        try:
            me = await sane(self._bot.get_me(), User)
            self._heard = time.monotonic()
            self._me = Me(me.id, (me.username or "").lower())
            if self._settings.mode == "polling":
                await self._leave_webhook()
        except TelegramError as error:
            raise translate(error) from None
        await self._set_menu(menu)
        if me.can_join_groups and not me.can_read_all_group_messages and not self._warned:
            self._warned = True
            log.warning(
                "privacy mode is on: in groups Telegram brings only commands and replies to the bot, no mentions; to change it, turn it "
                "off with @BotFather (/setprivacy) and add the bot to the group again, or make the bot an admin there",
                channel=self.name,
            )

    async def _leave_webhook(self) -> None:
        """Polling cannot be while a webhook is set. Only one of our own is taken away."""
        url = (await sane(self._bot.get_webhook_info(), WebhookInfo)).url
        if not url:
            return
        if url != self._settings.webhook_url:
            text = (
                "a webhook that is not ours is set on this bot, so another program may be using it. If it may go, remove it with the Bot "
                'API\'s deleteWebhook method, or make it ours with mode = "webhook"'
            )
            log.error(text, channel=self.name)
            raise Denied(text)
        await sane(self._bot.delete_webhook(), bool)
        log.info("own webhook taken away, polling now", channel=self.name)

    async def _set_menu(self, menu: Sequence[CommandInfo]) -> None:
        """The menu is a comfort: without it the bot works all the same."""
        commands = [BotCommand(one.name, one.hint[:256]) for one in menu if re.fullmatch("[a-z0-9_]{1,32}", one.name) and one.hint]
        if commands == self._menu:
            return
        try:
            await self._bot.set_my_commands(commands)
        except TelegramError as error:
            log.warning("command menu not set", channel=self.name, problem=error.message)
        else:
            self._menu = commands

    async def run(self, accept: Accept) -> None:
        if self._me is None:
            raise Unknown("the channel is not started")
        intake = Intake(self._me, accept, self._answer, self._moves)
        try:
            if self._settings.mode == "webhook":
                await self._run_webhook(intake)
            else:
                self._poller = Poller(self._fetch, intake.take)
                self._poller.last = self._heard
                await self._poller.run()
        finally:
            await intake.close()

    async def _fetch(self, offset: int | None) -> bytes:
        wait = self._settings.poll_timeout
        params: dict[str, object] = {"timeout": max(1, round(wait)), "allowed_updates": WANTED}
        if offset is not None:
            params["offset"] = offset
        try:
            # A request that hangs ends within twice the time it may take; its connection is closed with it.
            return await self._transport.call("getUpdates", params, seconds=wait + min(wait, 10.0))
        except Conflict as error:
            if "webhook" in error.message.lower():
                await self._remove_own_webhook()
            raise

    async def _remove_own_webhook(self) -> None:
        """One of ours that came back: another daemon of the same operator, an answer that was late. A stranger's is told, and stays."""
        try:
            url = (await sane(self._bot.get_webhook_info(), WebhookInfo)).url
            if url and url == self._settings.webhook_url:
                await sane(self._bot.delete_webhook(), bool)
                log.info("own webhook taken away, polling now", channel=self.name)
        except TelegramError as error:
            log.info("webhook not looked at", channel=self.name, problem=error.message)

    async def _run_webhook(self, intake: Intake) -> None:
        webhook = self._webhook = Webhook(self._settings.webhook_listen, self._secret, intake.take)
        await webhook.start()
        try:
            await self._set_webhook()
            while True:
                await asyncio.sleep(_CHECK_SECONDS)
                await self._check_webhook()
        except TelegramError as error:
            raise translate(error) from None
        finally:
            await webhook.close()

    async def _check_webhook(self) -> None:
        """Also the sign of life where nobody writes. Not getting through is no reason to stop listening; only a refused token is."""
        try:
            info = await sane(self._bot.get_webhook_info(), WebhookInfo)
            self._heard = time.monotonic()
            if info.url != self._settings.webhook_url:
                log.warning("the webhook was changed by somebody else, setting it again", channel=self.name)
                await self._set_webhook()
        except InvalidToken:
            raise
        except TelegramError as error:
            if not self._unchecked:
                log.info("webhook not checked", channel=self.name, problem=error.message)
            self._unchecked = True
        else:
            self._unchecked = False

    async def _set_webhook(self) -> None:
        await sane(self._bot.set_webhook(self._settings.webhook_url, secret_token=self._secret, allowed_updates=WANTED), bool)
        self._heard = time.monotonic()

    async def _answer(self, callback: str, expired: bool) -> None:
        try:
            await self._bot.answer_callback_query(callback, text=_EXPIRED if expired else None)
        except TelegramError as error:
            if not says(error, QUERY_TOO_OLD):
                log.info("button press not answered", channel=self.name, problem=error.message)

    async def close(self) -> None:
        await self._transport.shutdown()

    def last_sign_of_life(self) -> float:
        """Of the reading half: sends that work say nothing about whether messages come in."""
        reading = (self._poller.last if self._poller else 0.0, self._webhook.last if self._webhook else 0.0)
        return max(self._heard, *reading)

    def overdue(self) -> float:
        return self._poller.overdue() if self._poller else 0.0

    def trouble(self) -> str:
        return self._poller.problem if self._poller else ""

    def adjust(self, settings: msgspec.Struct) -> None:
        assert isinstance(settings, Settings)
        self.pacing, self.backlog = _pacing(settings), float(settings.backlog)

    def routes(self) -> Sequence[RouteDef]:
        return ()

    # ------------------------------------------------------------------------------------------------------------------ sending

    def render(self, markdown: str) -> list[Piece]:
        return render(markdown, self._parser.parse)

    async def send(self, address: Address, piece: Piece, *, reply_to: str = "", buttons: Sequence[Button] = (), nonce: str = "") -> str:
        chat = self._moves.now(address.chat)
        reply = _reply(chat, address, reply_to)
        words = _words(piece, buttons)
        if (thread := _thread(address)) is not None:
            words["message_thread_id"] = thread
        for _ in range(4):
            words["chat_id"] = _id(chat)
            try:
                number = await self._transport.say("sendMessage", words if reply is None else words | {"reply_parameters": reply})
                if not number:
                    raise Unanswered("the answer has no message in it")
            except ChatMigrated as error:
                # Nothing was sent; the same text goes to the new id at once.
                await self._moves.follow(chat, str(error.new_chat_id))
                chat, reply = str(error.new_chat_id), None
            except TelegramError as error:
                if reply is None or not says(error, NO_REPLY_TARGET):
                    raise self._fault(error, chat) from None
                reply = None
            else:
                self._floods.passed()
                return str(number) if chat == address.chat else f"{chat}/{number}"
        raise Gone("the group moves from id to id")

    async def recall(self, address: Address, piece: Piece, *, since: float, asked: str, reply_to: str = "") -> str:
        return ""  # a bot cannot read what was said

    async def edit(self, address: Address, message_id: str, piece: Piece, *, buttons: Sequence[Button] = ()) -> None:
        chat, message = _place(address, message_id)
        try:
            await self._transport.say("editMessageText", {"chat_id": chat, "message_id": message, **_words(piece, buttons)})
        except ChatMigrated as error:
            await self._moves.follow(str(chat), str(error.new_chat_id))
            raise Lost("the group has moved, its old messages cannot be changed") from None
        except TelegramError as error:
            if not says(error, NOT_MODIFIED):
                raise self._fault(error, str(chat)) from None
        self._floods.passed()

    async def delete(self, address: Address, message_id: str) -> None:
        chat, message = _place(address, message_id)
        try:
            await self._bot.delete_message(chat, message)
        except TelegramError as error:
            fault = self._fault(error, str(chat))
            if not isinstance(fault, Lost):
                raise fault from None

    async def typing(self, address: Address) -> None:
        chat = self._moves.now(address.chat)
        try:
            await self._bot.send_chat_action(_id(chat), "typing", message_thread_id=_thread(address))
        except ChatMigrated as error:
            await self._moves.follow(chat, str(error.new_chat_id))
        except TelegramError as error:
            raise self._fault(error, chat) from None

    async def is_admin(self, address: Address, user_id: str) -> bool:
        for _ in range(2):
            chat = self._moves.now(address.chat)
            if left := self._floods.left(chat):
                raise Retry(left)  # no lane holds this call back
            try:
                admins = await sane(self._bot.get_chat_administrators(_id(chat)), tuple)
            except ChatMigrated as error:
                await self._moves.follow(chat, str(error.new_chat_id))
            except TelegramError as error:
                raise self._fault(error, chat) from None
            else:
                return any(str(admin.user.id) == user_id for admin in admins)
        raise Gone("the group moves from id to id")

    async def fetch(self, attachment: Attachment, most: int) -> bytes:
        return await files.fetch(self._transport, attachment, most)

    def _fault(self, error: TelegramError, chat: str) -> ChannelError:
        """What became of a call for this chat."""
        fault = translate(error)
        if isinstance(fault, Retry):
            return Retry(fault.after, everywhere=self._floods.told(chat, fault.after))
        return fault


def _pacing(settings: Settings) -> Pacing:
    return Pacing(settings.sends_per_second, settings.chat_per_second, settings.group_per_minute)


def _id(chat: str) -> int:
    try:
        return int(chat)
    except ValueError:
        raise Refused("this is no address of Telegram's") from None


def _thread(address: Address) -> int | None:
    return int(address.thread) if address.thread.isdecimal() else None


def _words(piece: Piece, buttons: Sequence[Button]) -> dict[str, object]:
    """What a message says, as the Bot API takes it."""
    words: dict[str, object] = {"text": piece.text, "link_preview_options": _NO_PREVIEW}
    if marks := entities(piece):
        words["entities"] = [mark.to_dict() for mark in marks]
    if keys := _keyboard(buttons):
        words["reply_markup"] = keys.to_dict()
    return words


def _reply(chat: str, address: Address, message_id: str) -> dict[str, object] | None:
    """What was written before a group moved has no number in the new one."""
    where, _, number = message_id.rpartition("/")
    if not number.isdecimal() or (where or address.chat) != chat:
        return None
    return ReplyParameters(int(number), allow_sending_without_reply=True).to_dict()


def _place(address: Address, message_id: str) -> tuple[int, int]:
    """Chat and message number. One of after a group moved carries the new chat's id with it ("-1001500/12")."""
    chat, slash, number = message_id.rpartition("/")
    if not number.isdecimal():
        raise Lost("this is no message of Telegram's")
    return _id(chat if slash else address.chat), int(number)


def _keyboard(buttons: Sequence[Button]) -> InlineKeyboardMarkup | None:
    """One button a row, or three where all are short. One whose data is too long would cost the whole message, so it is left out."""
    fit = [button for button in buttons if button.label and 1 <= len(button.data.encode("utf-8", "replace")) <= _DATA_LIMIT]
    if len(fit) < len(buttons):
        log.warning("buttons left out, their data is too long", channel="telegram", count=len(buttons) - len(fit))
    keys = [InlineKeyboardButton(button.label, callback_data=button.data) for button in fit]
    width = 3 if all(len(button.label) <= 10 for button in fit) else 1
    return InlineKeyboardMarkup([keys[at : at + width] for at in range(0, len(keys), width)]) if keys else None
