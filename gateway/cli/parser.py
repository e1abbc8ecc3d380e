"""The arguments of the command line. Loads nothing but argparse, so that `--help` is quick."""

from __future__ import annotations

import argparse

from gateway import __version__

EPILOG = """\
exit codes: 0 fine; 1 cannot, was told no, or something was found (doctor,
check --online, status without a daemon); 2 usage; 78 the config or a token is
wrong; 130 interrupted.
"""


def _number(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1000:
        raise argparse.ArgumentTypeError("expected a number from 1 to 1000")
    return number


def build() -> argparse.ArgumentParser:
    """The parser of `parlour`."""
    parser = argparse.ArgumentParser(
        prog="parlour",
        description="A chat-bot gateway: people chat with a language model through chat networks.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"parlour {__version__}")
    where = "the config file (default: ./config.toml, then /etc/parlour/config.toml)"
    config = argparse.ArgumentParser(add_help=False)
    config.add_argument("--config", metavar="FILE", help=where)
    again = argparse.ArgumentParser(add_help=False)  # behind the action as well as before it
    again.add_argument("--config", metavar="FILE", help=where, default=argparse.SUPPRESS)
    machine = argparse.ArgumentParser(add_help=False)
    machine.add_argument("--json", action="store_true", help="for programs: JSON on stdout")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", parents=[config], help="start the daemon")
    run.add_argument("--demo", action="store_true", help="without a config: a web page and the embedded model")
    run.add_argument("--listen", metavar="HOST:PORT", default="", help="where the demonstration's page is (default: 127.0.0.1:8787)")

    _init(commands.add_parser("init", parents=[machine], help="ask a few questions and write a config"), where)

    check = commands.add_parser("check", parents=[config, machine], help="check the config, and start nothing")
    check.add_argument("--online", action="store_true", help="also ask the networks and the backend whether they know us")

    doctor = commands.add_parser("doctor", parents=[config, machine], help="what is wrong here, and what to do about it")
    doctor.add_argument("--offline", action="store_true", help="ask no network and no backend")
    doctor.add_argument("--deep", action="store_true", help="read all conversations whole, to count damaged lines")

    commands.add_parser("status", parents=[config, machine], help="how the running daemon is")

    pair = commands.add_parser("pair", parents=[config], help="who may chat: list, approve, revoke (asks the running daemon)")
    what = pair.add_subparsers(dest="action", required=True, metavar="ACTION")
    what.add_parser("list", parents=[again, machine], help="who asks to be let in, and who was")
    approve = what.add_parser("approve", parents=[again, machine], help="let a person in")
    approve.add_argument("code", help="the code that the person was shown")
    revoke = what.add_parser("revoke", parents=[again, machine], help="shut a person out again")
    revoke.add_argument("id", help='"channel:id", as `parlour pair list` shows it')

    _sessions(commands.add_parser("sessions", parents=[config], help="conversations: list, show, export, delete, fork"), again, machine)
    return parser


def _init(init: argparse.ArgumentParser, where: str) -> None:
    init.description = "Asks a few questions and writes a config. What is said by an option is not asked. Nothing is ever overwritten."
    init.add_argument("--config", metavar="FILE", default="config.toml", help="the file to write (default: ./config.toml)")
    init.add_argument("--channels", metavar="NAMES", help="which ones, with commas: web,telegram")
    init.add_argument(
        "--token-file", metavar="CHANNEL=FILE", action="append", default=[], help="a file with the channel's token (may be repeated)"
    )
    init.add_argument("--backend", choices=("openai", "local", "echo"), help="who answers")
    init.add_argument("--base-url", metavar="URL", help="where the model's server is")
    init.add_argument("--model", metavar="NAME", help="which of its models")
    init.add_argument("--api-key-file", metavar="FILE", help="a file with its key")
    init.add_argument("--admin", metavar="CHANNEL:ID", help="who may let others in")
    init.add_argument("--secrets", choices=("config", "files"), help="write tokens and keys into the config, or into files of their own")
    init.add_argument("--defaults", action="store_true", help="ask nothing: what is not said stays at its default")
    init.add_argument("--check", action=argparse.BooleanOptionalAction, help="ask networks and backend at the end whether they know us")


def _sessions(sessions: argparse.ArgumentParser, again: argparse.ArgumentParser, machine: argparse.ArgumentParser) -> None:
    sessions.description = "Asks the running daemon; without one, works on the data folder itself."
    what = sessions.add_subparsers(dest="action", required=True, metavar="ACTION")
    key = argparse.ArgumentParser(add_help=False)
    key.add_argument("key", metavar="KEY", help="whose: telegram:42, as `parlour sessions list` shows it")
    maybe = argparse.ArgumentParser(add_help=False)
    maybe.add_argument("name", metavar="NAME", nargs="?", default="", help="which session (default: the current one)")

    several = what.add_parser("list", parents=[again, machine], help="all conversations, * marks the current one of each chat")
    several.add_argument("--key", metavar="PREFIX", default="", help="only keys that begin so: telegram:")
    show = what.add_parser("show", parents=[again, machine, key, maybe], help="the newest messages of a conversation")
    show.add_argument("--last", metavar="N", type=_number, default=20, help="how many (default: 20, at most 1000)")
    export = what.add_parser("export", parents=[again, machine, key, maybe], help="a whole conversation as a file")
    export.add_argument("--format", choices=("jsonl", "md"), default="jsonl", help="jsonl: as it is kept; md: to be read (default: jsonl)")
    export.add_argument("-o", "--output", metavar="FILE", help="where to (0600; default: stdout)")
    export.add_argument("--force", action="store_true", help="overwrite FILE")
    delete = what.add_parser("delete", parents=[again, machine, key], help="delete a conversation, or all of a chat, for good")
    delete.add_argument("name", metavar="NAME", nargs="?", default="", help="which session (default: all, and words in the journal)")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    fork = what.add_parser("fork", parents=[again, machine, key], help="copy a conversation; the chat stays where it is")
    fork.add_argument("name", metavar="NAME", help="which session")
    fork.add_argument("new", metavar="NEW", help="name of the copy: a-z, 0-9 and dashes")
