"""The lines of the inbox's journal, what each means, and what is remembered of a whole segment of them. Pure: bytes and values, no files.

Called by `gateway.journal` and `gateway.segments`, which keep them, and `gateway.inbox`, which folds them to states.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

import msgspec

from channels.base import Button, Inbound

# ------------------------------------------------------------------------------------------------------------------------- values


class Input(msgspec.Struct, frozen=True):
    """One accepted message, command or button press."""

    inbound: Inbound
    key: str
    at: float
    """When it was accepted, seconds since the epoch."""


class ReplyText(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is said to an input that is not an answer of the model: a command's reply, a refusal, a pairing code, a failure's sentence."""

    text: str
    buttons: tuple[Button, ...] = ()


# ------------------------------------------------------------------------------------------------------------------------ records


class Accepted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="accepted"):
    """An input is ours now. With `reply` it is never run, only told; one line, so that no crash parts them."""

    n: int
    at: float
    key: str
    inbound: Inbound
    turn: bool = False
    """It counts for the person's daily quota."""
    reply: ReplyText | None = None

    @property
    def id(self) -> str:
        return self.inbound.id


class Refused(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="refused"):
    """An input is turned away for `reason`; its words are not kept. Finished at once where nothing is said (`reply`)."""

    n: int
    at: float
    key: str
    inbound: Inbound
    reason: str
    reply: ReplyText | None = None

    @property
    def id(self) -> str:
        return self.inbound.id


class Amended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="amended"):
    """The person edited the message while it waited."""

    id: str
    at: float = 0.0
    key: str
    text: str


class Started(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="started"):
    """Attempt `n` begins, in `session`, which stands at `last_seq`: whatever the input caused stands behind that. Without a session: one
    is about to be read, which another record of the same attempt will name."""

    id: str
    at: float = 0.0
    session: str
    last_seq: int
    n: int


class Placed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="placed"):
    """A message is in the chat that piece `piece` will be edited into. Written before any content goes into it."""

    id: str
    at: float = 0.0
    piece: int
    message: str


class Replied(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="reply"):
    """What will be said. From here on the input is not run again, only delivered."""

    id: str
    at: float = 0.0
    key: str
    text: str
    buttons: tuple[Button, ...] = ()


class Delivered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="sent"):
    """A piece of the reply is with the network: `span` of its text, in code points. An answer's `sent` stands in its session."""

    id: str
    at: float = 0.0
    span: tuple[int, int]
    ids: tuple[str, ...] = ()
    unknown: bool = False


class Finished(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="finished"):
    """Nothing is left to do. `reason` where it did not end as it should: "gone", "stopped", "undeliverable", "forgotten"; "empty" where
    nothing visible was to be said."""

    id: str
    at: float = 0.0
    reason: str = ""


class Answered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="answered"):
    """After a crash: its answer was found in its session, and only has to be delivered."""

    id: str
    at: float = 0.0


class Alone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="alone"):
    """From here on nothing else is worked on; with `over`, from here on others are, too. See `gateway.deaths`."""

    id: str
    at: float = 0.0
    over: bool = False


class Aside(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="aside"):
    """The daemon died too often over this input: it is not worked on any more. A `reply` that says so follows."""

    id: str
    at: float = 0.0
    key: str
    deaths: int


class Opened(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="opened"):
    """A daemon begins to write. Where no `ended` stands before it, the one before died."""

    id: str = ""
    at: float = 0.0


class Ended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="ended"):
    """The daemon was told to end. However it does so now, no input is to blame."""

    id: str = ""
    at: float = 0.0


class Held(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="held"):
    """From here on nothing is worked on but who is `alone`; `over`: everybody is again. A death in between is no fault of theirs."""

    id: str = ""
    at: float = 0.0
    over: bool = False


class Foreign(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record of a type that this version does not know: kept, passed over."""

    type: str
    id: str = ""
    at: float = 0.0
    key: str = ""


Record: TypeAlias = (
    Accepted
    | Refused
    | Amended
    | Started
    | Answered
    | Placed
    | Replied
    | Delivered
    | Finished
    | Alone
    | Aside
    | Opened
    | Ended
    | Held
    | Foreign
)

_TYPES: dict[str, msgspec.json.Decoder[Record]] = {
    "accepted": msgspec.json.Decoder(Accepted),
    "refused": msgspec.json.Decoder(Refused),
    "amended": msgspec.json.Decoder(Amended),
    "started": msgspec.json.Decoder(Started),
    "answered": msgspec.json.Decoder(Answered),
    "placed": msgspec.json.Decoder(Placed),
    "reply": msgspec.json.Decoder(Replied),
    "sent": msgspec.json.Decoder(Delivered),
    "finished": msgspec.json.Decoder(Finished),
    "alone": msgspec.json.Decoder(Alone),
    "aside": msgspec.json.Decoder(Aside),
    "opened": msgspec.json.Decoder(Opened),
    "ended": msgspec.json.Decoder(Ended),
    "held": msgspec.json.Decoder(Held),
}
_foreign = msgspec.json.Decoder(Foreign)
_encoder = msgspec.json.Encoder()


def encode_record(record: Record) -> bytes:
    return _encoder.encode(record) + b"\n"


def decode_record(line: bytes) -> Record:
    """Raises what `gateway.lines.UNREADABLE` names where the line is no record."""
    peek = _foreign.decode(line)
    decoder = _TYPES.get(peek.type)
    return decoder.decode(line) if decoder else peek


# -------------------------------------------------------------------------------------------------------------------- forgetting


def blank(record: Record) -> Record:
    """The record without anybody's words and names: who, where and when stay, so that it still counts."""
    if isinstance(record, Accepted | Refused):
        sender = msgspec.structs.replace(record.inbound.sender, name="")
        inbound = msgspec.structs.replace(record.inbound, sender=sender, text="", quote="", attachments=(), ticket="")
        return msgspec.structs.replace(record, inbound=inbound, reply=ReplyText("") if record.reply else None)
    if isinstance(record, Amended):
        return msgspec.structs.replace(record, text="")
    if isinstance(record, Replied):
        return msgspec.structs.replace(record, text="", buttons=())
    return record


# ------------------------------------------------------------------------------------------------------------- facts of a segment

ACCEPTED, FINISHED, SET_ASIDE = 1, 2, 4
DAY = 86400


def mark(input_id: str) -> int:
    """The 8 bytes that stand for an input's id once its segment is sealed."""
    return int.from_bytes(blake2b(input_id.encode(), digest_size=8).digest(), "little")


class Counted(NamedTuple):
    day: int
    channel: str
    sender: str


class Facts:
    """What a start needs to know of a segment, gathered while it is written or when it is read."""

    def __init__(self) -> None:
        self.marks: dict[int, int] = {}
        """Input -> how this segment leaves it."""
        self.turns: dict[Counted, int] = {}
        self.last = 0.0
        """When the newest record was written."""
        self.n = 0
        """The highest `n`."""

    def add(self, record: Record) -> None:
        self.last = max(self.last, record.at)
        if isinstance(record, Accepted | Refused):
            silent = isinstance(record, Refused) and record.reply is None
            self.marks[mark(record.id)] = ACCEPTED | FINISHED if silent else ACCEPTED
            self.n = max(self.n, record.n)
            if isinstance(record, Accepted) and record.turn:
                person = counted(record)
                self.turns[person] = self.turns.get(person, 0) + 1
        elif record.id:
            seen = mark(record.id)
            flag = FINISHED if isinstance(record, Finished) else SET_ASIDE if isinstance(record, Aside) else 0
            self.marks[seen] = self.marks.get(seen, 0) | flag

    def seal(self, size: int) -> Sealed:
        hashes = array("Q", sorted(self.marks))
        turns = tuple((*person, count) for person, count in self.turns.items())
        return Sealed(size, self.last, self.n, turns, hashes, bytes(self.marks[each] for each in hashes))


def counted(record: Accepted) -> Counted:
    return Counted(int(record.at // DAY), record.inbound.address.channel, record.inbound.sender.id)


class _Head(msgspec.Struct, frozen=True):
    """First line of a sidecar."""

    v: int
    size: int
    last: float
    n: int
    turns: tuple[tuple[int, str, str, int], ...]
    inputs: int


_head = msgspec.json.Decoder(_Head)


class Sealed(NamedTuple):
    """The facts of a segment that is not written to any more, 9 bytes an input."""

    size: int
    """Bytes of the segment that these are the facts of."""
    last: float
    n: int
    turns: tuple[tuple[int, str, str, int], ...]
    hashes: array[int]
    flags: bytes

    def marks(self) -> Iterator[tuple[int, int]]:
        return zip(self.hashes, self.flags, strict=True)

    def accepted(self, seen: int) -> bool:
        place = bisect_left(self.hashes, seen)
        return place < len(self.hashes) and self.hashes[place] == seen and bool(self.flags[place] & ACCEPTED)

    def encode(self) -> bytes:
        """A sidecar's bytes: a line of JSON, the hashes (8 bytes each, little endian), their flags, 8 bytes of checksum."""
        head = _encoder.encode(_Head(1, self.size, self.last, self.n, self.turns, len(self.hashes)))
        body = b"".join((head, b"\n", *(each.to_bytes(8, "little") for each in self.hashes), self.flags))
        return body + blake2b(body, digest_size=8).digest()

    @classmethod
    def decode(cls, data: bytes) -> Sealed:
        """Raises ValueError where it is not a whole sidecar of ours."""
        body, check = data[:-8], data[-8:]
        if blake2b(body, digest_size=8).digest() != check:
            raise ValueError("the checksum does not fit")
        line, _, rest = body.partition(b"\n")
        head = _head.decode(line)
        if head.v != 1 or len(rest) != 9 * head.inputs:
            raise ValueError("not a sidecar of this version")
        hashes = array("Q", (int.from_bytes(rest[at : at + 8], "little") for at in range(0, 8 * head.inputs, 8)))
        return cls(head.size, head.last, head.n, head.turns, hashes, rest[8 * head.inputs :])
