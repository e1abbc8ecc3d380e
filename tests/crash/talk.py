"""All that is said: by people, and by a model whose answers say what they answer.

Every question has a tag of its own ("w12x"), every answer a label ("w12x.2": the second one given to that question) in each of its
paragraphs, and the word "end" at its end. So whatever is visible, asked or on disk tells by itself where it belongs. What ought to come of
it all is `tests.crash.account`'s. Knows the fakes and nothing of Parlour but its commands.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.crash.networks import Network, OnDiscord, Place
from tests.fakes.openai import DONE, Asked, End, FakeModel, Reply, Step, delta, refuses

TAG = re.compile(r"\bw\d+x\b")
LABEL = re.compile(r"\bw\d+x\.\d+\b")
WINDOW = 60
SESSIONS = f"history_messages = {WINDOW}\nhistory_tokens = 10000000\nwaiting = 1000"
"""For the config: the window is known, and nothing is refused."""


@dataclass(frozen=True)
class Said:
    """One thing that a person said."""

    id: str
    """The input's, as it is on record."""
    place: Place
    text: str
    tag: str = ""
    """"" for a command."""
    fails: bool = False
    """The model's server will not take it."""
    stranger: bool = False
    """Its author is not let in yet."""
    passing: bool = False
    """The network does not keep it: a slash command or a press on Discord that nobody hears is lost there, and its author sees it. So are
    the first words in a direct chat: nothing lists those."""
    slash: bool = False
    at: float = field(default_factory=time.monotonic)


class Talk:
    """All that is said by people and by the model, in order."""

    def __init__(self, networks: Mapping[str, Network], model: FakeModel, *, delay: float = 0.02) -> None:
        self.networks, self.model, self.delay = networks, model, delay
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

    def say(self, place: Place, text: str, *, tag: str = "", fails: bool = False, stranger: bool = False, passing: bool = False) -> Said:
        """A message or a command."""
        return self._note(Said(self.networks[place.network].say(place, text), place, text, tag, fails, stranger, passing))

    def ask(self, place: Place, *, long: bool = False, fails: bool = False, passing: bool = False) -> Said:
        """A question that occurs once in the world."""
        tag = f"w{len(self.said)}x"
        if long:
            self._long.add(tag)
        if fails:
            self._failing.add(tag)
        return self.say(place, f"{tag} what now", tag=tag, fails=fails, passing=passing)

    def slash(self, place: Place, text: str) -> Said:
        """A command by Discord's menu."""
        network = self.networks[place.network]
        assert isinstance(network, OnDiscord)
        return self._note(Said(network.slash(place, text), place, text, passing=True, slash=True))

    def press(self, place: Place, text: str) -> Said | None:
        """A button that says this; None where there is none."""
        number = self.networks[place.network].press(place, text)
        return None if number is None else self._note(Said(number, place, text, passing=place.network == "discord"))

    def edit(self, said: Said) -> None:
        """Its author changes a question, which keeps its tag."""
        self.edited[said.id] = f"{said.tag} what then"
        self.networks[said.place.network].edit(said.place, said.id, self.edited[said.id])

    def _note(self, said: Said) -> Said:
        self.said.append(said)
        return said

    def texts(self, said: Said) -> set[str]:
        """What it may be on record as."""
        return {said.text, self.edited.get(said.id, said.text)}

    def visible(self, place: Place) -> list[str]:
        """The bot's texts there."""
        return [text for _, text in self.networks[place.network].messages(place)]

    def answered(self, said: Said) -> bool:
        """Whether the person sees something that looks like the end of an answer to this."""
        texts = [text for text in self.visible(said.place) if f"{said.tag}." in text]
        return any(text.endswith(("end", "(stopped)")) for text in texts)

    async def wait(self, said: Said, seconds: float) -> bool:
        """Until it is answered, at most so long: people do not wait for ever."""
        try:
            await self.networks[said.place.network].wait_for(lambda: self.answered(said), seconds, said.place)
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


async def within(event: asyncio.Event, seconds: float) -> bool:
    """Whether it happens within that time."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
