"""A chat request as it looks on the wire, and what the strictest providers say to one that is not legal. Used by the fake model server."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class Call(msgspec.Struct, frozen=True):
    id: str
    function: Function
    type: str = "function"


class AskedMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message as it came over the wire."""

    role: str
    content: str | list[object] | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None


class Body(msgspec.Struct, frozen=True):
    model: str
    messages: list[AskedMessage]
    stream: bool = False
    stream_options: dict[str, bool] | None = None
    temperature: float | None = None
    max_tokens: int | None = None


def fault(messages: Sequence[AskedMessage]) -> str:
    """What the strictest provider says to this conversation, in the providers' words; "" if nothing."""
    if not messages:
        return "[] is too short - 'messages'"
    body = messages[1:] if messages[0].role == "system" else messages
    open_calls: list[str] = []
    known: set[str] = set()
    before = ""
    for index, message in enumerate(body):
        if message.role not in {"user", "assistant", "tool"}:
            return "System message must be at the beginning." if message.role == "system" else f"Invalid value: '{message.role}'."
        if open_calls and message.role != "tool":
            return (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
                f"The following tool_call_ids did not have response messages: {', '.join(open_calls)}"
            )
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                return "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
            open_calls.remove(message.tool_call_id or "")
        elif before in {"", "tool"} and message.role == "user" and index:
            return "Unexpected role 'user' after role 'tool'"
        elif not index and message.role != "user":
            return "First message must use the 'user' role."
        elif message.role == before:
            return "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."
        if message.role != "tool" and not message.tool_calls and not (message.content and str(message.content).strip()):
            return f"messages.{index}: all messages must have non-empty content"
        for call in message.tool_calls or ():
            if call.id in known or not call.id:
                return f"messages.{index}: `tool_use` ids must be unique"
            try:
                msgspec.json.decode(call.function.arguments, type=dict[str, object])
            except msgspec.DecodeError:
                return f"messages.{index}.tool_calls: arguments must be a JSON object"
            known.add(call.id)
            open_calls.append(call.id)
        before = message.role
    if body and body[-1].role == "assistant":
        return "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"
    return "" if body else "messages: at least one message is required"
