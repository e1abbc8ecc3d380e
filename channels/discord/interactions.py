"""Slash commands, button presses and completions: the first answer to each, within the three seconds that Discord gives.

A command is deferred (the person sees that the bot thinks) before anything else is done with it; what it has to say goes the usual way and
gets into that place by the command's ticket. A press is acknowledged without a sign, a completion is answered from the chat's sessions.
Called by `reading`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import structlog
from discord.http import Route

from channels.base import ChannelError, Desk, Sender, SessionInfo
from channels.discord.bodies import NO_MENTIONS
from channels.discord.parse import asker
from channels.discord.payloads import Interaction
from channels.discord.places import Place
from channels.discord.transport import Http, Refusal
from channels.failpoints import reach
from channels.text import bounded, name

log = structlog.get_logger(__name__)

SECONDS = 2.5
"""For the first answer, all in all."""
MOST_CHOICES = 25
_LONGEST = 100
_DEFER, _DEFER_UPDATE, _CHOICES = 5, 6, 8
_TOO_LATE = frozenset({10062, 40060})
"""Three seconds have passed; or this very one has been answered (told twice, or by another program with our token)."""


class Interactions:
    def __init__(self, http: Http, desk: Desk) -> None:
        self._http, self._desk = http, desk

    async def defer(self, interaction: Interaction) -> None:
        """A command: the bot thinks. Raises nothing: its answer finds another way."""
        await self._respond(interaction, {"type": _DEFER, "data": {"allowed_mentions": NO_MENTIONS}})

    async def acknowledge(self, interaction: Interaction) -> None:
        """A press has arrived."""
        await self._respond(interaction, {"type": _DEFER_UPDATE})

    async def complete(self, interaction: Interaction, place: Place) -> None:
        """The names of the chat's sessions that fit what is typed."""
        typed = next((str(option.value or "") for option in interaction.data.options if option.focused), "")
        user = asker(interaction)
        found: Sequence[SessionInfo] = ()
        if user is not None:
            try:
                async with asyncio.timeout(SECONDS / 2):
                    found = await self._desk.sessions(place.address, Sender(user.id), direct=not place.guild, group=place.guild)
            except (OSError, TimeoutError):
                log.info("sessions not listed in time", channel="discord")
        await self._respond(interaction, {"type": _CHOICES, "data": {"choices": choices(found, typed)}})

    async def _respond(self, interaction: Interaction, body: dict[str, Any]) -> None:
        route = Route(
            "POST",
            "/interactions/{webhook_id}/{webhook_token}/callback",
            webhook_id=interaction.id,
            webhook_token=interaction.token,
        )
        try:
            reach("slash before")
            async with asyncio.timeout(SECONDS):
                await self._http.request(route, json=body, seconds=SECONDS)
            reach("slash after")
        except TimeoutError:
            log.warning("an interaction was not answered in time", channel="discord")
        except ChannelError as error:
            if not (isinstance(error, Refusal) and error.code in _TOO_LATE):
                log.warning("an interaction was not answered", channel="discord", problem=str(error))
            else:
                log.info("an interaction was answered too late, or twice", channel="discord", code=error.code)


def choices(sessions: Sequence[SessionInfo], typed: str) -> list[dict[str, str]]:
    """The newest first; those that begin with what is typed before those that have it in them."""
    wanted = typed.strip().casefold()
    fitting = [s for s in reversed(sessions) if wanted in s.name.casefold() or wanted in s.title.casefold()]
    fitting.sort(key=lambda s: not (s.name.casefold().startswith(wanted) or s.title.casefold().startswith(wanted)))
    return [{"name": _label(one), "value": one.name[:_LONGEST]} for one in fitting[:MOST_CHOICES]]


def _label(session: SessionInfo) -> str:
    title = name(session.title)
    label = session.name if not title or title == session.name else f"{session.name}: {title}"
    return bounded(f"{label} (now)" if session.current else label, _LONGEST)
