"""Who may speak to the daemon's HTTP server: host names, origins, the token and the cookie that stands for it.

Plain values in, a verdict out; no aiohttp in here. Used by `channels.web` for its page and by `gateway.httpd` for /readyz.

The rules, and why:

- The Host header must be a name that we know. A page of a stranger's that points its own name at 127.0.0.1 (DNS rebinding) passes every
  other check, since to the browser it is then the same origin as we are. An address literal cannot be rebound, so a server that listens on
  every interface takes any literal, and names only as configured.
- The Origin header, where there is one, must be the very host and port that the request went to, or a configured one (behind a proxy that
  does not pass Host on). Cookies ignore ports, so that a page of another program on localhost is "same site": only this check stops it.
- The cookie is an HMAC under the token, never the token: it tells nothing about it, outlives a restart, and dies when the token changes.
- An empty token opens nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import deque
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address, ip_address
from typing import Literal
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
_LOCAL = ("localhost", "127.0.0.1", "::1")

Verdict = Literal["ok", "wrong", "later"]


def split_host(text: str) -> tuple[str, int | None]:
    """A Host header, a listen address or a configured name as (name in small letters without brackets and last dot, port or None).

    Raises ValueError where it is none of these.
    """
    if not text or any(c in text for c in "/@\\?# \t\r\n,"):
        raise ValueError("not a host")
    parts = urlsplit(f"//{text}")
    name = (parts.hostname or "").removesuffix(".")
    if not name:
        raise ValueError("not a host")
    return name, parts.port


def is_loopback(name: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if name == "localhost":
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _is_literal(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """One door. `hosts`: the listen address (`unix:...` adds nothing), then names as configured, with a port where it is not the usual."""

    def __init__(
        self, token: str, hosts: Iterable[str] = (), *, tries: int = 30, window: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._token = token.encode("utf-8", "surrogatepass")
        self._names = set(_LOCAL)
        self._places: set[tuple[str, int | None]] = set()
        self._any_literal = False
        for text in hosts:
            if text.startswith("unix:"):
                continue
            name, port = split_host(text if not text.startswith(":") else f"0.0.0.0{text}")
            if name in ("0.0.0.0", "::"):
                self._any_literal = True
            else:
                self._names.add(name)
                self._places.add((name, port))
        self._tries, self._window, self._clock = tries, window, clock
        self._wrong: deque[float] = deque(maxlen=tries)
        mark = self._hmac(b"parlour cookie name")[:8]
        self.cookie_name = f"parlour-{mark}"
        """Differs from daemon to daemon: browsers share cookies over all ports of a host."""
        self.chat_cookie_name = f"parlour-chat-{mark}"
        self.cookie = self._hmac(b"parlour web session, v1")

    def _hmac(self, words: bytes) -> str:
        return hmac.new(self._token, words, hashlib.sha256).hexdigest()

    def host_ok(self, host: str) -> bool:
        """Whether a request's Host header names us. The port does not matter here: proxies drop and change it."""
        try:
            name, _ = split_host(host)
        except ValueError:
            return False
        return name in self._names or (self._any_literal and _is_literal(name))

    def origin_ok(self, origin: str, host: str) -> bool:
        """Whether an Origin header is that of our own page, for a request with this (already good) Host header. "null" never is."""
        try:
            parts = urlsplit(origin)
            if parts.scheme not in _PORTS or parts.path or parts.query or parts.fragment:
                return False
            usual = _PORTS[parts.scheme]
            name, port = split_host(parts.netloc)
            own_name, own_port = split_host(host)
        except ValueError:
            return False
        if (name, port or usual) == (own_name, own_port or usual):
            return True
        return any(name == known and (port or usual) == (known_port or usual) for known, known_port in self._places)

    def cookie_ok(self, given: str) -> bool:
        """Whether this is the cookie that a right token was exchanged for."""
        return bool(self._token) and hmac.compare_digest(given.encode("utf-8", "replace"), self.cookie.encode())

    def token(self, given: str) -> Verdict:
        """Judge a token that somebody shows. After `tries` wrong ones within `window` seconds everybody hears "later", right or wrong."""
        now = self._clock()
        while self._wrong and self._wrong[0] <= now - self._window:
            self._wrong.popleft()
        if len(self._wrong) >= self._tries:
            return "later"
        if self._token and hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._token):
            return "ok"
        self._wrong.append(now)
        return "wrong"

    def bearer(self, authorization: str) -> Verdict | None:
        """Judge an Authorization header; None where it is not a Bearer one (nothing was shown, nothing is counted)."""
        scheme, _, value = authorization.partition(" ")
        return self.token(value) if scheme.lower() == "bearer" else None
