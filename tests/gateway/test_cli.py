"""The command line, as a process: exit codes, one line a fault on stderr, and nothing started where something is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway import __version__
from gateway.control import ControlServer, listen
from gateway.errors import ParlourError

TOKEN = "123456:TESTTOKEN_of-35-characters-in-all-x"
ECHO = '[backend]\nkind = "echo"\n[http]\nlisten = ""\n'


def environment(**more: str) -> dict[str, str]:
    """Ours without what would change the answers."""
    odd = re.compile(r"PARLOUR_|OPENAI_|CREDENTIALS_|STATE_|RUNTIME_|NOTIFY_")
    return {name: value for name, value in os.environ.items() if not odd.match(name)} | {"PYTHONPATH": os.getcwd()} | more


def parlour(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *args],
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


async def pair(*args: str, cwd: Path, **env: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "pair", *args),
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, out.decode(), err.decode()


# ------------------------------------------------------------------------------------------------------------------------------ usage


def test_help_is_quick(tmp_path: Path) -> None:
    """`--help` and `--version` load nothing of the daemon."""
    script = "import sys, gateway.cli\ntry: gateway.cli.main(['--help'])\nexcept SystemExit: print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True, timeout=30)
    assert "start the daemon" in done.stdout
    for heavy in ("asyncio", "aiohttp", "msgspec", "structlog", "telegram", "tomllib"):
        assert f"'{heavy}'" not in done.stdout
    assert parlour("--version", cwd=tmp_path).stdout == f"parlour {__version__}\n"


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("nonsense",),
        ("pair",),
        ("pair", "approve"),
        ("run", "--nonsense"),
        ("run", "--demo", "--config", "x"),
        ("run", "--listen", "x"),
        ("sessions",),
        ("sessions", "show"),
        ("sessions", "show", "telegram:42", "--last", "0"),
        ("sessions", "export", "telegram:42", "--force"),
        ("sessions", "export", "telegram:42", "--format", "pdf"),
        ("sessions", "fork", "telegram:42", "main"),
        ("init", "--check", "x"),
    ],
)
def test_usage(tmp_path: Path, args: tuple[str, ...]) -> None:
    """What is no command line is answered with the usage and exit code 2."""
    done = parlour(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: parlour")


# ------------------------------------------------------------------------------------------------------------------------------ faults


@pytest.mark.parametrize("command", ["run", "check"])
def test_no_config(tmp_path: Path, command: str) -> None:
    """F06: a missing file is exit 78 and one line that says what to do."""
    done = parlour(command, "--config", "nope.toml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (78, "")
    assert (
        done.stderr == "nope.toml: there is no such file: copy config.example.toml and edit it, or try the demonstration with ./dev run\n"
    )
    done = parlour(command, cwd=tmp_path)
    if not Path("/etc/parlour/config.toml").exists():
        assert done.returncode == 78
        assert "./dev run" in done.stderr


@pytest.mark.parametrize("command", ["run", "check"])
def test_faults(tmp_path: Path, command: str) -> None:
    """F06, F10: all faults at once, one line each with file, line and key, exit 78, and nothing is started or made."""
    (tmp_path / "config.toml").write_text('[telegran]\n[access]\nallow_form = "telegram:42"\n[backend]\nidle_timeout = "5x"\nmodel = "m"\n')
    done = parlour(command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (78, "")
    assert [line.split(": ")[:2] for line in done.stderr.splitlines()] == [
        ["config.toml", "no channel is configured"],
        ["config.toml:1", "telegran"],
        ["config.toml:3", "access.allow_form"],
        ["config.toml:5", "backend.idle_timeout"],
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_a_fault_shows_no_secret(tmp_path: Path) -> None:
    """F01: a token that is written in the wrong place is not shown on the way."""
    (tmp_path / "config.toml").write_text(f'{ECHO}[channels.telegram]\nmode = "{TOKEN}"\n')
    done = parlour("check", cwd=tmp_path, PARLOUR_TELEGRAM_TOKEN=TOKEN)
    assert done.returncode == 78
    assert "channels.telegram.mode" in done.stderr
    assert "TESTTOKEN" not in done.stderr


def test_check(tmp_path: Path) -> None:
    """A config that is right is exit 0 and one line that says what would run; nothing is made."""
    (tmp_path / "config.toml").write_text(ECHO + "[channels.console]\n")
    (tmp_path / "set.toml").write_text(f'data_dir = "there"\n{ECHO}[channels.console]\n')
    done = parlour("check", "--config", "set.toml", cwd=tmp_path)
    assert done.stdout == f"set.toml: fine. Channels: console. Backend: echo. Data: {tmp_path}/there\n"
    done = parlour("check", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    here = "(./data of where it is started: no data_dir is set)"
    assert done.stdout == f"config.toml: fine. Channels: console. Backend: echo. Data: {tmp_path}/data {here}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.toml", "set.toml"]


def test_foreign_channels(tmp_path: Path) -> None:
    """A package of another project in the place of ours is one line and exit 1."""
    (tmp_path / "channels").mkdir()
    (tmp_path / "channels" / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-c", "import sys, channels, gateway.cli; sys.exit(gateway.cli.main(['run']))"],
        cwd=tmp_path,
        env=environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{os.getcwd()}"),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f'parlour: the package "channels" in {tmp_path} is not ours')
    assert done.stderr.count("\n") == 1


def test_no_secret_when_nothing_can_be_reached(tmp_path: Path) -> None:
    """F01, F02: at level debug, with the network, the model and a proxy out of reach, no secret is in the log or in a file."""
    nowhere = "127.0.0.1:9"
    (tmp_path / "config.toml").write_text(f"""
        [log]
        level = "debug"
        [http]
        listen = ""
        [backend]
        model = "m"
        base_url = "http://user:hunter22@{nowhere}/v1"
        [channels.telegram]
        api_base = "http://{nowhere}"
        proxy = "http://me:hunter23@{nowhere}"
    """)
    (tmp_path / "config.toml").chmod(0o600)
    secrets = {"PARLOUR_TELEGRAM_TOKEN": TOKEN, "PARLOUR_BACKEND_API_KEY": "sk-TESTKEY"}
    process = subprocess.Popen(
        [sys.executable, "-X", "dev", "-m", "gateway", "run"],
        cwd=tmp_path,
        env=environment(**secrets),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    told = ""
    for line in process.stdout:  # ends with the process, or with the test's own time limit
        told += line
        if "channel down" in told and "backend down" in told:
            break
    process.kill()
    told += process.communicate(timeout=30)[0]
    told += "".join(path.read_text(errors="replace") for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert "channel down" in told
    assert not re.search(r"TESTTOKEN|TESTKEY|hunter2", told)


@pytest.mark.parametrize("umask", ["022", "000"])
def test_umask(tmp_path: Path, umask: str) -> None:
    """F12: whatever the shell's umask, the daemon leaves nothing that others may read."""
    data = tmp_path / "data"
    (tmp_path / "config.toml").write_text(ECHO + "[channels.console]\n")
    (tmp_path / "config.toml").chmod(0o600)
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'umask {umask}; exec "{sys.executable}" -m gateway run'],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    found: set[str] = set()
    end = time.monotonic() + 20
    try:
        while not (data / "control.sock").exists() and process.poll() is None and time.monotonic() < end:
            found |= opened(data)
        found |= opened(data)
    finally:
        process.terminate()
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert found | opened(data) == set()
    assert data.is_dir()


def opened(folder: Path) -> set[str]:
    """What in this folder others may read, write or enter."""
    result: set[str] = set()
    for path in (folder, *folder.rglob("*")):
        try:
            if path.lstat().st_mode & 0o077:
                result.add(f"{path.name} {path.lstat().st_mode:o}")
        except FileNotFoundError:
            continue
    return result


# ------------------------------------------------------------------------------------------------------------------------------- pair


async def people(args: Mapping[str, str]) -> object:
    return [
        {"id": "telegram:42", "name": "Ana \x1b[2J\n", "state": "approved"},
        {"id": "telegram:4242", "state": "pending", "code": "ABCD2345"},
    ]


async def approve(args: Mapping[str, str]) -> object:
    if args["code"] != "ABCD2345":
        raise ParlourError("there is no such code")
    return "telegram:4242 may chat now"


async def nobody(args: Mapping[str, str]) -> object:
    return []


async def test_pair(tmp_path: Path) -> None:
    """The command speaks to the running daemon that has the config's data folder; what people call themselves steers no terminal."""
    (tmp_path / "config.toml").write_text('data_dir = "d"\nnonsense = 1\n')
    (tmp_path / "d").mkdir()
    server = ControlServer(tmp_path / "d" / "control.sock", {"pair.list": people, "pair.approve": approve})
    await server.start()
    try:
        config = str(tmp_path / "config.toml")
        shown = [
            "ID             NAME       STATE     CODE",
            "telegram:42    Ana \ufffd[2J\ufffd  approved",
            f"telegram:4242{' ' * 13}pending   ABCD2345",
            "",
        ]
        assert await pair("list", "--config", config, cwd=Path("/")) == (0, "\n".join(shown), "")
        assert (await pair("--config", config, "list", cwd=Path("/")))[0] == 0
        assert await pair("approve", "ABCD2345", cwd=tmp_path) == (0, "telegram:4242 may chat now\n", "")
        assert await pair("approve", "WRONG", cwd=tmp_path) == (1, "", "parlour: there is no such code\n")
        code, _, err = await pair("revoke", "telegram:42", cwd=tmp_path)
        assert code == 1
        assert "knows no 'pair.revoke'" in err
    finally:
        await server.close()


async def test_pair_with_systemd_folders(tmp_path: Path) -> None:
    """Under systemd the socket is in the runtime folder, and the command finds it there."""
    server = ControlServer(tmp_path / "control.sock", {"pair.list": nobody})
    await server.start()
    try:
        assert await pair("list", cwd=tmp_path, RUNTIME_DIRECTORY=str(tmp_path)) == (0, "nobody\n", "")
    finally:
        await server.close()


async def test_pair_tells_what_matters(tmp_path: Path) -> None:
    """Of the places where a daemon could be, the one that has a dead socket is told, not one that has none."""
    listen(tmp_path / "control.sock").close()
    code, _, err = await pair("list", cwd=tmp_path / "..", RUNTIME_DIRECTORY=str(tmp_path / "nowhere"))
    assert (code, err.count("\n")) == (1, 1)
    (tmp_path / "config.toml").write_text(f'data_dir = "{tmp_path}"\n')
    code, _, err = await pair("list", cwd=tmp_path, RUNTIME_DIRECTORY=str(tmp_path / "nowhere"))
    if not Path("/run/parlour/control.sock").exists():
        assert (code, err) == (1, f"parlour: {tmp_path}/control.sock: no daemon listens here (Connection refused)\n")


async def test_pair_without_daemon(tmp_path: Path) -> None:
    """Without a daemon the command says in one line where it looked."""
    code, out, err = await pair("list", cwd=tmp_path)
    if not Path("/run/parlour/control.sock").exists():
        assert (code, out) == (1, "")
        assert err == f"parlour: {tmp_path}/data/control.sock: no daemon listens here (there is no such socket)\n"


# ------------------------------------------------------------------------------------------------------------------- for programs


def test_check_as_json(tmp_path: Path) -> None:
    """F10: the same faults for programs, with file, line and key; a config that is right says what would run."""
    (tmp_path / "config.toml").write_text(f'[telegran]\n{ECHO}idle = "{TOKEN}"\n[channels.console]\n')
    done = parlour("check", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (78, "")
    said = json.loads(done.stdout)
    assert said["fine"] is False
    assert [(fault["line"], fault["key"]) for fault in said["faults"]] == [(1, "telegran"), (6, "http.idle")]
    assert "TESTTOKEN" not in done.stdout
    (tmp_path / "config.toml").write_text(ECHO + "[channels.console]\n")
    done = parlour("check", "--json", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["channels"]) == (0, ["console"])


def test_exit_codes_are_told(tmp_path: Path) -> None:
    """In the help and in the README, the same ones."""
    told = parlour("--help", cwd=tmp_path).stdout
    assert max(map(len, told.splitlines())) <= 80
    readme = Path("README.md").read_text()
    for code in ("0", "1", "2", "78", "130"):
        assert re.search(rf"\b{code}\b", told.partition("exit codes:")[2])
        assert re.search(rf"\b{code}\b", readme.partition("Exit codes:")[2].partition("\n\n")[0])


@pytest.mark.parametrize("command", [("check",), ("doctor", "--json"), ("sessions", "list")])
def test_foreign_channels_for_every_command(tmp_path: Path, command: tuple[str, ...]) -> None:
    """A package of another project in the place of ours is told, not met as a traceback."""
    (tmp_path / "channels").mkdir()
    (tmp_path / "channels" / "__init__.py").touch()
    script = f"import sys, channels, gateway.cli; sys.exit(gateway.cli.main({list(command)}))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{os.getcwd()}"),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert f"in {tmp_path} is not ours" in (done.stdout + done.stderr).replace('\\"', '"')
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves(tmp_path: Path) -> None:
    """`| head`: no traceback."""
    folder = tmp_path / "data" / "sessions" / "telegram"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "lock").touch()
    for n in range(3000):
        (folder / str(n)).mkdir(parents=True)
        (folder / str(n) / "main.jsonl").write_text(f'{{"type":"session","v":1,"key":"telegram:{n}","name":"main"}}\n')
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "sessions", "list"],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().split()[0] == "NAME"
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(30) == 1
