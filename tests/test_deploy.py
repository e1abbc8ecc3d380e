"""What runs Parlour on a server: the unit, what it calls, and the script that installs it."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway import __version__, reload
from gateway.options import Shutdown

ROOT = Path(__file__).parent.parent
UNIT = ROOT / "deploy" / "parlour.service"


def run(*command: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# ------------------------------------------------------------------------------------------------------------------------------ unit


def service() -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False, delimiters="=", comment_prefixes="#", interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser["Service"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_unit_is_one(tmp_path: Path) -> None:
    """systemd understands every line of the unit, and has nothing to say about it."""
    here = tmp_path / "parlour.service"
    here.write_text(re.sub(r"/opt/parlour/current/\S+", "/bin/true", UNIT.read_text()))
    done = run("systemd-analyze", "verify", here)
    assert [line for line in done.stderr.splitlines() if "parlour.service" in line] == []


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_unit_is_hardened() -> None:
    """`systemd-analyze security` finds an exposure of 1.5 or better."""
    done = run("systemd-analyze", "security", "--offline=true", "--no-pager", UNIT)
    found = re.search(r"Overall exposure level for parlour.service: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) <= 1.5


def test_unit_lets_tools_of_node_live() -> None:
    """No MemoryDenyWriteExecute: a JIT needs it. What is not allowed is an error, not the end of the process."""
    text = UNIT.read_text()
    assert not re.search(r"^MemoryDenyWriteExecute", text, re.MULTILINE)
    assert "SystemCallErrorNumber=EPERM" in text


def test_unit_waits_for_the_daemon() -> None:
    """The watchdog is on, and the daemon has more time to end than it asks for itself."""
    assert int(service()["WatchdogSec"]) >= 30
    assert int(service()["TimeoutStopSec"]) > float(Shutdown().budget) + 10


def test_unit_calls_what_the_installer_makes() -> None:
    """Every path of ours in the unit is one that install.sh makes, and the folder for a reload is the one that the daemon looks for."""
    text = UNIT.read_text()
    assert set(re.findall(r"/opt/parlour/\S+", text)) == {"/opt/parlour/current/.venv/bin/parlour", "/opt/parlour/current/deploy/reload.sh"}
    assert set(re.findall(r"/etc/parlour/\S+", text)) == {"/etc/parlour/config.toml", "/etc/parlour/secrets"}
    (fresh,) = re.findall(rf"^Environment={reload.FRESH}=(\S+)$", text, re.MULTILINE)
    assert re.findall(r"rm -rf (\S+)", text) == [fresh]
    assert (ROOT / "deploy" / "reload.sh").exists()


# ---------------------------------------------------------------------------------------------------------------------------- reload


def test_reload_hands_over_what_is_there_now(tmp_path: Path) -> None:
    """The config and each secret, for the daemon's user alone to read, in a folder that nobody else can list; what was there before is
    gone, links and folders are left out, and the daemon is told behind it."""
    etc, fresh = tmp_path / "etc" / "parlour", tmp_path / "fresh"
    (etc / "secrets" / "folder").mkdir(parents=True)
    (etc / "config.toml").write_text("new")
    (etc / "secrets" / "TELEGRAM_TOKEN").write_text("1:x")
    (etc / "secrets" / "LINK").symlink_to("/etc/passwd")
    fresh.mkdir()
    (fresh / "PARLOUR_OLD").write_text("old")
    daemon = "import os, signal, sys; signal.signal(signal.SIGHUP, lambda *_: os._exit(7)); print('up', flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", daemon], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        done = run(
            ROOT / "deploy" / "reload.sh",
            env={"DESTDIR": str(tmp_path), "MAINPID": str(process.pid), reload.FRESH: str(fresh)},
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert process.wait(10) == 7
    assert {path.name: path.read_text() for path in fresh.iterdir()} == {"config.toml": "new", "PARLOUR_TELEGRAM_TOKEN": "1:x"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in fresh.iterdir()} == {0o400}
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o711


def test_a_reload_that_cannot_read_says_nothing_to_the_daemon(tmp_path: Path) -> None:
    """No config, no signal: systemctl tells that it failed."""
    with subprocess.Popen(["sleep", "30"]) as process:
        done = run(
            ROOT / "deploy" / "reload.sh",
            env={"DESTDIR": str(tmp_path), "MAINPID": str(process.pid), reload.FRESH: str(tmp_path / "fresh")},
        )
        assert done.returncode != 0
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)


# --------------------------------------------------------------------------------------------------------------------------- install

DEV = f"""#!/bin/sh
# Stands for the real one, which would download: a command that is the test's own Python over this source, and nothing to compile it with.
here="$(cd "$(dirname "$0")" && pwd -P)"
[ "$1" = venv ] || exit 2
[ ! -e "$here/broken" ] || exit 9
mkdir -p "$here/.venv/bin"
ln -sf /bin/true "$here/.venv/bin/python"
printf '#!/bin/sh\\nPYTHONPATH="%s" exec "{sys.executable}" -P -m gateway "$@"\\n' "$here" >"$here/.venv/bin/parlour"
chmod 755 "$here/.venv/bin/parlour"
"""


class Machine:
    """A source, and a folder to install it into."""

    def __init__(self, folder: Path) -> None:
        self.source, self.dest = folder / "source", folder / "dest"
        self.source.mkdir()
        for name in ("gateway", "channels"):
            shutil.copytree(ROOT / name, self.source / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("deploy", "docs"):
            shutil.copytree(ROOT / name, self.source / name)
        for path in ROOT.iterdir():
            if path.is_file() and not path.name.startswith("."):
                shutil.copy(path, self.source / path.name)
        (self.source / "dev").write_text(DEV)
        self.root, self.etc = self.dest / "opt" / "parlour", self.dest / "etc" / "parlour"

    def install(self, what: str = "install") -> subprocess.CompletedProcess[str]:
        return run(self.source / "deploy" / "install.sh", what, env={"DESTDIR": str(self.dest), "PYTHON": sys.executable})

    def version(self, version: str) -> None:
        path = self.source / "gateway" / "__init__.py"
        path.write_text(re.sub(r'__version__ = ".*"', f'__version__ = "{version}"', path.read_text()))

    def current(self, link: str = "current") -> str:
        return (self.root / link).readlink().name.partition("-")[0]

    def parlour(self, *args: str) -> subprocess.CompletedProcess[str]:
        return run(self.root / "current" / ".venv" / "bin" / "parlour", *args)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Everything below a folder, by what would change if it was touched."""
    found: dict[str, tuple[int, int, int]] = {}
    for path in folder.rglob("*"):
        info = path.lstat()
        if path.name != ".lock" and not (stat.S_ISDIR(info.st_mode) or stat.S_ISLNK(info.st_mode)):
            found[str(path)] = (info.st_ino, info.st_mtime_ns, info.st_mode)
        if stat.S_ISLNK(info.st_mode):
            found[str(path)] = (len(str(path.readlink())), 0, 0)
    return found


def test_install_makes_what_the_unit_needs(machine: Machine) -> None:
    """A release that runs, an example config that only root reads, a folder for secrets, the unit, the command; code that others read."""
    done = machine.install()
    assert done.returncode == 0, done.stderr
    assert machine.current() == __version__
    assert machine.parlour("--version").stdout == f"parlour {__version__}\n"
    assert machine.parlour("check", "--config", str(machine.etc / "config.toml")).returncode == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (machine.etc, machine.etc / "secrets", machine.etc / "config.toml")}
    assert modes == {"parlour": 0o700, "secrets": 0o700, "config.toml": 0o600}
    assert (machine.dest / "etc" / "systemd" / "system" / "parlour.service").read_text() == UNIT.read_text()
    command = machine.dest / "usr" / "local" / "bin" / "parlour"
    assert run(command, "--version").stdout == f"parlour {__version__}\n"
    assert f"{command} check --config {machine.etc / 'config.toml'}" in done.stderr
    release = machine.root / "current"
    assert os.access(release / "deploy" / "reload.sh", os.X_OK)
    assert not (release / "tests").exists()
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in release.resolve().rglob("*") if path.is_file())


def test_install_again_changes_nothing(machine: Machine) -> None:
    """And leaves a config alone that was edited."""
    machine.install()
    config = machine.etc / "config.toml"
    config.write_text(config.read_text().replace('model = "qwen3:4b"', 'model = "mine"'))
    before = tree(machine.root), tree(machine.etc)
    assert machine.install().returncode == 0
    assert (tree(machine.root), tree(machine.etc)) == before


def test_upgrade_and_way_back(machine: Machine) -> None:
    """The new release runs, the one before stays beside it, older ones go; back and forth again as often as it is asked for."""
    for version in ("1.0.0", "1.1.0", "1.2.0"):
        machine.version(version)
        assert machine.install().returncode == 0
    assert (machine.current(), machine.current("previous")) == ("1.2.0", "1.1.0")
    assert sorted(path.name.partition("-")[0] for path in (machine.root / "releases").iterdir()) == ["1.1.0", "1.2.0"]
    for expected in ("1.1.0", "1.2.0"):
        assert machine.install("rollback").returncode == 0
        assert machine.parlour("--version").stdout == f"parlour {expected}\n"


def test_there_is_no_way_back_from_the_first(machine: Machine) -> None:
    """It is said, and nothing is changed."""
    machine.install()
    done = machine.install("rollback")
    assert (done.returncode, machine.current()) == (1, __version__)
    assert "no release to go back to" in done.stderr


def spoil(machine: Machine) -> None:
    config = machine.etc / "config.toml"
    config.write_text(config.read_text() + "\nnonsense = 1\n")


def lack(machine: Machine) -> None:
    config = machine.etc / "config.toml"
    config.write_text(config.read_text().replace("#[channels.telegram]", "[channels.telegram]"))


def break_build(machine: Machine) -> None:
    dev = machine.source / "dev"
    dev.write_text(dev.read_text().replace('[ ! -e "$here/broken" ] || exit 9', "exit 9"))


def break_code(machine: Machine) -> None:
    (machine.source / "gateway" / "cli" / "check.py").write_text("raise ImportError('broken')\n")


@pytest.mark.parametrize("harm", [spoil, lack, break_build, break_code])
def test_a_release_that_does_not_fit_is_not_switched_to(machine: Machine, harm: Callable[[Machine], None]) -> None:
    """A config with a fault, a token that is missing, a build that fails, code that does not run: what runs goes on, nothing of the new
    release is left behind, and the next try is a whole one."""
    machine.version("1.0.0")
    machine.install()
    before = tree(machine.root)
    machine.version("1.1.0")
    harm(machine)
    done = machine.install()
    assert done.returncode != 0
    assert machine.current() == "1.0.0"
    assert tree(machine.root) == before
    assert [path.name.partition("-")[0] for path in (machine.root / "releases").iterdir()] == ["1.0.0"]
    assert machine.parlour("--version").stdout == "parlour 1.0.0\n"
    shutil.copy(ROOT / "gateway" / "cli" / "check.py", machine.source / "gateway" / "cli" / "check.py")
    shutil.copy(ROOT / "config.example.toml", machine.etc / "config.toml")
    (machine.source / "dev").write_text(DEV)
    assert machine.install().returncode == 0
    assert machine.current() == "1.1.0"


def test_secrets_count_when_the_config_is_checked(machine: Machine) -> None:
    """A token in the folder of secrets is the token that a channel needs."""
    machine.version("1.0.0")
    machine.install()
    lack(machine)
    (machine.etc / "secrets" / "TELEGRAM_TOKEN").write_text("123456:abcdefghijklmnopqrstuvwxyz-0123456789\n")
    machine.version("1.1.0")
    assert machine.install().returncode == 0
    assert machine.current() == "1.1.0"


def test_what_runs_is_never_taken_away(machine: Machine) -> None:
    """Installed again with a config that became wrong: refused, and the release that runs stays where it is."""
    machine.install()
    before = tree(machine.root)
    spoil(machine)
    assert machine.install().returncode == 1
    assert tree(machine.root) == before


def test_a_trial_may_be_below_a_relative_folder(machine: Machine) -> None:
    """DESTDIR counts from where the script is called."""
    done = subprocess.run(
        [str(machine.source / "deploy" / "install.sh")],
        env={**os.environ, "DESTDIR": "dest", "PYTHON": sys.executable},
        cwd=machine.dest.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert run(machine.dest / "usr" / "local" / "bin" / "parlour", "--version").returncode == 0


def test_what_a_killed_install_left_is_built_anew(machine: Machine) -> None:
    """A release counts when it is complete, and not before."""
    machine.install()
    (release,) = (machine.root / "releases").iterdir()
    (release / ".complete").unlink()
    (release / "gateway" / "app.py").write_text("half")
    assert machine.install().returncode == 0
    assert (release / "gateway" / "app.py").read_text() == (ROOT / "gateway" / "app.py").read_text()


def test_two_at_once(machine: Machine) -> None:
    """The second one says so and does nothing."""
    machine.install()
    held = subprocess.Popen(["flock", str(machine.root / ".lock"), "sh", "-c", "echo held; exec sleep 30"], stdout=subprocess.PIPE)
    try:
        assert held.stdout is not None
        held.stdout.readline()
        done = machine.install()
        assert done.returncode == 1
        assert "another install.sh" in done.stderr
    finally:
        held.kill()
        held.wait()
        assert held.stdout is not None
        held.stdout.close()


@pytest.mark.parametrize(("what", "code"), [("nonsense", 2), ("--help", 0)])
def test_install_says_what_it_can(machine: Machine, what: str, code: int) -> None:
    """An unknown word is a usage error; help is no error."""
    done = machine.install(what)
    assert done.returncode == code
    assert "rollback" in done.stdout + done.stderr
    assert not machine.dest.exists()
