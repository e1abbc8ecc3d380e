"""Where a key's files are: names that are safe on every file system, and never two keys under one. Pure. Called by `gateway.store`."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from gateway.errors import NoSession
from gateway.message import NAME, SessionKey

CHAT = "_chat.jsonl"
"""The key's pointer and settings. No session can have this name."""

_KEPT = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_:@")
_LONGEST = 100


def folder_name(text: str) -> str:
    """One path component for any text: different texts never share one, not even where the file system ignores case or normalizes.

    Lower-case letters, digits and `-_:@` stand for themselves, every other byte is `%xx`; nothing begins with a dot. What comes out longer
    than 100 is cut, and told apart by a hash (`~` occurs in no other); the true key stands in the headers.
    """
    quoted = "".join(c if c in _KEPT else "".join(f"%{byte:02x}" for byte in c.encode()) for c in text)
    if len(quoted) > _LONGEST:
        return f"{quoted[:35]}~{sha256(text.encode()).hexdigest()}"
    return quoted or "%"


def key_folder(root: Path, key: SessionKey) -> Path:
    return root / folder_name(key.channel) / folder_name(str(key).partition(":")[2])


def session_file(root: Path, key: SessionKey, name: str) -> Path:
    """Raises NoSession where no session can be called so: a name is never a path."""
    if not NAME.fullmatch(name):
        raise NoSession(f"no session can be called {name!r}")
    return key_folder(root, key) / f"{name}.jsonl"


def chat_file(root: Path, key: SessionKey) -> Path:
    return key_folder(root, key) / CHAT
