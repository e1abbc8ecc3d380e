"""What a running daemon takes over of a config that has changed, and what needs a restart. `gateway.app` carries the plan out.

systemd hands credentials over when a unit starts and not again, so that under our unit the config file that the daemon knows never changes.
For a reload the unit puts the present ones into another folder, which it names in the environment (deploy/reload.sh).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from channels.settings import Secret
from gateway.config import ChannelTypes, Config, load
from gateway.options import TABLES, Access, Retention

TAKEN: Mapping[str, frozenset[str]] = {
    "log": frozenset({"level"}),
    "access": frozenset(Access.__struct_fields__),
    "sessions": frozenset({"history_messages", "history_tokens", "waiting"}),
    "backend": frozenset(
        {"base_url", "model", "api_key", "system_prompt", "max_answer_chars", "first_token_timeout", "idle_timeout"},
    ),
    "shutdown": frozenset({"budget"}),
    "retention": frozenset(Retention.__struct_fields__),
}
"""By table, the keys that a running daemon takes over. Whatever is not here, and not `Adjustable` in a channel, needs a restart."""


ADDRESS = frozenset({"base_url", "model", "api_key", "first_token_timeout", "idle_timeout"})
"""Keys of [backend] that are meant for the kind that is written beside them, and for no other."""


FRESH = "PARLOUR_FRESH_CREDENTIALS"
"""The variable that names the folder with the present credentials."""


def read(path: Path, channel_types: ChannelTypes, env: Mapping[str, str]) -> Config:
    """The config as it is now; what systemd handed over at start is looked for where the unit puts it for a reload. Blocks. Raises
    ConfigErrors."""
    now = present(env)
    if now is not env and os.path.realpath(path.parent) == os.path.realpath(env["CREDENTIALS_DIRECTORY"]):
        path = Path(now["CREDENTIALS_DIRECTORY"], path.name)
    return load(path, channel_types, now)


def present(env: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with the credentials that the unit put aside for a reload, where it did; else `env` itself. Blocks."""
    handed, fresh = env.get("CREDENTIALS_DIRECTORY", ""), env.get(FRESH, "")
    return {**env, "CREDENTIALS_DIRECTORY": fresh} if handed and fresh and os.path.isdir(fresh) else env


class Plan(NamedTuple):
    """`config`: what the daemon runs with from here on. The others are keys as the file names them."""

    config: Config
    taken: tuple[str, ...]
    restart: tuple[str, ...]


class Differs(msgspec.Struct, frozen=True):
    """What another config has different from the running one, as keys: what a reload takes over, and what needs a restart."""

    reload: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()


def digests(config: Config, salt: str) -> dict[str, str]:
    """Key -> what stands there, as a digest: so two configs are compared by processes of which neither shows the other its secrets."""
    values: dict[str, object] = {"data_dir": config.data_dir}
    for name in TABLES:
        table = getattr(config, name)
        values |= {f"{name}.{key}": getattr(table, key) for key in table.__struct_fields__}
    for name, settings in config.channels.items():
        values[f"channels.{name}"] = ""
        values |= {f"channels.{name}.{key}": getattr(settings, key) for key in settings.__struct_fields__}
    values |= {f"channels.{name}.token": token for name, token in config.tokens.items() if name != "web"}
    return {key: blake2b(f"{salt}\0{key}\0{_plain(value)!r}".encode(), digest_size=8).hexdigest() for key, value in values.items()}


def _plain(value: object) -> object:
    if isinstance(value, Secret):
        return value.reveal()
    return [_plain(one) for one in value] if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value


def differs(running: Config, salt: str, theirs: Mapping[str, str], adjustable: Mapping[str, Collection[str]]) -> Differs:
    """`theirs`: `digests` of the other config. A channel that only one of them has is named as a whole."""
    ours = digests(running, salt)
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    whole = tuple(f"{key}." for key in keys if key.startswith("channels.") and key.count(".") == 1)
    taken_over: list[str] = []
    restart: list[str] = []
    for key in keys:
        if key.startswith(whole):
            continue
        table, _, field = key.rpartition(".")
        taken = TAKEN.get(table, frozenset())
        if table == "backend" and "backend.kind" in keys:
            taken -= ADDRESS
        if table.startswith("channels."):
            taken = frozenset(adjustable.get(table.removeprefix("channels."), ()))
        (taken_over if field in taken else restart).append(key)
    return Differs(tuple(taken_over), tuple(restart))


def plan(running: Config, wanted: Config, adjustable: Mapping[str, Collection[str]]) -> Plan:
    """What becomes of `running` where the file says `wanted`. `adjustable`: by channel, the keys that it takes over while it runs.

    What needs a restart is compared anew each time, so that it is told until the restart comes.
    """
    taken: list[str] = []
    restart: list[str] = []
    if running.data_dir != wanted.data_dir:
        restart.append("data_dir")
    changes: dict[str, msgspec.Struct] = {}
    for name in TABLES:
        keys = TAKEN.get(name, frozenset())
        if name == "backend" and running.backend.kind != wanted.backend.kind:
            keys -= ADDRESS
        changes[name] = _merged(name, getattr(running, name), getattr(wanted, name), keys, taken, restart)
    channels: dict[str, msgspec.Struct] = {}
    for name, settings in running.channels.items():
        if name in wanted.channels:
            channels[name] = _merged(f"channels.{name}", settings, wanted.channels[name], adjustable.get(name, ()), taken, restart)
        else:
            channels[name] = settings
    restart += (f"channels.{name}" for name in sorted(running.channels.keys() ^ wanted.channels.keys()))
    for name, token in running.tokens.items():
        key = f"channels.{name}.token"
        if name != "web" and name in wanted.tokens and token != wanted.tokens[name] and key not in restart:
            restart.append(key)
    config = msgspec.structs.replace(running, channels=channels, hidden=tuple(dict.fromkeys((*running.hidden, *wanted.hidden))), **changes)
    return Plan(config, tuple(taken), tuple(restart))


def _merged(
    at: str, running: msgspec.Struct, wanted: msgspec.Struct, keys: Collection[str], taken: list[str], restart: list[str]
) -> msgspec.Struct:
    """`running` with those of `keys` that are different in `wanted`."""
    changes: dict[str, object] = {}
    for key in _different(running, wanted):
        if key in keys:
            changes[key] = getattr(wanted, key)
            taken.append(f"{at}.{key}")
        else:
            restart.append(f"{at}.{key}")
    return msgspec.structs.replace(running, **changes)


def _different(running: msgspec.Struct, wanted: msgspec.Struct) -> Iterator[str]:
    return (field for field in running.__struct_fields__ if getattr(running, field) != getattr(wanted, field))
