"""The files around the source: they are what they say, and stay so."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import msgspec
import pytest

from channels.settings import Secret
from gateway import __version__, config
from gateway.app import channel_types
from gateway.commands.table import BY_NAME
from gateway.options import TABLES, Shutdown
from gateway.validate import seconds, size

ROOT = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "requirements-local.lock", "requirements-dev.lock")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def dev(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(folder / "dev"), *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout of its own, with a .venv that works but is not to be installed into."""
    for name in (*LOCKS, "pyproject.toml", "dev"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / ".venv" / "bin" / "python").chmod(0o755)
    (tmp_path / ".venv" / ".root").write_text(f"{tmp_path}\n")
    return tmp_path


# ------------------------------------------------------------------------------------------------------------------------------- locks


def test_locks_are_up_to_date(copy: Path) -> None:
    """The locks were compiled from this pyproject.toml."""
    done = dev(copy, "lock", "--check")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "change", [('"aiofiles>=25.1"', '"aiofiles>=26"'), ('"ruff>=0.17"', '"ruff>=1"'), (">=3.11", ">=3.12"), ("requires-dist = []", "")]
)
def test_stale_locks_are_noticed(copy: Path, change: tuple[str, str]) -> None:
    """A dependency that changed without its lock is noticed, without a network."""
    project = copy / "pyproject.toml"
    assert change[0] in project.read_text()
    project.write_text(project.read_text().replace(*change))
    done = dev(copy, "lock", "--check")
    assert done.returncode == 1
    assert "run ./dev lock" in done.stderr


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))


def test_locks_agree() -> None:
    """What is tested is what runs: the three locks pin the same versions."""
    runtime, local, dev_ = map(pins, LOCKS)
    assert runtime.items() <= local.items()
    assert runtime.items() <= dev_.items()
    assert "hatchling" in dev_


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes(lock: str) -> None:
    """Nothing is installed unseen, and no lock says from where."""
    text = (ROOT / lock).read_text()
    blocks = [block for block in re.split(r"\n(?=\S)", text) if "==" in block.splitlines()[0]]
    assert blocks
    assert all("--hash=sha256:" in block for block in blocks)
    assert not re.search(r"https?://|--index|--find-links", text)


# ----------------------------------------------------------------------------------------------------------------------------- package


def test_versions_agree() -> None:
    """The version stands in two files, and is one."""
    assert PROJECT["project"]["version"] == __version__
    assert f"## {__version__} " in (ROOT / "CHANGELOG.md").read_text()


def test_wheel(tmp_path: Path) -> None:
    """The package builds with what the dev lock pins, and holds both packages, what they serve, the licence and the command."""
    source = tmp_path / "source"
    shutil.copytree(ROOT / "gateway", source / "gateway", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "channels", source / "channels", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=source, check=True, capture_output=True, timeout=60)
    (wheel,) = (tmp_path / "dist").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry = archive.read(f"parlour-{__version__}.dist-info/entry_points.txt").decode()
    files = {
        path.relative_to(source).as_posix() for part in ("gateway", "channels") for path in (source / part).rglob("*") if path.is_file()
    }
    assert files <= names
    assert f"parlour-{__version__}.dist-info/licenses/LICENSE" in names
    assert "parlour = gateway.cli:main" in entry


def test_backend_of_the_build_is_pinned_once() -> None:
    """The build backend of the package is the one in the dev lock."""
    assert PROJECT["build-system"]["requires"] == [f"hatchling=={pins('requirements-dev.lock')['hatchling']}"]


@pytest.mark.parametrize("name", ["dev", ".ci/run", "deploy/install.sh", "deploy/reload.sh"])
def test_commands_can_be_run(name: str) -> None:
    """The commands are executable, and bash can read them."""
    assert os.access(ROOT / name, os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / name)], check=True)


def test_dev_says_what_it_can() -> None:
    """An unknown command is a usage error that lists the known ones."""
    done = dev(ROOT, "nonsense")
    assert done.returncode == 2
    assert "./dev run" in done.stderr


# ---------------------------------------------------------------------------------------------------------------------- example config

EXAMPLE = ROOT / "config.example.toml"


def test_example_loads(tmp_path: Path) -> None:
    """A copy of the example is a config that starts."""
    shutil.copy(EXAMPLE, tmp_path / "config.toml")
    loaded = config.load(tmp_path / "config.toml", channel_types(), {})
    assert list(loaded.channels) == ["web"]


def test_example_has_every_option(tmp_path: Path) -> None:
    """The example names every option there is, with its real default, and nothing else."""
    whole = re.sub(r"^#(?=\[|[a-z_]+ = )", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    shown = tomllib.loads(whole)
    assert shown.pop("data_dir") == "data"
    channels = shown.pop("channels")
    assert set(shown) == set(TABLES)
    types = channel_types()
    assert set(channels) == set(types)
    for name, kind in (*TABLES.items(), *types.items()):
        table = channels[name] if name in channels else shown[name]
        defaults = {field.encode_name: field.default for field in msgspec.structs.fields(kind)}
        assert set(table) == set(defaults), name
        for key, default in defaults.items():
            if (name, key) == ("backend", "model"):
                continue  # has none: the example's is one
            said = table[key]
            if isinstance(default, Secret):
                assert said == default.reveal()
            elif isinstance(default, tuple):
                assert tuple(said) == default
            elif isinstance(default, float) and isinstance(said, str):
                assert seconds(said) == default, key
            elif isinstance(default, int) and isinstance(said, str):
                assert size(said) == default, key
            else:
                assert said == default, key


def test_example_is_explained() -> None:
    """Each option of the example has a plain line above it."""
    lines = EXAMPLE.read_text().splitlines()
    options = [n for n, line in enumerate(lines) if re.match(r"#?[a-z_]+ = ", line)]
    for n in options:
        above = next(line for line in reversed(lines[:n]) if not re.match(r"#?[a-z_]+ = ", line))
        assert above.startswith("# "), lines[n]
    assert [line for line in lines if len(line) > 140] == []


# --------------------------------------------------------------------------------------------------------------------------------- unit


@pytest.fixture(scope="module")
def unit() -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False, delimiters="=", comment_prefixes="#", interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(ROOT / "deploy" / "parlour.service")
    return parser


def test_unit_gives_up(unit: configparser.RawConfigParser) -> None:
    """F06: a fault of the config is not restarted, and the start limit, in [Unit], is reached before its interval is over."""
    service, limits = unit["Service"], unit["Unit"]
    assert service["RestartPreventExitStatus"] == "78"
    burst, interval = int(limits["StartLimitBurst"]), int(limits["StartLimitIntervalSec"])
    assert 6 <= burst <= 8  # a message that kills the daemon is found within five deaths
    assert interval > 2 * burst * int(service["RestartSec"])
    assert not any(key.startswith("StartLimit") for key in service)


def test_unit_keeps_things_private(unit: configparser.RawConfigParser) -> None:
    """F12: files of the daemon are 0600 and its folders 0700, and it runs as nobody in particular."""
    service = unit["Service"]
    assert service["UMask"] == "0077"
    assert service["StateDirectoryMode"] == service["RuntimeDirectoryMode"] == "0700"
    assert service["DynamicUser"] == service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"


def test_unit_waits(unit: configparser.RawConfigParser) -> None:
    """The unit waits for the network at boot, and at the end longer than the daemon may take."""
    assert unit["Unit"]["Wants"] == unit["Unit"]["After"] == "network-online.target"
    assert unit["Service"]["Type"] == "notify"
    assert int(unit["Service"]["TimeoutStopSec"]) > float(Shutdown().budget) + 10
    assert "--config ${CREDENTIALS_DIRECTORY}/config.toml" in unit["Service"]["ExecStart"]


# ------------------------------------------------------------------------------------------------------------------------------- source


def test_nothing_is_executable_by_accident() -> None:
    """Of what is shipped, these can be run."""
    runnable = {
        path.relative_to(ROOT).as_posix()
        for pattern in ("*", ".ci/*", "deploy/*", "gateway/**/*.py", "channels/**/*.py", "tests/**/*.py")
        for path in ROOT.glob(pattern)
        if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o111
    }
    assert runnable == {"dev", ".ci/run", "deploy/install.sh", "deploy/reload.sh"}


def test_the_readme_names_every_command() -> None:
    """Whoever adds a command, of the chat or of the command line, is told that README does not have it yet."""
    readme = (ROOT / "README.md").read_text()
    assert [name for name in BY_NAME if f"/{name}" not in readme] == []
    usage = subprocess.run([sys.executable, "-m", "gateway", "--help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^    ([a-z]+)  ", usage, re.MULTILINE)
    assert "run" in names
    assert [name for name in names if f"parlour {name}" not in readme] == []


def test_the_architecture_names_every_module() -> None:
    """A new module finds its place in "Layout and floors", so that a stranger finds it."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    modules = [path.stem for package in ("gateway", "channels") for path in (ROOT / package).glob("[!_]*.py")]
    assert len(modules) > 40
    assert [name for name in sorted(modules) if not re.search(rf"\b{name}\b", page)] == []
