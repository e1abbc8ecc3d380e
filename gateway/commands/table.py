"""All commands by name, and /help, which lists them."""

from __future__ import annotations

from channels.base import CommandInfo
from gateway.commands import about, admission, conversations, exchanges
from gateway.commands.base import Call, Command, When, parse
from gateway.inbox import ReplyText


async def _help(call: Call) -> ReplyText:
    lines = [f"- /{c.name}{' ' + c.usage if c.usage else ''}: {c.hint}" for c in COMMANDS if call.admin or not c.admin]
    return ReplyText("Write to me and a language model answers. Besides:\n\n" + "\n".join(lines))


COMMANDS: tuple[Command, ...] = (
    *about.COMMANDS[:1],
    Command("help", "this list", When.NOW, _help),
    *conversations.COMMANDS,
    *exchanges.COMMANDS,
    *about.COMMANDS[1:],
    *admission.COMMANDS,
)

BY_NAME: dict[str, Command] = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}

MENU: tuple[CommandInfo, ...] = tuple(CommandInfo(c.name, c.hint, c.usage, c.sessions) for c in COMMANDS if not c.admin)


def find(text: str) -> tuple[Command, str] | None:
    """The command that a text is, with its argument; None for anything else, unknown commands included."""
    parsed = parse(text)
    command = BY_NAME.get(parsed[0]) if parsed else None
    return (command, parsed[1]) if parsed and command else None
