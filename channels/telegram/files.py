"""Gets a file that somebody attached: where it lies is asked for, then it is downloaded. Called by the channel's `fetch`."""

from __future__ import annotations

from telegram.error import TelegramError

from channels.base import Attachment, Refused, TooLarge, Unknown
from channels.telegram.errors import TOO_BIG, says, translate
from channels.telegram.transport import Transport
from channels.telegram.updates import FAULTS, file_path

_ASK_SECONDS = 10.0


async def fetch(transport: Transport, attachment: Attachment, most: int) -> bytes:
    """The first `most` bytes. Raises ChannelError: TooLarge above the 20 MB that Telegram's own server gives to bots."""
    try:
        path = file_path(await transport.call("getFile", {"file_id": attachment.ref}, seconds=_ASK_SECONDS))
    except TelegramError as error:
        raise (TooLarge(error.message) if says(error, TOO_BIG) else translate(error)) from None
    except FAULTS:
        raise Unknown("the answer is not what the Bot API sends") from None
    if not path or path.startswith("/") or ".." in path.split("/"):
        # A Bot API server of one's own, in its local mode, names a file of its machine: nothing that we would open.
        raise Refused("the Bot API server does not offer the file for download")
    return await transport.file(path, most)
