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
