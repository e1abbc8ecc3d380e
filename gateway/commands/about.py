"""Commands that only tell or stop: /start /help /whoami /status /stop. They pass the queue and change no session."""

from __future__ import annotations

from gateway.commands.base import Call, Command, When
from gateway.inbox import ReplyText


async def start(call: Call) -> ReplyText:
    return ReplyText("Hello. Write to me and a language model answers; it remembers this conversation.\n\n/help shows what else I can do.")


async def whoami(call: Call) -> ReplyText:
    role = "an admin of this bot" if call.admin else "a user of this bot"
    return ReplyText(f"You are `{call.key.channel}:{call.sender.id}`, {role}. This chat is `{call.key}`.")


async def status(call: Call) -> ReplyText:
    where = f"Session: `{call.current}`" if call.current else "Session: none yet"
    return ReplyText("\n".join(f"- {line}" for line in (where, *call.house.status(call.key))))


async def stop(call: Call) -> ReplyText:
    if call.running is None:
        return ReplyText("Nothing is running.")
    call.running.stop()
    await call.running.over()  # or a crash right after the word would bring the turn back
    return ReplyText("Stopped." if call.running.took() else "Nothing is running.")  # all of it was said already


COMMANDS = (
    Command("start", "say hello", When.NOW, start),
    Command("stop", "stop the answer that is being written", When.NOW, stop),
    Command("status", "what runs here, and how it is", When.NOW, status),
    Command("whoami", "your id and this chat's", When.NOW, whoami),
)
