"""People who talk and steer without mercy, and a model whose answers say what they answer: what the kill tests are made of.

Every question has a tag of its own ("w12x"), every answer a label ("w12x.2": the second one given to that question) in each of its
paragraphs, and the word "end" at its end. So whatever is visible, asked or on disk tells by itself where it belongs. What ought to come of
it all is `tests.flow.account`'s. Knows the fakes and nothing of Parlour but its commands.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from tests.fakes.openai import DONE, Asked, End, FakeModel, Reply, Step, delta, refuses
from tests.fakes.telegram import FakeTelegram
from tests.fakes.telegram_rules import Json

TAG = re.compile(r"\bw\d+x\b")
LABEL = re.compile(r"\bw\d+x\.\d+\b")
WHOLE = "history_messages = 100000\nhistory_tokens = 10000000\nwaiting = 1000"
"""For the config: requests carry all that counts, and nothing is refused."""
BOT = 7
"""The bot's id, by the token of the tests."""


@dataclass(frozen=True)
class Place:
    """Where a person talks: a chat, or a topic of one."""

    chat: int
    thread: int = 0
    user: int = 0
    """Who, in a group."""

    @property
    def folder(self) -> str:
        return f"{self.chat}:{self.thread}" if self.thread else f"{self.chat}"


@dataclass(frozen=True)
class Said:
    """One message of a person's."""

    id: str
    """The input's, as it is on record."""
    place: Place
    text: str
    tag: str = ""
    """"" for a command."""
    fails: bool = False
    """The model's server will not take it."""


class Talk:
    """All that is said by people and by the model, in order."""

    network: ClassVar[str] = "telegram"
    bot: ClassVar[int] = BOT

    def __init__(self, tg: FakeTelegram, model: FakeModel, *, delay: float = 0.02) -> None:
        self.tg, self.model, self.delay = tg, model, delay
        self.said: list[Said] = []
        self.edited: dict[str, str] = {}
        """Input -> what its author made of it later; it counts if it came while the message still waited."""
        self.given: dict[str, list[str]] = defaultdict(list)
        """Tag -> the answers that the model gave or began to give, each as a whole."""
        self.on_ask: asyncio.Event = asyncio.Event()
        """Set at each request."""
        self.hang: dict[str, int] = {}
        """Tag -> after how many steps the next answer to it falls silent for ever."""
        self.silent: set[str] = set()
        """Tags of the answers that did."""
        self._long: set[str] = set()
        self._failing: set[str] = set()
        model.script(self._answer)

    # ---------------------------------------------------------------------------------------------------------------------- people

    def say(self, place: Place, text: str, *, tag: str = "", fails: bool = False) -> Said:
        """A message or a command; in a group the bot is addressed."""
        if place.chat < 0:
            words = text if text.startswith("/") else f"@{self.tg.username} {text}"
            number = self.tg.say(place.chat, words, thread=place.thread or None, user=place.user)
        else:
            number = self.tg.say(place.chat, text)
        said = Said(f"{self.network}:{self.bot}:{place.chat}:{number}", place, text, tag, fails)
        self.said.append(said)
        return said

    def ask(self, place: Place, *, long: bool = False, fails: bool = False) -> Said:
        """A question that occurs once in the world."""
        tag = f"w{len(self.said)}x"
        if long:
            self._long.add(tag)
        if fails:
            self._failing.add(tag)
        return self.say(place, f"{tag} what now", tag=tag, fails=fails)

    def edit(self, said: Said) -> None:
        """Its author changes a question, which keeps its tag."""
        self.edited[said.id] = f"{said.tag} what then"
        words = f"@{self.tg.username} {self.edited[said.id]}" if said.place.chat < 0 else self.edited[said.id]
        self.tg.edit(said.place.chat, int(said.id.rpartition(":")[2]), words)

    def texts(self, said: Said) -> set[str]:
        """What it may be on record as."""
        return {said.text, self.edited.get(said.id, said.text)}

    def answered(self, said: Said) -> bool:
        """Whether the person sees something that looks like the end of an answer to this."""
        texts = [text for text in self.tg.visible(said.place.chat, said.place.thread) if f"{said.tag}." in text]
        return any(text.endswith(("end", "(stopped)")) for text in texts)

    async def wait(self, said: Said, seconds: float) -> bool:
        """Until it is answered, at most so long: people do not wait for ever."""
        try:
            await self.tg.wait_for(lambda: self.answered(said), seconds, chat=said.place.chat)
        except AssertionError:
            return False
        return True

    # ----------------------------------------------------------------------------------------------------------------------- model

    def _answer(self, asked: Asked) -> Reply:
        tags = TAG.findall(asked.words)
        if not tags:
            return Reply([delta("I was asked nothing that I know. end"), delta(finish="stop"), DONE])
        tag = tags[-1]
        if tag in self._failing:
            return refuses(400, "no")
        label = f"{tag}.{len(self.given[tag]) + 1}"
        # The second answer is the shortest one, so that messages that the first one took up are left over.
        count = (10, 4, 7)[len(self.given[tag]) % 3] if tag in self._long else 1
        size = 900 if tag in self._long else 8
        paragraphs = [f"{label} p{n} " + ("word " * (size // 5)).strip() for n in range(count)]
        text = "\n\n".join(paragraphs) + " end"
        self.given[tag].append(text)
        self.on_ask.set()
        chunks = [paragraphs[0]] + [f"\n\n{paragraph}" for paragraph in paragraphs[1:]] + [" end"]
        steps: list[Step] = [delta("", role="assistant")]
        for chunk in chunks:
            steps += (self.delay, delta(chunk))
        steps += (self.delay, delta(finish="stop"), DONE)
        return Reply(self._until(tag, steps, self.hang.pop(tag)) if tag in self.hang else steps)

    def _until(self, tag: str, steps: list[Step], number: int) -> Iterator[Step]:
        yield from steps[:number]
        self.silent.add(tag)
        yield End.HANG


def nth(number: int) -> Callable[[Json], bool]:
    """For a planned fault: it strikes at the call with this number, from 0."""
    left = [number]

    def strikes(_: Json) -> bool:
        left[0] -= 1
        return left[0] < 0

    return strikes


async def within(event: asyncio.Event, seconds: float) -> bool:
    """Whether it happens within that time."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


class Person:
    """One person with a temper. `bursts`: how many things are said in a row without waiting."""

    def __init__(self, talk: Talk, place: Place, dice: random.Random, *, bursts: int = 1, long: bool = False, commands: str = "") -> None:
        """`commands`: which ones, as words of `_command`; "" for none."""
        self.talk, self.place, self.dice = talk, place, dice
        self._bursts, self._long, self._commands = bursts, long, commands.split()
        self._names = ["main"]

    async def talks(self, ending: asyncio.Event, steps: int) -> None:
        """At most so many bursts, until it is ending."""
        for _ in range(steps):
            if ending.is_set():
                return
            last: Said | None = None
            for _ in range(self.dice.randint(1, self._bursts)):
                if self._commands and self.dice.random() < 0.45:
                    self.talk.say(self.place, self._command())
                else:
                    last = self.talk.ask(self.place, long=self._long and self.dice.random() < 0.6)
                    if self._bursts > 1 and self.dice.random() < 0.15:
                        self.talk.edit(last)
            if last is not None and self.dice.random() < 0.8:
                await self.talk.wait(last, 3.0)
            else:
                await within(ending, self.dice.uniform(0, 0.3))

    def _command(self) -> str:
        kind = self.dice.choice(self._commands)
        if kind == "fork":
            name = f"f{len(self.talk.said)}"
            if self.dice.random() < 0.2:
                name = self.dice.choice(self._names)  # one that may be there already
            self._names.append(name)
            return f"/fork {name}"
        if kind == "switch":
            return f"/switch {self.dice.choice([*self._names[-4:], 'main', 'chat-2', 'nowhere'])}"
        if kind == "forget":
            self._names = ["main"]
            return "/forget yes"
        return f"/{kind}"
