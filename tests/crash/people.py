"""People with tempers: some wait for each answer, some do not; some get long answers, some steer, by words, buttons or slash commands."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence

from tests.crash.account import Account
from tests.crash.networks import OnDiscord, OnTelegram, Place
from tests.crash.talk import Said, Talk, within
from tests.fakes.discord_world import DEFAULT_USER

ALL = "fork reset switch undo retry stop sessions"
FORUM = -1001000000001
FIRST_CHAT, FIRST_USER = 100, 700_000_000_000_003_000
STRANGERS, ADMIN = 900_000, 899_999
"""Telegram chats: strangers' from the first on, and that of the bot's admin."""
NEWCOMERS = 700_000_000_000_900_000
"""People on Discord who speak once."""
CODE = re.compile(r"within the hour: ([0-9A-Z]{4,})")


class Person:
    """One person. `bursts`: how many things are said in a row without waiting."""

    def __init__(
        self,
        talk: Talk,
        place: Place,
        dice: random.Random,
        *,
        bursts: int = 1,
        long: bool = False,
        commands: str = "",
        ways: str = "words",
        pause: float = 0.3,
    ) -> None:
        """`commands`: which ones, as words of `_command`; "" for none. `ways`: how they are given. `pause`: seconds between bursts, at
        most."""
        self.talk, self.place, self.dice = talk, place, dice
        self._bursts, self.long, self.commands, self._pause = bursts, long, commands.split(), pause
        self.ways = ways.split()
        self._names = ["main"]
        self._said: list[Said] = []

    async def talks(self, ending: asyncio.Event) -> None:
        """Until it is ending."""
        while not await within(ending, self.dice.uniform(0, self._pause)):
            last: Said | None = None
            for _ in range(self.dice.randint(1, self._bursts)):
                if self.commands and self.dice.random() < 0.45:
                    self.steer()
                else:
                    last = self.talk.ask(self.place, long=self.long and self.dice.random() < 0.6)
                    self._said.append(last)
                    if self._bursts > 1 and self.dice.random() < 0.15:
                        self.talk.edit(last)
            if last is not None and self.dice.random() < 0.8:
                await self.talk.wait(last, 10.0)

    def steer(self, way: str = "") -> None:
        """Give a command, one way or another."""
        way, command = way or self.dice.choice(self.ways), self._command()
        said: Said | None = None
        if way == "button":
            said = self.talk.press(self.place, f"/switch {self.dice.choice(self._names[-4:])}")
        network = self.talk.networks[self.place.network]
        if way == "slash" and isinstance(network, OnDiscord) and network.told:
            said = self.talk.slash(self.place, command)
        self._said.append(said or self.talk.say(self.place, command))

    def forget(self) -> Said:
        """All of it."""
        self._names = ["main"]
        said = self.talk.say(self.place, "/forget yes")
        self._said.append(said)
        return said

    def forget_one(self) -> Said:
        """A conversation that is not the current one; one that does not exist where there is no other. Only where nothing is lost."""
        account = Account(self._said) if self._said else None
        others = sorted(set(account.books) - {account.current}) if account else []
        if account and account.current and not others:
            others = [account.current]
            self._said.append(self.talk.say(self.place, f"/fork f{len(self.talk.said)}"))
        said = self.talk.say(self.place, f"/forget {self.dice.choice(others or ['nothing'])} yes")
        self._said.append(said)
        return said

    def _command(self) -> str:
        kind = self.dice.choice(self.commands)
        if kind == "fork":
            name = f"f{len(self.talk.said)}"
            if self.dice.random() < 0.2:
                name = self.dice.choice(self._names)  # one that may be there already
            self._names.append(name)
            return f"/fork {name}"
        if kind == "switch":
            return f"/switch {self.dice.choice([*self._names[-4:], 'main', 'chat-2', 'nowhere'])}"
        return f"/{kind}"


class Crowd:
    """Everybody, on both networks, and who may speak."""

    def __init__(self, talk: Talk, seed: str, chats: int) -> None:
        """`chats`: direct chats on each network that there is."""
        self.talk = talk
        self.people: list[Person] = []
        self.forgetful: list[Person] = []
        self._dice = random.Random(f"{seed} crowd")
        self._seed = seed
        self._pause = max(0.5, chats * len(talk.networks) / 10)
        self._strangers = self._newcomers = 0
        for name in talk.networks:
            for number in range(chats):
                self._direct(name, number)
        tg, dc = talk.networks.get("telegram"), talk.networks.get("discord")
        if isinstance(tg, OnTelegram):
            tg.tg.chat(FORUM, is_forum=True)
            tg.tg.admin(FORUM, 901)
            self._add(Place("telegram", FORUM, 11, 901), bursts=3)
            self._add(Place("telegram", FORUM, 11, 902), bursts=3)
            self._add(Place("telegram", FORUM, 12, 901), bursts=2, commands=ALL)
            self._add(Place("telegram", FORUM, 12, 902))
        if isinstance(dc, OnDiscord):
            channel = dc.dc.channel(dc.dc.guild())
            self._add(Place("discord", channel, user=DEFAULT_USER), bursts=2)
            self._add(Place("discord", channel, user=FIRST_USER))

    def _add(self, place: Place, **temper: object) -> Person:
        person = Person(self.talk, place, random.Random(f"{self._seed} {place}"), pause=self._pause, **temper)  # type: ignore[arg-type]
        self.people.append(person)
        return person

    def _direct(self, network: str, number: int) -> None:
        """One of ten tempers."""
        place = Place(network, FIRST_CHAT + number)
        slash = "words button slash"
        if isinstance(dc := self.talk.networks[network], OnDiscord):
            place = Place(network, dc.dc.dm(FIRST_USER + number))
        match number % 10:
            case 0 | 1:
                self._add(place)
            case 2:
                self._add(place, bursts=5)
            case 3:
                self._add(place, bursts=2, long=True)
            case 4 | 5:
                self._add(place, bursts=4, commands=ALL, ways="words words button" if network == "telegram" else "words")
            case 6:
                self._add(place, bursts=3, long=True, commands=ALL)
            case 7:
                self.forgetful.append(self._add(place, bursts=3, commands="fork fork reset switch undo retry stop"))
            case 8:
                self._add(place, bursts=2, commands=ALL, ways=slash if network == "discord" else "words")
            case _:
                self._add(
                    place, bursts=3, commands="retry undo stop", long=network == "telegram", ways=slash if network == "discord" else "words"
                )

    def rules(self) -> str:
        """The config's table of who may speak."""
        direct = [person.place for person in self.people if person.place.chat > 0]
        allow = [f"telegram:{place.chat}" for place in direct if place.network == "telegram"]
        allow += [f"discord:{FIRST_USER + number}" for number in range(len(direct))]
        allow += [f"discord:{NEWCOMERS + number}" for number in range(300)]
        return f'groups = "open"\nadmins = ["telegram:{ADMIN}"]\nallow = {allow}'

    # ------------------------------------------------------------------------------------------------------- those who come and go

    async def stranger(self) -> None:
        """Somebody unknown writes, is let in by the admin, and talks. Gives up where the code was lost with a kill."""
        place = Place("telegram", STRANGERS + self._strangers)
        self._strangers += 1
        network = self.talk.networks["telegram"]
        self.talk.say(place, "hello", stranger=True)

        def code() -> str:
            found = CODE.search("".join(self.talk.visible(place)))
            return found[1] if found else ""

        try:
            shown = await network.wait_for(code, 30, place)
            admin = Place("telegram", ADMIN)
            self.talk.say(admin, f"/approve {shown}")
            await network.wait_for(lambda: any(str(place.chat) in text for text in self.talk.visible(admin)), 30, admin)
        except AssertionError:
            return
        await self.talk.wait(self.talk.ask(place), 30)

    def newcomer(self) -> None:
        """Somebody on Discord says one thing in a chat that nobody knew; the daemon must be listening."""
        dc = self.talk.networks["discord"]
        assert isinstance(dc, OnDiscord)
        if self.connected() and self._newcomers < 300:
            self.talk.ask(Place("discord", dc.dc.dm(NEWCOMERS + self._newcomers)), passing=True)
            self._newcomers += 1

    def connected(self) -> bool:
        """Somebody listens on Discord."""
        dc = self.talk.networks["discord"]
        return isinstance(dc, OnDiscord) and bool(dc.dc.gateway.live)

    def slash(self) -> None:
        """Somebody uses Discord's menu."""
        able = [person for person in self.people if "slash" in person.ways]
        if able:
            self._dice.choice(able).steer("slash")

    def long(self, network: str) -> list[Said]:
        """Those who like long answers there ask for one each."""
        return [person.talk.ask(person.place, long=True) for person in self.people if person.long and person.place.network == network][:5]

    def forget(self) -> None:
        """One of the forgetful deletes everything."""
        self._dice.choice(self.forgetful).forget()

    def forget_one(self) -> None:
        """One of the forgetful deletes one conversation."""
        self._dice.choice(self.forgetful).forget_one()


def quiet(people: Sequence[Person]) -> list[Said]:
    """Each says one thing: the first of all, which a network that lists no direct chats must have told while somebody listens."""
    return [person.talk.ask(person.place) for person in people]
