"""The config file: what can stand in it, and the check that finds every fault of it at once.

`load` gives a `Config` that is right in itself, secrets included, or raises ConfigErrors with file, line and key of each fault. Whether a
token is accepted or a port is free is not known here. Called by `gateway.cli`; the structs are read by `gateway.app`.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from channels.settings import Secret
from gateway import secrets
from gateway.errors import ConfigError, ConfigErrors
from gateway.options import TABLES, Access, Backend, Http, Log, Retention, Sessions, Shutdown
from gateway.tomllines import Lines, without
from gateway.validate import Faults, convert, nearest, show, table

PLACES = (Path("config.toml"), Path("/etc/parlour/config.toml"))
"""Where the config is looked for if nobody says."""

ChannelTypes = Mapping[str, type[msgspec.Struct]]
"""Channel name -> the type of its table."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was configured, checked."""

    path: str
    """The file it came from; "" for the demonstration."""
    data_dir: Path
    log: Log = Log()
    http: Http = Http()
    access: Access = Access()
    sessions: Sessions = Sessions()
    backend: Backend
    shutdown: Shutdown = Shutdown()
    retention: Retention = Retention()
    channels: Mapping[str, msgspec.Struct]
    """By name: a channel runs if it is here."""
    tokens: Mapping[str, Secret]
    """The secret of each channel in `channels`; "" where it has none."""
    hidden: tuple[Secret, ...] = ()
    """Every secret value there is, for the log's mask."""
    demo: bool = False
    here: bool = False
    """Neither the file nor systemd says where the data is: it is ./data of where the daemon is started."""


_HOMES: Mapping[str, str] = {
    "data_dir": "it belongs above the first table",
    **{field.encode_name: f"it belongs in [{name}]" for name, kind in TABLES.items() for field in msgspec.structs.fields(kind)},
}
_MOST = 256 * 1024
"""Bytes of a config file; Python's TOML reader takes minutes over what is malicious and larger."""


def find(path: str | None) -> Path:
    """The file to read: as said, or the first place where one is. Raises ConfigErrors with what to do where there is none."""
    if path is not None:
        return Path(path)
    for place in PLACES:
        if os.path.exists(place):  # which is False, and no error, where we may not look
            return place
    places = " or ".join(map(str, PLACES))
    text = f"there is no {places}: copy config.example.toml to config.toml and edit it, or try the demonstration with ./dev run"
    raise ConfigErrors([ConfigError(str(PLACES[0]), 0, "", text)])


def data_dir(path: Path, said: str, env: Mapping[str, str]) -> Path:
    """Where the data is: as said (a relative path starts at the config file's folder), else where systemd says, else ./data."""
    if said:
        return Path(os.path.abspath(path.parent / os.path.expanduser(said)))
    return Path(env.get("STATE_DIRECTORY", "").split(":")[0] or "data").absolute()


def guess_data_dir(path: str | None, env: Mapping[str, str] = os.environ) -> Path:
    """`data_dir` for whoever only looks for the running daemon: faults in the file do not matter, nor that there is none."""
    try:
        file = find(path)
        said = tomllib.loads(_bytes(file)[0][:_MOST].decode("utf-8-sig").replace("\r\n", "\n")).get("data_dir", "")
    except (ConfigErrors, OSError, ValueError, RecursionError):
        return data_dir(Path(path or PLACES[0]), "", env)
    return data_dir(file, said if isinstance(said, str) else "", env)


def is_data(folder: Path) -> bool:
    """Whether a daemon has worked in this folder: nothing is to be begun in one that only has the name."""
    try:
        return (folder / "lock").is_file() or (folder / "journal").is_dir() or (folder / "sessions").is_dir()
    except OSError:
        return False


def demo(channel_types: ChannelTypes, *, local: bool, listen: str = "", env: Mapping[str, str] = os.environ) -> Config:
    """What `./dev run` starts without a file: the web page and the embedded model (`local`), or an echo. Raises ConfigErrors."""
    try:
        token = secrets.find(env, secrets.WEB)
        http = Http(listen=listen or Http().listen, token=token)
    except ConfigError as error:
        raise ConfigErrors([error]) from None
    except ValueError as error:
        raise ConfigErrors([ConfigError("--listen", 0, "", str(error).removeprefix("listen: "))]) from None
    return Config(
        path="",
        data_dir=data_dir(Path(), "", env),
        http=http,
        # The embedded model reads some 250 tokens a second, anew with every question.
        sessions=Sessions(history_tokens=2000),
        backend=Backend(kind="local" if local else "echo"),
        channels={"web": channel_types["web"]()},
        tokens={"web": token},
        hidden=(token,) if token else (),
        demo=True,
    )


def load(path: Path, channel_types: ChannelTypes, env: Mapping[str, str] = os.environ) -> Config:
    """Read and check a config file. Raises ConfigErrors with all of its faults, in the order of its lines."""
    text, readable = _read(path, env)
    lines = Lines(text)
    faults = Faults(str(path), lines)
    document = _parse(text, lines, faults)
    if document is None:
        raise ConfigErrors(faults.found)

    exposed = list(_secrets_in(document, channel_types))
    if readable and exposed:
        faults.add(exposed[0][0], f"a secret stands here and others may read this file: chmod 600 {path}")
    _ids(document.get("access"), channel_types, faults)
    tables = {name: table(kind, document.pop(name, {}), (name,), faults, _HOMES) for name, kind in TABLES.items()}
    channels, said = _channels(document.pop("channels", {}), channel_types, faults)
    folder = document.pop("data_dir", None)
    if folder is not None and (not isinstance(folder, str) or not folder.strip() or "\0" in folder):
        faults.add(("data_dir",), 'expected the path of a folder, like "data" or "/var/lib/parlour"')
    _unknown(document, channel_types, faults)

    http, backend = tables["http"], tables["backend"]
    if isinstance(http, Http) and not http.listen and "web" in channels:
        faults.add(("channels", "web"), "needs the HTTP server: set [http] listen, or take this table out")
    web = _secret(env, (secrets.WEB,), http.token if isinstance(http, Http) else Secret(""), ("http", "token"), faults)
    key_names = secrets.BACKEND if isinstance(backend, Backend) and backend.kind == "openai" else secrets.BACKEND[:1]
    key = _secret(env, key_names, backend.api_key if isinstance(backend, Backend) else Secret(""), ("backend", "api_key"), faults)
    tokens = {name: _token(name, said.get(name), env, faults) for name in channels if name in secrets.CHANNELS}
    if faults.found or not isinstance(http, Http) or not isinstance(backend, Backend):
        raise ConfigErrors(sorted(faults.found, key=lambda fault: (fault.path != str(path), fault.line)))

    settings: dict[str, msgspec.Struct] = {}
    for name, value in channels.items():
        if value is not None:
            held = "token" in value.__struct_fields__ and name in tokens
            settings[name] = msgspec.structs.replace(value, token=tokens[name]) if held else value
    tables |= {"http": msgspec.structs.replace(http, token=web), "backend": msgspec.structs.replace(backend, api_key=key)}
    values = [value.reveal() for value in (web, key, *tokens.values())]
    values += [value for _, found in exposed for value in found]
    return Config(
        path=str(path),
        data_dir=data_dir(path, folder or "", env),
        here=not folder and not env.get("STATE_DIRECTORY"),
        channels=settings,
        tokens={name: tokens.get(name, web if name == "web" else Secret("")) for name in settings},
        hidden=tuple(map(Secret, dict.fromkeys(filter(None, values)))),
        **tables,  # type: ignore[arg-type]  # each is of the type that `TABLES` says
    )


def _bytes(path: Path) -> tuple[bytes, int]:
    """Not more than one byte over what a config may have, and the file's mode. A pipe into which somebody writes is read to its end
    (`--config <(decrypt config.toml)`); nobody is waited for to open the other end. Raises OSError, ValueError."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        os.set_blocking(file.fileno(), True)
        return file.read(_MOST + 1), os.fstat(file.fileno()).st_mode


def _read(path: Path, env: Mapping[str, str]) -> tuple[str, bool]:
    """The file's text, and whether others than its owner may read it."""

    def fault(text: str, line: int = 0) -> ConfigErrors:
        return ConfigErrors([ConfigError(str(path), line, "", text)])

    try:
        raw, mode = _bytes(path)
    except FileNotFoundError:
        raise fault("there is no such file: copy config.example.toml and edit it, or try the demonstration with ./dev run") from None
    except (OSError, ValueError) as error:
        raise fault(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > _MOST:
        raise fault("is no config file: it is over 256 KiB")
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise fault("is not UTF-8 text", raw.count(b"\n", 0, error.start) + 1) from None
    folder = env.get("CREDENTIALS_DIRECTORY", "")
    kept = bool(folder) and os.path.realpath(path.parent) == os.path.realpath(folder)
    return text, bool(mode & (stat.S_IRGRP | stat.S_IROTH)) and not kept


def _parse(text: str, lines: Lines, faults: Faults) -> dict[str, Any] | None:
    """The document without what stands twice; None where it is not TOML."""
    twice = lines.duplicates()
    for one in twice:
        faults.add(one.path, f"stands twice, first on line {one.before}", one.first)
    try:
        return tomllib.loads(without(text, twice))
    except RecursionError:
        faults.add((), "is nested too deeply")
    except ValueError as error:  # a TOMLDecodeError, or a number of thousands of digits
        where = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        line = int(where[1] or text.count("\n") + 1) if where else 0
        what = str(error)[: where.start()] if where else "a value that is no TOML"
        faults.add(lines.at(line), f"not TOML: {what[:1].lower()}{what[1:]}", line)
    return None


def _channels(value: object, types: ChannelTypes, faults: Faults) -> tuple[dict[str, msgspec.Struct | None], dict[str, Secret]]:
    """The channels' tables and the tokens that stand in them; None where one has faults."""
    result: dict[str, msgspec.Struct | None] = {}
    said: dict[str, Secret] = {}
    if not isinstance(value, Mapping):
        faults.add(("channels",), "expected tables like [channels.telegram]")
        return result, said
    if not value:
        faults.add((), f"no channel is configured: add {' or '.join(f'[channels.{name}]' for name in types)}")
    for name, raw in value.items():
        at = ("channels", name)
        if name not in types:
            faults.add(at, f"unknown channel: {nearest(name, types)}")
            continue
        if name in secrets.CHANNELS and isinstance(raw, Mapping) and "token" in raw:
            try:
                said[name] = convert(raw["token"], Secret)
            except ValueError as error:
                faults.add((*at, "token"), str(error))
            raw = {key: other for key, other in raw.items() if key != "token"}  # noqa: PLW2901
        result[name] = table(types[name], raw, at, faults, _HOMES)
    return result, said


def _unknown(document: Mapping[str, object], types: ChannelTypes, faults: Faults) -> None:
    """Faults for what is left of the document."""
    for name, value in document.items():
        if isinstance(value, Mapping | list):
            names = {**dict.fromkeys(TABLES), **{one: f"channels.{one}" for one in types}, "channels": None}
            close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
            hint = f'did you mean "{names[close[0]] or close[0]}"?' if close else nearest(name, names)
            faults.add((name,), f"unknown table: {hint}")
        else:
            faults.add((name,), f"unknown key: {_HOMES.get(name) or nearest(name, ['data_dir', *_HOMES])}")


def _ids(access: object, types: ChannelTypes, faults: Faults) -> None:
    """Whoever is let in is named by channel and id, never by a name that anybody can take."""
    for field in ("allow", "allow_groups", "admins"):
        said = access.get(field) if isinstance(access, Mapping) else None
        for one in said if isinstance(said, list) else ():
            if not isinstance(one, str):
                continue  # the type is at fault, and told
            channel, colon, person = one.partition(":")
            if not colon:
                hint = f'expected "channel:id" like "{next(iter(types))}:42"'
            elif channel not in types:
                hint = f"unknown channel: {nearest(channel, types)}"
            elif channel in secrets.CHANNELS and not re.fullmatch(r"-?[0-9]{1,20}", person):
                hint = "expected the number that the network knows them by, since names change hands (/whoami tells it)"
            elif not re.fullmatch(r"[A-Za-z0-9._-]{1,80}", person):
                hint = "expected an id of letters, digits, dots and dashes"
            else:
                continue
            faults.add(("access", field), f"{show(one)}: {hint}")


def _secret(env: Mapping[str, str], names: Sequence[str], said: Secret | None, at: tuple[str, ...], faults: Faults) -> Secret:
    """A secret from outside the file, else what stands in it."""
    try:
        if found := secrets.find(env, *names):
            return found
        return Secret(secrets.clean(said.reveal())) if said else Secret("")
    except ConfigError as error:
        faults.found.append(error)
    except ValueError as error:
        faults.add(at, str(error))
    return Secret("")


def _token(channel: str, said: Secret | None, env: Mapping[str, str], faults: Faults) -> Secret:
    name, at = secrets.CHANNELS[channel], ("channels", channel, "token")
    before = len(faults.found)
    token = _secret(env, (name,), said, at, faults)
    told = len(faults.found) > before or any(fault.key == ".".join(at) for fault in faults.found)
    if not token and not told:
        text = "is empty" if said is not None else "is missing"
        place = f"{name}_FILE to a file that holds it (the unit has it in /etc/parlour/secrets/{name.removeprefix('PARLOUR_')})"
        faults.add(at, f'{text}: set {name}, or {place}, or token = "..." here')
    return token


def _secrets_in(document: Mapping[str, object], types: ChannelTypes) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Where secrets stand in the file, and which: values of secret keys, and passwords in addresses."""
    kinds = (*TABLES.values(), *types.values())
    names = {"token"} | {field.encode_name for kind in kinds for field in msgspec.structs.fields(kind) if field.type is Secret}

    todo: list[tuple[tuple[str, ...], object]] = [((), document)]
    while todo:
        at, value = todo.pop()
        if isinstance(value, Mapping):
            todo += [((*at, key), inner) for key, inner in reversed(list(value.items()))]
        elif isinstance(value, list):
            todo += [(at, inner) for inner in reversed(value)]
        elif isinstance(value, str) and value:
            if at[-1] in names:
                yield at, [value.rstrip("\r\n")]
            elif found := secrets.in_urls(value):
                yield at, found
