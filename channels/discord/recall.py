"""Whether a message was sent already, by an earlier life of this process that died before it could note that. Called by the channel.

Discord knows a repeat by its nonce, for some minutes only, and does not keep it with the message. After that its history is read: what was
said by us, between the question (and the time when the text was put on record) and the start of this process, in the same words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from channels.base import FOLLOWS, ChannelError, NotSent, Retry, Unknown
from channels.discord.bodies import naming, ticket_of
from channels.discord.payloads import FAULTS, Message, convert, made_at

SURE = 60.0
"""Seconds for which the nonce does it; Discord says "the past few minutes"."""
MARGIN = 1.0
"""Seconds before the record from which on is read: Discord's time is known to a second or so. More would take an earlier answer in the same
words for this one, which then nobody gets; what is missed is doubled at worst."""
PAGE = 100
MOST_PAGES = 5
"""What was sent stands close behind the time of its record. In a channel in which more was said since, it may be doubled after all."""

History = Callable[[int], Awaitable[object]]
"""`await history(after)`: raw messages behind that id, at most PAGE, the oldest ones. Raises ChannelError."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The message that is looked for."""

    me: str
    """The bot's user id."""
    text: str
    reply_to: str

    def is_it(self, message: Message) -> bool:
        asked = message.interaction_metadata.id if message.interaction_metadata else ""
        said = message.content.strip()
        if message.author.id != self.me:
            return False
        if ticket := ticket_of(self.reply_to):
            if asked:
                return asked == ticket.interaction and said == self.text.strip()
            # It had expired: as a message that names the asker, the later ones without.
            told = self.text if self.reply_to.startswith(FOLLOWS) else naming(ticket.user, self.text) or self.text
            return said == told.strip()
        answered = message.message_reference.message_id if message.message_reference else None
        return not asked and said == self.text.strip() and answered in (None, self.reply_to)


def snowflake_of(input_id: str) -> int:
    """The message or interaction that an input is; 0 for what is none of Discord's."""
    tail = input_id.rpartition(":")[2].removeprefix("i")
    return int(tail) if tail.isdecimal() else 0


async def recall(history: History, wanted: Wanted, *, after: int, end: int) -> str:
    """Its id, which is between those two; "" where it is not there or nobody can say. Raises NotSent and Retry: ask again later, and send
    nothing before."""
    for _ in range(MOST_PAGES):
        try:
            page = await history(after)
        except (NotSent, Retry):
            raise
        except Unknown as error:
            raise NotSent(str(error)) from None
        except ChannelError:
            return ""  # we may not read there
        found = sorted(filter(None, map(_read, page if isinstance(page, list) else [])), key=lambda message: int(message.id))
        for message in found:
            if int(message.id) < end and wanted.is_it(message):
                return message.id
        if not found or len(page) < PAGE or int(found[-1].id) >= end:  # type: ignore[arg-type]  # a list, as something was found
            return ""
        after = int(found[-1].id)
    return ""


def _read(raw: object) -> Message | None:
    try:
        message = convert(raw, Message)
    except FAULTS:
        return None
    return message if made_at(message.id) else None
