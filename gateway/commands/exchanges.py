"""Commands about the newest exchange: /undo /retry."""

from __future__ import annotations

import asyncio

from gateway.commands.base import Ask, Call, Command, When
from gateway.errors import Told
from gateway.inbox import ReplyText
from gateway.message import Again, Undo


async def undo(call: Call) -> ReplyText:
    """Takes the newest question and its answer out of what the model sees; the file keeps them."""
    session = call.opened()
    if not (call.effect and call.effect.undone):
        target = session.undo_target()
        if target is None:
            raise Told("There is nothing to take back.")
        await asyncio.shield(call.house.sessions.commit(session, Undo(seq=0, at="", for_=call.input_id, to=target)))
    return ReplyText("Taken back: your last message and its answer.")


async def retry(call: Call) -> ReplyText | Ask:
    """Asks the newest question again; the old answer no longer counts."""
    session = call.opened()
    question = session.question()
    if question is None:
        raise Told("There is nothing to ask again.")
    if not (call.effect and call.effect.retried):
        await asyncio.shield(call.house.sessions.commit(session, Again(seq=0, at="", for_=call.input_id, of=question.seq)))
        await call.house.sessions.refresh(session)  # what was taken back may leave the window short
    return Ask(question)


COMMANDS = (
    Command("undo", "take back your last message and its answer", When.TURN, undo),
    Command("retry", "have your last message answered again", When.TURN, retry, asks=True),
)
