"""The keys of `[channels.telegram]`, and what about them cannot be right together.

Reads no file. Used by `gateway.config` and the channel.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from channels.settings import Seconds, Secret
from channels.urls import api_faults, is_loopback, is_url


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    mode: Literal["polling", "webhook"] = "polling"
    token: Secret = Secret("")
    api_base: str = "https://api.telegram.org"
    """Another address is a Bot API server of one's own."""
    streaming: Literal["edit", "off"] = "edit"
    backlog: Seconds = Seconds(24 * 3600)
    """Older messages are not answered; 0: all are."""
    proxy: str = ""
    """http://[user:password@]host:port; the environment's proxies are not looked at."""
    poll_timeout: Seconds = Seconds(10)
    sends_per_second: float = 30
    chat_per_second: float = 1
    group_per_minute: float = 20
    """These three: 0 is no pacing of our own."""
    webhook_url: str = ""
    """Where Telegram reaches us, from outside."""
    webhook_listen: str = ""
    """Address and port that we listen on for it: "127.0.0.1:8443"."""
    webhook_secret: Secret = Secret("")
    """ "": derived from the token."""

    def __post_init__(self) -> None:
        for key, text in faults(self):
            raise ValueError(f"{key}: {text}")


def faults(settings: Settings) -> list[tuple[str, str]]:
    """What is wrong, as (key, sentence); secrets are in none of them."""
    found = api_faults(settings.api_base, settings.proxy, "https://api.telegram.org")
    if not 1 <= settings.poll_timeout <= 50:
        found.append(("poll_timeout", 'must be from "1s" to "50s"'))
    secret = settings.webhook_secret.reveal()
    if secret and not re.fullmatch(r"[A-Za-z0-9_-]{1,256}", secret):
        found.append(("webhook_secret", "can only have letters, digits, - and _ in it, at most 256 (Telegram's rule)"))
    if settings.webhook_url:
        if not is_url(settings.webhook_url, "http", "https"):
            found.append(("webhook_url", 'expected an address like "https://bot.example.org/telegram"'))
        elif urlsplit(settings.webhook_url).scheme != "https" and not is_loopback(urlsplit(settings.webhook_url).hostname or ""):
            found.append(("webhook_url", "must be https: Telegram calls no other"))
    if settings.webhook_listen:
        try:
            listen_address(settings.webhook_listen)
        except ValueError as error:
            found.append(("webhook_listen", str(error)))
    if settings.mode == "webhook":
        if not settings.webhook_url:
            found.append(("webhook_url", 'mode = "webhook" needs the https address at which Telegram reaches this daemon'))
        if not settings.webhook_listen:
            found.append(("webhook_listen", 'mode = "webhook" needs an address and port to listen on, like "127.0.0.1:8443"'))
    return found


def secret_of(settings: Settings, token: str) -> str:
    """What Telegram has to show with each webhook request. Stable, so that a restart changes nothing; tells nothing about the token."""
    chosen = settings.webhook_secret.reveal()
    return chosen or hmac.new(token.encode(), b"parlour telegram webhook secret, v1", hashlib.sha256).hexdigest()


def listen_address(text: str) -> tuple[str, int]:
    """Host and port. Raises ValueError with a sentence."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not bare or (":" in host and bare == host) or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError('expected an address and a port like "127.0.0.1:8443" or "[::1]:8443"')
    return bare, int(port)
