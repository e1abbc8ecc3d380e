from __future__ import annotations

import re
import ssl
import time
from email.utils import formatdate

import aiohttp
import pytest

from gateway.backends import faults
from gateway.errors import BackendError

NOW = 1_000_000_000.0
KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("3600", 3600.0),
        ("0", 0.0),
        ("1.5", 1.5),
        (formatdate(NOW + 120, usegmt=True), 120.0),
        (formatdate(NOW - 120, usegmt=True), 0.0),
        ("-1", None),
        ("abc", None),
        ("", None),
        ("1e9", 1e9),
        ("inf", None),
        ("nan", None),
        ("Mon, 99 Foo 2026", None),
        ("9" * 400, None),
    ],
)
def test_retry_after_is_read_sanely(said: str, seconds: float | None) -> None:
    """E16: a number, a date, or nothing; never negative, never not a number."""
    assert faults.retry_after({"Retry-After": said}, NOW) == seconds


def test_the_longer_wait_counts() -> None:
    """E17: header and body may both ask; `retry-after-ms` is finer."""
    body = b'{"error":{"message":"slow down","retry_after":20}}'
    assert faults.refused(429, {"Retry-After": "10"}, body, NOW).after == 20
    assert faults.refused(429, {}, b'{"retry_after":3}', NOW).after == 3
    assert faults.refused(429, {"retry-after-ms": "1500", "Retry-After": "2"}, b"", NOW).after == 1.5
    assert faults.refused(429, {}, b"", NOW).after is None


@pytest.mark.parametrize(
    ("status", "body", "retryable", "overflow"),
    [
        (400, b'{"error":{"code":"context_length_exceeded","message":"x"}}', False, True),
        (400, b'{"error":{"message":"This model\'s maximum context length is 8192 tokens."}}', False, True),
        (400, b'{"error":{"type":"exceed_context_size_error","message":"request (6031 tokens) exceeds"}}', False, True),
        (413, b"<html>Request Entity Too Large</html>", False, True),
        (400, b'{"error":{"message":"temperature must be 1"}}', False, False),
        (401, b'{"error":{"message":"Incorrect API key provided: ' + KEY.encode() + b'"}}', False, False),
        (402, b"", False, False),
        (403, b"", False, False),
        (404, b'{"error":{"code":"model_not_found"}}', False, False),
        (408, b"", True, False),
        (409, b"", True, False),
        (422, b'{"detail":[{"loc":["body"],"msg":"x"}]}', False, False),
        (429, b"", True, False),
        (429, b'{"error":{"code":"insufficient_quota"}}', False, False),
        (500, b"<html><body><h1>Internal Server Error</h1></body></html>", True, False),
        (502, b"\xff\xfe\x00", True, False),
        (503, b'{"error":"overloaded"}', True, False),
        (529, b"null", True, False),
        (301, b"", False, False),
        (418, b"[" * 100_000, False, False),
    ],
)
def test_every_refusal_has_its_sentence(status: int, body: bytes, retryable: bool, overflow: bool) -> None:
    """E18, D30, F02: one plain sentence, and whether it may pass; no HTML, no key, no word of the server's."""
    error = faults.refused(status, {}, body, NOW)
    assert (error.retryable, error.overflow) == (retryable, overflow)
    assert re.fullmatch(r"[A-Z][A-Za-z ,':()-]+\.", error.said)
    assert KEY not in str(error)
    assert "<" not in str(error)


@pytest.mark.parametrize(
    ("error", "lasting", "remedy"),
    [
        (faults.refused(401, {}, b"", NOW), True, "change the key: MY_KEY"),
        (faults.refused(403, {}, b"", NOW), True, "MY_KEY"),
        (faults.refused(402, {}, b"", NOW), True, "account"),
        (faults.refused(429, {}, b'{"error":{"code":"insufficient_quota"}}', NOW), True, "account"),
        (faults.refused(404, {}, b"", NOW), True, "[backend] model"),
        (faults.refused(301, {}, b"", NOW), True, "[backend] base_url"),
        (faults.reported({"type": "authentication_error"}), True, "MY_KEY"),
        (faults.broken(aiohttp.InvalidURL("http://x")), True, "[backend] base_url"),
        (faults.broken(ConnectionRefusedError()), False, ""),
        (faults.broken(TimeoutError()), False, "start the model's server"),
        (faults.refused(429, {}, b"", NOW), False, ""),
        (faults.refused(500, {}, b"", NOW), False, "log"),
        (faults.refused(413, {}, b"", NOW), False, ""),
    ],
)
def test_what_no_wait_mends_and_what_the_operator_can_do(error: BackendError, lasting: bool, remedy: str) -> None:
    """A key, a model, an account or an address that is not right stays so; the remedy names the setting, and the key by its name."""
    assert error.lasting is lasting
    assert not (error.lasting and error.retryable)
    said = faults.remedy(error.said, "MY_KEY")
    assert remedy in said
    assert bool(said) == bool(remedy)


def test_an_error_without_a_status_is_told_by_its_words() -> None:
    """Inside a stream the type, or the code as a number or a word, says what kind it is."""
    assert faults.reported({"code": 429, "message": "x"}).said == faults.refused(429, {}, b"", NOW).said
    assert faults.reported({"code": "503"}).retryable
    assert faults.reported({"type": "overloaded_error"}).said == faults.refused(529, {}, b"", NOW).said
    assert not faults.reported({"type": "authentication_error"}).retryable
    assert faults.reported({"code": "context_length_exceeded"}).overflow
    assert faults.reported({"code": 429, "retry_after": 7}).after == 7
    assert faults.reported("boom").said == faults.REPORTED
    assert faults.reported(None).said == faults.REPORTED


def test_a_log_holds_no_words_of_a_conversation_and_no_secret() -> None:
    """What is quoted, an address, what looks like a key, markup and line breaks are left out; the rest says what happened."""
    told = faults.plain(
        f"Invalid value: 'my darling' at \"dear\" for {KEY} see https://user:pw@host/x?key=1\n<b>bad</b> me@home.org temperature"
    )
    assert told == "Invalid value: … at … for … see … bad … temperature"
    assert len(faults.plain("word " * 1000)) <= 200


def test_a_broken_connection_tells_its_kind_only() -> None:
    """E04, F02: the library's text, with addresses in it, is neither said nor logged."""
    for error in (
        aiohttp.ClientPayloadError("Response payload is not completed: incomplete chunked read"),
        aiohttp.ServerDisconnectedError("Server disconnected"),
        ConnectionResetError(104, "secret host"),
        TimeoutError("secret host"),
        aiohttp.InvalidURL("http://user:secret@host"),
        aiohttp.ClientConnectorCertificateError(None, ssl.CertificateError("secret host")),  # type: ignore[arg-type]
    ):
        told = faults.broken(error)
        assert "secret" not in told.said + str(told)
        assert "chunked" not in told.said + str(told)
        assert type(error).__name__ in str(told)


def test_a_flood_of_words_costs_little() -> None:
    """A server cannot keep us busy with its error message."""
    began = time.perf_counter()
    for unit in ("[", "a@", "'", "<", "sk-", "context "):
        faults.refused(400, {}, b'{"error":{"message":"' + unit.encode() * 30_000 + b'"}}', NOW)
        faults.reported(unit * 200_000)
        faults.plain(unit * 200_000)
    assert time.perf_counter() - began < 2
