"""`parlour doctor`: what is wrong here, and what to do. Exit 0 where nothing is, 1 where something is."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping

from gateway.cli import FAILED, FINE, foreign_channels, show

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
        print("nothing is wrong" if not bad else f"{bad} thing{'' if bad == 1 else 's'} to mend")
    return FAILED if bad else FINE


def _examine(args: argparse.Namespace, progress: show.Progress) -> Iterator[tuple[str, str, str, str]]:
    """Area, level, text and remedy of each finding."""
    if foreign := foreign_channels():
        text, _, remedy = foreign.partition(": ")
        yield "packages", "wrong", text, remedy  # and nothing of ours that has to do with channels can be imported
        return
    import msgspec  # noqa: PLC0415

    from gateway import control, doctor, logging, unit  # noqa: PLC0415
    from gateway.cli import reach, secrets_of  # noqa: PLC0415
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
        env=secrets_of(args.config, found, os.environ),
        ask=not args.offline,
        deep=args.deep,
        tell=progress.say,
        hide=lambda loaded: logging.mask.add(secret.reveal() for secret in loaded.hidden),
    ):
        yield one.area, one.level, one.text, one.remedy
