"""`parlour sessions export`: a whole conversation, as it is kept (jsonl) or to be read (md)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gateway.answers import Shown, Stretch, shown
from gateway.cli import FINE, reach, say, show
from gateway.disk import new_file, write_all
from gateway.errors import ParlourError
from gateway.lines import UNREADABLE
from gateway.message import SessionKey, decode_event, decode_header
from gateway.session import EVERYTHING, Session
from gateway.window import attached

Put = Callable[[bytes], None]


def run(args: argparse.Namespace) -> int:
    """The exit code. Raises ParlourError, OSError."""
    output = None if args.output == "-" else args.output
    with _target(output, force=args.force) as put, show.Progress("reading:") as progress:
        kept: list[bytes] = []
        done = 0
        name = args.name

        def part(one: object) -> None:
            nonlocal done, name
            stretch = msgspec.convert(one, Stretch)
            name, done = stretch.name, done + len(stretch.data)
            progress.say(f"{show.size(done)} of {show.size(stretch.size)}")
            if args.format == "jsonl":
                put(stretch.data)
            else:
                kept.append(stretch.data)

        reach.ask(args.config, "sessions.export", {"key": args.key, "name": args.name}, part=part, beat=progress.say, alone=True)
        if args.format == "md":
            for text in markdown(b"".join(kept).split(b"\n"), name):
                put(text.encode("utf-8", "replace"))
    if args.json:
        print(show.as_json({"key": args.key, "name": name, "bytes": done, "format": args.format, "output": output}))
    elif output:
        say(f"{args.key} {name}: {show.size(done)} read, {output} written")
    return FINE


@contextmanager
def _target(path: str | None, *, force: bool) -> Iterator[Put]:
    """Where the bytes go. A file is ours alone, and there only when it is whole."""
    if path is None:
        yield _to_stdout
        return
    target = Path(path)
    if not target.parent.is_dir():
        raise ParlourError(f"{target.parent}: there is no such folder")
    taken = f"{path} is there already: choose another name, or say --force to overwrite it"
    if os.path.lexists(target) and not force:
        raise ParlourError(taken)
    if target.is_dir():
        raise ParlourError(f"{path} is a folder")
    try:
        with new_file(target, replace=force) as fd:
            yield lambda data: write_all(fd, data)
    except FileExistsError:
        raise ParlourError(taken) from None


def _to_stdout(data: bytes) -> None:
    if sys.stdout.isatty():
        print(show.block(data.decode("utf-8", "replace")), end="", flush=True)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def markdown(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """The conversation as it stands after undo and retry, from the lines of its file."""
    rest = iter(lines)
    header = decode_header(next(rest).removeprefix(b"\xef\xbb\xbf"))
    session = Session(SessionKey.parse(header.key), name, header, EVERYTHING, replay=True)
    for line in rest:
        try:
            session.apply(decode_event(line))
        except UNREADABLE:
            continue
    parent = f", a fork of `{header.parent.name}`" if header.parent else ""
    yield f"# {show.cell(header.title or name)}\n\n"
    yield f"`{show.cell(header.key)}`, session `{name}`{parent}, made {show.minute(header.created)}\n"
    for held in session.messages:
        message = shown(held)
        yield f"\n## {show.cell(who(message))}, {show.minute(message.at)}\n"
        for text in (*body(message), *(attached(media) for media in held.media if media.text)):
            yield f"\n{text}\n"


def who(message: Shown) -> str:
    """Whose line it is, in a word or two."""
    if message.role == "user":
        return " ".join(filter(None, (message.name or "user", f"({message.id})" if message.id else "")))
    return f"tool {message.name}".strip() if message.role == "tool" else message.model or message.role


def body(message: Shown) -> Iterator[str]:
    """What it says, a paragraph each."""
    if message.text.strip():
        yield message.text.strip("\n")
    if message.media:
        yield f"({', '.join(message.media)})"
    if message.calls:
        yield f"(asks for {', '.join(message.calls)})"
