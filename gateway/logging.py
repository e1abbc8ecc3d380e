"""The log: structlog for ours, the libraries' own logging routed into it, one line an event, secrets masked in every line.

The mask works on the finished line, so that it holds for event, values and tracebacks alike, at every level, for ours and for theirs.
Libraries are heard from WARNING on, whatever our level: their INFO and DEBUG carry addresses with tokens, and people's words.
Logging never raises: a daemon does not die of its log (`except Exception` stands here where foreign code makes the text).
Called by `gateway.cli` (`setup`); everybody else uses `structlog.get_logger`.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, MutableMapping
from datetime import datetime
from types import TracebackType
from typing import Any, BinaryIO
from urllib.parse import quote

import msgspec
import structlog

Event = MutableMapping[str, Any]

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_METHODS = {**_LEVELS, "exception": logging.ERROR, "critical": logging.CRITICAL}
_SHAPES = (
    r"(?<![A-Za-z0-9])bot\d+(?::|%3[Aa])[\w-]+"  # a bot token in an address of Telegram's
    r"|(?<!\d)\d{6,}:[\w-]{30,}"  # the same alone
    r"|(?<=://)[^/?#\s@\"']*:[^/?#\s\"']*(?=@)"  # user and password in an address
)
_SHORTEST = 4
"""A secret of fewer characters is not masked by value: it would black out half of every line."""


_WRITERS: tuple[Callable[[str], str], ...] = (
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: repr(text)[1:-1],
    lambda text: quote(text, safe=""),
    quote,
)
"""How text comes to be written differently in a line."""


class Mask:
    """Takes secrets out of text. `add` at start, then call it."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._pattern = re.compile(_SHAPES)

    def add(self, values: Iterable[str]) -> None:
        """Secret values, as they are (revealed)."""
        for value in values:
            bot, colon, rest = value.partition(":")
            for secret in (value, rest if colon and bot.isdigit() else ""):  # what is behind the public bot id is the secret half
                if len(secret) >= _SHORTEST:
                    written = {secret}
                    for _ in range(2):  # a repr within JSON, JSON within JSON
                        written |= {write(one) for one in written for write in _WRITERS}
                    self._known |= written
        literals = "|".join(re.escape(one) for one in sorted(self._known, key=len, reverse=True))
        self._pattern = re.compile(f"{literals}|{_SHAPES}" if literals else _SHAPES)

    def __call__(self, text: str) -> str:
        return self._pattern.sub("***", text)


mask = Mask()
"""The process's own."""


class Threshold:
    """From which level on lines are written. Loggers keep what they were made with, so the level cannot be a part of them."""

    def __init__(self) -> None:
        self._least = logging.INFO

    def set(self, level: str) -> None:
        """`level` as in the config."""
        self._least = _LEVELS[level]

    def __call__(self, logger: object, method: str, event: Event) -> Event:
        """A structlog processor."""
        if _METHODS.get(method, logging.ERROR) < self._least:
            raise structlog.DropEvent
        return event


threshold = Threshold()
"""The process's own."""


class _Sink:
    """Where finished lines go. What cannot be written is lost, and nobody is told: there is nowhere to tell it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._lock = stream, threading.Lock()

    def write(self, line: str) -> None:
        data = mask(line).encode("utf-8", "backslashreplace") + b"\n"
        try:
            with self._lock:
                self._stream.write(data)
                self._stream.flush()
        except (OSError, ValueError):  # closed, full, gone
            pass


class _Logger:
    """What structlog calls with the rendered line, one a module."""

    def __init__(self, sink: _Sink, name: str) -> None:
        self.name = name
        self.debug = self.info = self.warning = self.error = self.critical = self.exception = self.msg = sink.write


def _traceback(event: Event) -> None:
    """`exc_info` becomes `exception`, a plain text: no values of variables in it, whatever is installed."""
    info = event.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    elif isinstance(info, BaseException):
        info = (type(info), info, info.__traceback__)
    if isinstance(info, tuple) and info[0] is not None:
        event["exception"] = "".join(traceback.format_exception(*info)).rstrip()


def _plain(value: object) -> str:
    try:
        return str(value) if isinstance(value, os.PathLike | BaseException) else repr(value)
    except Exception:  # a foreign __repr__: a line of the log is not worth a turn
        return f"<{type(value).__name__}>"


def _json(event: Event) -> str:
    head = {"ts": datetime.now().astimezone().isoformat(timespec="milliseconds"), "level": event.pop("level"), "event": event.pop("event")}
    head |= event
    try:
        return msgspec.json.encode(head, enc_hook=_plain).decode()
    except (TypeError, ValueError, RecursionError, OverflowError):  # a lone surrogate, a key that is no text
        return json.dumps({str(key): value if isinstance(value, int | str) else _plain(value) for key, value in head.items()})


_COLOURS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31;1"}


def _console(colours: bool) -> Callable[[Event], str]:
    def render(event: Event) -> str:
        level, name, text = event.pop("level"), event.pop("logger", ""), event.pop("event")
        trace = event.pop("exception", "")
        values = " ".join(f"{key}={_shown(value)}" for key, value in event.items())
        mark = f"\033[{_COLOURS.get(level, '0')}m{level:<7}\033[0m" if colours else f"{level:<7}"
        line = f"{datetime.now().astimezone():%H:%M:%S} {mark} {_shown(text, bare=True)}"
        return f"{line}{'  ' + values if values else ''}{f'  ({name})' if name else ''}" + (f"\n{trace}" if trace else "")

    return render


def _shown(value: object, bare: bool = False) -> str:
    """On one line and without control characters: what a network sends shall not steer a terminal."""
    text = value if isinstance(value, str) else _plain(value)
    if text.isprintable() and (bare or " " not in text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


class _Bridge(logging.Handler):
    """The libraries' records, as events of ours."""

    def __init__(self, render: Callable[[Event], str], sink: _Sink) -> None:
        super().__init__()
        self._render, self._sink = render, sink

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:  # a foreign record whose arguments do not fit its text
            text = str(record.msg)
        event: Event = {"event": text, "level": record.levelname.lower(), "logger": record.name, "exc_info": record.exc_info}
        _traceback(event)
        self._sink.write(self._render(event))


def setup(level: str, form: str, secrets: Iterable[str] = (), stream: BinaryIO | None = None) -> None:
    """Start the log: `level` and `form` as in the config ("auto": console on a terminal, else JSON), to stderr unless said otherwise.

    Also takes over warnings and what nobody catches, so that no traceback goes out past the mask.
    """
    mask.add(secrets)
    threshold.set(level)
    out: BinaryIO = stream or sys.stderr.buffer
    terminal = out.isatty() if isinstance(out, io.IOBase) else False
    render = _console(terminal and not os.environ.get("NO_COLOR")) if form == "console" or (form == "auto" and terminal) else _json
    sink = _Sink(out)

    def finish(logger: _Logger, method: str, event: Event) -> str:
        event["level"] = "error" if method == "exception" else method
        if logger.name:
            event["logger"] = logger.name
        if "exc_info" in event:
            _traceback(event)
        return render(event)

    structlog.configure(
        processors=[threshold, structlog.contextvars.merge_contextvars, finish],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=lambda name="", *_: _Logger(sink, name),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    bridge = _Bridge(render, sink)
    bridge.setLevel(logging.WARNING)  # also for a library that thinks itself more important
    root.handlers = [bridge]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    logging.raiseExceptions = False
    log = structlog.get_logger("parlour")

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            log.critical("uncaught", exc_info=(kind, error, trace))

    sys.excepthook = uncaught
    threading.excepthook = lambda args: uncaught(args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback)
    sys.unraisablehook = lambda args: uncaught(args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback)
