"""The command line. Exit codes: 0 fine, 1 cannot or was told no or found something, 2 usage, 78 a fault of the config, 130 interrupted.

Nothing heavy is imported before the arguments are read, so that `--help` is quick. Called by the entry point and `python -m gateway`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli.parser import build

if TYPE_CHECKING:
    from gateway.config import Config
    from gateway.unit import Unit

FINE, FAILED, USAGE, MISCONFIGURED, INTERRUPTED = 0, 1, 2, 78, 130
"""78 is EX_CONFIG of sysexits.h; the unit file does not restart on it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = build()
    args = parser.parse_args(argv)
    if args.command == "run" and args.demo and args.config:
        parser.error("--demo takes no --config")
    if args.command == "run" and args.listen and not args.demo:
        parser.error("--listen goes with --demo; in a config it is [http] listen")
    if args.command == "sessions" and args.action == "export" and (args.force or args.json) and not args.output:
        parser.error("--force and --json go with -o")

    from gateway.errors import ConfigError, ConfigErrors, ParlourError  # noqa: PLC0415  # see the module's docstring

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what the terminal's encoding lacks is no reason to fail
    try:
        code = _command(args)
        with contextlib.suppress(ValueError):
            sys.stdout.flush()
    except (ConfigError, ConfigErrors) as error:
        say(str(error))
        return MISCONFIGURED
    except ParlourError as error:  # StartError, and what the control socket says
        say(f"parlour: {error}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `parlour pair list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        if args.command == "run":
            raise
        say(f"parlour: {f'{error.filename}: ' if error.filename else ''}{error.strerror or error}")
        return FAILED
    return code


def _command(args: argparse.Namespace) -> int:
    if args.command == "run":
        return _run(args.config, demo=args.demo, listen=args.listen)
    if args.command != "doctor":
        _own_packages()
    code: int = importlib.import_module(f"gateway.cli.{args.command}").run(args)
    return code


def say(text: str) -> None:
    """A line on stderr, without a secret in it."""
    from gateway.cli.show import block  # noqa: PLC0415
    from gateway.logging import mask  # noqa: PLC0415

    print(block(mask(text)), file=sys.stderr, flush=True)


def load(path: str | None) -> Config:
    """The config that is meant, as the unit's daemon reads it where it is the unit's config. Raises ConfigErrors."""
    from gateway import config, unit  # noqa: PLC0415
    from gateway.app import channel_types  # noqa: PLC0415

    return config.load(config.find(path), channel_types(), environment(path, unit.find(), os.environ))


def is_units(path: str | None, unit: Unit | None) -> bool:
    """Whether this is the config that the installed unit runs with."""
    from gateway import config  # noqa: PLC0415
    from gateway.errors import ConfigErrors  # noqa: PLC0415

    with contextlib.suppress(ConfigErrors, OSError):
        return unit is not None and (mine := unit.credentials.get("config.toml")) is not None and config.find(path).samefile(mine)
    return False


def environment(path: str | None, unit: Unit | None, env: Mapping[str, str]) -> dict[str, str]:
    """The environment and, where this is the config that the installed unit runs with, what systemd would put into it: its readable
    secrets and the place of its data. So root, who looks after it from a shell, is told the same as the daemon."""
    if unit is None or not is_units(path, unit):
        return dict(env)
    more = {name: file for name, file in unit.environment().items() if os.access(file, os.R_OK)}
    known = {name for name in more if env.get(name) or env.get(name.removesuffix("_FILE"))}
    state = {"STATE_DIRECTORY": unit.state} if unit.state else {}
    return {**state, **{name: file for name, file in more.items() if name not in known}, **env}


def quiet(loaded: Config | None = None) -> None:
    """The log on stderr for a command that is no daemon: what went wrong, and no secrets."""
    from gateway import logging  # noqa: PLC0415

    logging.setup("warning", "console", [secret.reveal() for secret in loaded.hidden] if loaded else [])


def _run(path: str | None, *, demo: bool, listen: str) -> int:
    os.umask(0o077)  # whatever the daemon or a library writes is ours alone
    _own_packages()
    from gateway import app, logging  # noqa: PLC0415

    if demo:
        from gateway import config  # noqa: PLC0415

        if lacking := app.local_model():
            print(f"{lacking}; the echo answers instead: it repeats what you write", flush=True)
        loaded = config.demo(app.channel_types(), local=not lacking, listen=listen)
    else:
        from gateway import config  # noqa: PLC0415

        loaded = config.load(config.find(path), app.channel_types())
    logging.setup(loaded.log.level, loaded.log.format, [secret.reveal() for secret in loaded.hidden])
    return app.main(loaded)


def foreign_channels() -> str:
    """`channels` is the import name of Django Channels, too: where it is not ours, in one line; "" if it is."""
    import channels  # noqa: PLC0415
    import gateway  # noqa: PLC0415

    found = Path(channels.__file__ or "").parent.parent
    if found == Path(gateway.__file__ or "").parent.parent:
        return ""
    return f'the package "channels" in {found} is not ours: give parlour a virtual environment of its own'


def _own_packages() -> None:
    """Better to say so than to fail in the middle. Raises StartError."""
    from gateway.errors import StartError  # noqa: PLC0415

    if foreign := foreign_channels():
        raise StartError(foreign)
