"""How Discord's requests and answers travel: bodies, rate-limit headers, the ban page. Used by `tests.fakes.discord`."""

from __future__ import annotations

import json
import math
import time
from typing import Any

from aiohttp import web

from tests.fakes.discord_rules import WORDS, Json, Refusal
from tests.fakes.discord_state import Call, Fault

BAN_PAGE = (
    b"<!doctype html><html><head><title>Access denied | discord.com used Cloudflare to restrict access</title></head>"
    b"<body><h1>Error 1015</h1><h2>You are being rate limited</h2></body></html>"
)
PHRASES = {
    400: "Bad Request",
    401: "401: Unauthorized",
    403: "Forbidden",
    404: "404: Not Found",
    405: "405: Method Not Allowed",
    429: "You are being rate limited.",
    500: "500: Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


async def read_body(request: web.Request, call: Call) -> None:
    """The JSON of a request, or of its `payload_json` with the files beside it."""
    if request.content_type == "multipart/form-data":
        for name, value in (await request.post()).items():
            if isinstance(value, web.FileField):
                content = value.file.read()
                call.files.append({"field": name, "filename": value.filename, "content_type": value.content_type, "content": content})
            elif name == "payload_json":
                call.body = parsed(value if isinstance(value, (str, bytes)) else bytes(value))
    else:
        raw = await request.read()
        call.body = parsed(raw) if raw else {}


def parsed(raw: str | bytes) -> Any:
    try:
        body = json.loads(raw)
        json.dumps(body, ensure_ascii=False).encode()  # a lone surrogate is no text
    except ValueError:
        raise Refusal(50109) from None
    return body


def answer(call: Call, status: int, body: Any, headers: dict[str, str] | None = None) -> web.Response:
    """The answer in JSON, or 204 for None. The content type is exactly what discord.py compares with."""
    call.status = status
    headers = {"Via": "1.1 google"} | (headers or {})
    if body is None:
        call.status = 204
        return web.Response(status=204, headers=headers)
    return web.Response(status=status, body=json.dumps(body).encode(), content_type="application/json", headers=headers)


def refused(call: Call, refusal: Refusal, headers: dict[str, str] | None = None) -> web.Response:
    call.code, call.message = refusal.code, refusal.message
    return answer(call, refusal.status, refusal.body(), headers)


def limited(
    call: Call, retry_after: float, *, scope: str = "user", everywhere: bool = False, headers: dict[str, str] | None = None
) -> web.Response:
    """429 as the API itself gives it: with `Via`, so that discord.py waits and repeats."""
    more = {"Retry-After": str(math.ceil(retry_after)), "X-RateLimit-Scope": "global" if everywhere else scope} | (headers or {})
    if everywhere:
        more["X-RateLimit-Global"] = "true"
    refusal = Refusal(0, status=429, message=PHRASES[429], retry_after=round(retry_after, 3), **{"global": everywhere})
    return refused(call, refusal, more)


def bucket_headers(bucket: str, limit: int, remaining: int, reset_after: float) -> dict[str, str]:
    return {
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": str(max(remaining, 0)),
        "X-RateLimit-Reset": f"{time.time() + reset_after:.3f}",
        "X-RateLimit-Reset-After": f"{reset_after:.3f}",
        "X-RateLimit-Bucket": bucket,
    }


def banned(call: Call) -> web.Response:
    """429 as the wall in front of the API gives it: a page, without `Via`."""
    call.status, call.message = 429, "banned"
    return web.Response(status=429, body=BAN_PAGE, content_type="text/html", headers={"Retry-After": "3600", "Server": "cloudflare"})


def reset(request: web.Request, call: Call) -> web.Response:
    call.status = -1
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def failed(fault: Fault, call: Call) -> web.Response | None:
    """What a planned `fail` answers; None where its body's function wants no fault this time."""
    body = fault.body
    if callable(body):
        body = body(call)
        if body is None:
            return None
    if isinstance(body, bytes):
        call.status = fault.status
        kind = "text/html" if body.lstrip().startswith(b"<") else "application/json"
        return web.Response(status=fault.status, body=body, content_type=kind, headers=fault.headers)
    usual_status, words = WORDS.get(fault.code, (0, ""))
    status = fault.status or usual_status
    refusal = Refusal(fault.code, status=status, message=words or PHRASES.get(status, "Error"))
    if isinstance(body, str):
        refusal.message = body
    elif body:
        refusal.message = str(body.get("message", refusal.message))
        refusal.more = {key: value for key, value in body.items() if key not in ("message", "code")}
    headers = dict(fault.headers)
    if status == 429:
        more: Json = {"retry_after": 1.0, "global": False} | refusal.more
        refusal.more = more
        headers = {"Retry-After": str(math.ceil(float(more["retry_after"])))} | headers
    return refused(call, refusal, headers)
