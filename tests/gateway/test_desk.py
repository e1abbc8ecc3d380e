"""What a channel that shows conversations gets to see of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels.base import Address, Sender
from gateway.access import Access
from gateway.desk import SessionDesk
from gateway.message import SessionKey
from gateway.options import Access as Rules
from gateway.sessions import SessionManager
from gateway.store.memory import MemoryStore
from gateway.writer import Writer

ANA, BEN, EVE = Sender("1"), Sender("2"), Sender("3")
CHANNEL = Address("discord", "70")
RULES = Rules(direct="allowlist", allow=("discord:1",), groups="allowlist", allow_groups=("discord:9",))


@pytest.fixture
async def sessions() -> AsyncIterator[SessionManager]:
    manager = SessionManager(MemoryStore(), cache_bytes=10**6, history_messages=10, history_tokens=1000, clock=lambda: 0.0)
    yield manager
    await manager.close()


def desk_of(folder: Path, sessions: SessionManager, scope: str) -> SessionDesk:
    return SessionDesk(sessions, Access(RULES, folder / "access.jsonl", Writer(), clock=lambda: 0.0), group_scope=scope)


async def made(sessions: SessionManager, key: SessionKey, name: str) -> None:
    async with sessions.hold(key):
        await sessions.create(key, name, for_="i1")


async def test_only_who_may_speak_sees_sessions(tmp_path: Path, sessions: SessionManager) -> None:
    """A person who is let in, in their chat; a member of a server that is let in. Nobody else learns so much as a name."""
    await made(sessions, SessionKey("discord", "70"), "west")
    desk = desk_of(tmp_path, sessions, "chat")

    async def names(sender: Sender, *, direct: bool = True, group: str = "") -> list[str]:
        return [info.name for info in await desk.sessions(CHANNEL, sender, direct=direct, group=group)]

    assert await names(ANA) == ["west"]
    assert await names(EVE) == []
    assert await names(EVE, direct=False, group="9") == ["west"]
    assert await names(ANA, direct=False, group="8") == []
    assert await names(Sender("", trusted=True)) == ["west"]


async def test_where_each_has_a_conversation_each_sees_their_own(tmp_path: Path, sessions: SessionManager) -> None:
    """With `group_scope = "user"` the sessions of the asker in that chat; in a direct chat there is one person anyway."""
    await made(sessions, SessionKey("discord", "70", "", "1"), "west")
    await made(sessions, SessionKey("discord", "70", "", "2"), "east")
    await made(sessions, SessionKey("discord", "71"), "home")
    desk = desk_of(tmp_path, sessions, "user")
    for sender, expected in ((ANA, ["west"]), (BEN, ["east"]), (EVE, [])):
        assert [info.name for info in await desk.sessions(CHANNEL, sender, direct=False, group="9")] == expected
    assert [info.name for info in await desk.sessions(Address("discord", "71"), ANA)] == ["home"]
