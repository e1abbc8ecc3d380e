"""One question to the model and what comes of it: retries, limits, and the sentence for everything that can go wrong.

Knows no store, no chat and no session; what it is handed is a legal request, what it gives back is an Outcome. Called by `gateway.runner`.

An answer begins with its first visible text. Before that a failure that may pass is retried, as often as `TRIES` says, and what a server
asks to wait is waited (up to `MAX_WAIT`; a longer wait fails at once and says when to try again). After it nothing is repeated: what was
said stands, marked as incomplete. Tools are not offered in this version, so a call for one is never run.
"""

from __future__ import annotations

import asyncio
import random
import re
import unicodedata
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import structlog

from gateway.backends.base import Backend, Done, Reasoning, Text
from gateway.errors import BackendError
from gateway.message import Request, ToolCall, Usage
from gateway.words import counted

log = structlog.get_logger(__name__)

TRIES = 3
FIRST_PAUSE = 1.0
"""Seconds before the second try, at most; doubled for each further one. Half of it is chance, so that many chats do not return at once."""
MAX_WAIT = 30.0
"""The longest `Retry-After` in seconds that a turn waits for, with the key's lock in its hand."""
THOUGHT_FACTOR = 8
"""A model may think this many times as many characters as its answer may have."""

EMPTY = "The model gave an empty answer. Please ask again, perhaps in other words."
ONLY_THOUGHT = "The model gave an empty answer: it only thought. Please ask again, perhaps in other words."
THOUGHT_TOO_LONG = "The model thought without end and was stopped. Please ask again, perhaps in other words."
NOTHING_WITHIN_LENGTH = "The model reached its length limit before it said anything. A shorter question, or /reset, may help."
FILTERED = "The model's provider withheld the answer (content filter)."
TOOL = "The model asked for a tool that it does not have; nothing was run."
CUT_BY_LENGTH = "(cut at the model's length limit)"
CUT_BY_FILTER = "(cut by the provider's content filter)"
CUT_BY_US = "(cut here: the answer was too long)"

_NOTHING = {"length": NOTHING_WITHIN_LENGTH, "content_filter": FILTERED, "tool_calls": TOOL}
"""By the reason to stop, where nothing was said."""
_NOTES = {"length": CUT_BY_LENGTH, "content_filter": CUT_BY_FILTER, "tool_calls": f"({TOOL})"}
"""The same where something was."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a turn came to. Either `text` has something visible in it or `failed` is a sentence; never both, never neither."""

    text: str = ""
    reason: Literal["", "stop", "length", "tool_calls", "content_filter"] = ""
    """Why the model stopped; "" where it did not get to say so."""
    note: str = ""
    """A sentence to stand under the text; "" where the answer is whole."""
    interrupted: bool = False
    """The text is not all that the answer would have been."""
    failed: str = ""
    """The sentence for the person where nothing was said at all."""
    problem: str = ""
    """What is wrong with the backend then, without what the person may do about it; "" where it is not the backend's fault."""
    overflow: bool = False
    """It failed because the request is too long for the model: a shorter one may pass."""
    lasting: bool = False
    """It failed for a reason that does not pass by itself: a wrong key, a model that is not there."""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    """What the model thought, where its server tells; kept for tool loops, never shown."""
    model: str = ""
    usage: Usage | None = None
    tries: int = 1
    """How often the model was asked."""


class Asking(Protocol):
    """The shape of `run`, for those who are handed one."""

    def __call__(self, backend: Backend, request: Request, *, on_text: Callable[[str], None], max_chars: int) -> Awaitable[Outcome]: ...


class _Heard:
    """One try, as far as it got. Text is handed on from the first visible character; what came before it waits."""

    def __init__(self, on_text: Callable[[str], None], max_chars: int) -> None:
        self.parts: list[str] = []
        self.thoughts: list[str] = []
        self.done: Done | None = None
        self.begun = False
        """Something of the answer was shown: nothing can be repeated any more."""
        self.cut = False
        """It came to one of our limits, and the rest is not wanted."""
        self._on_text, self._room, self._thought_room = on_text, max_chars, max_chars * THOUGHT_FACTOR

    def text(self, text: str) -> None:
        if len(text) > self._room:
            self.cut = True
            text = text[: self._room]
        self._room -= len(text)
        self.parts.append(text)
        if self.begun:
            self._on_text(text)
        elif _begins(text):
            self.begun = True
            self.parts = [_BLANK_LINES.sub("", "".join(self.parts))]
            self._on_text(self.parts[0])

    def thought(self, text: str) -> None:
        self.thoughts.append(text)
        self._thought_room -= len(text)
        self.cut |= self._thought_room < 0


async def run(
    backend: Backend,
    request: Request,
    *,
    on_text: Callable[[str], None],
    max_chars: int,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    chance: Callable[[], float] = random.random,
) -> Outcome:
    """Ask and listen. Never raises BackendError.

    `on_text` is called with each piece by which the visible text grows; joined they are the text so far, and it never shrinks. It must be
    cheap. After cancellation, which passes, the pieces are what was seen. `max_chars`: longest text; a longer one is cut and the stream
    closed. `sleep` and `chance` (0 to 1) are for tests.
    """
    for tried in range(1, TRIES + 1):
        heard = _Heard(on_text, max_chars)
        try:
            await _listen(backend, request, heard)
        except BackendError as error:
            if heard.begun:
                log.warning("answer broke off", backend=backend.name, chars=sum(map(len, heard.parts)), fault=str(error))
                return replace(_broken(heard, error), tries=tried)
            wait = _wait(error, tried, chance)
            if wait is None:
                log.warning("model failed", backend=backend.name, tries=tried, retryable=error.retryable, fault=str(error))
                return Outcome(
                    failed=_sentence(error),
                    problem="" if error.overflow else error.said,
                    overflow=error.overflow,
                    lasting=error.lasting,
                    reasoning=_joined(heard.thoughts),
                    tries=tried,
                )
            log.info("model asked again", backend=backend.name, tried=tried, wait=round(wait, 2), fault=str(error))
        else:
            return replace(_outcome(heard), tries=tried)
        await sleep(wait)
    raise AssertionError("the last try returns")


async def _listen(backend: Backend, request: Request, heard: _Heard) -> None:
    # Leaving the stream early closes it, and with it the connection.
    async with aclosing(backend.stream(request)) as stream:
        async for part in stream:
            match part:
                case Text():
                    heard.text(part.text)
                case Reasoning():
                    heard.thought(part.text)
                case Done():
                    heard.done = part
            if heard.cut:
                return


def _wait(error: BackendError, tried: int, chance: Callable[[], float]) -> float | None:
    """Seconds until the next try; None if there shall be none."""
    if not error.retryable or tried >= TRIES:
        return None
    pause: float = FIRST_PAUSE * 2.0 ** (tried - 1) * (0.5 + chance() / 2)
    if error.after is None:
        return pause
    return error.after + pause if error.after <= MAX_WAIT else None


def _sentence(error: BackendError) -> str:
    if error.overflow:
        return f"{error.said} A shorter message may help; /reset starts a new conversation."
    if not error.retryable:
        return error.said
    if not error.after:
        return f"{error.said} Please try again a little later."
    return f"{error.said} Please try again {_when(error.after)}."


def _when(seconds: float) -> str:
    if seconds < 90:
        return f"in {counted(max(1, round(seconds)), 'second')}"
    if seconds < 90 * 60:
        return f"in {round(seconds / 60)} minutes"
    if seconds < 36 * 3600:
        return f"in {round(seconds / 3600)} hours"
    return "in some days" if seconds < 30 * 86400 else "much later"


def _broken(heard: _Heard, error: BackendError) -> Outcome:
    note = f"({error.said} The answer is not complete.)"
    return Outcome(text="".join(heard.parts).rstrip(), note=note, interrupted=True, reasoning=_joined(heard.thoughts))


def _outcome(heard: _Heard) -> Outcome:
    text, reasoning, done = "".join(heard.parts).rstrip(), _joined(heard.thoughts), heard.done
    reason = done.reason if done else ""
    model, usage = (done.model, done.usage) if done else ("", None)
    if blank(text):
        if heard.cut:
            failed = THOUGHT_TOO_LONG if reasoning else EMPTY
        else:
            failed = _NOTHING.get(reason) or (ONLY_THOUGHT if reasoning and reasoning.strip() else EMPTY)
        log.warning("empty answer", reason=reason, thought=len(reasoning or ""))
        return Outcome(reason=reason, failed=failed, reasoning=reasoning, model=model, usage=usage)
    note = CUT_BY_US if heard.cut else _NOTES.get(reason, "")
    return Outcome(text=text, reason=reason, note=note, interrupted=bool(note), reasoning=reasoning, model=model, usage=usage)


def _joined(parts: list[str]) -> str | None:
    return "".join(parts) if parts else None


# ------------------------------------------------------------------------------------------------------------- what a person would see

_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")
_INVISIBLE = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp", "Cs", "Cn"})
_FILLERS = "\u115f\u1160\u2800\u3164\uffa0\ufe0f\u034f"
"""Invisible, although their category says that they are letters, signs or marks."""
_EMPHASIS = "*_~"


def _visible(c: str) -> bool:
    return not c.isspace() and c not in _FILLERS and unicodedata.category(c) not in _INVISIBLE


def _begins(text: str) -> bool:
    """Whether an answer has certainly begun: emphasis marks alone may still be around nothing."""
    return any(c not in _EMPHASIS and _visible(c) for c in text)


def blank(text: str) -> bool:
    """Whether a person would see nothing: space, zero-width and other invisible characters, or emphasis marks around nothing."""
    if _begins(text):
        return False
    marks = sum(map(text.count, _EMPHASIS))
    return marks == 0 or marks >= 4  # fewer may be the answer itself
