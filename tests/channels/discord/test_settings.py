"""`channels.discord.settings`."""

from __future__ import annotations

import pytest

from channels.discord.settings import Settings
from channels.settings import Secret


def test_the_defaults_are_right() -> None:
    """A table that says nothing goes to the real service, streams, and keeps below its limits."""
    settings = Settings()
    assert (settings.api_base, settings.streaming, float(settings.backlog), settings.proxy) == (
        "https://discord.com/api/v10",
        "edit",
        86400.0,
        "",
    )
    assert (settings.sends_per_second, settings.chat_per_second, settings.group_per_minute) == (40, 1, 60)


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ({"api_base": "discord.com/api/v10"}, "api_base"),
        ({"api_base": "http://discord.com/api/v10"}, "api_base"),
        ({"api_base": "https://me:pw@discord.com/api"}, "api_base"),
        ({"api_base": "https://discord.com/api?x=1"}, "api_base"),
        ({"proxy": "socks5://127.0.0.1:1080"}, "proxy"),
        ({"proxy": "127.0.0.1:3128"}, "proxy"),
    ],
)
def test_what_cannot_be_right_names_its_key(said: dict[str, str], key: str) -> None:
    """A setting that cannot work stops the start with a sentence that begins with its key."""
    with pytest.raises(ValueError, match=rf"^{key}: \w+"):
        Settings(**said)  # type: ignore[arg-type]


@pytest.mark.parametrize("said", [{"api_base": "http://127.0.0.1:8081/api/v10"}, {"proxy": "http://me:secret@127.0.0.1:3128"}])
def test_what_can_be_right_is_taken(said: dict[str, str]) -> None:
    """A server of one's own on this machine and a proxy with a password are no faults."""
    Settings(**said)  # type: ignore[arg-type]


def test_the_token_does_not_show() -> None:
    """Neither a repr nor an f-string tells the token."""
    settings = Settings(token=Secret("MTIz.secret"))
    assert "secret" not in f"{settings!r} {settings.token}"
