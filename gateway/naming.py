"""What sessions are called: names from titles that people type, and numbered ones. Pure. Called by `gateway.sessions` and the commands.

A name is `[a-z0-9-]{1,40}`, so it is never a path, whatever was typed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from hashlib import blake2s

LONGEST = 40
_NUMBERED = re.compile(r"chat-([0-9]{1,9})")


def slug(title: str) -> str:
    """A session name for a title: "Über West!" becomes "uber-west". The same title always gives the same name.

    Where letters or digits of the title have no place in a name (other scripts, more than 40 characters), a short hash of the title stands
    for them, so that two titles do not become one name only because we cannot spell them.
    """
    plain = unicodedata.normalize("NFKD", title.casefold())
    base = re.sub(r"[^a-z0-9]+", "-", "".join(c for c in plain if not unicodedata.combining(c))).strip("-")
    lossy = len(base) > LONGEST or any(c.isalnum() and not c.isascii() for c in plain)
    if base and not lossy:
        return base
    if not title.strip():
        return "chat"
    tail = blake2s(unicodedata.normalize("NFC", title.strip().casefold()).encode("utf-8", "replace"), digest_size=3).hexdigest()
    return f"{base[: LONGEST - 7].rstrip('-') or 'chat'}-{tail}"


def free_name(existing: Iterable[str]) -> str:
    """The next of chat-2, chat-3, ... behind all that exist."""
    numbers = [int(found[1]) for name in existing if (found := _NUMBERED.fullmatch(name))]
    return f"chat-{max([1, *numbers]) + 1}"
