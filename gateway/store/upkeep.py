"""What the sessions' folder holds, by chat, and what of it takes up how much: for retention. Blocks; reads a header and a pointer a chat.

Changes nothing but by `delete_media` and nothing that a session is. Called by `gateway.retention`, off the loop.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from channels.failpoints import reach
from gateway.message import SessionKey
from gateway.store.files import fold_chat, list_keys, read_chat
from gateway.store.names import CHAT, chat_file, key_folder

MEDIA = "media"
"""The folder of a key's attachments, by content hash."""


class File(NamedTuple):
    """A session or a file that came along. `size`: what it takes up on disk; `used`: when it was last written to."""

    name: str
    size: int
    used: float


class Kept(NamedTuple):
    """What a chat has."""

    key: SessionKey
    current: str
    """The session that it is in: what the pointer says, else the one used last."""
    used: float
    """When anything of it was last written to, the pointer included."""
    sessions: tuple[File, ...]
    media: tuple[File, ...]


def survey(root: Path) -> list[Kept]:
    """All chats. What cannot be looked at is left out: it stays."""
    found = (look(root, key) for key in list_keys(root, ""))
    return [kept for kept in found if kept is not None]


def look(root: Path, key: SessionKey) -> Kept | None:
    """One chat; None where it is not there or cannot be looked at."""
    folder = key_folder(root, key)
    try:
        names = {path.name: info for path, info in _files(folder)}
        chat = fold_chat(read_chat(chat_file(root, key))[0])
        media = tuple(sorted(File(path.name, _taken(info), info.st_mtime) for path, info in _files(folder / MEDIA)))
    except OSError:
        return None
    sessions: list[File] = []
    for name, info in names.items():
        if name.endswith(".jsonl") and name != CHAT:
            torn = names.get(f"{name.removesuffix('.jsonl')}.torn")
            sessions.append(File(name.removesuffix(".jsonl"), _taken(info) + (_taken(torn) if torn else 0), info.st_mtime))
    current = chat.current if chat is not None else ""
    if current not in {file.name for file in sessions}:
        current = max(sessions, key=lambda file: file.used).name if sessions else ""
    pointer = names[CHAT].st_mtime if CHAT in names else 0.0
    used = max([pointer, *(file.used for file in sessions), *(file.used for file in media)])
    return Kept(key, current, used, tuple(sorted(sessions)), media)


def occupied(folder: Path) -> int:
    """What everything below a folder takes up on disk, in bytes."""
    total = 0
    waiting = [folder]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    total += _taken(info)
                    if stat.S_ISDIR(info.st_mode):
                        waiting.append(Path(entry.path))
    return total


def delete_media(root: Path, key: SessionKey, name: str) -> None:
    """One file that came along. Raises OSError."""
    if not name or "/" in name or name in {".", ".."}:
        raise ValueError(f"not a file's name: {name!r}")
    reach("media delete before")
    os.unlink(key_folder(root, key) / MEDIA / name)
    reach("media delete after")


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Regular files that are not hidden; nothing where the folder is not there."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    yield Path(entry.path), entry.stat(follow_symlinks=False)


def _taken(info: os.stat_result) -> int:
    return info.st_blocks * 512
