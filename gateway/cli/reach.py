"""How a command gets to where its work is done: to the running daemon over its socket, else to the data folder itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway import config, control, unit
from gateway.cli import environment
from gateway.errors import ConfigErrors, StartError

RUNTIME = Path("/run/parlour/control.sock")
"""Where the unit's daemon listens: root, who looks after it from a shell, has no RUNTIME_DIRECTORY."""
STATE = Path("/var/lib/parlour")
"""Where the unit's daemon keeps its data."""


def data_folder(where: str | None) -> Path:
    """Where the data is, as far as can be told without the daemon; faults in the config do not matter."""
    data = config.guess_data_dir(where, environment(where, unit.find(), os.environ))
    if where is None and not config.is_data(data) and config.is_data(STATE):
        try:
            mine = config.find(None) == config.PLACES[0]
        except ConfigErrors:
            mine = False
        return data if mine else STATE
    return data


def ask(
    where: str | None,
    name: str,
    args: Mapping[str, str],
    *,
    part: Callable[[object], None] | None = None,
    beat: Callable[[], None] | None = None,
    alone: bool = False,
) -> object:
    """What the daemon answers; `alone`: without one the work is done here, under the folder's lock. `part` gets the parts of a long answer,
    `beat` is called now and then while it takes its time. Raises control.NotRunning, control.Declined, ParlourError, OSError."""
    data = data_folder(where)
    places = dict.fromkeys((control.socket_path(data), data / "control.sock"), "")
    # The unit's daemon may be another one than that of this folder.
    places.setdefault(RUNTIME, control.identity(data) if config.is_data(data) else "")
    missing: control.NotRunning | None = None
    takes = part or ((lambda one: None) if beat else None)
    for place, folder in places.items():
        try:
            return asyncio.run(control.call(place, name, args, part=takes, beat=beat, folder=folder))
        except control.NotRunning as error:
            if error.asked:  # whatever it did of it, it must not be done twice
                raise
            missing = error if missing is None or (missing.absent and not error.absent) else missing
    assert missing is not None
    if not alone:
        raise missing
    if not config.is_data(data):
        raise control.NotRunning(f"{missing}; and {data} holds no data to work on without one")
    from gateway import offline  # noqa: PLC0415  # it brings the whole house with it

    try:
        return asyncio.run(offline.work(data, name, args, part))
    except StartError as error:
        raise StartError(f"{error}; its socket: {missing}") from None
