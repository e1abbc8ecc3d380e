"""Whether what came of it is something that the model allows: what each chat shows, what the files hold, what the language model was asked.

Called when it has become quiet. What was checked once is not looked at again; what it may have come to is remembered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from channels.base import Address, Inbound
from gateway.commands.base import When
from gateway.commands.conversations import FORGOTTEN
from gateway.commands.table import find
from gateway.message import SessionKey
from gateway.outbox import MARK, PLACEHOLDER
from gateway.records import Accepted, Refused
from gateway.segments import scan
from gateway.work import NOT_STORED
from tests.gateway.core import Core
from tests.model.fold import Chat, Fold, Given, Line
from tests.model.virtual import WORD, Memory, World

CHATS = ["1", "2", "3"]
GROUP = "3"
ADMINS = frozenset({"1"})
CUTS = re.compile(r"/(stop|reset|new|forget(\s.*)?\syes)", re.IGNORECASE)
"""What ends a turn before its time."""
NOW = {
    "stop": r"Stopped\.|Nothing is running\.",
    "sessions": r"(?s)No conversation yet.*|\s*- `.*",
    "help": r"(?s)Write to me.*",
    "status": r"(?s)- Session: .*",
    "whoami": r"You are `net:.*",
    "start": r"(?s)Hello\..*",
    "forget": r"(?s)This deletes .*|There is no session .*|Nothing was deleted\.|In a group only its admins may do that\.",
}

DOOR = r"\d+ messages wait here already.*|Yes\? Write your question in the same message\.|There is no command /nonsense\. .*"

Taken: TypeAlias = Accepted | Refused
Shown: TypeAlias = dict[str, list[str]]
"""What a chat shows in answer to each input."""


@dataclass
class Put:
    """Something that a person wrote."""

    inbound: Inbound
    texts: list[str]
    acknowledged: bool = False


@dataclass
class Known:
    """A chat, as far as it was checked."""

    upto: int = 0
    """The last input of it, by its number in the journal."""
    may_be: set[Chat] = field(default_factory=lambda: {Chat()})


def words(text: str) -> set[int]:
    """The numbers of the words in it: each is said in one chat only."""
    return {int(number) for _, number in WORD.findall(text)}


class Judge:
    """`most`: messages in a window. `puts`: everything that was written, by id."""

    def __init__(self, most: int, memory: Memory, puts: Mapping[str, Put]) -> None:
        self._most, self._memory, self._puts = most, memory, puts
        self._known = {chat: Known() for chat in CHATS}
        self._kills = 0

    async def check(self, core: Core, world: World, kills: int) -> None:
        self._kills = kills
        records: list[Taken] = [
            record
            for path in sorted((core.folder / "journal").glob("*.jsonl"))
            for record in scan(path, tell=False)
            if isinstance(record, Accepted | Refused)
        ]
        assert [id_ for id_, number in Counter(record.id for record in records).items() if number > 1] == [], "taken twice"
        others = {
            id_ for id_, put in self._puts.items() if put.inbound.text == "/nonsense" and not put.inbound.ticket and not put.inbound.direct
        }
        assert {record.id for record in records} == set(self._puts) - others, "taken and not on record"
        for chat in CHATS:
            mine = sorted((record for record in records if record.inbound.address.chat == chat), key=lambda each: each.n)
            await self._chat(core, world, chat, mine)

    async def _chat(self, core: Core, world: World, chat: str, records: Sequence[Taken]) -> None:
        known, shown = self._known[chat], self._shown(world, chat)
        mine = {number for record in records for number in self._numbers(record.id)}
        assert {number for texts in shown.values() for text in texts for number in words(text)} <= mine, "another chat's words are shown"
        new = self._after_what_was_forgotten(known, [record for record in records if record.n > known.upto], shown)
        fold = Fold(self._most, group=chat == GROUP, admins=ADMINS, meant=self._memory.meant)
        for place, record in enumerate(new):
            cut = any(CUTS.fullmatch(self._puts[other.id].inbound.text) for other in new[place + 1 :])
            self._input(known, fold, record, shown.get(record.id, []), cut, any(FORGOTTEN in texts for texts in shown.values()))
        if records:
            known.upto = records[-1].n
        lines, current = await self._on_disk(core, chat)
        same = {may for may in known.may_be if {name: talk.lines for name, talk in may.sessions} == lines and may.current in {"", current}}
        assert same, f"on disk, in {current}: {lines}; it can only be one of {known.may_be}"
        known.may_be = same
        self._requests(fold, mine, {number for record in new for number in self._numbers(record.id)})
        self._files(core, chat, mine, records, shown)

    def _shown(self, world: World, chat: str) -> Shown:
        shown: Shown = {}
        for input_id, text in world.said(Address("net", chat)):
            if text not in {PLACEHOLDER.text, MARK.text}:
                shown.setdefault(input_id, []).append(text)
        for input_id, texts in shown.items():
            most = 1 + (self._kills if not world.streams or not WORD.match(texts[0]) else 0)
            assert len(texts) <= most, f"{input_id} is answered {len(texts)} times: {texts}"
        return shown

    def _input(self, known: Known, fold: Fold, record: Taken, texts: list[str], cut: bool, forgotten: bool) -> None:
        put = self._puts[record.id]
        if isinstance(record, Refused) or record.reply is not None:
            self._at_the_door(record, texts)
            return
        command = find(put.inbound.text)
        if command and command[0].when(command[1]) is When.NOW:
            assert texts or (forgotten and self._kills), f"no word about {put.inbound.text}"  # it may have been blanked before it was sent
            assert all(re.fullmatch(NOW[command[0].name], text) for text in texts), (put.inbound.text, texts)
            if self._kills > 1:  # tried alone, and then in the queue, like a question
                known.may_be = {out for before in known.may_be for out in (before, *before.opened())}
            return
        seen = {NOT_STORED if text.startswith("I broke down") else text for text in texts} or {""}
        given = [Given(tuple(put.texts), put.inbound.sender.id, each, cut, self._kills > 0) for each in seen]
        after = {out for before in known.may_be for one in given for out in fold.step(before, one)}
        assert after, f"{record.id} {put.texts} cannot say {seen} after {known.may_be}"
        known.may_be = after

    def _at_the_door(self, record: Taken, texts: list[str]) -> None:
        if record.reply is not None and not record.reply.text:  # /forget blanked it
            assert all(re.fullmatch(DOOR, text) for text in texts), texts
        else:
            assert set(texts) == ({record.reply.text} if record.reply else set()), (record, texts)

    def _after_what_was_forgotten(self, known: Known, new: list[Taken], shown: Shown) -> list[Taken]:
        """After a crash nothing is said any more about what was forgotten before it was said; then nobody can tell what it was."""
        for place in range(len(new) - 1, -1, -1):
            if shown.get(new[place].id) == [FORGOTTEN]:
                if self._kills and any(record.id not in shown for record in new[:place]):
                    known.may_be = {Chat()}
                    return new[place + 1 :]
                break
        return new

    async def _on_disk(self, core: Core, chat: str) -> tuple[dict[str, tuple[Line, ...]], str]:
        """The lines of each session that count, and which one is current. What is in memory is the end of that."""
        key, found = SessionKey("net", chat), {}
        for info in await core.sessions.sessions(key):
            view = await core.sessions.view(key, info.name)
            held = (await core.sessions.glance(key, info.name)).messages
            assert list(held) == list(view.messages)[len(view.messages) - len(held) :], "memory and file differ"
            found[info.name] = tuple(Line(m.role, m.content or "", m.from_.id if m.from_ else "") for m in view.messages)
        return found, await core.sessions.peek(key)

    def _requests(self, fold: Fold, mine: set[int], new: set[int]) -> None:
        for number, request in self._memory.asked:
            if number in mine:
                assert number not in new or request in fold.asked, f"nobody could ask {request}"
                assert words(str(request)) <= mine, "another chat's words are in a request"

    def _files(self, core: Core, chat: str, mine: set[int], records: Sequence[Taken], shown: Shown) -> None:
        """No file of the chat has a word of another one, none at all has one that was forgotten."""
        for path in (core.folder / "sessions").rglob(f"*/{chat}/*.jsonl"):
            assert words(path.read_text()) <= mine, f"another chat's words are in {path}"
        ends = [place for place, record in enumerate(records) if FORGOTTEN in shown.get(record.id, ())]
        gone = {number for record in records[: ends[-1] if ends else 0] for number in self._numbers(record.id)}
        for path in core.folder.rglob("*.[jt]*") if gone else ():  # lines, and torn ones
            assert not words(path.read_text()) & gone, f"what is forgotten is in {path}"

    def _numbers(self, input_id: str) -> set[int]:
        put = self._puts[input_id]
        return words(" ".join((put.inbound.text, *put.texts)))
