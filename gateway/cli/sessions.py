"""`parlour sessions`: conversations, through the running daemon or, without one, in the data folder itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import msgspec

from gateway.answers import Conversation, Deleted, Forked, Listing, Row, Unlisted
from gateway.cli import FAILED, FINE, USAGE, export, quiet, reach, say, show

T = TypeVar("T")

_WAITS = "the conversation is busy, waiting for its turn to end ..."


def run(args: argparse.Namespace) -> int:
    """The exit code. Raises ParlourError, OSError."""
    quiet()
    actions: Mapping[str, Callable[[argparse.Namespace], int]] = {
        "list": _list,
        "show": _show,
        "export": export.run,
        "delete": _delete,
        "fork": _fork,
    }
    return actions[args.action](args)


# ---------------------------------------------------------------------------------------------------------------------------- list


def rows(where: str | None, prefix: str) -> tuple[list[Row], list[Unlisted]]:
    """All sessions whose keys begin so, and those that are there and cannot be read."""
    found: list[Row] = []
    unlisted: list[Unlisted] = []
    with show.Progress("reading the list:") as progress:

        def part(one: object) -> None:
            listing = msgspec.convert(one, Listing)
            found.extend(listing.rows)
            unlisted.extend(listing.unlisted)
            progress.say(show.counted(len(found), "session"))

        reach.ask(where, "sessions.list", {"prefix": prefix}, part=part, beat=progress.say, alone=True)
    return found, unlisted


def _list(args: argparse.Namespace) -> int:
    found, unlisted = rows(args.config, args.key)
    for one in unlisted:
        say(f"parlour: {one.key}: {one.unreadable} that cannot be read are left out; `parlour doctor` says more")
    if args.json:
        print("[" + ",\n ".join(show.as_json(msgspec.to_builtins(row)) for row in found) + "]")
    elif not found:
        print(f"no conversations of keys that begin with {show.cell(args.key)}" if args.key else "no conversations yet")
    else:
        print("\n".join(_lines(found)))
    return FINE


def _lines(found: list[Row]) -> Iterator[str]:
    names = max(4, *(len(row.name) for row in found))
    yield show.cut(f"  {'NAME':<{names}} {'LINES':>7} {'SIZE':>8}  {'LAST USED':<16}  TITLE", show.COLUMNS).rstrip("… ")
    key = ""
    for row in found:
        if row.key != key:
            key = row.key
            yield show.cell(key)
        mark = "*" if row.current else " "
        line = f"{mark} {show.pad(show.cell(row.name), names)} {row.lines:>7} {show.size(row.size):>8}  {show.minute(row.used):<16}  "
        yield f"{line}{show.cut(show.cell(row.title), show.COLUMNS - len(line))}".rstrip()


# ---------------------------------------------------------------------------------------------------------------------------- show


def _show(args: argparse.Namespace) -> int:
    parts: list[Conversation] = []
    with show.Progress("reading ...") as progress:
        reach.ask(
            args.config,
            "sessions.show",
            {"key": args.key, "name": args.name, "last": str(args.last)},
            part=lambda one: parts.append(msgspec.convert(one, Conversation)),
            beat=progress.say,
            alone=True,
        )
    head = parts[0]
    messages = [message for part in parts for message in part.messages]
    if args.json:
        print(show.as_json({**msgspec.to_builtins(head), "messages": msgspec.to_builtins(messages)}))
        return FINE
    print(show.fold(show.cell(f"{head.key} {head.name}{f': {head.title}' if head.title else ''}"), rest="    "))
    fork = f"a fork of {head.parent}; " if head.parent else ""
    size = f"{show.counted(head.turns, 'turn')}, {show.counted(head.lines, 'line')}"
    print(show.fold(show.cell(f"{fork}{size}, made {show.minute(head.created)}")))
    for message in messages:
        print(f"\n{show.cut(show.cell(export.who(message)), 60)}, {show.minute(message.at)}".rstrip(", "))
        for text in export.body(message):
            print(show.paragraphs(text, "    "))
    return FINE


# ------------------------------------------------------------------------------------------------------------------- delete and fork


def _delete(args: argparse.Namespace) -> int:
    if not args.yes:
        if not sys.stdin.isatty():
            say("parlour: nobody is here to be asked: say --yes to delete for good")
            return USAGE
        if not _sure(args):
            say("nothing was deleted")
            return FAILED
    deleted = _one(args, "sessions.delete", {"key": args.key, "name": args.name}, Deleted)
    if args.json:
        print(show.as_json(msgspec.to_builtins(deleted)))
    elif deleted.everything:
        print(show.fold(show.cell(f"{deleted.key}: everything is deleted, {_count(len(deleted.names))} and what the journal held")))
    else:
        print(show.fold(show.cell(f"{deleted.key} {deleted.names[0]} is deleted")))
    return FINE


def _sure(args: argparse.Namespace) -> bool:
    found = [row for row in rows(args.config, args.key)[0] if row.key == args.key and args.name in {"", row.name}]
    what = f"{args.name} of {args.key}" if args.name else f"{_count(len(found))} of {args.key} and their words in the journal"
    lines = sum(row.lines for row in found)
    print(show.cell(f"Delete {what} for good ({show.counted(lines, 'line')})? [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _count(sessions: int) -> str:
    return show.counted(sessions, "conversation")


def _fork(args: argparse.Namespace) -> int:
    forked = _one(args, "sessions.fork", {"key": args.key, "name": args.name, "new": args.new}, Forked)
    if args.json:
        print(show.as_json(msgspec.to_builtins(forked)))
    else:
        what = f"a copy of {forked.parent}, {show.counted(forked.lines, 'line')}"
        print(show.fold(show.cell(f"{forked.key}: {forked.name} is {what}. /switch goes there")))
    return FINE


def _one(args: argparse.Namespace, name: str, given: Mapping[str, str], kind: type[T]) -> T:
    with show.Progress(_WAITS) as progress:
        return msgspec.convert(reach.ask(args.config, name, given, beat=progress.say, alone=True), kind)
