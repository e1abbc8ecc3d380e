"""What the Telegram tests share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from channels.base import Context, Desk, Inbound, SessionInfo, Shown
from channels.telegram.channel import TelegramChannel, make
from channels.telegram.settings import Settings
from tests.fakes.telegram import FakeTelegram


class Gateway:
    """The gateway's side of a channel: keeps what it accepts; `full` times it cannot write."""

    def __init__(self) -> None:
        self.inbounds: list[Inbound] = []
        self.batches: list[list[str]] = []
        self.full = 0

    async def accept(self, batch: Sequence[Inbound]) -> None:
        self.batches.append([inbound.text or inbound.unsupported for inbound in batch])
        if self.full:
            self.full -= 1
            raise OSError(28, "No space left on device")
        self.inbounds += batch

    @property
    def texts(self) -> list[str]:
        return [inbound.text or inbound.unsupported for inbound in self.inbounds]


class NoDesk(Desk):
    async def sessions(self, address: object, sender: object, *, direct: bool = True, group: str = "") -> list[SessionInfo]:
        return []

    async def history(self, address: object, sender: object, name: str = "", after: int = 0) -> list[Shown]:
        return []


class Pauses:
    """A `pause` that takes no time; remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)


def channel_for(tg: FakeTelegram, folder: Path, **settings: Any) -> TelegramChannel:
    return make(Settings(api_base=tg.base_url, **settings), Context(tg.token, folder, NoDesk()))
