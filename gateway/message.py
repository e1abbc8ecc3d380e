"""Keys, events and requests: the values that the house passes around and the lines that a session file is made of.

An event is one line. Messages keep the field's usual words (`role`, `content`, `tool_calls`), other events say what they are in `type`.
Pure: no I/O, no clock. What the events *do* to a session is in `gateway.session`, what a request carries in `gateway.window`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias

import msgspec

FORMAT_VERSION = 1
"""`v` in a session's header. A newer one is refused, older ones are read."""

STOPPED = "(stopped)"
"""All that is left of an answer that was ended before anybody saw a word of it."""

NAME = re.compile(r"[a-z0-9-]{1,40}")
"""What a session may be called. A name is never a path: no dot, no slash."""


def timestamp(seconds: float) -> str:
    """Seconds since the epoch as the files' form: UTC, milliseconds, "2026-11-29T10:00:00.123Z"."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(at: str) -> float:
    """The inverse; 0.0 for what is no time. One without a zone is UTC, wherever the machine stands."""
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


# ----------------------------------------------------------------------------------------------------------------------------- keys

_SAFE = re.compile(r"[A-Za-z0-9._-]+")


def _quote(part: str) -> str:
    return part if _SAFE.fullmatch(part) else "".join(c if _SAFE.fullmatch(c) else "".join(f"%{b:02X}" for b in c.encode()) for c in part)


def _unquote(part: str) -> str:
    if "%" not in part:
        return part
    return re.sub(rb"%([0-9A-F]{2})", lambda m: bytes([int(m[1], 16)]), part.encode()).decode()


class SessionKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whose conversation it is: `channel:chat`, `:thread` for a forum topic, `@user` where a group is scoped per user.

    `str(key)` and `SessionKey.parse` are inverse for every content: whatever is not a letter, digit, dot, dash or underscore is escaped.
    """

    channel: str
    chat: str
    thread: str = ""
    user: str = ""

    def __str__(self) -> str:
        text = f"{_quote(self.channel)}:{_quote(self.chat)}"
        if self.thread:
            text += f":{_quote(self.thread)}"
        return f"{text}@{_quote(self.user)}" if self.user else text

    @classmethod
    def parse(cls, text: str) -> SessionKey:
        """Raises ValueError where the text is not a key."""
        place, _, user = text.partition("@")
        parts = [_unquote(part) for part in place.split(":")]
        if not 2 <= len(parts) <= 3 or not parts[0]:
            raise ValueError(f"not a session key: {text!r}")
        return cls(parts[0], parts[1], parts[2] if len(parts) == 3 else "", _unquote(user))


# --------------------------------------------------------------------------------------------------------------------------- events


class Person(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who wrote a user line, as far as the file says."""

    id: str
    name: str = ""


class Media(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attachment of a user line, by reference; of its content only the words of a text file are kept."""

    kind: str
    name: str = ""
    mime: str = ""
    size: int | None = None
    ref: str = ""
    text: str = ""
    """What a text file says, or its beginning."""
    cut: bool = False
    """`text` is not all of it."""
    unread: str = ""
    """Why a text file's words are not here, as the rest of a sentence that begins with "it"."""


class ToolCall(msgspec.Struct, frozen=True):
    """What the model asked to have run."""

    id: str
    name: str
    arguments: dict[str, object]


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens, as the model's server counted them."""

    input: int = 0
    output: int = 0


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"for_": "for", "from_": "from"}):
    """A line of the conversation. `for` is the id of the input that caused it."""

    seq: int
    at: str = ""
    """"" where an older or foreign line does not say."""
    for_: str = ""
    role: Literal["user", "assistant", "tool"]
    content: str | None
    from_: Person | None = None
    quote: str = ""
    """user: the words that the message answers; given to the model, marked as quoted."""
    media: tuple[Media, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    error: bool = False
    reasoning: str | None = None
    """assistant: kept for backends that want it back in tool loops."""
    model: str = ""
    usage: Usage | None = None
    interrupted: bool = False
    """assistant: cut by /stop, by a failure or by a limit; `content` is what was seen."""
    note: str = ""
    """assistant: a sentence of ours under the answer in the chat (why it was cut). Never sent to the model."""
    answers: tuple[str, ...] = ()
    """assistant: all inputs answered at once, where they are several; `for` is the last of them."""

    @property
    def final(self) -> bool:
        """An answer: an assistant line that does not wait for tools."""
        return self.role == "assistant" and not self.tool_calls

    @property
    def shown(self) -> str:
        """What the person sees of an answer, as Markdown."""
        return "\n\n".join(part for part in (self.content or "", self.note) if part)


class Sent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="sent"):
    """A piece of the answer `of` is with the network: `span` of its shown text, in code points; the network's message ids."""

    seq: int
    at: str
    of: int
    span: tuple[int, int]
    ids: tuple[str, ...] = ()
    unknown: bool = False
    """The send's outcome is unknown; it is not repeated."""
    stopped: bool = False
    """It was taken back by /stop, and is not sent: the answer is what stands before it."""


class Undo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="undo", rename={"for_": "for"}):
    """Messages behind seq `to` are taken back."""

    seq: int
    at: str
    for_: str = ""
    to: int


class Again(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="retry", rename={"for_": "for"}):
    """The user line `of` is asked again; what was said behind it is taken back."""

    seq: int
    at: str
    for_: str = ""
    of: int


class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="summary"):
    """Stands in the system text for all messages up to seq `upto`."""

    seq: int
    at: str
    upto: int
    content: str


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="state"):
    """The fold's pointers at this line, so that a load from the tail need not read what is before its window.

    `live`: ranges of seqs (first, last) whose messages count, oldest first, the newest few; `summary`: seq of the newest summary.
    """

    seq: int
    at: str
    live: tuple[tuple[int, int], ...] = ()
    summary: int = 0
    turns: int = 0
    """User lines that count, over the whole session."""


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a type that this version does not know; kept in the file, passed over by the fold."""

    seq: int
    type: str


Event: TypeAlias = Message | Sent | Undo | Again | Summary | State | Foreign


class Parent(msgspec.Struct, frozen=True):
    """Where a fork came from."""

    key: str
    name: str
    seq: int


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="session", rename={"for_": "for"}):
    """The first line of a session file."""

    v: int = 0
    """0 where an older file does not say."""
    key: str
    name: str = ""
    created: str = ""
    title: str = ""
    """The name as the person typed it; "" means `name`."""
    for_: str = ""
    parent: Parent | None = None


class Chat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"for_": "for"}):
    """One line of a key's `_chat.jsonl`: a change of its pointer or settings. What is not named stays as it was."""

    seq: int = 0
    at: str
    for_: str = ""
    current: str = ""


class _Peek(msgspec.Struct):
    seq: Annotated[int, msgspec.Meta(ge=0, lt=2**53)] = 0
    """One that could not be counted on is none: what comes behind it is numbered from it."""
    type: str = ""


_encoder = msgspec.json.Encoder()
_peek = msgspec.json.Decoder(_Peek)
_message = msgspec.json.Decoder(Message)
_typed: dict[str, msgspec.json.Decoder[Sent | Undo | Again | Summary | State]] = {
    "sent": msgspec.json.Decoder(Sent),
    "undo": msgspec.json.Decoder(Undo),
    "retry": msgspec.json.Decoder(Again),
    "summary": msgspec.json.Decoder(Summary),
    "state": msgspec.json.Decoder(State),
}
_header = msgspec.json.Decoder(Header)


def encode_line(value: msgspec.Struct) -> bytes:
    """One JSONL line, newline included. Text must be free of lone surrogates (see `clean`)."""
    return _encoder.encode(value) + b"\n"


def decode_event(line: bytes) -> Event:
    """An event from a line. Raises msgspec.DecodeError (ValidationError included) or UnicodeDecodeError where it is none."""
    peek = _peek.decode(line)
    if not peek.type:
        return _message.decode(line)
    decoder = _typed.get(peek.type)
    return decoder.decode(line) if decoder else Foreign(seq=peek.seq, type=peek.type)


def decode_header(line: bytes) -> Header:
    """A session file's first line. Raises msgspec.DecodeError where it is none."""
    return _header.decode(line)


def clean(text: str) -> str:
    """Text as it may be stored: lone surrogates (a pair split in two is joined) become U+FFFD, NUL goes. The door's one filter."""
    if text.isascii():
        return text.replace("\0", "")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "")


# -------------------------------------------------------------------------------------------------------------------------- requests


class ChatMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a model request, in the words of the OpenAI chat format."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    reasoning: str | None = None


class Request(msgspec.Struct, frozen=True):
    """What a backend is asked: legal by rule 9, the system text (if any) first and once."""

    messages: tuple[ChatMessage, ...]
