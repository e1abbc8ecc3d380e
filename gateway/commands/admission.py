"""The command of the daemon's admins: /approve lets a person in by the code that they were shown."""

from __future__ import annotations

from gateway.commands.base import Call, Command, When
from gateway.errors import Told
from gateway.inbox import ReplyText


async def approve(call: Call) -> ReplyText:
    if not call.argument:
        raise Told("Which code? /approve CODE.")
    person = await call.house.access.approve(call.argument.strip(), by=f"{call.key.channel}:{call.sender.id}")
    return ReplyText(f"`{person}` may talk to me now.")


COMMANDS = (Command("approve", "let a person in by their code", When.NOW, approve, usage="CODE", admin=True),)
