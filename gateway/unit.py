"""The systemd unit as it is installed: what `doctor` compares with the config, and where the unit's secrets and data lie.

Reads files and runs nothing. Called by `gateway.cli` and `gateway.doctor`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

NAME = "parlour.service"
FOLDERS = (Path("/etc/systemd/system"), Path("/run/systemd/system"), Path("/usr/local/lib/systemd/system"), Path("/usr/lib/systemd/system"))
"""Where systemd looks, the first one first."""
STOP = 90.0
"""systemd's own TimeoutStopSec, in seconds."""

_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "ms": 0.001, "us": 1e-6, "m": 60.0, "min": 60.0, "h": 3600.0, "hr": 3600.0, "d": 86400.0}


class Unit(NamedTuple):
    path: Path
    service: Mapping[str, Sequence[str]]
    """Of [Service], drop-ins included: key -> its values, in order; an empty one takes back those before it."""

    @property
    def stop(self) -> float:
        """Seconds until systemd kills what does not end."""
        said = (self.service.get("TimeoutStopSec") or self.service.get("TimeoutSec") or [""])[-1]
        return seconds(said) if said else STOP

    @property
    def credentials(self) -> Mapping[str, Path]:
        """Name -> the file that LoadCredential takes it from; the files of a folder are called by both names, NAME_FILE."""
        found: dict[str, Path] = {}
        for said in self.service.get("LoadCredential", ()):
            name, colon, text = said.partition(":")
            if not colon or not text.startswith("/"):
                continue
            path = Path(text)
            try:
                found |= {f"{name}_{each.name}": each for each in path.iterdir() if each.is_file()} if path.is_dir() else {name: path}
            except OSError:
                continue
        return found

    @property
    def state(self) -> str:
        """The folder that systemd gives it for its data; "" where it gives none."""
        said = " ".join(self.service.get("StateDirectory", ())).split()
        return f"/var/lib/{said[0].partition(':')[0]}" if said else ""

    def environment(self) -> dict[str, str]:
        """The unit's secrets as NAME_FILE variables: for root, who looks at the same config from a shell."""
        return {f"{name}_FILE": str(path) for name, path in self.credentials.items() if re.fullmatch("[A-Z][A-Z0-9_]*", name)}


def find(folders: Sequence[Path] = FOLDERS) -> Unit | None:
    """The unit that counts, with its drop-ins; None where there is none, or it cannot be read."""
    for folder in folders:
        try:
            lines = _lines(folder / NAME)
        except (OSError, UnicodeDecodeError):
            continue
        for more in sorted((path for each in folders for path in (each / f"{NAME}.d").glob("*.conf")), key=lambda path: path.name):
            try:
                lines += _lines(more)
            except (OSError, UnicodeDecodeError):
                continue
        return Unit(folder / NAME, _service(lines))
    return None


def _lines(path: Path) -> list[str]:
    joined = re.sub(r"\\\n", " ", path.read_text("utf-8"))
    return ["[]", *(line.strip() for line in joined.splitlines())]


def _service(lines: Sequence[str]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    section = ""
    for line in lines:
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and line[0] not in "#;":
            key, _, value = line.partition("=")
            if value := value.strip():
                values.setdefault(key.strip(), []).append(value)
            else:
                values.pop(key.strip(), None)
    return values


def seconds(text: str) -> float:
    """ "45", "1min 30s", "infinity"; what is none of systemd's is as good as nothing said."""
    if text == "infinity":
        return float("inf")
    parts = re.findall(r"([0-9.]+)\s*([a-z]*)", text)
    try:
        return sum(float(number) * _UNITS[unit] for number, unit in parts) if parts else STOP
    except (KeyError, ValueError):
        return STOP
