"""The questions of `parlour init`, and where their answers come from."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from channels.settings import Secret
from gateway import online, options, secrets
from gateway.app import CHANNELS, local_model
from gateway.cli import show
from gateway.errors import ConfigError, ParlourError

_LISTED = 20
_LOOK = 5.0
"""Seconds for a look at the server's models."""


@dataclass(slots=True)
class Answers:
    """What goes into the config."""

    channels: tuple[str, ...] = ()
    backend: str = "openai"
    base_url: str = ""
    model: str = ""
    admins: tuple[str, ...] = ()
    secrets: dict[str, str] = field(default_factory=dict)
    """Variable -> value, of those that are to be kept; what is in the environment already stays there."""
    apart: bool = False
    """They get files of their own."""


class Asking:
    """Asks on a terminal, reads a line a question from a pipe, or takes the defaults (`silent`). Questions go to stderr."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self.terminal = sys.stdin.isatty() and not silent
        self._ended = silent

    def ask(self, question: str, default: str, check: Callable[[str], str], *, hidden: bool = False) -> str:
        """What `check` makes of the answer; it raises ValueError with a sentence where it is none. A terminal is asked again. Raises
        ParlourError where nobody can be."""
        while True:
            said = self._line(question, default, hidden)
            try:
                return check(said.strip() or default)
            except ValueError as error:
                if not self.terminal:
                    raise ParlourError(f"{question} {error}") from None
                print(show.cell(f"  {error}"), file=sys.stderr)

    def yes(self, question: str, *, default: bool) -> bool:
        """Yes or no."""
        return self.ask(f"{question} [{'Y/n' if default else 'y/N'}]", "y" if default else "n", _choice("y", "n", "yes", "no"))[0] == "y"

    def tell(self, text: str) -> None:
        """A word between questions."""
        if not self._silent:
            print(show.block(text), file=sys.stderr, flush=True)

    def _line(self, question: str, default: str, hidden: bool) -> str:
        if self._ended:
            return ""
        prompt = f"{question}{f' [{default}]' if default and ' [' not in question else ''}: "
        if hidden and self.terminal:
            return getpass.getpass(prompt, stream=sys.stderr)
        if self.terminal:
            print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            self._ended = True
            if self.terminal:  # Ctrl-D
                raise KeyboardInterrupt
        return line


def ask(args: argparse.Namespace, asking: Asking, env: Mapping[str, str]) -> Answers:
    """All questions, in their order. Raises ParlourError."""
    answers = Answers()
    names = ", ".join(CHANNELS)
    said = args.channels
    answers.channels = tuple(_given(said, asking, f"Which channels? ({names})", "web", _channels).split(","))
    files = dict(_token_files(args.token_file, answers.channels))
    for channel in answers.channels:
        if channel in secrets.CHANNELS:
            _token(channel, files, asking, env, answers)
    answers.backend = _given(
        args.backend, asking, "Who answers? (openai: a server with the OpenAI chat API; local; echo)", "openai", _backend
    )
    if answers.backend == "openai":
        _openai(args, asking, env, answers)
    networks = [channel for channel in answers.channels if channel in secrets.CHANNELS]
    if networks or args.admin:
        hint = f"Who is the admin? (like {networks[0] if networks else 'telegram'}:42; empty: nobody yet, the bot tells you your id)"
        admin = _given(args.admin, asking, hint, "", lambda text: _admin(text, answers.channels))
        answers.admins = (admin,) if admin else ()
    if answers.secrets:
        question = "Where do the secrets go? (config: into the config; files: files of their own)"
        answers.apart = _given(args.secrets, asking, question, "config", _choice("config", "files")) == "files"
    return answers


def _given(said: str | None, asking: Asking, question: str, default: str, check: Callable[[str], str]) -> str:
    """What an option says, else the answer. Raises ParlourError."""
    if said is None:
        return asking.ask(question, default, check)
    try:
        return check(said)
    except ValueError as error:
        raise ParlourError(f"{show.cell(said)[:60]!r}: {error}") from None


def _choice(*names: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text.lower() not in names:
            raise ValueError(f"expected one of {', '.join(names)}")
        return text.lower()

    return check


def _channels(text: str) -> str:
    names = list(dict.fromkeys(filter(None, re.split(r"[\s,]+", text.lower()))))
    if not names or (unknown := [name for name in names if name not in CHANNELS]):
        raise ValueError(f"expected some of {', '.join(CHANNELS)}, not {', '.join(unknown) if names else 'none'}")
    return ",".join(names)


def _backend(text: str) -> str:
    kind = _choice("openai", "local", "echo")(text)
    if kind == "local" and (lacking := local_model()):
        raise ValueError(lacking)
    return kind


def _admin(text: str, channels: Sequence[str]) -> str:
    if not text:
        return ""
    channel, _, person = text.partition(":")
    if channel not in channels or not re.fullmatch(r"-?[0-9]{1,20}" if channel in secrets.CHANNELS else r"[A-Za-z0-9._-]{1,80}", person):
        raise ValueError('expected "channel:id" of a channel above, by the number that the network knows people by')
    return text


# --------------------------------------------------------------------------------------------------------------------------- secrets


def _token_files(said: Sequence[str], channels: Sequence[str]) -> Iterator[tuple[str, str]]:
    for one in said:
        channel, equals, path = one.partition("=")
        if not equals or not path or channel not in secrets.CHANNELS or channel not in channels:
            raise ParlourError(f"--token-file {show.cell(one)[:60]}: expected CHANNEL=FILE, of a channel that is chosen and has a token")
        yield channel, path


def _token(channel: str, files: Mapping[str, str], asking: Asking, env: Mapping[str, str], answers: Answers) -> None:
    name = secrets.CHANNELS[channel]
    if channel in files:
        answers.secrets[name] = _read(files[channel])
    elif _outside(env, name):
        asking.tell(f"{name} is set already; the token stays where it is.")
    else:
        answers.secrets[name] = asking.ask(f"The bot's token for {channel} (not shown)", "", _secret, hidden=True)


def _secret(text: str) -> str:
    try:
        return secrets.clean(text)
    except ValueError as error:
        raise ValueError(f"it {error}") from None


def _read(path: str) -> str:
    """Raises ParlourError, OSError."""
    try:
        return _secret(Path(path).read_text("utf-8"))
    except ValueError as error:
        raise ParlourError(f"{path}: {error}") from None


def _outside(env: Mapping[str, str], *names: str) -> str:
    """A secret that is there already, outside any config. Raises ParlourError where it is there and no good."""
    try:
        return secrets.find(env, *names).reveal()
    except ConfigError as error:
        raise ParlourError(str(error)) from None


# ----------------------------------------------------------------------------------------------------------------------------- model


def _openai(args: argparse.Namespace, asking: Asking, env: Mapping[str, str], answers: Answers) -> None:
    answers.base_url = _given(args.base_url, asking, "Where is the model's server?", options.Backend(kind="echo").base_url, _url)
    key = _outside(env, *secrets.BACKEND)
    if args.api_key_file:
        key = answers.secrets[secrets.BACKEND[0]] = _read(args.api_key_file)
    elif key:
        asking.tell("its key is set already, and stays where it is.")
    elif key := asking.ask("Its key (not shown; empty: none)", "", lambda text: _secret(text) if text else "", hidden=True):
        answers.secrets[secrets.BACKEND[0]] = key
    models: tuple[str, ...] = ()
    if args.model is None and not args.defaults:
        sight = asyncio.run(online.ask_backend(options.Backend(base_url=answers.base_url, model="-", api_key=Secret(key)), _LOOK))
        models = sight.models
        if not sight.ok:
            asking.tell(f"(It cannot be asked for its models now: {sight.text})")
        for number, model in enumerate(models[:_LISTED], 1):
            asking.tell(f"  {number:>2}  {model}")
        if len(models) > _LISTED:
            asking.tell(f"      and {len(models) - _LISTED} more")
    answers.model = _given(
        args.model, asking, "Which model? (its name, or the number)", models[0] if models else "", lambda text: _model(text, models)
    )


def _url(text: str) -> str:
    options.Backend(base_url=text, model="-")  # raises ValueError
    return text


def _model(text: str, models: Sequence[str]) -> str:
    if not text:
        raise ValueError("it needs one")
    with suppress(ValueError, IndexError):
        if 1 <= int(text) <= len(models) and text not in models:
            return models[int(text) - 1]
    return text
