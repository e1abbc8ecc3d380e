"""What went wrong at the model's server, as BackendError: a plain sentence for the person, what to do about it for the turn. Pure.

The sentence (`said`) is ours, from the table below: nothing that a server or a library wrote gets into it. The `detail` is for the log: the
status and the server's own words, without what they may quote of a conversation and without anything that looks like a key or an address.
Called by `gateway.backends.openai` and `gateway.backends.chunks`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import aiohttp
import msgspec

from gateway.errors import BackendError

OVERFLOW = "This conversation is too long for the model."
CUT = "The connection to the model broke off."
NO_ANSWER = "The model's server sent something that is not an answer."
SILENT = "The model did not begin to answer in time."
STALLED = "The model stopped in the middle of its answer."
REPORTED = "The model's server reported an error."
KEY = "The model's server does not accept our key."
ACCESS = "The model's server refuses us access."
MISSING = "The model's server does not know this model or this address."
MOVED = "The model's server has moved: its address in the config is not right."
ADDRESS = "The model's address in the config is not right."
UNKNOWN = "The model's server cannot be found."
UNREACHED = "The model's server cannot be reached."
CERTIFICATE = "The model's server cannot prove who it is (its certificate is not valid)."
INSECURE = "No secure connection to the model's server is possible."
PROXY = "The proxy between us and the model does not let us through."

_CREDIT = "The account with the model's provider is out of credit."
_BUSY = "The model is asked too often at the moment."
_DOWN = "The model's server has a problem of its own."
_REFUSED = "The model's server did not accept the request."

_STATUS: Mapping[int, tuple[str, bool]] = {
    401: (KEY, False),
    402: (_CREDIT, False),
    403: (ACCESS, False),
    404: (MISSING, False),
    408: ("The model's server took too long.", True),
    409: ("The model's server is busy with something else.", True),
    413: (OVERFLOW, False),
    425: (_BUSY, True),
    429: (_BUSY, True),
    501: (_REFUSED, False),
    505: (_REFUSED, False),
    529: (_BUSY, True),
}
"""What a status means to the person, and whether the same request may work later."""

_LASTING = frozenset({KEY, ACCESS, MISSING, MOVED, ADDRESS, _CREDIT})

_REMEDIES: Mapping[str, str] = {
    KEY: "change the key: {key}",
    ACCESS: "see whether the key may use this model: {key}",
    MISSING: "see [backend] model and base_url; `parlour check --online` says which models it has",
    MOVED: "set [backend] base_url to where it is now",
    ADDRESS: "mend [backend] base_url",
    UNKNOWN: "see the name in [backend] base_url, and the network",
    UNREACHED: "start the model's server, or mend [backend] base_url",
    CERTIFICATE: "renew its certificate, or set this machine's clock",
    INSECURE: "see whether [backend] base_url should begin with http:// or https://",
    PROXY: "see the variables http_proxy, https_proxy and no_proxy",
    _CREDIT: "see the account with the provider",
    _DOWN: "see the log of the model's server",
}

_WORDS: Mapping[str, int] = {
    "rate_limit": 429,
    "too_many_requests": 429,
    "overloaded": 529,
    "quota": 402,
    "billing": 402,
    "insufficient_funds": 402,
    "authentication": 401,
    "invalid_api_key": 401,
    "permission": 403,
    "not_found": 404,
    "timeout": 408,
    "invalid_request": 400,
}
"""Parts of an error's `code` or `type`, for errors that come without a status."""

_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|context.{0,20}(length|window|size)|maximum.{0,20}(context|prompt)|prompt is too long"
    r"|too many (input )?tokens|reduce the length|input is too long|string_above_max_length",
    re.IGNORECASE,
)
_STREAM_OPTIONS = re.compile(r"stream_options|include_usage", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|“[^”]*”")
_PRIVATE = re.compile(r"\w+://\S+|\S+@\S+|\b(?:sk|pk|key|gsk|xai|AIza)[-_A-Za-z0-9*]{6,}|\b[A-Za-z0-9+/_*-]{32,}={0,2}")

_MOST_TEXT = 2000


class _Error(msgspec.Struct):
    """The error object of whichever dialect; every field is taken as it comes."""

    message: object = None
    code: object = None
    type: object = None
    param: object = None
    retry_after: object = None


class _Body(msgspec.Struct):
    error: object = None
    detail: object = None
    message: object = None
    code: object = None
    type: object = None
    retry_after: object = None


def _text(value: object) -> str:
    """Bounded: what follows is searched with expressions that are quadratic in its length."""
    return value[:_MOST_TEXT] if isinstance(value, str) else str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _error(value: object) -> _Error:
    if isinstance(value, str):
        return _Error(message=value)
    try:
        return msgspec.convert(value, _Error)
    except (msgspec.ValidationError, UnicodeError):  # half a character somewhere
        return _Error()


def _seconds(value: object) -> float | None:
    """A number of seconds to wait; None where it is none (negative, not finite, no number)."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds from `Retry-After` (a number or a date, RFC 9110 section 10.2.3) or `retry-after-ms`; None where it says nothing sane."""
    if (ms := _seconds(headers.get("retry-after-ms"))) is not None:
        return ms / 1000
    said = headers.get("Retry-After", "").strip()
    if not said or (seconds := _seconds(said)) is not None:
        return seconds if said else None
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - now)
    except (ValueError, OverflowError, OSError):
        return None


def refused(status: int, headers: Mapping[str, str], body: bytes, now: float) -> BackendError:
    """An answer with a status that is not 2xx. The body may be anything: JSON of some dialect, an HTML page, nothing."""
    try:
        whole = msgspec.json.decode(body, type=_Body)
        found = whole.error if whole.error is not None else whole.detail
        error = _error(found) if found is not None else _Error(message=whole.message, code=whole.code, type=whole.type)
        waits = [_seconds(whole.retry_after), _seconds(error.retry_after)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        error, waits = _Error(), []
    waits.append(retry_after(headers, now))
    after = max((wait for wait in waits if wait is not None), default=None)
    return _fault(status, error, after)


def reported(value: object) -> BackendError:
    """An error inside an answer that began well (status 200): an object, a string, or whatever the server thinks an error is."""
    error = _error(value)
    status = int(code) if (code := _text(error.code)).isdecimal() and len(code) == 3 else 0
    if not status:
        label = f"{_text(error.code)} {_text(error.type)}".lower()
        status = next((status for word, status in _WORDS.items() if word in label), 0)
    return _fault(status, error, _seconds(error.retry_after))


def _fault(status: int, error: _Error, after: float | None) -> BackendError:
    code, kind, message = _text(error.code), _text(error.type), _text(error.message)
    words = (f"status {status}" if status else "", "" if code == str(status) else code, kind, _text(error.param), message)
    detail = plain(" ".join(word for word in words if word))
    if status in {0, 400, 413, 422, 500} and (status == 413 or _TOO_LONG.search(f"{code} {kind} {message}")):
        return BackendError(OVERFLOW, retryable=False, overflow=True, detail=detail)
    if "insufficient_quota" in (code, kind) or "billing" in code:
        return BackendError(_CREDIT, retryable=False, lasting=True, detail=detail)
    if not status:
        return BackendError(REPORTED, retryable=True, after=after, detail=detail)
    if 300 <= status < 400:
        said, retryable = MOVED, False
    else:
        said, retryable = _STATUS.get(status, (_DOWN, True) if status >= 500 else (_REFUSED, False))
    return BackendError(said, retryable=retryable, after=after if retryable else None, lasting=said in _LASTING, detail=detail)


def remedy(problem: str, key: str) -> str:
    """What the operator can do about a problem that is one of ours (`BackendError.said`), "" where we know nothing. `key`: by which name
    the operator knows the key."""
    return _REMEDIES.get(problem, "").format(key=key)


def names_stream_options(body: bytes) -> bool:
    """Whether a 400 is about the one field that not every server knows."""
    return _STREAM_OPTIONS.search(body.decode("utf-8", "replace")) is not None


def plain(message: str) -> str:
    """A server's words as a log may hold them: one line, bounded, nothing quoted, no address, nothing that looks like a key, no markup."""
    message = message[:_MOST_TEXT]
    if "<" in message:
        message = re.sub(r"<[^>]*>?", " ", message)
    message = _PRIVATE.sub("…", _QUOTED.sub("…", message))
    return " ".join("".join(c if c.isprintable() else " " for c in message).split())[:200]


def broken(error: BaseException) -> BackendError:
    """A connection that was not made or did not last. Libraries' messages hold addresses: only their class gets into the detail."""
    match error:
        case aiohttp.InvalidURL():
            said, retryable = ADDRESS, False
        case aiohttp.ClientConnectorCertificateError():
            said, retryable = CERTIFICATE, False
        case aiohttp.ClientSSLError():
            said, retryable = INSECURE, False
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            said, retryable = PROXY, True
        case aiohttp.ClientConnectorDNSError():
            said, retryable = UNKNOWN, True
        case aiohttp.ClientConnectorError() | TimeoutError():
            said, retryable = UNREACHED, True
        case aiohttp.ClientResponseError():
            said, retryable = NO_ANSWER, True
        case _:
            said, retryable = CUT, True
    number = getattr(error, "errno", None)
    return BackendError(
        said,
        retryable=retryable,
        lasting=said in _LASTING,
        detail=f"{type(error).__name__}{f' errno {number}' if isinstance(number, int) else ''}",
    )
