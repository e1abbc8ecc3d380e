"""The ground floor of everything on disk: private files and folders, files that appear whole, syncing, and the folder's lock.

It knows no formats: bytes, paths and sizes. Appending is the job of `gateway.writer`, lines and their repair that of `gateway.lines`.
Called by those two, `gateway.power` and `gateway.redo`, `gateway.store` and `gateway.segments`; `lock_folder` by `gateway.app`.

`durable` means: on the medium when the call returns, the name included. Without it a power cut may take it back.

Private means: folders 0700, files 0600 whatever the umask, no symbolic link followed at the last step, nothing handed to a child process.
Everything here blocks; on the loop it runs through `aiofiles.os.wrap`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from channels.failpoints import reach
from gateway.errors import StartError

log = structlog.get_logger(__name__)

_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""O_NONBLOCK: a named pipe in our place is an error, not a wait for ever. It means nothing for a file."""

REPLACED = frozenset({errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO})
"""What opening a file of ours says where something else is in its place: a folder, a link, a pipe, a socket. No waiting helps."""

NEW = ".new-"
"""How the name of an unfinished file begins. One that is found at start is a crash's, and is removed."""

# ------------------------------------------------------------------------------------------------------- private files and folders


def open_private(path: Path, flags: int) -> int:
    """A descriptor of an existing regular file. Raises OSError (ELOOP where `path` is a symbolic link)."""
    return open_sized(path, flags)[0]


def open_sized(path: Path, flags: int) -> tuple[int, int]:
    """The same, and the file's size: with one call to the kernel less, for whoever opens a file for each batch."""
    fd = os.open(path, flags | _SAFE)
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return fd, info.st_size


def create_private(path: Path, flags: int) -> int:
    """A descriptor of a file that was not there before. Raises FileExistsError, OSError. The folder must be there."""
    fd = os.open(path, flags | os.O_CREAT | os.O_EXCL | _SAFE, 0o600)
    os.fchmod(fd, 0o600)
    return fd


def open_or_create(path: Path, flags: int, *, durable: bool = False) -> int:
    """A descriptor of a file that is made, with its folders, where it is not there. `durable`: the folders are; the file is still empty."""
    try:
        return open_private(path, flags)
    except FileNotFoundError:
        make_folder(path.parent, durable=durable)
    try:
        return create_private(path, flags)
    except FileExistsError:
        return open_private(path, flags)


def make_folder(path: Path, *, durable: bool = False) -> None:
    """The folder and those above it, as far as they are missing, each 0700. One that is there stays as it is."""
    if not durable:
        _make_folder(path)
        return
    with _making:  # who finds the folder there waits for whoever is just making it
        for made in _make_folder(path):
            try:
                sync_folder(made.parent)
            except OSError:
                with suppress(OSError):
                    os.rmdir(path)
                raise


_making = threading.Lock()


def _make_folder(path: Path) -> list[Path]:
    """Those that were made, the uppermost first."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return []
    except FileNotFoundError:
        above = _make_folder(path.parent)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
    else:
        above = []
    os.chmod(path, 0o700)
    return [*above, path]


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write until it is written. After an OSError a part of it may be."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


_placing = threading.Lock()


@contextmanager
def new_file(path: Path, *, replace: bool = False, durable: bool = False) -> Iterator[int]:
    """A file that appears whole or not at all: the body writes into a temporary one beside it, the end of the body gives it its name.

    Raises FileExistsError where the name is taken and `replace` is False; nothing is ever overwritten then.
    """
    make_folder(path.parent, durable=durable)
    temporary = path.parent / f"{NEW}{secrets.token_hex(8)}"
    fd = create_private(temporary, os.O_WRONLY)
    try:
        try:
            yield fd
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        reach("rename before", path)
        if replace:
            os.rename(temporary, path)
        else:
            _place(temporary, path)
        reach("rename after", path)
        if durable:
            try:
                sync_folder(path.parent)
            except OSError:
                if not replace:
                    os.unlink(path)
                raise
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _place(temporary: Path, path: Path) -> None:
    """`rename` that does not overwrite: a second name by `link`; the first one is removed by the caller."""
    try:
        os.link(temporary, path, follow_symlinks=False)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}:
            raise
        with _placing:  # a file system without hard links: the folder is ours alone, so that the lock stands for O_EXCL
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
            os.rename(temporary, path)


def tighten(folder: Path, found: Callable[[Path], None]) -> None:
    """Take the rights of others from `folder` and everything of ours in it (files of an older version, of a restored copy), and hand what a
    crash left half made to `found`. Follows no symbolic link. What cannot be changed is logged: the folder above is closed anyway."""
    _close_to_others(folder, os.lstat(folder))
    waiting = [str(folder)]
    while waiting:
        place = waiting.pop()
        with os.scandir(place) as entries:
            for entry in entries:  # of which there may be a hundred thousand
                if entry.name.startswith("."):
                    found(Path(entry.path))
                    continue
                try:
                    info = entry.stat(follow_symlinks=False)
                    if info.st_mode & 0o077:
                        _close_to_others(Path(entry.path), info)
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(info.st_mode):
                    waiting.append(entry.path)


def _close_to_others(path: Path, info: os.stat_result) -> None:
    if not info.st_mode & 0o077 or not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):
        return
    if info.st_mode & stat.S_ISVTX:  # a place that everybody shares, as /tmp: not ours to close
        return
    try:
        os.chmod(path, 0o700 if stat.S_ISDIR(info.st_mode) else 0o600)
    except PermissionError:
        log.warning("file is open to others", file=str(path), mode=oct(stat.S_IMODE(info.st_mode)))


# -------------------------------------------------------------------------------------------------------------------- power cuts


def sync_file(path: Path) -> None:
    """What stands in the file now is on the medium when this returns; its name need not be. Raises OSError."""
    fd = open_private(path, os.O_RDONLY)
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


def sync_folder(path: Path) -> None:
    """The names in the folder are on the medium: files that were made, renamed, removed. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system on which folders cannot be synced, and need not be
            raise
    finally:
        os.close(fd)


def sync_all(folder: Path) -> None:
    """Everything on the file system of `folder` is on the medium, whoever wrote it. Raises OSError."""
    try:
        import ctypes  # noqa: PLC0415  # only here, and a small Python may have been built without it

        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    except (ImportError, OSError, AttributeError):  # or it is not Linux
        os.sync()
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if syncfs(fd):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(fd)


# ---------------------------------------------------------------------------------------------------------------------------- lock


class FolderLock:
    """The daemon's hold on its data folder. The kernel lets go of it when the process ends, however it ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        """Let go. Safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def lock_folder(path: Path) -> FolderLock:
    """Take `path` (made if missing, closed to others) for this process. Raises StartError where another daemon has it, or it can't be had.

    The lock is the kernel's (flock). The number in the file is for people: it is shown, never believed, so that a stale or foreign
    one stops nobody.
    """
    place = path / "lock"
    try:
        make_folder(path)
        _close_to_others(path, os.stat(path))
        fd = open_or_create(place, os.O_RDWR)
    except OSError as error:
        raise StartError(f"{path}: cannot be used as the data folder: {error.strerror}") from error
    try:
        _close_to_others(place, os.fstat(fd))
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).strip()
        os.close(fd)
        who = f"process {int(holder)}" if holder.isdigit() and len(holder) < 12 else "another process"
        raise StartError(f"{path}: another daemon works in this folder ({who} holds {place})") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:  # a full disk is no reason not to hold the lock
            return FolderLock(fd)
        os.close(fd)
        raise StartError(f"{place}: cannot be locked: {error.strerror}") from error
    return FolderLock(fd)
