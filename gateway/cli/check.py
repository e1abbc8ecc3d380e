"""`parlour check`: is the config right, and, if asked, do the networks and the model know us? Starts nothing, leaves nothing behind."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence

import msgspec

from gateway import online, unit
from gateway.cli import FAILED, FINE, MISCONFIGURED, environment, load, quiet, show
from gateway.config import Config
from gateway.errors import ConfigErrors
from gateway.logging import mask


def run(args: argparse.Namespace) -> int:
    """The exit code. Raises ConfigErrors where they are to be told as lines."""
    try:
        loaded = load(args.config)
    except ConfigErrors as errors:
        if not args.json:
            raise
        faults = [{"path": one.path, "line": one.line, "key": one.key, "text": mask(one.text)} for one in errors.faults]
        print(show.as_json({"fine": False, "faults": faults}))
        return MISCONFIGURED
    tried: Sequence[online.Tried] = ()
    if args.online:
        quiet(loaded)
        with show.Progress("asking the networks and the model ..."):
            tried = asyncio.run(online.ask_all(loaded, env=environment(args.config, unit.find(), os.environ)))
    if args.json:
        print(show.as_json(_json(loaded, args.online, tried)))
    else:
        for one in tried:
            tell(one)
        if all(one.ok for one in tried):
            channels = ", ".join(loaded.channels)
            here = " (./data of where it is started: no data_dir is set)" if loaded.here else ""
            fine = f"{loaded.path}: fine. Channels: {channels}. Backend: {loaded.backend.kind}. Data: {loaded.data_dir}{here}"
            print(show.fold(show.cell(fine), rest="    "))
    return code(tried)


def tell(one: online.Tried) -> None:
    """A line for what was tried, and one for each thing that is not as it should be."""
    print(show.fold(mask(show.cell(f"{one.name}: {'ok' if one.ok else 'NO'}, {one.text} ({one.seconds:.1f} s)")), rest="    "), flush=True)
    if one.remedy:
        print(show.fold(mask(show.cell(one.remedy)), "    ", "    "), flush=True)
    for amiss in one.amiss:
        print(show.fold(mask(show.cell(f"{amiss.text}: {amiss.remedy}")), "    ", "    "), flush=True)


def code(tried: Sequence[online.Tried]) -> int:
    """78 where credentials are refused, 1 where somebody cannot be reached."""
    if any(one.denied for one in tried):
        return MISCONFIGURED
    return FINE if all(one.ok for one in tried) else FAILED


def _json(loaded: Config, asked: bool, tried: Sequence[online.Tried]) -> dict[str, object]:
    said: dict[str, object] = {
        "fine": all(one.ok for one in tried),
        "config": loaded.path,
        "channels": list(loaded.channels),
        "backend": loaded.backend.kind,
        "data_dir": str(loaded.data_dir),
    }
    return {**said, "online": msgspec.to_builtins(tried)} if asked else said
