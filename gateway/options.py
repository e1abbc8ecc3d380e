"""The daemon's own tables of the config file, with their defaults. Those of the channels are theirs (`channels.*.settings`).

Values only; a table's `__post_init__` says what no type can. Made by `gateway.config`, read by whoever is configured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from channels.settings import Bytes, Seconds, Secret

Count = Annotated[int, Meta(ge=1)]


class Log(msgspec.Struct, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class Http(msgspec.Struct, frozen=True):
    listen: str = "127.0.0.1:8787"
    """ "" for no server at all; "unix:/path" for a Unix socket, behind a proxy."""
    hosts: tuple[str, ...] = ()
    token: Secret = Secret("")
    """Of the web chat; "": the daemon makes one and keeps it in the data folder."""

    def __post_init__(self) -> None:
        if self.listen and not _is_place(self.listen):
            raise ValueError('listen: expected an address and a port like "127.0.0.1:8787" or "[::1]:8787", or "" for none')
        for host in self.hosts:
            if not re.fullmatch(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:]+\](:[0-9]{1,5})?", host):
                raise ValueError(f'hosts: expected names like "chat.example.org", without "https://" and path, not "{host[:40]}"')


def _is_place(text: str) -> bool:
    """ "host:port", "[::1]:port" or "unix:/path"."""
    if text.startswith("unix:"):
        return text.startswith("unix:/") and text.isprintable()
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    whole = bool(colon) and bool(bare) and (":" not in host or bare != host) and " " not in host
    return whole and bool(re.fullmatch(r"[0-9]{1,5}", port)) and int(port) <= 65535


class Access(msgspec.Struct, frozen=True):
    direct: Literal["pairing", "allowlist", "open", "closed"] = "pairing"
    groups: Literal["allowlist", "open", "closed"] = "allowlist"
    allow: tuple[str, ...] = ()
    allow_groups: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()
    turns_per_day: int = 0
    """A person, by the UTC day; 0: no limit."""


class Sessions(msgspec.Struct, frozen=True):
    cache: Bytes = Bytes(64 * 2**20)
    history_messages: Count = 200
    history_tokens: Count = 16000
    durability: Literal["process", "power"] = "process"
    """What an acknowledged line outlives: the process, or a power cut."""
    group_scope: Literal["chat", "user"] = "chat"
    waiting: Count = 50

    def __post_init__(self) -> None:
        if self.cache < 1:
            raise ValueError("cache: must be more than 0")


class Backend(msgspec.Struct, frozen=True):
    kind: Literal["openai", "local", "echo"] = "openai"
    base_url: str = "http://127.0.0.1:11434/v1"
    model: str = ""
    """Which model the endpoint shall use; must be said for `openai`."""
    api_key: Secret = Secret("")
    system_prompt: str = "You are a helpful assistant in a chat. Answer briefly, in the language of the question."
    max_concurrent_turns: Count = 256
    max_answer_chars: Count = 30000
    first_token_timeout: Seconds = Seconds(120)
    idle_timeout: Seconds = Seconds(60)

    def __post_init__(self) -> None:
        if self.kind == "openai" and not self.model.strip():
            raise ValueError('model: say which model the endpoint shall use, like "qwen3:4b"')
        try:
            parts = urlsplit(self.base_url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 0) >= 0
        except ValueError:
            good = False
        if not good or not self.base_url.isprintable() or " " in self.base_url:
            raise ValueError('base_url: expected an address like "https://host/v1"')
        for name in ("first_token_timeout", "idle_timeout"):
            if not getattr(self, name):
                raise ValueError(f"{name}: must be more than 0")

    @property
    def address(self) -> str:
        """Where it is, as a log may show it: no user, no password, no query; "" where it is in this process."""
        if self.kind != "openai":
            return ""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


class Shutdown(msgspec.Struct, frozen=True):
    budget: Seconds = Seconds(25)

    def __post_init__(self) -> None:
        if not self.budget:
            raise ValueError("budget: must be more than 0")


class Retention(msgspec.Struct, frozen=True):
    """What is deleted by itself, once a day; 0: nothing for that reason."""

    media: Seconds = Seconds(0)
    """Files that came along and are older than this."""
    sessions: Seconds = Seconds(0)
    """Conversations that were not used for so long."""
    disk: Bytes = Bytes(0)
    """What the data folder may take up; above it the oldest goes first."""
    protect: tuple[str, ...] = ()
    """Keys ("telegram:42") or sessions ("telegram:42/main") that stay whatever happens."""
    dry_run: bool = True
    """Say what would go, delete nothing."""

    def __post_init__(self) -> None:
        for one in self.protect:
            key, _, name = one.partition("/")
            if not re.fullmatch(r"[^\s/:@]+:[^\s/]+", key) or ((name or one.endswith("/")) and not re.fullmatch(r"[a-z0-9-]{1,40}", name)):
                raise ValueError(
                    f'protect: expected "telegram:42" or "telegram:42/main", as `parlour sessions list` shows it, not "{one[:40]}"'
                )


TABLES: Mapping[str, type[msgspec.Struct]] = {
    "log": Log,
    "http": Http,
    "access": Access,
    "sessions": Sessions,
    "backend": Backend,
    "shutdown": Shutdown,
    "retention": Retention,
}
"""By the name that they have in the file."""
