"""What a command is: its name, when it runs, what it is given, what it gives back. The families are sibling files; `table` collects them.

A command never sends: it returns what is to be said, and the runner journals that before a lane sends it. Every effect carries the id of
the input that asked for it, so that a command that is met again after a crash finds what it already did (`Call.effect`) and only says it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from channels.base import Sender
from gateway.access import Access
from gateway.inbox import ReplyText
from gateway.message import Message, SessionKey
from gateway.session import Session
from gateway.sessions import Effect, SessionManager

_COMMAND = re.compile(r"/([A-Za-z][A-Za-z_]{0,31})(?:\s+(.*))?", re.DOTALL)


class When(Enum):
    """In which order with the conversation a command runs."""

    NOW = "past the queue, without the key lock; it must not change a session"
    TURN = "in its place in the queue, under the key lock"
    CUT = "like TURN, but the turn that runs is ended first"


class Stoppable(Protocol):
    """A turn that runs."""

    def stop(self) -> None:
        """End it; what was seen is kept."""

    async def over(self) -> None:
        """Wait until it has ended and what is kept of it is on record."""

    def took(self) -> bool:
        """Whether there was anything left to end; known when it is over."""


class House(Protocol):
    """What commands may use of the daemon."""

    @property
    def sessions(self) -> SessionManager: ...

    @property
    def access(self) -> Access: ...

    def status(self, key: SessionKey) -> list[str]:
        """Lines about the daemon and this chat, for the person."""

    async def forget_inputs(self, key: SessionKey) -> None:
        """Blank what the journal holds of this key."""


@dataclass(frozen=True, slots=True)
class Call:
    """One command as it was given, with what it may use."""

    house: House
    input_id: str
    key: SessionKey
    sender: Sender
    argument: str
    direct: bool
    admin: bool
    """The sender is an admin of the daemon."""
    current: str = ""
    """The name of the key's current session when the command was accepted ("" if none); for NOW commands."""
    running: Stoppable | None = None
    """The turn that ran when the command was accepted; for NOW commands."""
    session: Session | None = None
    """The current session; for TURN and CUT commands."""
    effect: Effect | None = None
    """After a restart: what this input had already caused."""

    def opened(self) -> Session:
        """The session, for commands that run under the key lock."""
        assert self.session is not None
        return self.session


@dataclass(frozen=True, slots=True)
class Ask:
    """A command's wish to have the model asked (again): the user line is in the session already."""

    question: Message


Handler = Callable[[Call], Awaitable[ReplyText | Ask]]


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    hint: str
    """One line for menus and /help."""
    timing: When | Callable[[str], When]
    """When it runs; a function of the argument where that decides."""
    handler: Handler
    aliases: tuple[str, ...] = ()
    usage: str = ""
    """The argument's form, for /help and menus: "NAME", or "[name]" where it can be left out."""
    sessions: bool = False
    """The argument names one of the chat's sessions."""
    admin: bool = False
    """Only for admins of the daemon; others are told that there is no such command."""
    asks: bool = False
    """It has the model asked, and counts as a turn."""

    def when(self, argument: str) -> When:
        return self.timing if isinstance(self.timing, When) else self.timing(argument)


def parse(text: str) -> tuple[str, str] | None:
    """The command's name in lower case and its argument, or None where the text is no command ("//", "/etc/passwd", "/ 2")."""
    match = _COMMAND.fullmatch(text.strip())
    return (match[1].lower(), (match[2] or "").strip()) if match else None
