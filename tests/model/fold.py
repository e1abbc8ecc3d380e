"""What a chat must look like, as a small model: sessions of lines, a pointer, and what each input does to them.

Pure; it shares nothing with the gateway but how names are made and the sentences that people read. Where a full disk leaves more than one
truth possible, it goes on with all of them until something that is seen tells which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from gateway.asking import BROKEN_OFF
from gateway.commands.base import parse
from gateway.commands.conversations import FORGOTTEN
from gateway.message import STOPPED
from gateway.naming import free_name, slug
from gateway.turn import EMPTY
from gateway.window import UNANSWERED
from gateway.work import ADMINS_ONLY, NOT_STORED
from tests.model.virtual import AGAIN, DOWN

NEW_ALREADY = "This is a new conversation already: nothing was said in it yet."
TAKEN_BACK = "Taken back: your last message and its answer."
NOTHING_BACK = "There is nothing to take back."
NOTHING_AGAIN = "There is nothing to ask again."
STEERING = frozenset({"reset", "new", "forget", "switch", "undo", "fork"})


@dataclass(frozen=True)
class Line:
    role: str
    text: str
    who: str = ""


@dataclass(frozen=True)
class Talk:
    """One session: the lines that count, and those that a fork takes along."""

    lines: tuple[Line, ...] = ()
    settled: tuple[Line, ...] = ()

    def question(self, text: str, who: str) -> Talk:
        return replace(self, lines=(*self.lines, Line("user", text, who)))

    def answer(self, text: str) -> Talk:
        lines = (*self.lines, Line("assistant", text))
        return Talk(lines, lines)

    def newest(self) -> int:
        """Where the newest turn starts; -1 if there is none."""
        return max((n for n, line in enumerate(self.lines) if line.role == "user"), default=-1)

    def undo(self) -> Talk:
        lines = self.lines[: self.newest()]
        return Talk(lines, lines)

    def again(self) -> Talk:
        return replace(self, lines=self.lines[: self.newest() + 1])


@dataclass(frozen=True)
class Chat:
    """One key: its sessions in the order in which they were made, and which one it talks in."""

    sessions: tuple[tuple[str, Talk], ...] = ()
    current: str = ""

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.sessions]

    @property
    def talk(self) -> Talk:
        return dict(self.sessions)[self.current]

    def now(self, talk: Talk) -> Chat:
        return replace(self, sessions=tuple((name, talk if name == self.current else old) for name, old in self.sessions))

    def made(self, name: str, talk: Talk, *, enter: bool = True) -> Chat:
        return Chat((*self.sessions, (name, talk)), name if enter else self.current)

    def without(self, name: str) -> Chat:
        left = tuple((each, talk) for each, talk in self.sessions if each != name)
        return Chat(left, "" if name == self.current else self.current)

    def opened(self) -> Iterator[Chat]:
        """What a turn may find: where the pointer leads nowhere, any session may have been the one used last."""
        if self.current:
            yield self
        elif not self.sessions:
            yield self.made("main", Talk())
        else:
            yield from (replace(self, current=name) for name in self.names)


def window(talk: Talk, most: int, *, names: bool) -> tuple[tuple[str, str], ...]:
    """The messages of the request that asks for an answer to the newest question."""
    lines = talk.lines
    start = newest = talk.newest()
    for index in range(newest - 1, -1, -1):
        if len(lines) - index > most:
            break
        start = index if lines[index].role == "user" else start
    out: list[tuple[str, str]] = []
    for line in lines[start:]:
        text = f"name of {line.who}: {line.text}" if names and line.role == "user" else line.text
        if out and out[-1][0] == line.role == "user":
            out[-1] = ("user", f"{out[-1][1]}\n\n{UNANSWERED}\n\n{text}")
        else:
            out.append((line.role, text))
    return tuple(out)


@dataclass(frozen=True)
class Given:
    """One input that was run in its place, and what was seen of it."""

    texts: tuple[str, ...]
    """What it may say: as it was written, then as it was edited."""
    who: str
    seen: str
    """What the chat shows in answer to it; "" if nothing."""
    may_say_nothing: bool = False
    killed: bool = False
    """What it says may have been sent by a life of which nobody knows that it sent it."""


class Fold:
    """`step` gives every state that an input can lead to from one, none if what was seen cannot have come of it. `asked` collects the
    requests that may have been made on the way."""

    def __init__(self, most: int, *, group: bool, admins: frozenset[str], meant: Mapping[str, str]) -> None:
        self._most, self._group, self._admins, self._meant = most, group, admins, meant
        self.asked: set[tuple[tuple[str, str], ...]] = set()

    def step(self, before: Chat, given: Given) -> set[Chat]:
        command = parse(given.texts[0])
        if command is None:
            if given.seen == NOT_STORED:
                # Not even begun, or begun and put down, or answered in vain.
                asked = {out for chat in before.opened() for text in given.texts for out in self._unanswered(chat, text, given.who)}
                return {before, *before.opened(), *asked}
            return {out for chat in before.opened() for text in given.texts for out in self._said(chat, text, given)}
        name, argument = command
        if self._group and name in STEERING and given.who not in self._admins:
            return {before} if given.seen == ADMINS_ONLY else set()
        handler: Callable[[Chat, str, Given], set[Chat]] = getattr(self, f"_{'reset' if name == 'new' else name}")
        return {out for chat in before.opened() for out in handler(chat, argument, given)} | (
            {before} if given.seen == NOT_STORED else set()
        )

    # ---------------------------------------------------------------------------------------------------------------- questions

    def _unanswered(self, chat: Chat, text: str, who: str) -> set[Chat]:
        talk = chat.talk.question(text, who)
        self.asked.add(window(talk, self._most, names=self._group))
        return {chat.now(talk)}

    def _said(self, chat: Chat, text: str, given: Given) -> set[Chat]:
        return self._answered(chat.now(chat.talk.question(text, given.who)), given)

    def _answered(self, asking: Chat, given: Given) -> set[Chat]:
        """After a question was put: what was seen is its answer, or why there is none."""
        talk, seen = asking.talk, given.seen
        self.asked.add(window(talk, self._most, names=self._group))
        if seen in {DOWN, EMPTY} or seen.startswith(AGAIN):
            return {asking}
        if not seen:
            # Stopped before a word of it was said, or before a word of it was sent.
            number = talk.lines[talk.newest()].text[1:]
            answers = [STOPPED, *(text for first, text in self._meant.items() if first.split()[0] == f"a{number}")]
            return {asking.now(talk.answer(text)) for text in answers} if given.may_say_nothing else set()
        if seen == STOPPED:  # somebody had to be told something: the network showed that the bot thinks
            return {asking.now(talk.answer(STOPPED))}
        text, _, note = seen.partition("\n\n")
        whole = self._meant.get(" ".join(text.split()[:2]), "")
        if text.split()[0][1:] != talk.lines[talk.newest()].text[1:] or not whole.startswith(text):
            return set()
        if not note:
            taken_back = {asking.now(talk.answer(STOPPED))} if given.may_say_nothing and given.killed else set()
            return {asking.now(talk.answer(text))} | taken_back if text == whole else set()
        if note in {STOPPED, f"({AGAIN} The answer is not complete.)", f"({BROKEN_OFF})"}:
            return {asking.now(talk.answer(text))}
        return set()

    # ----------------------------------------------------------------------------------------------------------------- commands

    def _reset(self, chat: Chat, argument: str, given: Given) -> set[Chat]:
        new = free_name(chat.names)
        if chat.talk.newest() < 0:
            return {chat} if given.seen in {NEW_ALREADY, NOT_STORED} else set()
        if given.seen == NOT_STORED:
            return {chat, chat.made(new, Talk(), enter=False)}
        old = chat.current
        said = f"A new conversation. The old one is kept as `{old}`: /switch {old} takes you back."
        return {chat.made(new, Talk())} if given.seen == said else set()

    def _fork(self, chat: Chat, argument: str, given: Given) -> set[Chat]:
        old, title = chat.current, " ".join(argument.split())
        name = slug(title) if title else next(f"{old[:34]}-{n}" for n in range(2, 10**6) if f"{old[:34]}-{n}" not in chat.names)
        if name in {"yes", "no"}:
            return {chat} if "is a word that /forget takes" in given.seen or given.seen == NOT_STORED else set()
        if name in chat.names:
            said = f"There is a session `{name}` already. /switch {name} goes there, or fork under another name."
            return {chat} if given.seen in {said, NOT_STORED} else set()
        copies = {Talk(lines, lines) for lines in self._copies(chat.talk.settled)}
        if given.seen == NOT_STORED:
            return {chat, *(chat.made(name, talk, enter=False) for talk in copies)}
        right = given.seen.startswith(f"You are now in `{name}`, a copy of `{old}` up to here;")
        return {chat.made(name, talk) for talk in copies} if right else set()

    def _copies(self, lines: tuple[Line, ...]) -> Iterator[tuple[Line, ...]]:
        """What a fork may hold: where the newest answer is one that was cut while it was being sent, the copy may have been made before."""
        yield lines
        if len(lines) > 1 and lines[-1].role == "assistant":
            number, text = lines[-2].text[1:], lines[-1].text
            for first, whole in self._meant.items():
                if first.split()[0] == f"a{number}" and (text == STOPPED or whole.startswith(text)) and whole != text:
                    yield (*lines[:-1], Line("assistant", whole))

    def _switch(self, chat: Chat, argument: str, given: Given) -> set[Chat]:
        name = slug(argument) if argument else ""
        if not argument:
            said = "Which one? /sessions lists them, /switch NAME goes there."
        elif name not in chat.names:
            said = f"There is no session `{name}`. /sessions lists them."
        else:
            said = f"You are now in `{name}`."
        if given.seen == NOT_STORED:
            return {chat}
        if given.seen != said:
            return set()
        return {replace(chat, current=name)} if name in chat.names else {chat}

    def _undo(self, chat: Chat, argument: str, given: Given) -> set[Chat]:
        there = chat.talk.newest() >= 0
        if given.seen == NOT_STORED:
            return {chat}
        if given.seen != (TAKEN_BACK if there else NOTHING_BACK):
            return set()
        return {chat.now(chat.talk.undo())} if there else {chat}

    def _retry(self, chat: Chat, argument: str, given: Given) -> set[Chat]:
        if chat.talk.newest() < 0:
            return {chat} if given.seen in {NOTHING_AGAIN, NOT_STORED} else set()
        asking = chat.now(chat.talk.again())
        if given.seen == NOT_STORED:
            self.asked.add(window(asking.talk, self._most, names=self._group))
            return {chat, asking}
        return self._answered(asking, given)

    def _forget(self, chat: Chat, argument: str, given: Given) -> set[Chat]:
        """With a last word that is yes; the question comes past the queue."""
        what = " ".join(argument.split()[:-1])
        if not what:
            return {Chat()} if given.seen == FORGOTTEN else {chat, Chat()} if given.seen == NOT_STORED else set()
        name = slug(what)
        again = f"`{name}` is deleted, or was never there."  # met again after a crash
        if name not in chat.names:
            return {chat} if given.seen in {f"There is no session `{name}`. /sessions lists them.", again, NOT_STORED} else set()
        if given.seen == NOT_STORED:
            return {chat, chat.without(name)}
        return {chat.without(name)} if given.seen in {f"`{name}` is deleted.", again} else set()
