"""`parlour init`, as a process: questions from a terminal, from a pipe and from options; nothing overwritten, nothing open to others."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gateway import config
from gateway.app import channel_types
from gateway.cli import main
from gateway.cli.init import toml
from gateway.cli.questions import Answers
from tests.fakes.openai import FakeModel
from tests.gateway.test_cli import TOKEN, environment


def init(folder: Path, *args: str, answers: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", "init", *args],
        cwd=folder,
        env=environment(**env),
        input=answers,
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )


def written(folder: Path, name: str = "config.toml") -> dict[str, Any]:
    assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    return tomllib.loads((folder / name).read_text())


async def test_on_a_terminal(tmp_path: Path) -> None:
    """Questions on stderr, a wrong answer is asked again, the token is not shown, the models are listed and one is taken by its number."""
    async with FakeModel(models=["big", "small"]) as model:
        ours, theirs = os.openpty()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "init", "--no-check"),
            cwd=tmp_path,
            env=environment(),
            stdin=theirs,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        os.close(theirs)
        assert process.stderr is not None
        assert process.stdout is not None
        told = ""
        dialogue = [
            ("Which channels", "telegran"),
            ("not telegran", ""),
            ("Which channels", "telegram, web"),
            ("token for telegram", TOKEN),
            ("Who answers", ""),
            ("model's server", model.base_url),
            ("key (not shown", ""),
            ("Which model", "2"),
            ("admin", "telegram:ana"),
            ("by the number", ""),
            ("admin", "telegram:42"),
            ("secrets go", ""),
        ]
        async with asyncio.timeout(30):
            seen = 0
            for question, answer in dialogue:
                while question not in told[seen:]:
                    data = await process.stderr.read(4096)
                    assert data, told
                    told += data.decode()
                seen = told.index(question, seen) + len(question)
                if answer or not question.startswith(("not ", "by the")):
                    os.write(ours, f"{answer}\n".encode())
            out = (await process.stdout.read()).decode()
            told += (await process.stderr.read()).decode()
            assert await process.wait() == 0, told
        echoed = os.read(ours, 65536).decode()
        os.close(ours)
    assert "1  big\n" in told
    assert "TESTTOKEN" not in told + out + echoed
    assert "telegram:42" in echoed
    assert written(tmp_path) == {
        "access": {"admins": ["telegram:42"]},
        "backend": {"kind": "openai", "base_url": model.base_url, "model": "small"},
        "channels": {"telegram": {"token": TOKEN}, "web": {}},
    }


def test_from_a_pipe(tmp_path: Path) -> None:
    """A line a question, in their order; secrets into files of their own; what comes next is said."""
    done = init(tmp_path, answers=f"telegram\n{TOKEN}\nopenai\nhttp://127.0.0.1:9/v1\nsk-TESTKEY\nqwen\n\nfiles\nn\n")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert written(tmp_path) == {
        "access": {"admins": []},
        "backend": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "qwen"},
        "channels": {"telegram": {}},
    }
    for name, secret in (("TELEGRAM_TOKEN", TOKEN), ("BACKEND_API_KEY", "sk-TESTKEY")):
        assert (tmp_path / "secrets" / name).read_text() == f"{secret}\n"
        assert stat.S_IMODE((tmp_path / "secrets" / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    assert "TESTTOKEN" not in done.stdout + done.stderr
    assert f"PARLOUR_TELEGRAM_TOKEN_FILE={tmp_path}/secrets/TELEGRAM_TOKEN" in done.stdout
    env = {f"PARLOUR_{path.name}_FILE": str(path) for path in (tmp_path / "secrets").iterdir()}
    loaded = config.load(tmp_path / "config.toml", channel_types(), env)
    assert loaded.tokens["telegram"].reveal() == TOKEN


def test_from_options(tmp_path: Path) -> None:
    """Every answer can be an option, secrets by a file that holds them; then nothing is asked and nothing is read."""
    (tmp_path / "t").write_text(f"{TOKEN}\n")
    (tmp_path / "k").write_text("sk-TESTKEY\n")
    done = init(
        tmp_path,
        *("--config", "my.toml", "--channels", "telegram", "--token-file", "telegram=t", "--backend", "openai"),
        *("--base-url", "http://127.0.0.1:9/v1", "--api-key-file", "k", "--model", "m", "--admin", "telegram:42", "--secrets", "config"),
        *("--defaults", "--no-check", "--json"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"config": "my.toml", "secrets": {}, "online": []}
    said = written(tmp_path, "my.toml")
    assert (said["channels"]["telegram"]["token"], said["backend"]["api_key"]) == (TOKEN, "sk-TESTKEY")


def test_what_is_set_already_stays_where_it_is(tmp_path: Path) -> None:
    """A token in the environment is neither asked for nor written down."""
    done = init(tmp_path, "--channels", "telegram", "--backend", "echo", "--defaults", PARLOUR_TELEGRAM_TOKEN=TOKEN)
    assert done.returncode == 0
    assert written(tmp_path)["channels"] == {"telegram": {}}


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A config, a link to nowhere, or a file where a secret would go: refused before anything is asked or written."""
    (tmp_path / "config.toml").write_text("mine")
    done = init(tmp_path, "--defaults")
    assert (done.returncode, (tmp_path / "config.toml").read_text()) == (1, "mine")
    assert "never overwritten" in done.stderr
    (tmp_path / "link.toml").symlink_to(tmp_path / "elsewhere")
    assert init(tmp_path, "--defaults", "--config", "link.toml").returncode == 1
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "TELEGRAM_TOKEN").write_text("mine")
    args = ("--config", "new.toml", "--channels", "telegram", "--backend", "echo", "--secrets", "files", "--no-check")
    done = init(tmp_path, *args, answers=f"{TOKEN}\n")
    assert (done.returncode, (tmp_path / "secrets" / "TELEGRAM_TOKEN").read_text()) == (1, "mine")
    assert not (tmp_path / "new.toml").exists()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--channels", "telegran"), "expected some of"),
        (("--channels", "telegram"), "it is empty"),
        (("--channels", "web", "--token-file", "telegram=x"), "expected CHANNEL=FILE"),
        (("--channels", "telegram", "--token-file", "telegram=nowhere"), "No such file"),
        (("--base-url", "nonsense"), "expected an address"),
        (("--backend", "openai", "--model", ""), "it needs one"),
        (("--model", "m", "--admin", "ana"), "channel:id"),
        (("--config", "nowhere/config.toml"), "no such folder"),
    ],
)
def test_answers_that_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str
) -> None:
    """F10: where nobody can be asked again, a wrong answer is one sentence and exit 1, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", *args, "--defaults", "--no-check"]) == 1
    told = capsys.readouterr()
    assert said in told.err
    assert (told.err.count("\n"), told.out) == (1, "")
    assert list(tmp_path.iterdir()) == []


async def test_check_at_the_end(tmp_path: Path) -> None:
    """What cannot be reached is told, and the config stays."""
    async with FakeModel(models=["m"], api_key="right") as model:
        args = ("--channels", "web", "--base-url", model.base_url, "--model", "m", "--defaults", "--check")
        done = await asyncio.to_thread(init, tmp_path, *args)
    assert done.returncode == 1
    assert done.stdout.startswith("backend: NO")
    assert written(tmp_path)["backend"]["model"] == "m"


@pytest.mark.parametrize("odd", ['a"b\\c', "ü 漢 \U0001f600", "tab\tline\nnull\x00del\x7f\x9b\u202e", "'''", "#[x]"])
def test_any_text_is_written_as_it_is(odd: str) -> None:
    """Quotes, backslashes and control characters in a model's name do not break the file."""
    answers = Answers(channels=("web",), base_url=odd, model=odd, admins=(odd,), secrets={"PARLOUR_BACKEND_API_KEY": odd})
    said = tomllib.loads(toml(answers, in_file=True))
    assert said["backend"] == {"kind": "openai", "base_url": odd, "model": odd, "api_key": odd}
    assert said["access"]["admins"] == [odd]
