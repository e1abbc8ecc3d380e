"""The log: no secret in any line at any level, one line an event, and never a reason to fail."""

from __future__ import annotations

import io
import json
import logging as stdlib
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest
import structlog

from gateway import logging

TOKEN = "123456:TESTTOKEN_of-35-characters-in-all-x"
KEY = 'sk-TEST"quoted\\ü'


@pytest.fixture
def out() -> Iterator[io.BytesIO]:
    """Where the log goes; afterwards the process is as it was."""
    root = stdlib.getLogger()
    before = (root.handlers, root.level, stdlib.raiseExceptions, sys.excepthook, threading.excepthook, sys.unraisablehook)
    known = logging.mask
    yield io.BytesIO()
    root.handlers, level, stdlib.raiseExceptions, sys.excepthook, threading.excepthook, sys.unraisablehook = before
    root.setLevel(level)
    stdlib.captureWarnings(False)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    known.__init__()  # type: ignore[misc]


def lines(out: io.BytesIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_json_line(out: io.BytesIO) -> None:
    """An event is one JSON object on one line, with time, level, event, logger and its values."""
    logging.setup("info", "auto", stream=out)
    structlog.get_logger("gateway.x").info("turn done", key="telegram:42", took=0.5, text="a\nb", path=io)
    (line,) = lines(out)
    assert isinstance(line.pop("ts"), str)
    assert str(line.pop("path")).startswith("<module")
    assert line == {"level": "info", "event": "turn done", "logger": "gateway.x", "key": "telegram:42", "took": 0.5, "text": "a\nb"}


def test_context(out: io.BytesIO) -> None:
    """What is bound to the task's context is in its lines."""
    logging.setup("info", "json", stream=out)
    with structlog.contextvars.bound_contextvars(input="telegram:7:1:2"):
        structlog.get_logger("x").warning("late")
    assert [(line["level"], line["input"]) for line in lines(out)] == [("warning", "telegram:7:1:2")]


@pytest.mark.parametrize(("level", "count"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_level(out: io.BytesIO, level: str, count: int) -> None:
    """Nothing below the level is written."""
    logging.setup(level, "json", stream=out)
    log = structlog.get_logger("x")
    for method in ("debug", "info", "warning", "error"):
        getattr(log, method)("said")
    assert len(lines(out)) == count


def speak(log: structlog.typing.FilteringBoundLogger) -> None:
    """Says the secrets in every way in which code comes to say them."""
    url = f"https://api.telegram.org/bot{TOKEN}/getMe"
    log.debug(f"asking {url}")
    log.info("asking", url=url, key=KEY, nested={"a": [KEY, (TOKEN,)]}, error=ValueError(KEY), raw=TOKEN.encode())
    log.warning("asking %s", url)
    try:
        try:
            raise OSError(f"cannot reach {url}")
        except OSError as error:
            raise RuntimeError(f"key {KEY}") from error
    except RuntimeError as error:
        log.error("failed", exc_info=error)
        log.exception("failed")
        stdlib.getLogger("aiohttp.client").warning("failed %s", url, exc_info=True)
    stdlib.getLogger("telegram.ext").debug("POST %s", url)
    stdlib.getLogger("httpx").info("HTTP Request: POST %s", url)
    stdlib.getLogger("httpx").warning("HTTP Request: POST %s", url)
    warnings.warn(f"unclosed {url}", ResourceWarning, stacklevel=1)


def test_the_level_changes_while_it_runs(out: io.BytesIO) -> None:
    """Also for a logger that has been used, and keeps what it was made with."""
    logging.setup("warning", "json", stream=out)
    log = structlog.get_logger("used")
    log.info("one")
    log.error("two")
    logging.threshold.set("debug")
    log.debug("three")
    logging.threshold.set("error")
    log.warning("four")
    log.exception("five")
    log.critical("six")
    assert [line["event"] for line in lines(out)] == ["two", "three", "five", "six"]


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
@pytest.mark.filterwarnings("default")
def test_no_secret_at_any_level(out: io.BytesIO, level: str, form: str) -> None:
    """F01, F02: neither the token's secret half nor a key is in the log: not in events, values, tracebacks, nor in lines of libraries."""
    logging.setup(level, form, [TOKEN, KEY], stream=out)
    speak(structlog.get_logger("x"))
    text = out.getvalue().decode()
    assert "failed" in text
    assert "***" in text
    for secret in ("TESTTOKEN", "sk-TEST", "quoted"):
        assert secret not in text


@pytest.mark.parametrize(
    "text",
    [
        f"https://api.telegram.org/bot{TOKEN}/getMe",
        f"https://api.telegram.org/file/bot{TOKEN}/photos/1.jpg",
        f"/bot{TOKEN.replace(':', '%3A')}/getMe",
        f"token {TOKEN} refused",
        "proxy http://me:TESTTOKEN@proxy:3128 failed",
        "https://u:TESTTOKEN@host/v1?x=1",
        "https://u:p@TESTTOKEN@host/v1",
    ],
)
def test_shapes(text: str) -> None:
    """What has the shape of a bot token, or is a password in an address, is masked although nobody named it as a secret."""
    assert "TESTTOKEN" not in logging.Mask()(text)


@pytest.mark.parametrize(
    "text", ["telegram:7:12345:889", "http://127.0.0.1:8787/healthz", "2026-11-29T10:00:00", "bot 7: hello", "a@b.example:1"]
)
def test_what_is_not_masked(text: str) -> None:
    """Ids, addresses and times stay readable."""
    mask = logging.Mask()
    mask.add([TOKEN, "abc", ""])
    assert mask(text) == text


def test_libraries_are_quiet(out: io.BytesIO) -> None:
    """Libraries are heard from WARNING on, even at our level debug, and under their own name."""
    logging.setup("debug", "json", stream=out)
    for name in ("aiohttp.access", "telegram.Bot", "httpx", "discord.http", "asyncio"):
        stdlib.getLogger(name).info("chatter")
        stdlib.getLogger(name).error("trouble %d", 7)
    assert [(line["logger"], line["event"]) for line in lines(out)] == [
        (name, "trouble 7") for name in ("aiohttp.access", "telegram.Bot", "httpx", "discord.http", "asyncio")
    ]


def test_tracebacks_hold_no_values(out: io.BytesIO) -> None:
    """A traceback names files and lines, not what variables held: people's words are in them."""
    logging.setup("info", "json", stream=out)
    words = "what somebody wrote"
    try:
        int("x" * (len(words) > 0))
    except ValueError:
        structlog.get_logger("x").exception("failed")
    (line,) = lines(out)
    assert "Traceback" in str(line["exception"])
    assert words not in str(line["exception"]).replace('words = "what somebody wrote"', "")


def test_console(out: io.BytesIO) -> None:
    """On a console an event is one readable line, and what a network sent cannot steer the terminal."""
    logging.setup("info", "console", stream=out)
    structlog.get_logger("gateway.x").info("joined", name="\x1b[2JEve\nroot: all fine", key="web:1", note="two words")
    assert out.getvalue().decode().split(" ", 1)[1] == (
        'info    joined  name="\\u001b[2JEve\\nroot: all fine" key=web:1 note="two words"  (gateway.x)\n'
    )


class Strange:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize("value", ["\ud800", Strange(), {1: {2}}, b"\xff", 2**80, float("nan"), None, object])
def test_any_value(out: io.BytesIO, form: str, value: object) -> None:
    """Whatever is logged, a line comes out and nothing is raised."""
    logging.setup("info", form, stream=out)
    structlog.get_logger("x").info("said", value=value)
    stdlib.getLogger("lib").warning("two %s %s", value)  # noqa: PLE1206
    assert out.getvalue().count(b"\n") == 2


def test_a_log_that_cannot_be_written(out: io.BytesIO) -> None:
    """A closed or full log costs lines, not turns."""
    logging.setup("info", "json", stream=out)
    out.close()
    structlog.get_logger("x").info("said")
    with open("/dev/full", "wb", buffering=0) as full:
        logging.setup("info", "json", stream=full)
        structlog.get_logger("y").info("said")


def test_uncaught(out: io.BytesIO) -> None:
    """F02: what nobody catches goes through the mask, from threads and finalizers too."""
    logging.setup("info", "json", [KEY], stream=out)
    thread = threading.Thread(target=lambda: (_ for _ in ()).throw(RuntimeError(KEY)))
    thread.start()
    thread.join()
    sys.excepthook(ValueError, ValueError(TOKEN), None)
    text = out.getvalue().decode()
    assert [(line["event"], line["level"]) for line in lines(out)] == [("uncaught", "critical")] * 2
    assert "RuntimeError" in text
    assert "sk-TEST" not in text
    assert "TESTTOKEN" not in text
