"""The house's commands as slash commands: what is registered, and when.

Discord takes the whole list or nothing, keeps it, and counts the changes, so that it is sent only when it differs from what it took last
(a small file remembers). Where it refuses one entry, the others are registered without it: the bot works in any case, since every command
can be written as text too. Called by the channel's start.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiofiles.os
import msgspec
import structlog

from channels.base import ChannelError, CommandInfo, Denied
from channels.discord.errors import translate
from channels.discord.transport import Http, Refusal
from channels.text import bounded

log = structlog.get_logger(__name__)

MOST = 100
_LONGEST = 100
_NAME = re.compile(r"[a-z0-9_-]{1,32}")
_TEXT = 3
_SERVER, _DIRECT = 0, 1


def entries(menu: Sequence[CommandInfo]) -> list[dict[str, Any]]:
    """The body of a registration, within Discord's bounds."""
    found: dict[str, dict[str, Any]] = {}
    for one in menu:
        if not _NAME.fullmatch(one.name) or not one.hint.strip():
            continue
        entry: dict[str, Any] = {
            "name": one.name,
            "type": 1,
            "description": bounded(one.hint.strip(), _LONGEST),
            "contexts": [_SERVER, _DIRECT],
            "integration_types": [0],
        }
        if one.usage.strip():
            word = one.usage.strip().strip("[]").lower()
            option: dict[str, Any] = {
                "type": _TEXT,
                "name": word if _NAME.fullmatch(word) else "text",
                "description": "which one" if one.sessions else bounded(one.usage.strip("[] ") or "text", _LONGEST),
                "required": not one.usage.strip().startswith("["),
            }
            if one.sessions:
                option["autocomplete"] = True
            entry["options"] = [option]
        found.setdefault(one.name, entry)
    return list(found.values())[:MOST]


class Registry:
    def __init__(self, http: Http, folder: Path) -> None:
        self._http, self._path = http, folder / "commands"
        self._refused = ""
        """What Discord would not take in this life of the daemon: it is not asked again for the same."""

    async def sync(self, application: int, menu: Sequence[CommandInfo]) -> None:
        """Register what differs. Raises Denied alone: without slash commands the bot works all the same."""
        wanted = entries(menu)
        mark = f"{application} {hashlib.sha256(msgspec.json.encode(wanted, order='deterministic')).hexdigest()}"
        if mark == self._refused or mark == await aiofiles.os.wrap(_read)(self._path):
            return
        left = wanted
        dropped: list[str] = []
        while True:
            try:
                await self._http.bulk_upsert_global_commands(application, left)
            except Refusal as error:
                fault = translate(error)
                if isinstance(fault, Denied):
                    raise fault from None
                names = culprits(error, left)
                if not names or len(dropped) >= len(wanted) // 2:
                    self._refused = mark
                    what = ", ".join(f"/{name}" for name in [*dropped, *names]) or "all of them"
                    log.warning("slash commands are not registered", channel="discord", refused=what, problem=str(fault))
                    return
                dropped += names
                left = [entry for entry in left if entry["name"] not in names]
            except ChannelError as error:
                log.warning("slash commands are not registered now", channel="discord", problem=str(error))
                return
            else:
                break
        if dropped:
            self._refused = mark
            log.warning("slash commands left out, Discord refuses them", channel="discord", refused=", ".join(f"/{n}" for n in dropped))
            return
        log.info("slash commands registered", channel="discord", count=len(wanted))
        try:
            await aiofiles.os.wrap(_write)(self._path, mark)
        except OSError as error:
            log.warning("cannot keep what is registered", channel="discord", problem=error.strerror or type(error).__name__)


def culprits(error: Refusal, sent: Sequence[dict[str, Any]]) -> list[str]:
    """The names of the entries that a refusal points at: its errors are keyed by their places in the list."""
    return [str(sent[int(key)]["name"]) for key in error.errors if key.isdecimal() and int(key) < len(sent)]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


def _write(path: Path, mark: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(handle, mark.encode())
    finally:
        os.close(handle)
