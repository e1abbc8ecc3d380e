"""Commands about whole sessions: /reset /fork /sessions /switch /forget. Names that people give are names, never paths."""

from __future__ import annotations

from channels.base import Button, SessionInfo
from gateway.commands.base import Call, Command, When
from gateway.errors import NoSession, SessionExists, Told
from gateway.inbox import ReplyText
from gateway.message import NAME
from gateway.naming import slug

FORGOTTEN = "All conversations of this chat are deleted."
MOST_BUTTONS = 12
MOST_LISTED = 50
_WORDS = frozenset({"yes", "no"})


async def reset(call: Call) -> ReplyText:
    """A new session; the old one stays and is named. An untouched session is left as it is."""
    old = call.opened().name
    if not call.opened().turns and not (call.effect and call.effect.created):
        return ReplyText("This is a new conversation already: nothing was said in it yet.")
    if call.effect and call.effect.created:
        new = call.effect.created
        await call.house.sessions.switch(call.key, new, for_=call.input_id)
        old = call.effect.session
    else:
        await call.house.sessions.begin(call.key, for_=call.input_id)
    return ReplyText(
        f"A new conversation. The old one is kept as `{old}`: /switch {old} takes you back.", (Button(f"Back to {old}", f"/switch {old}"),)
    )


async def fork(call: Call) -> ReplyText:
    """A new session equal to this one, and the chat goes on in it."""
    parent = call.opened()
    if call.effect and call.effect.created:
        name, old = call.effect.created, call.effect.session
        await call.house.sessions.switch(call.key, name, for_=call.input_id)
    else:
        taken = {info.name for info in await call.house.sessions.sessions(call.key)}
        title = " ".join(call.argument.split())
        name = slug(title) if title else _numbered(parent.name, taken)
        if name in _WORDS:
            raise Told(f"`{name}` is a word that /forget takes for an answer. Please give the copy another name.")
        if name in taken:
            raise Told(f"There is a session `{name}` already. /switch {name} goes there, or fork under another name.")
        old = parent.name
        while True:
            try:
                await call.house.sessions.fork(parent, name, title=title, for_=call.input_id)
                break
            except SessionExists:  # one that cannot be read, so that it is in no list
                if title:
                    raise Told(f"There is a session `{name}` already. Please give the copy another name.") from None
                taken.add(name)
                name = _numbered(parent.name, taken)
    return ReplyText(
        f"You are now in `{name}`, a copy of `{old}` up to here; `{old}` stays as it is: /switch {old} takes you back. "
        "What tools did outside the conversation is not undone.",
        (Button(f"Back to {old}", f"/switch {old}"),),
    )


def _numbered(name: str, taken: set[str]) -> str:
    stem = name[:34]
    return next(candidate for n in range(2, 10**6) if (candidate := f"{stem}-{n}") not in taken)


async def sessions(call: Call) -> ReplyText:
    """The list, as the tree that forks make."""
    infos = await call.house.sessions.sessions(call.key)
    if not infos:
        return ReplyText("No conversation yet. Just write.")
    shown = infos[-MOST_LISTED:]
    lines = [f"{'  ' * depth}- `{info.name}`{_title(info)}{' (here)' if info.current else ''}" for depth, info in _tree(shown)]
    if len(shown) < len(infos):
        lines.append(f"\n{len(infos) - len(shown)} older ones are not listed.")
    others = [info.name for info in reversed(shown) if not info.current][:MOST_BUTTONS]
    return ReplyText("\n".join(lines), tuple(Button(name, f"/switch {name}") for name in others))


def _title(info: SessionInfo) -> str:
    return f" {info.title}" if info.title and info.title != info.name else ""


def _tree(infos: list[SessionInfo]) -> list[tuple[int, SessionInfo]]:
    names = {info.name for info in infos}
    children: dict[str, list[SessionInfo]] = {}
    for info in infos:
        children.setdefault(info.parent if info.parent in names else "", []).append(info)
    out: list[tuple[int, SessionInfo]] = []
    waiting = [(0, info) for info in reversed(children.get("", []))]
    while waiting:
        depth, info = waiting.pop()
        out.append((depth, info))
        waiting.extend((depth + 1, child) for child in reversed(children.get(info.name, [])))
    return out


async def switch(call: Call) -> ReplyText:
    if not call.argument:
        raise Told("Which one? /sessions lists them, /switch NAME goes there.")
    names = _names(call.argument)
    for name in names:
        try:
            await call.house.sessions.switch(call.key, name, for_=call.input_id)
        except NoSession:
            continue
        return ReplyText(f"You are now in `{name}`.")
    raise Told(f"There is no session `{names[0]}`. /sessions lists them.")


def _names(argument: str) -> list[str]:
    """Names that could be meant: as typed, then what /fork makes of it. Nothing else ever reaches the store."""
    return list(dict.fromkeys([*([argument] if NAME.fullmatch(argument) else []), slug(argument)]))


def _confirmed(argument: str) -> bool:
    return argument.lower().split()[-1:] == ["yes"]


def _forget_timing(argument: str) -> When:
    """The question comes at once, the deletion in its place."""
    return When.CUT if _confirmed(argument) else When.NOW


async def forget(call: Call) -> ReplyText:
    """Deletes for good, after a word or a button."""
    words = call.argument.split()
    sure = _confirmed(call.argument)
    what = " ".join(words[:-1] if sure else words)
    if words and words[-1].lower() == "no":
        return ReplyText("Nothing was deleted.")
    if not what:
        if not sure:
            return ReplyText(
                "This deletes all conversations of this chat for good, with their files. Say `/forget yes` or press the button. "
                "/reset starts anew and keeps them.",
                (Button("Delete everything", "/forget yes"), Button("Keep", "/forget no")),
            )
        await call.house.sessions.forget(call.key)
        await call.house.forget_inputs(call.key)
        return ReplyText(FORGOTTEN)
    names, there = _names(what), {info.name for info in await call.house.sessions.sessions(call.key)}
    name = next((name for name in names if name in there), names[0])
    if name not in there:
        if call.effect is not None and sure:  # met again after a crash: a deletion leaves nothing that would tell
            return ReplyText(f"`{name}` is deleted, or was never there.")
        raise Told(f"There is no session `{name}`. /sessions lists them.")
    if not sure:
        return ReplyText(
            f"This deletes `{name}` for good. Say `/forget {name} yes` or press the button.",
            (Button(f"Delete {name}"[:60], f"/forget {name} yes"), Button("Keep", "/forget no")),
        )
    await call.house.sessions.delete(call.key, name)
    return ReplyText(f"`{name}` is deleted.")


COMMANDS = (
    Command("reset", "start a new conversation; the old one is kept", When.CUT, reset, aliases=("new",)),
    Command("fork", "go on in a copy of this conversation", When.TURN, fork, usage="[name]"),
    Command("sessions", "list this chat's conversations", When.NOW, sessions),
    Command("switch", "go to another conversation", When.TURN, switch, usage="NAME", sessions=True),
    Command("forget", "delete conversations for good", _forget_timing, forget, usage="[NAME]", sessions=True),
)
