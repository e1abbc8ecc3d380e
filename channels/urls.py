"""What can be said of an address without asking anybody. Pure; called by the networks' `settings`."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_url(text: str, *schemes: str) -> bool:
    """An absolute address with one of these schemes, a host, and a port that can be."""
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and (parts.port or 1) > 0 and text.isprintable() and " " not in text
    except ValueError:
        return False


def is_bare(url: str) -> bool:
    """No user, query or fragment in it."""
    parts = urlsplit(url)
    return not parts.query and not parts.fragment and parts.username is None


def is_loopback(host: str) -> bool:
    """This machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_near(url: str) -> bool:
    """On this machine, in a private network, or a bare name (a container's): where a server of one's own speaks plain http."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".lan", ".home.arpa"))


def api_faults(api_base: str, proxy: str, example: str) -> list[tuple[str, str]]:
    """What is wrong with where a network's API is and the proxy to it, as (key, sentence) of the settings; secrets are in none of them."""
    found: list[tuple[str, str]] = []
    if not is_url(api_base, "http", "https"):
        found.append(("api_base", f'expected an address like "{example}"'))
    elif not is_bare(api_base):
        found.append(("api_base", "can have no user, query or fragment"))
    elif urlsplit(api_base).scheme == "http" and not is_near(api_base):
        found.append(("api_base", "must be https: the token is part of every request, and http shows it to everybody on the way"))
    if proxy and not is_url(proxy, "http", "https"):
        found.append(("proxy", 'expected an HTTP proxy like "http://127.0.0.1:3128" (SOCKS is not supported)'))
    return found
