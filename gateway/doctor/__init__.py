"""`parlour doctor`: what is wrong here, and what to do about it. Looks at the config, its secrets, the folder, the machine, the daemon and
those that it speaks to; changes none of them. Called by `gateway.cli`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gateway import leftovers, online
from gateway.app import channel_types
from gateway.config import Config, find, load
from gateway.doctor import folder, house, machine
from gateway.doctor.findings import Finding, ok, wrong
from gateway.errors import ConfigErrors
from gateway.httpd.report import Status
from gateway.options import Backend, Shutdown
from gateway.reload import Differs
from gateway.unit import Unit

__all__ = ["Finding", "examine"]

_PROBE = 1.0


def examine(
    where: str | None,
    data: Path,
    *,
    status: Status | None,
    missing: str,
    unit: Unit | None,
    env: Mapping[str, str],
    ask: bool,
    deep: bool,
    tell: Callable[[str], None],
    hide: Callable[[Config], None],
    compare: Callable[[Config], Differs | None],
) -> Iterator[Finding]:
    """One finding after the other, as they are made. `where`: the config that was named; `data`: the folder, if the config cannot say;
    `status`: the daemon's, or why it is `missing`; `ask`: networks and backend; `hide` is told the config before anything of it is told,
    `compare` asks the running daemon what of it is different there (None: it runs with another file)."""
    yield machine.python()
    loaded: Config | None = None
    try:
        loaded = load(find(where), channel_types(), env)
    except ConfigErrors as errors:
        yield from house.faults(errors)
    else:
        hide(loaded)
        data = loaded.data_dir if status is None and loaded.data_dir.exists() else data
        yield from house.config(loaded)
        if status is not None:
            yield from house.running(loaded, compare(loaded), status)
    yield from house.secret_files(env)
    yield from packages(loaded)
    data = Path(status.data_dir) if status is not None else data
    yield from folder.examine(data, deep=deep, tell=tell, here=loaded is not None and loaded.here and data == loaded.data_dir)
    yield from machine.disk(data, said=status.health.disk if status is not None else "")
    try:
        left = leftovers.look(data)
    except OSError as error:
        left = leftovers.Left(True)
        yield wrong("journal", f"{error.filename or data} cannot be read: {error.strerror}")
    yield from house.daemon(status, missing, left)
    yield machine.unit(unit, float((loaded.shutdown if loaded else Shutdown()).budget))
    turns = (loaded.backend if loaded else Backend(kind="echo")).max_concurrent_turns
    yield machine.open_files(turns, status.pid if status is not None else 0)
    if loaded is not None and status is None and not left.holder:
        yield from _listen(loaded.http.listen)
    if loaded is not None and not ask:
        yield from house.tokens(loaded, env, ())
    if loaded is not None and ask:
        tell("asking the networks and the model")
        tried = asyncio.run(online.ask_all(loaded, env=env))
        yield from house.tokens(loaded, env, {one.name for one in tried if one.ok or one.denied})
        groups = loaded.access.groups == "open" or bool(loaded.access.allow_groups)
        yield from house.others(tried, groups=groups, known=house.troubles(status))
        yield machine.clock({one.name: one.ahead for one in tried if one.ahead is not None})


def packages(loaded: Config | None) -> Iterator[Finding]:
    """Whether what the configured parts are made of is installed."""
    needs = {"telegram": "telegram", "discord": "discord"}
    for name, package in needs.items():
        if loaded is not None and name in loaded.channels and importlib.util.find_spec(package) is None:
            yield wrong(name, f"the package {package!r} is not installed", "./dev venv installs it")


def _listen(place: str) -> Iterator[Finding]:
    """Where no daemon of ours runs, nobody should sit on its port."""
    host, _, port = place.rpartition(":")
    if not host or place.startswith("unix:"):
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE):
            yield wrong("http", f"another program listens on {place}", "end it, or choose another [http] listen")
    except OSError:
        yield ok("http", f"{place} is free")
