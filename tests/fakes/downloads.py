"""How both fakes hand files out: whole, or so that the bytes stop on their way. Used by the fakes of Telegram and Discord."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Downloads:
    """What was asked for, and what is to go wrong with it, by file id."""

    asked: list[tuple[str, str]] = field(default_factory=list)
    """File id, and the Authorization header that came along ("" if none)."""
    stalled: dict[str, asyncio.Event] = field(default_factory=dict)
    """Half of these is sent, then nothing until the event is set; then the rest."""

    def stall(self, file_id: str) -> asyncio.Event:
        return self.stalled.setdefault(file_id, asyncio.Event())

    async def serve(self, request: web.Request, file_id: str, content: bytes) -> web.StreamResponse:
        self.asked.append((file_id, request.headers.get("Authorization", "")))
        gate = self.stalled.get(file_id)
        if gate is None:
            return web.Response(body=content)
        response = web.StreamResponse(headers={"Content-Length": str(len(content))})
        await response.prepare(request)
        await response.write(content[: len(content) // 2])
        await gate.wait()
        await response.write(content[len(content) // 2 :])
        return response
