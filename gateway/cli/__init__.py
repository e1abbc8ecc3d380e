"""The command line: `parlour run | check | pair`. Exit codes: 0 fine, 1 cannot start or was told no, 2 usage, 78 a fault of the config.

Nothing heavy is imported before the arguments are read, so that `--help` is quick. Called by the entry point and `python -m gateway`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gateway import __version__

if TYPE_CHECKING:
    from gateway.config import Config

FINE, FAILED, MISCONFIGURED = 0, 1, 78
"""78 is EX_CONFIG of sysexits.h; the unit file does not restart on it."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="parlour", description="A chat-bot gateway: people chat with a language model through chat networks."
    )
    parser.add_argument("--version", action="version", version=f"parlour {__version__}")
    where = "the config file (default: ./config.toml, then /etc/parlour/config.toml)"
    config = argparse.ArgumentParser(add_help=False)
    config.add_argument("--config", metavar="FILE", help=where)
    again = argparse.ArgumentParser(add_help=False)  # behind the action as well as before it
    again.add_argument("--config", metavar="FILE", help=where, default=argparse.SUPPRESS)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", parents=[config], help="start the daemon")
    run.add_argument("--demo", action="store_true", help="without a config: a web page and the embedded model")
    run.add_argument("--listen", metavar="HOST:PORT", default="", help="where the demonstration's page is (default: 127.0.0.1:8787)")

    check = commands.add_parser("check", parents=[config], help="check the config, and start nothing")
    check.add_argument("--online", action="store_true", help="also ask the networks and the backend whether they know us")

    pair = commands.add_parser("pair", parents=[config], help="who may chat: list, approve, revoke (asks the running daemon)")
    what = pair.add_subparsers(dest="action", required=True, metavar="ACTION")
    what.add_parser("list", parents=[again], help="who asks to be let in, and who was")
    what.add_parser("approve", parents=[again], help="let a person in").add_argument("code", help="the code that the person was shown")
    what.add_parser("revoke", parents=[again], help="shut a person out again").add_argument(
        "id", help='"channel:id", as `parlour pair list` shows it'
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command == "run" and args.demo and args.config:
        parser.error("--demo takes no --config")
    if args.command == "run" and args.listen and not args.demo:
        parser.error("--listen goes with --demo; in a config it is [http] listen")

    from gateway.errors import ConfigError, ConfigErrors, ParlourError  # noqa: PLC0415  # see the module's docstring

    try:
        if args.command == "run":
            return _run(args.config, demo=args.demo, listen=args.listen)
        if args.command == "check":
            return _check(args.config, online=args.online)
        return _pair(args.config, args.action, {name: getattr(args, name) for name in ("code", "id") if hasattr(args, name)})
    except (ConfigError, ConfigErrors) as error:
        _say(str(error))
        return MISCONFIGURED
    except ParlourError as error:  # StartError, and what the control socket says
        _say(f"parlour: {error}")
        return FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `parlour pair list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _say(text: str) -> None:
    from gateway.logging import mask  # noqa: PLC0415

    print(mask(text), file=sys.stderr, flush=True)


def _load(path: str | None) -> Config:
    from gateway import config  # noqa: PLC0415
    from gateway.app import channel_types  # noqa: PLC0415

    return config.load(config.find(path), channel_types())


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
        loaded = _load(path)
    logging.setup(loaded.log.level, loaded.log.format, [secret.reveal() for secret in loaded.hidden])
    return app.main(loaded)


def _check(path: str | None, *, online: bool) -> int:
    loaded = _load(path)
    if online:
        from gateway import app, logging  # noqa: PLC0415

        logging.setup("warning", loaded.log.format, [secret.reveal() for secret in loaded.hidden])
        if code := app.check_online(loaded):
            return code
    print(f"{loaded.path}: fine. Channels: {', '.join(loaded.channels)}. Backend: {loaded.backend.kind}. Data: {loaded.data_dir}")
    return FINE


def _pair(path: str | None, action: str, args: dict[str, str]) -> int:
    import asyncio  # noqa: PLC0415

    from gateway import config, control  # noqa: PLC0415

    data = config.guess_data_dir(path)
    # The unit's runtime folder comes last: root, who looks after it from a shell, has no RUNTIME_DIRECTORY.
    places = dict.fromkeys((control.socket_path(data), data / "control.sock", Path("/run/parlour/control.sock")))
    missing: control.NotRunning | None = None
    for place in places:
        try:
            _show(asyncio.run(control.call(place, f"pair.{action}", args)))
        except control.NotRunning as error:
            missing = error if missing is None or (missing.absent and not error.absent) else missing
        else:
            return FINE
    _say(f"parlour: {missing}")
    return FAILED


def _show(answer: object) -> None:
    """A text, or a list of flat tables under one heading. What people call themselves does not steer the terminal."""

    def cell(value: object) -> str:
        text = "" if value is None else str(value)
        return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)

    if not isinstance(answer, list):
        print("\n".join(cell(line) for line in ("" if answer is None else str(answer)).splitlines()))
        return
    rows = [{name: cell(value) for name, value in row.items()} if isinstance(row, dict) else {"": cell(row)} for row in answer]
    if not rows:
        print("nobody")
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    widths = [max(len(name), *(len(row.get(name, "")) for row in rows)) for name in names]
    for row in ({name: name.upper() for name in names}, *rows):
        print("  ".join(row.get(name, "").ljust(width) for name, width in zip(names, widths, strict=True)).rstrip())


def _own_packages() -> None:
    """`channels` is the import name of Django Channels, too: better to say so than to fail in the middle. Raises StartError."""
    import channels  # noqa: PLC0415
    import gateway  # noqa: PLC0415
    from gateway.errors import StartError  # noqa: PLC0415

    found = Path(channels.__file__ or "").parent.parent
    if found != Path(gateway.__file__ or "").parent.parent:
        raise StartError(f'the package "channels" in {found} is not ours: give parlour a virtual environment of its own')
