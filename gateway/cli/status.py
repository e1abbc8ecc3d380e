"""`parlour status`: how the running daemon is; without one, what it left to do."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import msgspec

from gateway import control
from gateway.cli import FAILED, FINE, quiet, reach, show
from gateway.httpd.report import Status


def run(args: argparse.Namespace) -> int:
    """The exit code: 1 where no daemon answers."""
    try:
        answer = reach.ask(args.config, "status", {})
    except control.NotRunning as error:
        return _alone(args, error)
    status = msgspec.convert(answer, Status)
    if args.json:
        channels = {name: msgspec.structs.asdict(channel) for name, channel in status.health.channels.items()}
        health = {**msgspec.structs.asdict(status.health), "channels": channels}
        print(show.as_json({"running": True, **msgspec.structs.asdict(status), "health": health}))
    else:
        print("\n".join(show.fold(show.cell(text), f"{show.pad(name, 14)}", " " * 14) for name, text in _lines(status)))
    return FINE


def _lines(status: Status) -> Iterator[tuple[str, str]]:
    health = status.health
    yield "Up since", f"{show.minute(status.since)} ({show.span(status.up)})"
    yield "Version", f"{status.version}, process {status.pid}"
    if status.config:
        yield "Config", status.config
    if status.needs_restart:
        yield "Restart", f"needed for {', '.join(status.needs_restart)}, which changed in the config"
    yield "Data", status.data_dir + (f": {health.disk}" if health.disk else "")
    for name, channel in sorted(health.channels.items()):
        heard = "nothing heard yet"
        if channel.last_sign_of_life is not None:
            heard = f"heard {show.span(channel.last_sign_of_life)} ago"
        yield "Channel", f"{name}: {', '.join(filter(None, (channel.state, channel.problem, heard)))}"
    if status.page:
        yield "HTTP", status.page
    if health.stuck:
        yield "Stuck", health.stuck
    for part, why in sorted(health.restarted.items()):
        yield "Restarted", f"{part}, within the last two minutes: {why}"
    yield "Backend", health.backend + (f" ({health.backend_remedy})" if health.backend_remedy else "")
    yield "Turns", f"{health.turns} running, {max(0, status.unfinished - health.turns)} more not finished"
    if health.oldest_waiting is not None:
        yield "Oldest", f"waits {show.span(health.oldest_waiting)}"
    yield "Unsent", f"{show.counted(health.unsent, 'message waits', 'messages wait')} for a network"
    yield "Conversations", f"{status.busy} busy, {status.cached} in memory ({show.size(status.cached_bytes)})"
    yield "Memory", show.size(status.memory)
    for one in status.set_aside[-5:]:
        yield "Set aside", f"{one.input} in {one.key}, {show.minute(one.at)}: the daemon died over it {one.deaths} times"


def _alone(args: argparse.Namespace, missing: control.NotRunning) -> int:
    from gateway import leftovers  # noqa: PLC0415  # not needed where a daemon answers

    quiet()
    data = reach.data_folder(args.config)
    left = leftovers.look(data)
    age = max(0.0, time.time() - left.oldest) if left.unfinished else 0.0
    if args.json:
        print(
            show.as_json(
                {
                    "running": False,
                    "why": str(missing),
                    "data_dir": str(data),
                    "holder": left.holder,
                    "unfinished": left.unfinished,
                    "oldest": round(age, 1) if left.unfinished else None,
                }
            )
        )
        return FAILED
    lines = [f"No daemon answers. {missing}"]
    if left.holder:
        lines.append(f"But {left.holder} holds the folder {data}.")
    if left.unfinished:
        lines.append(f"The journal holds {show.counted(left.unfinished, 'unfinished message')}, the oldest {show.span(age)} old.")
    else:
        lines.append("Nothing is left unfinished." if left.there else f"{data}: no data of Parlour's is here.")
    print("\n".join(show.fold(show.cell(line)) for line in lines))
    return FAILED
