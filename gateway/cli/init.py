"""`parlour init`: a few questions, and a config that starts.

Answers come from options, from a terminal, or line by line from a pipe; where a pipe ends, the defaults hold. Secrets are never options,
since a process's arguments can be read by everybody on the machine. Nothing is overwritten.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway import config, online, secrets
from gateway.app import channel_types
from gateway.cli import FAILED, FINE, MISCONFIGURED, check, questions, quiet, say, show
from gateway.cli.questions import Answers, Asking
from gateway.disk import new_file, write_all
from gateway.errors import ConfigErrors, ParlourError
from gateway.httpd.token import FILE as TOKEN_FILE


def run(args: argparse.Namespace) -> int:
    """The exit code. Raises ParlourError, OSError."""
    target = Path(args.config)
    if os.path.lexists(target):
        raise ParlourError(f"{target} is there already, and is never overwritten: `parlour check` says whether it is right")
    if not target.parent.is_dir():
        raise ParlourError(f"{target.parent}: there is no such folder")
    asking = Asking(silent=args.defaults)
    answers = questions.ask(args, asking, os.environ)
    files = _secret_files(answers, target.parent)
    for path in files.values():
        if os.path.lexists(path):
            raise ParlourError(f"{path} is there already, and is never overwritten")
    for name, path in files.items():
        _write(path, answers.secrets[name] + "\n")
    _write(target, toml(answers, in_file=not files))
    more = {f"{name}_FILE": str(path.absolute()) for name, path in files.items()}
    try:
        loaded = config.load(target, channel_types(), {**os.environ, **more})
    except ConfigErrors as errors:
        say(f"{target} is written, and is not right yet:\n{errors}")
        return MISCONFIGURED
    wanted = args.check
    if wanted is None:
        wanted = asking.yes("Ask the networks and the model now whether they know us?", default=asking.terminal)
    quiet(loaded)
    tried = asyncio.run(online.ask_all(loaded)) if wanted else []
    code = check.code(tried) if tried else FINE
    if args.json:
        said = {"config": str(target), "secrets": {name: str(path) for name, path in files.items()}, "online": msgspec.to_builtins(tried)}
        print(show.as_json(said))
        return code
    for one in tried:
        check.tell(one)
    _next(target, files, answers, loaded)
    return code and FAILED


def _secret_files(answers: Answers, folder: Path) -> dict[str, Path]:
    """Variable -> where its value goes, where secrets get files of their own: the folder and the names that deploy/parlour.service has."""
    return {name: folder / "secrets" / name.removeprefix("PARLOUR_") for name in answers.secrets} if answers.apart else {}


def _write(path: Path, text: str) -> None:
    """0600 from the first moment on, whole or not at all. Raises ParlourError where something is there by now."""
    try:
        with new_file(path) as fd:
            write_all(fd, text.encode())
            os.fchmod(fd, stat.S_IRUSR | stat.S_IWUSR)
    except FileExistsError:
        raise ParlourError(f"{path} is there already, and is never overwritten") from None


def toml(answers: Answers, *, in_file: bool) -> str:
    """The config's text."""
    lines = [
        "# Written by `parlour init`. config.example.toml has every option there is, with its default and a line about it.",
        "",
        "[access]",
        '# Who may let others in (/approve CODE) and steer groups, as "channel:id"; /whoami tells somebody their own.',
        f"admins = [{', '.join(map(_string, answers.admins))}]",
        "",
        "[backend]",
        f"kind = {_string(answers.backend)}",
    ]
    if answers.backend == "openai":
        lines += [f"base_url = {_string(answers.base_url)}", f"model = {_string(answers.model)}"]
        if in_file and (key := answers.secrets.get(secrets.BACKEND[0])):
            lines.append(f"api_key = {_string(key)}")
    for channel in answers.channels:
        lines += ["", f"[channels.{channel}]"]
        if in_file and (token := answers.secrets.get(secrets.CHANNELS.get(channel, ""))):
            lines.append(f"token = {_string(token)}")
    return "\n".join(lines) + "\n"


def _string(text: str) -> str:
    """A basic string of TOML."""
    special = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(special.get(c, c if c.isprintable() else f"\\U{ord(c):08X}") for c in text) + '"'


def _next(target: Path, files: Mapping[str, Path], answers: Answers, loaded: config.Config) -> None:
    """What comes now."""
    print(show.fold(f"{target} is written, for your eyes only."))
    if files:
        print(
            show.fold(
                "The secrets are in files of their own. The unit finds those in /etc/parlour/secrets; elsewhere these variables name them:"
            )
        )
        for name, path in files.items():
            print(f"    export {name}_FILE={path.absolute()}")
    print(show.fold(f"Start it: parlour run --config {target}"))
    if any(channel in secrets.CHANNELS for channel in answers.channels):
        print(show.fold("Then write to your bot. It answers with a code; let yourself in: parlour pair approve CODE"))
    if "web" in answers.channels:
        print(show.fold(f"The page is at http://{loaded.http.listen}/, and its token, once it runs, in {loaded.data_dir / TOKEN_FILE}"))
    sys.stdout.flush()
