"""How the Bot API's parameters and answers travel, as far as the fake of Telegram needs it. Used by `tests.fakes.telegram`."""

from __future__ import annotations

import json

from aiohttp import web

from tests.fakes.telegram_rules import Json
from tests.fakes.telegram_state import Call, Fault

PHRASES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
    413: "Request Entity Too Large",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
}


async def params_of(request: web.Request) -> Json:
    params: Json = dict(request.query)
    if request.content_type == "application/json":
        try:
            body = json.loads(await request.read() or b"{}")
        except ValueError:
            return params
        return params | body if isinstance(body, dict) else params
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            params[name] = {"file_name": value.filename, "mime_type": value.content_type, "file_size": len(value.file.read())}
        else:
            params[name] = value if isinstance(value, str) else bytes(value).decode()
    return params


def json_response(status: int, body: Json) -> web.Response:
    return web.Response(status=status, body=json.dumps(body).encode(), content_type="application/json")


def reset(request: web.Request, call: Call) -> web.Response:
    call.status = -1
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def kind_of(body: bytes) -> str:
    """A page, or what claims to be JSON."""
    return "text/html" if body.lstrip().startswith(b"<") else "application/json"


def failed(fault: Fault, call: Call) -> web.Response | None:
    body = fault.body(call.params) if callable(fault.body) else fault.body
    if callable(fault.body) and body is None:
        return None
    call.status = fault.status
    if isinstance(body, bytes):
        return web.Response(status=fault.status, body=body, content_type=kind_of(body))
    usual: Json = {"ok": False, "error_code": fault.status, "description": PHRASES.get(fault.status, "Error")}
    if isinstance(body, str):
        usual["description"] = body
    elif body:
        usual |= body
    call.description = str(usual["description"])
    return json_response(fault.status, usual)
