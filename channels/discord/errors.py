"""What an error of Discord's means for who called: its codes to `channels.base` errors. Pure. Called by the modules of this package.

The codes are those of Discord's documentation ("JSON Error Codes").

A 5xx says nothing about what became of a send. Discord's documentation has for 502 that there was "not a gateway available to process your
request", which would mean that nothing became of it; but proxies use the same number for an answer that they lost, and nothing would be
gained by believing it: a send has a nonce, by which a repeat is known, and an edit may be repeated anyhow. What has no nonce, a second
message behind a slash command's place, is not sent again after it.
"""

from __future__ import annotations

from channels.base import ChannelError, Denied, Gone, Lost, Refused, Rejected
from channels.discord.transport import Refusal

BAD_TOKEN = "Discord does not accept the bot token"
NO_REFERENCE = 160002
"""Answering a message needs the right to read the history."""
INVALID_FORM = 50035
_LOST = frozenset({10008, 50005, 50021, 30046})
_GONE = frozenset(
    {
        10003,  # no such channel
        10004,  # no such server
        40001,
        50001,  # we may not see it
        50002,
        50003,  # not in a direct chat
        50007,  # they take no direct messages
        50008,  # no channel of texts
        50009,  # the server's verification keeps us out
        50013,  # we may not write there
        50024,
        50083,  # a thread that is archived, and locked
        50278,  # no direct messages: no server in common
        160005,  # a thread that is locked
        340015,
    }
)
_EXPIRED = frozenset({10008, 10015, 10062, 50027})


_REMEDIES = {
    50001: "give the bot's role the permission View Channel there",
    50013: "give the bot's role the permission Send Messages there (in threads: Send Messages in Threads)",
    50007: "the person takes no direct messages from this bot, or shares no server with it",
    50278: "the person shares no server with the bot",
}
"""What the operator can do about a place where we may not speak."""


def translate(error: ChannelError) -> ChannelError:
    """The channel error that says what can be done about it."""
    if not isinstance(error, Refusal):
        return error
    text = f"{error.code}: {error.text}" if error.code else f"{error.status}: {error.text}"
    if error.status == 401 and not error.open:
        return Denied(BAD_TOKEN)
    if error.code in _LOST:
        return Lost(text)
    if error.code in _GONE:
        remedy = _REMEDIES.get(error.code)
        return Gone(f"{text} ({remedy})" if remedy else text)
    if error.status in (400, 413):
        # Whatever else is wrong with a request of ours is most likely its content; as plain text it may pass.
        return Rejected(text)
    return Refused(text)


def expired(error: ChannelError) -> bool:
    """An interaction's token that is not good any more, or a response that is not there: answer in the chat instead."""
    return isinstance(error, Refusal) and (error.code in _EXPIRED or error.status in (401, 404))


def no_target(error: ChannelError) -> bool:
    """The message to be answered is not there, or may not be answered; without the reference the same text passes."""
    if not isinstance(error, Refusal):
        return False
    return error.code in (NO_REFERENCE, 10008) or (
        error.code == INVALID_FORM and ("message_reference" in error.errors or "message_reference" in error.text)
    )
