"""Puts an OpenAI-style answer together: chunks in, parts out. Pure; knows no socket and no SSE framing.

Takes what servers really send: chunks without choices, deltas that are null, content as a list of parts, usage anywhere, tool calls without
an index or an id, a whole answer in one object, characters that are cut in two. Refuses what would be a wrong answer: an error object
anywhere, content that is no text, a chunk that is cut short, an end that is none.
Called by `gateway.backends.openai` (bytes) and `gateway.backends.local` (the same chunks, decoded).
"""

from __future__ import annotations

import json
from typing import Literal, TypeAlias

import msgspec
import structlog

from gateway.backends import faults
from gateway.backends.base import Done, Part, Reasoning
from gateway.backends.calls import CallDelta, Calls
from gateway.backends.think import Thoughts
from gateway.errors import BackendError
from gateway.message import ToolCall, Usage, clean

log = structlog.get_logger(__name__)

Reason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]

_REASONS: dict[str, Reason] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "content_filtered": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "prohibited_content": "content_filter",
}
"""What servers call it; whatever else they say is "stop"."""
_FAILED = frozenset({"error", "abort", "aborted", "cancelled", "insufficient_system_resource"})
"""Reasons that are no end of an answer."""


class _Delta(msgspec.Struct):
    content: object = None
    reasoning_content: object = None
    reasoning: object = None
    refusal: object = None
    tool_calls: list[CallDelta] | None = None


class _Choice(msgspec.Struct):
    index: object = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: object = None
    error: object = None


class Chunk(msgspec.Struct):
    """One event's data. Fields that are read leniently are `object`; a type that is wrong elsewhere is a broken answer."""

    choices: list[_Choice | None] | None = None
    usage: object = None
    model: object = None
    error: object = None
    kind: object = msgspec.field(default=None, name="object")
    message: object = None


class _Counts(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


_decode = msgspec.json.Decoder(Chunk).decode


class Answer:
    """One answer as it grows. `feed` events' data, look at `over`, then `finish`; all raise BackendError where it is not going well."""

    __slots__ = ("_calls", "_high", "_model", "_reason", "_said_whole", "_thought", "_thoughts", "_usage", "growth", "over")

    def __init__(self) -> None:
        self.growth = 0
        """Deltas with anything in them so far: the sign that the model is alive, which comments and empty deltas are not."""
        self.over = False
        """`[DONE]` came: nothing more is to be read."""
        self._thoughts = Thoughts()
        self._high = ""  # the first half of a character whose second half is in the next delta
        self._thought = False
        self._said_whole = False  # a message instead of deltas
        self._calls = Calls()
        self._reason: Reason | None = None
        self._model = ""
        self._usage: Usage | None = None

    @property
    def complete(self) -> bool:
        """The model said that it is done; what may still come is usage."""
        return self._reason is not None or self.over or self._said_whole

    def event(self, data: bytes, kind: str = "") -> list[Part]:
        """The data of one server-sent event."""
        text = data.strip()
        if kind == "error":
            raise faults.reported(_any(text))
        if not text or self.over:
            return []
        if text == b"[DONE]":
            self.over = True
            return []
        try:
            return self.feed(_decode(text))
        except msgspec.ValidationError:
            if text[:1] == b"{":
                raise BackendError(faults.NO_ANSWER, retryable=True, detail="a chunk with fields of a wrong type") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if text[:1] == b"{":
                return self._mend(text)
        # No object at all, so nothing of an answer can be lost with it: proxies send comments in the wrong place.
        log.warning("line of the model's stream skipped", size=len(text))
        return []

    def whole(self, body: bytes) -> list[Part]:
        """A body that is one JSON object instead of a stream: an error, or the whole answer."""
        parts = self.event(body)
        if not self.complete:
            raise BackendError(faults.NO_ANSWER, retryable=True, detail="a JSON body without an answer")
        return parts

    def _mend(self, text: bytes) -> list[Part]:
        """An object that the strict decoder does not take: half a surrogate pair or broken UTF-8 in it, or it is cut."""
        lines = text.split(b"\n")
        if len(lines) > 1 and all(line.startswith((b"{", b"[DONE]")) for line in lines):
            # A server that ends its events with one line feed instead of two.
            return [part for line in lines for part in self.event(line)]
        try:
            value = json.loads(text.decode("utf-8", "replace"))
            chunk = msgspec.convert(value, Chunk)
        except (ValueError, RecursionError):
            raise BackendError(faults.CUT, retryable=True, detail="a chunk that is not whole JSON") from None
        return self.feed(chunk)

    def feed(self, chunk: Chunk) -> list[Part]:
        """One chunk, or a whole answer."""
        if chunk.error:
            raise faults.reported(chunk.error)
        if chunk.kind == "error":
            raise faults.reported(chunk.message)
        if isinstance(chunk.model, str):
            self._model = clean(chunk.model[:200])
        if chunk.usage is not None:
            self._count(chunk.usage)
        parts: list[Part] = []
        for choice in chunk.choices or ():
            if choice is None or choice.index not in (None, 0):
                continue
            if choice.error:
                raise faults.reported(choice.error)
            delta = choice.delta or choice.message
            if delta is not None:
                self._take(delta, parts)
            self._said_whole |= choice.message is not None
            if choice.finish_reason:
                self._finished(choice.finish_reason)
        return parts

    def finish(self) -> list[Part]:
        """What is held back, then Done. The stream is at its end."""
        if not self.complete:
            raise BackendError(faults.CUT, retryable=True, detail="the stream ended without finish_reason and [DONE]")
        parts: list[Part] = []
        if self._high:
            parts += self._thoughts.feed("\N{REPLACEMENT CHARACTER}")
            self._high = ""
        parts += self._thoughts.finish()
        reason: Reason = self._reason or "stop"
        calls: tuple[ToolCall, ...] = ()
        if self._calls and reason in {"stop", "tool_calls"}:
            calls, reason = self._calls.whole(), "tool_calls"
        elif reason == "tool_calls":
            reason = "stop"
        # With any other reason the calls are not run: the last one may be cut, and the others may depend on it.
        parts.append(Done(reason=reason, tool_calls=calls, model=self._model, usage=self._usage))
        return parts

    # ------------------------------------------------------------------------------------------------------------------ one delta

    def _take(self, delta: _Delta, parts: list[Part]) -> None:
        thought = delta.reasoning_content if delta.reasoning_content is not None else delta.reasoning
        if isinstance(thought, str):
            self.growth += bool(thought)
            if thought or not self._thought:  # an empty one is a thought too, once: some servers want it back
                self._thought = True
                parts.append(Reasoning(clean(thought)))
        if delta.content is not None:
            self._content(delta.content, parts)
        if isinstance(delta.refusal, str) and delta.refusal:
            self._content(delta.refusal, parts)
        for call in delta.tool_calls or ():
            self.growth += 1
            self._calls.add(call)

    def _content(self, content: object, parts: list[Part]) -> None:
        if isinstance(content, str):
            if content:
                self.growth += 1
                parts += self._thoughts.feed(self._paired(content))
            return
        if not isinstance(content, list):
            raise BackendError(faults.NO_ANSWER, retryable=True, detail=f"content is a {type(content).__name__}")
        for part in content:
            if isinstance(part, str):
                self._content(part, parts)
            elif not isinstance(part, dict):
                raise BackendError(faults.NO_ANSWER, retryable=True, detail=f"a part of content is a {type(part).__name__}")
            elif part.get("type") in {"thinking", "reasoning"}:
                self.growth += 1
                parts.append(Reasoning(clean(_thought(part.get("thinking", part.get("text"))))))
            elif isinstance(text := part.get("text"), str):
                self._content(text, parts)

    def _paired(self, text: str) -> str:
        """Text without half characters: a first half at its end waits for the next delta."""
        if self._high:
            text, self._high = self._high + text, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        return clean(text)

    def _finished(self, said: object) -> None:
        word = said.lower() if isinstance(said, str) else ""
        if word in _FAILED:
            raise BackendError(faults.REPORTED, retryable=True, detail=f"finish_reason {faults.plain(word)}")
        self._reason = _REASONS.get(word, "stop")

    def _count(self, usage: object) -> None:
        try:
            counts = msgspec.convert(usage, _Counts, strict=False)
        except (msgspec.ValidationError, UnicodeError):
            return
        self._usage = Usage(max(0, counts.prompt_tokens or 0), max(0, counts.completion_tokens or 0))


def _thought(value: object) -> str:
    """The words of a thinking part: a string, or a list of text parts."""
    if isinstance(value, list):
        return "".join(_thought(part.get("text")) for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else ""


def _any(text: bytes) -> object:
    """The data of an error event: JSON, with the error inside or not, or plain words."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text.decode("utf-8", "replace")
    return value["error"] if isinstance(value, dict) and value.get("error") is not None else value
