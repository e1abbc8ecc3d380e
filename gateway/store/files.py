"""Sessions as files: the blocking work on them. Where they are is in `gateway.store.names`; loop and memory are `gateway.store.jsonl`'s.

Every reader is given the size up to which the file is acknowledged, so that it may run beside an append. A line that is no event is left
where it is, passed over, and its offset reported. Nothing here writes to a file whose header cannot be read.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from channels.failpoints import reach
from gateway.disk import NEW, REPLACED, new_file, open_private, sync_file, sync_folder, write_all
from gateway.errors import Corrupt
from gateway.lines import BLOCK, UNREADABLE, backwards, forwards, read_exactly, repair_tail, whole_lines
from gateway.message import FORMAT_VERSION, NAME, Chat, Event, Header, Message, SessionKey, State, decode_event, decode_header, encode_line
from gateway.metrics import Damage
from gateway.store.base import Listed, Overview, Page, Tail
from gateway.store.names import chat_file, key_folder

GONE = ".gone-"
"""How a folder is called while it is being deleted."""

_HEADER = 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_chat = msgspec.json.Decoder(Chat)


class Known(NamedTuple):
    """What has to be known of a session before it may be appended to."""

    start: int
    """Where the header ends."""
    size: int
    last: int


# ---------------------------------------------------------------------------------------------------------------------- reading


def _header(fd: int, size: int, path: Path, key: SessionKey | None) -> tuple[Header, int]:
    """The header and where it ends. Raises Corrupt; the file is then left as it is."""
    data = b""
    while b"\n" not in data and len(data) < min(size, _HEADER):
        data += read_exactly(fd, min(4096 if not data else BLOCK, size - len(data)), len(data))
    end = data.find(b"\n") + 1 or len(data)
    try:
        header = decode_header(data[:end].removeprefix(_BOM))
        owner = SessionKey.parse(header.key)
    except UNREADABLE:
        raise Corrupt(str(path), 1, "empty" if not size else "no session header") from None
    if header.v > FORMAT_VERSION:
        raise Corrupt(str(path), 1, f"format {header.v} is newer than {FORMAT_VERSION}, which this version reads")
    if key is not None and owner != key:
        raise Corrupt(str(path), 1, f"the session belongs to {header.key}")
    name = path.stem
    return (header if header.name == name else msgspec.structs.replace(header, name=name)), end


def read_owner(path: Path) -> tuple[Header, int]:
    """The header of any session file, and where it ends. Raises Corrupt, OSError."""
    with _reading(path) as (fd, size):
        return _header(fd, size, path, None)


def _event(data: bytes) -> Event | None:
    try:
        return decode_event(data)
    except UNREADABLE:
        return None


def _last(fd: int, end: int, start: int) -> int:
    """The seq of the newest line that has one; 0 if none."""
    for line in backwards(fd, end, start):
        event = _event(line.data)
        if event is not None and event.seq > 0:
            return event.seq
    return 0


@contextmanager
def _reading(path: Path) -> Iterator[tuple[int, int]]:
    """A descriptor of a session and the file's size. Raises Corrupt where something else is in its place: no waiting helps there."""
    try:
        fd = open_private(path, os.O_RDONLY)
    except OSError as error:
        if error.errno not in REPLACED:
            raise
        raise Corrupt(str(path), 1, "something else is in the place of the file") from None
    try:
        yield fd, os.fstat(fd).st_size
    finally:
        os.close(fd)


class Changed(Exception):
    """The file is not the one that was acknowledged: somebody edited it. It has to be looked at anew."""


def _unchanged(fd: int, size: int, end: int) -> None:
    if size < end or os.pread(fd, 1, end - 1) != b"\n":
        raise Changed


def prepare(path: Path, key: SessionKey, settle: Callable[[Path], None], damage: Damage | None = None, *, durable: bool = False) -> Known:
    """Look at a session before it is used: `settle` what the writer owes it, repair its tail, find its last seq. `durable`: what is found
    is synced, whoever wrote it (an editor may have). Raises FileNotFoundError, Corrupt, OSError."""
    settle(path)
    with _reading(path) as (fd, size):
        _header(fd, size, path, key)
    repair_tail(path, damage)
    with _reading(path) as (fd, size):
        if durable:
            os.fdatasync(fd)
        _, start = _header(fd, size, path, key)
        if os.fstat(fd).st_mode & 0o077:
            os.fchmod(fd, 0o600)
        return Known(start, size, _last(fd, size, start))


class Read(NamedTuple):
    tail: Tail
    bad: list[int]
    """Offsets of the lines that were passed over, newest first."""


def _read(path: Path, key: SessionKey, end: int, enough: Callable[[Event], bool], keep_last: bool) -> Read:
    """Backwards from `end` until `enough` says so of an event, which is kept or not."""
    lines: list[bytes] = []
    bad: list[int] = []
    last, whole = 0, True
    with _reading(path) as (fd, size):
        _unchanged(fd, size, end)
        header, start = _header(fd, size, path, key)
        for line in backwards(fd, end, start):
            if not line.data.strip():
                continue
            event = _event(line.data)
            if event is None:
                bad.append(line.offset)
                continue
            last = max(last, event.seq)
            done = enough(event)
            if keep_last or not done:
                lines.append(line.data)
            if done:
                whole = keep_last and line.offset == start
                break
    lines.reverse()
    return Read(Tail(header, lines, last, whole, len(bad)), bad)


def read_tail(path: Path, key: SessionKey, end: int, n: int) -> Read:
    """The newest lines: at least `n` messages and the newest `state`, or all."""
    messages, state = 0, False

    def enough(event: Event) -> bool:
        nonlocal messages, state
        messages += isinstance(event, Message)
        state |= isinstance(event, State)
        return state and messages >= n

    return _read(path, key, end, enough, keep_last=True)


def read_from(path: Path, key: SessionKey, end: int, from_seq: int) -> Read:
    """All lines whose seq is at least `from_seq`; reads no further back than that."""
    return _read(path, key, end, lambda event: 0 < event.seq < from_seq, keep_last=False)


def read_page(path: Path, key: SessionKey, end: int, start: int, most: int) -> Page:
    """See `SessionLog.page`; `start` is an offset in the file."""
    with _reading(path) as (fd, size):
        _unchanged(fd, size, end)
        _header(fd, size, path, key)
        stop = min(start + most, end)
        if start < stop < end:
            whole = whole_lines(fd, stop, start)
            stop = whole if whole > start else start + len(next(forwards(fd, end, start)).data)
        return Page(read_exactly(fd, stop - start, start) if start < stop else b"", max(start, stop), end)


# ---------------------------------------------------------------------------------------------------------------------- writing


def create(path: Path, header: Header, lines: Sequence[bytes], *, durable: bool = False) -> Known:
    """Raises FileExistsError, OSError; then nothing is there."""
    first = encode_line(header)
    data = b"".join((first, *lines))
    last = 0
    for line in reversed(lines):
        event = _event(line)
        if event is not None and event.seq > 0:
            last = event.seq
            break
    with new_file(path, durable=durable) as fd:
        write_all(fd, data)
    return Known(len(first), len(data), last)


def fork(source: Path, key: SessionKey, end: int, at: int, path: Path, header: Header, *, durable: bool = False) -> Known:
    """`header` and a copy of the source's bytes behind its header, up to and with its newest line whose seq is at most `at`.
    Raises FileExistsError, FileNotFoundError, Corrupt, OSError; then nothing is there."""
    first = encode_line(header)
    with _reading(source) as (fd, size):
        _unchanged(fd, size, end)
        _, start = _header(fd, size, source, key)
        cut, last = start, 0
        for line in backwards(fd, end, start):
            event = _event(line.data)
            if event is not None and 0 < event.seq <= at:
                cut, last = line.offset + len(line.data), event.seq
                break
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        with new_file(path, durable=durable) as out:
            write_all(out, first)
            copy_range(fd, out, start, cut)
    return Known(len(first), len(first) + cut - start, last)


def copy_range(fd: int, out: int, start: int, end: int) -> None:
    """Bytes `[start, end)` of `fd` to where `out` stands. In large blocks through memory: behind a header of another length the
    kernel's own copy goes page by page, and takes nearly twice as long (benchmarks, `store`)."""
    for position in range(start, end, 16 * BLOCK):
        write_all(out, read_exactly(fd, min(16 * BLOCK, end - position), position))


def delete_session(path: Path, *, durable: bool = False) -> None:
    """Raises FileNotFoundError, OSError."""
    reach("session delete before")
    os.unlink(path)
    reach("session delete after")
    with suppress(FileNotFoundError):
        os.unlink(path.with_suffix(".torn"))
    if durable:
        sync_folder(path.parent)


def delete_folder(folder: Path, *, durable: bool = False) -> None:
    """All of it, out of sight in one step: what a crash leaves is finished at the next start (see `clear`)."""
    gone = folder.parent / f"{GONE}{secrets.token_hex(8)}"
    reach("folder delete before")
    with suppress(FileNotFoundError):
        os.rename(folder, gone)
        reach("folder delete between")
        if durable:
            sync_folder(folder.parent)
        shutil.rmtree(gone)
        if durable:
            sync_folder(folder.parent)
    reach("folder delete after")


def clear(path: Path) -> None:
    """Take away what a crash left of an unfinished creation or deletion; anything else is somebody else's, and stays."""
    if path.name.startswith(GONE):
        shutil.rmtree(path)
    elif path.name.startswith(NEW):
        os.unlink(path)


# ------------------------------------------------------------------------------------------------------------------------ lists


def list_sessions(folder: Path, key: SessionKey | None) -> tuple[list[Listed], list[str]]:
    """The sessions of a folder, oldest first, and a word on each that cannot be read. Reads headers and last lines only."""
    found: list[Listed] = []
    unreadable: list[str] = []
    for path in _session_files(folder):
        try:
            with _reading(path) as (fd, size):
                header, start = _header(fd, size, path, key)
                last = _last(fd, whole_lines(fd, size, start), start)
                found.append(Listed(header, last, size, os.fstat(fd).st_mtime))
        except FileNotFoundError:
            continue
        except (Corrupt, OSError) as error:
            unreadable.append(str(error))
    found.sort(key=lambda listed: (listed.header.created, listed.header.name))
    return found, unreadable


def list_all(root: Path, keys: Sequence[SessionKey]) -> tuple[list[Overview], list[str]]:
    """What each of these keys has, and a word on each session that cannot be read."""
    found: list[Overview] = []
    faults: list[str] = []
    for key in keys:
        listed, unreadable = list_sessions(key_folder(root, key), key)
        try:
            chat = fold_chat(read_chat(chat_file(root, key))[0])
        except OSError as error:
            chat = None
            faults.append(str(error))
        faults += unreadable
        found.append(Overview(key, chat.current if chat else "", listed, len(unreadable)))
    return found, faults


def list_keys(root: Path, prefix: str) -> list[SessionKey]:
    """Keys whose text starts with `prefix`, by the first readable header of each folder; a folder that does not fit its key is foreign."""
    keys: list[SessionKey] = []
    for channel in _folders(root):
        for folder in _folders(channel):
            for path in _session_files(folder):
                with suppress(Corrupt, OSError), _reading(path) as (fd, size):
                    key = SessionKey.parse(_header(fd, size, path, None)[0].key)
                    if key_folder(root, key) == folder:
                        if str(key).startswith(prefix):
                            keys.append(key)
                        break
    return sorted(keys, key=str)


def _folders(place: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError), os.scandir(place) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                yield Path(entry.path)


def _session_files(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            name, dot, rest = entry.name.partition(".")
            if dot and rest == "jsonl" and NAME.fullmatch(name) and entry.is_file(follow_symlinks=False):
                yield Path(entry.path)


# ---------------------------------------------------------------------------------------------------------------------- pointer


def prepare_chat(path: Path, settle: Callable[[Path], None], damage: Damage | None = None, *, durable: bool = False) -> None:
    """Repair the pointer's tail; a key without one is fine. `durable`: as for `prepare`."""
    settle(path)
    with suppress(FileNotFoundError):
        repair_tail(path, damage)
        if durable:
            sync_file(path)


def read_chat(path: Path) -> tuple[list[Chat], list[int]]:
    """All changes, oldest first, and the offsets of lines that are none."""
    changes: list[Chat] = []
    bad: list[int] = []
    try:
        fd = open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return changes, bad
    try:
        for line in forwards(fd, os.fstat(fd).st_size):
            if line.data.strip():
                try:
                    changes.append(_chat.decode(line.data.removeprefix(_BOM)))
                except UNREADABLE:
                    bad.append(line.offset)
    finally:
        os.close(fd)
    return changes, bad


def fold_chat(changes: Sequence[Chat]) -> Chat | None:
    """What holds after all changes: what one does not name stays as it was."""
    if not changes:
        return None
    current = next((change.current for change in reversed(changes) if change.current), "")
    return msgspec.structs.replace(changes[-1], current=current)
