"""What an error of the Bot API means for who called: python-telegram-bot's classes and the service's words to `channels.base` errors. Pure.

Telegram has no error codes below the HTTP status, only descriptions; the words here are from its own server's source and from what it was
seen to say. They are compared without case, since the library changes it. Called by the channel and its `check`.

A 5xx says nothing about what became of a send, 502 included: that is what the server in front of the Bot API says when it lost the answer
as well as when it had nobody to ask, and repeats after it have been seen to double messages. There is no key by which Telegram would know a
repeat, so that such a send is not made again.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, TelegramError

from channels.base import ChannelError, Denied, Gone, Lost, NotSent, Refused, Rejected, Retry, Unknown
from channels.telegram.transport import NO_METHOD, Doubtful, Flood, Unanswered, Unreached

T = TypeVar("T")

DOUBT_SECONDS = 5.0
NOT_MODIFIED = ("message is not modified", "message_not_modified")
NO_REPLY_TARGET = ("message to be replied not found", "replied message not found", "reply message not found")
QUERY_TOO_OLD = ("query is too old", "query id is invalid", "query_id_invalid")
TOO_BIG = ("file is too big",)
_LOST = (
    "message to edit not found",
    "message to delete not found",
    "message can't be edited",
    "message_id_invalid",
    "message identifier is not specified",
    "message_author_required",
)
_GONE = (
    "chat not found",
    "user not found",
    "peer_id_invalid",
    "chat_id_invalid",
    "chat_write_forbidden",
    "chat_restricted",
    "chat_send_plain_forbidden",
    "chat_admin_required",
    "group chat was deactivated",
    "group chat was deleted",
    "was upgraded to a supergroup",
    "bot was kicked",
    "bot was blocked",
    "bot is not a member",
    "user is deactivated",
    "user_is_blocked",
    "input_user_deactivated",
    "have no rights to send",
    "not enough rights to send",
    "need administrator rights",
    "not enough rights",
    "message thread not found",
    "topic_closed",
    "topic_deleted",
    "topic_id_invalid",
    "premium_account_required",
)


async def sane(answer: Awaitable[object], kind: type[T]) -> T:
    """An answer that the library cannot make its object of says as little as none: a server of one's own, or one that stands between."""
    try:
        found = await answer
    except (AttributeError, KeyError, TypeError, ValueError):
        raise Unanswered("the answer is not what the Bot API sends") from None
    if not isinstance(found, kind):
        raise Unanswered("the answer is not what the Bot API sends")
    return found


def says(error: TelegramError, words: tuple[str, ...]) -> bool:
    """Whether the refusal has one of these words in it."""
    text = error.message.lower()
    return any(word in text for word in words)


def translate(error: TelegramError) -> ChannelError:
    """The channel error that says what can be done about it."""
    text = error.message
    if isinstance(error, Unreached):
        return NotSent(text)
    if isinstance(error, Flood):
        return Retry(error.after)
    if isinstance(error, Doubtful):
        return Retry(DOUBT_SECONDS)
    if isinstance(error, InvalidToken):
        return Refused(text) if NO_METHOD in text.lower() else Denied("Telegram does not accept the bot token")
    if isinstance(error, Forbidden | ChatMigrated):
        return Gone(text)
    if isinstance(error, Conflict):
        return Refused(text)
    if isinstance(error, BadRequest):
        if says(error, _LOST):
            return Lost(text)
        if says(error, _GONE):
            return Gone(text)
        # Whatever else is wrong with a request of ours is most likely its content; as plain text it may pass.
        return Rejected(text)
    return Unknown(text)
