"""From a message or an interaction to what the gateway takes: who speaks, where, to whom, and what. Pure.

Whatever is not meant for the bot gives None: other people's talk in servers, bots, webhooks, the service's own messages. Called by
`channels.discord.reading`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from channels.base import TICKET, Attachment, Inbound, Sender
from channels.discord.payloads import File, Interaction, Member, Message, User, made_at
from channels.discord.places import Place
from channels.files import is_text, readable
from channels.text import bounded, clean, name, without

QUOTE_LIMIT = 1000
OWN_QUOTE_LIMIT = 300
"""Of our own words: the conversation has them already, the quote only says which ones are meant."""
_WRITTEN = frozenset({0, 19})
"""Types of messages that somebody wrote: plain ones and answers. A thread's first one (21) is the copy of one in the channel."""
_FORWARD = 1
_VOICE = 1 << 13
_MARKUP = re.compile(r"<(?:@!?([0-9]+)|#([0-9]+)|@&([0-9]+)|a?(:\w+:)[0-9]+|(/[^:<>]+):[0-9]+)>", re.ASCII)
_COMMAND_LIKE = re.compile(r"\s*/\w")


@dataclass(frozen=True, slots=True)
class Names:
    """What ids in a text are called; "" for what is not known."""

    channel: Callable[[str], str]
    role: Callable[[str], str]


NO_NAMES = Names(lambda _: "", lambda _: "")


# -------------------------------------------------------------------------------------------------------------------------- messages


def message(message: Message, me: str, place: Place, names: Names = NO_NAMES) -> Inbound | None:
    """`me`: the bot's user id."""
    if not _by_person(message) or message.type not in _WRITTEN:
        return None
    direct = not place.guild
    words, named = _read(message, me, names)
    if not (direct or named or _answers_us(message, me) or any(user.id == me for user in message.mentions)):
        return None
    attachments = tuple(_attachment(message, file) for file in files_of(message))
    unsupported = "" if words.strip() or any(map(readable, attachments)) else _unsupported(message)
    if not (words.strip() or attachments or unsupported or named):
        return None
    # A thread that began at a message has that one's id, and its first message may be told of in both places: it is one.
    where = place.parent if place.parent and message.id == place.channel else place.channel
    return Inbound(
        id=f"discord:{me}:{where}:{message.id}",
        address=place.address,
        sender=_sender(message.author, message.member),
        text="" if unsupported or not words.strip() else words,
        direct=direct,
        group=place.guild,
        sent_at=made_at(message.id),
        quote=_quote(message, me, names),
        reply_to="" if direct else message.id,
        attachments=attachments,
        unsupported=unsupported,
    )


def edit(edited: Message, me: str, place: Place, names: Names = NO_NAMES) -> Inbound | None:
    """Discord tells of an "edit" too where it only added a preview: those have no time of the edit."""
    if not edited.edited_timestamp:
        return None
    inbound = message(edited, me, place, names)
    if inbound is None or inbound.unsupported or not inbound.text or _COMMAND_LIKE.match(inbound.text):
        return None
    return msgspec.structs.replace(inbound, kind="edit")


def withheld(message: Message, me: str) -> bool:
    """A message to us that has nothing in it: what Discord brings where the bot may not read what is written."""
    empty = not (message.content or message.attachments or message.embeds or message.sticker_items or message.components)
    to_us = _answers_us(message, me) or any(user.id == me for user in message.mentions)
    nothing = empty and message.poll is None and not message.message_snapshots
    return bool(message.guild_id) and nothing and to_us and _by_person(message) and message.type in _WRITTEN


def _by_person(message: Message) -> bool:
    return not (message.author.bot or message.author.system or message.webhook_id)


def _read(message: Message, me: str, names: Names) -> tuple[str, bool]:
    """The text without our own mention and with all others in words, and whether it names us."""
    text = message.content
    if not text.strip() and message.message_snapshots:
        text = message.message_snapshots[0].message.content
    if "<" not in text:
        return clean(text), False
    cuts = [found.span() for found in _MARKUP.finditer(text) if found[1] == me]
    return clean(_in_words(without(text, cuts), message, names)), bool(cuts)


def _in_words(text: str, message: Message, names: Names) -> str:
    people = {user.id: _name(user, user.member) for user in message.mentions}

    def words(found: re.Match[str]) -> str:
        person, channel, role, emoji, command = found.groups()
        if person:
            return f"@{people[person]}" if people.get(person) else found[0]
        if channel:
            return f"#{known}" if (known := name(names.channel(channel))) else found[0]
        if role:
            return f"@{known}" if (known := name(names.role(role))) else found[0]
        return emoji or command

    return _MARKUP.sub(words, text)


def _answers_us(message: Message, me: str) -> bool:
    answered = message.referenced_message
    return answered is not None and answered.author.id == me and not _forwards(message)


def _forwards(message: Message) -> bool:
    return message.message_reference is not None and message.message_reference.type == _FORWARD


def _quote(message: Message, me: str, names: Names) -> str:
    answered = message.referenced_message
    if answered is None or _forwards(message):
        return ""
    limit = OWN_QUOTE_LIMIT if answered.author.id == me else QUOTE_LIMIT
    return bounded(clean(_in_words(answered.content, answered, names)), limit)


def _sender(user: User, member: Member | None) -> Sender:
    return Sender(user.id, _name(user, member))


def _name(user: User, member: Member | None) -> str:
    return name((member.nick if member else None) or user.global_name or user.username)


def files_of(message: Message) -> tuple[File, ...]:
    """Its own, or those of what it forwards."""
    return message.attachments or tuple(file for snapshot in message.message_snapshots for file in snapshot.message.attachments)


def _attachment(message: Message, file: File) -> Attachment:
    mime = name(file.content_type or "")
    called = name(file.filename)
    main = "text" if is_text(called, mime) else mime.partition("/")[0]
    kind = "voice" if message.flags & _VOICE else {"image": "photo", "video": "video", "audio": "audio"}.get(main, "file")
    # The address of a file expires; what does not is where it was said.
    return Attachment(kind, f"{message.channel_id}/{message.id}/{file.id}", called, mime, file.size)  # type: ignore[arg-type]


def _unsupported(message: Message) -> str:
    """What the person sent, in words; "" for what is nothing."""
    if message.flags & _VOICE:
        return "a voice message"
    if files := files_of(message):
        main = (files[0].content_type or "").partition("/")[0]
        return {"image": "a picture without words", "video": "a video without words", "audio": "an audio file without words"}.get(
            main, "a file without words"
        )
    if message.sticker_items or any(snapshot.message.sticker_items for snapshot in message.message_snapshots):
        return "a sticker"
    if message.poll is not None:
        return "a poll"
    return "a forwarded message without words" if message.message_snapshots else ""


# ---------------------------------------------------------------------------------------------------------------------- interactions


def command(interaction: Interaction, me: str, place: Place) -> Inbound | None:
    """A slash command, as the line that says the same."""
    user = asker(interaction)
    if user is None or user.bot:
        return None
    words = " ".join(str(option.value) for option in interaction.data.options if option.value is not None)
    return Inbound(
        id=f"discord:{me}:{place.channel}:i{interaction.id}",
        address=place.address,
        sender=_sender(user, interaction.member),
        text=clean(f"/{interaction.data.name} {words}").strip(),
        direct=not place.guild,
        group=place.guild,
        sent_at=made_at(interaction.id),
        ticket=f"{TICKET}{interaction.id}:{user.id}:{interaction.token}",
    )


def button(interaction: Interaction, me: str, place: Place) -> Inbound | None:
    """A press; what the button carries is a line like any other."""
    user = asker(interaction)
    if user is None or user.bot or not interaction.data.custom_id:
        return None
    return Inbound(
        id=f"discord:{me}:{place.channel}:i{interaction.id}",
        address=place.address,
        sender=_sender(user, interaction.member),
        text=clean(interaction.data.custom_id),
        kind="button",
        direct=not place.guild,
        group=place.guild,
        sent_at=made_at(interaction.id),
    )


def asker(interaction: Interaction) -> User | None:
    return interaction.user or (interaction.member.user if interaction.member else None)
