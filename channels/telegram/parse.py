"""From an update to what the gateway takes: who speaks, where, to whom, and what. Pure.

Whatever is not meant for the bot gives None: other people's group talk, commands of other bots, bots, channels, service messages. Called by
`channels.telegram.intake`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import msgspec

from channels.base import Address, Attachment, Inbound, Sender
from channels.files import readable
from channels.telegram.updates import Callback, Entity, File, Message, Update, User
from channels.text import AROUND, bounded, clean, name, without

QUOTE_LIMIT = 1000
OWN_QUOTE_LIMIT = 300
"""Of our own words: the conversation has them already, the quote only says which ones are meant."""
_SERVICE = 777000
"""Telegram's own account: it forwards a channel's posts into the linked group."""
_GENERAL = 1
"""Where a forum's General topic is shown as a thread, sends to it are refused all the same."""
_COMMAND_LIKE = re.compile(r"\s*/\w")


@dataclass(frozen=True, slots=True)
class Me:
    """Who we are: the bot's id and its name in small letters."""

    id: int
    username: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """What an update comes to. `inbound` is None where there is only a button press to be answered, or a group that moved."""

    inbound: Inbound | None = None
    callback: str = ""
    """The id of a button press, which must be answered once."""
    expired: bool = False
    """The press can do nothing: its message is too old to say where it belongs, or the button is none of ours as they are today."""
    album: str = ""
    """Several messages with the same one are one thing to the person."""
    follows: bool = False
    """Only as a part of its album it is meant for us."""
    moved: tuple[str, str] | None = None
    """A group's old and new chat id."""


def parse(update: Update, me: Me) -> Parsed | None:
    """None: nothing to do."""
    if update.message is not None:
        return _message(update.message, me)
    if update.edited_message is not None:
        return _edit(update.edited_message, me)
    if update.callback_query is not None:
        return _callback(update.callback_query, me)
    return None


# -------------------------------------------------------------------------------------------------------------------------- messages


def _message(message: Message, me: Me) -> Parsed | None:
    if message.migrate_to_chat_id is not None:
        return Parsed(moved=(str(message.chat.id), str(message.migrate_to_chat_id)))
    if message.migrate_from_chat_id is not None:
        return Parsed(moved=(str(message.migrate_from_chat_id), str(message.chat.id)))
    sender = _person(message)
    if sender is None or message.chat.type == "channel":
        return None
    text, entities = (message.text, message.entities) if message.text else (message.caption, message.caption_entities)
    read = _read(text, entities, me)
    if read is None:
        return None
    words, named = read
    direct = message.chat.type == "private"
    album = f"{message.chat.id}/{message.media_group_id}" if message.media_group_id else ""
    follows = not (direct or named or _answers_us(message, me))
    if follows and not (album and not text):
        return None
    attachments = _attachments(message)
    unsupported = "" if words.strip() or any(map(readable, attachments)) else _unsupported(message)
    if not (words.strip() or attachments or unsupported):
        return None
    inbound = Inbound(
        id=f"telegram:{me.id}:{message.chat.id}:{message.message_id}",
        address=_address(message),
        sender=Sender(str(sender.id), _name(sender)),
        text="" if unsupported or not words.strip() else words,
        direct=direct,
        sent_at=float(message.date),
        quote=_quote(message, me),
        reply_to="" if direct else str(message.message_id),
        attachments=attachments,
        unsupported=unsupported,
    )
    return Parsed(inbound, album=album, follows=follows)


def _edit(message: Message, me: Me) -> Parsed | None:
    parsed = _message(message, me)
    if parsed is None or parsed.inbound is None or parsed.follows or parsed.inbound.unsupported:
        return None
    if _COMMAND_LIKE.match(parsed.inbound.text):
        return None
    return Parsed(msgspec.structs.replace(parsed.inbound, kind="edit", sent_at=float(message.edit_date or message.date)))


def _person(message: Message) -> User | None:
    """Who wrote it, if that is a person: no bot (a group's anonymous admins write as one), no channel, no copy of a channel's post."""
    sender = message.from_
    if sender is None or sender.is_bot or sender.id == _SERVICE or message.is_automatic_forward:
        return None
    return sender


def _read(text: str, entities: Sequence[Entity], me: Me) -> tuple[str, bool] | None:
    """The text without our own name, and whether it names us (by mention or as a command); None for another bot's command."""
    if not entities:
        return clean(text), False
    borders = _borders(text)

    def span(entity: Entity) -> tuple[int, int]:
        if borders is None:
            return min(entity.offset, len(text)), min(entity.offset + entity.length, len(text))
        return bisect_left(borders, entity.offset), bisect_left(borders, entity.offset + entity.length)

    named = False
    front = 0  # up to here there is nothing but our name: "@OurBot /reset" is a command too
    cuts: list[tuple[int, int]] = []
    for entity in sorted(entities, key=lambda one: one.offset):
        start, end = span(entity)
        if entity.offset < 0 or start >= end or end > len(text):
            continue  # bounds are Telegram's, and still not ours
        first = not text[front:start].strip(AROUND)
        if entity.type == "bot_command" and first:
            command, at, whose = text[start:end].partition("@")
            if at and whose.lower() != me.username:
                return None
            named = True
            if at:
                cuts.append((start + len(command), end))
        elif (entity.type == "mention" and text[start:end].lower() == f"@{me.username}") or (
            entity.type == "text_mention" and entity.user is not None and entity.user.id == me.id
        ):
            named = True
            cuts.append((start, end))
            front = end if first else front
    left = without(text, cuts)
    # Never empty where the text is not: a bare mention stays as it is.
    return clean(left if left.strip() else text), named


def _borders(text: str) -> list[int] | None:
    """The UTF-16 offset of each code point, and of the end; None where they are the same as the code points' own."""
    if text.isascii() or max(text) <= "\uffff":
        return None
    return [0, *accumulate(2 if c > "\uffff" else 1 for c in text)]


# ------------------------------------------------------------------------------------------------------------------------ its parts


def _address(message: Message) -> Address:
    """A thread id is one only in a forum's topics: elsewhere Telegram puts the first message of a chain of replies there."""
    thread = message.message_thread_id
    topic = message.is_topic_message and thread is not None and thread != _GENERAL
    return Address("telegram", str(message.chat.id), str(thread) if topic else "")


def _name(user: User) -> str:
    return name(f"{user.first_name} {user.last_name}")


def _answers_us(message: Message, me: Me) -> bool:
    answered = _answered(message)
    return answered is not None and answered.from_ is not None and answered.from_.id == me.id


def _answered(message: Message) -> Message | None:
    """The message that this one answers. In a topic everything "answers" the service message that opened it, which nobody meant."""
    answered = message.reply_to_message
    if answered is None or answered.forum_topic_created is not None:
        return None
    if message.is_topic_message and answered.message_id == message.message_thread_id:
        return None
    return answered


def _quote(message: Message, me: Me) -> str:
    if message.quote is not None and message.quote.text.strip():
        return bounded(clean(message.quote.text), QUOTE_LIMIT)
    answered = _answered(message)
    if answered is None:
        return ""
    limit = OWN_QUOTE_LIMIT if answered.from_ is not None and answered.from_.id == me.id else QUOTE_LIMIT
    return bounded(clean(answered.text or answered.caption), limit)


def _attachments(message: Message) -> tuple[Attachment, ...]:
    found: list[Attachment] = []
    if message.photo:
        found.append(_attachment("photo", message.photo[-1]))  # sizes of one photo, the largest is last
    if message.animation:
        found.append(_attachment("video", message.animation))
    elif message.document:  # an animation comes as a document too
        found.append(_attachment("file", message.document))
    if message.audio:
        found.append(_attachment("audio", message.audio))
    if message.video:
        found.append(_attachment("video", message.video))
    if message.video_note:
        found.append(_attachment("video", message.video_note))
    if message.voice:
        found.append(_attachment("voice", message.voice))
    return tuple(found)


def _attachment(kind: str, file: File) -> Attachment:
    return Attachment(kind, file.file_id, name(file.file_name), name(file.mime_type), file.file_size)  # type: ignore[arg-type]


def _unsupported(message: Message) -> str:
    """What the person sent, in words; "" for what is no message of a person's (somebody joined, a pin)."""
    for content, words in (
        (message.photo, "a photo without a caption"),
        (message.animation, "an animation without a caption"),
        (message.document, "a file without a caption"),
        (message.video, "a video without a caption"),
        (message.audio, "an audio file without a caption"),
        (message.voice, "a voice message"),
        (message.video_note, "a video message"),
        (message.sticker, "a sticker"),
        (message.venue, "a place"),
        (message.location, "a location"),
        (message.contact, "a contact"),
        (message.poll, "a poll"),
        (message.dice, "a dice"),
        (message.game, "a game"),
        (message.story, "a story"),
        (message.paid_media, "paid media"),
        (message.checklist, "a checklist"),
        (message.invoice, "an invoice"),
        (message.giveaway, "a giveaway"),
    ):
        if content:
            return words
    return ""


# -------------------------------------------------------------------------------------------------------------------------- buttons


def _callback(query: Callback, me: Me) -> Parsed:
    message = query.message
    # A message without a date is one that Telegram no longer shows us: nobody can say which topic it is in. Data that is no command is
    # of an earlier program under this bot's name; it must not become a question for the model.
    if message is None or not message.date or not _COMMAND_LIKE.match(query.data) or query.from_.is_bot:
        return Parsed(callback=query.id, expired=True)
    inbound = Inbound(
        id=f"telegram:{me.id}:{message.chat.id}:cb{query.id}",
        address=_address(message),
        sender=Sender(str(query.from_.id), _name(query.from_)),
        text=clean(query.data),
        kind="button",
        direct=message.chat.type == "private",
    )
    return Parsed(inbound, callback=query.id)


# --------------------------------------------------------------------------------------------------------------------------- albums


def merge_albums(batch: Sequence[Parsed], known: Container[str] = ()) -> list[Parsed]:
    """One item for each album in the batch: the one with the caption (else one with a text file, else the first), with all attachments.
    What belongs to an album in `known`, whose person has had an answer, is left out where it has no words."""
    groups: dict[str, list[Parsed]] = {}
    for item in batch:
        if item.album:
            groups.setdefault(item.album, []).append(item)
    kept: dict[int, Parsed] = {}
    for album, items in groups.items():
        meant = [(item, item.inbound) for item in items if not item.follows and item.inbound is not None]
        if not meant:
            continue
        speaking = next((one for one in meant if one[1].text), None) or next((one for one in meant if not one[1].unsupported), None)
        if speaking is None and album in known:
            continue
        chosen, inbound = speaking or meant[0]
        files = tuple(file for item in items if item.inbound for file in item.inbound.attachments)
        kept[id(chosen)] = replace(chosen, inbound=msgspec.structs.replace(inbound, attachments=files))
    return [kept.get(id(item), item) for item in batch if not item.album or id(item) in kept]
