"""Reading access for channels that show whole conversations (`channels.base.Desk`). Reads beside the key locks and changes nothing."""

from __future__ import annotations

from channels.base import Address, Sender, SessionInfo, Shown
from gateway.errors import NoSession
from gateway.message import SessionKey
from gateway.sessions import SessionManager


class SessionDesk:
    """`channels.base.Desk` over the sessions."""

    def __init__(self, sessions: SessionManager) -> None:
        self._sessions = sessions

    async def sessions(self, address: Address, sender: Sender) -> list[SessionInfo]:
        return await self._sessions.sessions(_key(address))

    async def history(self, address: Address, sender: Sender, name: str = "", after: int = 0) -> list[Shown]:
        key = _key(address)
        name = name or await self._sessions.peek(key)
        if not name:
            return []
        try:
            session = await self._sessions.view(key, name)
        except NoSession:
            return []
        shown: list[Shown] = []
        for line in session.messages:
            if line.seq <= after:
                continue
            if line.role == "user":
                shown.append(Shown(line.seq, "user", line.content or "", line.for_, line.at))
            elif line.final and line.shown:
                shown.append(Shown(line.seq, "assistant", line.shown, line.for_, line.at))
        return shown


def _key(address: Address) -> SessionKey:
    return SessionKey(address.channel, address.chat, address.thread)
