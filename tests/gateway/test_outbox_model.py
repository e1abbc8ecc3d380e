"""A model person reads the chats while everything goes wrong: at the end each word is there once and in order, or the books say why not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import looptime
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from channels.base import Address, Button, Gone, NotSent, Pacing, Piece, Refused, Rejected, Retry, Unknown
from gateway.outbox import MARK, PLACEHOLDER, Delivery, Outbox, Stream
from tests.gateway.outbox_net import Book, Call, Fate, Landed, Net, Slow

T = TypeVar("T")
PIECE = 6
ADDRESSES = [Address("net", "1"), Address("net", "1", "topic"), Address("net", "2")]

FATES = st.sampled_from(
    [
        None,
        NotSent("x"),
        Unknown("x"),
        Landed(Unknown("x")),
        Retry(3),
        Retry(40),
        Retry(7, everywhere=True),
        Rejected("x"),
        Refused("x"),
        Slow(0.7),
        Slow(30),
    ]
)


@dataclass
class StrictNet(Net):
    """Also notes content that goes into a message which is not on record, and counts who speaks to a chat that is gone."""

    book: Book = field(default_factory=Book)
    blocked: set[Address] = field(default_factory=set)
    told_gone: Counter[Address] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.judge = self._blocked

    def _blocked(self, call: Call) -> Fate:
        if call.address in self.blocked:
            self.told_gone[call.address] += 1
            return Gone("blocked")
        return None

    async def edit(self, address: Address, message_id: str, piece: Piece, *, buttons: Sequence[Button] = ()) -> None:
        if not any(line[0] == "placed" and line[3] == message_id for line in self.book.lines) and piece != MARK:
            self.faults.append(f"content into a message that is not on record: {message_id}")
        await super().edit(address, message_id, piece, buttons=buttons)


@dataclass
class Turn:
    """One text that somebody is to read: its pieces are told apart from those of all others."""

    number: int
    address: Address
    pieces: int
    streamed: bool
    stream: Stream | None = None
    delivery: Delivery | None = None
    kills: int = 0

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def parts(self) -> list[str]:
        return [f"{self.number:03d}{n:03d}" for n in range(self.pieces)]

    @property
    def id(self) -> str:
        return f"i{self.number}"


class Reader(RuleBasedStateMachine):
    """Turns begin, grow and end in three places; calls and records fail, people delete and block, the daemon restarts or is killed."""

    @initialize(streams=st.booleans(), pacing=st.sampled_from([Pacing(), Pacing(5.0, 1.0, 20.0)]))
    def begin(self, streams: bool, pacing: Pacing) -> None:
        self.loop = looptime.new_event_loop()
        self.book = Book(latency=0.01)
        self.net = StrictNet(units=PIECE, streams=streams, pacing=pacing, latency=0.1, book=self.book)
        self.outbox = Outbox({"net": self.net}, self.book, spread=lambda: 0.5)
        self.turns: list[Turn] = []
        self.deleted: set[str] = set()
        self.lives = 1
        self.spare = 0
        """Empty messages that may be left, each for a reason."""

    def run(self, work: Coroutine[None, None, T]) -> T:
        return self.loop.run_until_complete(work)

    # ------------------------------------------------------------------------------------------------------------------- what happens

    @rule(address=st.sampled_from(ADDRESSES), pieces=st.integers(1, 4))
    def turn(self, address: Address, pieces: int) -> None:
        turn = Turn(len(self.turns), address, pieces, streamed=True)
        self.turns.append(turn)

        async def work() -> None:
            turn.stream = self.outbox.stream(address, turn.id, direct=address.chat == "2")

        self.run(work())

    @rule(address=st.sampled_from(ADDRESSES), pieces=st.integers(1, 3))
    def reply(self, address: Address, pieces: int) -> None:
        turn = Turn(len(self.turns), address, pieces, streamed=False)
        self.turns.append(turn)
        self.run(self.end(turn))

    @rule(share=st.floats(0, 1), pick=st.integers(0, 9))
    def grow(self, share: float, pick: int) -> None:
        growing = [turn for turn in self.turns if turn.stream and turn.delivery is None]
        if growing:
            turn = growing[pick % len(growing)]
            assert turn.stream is not None
            turn.stream.show(turn.text[: int(len(turn.text) * share)])

    @rule(pick=st.integers(0, 9))
    def answer(self, pick: int) -> None:
        growing = [turn for turn in self.turns if turn.delivery is None]
        if growing:
            self.run(self.end(growing[pick % len(growing)]))

    @rule(seconds=st.sampled_from([0.05, 0.3, 1.0, 5.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @rule(op=st.sampled_from(["send", "edit", "typing", "delete", "any"]), fates=st.lists(FATES, min_size=1, max_size=4))
    def fail(self, op: str, fates: list[Fate]) -> None:
        self.net.fail(op, *fates)
        self.spare += sum(isinstance(fate, Landed) for fate in fates)

    @rule(kind=st.sampled_from(["placed", "sent", "finished"]), times=st.integers(1, 3))
    def disk_full(self, kind: str, times: int) -> None:
        self.book.fail(kind, *[OSError("disk full")] * times)

    @rule(address=st.sampled_from(ADDRESSES), pick=st.integers(0, 9))
    def delete(self, address: Address, pick: int) -> None:
        messages = list(self.net.messages.get(address, {}))
        if messages:
            message_id = messages[pick % len(messages)]
            self.deleted.add(message_id)
            del self.net.messages[address][message_id]

    @rule(address=st.sampled_from(ADDRESSES))
    def block(self, address: Address) -> None:
        self.net.blocked.add(address)

    @rule()
    def unblock(self) -> None:
        self.net.blocked.clear()

    @rule(lands=st.booleans(), killed=st.booleans())
    def restart(self, lands: bool, killed: bool) -> None:
        self.net.cut_lands = lands
        self.run(self.again(killed))
        self.net.cut_lands = False

    # -------------------------------------------------------------------------------------------------------------------- how it works

    async def end(self, turn: Turn) -> None:
        answer = ("main", 2) if turn.streamed else None
        turn.delivery = Delivery(turn.id, "net:1", turn.address, turn.text, answer=answer, direct=turn.address.chat == "2")
        self.outbox.put(turn.delivery, turn.stream)

    async def again(self, killed: bool) -> None:
        self.spare += len(ADDRESSES)  # each lane may have had a placeholder on its way
        self.lives += 1
        self.net.forgive()
        self.book.dead = killed
        for turn in self.turns:
            # Killed, or closed without being able to write: a plain send may be repeated once.
            turn.kills += self.book.reason(turn.id) is None and (killed or any(self.book.fates.values()))
        await self.outbox.close()
        self.book.dead = False
        self.outbox = Outbox({"net": self.net}, self.book, spread=lambda: 0.5)
        for turn in self.turns:
            if turn.delivery is None:
                turn.stream = self.outbox.stream(turn.address, turn.id, direct=turn.address.chat == "2", placed=self.book.known(turn.id))
            elif self.book.reason(turn.id) is None:
                turn.stream = None
                self.outbox.put(replace(turn.delivery, placed=self.book.known(turn.id), sent_to=self.sent_to(turn)))

    def sent_to(self, turn: Turn) -> int:
        return max((int(line[0][1]) for line in self.book.sent_of(turn.id)), default=0)  # type: ignore[index]

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        try:
            self.net.fates.clear()
            self.book.fates.clear()
            self.net.blocked.clear()
            for turn in self.turns:
                if turn.delivery is None:
                    self.run(self.end(turn))
            assert self.run(self.outbox.drain(600)) == 0
            self.run(asyncio.sleep(120))
            assert len(self.outbox) == 0
            self.run(self.outbox.close())
            assert not asyncio.all_tasks(self.loop)
            self.check()
        finally:
            self.loop.close()

    def check(self) -> None:
        assert self.net.faults + self.book.faults == []
        for address in ADDRESSES:
            visible = self.net.visible(address)
            for turn in self.turns:
                if turn.address == address:
                    self.check_turn(turn, visible)
            known = {part for turn in self.turns if turn.address == address for part in turn.parts}
            other = [text for text in visible if text not in known]
            leftover = [text for text in other if text in {PLACEHOLDER.text, MARK.text}]
            if "gone" not in {self.book.reason(turn.id) for turn in self.turns}:
                # A refused final leaves what the stream last showed; else there are no half words.
                assert len(leftover) <= self.spare + self.unsaid()
                assert len(other) - len(leftover) <= self.unsaid()
            mine = [turn for turn in self.turns if turn.address == address]
            assert self.net.told_gone[address] <= sum(2 if turn.streamed else 1 for turn in mine) * self.lives

    def unsaid(self) -> int:
        """Pieces that the network refused for good."""
        return sum(self.net.refused[part] > 1 for turn in self.turns for part in turn.parts)

    def check_turn(self, turn: Turn, visible: list[str]) -> None:
        reason = self.book.reason(turn.id)
        assert reason in {"", "gone"}
        assert set(visible).isdisjoint({text for other in self.turns if other.address != turn.address for text in other.parts})
        sent = {line[0]: line for line in self.book.sent_of(turn.id)}
        for number, part in enumerate(turn.parts):
            line = sent.get((number * PIECE, (number + 1) * PIECE))
            count = visible.count(part)
            most = 1 + (turn.kills if not (turn.streamed and self.net.streams) else 0)
            assert count <= most, f"{part} is there {count} times"
            if reason == "gone":
                continue
            assert line is not None, f"{part} is not on record"
            _, ids, unknown = line
            if ids and ids[0] not in self.deleted:  # type: ignore[index]
                assert count >= 1 or self.net.refused[part] > 1, f"{part} is not there"
            elif not ids and not unknown:
                assert self.net.refused[part] > 1, f"{part} was given up"
        if not self.deleted and not turn.kills:
            shown = [text for text in visible if text in turn.parts]
            assert shown == sorted(shown)


TestReader = Reader.TestCase
TestReader.settings = settings(max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
