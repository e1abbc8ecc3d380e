"""Router, runners, inbox, sessions and lanes together against a small model (`fold`), in virtual time (`virtual`).

People write, edit, repeat, steer and stop at any moment; the network and what answers are slow and fail; the disk fills up and is emptied;
the daemon ends in order, or dies between any two steps and starts from what its files hold. Whenever it has become quiet, what every chat
shows, what the files hold and what was asked of the language model must be something that the small model allows.

`PARLOUR_MODEL=5000 .venv/bin/python -m pytest -q tests/model --timeout=0` is the long form.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from channels.base import TICKET, Address, Inbound, NotSent, Retry, Sender
from tests.gateway.core import Core
from tests.gateway.outbox_net import Slow
from tests.model.judge import ADMINS, CHATS, GROUP, Judge, Put
from tests.model.virtual import BASE, WORD, Loop, Memory, Plan, RoughWriter, Voice, World

T = TypeVar("T")
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


@dataclass
class Offer:
    """A batch that a channel hands over."""

    batch: list[Inbound]
    task: asyncio.Task[None]
    edit: str = ""
    """The new text, where it is the edit of a message that was acknowledged before."""


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
        self.world = World(units=4000, streams=streams, latency=0.1, admins={*ADMINS})
        self.core = self.born(self.root / "0", self.world)
        self.puts: dict[str, Put] = {}
        self.judge = Judge(most, self.memory, self.puts)
        self.offers: list[Offer] = []
        self.unheard: list[Inbound] = []
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
        self.kills += bool(self.loop.disk.full)  # it cannot put on record what it sent
        self.world.cut_lands = True
        self.run(self.core.stop(patience))
        self.world.cut_lands = False
        self.loop.disk.full = ""
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
        self.run(self.judge.check(self.core, self.world, self.kills))
        assert self.memory.faults + self.world.faults + self.loop.faults == []

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


LONG = os.environ.get("PARLOUR_MODEL", "")
TestConversations = Conversations.TestCase
TestConversations.settings = settings(
    max_examples=int(LONG or 25),
    stateful_step_count=40,
    derandomize=not LONG,  # the short form is the same each time, the long one is there to find what is rare
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
