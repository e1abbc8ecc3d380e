"""What an input had already caused when the process died (architecture, step 7). Read at recovery only, by `gateway.sessions`."""

from __future__ import annotations

import msgspec

from gateway.errors import NoSession
from gateway.lines import UNREADABLE
from gateway.message import NAME, Again, Message, SessionKey, Undo, decode_event
from gateway.store.base import SessionLog


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. Every effect carries the id of its input, which is how it is found."""

    session: str
    """The session in which it was started."""
    gone: bool = False
    """That session does not exist any more; `question`, `answer`, `undone` and `retried` say nothing then."""
    question: Message | None = None
    """Its user line."""
    answer: Message | None = None
    """The newest answer to it, whether or not it still counts."""
    undone: Undo | None = None
    retried: Again | None = None
    created: str = ""
    """Another session that it made ("" if none). If `moved` is false, the pointer is still to be set: `switch` to it."""
    moved: str = ""
    """The session that it made current."""


async def effect(store: SessionLog, key: SessionKey, session_name: str, last_seq: int, input_id: str) -> Effect:
    """What the input did after it was started in `session_name` at `last_seq`. Only at recovery: it reads. Raises Corrupt, OSError."""
    gone = False
    question: Message | None = None
    answer: Message | None = None
    undone: Undo | None = None
    retried: Again | None = None
    try:
        lines = (await store.read(key, session_name, last_seq + 1)).lines if NAME.fullmatch(session_name) else []
        gone = not NAME.fullmatch(session_name)
    except NoSession:
        lines, gone = [], True
    for line in lines:
        try:
            event = decode_event(line)
        except UNREADABLE:
            continue
        if isinstance(event, Message) and (event.for_ == input_id or input_id in event.answers):
            if event.role == "user":
                question = event
            elif event.final:
                answer = event
        elif isinstance(event, Undo) and event.for_ == input_id:
            undone = event
        elif isinstance(event, Again) and event.for_ == input_id:
            retried = event
    made = [each.header.name for each in await store.sessions(key) if each.header.for_ == input_id]
    change = await store.find_chat(key, input_id)
    return Effect(
        session=session_name,
        gone=gone,
        question=question,
        answer=answer,
        undone=undone,
        retried=retried,
        created=next((name for name in made if name != session_name), ""),
        moved=change.current if change is not None else "",
    )
