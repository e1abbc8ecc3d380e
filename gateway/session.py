"""One conversation in memory: a fold over its events.

`Session.apply` is the only way to change a session. It serves live use and replay alike, so that a session that lived through its events
and one that was read from its file cannot differ. It decides which messages count (undo and retry take some back), which summary stands,
what of an answer is recorded as sent, how much of it was ever seen, and where the last settled point is. Pure: no I/O, no clock, no
tokenizer (a message's cost is handed in).

Memory is bounded. A session holds the newest messages that count, always from a user line on, and never fewer than its `Keep` says that a
window can need, unless it says so (`short`). The invariant that makes this safe: an event only ever takes back messages that stand before
it, so folding *any* end of a file gives exactly the end of the list that folding all of it gives. What the end cannot know (how many older
user lines count, which summary stands) is in the newest `state` line; an undo that reaches behind what is held makes the session `short`,
and its owner reads further back.

Called by: `gateway.sessions` (which alone feeds it), `gateway.window`, the runner and the commands (which only read it).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from gateway.message import STOPPED, Again, Event, Header, Message, Sent, SessionKey, State, Summary, ToolCall, Undo

MOST_RANGES = 16
"""Of `State.live`: the newest few."""
MOST_SENT = 256
"""Answers whose delivery is remembered: more than a lane and a start's backlog can hold for one session."""
BASE_SIZE = 2000
"""Bytes of an empty session with its place in the manager (tracemalloc says 1,500; rounded up)."""


class Keep(NamedTuple):
    """What a window can need: that many messages, or that many tokens by `cost`, whichever is less."""

    messages: int
    tokens: int
    cost: Callable[[Message], int]

    @property
    def surplus(self) -> int:
        """Messages held beyond that, so that an undo or two need no reading."""
        return max(8, self.messages // 4)


EVERYTHING = Keep(sys.maxsize // 4, sys.maxsize // 4, lambda _: 0)
"""For a session that is to be shown from its first line."""


class Session:
    """See the module. Read its attributes freely; change nothing but through `apply`.

    `last`: the newest seq. `size`: bytes held, an estimate. `lost`: an undo reached behind what is held, or the part that was read did not
    say what stands before it: `turns` is then a guess and the manager reads further back.
    """

    __slots__ = (
        "_bulk",
        "_costs",
        "_cut",
        "_fresh",
        "_held",
        "_keep",
        "_older",
        "_open",
        "_ranges",
        "_sent",
        "_settled",
        "_summary",
        "_wanted",
        "header",
        "key",
        "last",
        "lost",
        "name",
        "size",
    )

    def __init__(self, key: SessionKey, name: str, header: Header, keep: Keep, *, whole: bool = True, replay: bool = False) -> None:
        """An empty session. `whole` is False where the events to come are only the end of the file. `replay`: hold everything until
        `settle` is called, since a later undo may need what a window does not."""
        self.key, self.name, self.header = key, name, header
        self.last = 0
        self.size = BASE_SIZE
        self.lost = not whole
        self._keep = keep
        self._bulk = replay
        self._held: list[Message] = []
        self._costs: list[int] = []
        self._older = 0  # user lines that count and are not held
        self._cut = 0  # every message that counts and is not held has a seq up to this
        self._ranges: list[tuple[int, int]] = []  # of what is held: seqs between which nothing was taken back
        self._fresh = True  # the next message begins a new range
        self._sent: dict[int, int] = {}
        self._summary: Summary | None = None
        self._wanted = 0  # seq of the summary that stands, where it is not held
        self._open = not whole  # a turn is in progress, as far as the lines tell
        self._settled: int | None = 0 if whole else None

    # ------------------------------------------------------------------------------------------------------------------------ the fold

    def apply(self, event: Event) -> None:
        """Let `event` be the newest line. Never raises, whatever the order and the content of lines: a file is not always ours alone."""
        if self.lost and not self.last:
            self._cut = max(event.seq - 1, 0)
        self.last = max(self.last, event.seq)
        if isinstance(event, Message):
            self._message(event)
        elif isinstance(event, Sent):
            self._sent[event.of] = max(event.span[1], self._sent.pop(event.of, 0))
            if len(self._sent) > MOST_SENT:
                del self._sent[next(iter(self._sent))]
            if event.stopped:
                self._shorten(event.of, event.span[0])
        elif isinstance(event, Undo):
            self._take_back(event.to)
            # An undo comes between turns. What it leaves at the end is over, answered or not, unless tools hang in the air.
            if self._held:
                self._open = self._held[-1].role == "tool" or bool(self._held[-1].tool_calls)
            else:
                self._open, self._settled = (True, None) if self.lost or self._older else (False, self._settled)
        elif isinstance(event, Again):
            self._take_back(event.of)
            self._open = True
        elif isinstance(event, Summary):
            self._summarize(event)
        elif isinstance(event, State):
            self._state(event)
        if not self._open:
            self._settled = self.last

    def _message(self, message: Message) -> None:
        self._open = not message.final
        if message.role != "user" and not self._held:
            # No window starts here, and the turn that it belongs to is not held: nobody can need it.
            self._cut = max(self._cut, message.seq)
            return
        if message.role == "user" and not self._bulk:
            self._trim()
        if self._fresh or not self._ranges:
            self._ranges.append((message.seq, message.seq))
            self._fresh = False
        else:
            self._ranges[-1] = (self._ranges[-1][0], message.seq)
        self._held.append(message)
        self._costs.append(self._keep.cost(message))
        self.size += weight(message)

    def _shorten(self, seq: int, end: int) -> None:
        """What stands behind `end` of this answer was never seen: it counts as one that was ended there."""
        at = next((i for i in range(len(self._held) - 1, -1, -1) if self._held[i].seq == seq and self._held[i].final), -1)
        if at < 0 or end >= len(self._held[at].content or ""):
            return
        whole = self._held[at]
        seen = (whole.content or "")[:end].rstrip() or STOPPED
        self._held[at] = msgspec.structs.replace(whole, content=seen, note="", interrupted=True)
        self._costs[at] = self._keep.cost(self._held[at])
        self.size += weight(self._held[at]) - weight(whole)

    def _take_back(self, to: int) -> None:
        if to < self._cut and self._older:
            self.lost = True
        self._retain(lambda message: message.seq <= to)
        self._ranges = [(first, min(last, to)) for first, last in self._ranges if first <= to]
        self._fresh = True
        if self._summary is not None and to < self._summary.upto:
            # It tells of what was taken back. Older summaries are not kept; the messages speak for themselves again.
            self.size -= len(self._summary.content)
            self._summary = None

    def _retain(self, counts: Callable[[Message], bool]) -> None:
        kept = [(message, cost) for message, cost in zip(self._held, self._costs, strict=True) if counts(message)]
        if len(kept) == len(self._held):
            return
        self.size -= sum(weight(message) for message in self._held) - sum(weight(message) for message, _ in kept)
        start = next((i for i, (message, _) in enumerate(kept) if message.role == "user"), len(kept))
        self._held = [message for message, _ in kept[start:]]
        self._costs = [cost for _, cost in kept[start:]]
        self.size -= sum(weight(message) for message, _ in kept[:start])

    def _summarize(self, event: Summary) -> None:
        if self._summary is not None:
            self.size -= len(self._summary.content)
        self._summary, self._wanted = None, 0
        if event.content.strip():  # one without a word stands for nothing
            upto = min(event.upto, event.seq)  # it cannot tell of what comes after it
            self._summary = event if upto == event.upto else msgspec.structs.replace(event, upto=upto)
            self.size += len(event.content)

    def _state(self, event: State) -> None:
        """Repeats what is known to whoever has seen all before it; tells the rest to whoever has read only an end."""
        if not self.lost:
            return
        self.lost = False
        if event.live:
            # Says the same as the events that were read, unless one of them was an undo in a line that cannot be read.
            first = event.live[0][0]
            self._retain(lambda message: message.seq < first or any(low <= message.seq <= high for low, high in event.live))
        self._older = max(0, event.turns - self._users())
        if event.summary == 0:
            self._summary, self._wanted = None, 0
        elif self._summary is None or self._summary.seq != event.summary:
            self._wanted = event.summary

    # ------------------------------------------------------------------------------------------------------------------ bounded memory

    def _enough(self, count: int, tokens: int) -> bool:
        return count >= self._keep.messages or tokens >= self._keep.tokens

    def _trim(self) -> None:
        """Let go of what no window needs, at a user line; in large steps, so that it costs nothing on average."""
        keep = self._keep
        most = keep.messages + keep.surplus
        if len(self._held) <= 2 * most and sum(self._costs) <= 4 * keep.tokens:
            return
        tokens = 0
        for start in range(len(self._held) - 1, 0, -1):
            tokens += self._costs[start]
            if self._held[start].role == "user" and (len(self._held) - start >= most or tokens >= 2 * keep.tokens):
                break
        else:
            return
        gone = self._held[:start]
        self._older += sum(message.role == "user" for message in gone)
        self._cut = max(self._cut, *(message.seq for message in gone))
        self.size -= sum(weight(message) for message in gone)
        del self._held[:start], self._costs[:start]
        first = self._held[0].seq
        self._ranges = [(max(low, first), high) for low, high in self._ranges if high >= first]

    def settle(self) -> None:
        """The end of a replay: from here on memory is bounded."""
        self._bulk = False
        self._trim()

    @property
    def short(self) -> bool:
        """Older messages count that a window could carry, or nobody knows: read further back before the next request."""
        if self.lost or self._wanted:
            return True
        if not self._older:
            return False
        if not self._held:
            return True
        if self._enough(len(self._held), sum(self._costs)):
            return False
        return self._summary is None or self._summary.upto < self._cut

    @property
    def keep(self) -> Keep:
        """By what it decides how much it holds."""
        return self._keep

    def become(self, other: Session) -> None:
        """Take over another replay of the same session: it was read again, its holders keep this object."""
        for slot in self.__slots__:
            setattr(self, slot, getattr(other, slot))

    # ------------------------------------------------------------------------------------------------------------------ what it tells

    @property
    def messages(self) -> Sequence[Message]:
        """Those that count, oldest first, from a user line on; the newest of them, as many as a window can need."""
        return self._held

    @property
    def costs(self) -> Sequence[int]:
        """What each of `messages` takes in a window, in tokens."""
        return self._costs

    @property
    def summary(self) -> Summary | None:
        """What stands for all messages up to its `upto`."""
        return self._summary

    @property
    def turns(self) -> int:
        """User lines that count, over the whole session."""
        return self._older + self._users()

    def _users(self) -> int:
        return sum(message.role == "user" for message in self._held)

    @property
    def settled(self) -> int | None:
        """The newest seq at which no turn is unfinished: what a fork copies up to. None: older than what was read."""
        return self._settled

    def question(self) -> Message | None:
        """The newest user line that counts."""
        return next((message for message in reversed(self._held) if message.role == "user"), None)

    def undo_target(self) -> int | None:
        """`to` of an Undo that takes back the newest turn; None if there is none."""
        question = self.question()
        return None if question is None else question.seq - 1

    def answer_for(self, input_id: str) -> Message | None:
        """The newest answer that counts and was given to this input."""
        return next((m for m in reversed(self._held) if m.final and (m.for_ == input_id or input_id in m.answers)), None)

    def sent_to(self, seq: int) -> int:
        """Up to which source offset the answer `seq` is recorded as sent; 0 if nothing is."""
        return self._sent.get(seq, 0)

    def unanswered(self) -> tuple[ToolCall, ...]:
        """Tool calls of the newest turn that have no result: at recovery each gets one that says so, before anything else."""
        calls: dict[str, ToolCall] = {}
        for message in self._newest_turn():
            if message.role == "tool":
                calls.pop(message.tool_call_id, None)
            else:
                calls.update((call.id, call) for call in message.tool_calls)
        return tuple(calls.values())

    def _newest_turn(self) -> Sequence[Message]:
        start = next((i for i in range(len(self._held) - 1, -1, -1) if self._held[i].role == "user"), 0)
        return tuple(islice(self._held, start, None))

    def state(self, seq: int, at: str) -> State:
        """The fold's pointers as a line with this seq. A summary that stands is to be written again right behind it."""
        return State(
            seq=seq,
            at=at,
            live=tuple(self._ranges[-MOST_RANGES:]),
            summary=seq + 1 if self._summary is not None else 0,
            turns=self.turns,
        )


def weight(message: Message) -> int:
    """Bytes that a message holds in memory, an estimate from above (by tracemalloc: 1.4 times the truth for text, 1.9 for tool calls)."""
    size = 700 + sum(sys.getsizeof(text) for text in (message.content, message.quote, message.reasoning, message.for_) if text)
    if message.tool_calls:
        size += sum(600 + 4 * len(msgspec.json.encode(call.arguments)) for call in message.tool_calls)
    size += sum(400 + sys.getsizeof(media.text) for media in message.media)
    return size + 100 * len(message.answers)
