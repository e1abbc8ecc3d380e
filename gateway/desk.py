"""Reading access for channels that show conversations (`channels.base.Desk`): no lock, no change, and a window's length at most."""

from __future__ import annotations

import errno

from channels.base import Address, Inbound, Sender, SessionInfo, Shown
from gateway.access import Access
from gateway.errors import Corrupt, NoSession
from gateway.message import SessionKey
from gateway.sessions import SessionManager


class SessionDesk:
    """`channels.base.Desk` over the sessions."""

    def __init__(self, sessions: SessionManager, access: Access, *, group_scope: str) -> None:
        self._sessions, self._access = sessions, access
        self._per_user = group_scope == "user"

    async def sessions(self, address: Address, sender: Sender, *, direct: bool = True, group: str = "") -> list[SessionInfo]:
        if not self._access.admits(Inbound("", address, sender, direct=direct, group=group)):
            return []
        return await self._sessions.sessions(_key(address, sender.id if self._per_user and not direct else ""))

    async def history(self, address: Address, sender: Sender, name: str = "", after: int = 0) -> list[Shown]:
        key = _key(address)
        name = name or await self._sessions.peek(key)
        if not name:
            return []
        try:
            session = await self._sessions.glance(key, name)
        except NoSession:
            return []
        except Corrupt as error:  # the protocol's word for it; channels know nothing of ours
            raise OSError(errno.EIO, error.text, error.path) from error
        shown: list[Shown] = []
        for line in session.messages:
            if line.seq <= after:
                continue
            if line.role == "user":
                shown.append(Shown(line.seq, "user", line.content or "", line.for_, line.at))
            elif line.final and line.shown:
                shown.append(Shown(line.seq, "assistant", line.content or "", line.for_, line.at, line.note))
        return shown


def _key(address: Address, user: str = "") -> SessionKey:
    return SessionKey(address.channel, address.chat, address.thread, user)
