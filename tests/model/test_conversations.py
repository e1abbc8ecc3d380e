"""Router, runners, inbox, sessions and lanes together against a small model (`fold`), in virtual time (`virtual`).

People write, edit, repeat, steer and stop at any moment; the network and what answers are slow and fail; the disk fills up and is emptied;
the daemon ends in order, or dies between any two steps and starts from what its files hold. Whenever it has become quiet, what every chat
shows, what the files hold and what was asked of the language model must be something that the small model allows.

`PARLOUR_MODEL=5000 .venv/bin/python -m pytest -q tests/model --timeout=0` is the long form.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from channels.base import TICKET, Address, Inbound, NotSent, Retry, Sender
from gateway.commands.base import When
from gateway.commands.conversations import FORGOTTEN
from gateway.commands.table import find
from gateway.message import SessionKey
from gateway.outbox import MARK, PLACEHOLDER
from gateway.records import Accepted, Refused
from gateway.segments import scan
from gateway.work import NOT_STORED
from tests.gateway.core import Core
from tests.gateway.outbox_net import Slow
from tests.model.fold import Chat, Fold, Given, Line
from tests.model.virtual import BASE, WORD, Loop, Memory, Plan, RoughWriter, Voice, World

T = TypeVar("T")
CHATS = ["1", "2", "3"]
GROUP = "3"
ADMINS = {"1"}
CUTS = re.compile(r"/(stop|reset|new|forget(\s.*)?\syes)", re.IGNORECASE)

PLANS = st.sampled_from(
    [
        Plan(),
        Plan(),
        Plan(parts=3, between=0.4),
        Plan(before=2.0),
        Plan(parts=4, before=0.3, between=1.5),
        Plan(end="down"),
        Plan(end="flaky"),
        Plan(parts=2, end="break"),
        Plan(end="empty"),
    ]
)
COMMANDS = st.sampled_from(
    [
        *("/fork", "/fork west", "/fork East!", "/fork yes", "/reset", "/new", "/undo", "/undo", "/retry", "/retry", "/stop", "/stop"),
        *("/switch", "/switch main", "/switch west", "/switch chat-2", "/switch nowhere", "/sessions", "/help", "/status", "/whoami"),
        *("/forget", "/forget yes", "/forget west", "/forget west yes", "/forget main yes", "/forget no", "/start", "/nonsense", " "),
    ]
)
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


@dataclass
class Put:
    """Something that a person wrote."""

    inbound: Inbound
    texts: list[str]
    acknowledged: bool = False


@dataclass
class Offer:
    """A batch that a channel hands over."""

    batch: list[Inbound]
    task: asyncio.Task[None]
    edit: str = ""
    """The new text, where it is the edit of a message that was acknowledged before."""


@dataclass
class Known:
    """A chat, as far as it was checked."""

    upto: int = 0
    """The last input of it, by its number in the journal."""
    may_be: set[Chat] = field(default_factory=lambda: {Chat()})


class Conversations(RuleBasedStateMachine):
    """See the module."""

    @initialize(
        streams=st.booleans(),
        cache=st.sampled_from([3000, 10**8]),
        most=st.sampled_from([3, 6, 200]),
        state_lines=st.sampled_from([4, 1000]),
        rotate=st.sampled_from([2000, 10**7]),
        waiting=st.sampled_from([4, 50]),
        lane=st.sampled_from([2, 100]),
    )
    def begin(self, streams: bool, cache: int, most: int, state_lines: int, rotate: int, waiting: int, lane: int) -> None:
        self.loop = Loop()
        self.root = Path(tempfile.mkdtemp(prefix="parlour-model-"))
        self.memory = Memory()
        self.most = most
        self.house: Callable[..., Core] = partial(
            Core,
            writer=lambda: RoughWriter(self.loop.disk),
            clock=lambda: BASE + self.loop.time(),
            cache_bytes=cache,
            history_messages=most,
            state_lines=state_lines,
            rotate_bytes=rotate,
            waiting=waiting,
            lane_limit=lane,
        )
        self.lives = 0
        self.kills = 0
        self.world = World(units=4000, streams=streams, latency=0.1, admins=ADMINS)
        self.core = self.born(self.root / "0", self.world)
        self.puts: dict[str, Put] = {}
        self.offers: list[Offer] = []
        self.unheard: list[Inbound] = []
        self.known = {chat: Known() for chat in CHATS}
        self.words = 0
        self.run(self.core.start())

    def born(self, folder: Path, world: World) -> Core:
        self.voice = Voice(self.memory)
        self.lives += 1
        return self.house(folder, net=world, model=self.voice)

    def run(self, work: Coroutine[None, None, T]) -> T:
        result: T = self.loop.run_until_complete(work)
        self.heard()
        return result

    # -------------------------------------------------------------------------------------------------------------- what people do

    def word(self, plan: Plan) -> str:
        self.words += 1
        self.memory.plans[self.words] = plan
        return f"w{self.words}"

    def write(self, chat: str, who: str, text: str, *, ticket: bool = False) -> Inbound:
        number = len(self.puts) + 1
        input_id = f"net:7:{chat}:{number}"
        inbound = Inbound(
            id=input_id,
            address=Address("net", chat),
            sender=Sender(who, f"name of {who}"),
            text=text,
            direct=chat != GROUP,
            reply_to=input_id,
            ticket=TICKET + input_id if ticket else "",
        )
        self.puts[input_id] = Put(inbound, [text])
        return inbound

    def offer(self, batch: list[Inbound], edit: str = "") -> None:
        self.offers.append(Offer(batch, self.loop.create_task(self.core.router.accept(batch)), edit))

    def heard(self) -> None:
        """What became of the batches; one that was not taken is repeated by its network, some time."""
        for offer in [offer for offer in self.offers if offer.task.done()]:
            self.offers.remove(offer)
            if offer.task.cancelled() or offer.task.exception() is not None:
                assert offer.task.cancelled() or isinstance(offer.task.exception(), OSError)
                self.unheard += [inbound for inbound in offer.batch if inbound.kind != "edit"]
                continue
            for inbound in offer.batch:
                self.puts[inbound.id].acknowledged = True
            if offer.edit:
                pending = self.core.inbox.pending(offer.batch[0].id)
                if pending is not None and not pending.attempts and pending.reply is None:
                    self.puts[offer.batch[0].id].texts = [offer.edit]  # it waits, so the edit holds

    @rule(chat=st.sampled_from(CHATS), who=st.sampled_from(["1", "2"]), plans=st.lists(PLANS, min_size=1, max_size=3), twice=st.booleans())
    def say(self, chat: str, who: str, plans: list[Plan], twice: bool) -> None:
        batch = [self.write(chat, who, self.word(plan)) for plan in plans]
        self.offer([*batch, *batch[: int(twice)]])

    @rule(
        chat=st.sampled_from(CHATS),
        who=st.sampled_from(["1", "2"]),
        texts=st.lists(COMMANDS, min_size=1, max_size=2),
        ticket=st.booleans(),
    )
    def command(self, chat: str, who: str, texts: list[str], ticket: bool) -> None:
        self.offer([self.write(chat, who, text, ticket=ticket) for text in texts])

    @rule(pick=st.integers(0, 5), plan=PLANS, to_command=st.booleans())
    def edit(self, pick: int, plan: Plan, to_command: bool) -> None:
        waiting = [put for put in reversed(self.puts.values()) if self.core.inbox.pending(put.inbound.id) is not None]
        if not waiting:
            return
        put = waiting[pick % len(waiting)]
        text = "/reset" if to_command else self.word(plan)
        counts = WORD.match(put.texts[0]) is not None and not to_command
        bound = put.acknowledged and put.inbound not in self.unheard
        if counts:
            put.texts.append(text)
        self.offer([msgspec.structs.replace(put.inbound, text=text, kind="edit")], text if counts and bound else "")

    @rule(pick=st.integers(0, 9))
    def repeat(self, pick: int) -> None:
        if self.puts:
            self.offer([list(self.puts.values())[-1 - pick % len(self.puts)].inbound])

    @rule()
    def repeat_unheard(self) -> None:
        batch, self.unheard = self.unheard, []
        if batch:
            self.offer(batch)

    @rule(seconds=st.sampled_from([0.0005, 0.0021, 0.0035, 0.01, 0.05, 0.3, 1.0, 5.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @rule(count=st.integers(1, 40))
    def steps(self, count: int) -> None:
        async def work() -> None:
            for _ in range(count):
                await asyncio.sleep(0)

        self.run(work())

    # ------------------------------------------------------------------------------------------------------------- what befalls them

    @rule(
        op=st.sampled_from(["send", "edit", "any"]),
        fates=st.lists(st.sampled_from([NotSent("x"), Retry(3), Slow(2.0), Slow(20)]), min_size=1, max_size=3),
    )
    def trouble(self, op: str, fates: list[Exception | Slow]) -> None:
        self.world.fail(op, *fates)

    @rule(where=st.sampled_from(["journal", "lines", "pointers", "new", "all"]))
    def fill(self, where: str) -> None:
        self.loop.disk.full = where

    @rule()
    def empty(self) -> None:
        self.loop.disk.full = ""

    @rule()
    def hang_up(self) -> None:
        """A channel that does not wait for what it asked for."""
        for offer in self.offers:
            offer.task.cancel()
        self.run(asyncio.sleep(0))

    @rule(patience=st.sampled_from([0.0, 1.0, 30.0]))
    def restart(self, patience: float) -> None:
        self.loop.disk.full = ""
        self.world.cut_lands = True
        self.run(self.core.stop(patience))
        self.world.cut_lands = False
        self.cut_off()
        self.world.forgive()
        self.run(self.core.start())

    @rule(lands=st.booleans())
    def kill(self, lands: bool) -> None:
        """The files stay as they are at this moment. What the dying one still does, it does to a copy, and nobody hears it."""
        old, dying = self.core, self.world
        folder = self.root / str(self.lives)
        shutil.copytree(old.folder, folder)
        self.kills += 1
        self.loop.disk.full = ""
        dying.over, dying.cut_lands, self.voice.over = True, lands, True
        self.cut_off()
        self.run(old.stop())
        shutil.rmtree(old.folder)
        self.world = dying.next_life()
        self.core = self.born(folder, self.world)
        self.run(self.core.start())

    @rule(seconds=st.lists(st.sampled_from([0.01, 0.3, 3.0, 8.0]), min_size=2, max_size=4), lands=st.booleans())
    def kill_often(self, seconds: list[float], lands: bool) -> None:
        """Until what was under way each time is tried alone, or even set aside."""
        for pause in seconds:
            self.wait(pause)
            self.kill(lands)

    def cut_off(self) -> None:
        """Nobody is told any more what became of the batches that are on their way."""
        offers, self.offers = self.offers, []
        for offer in offers:
            offer.task.cancel()
            self.unheard += [inbound for inbound in offer.batch if inbound.kind != "edit"]

    # ------------------------------------------------------------------------------------------------------------------ what must hold

    @rule()
    def settle(self) -> None:
        self.loop.disk.full = ""
        while self.unheard or self.offers:
            self.repeat_unheard()
            self.run(asyncio.sleep(1))
        for _ in range(200):
            if not self.core.inbox.unfinished():
                break
            self.run(asyncio.sleep(20))
        assert not self.core.inbox.unfinished(), "it does not become quiet"
        self.run(asyncio.sleep(0))
        self.check()

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        try:
            self.settle()
            self.run(asyncio.sleep(120))
            assert (len(self.core.runners), len(self.core.outbox), self.core.router.busy, self.core.sessions.keys_held) == (0, 0, 0, 0)
            assert not self.core.sessions.busy()
            self.run(self.core.stop())
            assert not asyncio.all_tasks(self.loop)
        finally:
            self.loop.close()
            shutil.rmtree(self.root, ignore_errors=True)

    def check(self) -> None:
        assert self.memory.faults + self.world.faults + self.loop.faults == []
        records = [
            record
            for path in sorted((self.core.folder / "journal").glob("*.jsonl"))
            for record in scan(path, tell=False)
            if isinstance(record, Accepted | Refused)
        ]
        assert [number for _, number in Counter(record.id for record in records).items() if number > 1] == []
        others = {
            put.inbound.id
            for put in self.puts.values()
            if put.inbound.text == "/nonsense" and not (put.inbound.direct or put.inbound.ticket)
        }
        assert {record.id for record in records} == set(self.puts) - others, "taken and not on record"
        for chat in CHATS:
            self.check_chat(chat, [record for record in sorted(records, key=lambda each: each.n) if record.inbound.address.chat == chat])

    def check_chat(self, chat: str, records: list[Accepted | Refused]) -> None:
        known = self.known[chat]
        shown: dict[str, list[str]] = {}
        for input_id, text in self.world.said(Address("net", chat)):
            if text not in {PLACEHOLDER.text, MARK.text}:
                shown.setdefault(input_id, []).append(text)
        mine = {word for record in records for word in self.numbers(record.id)}
        for input_id, texts in shown.items():
            assert {int(number) for text in texts for _, number in WORD.findall(text)} <= mine, "another chat's words"
            most = 1 + (self.kills if not self.world.streams or not WORD.match(texts[0]) else 0)
            assert len(texts) <= most, f"{input_id} is answered {len(texts)} times: {texts}"
        fold = Fold(self.most, group=chat == GROUP, admins=frozenset(ADMINS), meant=self.memory.meant)
        new = [record for record in records if record.n > known.upto]
        new = self.after_what_was_forgotten(known, new, shown)
        for place, record in enumerate(new):
            put, texts = self.puts[record.id], shown.get(record.id, [])
            if isinstance(record, Refused) or record.reply is not None:
                self.check_refused(record, texts)
                continue
            command = find(put.inbound.text)
            if command and command[0].when(command[1]) is When.NOW:
                assert texts, f"no word about {put.inbound.text}"
                assert all(re.fullmatch(NOW[command[0].name], text) for text in texts), (put.inbound.text, texts)
                if self.kills > 1:  # tried alone, and then in the queue, like a question
                    known.may_be = {out for before in known.may_be for out in (before, *before.opened())}
                continue
            cut = any(CUTS.fullmatch(self.puts[other.id].inbound.text) for other in new[place + 1 :])
            seen = {NOT_STORED if text.startswith("I broke down") else text for text in texts} or {""}
            given = [Given(tuple(put.texts), put.inbound.sender.id, each, cut, self.kills > 0) for each in seen]
            after = {out for before in known.may_be for one in given for out in fold.step(before, one)}
            assert after, f"{record.id} {put.texts} cannot say {seen} after {known.may_be}"
            known.may_be = after
        if records:
            known.upto = records[-1].n
        real = self.run(self.real(chat))
        same = {each for each in known.may_be if self.alike(each, real)}
        assert same, f"on disk: {real}; it can only be one of {known.may_be}"
        known.may_be = same
        for number, request in self.memory.asked:
            assert number not in mine or request in fold.asked or self.old(number, new), f"nobody could ask {request}"
            words = {int(each) for _, text in request for _, each in WORD.findall(text)}
            assert number not in mine or words <= mine, "another chat's words"
        self.check_forgotten(records, shown)
        for path in (self.core.folder / "sessions").rglob(f"*/{chat}/*.jsonl"):
            found = {int(each) for _, each in WORD.findall(path.read_text())}
            assert found <= mine, f"another chat's words in {path}"

    def numbers(self, input_id: str) -> set[int]:
        return {int(number) for text in [self.puts[input_id].inbound.text, *self.puts[input_id].texts] for _, number in WORD.findall(text)}

    def check_forgotten(self, records: list[Accepted | Refused], shown: dict[str, list[str]]) -> None:
        """No file has a word of what was forgotten, the journal included."""
        ends = [place for place, record in enumerate(records) if FORGOTTEN in shown.get(record.id, ())]
        gone = {number for record in records[: ends[-1] if ends else 0] for number in self.numbers(record.id)}
        for path in self.core.folder.rglob("*.[jt]*") if gone else ():  # lines, and torn ones
            kept = {int(number) for _, number in WORD.findall(path.read_text())} & gone
            assert not kept, f"{kept} are forgotten, and in {path}"

    def old(self, number: int, new: list[Accepted | Refused]) -> bool:
        """A question of an earlier check, that nobody asked again since."""
        return number not in {each for record in new for each in self.numbers(record.id)}

    def check_refused(self, record: Accepted | Refused, texts: list[str]) -> None:
        if record.reply is not None and not record.reply.text:  # /forget blanked it
            assert all(re.fullmatch(DOOR, text) for text in texts), texts
        else:
            assert set(texts) == ({record.reply.text} if record.reply else set()), (record, texts)

    def after_what_was_forgotten(
        self, known: Known, new: list[Accepted | Refused], shown: dict[str, list[str]]
    ) -> list[Accepted | Refused]:
        """After a crash nothing is said any more about what was forgotten before it was said; then nobody can tell what it was."""
        for place in range(len(new) - 1, -1, -1):
            if shown.get(new[place].id) == [FORGOTTEN]:
                if self.kills and any(record.id not in shown for record in new[:place]):
                    known.may_be = {Chat()}
                    return new[place + 1 :]
                break
        return new

    async def real(self, chat: str) -> Chat:
        key = SessionKey("net", chat)
        sessions = self.core.sessions
        found = []
        for info in await sessions.sessions(key):
            view = await sessions.view(key, info.name)
            lines = tuple(Line(m.role, m.content or "", m.from_.id if m.from_ else "") for m in view.messages)
            held = (await sessions.glance(key, info.name)).messages
            assert list(held) == list(view.messages)[len(lines) - len(held) :], "memory and file differ"
            found.append((info.name, lines))
        return Chat(tuple((name, lines) for name, lines in found), await sessions.peek(key))  # type: ignore[misc]

    def alike(self, may: Chat, real: Chat) -> bool:
        there = {name: talk.lines for name, talk in may.sessions}
        return there == dict(real.sessions) and may.current in {"", real.current}  # type: ignore[comparison-overlap]


TestConversations = Conversations.TestCase
TestConversations.settings = settings(
    max_examples=int(os.environ.get("PARLOUR_MODEL", "25")), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
