"""The page's door: every request of it passes here, and the token is exchanged for a cookie.

In order: the Host header, the Origin header, then the cookie (or a Bearer token, for scripts). What the rules are and why stands in
`channels.guard`. Whoever holds the token is trusted; there are no accounts. Called by `channels.web.channel`, which wraps its handlers.

A link with the token in it is answered by a page that moves on to "/" by itself, not by a redirect: after a click in another site's page a
browser keeps SameSite=Strict cookies back on redirects, too. For the same reason the form's script asks once whether it is in already.
"""

from __future__ import annotations

import asyncio
import pkgutil
import re
import secrets
from collections.abc import Awaitable, Callable
from html import escape
from string import Template
from urllib.parse import parse_qs

import msgspec
from aiohttp import web

from channels.guard import Guard, Verdict

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

COOKIE_AGE = 365 * 24 * 3600
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types parlour"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "parlour",
}
"""On every answer. Not `no-referrer`: a form sent under it has the Origin "null", which is refused."""

_CHAT = re.compile(r"[0-9a-f]{20}")
_CHAT_KEY = web.RequestKey("chat", str)
_NEW_KEY = web.RequestKey("new chat", bool)
_SAID: dict[Verdict | None, str] = {
    None: "",
    "ok": "",
    "wrong": "That token is not the right one.",
    "later": "Too many wrong tokens. Wait a minute, then try again.",
}
_STATUS: dict[Verdict | None, int] = {None: 401, "ok": 200, "wrong": 401, "later": 429}


def asset(name: str) -> str:
    """The text of a file that lies beside this one."""
    data = pkgutil.get_data("channels.web", name)
    if data is None:
        raise FileNotFoundError(name)
    return data.decode()


def error(status: int, text: str) -> web.Response:
    """A refusal as the page's script reads it: one plain sentence."""
    return web.Response(status=status, body=msgspec.json.encode({"error": text}), content_type="application/json")


async def read_body(request: web.Request, limit: int, *, timeout: float = 30.0) -> bytes | None:
    """A request's body; None if it is longer than `limit` bytes, is broken or does not arrive within `timeout` seconds."""
    body = bytearray()
    try:
        async with asyncio.timeout(timeout):
            while chunk := await request.content.readany():
                body += chunk
                if len(body) > limit:
                    return None
    except (OSError, web.RequestPayloadError):  # also of who left in the middle of it, or waited too long
        return None
    return bytes(body)


class Door:
    """Wraps handlers; answers the login itself."""

    def __init__(self, guard: Guard, title: str, seen: Callable[[], None]) -> None:
        self._guard = guard
        self._title = title
        self._seen = seen
        self._form = Template(asset("login.html"))

    # -- who is there

    def chat(self, request: web.Request) -> str:
        """The chat id of this browser: from its cookie, else made now (and given to it with the answer)."""
        known = request.get(_CHAT_KEY)
        if not isinstance(known, str):
            known = request.cookies.get(self._guard.chat_cookie_name, "")
            if not _CHAT.fullmatch(known):
                known = secrets.token_hex(10)
                request[_NEW_KEY] = True
            request[_CHAT_KEY] = known
        return known

    def _addressed(self, request: web.Request) -> str:
        """What is wrong with where the request says it goes and comes from; "" if nothing."""
        host = request.headers.get("Host", "")
        if not self._guard.host_ok(host):
            return "This host name is not one of [http].hosts."
        origin = request.headers.get("Origin")
        if origin is None:
            scripted = request.headers.get("Authorization", "").lower().startswith("bearer ")
            return "" if scripted or request.method in ("GET", "HEAD") else "A POST needs an Origin header."
        return "" if self._guard.origin_ok(origin, host) else "This request comes from another page."

    def _admitted(self, request: web.Request) -> Verdict | None:
        if self._guard.cookie_ok(request.cookies.get(self._guard.cookie_name, "")):
            return "ok"
        return self._guard.bearer(request.headers.get("Authorization", ""))

    # -- wrapping

    def open(self, handler: Handler) -> Handler:
        """For what anybody may have who addresses us rightly: the form, scripts and styles."""

        async def opened(request: web.Request) -> web.StreamResponse:
            wrong = self._addressed(request)
            return self.finish(request, error(403, wrong) if wrong else await handler(request))

        return opened

    def api(self, handler: Handler) -> Handler:
        """For the page's script: a refusal is JSON."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            verdict = self._admitted(request)
            if verdict != "ok":
                return error(_STATUS[verdict], _SAID[verdict] or "Not signed in.")
            self._seen()
            self.chat(request)
            return await handler(request)

        return self.open(guarded)

    def page(self, handler: Handler) -> Handler:
        """For a page: without the cookie the form is shown; a link with the token in it signs in."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            if "token" in request.query:
                return self._sign_in(request, request.query["token"])
            verdict = self._admitted(request)
            if verdict != "ok":
                return self._ask(request, verdict)
            self._seen()
            self.chat(request)
            return await handler(request)

        return self.open(guarded)

    async def login(self, request: web.Request) -> web.StreamResponse:
        """POST /login: the form with the token."""
        body = await read_body(request, 4096)
        try:
            given = parse_qs((body or b"").decode(), max_num_fields=4).get("token", [""])[0]
        except ValueError:
            given = ""
        return self._sign_in(request, given)

    def finish(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        """Headers and cookies; before the answer is begun. A stream has called this itself."""
        if not response.prepared:
            response.headers.update(HEADERS)
            if request.pop(_NEW_KEY, False):
                self._set_cookie(request, response, self._guard.chat_cookie_name, self.chat(request))
        return response

    # -- within

    def _sign_in(self, request: web.Request, given: str) -> web.Response:
        verdict = self._guard.token(given)
        if verdict != "ok":
            return self._ask(request, verdict)
        self._seen()
        response = self._show("Signed in.", 200, "entered")
        self._set_cookie(request, response, self._guard.cookie_name, self._guard.cookie)
        self.chat(request)
        return response

    def _ask(self, request: web.Request, verdict: Verdict | None) -> web.Response:
        response = self._show(_SAID[verdict], _STATUS[verdict], "wrong" if verdict else "asked")
        if verdict == "later":
            response.headers["Retry-After"] = "60"
        return response

    def _show(self, said: str, status: int, state: str) -> web.Response:
        refresh = '<meta http-equiv="refresh" content="0; url=/">' if state == "entered" else ""
        html = self._form.substitute(title=escape(self._title), said=escape(said), state=state, refresh=refresh)
        return web.Response(status=status, text=html, content_type="text/html")

    def _set_cookie(self, request: web.Request, response: web.StreamResponse, name: str, value: str) -> None:
        secure = request.headers.get("X-Forwarded-Proto") == "https" or request.headers.get("Origin", "").startswith("https:")
        response.set_cookie(name, value, max_age=COOKIE_AGE, path="/", httponly=True, samesite="Strict", secure=secure)
