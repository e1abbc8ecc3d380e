"""How fast a channel may be spoken to: token buckets for the channel and for each chat, and the waits that the network asked for.

All times are those of the event loop: a jump of the wall clock changes nothing. Pure bookkeeping, nothing here waits.

Whatever ends a turn (answers, replies) takes its token at once, on credit if it must, and goes out when the credit is paid; an
intermediate edit goes out only while a token stays behind, a typing sign while two do. So finals never queue behind edits, and edits never
make a final wait.

Over any T seconds a bucket lets through at most its burst and `rate * T`. Of the channel's second and a group's minute the burst is a part,
so that they are never exceeded; a direct chat has a short burst on top (networks allow it, and an instant answer is two calls).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from channels.base import Address, Pacing

EPSILON = 1e-6
"""Below this a token counts as whole and a time as come: sums of floats would otherwise ask for waits that no clock can tell from none."""
BURST = 3.0
"""Calls that a chat takes at once after a pause: a placeholder, its first content, and one in reserve for the final edit."""


class Bucket:
    """Tokens that come back at `rate` a second, at most `cap`. Rate 0: no limit."""

    __slots__ = ("_at", "_level", "cap", "rate")

    def __init__(self, rate: float, cap: float) -> None:
        self.rate, self.cap = rate, max(cap, 1.0)
        self._level, self._at = self.cap, 0.0

    def _fill(self, now: float) -> None:
        self._level = min(self.cap, self._level + max(0.0, now - self._at) * self.rate)
        self._at = now

    def take(self, now: float) -> float:
        """Take a token, on credit if there is none; returns when it may be used."""
        if not self.rate:
            return now
        self._fill(now)
        self._level -= 1.0
        return now if self._level >= -EPSILON else now - self._level / self.rate

    def ready(self, now: float, spare: float = 1.0) -> float:
        """When there will be a token and `spare` more, if nobody takes one until then."""
        if not self.rate:
            return now
        self._fill(now)
        missing = min(1.0 + spare, self.cap) - self._level
        return now if missing <= EPSILON else now + missing / self.rate

    def become(self, other: Bucket, now: float) -> None:
        """Go on at the rate of `other`, which is new. What was taken on credit stays owed."""
        self._fill(now)
        limited = bool(self.rate)
        self.rate, self.cap = other.rate, other.cap
        self._level = min(self._level, self.cap) if limited else self.cap

    def full(self, now: float) -> float:
        """When it will be as if never used."""
        return self.ready(now, self.cap)


@dataclass(slots=True, eq=False)
class ChatPace:
    """One chat's bucket, shared by the lanes of its topics where these are not limited apart. `hold`: nothing goes to this chat before."""

    name: str
    bucket: Bucket
    direct: bool = True
    hold: float = 0.0
    users: int = 0

    def rests(self, now: float) -> float:
        """When nothing of it needs to be remembered any more."""
        return max(self.hold, self.bucket.full(now))


@dataclass(slots=True, eq=False)
class Pace:
    """One channel's pace, and how much is under way on it."""

    pacing: Pacing
    bucket: Bucket = field(init=False)
    hold: float = 0.0
    """Nothing goes out on the whole channel before."""
    denied: bool = False
    """The network does not accept us any more: nothing goes out, all stays on record."""
    jobs: int = 0
    """Deliveries that are not settled."""
    busy: int = 0
    """Calls and records for a stream that are under way."""
    repeats: int = 0
    """Calls that were made again after a failure."""
    chats: dict[str, ChatPace] = field(default_factory=dict)
    shut: dict[Address, None] = field(default_factory=dict)
    """Places of which it was said that nobody is there."""
    _line: OrderedDict[Hashable, Callable[[], None]] = field(default_factory=OrderedDict)
    """Who waits to make an intermediate edit, the foremost first, and how each is woken."""
    _sign: float = -math.inf

    def __post_init__(self) -> None:
        self.bucket = self._whole()

    def _whole(self) -> Bucket:
        return _shared(self.pacing.per_second, self.pacing.per_second / 6, 1.0)

    def _of(self, *, direct: bool) -> Bucket:
        return Bucket(self.pacing.chat_per_second, BURST) if direct else _shared(self.pacing.group_per_minute, BURST, 60.0)

    def become(self, pacing: Pacing, now: float) -> None:
        """Another pace from here on, also for the chats that are being spoken to."""
        self.pacing = pacing
        self.bucket.become(self._whole(), now)
        for chat in self.chats.values():
            chat.bucket.become(self._of(direct=chat.direct), now)

    def join(self, name: str, *, direct: bool) -> ChatPace:
        """A lane begins to speak to this chat."""
        chat = self.chats.get(name)
        if chat is None:
            chat = self.chats[name] = ChatPace(name, self._of(direct=direct), direct)
        chat.users += 1
        return chat

    def leave(self, chat: ChatPace) -> None:
        """A lane is done with it; the last one takes it away."""
        chat.users -= 1
        if not chat.users:
            self.chats.pop(chat.name, None)

    def line_up(self, who: Hashable, wake: Callable[[], None], now: float) -> float:
        """When an intermediate edit may go out: first come first served, so that of many growing answers each is edited as often as the
        others. Infinity while somebody is ahead; `wake` is called when nobody is any more. A thousand that wait look for a token one by one
        instead of all waking up for the same."""
        if not self.pacing.per_second:
            return now
        self._line.setdefault(who, wake)
        return self.bucket.ready(now) if next(iter(self._line)) is who else math.inf

    def step_out(self, who: Hashable) -> None:
        """It makes its edit now, or cannot: the next one. Harmless for who is not in the line."""
        if who in self._line:
            foremost = next(iter(self._line)) is who
            del self._line[who]
            if foremost and self._line:
                next(iter(self._line.values()))()

    def sign(self, now: float) -> float:
        """Now, with a token taken, if a typing sign may be shown; else when to ask again. Signs are what a busy channel does without: they
        go while no edit stands in line and two tokens stay behind."""
        if not self.pacing.per_second:
            return now
        if self._line:
            return now + 1.0
        at = self.bucket.ready(now, 2.0)
        if come(at, now):
            return self.bucket.take(now)
        self._sign = max(at, self._sign + 1 / self.pacing.per_second)
        return self._sign


def _shared(most: float, burst: float, seconds: float) -> Bucket:
    """A bucket whose burst is part of the share, so that no stretch of `seconds` ever sees more than `most`."""
    burst = burst if most >= 2 * burst and burst > 1.0 else 1.0
    return Bucket((most - burst if burst > 1.0 else most) / seconds, burst)


def come(at: float, now: float) -> bool:
    """Whether it is time."""
    return at <= now + EPSILON


def backoff(tries: int, spread: float) -> float:
    """Seconds to wait after the `tries`th failure in a row: 0.5, 1, 2 ... 30, less up to a quarter by `spread` (0 to 1)."""
    return float(min(30.0, 0.5 * 2.0 ** min(tries - 1, 10)) * (1 - spread / 4))
