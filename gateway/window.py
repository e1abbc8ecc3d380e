"""What of a session goes into a model request: the newest turns that fit, in a form that the strictest model server accepts.

The window is always legal (architecture, rule 9), whatever is in the file:

- it starts at a user message; roles alternate, a tool group (an assistant message with calls, then exactly its results) being the model's;
- every call has its result and every result its call: a call that hangs in the air is answered as interrupted, a result without its call
  is left out, ids that occur twice are made different;
- neighbouring user messages become one, and so do neighbouring answers; a user line that nobody answered is marked, so that the model does
  not answer it now; where a turn ended after a tool, an assistant message says that no answer was given;
- no message is empty; what was seen of an interrupted answer is in, our own notes under an answer are not;
- the system text is the first message and the only one of its kind; it carries the summary.

Both budgets hold. `messages` counts session lines. `tokens` counts everything but the configured system text, estimated without a
tokenizer: UTF-8 bytes / 3, rounded up, and 4 a message. (English has 4 to 4.5 bytes a token, most other scripts 3 or more; dense code and
emoji can have less: a server that says "too long" is asked again with half.) The newest turn is kept even where it breaks a budget:
its tool results are shortened first, then the summary is left out, then `TooLong` is raised. The cost of a window depends on its size,
never on the session's length.

Pure. Called by the runner; `cost` also by `gateway.sessions`, so that a session holds what a window can need.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from gateway.errors import ParlourError
from gateway.message import ChatMessage, Media, Message, Request, ToolCall
from gateway.session import Session

INTERRUPTED = "interrupted, unknown whether it ran"
UNANSWERED = "[The message above was cancelled or failed; no answer was given.]"
NO_ANSWER = "[No answer was given.]"
NO_TEXT = "[no text]"
NO_OUTPUT = "[no output]"
SUMMARY = "Summary of the conversation so far:\n"

LEAST_RESULT = 64
"""Tokens that a shortened tool result keeps at least; if that is still too much, the turn is too long."""


class TooLong(ParlourError):
    """The newest turn does not fit, however much is left out. `said` is what the person reads."""

    said = "That is more than I can take in at once; please send it shorter or in parts."

    def __init__(self, tokens: int, budget: int) -> None:
        super().__init__(f"the newest turn takes {tokens} tokens (estimated) of {budget}")
        self.tokens, self.budget = tokens, budget


def build(session: Session, *, system: str, messages: int, tokens: int, names: bool = False) -> Request:
    """The request that asks for an answer to the session's newest turn.

    `messages` and `tokens` are the budgets (see the module). `names`: several people write here, so each user message says whose it is.
    Raises TooLong, and ValueError where no user line counts, so that there is nothing to answer.
    """
    held = session.messages
    summary = session.summary
    told, covered = (SUMMARY + summary.content, summary.upto) if summary is not None else ("", 0)
    newest, start = _choose(held, session.costs, messages, tokens - (estimate(told) if told else 0), covered)
    body = _render(held[start:], newest - start, names)
    if start == newest:
        body, told = _fit(body, told, tokens)
    text = "\n\n".join(part for part in (system, told) if part.strip())
    head = (ChatMessage("system", text),) if text else ()
    return Request((*head, *body))


def _choose(held: Sequence[Message], costs: Sequence[int], messages: int, tokens: int, covered: int) -> tuple[int, int]:
    """Where the newest turn starts, and the earliest user line from which everything fits."""
    newest = start = -1
    total = 0
    for index in range(len(held) - 1, -1, -1):
        message = held[index]
        total += costs[index]
        if newest >= 0 and (len(held) - index > messages or total > tokens or message.seq <= covered):
            break
        if message.role == "user":
            start = index
            newest = index if newest < 0 else newest
    if newest < 0:
        raise ValueError("no user line counts: there is nothing to answer")
    return newest, start


# ----------------------------------------------------------------------------------------------------------------------------- tokens


def estimate(text: str) -> int:
    """Tokens of a text, from above."""
    return (_bytes(text) + 2) // 3


def cost(message: Message) -> int:
    """Tokens that a session line takes in a window, from above: what `build` may add around it (a name, a mark, an answer for a call that
    has none) included."""
    if message.role == "user":
        author = message.from_.id + message.from_.name if message.from_ is not None else ""
        return 4 + estimate(_user_text(message, "") + author) + estimate(UNANSWERED) + 8
    if message.role == "tool":
        return 6 + estimate(message.content or "") + estimate(NO_OUTPUT) + estimate(message.tool_call_id)
    total = 4 + estimate(message.content or "") + 1
    if message.tool_calls:
        total += 8 + estimate(NO_ANSWER) + estimate(message.reasoning or "")
    return total + sum(_call_cost(call) + 10 + estimate(INTERRUPTED) + estimate(call.id) for call in message.tool_calls)


def request_tokens(messages: Iterable[ChatMessage]) -> int:
    """What the messages of a request take."""
    return sum(
        4
        + sum(estimate(text) for text in (message.content, message.tool_call_id, message.reasoning) if text)
        + sum(map(_call_cost, message.tool_calls))
        for message in messages
    )


def _call_cost(call: ToolCall) -> int:
    return 4 + estimate(call.id) + estimate(call.name) + (len(msgspec.json.encode(call.arguments)) + 2) // 3


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# ---------------------------------------------------------------------------------------------------------------------------- messages


def _render(lines: Sequence[Message], newest: int, names: bool) -> list[ChatMessage]:
    """Request messages for session lines that start at a user line; `newest` is where the newest turn starts."""
    out: list[ChatMessage] = []
    labels = _labels(lines) if names else {}
    answered: set[str] | None = None
    asked_by = ""
    used: set[str] = set()
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        if line.role == "user":
            text = _user_text(line, labels[line.from_.id] if labels and line.from_ is not None else "")
            if out and out[-1].role == "user":
                if answered is None:
                    answered = {input_id for line in lines if line.final for input_id in line.answers}
                mark = "" if asked_by in answered else f"{UNANSWERED}\n\n"
                out[-1] = ChatMessage("user", f"{out[-1].content}\n\n{mark}{text}")
            else:
                if out and out[-1].role == "tool":
                    out.append(ChatMessage("assistant", NO_ANSWER))
                out.append(ChatMessage("user", text))
            asked_by = line.for_
        elif line.tool_calls:
            results: list[Message] = []
            while index < len(lines) and lines[index].role == "tool":
                results.append(lines[index])
                index += 1
            reasoning = line.reasoning if index > newest else None
            _say(out, line.content or "", reasoning, *_pair(line.tool_calls, results, used))
        elif line.role == "assistant" and (line.content or "").strip():
            if out and out[-1].role == "assistant":
                _say(out, line.content or "", None, (), ())
            else:
                out.append(ChatMessage("assistant", line.content))
    return out


def _say(out: list[ChatMessage], content: str, reasoning: str | None, calls: tuple[ToolCall, ...], results: Iterable[ChatMessage]) -> None:
    """Append what the model said; to its last message where that was no tool call, so that no two of them stand side by side."""
    if out and out[-1].role == "assistant":
        before = out.pop().content or ""
        content = f"{before}\n\n{content}" if content.strip() else before
    out.append(ChatMessage("assistant", content if content.strip() else None, tool_calls=calls, reasoning=reasoning))
    out.extend(results)


def _pair(calls: Sequence[ToolCall], results: Sequence[Message], used: set[str]) -> tuple[tuple[ToolCall, ...], list[ChatMessage]]:
    """Each call with exactly one result, in the order of the calls, under an id that the request has only once."""
    waiting: dict[str, list[Message]] = {}
    for result in results:
        waiting.setdefault(result.tool_call_id, []).append(result)
    paired: list[ToolCall] = []
    answers: list[ChatMessage] = []
    for call in calls:
        found = waiting.get(call.id)
        content = INTERRUPTED if not found else found.pop(0).content or ""
        own = _unused(call.id, used)
        paired.append(call if own == call.id else msgspec.structs.replace(call, id=own))
        answers.append(ChatMessage("tool", content if content.strip() else NO_OUTPUT, tool_call_id=own))
    return tuple(paired), answers


def _unused(name: str, used: set[str]) -> str:
    own, n = name or "call", 1
    while own in used:
        n += 1
        own = f"{name or 'call'}-{n}"
    used.add(own)
    return own


def _user_text(line: Message, name: str) -> str:
    """What the model reads of a user line: the quoted words marked as quoted, attachments mentioned, the author in front."""
    if not (line.quote or line.media or name) and line.content and not line.content.isspace():
        return line.content  # as nearly all of them are: a window has hundreds
    parts = []
    if line.quote.strip():
        parts.append("[In reply to this:]\n" + "\n".join(f"> {row}" for row in line.quote.splitlines()))
    parts.extend(map(attached, line.media))
    if (line.content or "").strip():
        parts.append(line.content or "")
    text = "\n\n".join(parts) or NO_TEXT
    return f"{name}: {text}" if name else text


def attached(media: Media) -> str:
    """A file as the model reads it: its words between fences that are not in them, or that it is there and not shown."""
    if not media.text:
        return f"[{_mention(media)}, not shown{media.unread and ': '}{media.unread}]"
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", media.text)), default=0))
    end = "only its beginning is above, the rest was cut off" if media.cut else "that was all of it"
    return f"[Attached {_mention(media)}:]\n{fence}\n{media.text}\n{fence}\n[End of {_mention(media)}; {end}.]"


def _mention(media: Media) -> str:
    name = " ".join(media.name.split())[:80]
    return f"{media.kind} {name}" if name else media.kind


def _labels(lines: Iterable[Message]) -> dict[str, str]:
    """How each person is called. Names are chosen by people: where two in the window share one, their ids tell them apart."""
    people = {line.from_.id: " ".join(line.from_.name.split())[:64] for line in lines if line.from_ is not None}
    shared = Counter(name.casefold() for name in people.values())
    return {
        person: f"user {person}" if not name else f"{name} ({person})" if shared[name.casefold()] > 1 else name
        for person, name in people.items()
    }


# --------------------------------------------------------------------------------------------------------------------- making it fit


def _fit(body: list[ChatMessage], told: str, budget: int) -> tuple[list[ChatMessage], str]:
    """The newest turn alone, made to fit: its tool results are shortened, at last the summary goes. Raises TooLong."""
    for summary in (told, "") if told else ("",):
        room = budget - (estimate(summary) if summary else 0)
        over = request_tokens(body) - room
        if over <= 0:
            return body, summary
        shorter = _shorten(body, over)
        if shorter is not None:
            return shorter, summary
    raise TooLong(request_tokens(body), budget)


def _shorten(body: list[ChatMessage], over: int) -> list[ChatMessage] | None:
    """Take `over` tokens out of the tool results, from the longest; None if that much is not in them."""
    sizes = sorted(estimate(message.content or "") for message in body if message.role == "tool")
    room = sum(sizes) - over
    most = -1
    for index, size in enumerate(sizes):
        share = room // (len(sizes) - index)
        if size > share:
            most = share
            break
        room -= size
    if most < LEAST_RESULT:
        return None
    return [
        msgspec.structs.replace(message, content=shorten(message.content, most)) if message.role == "tool" and message.content else message
        for message in body
    ]


def shorten(text: str, tokens: int) -> str:
    """Begin and end of a text, with a word about what is missing between them; at most `tokens` by estimate."""
    if estimate(text) <= tokens:
        return text
    raw = text.encode("utf-8", "surrogatepass")
    room = tokens * 3 - 60  # the word about it takes up to that
    head, tail = raw[: room * 2 // 3], raw[len(raw) - (room - room * 2 // 3) :]
    begin, end = head.decode("utf-8", "ignore"), tail.decode("utf-8", "ignore")
    return f"{begin}\n[... {len(text) - len(begin) - len(end)} characters left out ...]\n{end}"
