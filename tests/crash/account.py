"""What ought to come of a talk: a small model of conversations, written without a look at the product's.

`Account` goes through what was said to one key, in order, and says which sessions there must be, with which events, what the model must
have been asked with, and what the person must see. `tests.crash.audit` compares that with the world.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.crash.talk import Said

ASIDE = {
    "/stop": re.compile(r"Stopped\.|Nothing is running\."),
    "/sessions": re.compile(r"([ •◦▪-] *\S+( .*)?\n?)+|No conversation yet\. Just write\."),
    "/approve": re.compile(r"(telegram|discord):\d+ may talk to me now\."),
}
"""Commands that pass the queue, and what may be said to them: it may stand anywhere."""


@dataclass(frozen=True)
class Turn:
    """A question that counts, and the input that its newest answer was given to."""

    question: Said
    answer: str


@dataclass
class Book:
    """One session: the turns that count, and its events as (kind, input id)."""

    made_by: str
    parent: str = ""
    turns: list[Turn] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Seen:
    """What the person is to see of one input: the answer to `question`, or a text that begins with `text`."""

    input: Said
    question: Said | None = None
    text: str = ""
    again: str = ""
    """What the text may be instead, where a kill came in between."""
    optional: bool = False
    """It may be missing: deleted by /forget before it was out."""


class Account:
    """The books of one key."""

    def __init__(self, said: Sequence[Said]) -> None:
        """`said`: what the house heard, in order; what the network lost is left out."""
        self.said = said
        self.books: dict[str, Book] = {}
        self.current = ""
        self.before: dict[str, list[Turn]] = {}
        """Tag -> the turns that the request for this question carries."""
        self.seen: list[Seen] = []
        self.asides: dict[str, list[Said]] = {command: [] for command in ASIDE}
        self.moved: dict[str, str] = {}
        """Input -> the session that it made current."""
        self.made_main: set[str] = set()
        """Inputs that made the first session of all."""
        self.forgotten: set[str] = set()
        """Tags of which no file may tell any more."""
        self.cutters: list[int] = []
        """Places in `said` of what may cut a turn."""
        self.turns: list[tuple[int, str]] = []
        """Place in `said` and input id of everything that had the model asked."""
        for index, one in enumerate(said):
            self._one(index, one)

    @property
    def folder(self) -> str:
        return self.said[0].place.folder

    def _book(self, one: Said) -> Book:
        if not self.current:
            self._make("main", Book(one.id))
            self.made_main.add(one.id)
        return self.books[self.current]

    def _make(self, name: str, book: Book) -> None:
        self.books[name] = book
        self.current = name

    def _one(self, index: int, one: Said) -> None:
        if one.stranger:
            self.seen.append(Seen(one, text="I talk only to people whom my operator has let in."))
            return
        command, _, argument = one.text.partition(" ")
        if command in self.asides:
            self.asides[command].append(one)
            if command == "/stop":
                self.cutters.append(index)
            return
        book = self._book(one)
        if one.tag:
            self.before[one.tag] = list(book.turns)
            if one.fails:  # nothing is asked behind it in this test, so that it need not be known what becomes of it
                book.events.append(("user", one.id))
                self.seen.append(Seen(one, text="The model's server did not accept the request."))
                return
            book.turns.append(Turn(one, one.id))
            book.events += [("user", one.id), ("assistant", one.id)]
            self.turns.append((index, one.id))
            self.seen.append(Seen(one, one))
            return
        seen = getattr(self, f"_{command[1:]}")(index, one, book, argument)
        self.seen.append(seen)

    def _fork(self, index: int, one: Said, book: Book, name: str) -> Seen:
        if name in self.books:
            return Seen(one, text=f"There is a session {name} already.")
        old = self.current
        self._make(name, Book(one.id, old, list(book.turns), list(book.events)))
        self.moved[one.id] = name
        return Seen(one, text=f"You are now in {name}, a copy of {old} up to here;")

    def _reset(self, index: int, one: Said, book: Book, argument: str) -> Seen:
        self.cutters.append(index)
        if not book.turns:
            return Seen(one, text="This is a new conversation already:")
        old = self.current
        numbers = [int(found[1]) for name in self.books if (found := re.fullmatch(r"chat-(\d+)", name))]
        self._make(f"chat-{max([1, *numbers]) + 1}", Book(one.id))
        self.moved[one.id] = self.current
        return Seen(one, text=f"A new conversation. The old one is kept as {old}:")

    def _switch(self, index: int, one: Said, book: Book, name: str) -> Seen:
        if name not in self.books:
            return Seen(one, text=f"There is no session {name}.")
        self.current = name
        self.moved[one.id] = name
        return Seen(one, text=f"You are now in {name}.")

    def _undo(self, index: int, one: Said, book: Book, argument: str) -> Seen:
        if not book.turns:
            return Seen(one, text="There is nothing to take back.")
        book.turns.pop()
        book.events.append(("undo", one.id))
        return Seen(one, text="Taken back: your last message and its answer.")

    def _retry(self, index: int, one: Said, book: Book, argument: str) -> Seen:
        if not book.turns:
            return Seen(one, text="There is nothing to ask again.")
        question = book.turns[-1].question
        book.turns[-1] = Turn(question, one.id)
        book.events += [("retry", one.id), ("assistant", one.id)]
        self.turns.append((index, one.id))
        return Seen(one, question)

    def _forget(self, index: int, one: Said, book: Book, argument: str) -> Seen:
        name, _, sure = argument.rpartition(" ")
        assert sure == "yes"
        self.cutters.append(index)
        if name:
            return self._forget_one(one, name)
        self.books, self.current = {}, ""
        self.moved.clear()
        self.forgotten |= {each.tag for each in self.said[:index] if each.tag}
        self.seen = [replace(each, optional=True) for each in self.seen]
        return Seen(one, text="All conversations of this chat are deleted.")

    def _forget_one(self, one: Said, name: str) -> Seen:
        assert name != self.current  # what comes of that depends on when which file was written last
        if name not in self.books:
            return Seen(one, text=f"There is no session {name}.", again=f"{name} is deleted, or was never there.")
        gone = {input_id for _, input_id in self.books.pop(name).events}
        self.seen = [replace(each, optional=each.optional or each.input.id in gone) for each in self.seen]
        return Seen(one, text=f"{name} is deleted.", again=f"{name} is deleted, or was never there.")
