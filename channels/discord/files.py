"""Gets a file that somebody attached: its message says where it lies today, then it is downloaded. Called by the channel's `fetch`.

An address is signed and expires after a day, so none is kept. Only Discord's own file servers are asked, or the server that the API is on:
whatever a message says, nothing else in our network can be reached by it.
"""

from __future__ import annotations

from discord.http import Route
from yarl import URL

from channels.base import Attachment, ChannelError, Lost, Refused, Unknown
from channels.discord.errors import translate
from channels.discord.parse import files_of
from channels.discord.payloads import FAULTS, Message, convert
from channels.discord.transport import Http

_SERVERS = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
_ASK_SECONDS = 10.0


async def fetch(http: Http, api_base: str, attachment: Attachment, most: int) -> bytes:
    """The first `most` bytes. Raises ChannelError."""
    channel, _, rest = attachment.ref.partition("/")
    message_id, _, file_id = rest.partition("/")
    if not (channel.isdecimal() and message_id.isdecimal()):
        raise Refused("this is no file of Discord's")
    route = Route("GET", "/channels/{channel_id}/messages/{message_id}", channel_id=int(channel), message_id=int(message_id))
    try:
        message = convert(await http.request(route, seconds=_ASK_SECONDS), Message)
        said = next((file.url for file in files_of(message) if file.id == file_id), "")
    except ChannelError as error:
        raise translate(error) from None
    except FAULTS:
        raise Unknown("the answer is not what Discord sends") from None
    if not said:
        raise Lost("the message has this file no more")
    url = address(said, api_base)
    if url is None:
        raise Refused("the file is not on a server of Discord's")
    return await http.file(url, most)


def address(said: str, api_base: str) -> URL | None:
    """Where a file lies, if that is a place that may be asked. Read as it will be used, so that no two readings of it can differ."""
    try:
        url, api = URL(said), URL(api_base)
        if not url.absolute or url.user is not None:
            return None
        ours = url.origin() == api.origin()
        return url if ours or (url.scheme == "https" and url.host in _SERVERS and url.port == 443) else None
    except ValueError:
        return None
