"""`channels.telegram.settings`."""

from __future__ import annotations

import pytest

from channels.settings import Seconds, Secret
from channels.telegram.settings import Settings, listen_address, secret_of

GOOD_WEBHOOK = {"mode": "webhook", "webhook_url": "https://bot.example.org/tg", "webhook_listen": "127.0.0.1:8443"}


def test_the_defaults_are_right() -> None:
    """A table that says nothing polls the real service."""
    settings = Settings()
    assert (settings.mode, settings.api_base, settings.streaming) == ("polling", "https://api.telegram.org", "edit")
    assert (float(settings.backlog), float(settings.poll_timeout)) == (86400.0, 10.0)
    assert (settings.sends_per_second, settings.chat_per_second, settings.group_per_minute) == (30, 1, 20)


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ({"mode": "webhook", "webhook_listen": "127.0.0.1:8443"}, "webhook_url"),
        ({"mode": "webhook", "webhook_url": "https://bot.example.org/tg"}, "webhook_listen"),
        (GOOD_WEBHOOK | {"webhook_url": "http://bot.example.org/tg"}, "webhook_url"),
        (GOOD_WEBHOOK | {"webhook_url": "bot.example.org"}, "webhook_url"),
        (GOOD_WEBHOOK | {"webhook_listen": "8443"}, "webhook_listen"),
        (GOOD_WEBHOOK | {"webhook_listen": "::1:8443"}, "webhook_listen"),
        (GOOD_WEBHOOK | {"webhook_listen": "127.0.0.1:84430"}, "webhook_listen"),
        (GOOD_WEBHOOK | {"webhook_secret": Secret("with blanks")}, "webhook_secret"),
        ({"api_base": "api.telegram.org"}, "api_base"),
        ({"api_base": "http://api.telegram.org"}, "api_base"),
        ({"api_base": "https://me:pw@api.telegram.org"}, "api_base"),
        ({"api_base": "https://api.telegram.org?x=1"}, "api_base"),
        ({"proxy": "socks5://127.0.0.1:1080"}, "proxy"),
        ({"proxy": "127.0.0.1:3128"}, "proxy"),
        ({"poll_timeout": Seconds(0)}, "poll_timeout"),
        ({"poll_timeout": Seconds(3600)}, "poll_timeout"),
    ],
)
def test_what_cannot_be_right_names_its_key(said: dict[str, object], key: str) -> None:
    """A setting that cannot work stops the start with a sentence that begins with its key."""
    with pytest.raises(ValueError, match=rf"^{key}: \w+"):
        Settings(**said)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said",
    [
        GOOD_WEBHOOK,
        GOOD_WEBHOOK | {"webhook_url": "http://127.0.0.1:9000/tg", "webhook_listen": "[::1]:8443"},
        {"api_base": "http://127.0.0.1:8081/"},
        {"api_base": "http://bot-api:8081"},
        {"api_base": "http://10.0.0.5:8081"},
        {"proxy": "http://me:secret@127.0.0.1:3128"},
    ],
)
def test_what_can_be_right_is_taken(said: dict[str, object]) -> None:
    """A webhook on loopback, a Bot API server of one's own and a proxy with a password are no faults."""
    Settings(**said)  # type: ignore[arg-type]


def test_a_fault_shows_no_secret() -> None:
    """A bad secret or a proxy's password is in no message."""
    with pytest.raises(ValueError, match="webhook_secret") as secret:
        Settings(webhook_secret=Secret("hush hush"))
    with pytest.raises(ValueError, match="proxy") as proxy:
        Settings(proxy="socks5://me:hushhush@127.0.0.1")
    assert "hush" not in f"{secret.value}{proxy.value}"


def test_the_webhook_secret_is_derived_and_stable() -> None:
    """There is never no secret: without one in the config it comes from the token, the same every time, and does not tell it."""
    token = "123456:TESTTOKEN"
    derived = secret_of(Settings(), token)
    assert derived == secret_of(Settings(), token) != secret_of(Settings(), "123456:OTHER")
    assert len(derived) == 64
    assert "TESTTOKEN" not in derived
    assert secret_of(Settings(webhook_secret=Secret("chosen")), token) == "chosen"


def test_listen_addresses() -> None:
    """Both families are understood."""
    assert listen_address("127.0.0.1:8443") == ("127.0.0.1", 8443)
    assert listen_address("[::1]:0") == ("::1", 0)
