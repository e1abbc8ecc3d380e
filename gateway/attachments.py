"""The words of attached text files: fetched through the channel, decoded, cut to what a turn can carry; and what is said where that fails.

What comes of it is kept in the user's line (`message.Media`), so that a fork, an export or a retry has it, and is asked of the network
once. Other files are not fetched. Knows no session and no turn. Called by `gateway.work`, which says how much there is room for.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Awaitable, Callable, Iterable, Mapping

import structlog

from channels.base import Attachment, Channel, ChannelError, Inbound, NotSent, Refused, Retry, TooLarge, Unknown
from channels.files import readable
from gateway.message import Media, clean

log = structlog.get_logger(__name__)

MOST = 64 * 1024
"""Bytes of UTF-8 that the text files of one message take up together."""
SHARE = 0.75
"""Of the tokens that a request may have; a token is three bytes by the window's estimate."""
SECONDS = 40.0
"""For all files of one message together: the chat's queue stands still meanwhile."""
QUICK = 5.0
"""What failed later than that is not tried again: it hung, and would again."""
PAUSES = (1.0, 3.0)
"""Seconds between the tries to get a file from a network that is away; one that asks for longer ones is not asked again."""

EMPTY = "it is empty"
NOT_TEXT = "it is not text in UTF-8 or UTF-16"
TOO_LARGE = "it is too large for me to get"
FAILED = "it could not be downloaded"
NO_ROOM = "the files before it took up all the room"
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def room(history_tokens: int) -> int:
    """Bytes of text files that fit into a turn, with a question beside them."""
    return min(MOST, int(3 * history_tokens * SHARE))


class Attachments:
    """Reads what can be read. Holds nothing; may be asked for many messages at once."""

    def __init__(
        self, channels: Mapping[str, Channel], *, seconds: float = SECONDS, pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self._channels, self._seconds, self._pause = channels, seconds, pause

    async def read(self, inbound: Inbound, limit: int) -> tuple[Media, ...]:
        """All attachments of a message as its line will have them, at most `limit` bytes of text among them. What goes wrong stands in
        `Media.unread`; nothing is raised."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._seconds
        kept: list[Media] = []
        for attachment in inbound.attachments:
            media = mentioned(attachment)
            if readable(attachment):
                try:
                    async with asyncio.timeout_at(until):
                        media = await self._one(inbound.address.channel, attachment, media, limit)
                except TimeoutError:
                    log.warning("attachment not read", channel=inbound.address.channel, input=inbound.id, problem="it took too long")
                    media = mentioned(attachment, FAILED)
            limit -= len(media.text.encode())
            kept.append(media)
        return tuple(kept)

    async def _one(self, channel: str, attachment: Attachment, media: Media, limit: int) -> Media:
        if limit <= 0:
            return mentioned(attachment, NO_ROOM)
        try:
            data = await self._fetch(channel, attachment, limit + 1)
        except TooLarge:
            return mentioned(attachment, TOO_LARGE)
        except ChannelError as error:
            log.warning("attachment not read", channel=channel, problem=str(error), kind=type(error).__name__)
            return mentioned(attachment, FAILED)
        text = decoded(data[:limit], whole=len(data) <= limit)
        if text is None:
            return mentioned(attachment, NOT_TEXT)
        if not text.strip():
            return mentioned(attachment, EMPTY)
        short = text.encode()[:limit].decode("utf-8", "ignore")  # UTF-16 can grow
        return Media(media.kind, media.name, media.mime, media.size, media.ref, text=short, cut=len(data) > limit or len(short) < len(text))

    async def _fetch(self, channel: str, attachment: Attachment, most: int) -> bytes:
        loop = asyncio.get_running_loop()
        for pause in (*PAUSES, None):
            began = loop.time()
            try:
                return await self._channels[channel].fetch(attachment, most)
            except (NotSent, Unknown, Retry) as error:
                asked = error.after if isinstance(error, Retry) else 0.0
                if pause is None or asked > self._seconds / 3 or loop.time() - began > QUICK:
                    raise
                await self._pause(max(pause, asked))
        raise Refused("the last try raises")


def mentioned(attachment: Attachment, unread: str = "") -> Media:
    """An attachment of which the model learns no more than that it is there."""
    return Media(attachment.kind, attachment.name, attachment.mime, attachment.size, attachment.ref, unread=unread)


def unread(inbound: Inbound, why: str) -> tuple[Media, ...]:
    """All attachments, where those that could have been read were not."""
    return tuple(mentioned(one, why if readable(one) else "") for one in inbound.attachments)


def decoded(data: bytes, *, whole: bool = True) -> str | None:
    """The text that these bytes are, None where they are none. Not `whole`: they may end within a character."""
    bom, encoding = next(((bom, name) for bom, name in _BOMS if data.startswith(bom)), (b"", "utf-8"))
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(data[len(bom) :], final=whole)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else clean(text)


def note(media: Iterable[Media]) -> str:
    """What the person is told of their files, as Markdown: which were cut, which not read, and why; "" where all went well."""
    said: list[str] = []
    for one in media:
        name = f"`{plain}`" if (plain := " ".join(one.name.replace("`", "'").split())[:80]) else "the file"
        if one.unread:
            said.append(f"I did not read {name}: {one.unread}.")
        elif one.cut:
            said.append(f"I read only the first {_size(len(one.text.encode()))} of {name}.")
    return f"({' '.join(said)})" if said else ""


def _size(count: int) -> str:
    return f"{count / 1024:.0f} KiB" if count >= 1024 else f"{count} bytes"
