"""`parlour pair`: who may chat. The running daemon alone knows who asks."""

from __future__ import annotations

import argparse

from gateway.cli import FINE, reach, show


def run(args: argparse.Namespace) -> int:
    """The exit code. Raises control.NotRunning, control.Declined."""
    given = {name: getattr(args, name) for name in ("code", "id") if hasattr(args, name)}
    answer = reach.ask(args.config, f"pair.{args.action}", given)
    if args.json:
        print(show.as_json(answer))
    elif isinstance(answer, list):
        print(show.table([row if isinstance(row, dict) else {"": row} for row in answer], "nobody"))
    else:
        print(show.block("" if answer is None else str(answer)))
    return FINE
