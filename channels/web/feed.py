"""What a browser is shown live: a bounded ring of items for each chat, from which any number of readers take at their own pace.

The protocol between this ring and the page, in one place:

- Every change gets the chat's next feed id. A reader says which id it has seen last ("EPOCH-ID") and gets what changed since, in order.
- An item (a message, of the person or ours) stands in the ring once, in its newest state: an edit moves it to the end. So a reader that
  was away or is slow skips the states between, and a long streamed answer takes one place, not thousands.
- The ring is bounded by items and by characters; the oldest change falls out first. A reader whose id is older than what fell out, or of
  another epoch (the daemon was restarted), has a gap: it forgets its live items, fetches the history, and is given the whole ring.
- `n` orders items as they were placed, `of` is the `n` of the input that an item belongs to. An item whose input is in the history
  (a user line, an answer) is not shown twice: the page leaves out the live one.
- Commands that change which history counts (/undo, /switch...) are done in order with the turns. So when one is answered, every turn that
  was put in before it is settled: its live items leave the ring, and a `history` event tells the page to fetch anew. What commands said
  before it leaves the ring as well, but only if the conversation is another one now: `where` is what the house says, not the command.

Nobody waits here for a browser: to put something in is synchronous. No rendering, no HTTP, no clock of its own. Called by
`channels.web.channel` (puts) and `channels.web.stream` (reads), both on the event loop.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from channels.base import BEGUN, Button

MAX_ITEMS = 200
MAX_CHARS = 512 * 1024
MAX_CHATS = 256
MAX_INPUTS = 500
"""How many inputs a chat remembers the order of."""

_COMMAND = re.compile(r"/([A-Za-z][A-Za-z_]{0,31})(?:\s.*)?", re.DOTALL)
_ORDERED = frozenset(("reset", "new", "forget", "undo", "switch", "fork"))
_REF = re.compile(r"[mcor][0-9A-Za-z-]{8,64}")
_MESSAGE_ID = re.compile(r"([0-9a-f]{12})\.([0-9]{1,15})\.([mcor][0-9A-Za-z-]{8,64})?")


class Item(msgspec.Struct, frozen=True):
    """One message of a live chat in its newest state."""

    id: int
    key: str
    n: int
    of: int
    at: float
    """Epoch seconds of the placing."""
    role: Literal["user", "bot"]
    text: str
    input: str = ""
    """The page's own id of the input that it is or answers; "" if none."""
    note: bool = False
    """A command or a command's reply: stands in no history."""
    buttons: tuple[Button, ...] = ()
    nonce: str = ""
    deleted: bool = False

    @property
    def size(self) -> int:
        """Characters, for the bound."""
        return len(self.text) + 200


class Typing(msgspec.Struct, frozen=True):
    """We are at work, said at `at` (epoch seconds)."""

    id: int
    at: float


class History(msgspec.Struct, frozen=True):
    """The history is another now. Live turns of inputs before `before`, and commands and their replies before `notes`, are gone."""

    id: int
    before: int
    notes: int


Change: TypeAlias = Item | Typing | History


def ref(text: str, input_id: str) -> str:
    """An input's handle, given out as `Inbound.reply_to`: what kind of input it is, and the page's id of it.

    m: a message, whose answer will be in the history; r: /retry, the same unless it is refused; o: a command that changes the history;
    c: any other command, and a /retry that was refused.
    """
    found = _COMMAND.fullmatch(text.strip())
    verb = found[1].lower() if found else ""
    kind = "m" if not verb else "r" if verb == "retry" else "o" if verb in _ORDERED else "c"
    return kind + input_id


def reorders(handle: str) -> bool:
    """Whether this input may have changed which history counts."""
    return handle[:1] in ("o", "r")


class Feed:
    """One chat's ring. Every method is synchronous but `changed`."""

    def __init__(self, *, max_items: int = MAX_ITEMS, max_chars: int = MAX_CHARS) -> None:
        self.epoch = secrets.token_hex(6)
        self.readers = 0
        self.where: str | None = None
        """Which conversation the chat was in when it was last asked: "" in none, None if nobody knows."""
        self.last = 0
        self._floor = 0
        self._placed = 0
        self._items: OrderedDict[str, Item] = OrderedDict()
        self._size = 0
        self._inputs: OrderedDict[str, int] = OrderedDict()
        self._nonces: dict[str, str] = {}
        self._typing: Typing | None = None
        self._history: History | None = None
        self._max_items, self._max_chars = max_items, max_chars
        self._waiting: set[asyncio.Future[None]] = set()

    # -- putting in

    def reserve(self) -> int:
        """A place in the order of items, for one that is put in a little later."""
        self._placed += 1
        return self._placed

    def said(self, handle: str, text: str, n: int, at: float) -> None:
        """The person's own message is accepted. A repeat changes nothing."""
        if handle[1:] in self._inputs:
            return
        self._inputs[handle[1:]] = n
        while len(self._inputs) > MAX_INPUTS:
            self._inputs.popitem(last=False)
        self._put(Item(self._next(), f"in.{handle[1:]}", n, n, at, "user", text, handle[1:], handle[0] != "m"))

    def placed(
        self, text: str, at: float, *, reply_to: str = "", buttons: Sequence[Button] = (), nonce: str = "", where: str | None = None
    ) -> str:
        """A message of ours; returns its id. The same `nonce` again is the same message, which is not placed twice. `where`: which
        conversation the chat is in now, None if nobody knows."""
        known = self._nonces.get(nonce) if nonce else None
        if known is not None:
            self.edited(known, text, at, buttons=buttons)
            return known
        handle = reply_to if _REF.fullmatch(reply_to) else ""
        settles = reorders(handle)
        if handle[:1] == "r" and text != BEGUN:
            handle = "c" + handle[1:]
        n = self.reserve()
        message_id = f"{self.epoch}.{n}.{handle}"
        self._put(self._ours(message_id, n, handle, text, at, buttons, nonce))
        if nonce:
            self._nonces[nonce] = message_id
        if settles:
            # From none to one is no move: the first conversation has just begun.
            self._settle(self._inputs.get(handle[1:], n), elsewhere=bool(self.where) and where not in (None, self.where))
        if where is not None:
            self.where = where
        return message_id

    def edited(self, message_id: str, text: str, at: float, *, buttons: Sequence[Button] = ()) -> bool:
        """Replace a message of ours; one that fell out of the ring (or was placed before a restart) is put in again. False: no such one."""
        old = self._items.get(message_id)
        if old is not None:
            if old.deleted:
                return False
            if (old.text, old.buttons) != (text, tuple(buttons)):
                self._put(msgspec.structs.replace(old, id=self._next(), text=text, buttons=tuple(buttons)))
            return True
        parts = _MESSAGE_ID.fullmatch(message_id)
        if parts is None:
            return False
        n = int(parts[2]) if parts[1] == self.epoch else self.reserve()
        self._put(self._ours(message_id, n, parts[3] or "", text, at, buttons, ""))
        return True

    def deleted(self, message_id: str) -> None:
        """Take a message of ours away. What is left is a mark, so that readers that have it take it away too."""
        old = self._items.get(message_id)
        if old is not None and not old.deleted:
            self._put(msgspec.structs.replace(old, id=self._next(), text="", buttons=(), deleted=True))

    def typing(self, at: float) -> None:
        """We are at work."""
        self._typing = Typing(self._next(), at)
        self._wake()

    # -- reading

    def gap(self, epoch: str, seen: int) -> bool:
        """Whether a reader that has seen `seen` of `epoch` has missed something that the ring no longer holds."""
        return epoch != self.epoch or not self._floor <= seen <= self.last

    def since(self, seen: int) -> list[Change]:
        """What changed behind feed id `seen`, oldest change first."""
        found: list[Change] = []
        for item in reversed(self._items.values()):
            if item.id <= seen:
                break
            found.append(item)
        found += [extra for extra in (self._typing, self._history) if extra is not None and extra.id > seen]
        return sorted(found, key=lambda change: change.id)

    async def changed(self, seen: int) -> None:
        """Wait until there is something behind `seen`."""
        while self.last <= seen:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.add(waiter)
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)

    # -- within

    def _next(self) -> int:
        self.last += 1
        return self.last

    def _ours(self, message_id: str, n: int, handle: str, text: str, at: float, buttons: Sequence[Button], nonce: str) -> Item:
        of = self._inputs.get(handle[1:], n)
        note = handle[:1] in ("c", "o")
        return Item(self._next(), message_id, n, of, at, "bot", text, handle[1:], note, tuple(buttons), nonce)

    def _put(self, item: Item) -> None:
        self._drop(item.key)
        self._items[item.key] = item
        self._size += item.size
        if item.nonce:
            self._nonces[item.nonce] = item.key
        while len(self._items) > self._max_items or (self._size > self._max_chars and len(self._items) > 1):
            oldest = next(iter(self._items.values()))
            self._floor = oldest.id
            self._drop(oldest.key)
        self._wake()

    def _drop(self, key: str) -> None:
        old = self._items.pop(key, None)
        if old is not None:
            self._size -= old.size
            self._nonces.pop(old.nonce, None)

    def _settle(self, before: int, *, elsewhere: bool) -> None:
        notes = before if elsewhere else self._history.notes if self._history else 0
        for item in list(self._items.values()):
            if item.of < (notes if item.note else before):
                self._drop(item.key)
        self._history = History(self._next(), before, notes)
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)


class Feeds:
    """The rings of all chats, the least used one without a reader going first when there are too many."""

    def __init__(self, *, max_chats: int = MAX_CHATS) -> None:
        self._feeds: OrderedDict[str, Feed] = OrderedDict()
        self._max_chats = max_chats

    def of(self, chat: str) -> Feed:
        """The ring of a chat; an empty one if it has none."""
        feed = self._feeds.get(chat)
        if feed is None:
            feed = self._feeds[chat] = Feed()
            for name in [name for name, old in self._feeds.items() if not old.readers][: max(0, len(self._feeds) - self._max_chats)]:
                if name != chat:
                    del self._feeds[name]
        self._feeds.move_to_end(chat)
        return feed

    def __len__(self) -> int:
        return len(self._feeds)
