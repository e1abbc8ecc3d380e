"""The keys of `[channels.discord]`, and what about them cannot be right together.

Reads no file. Used by `gateway.config` and the channel.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from channels.settings import Seconds, Secret
from channels.urls import api_faults


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    token: Secret = Secret("")
    api_base: str = "https://discord.com/api/v10"
    """The REST API; where the gateway is, it says itself."""
    streaming: Literal["edit", "off"] = "edit"
    backlog: Seconds = Seconds(24 * 3600)
    """What was written longer ago while nobody listened is not fetched and not answered; 0: all is."""
    proxy: str = ""
    """http://[user:password@]host:port, for the API and the gateway; the environment's proxies are not looked at."""
    sends_per_second: float = 40
    """Below the 50 that Discord allows a bot."""
    chat_per_second: float = 1
    group_per_minute: float = 60
    """Discord's is 5 in 5 seconds for each channel. These three: 0 is no pacing of our own."""

    def __post_init__(self) -> None:
        for key, text in faults(self):
            raise ValueError(f"{key}: {text}")


def faults(settings: Settings) -> list[tuple[str, str]]:
    """What is wrong, as (key, sentence); secrets are in none of them."""
    return api_faults(settings.api_base, settings.proxy, "https://discord.com/api/v10")
