"""What passes between a channel and the rest of the house: frozen values, one protocol, and the errors a send can end in.

A channel makes `Address`es and `Inbound`s and is handed rendered `Piece`s. It does not know sessions, models, the journal or access rules.
Called by: every channel implements `Channel`; `gateway.router` takes what `Accept` is given; `gateway.outbox` calls the sending half.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import msgspec
from aiohttp.web import RouteDef

# --------------------------------------------------------------------------------------------------------------------- what comes in


class Address(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where to speak. Made by a channel, opaque to the rest: nobody else builds or takes apart `chat` and `thread`."""

    channel: str
    chat: str
    thread: str = ""
    """A forum topic or thread; "" where the chat has none (Telegram's General topic included)."""


class Sender(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who wrote. `id` decides what they may do; `name` is shown and never trusted (control characters are already out of it)."""

    id: str
    name: str = ""
    trusted: bool = False
    """The channel itself vouches for this person: the terminal, and whoever holds the web token. Counts as a daemon admin."""


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that came along. Nothing is downloaded yet; `ref` is the network's own handle for it, by which `Channel.fetch` gets it."""

    kind: Literal["photo", "file", "audio", "video", "voice"]
    ref: str
    name: str = ""
    mime: str = ""
    size: int | None = None
    """Bytes, where the network says so."""


BEGUN = "…"
"""What an answer is sent as where the channel `streams`: its words come by edit. Nothing else is sent as this, and all else is whole."""
TICKET = "ticket:"
"""How a `ticket` begins, which is in no other `reply_to`."""
FOLLOWS = "+"
"""Stands before the ticket of all of an answer's messages but the first."""


class Inbound(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message, button press or edit, as a channel read it. Text has no lone surrogates and no NUL.

    `id` is network, bot id, chat id, message or interaction id (`telegram:7:12345:889`): the same message always has the same id, however
    often the network delivers it. An edit carries the id of the message that it edits.
    """

    id: str
    address: Address
    sender: Sender
    text: str = ""
    """What was written, or the caption, without the mention of the bot. A button: its data, which is a command line ("/switch west")."""
    kind: Literal["message", "button", "edit"] = "message"
    direct: bool = True
    """A chat of one person with the bot; False in groups, servers and their threads."""
    group: str = ""
    """The id of what holds the chat, where several chats are let in as one (a Discord server); "" if none."""
    sent_at: float = 0.0
    """Seconds since the epoch by the network's clock; 0.0 where it does not say."""
    quote: str = ""
    """The words of somebody that this message answers (bounded by the channel), "" if none."""
    reply_to: str = ""
    """The network's id of this message, for an answer that refers to it; "" where answers refer to nothing."""
    attachments: tuple[Attachment, ...] = ()
    unsupported: str = ""
    """What the message is, in a word for the person ("a sticker"), where nothing of it can be understood; then `text` is ""."""
    ticket: str = ""
    """A network's handle that an answer needs and that expires (a Discord interaction token). Begins with TICKET; secret. Whoever comes
    with one has to be told something: until then the network shows that the bot thinks. "" where there is none."""


Accept = Callable[[Sequence[Inbound]], Awaitable[None]]
"""`await accept(batch)` returns once the inbox holds every input of the batch (or has refused it on record): only then may the channel
confirm to the network. It raises OSError if nothing could be written: the channel confirms nothing and delivers the batch again later.
Batches of one channel may be accepted concurrently; the order of the calls is the order of the inputs."""

# -------------------------------------------------------------------------------------------------------------------- what goes out


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """Formatting over `Piece.text[start:end]`, in code points. Spans nest or are apart; they never cross."""

    kind: Literal["bold", "italic", "strike", "code", "pre", "link", "quote", "spoiler", "underline"]
    start: int
    end: int
    value: str = ""
    """The language of `pre`, the address of `link`."""


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """One outgoing message, rendered and within the channel's limits. Never blank."""

    text: str
    """What the network shows, markup taken out where the channel sends spans."""
    spans: tuple[Span, ...] = ()
    start: int = 0
    end: int = 0
    """The slice of the Markdown source that this piece stands for, in code points. Pieces of one text follow each other without a gap."""


class Button(msgspec.Struct, frozen=True, omit_defaults=True):
    """A button under a message. `data` is the command line that a press sends, at most 64 bytes (Telegram's limit for callback data)."""

    label: str
    data: str


class Limits(msgspec.Struct, frozen=True):
    """What one message may hold on a network."""

    units: int
    """Longest text, by code points and by UTF-16 units alike."""
    spans: int = 100
    """Most formatted spans in one message; the network drops those above without a word."""


class Pacing(msgspec.Struct, frozen=True):
    """How fast we speak of our own accord, below the network's limits. 0 is no pacing. What the network asks for is obeyed all the same."""

    per_second: float = 0.0
    """Sends and edits a second, all chats together."""
    chat_per_second: float = 0.0
    """The same for one direct chat."""
    group_per_minute: float = 0.0
    """The same for one group, a minute."""
    apart: bool = False
    """A thread has limits and waits of its own; False: it shares those of its chat."""


class CommandInfo(msgspec.Struct, frozen=True):
    """One entry of a network's command menu: `name` without the slash, `hint` at most 100 characters."""

    name: str
    hint: str
    usage: str = ""
    """The argument's form: "NAME", or "[name]" where it can be left out; "" where there is none."""
    sessions: bool = False
    """The argument names one of the chat's sessions, and a network that can completes it."""


# --------------------------------------------------------------------------------------------------------------------------- errors


class ChannelError(Exception):
    """Something between us and a network. The message holds no secret: no URL, no token."""


class NotSent(ChannelError):
    """It certainly had no effect (the connection was never made), or the network takes a repeat for the same. May be repeated at will,
    after a pause."""


class Retry(ChannelError):
    """The network asks to wait `after` seconds; nothing had an effect. `everywhere`: it means the whole bot, not this chat alone."""

    def __init__(self, after: float, *, everywhere: bool = False) -> None:
        super().__init__(f"asked to wait {after:g} s")
        self.after = after
        self.everywhere = everywhere


class Unknown(ChannelError):
    """Nobody can say whether it had an effect (a timeout or a cut after the request had left). An edit may be repeated, a send may not."""


class Refused(ChannelError):
    """The network said no, and will again for the same request."""


class Rejected(Refused):
    """It is this content that is refused (markup, length): the same words as plain text may pass."""


class Gone(Refused):
    """The chat cannot be spoken to any more: blocked, kicked, deleted, no right to write."""


class Lost(Refused):
    """The message to edit or delete is not there (any more)."""


class TooLarge(Refused):
    """The network does not give files of this size to bots."""


class Denied(ChannelError):
    """The network does not accept our credentials. Permanent: the channel stops."""


# ------------------------------------------------------------------------------------------------------------------------- protocol


class Channel(Protocol):
    """An adapter. Everything below is called on the event loop and must not block it.

    `start`, `run` and `close` are called by the channel's supervisor in `gateway.app`; `render` by anybody; the sending half by the lanes
    of `gateway.outbox`, at most one call at a time for one Address (beside them `gateway.unstored` sends a sentence now and then),
    never under a key lock. It raises `ChannelError`s only.
    """

    name: str
    """The first part of every id and key: "telegram"."""
    limits: Limits
    pacing: Pacing
    backlog: float
    """Messages that are older than this (seconds) when they reach us are not answered any more; the chat is told once. 0: no limit."""
    streams: bool
    """Answers are shown while they grow, by edits of a placed message. False: one send a piece, when the answer is done."""

    async def start(self, menu: Sequence[CommandInfo]) -> None:
        """Make the first contact: who are we, is the token good, set the menu. Raises Denied (permanent), NotSent or Unknown (later)."""

    async def run(self, accept: Accept) -> None:
        """Read until cancelled. Returns only where input has an end (the terminal). Raises Denied when the token is refused for good, any
        other ChannelError when it should be started again with a pause."""

    async def close(self) -> None:
        """Let go of connections. After it nothing is called any more. Safe to call twice and without `start`."""

    def last_sign_of_life(self) -> float:
        """When the network last answered us, by `time.monotonic`; 0.0 if never."""

    def routes(self) -> Sequence[RouteDef]:
        """What the channel serves on the daemon's own HTTP server; () for most."""

    def render(self, markdown: str) -> list[Piece]:
        """Pieces for a text, within `limits`; [] if nothing visible is in it. Pure: the same text, the same pieces. Takes any prefix of a
        text (an answer that still grows) and never raises."""

    async def send(self, address: Address, piece: Piece, *, reply_to: str = "", buttons: Sequence[Button] = (), nonce: str = "") -> str:
        """A new message; returns the network's id of it. `reply_to` is that of the question for an answer's first message, or for all of
        them the question's `ticket` (with FOLLOWS before it from the second on); one that has vanished or expired is left out, not an
        error. `nonce` (up to 25 characters) is the same for a repeat of the same send, for networks that remove such doubles."""

    async def recall(self, address: Address, piece: Piece, *, since: float, asked: str, reply_to: str = "") -> str:
        """Whether an earlier life of the process sent this already, for networks that can tell: the id of that message, "" where there is
        none, or nobody can say. `asked`: the id of the input that it answers; `since`: when the text was put on record, seconds since the
        epoch by our clock; nothing of it was sent before either. Asked after a restart, ahead of the one send of a text that may have
        happened. Raises NotSent, Retry and Denied alone: then nothing may be sent yet."""

    async def edit(self, address: Address, message_id: str, piece: Piece, *, buttons: Sequence[Button] = ()) -> None:
        """Replace a message's content. "Not modified" is success. Raises Lost where it is not there."""

    async def delete(self, address: Address, message_id: str) -> None:
        """Remove a message of ours. One that is already gone is success."""

    async def typing(self, address: Address) -> None:
        """Show that we are at work, for some five seconds. Failing is no harm: the caller counts it and goes on."""

    async def is_admin(self, address: Address, user_id: str) -> bool:
        """Whether the network says that this person administers this group. Raises ChannelError if it does not say."""

    async def fetch(self, attachment: Attachment, most: int) -> bytes:
        """A file's first bytes, at most `most` of them, whatever its size is said to be; fewer: that is all of it. Called by
        `gateway.attachments`, for many messages at once, under the key lock of each, so it has time limits of its own. Raises ChannelError:
        TooLarge where bots do not get files of that size."""


# --------------------------------------------------------------------------------------- what a look at a network, before a start, finds


class Amiss(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that is not as it should be over there, and what to do about it."""

    text: str
    remedy: str
    groups: bool = False
    """It matters only where groups are let in."""
    fatal: bool = False
    """The channel does not work with it."""


class Contact(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a channel's `check(settings, token)` found: a function beside `make`, for channels that have a network. It logs in to nothing,
    changes nothing, fetches nothing that the running daemon waits for, and takes a few seconds at most. Raises ChannelError."""

    who: str = ""
    """As whom the network knows us: "@my_bot"."""
    amiss: tuple[Amiss, ...] = ()
    ahead: float | None = None
    """Seconds that the network's clock is ahead of ours; None where it does not say."""


@runtime_checkable
class Timed(Protocol):
    """What a channel may offer besides: it knows by when its reading half must have moved on."""

    def overdue(self) -> float:
        """Seconds past that time, by `time.monotonic`; 0.0 while it moves and while it does not read. It moves as well while it waits for
        a network that is down, or that asked for a pause: what counts is that some step which has a limit of its own does not end."""


@runtime_checkable
class Telling(Protocol):
    """What a channel may offer besides: it goes on by itself where its network is away, and says so."""

    def trouble(self) -> str:
        """What is wrong with reading now, in words without secrets; "" while all is well."""


@runtime_checkable
class Adjustable(Protocol):
    """What a channel may offer besides: some of its settings can change while it runs."""

    adjustable: frozenset[str]
    """The keys of its config table that `adjust` takes over."""

    def adjust(self, settings: msgspec.Struct) -> None:
        """Take these over from `settings`, which are of the type that it was made with. Never raises."""


# ------------------------------------------------------------------- what a page that shows whole conversations may read of the house


class SessionInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One session of a chat, for a list."""

    name: str
    title: str
    created: str
    current: bool
    last_seq: int
    parent: str = ""
    """The session's name that it was forked from, "" if none; `parent_seq` is where."""
    parent_seq: int = 0


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a conversation as a person sees it: theirs or the model's."""

    seq: int
    role: Literal["user", "assistant"]
    text: str
    input_id: str
    at: str = ""
    note: str = ""
    """What stands under an answer and is not the model's: why it was cut. In what is sent, it is the last paragraph."""


class Desk(Protocol):
    """Reading access for a channel that shows whole conversations (the web page). Implemented by `gateway.desk`."""

    async def sessions(self, address: Address, sender: Sender, *, direct: bool = True, group: str = "") -> list[SessionInfo]:
        """All sessions that the sender would speak in here, newest last; [] for a chat that never talked, and for who may not speak.
        `direct` and `group` as in `Inbound`."""

    async def history(self, address: Address, sender: Sender, name: str = "", after: int = 0) -> list[Shown]:
        """What the chat's session `name` ("" the current one) shows behind seq `after`, as it stands after undo and retry: the newest
        part, about as much as the model sees. Raises OSError where it cannot be read."""


@dataclass(frozen=True, slots=True)
class Context:
    """What the composition root hands to a channel's `make(settings, context)`."""

    token: str
    """The channel's secret; "" if it has none."""
    folder: Path
    """A private folder for small state of the channel's own; made (0700) by the channel if it needs it."""
    desk: Desk
    hosts: tuple[str, ...] = ()
    """For a channel with `routes()`: where the daemon's HTTP server listens, then the names of [http].hosts; see `channels.guard`."""
