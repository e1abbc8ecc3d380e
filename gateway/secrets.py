"""Where secrets come from: a systemd credential, then the file that NAME_FILE names, then the environment, then the config file.

The first that is there counts; a file that is named and cannot be used is a fault, never passed over for the next place. Knows nothing of
TOML: what stands in the config file is handed in by `gateway.config`, the only caller.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from channels.settings import Secret
from gateway.errors import ConfigError

CHANNELS: Mapping[str, str] = {"telegram": "PARLOUR_TELEGRAM_TOKEN", "discord": "PARLOUR_DISCORD_TOKEN"}
"""Channels that cannot be without a token, and its name."""
WEB = "PARLOUR_WEB_TOKEN"
BACKEND = ("PARLOUR_BACKEND_API_KEY", "OPENAI_API_KEY")

_SHAPES: Mapping[str, tuple[str, str]] = {
    "telegram": (r"[0-9]+:[A-Za-z0-9_-]{35}", "digits, a colon and 35 letters, digits, _ or -, as @BotFather gives it"),
    "discord": (
        r"[A-Za-z0-9_-]{18,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{20,}",
        "three parts with dots between them, from the page Bot of the developer portal (not the client secret, not the public key)",
    ),
}
"""By channel: what its tokens look like, and the same in words."""

_MOST = 64 * 1024
_USERINFO = re.compile(r"(?<=://)([^/?#\s@]*:[^/?#\s]*)@")


def clean(text: str) -> str:
    """A secret without the line end that editors and `echo` add. Raises ValueError where it cannot be one."""
    text = text.rstrip("\r\n")
    if not text:
        raise ValueError("is empty")
    if not text.isprintable() or any(c.isspace() for c in text):
        raise ValueError("has blanks, line breaks or control characters in it")
    return text


def _read(path: Path, name: str) -> Secret:
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST + 1)
        if len(raw) > _MOST:
            raise ValueError("is too long for a secret")
        return Secret(clean(raw.decode()))
    except OSError as error:
        raise ConfigError(str(path), 0, name, f"cannot be read: {error.strerror or type(error).__name__}") from None
    except UnicodeDecodeError:
        raise ConfigError(str(path), 0, name, "is not a text") from None
    except ValueError as error:
        raise ConfigError(str(path), 0, name, str(error)) from None


def find(env: Mapping[str, str], *names: str) -> Secret:
    """The secret by these names, the first name first; "" if it is nowhere outside the config file. Raises ConfigError.

    An empty variable counts as not set, as compose files and unit files write it.
    """
    for name in names:
        folder = env.get("CREDENTIALS_DIRECTORY", "")
        if folder and os.path.lexists(credential := Path(folder, name)):
            return _read(credential, name)
        if path := env.get(f"{name}_FILE", ""):
            return _read(Path(os.path.expanduser(path)), f"{name}_FILE")
        if value := env.get(name, ""):
            try:
                return Secret(clean(value))
            except ValueError as error:
                raise ConfigError("environment", 0, name, str(error)) from None
    return Secret("")


def named(env: Mapping[str, str], *names: str, at: str) -> str:
    """Where `find` finds the secret, in the operator's words; `at`, its place in the config file, where it is nowhere else."""
    for name in names:
        folder = env.get("CREDENTIALS_DIRECTORY", "")
        if folder and os.path.lexists(Path(folder, name)):
            return f"{name}, a credential of the unit"
        if path := env.get(f"{name}_FILE", ""):
            return f"{name}, in {path}"
        if env.get(name, ""):
            return name
    return at


def token_name(env: Mapping[str, str], channel: str) -> str:
    """`named` for a channel's token; "" for a channel that has none of its own."""
    return named(env, CHANNELS[channel], at=f"token in [channels.{channel}]") if channel in CHANNELS else ""


def key_name(env: Mapping[str, str], key: Secret) -> str:
    """`named` for the backend's `key`; where there is none, how to give it one."""
    return named(env, *BACKEND, at="api_key in [backend]") if key else f"there is none; set {BACKEND[0]}"


def misshapen(channel: str, token: Secret) -> str:
    """How a token of this channel looks, where this one does not; "" where it does. The network alone knows whether it is good."""
    shape, words = _SHAPES.get(channel, ("", ""))
    return words if words and not re.fullmatch(shape, token.reveal()) else ""


def in_urls(text: str) -> list[str]:
    """Passwords that stand in addresses (`https://user:password@host`), as written and as meant."""
    found: list[str] = []
    for match in _USERINFO.finditer(text):
        password = match[1].partition(":")[2]
        found += dict.fromkeys(one for one in (match[1], password, unquote(password)) if len(one) > 1)
    return found
