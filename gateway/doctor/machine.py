"""What the machine gives the daemon: Python, disk, clock, open files, the unit. Called by `gateway.doctor`."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gateway.diskwatch import LOW, MOVED
from gateway.doctor.findings import Finding, note, ok, wrong
from gateway.unit import NAME, Unit
from gateway.words import counted, size, span

LEAST_INODES = 2000
SKEW = 60.0
"""Seconds that clocks may be apart."""
SPARE = 10.0
"""Seconds that the unit should give beyond [shutdown] budget."""


def python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    said = ".".join(map(str, version))
    if version < (3, 11):
        return wrong("python", f"{said} is too old", "use Python 3.11 or newer")
    return ok("python", said)


def disk(folder: Path, stat: Callable[[Path], os.statvfs_result] = os.statvfs, *, said: str = "") -> Iterator[Finding]:
    """The file system of the folder, or of the nearest one above it that is there. `said`: what the running daemon, which tries to write
    there, finds wrong at this moment."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        found = stat(place)
    except OSError as error:
        yield wrong("disk", f"{place} cannot be looked at: {error.strerror}")
        return
    free = found.f_bavail * found.f_frsize
    room = f"{size(free)} free for {folder}"
    if said:
        moved = said == MOVED
        remedy = (
            "stop the daemon, put the folder back, start it" if moved else "make room, or look at the medium; nothing has to be restarted"
        )
        yield wrong("disk", f"the daemon says: {said} ({room})", remedy)
    elif found.f_flag & os.ST_RDONLY:
        yield wrong(
            "disk", f"the file system of {folder} is read-only", "mount it for writing; after a fault of the medium dmesg says more"
        )
    elif free < LOW:
        yield wrong("disk", room, "make room: on a full disk messages wait unanswered")
    elif found.f_files > 0 and found.f_favail < LEAST_INODES:
        more = counted(found.f_favail, "file")
        yield wrong("disk", f"{more} more and the file system of {folder} is full", "remove files that nobody needs")
    else:
        yield ok("disk", room)


def clock(ahead: Mapping[str, float]) -> Finding:
    """`ahead`: by name, how far the clocks of others are ahead of ours. One that agrees is enough: another may be wrong itself."""
    if not ahead:
        return note("clock", "there was nobody to compare it with")
    name = min(ahead, key=lambda each: abs(ahead[each]))
    off = ahead[name]
    if abs(off) <= SKEW:
        return ok("clock", f"within {max(1.0, abs(off)):.0f} s of {name}'s")
    way = "behind" if off > 0 else "ahead of"
    return wrong(
        "clock",
        f"ours is {span(abs(off))} {way} {name}'s: ages, quotas and certificates are judged by it",
        "set it, and let it be kept (timedatectl set-ntp true)",
    )


def open_files(turns: int, pid: int = 0) -> Finding:
    """The limit of the daemon `pid`, else of this shell. A turn needs a connection to the model, and chats come over some more."""
    need = 2 * turns + 200
    whose, soft = "here", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if pid and (said := _limit(pid)) is not None:
        whose, soft = "in the daemon", said
    if soft != resource.RLIM_INFINITY and soft < need:
        return wrong(
            "files",
            f"{counted(soft, 'file')} may be open {whose}, {counted(turns, 'turn')} at once need about {need}",
            "raise LimitNOFILE in the unit (ulimit -n in a shell), or lower [backend] max_concurrent_turns",
        )
    return ok("files", f"{'any number' if soft == resource.RLIM_INFINITY else soft} may be open {whose}")


def _limit(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    except OSError:
        return None
    said = next((line.split()[3] for line in lines if line.startswith("Max open files")), "")
    return int(said) if said.isdigit() else None


def unit(found: Unit | None, budget: float) -> Finding:
    """`budget`: [shutdown] budget in seconds."""
    if found is None:
        return note("unit", f"no {NAME} is installed", "README.md, Running it on a server, has it, if this is a server")
    if found.stop < budget + SPARE:
        return wrong(
            "unit",
            f"{found.path}: TimeoutStopSec is {found.stop:g} s, and [shutdown] budget {budget:g} s",
            f"set TimeoutStopSec to {budget + 20:.0f} or more, or answers are cut by a kill; then systemctl daemon-reload",
        )
    return ok("unit", f"{found.path}, stops within {found.stop:g} s")
