"""The Bot API's methods over chats in memory, with the service's refusals and words; no HTTP in here.

Extended by `tests.fakes.telegram.FakeTelegram`, which serves it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from tests.fakes.telegram_rules import (
    CAPTION_LIMIT,
    Json,
    Refusal,
    check_menu,
    checked_entities,
    checked_markup,
    checked_text,
    integer,
    structure,
)
from tests.fakes.telegram_state import Chat, Shown

_NOT_MODIFIED = (
    "Bad Request: message is not modified: specified new message content and reply markup are exactly the same as a current content and "
    "reply markup of the message"
)
_TERMINATED = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
_POSTS = frozenset({"message", "edited_message", "channel_post", "edited_channel_post"})
_DEFAULT_UPDATES = _POSTS | {"callback_query", "poll", "my_chat_member"}
_RIGHTS = ("manage_chat", "delete_messages", "manage_video_chats", "restrict_members", "promote_members", "change_info", "invite_users")
_STORIES = ("post_stories", "edit_stories", "delete_stories")
_ADMIN_RIGHTS = {f"can_{right}": True for right in (*_RIGHTS, *_STORIES)}


class _Poll:
    """A getUpdates that waits."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.terminated = False


class Service:
    """One bot's side of the service."""

    def __init__(self, token: str, username: str, *, reads_all: bool, strict_chats: bool) -> None:
        self.token, self.username = token, username
        self.bot_id = int(token.partition(":")[0])
        self.reads_all = reads_all
        self.strict_chats = strict_chats
        self.chats: dict[int, Chat] = {}
        self.commands: list[Json] = []
        self.answered: dict[str, list[Json]] = {}
        """callback id -> the answers that were taken."""
        self.files: dict[str, bytes | int] = {}
        """file id -> content, or a size for one that is too big to get."""
        self.webhook_url = ""
        self.webhook_secret = ""
        self.offset = 0
        """All updates below are confirmed."""
        self.resets: list[str] = []
        """Ways in which the queue was thrown away: drop_pending_updates, a negative offset. Should stay empty."""
        self._queue: deque[Any] = deque()
        self._allowed = _DEFAULT_UPDATES
        self._poll: _Poll | None = None
        self._arrived = asyncio.Event()
        self._methods: dict[str, Callable[[Json], Any]] = {
            name.removeprefix("_do_"): getattr(self, name) for name in dir(self) if name.startswith("_do_")
        }

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

    def admin(self, chat: int, user: int, *, creator: bool = False) -> None:
        """Make a person an administrator of a group."""
        member: Json = {"user": self.user(user), "is_anonymous": False}
        self.chat(chat).admins.append(
            member | {"status": "creator"} if creator else member | {"status": "administrator", "can_be_edited": False} | _ADMIN_RIGHTS
        )

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
        offset = integer(params.get("offset")) or 0
        if offset < 0:
            self.resets.append(f"offset={offset}")
            while len(self._queue) > -offset:
                self._queue.popleft()
        else:
            self._confirm(offset)
        limit = min(max(integer(params.get("limit")) or 100, 1), 100)
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
                    raise Refusal(409, _TERMINATED)
            return list(islice(self._queue, limit))
        finally:
            if self._poll is poll:
                self._poll = None

    def _confirm(self, offset: int) -> None:
        while self._queue and offset and (not isinstance(self._queue[0], dict) or self._queue[0].get("update_id", 0) < offset):
            self._queue.popleft()
        self.offset = max(self.offset, offset)

    def _subscribe(self, params: Json) -> None:
        allowed = structure(params, "allowed_updates")
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
        commands = structure(params, "commands")
        check_menu(commands)
        self.commands = commands
        return True

    def _do_sendMessage(self, params: Json) -> Json:
        self._no_parse_mode(params)
        place, thread, reply_to = self._target(params)
        sent = params.get("text")
        text = checked_text(sent, empty="Bad Request: message text is empty", long="Bad Request: message is too long")
        entities = checked_entities(str(sent), structure(params, "entities"))
        return self._put(place, thread, reply_to, text, entities, checked_markup(structure(params, "reply_markup")))

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
        entities = checked_entities(str(sent), structure(params, "entities"))
        markup = checked_markup(structure(params, "reply_markup"))
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

    def _do_getFile(self, params: Json) -> Json:
        file_id = str(params.get("file_id"))
        content = self.files.get(file_id)
        if content is None:
            raise Refusal(400, "Bad Request: invalid file_id")
        if isinstance(content, int) or len(content) > 20 * 2**20:
            raise Refusal(400, "Bad Request: file is too big")
        return {"file_id": file_id, "file_unique_id": f"U{file_id}", "file_size": len(content), "file_path": f"documents/{file_id}"}

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

    # -------------------------------------------------------------------------------------------------------------- helpers

    def _no_parse_mode(self, params: Json) -> None:
        if params.get("parse_mode"):
            raise Refusal(400, "Bad Request: can't parse entities: this fake takes entities, never a parse mode")

    def _target(self, params: Json) -> tuple[Chat, int | None, int | None]:
        chat_id = integer(params.get("chat_id"))
        if chat_id is None:
            raise Refusal(400, "Bad Request: chat_id is empty")
        place = self.chat(chat_id)
        thread = integer(params.get("message_thread_id"))
        if thread is not None and thread not in place.topics:
            raise Refusal(400, "Bad Request: message thread not found")
        reply = structure(params, "reply_parameters")
        reply_to = integer(reply.get("message_id")) if reply else None
        if reply and reply_to not in place.theirs and reply_to not in place.shown:
            if str(reply.get("allow_sending_without_reply", "")).lower() != "true":
                raise Refusal(400, "Bad Request: message to be replied not found")
            reply_to = None
        return place, thread, reply_to

    def _own(self, params: Json, *, lost: str, theirs: str) -> Shown:
        place, _, _ = self._target(params)
        message_id = integer(params.get("message_id"))
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
