"""Which proxy stands between us and the model's server, from the environment. Pure: the environment is handed in.

Order: a server on this machine is always asked directly; then `no_proxy`; then the variable of the scheme (`https_proxy` for an https
server); then `all_proxy`. Lower case counts before upper case; an empty variable counts as not set. A value without a scheme is an HTTP
proxy; anything but http and https is refused by the variable's name, never its value (it may hold a password).
Called by `gateway.backends.openai`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import encode_basic_auth
from yarl import URL

from gateway.errors import StartError


@dataclass(frozen=True, slots=True)
class Proxy:
    url: URL
    """Without user and password."""
    authorization: str = field(default="", repr=False)
    """The value of `Proxy-Authorization`, "" if there is none."""


def local(host: str) -> bool:
    """This machine itself, whatever its name."""
    host = host.rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def find(url: URL, env: Mapping[str, str]) -> Proxy | None:
    """The proxy for a server at `url`, None for the direct way. Raises StartError where a variable names one that cannot be used."""
    host = url.host or ""
    if local(host):
        return None
    if _excepted(host, url.port, env.get("no_proxy") or env.get("NO_PROXY") or ""):
        return None
    for name in (f"{url.scheme}_proxy", f"{url.scheme}_proxy".upper(), "all_proxy", "ALL_PROXY"):
        if value := env.get(name, "").strip():
            return _parse(name, value)
    return None


def _excepted(host: str, port: int | None, no_proxy: str) -> bool:
    """Whether `no_proxy` names the host: as it is or as a domain it is in, with a port or without, as an address range, or by "*"."""
    host = host.rstrip(".").lower()
    for said in no_proxy.lower().replace(",", " ").split():
        name, colon, number = said.rpartition(":")
        with_port = colon and number == str(port) and (":" not in name or name.startswith("["))
        entry = (name if with_port else said).strip("[]").removeprefix("*.").strip(".")
        if entry in ("*", host) or (entry and host.endswith(f".{entry}")):
            return True
        if "/" in entry:
            try:
                if ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False):
                    return True
            except ValueError:
                continue
    return False


def _parse(name: str, value: str) -> Proxy:
    try:
        parsed = URL(value if "://" in value else f"http://{value}")
        host, port = parsed.host, parsed.port
    except ValueError:
        raise StartError(f'{name} in the environment is no proxy address; it should look like "http://host:port"') from None
    if parsed.scheme not in ("http", "https"):
        raise StartError(f"{name} in the environment names a {parsed.scheme} proxy; only http and https proxies can be used for the model")
    if not host or not port:
        raise StartError(f'{name} in the environment names no host; it should look like "http://host:port"')
    authorization = encode_basic_auth(parsed.user or "", parsed.password or "") if parsed.user or parsed.password else ""
    return Proxy(parsed.origin(), authorization)
