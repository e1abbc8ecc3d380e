"""Pairing codes and approvals: the lines of `access.jsonl`, and what they come to. Pure: no I/O; the time of day is handed in.

A stranger is shown a code; whoever runs the bot approves it. The code proves nothing about the stranger: it only tells the operator which
of all those who write is the person that stands before them. So it is short-lived, one a person an hour, and there are never more than a
hundred: a flood of strangers ends in silence. Called by `gateway.access`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, TypeAlias

import msgspec

from channels.base import Address

ALPHABET = "34679ACDEFGHJKMNPQRTVWXY"
"""Nothing that is copied by hand can be taken for something else: no 0 O, 1 I L, 2 Z, 5 S, 8 B, and no U beside the V."""
LENGTH = 8
LIFE = 3600.0
"""Seconds for which a code is good, and for which its person gets no other."""
MOST = 100
"""Codes that are good at one time; whoever comes then hears nothing."""

Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Issued(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="code"):
    """A stranger was shown a code."""

    at: Time
    person: str
    """"channel:id"."""
    name: str = ""
    """What they call themselves; for the operator's eyes, decides nothing."""
    code: str
    input: str = ""
    """The message that it answers: met again after a crash, it is answered the same."""
    address: Address | None = None
    """Where they were shown it, so that they can be told there that they were let in. None in older files."""


class Approved(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="approved"):
    """A person was let in, by an admin ("channel:id") or on the machine ("operator")."""

    at: Time
    person: str
    name: str = ""
    by: str
    code: str = ""
    address: Address | None = None
    """That of the code."""


class Revoked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="revoked"):
    """A person was shut out again."""

    at: Time
    person: str
    by: str


Event: TypeAlias = Issued | Approved | Revoked

_decoder = msgspec.json.Decoder(Event)
_encoder = msgspec.json.Encoder()


def encode(event: Event) -> bytes:
    """One line, newline included."""
    return _encoder.encode(event) + b"\n"


def moment(seconds: float) -> datetime:
    """Epoch seconds as the lines' form."""
    return datetime.fromtimestamp(round(seconds, 3), UTC)


def plain_code(text: str) -> str:
    """A code as it was typed, brought into form: case, spaces and dashes do not matter."""
    return "".join(text.split()).replace("-", "").strip("`").upper()


class Pairing:
    """What the lines come to. `apply` is the only way to change it."""

    def __init__(self) -> None:
        self.approved: dict[str, Approved] = {}
        """By person."""
        self._issued: dict[str, Issued] = {}

    def load(self, lines: Iterable[bytes]) -> int:
        """Fold the lines of a file; returns how many could not be read. Those are passed over."""
        bad = 0
        for line in lines:
            try:
                self.apply(_decoder.decode(line))
            except (ValueError, RecursionError):
                bad += 1
        return bad

    def apply(self, event: Event) -> None:
        match event:
            case Issued():
                self._issued.pop(event.person, None)
                self._issued[event.person] = event
            case Approved():
                self._issued.pop(event.person, None)
                self.approved[event.person] = event
            case Revoked():
                self.approved.pop(event.person, None)
                self._issued.pop(event.person, None)

    def pending(self, now: float) -> list[Issued]:
        """The codes that are good now, oldest first. One from the future (the clock was set back) is not good."""
        for event in list(self._issued.values()):
            if not -5 <= now - event.at.timestamp() < LIFE:
                del self._issued[event.person]
        return list(self._issued.values())

    def issue(self, person: str, name: str, now: float, input_id: str = "", address: Address | None = None) -> Issued | None:
        """A code for a stranger, to be applied; None: silence. The one that they have where it was made for this very input."""
        pending = self.pending(now)
        if (known := self._issued.get(person)) is not None:
            return known if input_id and known.input == input_id else None
        if len(pending) >= MOST:
            return None
        taken = {event.code for event in pending}
        while (code := "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))) in taken:
            pass
        return Issued(at=moment(now), person=person, name=name[:64], code=code, input=input_id, address=address)

    def withdraw(self, person: str) -> None:
        """Forget a code that its person never saw. One that is in the file is replaced by the next."""
        self._issued.pop(person, None)

    def find(self, code: str, now: float) -> Issued | None:
        """The code that is good and reads like this."""
        code = plain_code(code)
        return next((event for event in self.pending(now) if event.code == code), None)

    def used(self, code: str, now: float) -> Approved | None:
        """Whom this code let in within the hour: a command that a crash cut off is given again."""
        code = plain_code(code)
        return next((event for event in self.approved.values() if code and event.code == code and now - event.at.timestamp() < LIFE), None)
