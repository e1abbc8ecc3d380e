"""`parlour doctor`: what is wrong here, and what to do. Exit 0 where nothing is, 1 where something is."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gateway.cli import FAILED, FINE, environment, foreign_channels, is_units, show
from gateway.words import counted

if TYPE_CHECKING:
    from gateway.config import Config
    from gateway.httpd.report import Status
    from gateway.reload import Differs

CREDENTIALS = "/run/credentials/"
"""Below which systemd puts the copies that it gives to units."""

_MARKS = {"ok": "ok", "note": "note", "wrong": "WRONG"}


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    found: list[Mapping[str, str]] = []
    with show.Progress("looking:") as progress:
        for area, level, text, remedy in _examine(args, progress):
            found.append({"area": area, "level": level, "text": show.cell(text), "remedy": show.cell(remedy)})
            if not args.json:
                progress.clear()
                line = f"{found[-1]['text'].rstrip('.')}: {found[-1]['remedy']}" if remedy else found[-1]["text"]
                print(show.fold(line, f"{_MARKS[level]:<6}{area:<9} ", " " * 16), flush=True)
    bad = sum(one["level"] == "wrong" for one in found)
    if args.json:
        print(show.as_json({"fine": not bad, "findings": found}))
    else:
        print("nothing is wrong" if not bad else f"{counted(bad, 'thing')} to mend")
    return FAILED if bad else FINE


def _examine(args: argparse.Namespace, progress: show.Progress) -> Iterator[tuple[str, str, str, str]]:
    """Area, level, text and remedy of each finding."""
    if foreign := foreign_channels():
        text, _, remedy = foreign.partition(": ")
        yield "packages", "wrong", text, remedy  # and nothing of ours that has to do with channels can be imported
        return
    import msgspec  # noqa: PLC0415

    from gateway import control, doctor, logging, unit  # noqa: PLC0415
    from gateway.cli import reach  # noqa: PLC0415
    from gateway.httpd.report import Status  # noqa: PLC0415

    logging.setup("error", "console")
    status, missing = None, ""
    try:
        status = msgspec.convert(reach.ask(args.config, "status", {}), Status)
    except control.NotRunning as error:
        missing = str(error)
    except control.Declined as error:
        missing = f"it says: {error}"
    found = unit.find()
    for one in doctor.examine(
        args.config,
        reach.data_folder(args.config),
        status=status,
        missing=missing,
        unit=found,
        env=environment(args.config, found, os.environ),
        ask=not args.offline,
        deep=args.deep,
        tell=progress.say,
        hide=lambda loaded: logging.mask.add(secret.reveal() for secret in loaded.hidden),
        compare=lambda loaded: _compare(args.config, loaded, status, units=is_units(args.config, found)),
    ):
        yield one.area, one.level, one.text, one.remedy


def _compare(where: str | None, loaded: Config, status: Status | None, *, units: bool) -> Differs | None:
    """What of this config is different in the running daemon; None where that runs with another file. systemd gives the daemon a copy of
    the unit's. Of one that cannot compare we know what the last reload left."""
    import msgspec  # noqa: PLC0415

    from gateway import control, reload  # noqa: PLC0415
    from gateway.cli import reach  # noqa: PLC0415

    if status is None:
        return None
    try:
        same = os.path.samefile(status.config, loaded.path)
    except OSError:
        same = False
    if not same and not (units and status.config.startswith(CREDENTIALS)):
        return None
    salt = secrets.token_hex(16)
    digests = msgspec.json.encode(reload.digests(loaded, salt)).decode()
    try:
        return msgspec.convert(reach.ask(where, "config.differs", {"salt": salt, "digests": digests}), reload.Differs)
    except (control.NotRunning, control.Declined):
        return reload.Differs(restart=status.needs_restart)
