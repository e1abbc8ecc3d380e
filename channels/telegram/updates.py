"""The shape of Telegram's updates, as far as we read them, and how raw JSON becomes them.

Pure; used by `channels.telegram.parse` and its callers.

python-telegram-bot's own classes read all of an update and cost many times the CPU; and one update that they cannot read spoils its whole
batch. Here each update is decoded for itself. Unknown fields are passed over, since the Bot API grows.
"""

from __future__ import annotations

import json

import msgspec

from channels.text import clean


class User(msgspec.Struct, frozen=True):
    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""


class Chat(msgspec.Struct, frozen=True):
    id: int
    type: str = ""


class Entity(msgspec.Struct, frozen=True):
    """`offset` and `length` count UTF-16 units."""

    type: str
    offset: int
    length: int
    user: User | None = None


class File(msgspec.Struct, frozen=True):
    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: int | None = None


class Quote(msgspec.Struct, frozen=True):
    text: str


class Present(msgspec.Struct, frozen=True):
    """Content of which we only say that it is there."""


class Message(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    message_id: int
    chat: Chat
    date: int = 0
    edit_date: int = 0
    from_: User | None = None
    message_thread_id: int | None = None
    is_topic_message: bool = False
    is_automatic_forward: bool = False
    media_group_id: str = ""
    text: str = ""
    caption: str = ""
    entities: tuple[Entity, ...] = ()
    caption_entities: tuple[Entity, ...] = ()
    reply_to_message: Message | None = None
    quote: Quote | None = None
    photo: tuple[File, ...] = ()
    document: File | None = None
    animation: File | None = None
    audio: File | None = None
    video: File | None = None
    video_note: File | None = None
    voice: File | None = None
    sticker: Present | None = None
    venue: Present | None = None
    location: Present | None = None
    contact: Present | None = None
    poll: Present | None = None
    dice: Present | None = None
    game: Present | None = None
    story: Present | None = None
    paid_media: Present | None = None
    checklist: Present | None = None
    invoice: Present | None = None
    giveaway: Present | None = None
    forum_topic_created: Present | None = None
    migrate_to_chat_id: int | None = None
    migrate_from_chat_id: int | None = None


class Callback(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    id: str
    from_: User
    data: str = ""
    message: Message | None = None


class Update(msgspec.Struct, frozen=True):
    update_id: int
    message: Message | None = None
    edited_message: Message | None = None
    callback_query: Callback | None = None


WANTED = ("message", "edited_message", "callback_query")
"""What we subscribe to: exactly what is read here."""


class _Answer(msgspec.Struct):
    result: list[msgspec.Raw]


class _Numbered(msgspec.Struct):
    update_id: int


class _Path(msgspec.Struct):
    file_path: str = ""


class _FileAnswer(msgspec.Struct):
    result: _Path


_answer = msgspec.json.Decoder(_Answer)
_file_answer = msgspec.json.Decoder(_FileAnswer)
_update = msgspec.json.Decoder(Update)
_numbered = msgspec.json.Decoder(_Numbered)

FAULTS = (msgspec.DecodeError, UnicodeError, RecursionError, ValueError, ArithmeticError)
"""What reading hostile JSON can raise."""


def split(payload: bytes) -> list[bytes]:
    """The updates of a getUpdates answer, each as JSON. Raises one of FAULTS where it is no such answer."""
    try:
        return [bytes(raw) for raw in _answer.decode(payload).result]
    except FAULTS:
        # Bytes that are no UTF-8 in one update must not cost the others.
        answer = json.loads(payload.decode("utf-8", "replace"))
        result = answer.get("result") if isinstance(answer, dict) else None
        if not isinstance(result, list):
            raise ValueError("no list of updates") from None
        return [json.dumps(item).encode() for item in result]


def number(raw: bytes) -> int | None:
    """The update's id, also of one that cannot be read otherwise."""
    try:
        return _numbered.decode(raw).update_id
    except FAULTS:
        try:
            found = json.loads(raw.decode("utf-8", "replace"))["update_id"]
        except (*FAULTS, KeyError, TypeError):
            return None
        return found if isinstance(found, int) and not isinstance(found, bool) else None


def decode(raw: bytes) -> Update:
    """One update. Raises one of FAULTS."""
    try:
        return _update.decode(raw)
    except FAULTS:
        # Lone surrogates: JSON may hold them, msgspec (rightly) does not. One such character must not cost the message.
        return _update.decode(msgspec.json.encode(_cleaned(json.loads(raw.decode("utf-8", "replace")))))


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): _cleaned(item) for key, item in value.items()}
    return value


def file_path(payload: bytes) -> str:
    """Where the file of a getFile answer lies; "" where it does not say. Raises one of FAULTS where it is no such answer."""
    return _file_answer.decode(payload).result.file_path
